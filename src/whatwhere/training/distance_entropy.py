"""Entropy penalty of an earlier code of DSTG's authors, on heads that look at many distances by position, few by sense.

The authors' stored job script has the weight 0.01 (LequeuISIR/PosNeoBERT, `compute_head_entropy`); the paper does not
mention the penalty. The first version there sends gradients through both factors, as here; a later one not through the
semantic factor.
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
    """Refuse a penalty for heads without a semantic term and a position term, for shards, and with compilation.

    length: tokens of a row.

    Raises:
        ValueError: names what the penalty cannot work with.
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
        ValueError: names the backend that compiles.
    """
    backend = TorchDynamoPlugin().backend
    if backend != DynamoBackend.NO:
        raise ValueError(
            f"entropy_weight={weight:g} reads terms that a compiled model does not show, and accelerate was asked to "
            f"compile (ACCELERATE_DYNAMO_BACKEND={backend.value}). Train without compilation, or leave entropy_weight "
            "out."
        )


def distance_entropy(scores: Tensor, allowed: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """Compute the entropy of the distances that heads look over.

    A softmax over each query's keys, summed by distance and averaged over the queries, is a distribution of distances.

    Args:
        scores: (b, h, n, n), of one term or a sum of terms.
        allowed: (b, 1, 1 or n, n), True where a query may look at a key; None for everywhere.
        attention_mask: (b, n), not 0 at tokens, whose queries count, 0 at padding; None if all are tokens.

    Returns:
        (b, h) entropies in nats, from 0 to log(2n - 1).
    """
    scores = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    mask = torch.ones_like(scores[:, 0, :, 0]) if attention_mask is None else attention_mask
    is_token = mask.bool()[:, None, :, None]
    if allowed is not None:
        scores = scores.masked_fill(~(allowed | ~is_token), -torch.inf)  # a row of -inf alone would give nan
    weights = scores.softmax(-1) * is_token / is_token.sum(2, keepdim=True).clamp(min=1)
    shares = by_distance(weights).sum(-2)
    return -torch.xlogy(shares, shares.clamp(min=1e-12)).sum(-1)


def entropy_penalty(terms: dict[str, Tensor], allowed: Tensor | None, attention_mask: Tensor | None) -> Tensor:
    """Compute the penalty of one block: the sum over heads of (1 - H_semantic / log(2n - 1)) · H_positions.

    H is the mean over examples of `distance_entropy`; positions are the sum of the absolute and relative terms.

    It is in nats, without axes. terms must have `semantic`. The equation is `compute_head_entropy` of the earlier code
    of DSTG's authors.

    Args:
        terms: named terms of the scores, each (b or 1, h, n, n), as `Encoder.inspect_terms` hands them over.
        allowed, attention_mask: as in `distance_entropy`.
    """
    semantic = terms["semantic"]
    positions = sum((terms[name] for name in POSITION_TERMS if name in terms), torch.zeros_like(semantic))
    by_meaning = distance_entropy(semantic, allowed, attention_mask).mean(0)
    by_position = distance_entropy(positions, allowed, attention_mask).mean(0)
    return ((1 - by_meaning / math.log(2 * semantic.shape[-1] - 1)) * by_position).sum()


@contextmanager
def penalize_entropy(model: EncoderForMaskedLM, weight: float) -> Iterator[None]:
    """Add the penalty of all blocks, times `weight`, to the losses of training passes inside the `with` statement.

    Raises:
        ValueError: accelerate compiles the model (a resumed training has not called `check_entropy_weight`).
    """
    if not weight:
        yield
        return
    _check_compilation(weight)
    blocks: list[tuple[dict[str, Tensor], Tensor | None]] = []

    def collect(index: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        if model.training:
            blocks.append((terms, allowed))

    def add_penalty(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
        if model.training:
            mask = keywords.get("attention_mask")
            penalties = [entropy_penalty(terms, allowed, mask) for terms, allowed in blocks]
            output.loss = output.loss + weight * torch.stack(penalties).sum()
            blocks.clear()

    handle = model.register_forward_hook(add_penalty, with_kwargs=True)
    try:
        with model.inspect_terms(collect):
            yield
    finally:
        handle.remove()
