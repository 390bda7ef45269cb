"""Effects of few samples on Hellinger distances: noise floor, corrected distances, intervals over groups of
documents.

An estimated distribution is further from every other one than the true one is, the more so the fewer tokens it has, so
that a corpus of noise looks like n equidistant positions. Halves of the documents have independent noise, and products
across them are free of it. One bias remains: the root of an estimated share is too small on average where its word was
counted a few times only, and 0 where it was not counted at all. At equal support that shrinkage is the same and
cancels; positions of unequal support would differ even on average.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.stats import t

from .distances import Rows, inner_products, square_roots, squared_differences

Counts = Any  # sparse (n, V) counts of one group of documents

_STEPS = 64  # numbers of tokens that are summed over; the mean number is below a quarter of it
_SERIES_FROM = 16.0  # mean number of tokens from which three terms of a series are right to 5e-6


@dataclass(frozen=True, eq=False)
class Corrected:
    """Hellinger distances without the part that chance adds, with the noise floor; m positions.

    squares: (m, m) squared distances, mean over splits of the documents; an estimate free of the noise's squares, so
        small ones may be negative. Zero diagonal.
    floor: (m,) mean over the splits of the distance between two halves of the documents at one position, where
        nothing differs. (Two samples as
        large as all of the documents would be nearer each other, by √2 where words are frequent.)
    floor_low, floor_high: (m,) 2.5 and 97.5 % quantiles over the splits.
    splits: number of splits.
    """

    squares: np.ndarray
    floor: np.ndarray
    floor_low: np.ndarray
    floor_high: np.ndarray
    splits: int

    @property
    def signed(self) -> np.ndarray:
        """Roots (m, m) of the squares with their sign, for orders and correlations, which cutting at 0 would bias."""
        return np.sign(self.squares) * np.sqrt(np.abs(self.squares))

    @property
    def distances(self) -> np.ndarray:
        """Roots (m, m) of the squares, negative ones as 0."""
        return np.sqrt(np.maximum(self.squares, 0.0))


class Interval(NamedTuple):
    """Statistic of all documents with its 95 % interval; arrays or numbers."""

    value: Any
    low: Any
    high: Any


def corrected_squares(a: Rows, b: Rows) -> np.ndarray:
    """Compute squared distances (a_i - a_j) · (b_i - b_j) from √p of two halves of the documents, (m, V) each: (m, m),
    signed, zero diagonal.

    Equal to ½(|a_i - b_j|² + |b_i - a_j|²) - ½(|a_i - b_i|² + |a_j - b_j|²). The noise of a and b is independent, so it
    adds nothing on average, where |a_i - a_j|² contains the square of both noises. Positions of equal distribution are
    at 0 on average if their support is equal; a difference of support looks like geometry. `corrected_hellinger` makes
    support equal.

    Raises:
        ValueError: shapes differ.
    """
    if a.shape != b.shape:
        raise ValueError(
            f"The halves have shapes {a.shape} and {b.shape}. Give two of the same positions and vocabulary."
        )
    across = inner_products(a, b)
    norms = across.diagonal()
    return norms[:, None] + norms - (across + across.T)


def corrected_hellinger(
    groups: Sequence[Counts], positions: np.ndarray, splits: int = 10, seed: int = 0, *, equal_support: bool = True
) -> Corrected:
    """Compute corrected squared Hellinger distances and the noise floor from counts in groups of documents, each group
    (n, V).

    The groups are split in two random halves, `splits` times, and `corrected_squares` of each split are averaged. With
    `equal_support` all positions are first thinned to one sample size, the least support of any in a half, so that all
    distances shrink alike, most by rare words. Keep fewer positions (min_support) to see rarer words. Without it a
    corpus in which nothing but support changes along the positions gets distances that grow with the lag: one
    distribution everywhere and the support of SST-2 give a correlation with |i - j| of 0.96 and a mean distance of
    0.19, with it a mean square of 0.

    Args:
        groups: at least two, each of documents chosen at random (a hash of the text does); 20 to 50 are enough.
        positions: (m,) positions to keep; each needs tokens in both halves of every split.

    Raises:
        ValueError: one group only, or a position without tokens in a half; or groups of different shapes.
    """
    positions = np.asarray(positions)
    rng = np.random.default_rng(seed)
    cells = _Cells([sparse.csr_array(group)[positions] for group in groups])
    squares = np.zeros((len(positions), len(positions)))
    floors = []
    for _ in range(splits):
        chosen = np.zeros(len(groups))
        chosen[rng.permutation(len(groups))[: len(groups) // 2]] = 1
        halves = cells.sum(chosen), cells.sum(1 - chosen)
        a, b = (_roots(half, positions) for half in halves)
        floors.append(np.sqrt(squared_differences(a, b)))
        if equal_support:
            tokens = float(min(half.sum(axis=1).min() for half in halves))
            a, b = (thinned_roots(half, tokens) for half in halves)
        squares += corrected_squares(a, b) / splits
    low, high = np.quantile(floors, [0.025, 0.975], axis=0)
    return Corrected(squares, np.mean(floors, axis=0), low, high, splits)


def jackknife(groups: Sequence[Counts], statistic: Callable[[Any], Any], *, summed: bool = True) -> Interval:
    """Compute a statistic of the corpus and its 95 % interval by leaving out each group of documents in turn.

    value ± t(0.975, G - 1) · √((G - 1)/G · sum of squares of the G values around their mean) for G groups. The
    statistic keeps the bias that it has in all documents; a bootstrap of documents would add it once more, because a
    resample has the noise of the sample and its own on top (plug-in distances of a resample are about √2 times too far
    where noise dominates).

    Args:
        groups: (n, V) counts of each group of documents.
        statistic: gets the (n, V) counts of the documents left in; returns a number or an array, always of one shape.
        summed: False gives the statistic the list of all groups, the one left out without counts: `corrected_hellinger`
            then splits the others in the same halves each time. Other halves would add their chance to the interval, G
            - 1 times.

    Raises:
        ValueError: fewer than two groups, or of different shapes.
    """
    groups = list(groups)
    size = len(groups)
    if summed:
        cells = _Cells(groups)
        value = np.asarray(statistic(cells.sum(np.ones(size))), dtype=np.float64)
        left = [statistic(cells.sum(1.0 - np.eye(size)[g])) for g in range(size)]
    else:
        _check_groups(groups)
        value = np.asarray(statistic(groups), dtype=np.float64)
        empty = sparse.csr_array(groups[0].shape)
        left = [statistic([*groups[:g], empty, *groups[g + 1 :]]) for g in range(size)]
    values = np.asarray(left, dtype=np.float64)
    half = t.ppf(0.975, size - 1) * np.sqrt((size - 1) / size * np.sum((values - values.mean(axis=0)) ** 2, axis=0))
    if value.ndim == 0:
        return Interval(float(value), float(value - half), float(value + half))
    return Interval(value, value - half, value + half)


class _Cells:
    """Counts of all groups on one list of (position, word) cells, so that the sum of any of them is one product."""

    def __init__(self, groups: Sequence[Counts]) -> None:
        _check_groups(groups)
        coordinates = [sparse.csr_array(group).tocoo() for group in groups]
        self.shape = groups[0].shape
        keys = np.concatenate([c.row.astype(np.int64) * self.shape[1] + c.col for c in coordinates])
        cells, where = np.unique(keys, return_inverse=True)
        ends = np.cumsum([0, *(c.nnz for c in coordinates)])
        counts = np.concatenate([c.data for c in coordinates]).astype(np.float64)
        self.counts = sparse.csr_array((counts, where, ends), shape=(len(groups), len(cells)))
        self.words = cells % self.shape[1]
        self.starts = np.searchsorted(cells, np.arange(self.shape[0] + 1) * self.shape[1])

    def sum(self, weights: np.ndarray) -> Any:
        """Compute the weighted sum of the groups, csr_array (n, V) without stored zeros."""
        summed = sparse.csr_array((weights @ self.counts, self.words.copy(), self.starts.copy()), shape=self.shape)
        summed.eliminate_zeros()
        return summed


def _check_groups(groups: Sequence[Counts]) -> None:
    if len(groups) < 2:
        raise ValueError(
            f"Noise and intervals need at least 2 groups of documents. Got {len(groups)}: of one document nothing "
            "tells what chance adds."
        )
    if len(shapes := {g.shape for g in groups}) > 1:
        raise ValueError(f"All groups have the same positions and vocabulary. Got shapes {sorted(shapes)}.")


def _roots(counts: Any, positions: np.ndarray) -> Any:
    """Return √p of half of the documents."""
    totals = np.asarray(counts.sum(axis=1)).ravel()
    if not totals.all():
        raise ValueError(
            f"Position {positions[totals.argmin()]} has no token in one half of the documents. Keep positions with "
            "more support (min_support), or count more documents."
        )
    return square_roots(counts.multiply(1 / totals[:, None]).tocsr())


def thinned_roots(counts: Any, tokens: float) -> Any:
    """Compute the mean of √(X / tokens), csr_array (m, V), where X is the rest of each count when a position is thinned
    to `tokens`.

    X is binomial: each token stays with probability q = tokens / support. A position with no more than `tokens` keeps
    all: √(count / support). The mean over all draws has no randomness of its own, unlike a single draw.

    Args:
        counts: csr_array (m, V) of whole numbers, each row with a token at least.
        tokens: sample size to thin to.
    """
    support = np.asarray(counts.sum(axis=1)).ravel()
    keep = np.minimum(tokens / support, 1.0)
    rows = np.repeat(np.arange(len(support)), np.diff(counts.indptr))
    count = counts.data.astype(np.int64)
    table = _mean_root(np.arange(_STEPS), keep[:, None])  # (m, counts)
    roots = table[rows, np.minimum(count, _STEPS - 1)]
    many = np.flatnonzero(count >= _STEPS)
    count = count[many]
    q = keep[rows[many]]
    rare = count * q < _SERIES_FROM
    roots[many] = np.where(rare, _mean_root(np.where(rare, count, 0), q), _series(count * q, q))
    sizes = np.sqrt(np.minimum(tokens, support))
    return sparse.csr_array((roots / sizes[rows], counts.indices, counts.indptr), shape=counts.shape)


def _mean_root(count: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Compute the mean of √X for X binomial with `count` and `q`, by the sum; counts below `_STEPS` or means below
    `_STEPS` / 4."""
    gone = q > 0.5  # then the sum goes over the tokens that are gone, so that its first term does not vanish
    p = np.where(gone, 1 - q, q)
    share = (1 - p) ** count
    odds = p / (1 - p)
    total = np.where(gone, np.sqrt(count) * share, 0.0)  # k = 0
    for k in range(1, _STEPS):
        share = share * np.maximum(count - k + 1, 0) / k * odds
        total += np.sqrt(np.where(gone, np.maximum(count - k, 0), k)) * share
    return total


def _series(mean: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Compute the mean of √X for X binomial with a large mean: the root's series in central moments, to third order of
    1/mean."""
    v = 1 - q
    skew = 1 - 2 * q
    r = 1 / mean
    first = -v / 8
    second = v * skew / 16 - 15 * v**2 / 128
    third = -5 * v * (1 - 6 * q * v) / 128 + 70 * v**2 * skew / 256 - 315 * v**3 / 1024
    return np.sqrt(mean) * (1 + r * (first + r * (second + r * third)))
