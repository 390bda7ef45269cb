"""Attention weights of each term of the scores alone and of their sum: the places at which heads look.

DSTG section 4 (2), (3) and figure 3: a softmax for each term by itself beside the softmax of the sum. The weights of a
batch are reduced at once, to means per window, to a profile over lags and to a coarse map, so that memory does not
grow with the windows.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..models.tensors import by_distance, device_of
from ..records.metric import CORRELATION, SHARE, TERM, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import OF_WINDOWS, Analysis
from .passes import Batch, ChosenWindows, Progress, Reader, at_least_float32, eager, outputs, read
from .record_context import RecordContext

TOTAL = "total"  # the part that is the softmax of the sum of all terms
KINDS = ("previous", "next", "self", "special", "local", "broad")
NEAR = 3  # tokens on each side that count as local
FARTHEST = 128  # largest lag of a profile
BINS = 64  # rows and columns of a map


def _weight_row(name: str) -> Metric:
    return Metric(name=name, unit=SHARE, part=TERM, method="pass")


add_metrics(
    {
        **with_endings(
            "attention.", ("special.keys", "retrieval.raw", "retrieval.control"), _weight_row("attention weight")
        ),
        "attention.previous": _weight_row("before"),
        "attention.next": _weight_row("after"),
        "attention.self": _weight_row("itself"),
        "attention.local": _weight_row("near"),
        "attention.special": _weight_row("special"),
        "attention.retrieval": Metric(name="copy", unit=SHARE, part=TERM, method="retrieval", range=CORRELATION),
        "attention.broad": _weight_row("spread"),
    },
    methods={
        "retrieval": """
