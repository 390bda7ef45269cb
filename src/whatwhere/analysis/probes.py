"""Ridge regressions from hidden states: to positions (linear probes), and to the streams of another model.

DSTG section 5 (tables 2-4): 500 documents of the maximum length, 400 to fit and 100 to test, five random splits, Ridge,
R², all windows of a document on one side of a split; B.2 (figure 8): how much of one model's streams is in another's
states. Equal to scikit-learn's Ridge and r2_score in float64, and after `Sums.project` to its PCA before them, but each
token is read once for any number of fits, which share sums of outer products.
"""

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lstsq

from ..records.intervals import tested
from ..records.metric import R2, SPLITS, STREAM, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import ALWAYS, TRAINING, Analysis, AnalysisInput
from .passes import TARGETS, ChosenWindows, Progress, as_numpy, check_finite, choose_windows, hidden_states, written
from .record_context import RecordContext

PENALTY = 1.0  # on the coefficients and not on the intercept
MEMORY = 2 << 30  # bytes of sums held at a time; with more, the models run once for every chunk of layers
STREAMS = ("position", "semantic")
# Beginnings of the metrics of a probe: of a hidden state, or of the update that a block adds to it.
STATE = "r2."
UPDATE = "r2.update."
CONSTANT = 1e-12  # a target whose squares about its mean are a smaller share of the largest target's does not vary

_log = logging.getLogger(__name__)


def _probe_row(target: str) -> Metric:
    return Metric(
        name=f"R² of {target}",
        unit=R2,
        part=STREAM,
        index="split",
        counts="tokens",
        over=SPLITS,
        repeats="splits",
        method="probe",
    )


add_metrics(
    {
        **with_endings("r2.", [f"{target}.chance" for target in TARGETS], _probe_row("a target")),
        "r2.token": _probe_row("position"),
        "r2.segment": _probe_row("the segment index"),
        "r2.intra": _probe_row("progress in a segment"),
        **with_endings(
            "r2.update.",
            [target + ending for target in TARGETS for ending in ("", ".chance")],
            _probe_row("a target in what a block writes"),
        ),
    },
    methods={
        "probe": """
A probe is a ridge regression from the hidden state of a token, after one layer, to one of three targets: its position
in the document, the index of its segment, its progress inside the segment. R² is measured on documents that the probe
has not seen. Layer 0 is the embedding, layer l the output of block l. Chance is the same probe with shuffled targets.

With one training seed, an interval is the 95 % interval over the splits of documents into probe training and test, all
windows of a document on one side: it says how sure the reading of this one model is, and nothing about another
training. The splits share documents, so the interval is the corrected one of Nadeau and Bengio (Machine Learning 52,
2003). With several seeds, values are means over seeds, and intervals are over seeds and documents. R² cannot be above
1, and neither can its interval, which is formed on a logit scale.

What a block writes is probed as well, the output of its attention plus its feed-forward network's, apart from
what the residual path carries past it: a table that nobody reads reaches the last layer too. A block of random weights
passes on what it reads, so this alone is no sign of use; what the loss loses without the absolute term is.

The paper’s models have six layers. Layer k of six is drawn at the same relative depth, so that last layer stands over
last layer; with six layers that is the layer itself. The last position layer of a model whose prediction head reads the
semantic stream only gets no gradient: it is drawn hollow and takes part in no verdict.
""",
        "control": """
Three controls stand beside the probes. The same probe on the untrained model says what the random weights give away by
themselves; a probe on the first two or eight principal components says whether a reading rests on the large directions
of a state or on small ones; shuffled targets are the floor of chance.
""",
    },
)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over n tokens of features x (p,) and targets y (q,).

    Summed are x, y, x xᵀ (p, p), x yᵀ (p, q) and the squares of y (q,).
    """

    n: float
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return x xᵀ (p, p) and x yᵀ (p, q) about the means."""
        return self.xx - np.outer(self.x, self.x) / self.n, self.xy - np.outer(self.x, self.y) / self.n

    def spread(self) -> np.ndarray:
        """Return the squares of y about its mean, (q,): the divisor of R²."""
        return self.yy - self.y**2 / self.n

    def project(self, axes: np.ndarray) -> "Sums":
        """Return the sums of the features x · axes, for axes (p, k)."""
        return Sums(self.n, self.x @ axes, self.y, axes.T @ self.xx @ axes, axes.T @ self.xy, self.yy)


def principal_axes(sums: Sums, components: int) -> np.ndarray:
    """Return the axes (p, components) of the most variance of x, in falling order; signs are left open."""
    p = len(sums.x)
    _, axes = eigh(sums.moments()[0], subset_by_index=[p - components, p - 1])
    return axes[:, ::-1]


