"""Numbers that are not finite: where they stand in a model, and the step that met them."""

import torch


class NotFinite(ValueError):
    """A step whose loss or gradient is no finite number, before it changed any weight; `where` says in which
    parameter."""

    def __init__(self, loss: float, norm: float, where: str) -> None:
        super().__init__(f"Loss is {loss}, gradient norm {norm}")
        self.where = where


def not_finite(model: torch.nn.Module) -> str:
    """Which parameters of a model, or else their gradients, are not finite: a few by name, the last ones of the model
    first, as what is not finite spreads backwards from there; empty if none."""
    named = list(model.named_parameters())[::-1]
    for what, tensors in (("", named), ("the gradient of ", [(n, p.grad) for n, p in named if p.grad is not None])):
        names = [name for name, tensor in tensors if not bool(tensor.isfinite().all())]
        if names:
            more = f" and of {len(names) - 3} more" if len(names) > 3 else ""
            return f"{what}{', '.join(names[:3])}{more}"
    return ""
