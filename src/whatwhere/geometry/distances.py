"""Euclidean distances between rows, sparse or dense: as fast as one matrix product, and accurate for near-equal rows
too."""

from typing import Any

import numpy as np
from scipy import sparse

Rows = Any  # (m, V) numbers: a numpy array, or a sparse array of scipy, which has no types

# |x|² + |y|² - 2 x·y loses the digits that x and y share: below this share of |x|² + |y|² the difference is taken entry
# by entry.
_NEAR = 1e-4
# Columns that this share of the rows occupies are multiplied as a dense block, the others as sparse ones: equal cost
# near it.
_CROWDED = 0.1
_BLOCK = 2**22  # numbers of a block held beyond the result: 32 MiB
_PAIRS = 2**18  # numbers of differences taken at once: what a cache holds


def inner_products(a: Rows, b: Rows | None = None) -> np.ndarray:
    """a · bᵀ (b = a by default) for rows (m, V) and (k, V), both sparse or both dense: (m, k) float64.

    Sparse rows are never made dense as a whole: the columns that many rows occupy are, a block at a time, because there
    a dense product is faster; memory beyond the result stays at tens of MiB.
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
    narrow = np.flatnonzero(
        ~crowded & (pairs > (1 if b is None else 0))
    )  # a column of one row matters to that row's norm only
    rows, columns = left[:, narrow].tocsr(), right[:, narrow].T
    step = max(1, _BLOCK // max(1, result.shape[1]))
    for at in range(0, len(result), step):
        result[at : at + step] += (rows[at : at + step] @ columns).toarray()
    if b is None:
        np.fill_diagonal(result, squared_norms(a))
    return result


def squared_norms(x: Rows) -> np.ndarray:
    """Sum of squares of each row, (m,)."""
    if sparse.issparse(x):
        return np.asarray(x.multiply(x).sum(axis=1)).ravel()
    return np.einsum("mv,mv->m", x, x)


def squared_differences(x: Rows, y: Rows) -> np.ndarray:
    """|x_i - y_i|² row by row, (m,), from the differences themselves."""
    return squared_norms(x - y)


def distances(table: np.ndarray) -> np.ndarray:
    """Distances |x_i - x_j| between all rows of a dense table (n, d): (n, n), symmetric, zero diagonal, right as
    `row_distances`.

    The table is centred and scaled for the product: neither a large common offset nor a scale of 1e-200 costs digits.
    """
    scale = 2.0 ** float(
        np.frexp(np.abs(table).max(initial=0.0))[1]
    )  # a power of two, so that dividing by it rounds nothing
    table = table / scale
    return scale * _from_products(inner_products(table - table.mean(axis=0)), table)


def row_distances(x: Rows) -> np.ndarray:
    """Distances |x_i - x_j| between all rows of (m, V), sparse or dense: (m, m), symmetric, zero diagonal.

    Relative error below 1e-10 for all pairs, equal rows exactly 0: pairs that are near for their norms are computed
    again from their differences.
    """
    return _from_products(inner_products(x), x)


def _from_products(products: np.ndarray, x: Rows) -> np.ndarray:
    """Distances between the rows of `x` from inner products of them (from any origin), near pairs from the rows."""
    norms = products.diagonal()
    squares = -2 * products
    squares += norms[:, None]
    squares += norms
    near_i, near_j = np.nonzero(np.triu(squares <= _NEAR * (norms[:, None] + norms), 1))
    squares = np.triu(squares, 1)
    step = max(1, _PAIRS // max(1, x.nnz // len(norms) if sparse.issparse(x) else x.shape[1]))
    for at in range(0, len(near_i), step):
        i, j = near_i[at : at + step], near_j[at : at + step]
        squares[i, j] = squared_differences(x[i], x[j])
    squares += squares.T
    return np.sqrt(squares)


def check_distances(dist: np.ndarray, signed: bool = False) -> np.ndarray:
    """A (m, m) distance matrix as float64; `signed`: roots of corrected squares, negative where the square is.

    Raises:
        ValueError: not square, fewer than two positions, NaN or infinite, not symmetric, negative, or a diagonal that
        is not zero.
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
            f"{dist[column, row]:.6g}. "
            "Give (dist + dist.T) / 2 if both are estimates of one distance."
        )
    if dist.min() < 0 and not signed:
        raise ValueError(
            f"Distances are not negative. The smallest is {dist.min():.6g}. For signed squares use mds_of_squares."
        )
    if np.abs(dist.diagonal()).max() > 1e-8 * largest:
        raise ValueError(
            f"A position's distance to itself is 0. The diagonal reaches {np.abs(dist.diagonal()).max():.6g}: no "
            "distances?"
        )
    return dist


def check_table(table: np.ndarray) -> np.ndarray:
    """A table (n, d) of position vectors as float64.

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
            f"The table has NaN or infinite values in {bad.sum()} rows, first row {bad.argmax()}. Use a checkpoint "
            "from before they came."
        )
    return table.astype(np.float64)
