"""Variance of hidden states: between sentences and along few directions, between positions, and under a shift of all
positions.

DSTG section 4 (2) and figure 4 show one document. Here are numbers over many, with a null: position alone makes every
stretch of neighbours compact, so sentences are compared with other cuts of the document into stretches of the same
lengths. A linear probe shows what a linear map of the states can read; its R² falls with the frequencies of a position
table, not only with forgetting. The share of a stream's variance between positions shows any dependence on position.
The SPLIT notes (eq. 1) say that semantic states do not depend on position: their values do not, but the attention
weights do, and through them the semantic stream.
"""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from ..records.intervals import jackknife_interval
from ..records.metric import GROUPS, NOT_NEGATIVE, R2, SHARE, SPLITS, STREAM, Metric, with_endings
from ..records.metrics import add_metrics, range_of
from ..records.record import Record
from .analyses import ALWAYS, OF_WINDOWS, Analysis
from .passes import Batch, ChosenWindows, Reader, check_finite, check_passed, choose_windows, hidden_states
from .probes import probe_targets, split_documents, stream_columns
from .record_context import RecordContext, document_mean

SHUFFLES = 10
SHOWN = 4  # documents whose scores are kept for the figure
ROUNDING = 1e-13  # of the squares of float32 states: a sum of squares, or a variance, below that share is none
LEFT_OUT = 16  # of documents, left out one after the other for the interval

_log = logging.getLogger(__name__)

add_metrics(
    {
        **with_endings(
            "r2.",
            ("segment.ceiling", "intra.ceiling"),
            Metric(
                name="R² of position alone",
                unit=R2,
                index="split",
                counts="tokens",
                over=SPLITS,
                repeats="splits",
                method="ceiling",
            ),
        ),
        "variance.position": Metric(
            name="variance between positions", unit=SHARE, part=STREAM, over=GROUPS, method="variance"
        ),
        "shift.change": Metric(name="change of the states", unit=SHARE, part=STREAM, range=NOT_NEGATIVE),
        "hidden.top2": Metric(name="variance in two components", unit=SHARE, part=STREAM, method="pass"),
        **with_endings(
            "sentences.",
            ("separation", "null"),
            Metric(name="between ÷ within sentences", part=STREAM, method="sentences", range=NOT_NEGATIVE),
        ),
        "sentences.excess": Metric(name="log ratio to random cuts", part=STREAM, method="sentences"),
    },
    methods={
        "ceiling": """
Position alone, the ceiling of a stream that knows nothing else: the mean of the target at each position of the probes’
training documents, tested on their test documents.
""",
        "variance": """
The share of the variance between positions comes from one-way analysis of variance over regular tokens, squares summed
over the columns of a stream, less what shuffled positions give on average (Kelley’s ε²). It counts what no line reads;
its 95 % interval is a jackknife over groups of documents.
""",
        "sentences": """
Sentences are told apart in a layer if states differ more between than within them. Neighbouring tokens are alike
anyway, and any contiguous cut of a text shows it; so the ratio is compared with the ratio at shuffled boundaries:
segments of the same lengths in a random order, just as contiguous. The excess is the mean over documents of the
logarithm of the one ratio over the other; 0 is what such random cuts show, and words alone lift it a little: the
untrained model stands beside it.
""",
    },
)


