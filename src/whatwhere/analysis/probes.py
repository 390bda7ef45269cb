"""Linear probes for position: how well a ridge regression reads position, segment and progress off every hidden state.

DSTG section 5 (tables 2-4): 500 documents of the maximum length, 400 to fit and 100 to test, five random splits, Ridge,
R². Equal to scikit-learn's Ridge(alpha=penalty) and r2_score in float64, and after `Sums.project` to its PCA before
them, but each token is looked at once however many fits there are: all share sums of outer products.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lstsq

from ..intervals import tested
from ..records import Record
from .passes import TARGETS, Documents, Progress, as_numpy, check_finite, choose_documents, hidden_states
from .who import Who

MEMORY = 2 << 30  # bytes of sums held at a time; with more, the model runs once for every chunk of layers

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over n tokens of features x (p,) and targets y (q,), of x xᵀ, of x yᵀ and of the squares of y."""

    n: float
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """(p, p) and (p, q): x xᵀ and x yᵀ about the means."""
        return self.xx - np.outer(self.x, self.x) / self.n, self.xy - np.outer(self.x, self.y) / self.n

    def spread(self) -> np.ndarray:
        """(q,) squares of y about its mean: what R² divides by."""
        return self.yy - self.y**2 / self.n

    def project(self, axes: np.ndarray) -> "Sums":
        """The sums of the features x · axes, for axes (p, k)."""
        return Sums(self.n, self.x @ axes, self.y, axes.T @ self.xx @ axes, axes.T @ self.xy, self.yy)


def principal_axes(sums: Sums, components: int) -> np.ndarray:
    """(p, components) axes of the most variance of x, the first the most; signs are left open."""
    p = len(sums.x)
    _, axes = eigh(sums.moments()[0], subset_by_index=[p - components, p - 1])
    return axes[:, ::-1]


def ridge_r2(train: Sums, test: Sums, penalty: float) -> np.ndarray:
    """(q,) R² on the test tokens of the ridge regression of each target on all features of the training tokens.

    The penalty is on the coefficients and not on the intercept, and R² is 1 - squared errors / squares about the mean
    of the test tokens: below 0 where that mean would have been better. Meaningless for a target that does not vary in
    the test.
    """
    gram, moments = train.moments()
    gram[np.diag_indices_from(gram)] += penalty
    try:
        weights = cho_solve(cho_factor(gram, lower=True), moments)
    except LinAlgError:  # equal features so large that the penalty is lost in rounding
        weights = lstsq(gram, moments)[0]
    intercept = (train.y - train.x @ weights) / train.n
    fitted = test.xx @ weights + np.outer(test.x, intercept)  # sums of x · prediction
    means = test.x @ weights + test.n * intercept
    residual = test.yy - np.sum(weights * (2 * test.xy - fitted), axis=0) - intercept * (2 * test.y - means)
    return 1.0 - residual / test.spread()


def check_penalty(penalty: float) -> None:
    """Raises ValueError where a ridge penalty is not positive."""
    if not penalty > 0:
        raise ValueError(f"The ridge penalty must be above 0. Got {penalty}. The paper's is 1.")


def probe_records(
    model: torch.nn.Module,
    window_set: Any,
    who: Who,
    *,
    documents: int = 500,
    splits: int = 5,
    penalty: float = 1.0,
    batch_size: int = 32,
    progress: Progress = None,
    components: Sequence[int] = (),
) -> list[Record]:
    """R² of linear probes for the three targets at every hidden[l], as records.

    Split s (index) puts a random fifth of the documents, drawn from seed s, in the test; the same documents for every
    model, so models can be compared split by split. Special tokens are left out, and one-token segments from the
    intra-segment target. For a model with a position stream the probes also read each stream alone, parts "position"
    and "semantic".

    Records: `r2.token`, `r2.segment`, `r2.intra`, each split and their mean (`Who.splits`; n: tokens), and the same
    with `.chance`: targets shuffled across tokens. `probe.documents` and `probe.length` say how many documents of how
    many tokens there were. A target that does not vary, such as the segment in text without boundaries, has no R² and
    no records; this is logged.

    Args:
        model: its `config` has hidden_size, num_hidden_layers and, with two streams, position_size.
        window_set: held-out windows, see `choose_documents`.
        splits: number of splits; the 95 % interval needs two.
        penalty: ridge penalty, on the coefficients and not on the intercept.
        components: numbers k of principal components, for example (2, 8): the probes also read only the first k of each
            part, parts "all.pca2", "position.pca2", ...: the control that says how much of a part's position a figure
            of its two components shows. They are those of the training tokens of each split (scikit-learn's PCA before
            its Ridge); a part with fewer than k columns has no such probe.

    Raises:
        ValueError: too few documents, a penalty, a number of splits or of components that is not positive, or hidden
            states that are not finite.
    """
    check_penalty(penalty)
    if any(k < 1 for k in components):
        raise ValueError(
            f"Probes read at least 1 principal component. Got components={tuple(components)}. For example (2, 8)."
        )
    chosen = choose_documents(window_set, documents)
    test = split_documents(len(chosen), splits)
    targets = probe_targets(chosen, test)
    records = [
        who.record("probe.documents", len(chosen)),
        who.record("probe.length", chosen.length),
    ]
    for layers in _chunks(model.config, splits):
        sums_of_layers = gram_sums(model, chosen, targets, test, layers, batch_size, progress)
        for layer, sums in zip(layers, sums_of_layers, strict=True):
            for part, columns in stream_columns(model.config).items():
                fewer = [k for k in sorted(set(components)) if k <= columns.stop - columns.start]
                for (k, target), values in sums.r2(columns, penalty, fewer).items():
                    tokens = targets.counts(target).sum(1)  # (documents,)
                    place = {"part": part if k is None else f"{part}.pca{k}", "layer": layer}
                    tests, n = test @ tokens, int(tokens.sum())
                    records += who.splits(f"r2.{target}", values, len(chosen), tests, n, **place)
    return records


