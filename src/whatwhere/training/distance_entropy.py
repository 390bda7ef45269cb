"""The entropy penalty of the public code before DSTG's: heads are to look at few distances by position, or at all
alike by meaning.

The authors' stored job script has it at 0.01 (LequeuISIR/PosNeoBERT, `compute_head_entropy`); the paper does not speak
of it. A later version there sends no gradient through the semantic factor; here, as at first, both factors have one.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import DynamoBackend, TorchDynamoPlugin
from torch import Tensor, nn

from ..encoder import EncoderConfig, EncoderForMaskedLM
from ..models.explain import POSITION_TERMS, costs
from ..models.tensors import by_distance


def check_entropy_weight(weight: float, config: EncoderConfig, length: int, sharding: str) -> None:
    """Refuse a penalty where heads have no semantic term beside one of positions, on shards, and with compilation.

    length: tokens of a row.

    Raises:
        ValueError: says which.
    """
    if not weight:
        return
    terms = costs(config, length).terms
    if "semantic" not in terms or not set(terms) & set(POSITION_TERMS):
        raise ValueError(
            f"entropy_weight={weight:g} needs a semantic term beside one of positions, which {config.preset} has not. "
            "Use dstg, rp or tupe-r, or leave entropy_weight out."
        )
    if sharding != "none":
        raise ValueError(f"entropy_weight={weight:g} needs whole models: set sharding=none.")
    _check_compilation(weight)


def _check_compilation(weight: float) -> None:
    """Refuse a penalty on blocks that accelerate compiles: a compiled block shows no terms.

    Raises:
        ValueError: the backend that accelerate was asked for.
    """
    backend = TorchDynamoPlugin().backend
    if backend != DynamoBackend.NO:
        raise ValueError(
            f"entropy_weight={weight:g} reads terms that a compiled model does not show, and accelerate was asked to "
            f"compile (ACCELERATE_DYNAMO_BACKEND={backend.value}). Train without compilation, or leave entropy_weight "
            "out."
        )


def distance_entropy(scores: Tensor, allowed: Tensor | None, queries: Tensor | None) -> Tensor:
    """Compute the entropy of the distances that heads look over.

    A softmax over each query's keys, summed by distance and averaged over the queries, is a distribution of distances.

    Args:
        scores: (b, h, n, n), of one term or a sum of terms.
        allowed: (b, 1, 1 or n, n), True where a query may look at a key; None for everywhere.
        queries: (b, n), not 0 at the queries that count, the real tokens; None for all.

    Returns:
        (b, h) entropies in nats, from 0 to log(2n - 1).
    """
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    counted = torch.ones_like(scores[:, :1, :, :1]) if queries is None else queries.bool()[:, None, :, None]
    if allowed is not None:
        scores = scores.masked_fill(~(allowed | ~counted.bool()), -torch.inf)  # those not counted may look everywhere
    weights = scores.softmax(-1) * counted / counted.sum(2, keepdim=True).clamp(min=1)
    shares = by_distance(weights).sum(-2)
    return -torch.xlogy(shares, shares.clamp(min=1e-12)).sum(-1)


def entropy_penalty(terms: dict[str, Tensor], allowed: Tensor | None, queries: Tensor | None) -> Tensor:
    """Compute the penalty of one block: the sum over heads of (1 - H_semantic / log(2n - 1)) · H_positions.

    H is the mean over examples of `distance_entropy`; positions are the sum of the absolute and relative terms.

    Args:
        terms: named terms of the scores, each (b or 1, h, n, n), as `Encoder.inspect_terms` hands them over.
        allowed, queries: as in `distance_entropy`.
    """
    semantic = terms["semantic"]
    positions = sum((terms[name] for name in POSITION_TERMS if name in terms), torch.zeros_like(semantic))
    by_meaning, by_position = (distance_entropy(scores, allowed, queries).mean(0) for scores in (semantic, positions))
    return ((1 - by_meaning / math.log(2 * semantic.shape[-1] - 1)) * by_position).sum()


@contextmanager
def penalize_entropy(model: EncoderForMaskedLM, weight: float) -> Iterator[None]:
    """Add the penalty of all blocks, times `weight`, to the losses of training passes inside the `with` statement.

    Raises:
        ValueError: accelerate was asked to compile the model, as a resumed training may be.
    """
    if not weight:
        yield
        return
    _check_compilation(weight)
    blocks: list[tuple[dict[str, Tensor], Tensor | None]] = []

    def collect(block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        if model.training:
            blocks.append((terms, allowed))

    def add(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        if model.training:
            queries = keywords.get("attention_mask")
            output.loss = (
                output.loss + weight * torch.stack([entropy_penalty(*block, queries) for block in blocks]).sum()
            )
            blocks.clear()

    handle = model.register_forward_hook(add, with_kwargs=True)
    try:
        with model.inspect_terms(collect):
            yield
    finally:
        handle.remove()
