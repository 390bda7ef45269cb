"""Titles of figures and the caveats of a run: the sentence of a claim with its verdict and value, or a template over
one comparison.

Two values differ only if the 95 % interval of their paired difference holds no zero; otherwise the title says "not
separable". Thresholds are those of the claims. Names in `backticks` are set as code by the page.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..claims import FAILS, HOLDS, OPEN, UNSETTLED
from ..gates import unsettled
from ..points import Point
from .figure import MOST_DIGITS
from .numbers import THIN, compact, count, fine_percent, fixed, interval, number, percent, printed, span
from .run import Run, finite

ABOVE, BELOW, UNCLEAR = "above", "below", "not separable"
PAPER_TOKENS = 70_000 * 256 * 512  # DSTG section 3.3: steps × batch × length (its text says 22B)
NAMED = 3  # models that a title names one by one
_HEADS = {HOLDS: "", FAILS: "Not seen here: ", OPEN: "Not separable: ", UNSETTLED: "Not settled: "}


def compare(a: Point, b: Point) -> str:
    """Where `a` lies to `b`: above or below if the interval of the difference does not hold zero, else not
    separable."""
    difference = (a - b).interval
    if difference is None:
        return UNCLEAR
    return ABOVE if difference[0] > 0 else BELOW if difference[1] < 0 else UNCLEAR


def against(point: Point, threshold: float) -> str:
    """Where a value lies to a number: above (or on it) or below with its whole interval, else not separable."""
    low, high = (point.value if end is None else end for end in (point.low, point.high))
    return ABOVE if low >= threshold else BELOW if high < threshold else UNCLEAR


def digits(point: Point) -> str:
    """A value with the digits of its interval."""
    return number(point.value, point.low, point.high, MOST_DIGITS)


def nats(point: Point) -> str:
    """A loss, or a difference of losses."""
    return f"{digits(point)} nats"


def per_cent(point: Point) -> str:
    """A share to a tenth of a per cent."""
    return percent(point.value)


def share(point: Point) -> str:
    """A share, finer where it is small."""
    return fine_percent(point.value)


def rounded(point: Point) -> str:
    """A share to a per cent."""
    return percent(point.value, 0)


def claimed(run: Run, *ids: str, what: str = "") -> str | None:
    """The first of some claims that the run's ledger has measured: its sentence, led by its verdict, with value and
    interval.

    what: name of the value. None where none was measured; one that was but cannot be judged says so.
    """
    rows = {str(c.get("id")): c for c in run.claims}
    for claim in (rows[i] for i in ids if i in rows):
        value, low, high, paper = (finite(claim.get(k)) for k in ("value", "low", "high", "paper_value"))
        if value is None:
            continue
        unit = f"{THIN}{claim['unit']}" if claim.get("unit") else ""
        head = _HEADS.get(str(claim.get("verdict")), "Not testable here: ")
        if so_far := claim.get("so_far"):
            head = f"Not settled, so far {str(so_far).removesuffix(' here')}: "
        sentence = str(claim.get("claim") or claim.get("id"))
        sentence = sentence[:1].lower() + sentence[1:] if head and sentence[1:2].islower() else sentence
        bounds = f" {interval(low, high, MOST_DIGITS)}" if low is not None else ""
        rest = f", paper {printed(paper)}{unit}" if paper is not None else ""
        return f"{head}{sentence}: {what} {number(value, low, high, MOST_DIGITS)}{unit}{bounds}{rest}".replace(
            ":  ", ": "
        )
    return None


def best(
    points: Mapping[str, Point], sentence: str, *, lowest: bool = False, write: Callable[[Point], str] = digits
) -> str:
    """The highest (or lowest) of some named values beside the next, "not separable" where their difference may be zero.

    sentence: what leads to the name, as in "Position is read best from".
    """
    ranked = sorted(points, key=lambda name: points[name].value if lowest else -points[name].value)
    if not ranked:
        return sentence
    first = points[ranked[0]]
    if len(ranked) == 1:
        return f"{sentence} {ranked[0]}: {write(first)}"
    second = points[ranked[1]]
    values = [f"{name} ({write(p)})" for name, p in zip(ranked, (first, second), strict=False)]
    if (first - second).interval is None:
        return f"{sentence} {values[0]}, then {values[1]}; no interval"
    if compare(first, second) == UNCLEAR:
        return f"Not separable: {sentence[:1].lower()}{sentence[1:]} {values[0]} or {values[1]}"
    return f"{sentence} {values[0]}, then {values[1]}"


def finding(
    *claims: str, sentence: str, what: str = "", lowest: bool = False, write: Callable[[Point], str] = digits
) -> Callable[[Run, Sequence[Any]], str]:
    """A rule: the first of some claims that was measured, else the best of the ends of the lines that are drawn
    (`best`)."""

    def title(run: Run, lines: Sequence[Any]) -> str:
        if told := claimed(run, *claims, what=what):
            return told
        learned = [each for each in lines if each.name not in run.young] or list(lines)
        chosen: dict[str, Any] = {}  # of each name its best line
        for each in learned:
            if each.name not in chosen or (each.end.value < chosen[each.name].end.value) == lowest:
                chosen[each.name] = each
        values = {f"`{name}`" + f" {each.part}".replace(" all", "").rstrip(): each.end for name, each in chosen.items()}
        return judged(run, [each.name for each in learned][:1], best(values, sentence, lowest=lowest, write=write))

    return title


def named(names: Sequence[str]) -> str:
    """All of some names, set as code."""
    return listed([f"`{name}`" for name in names], len(names))


def coded(values: Mapping[str, Point]) -> dict[str, Point]:
    """Values under names that are set as code."""
    return {f"`{name}`": p for name, p in values.items()}


def at(lines: Sequence[Any], x: float) -> dict[str, Point]:
    """Name, as code, -> value of the lines at a place."""
    return coded({each.name: each.points[x] for each in lines if x in each.points})


def of_story(
    sentence: str,
    points: Callable[[Sequence[Any]], Mapping[str, Point]],
    *claims: str,
    what: str = "",
    write: Callable[[Point], str] = digits,
) -> Callable[[Run, Sequence[Any]], str]:
    """A rule: the first of some claims that was measured, else the best of the story's model.

    sentence: with {} for the model. points: of what is drawn in its panel, by name.
    """

    def title(run: Run, drawn: Sequence[Any]) -> str:
        model = story(run, list(dict.fromkeys(each.panel for each in drawn)))
        values = points([each for each in drawn if each.panel == model])
        found = best(values, sentence.format(f"`{model}`"), write=write)
        return claimed(run, *claims, what=what) or judged(run, [model], found)

    return title


def judged(run: Run, names: Sequence[str], title: str) -> str:
    """The title, or only its numbers if a model that it tells of has learned too little."""
    young = next((name for name in names if name in run.young), None)
    if young is None:
        return title
    return f"Not testable, `{young}` has learned too little: {title.partition(': ')[2] or title}"


def story(run: Run, models: Sequence[str]) -> str:
    """The model that a title speaks of: `dstg`, else the first."""
    named = run.named("dstg")
    return named if named is not None and named in models else models[0]


def each(words: Mapping[str, str]) -> str:
    """What is said of each, by name; of more than `NAMED` only the first ones."""
    said = [f"`{name}` {what}" for name, what in words.items()]
    return "; ".join(said if len(said) <= NAMED else [*said[:NAMED], f"{len(said) - NAMED} more below"])


def listed(words: Sequence[str], most: int = NAMED + 2) -> str:
    """Words with "and" before the last; of more than `most` the first ones."""
    if len(words) > most:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""


def losses(run: Run, lines: Sequence[Any] = ()) -> str:
    """Who left the unigram plateau, and who ends lowest, which is a finding only with several seeds and intervals
    apart."""
    finals = {m: p for m in run.models if (p := run.last("loss", m))}
    if not finals:
        return "Loss while training"
    if run.apart:
        return "Loss while training, of runs that differ"
    end = best(
        coded(finals),
        "The loss ends lowest with",
        lowest=True,
        write=lambda p: f"{fixed(p.value, 2)} nats",
    )
    if (level := run.plateau()) is None:
        return end
    stuck = [f"`{m}`" for m in finals if m in run.stuck]
    if len(stuck) == len(finals):
        return f"No model leaves the unigram plateau of {fixed(level, 2)} nats"
    return (
        f"{listed(stuck)} {'stays' if len(stuck) == 1 else 'stay'} on the unigram plateau; {end[0].lower()}{end[1:]}"
        if stuck
        else end
    )


def caveats(run: Run) -> list[str]:
    """What a run is too small to tell, and what it would need, in one banner.

    It is small if a model saw less than a tenth of the paper's training tokens.
    """
    tokens, seeds, found = totals(run, "tokens"), len(run.seeds), []
    if (planned := finite(run.facts.get("planned"))) and planned > len(run.entries):
        done = f"{len(run.entries)} of {count(int(planned), 'model')}"
        found.append(f"{done} so far: this page is written anew after each.")
    if tokens and max(tokens) < PAPER_TOKENS / 10:
        found.append(f"A small run: {span(tokens)} training tokens a model, where DSTG has {compact(PAPER_TOKENS)}.")
    if run.stuck:
        who = "No model has" if len(run.stuck) == len(run.models) > 1 else f"{named(run.stuck)} {_have(run.stuck)} not"
        needed = finite(run.facts.get("needed_tokens"))
        rest = f"; models of this size do after about {compact(needed)} tokens" if needed else ""
        found.append(f"{who} learned more than token frequencies: probes of such a model say little{rest}.")
    elif run.young:
        found.append(f"{named(run.young)} {_have(run.young)} learned too little beside the best.")
    if run.young:
        grey = "All" if len(run.young) == len(run.models) > 1 else named(run.young)
        found.append(f"{grey} {'are' if len(run.young) > 1 else 'is'} drawn grey.")
    if falls := {m: fall for m in run.models if (fall := unsettled(run.table, m))}:
        least, most = (fixed(of(fall for fall, _ in falls.values()), 2) for of in (min, max))
        sizes = least if least == most else f"{least} to {most}"
        still = "All" if len(falls) == len(run.models) > 1 else named(list(falls))
        verb = "learn" if len(falls) > 1 else "learns"
        found.append(f"{still} still {verb} ({sizes} nats in the last tenth of the steps): more steps would settle it.")
    if seeds == 1:
        found.append("One training seed: intervals are over documents, not over trainings; `--seeds 3` gives those.")
    elif 1 < seeds < 5:
        found.append(f"{count(seeds, 'training seed')}: intervals between them are wide.")
    return [" ".join(found)] if found else []


def _have(models: Sequence[str]) -> str:
    return "has" if len(models) == 1 else "have"


def totals(run: Run, name: str) -> list[float]:
    """The values of a metric over all models."""
    return [p.value for m in run.models if (p := run.table.point(name, m))]
