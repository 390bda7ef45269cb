"""Stress of a position table's distances against a corpus's distances (GEOM eq. 4), and correlations of distances."""

from typing import Literal

import numpy as np

from .distances import TooLittleText, check_distances, check_table, distances, positions_of_rows

Scale = Literal["raw", "optimal"]


def stress(table: np.ndarray, dist: np.ndarray, scale: Scale = "raw") -> float:
    """Compute the stress of a table (n, d) against `dist` (n, n), whose row i belongs to row i of the table.

    `stress_of_distances` has the definition.

    Raises:
        ValueError: another number of rows than `dist` has, NaN, or no distance matrix; an unknown scale; or distances
            that are all 0.
    """
    return stress_of_distances(_distances_beside(table, dist), dist, scale)


def stress_of_distances(d: np.ndarray, dist: np.ndarray, scale: Scale = "raw") -> float:
    """Compute stress: sum over i<j of (d - dist)² / sum over i<j of dist² (GEOM eq. 4, no root).

    Zero if all distances agree; 1 if all of `d` are 0. GEOM says it is at most 1, but it grows without bound with the
    scale of `d`, which for a position table is arbitrary. With scale="optimal" `d` is first multiplied by sum(d · dist)
    / sum(d²): then it is in [0, 1] and the same for every multiple of the table. Constant distances get 1 - mean(dist)²
    / mean(dist²): the mark to beat.

    Args:
        d, dist: (n, n) distances of a table and of the corpus.

    Raises:
        ValueError: unknown scale, shapes that differ, distances with NaN or not symmetric, or all of `dist` zero.
    """
    if scale not in ("raw", "optimal"):
        raise ValueError(
            f"Unknown scale {scale!r}. Use 'raw' (GEOM eq. 4) or 'optimal' (the same for every multiple of the table)."
        )
    dist = check_distances(dist)
    d = check_distances(d)
    if d.shape != dist.shape:
        raise ValueError(f"The distances are of {len(d)} and {len(dist)} positions. Give both for the same positions.")
    total = float(np.vdot(dist, dist))
    if total == 0:
        raise TooLittleText(
            "All distances are 0: the positions do not differ, and stress divides by their sum.", "Count more text."
        )
    if scale == "optimal":
        square = float(np.vdot(d, d))
        d = d * (float(np.vdot(d, dist)) / square) if square > 0 else d
    return float(np.sum((d - dist) ** 2)) / total


def distance_correlation(table: np.ndarray, dist: np.ndarray) -> float:
    """Compute the Pearson correlation over pairs i<j of the distances of a table (m, d) and of a corpus (m, m) (GEOM
    6.7); NaN if one is constant.

    In [-1, 1].

    Raises:
        ValueError: the table has another number of rows than `dist`; or as `check_distances` and `check_table`.
    """
    return _pearson(_distances_beside(table, dist), check_distances(dist))


def lag_correlation(dist: np.ndarray, positions: np.ndarray | None = None, signed: bool = False) -> float:
    """Compute the Pearson correlation over pairs i<j of their distance with |i - j|; NaN if all distances are equal.

    In [-1, 1].

    Args:
        dist: (m, m) distances; with `signed`, roots of corrected squares, negative where the square is.
        positions: (m,) the positions that the rows are (default: 0, 1, ..., without gaps).

    Raises:
        ValueError: positions that do not ascend or are not m; or as `check_distances`.
    """
    dist = check_distances(dist, signed)
    where = positions_of_rows(positions, len(dist))
    return _pearson(np.abs(where[:, None] - where).astype(float), dist)


def _distances_beside(table: np.ndarray, dist: np.ndarray) -> np.ndarray:
    """Compute distances of the rows of a table that has as many as `dist`."""
    table = check_table(table)
    if len(table) != len(dist):
        raise ValueError(
            f"The table has {len(table)} rows, the distances {len(dist)} positions. Take the rows of the positions "
            "that are kept: table[positions], and without row 0 where that is [CLS]."
        )
    return distances(table)


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    pairs = np.triu_indices(len(a), 1)
    x = a[pairs] - a[pairs].mean()
    y = b[pairs] - b[pairs].mean()
    size = float(np.linalg.norm(x) * np.linalg.norm(y))
    constant = 1e-12 * np.linalg.norm(a[pairs]) * np.linalg.norm(b[pairs])
    return float(x @ y) / size if size > constant else float("nan")
