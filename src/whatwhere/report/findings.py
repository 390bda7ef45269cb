"""Titles of figures: findings made from measured points by fixed rules, and the caveats of a run.

Two values differ only if the 95 % interval of their paired difference holds no zero; otherwise the title says "not separable". A
title never says more than its rule, which stands in each docstring. Names in `backticks` are set as code by the page.
"""

from collections.abc import Mapping, Sequence

from ..points import Point
from .numbers import compact, count, fixed, percent, span

ABOVE, BELOW, UNCLEAR = "above", "below", "not separable"
# Thresholds as in the ledger of claims, so that a title and a verdict do not part.
KEPT, LOST, PRESENT, MOST = 0.75, 0.5, 0.25, 0.9
PROBED = 500  # documents of a probe; only the share that is tested, a fifth, matters to an interval
PLATEAU_MARGIN = 0.1  # nats below the unigram entropy that count as having left the plateau
PAPER_TOKENS = 70_000 * 256 * 512  # DSTG section 3.3: steps × batch × length (its text says 22B)
NAMED = 3  # models that a title names one by one; of more it gives the ends
UNMOVED = 0.05  # change of states that counts as none, as in the ledger
_WORDS = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine"}


def compare(a: Point, b: Point, factor: float = 1.0) -> str:
    """Where `a` lies to factor · b: above or below if the interval of the difference does not hold zero, else not separable."""
    found = (a - factor * b).interval
    if found is None:
        return UNCLEAR
    return ABOVE if found[0] > 0 else BELOW if found[1] < 0 else UNCLEAR


def r2(point: Point) -> str:
    """R² with two digits, as in the paper's tables."""
    return fixed(point.value, 2)


def against(point: Point, threshold: float) -> str:
    """Where a value lies to a number: above (or on it) or below with its whole interval, else not separable."""
    low, high = (point.value if end is None else end for end in (point.low, point.high))
    return ABOVE if low >= threshold else BELOW if high < threshold else UNCLEAR


def kept(what: str, name: str, stream: Mapping[int, Point], last: int, other_name: str | None, other: Point | None) -> str:
    """Does the position stream keep `what` ("position", "the segment index") up to its last trained layer?

    Kept: R² in layer `last` is at least `PRESENT` and at least `KEPT` of that in layer 1; held in part: at least `LOST` of it.
    What is kept is then compared with the last layer of the one-stream model that has a position table.
    """
    sentence = what[0].upper() + what[1:]
    rest = f"; `{other_name}` ends with {r2(other)}" if other_name and other else ""
    if last not in stream:
        return f"R² of {what}, layer by layer{rest}"
    end, start = stream[last], stream.get(1, stream[last])
    if against(end, PRESENT) == BELOW:
        return f"The position stream of `{name}` does not keep {what}: R² {r2(start)} in layer 1, {r2(end)} in layer {last}{rest}"
    enough = compare(end, start, KEPT)
    if enough == BELOW:
        verb = "keeps part of" if compare(end, start, LOST) == ABOVE else "loses"
        return f"The position stream of `{name}` {verb} {what}: R² {r2(start)} in layer 1, {r2(end)} in layer {last}{rest}"
    if UNCLEAR in (enough, against(end, PRESENT)):
        return f"Not separable whether the position stream keeps {what}: R² {r2(start)} in layer 1, {r2(end)} in layer {last}{rest}"
    if not other_name or other is None:
        return f"{sentence} stays in the position stream: R² {r2(end)} in layer {last}"
    side = compare(end, other)
    if side == ABOVE:
        return f"{sentence} stays in the position stream: R² {r2(end)} in layer {last}, {r2(other)} at the end of `{other_name}`"
    if side == BELOW:
        return f"{sentence} stays in the position stream (R² {r2(end)}), but `{other_name}` ends with more: {r2(other)}"
    return f"Not separable: R² of {what} is {r2(end)} in the position stream, {r2(other)} at the end of `{other_name}`"


def untestable(name: str, title: str) -> str:
    """A title about a model on the unigram plateau: its numbers stay, the finding goes."""
    return f"Not testable, `{name}` has learned token frequencies only: {title.partition(': ')[2] or title}"