def ridge_r2(train: Sums, test: Sums) -> np.ndarray:
    """Compute R² (q,) of a ridge regression on its test tokens.

    Each target is regressed on all features of the training tokens. R² is 1 - squared errors / squares about the mean
    of the test tokens: below 0 where that mean would have been better. Meaningless for a target that does not vary in
    the test.
    """
    gram, moments = train.moments()
    gram[np.diag_indices_from(gram)] += PENALTY
    try:
        weights = cho_solve(cho_factor(gram, lower=True), moments)
    except LinAlgError:  # equal features so large that the penalty is lost in rounding
        weights = lstsq(gram, moments)[0]
    intercept = (train.y - train.x @ weights) / train.n
    fitted = test.xx @ weights + np.outer(test.x, intercept)  # sums of x · prediction
    means = test.x @ weights + test.n * intercept
    residual = test.yy - np.sum(weights * (2 * test.xy - fitted), axis=0) - intercept * (2 * test.y - means)
    return 1.0 - residual / test.spread()


class SplitSums:
    """Sums over tokens, by split, from which `Sums` are made.

    They are [z, 1]ᵀ[z, 1, y] and y², for z = x - shift of states x (p wide) and targets y (q).

    Those of all documents and of the documents that each split tests, so that any split and part is solved without
    another look at a token; apart for each kind of tokens. `shift` is a vector near the mean of x, without which states
    far from zero would lose their digits in the sums.

    total: (kinds, p + 2, p + 1 + q), the last row the squares of y; test: (splits, ...) of these.
    """

    def __init__(self, shift: np.ndarray, targets: int, splits: int, kinds: int = 1) -> None:
        self.shift = shift
        self.p = len(shift)
        self.q = targets
        self.total = np.zeros((kinds, self.p + 2, self.p + 1 + targets))
        self.test = np.zeros((splits, *self.total.shape))

    @staticmethod
    def size(width: int, targets: int) -> int:
        """Return the number of values of one kind, of one split."""
        return (width + 2) * (width + 1 + targets)

    def add(self, x: np.ndarray, y: np.ndarray, tested_in: np.ndarray, kind: int = 0) -> None:
        """Add tokens x (t, p), y (t, q) of documents that the splits `tested_in` (k,) test and all others train on."""
        x1 = np.column_stack([x - self.shift, np.ones(len(x))])
        products = np.hstack([x1.T @ x1, x1.T @ y])
        squares = np.einsum("tq,tq->q", y, y)
        for sums in (self.total[kind], *(self.test[s, kind] for s in tested_in)):
            sums[:-1] += products
            sums[-1, self.p + 1 :] += squares

    def pairs(
        self, x: slice = slice(None), y: Sequence[int] | None = None, kinds: slice = slice(None)
    ) -> Iterator[tuple[Sums, Sums]]:
        """Yield training and test sums of each split.

        x: columns of the features. y: targets (default: all). kinds: kinds of tokens.
        """
        one = self.p
        at = np.arange(self.p)[x]
        to = self.p + 1 + np.arange(self.q)[slice(None) if y is None else y]
        total = self.total[kinds].sum(0)
        for test in self.test[:, kinds].sum(1):
            train, held_out = (
                Sums(m[one, one], m[at, one], m[one, to], m[np.ix_(at, at)], m[np.ix_(at, to)], m[-1, to])
                for m in (total - test, test)
            )
            yield train, held_out