def split_documents(documents: int, splits: int) -> np.ndarray:
    """(splits, documents) bool: True where a document is tested. Split s is drawn from seed s; a fifth is tested, 100
    of 500."""
    if splits < 1:
        raise ValueError(f"Probes need at least 1 split of the documents, 2 for an interval. Got splits={splits}.")
    test = np.zeros((splits, documents), dtype=bool)
    for s in range(splits):
        test[s, np.random.default_rng(s).permutation(documents)[: tested(documents)]] = True
    return test


def stream_columns(config: Any) -> dict[str, slice]:
    """Columns of each part of a hidden state: [position; semantic] (DESIGN: order in the last axis)."""
    width, position = config.hidden_size, getattr(config, "position_size", 0)
    streams = {"position": slice(0, position), "semantic": slice(position, width)}
    return {"all": slice(0, width)} | (streams if position else {})


@dataclass(frozen=True, eq=False)
class Targets:
    """What the probes predict, m documents of n tokens.

    columns: names, "token", ... and "token.chance", ... for the same values shuffled across the tokens that have one.
    values: (m, n, columns), 0 where a token has no value. kinds: (m, n) int, 0 for tokens with an intra-segment target,
        1 for the others, -1 for special tokens.
    """

    columns: list[str]
    values: np.ndarray
    kinds: np.ndarray

    def counts(self, column: str) -> np.ndarray:
        """(m, n) bool: tokens that have a value."""
        return self.kinds == 0 if column.startswith("intra") else self.kinds >= 0


def probe_targets(documents: Documents, test: np.ndarray) -> Targets:
    """The targets that vary in the test and training tokens of every split; `test` as from `split_documents`.

    The shuffle has a fixed seed. R² of a constant is undefined, so such a target is left out and the log says so.
    """
    intra = documents.targets["intra"]
    kinds = np.where(documents.regular, np.isnan(intra).astype(int), -1)
    columns, values = [], []
    for i, target in enumerate(TARGETS):
        rows = kinds == 0 if target == "intra" else kinds >= 0
        value = np.where(rows, documents.targets[target], 0.0)
        shuffled = value.copy()
        shuffled[rows] = np.random.default_rng(i).permutation(value[rows])
        used = [(v[part], rows[part]) for v in (value, shuffled) for held_out in test for part in (held_out, ~held_out)]
        if all(r.any() and np.ptp(v[r]) > 0 for v, r in used):
            columns += [target, f"{target}.chance"]
            values += [value, shuffled]
        else:
            _log.warning("No probe of target %r: it does not vary over the tokens of these documents.", target)
    if not columns:
        raise ValueError(
            f"Nothing to probe: windows of {documents.length} tokens hold no two regular tokens. Build longer windows."
        )
    return Targets(columns, np.stack(values, axis=-1), kinds)


