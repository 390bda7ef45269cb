"""Titles of the figures of a geometry run: findings made from records by fixed rules, as `findings` does for a study.

"Grows", "lies above" and the like need the whole interval on that side; where it holds both sides the title says "not separable".
Without an interval the numbers are told and nothing is made of them. Each rule stands in its docstring.
"""

import math
from collections.abc import Mapping, Sequence

from ..points import Point
from .figures import MOST_DIGITS
from .findings import ABOVE, BELOW, NAMED, against
from .numbers import count, number, percent

FITTED = ("mds", "smacof")  # tables made from the distances that they are then compared with
# As encodings: the Hellinger distances themselves; all distances equal; distances in one half of the documents against the other half,
# for comparison: no bound, since a fitted table can have less noise than a half.
CORPUS, EQUAL, NOISE = "corpus", "equidistant", "noise"
KNOW_NOTHING = ("random", EQUAL)
BARE = "(no intervals)"  # said where two values stand side by side and nothing tells whether they differ
ALIKE = 0.05  # of the lowest stress on other documents: ranks so near it are named together
LINEAR = (0.8, 1.2)  # exponents of a power law that count as linear growth


def digits(point: Point) -> str:
    """A value with the digits of its interval."""
    return number(point.value, point.low, point.high, MOST_DIGITS)


def each(words: Mapping[str, str]) -> str:
    """What is said of each corpus, by name; of more than `NAMED` only the first ones."""
    said = [f"`{name}` {what}" for name, what in words.items()]
    return "; ".join(said if len(said) <= NAMED else [*said[:NAMED], f"{len(said) - NAMED} more below"])


def remains(point: Point) -> bool:
    """Whether a root mean square distance is separable from chance: its interval (without one, the value) lies above 0."""
    return (point.value if point.low is None else point.low) > 0


def _left(point: Point) -> str:
    """What is said of a root mean square distance that does not remain: "not separable" where its interval holds 0."""
    if point.high is None:
        return f"not above 0 {BARE}"
    return "not separable from chance" if point.high >= 0 else "below what chance gives"


def apart(counted: Mapping[str, Point], corrected: Mapping[str, Point], growth: Mapping[str, Point]) -> str:
    """How far apart positions are once noise is taken out, and whether distance grows with the lag.

    The numbers are root mean squares; a corrected one is negative where the mean square is. Not separable from chance: its interval
    holds 0. Grows, falls: the whole interval of the correlation of corrected distance and lag is above, below zero.
    """
    if not corrected:
        return f"Root mean square distance of two positions as counted: {each({n: digits(p) for n, p in counted.items()})}"
    if len(corrected) == 1:
        name, point = next(iter(corrected.items()))
        rest = f", {digits(counted[name])} as counted" if name in counted else ""
        if not remains(point):
            return f"The geometry of `{name}` is {_left(point)}: root mean square distance {digits(point)} corrected{rest}"
        head = f"Positions of `{name}` lie {digits(point)} apart (root mean square) once noise is taken out{rest}"
        return head + (f"; distance {_verb(growth[name])}" if name in growth else "")
    words = {}
    for name, point in corrected.items():
        noise = "" if remains(point) else f", {_left(point)}"
        words[name] = f"{digits(point)}" + (f" (as counted {digits(counted[name])})" if name in counted else "") + noise
    return f"Root mean square distance of two positions once noise is taken out: {each(words)}"


def _verb(growth: Point) -> str:
    correlation = f"(r {digits(growth)})"
    if growth.low is None:
        return f"and lag correlate with r {digits(growth)} {BARE}"
    side = against(growth, 0.0)
    return {ABOVE: f"grows with the lag {correlation}", BELOW: f"falls with the lag {correlation}"}.get(
        side, f"and lag are not separable from unrelated {correlation}"
    )


def supported(kept: Mapping[str, tuple[int, int]], empty: Mapping[str, int] | None = None) -> str:
    """How many of the positions asked for are kept; `kept` has (kept, asked) of each corpus, `empty` how many kept ones have no token."""
    if empty and any(empty.values()):
        return "Positions kept although nothing stands there: " + each({n: f"{k} of {kept[n][0]}" for n, k in empty.items()})
    if all(few == all_ for few, all_ in kept.values()):
        return "Every position is supported: " + each({n: count(few, "position") for n, (few, _) in kept.items()})
    return "Positions that are counted often enough: " + each({n: f"{few} of {all_}" for n, (few, all_) in kept.items()})