Retrieval is attention to the other copy of a token in a text that is repeated, A B A. Its control is the attention to
the same places in A B C, where no copy stands, and is subtracted.
""",
    },
)


@dataclass(frozen=True, eq=False)
class Weights:
    """Attention weights of one part of one block (b or 1, h, n, n), with the entropy of each row and the allowed pairs.

    entropy: (b or 1, h, n), in nats. allowed: (b or 1, 1, n, n), True where a query may look at a key; None:
    everywhere.
    """

    values: Tensor
    entropy: Tensor
    allowed: Tensor | None

    def diagonal(self, lag: int) -> Tensor:
        """Return the weights (b or 1, h, n - |lag|) of the keys `lag` after their queries."""
        return self.values.diagonal(lag, -2, -1)

    def pairs(self, lag: int, queries: Tensor, keys: Tensor) -> Tensor:
        """Return which pairs at a lag count: (b, n - |lag|).

        The query of a pair must be in `queries` (b, n), its key in `keys` (b, n), and the pair allowed.
        """
        n = queries.shape[1]
        before = max(0, -lag)
        after = max(0, lag)
        pairs = queries[:, before : n - after] & keys[:, after : n - before]
        return pairs if self.allowed is None else pairs & self.allowed[:, 0].diagonal(lag, -2, -1)


def softmax_weights(scores: Tensor, allowed: Tensor | None) -> Weights:
    """Compute the softmax over the allowed keys in at least float32; `scores` (b or 1, h, n, n) do not change.

    allowed: (b or 1, 1, 1 or n, n) bool; None: all keys.
    """
    wide = at_least_float32(scores)
    if allowed is not None:
        allowed = allowed.expand(-1, -1, scores.shape[-2], -1)
        wide = wide.masked_fill(~allowed, torch.finfo(wide.dtype).min)
    values = wide.softmax(-1)
    # -Σ p log p = log Σ exp(s) - Σ p s, without a logarithm of every weight.
    normaliser = wide.amax(-1) - values.amax(-1).log()
    return Weights(values, (normaliser - torch.linalg.vecdot(values, wide)).clamp_(min=0), allowed)


class WeightReader(Reader, ABC):
    """Reader of attention weights: softmaxes of each term alone and, as part `total`, of their sum."""

    wants_terms = True

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        if not terms:
            raise ValueError(
                f"Block {block} has no term of its attention scores. A scheme needs at least one product or bias."
            )
        for name, scores in terms.items():
            weights = softmax_weights(scores, allowed)
            self.weights(batch, block, name, weights)
        if len(terms) > 1:
            weights = softmax_weights(reduce(torch.add, terms.values()), allowed)
        self.weights(batch, block, TOTAL, weights)

    @abstractmethod
    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        """Read the weights of a part of a block."""


class AttentionScores(WeightReader):
    """Reader of the weight of each head on neighbours, itself and special tokens.

    It also reads the spread of the weights. All are by term and in total.

    Records `attention.KIND`: the mean over windows of the mean over their regular queries of the weight on

    - `previous`, `next`: the token before or after in the row, over queries that have one and may look at it;
    - `self`: the query's own token; `special`: all special tokens together; `local`: the three nearest tokens on each
      side together;
    - `broad` is no weight but the entropy of the weights divided by the logarithm of the number of allowed keys, in [0,
      1].

    `attention.special.keys`: share of special tokens among the keys that a regular token may look at, which is what
    indifferent attention gives them; of the first block.

    Arrays, L blocks of h heads: `lags` (2w + 1,), -w ... w with w = min(n - 1, 128); `profile.PART` (L, h, 2w + 1),
    mean weight of a regular query on a regular key that is `lag` places after it and that it may look at, nan where
    there is no such pair; `mean.PART` (L, h, m, m), mean weight over windows and over the tokens in m = min(n, 64)
    equal bins, special tokens included.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.heads = int(model.config.num_attention_heads)
        self._profiles: dict[tuple[int, str], Any] = defaultdict(float)  # sums, as the maps and what divides them
        self._maps: dict[tuple[int, str], Any] = defaultdict(float)
        self._pairs: dict[int, Any] = defaultdict(float)  # of regular tokens, by block and lag
        self._cells: Any = 0.0  # pairs of tokens that are no padding, by bin

    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        regular = batch.regular
        real = batch.real
        n = regular.shape[1]
        self.keep((block, part), batch, _means(weights, regular, real & ~regular, real))
        w = min(n - 1, FARTHEST)
        pool = _pool(n, weights.values)
        if part == TOTAL:  # counted once a batch and block
            pairs, both = (tokens[:, :, None] & tokens[:, None, :] for tokens in (regular, real))  # (b, n, n)
            may = pairs if weights.allowed is None else pairs & weights.allowed[:, 0]
            self._pairs[block] += lag_sums(may.sum(0)[None], w)[0]
            if block == 0:
                self.keep("special", batch, _special_keys(regular, real, weights.allowed))
                self._cells = self._cells + _pooled(both.sum(0), pool)
        self._profiles[block, part] += lag_sums(pair_sums(weights.values, regular, pool.dtype), w)
        self._maps[block, part] += _pooled(pair_sums(weights.values, real, pool.dtype), pool)

    def records(self, context: RecordContext) -> list[Record]:
        means, places = self.places()  # (windows, places, h, kinds)
        axes = {**places, "head": range(self.heads), "metric": KINDS}
        special = self.values["special"]
        n = self.count(means)
        return [
            *context.records("attention.special.keys", self.mean(special), {}, n=self.count(special)),
            *context.records("attention.", self.mean(means), axes, n=n),
        ]

    def arrays(self) -> dict[str, np.ndarray]:
        if not self._profiles:
            return {}
        blocks = sorted({b for b, _ in self._profiles})
        parts = list(dict.fromkeys(p for _, p in self._profiles))
        w = self._profiles[0, TOTAL].shape[-1] // 2
        arrays: dict[str, np.ndarray] = {"lags": np.arange(-w, w + 1)}
        with np.errstate(invalid="ignore", divide="ignore"):
            for part in parts:
                profiles = np.stack([self._profiles[block, part] / self._pairs[block] for block in blocks])
                maps = np.stack([self._maps[block, part] for block in blocks]) / self._cells
                arrays |= {f"profile.{part}": profiles.astype(np.float32), f"mean.{part}": maps.astype(np.float32)}
        return arrays


