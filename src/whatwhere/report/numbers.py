"""Numbers in words: digits follow the uncertainty, large counts are rounded, times and bytes get a unit."""

import math
from collections.abc import Sequence

MINUS = "\u2212"
THIN = "\u202f"  # narrow no-break space between a number and its unit


def decimals(uncertainty: float) -> int:
    """Return the digits after the point that show `uncertainty` with two significant digits: 0.036 -> 3, 1.4 -> 1, 52
    -> 0."""
    if not math.isfinite(uncertainty) or uncertainty <= 0:
        return 3
    return min(6, max(0, 1 - math.floor(math.log10(uncertainty))))


def fixed(value: float | None, digits: int) -> str:
    """Return `value` with `digits` after the point, a true minus sign, no negative zero; a dash for None."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:z,.{digits}f}".replace("-", MINUS)


def number(value: float | None, low: float | None = None, high: float | None = None, most: int = 6) -> str:
    """Return `value` to two significant digits of its uncertainty (half the interval), or to three of its own without
    one.

    most: digits after the point at most.
    """
    if value is None or not math.isfinite(value):
        return "–"
    if low is not None and high is not None and high > low:
        return fixed(value, min(most, decimals((high - low) / 2)))
    value = round(value, 12)  # 1 and 0 are written so where a processor's rounding left 1 - 1e-16 or 1e-17
    if float(value).is_integer() and abs(value) < 1e15:
        return fixed(value, 0)
    size = math.floor(math.log10(abs(value))) if value else 0
    return fixed(value, min(most, max(0, 2 - size)))


def printed(value: float) -> str:
    """Return `value` with the digits that it has and no more, as a paper prints it: 0.89, 0.941, 22."""
    return f"{value:.6g}".replace("-", MINUS)


def interval(low: float | None, high: float | None, most: int = 6) -> str:
    """Return `[0.551, 0.623]` with the digits of its half width; "" where there is no interval."""
    if low is None or high is None:
        return ""
    digits = min(most, decimals((high - low) / 2))
    return f"[{fixed(low, digits)}, {fixed(high, digits)}]"


def compact(value: float) -> str:
    """Return a count in three significant digits: 24,300, 1.50M, 41.3M, 9.18B; exact below 10,000."""
    if not math.isfinite(value):
        return "–"
    for limit, mark in ((1e9, "B"), (1e6, "M")):
        if abs(value) >= limit * 0.9995:
            scaled = value / limit
            digits = sum(abs(scaled) < bound for bound in (9.995, 99.95))
            return f"{scaled:,.{digits}f}{mark}"
    return f"{round(value, -2) if abs(value) >= 10_000 else value:,.0f}"


def span(values: Sequence[float]) -> str:
    """Return smallest to largest count: `1.52M`, or `1.41M to 1.52M` where the two look different; "" without
    counts."""
    if not values:
        return ""
    low = compact(min(values))
    high = compact(max(values))
    return low if low == high else f"{low} to {high}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in [0, 1] as per cent."""
    return "–" if value is None else f"{fixed(100 * value, digits)}{THIN}%"


def fine_percent(value: float) -> str:
    """Return a share as per cent, with more digits where it is small."""
    return percent(value, 0 if abs(value) >= 0.1 or abs(value) < 1e-12 else 1)


def duration(seconds: float) -> str:
    """Return seconds as `48 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}{THIN}s"
    if whole < 3600:
        return f"{whole // 60}{THIN}min {whole % 60:02d}{THIN}s"
    return f"{whole // 3600}{THIN}h {whole % 3600 // 60:02d}{THIN}min"


def memory(size: float) -> str:
    """Return bytes in GiB or MiB."""
    return f"{size / 2**30:.2f}{THIN}GiB" if size >= 2**30 else f"{size / 2**20:.0f}{THIN}MiB"


def count(n: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 seed`, `3 seeds`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