def lag_alone(toeplitz: Mapping[str, Point], circulant: Mapping[str, Point], corrected: bool) -> str:
    """The share of the centred matrix of squared distances that depends on the lag alone (Toeplitz), beside the circulant share."""
    words = {
        n: percent(p.value, 0) + (f" (circulant: {percent(circulant[n].value, 0)})" if n in circulant else "") for n, p in toeplitz.items()
    }
    kind = "corrected" if corrected else "as counted"
    return f"The lag alone accounts for part of the centred matrix of squared distances ({kind}): {each(words)}"


def components(above: Mapping[str, int], all_: Mapping[str, int]) -> str:
    """Components above the noise: corrected eigenvalues larger than the size of the most negative one, which is noise by itself."""
    words = {n: f"{above[n]} of {all_[n]}" for n in above}
    return f"Components that stand above the noise: {each(words)}"


def ranks(found: Mapping[str, Point]) -> str:
    """Dimensions that an exact table needs."""
    return f"Dimensions of an exact table: {each({n: number(p.value) for n, p in found.items()})}"


def two(shares: Mapping[str, float], corrected: Mapping[str, float]) -> str:
    """Share of the first two components."""
    words = {n: percent(v, 0) + (f" as counted, {percent(corrected[n], 0)} corrected" if n in corrected else "") for n, v in shares.items()}
    return f"The first two components hold {each(words)}"


def base(encoding: str) -> str:
    """The encoding without its variant: `mds` of "mds, rank 7"."""
    return encoding.partition(",")[0]


def fits(stress: Mapping[str, Mapping[str, Point]]) -> str:
    """Which ready-made encoding has the lowest stress at its best scale in each corpus.

    One is named only if its interval lies below that of the next; else both, as not separable. It is then held against all positions
    equally far apart in the same way; if a random table comes as low, that is said too.
    """
    words = {}
    for name, points in stress.items():
        ranked = sorted((p.value, e) for e, p in points.items() if base(e) not in (*FITTED, *KNOW_NOTHING))
        if not ranked:
            continue
        first = ranked[0][1]
        words[name] = f"{first} {digits(points[first])}"
        if len(ranked) > 1:
            words[name] += _next(points[first], points[ranked[1][1]], ranked[1][1])
        if EQUAL in points:
            words[name] += _beside(points[first], points[EQUAL], "all equally far apart")
        if "random" in points and points["random"].value <= points[first].value:
            words[name] += f"; a random table {digits(points['random'])}"
    return f"Lowest stress of a ready-made encoding: {each(words)}" if words else "Stress of every table"


def _clear(low: Point, high: Point) -> bool | None:
    """Whether the whole interval of `low` lies below that of `high`; None without intervals."""
    return None if low.high is None or high.low is None else low.high < high.low


def _next(first: Point, second: Point, name: str, lowest: bool = True) -> str:
    """The second of an order beside the first: behind it, or not separable from it. lowest: the order is ascending."""
    clear = _clear(first, second) if lowest else _clear(second, first)
    said = f"{name} {digits(second)}"
    return f", then {said} {BARE}" if clear is None else f", then {said}" if clear else f" and {said}, not separable"


def _beside(best: Point, other: Point, name: str) -> str:
    """The best of an order beside a table that knows no position."""
    said = f"{name} {digits(other)}"
    if _clear(best, other) is None:
        return f"; {said}"
    side = "below" if _clear(best, other) else "above" if _clear(other, best) else "not separable from"
    return f"; {side} {said}"


def best_ranks(points: Mapping[int, Point]) -> str:
    """The ranks whose stress is within `ALIKE` of the lowest, neighbours among those tried together: "3 to 7 and 15".

    "or more": the largest rank tried is among them, so where the stress rises again was not reached.
    """
    tried = sorted(points)
    least = min(p.value for p in points.values())
    stretches: list[list[int]] = []
    for before, rank in zip([None, *tried], tried, strict=False):
        if points[rank].value > least * (1 + ALIKE):
            continue
        if not stretches or stretches[-1][-1] != before:
            stretches.append([])
        stretches[-1].append(rank)
    said = [f"{s[0]} to {s[-1]}" if len(s) > 1 else str(s[0]) for s in stretches]
    if stretches[-1][-1] == tried[-1]:
        said[-1] = f"{stretches[-1][0]} or more"
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)