class SentenceMaps(Reader):
    """Reader of hidden states: shares of sentences and principal components in the variance within each window.

    Records of every layer and part, means over windows, n: their documents. Only regular tokens count, N of a window,
    in S sentences (`ChosenWindows.targets["segment"]`).

    `hidden.top2`: share of the variance in the first two principal components of the window's states, in [0, 1].
    `sentences.separation`: variance between sentences ÷ variance within,
    Σ_s n_s |m_s - m|² / (S - 1) ÷ Σ_s Σ_{i in s} |x_i - m_s|² / (N - S): the index of Calinski & Harabasz
    (scikit-learn's), 1 on average where the states do not know sentences and tokens are independent, and far above 1
    for any contiguous cut of states that know position. `sentences.null`: the same for cuts into stretches of the same
    lengths in random order, geometric mean over `shuffles` orders. `sentences.excess`: log(separation ÷ null); its mean
    is 0 where sentence boundaries are not special among such cuts, for the true cut is then one of them, and above 0
    where states of a sentence lie closer together, or further from others, than position explains.

    Windows of fewer than two sentences, of sentences of one token each, or with equal states in every sentence have
    no `sentences.*`; n says so, and if none is left the log does and there are no such records.

    shuffles: orders of the lengths, drawn from a seed fixed for each window.
    """

    wants_hidden = True

    def __init__(self, model: Any, shuffles: int = SHUFFLES) -> None:
        super().__init__()
        self.parts = stream_columns(model.config)
        self.layers = model.config.num_hidden_layers + 1
        self.shuffles = shuffles
        self._scores: dict[str, list[np.ndarray]] = {part: [] for part in self.parts}
        self._segments: list[np.ndarray] = []

    def hidden(self, batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        regular = batch.windows.regular[batch.indices]
        segments = np.where(regular, batch.windows.targets["segment"][batch.indices], -1).astype(np.int64)
        of_each = zip(segments, batch.indices, strict=True)
        cuts = np.stack([_cuts(row, self.shuffles, int(i)) for row, i in of_each], axis=1)
        # (1 + shuffles) x (b, n, S): a matrix product with it sums the tokens of each sentence.
        members = [torch.from_numpy(cut[..., None] == np.arange(max(cut.max() + 1, 1))).double() for cut in cuts]
        mask = torch.from_numpy(regular)[..., None]
        values = np.full((3, len(segments), self.layers, len(self.parts)), np.nan)  # top2, separation, null
        for layer, states in enumerate(hidden):
            x = states.detach().cpu().double().masked_fill(~mask, 0.0)
            raw = x.square().sum(1)  # (b, width)
            x = (x - x.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)) * mask
            squares = x.square().sum(1)
            check_finite(squares, f"hidden[{layer}]")
            between = torch.stack([_between(x, member) for member in members], dim=1)  # (b, 1 + shuffles, width)
            for i, columns in enumerate(self.parts.values()):
                floor = ROUNDING * raw[:, columns].sum(-1).numpy()
                total = squares[:, columns].sum(-1).numpy()
                divisor = np.where(total > floor, total, np.nan)
                of_cuts = between[..., columns].sum(-1).numpy()
                ratios = _ratios(of_cuts, total, floor, regular.sum(1), cuts[0].max(1) + 1)
                null = np.exp(np.log(ratios[:, 1:]).mean(1))
                values[:, :, layer, i] = _top2(x[..., columns]) / divisor, ratios[:, 0], null
        for metric, of_metric in zip(("hidden.top2", "sentences.separation", "sentences.null"), values, strict=True):
            self.keep(metric, batch, of_metric)
        for row in range(min(len(segments), SHOWN - len(self._segments))):
            self._segments.append(segments[row].astype(np.float32))
            for part, columns in self.parts.items():
                of_row = [h[row, :, columns].detach().cpu().double().numpy() for h in hidden]
                self._scores[part].append(_component_scores(of_row, regular[row]))

    def records(self, context: RecordContext) -> list[Record]:
        check_passed(self.values)
        excess = np.log(self.values["sentences.separation"]) - np.log(self.values["sentences.null"])
        if np.isnan(excess).all():
            _log.warning("No separation of sentences: none of %d windows has two sentences.", len(excess))
        records: list[Record] = []
        for metric, values in (*self.values.items(), ("sentences.excess", excess)):
            n = self.count(values)
            mean, *ends = self.mean(values)
            low, high = (np.where(n > 1, end, np.nan) for end in ends)
            axes = {"layer": range(self.layers), "part": list(self.parts)}
            records += context.records(metric, (mean, low, high), axes, n=n)
        return records

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of figure 4, of the first windows of the pass, float32; {} before any batch.

        `scores.PART` (windows, layers + 1, n, 2): all tokens on the first two principal axes of the window's
        regular tokens. Signs: of layer 0 so that scores rise with the place in the window, and of every later layer
        so that they agree with the layer before. `segments` (windows, n): the sentence of each token, from 0, -1 at
        special tokens.
        """
        if not self._segments:
            return {}
        scores = {f"scores.{part}": np.stack(scores) for part, scores in self._scores.items()}
        return {**scores, "segments": np.stack(self._segments)}


def _cuts(segments: np.ndarray, shuffles: int, window: int) -> np.ndarray:
    """Return the sentences of a window from 0, then stretches of the same lengths in random orders, (1 + shuffles,
    n); -1 stays -1."""
    regular = segments >= 0
    cuts = np.full((1 + shuffles, len(segments)), -1)
    _, sentences, lengths = np.unique(segments[regular], return_inverse=True, return_counts=True)
    cuts[0, regular] = sentences
    rng = np.random.default_rng([0, window])
    for cut in cuts[1:]:
        cut[regular] = np.repeat(np.arange(len(lengths)), rng.permutation(lengths))
    return cuts


def _between(x: Tensor, member: Tensor) -> Tensor:
    """Compute squares between the sentences, Σ_s n_s m_s² of centred states x (b, n, width), for members (b, n, S): (b,
    width)."""
    sums = member.transpose(1, 2) @ x
    return (sums.square() / member.sum(1).clamp(min=1)[..., None]).sum(1)


def _ratios(
    between: np.ndarray, total: np.ndarray, floor: np.ndarray, tokens: np.ndarray, sentences: np.ndarray
) -> np.ndarray:
    """Compute variance between ÷ within, (b, cuts), nan where it is not defined for some cut of the window."""
    within = total[:, None] - between
    possible = (sentences > 1) & (tokens > sentences) & (np.minimum(within, between) > floor[:, None]).all(1)
    freedom = np.where(possible, (tokens - sentences) / np.maximum(sentences - 1, 1), np.nan)
    return between / np.where(possible[:, None], within, 1.0) * freedom[:, None]


def _top2(x: Tensor) -> np.ndarray:
    """Compute the sum of the two largest eigenvalues of xᵀx, of centred states x (b, n, width): (b,)."""
    gram = (x.transpose(1, 2) @ x if x.shape[2] <= x.shape[1] else x @ x.transpose(1, 2)).numpy()
    size = gram.shape[1]
    return np.array([eigh(g, eigvals_only=True, subset_by_index=[max(size - 2, 0), size - 1]).sum() for g in gram])


def _component_scores(states: list[np.ndarray], regular: np.ndarray) -> np.ndarray:
    """Compute scores of the states of one window, each (n, width): (layers + 1, n, 2), float32."""
    scores = np.zeros((len(states), len(regular), 2))
    before = np.repeat(np.arange(len(regular))[:, None] - np.arange(len(regular))[regular].mean(), 2, axis=1)
    for of_layer, x in zip(scores, states, strict=True):
        centred = np.nan_to_num(x - x[regular].mean(0))
        axes = np.linalg.svd(centred[regular], full_matrices=False)[2][:2]
        of_layer[:, : len(axes)] = centred @ axes.T
        of_layer[:, np.sum((of_layer * before)[regular], axis=0) < 0] *= -1
        before = of_layer
    return scores.astype(np.float32)


def corrected_share(counts: np.ndarray, between: float, total: float) -> float:
    """Compute the share of the variance between groups without the part of chance.

    It is (η² - c) / (1 - c), with c = (groups - 1) / (tokens - 1).

    η² = between / total is the share of one-way analysis of variance. If groups mean nothing, its mean over all orders
    of the tokens is exactly c, for any sizes of the groups: the corrected share is then 0 on average (and may be
    negative), and it is 1 for a pure function of the group. It equals Kelley's ε², 1 - (within / (tokens - groups)) /
    (total / (tokens - 1)).

    counts: (groups,) tokens of each; empty groups do not count. between, total: sums of squares about the mean. nan
    without variance, or where no group has two tokens.
    """
    tokens = float(counts.sum())
    groups = int(np.count_nonzero(counts))
    if not total > 0 or tokens <= groups:
        return float("nan")
    chance = (groups - 1) / (tokens - 1)
    return (between / total - chance) / (1 - chance)


def document_groups(windows: ChosenWindows) -> np.ndarray:
    """Return the jackknife group of each window, (windows,): at most `LEFT_OUT` groups of whole documents."""
    return windows.which() * min(LEFT_OUT, windows.document_count) // windows.document_count


class PositionVariance(Reader):
    """Reader of hidden states: share of the variance of each layer between positions.

    Records `variance.position` for each layer (0 = embedding) and part: `corrected_share` of the states of regular
    tokens grouped by position id, squares summed over the columns of the part. 1: the states are a function of
    position; 0: they do not depend on position, not even nonlinearly. Interval: jackknife over at most
    16 groups of documents, as a bootstrap would add the bias of few tokens a position once more. A part without
    variance has no record.

    Tokens of a document share its subject, so a share of documents in the variance makes the correction too large, by
    at most c = (positions - 1) / (tokens - 1), see `corrected_share`.

    Memory: sums by group and position, 8 · 16 · positions · hidden_size · layers bytes for any number of windows
    (tiny: 10 MB).

    counts: (groups, positions) regular tokens. sums: of each layer, of their states (groups, positions, width), less
    the mean state of the first batch, so that squares do not cancel.
    """

    wants_hidden = True

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.parts = stream_columns(model.config)
        self.width = model.config.hidden_size
        self.counts = torch.zeros(0)
        self.sums = list[Tensor]()
        self._groups = np.zeros(0, dtype=np.int64)  # (windows,)
        self._documents = 0
        self._squares: list[Tensor] = []  # of each layer (groups, parts)
        self._shift: list[Tensor] = []  # (width,)

    def hidden(self, batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        regular = torch.from_numpy(batch.windows.regular[batch.indices])
        if not self.sums:
            self._groups = document_groups(batch.windows)
            self._documents = batch.windows.document_count
            self.counts = torch.zeros(self._groups.max() + 1, batch.windows.position_ids.max() + 1).double()
        groups = self._groups[batch.indices][:, None]
        positions = batch.windows.position_ids[batch.indices]
        cells = torch.from_numpy(groups * self.counts.shape[1] + positions)[regular]
        self.counts.view(-1).index_add_(0, cells, torch.ones(len(cells), dtype=torch.float64))
        for layer, states in enumerate(hidden):
            x = states.detach().cpu()[regular].double()  # (tokens, width)
            if layer == len(self.sums):
                self.sums.append(x.new_zeros(*self.counts.shape, self.width))
                self._squares.append(x.new_zeros(len(self.counts), len(self.parts)))
                self._shift.append(x.mean(0) if len(x) else x.new_zeros(self.width))
            x -= self._shift[layer]
            squares = torch.stack([torch.linalg.vecdot(x[:, c], x[:, c]) for c in self.parts.values()], dim=1)
            check_finite(squares, f"hidden[{layer}]")
            self.sums[layer].flatten(0, 1).index_add_(0, cells, x)
            self._squares[layer].index_add_(0, cells // self.counts.shape[1], squares)

    def records(self, context: RecordContext) -> list[Record]:
        check_passed(self.sums)
        records = []
        groups = range(len(self.counts)) if len(self.counts) > 1 else ()
        for layer in range(len(self.sums)):
            left = [self._shares(layer, group) for group in groups]
            for part, value in self._shares(layer, None).items():
                if np.isfinite(value):
                    without = [shares[part] for shares in left]
                    ends = jackknife_interval(value, without, range_of("variance.position")) or ()
                    place = {"layer": layer, "part": part, "n": self._documents}
                    records.append(context.record("variance.position", value, *ends, **place))
        return records

    def _shares(self, layer: int, left_out: int | None) -> dict[str, float]:
        """Compute the corrected share of each part, of all groups or of all but one."""

        def total(of_groups: Tensor) -> np.ndarray:
            summed = of_groups.sum(0)
            return np.asarray(summed if left_out is None else summed - of_groups[left_out])

        counts = total(self.counts)
        sums = total(self.sums[layer])
        squares = total(self._squares[layer])
        tokens = counts.sum()
        whole = sums.sum(0)
        shift = np.asarray(self._shift[layer])
        between = (sums**2 / np.maximum(counts, 1)[:, None]).sum(0) - whole**2 / tokens  # (width,)
        shares = {}
        for i, (part, columns) in enumerate(self.parts.items()):
            spread = squares[i] - float((whole[columns] ** 2).sum()) / tokens
            raw = spread + float(((whole / tokens + shift)[columns] ** 2).sum()) * tokens  # about 0, not about the mean
            spread = spread if spread > ROUNDING * raw else 0.0
            shares[part] = corrected_share(counts, float(between[columns].sum()), spread)
        return shares


def ceiling_records(window_set: Any, *, run_name: str, windows: int = 500, splits: int = 5) -> list[Record]:
    """Measure R² of the best function of position alone for the segment index and the progress in segments.

    A stream that knows position only can reach at most this in the probes.

    `r2.segment.ceiling`, `r2.intra.ceiling`, facts about the corpus (model ""): the mean of the target at each position
    in the training documents of a split, tested on its test documents; documents, splits and records are as in
    `probe_records`. A position without training token predicts the mean of all. A target that does not vary has none,
    as in the probes; position itself has the ceiling 1.

    Raises:
        ValueError: as `choose_windows` and `split_documents`.
    """
    chosen = choose_windows(window_set, windows)
    test = split_documents(chosen.which(), splits)
    targets = probe_targets(chosen, test)
    records: list[Record] = []
    for target in ("segment", "intra"):
        if target in targets.columns:
            y = targets.values[..., targets.columns.index(target)]
            counts = targets.counts(target)
            of_splits = ((counts & ~held_out[:, None], counts & held_out[:, None]) for held_out in test)
            values = [_position_r2(chosen.position_ids, y, *tokens) for tokens in of_splits]
            tokens = counts.sum(1)
            context = RecordContext("", run_name=run_name)
            records += context.splits(
                f"r2.{target}.ceiling", values, chosen.document_count, test @ tokens, int(tokens.sum())
            )
    return records


def _position_r2(positions: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Compute R² on the tokens of `test` of the means of y by position over the tokens of `train`; all (m, n)."""
    rows = int(positions.max()) + 1
    counts = np.bincount(positions[train], minlength=rows)
    means = np.bincount(positions[train], weights=y[train], minlength=rows) / np.maximum(counts, 1)
    fitted = np.where(counts > 0, means, y[train].mean())[positions[test]]
    return float(1 - np.sum((y[test] - fitted) ** 2) / np.sum((y[test] - y[test].mean()) ** 2))


