"""Spectra of a table of position vectors: principal components, their DCT-II and FFT, pairs that turn, E·Eᵀ,
translation equivariance, outliers.

Sources: DSTG section 4 (1) and appendix B.1 (two components, low DCT bins); LOWDIM sections 3 and 4, figures 1-7 (N50,
Fourier magnitudes, rotations, E·Eᵀ from the first components, the first and last position).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.fft import dct, fft, irfft, rfft
from scipy.signal import find_peaks

from .distances import check_table

PEAK_FACTOR = 3.0  # how far a dominant frequency stands above the lows on both sides of it
ALONE = 3.0  # isolation from which a position is an outlier, in medians
FENCE = 3.0  # and in interquartile ranges above the upper quartile (Tukey's "far out")
# Rotations:
GRID = 16  # frequencies that are tried per whole turn
SLOWEST = 0.25  # turns: below it, a piece of a wave fits any bend
SAME = 0.25  # turns by which the frequencies of a pair may differ, half of what neighbouring half waves differ by
APART = 1 / 12  # periods by which the shift of a pair may differ from a quarter
STRONG = 2 / 3  # share of the pair's motion that one steady turn explains at least
FEWEST_ROWS = 8  # of a table, below which it has no band for its white floor


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Spectrum of an (n, d) table; k is the number of components with variance (the rank of the centred table).

    shares: (k,) share of the variance in each component, descending, sum 1.
    n50_count: components needed for half of the variance; n50: the same in per cent of min(n, d) (LOWDIM Table 1: N50,
        "Tot. PCs").
    scores: (n, k) projections of the centred rows, one column a component.
    dct_power: (k, n) share of each component's DCT-II power in each bin; every row sums to 1. Bin m is m half waves
        over the n positions.
    low4: (k,) share in the first four bins, m = 0..3. Bin 0 counts as one of the four although centring makes it zero,
        so three bins carry power: DSTG says "within the first four bins" and no more, and this reading cannot overstate
        the share.
    magnitudes: (k, n // 2 + 1) Fourier magnitude of each component's scores (LOWDIM figure 6; summed, figure 5). Bin m
        is m whole turns over the n positions, which is the frequency m / n per position (0.5 is the Nyquist limit).
    revolutions: (k,) whole turns over the n positions at which the component's Fourier magnitude is largest, from 1.
    equivariance: `equivariance` of the table, in [0, 1].
    """

    shares: np.ndarray
    n50: float
    n50_count: int
    scores: np.ndarray
    dct_power: np.ndarray
    low4: np.ndarray
    magnitudes: np.ndarray
    revolutions: np.ndarray
    equivariance: float


def spectrum(table: np.ndarray) -> Spectrum:
    """Compute the principal components of a table (n, d) of position vectors and the frequencies at which they vary.

    PCA of the rows of the table (n, d), row i the vector of position i (thin SVD of the centred table). The sign of a
    component is chosen so that its largest DCT coefficient is positive: a half wave starts high. Scaling the table
    changes nothing but scores and magnitudes; rotating its columns changes nothing, and adding one vector to all rows
    nothing but `equivariance`. Components of equal share are defined up to a rotation among them.

    Raises:
        ValueError: not two-dimensional, not real, fewer than two rows, no columns, not finite, or all rows equal.
    """
    table, scale = _scaled(table)
    n, d = table.shape
    u, s, _ = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    rank = int(np.sum(s > np.finfo(float).eps * max(n, d)))  # below: what rounding of the table leaves after centring
    if rank == 0:
        raise _all_equal(n)
    scores = u[:, :rank] * s[:rank]
    waves = dct(scores, type=2, norm="ortho", axis=0)
    scores *= np.sign(waves[np.abs(waves).argmax(axis=0), np.arange(rank)])
    shares = s[:rank] ** 2 / np.sum(s[:rank] ** 2)
    dct_power = (waves**2).T
    dct_power = dct_power / dct_power.sum(axis=1, keepdims=True)
    magnitudes = np.abs(rfft(scores, axis=0)).T
    needed = half_of_variance(shares)
    return Spectrum(
        shares=shares,
        n50=100.0 * needed / min(n, d),
        n50_count=needed,
        scores=scores * scale,
        dct_power=dct_power,
        low4=dct_power[:, :4].sum(axis=1),
        magnitudes=magnitudes * scale,
        revolutions=magnitudes[:, 1:].argmax(axis=1) + 1,
        equivariance=_equivariance(_narrow(table)),
    )