def apart(what: str, position: Mapping[int, Point], semantic: Mapping[int, Point], last: int) -> str | None:
    """Does the semantic stream hold `what` too? None where the run has no two streams.

    Little: its largest R² in a trained layer is at most `LOST`, and in every one of them it lies below the position stream.
    """
    layers = [l for l in position if l in semantic and l <= last]
    if not layers:
        return None
    top, floor = max((semantic[l] for l in layers), key=lambda p: p.value), min((position[l] for l in layers), key=lambda p: p.value)
    values = f"R² up to {r2(top)}, at least {r2(floor)} in the position stream"
    if all(compare(position[l], semantic[l]) == ABOVE for l in layers):
        amount = "little " if against(top, LOST) == BELOW else ""
        return f"The semantic stream holds {amount}{what}{'' if amount else ' too'}: {values}"
    if all(compare(position[l], semantic[l]) == BELOW for l in layers):
        return f"The semantic stream holds more {what} than the position stream: {values}"
    return f"Not separable in every layer: semantic and position stream, {values}"


def progress(position: Mapping[int, Point], semantic: Mapping[int, Point], last: int) -> str | None:
    """Which stream knows the progress inside a segment in the last trained layer? None where the run has no two streams."""
    if last not in position or last not in semantic:
        return None
    s, p = semantic[last], position[last]
    if against(s, PRESENT) == BELOW and against(p, PRESENT) == BELOW:
        return f"Progress inside a segment is hardly read from either stream: R² {r2(s)} semantic, {r2(p)} position in layer {last}"
    side = compare(s, p)
    if side == ABOVE:
        return f"Progress inside a segment is read from the semantic stream: R² {r2(s)} in layer {last}, {r2(p)} in the position stream"
    if side == BELOW:
        return f"Progress inside a segment is read from the position stream: R² {r2(p)} in layer {last}, {r2(s)} in the semantic stream"
    return f"Not separable: progress inside a segment, R² {r2(s)} in the semantic and {r2(p)} in the position stream"


def gained(point: Point, before: Point) -> str:
    """How much more a probe reads than from the same model before its training; without an interval of the difference, both stand bare."""
    if (point - before).interval is None:
        return f"untrained {r2(before)}"
    side = compare(point, before)
    if side == UNCLEAR:
        return f"not separable from the untrained model's {r2(before)}"
    return f"{fixed(abs(point.value - before.value), 2)} {side} the untrained model"


def enough(few: Mapping[int, Point], whole: Point) -> tuple[str, int | None]:
    """How many first components hold what all hold: the fewest whose R² is at least `MOST` of the whole, by the interval of the difference.

    ABOVE with their number; BELOW if even the most measured lie under that share; else UNCLEAR.
    """
    sides = {k: compare(few[k], whole, MOST) for k in sorted(few)}
    found = next((k for k, side in sides.items() if side == ABOVE), None)
    return (ABOVE, found) if found is not None else (BELOW if set(sides.values()) == {BELOW} else UNCLEAR, None)


def dimensions(what: str, where: str, few: Mapping[int, Point], whole: Point, other: str = "") -> str:
    """Whether the first components of a part hold `what` in a layer (`enough`); `other`: what is added of another model."""
    side, found = enough(few, whole)
    most = max(few)
    shown = few[found] if found is not None else few[most]
    values = f"R² {r2(shown)} from {found if found is not None else most}, {r2(whole)} from all, {where}{other}"
    if against(whole, PRESENT) == BELOW:
        return f"There is little {what} to hold: {values}"
    if side == ABOVE:
        return f"{count(found or 0, 'component holds', 'components hold')} {what}: {values}"
    return (
        f"{most} components do not hold {what}: {values}" if side == BELOW else f"Not separable how many components hold {what}: {values}"
    )


