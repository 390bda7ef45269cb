"""Spectra of a table of position vectors: principal components, their DCT-II and FFT, E·Eᵀ, translation equivariance,
outliers.

Sources: DSTG section 4 (1) and appendix B.1 (two components, low DCT bins); LOWDIM sections 3 and 4, figures 1-7 (N50,
Fourier magnitudes, E·Eᵀ from the first components, the first and last position). Pairs of components that turn:
`rotations.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.fft import dct, irfft, rfft
from scipy.signal import find_peaks

from .distances import check_table

LOW_BINS = 4
PEAK_FACTOR = 3.0  # how far a dominant frequency stands above the lows on both sides of it
ALONE = 3.0  # isolation from which a position is an outlier, in medians
FENCE = 3.0  # and in interquartile ranges above the upper quartile (Tukey's "far out")


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
    magnitudes: (k, n // 2 + 1) Fourier magnitude of each component's scores (LOWDIM figure 6). Bin m is m whole turns
        over the n positions, which is the frequency m / n per position (0.5 is the Nyquist limit). Their sum over
        components is LOWDIM figure 5.
    revolutions: (k,) whole turns over the n positions at which the component's Fourier magnitude is largest, from 1.
    equivariance: as `equivariance` of the table.
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
    """Principal components of a table of position vectors and the frequencies at which they vary.

    PCA of the rows (thin SVD of the centred table). The sign of a component is chosen so that its largest DCT
    coefficient is positive: a half wave starts high. Scaling the table changes nothing but scores and magnitudes;
    rotating its columns changes nothing, and adding one vector to all rows nothing but `equivariance`. Components of
    equal share are defined up to a rotation among them.

    Args:
        table: (n, d) real numbers, n at least 2, row i the vector of position i.

    Raises:
        ValueError: not two-dimensional, not real, fewer than two rows, no columns, not finite, or all rows equal.
    """
    table, scale = _scaled(table)
    n, d = table.shape
    u, s, _ = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    # Below this lies what rounding of the table itself leaves after centring.
    rank = int(np.sum(s > np.finfo(float).eps * max(n, d)))
    if rank == 0:
        raise _all_equal(n)
    scores = u[:, :rank] * s[:rank]
    waves = dct(scores, type=2, norm="ortho", axis=0)
    largest = waves[np.abs(waves).argmax(axis=0), np.arange(rank)]
    scores *= np.sign(largest)
    shares = s[:rank] ** 2 / np.sum(s[:rank] ** 2)
    power = (waves**2).T
    dct_power = power / power.sum(axis=1, keepdims=True)
    magnitudes = np.abs(rfft(scores, axis=0)).T
    needed = half_of_variance(shares)
    return Spectrum(
        shares=shares,
        n50=100.0 * needed / min(n, d),
        n50_count=needed,
        scores=scores * scale,
        dct_power=dct_power,
        low4=dct_power[:, :LOW_BINS].sum(axis=1),
        magnitudes=magnitudes * scale,
        revolutions=magnitudes[:, 1:].argmax(axis=1) + 1,
        equivariance=_equivariance(_narrow(table)),
    )


def component_shares(table: np.ndarray) -> np.ndarray:
    """Share of the variance in each principal component alone, (k,), descending, sum 1: what a table of words needs
    (LOWDIM Table 1b).

    The same numbers as `spectrum(table).shares`, from the eigenvalues of the smaller Gram matrix, so that 30,000 rows
    take a second. Rounding leaves about 1e-16 in each share, and shares below 1e-15 are left out.

    Raises:
        ValueError: as `spectrum`.
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
    """N50 (LOWDIM section 3): how many of the first components hold half of the variance, up to rounding."""
    return int(np.argmax(np.cumsum(shares) >= 0.5 - 1e-12)) + 1


def approximation(table: np.ndarray, components: int) -> np.ndarray:
    """The table (n, d) from its mean row and its first principal components alone; all of them give the table back.

    Raises:
        ValueError: as `spectrum`, or a number of components below 0.
    """
    if components < 0:
        raise ValueError(f"A table is approximated by 0 or more components. Got {components}.")
    table, scale = _scaled(table)
    mean = table.mean(axis=0)
    u, s, vt = np.linalg.svd(table - mean, full_matrices=False)
    return scale * (mean + (u[:, :components] * s[:components]) @ vt[:components])


def inner_products(table: np.ndarray, components: int | None = None) -> np.ndarray:
    """E·Eᵀ (n, n), the inner products of all pairs of position vectors; with `components`, of the approximation (LOWDIM
    figure 3).

    The table is not centred, as in LOWDIM; its approximation keeps the mean row.
    """
    used = check_table(table) if components is None else approximation(table, components)
    return used @ used.T


