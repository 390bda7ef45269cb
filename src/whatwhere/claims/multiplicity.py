"""P values of rules from the intervals that decide them, and Holm's correction over the claims of a ledger."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm, t

from ..records.table import Point

LEVEL = 0.05  # two-sided, as in the 95 % intervals


def p_value(margin: Point, least: float = 0.0) -> float | None:
    """Return the two-sided p of a margin this far above 0 if the true margin were 0; None without an interval.

    It belongs to the interval that decides the verdict, on the scale of the margin's range, so it is at most `LEVEL`
    exactly where the interval lies above 0, and 1 for a margin of 0 or below (`intervals.p_above_zero`).

    Args:
        margin: how far a measured value is on the right side of its threshold.
        least: smallest half-width of the interval.
    """
    # Values that are equal in all seeds, as small whole numbers often are, do not tell how far another would be.
    if not least and (margin.interval is None or margin.interval[0] == margin.interval[1]):
        return None
    p = 0.0 if margin.p is None else margin.p
    if least:
        repeats = margin.at.shape[1]
        errors = t(repeats - 1) if margin.interval and repeats > 1 else norm()
        p = max(p, 2 * errors.sf(margin.value / least * errors.ppf(1 - LEVEL / 2)))
    return float(min(1.0, p))


def after_holm(ps: Sequence[float]) -> list[bool]:
    """Tell for each claim if it still holds where a false one among all may occur with probability `LEVEL`.

    The smallest p is compared with LEVEL / n, the next with LEVEL / (n - 1), and so on; from the first that is larger
    none holds. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
    (1979). It needs no independence.
    """
    order = np.argsort(ps, kind="stable")
    small = np.asarray(ps)[order] <= LEVEL / np.arange(len(ps), 0, -1) * (1 + 1e-9)  # an end at 0 is on the right side
    holds = np.zeros(len(ps), dtype=bool)
    holds[order] = np.logical_and.accumulate(small)
    return holds.tolist()