def _special_keys(regular: Tensor, real: Tensor, allowed: Tensor | None) -> Tensor:
    """Compute the mean over regular queries of the share of special tokens among their allowed keys: (b,), nan without
    such a query."""
    may = real[:, None, :] if allowed is None else real[:, None, :] & allowed[:, 0]
    may = may.expand(len(regular), regular.shape[1], -1)
    share = (may & ~regular[:, None, :]).sum(-1) / may.sum(-1).clamp(min=1)  # (b, n)
    return (share * regular).sum(-1).double() / regular.sum(-1)


def _means(weights: Weights, regular: Tensor, special: Tensor, real: Tensor) -> Tensor:
    """Compute means over the regular queries of each window, (b, h, kinds); nan where there is none."""
    p = weights.values
    n = regular.shape[1]
    near = torch.zeros_like(weights.entropy)
    for lag in (lag for d in range(1, min(NEAR, n - 1) + 1) for lag in (-d, d)):
        near[..., max(0, -lag) : n - max(0, lag)] += weights.diagonal(lag)
    keys = real.sum(-1, keepdim=True) if weights.allowed is None else weights.allowed.sum(-1)[:, 0]  # (b, 1 or n)
    broad = weights.entropy / keys.clamp(min=2).log().to(p.dtype)[:, None]
    kinds = [query_mean(weights.diagonal(lag), weights.pairs(lag, regular, real)) for lag in (-1, 1)]
    on_special = torch.linalg.vecdot(p, special[:, None, None, :].to(p.dtype))
    kinds += [query_mean(values, regular) for values in (weights.diagonal(0), on_special, near)]
    return torch.stack([*kinds, query_mean(broad, regular & (keys > 1))], dim=-1)


def query_mean(values: Tensor, queries: Tensor) -> Tensor:
    """Average `values` over the queries that are True: (b, h).

    values: (b or 1, h, k). queries: (b, k). nan where no query is True.
    """
    chosen = queries[:, None].to(values.dtype)
    return (values * chosen).sum(-1) / chosen.sum(-1)


