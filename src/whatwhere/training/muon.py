"""Muon for stacked matrices: momentum, made orthogonal by Newton-Schulz iterations.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon), with the scale of Liu et al. 2025 (Muon is Scalable, eq.
4) beside its own. Where a parameter holds several matrices in one product (Q, K and V; gate and up), each is made
orthogonal alone, and matrices of one shape in one call: torch.optim.Muon takes parameters whole and one by one. For
whole matrices both give the same (tests/training/test_muon.py).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration (Jordan et al. 2024)
ITERATIONS = 5
RMS = 0.2  # root mean square of an update of AdamW, in units of its learning rate (Liu et al. 2025)


def orthogonal(x: Tensor, eps: float = 1e-7) -> Tensor:
    """Matrices (..., r, c), r <= c, with singular values near 1 and the singular vectors of `x`, in bfloat16."""
    a, b, c = COEFFICIENTS
    x = x.bfloat16()
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=eps)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


SCALES: dict[str, Callable[[int, int], float]] = {
    "adamw": lambda r, c: RMS * max(r, c) ** 0.5,
    "spectral": lambda r, c: max(1.0, r / c) ** 0.5,
}


class Muon(torch.optim.Optimizer):
    """p ← p (1 - lr·decay) - lr · scale(r, c) · orthogonal(momentum), for each matrix (r, c) of the parameter p.

    Args:
        params: dicts with `params` (each 2-D) and `rows`, for each parameter the numbers of rows of the matrices
            stacked in it.
        scale: "adamw", 0.2 √max(r, c): the entries of an update have a root mean square of about 0.2·lr whatever the
            shape, as AdamW's (Liu et al. 2025); "spectral", √max(1, r/c): where outputs are at least as many as inputs,
            an update changes their size alike whatever the width, else √(c/r) times as much (Jordan et al. 2024).
        momentum: of Nesterov's kind.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float = 4e-3,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        scale: str = "adamw",
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "scale": scale})
        for group in self.param_groups:
            for p, rows in zip(group["params"], group["rows"], strict=True):
                if p.ndim != 2 or sum(rows) != p.shape[0]:
                    raise ValueError(
                        f"Muon takes matrices stacked by rows; got a parameter {tuple(p.shape)} with rows "
                        f"{tuple(rows)}."
                    )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of all parameters that have a gradient."""
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            matrices: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(
                list
            )  # by shape: part of an update, part of a parameter
            for p, rows in zip(group["params"], group["rows"], strict=True):
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                mean = state["momentum_buffer"].lerp_(p.grad, 1 - momentum)
                update = p.grad.lerp(mean, momentum)
                p.mul_(1 - lr * group["weight_decay"])
                for part, target in zip(update.split(rows), p.split(rows), strict=True):
                    matrices[part.shape].append((part, target))
            for (r, c), pairs in matrices.items():
                updates = orthogonal(torch.stack([part if r <= c else part.mT for part, _ in pairs]))
                rate = lr * SCALES[group["scale"]](r, c)
                for update, (_, target) in zip(updates, pairs, strict=True):
                    target.add_(update if r <= c else update.mT, alpha=-rate)