def supported_rank(fitted: Mapping[str, Mapping[int, Point]], fixed: Mapping[str, Mapping[str, Point]]) -> str:
    """The ranks whose tables have the lowest stress on documents that they were not made from (`best_ranks`), the lowest stress, and
    the lowest of the ready-made encodings."""
    words = {}
    for name, points in fitted.items():
        ready = sorted((p.value, e) for e, p in fixed.get(name, {}).items() if base(e) not in KNOW_NOTHING)
        rest = f" ({ready[0][1]}: {number(ready[0][0])})" if ready else ""
        words[name] = f"rank {best_ranks(points)}, stress {number(min(p.value for p in points.values()))}{rest}"
    return f"The tables that fit other documents best: {each(words)}"


def follow(found: Mapping[str, Mapping[str, Point]]) -> str:
    """Which ready-made encoding's distances correlate most with those of each corpus.

    One is named only if its interval lies above that of the next; else both, as not separable. None is named where the interval of the
    highest does not lie above 0. If a table that knows nothing of position comes as high, that is said.
    """
    words = {}
    for name, points in found.items():
        ranked = sorted(((-p.value, e) for e, p in points.items() if base(e) not in (*FITTED, *KNOW_NOTHING)))
        if not ranked:
            continue
        first = ranked[0][1]
        said = f"{first} {digits(points[first])}"
        if points[first].low is not None and (side := against(points[first], 0.0)) != ABOVE:
            words[name] = f"{'none above 0' if side == BELOW else 'none separable from 0'} (highest: {said})"
            continue
        if len(ranked) > 1:
            second = ranked[1][1]
            said += _next(points[first], points[second], second, lowest=False)
        blind = max((points[e].value for e in KNOW_NOTHING if e in points), default=-math.inf)
        if blind >= points[first].value:
            said += f"; a table that knows no position: {number(blind)}"
        words[name] = said
    return f"Highest correlation of a ready-made encoding: {each(words)}" if words else "Distances in tables against those of the corpus"


def growth(curves: Mapping[str, Mapping[str, Mapping[int, Point]]]) -> str:
    """How raw stress of the sinusoidal table grows with its dimensions: linear if the exponent between the ends is in `LINEAR`."""
    words = {}
    for name, lines in curves.items():
        line = {d: p for d, p in lines.get("sinusoidal", {}).items() if d > 0 and p.value > 0}
        if len(line) > 1:
            low, high = min(line), max(line)
            exponent = math.log(line[high].value / line[low].value) / math.log(high / low)
            how = "linear" if LINEAR[0] <= exponent <= LINEAR[1] else f"as d to the {number(exponent, most=2)}"
            words[name] = f"{number(line[low].value)} at {low}, {number(line[high].value)} at {high} ({how})"
    return (
        f"Raw stress of the sinusoidal table against its dimensions: {each(words)}" if words else "Stress against the dimensions of a table"
    )


def ordered(own: Mapping[str, Point]) -> str:
    """How often the distances of a corpus themselves break the order of the lags; 50 % is chance, which only an interval is told from."""
    words = {}
    for name, point in own.items():
        side = {ABOVE: ", above chance", BELOW: ""}.get(against(point, 0.5), ", not separable from chance") if point.low is not None else ""
        words[name] = f"{percent(point.value)}{side}"
    return f"Triples in which the nearer position is the more distant one: {each(words)}" if words else "Triples out of order"


def separated(ends: Mapping[str, tuple[Point, Point]]) -> str:
    """Smallest distance of two positions at the first and the last step measured."""
    words = {m: f"{digits(a)} → {digits(b)}" for m, (a, b) in ends.items()}
    return f"Smallest distance of two positions, first to last step: {each(words)}"


def between(pairs: Mapping[str, Sequence[Point]]) -> str:
    """Distance of two corpora at the first and the last position both have."""
    words = {p: f"{digits(v[0])} at the first, {digits(v[-1])} at the last position" for p, v in pairs.items()}
    said = [f"{p}: {w}" for p, w in words.items()]
    return "How far corpora lie apart at equal positions: " + "; ".join(said[:NAMED])
