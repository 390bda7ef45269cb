"""Token distributions of positions, and Hellinger and Euclidean distances of rows (GEOM sections 2 and 5.1)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

Rows = Any  # (m, V) numbers: a numpy array, or a sparse array of scipy, which has no types

# Tokens at a position below which its distribution is thin. On SST-2 (67,349 sentences) it keeps the first 44 of 64
# positions; at the last of them, with 574 tokens, two halves of the sentences are 0.96 apart, of at most 1.41: beyond,
# distances are noise.
MIN_SUPPORT = 500
_FEWEST = 50  # tokens at a position from which both halves of 50 documents have some, but for one cut in many millions
# |x|² + |y|² - 2 x·y loses the digits that x and y share: below this share of |x|² + |y|² the difference is taken entry
# by entry.
_NEAR = 1e-4
_CROWDED = 0.1  # columns that this share of the rows occupies are multiplied as a dense block: equal cost near it
_BLOCK = 2**22  # numbers of a block held beyond the result: 32 MiB
_PAIRS = 2**18  # numbers of differences computed at once: they fit in a cache


class TooLittleText(ValueError):
    """Error for positions that cannot be compared in the text that was counted.

    problem: what the text lacks. The message adds what to do about it.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem, advice)
        self.problem = problem
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.problem} {self.advice}"


@contextmanager
def name_text_in_errors(name: str) -> Iterator[None]:
    """Name a text in the `TooLittleText` that the block raises."""
    try:
        yield
    except TooLittleText as error:
        raise TooLittleText(f"{name}: {error.problem}", error.advice) from None


def advise_on_support(support: np.ndarray) -> str:
    """Return what to do about tokens at each position (n,) that are too few.

    A smaller min_support is named only where it is of use: three positions have it, and random halves of the documents
    both have tokens there.
    """
    third = int(np.sort(support)[-3]) if len(support) > 2 else 0
    advice = "Count more text, or cut it into smaller documents: lines, by --set document=line, are the smallest."
    return f"{advice} Or take fewer tokens: --set min_support={third}." if third >= _FEWEST else advice


@dataclass(frozen=True, eq=False)
class Distributions:
    """Token distributions of m positions out of n: those with enough tokens.

    p: (m, V) rows that sum to 1; csr_array, or dense where smoothing makes every entry positive.
    positions: (m,) which positions the rows are, counted from 0 without special tokens, ascending.
    support: (n,) tokens counted at each position, kept or not.
    left_out: (n - m,) positions left out, because nothing or less than `min_support` was counted there.
    """

    p: Rows
    positions: np.ndarray
    support: np.ndarray
    left_out: np.ndarray


def positional_distributions(counts: Rows, smoothing: float = 0.0, min_support: float = MIN_SUPPORT) -> Distributions:
    """Compute the token distribution of each position from counts (n, V); thin and unoccupied positions are left out
    and listed.

    `smoothing` is added to every count before normalising. Positions without any token have no distribution and are
    left out, unless there is smoothing and min_support = 0: then they become uniform, as in GEOM. Its protocol,
    recovered: smoothing = 1e-12, min_support = 0. Smoothing makes p dense: n · V · 8 bytes (62 MB for 256 positions of
    BERT's vocabulary). `min_support`: fewest tokens at a position that is kept.

    Raises:
        ValueError: no position has that support; counts or settings are negative or not finite; or they are no matrix,
            or empty.
    """
    dense = not sparse.issparse(counts)
    counts = np.asarray(counts, dtype=np.float64) if dense else sparse.csr_array(counts)
    if counts.ndim != 2 or 0 in counts.shape:
        raise ValueError(f"Counts have shape (positions, vocabulary). Got {counts.shape}.")
    entries = counts if dense else counts.data
    if not np.isfinite(entries).all() or entries.min(initial=0) < 0:
        raise ValueError(f"Counts are finite and not negative. The smallest is {entries.min():.6g}.")
    if not (np.isfinite(smoothing) and smoothing >= 0 and min_support >= 0):
        raise ValueError(
            f"smoothing and min_support are not negative. Got smoothing={smoothing}, min_support={min_support}."
        )
    support = np.asarray(counts.sum(axis=1)).ravel()
    supported = (support >= min_support) & ((support > 0) | (smoothing > 0))
    if not supported.any():
        most = support.max()
        raise TooLittleText(
            f"No position has {max(min_support, 1):g} tokens, so there is no distribution to compare: at most "
            f"{most:g}, at position {support.argmax()}.",
            advise_on_support(support) if most else "Give text with tokens in it.",
        )
    p = counts if supported.all() else counts[supported]
    totals = support[supported]
    if smoothing > 0:
        p = (p if dense else p.toarray()) + smoothing
        totals = totals + smoothing * p.shape[1]
    if sparse.issparse(p):  # sharing the indices: large corpora are large here
        p = sparse.csr_array((p.data / np.repeat(totals, np.diff(p.indptr)), p.indices, p.indptr), shape=p.shape)
    else:
        p = p / totals[:, None]
    if np.all(support == np.floor(support)):
        support = support.astype(np.int64)
    positions = np.flatnonzero(supported)
    return Distributions(p=p, positions=positions, support=support, left_out=np.flatnonzero(~supported))


