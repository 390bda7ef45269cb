"""Values with what their intervals come from: arrays over seeds and splits, and half-widths that single records carry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

from whatwhere.intervals import seed_interval, split_interval

Other = Union["Value", float]


@dataclass(frozen=True, eq=False)
class Value:
    """A quantity for every training seed (one row where no training is involved).

    at: (seeds, splits); arithmetic is paired by seed and by split, as all models are probed on the same documents in the same splits.
    below, above: (seeds,) half-widths of the 95 % interval that single records carry, over documents; 0 where they carry none. A sum
    or a difference combines them in quadrature, which is right for independent errors and too wide for two values of the same
    documents: a verdict errs towards "not separable".
    """

    at: np.ndarray
    below: np.ndarray
    above: np.ndarray

    @classmethod
    def of(cls, values: Sequence[Sequence[float]] | np.ndarray) -> "Value":
        """(seeds, splits) without half-widths."""
        at = np.asarray(values, dtype=float)
        return cls(at, np.zeros(len(at)), np.zeros(len(at)))

    def __add__(self, other: Other) -> "Value":
        if not isinstance(other, Value):
            return Value(self.at + other, self.below, self.above)
        return Value(self.at + other.at, np.hypot(self.below, other.below), np.hypot(self.above, other.above))

    def __neg__(self) -> "Value":
        return Value(-self.at, self.above, self.below)

    def __sub__(self, other: Other) -> "Value":
        return self + (-other)

    def __rsub__(self, other: float) -> "Value":
        return -self + other

    def __mul__(self, factor: float) -> "Value":
        """Times a number that is not negative."""
        return Value(self.at * factor, self.below * factor, self.above * factor)

    __rmul__ = __mul__

    def __truediv__(self, other: "Value") -> "Value":
        """The ratio of two positive values, its half-widths to first order."""
        ratio, mean = self.at / other.at, other.at.mean(axis=1)
        size = np.abs(ratio.mean(axis=1))
        return Value(ratio, np.hypot(self.below / mean, size * other.above / mean), np.hypot(self.above / mean, size * other.below / mean))

    @property
    def mean(self) -> float:
        """Over seeds and splits."""
        return float(self.at.mean())

    def interval(self, documents: int) -> tuple[float, float] | None:
        """95 % interval of the mean: between training seeds if there are several; else over document splits and what the records carry.

        documents: probed ones, of which a split holds out a fifth. None where nothing was repeated.
        """
        if len(self.at) > 1:
            return seed_interval(self.at.mean(axis=1))
        splits = split_interval(self.at[0], documents)
        below, above = float(self.below[0]), float(self.above[0])
        if splits is None:
            return (self.mean - below, self.mean + above) if below or above else None
        return self.mean - float(np.hypot(self.mean - splits[0], below)), self.mean + float(np.hypot(splits[1] - self.mean, above))


def largest(values: Sequence[Value]) -> Value:
    """For each seed the value whose mean is largest, with its interval."""
    return _chosen(values, np.argmax)


def smallest(values: Sequence[Value]) -> Value:
    """For each seed the value whose mean is smallest, with its interval."""
    return _chosen(values, np.argmin)


def average(values: Sequence[Value]) -> Value:
    """Mean of values of one model, of the same documents: their errors go together, so the half-widths are averaged too."""
    return Value(
        np.mean([v.at for v in values], axis=0), np.mean([v.below for v in values], axis=0), np.mean([v.above for v in values], axis=0)
    )


def share_above(values: Sequence[Value], threshold: float) -> Value:
    """Share of the values that are at least `threshold`; from the share that surely is to the share that may be."""
    means = np.array([v.at.mean(axis=1) for v in values])
    low, high = (np.mean(means + side >= threshold, axis=0) for side in (-np.array([v.below for v in values]), [v.above for v in values]))
    share = np.mean(means >= threshold, axis=0)
    return Value(share[:, None], share - low, high - share)


def rank_correlation(a: Sequence[Value], b: Sequence[Value]) -> Value:
    """Spearman's correlation of two quantities over heads, with Fisher's interval over heads, standard error 1.06 / sqrt(heads - 3).

    The error is Fieller, Hartley & Pearson's, Tests for rank correlation coefficients, Biometrika 44 (1957).

    Raises:
        ValueError: fewer than five heads.
    """
    if len(a) < 5:
        raise ValueError(f"a rank correlation over five heads; the model has {len(a)}")
    found = np.array([_spearman(np.array([v.at[s].mean() for v in a]), np.array([v.at[s].mean() for v in b])) for s in range(len(a[0].at))])
    z, half = np.arctanh(np.clip(found, -0.999999, 0.999999)), 1.96 * 1.06 / np.sqrt(len(a) - 3)
    return Value(found[:, None], found - np.tanh(z - half), np.tanh(z + half) - found)


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import rankdata

    ranks = rankdata(a), rankdata(b)
    if not (np.ptp(ranks[0]) and np.ptp(ranks[1])):
        return 0.0  # equal in all heads: goes with nothing
    return float(np.corrcoef(*ranks)[0, 1])


def _chosen(values: Sequence[Value], best: Callable[..., np.ndarray]) -> Value:
    at = np.stack([v.at for v in values])
    chosen, seeds = best(at.mean(axis=2), axis=0), np.arange(at.shape[1])
    return Value(at[chosen, seeds], *(np.stack([getattr(v, side) for v in values])[chosen, seeds] for side in ("below", "above")))
