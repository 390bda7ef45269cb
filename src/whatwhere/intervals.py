"""95 % intervals: of a mean over splits of the same documents (they overlap) or over training seeds (they do not), and
of a share."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binomtest, t

LOSS_ROUNDING = 1e-6  # nats: a smaller rise is none, as the same documents in another batch give as much in float32


def tested(documents: int) -> int:
    """Return how many documents a split holds out: a fifth, 100 of 500 (DSTG section 5), at least one."""
    return max(1, round(documents / 5))


def split_interval(values: Sequence[float] | np.ndarray, documents: int = 500) -> tuple[float, float] | None:
    """Interval of the mean of `values`, one from each random split of the same documents; None for a single value, and
    for a single document.

    mean ± t(0.975, k - 1) · s · sqrt(1/k + tested/trained) for k splits of `documents` documents, s the standard
    deviation of the values. The splits share documents, so their values are not independent and the usual s·sqrt(1/k)
    is too narrow; tested/trained is the corrected resampled t interval of Nadeau & Bengio, Inference for the
    generalization error, Machine Learning 52 (2003). It speaks of this model on other documents, not of another
    training seed.
    """
    if documents < 2:
        return None
    return _interval(values, 1 / max(len(values), 1) + tested(documents) / (documents - tested(documents)))


def seed_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float] | None:
    """Student's t interval of the mean of `values`, one from each training seed; None for a single value."""
    return _interval(values, 1 / max(len(values), 1))


def jackknife_interval(value: float, left: Sequence[float]) -> tuple[float, float] | None:
    """Interval of a statistic by leaving out one group of documents after the other; None for fewer than two groups.

    value ± t(0.975, G - 1) · √((G - 1)/G · sum of squares of the G values around their mean), as `geometry.jackknife`;
    for statistics that are no means over documents. left: the value without each group.
    """
    groups = len(left)
    if groups < 2:
        return None
    squares = np.sum((np.asarray(left) - np.mean(left)) ** 2)
    half = float(t.ppf(0.975, groups - 1) * np.sqrt((groups - 1) / groups * squares))
    return value - half, value + half


def share_interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's score interval of a share, for example of right answers; inside [0, 1] and never empty, even at 0 and 1.

    It speaks of this model on other rows like these, not of another training seed.
    """
    found = binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def _interval(values: Sequence[float] | np.ndarray, variance_factor: float) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    half = float(t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) * variance_factor**0.5
    mean = float(np.mean(values))
    return mean - half, mean + half
