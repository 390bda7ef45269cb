"""Spectra of a table of position vectors: principal components, their DCT-II and FFT, translation equivariance.

Sources: DSTG section 4 (1) and appendix B.1 (two components, low DCT bins); LOWDIM sections 3 and 4 (N50, revolutions, E·Eᵀ).
"""

from dataclasses import dataclass

import numpy as np
from scipy.fft import dct, rfft

LOW_BINS = 4


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Spectrum of an (n, d) table; k is the number of components with variance (the rank of the centred table).

    shares: (k,) share of the variance in each component, descending, sum 1.
    n50: components needed for half of the variance, in per cent of min(n, d) (LOWDIM Table 1: N50 over "Tot. PCs").
    scores: (n, k) projections of the centred rows, one column a component.
    dct_power: (k, n) share of each component's DCT-II power in each bin; every row sums to 1. Bin m is m half waves over the n positions.
    low4: (k,) share in the first four bins, m = 0..3. Bin 0 counts as one of the four although centring makes it zero, so three
        bins carry power: DSTG says "within the first four bins" and no more, and this reading cannot overstate the share.
    revolutions: (k,) whole turns over the n positions at which the component's Fourier magnitude is largest, from 1.
    equivariance: share of the variance of the entries of E·Eᵀ (not centred, as LOWDIM) that its nearest Toeplitz matrix explains; 1 if
        inner products depend on j - i alone, about d / (d + n) for a table of independent normal values.
    """

    shares: np.ndarray
    n50: float
    scores: np.ndarray
    dct_power: np.ndarray
    low4: np.ndarray
    revolutions: np.ndarray
    equivariance: float


def spectrum(table: np.ndarray) -> Spectrum:
    """Principal components of a table of position vectors and the frequencies at which they vary.

    PCA of the rows (thin SVD of the centred table). The sign of a component is chosen so that its largest DCT coefficient is
    positive: a half wave starts high. Scaling the table changes nothing but the scores; rotating its columns changes nothing, and
    adding one vector to all rows nothing but `equivariance`. Components of equal share are defined up to a rotation among them.

    Args:
        table: (n, d) real numbers, n at least 2, row i the vector of position i.

    Raises:
        ValueError: not two-dimensional, not real, fewer than two rows, no columns, not finite, or all rows equal.
    """
    table = _checked(table)
    scale = np.abs(table).max()
    table = table / scale if scale > 0 else table
    n, d = table.shape
    centred = table - table.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    # Below this lies what rounding of the table itself leaves after centring.
    rank = int(np.sum(s > np.finfo(float).eps * max(n, d)))
    if rank == 0:
        raise ValueError(f"All {n} rows of the table are equal, so it has no components. Give the table of a model with learned positions.")
    scores = u[:, :rank] * s[:rank]
    waves = dct(scores, type=2, norm="ortho", axis=0)
    largest = waves[np.abs(waves).argmax(axis=0), np.arange(rank)]
    scores *= np.sign(largest)
    shares = s[:rank] ** 2 / np.sum(s[:rank] ** 2)
    power = (waves**2).T
    dct_power = power / power.sum(axis=1, keepdims=True)
    # Half of the variance up to rounding: two equal components reach it with one.
    needed = int(np.argmax(np.cumsum(shares) >= 0.5 - 1e-12)) + 1
    return Spectrum(
        shares=shares,
        n50=100.0 * needed / min(n, d),
        scores=scores * scale,
        dct_power=dct_power,
        low4=dct_power[:, :LOW_BINS].sum(axis=1),
        revolutions=np.abs(rfft(scores, axis=0))[1:].argmax(axis=0) + 1,
        equivariance=_equivariance(table),
    )


def _checked(table: np.ndarray) -> np.ndarray:
    table = np.asarray(table)
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"A table has two dimensions (positions, width). Got shape {table.shape}.")
    if table.dtype.kind not in "fiu":
        raise ValueError(f"A table holds real numbers. Got dtype {table.dtype}.")
    if table.shape[0] < 2:
        raise ValueError(f"A spectrum needs at least 2 positions. Got {table.shape[0]}.")
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The table has NaN or infinite values in {bad.sum()} rows, first row {bad.argmax()}. Use a checkpoint from before they came."
        )
    return table.astype(np.float64)


def _equivariance(table: np.ndarray) -> float:
    """R² of the nearest Toeplitz matrix (the mean of every diagonal) to P = table · tableᵀ, without building the (n, n) matrix.

    Sum of P² over all entries is the same sum for tableᵀ · table, and the sum over diagonal lag is sum_i table_i · table_{i+lag}.
    """
    n = len(table)
    squares = np.sum((table.T @ table) ** 2)
    constant = np.sum(table.sum(axis=0) ** 2) ** 2 / n**2
    diagonals = np.array([np.vdot(table[: n - lag], table[lag:]) for lag in range(n)])
    times = np.where(np.arange(n) == 0, 1.0, 2.0)
    toeplitz = np.sum(times * diagonals**2 / (n - np.arange(n)))
    return float(np.clip((toeplitz - constant) / (squares - constant), 0.0, 1.0))
