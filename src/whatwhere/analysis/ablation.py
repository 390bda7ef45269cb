"""Ablations: the rise of the masked-language loss when a term of the attention scores, or a stream, is removed, or when
two tokens swap places.

A term is removed (set to 0), replaced by its mean over windows, or shuffled over positions, in all blocks, in one, or
in one head; the rest of the model is unchanged. Each window is compared with itself: same tokens, same masks.

GEOM section 4, hypothesis H2: for every i ≠ j, swapping positions i and j strictly increases the expected loss, with P
fixed. The tokens at i and j, masked or not, swap their positions; table, biases and rotation follow the positions, so
this equals a text with two tokens exchanged in schemes that read position ids alone. One pair among n tokens hardly
moves the mean loss, so the records separate the two tokens from the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..encoder.blocks import Streams
from ..models.tensors import device_of
from ..records.intervals import LOSS_ROUNDING, share_interval
from ..records.metric import NATS, SHARE, TERM, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Record
from . import passes
from .analyses import OF_WINDOWS, Analysis, AnalysisInput
from .head_labels import term_names
from .passes import ChosenWindows, Progress, rows_on
from .record_context import Axes, RecordContext, count_documents, document_mean, of_documents

KINDS = ("remove", "mean", "shuffle")
BY = ("all", "layer", "head")
STREAMS = ("stream.position", "stream.semantic")
MASK_RATE = 0.2
IGNORED = -100
PAIRS = 4  # of each lag; at size tiny swaps then take a tenth of the time of looking inside
SWAPPED = ("swapped", "others")

add_metrics(
    {
        **with_endings(
            "ablation.",
            ("remove", "mean", "shuffle"),
            Metric(name="rise of loss", unit=NATS, part=f"{TERM}, or stream", method="ablation"),
        ),
        "loss.document": Metric(name="loss", unit=NATS, index="document", repeats="documents", method="ablation"),
        "ablation.loss": Metric(
            name="loss of the whole model", unit=NATS, index="document", repeats="documents", method="ablation"
        ),
        "swap.loss": Metric(name="rise of loss", unit=NATS, part="tokens", index="distance"),
        "swap.positive": Metric(
            name="pairs whose swap costs", unit=SHARE, index="distance", counts="pairs", over="pairs"
        ),
    },
    methods={
        "ablation": """