def pair_sums(values: Tensor, tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Sum `values` over the windows of a batch: (h, n, n).

    Only pairs of which both tokens are True in `tokens` count. values: (b or 1, h, n, n). tokens: (b, n).
    """
    pairs = (tokens[:, :, None] & tokens[:, None, :]).to(dtype)
    if len(values) == 1:
        return values[0].to(dtype) * pairs.sum(0)
    if bool((tokens == tokens[:1]).all()):  # alike in all windows: one mask after the sum
        return values.sum(0, dtype=dtype) * pairs[0]
    return (values * pairs[:, None]).sum(0, dtype=dtype)


def lag_sums(pairs: Tensor, farthest: int) -> np.ndarray:
    """Sum `pairs` (h, n, n) over their diagonals: (h, 2·farthest + 1) float64.

    The pair of query i and key j counts in entry j - i + farthest.
    """
    n = pairs.shape[-1]
    return by_distance(pairs).sum(1, dtype=torch.float64)[:, n - 1 - farthest : n + farthest].cpu().numpy()


def _pool(n: int, like: Tensor) -> Tensor:
    """Return (m, n): 1 where token j is in bin i of m = min(n, 64) equal bins."""
    m = min(n, BINS)
    return F.one_hot(torch.arange(n, device=like.device) * m // n, m).T.to(like.dtype)


def _pooled(cells: Tensor, pool: Tensor) -> np.ndarray:
    """Return sums (..., m, m) of cells (..., n, n) by bin."""
    return (pool @ cells.to(pool.dtype) @ pool.T).double().cpu().numpy()


def foreign_scores(
    model: Any, windows: ChosenWindows, context: RecordContext, *, batch_size: int = 8, progress: Progress = None
) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Measure the scores of `AttentionScores` for any encoder of transformers.

    Return its records and arrays, part `total` alone. The encoder must return its attention weights. The model runs in
    its eager implementation, in evaluation mode, and keeps its own settings. In a block with local attention, as most
    of ModernBERT's (`layer_types` of its configuration), a query may look at the keys within the farthest lag that has
    any weight.

    Raises:
        ValueError: the model returns no weights (b, h, n, n) for every layer, or as `AttentionScores.records`.
    """
    scores = AttentionScores(model)
    types = list(getattr(model.config, "layer_types", None) or ())
    for batch, attentions in attention_weights(model, windows, batch_size, progress):
        keys = batch.real[:, None, None, :].expand(-1, 1, windows.length, -1)
        with torch.inference_mode():
            for block, values in enumerate(attentions):
                p = at_least_float32(values)
                allowed = None if windows.attention_mask is None else keys
                if types[block : block + 1] not in ([], ["full_attention"]):
                    near = _local(p, batch.real)
                    allowed = near if allowed is None else allowed & near
                scores.weights(batch, block, TOTAL, Weights(p, torch.special.entr(p).sum(-1), allowed))
    return scores.records(context), scores.arrays()


def _local(p: Tensor, real: Tensor) -> Tensor:
    """Return the pairs within the farthest lag that has any weight of a query that is no padding, (1, 1, n, n)."""
    n = p.shape[-1]
    places = torch.arange(n, device=p.device)
    lags = (places - places[:, None]).abs()
    weighed = (p.amax(1).gt(0) & real[:, :, None]).any(0)
    return (lags <= lags[weighed].max())[None, None]


def attention_weights(
    model: Any, windows: ChosenWindows, batch_size: int = 8, progress: Progress = None
) -> Iterator[tuple[Batch, tuple[Tensor, ...]]]:
    """Yield the weights (b, h, n, n) of every block, a batch of windows at a time, from `output_attentions=True`.

    Raises:
        ValueError: the model returns no weights of that shape for every layer.
    """
    device = device_of(model)
    with eager(model):
        for rows, attentions in outputs(model, windows, "attentions", None, batch_size, progress):
            shape = (len(rows), model.config.num_attention_heads, windows.length, windows.length)
            shapes = [None if a is None else tuple(a.shape) for a in attentions or ()]
            if not shapes or any(s != shape for s in shapes):
                raise ValueError(
                    f"{type(model).__name__} returns no attention weights of shape {shape} for every layer; got "
                    f"{shapes or 'none'}. Only encoders that have a weight for every pair of tokens can be measured."
                )
            yield Batch.of(windows, rows, device), attentions


def repeated_documents(windows: ChosenWindows, seed: int = 0) -> tuple[ChosenWindows, ChosenWindows]:
    """Build texts A+B+A and, as their control, A+B+C of equal length from pieces of real documents (DSTG figure 3).

    A, B and C are the first regular tokens of three windows, each window being A once; a document of several windows
    may give two of the pieces. B and C are drawn from `seed`. A and C have a third of the regular tokens each, B the
    rest, so that every place of A+B+C is the same place in A+B+A. Special tokens stand at the ends as in the window
    that gives A; those within windows are left out. Windows with padding, or with too few regular tokens for a piece,
    are left out. Positions are 0, 1, 2, ... and a text is one attention span.

    Returns:
        Both sets, text by text the same but for the last piece. Their one target, "segment", is 0, 1, 2 in the three
        pieces, -1 at special tokens.

    Raises:
        ValueError: fewer than three such windows, or fewer than three regular tokens in them.
    """
    n = windows.length
    regular = windows.regular
    full = np.ones(len(windows), bool) if windows.attention_mask is None else (windows.attention_mask != 0).all(1)
    lead = np.where(regular.any(1), regular.argmax(1), n)
    tail = np.where(regular.any(1), regular[:, ::-1].argmax(1), 0)
    piece = int((n - lead - tail)[full].max(initial=0)) // 3
    middle = n - lead - tail - 2 * piece
    full &= (middle >= 1) & (regular.sum(1) >= np.maximum(piece, middle.max(initial=0, where=full)))
    if piece < 1 or full.sum() < 3:
        raise ValueError(
            "A repeated text needs three documents of at least 3 regular tokens and no padding; got "
            f"{int(full.sum()) if piece else 0} of {len(windows)} windows of {n} tokens. Give more or longer "
            "documents."
        )
    chosen = np.flatnonzero(full)
    order = np.random.default_rng(seed).permutation(chosen)
    place = np.argsort(order)  # of each chosen document in the order, around which B and C follow
    texts = {int(i): windows.input_ids[i][regular[i]] for i in chosen}
    repeated = []
    control = []
    segments = []
    for i, at in zip(chosen, place, strict=True):
        b, c = (int(order[(at + step) % len(order)]) for step in (1, 2))
        ends = windows.input_ids[i, : lead[i]], windows.input_ids[i, n - tail[i] :]
        first = texts[int(i)][:piece]
        between = texts[b][: middle[i]]
        other = texts[c][:piece]
        repeated.append(np.concatenate([ends[0], first, between, first, ends[1]]))
        control.append(np.concatenate([ends[0], first, between, other, ends[1]]))
        segments.append(np.repeat([-1, 0, 1, 2, -1], [lead[i], piece, middle[i], piece, tail[i]]))
    segment = np.stack(segments)
    positions = np.tile(np.arange(n), (len(chosen), 1))
    numbers = windows.which()[chosen]
    texts_aba = ChosenWindows(
        np.stack(repeated), positions, None, segment >= 0, {"segment": segment}, document_numbers=numbers
    )
    return texts_aba, replace(texts_aba, input_ids=np.stack(control))


class CopyReader(WeightReader):
    """Reader of each window's mean weight of tokens in pieces 0 and 2 on the same place of the other piece.

    `repeated_documents` makes the pieces.
    """

    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        segment = batch.windows.targets["segment"][batch.indices]
        first, second = (np.nonzero(segment == s)[1].reshape(len(segment), -1) for s in (0, 2))
        rows = np.arange(len(segment))[:, None] if len(weights.values) > 1 else np.zeros((len(segment), 1), int)
        forward = weights.values[rows, :, first, second]  # (b, piece, h)
        back = weights.values[rows, :, second, first]
        self.keep((block, part), batch, (forward + back).mean(1).div_(2))


def copy_records(repeated: CopyReader, control: CopyReader, context: RecordContext) -> list[Record]:
    """Measure the heads that look from a token at its copy.

    Attention to known places shows them (DSTG section 4 (3): retrieval heads).

    Of readers of both sets of `repeated_documents`, records by layer, head and part: `attention.retrieval.raw`, mean
    over windows of the mean weight of a token of either copy on the same token of the other;
    `attention.retrieval.control`, the weight on the same places where another text stands instead of the copy, which is
    the effect of the place alone; `attention.retrieval`, their paired difference, in [-1, 1].

    Raises:
        ValueError: a set has not passed.
    """
    (raw, places) = repeated.places()  # (windows, places, h)
    (place_alone, _) = control.places()
    axes = {**places, "head": range(raw.shape[2])}
    records = []
    for metric, values in (("", raw - place_alone), (".raw", raw), (".control", place_alone)):
        records += context.records(
            f"attention.retrieval{metric}", repeated.mean(values), axes, n=repeated.count(values)
        )
    return records


def retrieval_records(
    model: Any, windows: ChosenWindows, context: RecordContext, progress: Progress = None
) -> list[Record]:
    """Measure the attention of each head from a token to its copy, on texts A B A of pieces of the documents.

    `copy_records` has the records.

    Raises:
        ValueError: as `repeated_documents`; or the scores of the model are no sum of named terms.
    """
    repeated = CopyReader()
    control = CopyReader()
    for texts, reader in zip(repeated_documents(windows), (repeated, control), strict=True):
        read(model, texts, [reader], progress=progress)
    return copy_records(repeated, control, context)


REPEATED = 100  # documents that the texts for the retrieval heads repeat
ANALYSES = (
    Analysis(
        "attention",
        OF_WINDOWS,
        lambda s: foreign_scores(s.model, s.evenly_spaced(), s.context, progress=s.progress_of("attention")),
        reader=AttentionScores,
        array_stem="attention",
    ),
    Analysis(
        "retrieval",
        OF_WINDOWS,
        lambda s: retrieval_records(s.model, s.evenly_spaced(REPEATED), s.context, progress=s.progress_of("retrieval")),
        needs=("windows", "has_terms"),
        optional=True,
    ),
)
