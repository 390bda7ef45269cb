"""Query and key projections of every block of an encoder of transformers, whatever its family calls them."""

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..models.tensors import device_of
from .passes import body_of


class QueryKey(NamedTuple):
    """Weights (heads · d_head, width) and biases (heads · d_head,), or None, of a block's queries and keys."""

    query: Tensor
    query_bias: Tensor | None
    key: Tensor
    key_bias: Tensor | None


# Path of the attention of block {block} in {group}, and its projections of queries and keys.
_SEPARATE = (
    ("encoder.layer.{block}.attention.self", "query", "key"),  # BERT, RoBERTa, ELECTRA and their kin
    ("encoder.layer.{block}.attention.attn", "q", "k"),  # MPNet
    ("transformer.layer.{block}.attention", "q_lin", "k_lin"),  # DistilBERT
    ("encoder.albert_layer_groups.{group}.albert_layers.0.attention", "query", "key"),  # ALBERT shares its blocks
)
_JOINED = "layers.{block}.attn.Wqkv"  # ModernBERT: queries, keys and values in one matrix


def query_key(model: Any) -> list[QueryKey]:
    """Return the query and key projections of every block of a model of transformers, first block first.

    Raises:
        ValueError: the model keeps them under no known name.
    """
    body = body_of(model)
    config: Any = model.config
    blocks = int(getattr(config, "num_hidden_layers", 0))
    groups = int(getattr(config, "num_hidden_groups", 1))
    pairs = []
    for block in range(blocks):
        place = {"block": block, "group": block * groups // blocks}
        pair = _of_block(body, place)
        if pair is None:
            break
        pairs.append(pair)
    if not pairs or len(pairs) < blocks or getattr(config, "inner_group_num", 1) != 1:
        raise ValueError(
            f"The query and key projections of {type(model).__name__} are under no known name. Encoders of this "
            "package have them, and BERT, RoBERTa, ELECTRA, MPNet, DistilBERT, ALBERT, ModernBERT."
        )
    return pairs


def _of_block(body: Any, place: dict[str, int]) -> QueryKey | None:
    """Return the projections of one block; None where the model has no module under a known name."""
    for path, *names in _SEPARATE:
        with suppress(AttributeError):
            attention = body.get_submodule(path.format(**place))
            query, key = (attention.get_submodule(name) for name in names)
            return QueryKey(query.weight, query.bias, key.weight, key.bias)
    with suppress(AttributeError):
        joined = body.get_submodule(_JOINED.format(**place))
        query, key, _ = joined.weight.chunk(3)
        biases = (None, None) if joined.bias is None else joined.bias.chunk(3)[:2]
        return QueryKey(query, biases[0], key, biases[1])
    return None


@torch.inference_mode()
def distance_bias(model: Any, n: int) -> Tensor:
    """Return the bias that MPNet adds to the scores of all its blocks by the distance of two tokens, (1, h, n, n) in
    score units.

    Zeros (1, 1, 1, 1) of a model without one.
    """
    encoder: Any = getattr(body_of(model), "encoder", None)
    if not hasattr(encoder, "relative_attention_bias"):
        return torch.zeros((1, 1, 1, 1), device=device_of(model))
    bias: Tensor = encoder.compute_position_bias(torch.zeros((1, n, 1), device=device_of(model)))
    return bias