class GramSums:
    """Sums of z zᵀ over the tokens of one layer, z = [hidden - shift, 1, targets]: all that a ridge regression and its
    R² need.

    They are kept for all documents and for the test documents of every split, apart for tokens that have an
    intra-segment target and tokens that have none, so any split, target, part and penalty is solved without another
    look at a token. `shift` is any vector near the mean; without it, features far from zero would lose their digits in
    the sums.

    total: (2, m, m), test: (splits, 2, m, m); m = width + 1 + number of target columns.
    """

    def __init__(self, shift: np.ndarray, columns: Sequence[str], splits: int) -> None:
        self.shift, self.columns, self.width = shift, list(columns), len(shift)
        size = self.width + 1 + len(columns)
        self.total = np.zeros((2, size, size))
        self.test = np.zeros((splits, 2, size, size))
        self._group = np.zeros((2, size, size))

    def add(self, kind: int, hidden: np.ndarray, targets: np.ndarray) -> None:
        """Add tokens of the running group: hidden (t, width), targets (t, columns); kind 0 has an intra-segment
        target."""
        z = np.empty((len(hidden), self.total.shape[1]))
        np.subtract(hidden, self.shift, out=z[:, : self.width])
        z[:, self.width] = 1.0
        z[:, self.width + 1 :] = targets
        self._group[kind] += z.T @ z

    def close(self, splits: np.ndarray) -> None:
        """End a group of documents, tested in the given splits and trained on in all others."""
        self.total += self._group
        self.test[splits] += self._group
        self._group[:] = 0.0

    def r2(
        self, columns: slice, penalty: float, components: Sequence[int] = ()
    ) -> dict[tuple[int | None, str], list[float]]:
        """R² in every split of ridge regressions on some columns of the hidden state, by (None, target column); and by
        (k, target column) for each k of `components` of regressions on that many principal components of the columns.

        The components are those of the training tokens of the split that have the target.
        """
        r2: dict[tuple[int | None, str], list[float]] = defaultdict(list)
        x = np.arange(self.width)[columns]
        for kinds in (slice(0, 2), slice(0, 1)):
            targets = [c for c in self.columns if c.startswith("intra") == (kinds.stop == 1)]
            y = self.width + 1 + np.array([self.columns.index(c) for c in targets], dtype=np.int64)
            total = self.total[kinds].sum(0)
            for held_out in self.test[:, kinds].sum(1) if targets else ():
                pair = [self._sums(sums, x, y) for sums in (total - held_out, held_out)]
                axes = principal_axes(pair[0], max(components)) if components else np.zeros((len(x), 0))
                for k in (None, *components):
                    train, test = pair if k is None else (sums.project(axes[:, :k]) for sums in pair)
                    for target, value in zip(targets, ridge_r2(train, test, penalty), strict=True):
                        r2[k, target].append(float(value))
        return r2

    def _sums(self, sums: np.ndarray, x: np.ndarray, y: np.ndarray) -> Sums:
        """Features in columns `x` of z, targets in columns `y`."""
        one = self.width
        xx, xy = sums[np.ix_(x, x)], sums[np.ix_(x, y)]
        return Sums(sums[one, one], sums[x, one], sums[one, y], xx, xy, np.diag(sums)[y])


def gram_sums(
    model: torch.nn.Module,
    documents: Documents,
    targets: Targets,
    test: np.ndarray,
    layers: Sequence[int],
    batch_size: int = 32,
    progress: Progress = None,
) -> list[GramSums]:
    """Sums of the given layers, from one pass of the documents through the model; `test` as from `split_documents`."""
    patterns = [tuple(np.flatnonzero(column)) for column in test.T]
    order = np.array(sorted(range(len(documents)), key=lambda i: patterns[i]))
    sums: list[GramSums] = []
    open_pattern = patterns[order[0]]
    for indices, hidden in hidden_states(model, documents, order, batch_size, progress):
        arrays = [as_numpy(hidden[layer]) for layer in layers]
        if not sums:
            shifts = [a[documents.regular[indices]].mean(axis=0, dtype=np.float64) for a in arrays]
            sums = [GramSums(shift, targets.columns, len(test)) for shift in shifts]
        for pattern, group in groupby(range(len(indices)), key=lambda i: patterns[indices[i]]):
            if pattern != open_pattern:
                _close(sums, open_pattern)
                open_pattern = pattern
            rows = list(group)
            run = slice(rows[0], rows[-1] + 1)
            kinds, values = targets.kinds[indices[run]], targets.values[indices[run]]
            for kind in (0, 1):
                mask = kinds == kind
                for s, array in zip(sums, arrays, strict=True):
                    s.add(kind, array[run][mask], values[mask])
    _close(sums, open_pattern)
    for layer, s in zip(layers, sums, strict=True):
        check_finite(s.total, f"hidden[{layer}]")
    return sums


def _close(sums: Sequence[GramSums], splits: Sequence[int]) -> None:
    for s in sums:
        s.close(np.array(splits, dtype=np.int64))


def _chunks(config: Any, splits: int) -> list[list[int]]:
    """Layers 0 .. L in runs whose sums fit in MEMORY."""
    size = config.hidden_size + 1 + 2 * len(TARGETS)
    step = max(1, MEMORY // (8 * 2 * (splits + 2) * size**2))
    layers = list(range(config.num_hidden_layers + 1))
    return [layers[i : i + step] for i in range(0, len(layers), step)]
