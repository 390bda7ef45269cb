"""What a model needs: the rise of its masked-language loss when a term of the attention scores, or a stream, is taken
away.

A term is removed (set to 0), replaced by its mean over documents, or shuffled over positions, in all blocks, in one, or
in one head; everything else is the model as it is. A stream is changed where it enters a block. Each document is
compared with itself: same tokens, same masks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..encoder.attention import Layout
from ..encoder.model import Streams
from ..encoder.registry import nearest
from ..records import Record
from .bootstrap import document_mean
from .heads import term_names
from .passes import (
    NO_WORDS,
    Documents,
    Progress,
    at_least_float32,
    check_masked_lm,
    device_of,
    evaluating,
    name_of,
    rows_on,
)
from .who import Who

KINDS = ("remove", "mean", "shuffle")
BY = ("all", "layer", "head")
MASK_RATE = 0.2
SEED = 0  # of masks and permutations: the same for all models, so that they can be compared document by document
IGNORED = -100

_STREAM = "stream."


@dataclass(frozen=True)
class Choices:
    """What to ablate, one after the other; None means all that the model has.

    parts: names of terms, `stream.position`, `stream.semantic`. layers: 1 ... L, blocks, for "layer" and "head". heads:
    from 0, for "head".
    """

    parts: Sequence[str] | None = None
    layers: Sequence[int] | None = None
    heads: Sequence[int] | None = None


@dataclass(frozen=True)
class _Ablation:
    """One thing taken away: in the block `layer` (from 1; None: all), in `head` (None: all)."""

    kind: str
    part: str
    layer: int | None
    head: int | None

    @property
    def stream(self) -> bool:
        return self.part.startswith(_STREAM)


def ablation_records(
    model: Any,
    documents: Documents,
    who: Who,
    *,
    mask_rate: float = MASK_RATE,
    kinds: Sequence[str] = KINDS,
    by: Sequence[str] = BY,
    choices: Choices | None = None,
    batch_size: int = 8,
    progress: Progress = None,
) -> list[Record]:
    """Records of the masked-language loss and of its rise, in nats, paired over documents.

    `ablation.loss`: mean over documents of the mean over their masked tokens (see `masked`), and of each document
    (index), so that models can be compared document by document. `ablation.KIND` with `part` = the term or stream,
    `layer` = number of the block (None: all), `head` (None: all): the rise. Kinds:

    - `remove`: the term is 0; a stream is 0 at every token.
    - `mean`: the term at a pair (i, j) is its mean over the documents of the batch at (i, j), of those in which i may
      look at j; a stream is, at every token, its mean over all regular tokens of the batch. A term that is the same in
      all documents does not change, and its rise is exactly 0.
    - `shuffle`: rows and columns of the term, or the tokens of a stream, are permuted by one random permutation of the
      regular tokens of each document, the same in all blocks; special tokens and padding stay. In packed windows each
      document permutes its own.

    A stream is changed where it enters a block; for all blocks that is the embedding, so layer None and layer 1 agree.
    It has no heads. An ablation that changes nothing gives exactly 0: both sides take the same path.

    Args:
        model: an `EncoderForMaskedLM`.
        by: "all" blocks and heads at once, each "layer", each "head".
        choices: what to ablate; default: everything.
        batch_size: documents at a time; the last batch takes the rest along, so every mean is over at least as many (if
            there are).
        progress: counts ablations over all batches.

    Raises:
        ValueError: another model, unknown names, layers or heads, a rate outside (0, 1), or means of a single document.
    """
    check_masked_lm(model, "An ablation")
    _check(documents, mask_rate, kinds, by, batch_size)
    ablations = _plan(model, kinds, by, choices or Choices())
    ids, labels = masked(documents, mask_rate, model.config.mask_token_id)
    order = permutations(documents)
    groups = np.array_split(np.arange(len(documents)), max(1, len(documents) // batch_size))
    values = np.empty((len(documents), 1 + len(ablations)))  # the loss, and every rise
    with evaluating(model), torch.inference_mode():
        for number, rows in enumerate(groups):
            batch = _Batch(model, documents, rows, ids, labels, order)
            with model.encoder.inspecting(batch.see):
                values[rows, 0] = batch.start()
                for k, rise in enumerate(batch.rises(ablations), 1):
                    values[rows, k] = rise
                    if progress is not None:
                        progress(number * len(ablations) + k, len(groups) * len(ablations))
    read = ~np.isnan(values[:, 0])
    if not read.any():
        raise ValueError(NO_WORDS)
    mean = document_mean(values[read], articles=None if documents.articles is None else documents.articles[read])
    places = [("loss", None, None, None), *((a.kind, a.part, a.layer, a.head) for a in ablations)]
    axes = {("metric", "part", "layer", "head"): places}
    loss, *changes = who.records("ablation.", mean, axes, n=read.sum())
    each = who.records("ablation.loss", values[:, 0], {"index": range(len(values))}, n=1)
    return [loss, *each, *changes]


def document_loss_records(model: Any, documents: Documents, who: Who, *, batch_size: int = 8) -> list[Record]:
    """`loss.document`: the masked-language loss of each document (index) in nats, the same masks for all models, and
    their mean; of more documents than the ablations can afford.

    Raises:
        ValueError: another model, or documents without a word.
    """
    check_masked_lm(model, "A loss")
    ids, labels = masked(documents, MASK_RATE, model.config.mask_token_id)
    values, order = np.empty(len(documents)), np.zeros_like(ids)
    with evaluating(model), torch.inference_mode():
        for rows in np.array_split(np.arange(len(documents)), max(1, len(documents) // batch_size)):
            values[rows] = _Batch(model, documents, rows, ids, labels, order).start()
    read = ~np.isnan(values)
    if not read.any():
        raise ValueError(NO_WORDS)
    mean = document_mean(values[read, None], articles=None if documents.articles is None else documents.articles[read])
    whole = who.records("loss.", mean, {"metric": ["document"]}, n=read.sum())
    return [*whole, *who.records("loss.document", values, {"index": range(len(values))}, n=1)]


def masked(documents: Documents, mask_rate: float, mask_id: int, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and labels (m, n): in each document `mask_rate` of the regular tokens, at least one, are [MASK]; labels
    are -100 elsewhere.

    Which ones depends on the seed, the number of the document and its regular tokens alone, so all models are asked for
    the same.
    """
    draws = np.where(documents.regular, np.random.default_rng(seed).random(documents.regular.shape), np.inf)
    tokens = documents.regular.sum(1)
    count = np.where(tokens > 0, np.maximum(1, np.round(mask_rate * tokens)), 0)
    chosen = (draws.argsort(1).argsort(1) < count[:, None]) & documents.regular
    return np.where(chosen, mask_id, documents.input_ids), np.where(chosen, documents.input_ids, IGNORED)


