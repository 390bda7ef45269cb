"""The p value of a rule, from the interval that decides it."""

from scipy.stats import norm, t

from ..records.places import LEVEL
from ..records.table import Point


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
