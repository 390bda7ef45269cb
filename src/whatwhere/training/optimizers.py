"""Optimizers: AdamW and Muon, their groups of parameters, and the learning rate's schedule.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) makes momentum orthogonal by Newton-Schulz
iterations; the scale of an update is its own or the one of Liu et al. 2025 (Muon is Scalable, eq. 4). Where a parameter
holds several matrices in one product (Q, K and V; gate and up), each is made orthogonal alone, and matrices of one
shape in one call: torch.optim.Muon takes parameters whole and one by one. For whole matrices both give the same
(test_muon.py).
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from ..encoder.attention import StackedLinear
from ..models.tensors import gather_whole
from .sharding import shard_bounds
from .training_keys import LoopConfig

_IN_A_BLOCK = re.compile(r"layers?\.\d+\.")  # names of parameters: `layers.3.` here, `encoder.layer.3.` in BERT
# Parts of a scheme by their names in an encoder, and the group of the parameters inside them, whatever these are
# called: T5's `table` learns with `biases`. Inside `relative`, `untied` and `pair_terms` a module's attribute `tables`
# names parameters that learn with `table`, and STANDARD_MODULES learn as they do in a block (`_group_of`).
GROUP_OF_PART = {
    "position_embeddings": "table",
    "distance_vectors": "table",
    "relative": "biases",
    "untied": "biases",
    "pair_terms": "biases",
}
STANDARD_MODULES = nn.Linear, nn.LayerNorm, nn.Conv1d, nn.Conv2d  # never in the group `biases`
CONSTANT_SHARE = 0.7  # share of a trapezoid's steps after the warm-up at the peak learning rate
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration (Jordan et al. 2024)
ITERATIONS = 5
RMS = 0.2  # root mean square of an update of AdamW, in units of its learning rate (Liu et al. 2025)


def orthogonalize(x: Tensor, dtype: torch.dtype, eps: float = 1e-7) -> Tensor:
    """Return matrices (m, r, c), r <= c, with the singular vectors of `x`.

    Their singular values are near 1; all is computed in `dtype`.
    """
    a, b, c = COEFFICIENTS
    x = x.to(dtype)
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
    """Optimizer of matrices by orthogonal momentum (Jordan et al. 2024).

    p ← p (1 - lr·decay) - lr · scale(r, c) · orthogonal(momentum), for each matrix (r, c) of the parameter p.

    Args:
        params: dicts with `params` (each 2-D) and `rows`: for each parameter the row counts of its stacked matrices.
        scale: "adamw", 0.2 √max(r, c): the entries of an update have a root mean square of about 0.2·lr whatever the
            shape, as AdamW's (Liu et al. 2025); "spectral", √max(1, r/c): for r ≥ c an update changes the size of the
            outputs equally at every width, for r < c by √(c/r) times that (Jordan et al. 2024).
        momentum: Nesterov's momentum.
        dtype: type of the iterations. Processors without bfloat16 products take some ten times as long in bfloat16.

    Raises:
        ValueError: a parameter of another number of dimensions than two, or of other rows than `rows` add up to.
    """

    def __init__(
        self,
        params: Iterable[dict[str, Any]],
        lr: float = 4e-3,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        scale: str = "adamw",
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "scale": scale})
        self.dtype = dtype
        for group in self.param_groups:
            for p, rows in zip(group["params"], group["rows"], strict=True):
                if p.ndim != 2 or sum(rows) != p.shape[0]:
                    shapes = f"a parameter {tuple(p.shape)} with rows {tuple(rows)}"
                    raise ValueError(
                        f"Muon takes matrices stacked by rows; got {shapes}. Leave other parameters to AdamW."
                    )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient, once."""
        for group in self.param_groups:
            lr = group["lr"]
            momentum = group["momentum"]
            matrices: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)  # updates and their targets
            whole_changes: list[tuple[DTensor, Tensor]] = []  # sharded parameters, and the change of all their rows
            for p, rows in zip(group["params"], group["rows"], strict=True):
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                mean = state["momentum_buffer"].lerp_(p.grad, 1 - momentum)
                update = p.grad.lerp(mean, momentum)
                p.mul_(1 - lr * group["weight_decay"])
                target: Tensor = p
                if isinstance(p, DTensor):  # a shard of a matrix has other singular vectors than the whole matrix
                    update = gather_whole(update)
                    target = torch.zeros(p.shape, device=p.device)
                    whole_changes.append((p, target))
                for matrix, target_rows in zip(update.split(rows), target.split(rows), strict=True):
                    matrices[matrix.shape].append((matrix, target_rows))
            for (r, c), pairs in matrices.items():
                stack = torch.stack([matrix if r <= c else matrix.mT for matrix, _ in pairs])
                updates = orthogonalize(stack, self.dtype)
                rate = lr * SCALES[group["scale"]](r, c)
                for update, (_, target_rows) in zip(updates, pairs, strict=True):
                    target_rows.add_(update if r <= c else update.mT, alpha=-rate)
            for p, change in whole_changes:
                p.to_local().add_(change[slice(*shard_bounds(p))])


