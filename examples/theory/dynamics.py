"""The gradient flow of GEOM's appendix A: dP/dt = -αP + b (eq. 6), its hypotheses (A1)-(A3), bound (13), and
monotonicity.

P is a position table (n, d), α an (n, n) kernel of Hellinger distances, b the negative gradient at P = 0. What of the
appendix holds and what does not is on docs/theory.md; the functions here compute both sides.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.integrate import solve_ivp
from scipy.spatial.distance import cdist

_LATE = (
    25.0  # time constants of the slowest direction, after which e^-25 = 1.4e-11 of the way to the fixed point is left
)


@dataclass(frozen=True, eq=False)
class Flow:
    """An integrated flow; all lengths in the units of the table.

    times: (k,) from 0. tables: (k, n, d), P at each time. fixed_point: (n, d), the solution of αP = b (the flow leaves
    it where α has a negative eigenvalue). radius: R of (A4), the largest norm of a row at any of these times.
    """

    times: np.ndarray
    tables: np.ndarray
    fixed_point: np.ndarray
    radius: float


def flow(
    alpha: np.ndarray, b: np.ndarray, start: np.ndarray | None = None, time: float | None = None, points: int = 200
) -> Flow:
    """GEOM eq. 6, dP/dt = b - αP, integrated in time (Runge-Kutta of order 8, error 1e-10), not by its closed form.

    With α positive definite it ends in α⁻¹b, from any start. An increasing kernel of distances never is (see
    `smallest_minor`): the table then grows without end.

    Args:
        alpha: (n, n) symmetric.
        b: (n, d).
        start: (n, d), default zeros (GEOM: P_0 near 0).
        time: how long; default 25 time constants of the slowest direction, 25/λ_min.
        points: number of times that are returned, 0 and powers up to `time`.

    Raises:
        ValueError: shapes disagree, α is not symmetric or singular, or has no positive λ_min and no `time` is given.
    """
    alpha, b = _checked(alpha, b)
    start = np.zeros_like(b) if start is None else np.asarray(start, dtype=np.float64)
    if start.shape != b.shape:
        raise ValueError(f"start must have the shape of b, {b.shape}. Got {start.shape}.")
    eigenvalues = np.linalg.eigvalsh(alpha)
    if np.abs(eigenvalues).min() <= 1e-14 * np.abs(eigenvalues).max():
        raise ValueError(
            f"α is singular (an eigenvalue of {eigenvalues[np.abs(eigenvalues).argmin()]:.2g}), so the flow has no one "
            "fixed point."
        )
    if time is None:
        if eigenvalues[0] < 0:
            raise ValueError(
                f"α has the eigenvalue {eigenvalues[0]:.3g} < 0, so the flow has no end. Give time= to see it grow."
            )
        time = _LATE / eigenvalues[0]
    fixed_point = np.linalg.solve(alpha, b)
    times = np.concatenate([[0.0], np.geomspace(1e-3 / np.abs(eigenvalues).max(), time, points - 1)])
    done = solve_ivp(
        lambda _, p: (b - alpha @ p.reshape(b.shape)).ravel(),
        (0.0, times[-1]),
        start.ravel(),
        method="DOP853",
        t_eval=times,
        rtol=1e-10,
        atol=1e-12 * (max(float(np.abs(fixed_point).max()), float(np.abs(start).max())) or 1.0),
    )
    tables = done.y.T.reshape(-1, *b.shape)
    return Flow(done.t, tables, fixed_point, float(np.linalg.norm(tables, axis=2).max()))


def exponential_kernel(dist: np.ndarray, width: float = 1.0, height: float = 1.0) -> np.ndarray:
    """α_ij = height · exp(-d_ij / width): falls with the distance, Lipschitz constant height/width, largest value
    height.

    Positive definite for Euclidean distances between different points, and Hellinger distances are such (|√μ_i -
    √μ_j|).
    """
    return height * np.exp(-np.asarray(dist, dtype=np.float64) / width)


def smallest_minor(alpha: np.ndarray) -> float:
    """Smallest 2 × 2 principal minor α_ii·α_jj - α_ij² over all pairs; a positive definite matrix has none that is not
    above 0.

    (A1) asks for f increasing with α_ij = f(d_ij) and α positive definite. Then α_ii = f(0) < f(d_ij) = α_ij for any
    two positions that differ, the minor f(0)² - f(d_ij)² is negative, and the smallest eigenvalue is at most f(0) -
    f(d_ij). Where all positions are equal, α has rank one. So (A1) holds for no corpus with two positions.
    """
    alpha = np.asarray(alpha, dtype=np.float64)
    diagonal = np.diag(alpha)
    minors = np.outer(diagonal, diagonal) - alpha**2
    return float(minors[np.triu_indices(len(alpha), 1)].min())


def forcing_ratios(b: np.ndarray, dist: np.ndarray) -> np.ndarray:
    """|b_i - b_j| / d_ij over the pairs i < j, (n(n-1)/2,), in the order of `numpy.triu_indices`; C_b of (A2) is the
    largest.

    inf where d_ij is 0 and b_i, b_j differ: then no C_b exists. 0 where both agree. Among finitely many positions that
    all differ in distribution some C_b exists for any b whatever, so that (A2) then says nothing but its size.
    """
    b, dist = np.asarray(b, dtype=np.float64), np.asarray(dist, dtype=np.float64)
    pairs = np.triu_indices(len(b), 1)
    difference = cdist(b, b)[pairs]
    d = dist[pairs]
    ratios = np.divide(difference, d, out=np.full(len(d), np.inf), where=d > 0)
    return np.where(difference == 0, 0.0, ratios)


def separation_bound(
    alpha: np.ndarray,
    b: np.ndarray,
    dist: np.ndarray,
    radius: float,
    lipschitz: float,
    form: Literal["printed", "proof"] = "printed",
) -> np.ndarray:
    """Right side of GEOM eq. 13 for every pair, (n, n): an upper bound of |p_i - p_j| at the fixed point of the flow.

    "printed": (C_b + 2·R·L_f·‖f‖)/λ_min · d_ij. It changes with the unit of the loss: with cα and cb for α and b the
    fixed point and R are the same, but L_f·‖f‖ falls with c² and λ_min with c; a small c breaks it. "proof": (C_b +
    n·R·L_f)/λ_min · d_ij, what the proof has before it "absorbs" n into ‖f‖. That always holds and says nothing: λ_min
    ≤ α_ii - α_ij ≤ L_f·d_ij for every pair, so it is never below n·R, while |p_i - p_j| ≤ 2R by the triangle
    inequality.

    Args:
        radius: R of (A4), as `Flow.radius`.
        lipschitz: L_f, the Lipschitz constant of f with α_ij = f(d_ij).
    """
    if form not in ("printed", "proof"):
        raise ValueError(f"form must be 'printed' or 'proof'. Got {form!r}.")
    alpha, b = _checked(alpha, b)
    smallest = np.linalg.eigvalsh(alpha)[0]
    if smallest <= 0:
        raise ValueError(
            f"Bound (13) needs a positive definite α. Its smallest eigenvalue is {smallest:.3g}; use a kernel that "
            "falls."
        )
    coupling = 2 * np.abs(alpha).max() if form == "printed" else len(alpha)
    bound: np.ndarray = (
        (forcing_ratios(b, dist).max() + coupling * radius * lipschitz) / smallest * np.asarray(dist, dtype=np.float64)
    )
    return bound


def arc_distributions(n: int) -> np.ndarray:
    """(n, 2): distributions over two tokens, (cos²θ_i, sin²θ_i) with θ evenly from 0 to π/2, so that (A3) holds
    exactly.

    Their square roots lie on a quarter of a circle: d_H = 2·sin(|θ_i - θ_j|/2) depends on |i - j| alone and grows with
    it.
    """
    if n < 2:
        raise ValueError(f"An arc needs at least 2 positions. Got n={n}.")
    theta = np.linspace(0.0, np.pi / 2, n)
    return np.stack([np.cos(theta) ** 2, np.sin(theta) ** 2], axis=1)


def violations_by_position(dist: np.ndarray) -> np.ndarray:
    """Where (A3) fails: for each position i, the share of its pairs j, k with |i-j| < |i-k| for which d_ij > d_ik;
    (n,).

    The triples, and the tolerance of 1e-9 of the largest distance, are those of `violations_of_distances`. nan for a
    position without such a pair (the middle one of three). `dist` may be signed roots of corrected squares.
    """
    dist = np.asarray(dist, dtype=np.float64)
    n = len(dist)
    tolerance = 1e-9 * np.abs(dist).max() if n else 0.0
    shares = np.full(n, np.nan)
    for i in range(n):
        lag = np.abs(np.arange(n) - i)
        pairs = (lag[:, None] < lag[None, :]) & (lag[:, None] > 0)
        if pairs.any():
            shares[i] = np.mean((dist[i][:, None] > dist[i][None, :] + tolerance)[pairs])
    return shares


def _checked(alpha: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    alpha, b = np.asarray(alpha, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if alpha.ndim != 2 or alpha.shape[0] != alpha.shape[1] or b.ndim != 2 or len(b) != len(alpha):
        raise ValueError(f"α must be (n, n) and b (n, d) with the same n. Got {alpha.shape} and {b.shape}.")
    if not (np.isfinite(alpha).all() and np.isfinite(b).all()):
        raise ValueError("α and b must be finite. Leave out the positions whose values are not.")
    if not np.allclose(alpha, alpha.T, rtol=0, atol=1e-12 * np.abs(alpha).max()):
        raise ValueError(f"α must be symmetric. It differs from its transpose by {np.abs(alpha - alpha.T).max():.3g}.")
    return alpha, b