An ablation changes the forward pass itself and asks what the prediction of masked tokens loses: a term of the scores,
or a stream of the hidden state, is removed, put in place by its mean, or shuffled. The rise of the loss is paired,
document by document, with the loss of the untouched model. The model was never trained without the part, so a rise says
that it is used, and no rise that it is not used in this place; neither says what a model trained without it would do.
""",
    },
)


@dataclass(frozen=True)
class _Ablation:
    """Part of the model that an ablation changes: in the block `layer` (from 1; None: all), in `head` (None: all)."""

    kind: str
    part: str
    layer: int | None
    head: int | None

    @property
    def stream(self) -> bool:
        return self.part in STREAMS


def ablation_records(
    model: Any,
    windows: ChosenWindows,
    context: RecordContext,
    *,
    kinds: Sequence[str] = KINDS,
    by: Sequence[str] = BY,
    batch_size: int = 8,
    progress: Progress = None,
) -> list[Record]:
    """Measure the masked-language loss and its rise by each ablation, in nats, paired over documents.

    `ablation.loss`: mean over documents of the mean over their masked tokens (see `masked`), and of each document
    (index). `ablation.KIND` with `part` = the term or stream, `layer` = number of the block (None: all), `head` (None:
    all): the rise. Kinds:

    - `remove`: the term is 0; a stream is 0 at every token.
    - `mean`: the term at a pair (i, j) is its mean over the windows of the batch at (i, j), of those in which i may
      look at j; a stream is, at every token, its mean over all regular tokens of the batch. A term that is the same in
      all windows does not change, and its rise is exactly 0.
    - `shuffle`: rows and columns of the term, or the tokens of a stream, are permuted by one random permutation of the
      regular tokens of each window, the same in all blocks; special tokens and padding stay. In packed windows each
      document permutes its own.

    A stream is changed where it enters a block; for all blocks that is the embedding, so layer None and layer 1 agree.
    It has no heads. An ablation that changes nothing gives exactly 0: both sides take the same path.

    Args:
        model: an `EncoderForMaskedLM`.
        by: "all" blocks and heads at once, each "layer", each "head".
        batch_size: windows at a time; the last batch takes the rest along, so that no mean is over fewer.
        progress: counts ablations over all batches.

    Raises:
        ValueError: another model, windows without a word, or means of a single window.
    """
    passes.check_masked_lm(model, "An ablation")
    if "mean" in kinds and min(len(windows), batch_size) < 2:
        raise ValueError(
            f"A mean over windows needs at least 2 in a batch; got {len(windows)} with batch_size={batch_size}. "
            "Leave out the kind mean or give more."
        )
    ablations = _plan(model, kinds, by)
    ids, labels = masked(windows, MASK_RATE, model.config.mask_token_id)
    order = permutations(windows)
    groups = np.array_split(np.arange(len(windows)), max(1, len(windows) // batch_size))
    values = np.empty((len(windows), 1 + len(ablations)))  # the loss, and every rise
    with passes.evaluating(model), torch.inference_mode():
        for number, rows in enumerate(groups):
            batch = _Batch(model, windows, rows, ids, labels, order)
            with model.encoder.inspect_terms(batch.see):
                values[rows, 0] = batch.start()
                for k, rise in enumerate(batch.rises(ablations), 1):
                    values[rows, k] = rise
                    if progress is not None:
                        progress(number * len(ablations) + k, len(groups) * len(ablations))
    places = [("loss", None, None, None), *((a.kind, a.part, a.layer, a.head) for a in ablations)]
    return _over_documents(context, "ablation.", values, {("metric", "part", "layer", "head"): places}, windows)


def document_loss_records(
    model: Any, windows: ChosenWindows, context: RecordContext, *, batch_size: int = 8
) -> list[Record]:
    """Measure the masked-language loss of each document in nats, with the same masks for all models, and their mean.

    Records `loss.document` (index: number of the document). They take more windows than the ablations can afford.

    Raises:
        ValueError: another model, or windows without a word.
    """
    passes.check_masked_lm(model, "A loss")
    ids, labels = masked(windows, MASK_RATE, model.config.mask_token_id)
    sums = np.empty(len(windows))
    with passes.evaluating(model), torch.inference_mode():
        for rows in passes.batches(np.arange(len(windows)), batch_size):
            sums[rows] = _losses(model, windows, rows, ids, labels, windows.position_ids).sum(1)
    count = (labels != IGNORED).sum(1)
    values = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
    return _over_documents(context, "loss.", values[:, None], {"metric": ["document"]}, windows)


def _over_documents(
    context: RecordContext, metric: str, values: np.ndarray, axes: Axes, windows: ChosenWindows
) -> list[Record]:
    """Return records of the means of `values` (windows, entries), and of the first entry also of each document.

    A document counts once, with the mean of its windows, so that two models are paired by document. One document alone
    has no such record and no interval.
    """
    passes.check_words(values)
    values = of_documents(values, windows.document_numbers)
    loss, *others = context.records(metric, document_mean(values), axes, n=np.isfinite(values).sum(0))
    losses = values[:, 0] if len(values) > 1 else values[:0, 0]
    return [loss, *context.records(loss.metric, losses, {"index": range(len(losses))}, n=1), *others]


def masked(windows: ChosenWindows, mask_rate: float, mask_id: int) -> tuple[np.ndarray, np.ndarray]:
    """Mask `mask_rate` of the regular tokens of each window, at least one, and return token ids and labels (m, n).

    Masked tokens are [MASK]; labels are -100 elsewhere. The choice depends on the number of the window and its
    regular tokens alone, so that all models predict the same tokens.
    """
    draws = np.where(windows.regular, np.random.default_rng(0).random(windows.regular.shape), np.inf)
    tokens = windows.regular.sum(1)
    count = np.where(tokens > 0, np.maximum(1, np.round(mask_rate * tokens)), 0)
    chosen = (draws.argsort(1).argsort(1) < count[:, None]) & windows.regular
    return np.where(chosen, mask_id, windows.input_ids), np.where(chosen, windows.input_ids, IGNORED)


def permutations(windows: ChosenWindows) -> np.ndarray:
    """Draw a permutation of the regular tokens of each document: (m, n).

    Each regular token gets the place of a random regular token of its document; other tokens stay.
    """
    m, n = windows.regular.shape
    generator = np.random.default_rng((0, 1))
    order = np.tile(np.arange(n), (m, 1))
    for i in range(m):
        numbers = np.zeros(n, dtype=np.int64) if windows.document_ids is None else windows.document_ids[i]
        for number in np.unique(numbers):
            places = np.flatnonzero(windows.regular[i] & (numbers == number))
            order[i, places] = generator.permutation(places)
    return order


def _token_losses(model: Any, hidden: Tensor, labels: Tensor) -> Tensor:
    """Compute the cross-entropy (b, n) in nats, in at least float32, as float64; 0 where nothing is masked."""
    chosen = labels != IGNORED
    losses = torch.zeros(labels.shape, dtype=torch.float64, device=labels.device)
    logits = passes.at_least_float32(model.head(hidden[chosen]))
    losses[chosen] = F.cross_entropy(logits, labels[chosen], reduction="none").double()
    return losses


def _losses(
    model: Any, windows: ChosenWindows, rows: np.ndarray, ids: np.ndarray, labels: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """Compute `_token_losses` of some windows with other token ids and position ids (m, n) than their own."""
    arrays = ids, windows.attention_mask, positions, windows.document_ids
    *inputs, targets = rows_on(device_of(model), rows, *arrays, labels)
    return _token_losses(model, model.encoder(*inputs).last_hidden_state, targets).cpu().numpy()


class _Batch:
    """Batch of windows on its way through the model; blocks before an ablation are computed once."""

    def __init__(
        self,
        model: Any,
        windows: ChosenWindows,
        rows: np.ndarray,
        ids: np.ndarray,
        labels: np.ndarray,
        order: np.ndarray,
    ) -> None:
        self.model = model
        self.encoder = model.encoder
        device = device_of(model)
        arrays = ids, windows.attention_mask, windows.position_ids, windows.document_ids
        inputs = rows_on(device, rows, *arrays)
        self.labels, self.order, self.regular = rows_on(device, rows, labels, order, windows.regular)
        self.attention_inputs = self.encoder.attention_inputs(*inputs)
        embedded = self.encoder.embed(
            inputs[0], self.attention_inputs.table_rows, attention_mask=inputs[1], document_ids=inputs[3]
        )
        self.inputs: list[Streams] = [embedded]
        self.pairs: Tensor | None = None  # (b, 1, n, n): who looks at whom, where not everywhere
        if (allowed := self.attention_inputs.allowed) is not None:
            self.pairs = allowed.expand(-1, -1, allowed.shape[-1], -1)
            if inputs[1] is not None:
                self.pairs = self.pairs & inputs[1].bool()[:, None, :, None]
        self.now: _Ablation | None = None
        self.constant: set[str] = set()  # terms that are the same for all windows of the batch
        # Blocks (from 0) that get their own terms back, to take the path that changed terms take.
        self.same: set[int] = set()

    def see(self, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> dict[str, Tensor] | None:
        """Change the terms of a block; the encoder calls it in every block."""
        now = self.now
        self.constant = {name for name, term in terms.items() if len(term) == 1 < len(self.labels)}
        if now is not None and now.layer in (None, block + 1):
            return {**terms, now.part: self.changed(terms[now.part], now)}
        return terms if block in self.same else None

    def start(self) -> np.ndarray:
        """Return the loss (b,) of each window of the unchanged model; keeps the input of each block."""
        for layer in self.encoder.layers:
            self.inputs.append(layer(self.inputs[-1], self.attention_inputs, "sdpa")[0])
        return self.losses(self.inputs[-1])

    def rises(self, ablations: Sequence[_Ablation]) -> Iterator[np.ndarray]:
        """Yield the rise of each window's loss (b,) by each ablation."""
        before: dict[tuple[bool, int | None], np.ndarray] = {}
        for ablation in ablations:
            if ablation.kind == "mean" and ablation.part in self.constant:
                yield np.zeros(len(self.labels))
                continue
            first = (ablation.layer or 1) - 1
            key = ablation.stream, ablation.layer
            if key not in before:
                blocks = range(len(self.encoder.layers)) if ablation.layer is None else [first]
                self.same = set() if ablation.stream else set(blocks)
                before[key] = self.run(self.inputs[first], first)
                self.same = set()
            streams = self.inputs[first]
            if ablation.stream:
                streams = self.changed_streams(streams, ablation)
            else:
                self.now = ablation
            after = self.run(streams, first)
            self.now = None
            yield after - before[key]

    def run(self, streams: Streams, first: int) -> np.ndarray:
        """Return the loss of each window (b,) from the streams that enter the block `first`."""
        for layer in self.encoder.layers[first:]:
            streams = layer(streams, self.attention_inputs, "sdpa")[0]
        return self.losses(streams)

    def losses(self, streams: Streams) -> np.ndarray:
        """Compute the mean cross-entropy (b,) of the masked tokens of each window; nan where there is none."""
        hidden = torch.cat(streams if self.encoder.norm is None else self.encoder.norm(streams), dim=-1)
        sums = _token_losses(self.model, hidden, self.labels).sum(1)
        return np.asarray((sums / (self.labels != IGNORED).sum(1)).cpu().numpy())

    def changed(self, term: Tensor, now: _Ablation) -> Tensor:
        """Return the term (b or 1, h, n, n) with the heads of an ablation changed and the others unchanged."""
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
        """Return the mean of (b, heads, n, n) over the windows in which the query may look at the key; other entries
        stay.

        Between the least and the largest of its values, so that equal ones stay equal to the last digit.
        """
        if self.pairs is None:
            return part.mean(0, keepdim=True).clamp(part.amin(0, keepdim=True), part.amax(0, keepdim=True))
        low = part.masked_fill(~self.pairs, torch.inf).amin(0)
        high = part.masked_fill(~self.pairs, -torch.inf).amax(0)
        mean = (part * self.pairs).sum(0) / self.pairs.sum(0).clamp(min=1)
        return torch.where(self.pairs, mean.clamp(low, high), part)

    def changed_streams(self, streams: Streams, now: _Ablation) -> Streams:
        """Return the streams (position, semantic), each (b, n, d_stream), with one of them changed."""
        which = STREAMS.index(now.part)
        x = streams[which]
        if now.kind == "remove":
            x = torch.zeros_like(x)
        elif now.kind == "mean":
            x = x[self.regular].mean(0).expand_as(x) if self.regular.any() else x
        else:
            x = x.gather(1, self.order[..., None].expand_as(x))
        return tuple(x if k == which else stream for k, stream in enumerate(streams))


