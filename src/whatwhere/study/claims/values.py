"""Values with what their intervals come from: arrays over seeds and splits or documents, and half-widths that single records carry."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Union

import numpy as np

from ...intervals import seed_interval, split_interval

Other = Union["Value", float]
DRAWS = 1000  # of the bootstrap over heads
FEWEST_HEADS = 8  # below which that bootstrap is too narrow: of 5 heads with nothing but their sharpness in common it finds 17 %


@dataclass(frozen=True, eq=False)
class Value:
    """A quantity for every training seed (one row where no training is involved).

    at: (seeds, splits) or, if `apart`, (seeds, documents); arithmetic is paired by seed and by split or document, as all models are
    probed on the same documents in the same splits, and ablated on the same documents with the same masks.
    below, above: (seeds,) half-widths of the 95 % interval that single records carry, over documents; 0 where they carry none. A sum
    or a difference combines them in quadrature, which is right for independent errors. The difference of two values whose errors go
    together (of the same documents, as a rule) gets too wide an interval, and that of two whose errors go against each other (shares
    that sum to one, two correlations with one quantity) too narrow a one: those need an interval of their own.
    apart: the columns are documents, which share nothing, and no splits, which overlap.
    """

    at: np.ndarray
    below: np.ndarray
    above: np.ndarray
    apart: bool = False

    @classmethod
    def of(cls, values: Sequence[Sequence[float]] | np.ndarray, apart: bool = False) -> "Value":
        """(seeds, splits), or (seeds, documents) if `apart`, without half-widths."""
        at = np.asarray(values, dtype=float)
        return cls(at, np.zeros(len(at)), np.zeros(len(at)), apart)

    def __add__(self, other: Other) -> "Value":
        if not isinstance(other, Value):
            return replace(self, at=self.at + other)
        apart = self.apart or other.apart
        return Value(self.at + other.at, np.hypot(self.below, other.below), np.hypot(self.above, other.above), apart)

    def __neg__(self) -> "Value":
        return Value(-self.at, self.above, self.below, self.apart)

    def __sub__(self, other: Other) -> "Value":
        return self + (-other)

    def __rsub__(self, other: float) -> "Value":
        return -self + other

    def __mul__(self, factor: float) -> "Value":
        """Times a number that is not negative."""
        return Value(self.at * factor, self.below * factor, self.above * factor, self.apart)

    __rmul__ = __mul__

    def __truediv__(self, other: "Value") -> "Value":
        """The ratio of two positive values, its half-widths to first order."""
        ratio, mean = self.at / other.at, other.at.mean(axis=1)
        size = np.abs(ratio.mean(axis=1))
        below, above = (np.hypot(a / mean, size * b / mean) for a, b in ((self.below, other.above), (self.above, other.below)))
        return Value(ratio, below, above, self.apart or other.apart)

    @property
    def mean(self) -> float:
        """Over seeds and splits or documents."""
        return float(self.at.mean())

    def interval(self, documents: int) -> tuple[float, float] | None:
        """95 % interval of the mean: between training seeds if there are several; else over documents, their splits or what the records
        carry.

        documents: probed ones, of which a split holds out a fifth. None where nothing was repeated.
        """
        if len(self.at) > 1:
            return seed_interval(self.at.mean(axis=1))
        # Student's plain interval for documents, which are as independent as seeds are; the corrected one for splits, which overlap.
        splits = seed_interval(self.at[0]) if self.apart else split_interval(self.at[0], documents)
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


def portion(a: Value, b: Value) -> Value:
    """a / (a + b) of two values that are not negative, one half where both are 0; half-widths to first order, of independent errors."""
    total = a.at + b.at
    whole = np.where(total > 0, total, 1.0)
    mean_a, mean_b, square = a.at.mean(axis=1), b.at.mean(axis=1), whole.mean(axis=1) ** 2
    below, above = (np.hypot(mean_b * up, mean_a * down) / square for up, down in ((a.below, b.above), (a.above, b.below)))
    return Value(np.where(total > 0, a.at / whole, 0.5), below, above)


def rank_correlations(a: Sequence[Value], b: Sequence[Value], c: Sequence[Value]) -> tuple[Value, Value]:
    """Spearman's correlation of a with b over heads, and how far it is above that of a with c; each with its interval over heads.

    The two correlations share `a`, and so do their errors: the heads are drawn again (percentile bootstrap, the same draws for both).

    Raises:
        ValueError: fewer than eight heads.
    """
    if len(a) < FEWEST_HEADS:
        raise ValueError(f"a rank correlation over {FEWEST_HEADS} heads; the model has {len(a)}")
    draws = np.random.default_rng(0).integers(len(a), size=(DRAWS, len(a)))
    rows = np.concatenate([np.arange(len(a))[None], draws])  # the heads as they are, then the draws
    found = []
    for seed in range(len(a[0].at)):
        first, second, third = (np.array([v.at[seed].mean() for v in values])[rows] for values in (a, b, c))
        with_b, with_c = _spearman(first, second), _spearman(first, third)
        found.append((with_b, with_b - with_c))
    return _bootstrapped([f[0] for f in found]), _bootstrapped([f[1] for f in found])


def _bootstrapped(rows: Sequence[np.ndarray]) -> Value:
    """Of each seed's row: its first entry with the 2.5 and 97.5 % percentiles of the others."""
    at = np.array([row[0] for row in rows])
    low, high = np.percentile([row[1:] for row in rows], (2.5, 97.5), axis=1)
    return Value(at[:, None], np.maximum(at - low, 0.0), np.maximum(high - at, 0.0))


def _spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of each row; 0 where one is equal in all heads, as it goes with nothing."""
    from scipy.stats import rankdata

    x, y = (rankdata(v, axis=1) - (v.shape[1] + 1) / 2 for v in (a, b))
    size = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return (x * y).sum(axis=1) / np.where(size > 0, size, 1.0)


def _chosen(values: Sequence[Value], best: Callable[..., np.ndarray]) -> Value:
    at = np.stack([v.at for v in values])
    chosen, seeds = best(at.mean(axis=2), axis=0), np.arange(at.shape[1])
    below, above = (np.stack([getattr(v, side) for v in values])[chosen, seeds] for side in ("below", "above"))
    return Value(at[chosen, seeds], below, above, values[0].apart)