def state_changes(model: Any, windows: ChosenWindows, shifted: ChosenWindows) -> np.ndarray:
    """Measure how far states change between two readings: (windows, layers + 1, parts).

    The change is ||h' - h|| / ||h|| over the words of each window.

    windows, shifted: the same windows at two sets of positions. `stream_columns` lists the parts.
    """
    parts = stream_columns(model.config)
    changes = np.empty((len(windows), model.config.num_hidden_layers + 1, len(parts)))
    passes = (hidden_states(model, documents) for documents in (windows, shifted))
    for (indices, before), (_, after) in zip(*passes, strict=True):
        words = torch.from_numpy(windows.regular[indices]).to(before[0].device)[..., None]
        for layer, (h, moved) in enumerate(zip(before, after, strict=True)):
            for i, columns in enumerate(parts.values()):
                sizes = (((x * words)[..., columns]).double().flatten(1).norm(dim=1) for x in (moved - h, h))
                changes[indices, layer, i] = torch.divide(*sizes).cpu().numpy()
    return changes


def shift_records(model: Any, window_set: Any, context: RecordContext, *, windows: int = 100) -> list[Record]:
    """Measure the relative change of states when all positions shift: `shift.change`.

    There is a record of each layer and part (`all`, `position`, `semantic`). It is ||h' - h|| / ||h|| over the words of
    a window, mean over windows.

    The model encodes the first half of each window at positions 0, 1, ... and again at the positions of the second
    half ([CLS] moves along). A model whose positions are not numbered by a table is moved just as far.

    [] for a model that reads segments in place of `position_ids` (`bipe`). A model without positions has records, all
    0: GEOM theorem 1 says so.

    Raises:
        ValueError: too few windows have the full length (see `choose_windows`).
    """
    config = model.config
    if getattr(config, "bilevel", False):
        return []
    chosen = choose_windows(window_set, windows)
    half = min(chosen.length, config.max_position_embeddings) // 2
    first_half = chosen.first(half)
    shifted = replace(first_half, position_ids=first_half.position_ids + half)
    parts = stream_columns(config)
    changes = state_changes(model, first_half, shifted)
    mean = document_mean(changes, document_numbers=chosen.document_numbers)
    axes = {"layer": range(changes.shape[1]), "part": list(parts)}
    return context.records("shift.change", mean, axes, n=chosen.document_count)


ANALYSES = (
    Analysis("shift", ALWAYS, lambda s: shift_records(s.model, s.held_out, s.context), needs=("held_out",)),
    Analysis("sentences", OF_WINDOWS, reader=SentenceMaps, array_stem="hidden"),
    Analysis("variance", OF_WINDOWS, reader=PositionVariance),
)