def _plan(model: Any, kinds: Sequence[str], by: Sequence[str]) -> list[_Ablation]:
    config = model.config
    layers = range(1, config.num_hidden_layers + 1)
    heads = range(config.num_attention_heads)
    places: dict[str, list[tuple[int | None, int | None]]] = {
        "all": [(None, None)],
        "layer": [(layer, None) for layer in layers],
        "head": [(layer, head) for layer in layers for head in heads],
    }
    terms = term_names(model)
    streams = STREAMS if config.position_size else ()
    of_block = (*terms, *streams)
    return [
        _Ablation(kind, part, layer, head)
        for layer, head in (place for way in by for place in places[way])
        for part in (of_block if head is None else terms)
        for kind in kinds
    ]


def swap_pairs(positions: np.ndarray, pairs: int = PAIRS) -> dict[int, list[tuple[int, int]]]:
    """Return lag -> at most `pairs` pairs (i, i + lag) of positions, evenly spaced over them.

    Lags are 1, 2, 4, ... up to the first that no pair has. positions: (k,) int64, ascending.
    """
    by_lag = {}
    lag = 1
    while len(starts := positions[np.isin(positions + lag, positions)].tolist()):
        chosen = np.unique(np.linspace(0, len(starts) - 1, min(pairs, len(starts))).round().astype(int))
        by_lag[lag] = [(starts[c], starts[c] + lag) for c in chosen]
        lag *= 2
    return by_lag


