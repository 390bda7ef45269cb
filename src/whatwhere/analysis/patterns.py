"""Terms of the attention scores before the softmax: their spread, TUPE's θ, and their patterns.

DSTG 3.1 projects both streams to one head width and says that the variances of the two products are thereby matched.
With weights of one spread σ and normed inputs, a product q·k/√d_head of a stream d wide has the standard deviation σ²d:
position scores start at d_AP/d_sem of the semantic ones. TUPE 3.2: θ1 and θ2 stand where the query, or only the key, is
[CLS] (eq. 9).

TUPE section 4.4 sorts the position correlations of its heads by eye, here fixed rules do it. Five patterns (figure 6):
attending (1) globally and ignoring local positions, (2) locally, (3) broadly, (4) to the previous positions, (5) to the
next positions. The thresholds were set on matrices built for each pattern, before any model was looked at.
"""

from typing import Any

import numpy as np
import torch
from scipy.special import entr, softmax
from torch import Tensor

from ..models.explain import POSITION_TERMS
from ..models.tensors import device_of
from ..records.metric import NOT_NEGATIVE, SHARE, TERM, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import OF_WINDOWS, SCORED, Analysis
from .attention_weights import pair_sums
from .passes import (
    Batch,
    ChosenWindows,
    Reader,
    at_least_float32,
    check_finite,
    check_passed,
    check_terms,
    name_of,
    read,
    rows_on,
)
from .record_context import RecordContext

PATTERNS = ("global", "local", "broad", "previous", "next")
NEAR = 3  # tokens on each side that count as near, fewer in texts of less than 48
REACH = 4  # a side reaches over n / 4 tokens
LIFT = 2.0  # times uniform attention's share from which a region is sought; under the inverse it is avoided
ONE_SIDED = 1 / 3  # (before - after) / (before + after) from which a side is preferred: it has twice the other's weight
SPREAD = 0.5  # entropy ÷ log n under which attention is not broad: fewer than √n keys in effect

add_metrics(
    {
        "scores.std": Metric(
            name="standard deviation of the scores", unit="score units", part=TERM, range=NOT_NEGATIVE
        ),
        **with_endings(
            "theta.",
            ("query", "key", "mean", "std"),
            Metric(name="score of a pair with [CLS], or of others", unit="score units"),
        ),
        "pattern": Metric(name="pattern of a head", part="pattern", method="pass"),
        "patterns.share": Metric(
            name="share of heads", unit=SHARE, part="pattern", counts="heads", over="heads", method="pass"
        ),
    },
)


class ScoreSpread(Reader):
    """Reader of the variance of every term over the pairs of regular tokens of each window."""

    wants_terms = True

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        regular = batch.regular
        precise = at_least_float32(next(iter(terms.values())))
        pairs = (regular[:, :, None] & regular[:, None, :]).to(precise.dtype)
        if allowed is not None:
            pairs = pairs * allowed[:, 0]
        count = pairs.sum((1, 2))[:, None]  # (b, 1)
        for name, term in terms.items():
            scores = term.to(pairs.dtype)
            scores = scores - scores.mean((2, 3), keepdim=True)  # so that squares do not cancel
            moments = (x.expand(len(pairs), -1, -1, -1) for x in (scores, scores.square()))
            mean, square = (torch.einsum("bhij,bij->bh", x, pairs) / count for x in moments)
            variance = (square - mean.square()).clamp(min=0)  # rounding may leave less than 0
            self.keep((block, name), batch, variance.mean(1))

    def records(self, context: RecordContext) -> list[Record]:
        values, places = self.places()  # (windows, places)
        mean, low, high = (np.sqrt(ends) for ends in self.mean(values))
        return context.records("scores.std", (mean, low, high), places, n=self.count(values))


def score_records(model: Any, windows: ChosenWindows, context: RecordContext, *, batch_size: int = 8) -> list[Record]:
    """Measure the standard deviation `scores.std` of each term in each block.

    The part is the term, the layer counts from 1, the unit is score units.

    Variance about the mean over the pairs of regular tokens of a window that may see each other, mean over heads,
    then over windows; the root of that. A term that is 0 everywhere has 0.

    Raises:
        ValueError: the model is not one of ours.
    """
    reader = ScoreSpread()
    read(model, windows, [reader], batch_size)
    return reader.records(context)