def permutations(documents: Documents, seed: int = SEED) -> np.ndarray:
    """(m, n): at each regular token the place of another one of the same document, at random; other tokens stay at
    their own."""
    m, n = documents.regular.shape
    generator = np.random.default_rng((seed, 1))
    order = np.tile(np.arange(n), (m, 1))
    for i in range(m):
        numbers = np.zeros(n, dtype=np.int64) if documents.document_ids is None else documents.document_ids[i]
        for number in np.unique(numbers):
            places = np.flatnonzero(documents.regular[i] & (numbers == number))
            order[i, places] = generator.permutation(places)
    return order


def token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy (tokens,) in nats, computed in at least float32, as float64."""
    return F.cross_entropy(at_least_float32(logits), labels, reduction="none").double()


class _Batch:
    """Some documents on their way through the model; blocks before an ablation are not computed again."""

    def __init__(
        self, model: Any, documents: Documents, rows: np.ndarray, ids: np.ndarray, labels: np.ndarray, order: np.ndarray
    ) -> None:
        self.model, self.encoder = model, model.encoder
        arrays = ids, documents.attention_mask, documents.position_ids, documents.document_ids
        given = rows_on(device_of(model), rows, *arrays)
        self.labels, self.order, self.regular = rows_on(device_of(model), rows, labels, order, documents.regular)
        self.layout: Layout = self.encoder.layout(*given)
        self.inputs: list[Streams] = [self.encoder.embed(given[0], self.layout.position_ids)]
        allowed = self.layout.allowed
        self.pairs: Tensor | None = None  # (b, 1, n, n): who looks at whom, where not everywhere
        if allowed is not None:
            n = allowed.shape[-1]
            self.pairs = allowed.expand(-1, -1, n, -1)
            if given[1] is not None:
                self.pairs = self.pairs & given[1].bool()[:, None, :, None]
        self.now: _Ablation | None = None
        self.constant: set[str] = set()  # terms that are the same for all documents of the batch
        # Blocks (from 0) that get their own terms back, to take the path that changed terms take.
        self.same: set[int] = set()

    def see(self, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> dict[str, Tensor] | None:
        """What the encoder calls in every block."""
        now = self.now
        self.constant = {name for name, term in terms.items() if len(term) == 1 < len(self.labels)}
        if now is not None and now.layer in (None, block + 1):
            return {**terms, now.part: self.changed(terms[now.part], now)}
        return terms if block in self.same else None

    def start(self) -> np.ndarray:
        """The loss of each document as the model is (b,); keeps what enters each block."""
        for layer in self.encoder.layers:
            self.inputs.append(layer(self.inputs[-1], self.layout, "sdpa")[0])
        return self.losses(self.inputs[-1])

    def rises(self, ablations: Sequence[_Ablation]) -> Iterator[np.ndarray]:
        """The rise of each document's loss (b,) by each ablation."""
        blocks = range(len(self.encoder.layers))
        before: dict[tuple[bool, int | None], np.ndarray] = {}
        for ablation in ablations:
            if ablation.kind == "mean" and ablation.part in self.constant:
                yield np.zeros(len(self.labels))
                continue
            first = (ablation.layer or 1) - 1
            key = ablation.stream, ablation.layer
            if key not in before:
                self.same = set() if ablation.stream else set(blocks) if ablation.layer is None else {first}
                before[key] = self.losses(self.run(self.inputs[first], first))
                self.same = set()
            streams = self.inputs[first]
            if ablation.stream:
                streams = self.changed_streams(streams, ablation)
            else:
                self.now = ablation
            after = self.losses(self.run(streams, first))
            self.now = None
            yield after - before[key]

    def run(self, streams: Streams, first: int) -> Streams:
        """The streams behind the last block, of those that enter the block `first`."""
        for layer in self.encoder.layers[first:]:
            streams = layer(streams, self.layout, "sdpa")[0]
        return streams

    def losses(self, streams: Streams) -> np.ndarray:
        """Mean cross-entropy (b,) of the masked tokens of each document; nan where there is none."""
        hidden = torch.cat(streams if self.encoder.norm is None else self.encoder.norm(streams), dim=-1)
        chosen = self.labels != IGNORED
        each = token_losses(self.model.head(hidden[chosen]), self.labels[chosen])
        sums = each.new_zeros(len(chosen)).index_add_(0, chosen.nonzero()[:, 0], each)
        return np.asarray((sums / chosen.sum(1)).cpu().numpy())

    def changed(self, term: Tensor, now: _Ablation) -> Tensor:
        """The term (b or 1, h, n, n) with the heads of an ablation changed and the others as they are."""
        heads = slice(None) if now.head is None else slice(now.head, now.head + 1)
        term = term.expand(len(self.labels), -1, -1, -1).clone() if now.kind == "shuffle" else term.clone()
        if now.kind == "remove":
            term[:, heads] = 0
        elif now.kind == "mean":
            term[:, heads] = self.mean(term[:, heads])
        else:
            for i, order in enumerate(self.order):
                term[i, heads] = term[i, heads][:, order][:, :, order]
        return term

    def mean(self, part: Tensor) -> Tensor:
        """Mean of (b, heads, n, n) over the documents in which the query may look at the key; elsewhere as it is.

        Between the least and the largest of its values, so that equal ones stay what they are to the last digit.
        """
        if self.pairs is None:
            return part.mean(0, keepdim=True).clamp(part.amin(0, keepdim=True), part.amax(0, keepdim=True))
        low, high = part.masked_fill(~self.pairs, torch.inf).amin(0), part.masked_fill(~self.pairs, -torch.inf).amax(0)
        mean = (part * self.pairs).sum(0) / self.pairs.sum(0).clamp(min=1)
        return torch.where(self.pairs, mean.clamp(low, high), part)

    def changed_streams(self, streams: Streams, now: _Ablation) -> Streams:
        """The streams (position, semantic), each (b, n, d_stream), with one of them changed."""
        which = ("position", "semantic").index(now.part.removeprefix(_STREAM))
        x = streams[which]
        if now.kind == "remove":
            x = torch.zeros_like(x)
        elif now.kind == "mean":
            x = x[self.regular].mean(0).expand_as(x) if self.regular.any() else x
        else:
            x = x.gather(1, self.order[..., None].expand_as(x))
        return tuple(x if k == which else stream for k, stream in enumerate(streams))


