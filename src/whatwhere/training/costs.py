"""What an encoder costs: parameters, and operations of a forward pass, by part.

Both are read off the model itself, built on torch's meta device (shapes without numbers), so they hold for any scheme.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers.initialization import no_init_weights

from ..encoder import EncoderConfig, EncoderForMaskedLM
from ..encoder.biases import Bias

# Which part a module belongs to, by the first of these names that its path holds.
_PART_OF = {
    "word_embeddings": "word_embedding",
    "position_embeddings": "position_table",
    "untied": "positional_terms",
    "relative": "positional_terms",
    "qkv": "attention_projections",
    "out": "attention_projections",
    "attention": "attention_scores",
    "feed_forward": "feed_forward",
    "attention_norm": "norms",
    "feed_forward_norm": "norms",
    "embedding_norm": "norms",
    "head": "vocabulary_head",
    "norm": "norms",
}
PARTS = tuple(dict.fromkeys(_PART_OF.values()))
# In reading order.
TERMS = ("semantic", "mixed", "semantic_to_absolute", "absolute_to_semantic", "absolute", "relative")


@dataclass(frozen=True)
class Costs:
    """What `costs` found.

    parameters: numbers of each part; shared ones count once (a tied vocabulary head has its bias only).
    operations: multiplications and additions of each part's matrix products, per token of a forward pass over one row
        of `length` tokens of which the share `labelled` is predicted; what is not a matrix product (norms, look-ups,
        softmax) is not counted.
    terms: names of the terms of the attention scores, those of `TERMS` that the scheme has.
    """

    parameters: dict[str, int]
    operations: dict[str, float]
    length: int
    labelled: float
    terms: tuple[str, ...]

    @property
    def total_parameters(self) -> int:
        return sum(self.parameters.values())

    @property
    def total_operations(self) -> float:
        return sum(self.operations.values())

    def of(self, what: str) -> float:
        """The total of "parameters" or "operations"."""
        return self.total_parameters if what == "parameters" else self.total_operations


def _part(path: str) -> str:
    words = path.split(".")
    # What an own scheme computes outside of these modules is counted where schemes are.
    return next((part for name, part in _PART_OF.items() if name in words), "positional_terms")


def _without_values(module: Any, inputs: Any, output: Bias) -> Bias:
    return replace(output, values=None)


def _meta_model(config: EncoderConfig) -> EncoderForMaskedLM:
    with torch.device("meta"), no_init_weights():
        model = EncoderForMaskedLM(copy.deepcopy(config))
    model.tie_weights()
    model.requires_grad_(False)
    # `eager` multiplies term by term, which is what the scores need, unless they are one product of sums (SPLIT,
    # BERT-A^d).
    model.set_attn_implementation("sdpa" if config.stream_qk == "joint" or config.untied == "crossed" else "eager")
    for part in (model.encoder.untied, model.encoder.relative):
        if part is not None:  # special tokens are looked up: no product, and where they are a shape cannot tell
            part.register_forward_hook(_without_values)
    return model.eval()


def _own(counts: dict[str, float]) -> Iterable[tuple[str, float]]:
    """Each module's operations without those of the modules below it."""
    for path, total in counts.items():
        below = [other for other in counts if other.startswith(path + ".")]
        children = [p for p in below if not any(p.startswith(other + ".") for other in below)]
        yield path, total - sum(counts[child] for child in children)


def costs(config: EncoderConfig, length: int | None = None, labelled: float = 0.15) -> Costs:
    """Parameters, and operations per token of a forward pass, of the model with a masked-language head.

    Args:
        config: any encoder.
        length: tokens of a row; default: max_position_embeddings. What all rows of a batch share (TUPE's positional
            term) is counted for one row.
        labelled: share of the tokens that the vocabulary head sees.

    Raises:
        ValueError: `length` is longer than the position table, `labelled` is no share, or an own scheme needs numbers
        to run.
    """
    if not 0 <= labelled <= 1:
        raise ValueError(f"labelled is the share of predicted tokens, in [0, 1]; got {labelled}.")
    if length is not None and length < 1:
        raise ValueError(f"length must be at least 1 token; got {length}.")
    length = length or config.max_position_embeddings
    ids = torch.zeros(1, length, dtype=torch.long, device="meta")
    try:
        model = _meta_model(config)
        with FlopCounterMode(display=False) as counter:
            model(input_ids=ids)
        terms = tuple(sorted(model.attention_terms(input_ids=ids[:, :2]), key=TERMS.index))
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise ValueError(
            f"The costs of {config.preset or 'this encoder'} cannot be counted: it does not run on torch's meta "
            f"device, where tensors have shapes but no numbers ({' '.join(str(error).split())[:120]}). An own scheme "
            "is counted if it reads no values of tensors."
        ) from None
    parameters, operations = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0.0)
    for name, parameter in model.named_parameters():
        parameters[_part(name)] += parameter.numel()
    counts = {path: float(sum(found.values())) for path, found in counter.get_flop_counts().items() if path != "Global"}
    for path, count in _own(counts):
        operations[_part(path)] += count / length
    operations["vocabulary_head"] *= labelled
    return Costs(parameters, operations, length, labelled, terms)


def matched_width(config: EncoderConfig, what: str, target: float, length: int, labelled: float) -> int:
    """The `intermediate_size` at which a model comes nearest to costing `target`, "parameters" or "operations" per
    token.

    Raises:
        ValueError: even without a feed-forward the model costs more.
    """
    step = config.intermediate_step

    def cost(width: int) -> float:
        other = copy.deepcopy(config)
        other.intermediate_size = width
        return costs(other, length, labelled).of(what)

    first = cost(step)
    each = cost(2 * step) - first  # both costs grow by the same for every step of the width
    steps = 1 + (target - first) / each
    if steps < 0.5:
        raise ValueError(
            f"{config.preset} cannot be made to cost {target:,.0f} {what}: with the narrowest feed-forward, "
            f"intermediate_size={step}, it costs {first:,.0f}. Put {config.preset} first in --models, so that the "
            "others are matched to it, or leave it out."
        )
    return step * max(1, round(steps))
