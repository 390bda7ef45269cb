"""P values of rules from the intervals that decide them, and Holm's correction over the claims of a ledger."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, t

from ..records.table import Point

LEVEL = 0.05  # two-sided, that of the 95 % intervals


def p_value(margin: Point, least: float = 0.0) -> float | None:
    """Probability of a margin so far above 0 or further, were the true one 0, doubled; None without an interval.

    It is that of the interval which decides the verdict, on the scale of the margin's range, so it is at most `LEVEL`
    exactly where the interval lies above 0, and 1 for a margin of 0 or below (`intervals.p_above_zero`).

    Args:
        margin: how far a measured value is on the right side of its threshold.
        least: smallest half-width of the interval.
    """
    # Values that are equal in all seeds, as small whole numbers often are, do not tell how far another would be.
    if not least and (margin.interval is None or margin.interval[0] == margin.interval[1]):
        return None
    found = 0.0 if margin.p is None else margin.p
    if least:
        repeats = margin.at.shape[1]
        errors = t(repeats - 1) if margin.interval and repeats > 1 else norm()
        found = max(found, 2 * errors.sf(margin.value / least * errors.ppf(1 - LEVEL / 2)))
    return float(min(1.0, found))


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
