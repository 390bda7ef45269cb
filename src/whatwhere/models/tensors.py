"""Tensors that several processes may share, and those that are not finite."""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


def whole(value: Tensor) -> Tensor:
    """A tensor of which this process may have a share only: all of it. All processes must ask for it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def not_finite(model: torch.nn.Module) -> str:
    """Which parameters of a model, or else their gradients, are not finite: a few by name; empty if none.

    The last ones of the model come first, as what is not finite spreads backwards from there.
    """
    named = list(model.named_parameters())[::-1]
    for what, tensors in (("", named), ("the gradient of ", [(n, p.grad) for n, p in named if p.grad is not None])):
        names = [name for name, tensor in tensors if not bool(whole(tensor).isfinite().all())]
        if names:
            more = f" and of {len(names) - 3} more" if len(names) > 3 else ""
            return f"{what}{', '.join(names[:3])}{more}"
    return ""