def _plan(model: Any, kinds: Sequence[str], by: Sequence[str], choices: Choices) -> list[_Ablation]:
    """Every ablation that was asked for."""
    config = model.config
    known = term_names(model) + ([f"{_STREAM}position", f"{_STREAM}semantic"] if config.position_size else [])
    name = name_of(model)
    parts = known if choices.parts is None else list(choices.parts)
    for part in parts:
        if part not in known:
            raise ValueError(
                f"{name} has no term or stream {part!r}.{nearest(part, known)} It has: {', '.join(known)}."
            )
    layers = _numbers(choices.layers, range(1, config.num_hidden_layers + 1), "layer", name)
    heads = _numbers(choices.heads, range(config.num_attention_heads), "head", name)
    places: dict[str, list[tuple[int | None, int | None]]] = {
        "all": [(None, None)],
        "layer": [(layer, None) for layer in layers],
        "head": [(layer, head) for layer in layers for head in heads],
    }
    ablations = [
        _Ablation(kind, part, layer, head)
        for layer, head in (place for way in BY if way in by for place in places[way])
        for part in parts
        for kind in kinds
        if head is None or not part.startswith(_STREAM)
    ]
    if not ablations:
        raise ValueError(
            f"A stream has no heads; got by={', '.join(by)} for {', '.join(parts)}. Ablate it by all or by layer."
        )
    return ablations