def swap_records(
    model: Any, windows: ChosenWindows, context: RecordContext, *, pairs: int = PAIRS, progress: Progress = None
) -> list[Record]:
    """Measure the rise of the masked-language loss, in nats, when the tokens at two positions swap places.

    Lags are 1, 2, 4, ... as far as the positions of regular tokens go; of each at most `pairs` pairs, evenly spaced.
    The masks are equal to the masks of the ablations. A window counts for a pair if it has regular tokens at both
    positions and one of them is masked, and only then runs through the model: 36 % of the full ones.

    - `swap.loss` (index: lag; part "swapped": masked tokens at the two positions, "others": all other masked tokens of
      the same documents): mean of the paired rise over pairs and tokens of a window, then over windows, with the
      bootstrap's 95 % interval, which draws documents; n: documents.
    - `swap.positive` (index: lag): share of the pairs whose mean rise over the swapped tokens of all windows is above
      0 by more than rounding, with Wilson's interval; n: pairs. At random it is one half.

    [] for a model whose states do not depend on `position_ids`: without positions, or with segments (`bipe`).

    Raises:
        ValueError: not an `EncoderForMaskedLM`, or no window with two regular positions.
    """
    passes.check_masked_lm(model, "A swap")
    if not model.config.reads_position_ids:
        return []
    lags = swap_pairs(np.unique(windows.position_ids[windows.regular]), pairs)
    if not lags:
        raise ValueError("No window has two positions with regular tokens that could be swapped. Give longer windows.")
    ids, labels = masked(windows, MASK_RATE, model.config.mask_token_id)
    positions = windows.position_ids
    sums, counts = (np.zeros((len(windows), len(lags), len(SWAPPED))) for _ in range(2))
    positive = np.zeros((len(lags), 2), dtype=int)  # pairs that raise the loss, pairs with a masked token
    chosen = [(at, i, j) for at, of_lag in enumerate(lags.values()) for i, j in of_lag]
    with passes.evaluating(model), torch.inference_mode():
        before = _losses(model, windows, np.arange(len(windows)), ids, labels, positions)
        for done, (at, i, j) in enumerate(chosen, 1):
            both = _with_both(windows, i, j)
            moved = both & (labels != IGNORED)
            rows = np.flatnonzero(moved.any(1))
            if len(rows):
                rise = _losses(model, windows, rows, ids, labels, np.where(both, i + j - positions, positions))
                rise -= before[rows]
                for k, tokens in enumerate((moved[rows], (labels[rows] != IGNORED) & ~moved[rows])):
                    sums[rows, at, k] += np.where(tokens, rise, 0.0).sum(1)
                    counts[rows, at, k] += tokens.sum(1)
                positive[at] += rise[moved[rows]].mean() > LOSS_ROUNDING, 1
            if progress is not None:
                progress(done, len(chosen))
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    mean = document_mean(means, document_numbers=windows.document_numbers)
    n = count_documents(means, windows.document_numbers)
    records = context.records("swap.loss", mean, {"index": list(lags), "part": SWAPPED}, n=n)
    for lag, (hits, tried) in zip(lags, positive.tolist(), strict=True):
        if tried:
            records.append(
                context.record("swap.positive", hits / tried, *share_interval(hits, tried), index=lag, n=tried)
            )
    return records


