"""Pairs of principal components that turn together: equal frequency, a quarter of a period apart (LOWDIM section 4,
figure 4).

Two neighbouring half waves, cos πmt and cos π(m + 1)t, also draw an arc, and the principal components of any smooth
table are such half waves. Their frequencies lie half a turn apart, and by that they are told from a rotation.
"""

from dataclasses import dataclass

import numpy as np
from scipy.fft import fft, rfft

from .spectra import Spectrum

MOST = 32  # components in which pairs are sought
GRID = 16  # frequencies that are tried per whole turn
SLOWEST = 0.25  # turns: below it, a piece of a wave fits any bend
SAME = 0.25  # turns by which the frequencies of a pair may differ, half of what neighbouring half waves differ by
APART = 1 / 12  # periods by which the shift of a pair may differ from a quarter
STRONG = 2 / 3  # share of the pair's motion that one steady turn explains at least


@dataclass(frozen=True)
class Rotation:
    """A pair of components (counted from 0) whose scores draw a circle, once each is brought to the same length.

    turns: whole turns and parts of them over the table. frequencies: those of the waves that fit each component best,
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


@dataclass(frozen=True, eq=False)
class Waves:
    """The one wave (any frequency and phase, with a constant) that fits each of k series best, by least squares.

    frequency: (k,) in turns over the n positions, a multiple of 1 / `GRID`; fit: (k,) share of the variance it
    explains.
    """

    frequency: np.ndarray
    fit: np.ndarray


def fitted_waves(scores: np.ndarray) -> Waves:
    """The wave that fits each column of `scores` (n, k) best; unlike a Fourier bin, its frequency need not be whole.

    A half wave has frequency 0.5 whatever its phase, where a Fourier transform would put it between bins and pull it
    towards 0.
    """
    series = _Series(scores)
    fits = np.array([series.fit(i) for i in range(series.k)])
    return Waves(series.turns[fits.argmax(axis=1)], fits.max(axis=1))


def rotations(s: Spectrum, components: int = MOST) -> list[Rotation]:
    """Disjoint pairs among the first `components` that form a rotation, in the order of their share of the variance.

    A pair qualifies if its frequencies differ by at most `SAME` turns, its shift from a quarter period by at most
    `APART`, and one steady turn explains at least `STRONG` of its motion. Of pairs that share a component, the stronger
    one is kept. A table of fewer than 8 positions has too few points for a frequency and gives no pairs.
    """
    n = len(s.scores)
    if n < 8:
        return []
    series = _Series(s.scores[:, :components])
    own = np.array([series.fit(i).argmax() for i in range(series.k)])
    found = []
    for i in range(series.k):
        for j in range(i + 1, series.k):
            frequencies = (float(series.turns[own[i]]), float(series.turns[own[j]]))
            if abs(frequencies[0] - frequencies[1]) > SAME:
                continue
            strength = series.circle(i, j)
            best = int(strength.argmax())
            shift = series.shift(i, j, best)
            if strength[best] >= STRONG and abs(shift - 0.25) <= APART:
                share = float(s.shares[i] + s.shares[j])
                found.append(
                    Rotation(i, j, float(series.turns[best]), frequencies, shift, float(strength[best]), share)
                )
    kept: list[Rotation] = []
    for pair in sorted(found, key=lambda r: -r.strength):
        if not {pair.first, pair.second} & {c for r in kept for c in (r.first, r.second)}:
            kept.append(pair)
    return sorted(kept, key=lambda r: -r.share)


class _Series:
    """Centred columns of length 1, their transforms at every frequency that is tried, and the waves' own products.

    The wave at frequency f is fitted together with a constant, so its cosine and sine are centred too; the 2 × 2 matrix
    of their products follows from the transform of a constant at f and 2f.
    """

    def __init__(self, scores: np.ndarray) -> None:
        n, self.k = scores.shape
        centred = scores - scores.mean(axis=0)
        lengths = np.linalg.norm(centred, axis=0)
        padded = GRID * n
        low = int(np.ceil(SLOWEST * GRID))
        bins = np.arange(low, padded // 2)
        self.turns = bins / GRID
        self.x = rfft(centred / np.where(lengths > 0, lengths, 1.0), padded, axis=0)[bins].T  # (k, frequencies)
        ones = fft(np.ones(n), padded)
        once, twice = ones[bins], ones[2 * bins % padded]
        self.cc = (n + twice.real) / 2 - once.real**2 / n
        self.ss = (n - twice.real) / 2 - once.imag**2 / n
        self.cs = -twice.imag / 2 + once.real * once.imag / n
        self.circled = n - np.abs(once) ** 2 / n

    def wave(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights of cosine and sine of the best fit at each frequency."""
        c, s = self.x[i].real, -self.x[i].imag
        determinant = self.cc * self.ss - self.cs**2
        return (self.ss * c - self.cs * s) / determinant, (self.cc * s - self.cs * c) / determinant

    def fit(self, i: int) -> np.ndarray:
        """Share of the variance of series i that the best wave explains, at each frequency."""
        a, b = self.wave(i)
        return a * self.x[i].real - b * self.x[i].imag

    def circle(self, i: int, j: int) -> np.ndarray:
        """Share of the motion of x + iy that α·exp(±iωt) + γ explains, at each frequency, in the better direction."""
        x, y = self.x[i], self.x[j]
        return (np.abs(x) ** 2 + np.abs(y) ** 2 + 2 * np.abs((x * y.conj()).imag)) / (2 * self.circled)

    def shift(self, i: int, j: int, at: int) -> float:
        """Phase between the fitted waves of two series at one frequency, in periods, in [0, 0.5]."""
        (a, b), (c, d) = self.wave(i), self.wave(j)
        phase = np.angle(complex(a[at], -b[at]) * complex(c[at], d[at]))
        return float(abs(phase) / (2 * np.pi))