def square_roots(p: Rows) -> Rows:
    """Return √p in float64, sparse if p is: unit rows, whose Euclidean distances are the Hellinger distances.

    Raises:
        ValueError: not two-dimensional, or a row has a negative entry or does not sum to 1.
    """
    p = sparse.csr_array(p) if sparse.issparse(p) else np.asarray(p, dtype=np.float64)
    if p.ndim != 2:
        raise ValueError(f"Distributions have shape (positions, vocabulary). Got {p.shape}.")
    entries = p.data if sparse.issparse(p) else p
    if entries.min(initial=0) < 0:
        raise ValueError(f"Shares are not negative. The smallest is {entries.min():.6g}.")
    totals = np.asarray(p.sum(axis=1)).ravel()
    wrong = ~(np.abs(totals - 1) < 1e-6)
    if wrong.any():
        raise ValueError(
            f"Every row of p sums to 1. Row {wrong.argmax()} sums to {totals[wrong.argmax()]:.6g}. "
            "Counts become distributions by positional_distributions."
        )
    if sparse.issparse(p):
        return sparse.csr_array((np.sqrt(p.data, dtype=np.float64), p.indices, p.indptr), shape=p.shape)
    return np.sqrt(p)


def hellinger(p: Rows, q: Rows | None = None) -> np.ndarray:
    """Compute Hellinger distances between the distributions of every two positions, (m, m), symmetric with zero
    diagonal; with `q`, between two corpora at equal positions, (m,).

    d(i, j) = |√p_i - √p_j|, from 0 for equal rows to √2 for rows without a common token (no factor 1/√2: GEOM eq. 3).
    It is Euclidean in √p, so that classical MDS of the result is PCA of √p. Near-equal rows are as accurate as distant
    ones; equal rows give 0. Few tokens inflate it: see `corrected_hellinger`.

    Args:
        p: (m, V) rows that sum to 1, sparse or dense. Sparse rows are not made dense as a whole.
        q: (m, V) distributions at the same positions of another corpus, over the same vocabulary.

    Raises:
        ValueError: a row of `p` or `q` has a negative entry or does not sum to 1, or their shapes differ; or they are
            no matrices.
    """
    roots = square_roots(p)
    if q is None:
        return np.minimum(row_distances(roots), np.sqrt(2.0))
    others = square_roots(q)
    if roots.shape != others.shape:
        raise ValueError(
            f"Two corpora are compared at equal positions over one vocabulary: shapes {roots.shape} and "
            f"{others.shape}. Use one tokenizer, and keep the positions that both support."
        )
    if sparse.issparse(roots) != sparse.issparse(others):
        roots, others = (x.toarray() if sparse.issparse(x) else x for x in (roots, others))
    return np.minimum(np.sqrt(squared_differences(roots, others)), np.sqrt(2.0))