def _with_both(windows: ChosenWindows, i: int, j: int) -> np.ndarray:
    """Return the regular tokens at position i or j of windows that have both, (windows, n) bool."""
    spans = np.arange(len(windows))[:, None] * windows.length + np.zeros_like(windows.position_ids)
    spans += 0 if windows.document_ids is None else windows.document_ids
    at_i, at_j = (windows.regular & (windows.position_ids == k) for k in (i, j))
    return (at_i | at_j) & np.isin(spans, np.intersect1d(spans[at_i], spans[at_j]))


def _ablations(s: AnalysisInput) -> list[Record]:
    measure = partial(ablation_records, s.model, s.evenly_spaced(s.ablation_windows), s.context)
    if s.thorough:
        return measure(progress=s.progress_of("ablation"))
    records = measure(kinds=KINDS[:1], progress=s.progress_of("ablation"))
    at_once = measure(kinds=KINDS[1:], by=("all",), progress=s.progress_of("replacement"))
    return records + [r for r in at_once if r.metric != "ablation.loss"]


ANALYSES = (
    Analysis(
        "losses",
        OF_WINDOWS,
        lambda s: document_loss_records(s.model, s.evenly_spaced(), s.context),
        needs=("windows", "has_loss"),
    ),
    Analysis("ablations", OF_WINDOWS, _ablations, needs=("windows", "has_loss")),
    Analysis(
        "swapped rows",
        OF_WINDOWS,
        lambda s: swap_records(
            s.model, s.evenly_spaced(s.ablation_windows), s.context, progress=s.progress_of("swapped rows")
        ),
        needs=("windows", "has_loss"),
        optional=True,
    ),
)