def tested_together(test: np.ndarray, indices: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the windows of a batch that the same splits test: (splits, rows of the batch).

    test: (splits, windows) bool. indices: (b,) numbers of the batch's windows.
    """
    patterns, which = np.unique(test[:, indices], axis=1, return_inverse=True)
    return [(np.flatnonzero(p), np.flatnonzero(which.ravel() == i)) for i, p in enumerate(patterns.T)]


def chunks_of(values: Mapping[Any, int], splits: int) -> list[list[Any]]:
    """Divide keys, each with a number of values, into runs whose sums fit in MEMORY."""
    chunks: list[list[Any]] = []
    memory = 0
    for key, size in values.items():
        memory += 8 * (splits + 2) * size
        if not chunks or memory > MEMORY:
            chunks.append([])
            memory = 8 * (splits + 2) * size
        chunks[-1].append(key)
    return chunks


def probe_records(
    model: torch.nn.Module,
    window_set: Any,
    context: RecordContext,
    *,
    windows: int = 500,
    splits: int = 5,
    batch_size: int = 32,
    progress: Progress = None,
    components: Sequence[int] = (),
) -> list[Record]:
    """Measure R² of linear probes for the three targets at every hidden[l], as records.

    Split s (index) puts a random fifth of the documents, with all of their windows, in the test, the same for every
    model, so models can be compared split by split (`split_documents`). Special tokens are left out, and one-token
    segments from the intra-segment target. For a model with a position stream the probes also read each stream alone,
    parts "position" and "semantic".

    Records: `r2.token`, `r2.segment`, `r2.intra`, each split and their mean (`RecordContext.splits`; n: tokens), and
    the same with `.chance`: targets shuffled across tokens. Of an encoder of ours with two streams also
    `r2.update.token` and its like, parts "position" and "semantic": the same of the update that block `layer` writes
    into a stream (`written`), without the part that the residual path carries past it. `probe.documents`,
    `probe.windows` and `probe.length` give the numbers of documents, of their windows, and of tokens in a window. A
    target that does not vary, such as the segment in text without boundaries, has no R² and no records; this is logged.

    Args:
        model: its `config` has hidden_size, num_hidden_layers and, with two streams, position_size.
        window_set, windows: held-out windows and how many of them to read, see `choose_windows`.
        components: numbers k of principal components, for example (2, 8): the probes also read only the first k of each
            part, parts "all.pca2", "position.pca2", ...: the control that says how much of a part's position a figure
            of its two components shows. They are computed on the training tokens of each split (scikit-learn's PCA
            before its Ridge); a part with fewer than k columns has no such probe.

    Raises:
        ValueError: too few documents, a number of splits or of components that is not positive, or hidden states that
            are not finite.
    """
    if any(k < 1 for k in components):
        raise ValueError(
            f"Probes read at least 1 principal component. Got components={tuple(components)}. For example (2, 8)."
        )
    chosen = choose_windows(window_set, windows)
    test = split_documents(chosen.which(), splits)
    targets = probe_targets(chosen, test)
    sizes = {"documents": chosen.document_count, "windows": len(chosen), "length": chosen.length}
    records = [context.record(f"probe.{what}", size) for what, size in sizes.items()]
    config: Any = model.config
    size = 2 * SplitSums.size(config.hidden_size, len(targets.columns))
    places = [(STATE, layer) for layer in range(config.num_hidden_layers + 1)]
    if getattr(config, "position_size", 0) and hasattr(model, "inspect_terms"):
        places += [(UPDATE, block) for block in range(1, config.num_hidden_layers + 1)]
    for some in chunks_of(dict.fromkeys(places, size), splits):
        for (metric, layer), sums in _probe_sums(model, chosen, targets, test, some, batch_size, progress).items():
            for part, columns in stream_columns(config).items():
                if metric == UPDATE and part not in STREAMS:
                    continue
                fewer = [k for k in sorted(set(components)) if k <= columns.stop - columns.start]
                for (k, target), values in _probe_r2(sums, targets, columns, [] if metric == UPDATE else fewer).items():
                    tokens = targets.counts(target).sum(1)  # (windows,)
                    place = {"part": part if k is None else f"{part}.pca{k}", "layer": layer}
                    tests = test @ tokens
                    n = int(tokens.sum())
                    records += context.splits(metric + target, values, chosen.document_count, tests, n, **place)
    return records


def split_documents(which: np.ndarray, splits: int) -> np.ndarray:
    """Draw the tested windows of each split: (splits, windows) bool.

    All windows of a document are on one side. Split s is drawn from seed s; a fifth of the documents is tested, 100 of
    500. Where all windows are of one document, a fifth of the windows is; the log says so.

    which: (windows,) the document of each, from 0 (`ChosenWindows.which`).

    Raises:
        ValueError: splits is below 1.
    """
    if splits < 1:
        raise ValueError(f"Probes need at least 1 split of the documents, 2 for an interval. Got splits={splits}.")
    if len(which) > 1 and not which.any():
        _warn_of_one_document(len(which))
        which = np.arange(len(which))
    documents = int(which.max()) + 1
    test = np.zeros((splits, documents), dtype=bool)
    for s in range(splits):
        test[s, np.random.default_rng(s).permutation(documents)[: tested(documents)]] = True
    return test[:, which]


@cache
def _warn_of_one_document(windows: int) -> None:
    """Warn once in a process: probes, ceilings and regressions of one model all split the same windows."""
    _log.warning(
        "All %d windows are of one document: they are split one by one, so the probes tell nothing about others.",
        windows,
    )


def stream_columns(config: Any) -> dict[str, slice]:
    """Return the columns of each part of a hidden state, whose last axis is [position; semantic]."""
    width = config.hidden_size
    position = getattr(config, "position_size", 0)
    streams = {"position": slice(0, position), "semantic": slice(position, width)}
    return {"all": slice(0, width)} | (streams if position else {})


@dataclass(frozen=True, eq=False)
class Targets:
    """Targets of the probes, of m windows of n tokens.

    columns: names, "token", ... and "token.chance", ... for the same values shuffled across the tokens that have one.
    values: (m, n, columns), 0 where a token has no value. kinds: (m, n) int, 0 for tokens with an intra-segment target,
        1 for the others, -1 for special tokens.
    """

    columns: list[str]
    values: np.ndarray
    kinds: np.ndarray

    def counts(self, column: str) -> np.ndarray:
        """Return the tokens that have a value of a target, (m, n) bool."""
        return self.kinds == 0 if column.startswith("intra") else self.kinds >= 0


def probe_targets(windows: ChosenWindows, test: np.ndarray) -> Targets:
    """Return the targets that vary in the test and training tokens of every split.

    test: (splits, windows) bool, from `split_documents`. The shuffle has a fixed seed. R² of a constant is undefined,
    so such a target is left out and the log says so.

    Raises:
        ValueError: no target varies, so that there is nothing to probe.
    """
    intra = windows.targets["intra"]
    kinds = np.where(windows.regular, np.isnan(intra).astype(int), -1)
    columns = []
    values = []
    for i, target in enumerate(TARGETS):
        rows = kinds == 0 if target == "intra" else kinds >= 0
        value = np.where(rows, windows.targets[target], 0.0)
        shuffled = value.copy()
        shuffled[rows] = np.random.default_rng(i).permutation(value[rows])
        used = [(v[part], rows[part]) for v in (value, shuffled) for held_out in test for part in (held_out, ~held_out)]
        if all(r.any() and np.ptp(v[r]) > 0 for v, r in used):
            columns += [target, f"{target}.chance"]
            values += [value, shuffled]
        else:
            _log.warning("No probe of target %r: it does not vary over the tokens of these windows.", target)
    if not columns:
        raise ValueError(
            f"Nothing to probe: windows of {windows.length} tokens hold no two regular tokens. Build longer windows."
        )
    return Targets(columns, np.stack(values, axis=-1), kinds)


def _probe_sums(
    model: Any,
    windows: ChosenWindows,
    targets: Targets,
    test: np.ndarray,
    places: Sequence[tuple[str, int]],
    batch_size: int,
    progress: Progress,
) -> dict[tuple[str, int], SplitSums]:
    """Return the sums of some places, (STATE or UPDATE, layer), by kind of token, from one pass of the windows
    through the model."""
    sums: dict[tuple[str, int], SplitSums] = {}
    reads_updates = any(metric == UPDATE for metric, _ in places)
    with written(model) if reads_updates else nullcontext(dict[int, torch.Tensor]()) as updates:
        for indices, hidden in hidden_states(model, windows, np.lexsort(test[::-1]), batch_size, progress):
            for place in places:
                metric, layer = place
                states = as_numpy(updates[layer] if metric == UPDATE else hidden[layer])
                if place not in sums:
                    shift = states[windows.regular[indices]].mean(axis=0, dtype=np.float64)
                    sums[place] = SplitSums(shift, len(targets.columns), len(test), kinds=2)
                for tested_in, rows in tested_together(test, indices):
                    for kind in (0, 1):
                        mask = targets.kinds[indices[rows]] == kind
                        y = targets.values[indices[rows]]
                        sums[place].add(states[rows][mask], y[mask], tested_in, kind)
    for (metric, layer), of_place in sums.items():
        check_finite(of_place.total, f"what block {layer} writes" if metric == UPDATE else f"hidden[{layer}]")
    return sums


def _probe_r2(
    sums: SplitSums, targets: Targets, columns: slice, components: Sequence[int]
) -> dict[tuple[int | None, str], list[float]]:
    """Compute R² in every split of ridge regressions on some columns of the hidden state, by (None, target), and on
    principal components of them, by (k, target).

    The principal components of these columns are computed over the training tokens that have the target.
    """
    r2: dict[tuple[int | None, str], list[float]] = defaultdict(list)
    for intra, kinds in ((False, slice(0, 2)), (True, slice(0, 1))):
        y = [i for i, name in enumerate(targets.columns) if name.startswith("intra") == intra]
        for pair in sums.pairs(columns, y, kinds) if y else ():
            axes = principal_axes(pair[0], max(components)) if components else np.zeros((0, 0))
            for k in (None, *components):
                train, test = pair if k is None else (s.project(axes[:, :k]) for s in pair)
                for i, value in zip(y, ridge_r2(train, test), strict=True):
                    r2[k, targets.columns[i]].append(float(value))
    return r2


def _probes(s: AnalysisInput, untrained: bool = False) -> list[Record]:
    model = s.untrained if untrained else s.model
    context = s.context.at(0) if untrained else s.context
    components = () if untrained else s.components
    return probe_records(model, s.held_out, context, windows=s.probed, splits=s.splits, components=components)


ANALYSES = (
    Analysis("probes", ALWAYS, _probes, needs=("held_out",)),
    Analysis("untrained probes", TRAINING, lambda s: _probes(s, untrained=True), needs=("held_out", "untrained")),
)