def theta_records(model: Any, windows: ChosenWindows, context: RecordContext) -> list[Record]:
    """Measure TUPE's θ of every head, in score units, as the model uses it; [] for a scheme without reset.

    `theta.query` is θ1, which all pairs get whose query is [CLS] (its row); `theta.key` is θ2, where only the key is
    (its column). `theta.mean` and `theta.std` are mean and standard deviation, over pairs of other positions, of the
    positional scores that it stands in place of, v_ij with b_{j-i} where the scheme has one (TUPE eq. 9 and 11).
    Positions are counted in a document. The layer is 1 where all blocks share them, as in TUPE.

    Raises:
        ValueError: no [CLS] with two regular tokens after it in the first window.
    """
    if model.config.reset == "none":
        return []
    words = np.flatnonzero(windows.regular[0])
    cls = np.flatnonzero(windows.input_ids[0] == model.config.cls_token_id)
    if not len(cls) or len(words) < 2:
        raise ValueError(
            f"θ needs a window that begins with [CLS]; got {len(cls)} of it and {len(words)} other tokens. Give a "
            "longer window, with [CLS]."
        )
    ids, positions = rows_on(device_of(model), np.arange(1), windows.input_ids, windows.position_ids)
    terms = model.attention_terms(input_ids=ids, position_ids=positions)
    v = sum(terms[part].double().cpu() for part in POSITION_TERMS if part in terms)[:, 0].numpy()  # (layers, h, n, n)
    v = v[:1] if (v == v[:1]).all() else v
    between = v[:, :, words][..., words].reshape(*v.shape[:2], -1)
    theta = np.stack([v[..., cls[0], words[0]], v[..., words[0], cls[0]], between.mean(-1), between.std(-1)], axis=-1)
    axes = {"layer": range(1, len(v) + 1), "head": range(v.shape[1]), "metric": ("query", "key", "mean", "std")}
    return context.records("theta.", theta, axes)


