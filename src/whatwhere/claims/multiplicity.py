"""P values of rules from the intervals that decide them, and Holm's correction over the claims of a ledger."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, t

from ..points import Point

LEVEL = 0.05  # two-sided, that of the 95 % intervals


def p_value(margin: Point, least: float = 0.0) -> float | None:
    """Probability of a margin so far above 0 or further, were the true one 0, doubled; None without an interval.

    It is that of the interval which decides the verdict, so it is at most `LEVEL` exactly where the interval lies above
    0, and 1 for a margin of 0 or below: the standard error is the half-width below the value over the quantile that
    made it, Student's with one degree less than the seeds, splits or documents, the normal one for an interval that
    records carry (a bootstrap).

    Args:
        margin: how far a measured value is on the right side of its threshold.
        least: smallest half-width of the interval.
    """
    if margin.interval is None and not least:
        return None
    half = max(least, margin.value - margin.interval[0] if margin.interval else 0.0)
    if half == 0.0:  # repetitions that are all equal
        return 0.0 if margin.value >= 0 else 1.0
    repeats = len(margin.each) if margin.over == "seeds" else margin.at.shape[1]
    errors = t(repeats - 1) if margin.interval and repeats > 1 else norm()
    return float(min(1.0, 2 * errors.sf(margin.value / half * errors.ppf(1 - LEVEL / 2))))


def after_holm(ps: Sequence[float]) -> list[bool]:
    """Whether each of some claims still holds where one false one among all may occur with probability `LEVEL`.

    The smallest p is compared with LEVEL / n, the next with LEVEL / (n - 1), and so on; from the first that is larger
    none holds. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
    (1979). It needs no independence.
    """
    order = np.argsort(ps, kind="stable")
    small = np.asarray(ps)[order] <= LEVEL / np.arange(len(ps), 0, -1) * (1 + 1e-9)  # an end at 0 is on the right side
    held = np.zeros(len(ps), dtype=bool)
    held[order] = np.logical_and.accumulate(small)
    return [bool(each) for each in held]
