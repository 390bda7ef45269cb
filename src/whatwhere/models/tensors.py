"""Tensors of models: those that several processes share, those that are not finite, and where files keep them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional as F


@contextmanager
def write_errors_named(path: Path, hint: str = "Make room and run the same command again.") -> Iterator[None]:
    """Turn safetensors' error, for a full disk or a place that may not be written, into an OSError with the remedy.

    Raises:
        OSError: the block could not write tensors to `path`.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"Cannot write {path}: {error}. {hint}") from None


def gather_whole(value: Tensor) -> Tensor:
    """Gather the tensor, of any shape, that several processes share; every process must call it for the same one."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def not_finite(model: torch.nn.Module) -> str:
    """List a few parameters of a model by name, or else gradients, that are not finite; "" if all are.

    The last ones of the model come first, as what is not finite spreads backwards from there.
    """
    parameters = list(model.named_parameters())[::-1]
    for what, tensors in (
        ("", parameters),
        ("the gradient of ", [(n, p.grad) for n, p in parameters if p.grad is not None]),
    ):
        names = [name for name, tensor in tensors if not bool(gather_whole(tensor).isfinite().all())]
        if names:
            more = f" and of {len(names) - 3} more" if len(names) > 3 else ""
            return f"{what}{', '.join(names[:3])}{more}"
    return ""


def by_distance(pairs: Tensor) -> Tensor:
    """Lay values of pairs (..., n, n) out by distance: (..., n, 2n - 1), entry j - i + n - 1 for query i and key j.

    Rows come in reverse order; 0 stands where a query has no key at a distance.
    """
    n = pairs.shape[-1]
    # Turned over and padded to width 2n; read again with width 2n - 1, each row stands one place further right.
    return F.pad(pairs.flip(-2), (0, n)).flatten(-2)[..., : n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))


def device_of(model: Any) -> torch.device:
    """Return the device of a model's parameters; the CPU where it has none."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def default_device() -> torch.device:
    """Return the device of trainings and measurements: CUDA's current one, where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def named_tensors(folder: Path) -> dict[str, Path]:
    """Map the name of every tensor in the safetensors files of a folder to the file that holds it.

    Raises:
        ValueError: a damaged file, no weights, or weights in pickles alone.
    """
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as weights:
                files |= dict.fromkeys(weights.keys(), path)
        except SafetensorError as error:
            raise ValueError(f"{path} does not open ({error}). Use a complete copy of the model.") from None
    if not files:
        pickles = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for p in folder.glob(pattern))
        if not pickles:
            advice = "Give the folder of a finished model, or a .npy file."
            raise ValueError(f"No weights in {folder}: no .safetensors file. {advice}")
        raise ValueError(
            f"{folder} has its weights as pickle alone ({pickles[0]}), which runs code when opened and is never read "
            "here. Convert it where you trust it: model.save_pretrained writes safetensors."
        )
    return files


def read_tensor(path: Path, name: str) -> Tensor:
    """Read one tensor of a safetensors file, in the shape and type that the file gives."""
    with safe_open(path, framework="pt") as weights:
        tensor: Tensor = weights.get_tensor(name)
        return tensor