def between(where: str, share: Point, line: Point | None) -> str:
    """Whether states are a matter of position: almost all from `MOST` of the variance between positions, hardly below `LOST`; what a line
    reads of it is said beside."""
    side, half = against(share, MOST), against(share, LOST)
    verb = "is almost all position" if side == ABOVE else "is hardly position" if half == BELOW else "is position in part"
    head = f"Not separable how far {where} is position" if UNCLEAR in (side, half) else f"{where[0].upper()}{where[1:]} {verb}"
    values = f"{percent(share.value)} of its variance lies between positions"
    return f"{head}: {values}, R² by a line {r2(line)}" if line else f"{head}: {values}"


def best(what: str, curves: Mapping[str, Mapping[int, Point]]) -> str:
    """Where `what` is read best among one-stream models: model and layer of the largest value."""
    found = [(p.value, name, layer, p) for name, curve in curves.items() for layer, p in curve.items()]
    if not found:
        return f"R² of {what}, layer by layer"
    _, name, layer, p = max(found, key=lambda f: f[0])
    return f"{what[0].upper()}{what[1:]} is read best in layer {layer} of `{name}`: R² {r2(p)}"


def plane(top2: Mapping[str, Point], first: str) -> str:
    """Does the table of model `first` lie close to a plane? Yes if two components hold at least 90 % of its variance."""
    rest = {name: p.value for name, p in top2.items() if name != first}
    others = ", ".join(f"{percent(v)} of `{name}`'s" for name, v in rest.items())
    if len(rest) > NAMED:
        others = f"{_range(rest)} of the others'"
    share = percent(top2[first].value)
    if top2[first].value >= MOST:
        head = f"`{first}`'s position table lies close to a plane: two components hold {share} of its variance"
    else:
        head = f"`{first}`'s position table is no plane: two components hold {share} of its variance"
    return f"{head}, {others}" if others else head


def needed(components: Mapping[str, int | None], columns: Mapping[str, int]) -> str:
    """How many components hold 95 % of each table's variance (None: more than were recorded)."""
    if len(components) > NAMED + 1:
        known = {name: n for name, n in components.items() if n is not None}
        if not known:
            return f"{percent(0.95, 0)} of the variance takes more components than were recorded"
        few, most = min(known, key=lambda m: known[m]), max(known, key=lambda m: known[m])
        ends = f"{count(known[few], 'component')} in `{few}`, {known[most]} of {columns[most]} in `{most}`"
        return (
            f"{percent(0.95, 0)} of the variance takes {ends}"
            if known[few] < known[most]
            else (f"{percent(0.95, 0)} of the variance takes {count(known[few], 'component')} in every table")
        )
    words = [
        f"{'more than recorded' if n is None else n} of {columns[name]}{'' if i else ' components'} in `{name}`"
        for i, (name, n) in enumerate(components.items())
    ]
    return f"{percent(0.95, 0)} of the variance takes {_list(words)}"


def slow(low4: Mapping[str, Sequence[float]], first: str) -> str:
    """Are the first two components slow waves? Yes if both hold 90 % of their power in the four lowest frequencies, no below 50 %."""

    def shares(values: Sequence[float]) -> str:
        return _list([percent(v) for v in values[:2]])

    mine = low4[first][:2]
    verb = "are slow waves" if min(mine) >= MOST else "are not slow waves" if max(mine) < LOST else "are slow waves in part"
    head = f"The first two components of `{first}`'s table {verb}: {shares(mine)} of their power in the four lowest frequencies"
    rest = {name: values for name, values in low4.items() if name != first}
    others = "; ".join(f"`{name}` {shares(values)}" for name, values in rest.items())
    if len(rest) > NAMED:
        others = f"the others' first component {_range({name: values[0] for name, values in rest.items()})}"
    return f"{head}; {others}" if others else head


