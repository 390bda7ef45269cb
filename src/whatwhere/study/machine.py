"""Facts of this machine and what works on it, for `whatwhere doctor` and a study's provenance."""

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

from ..encoder import EncoderForMaskedLM, preset
from ..encoder.attention import BACKENDS
from ..models.tensors import default_device
from ..run.processes import count_cores
from ..run.remote import cpu_name
from ..run.thread_waiting import wait_policy
from ..training.environment import is_bf16_faster

PACKAGES = "whatwhere torch transformers tokenizers accelerate numpy scipy scikit-learn plotly pyarrow".split()
EXTRAS = {  # package -> (what it serves, the extra of whatwhere that installs it)
    "mteb": ("whatwhere evaluate mteb", "mteb"),
    "sentence-transformers": ("opens a model folder as SentenceTransformer(folder)", "sentence"),
    "onnx": ("whatwhere export", "onnx"),
    "onnxruntime": ("whatwhere export, which checks its graph with it", "onnx"),
    "onnxscript": ("whatwhere export", "onnx"),
    "tensorboard": ("a tracker of trainings (--set trackers=[tensorboard])", "trackers"),
    "trackio": ("a tracker of trainings (--set trackers=[trackio])", "trackers"),
}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version()} | {name: _version(name) or "missing" for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine_facts() -> dict[str, Any]:
    """Return processor, cores that this process may use, memory in bytes, and accelerator name or None."""
    return {
        "cpu": cpu_name(),
        "cores": count_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def backend_state(name: str) -> str:
    """Return "works" if a training step of a small `dstg` runs here with an attention backend, else the error.

    Where the model runs but does not train, it is "works without training; in training: " and the error.

    The step uses the precision that trainings choose here: a compiler can refuse bfloat16 alone. Padding is masked.
    """
    device = default_device()
    in_precision_of_training = torch.autocast(device.type, torch.bfloat16, enabled=is_bf16_faster(device))
    model = EncoderForMaskedLM(preset("dstg", "tiny", vocab_size=32, num_hidden_layers=1))
    model.to(device)  # type: ignore[arg-type]
    ids = torch.tensor([[2, 7, 8, 9, 3, 0]], device=device)
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    try:
        model.set_attn_implementation(name)
        with torch.no_grad(), in_precision_of_training:
            model(**batch)
    except Exception as error:  # any failure is the answer
        return _error_line(error)
    try:
        with in_precision_of_training:
            loss = model(**batch, labels=ids).loss
        loss.backward()
    except Exception as error:
        return f"works without training; in training: {_error_line(error)}"
    return "works"


def _error_line(error: Exception) -> str:
    words = " ".join(str(error).split())[:200]
    return words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}"


def diagnose(folder: Path) -> dict[str, Any]:
    """Return what `whatwhere doctor` prints: versions, machine, free memory and disk in bytes, what works here.

    folder: path on the disk whose free bytes are returned.
    """
    return {
        "versions": versions(),
        "machine": machine_facts(),
        "memory_free_bytes": psutil.virtual_memory().available,
        "disk_free_bytes": shutil.disk_usage(folder).free,
        "bf16": is_bf16_faster(default_device()),
        "threads": torch.get_num_threads(),
        "wait_policy": wait_policy(),
        "backends": {name: backend_state(name) for name in BACKENDS},
        "extras": {
            name: _version(name) or f"missing; {use}: pip install 'whatwhere[{extra}]'"
            for name, (use, extra) in EXTRAS.items()
        },
    }