def learning_rate_factor(index: int, config: LoopConfig, steps: int) -> float:
    """Return the learning rate of step `index`, from 0, as a share of the peak: linear warm-up, then `schedule`."""
    warmup = min(config.warmup_steps, steps // 2)
    if index < warmup:
        return (index + 1) / warmup
    progress = (index - warmup) / max(steps - warmup, 1)
    if config.schedule == "cosine":
        course = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        course = min(1.0, (1 - progress) / (1 - CONSTANT_SHARE if config.schedule == "trapezoid" else 1))
    return config.minimum_learning_rate_ratio + (1 - config.minimum_learning_rate_ratio) * course


def expected_table_walk(config: LoopConfig, steps: int) -> float:
    """Return the expected root mean square of AdamW's random walk of the position table over a whole training.

    AdamW divides a gradient by its own size, so an entry whose gradient is noise, however small, takes steps of about
    the learning rate in random directions: rate · √Σ(rate_t / rate)², with the table's own rate. Weight decay shrinks
    every step's change in all later steps. The formula holds for a table that is a parameter of its own and whose rows
    are all read in every step.

    steps: number of steps of the whole training.
    """
    squares = 0.0
    for index in range(steps):
        rate = config.learning_rate * config.table_learning_rate_scale * learning_rate_factor(index, config, steps)
        squares = squares * (1 - rate * config.table_weight_decay) ** 2 + rate**2
    return math.sqrt(squares)


def _group_of(name: str, parameter: Tensor, module: nn.Module) -> str:
    """Return the name of the group, with a rate and a decay, to which a parameter belongs.

    Args:
        name: full name of the parameter, as `named_parameters` gives it.
        module: module that has the parameter. A module of a scheme lists in its attribute `tables` the names of
            parameters that learn as the position table does.
    """
    *module_names, last_name = name.split(".")
    part_group = next((GROUP_OF_PART[part] for part in module_names if part in GROUP_OF_PART), None)
    is_table = part_group == "table" or last_name in getattr(module, "tables", ())
    # An embedding inside `pair_terms` has vectors of distances. One inside `relative` has biases (`part_group` below).
    if is_table or ("pair_terms" in module_names and isinstance(module, nn.Embedding)):
        return "table"
    if "_embeddings" in name:
        return "embeddings"
    if part_group and not isinstance(module, STANDARD_MODULES):
        return part_group
    if parameter.ndim < 2:
        return "one-dimensional"
    is_matrix = parameter.ndim == 2  # not the kernel of a convolution
    return "matrices" if is_matrix and (part_group or _IN_A_BLOCK.search(name)) else "rest"


def make_optimizers(
    model: PreTrainedModel, config: LoopConfig, steps: int, muon_dtype: torch.dtype = torch.bfloat16
) -> list[torch.optim.Optimizer]:
    """Make AdamW, or Muon over the hidden matrices and AdamW over the rest; each group has a peak rate and a decay.

    Args:
        steps: steps of the whole training; above `matrix_steps` more of them mean a lower rate of the matrices.
        muon_dtype: floating-point type of Muon's iterations.

    Raises:
        ValueError: optimizer=muon for a model that names its blocks otherwise than `layer.3` or `layers.3`.
    """
    matrix_factor = min(1.0, (config.matrix_steps / steps) ** 0.5) if config.matrix_steps else 1.0
    scales_and_decays = {
        "matrices": (config.matrix_learning_rate_scale * matrix_factor, config.weight_decay),
        "rest": (1.0, config.weight_decay),
        "embeddings": (config.embedding_learning_rate_scale, config.embedding_weight_decay),
        "table": (config.table_learning_rate_scale, config.table_weight_decay),
        "one-dimensional": (1.0, 0.0),
        "biases": (config.bias_learning_rate_scale, config.bias_weight_decay),
    }
    groups: dict[str, dict[str, Any]] = {}
    for kind, (scale, decay) in scales_and_decays.items():
        peak = config.learning_rate * scale
        groups[kind] = {"params": [], "lr": peak, "peak": peak, "weight_decay": decay}
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        kind = _group_of(name, parameter, model.get_submodule(name.rpartition(".")[0]))
        if kind == "matrices" and id(parameter) in embeddings:  # in a block, as BERT's of distances
            kind = "table"
        groups[kind]["params"].append(parameter)
    muon_group = groups.pop("matrices") if config.optimizer == "muon" else None
    adamw_groups = [group for group in groups.values() if group["params"]]
    adamw = torch.optim.AdamW(adamw_groups, betas=config.betas, eps=config.epsilon, fused=True)
    if muon_group is None:
        return [adamw]
    if not muon_group["params"]:
        raise ValueError(
            f"optimizer=muon finds no hidden matrices in {type(model).__name__}, whose blocks have names of their own. "
            "Use optimizer=adamw."
        )
    rows_of_parameter = {
        id(module.weight): list(module.output_sizes) for module in model.modules() if isinstance(module, StackedLinear)
    }
    muon_group["rows"] = [rows_of_parameter.get(id(p), [len(p)]) for p in muon_group["params"]]
    return [adamw, Muon([muon_group], scale=config.muon_scale, dtype=muon_dtype)]