def moved(streams: Mapping[str, Point], others: Mapping[str, Point]) -> str:
    """How far states move when positions alone do: the semantic streams' last layers, or those of one-stream models.

    Unmoved: the whole interval is at most `UNMOVED`; moved: the whole interval lies above it.
    """
    what, found = ("semantic stream", streams) if streams else ("last layer", others)
    if len(found) > NAMED:
        return f"Shifted positions change the {what}s of {len(found)} models by {_range({m: p.value for m, p in found.items()})}"
    verbs: dict[str, list[str]] = {}
    for name, point in found.items():
        side = BELOW if (point.high if point.high is not None else point.value) <= UNMOVED else against(point, UNMOVED)
        verb = {BELOW: "hardly moves", ABOVE: "moves"}.get(side, "moves by an amount not separable from little")
        verbs.setdefault(verb, []).append(f"`{name}` ({percent(point.value)})")
    return f"When positions shift, the {what} " + ", but ".join(f"{verb} in {_list(names)}" for verb, names in verbs.items())


def left_plateau(final: Point, plateau: float) -> bool:
    """Whether the final validation loss of every seed lies at least `PLATEAU_MARGIN` below the unigram entropy, as in the ledger."""
    return max(final.each) <= plateau - PLATEAU_MARGIN


def losses(finals: Mapping[str, Point], plateau: float | None) -> str:
    """Who left the unigram plateau, and who ends lowest, which is a finding only with several seeds and intervals apart."""
    ranked = sorted(finals, key=lambda m: finals[m].value)
    lowest = finals[ranked[0]]
    end = f"`{ranked[0]}` ends lowest at {fixed(lowest.value, 2)} nats"
    if len(ranked) == 1:
        end = f"`{ranked[0]}` ends at {fixed(lowest.value, 2)} nats"
    elif lowest.over == "seeds" and compare(finals[ranked[1]], lowest) != ABOVE:
        end = f"the lowest two, `{ranked[0]}` and `{ranked[1]}`, are not separable"
    elif lowest.over != "seeds":
        end += " (one seed)"
    if plateau is None:
        return end[0].upper() + end[1:]
    off = [m for m in finals if left_plateau(finals[m], plateau)]
    stuck = [m for m in finals if m not in off]
    if not off:
        return f"No model leaves the unigram plateau of {fixed(plateau, 2)} nats"
    if stuck:
        return f"{_list([f'`{m}`' for m in stuck])} {'stays' if len(stuck) == 1 else 'stay'} on the unigram plateau; {end}"
    everyone = (
        "The model leaves"
        if len(off) == 1
        else "Both models leave"
        if len(off) == 2
        else f"All {_WORDS.get(len(off), len(off))} models leave"
    )
    return f"{everyone} the unigram plateau; {end}"


def caveats(
    tokens: Sequence[float], parameters: Sequence[float], seeds: int, stuck: Sequence[str], repeated: bool, models: int
) -> list[str]:
    """What a reader must know before any number, most important first.

    A run is small if a model saw less than a tenth of the paper's training tokens. stuck: models on the unigram plateau.
    repeated: whether the probes' document splits were repeated; models: how many the run has.
    """
    found = []
    if tokens and max(tokens) < PAPER_TOKENS / 10:
        size = f" and {span(list(parameters))} parameters" if parameters else ""
        found.append(
            f"This is a small run: {span(list(tokens))} training tokens a model{size}, "
            f"where the paper trains on {compact(PAPER_TOKENS)} tokens. "
            "It shows tendencies at this scale."
        )
    if stuck:
        who = f"None of the {models} models left" if len(stuck) == models > 1 else f"{_list([f'`{m}`' for m in stuck])} did not leave"
        found.append(f"{who} the unigram plateau: probes of a model that has learned token frequencies only say little.")
    if seeds == 1:
        within = "intervals are over the choice of documents, not over repeated training" if repeated else "there are no intervals"
        found.append(f"One training seed: {within}.")
    elif 1 < seeds < 5:
        found.append(f"Only {count(seeds, 'training seed')}: intervals between seeds are wide and themselves uncertain.")
    return found


def _range(values: Mapping[str, float]) -> str:
    """Smallest and largest of many shares with their models."""
    low, high = min(values, key=lambda m: values[m]), max(values, key=lambda m: values[m])
    return f"{percent(values[low])} (`{low}`) to {percent(values[high])} (`{high}`)"


def _list(words: Sequence[str]) -> str:
    if len(words) > NAMED + 2:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""
