"""Growth of distances with the distance of positions: violated triples, Toeplitz and circulant shares (GEOM 6.6, remark
7)."""

from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest

from .distances import check_distances, check_table, distances, positions_of_rows, squared_differences

EXACT_UP_TO = 1024  # positions whose triples are all looked at: n³ / 2 comparisons, half a second
SAMPLES = 1_000_000
TOLERANCE = 1e-9  # of the largest distance: equal distances differ by rounding


class Share(NamedTuple):
    """Share of triples with its 95 % interval: low = value = high where all triples were counted."""

    value: float
    low: float
    high: float


def monotonicity_violations(table: np.ndarray) -> float:
    """Return the share of triples of positions that a table (n, d) orders against their distance in the text (GEOM
    6.6).

    Triples of distinct i, j, k with |i - j| < |i - k|; violated if |p_i - p_j| > |p_i - p_k| + 1e-9 · the largest
    distance. 0 for a table that is monotone, 0.5 for a random one. Up to 1,024 positions every triple is counted, in
    memory of n² numbers; beyond, a million random triples are (`monotonicity_interval` has the interval).

    Raises:
        ValueError: not a table, or fewer than 3 positions.
    """
    return monotonicity_interval(table).value


def monotonicity_interval(
    table: np.ndarray, samples: int = SAMPLES, seed: int = 0, positions: np.ndarray | None = None
) -> Share:
    """Return the share of violated triples of a table (n, d) with its 95 % interval.

    It counts the triples of `monotonicity_violations`. Beyond 1,024 positions the interval is Wilson's over the random
    triples; up to there all triples are counted and the interval is a point.

    samples: random triples, of which those at equal distances are dropped. positions: (n,) the positions that the rows
    are, ascending (default: 0, 1, ..., without gaps).

    Raises:
        ValueError: no table, fewer than 3 positions, or positions that do not ascend or are not n.
    """
    table = check_table(table)
    if len(table) <= EXACT_UP_TO:
        share = violations_of_distances(distances(table), positions)
        return Share(share, share, share)
    i, j, k = _ordered(
        _triples(len(table), samples, np.random.default_rng(seed)), positions_of_rows(positions, len(table))
    )
    blocks = np.array_split(np.arange(len(i)), -(-len(i) * table.shape[1] // 2**22))
    near, far = (
        np.sqrt(np.concatenate([squared_differences(table[i[at]], table[other[at]]) for at in blocks]))
        for other in (j, k)
    )
    violated = near > far + TOLERANCE * max(near.max(), far.max())
    interval = binomtest(int(violated.sum()), len(violated)).proportion_ci(method="wilson")
    return Share(float(violated.mean()), float(interval.low), float(interval.high))


def violations_of_distances(dist: np.ndarray, positions: np.ndarray | None = None, signed: bool = False) -> float:
    """Return the share of violated triples of an (n, n) distance matrix, as `monotonicity_violations` counts them.

    Args:
        dist: (n, n) distances. With `signed`, roots of corrected squares, negative where the square is: cut off at 0
            they would tie, ties violate nothing, and pure chance would show 0.36 instead of 0.5.
        positions: (n,) the positions that the rows are, ascending (default: 0, 1, ..., without gaps).

    Raises:
        ValueError: fewer than 3 positions, NaN, not symmetric, or not zero on the diagonal; positions that do not
            ascend or are not n.
    """
    dist = check_distances(dist, signed)
    n = len(dist)
    if n < 3:
        raise ValueError(f"Monotonicity compares triples of positions. Got {n} positions, 3 are needed.")
    where = positions_of_rows(positions, n)
    slack = TOLERANCE * np.abs(dist).max()
    if n > EXACT_UP_TO:
        i, j, k = _ordered(_triples(n, SAMPLES, np.random.default_rng(0)), where)
        return float(np.mean(dist[i, j] > dist[i, k] + slack))
    violated = 0
    triples = 0
    for i in range(n):
        lag = np.delete(np.abs(where - where[i]), i)
        d = np.delete(dist[i], i)
        nearer = lag[:, None] < lag  # (j, k)
        triples += int(np.count_nonzero(nearer))
        violated += int(np.count_nonzero(nearer & (d[:, None] > d + slack)))
    return violated / triples


def toeplitz_share(matrix: np.ndarray, positions: np.ndarray | None = None) -> float:
    """Return the share of variance off the diagonal that the nearest Toeplitz matrix (diagonal means) explains, in [0,
    1].

    1 if the entries depend on j - i alone; about 1/n for a symmetric matrix without such an order. The diagonal is left
    out: distances have zeros there and few counts raise it in B, so that a matrix of noise would look like a Toeplitz
    one. NaN if all are equal. matrix: (n, n). positions: (n,) positions of the rows, ascending, where they have gaps.

    Raises:
        ValueError: not square, fewer than 3 positions, NaN or infinity, or positions that do not ascend or are not n.
    """
    return _share(matrix, positions, cyclic=False)


def circulant_share(matrix: np.ndarray, positions: np.ndarray | None = None) -> float:
    """Return the share of variance off the diagonal of an (n, n) matrix that the nearest circulant one explains;
    `toeplitz_share` is never less.

    Its entries are means over equal j - i mod n. It is 1 only if first and last position are neighbours: the premise
    under which GEOM remark 7 calls sinusoids optimal.
    About 1/(2n) for a symmetric matrix without such an order.

    In [0, 1], NaN if all entries are equal. positions, errors: as of `toeplitz_share`.
    """
    return _share(matrix, positions, cyclic=True)


def _share(matrix: np.ndarray, positions: np.ndarray | None, cyclic: bool) -> float:
    """Compute R² of the means over equal lags."""
    matrix = np.asarray(matrix, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 3:
        raise ValueError(f"A square matrix of at least 3 positions is needed. Got shape {matrix.shape}.")
    if not np.isfinite(matrix).all():
        raise ValueError("The matrix has NaN or infinite entries. Leave positions without support out.")
    i, j = np.nonzero(~np.eye(len(matrix), dtype=bool))
    entries = matrix[i, j]
    entries = entries - entries.mean()
    where = positions_of_rows(positions, len(matrix))
    span = int(where[-1] - where[0]) + 1
    lag = where[j] - where[i]
    labels = lag % span if cyclic else lag + span
    sizes = np.bincount(labels)
    means = np.bincount(labels, entries)[sizes > 0] / sizes[sizes > 0]
    total = float(entries @ entries)
    if total <= 1e-20 * float(np.vdot(matrix, matrix)):
        return float("nan")
    return float(np.clip(np.sum(sizes[sizes > 0] * means**2) / total, 0.0, 1.0))


def _ordered(triples: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return the triples (3, m) whose rows j and k are not equally far from row i, j the nearer; where: (n,)."""
    i, j, k = triples
    near = np.abs(where[i] - where[j])
    far = np.abs(where[i] - where[k])
    return np.stack([i, np.where(near < far, j, k), np.where(near < far, k, j)])[:, near != far]


def _triples(n: int, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Draw (3, samples) random i, j, k, distinct, |i - j| < |i - k|, each such triple equally likely."""
    i, j, k = rng.integers(n, size=(3, samples + samples // 4))
    swap = np.abs(i - j) > np.abs(i - k)
    near = np.where(swap, k, j)
    far = np.where(swap, j, k)
    good = (i != near) & (np.abs(i - near) < np.abs(i - far))
    return np.stack([i[good], near[good], far[good]])[:, :samples]