def inner_products(a: Rows, b: Rows | None = None) -> np.ndarray:
    """Compute a · bᵀ (b = a by default) for rows (m, V) and (k, V), both sparse or both dense: (m, k).

    Sparse rows are never made dense as a whole: the columns that many rows occupy are, a block at a time, because there
    a dense product is faster; memory beyond the result stays at tens of MiB. The result is float64 for sparse rows, and
    of NumPy's common type of both for dense ones.
    """
    if not sparse.issparse(a):
        return a @ (a if b is None else b).T
    left = a.tocsc()
    right = left if b is None else b.tocsc()
    pairs = np.diff(left.indptr).astype(float) * np.diff(right.indptr)
    crowded = pairs > _CROWDED**2 * a.shape[0] * right.shape[0]
    result = np.zeros((left.shape[0], right.shape[0]))
    wide = np.flatnonzero(crowded)
    step = max(1, _BLOCK // max(result.shape))
    for at in range(0, len(wide), step):
        chosen = wide[at : at + step]
        block = left[:, chosen].T.toarray()  # transposed: a column's entries go to one row of memory
        result += block.T @ (block if b is None else right[:, chosen].T.toarray())
    # A column of one row matters to that row's norm only.
    narrow = np.flatnonzero(~crowded & (pairs > (1 if b is None else 0)))
    rows = left[:, narrow].tocsr()
    columns = right[:, narrow].T
    step = max(1, _BLOCK // max(1, result.shape[1]))
    for at in range(0, len(result), step):
        result[at : at + step] += (rows[at : at + step] @ columns).toarray()
    if b is None:
        np.fill_diagonal(result, squared_norms(a))
    return result


def squared_norms(x: Rows) -> np.ndarray:
    """Return the sum of squares of each row of x (m, V), sparse or dense: (m,)."""
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("mv,mv->m", x, x)


def squared_differences(x: Rows, y: Rows) -> np.ndarray:
    """Compute |x_i - y_i|² row by row of x and y (m, V), sparse or dense, from the differences themselves: (m,)."""
    return squared_norms(x - y)


def distances(table: np.ndarray) -> np.ndarray:
    """Compute distances |x_i - x_j| between all rows of a dense table (n, d): (n, n), as exactly as `row_distances`
    does.

    The table is centred and scaled for the product: neither a large common offset nor a scale of 1e-200 costs digits.
    """
    scale = 2.0 ** float(np.frexp(np.abs(table).max(initial=0.0))[1])  # a power of two: dividing by it rounds nothing
    table = table / scale
    return scale * _from_products(inner_products(table - table.mean(axis=0)), table)


def row_distances(x: Rows) -> np.ndarray:
    """Compute distances |x_i - x_j| between all rows of (m, V), sparse or dense: (m, m), symmetric, zero diagonal.

    Relative error below 1e-10 for all pairs, equal rows exactly 0: pairs that are near for their norms are computed
    again from their differences.
    """
    return _from_products(inner_products(x), x)


def _from_products(products: np.ndarray, x: Rows) -> np.ndarray:
    """Compute distances between the rows of `x` from their inner products (from any origin), and for near pairs from
    the rows."""
    norms = products.diagonal()
    squares = -2 * products
    squares += norms[:, None]
    squares += norms
    near_i, near_j = np.nonzero(np.triu(squares <= _NEAR * (norms[:, None] + norms), 1))
    squares = np.triu(squares, 1)
    step = max(1, _PAIRS // max(1, x.nnz // len(norms) if sparse.issparse(x) else x.shape[1]))
    for at in range(0, len(near_i), step):
        i = near_i[at : at + step]
        j = near_j[at : at + step]
        squares[i, j] = squared_differences(x[i], x[j])
    squares += squares.T
    return np.sqrt(squares)


def positions_of_rows(positions: np.ndarray | None, n: int) -> np.ndarray:
    """Return the checked positions (n,) of n rows as int32; None: 0, 1, ..., without gaps.

    Raises:
        ValueError: another number of positions, or positions that do not ascend.
    """
    where = np.arange(n) if positions is None else np.asarray(positions)
    if where.shape != (n,) or np.any(np.diff(where) <= 0):
        raise ValueError(
            f"{n} rows belong to {n} ascending positions. Got positions of shape {where.shape}. Give one for each row."
        )
    return where.astype(np.int32)


def check_distances(dist: np.ndarray, signed: bool = False) -> np.ndarray:
    """Return a checked (m, m) distance matrix as float64; `signed`: roots of corrected squares, negative where the
    square is.

    Raises:
        ValueError: not square, fewer than two positions, not finite, not symmetric, negative, or a diagonal beside 0.
    """
    dist = np.asarray(dist, dtype=np.float64)
    if dist.ndim != 2 or dist.shape[0] != dist.shape[1]:
        raise ValueError(f"Distances are a square matrix (positions, positions). Got shape {dist.shape}.")
    if len(dist) < 2:
        raise ValueError(
            f"A geometry needs at least 2 positions. Got {len(dist)}. Keep more positions, or count more text."
        )
    if not np.isfinite(dist).all():
        row, column = np.argwhere(~np.isfinite(dist))[0]
        raise ValueError(
            f"The distance of positions {row} and {column} is {dist[row, column]}. Leave positions without support out."
        )
    largest = float(np.abs(dist).max())
    gap = np.abs(dist - dist.T)
    if gap.max() > 1e-8 * largest:
        row, column = np.unravel_index(gap.argmax(), gap.shape)
        raise ValueError(
            f"Distances are symmetric, but ({row}, {column}) is {dist[row, column]:.6g} and ({column}, {row}) is "
            f"{dist[column, row]:.6g}. Give (dist + dist.T) / 2 if both are estimates of one distance."
        )
    if dist.min() < 0 and not signed:
        raise ValueError(
            f"Distances are not negative. The smallest is {dist.min():.6g}. For signed squares use mds_of_squares."
        )
    diagonal = np.abs(dist.diagonal()).max()
    if diagonal > 1e-8 * largest:
        raise ValueError(
            f"A position's distance to itself is 0, and the diagonal reaches {diagonal:.6g}. Give a distance matrix."
        )
    return dist


def check_table(table: np.ndarray) -> np.ndarray:
    """Return a checked table (n, d) of position vectors as float64.

    Raises:
        ValueError: not two-dimensional, not real, fewer than two rows, no columns, or not finite.
    """
    table = np.asarray(table)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"A table has two dimensions (positions, width). Got shape {table.shape}.")
    if table.dtype.kind not in "fiu":
        raise ValueError(f"A table holds real numbers. Got dtype {table.dtype}.")
    if len(table) < 2:
        raise ValueError(f"A table needs at least 2 positions. Got {len(table)}.")
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The table has NaN or infinite values in {bad.sum()} rows, first row {bad.argmax()}. Use an earlier "
            "checkpoint."
        )
    return table.astype(np.float64)