def pattern_of(scores: np.ndarray) -> tuple[str, float]:
    """Return the pattern of a head with content-free `scores` (n, n), query i in row i, and its strength in [0, 1].

    The rules read the softmax of each row. Means over the queries of the weight within ±w tokens (M; w is 3, in texts
    of fewer than 48 tokens max(1, ⌊n/16⌋)) and, within max(1, ⌊n/4⌋) tokens, before (B) and after the query (A) stand
    beside what uniform attention gives, U and V (for each side). In this order:

    - `previous`: B ≥ 2V and B ≥ 2A; `next`: A ≥ 2V and A ≥ 2B. Strength |B - A| / (B + A), from 1/3.
    - `local`: M ≥ 2U. Strength 1 - U/M, from 1/2.
    - `global`: M ≤ U/2, near tokens are avoided. Strength 1 - M/U, from 1/2. Or neither near tokens nor a side are
      preferred, yet entropy ÷ log n is below 1/2: attention to a few places anywhere. Strength 1 - that entropy, from
      1/2.
    - `broad`: everything else. Strength: mean entropy of the rows ÷ log n, from 1/2.

    Source: the patterns are TUPE section 4.4's; the paper gives no rule.

    Raises:
        ValueError: not a square matrix of finite numbers of at least 3 tokens.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n = len(scores) if scores.ndim else 0
    if scores.shape != (n, n) or n < 3:
        raise ValueError(
            f"A pattern needs content-free scores (n, n) of at least 3 regular tokens; got shape {scores.shape}. Give "
            "a longer window."
        )
    check_finite(scores, "A matrix of content-free scores")
    weights = softmax(scores, axis=1)
    lag = np.arange(n) - np.arange(n)[:, None]
    near = max(1, min(NEAR, n // 16))
    reach = max(1, n // REACH)

    def weight(keys: np.ndarray) -> tuple[float, float]:
        """Return the mean weight of the keys (n, n) of each query, and the weight under uniform attention."""
        return float((weights * keys).sum(1).mean()), float(keys.sum(1).mean() / n)

    (before, side) = weight((lag < 0) & (lag >= -reach))
    (after, _) = weight((lag > 0) & (lag <= reach))
    close, uniform = weight(abs(lag) <= near)
    lean = (before - after) / (before + after) if before + after > 0 else 0.0
    if abs(lean) >= ONE_SIDED and max(before, after) >= LIFT * side:
        return ("previous" if lean > 0 else "next"), abs(lean)
    if close >= LIFT * uniform:
        return "local", 1 - uniform / close
    if close <= uniform / LIFT:
        return "global", 1 - close / uniform
    entropy = float(entr(weights).sum(1).mean() / np.log(n))
    return ("broad", entropy) if entropy >= SPREAD else ("global", 1 - entropy)


def content_free_terms(model: Any) -> list[str]:
    """Return the names of the terms of scores that depend on positions alone.

    They are `absolute`, `relative`, or both.

    In a model with a position stream (`dstg`, `split`) `absolute` moves with the text after the first block; its mean
    over windows is what remains. Where a table is added to the words as well (`bert-r`), only the bias of the
    distance counts, alike in all blocks.

    Raises:
        ValueError: the model has none; the message says why.
    """
    check_terms(model)
    config = model.config
    names = ["absolute"] if config.position_size or config.untied != "none" else []
    names += ["relative"] if config.relative != "none" or config.pair_terms == "xl" else []
    if names:
        return names
    name = name_of(model)
    why = f"{name} knows no positions."
    if config.absolute != "none" and not config.bilevel:
        why = f"{name} adds its positions to the words. Its first block has a position-position correlation: "
        why += "correlation_records."
    elif config.pair_terms != "none":
        why = f"in {name} each term reads words: without words there is no score."
    elif config.rotation != "none":
        why = f"in {name} the position turns queries and keys of words: without words there is no score."
    raise ValueError(
        f"No term of the attention scores is free of content: {why} Give a model with a term of positions or of "
        "distances alone, such as dstg, rp or tupe-r."
    )


def pattern_records(scores: np.ndarray, context: RecordContext, *, n: int) -> list[Record]:
    """Return records of the patterns of content-free scores (L, h, n, n) of blocks 1 ... L.

    `pattern`: for each layer and head, part = its pattern, value = its strength (`pattern_of`), n = documents.
    `patterns.share`: share of all heads with a pattern (part), n = heads. No intervals: these are all heads of this
    model.

    Raises:
        ValueError: as `pattern_of`.
    """
    heads = list(np.ndindex(scores.shape[:2]))
    patterns, strengths = zip(*(pattern_of(scores[head]) for head in heads), strict=True)
    places = [(block + 1, head, pattern) for (block, head), pattern in zip(heads, patterns, strict=True)]
    shares = np.array([patterns.count(p) / len(heads) for p in PATTERNS])
    return [
        *context.records("pattern", np.array(strengths), {("layer", "head", "part"): places}, n=n),
        *context.records("patterns.share", shares, {"part": PATTERNS}, n=len(heads)),
    ]


class MeanScores:
    """Mean over windows of scores (n, n) between regular tokens, for any number of heads, a batch at a time."""

    def __init__(self) -> None:
        self.total, self.pairs = (torch.zeros((), dtype=torch.float64) for _ in range(2))
        self.windows = 0

    def add(self, scores: Tensor, regular: Tensor) -> None:
        """Add scores (b or 1, h, n, n) of windows with regular tokens (b, n)."""
        self.total = self.total + pair_sums(scores, regular, torch.float64)
        self.pairs = self.pairs + (regular[:, :, None] & regular[:, None, :]).sum(0)
        self.windows += len(regular)

    def mean(self) -> np.ndarray:
        """Return the mean scores (h, m, m) of the counted positions.

        A position that holds no regular token in half of the windows or more is left out.
        """
        often = self.pairs.diagonal() > self.windows / 2  # so that every two of them meet in some window
        mean: np.ndarray = (self.total / self.pairs)[:, often][:, :, often].cpu().numpy()
        return mean


def counted_tokens(batch: Batch) -> Tensor:
    """Return the regular tokens whose place in the row is their position: (b, n) bool.

    Of packed documents these are the tokens of the first.
    """
    ids = batch.windows.document_ids
    if ids is None:
        return batch.regular
    documents = ids[batch.indices]
    return batch.regular & torch.from_numpy(documents == documents[:, :1]).to(batch.regular.device)


class PatternCounts(Reader):
    """Reader of the position terms, `absolute` + `relative`: the patterns of their means over windows.

    Special tokens, and the values that replace the terms at them (DSTG eq. 1, TUPE eq. 9), are left out. Records:
    `pattern_records`.

    Raises:
        ValueError: the model has no content-free term; see `content_free_terms`.
    """

    wants_terms = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.names = content_free_terms(model)
        self._means: dict[int, MeanScores] = {}
        self._documents = 0

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        total = sum((terms[name] for name in self.names[1:]), start=terms[self.names[0]])
        self._means.setdefault(block, MeanScores()).add(total, counted_tokens(batch))
        self._documents = batch.windows.document_count

    def scores(self) -> np.ndarray:
        """Return the mean content-free scores (L, h, m, m) of the m regular positions, in score units.

        Raises:
            ValueError: no window has passed.
        """
        check_passed(self._means)
        return np.stack([self._means[block].mean() for block in sorted(self._means)])

    def records(self, context: RecordContext) -> list[Record]:
        scores = self.scores()
        if (scores == scores[:1]).all():  # shared by the blocks, as in TUPE: there are the heads of one block only
            scores = scores[:1]
        return pattern_records(scores, context, n=self._documents)


ANALYSES = (
    Analysis("patterns", OF_WINDOWS, reader=PatternCounts, needs=("windows", "has_terms"), optional=True),
    Analysis(
        "scores",
        OF_WINDOWS,
        lambda s: score_records(s.model, s.evenly_spaced(SCORED), s.context),
        needs=("windows", "has_terms"),
    ),
    Analysis(
        "θ",
        OF_WINDOWS,
        lambda s: theta_records(s.model, s.evenly_spaced(), s.context),
        needs=("windows", "has_terms"),
        optional=True,
    ),
)