def _numbers(chosen: Sequence[int] | None, known: range, what: str, name: str) -> list[int]:
    numbers = list(known if chosen is None else chosen)
    for number in numbers:
        if number not in known:
            raise ValueError(f"{name} has no {what} {number}; its {what}s are {known[0]} to {known[-1]}.")
    return numbers


def _check(documents: Documents, mask_rate: float, kinds: Sequence[str], by: Sequence[str], batch_size: int) -> None:
    if not 0 < mask_rate < 1:
        raise ValueError(f"mask_rate={mask_rate} must lie between 0 and 1, for example {MASK_RATE}.")
    for asked, known, what in ((kinds, KINDS, "kind of ablation"), (by, BY, "way to ablate")):
        if not asked:
            raise ValueError(f"No {what} was given. There are: {', '.join(known)}.")
        for name in asked:
            if name not in known:
                raise ValueError(f"No {what} {name!r}.{nearest(name, known)} There are: {', '.join(known)}.")
    fewest = min(len(documents), batch_size)
    if fewest < 1:
        raise ValueError(
            f"An ablation needs at least 1 document and a batch_size of at least 1; got {len(documents)} and "
            f"{batch_size}."
        )
    if "mean" in kinds and fewest < 2:
        raise ValueError(
            f"A mean over documents needs at least 2 in a batch; got {len(documents)} with batch_size={batch_size}. "
            "Leave out the kind mean or give more."
        )
