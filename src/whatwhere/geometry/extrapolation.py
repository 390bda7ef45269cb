"""Position tables continued beyond the length that they were learned at: the five proposals of the SPLIT notes
(equations 2-6), and methods of others (interpolation, rotations, the geometry of a longer corpus)."""

from collections.abc import Callable

import numpy as np
from scipy.fft import fft
from scipy.linalg import lstsq
from scipy.optimize import least_squares, minimize

from .distances import check_table
from .encodings import sinusoidal

FINER = 16  # frequencies that are tried for a rotation, per whole turn over the table
HIDDEN = 32  # units of the network of `learned`
RIDGE = 1e-4  # on the output weights: the equation has none, and without one they diverge beyond the table


def extrapolate(
    table: np.ndarray,
    length: int,
    method: str = "cyclic",
    *,
    components: int | None = None,
    points: np.ndarray | None = None,
    as_written: bool = False,
) -> np.ndarray:
    """Continue a table of L learned positions to `length` positions: (length, d) float64.

    Rows below L stay as they are, but for the methods that stretch (`linear`, `nearest`) and with `as_written`.

    ============  ====================================================================================================
    sinusoidal    sines and cosines of Vaswani et al. times σ, the standard deviation of the learned table (SPLIT eq. 2)
    fourier       mean and the strongest whole frequencies of the table, which has the period L (eq. 3). As written: no
                  mean, and the frequency L/2 counts twice, so that all of them do not give the table back
    cyclic        row i mod L, and ⌊i/L⌋ times the mean step from a row to the next (eq. 4)
    learned       (1 - α) times row i mod L and α times a network of i/L, 32 tanh units fitted to the table; α =
                  σ(5 (i/L - 1)) (eq. 5)
    decay         the last row over 1 + log(1 + i - L + 1) (eq. 6)
    rotation      mean and the strongest waves of any frequency, each with all its phases: what turns goes on turning
    linear        the table stretched: L rows at `length` places, linearly between them (position interpolation)
    nearest       the same with the nearest row
    mds           the least-squares image of `points`, coordinates of `length` positions, fitted to the L learned rows
    ============  ====================================================================================================

    Args:
        table: (L, d) real numbers; row i is position i, so cut off rows that belong to no position first.
        components: number K of frequencies of `fourier` and `rotation`, at most L/2; default: L/16, from 1 to 16.
        points: (length or more, r) of `mds`, such as `classical_mds(...).coords` of a corpus with longer texts.
        as_written: the equation for all rows, those below L too (`fourier`: as printed).

    Raises:
        ValueError: an unknown method, a length that is no whole number or below L, K out of range, `points` missing or
            too few, NaN or infinity in the table or the points; components or points for a method that takes none; a
            table of fewer than two rows.
    """
    table = check_table(table)
    n = len(table)
    if method not in METHODS:
        raise ValueError(f"There is no method {method!r}. Known: {', '.join(METHODS)}.")
    if not isinstance(length, int | np.integer) or length < n:
        raise ValueError(f"The table has {n} positions. Got length={length!r}; give a whole number, {n} or more.")
    whole = isinstance(components, int | np.integer)
    if components is not None and method not in OF_WAVES:
        raise ValueError(f"components are of {' and '.join(OF_WAVES)}. Got method={method!r}; leave components out.")
    if components is not None and not (whole and 1 <= components <= n // 2):
        raise ValueError(
            "components is the number of frequencies of fourier and rotation, a whole number from 1 to half of the "
            f"{n} positions. Got {components!r} with method={method!r}."
        )
    if method == "mds" and points is None:
        raise ValueError(
            "The method mds needs points, coordinates of all positions of the longer table. Give the points "
            "of a corpus with longer texts, tables/NAME-mds.npy of `whatwhere geometry` (--points FILE.npy), or "
            "another method."
        )
    if method != "mds" and points is not None:
        raise ValueError(f"points are of the method mds. Got method={method!r}; give mds, or leave points out.")
    if points is not None:
        longer = _image(table, np.asarray(points, np.float64), length)
    elif method in OF_WAVES:
        count = components or usual_components(n)
        longer = _fourier(table, length, count, as_written) if method == "fourier" else _rotation(table, length, count)
    else:
        longer = _OF_THE_TABLE[method](table, length)
    if not as_written and method not in ("linear", "nearest"):
        longer[:n] = table
    return longer


def usual_components(positions: int) -> int:
    """Return the default number of frequencies of `fourier` and `rotation`: a sixteenth of the positions,
    from 1 to 16."""
    return min(max(positions // 16, 1), 16)


def _sinusoidal(table: np.ndarray, length: int) -> np.ndarray:
    return table.std() * sinusoidal(length, table.shape[1])


def _fourier(table: np.ndarray, length: int, components: int, as_written: bool) -> np.ndarray:
    n = len(table)
    waves = fft(table, axis=0)[1 : n // 2 + 1]
    strongest = np.argsort(-(np.abs(waves) ** 2).sum(axis=1), kind="stable")[:components]
    weights = np.where((2 * (strongest + 1) == n) & (not as_written), 1.0, 2.0) / n
    turns = np.exp(2j * np.pi * np.outer(np.arange(length), strongest + 1) / n)
    periodic = ((turns * weights) @ waves[strongest]).real
    return periodic if as_written else periodic + table.mean(axis=0)


def _cyclic(table: np.ndarray, length: int) -> np.ndarray:
    n = len(table)
    i = np.arange(length)
    step = (table[-1] - table[0]) / max(n - 1, 1)
    return table[i % n] + (i // n)[:, None] * step


def _learned(table: np.ndarray, length: int) -> np.ndarray:
    n = len(table)
    x = np.arange(length) / n
    share = 1 / (1 + np.exp(-5 * (x - 1)))[:, None]
    return (1 - share) * table[np.arange(length) % n] + share * _network(table, x)


def _network(table: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Evaluate at x the network whose values at i/L are nearest to the table: hidden weights by L-BFGS, output weights
    by least squares."""
    n = len(table)
    mean = table.mean(axis=0)
    scale = table.std() or 1.0
    target = (table - mean) / scale
    inside = np.arange(n) / n
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=HIDDEN) * 2 * np.pi * np.geomspace(0.5, 8, HIDDEN)
    first = np.concatenate([slopes, -slopes * rng.random(HIDDEN)])

    def hidden(weights: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.tanh(np.outer(at, weights[:HIDDEN]) + weights[HIDDEN:])

    def fitted(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the output weights, by least squares with the ridge, and the residual of the table."""
        units = np.column_stack([hidden(weights, inside), np.ones(n)])
        behind = np.linalg.solve(units.T @ units + RIDGE * n * np.eye(HIDDEN + 1), units.T @ target)
        return behind, units @ behind - target

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        behind, left = fitted(weights)
        slope = left @ behind[:-1].T * (1 - hidden(weights, inside) ** 2) / n  # the best `behind` has no slope itself
        ridge = RIDGE * float((behind**2).sum())
        return 0.5 * (float((left**2).sum()) / n + ridge), np.concatenate([inside @ slope, slope.sum(axis=0)])

    weights = minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    units = np.column_stack([hidden(weights, x), np.ones(len(x))])
    return mean + scale * units @ fitted(weights)[0]


def _decay(table: np.ndarray, length: int) -> np.ndarray:
    n = len(table)
    i = np.arange(length)
    return table[np.minimum(i, n - 1)] / (1 + np.log1p(np.maximum(0, i - n + 1)))[:, None]


def _rotation(table: np.ndarray, length: int, components: int) -> np.ndarray:
    """Continue the mean and waves of any frequency.

    Frequencies are taken one after the other, each the one that explains most of the rest, then all are fitted together
    by least squares; one is replaced while that explains a hundredth more of the rest.
    """
    n = len(table)
    u, s, _ = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    scores = (u * s)[:, : max(1, min(int(np.sum(s > 1e-9 * s[0])), 2 * components + 1))]

    def left(turns: np.ndarray) -> np.ndarray:
        waves = _waves(turns, np.arange(n), n)
        return np.asarray(scores - waves @ lstsq(waves, scores)[0])

    # Slower than half a turn, or nearer than that to each other, waves fit any bend by large opposite amplitudes.
    grid = np.arange(FINER // 2, FINER * n // 2) / FINER

    def with_one_more(turns: np.ndarray) -> np.ndarray:
        rest = left(turns)
        free = grid[(np.abs(grid[:, None] - turns) >= 1).all(axis=1)]
        if np.abs(rest).max() <= 1e-9 * np.abs(scores).max() or not len(free):
            return turns
        turns = np.sort(np.append(turns, free[_explained(turns, free, rest).argmax()]))
        middle = (turns[1:] + turns[:-1]) / 2
        lowest = np.append(0.5 - 1e-9, middle + 0.25 - 1e-9)
        highest = np.append(middle - 0.25 + 1e-9, n / 2)
        bounds = (np.maximum(turns - 0.25, lowest), np.minimum(turns + 0.25, highest))
        fitted: np.ndarray = least_squares(lambda t: left(t).ravel(), turns, bounds=bounds, xtol=1e-15, ftol=1e-15).x
        return fitted

    turns = np.empty(0)
    for _ in range(components):
        turns = with_one_more(turns)
    rest = float((left(turns) ** 2).sum())
    at = 0
    while at < len(turns) and rest > 1e-18 * float((scores**2).sum()):
        other = with_one_more(np.delete(turns, at))
        less = float((left(other) ** 2).sum())
        if less < 0.99 * rest:
            turns = other
            rest = less
            at = 0
        else:
            at += 1
    weights = lstsq(_waves(turns, np.arange(n), n), table)[0]
    return np.asarray(_waves(turns, np.arange(length), n) @ weights)


def _waves(turns: np.ndarray, at: np.ndarray, n: int) -> np.ndarray:
    """Return ones, cosines and sines (places, 1 + 2 · waves) of waves with the given turns over n positions."""
    angles = 2 * np.pi * np.outer(at, turns) / n
    return np.hstack([np.ones((len(at), 1)), np.cos(angles), np.sin(angles)])


def _explained(turns: np.ndarray, grid: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the sum of squares of `rest` that a wave of each frequency of a grid explains beside the waves
    of `turns`."""
    n = len(rest)
    basis = np.linalg.qr(_waves(turns, np.arange(n), n))[0]
    explained = []
    for some in np.array_split(grid, -(-len(grid) // 512)):
        waves = _waves(some, np.arange(n), n)[:, 1:]
        waves -= basis @ (basis.T @ waves)
        c = waves[:, : len(some)]
        s = waves[:, len(some) :]
        cc = (c * c).sum(0)
        ss = (s * s).sum(0)
        cs = (c * s).sum(0)
        x = c.T @ rest  # (frequencies, columns)
        y = s.T @ rest
        explained.append((ss * (x * x).sum(1) + cc * (y * y).sum(1) - 2 * cs * (x * y).sum(1)) / (cc * ss - cs**2))
    return np.concatenate(explained)


def _stretched(table: np.ndarray, length: int) -> np.ndarray:
    at = np.linspace(0, len(table) - 1, length)
    low = np.minimum(at.astype(int), max(len(table) - 2, 0))
    share = (at - low)[:, None]
    return (1 - share) * table[low] + share * table[np.minimum(low + 1, len(table) - 1)]


def _nearest(table: np.ndarray, length: int) -> np.ndarray:
    return table[np.linspace(0, len(table) - 1, length).round().astype(int)]


def _image(table: np.ndarray, points: np.ndarray, length: int) -> np.ndarray:
    if points.ndim != 2 or len(points) < length or not np.isfinite(points[:length]).all():
        shape = f"shape {points.shape}"
        if not np.isfinite(points).all():
            shape += " with NaN or infinity"
        raise ValueError(f"points has a row of finite numbers for each of {length} positions. Got {shape}.")
    known = np.column_stack([points[:length], np.ones(length)])
    return np.asarray(known @ lstsq(known[: len(table)], table)[0])


_OF_THE_TABLE: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "sinusoidal": _sinusoidal,
    "cyclic": _cyclic,
    "learned": _learned,
    "decay": _decay,
    "linear": _stretched,
    "nearest": _nearest,
}
OF_WAVES = ("fourier", "rotation")
METHODS = ("sinusoidal", "fourier", "cyclic", "learned", "decay", "rotation", "linear", "nearest", "mds")
