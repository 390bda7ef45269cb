"""What this machine is and what works on it: the facts behind `whatwhere doctor` and a study's provenance."""

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch

from ..encoder import EncoderForMaskedLM, preset
from ..encoder.attention import BACKENDS
from ..training.loop import bf16_pays

PACKAGES = (
    *("whatwhere", "torch", "transformers", "tokenizers", "accelerate"),
    *("numpy", "scipy", "scikit-learn", "plotly", "pyarrow"),
)
EXTRAS = {
    "mteb": "whatwhere evaluate mteb",
    "sentence-transformers": "opens a model folder as SentenceTransformer(folder)",
    "tensorboard": "a tracker of trainings (--set trackers=[tensorboard])",
}


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version()} | {name: _version(name) or "missing" for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, memory in bytes, accelerator name or None."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_name(),
        "cores": cores,
        "memory_bytes": psutil.virtual_memory().total,
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def backend_state(name: str) -> str:
    """What of a training step of the smallest `dstg` runs with this attention backend here, and what went wrong."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = EncoderForMaskedLM(preset("dstg", "tiny", vocab_size=32, num_hidden_layers=1))
    model.to(device)  # type: ignore[arg-type]
    ids = torch.tensor([[2, 7, 8, 9, 3]], device=device)
    try:
        model.set_attn_implementation(name)
        with torch.no_grad():
            model(input_ids=ids)
    except Exception as error:  # any failure is the answer
        return _line(error)
    try:
        model(input_ids=ids, labels=ids).loss.backward()
    except Exception as error:
        return f"works without training; in training: {_line(error)}"
    return "works"


def _line(error: Exception) -> str:
    words = " ".join(str(error).split())[:200]
    return words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}"


def extras() -> dict[str, str]:
    """Versions of the packages that only some functions need, or what they are for and how to get them."""
    return {name: _version(name) or f"missing; {use}: pip install {name}" for name, use in EXTRAS.items()}


def diagnose(folder: Path) -> dict[str, Any]:
    """Everything `whatwhere doctor` prints: versions, machine, backends, extras, bf16, free memory and disk in
    bytes."""
    existing = next(p for p in [folder.resolve(), *folder.resolve().parents] if p.exists())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {
        "versions": versions(),
        "machine": machine(),
        "memory_free_bytes": psutil.virtual_memory().available,
        "disk_free_bytes": shutil.disk_usage(existing).free,
        "bf16": bf16_pays(device),
        "backends": {name: backend_state(name) for name in BACKENDS},
        "extras": extras(),
    }