def white_floor(table: np.ndarray) -> float:
    """Compute the share of the variance of a table (n, d) that its white floor holds, in [0, 1]; 1 for a table of
    noise.

    The floor is a mean DCT-II power of all columns together, as if every bin but the constant had as much: white noise,
    and the random walk of a weight whose gradient is noise, have the same power everywhere. The mean is taken over bins
    n/4 to n/2 - 1 and over bins n/2 to 3n/4 - 1, and the smaller counts: a wave in one of them is not taken for noise.
    It is divided by what the smaller of two such means of noise expects, 1 - √(8 / πnd). Slow waves and the alternation
    of neighbours lie outside both and stand above the floor. Of noise of 128 × 8 entries the share scatters by 0.06.
    An even table, which does not vary, has no floor above which anything stands: 1.

    Raises:
        ValueError: fewer than 8 rows, or as `spectrum`, but for equal rows.
    """
    table, _ = _scaled(table)
    n, columns = table.shape
    if n < FEWEST_ROWS:
        raise ValueError(f"A white floor needs {FEWEST_ROWS} positions; got {n}. Give a longer table.")
    power = np.sum(dct(table - table.mean(axis=0), type=2, norm="ortho", axis=0) ** 2, axis=1)
    if power.sum() <= (np.finfo(float).eps * max(table.shape)) ** 2:
        return 1.0
    smaller = min(power[n // 4 : n // 2].mean(), power[n // 2 : 3 * n // 4].mean())
    floor = smaller / (1 - (8 / (np.pi * n * columns)) ** 0.5)
    return float(min(1.0, floor * (n - 1) / power.sum()))


def component_shares(table: np.ndarray) -> np.ndarray:
    """Compute the share of variance of each component, (k,), as `spectrum(table).shares`: enough for a table of words
    (LOWDIM Table 1b).

    From the eigenvalues of the smaller Gram matrix, so that 30,000 rows take a second. Rounding leaves about 1e-16 in
    each share, and shares below 1e-15 are left out. Raises ValueError as `spectrum`.
    """
    table, _ = _scaled(table)
    centred = table - table.mean(axis=0)
    gram = centred.T @ centred if len(table) > table.shape[1] else centred @ centred.T
    variances = np.linalg.eigvalsh(gram)[::-1]
    if variances[0] <= (np.finfo(float).eps * max(table.shape)) ** 2:
        raise _all_equal(len(table))
    variances = variances[variances > 1e-15 * variances.sum()]
    return variances / variances.sum()


def half_of_variance(shares: np.ndarray) -> int:
    """Return N50 (LOWDIM section 3): the number of first components that hold half of the variance, up to rounding.

    shares: (components,) of the variance, descending.
    """
    return int(np.argmax(np.cumsum(shares) >= 0.5 - 1e-12)) + 1


def approximation(table: np.ndarray, components: int) -> np.ndarray:
    """Approximate a table (n, d) by its mean row and its first principal components; all of them give the
    table back.

    Raises ValueError as `spectrum`, or for a number of components below 0.
    """
    if components < 0:
        raise ValueError(f"A table is approximated by 0 or more components. Got {components}.")
    table, scale = _scaled(table)
    mean = table.mean(axis=0)
    u, s, vt = np.linalg.svd(table - mean, full_matrices=False)
    return scale * (mean + (u[:, :components] * s[:components]) @ vt[:components])


def inner_products(table: np.ndarray, components: int | None = None) -> np.ndarray:
    """Compute the inner products E·Eᵀ (n, n) of all pairs of position vectors, not centred; with `components`, of the
    approximation (LOWDIM figure 3).

    Raises:
        ValueError: no table of two dimensions, NaN or infinity in it, or components below 0.
    """
    used = check_table(table) if components is None else approximation(table, components)
    return used @ used.T


def equivariance(table: np.ndarray) -> float:
    """Compute translation equivariance of a table (n, d): the share of variance of the entries of E·Eᵀ that its nearest
    Toeplitz matrix explains.

    In [0, 1]: 1 if inner products depend on j - i alone, about d / (d + n) for a table of independent normal values.
    The table is not centred (LOWDIM), so a mean row that is much longer than the variation adds products to every pair.
    Compare the value with `equivariance_null`. Equal rows give 1. Raises ValueError as `spectrum`, but for equal rows.
    """
    return _equivariance(_narrow(_scaled(table)[0]))


def equivariance_null(table: np.ndarray, shuffles: int = 99, seed: int = 0) -> np.ndarray:
    """Compute the equivariance of the same rows in random orders, (shuffles,), ascending: its values
    without any order.

    It is not 0: lag 0, the diagonal of squared lengths, stays on the diagonal in every order. Raises ValueError as
    `equivariance`, or without shuffles.
    """
    if shuffles < 1:
        raise ValueError(f"The null of shuffled positions needs at least 1 shuffle. Got {shuffles}.")
    narrow = _narrow(_scaled(table)[0])
    draw = np.random.default_rng(seed)
    return np.sort([_equivariance(narrow[draw.permutation(len(narrow))]) for _ in range(shuffles)])


def equivariance_of_first(table: np.ndarray, components: Sequence[int]) -> np.ndarray:
    """Compute the equivariance of the approximation of a table (n, d) by each of the given numbers of first components,
    (numbers,) (LOWDIM figure 3). Raises ValueError as `equivariance`."""
    table = _narrow(_scaled(table)[0])
    mean = table.mean(axis=0)
    u, s, vt = np.linalg.svd(table - mean, full_matrices=False)
    return np.array([_equivariance(mean + (u[:, :k] * s[:k]) @ vt[:k]) for k in components])


def isolation(table: np.ndarray) -> np.ndarray:
    """Compute the distance of each row of a table (n, d) to the nearest other row, in medians of these distances, (n,);
    all 0 where the median is 0.

    Along a smooth curve it is near 1 everywhere. A position that training left alone, such as the first ([CLS]) and
    last ([SEP]) of LOWDIM figure 4, has no near neighbour, and its neighbours still have each other, so that it alone
    stands out. Raises ValueError as `spectrum`, but for equal rows.
    """
    table, _ = _scaled(table)
    centred = table - table.mean(axis=0)
    lengths = np.sum(centred**2, axis=1)
    nearest = np.empty(len(table))
    for start in range(0, len(table), 1024):  # blocks of rows need less memory than an (n, n) matrix
        rows = np.arange(start, min(start + 1024, len(table)))
        squares = lengths[rows, None] + lengths - 2 * centred[rows] @ centred.T
        squares[rows - start, rows] = np.inf
        nearest[rows] = np.sqrt(np.maximum(squares.min(axis=1), 0.0))
    middle = np.median(nearest)
    return nearest / middle if middle > 0 else np.zeros(len(table))


def outliers(table: np.ndarray) -> np.ndarray:
    """Return the positions (k,) of a table (n, d) that stand alone, ascending: isolation above `ALONE`, and above the
    upper quartile by `FENCE` interquartile ranges.

    The first and last position of a model are such, where its training always puts [CLS] and [SEP] there (LOWDIM
    section 4).

    Raises:
        ValueError: no table of two dimensions, or NaN or infinity in it.
    """
    alone = isolation(table)
    low, high = np.quantile(alone, [0.25, 0.75])
    return np.flatnonzero((alone > ALONE) & (alone > high + FENCE * (high - low)))


def dominant_turns(magnitudes: np.ndarray) -> np.ndarray:
    """Return the frequencies, in whole turns over the table, at which the summed Fourier magnitudes (k, bins) of
    `Spectrum` peak: (peaks,) int64, perhaps none.

    The highest peak comes first (LOWDIM figure 5). A peak stands above the lows on both of its sides by `PEAK_FACTOR`.
    The last bin has one side only and is never a peak.
    """
    total = magnitudes.sum(axis=0)
    floor = max(float(total.max()), np.finfo(float).tiny) * 1e-12
    # Bin 0 is zero by centring, a low before the first bin, so that one turn can be a peak.
    logs = np.log10(np.concatenate([[floor], np.maximum(total[1:], floor)]))
    peaks, _ = find_peaks(logs, prominence=np.log10(PEAK_FACTOR))
    return peaks[np.argsort(-logs[peaks], kind="stable")]


@dataclass(frozen=True)
class Rotation:
    """Pair of components (counted from 0) whose scores draw a circle after scaling each to the same length.

    turns: whole turns and parts of them over the table. frequencies: of the waves that fit each component best,
        in turns.
    shift: phase between the two in periods, in [0, 0.5]; a rotation has 0.25.
    strength: share of the pair's motion that one turn at steady speed explains, in [0, 1].
    share: share of the table's variance in the pair.
    """

    first: int
    second: int
    turns: float
    frequencies: tuple[float, float]
    shift: float
    strength: float
    share: float


def rotations(s: Spectrum, components: int = 32) -> list[Rotation]:
    """Return disjoint pairs among the first `components` that form a rotation, in the order of their share of the
    variance.

    A rotation has equal frequencies, a quarter of a period apart (LOWDIM section 4, figure 4).

    A pair qualifies if its frequencies differ by at most `SAME` turns, its shift from a quarter period by at most
    `APART`, and one steady turn explains at least `STRONG` of its motion. Of pairs that share a component, the stronger
    one is kept. Two neighbouring half waves, cos πmt and cos π(m + 1)t, also draw an arc, and the principal components
    of any smooth table are such half waves; but their frequencies lie half a turn apart. A table of fewer than 8
    positions has too few points for a frequency and gives no pairs.
    """
    if len(s.scores) < 8:
        return []
    waves = Waves(s.scores[:, :components])
    pairs = []
    for i, j in combinations(range(len(waves.frequency)), 2):
        frequencies = float(waves.frequency[i]), float(waves.frequency[j])
        if abs(frequencies[0] - frequencies[1]) <= SAME:
            strength = waves.circle(i, j)
            best = int(strength.argmax())
            shift = waves.shift(i, j, best)
            if strength[best] >= STRONG and abs(shift - 0.25) <= APART:
                share = float(s.shares[i] + s.shares[j])
                turns = float(waves.turns[best])
                pairs.append(Rotation(i, j, turns, frequencies, shift, float(strength[best]), share))
    disjoint: list[Rotation] = []
    for pair in sorted(pairs, key=lambda r: -r.strength):
        if not {pair.first, pair.second} & {c for r in disjoint for c in (r.first, r.second)}:
            disjoint.append(pair)
    return sorted(disjoint, key=lambda r: -r.share)


class Waves:
    """Waves (any frequency and phase, with a constant) that fit each column of `scores` (n, k) by least squares.

    frequency: (k,) in turns over the n positions, a multiple of 1 / `GRID`: unlike a Fourier bin it need not be whole,
        so that a half wave has frequency 0.5 at any phase.
    fit: (k,) share of the variance that the wave explains.
    turns: (m,) the frequencies that are tried.

    The columns are centred and of length 1. As a wave is fitted together with a constant, its cosine and sine are
    centred too; the 2 × 2 matrix of their products follows from the transform of a constant at f and 2f.
    """

    def __init__(self, scores: np.ndarray) -> None:
        n = len(scores)
        centred = scores - scores.mean(axis=0)
        lengths = np.linalg.norm(centred, axis=0)
        padded = GRID * n
        bins = np.arange(int(np.ceil(SLOWEST * GRID)), padded // 2)
        self.turns = bins / GRID
        self.x = rfft(centred / np.where(lengths > 0, lengths, 1.0), padded, axis=0)[bins].T  # (k, m)
        ones = fft(np.ones(n), padded)
        once = ones[bins]
        twice = ones[2 * bins % padded]
        self.circled = n - np.abs(once) ** 2 / n
        cc = (n + twice.real) / 2 - once.real**2 / n
        ss = (n - twice.real) / 2 - once.imag**2 / n
        cs = -twice.imag / 2 + once.real * once.imag / n
        c = self.x.real
        s = -self.x.imag
        determinant = cc * ss - cs**2
        self.cosine = (ss * c - cs * s) / determinant
        self.sine = (cc * s - cs * c) / determinant
        fits = self.cosine * c + self.sine * s
        self.frequency = self.turns[fits.argmax(axis=1)]
        self.fit = fits.max(axis=1)

    def circle(self, i: int, j: int) -> np.ndarray:
        """Compute the share of the motion of x + iy that α·exp(±iωt) + γ explains, at each frequency, in the better
        direction: (m,), in [0, 1].

        i, j: columns x and y.
        """
        x = self.x[i]
        y = self.x[j]
        return (np.abs(x) ** 2 + np.abs(y) ** 2 + 2 * np.abs((x * y.conj()).imag)) / (2 * self.circled)

    def shift(self, i: int, j: int, at: int) -> float:
        """Compute the phase between the fitted waves of two columns at one frequency, in periods, in [0, 0.5];
        `at` is the index of the frequency in `turns`."""
        first = complex(self.cosine[i, at], -self.sine[i, at])
        phase = np.angle(first * complex(self.cosine[j, at], self.sine[j, at]))
        return float(abs(phase) / (2 * np.pi))


def _scaled(table: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the checked table with its largest entry at 1, so that squares neither vanish nor overflow, and the factor
    back."""
    table = check_table(table)
    scale = float(np.abs(table).max()) or 1.0
    return table / scale, scale


def _all_equal(n: int) -> ValueError:
    return ValueError(
        f"All {n} rows of the table are equal, so it has no components. Give the table of a model with learned "
        "positions."
    )


def _narrow(table: np.ndarray) -> np.ndarray:
    """Return a table of the same inner products with at most n columns: the transposed triangle of a QR
    factorisation."""
    return np.asarray(np.linalg.qr(table.T, mode="r")).T if table.shape[1] > len(table) else table


def _equivariance(table: np.ndarray) -> float:
    """Compute R² of the nearest Toeplitz matrix (the mean of every diagonal) to P = table · tableᵀ, without the (n, n)
    matrix.

    Sum of P² over all entries is the same sum for tableᵀ · table, and the sum over diagonal lag is sum_i table_i ·
    table_{i+lag}, the autocorrelation of the columns.
    """
    n = len(table)
    squares = np.sum((table.T @ table) ** 2)
    constant = np.sum(table.sum(axis=0) ** 2) ** 2 / n**2
    diagonals = irfft(np.sum(np.abs(rfft(table, 2 * n, axis=0)) ** 2, axis=1), 2 * n)[:n]
    times = np.where(np.arange(n) == 0, 1.0, 2.0)
    toeplitz = np.sum(times * diagonals**2 / (n - np.arange(n)))
    if squares - constant <= 1e-14 * squares:
        return 1.0
    return float(np.clip((toeplitz - constant) / (squares - constant), 0.0, 1.0))
