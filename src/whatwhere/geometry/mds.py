"""Multidimensional scaling (MDS): the position table with the distances of a corpus (GEOM proposition 6,
algorithm 1), and SMACOF.

The Hellinger distance is Euclidean in √p. So B is positive semidefinite for every corpus, n - 1 dimensions reproduce
every distance (GEOM section 5.2 says the contrary), and classical MDS is PCA of √p. It minimises strain, not stress:
SMACOF does that.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import LinearOperator, eigsh

from .distances import (
    Rows,
    TooLittleText,
    check_distances,
    distances,
    hellinger,
    inner_products,
    square_roots,
    squared_norms,
)
from .stress import stress_of_distances

# Positions beyond which a few dimensions come from a truncated decomposition, without an n x n matrix.
FULL_UP_TO = 2048
NOISE_MARGIN = 1.2  # largest and most negative eigenvalue of chance alone differ by less (Tracy-Widom: some n^(-2/3))
_ROWS_AT_ONCE = 512
_EXACT = 1e-14  # stress of an exact fit, by rounding


@dataclass(frozen=True, eq=False)
class MDS:
    """Coordinates of n positions in r dimensions.

    coords: (n, r) centred, columns by falling variance; the largest entry of each column is positive.
    eigenvalues: descending; of B, all n (negative ones too), or the first r where no n x n matrix was built; of SMACOF,
        the r variances times n of its columns.
    rank: number of eigenvalues of B above rounding: the dimensions of an exact fit (with r eigenvalues: at most r).
    stress: GEOM eq. 4, raw, of the coordinates against the given distances.
    note: empty, or one sentence on the difference between request and result.
    history, converged: of SMACOF, stress before the first and after every step; whether the last fall was below tol.
    """

    coords: np.ndarray
    eigenvalues: np.ndarray
    rank: int
    stress: float
    note: str = ""
    history: np.ndarray | None = None
    converged: bool = True

    @property
    def noise(self) -> float:
        """Size of the most negative eigenvalue, 0 without one; corrected eigenvalues up to this size may be chance."""
        return max(0.0, -float(self.eigenvalues[-1]))


def classical_mds(dist: np.ndarray, dims: int | None = None) -> MDS:
    """Compute classical MDS of a distance matrix (Torgerson 1952; GEOM algorithm 1).

    1. B = -½ H D H with D the squared distances and H = I - 11ᵀ/n.
    2. B = U Λ Uᵀ, eigenvalues descending; the positive ones are kept.
    3. coords = U_r Λ_r^½.

    Of all tables of r columns, coords has the inner products nearest to B (least strain). For a Hellinger matrix r =
    rank makes it exact.

    Args:
        dist: (n, n) distances.
        dims: r; None or more than the rank: the rank, and `note` says so.

    Raises:
        ValueError: NaN, not symmetric, negative or not zero on the diagonal; dims below 1; not square; fewer than two
            positions; or all distances 0.
    """
    dist = check_distances(dist)
    return _embedding(centred_gram(dist**2), dist, dims, above=0.0)


def mds_of_squares(squares: np.ndarray, dims: int | None = None) -> MDS:
    """Compute classical MDS of signed squared distances (n, n), as the corrected ones are
    (`corrected_hellinger(...).squares`).

    As `classical_mds`, but negative squares go in as they are, and rank counts the eigenvalues that exceed the size of
    the most negative one (`noise`) by a fifth. Chance makes as large eigenvalues on either side of 0, so those are the
    dimensions that it does not explain. Stress is against the roots, of negative squares 0.

    Raises:
        ValueError: NaN, not symmetric, or not zero on the diagonal; dims below 1; not square; fewer than two positions;
            or no eigenvalue stands out of chance.
    """
    squares = np.asarray(squares, dtype=np.float64)
    dist = check_distances(np.sqrt(np.maximum(squares, 0.0)))
    if not np.allclose(squares, squares.T, rtol=0, atol=1e-8 * np.abs(squares).max()):
        raise ValueError("Squared distances are symmetric, and these are not. Give (squares + squares.T) / 2.")
    return _embedding(centred_gram(squares), dist, dims, above=NOISE_MARGIN)


def hellinger_mds(p: Rows, dims: int | None = None) -> MDS:
    """Compute classical MDS of the Hellinger distances of token distributions, directly from the distributions: PCA of
    √p.

    The distances of `classical_mds(hellinger(p), dims)` to 1e-10; coordinates may rotate among near-equal eigenvalues.
    Up to 2,048 positions, or for more than a quarter of n dimensions, the function calls `classical_mds`, which is
    faster there. Beyond, Lanczos steps give the first `dims` singular vectors of the centred √p without any n x n
    matrix; then `eigenvalues` are theirs and `rank` is at most `dims`.

    Args:
        p: (n, V) rows that sum to 1, sparse or dense.
        dims: as of `classical_mds`.

    Raises:
        ValueError: a row of `p` has a negative entry or does not sum to 1; fewer than two positions; all have one
            distribution; dims below 1.
    """
    if dims is None or p.shape[0] <= FULL_UP_TO or dims >= p.shape[0] // 4:
        return classical_mds(hellinger(p), dims)
    return _truncated(square_roots(p), _checked_dims(dims))


def smacof(
    dist: np.ndarray, dims: int, init: str | np.ndarray = "classical", max_iter: int = 300, tol: float = 1e-6
) -> MDS:
    """Compute coordinates of least raw stress, by majorisation (de Leeuw 1977; Borg & Groenen, Modern MDS, ch. 8).

    1. Start from classical MDS, or from `init`.
    2. Guttman transform: X <- B(X) X / n with B(X)_ij = -dist_ij / d_ij(X) off the diagonal (0 where d_ij = 0) and rows
      that sum to 0.
    3. Stop when stress falls by less than `tol` of itself, or after `max_iter` steps; then `note` says so.

    Stress never rises, and the last coordinates have the least stress. It ends in a local minimum, which in one
    dimension may be far from the best. At the rank of the distances classical MDS is exact already and comes back.

    Args:
        dist: (n, n) distances.
        dims: r; more than the rank of the classical solution: the rank, and `note` says so.
        init: "classical", or coordinates (n, r).
        max_iter: steps at most.
        tol: share of the stress by which a step must lower it.

    Raises:
        ValueError: as `classical_mds`; or an init of another shape or name, or not finite.
    """
    dist = check_distances(dist)
    start = classical_mds(dist, dims)
    coords = start.coords if isinstance(init, str) else np.asarray(init, dtype=np.float64)
    if isinstance(init, str) and init != "classical":
        raise ValueError(f"Unknown start {init!r}. Use 'classical', or give coordinates ({len(dist)}, {dims}).")
    if not isinstance(init, str) and (coords.shape != (len(dist), dims) or not np.isfinite(coords).all()):
        raise ValueError(
            f"A start has a finite row of {dims} numbers for each of {len(dist)} positions. Got shape {coords.shape}."
        )
    total = float(np.vdot(dist, dist))
    d = distances(coords)
    history = [float(np.sum((d - dist) ** 2)) / total]
    converged = history[0] < _EXACT
    while not converged and len(history) <= max_iter:
        ratio = np.divide(dist, d, out=np.zeros_like(d), where=d > 0)
        moved = (ratio.sum(axis=1)[:, None] * coords - ratio @ coords) / len(dist)
        d = distances(moved)
        now = float(np.sum((d - dist) ** 2)) / total
        converged = history[-1] - now <= tol * history[-1]
        if now > history[-1]:  # rounding, at the end
            break
        coords = moved
        history.append(now)
    note = start.note if isinstance(init, str) else ""
    if not converged:
        fall = 1 - history[-1] / history[-2]
        note = (
            f"{note} SMACOF stopped at max_iter={max_iter}, stress still falling by {fall:.1e} of itself a step "
            f"(tol={tol:g})."
        ).strip()
    u, s, _ = np.linalg.svd(coords - coords.mean(axis=0), full_matrices=False)  # the points on their principal axes
    return MDS(_signed(u * s), s**2, start.rank, history[-1], note, np.array(history), converged)


def mds_table(coords: np.ndarray, positions: np.ndarray, rank: int, rows: int | None = None) -> np.ndarray:
    """Return a table for a model, (rows, rank): row 0 ([CLS]) zero, row i + 1 the coordinates of position i.

    Positions between two supported ones are interpolated linearly. Beyond the last supported one, and before the first,
    there is nothing to go by and nothing is invented. Written with numpy.save, `preset("ap", absolute="mds",
    table_file=..., table_width=rank, max_position_embeddings=rows)` loads it.

    Args:
        coords: (m, r) coordinates, of which the first `rank` columns are kept.
        positions: (m,) their positions, counted from 0 without special tokens, ascending from 0.
        rows: rows of the table (default: all that there are, last position + 2).

    Raises:
        ValueError: rank above r, positions that do not fit or do not begin with 0, or too many rows.
    """
    coords = np.asarray(coords, dtype=np.float64)
    positions = np.asarray(positions)
    if coords.ndim != 2 or positions.shape != coords.shape[:1] or np.any(np.diff(positions) <= 0):
        raise ValueError(
            f"Coordinates (m, r) belong to m ascending positions. Got shapes {coords.shape} and {positions.shape}."
        )
    if not 1 <= rank <= coords.shape[1]:
        raise ValueError(f"The table can have 1 to {coords.shape[1]} columns, the rank of the corpus. Got rank={rank}.")
    if positions[0] != 0:
        raise ValueError(
            f"The first supported position is {positions[0]}, and rows before it would be invented. Align from the "
            "start."
        )
    most = int(positions[-1]) + 2
    rows = most if rows is None else rows
    if not 2 <= rows <= most:
        raise ValueError(
            f"Positions up to {positions[-1]} are supported, which makes 2 to {most} rows with [CLS]. Got rows={rows}."
        )
    columns = [np.interp(np.arange(rows - 1), positions, coords[:, c]) for c in range(rank)]
    return np.concatenate([np.zeros((1, rank)), np.stack(columns, axis=1)])


def centred_gram(squares: np.ndarray) -> np.ndarray:
    """Compute B = -½ H D H of squared distances D (GEOM eq. 5): the inner products of the centred points; (n, n)."""
    gram = -0.5 * np.asarray(squares, dtype=np.float64)
    means: np.ndarray = gram.mean(axis=0)
    return gram - means - means[:, None] + means.mean()


def _checked_dims(dims: int) -> int:
    if dims < 1:
        raise ValueError(f"A table needs at least 1 dimension. Got dims={dims}.")
    return int(dims)


def _embedding(b: np.ndarray, dist: np.ndarray, dims: int | None, above: float) -> MDS:
    """Compute steps 2 and 3; an eigenvalue counts above `above` times the size of the most negative one."""
    n = len(b)
    values, vectors = eigh(b, driver="evd" if n <= 4096 else "evr", overwrite_a=True, check_finite=False)
    values = values[::-1]
    vectors = vectors[:, ::-1]
    rank = int(np.sum(values > max(_rounding(n, values[0]), -above * values[-1])))
    if rank == 0:
        raise ValueError(
            "All positions have the same distribution, or differ by chance alone: there is nothing to scale. Count "
            "more text."
        )
    dimensions = rank if dims is None else _checked_dims(dims)
    r = min(dimensions, rank)
    coords = _signed(vectors[:, :r] * np.sqrt(values[:r]))
    return MDS(coords, values.copy(), rank, stress_of_distances(distances(coords), dist), _note(dimensions, rank))


def _rounding(n: int, largest: float) -> float:
    """Return the size below which an eigenvalue of B is rounding."""
    return 8 * n * np.finfo(float).eps * max(float(largest), 0.0)


def _note(dimensions: int, rank: int) -> str:
    note = f"{dimensions} dimensions asked, {rank} used: that is the rank, and they reproduce all distances."
    return note if dimensions > rank else ""


def _signed(coords: np.ndarray) -> np.ndarray:
    """Return columns turned so that their largest entry is positive; of entries equal but for rounding, the first."""
    size = np.abs(coords)
    largest = (size >= (1 - 1e-6) * size.max(axis=0)).argmax(axis=0)
    return coords * np.where(coords[largest, np.arange(coords.shape[1])] < 0, -1.0, 1.0)


def _truncated(roots: Rows, dims: int) -> MDS:
    """Compute the first singular vectors of the centred √p, by Lanczos steps on v -> H √p √pᵀ H v."""
    n = roots.shape[0]
    roots = roots.tocsc() if sparse.issparse(roots) else roots  # once, as the products need it

    def times(v: np.ndarray) -> np.ndarray:
        w = roots @ (roots.T @ (v - v.mean(axis=0)))
        return w - w.mean(axis=0)

    start = np.random.default_rng(0).normal(size=n)
    operator = LinearOperator((n, n), matvec=times, matmat=times, dtype=np.float64)
    values, vectors = eigsh(operator, k=dims, which="LA", v0=start - start.mean())
    order = values.argsort()[::-1]
    values = values[order]
    vectors = vectors[:, order]
    rank = int(np.sum(values > _rounding(n, max(values[0], 1.0))))  # √p has unit rows and is not centred itself
    if rank == 0:
        raise TooLittleText("All positions have the same distribution: there is nothing to scale.", "Count more text.")
    coords = _signed(vectors[:, :rank] * np.sqrt(values[:rank]))
    # Raw stress against the Hellinger distances, some rows of the matrices at a time.
    points = squared_norms(coords)
    norms = squared_norms(roots)
    apart = 0.0
    total = 0.0
    for at in range(0, n, _ROWS_AT_ONCE):
        rows = slice(at, at + _ROWS_AT_ONCE)
        d = np.sqrt(np.maximum(points[rows, None] + points - 2 * coords[rows] @ coords.T, 0))
        dist = np.sqrt(np.maximum(norms[rows, None] + norms - 2 * inner_products(roots[rows], roots), 0))
        apart += float(np.sum((d - dist) ** 2))
        total += float(np.vdot(dist, dist))
    return MDS(coords, values, rank, apart / total, _note(dims, rank))