def equivariance(table: np.ndarray) -> float:
    """Translation equivariance: share of the variance of the entries of E·Eᵀ that its nearest Toeplitz matrix explains.

    In [0, 1]: 1 if inner products depend on j - i alone, about d / (d + n) for a table of independent normal values.
    The table is not centred (LOWDIM), so a mean row that is much longer than what varies enters as products that every
    row has a part in. What the value means, `equivariance_null` says.

    Raises:
        ValueError: as `spectrum`, but equal rows are allowed (1: all inner products are equal).
    """
    return _equivariance(_narrow(_scaled(table)[0]))


def equivariance_null(table: np.ndarray, shuffles: int = 99, seed: int = 0) -> np.ndarray:
    """Equivariance of the same rows in random orders, (shuffles,), ascending: what is there without any order.

    It is not 0: lag 0, the diagonal of squared lengths, stays on the diagonal in every order.

    Raises:
        ValueError: as `equivariance`, or no shuffles.
    """
    if shuffles < 1:
        raise ValueError(f"The null of shuffled positions needs at least 1 shuffle. Got {shuffles}.")
    narrow = _narrow(_scaled(table)[0])
    draw = np.random.default_rng(seed)
    return np.sort([_equivariance(narrow[draw.permutation(len(narrow))]) for _ in range(shuffles)])


def equivariance_of_first(table: np.ndarray, components: Sequence[int]) -> np.ndarray:
    """Equivariance of the approximation by each of the given numbers of first components (LOWDIM figure 3, as numbers).

    Raises:
        ValueError: as `equivariance`.
    """
    table = _narrow(_scaled(table)[0])
    mean = table.mean(axis=0)
    u, s, vt = np.linalg.svd(table - mean, full_matrices=False)
    return np.array([_equivariance(mean + (u[:, :k] * s[:k]) @ vt[:k]) for k in components])


def isolation(table: np.ndarray) -> np.ndarray:
    """Distance of each row to the nearest other row, in medians of these distances, (n,); all 0 where the median is 0.

    Along a smooth curve it is near 1 everywhere. A position that training left alone, such as the first ([CLS]) and
    last ([SEP]) of LOWDIM figure 4, has no near neighbour, and its neighbours still have each other, so that it alone
    stands out.

    Raises:
        ValueError: as `spectrum`, but equal rows are allowed.
    """
    table, _ = _scaled(table)
    centred = table - table.mean(axis=0)
    lengths = np.sum(centred**2, axis=1)
    nearest = np.empty(len(table))
    for start in range(0, len(table), 1024):  # blocks of rows keep the memory below that of an (n, n) matrix
        rows = np.arange(start, min(start + 1024, len(table)))
        squares = lengths[rows, None] + lengths - 2 * centred[rows] @ centred.T
        squares[rows - start, rows] = np.inf
        nearest[rows] = np.sqrt(np.maximum(squares.min(axis=1), 0.0))
    middle = np.median(nearest)
    return nearest / middle if middle > 0 else np.zeros(len(table))


def outliers(table: np.ndarray) -> np.ndarray:
    """Positions that stand alone, ascending: isolation above `ALONE` and above the upper quartile by `FENCE`
    interquartile ranges.

    The first and last position of a model whose training always puts [CLS] and [SEP] there are found this way (LOWDIM
    section 4).
    """
    alone = isolation(table)
    low, high = np.quantile(alone, [0.25, 0.75])
    return np.flatnonzero((alone > ALONE) & (alone > high + FENCE * (high - low)))


def dominant_turns(magnitudes: np.ndarray) -> np.ndarray:
    """The frequencies, in whole turns over the table, at which the summed Fourier magnitudes peak, highest peak first
    (LOWDIM figure 5).

    A peak stands above the lows on both of its sides by `PEAK_FACTOR`.

    Args:
        magnitudes: (k, bins) as in `Spectrum`, of all components.
    """
    total = magnitudes.sum(axis=0)
    floor = max(float(total.max()), np.finfo(float).tiny) * 1e-12
    # Bin 0 is zero by centring, a low before the first bin, so that one turn can be a peak.
    logs = np.log10(np.concatenate([[floor], np.maximum(total[1:], floor)]))
    peaks, _ = find_peaks(logs, prominence=np.log10(PEAK_FACTOR))
    return peaks[np.argsort(-logs[peaks], kind="stable")]


def _scaled(table: np.ndarray) -> tuple[np.ndarray, float]:
    """The checked table with its largest entry at 1, and the factor back, so that squares neither vanish nor
    overflow."""
    table = check_table(table)
    scale = float(np.abs(table).max()) or 1.0
    return table / scale, scale


def _all_equal(n: int) -> ValueError:
    return ValueError(
        f"All {n} rows of the table are equal, so it has no components. Give the table of a model with learned "
        "positions."
    )


def _narrow(table: np.ndarray) -> np.ndarray:
    """A table of the same inner products with at most n columns: the transposed triangle of a QR factorisation."""
    return np.asarray(np.linalg.qr(table.T, mode="r")).T if table.shape[1] > len(table) else table


def _equivariance(table: np.ndarray) -> float:
    """R² of the nearest Toeplitz matrix (the mean of every diagonal) to P = table · tableᵀ, without building the (n, n)
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
