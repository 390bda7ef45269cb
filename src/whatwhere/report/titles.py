"""Titles of figures, the sentence of a claim with its verdict or a template over one comparison, and a run's caveats.

Two values differ only if the 95 % interval of their paired difference holds no zero; otherwise the title says "not
separable". Thresholds are those of the claims. Names in `backticks` are set as code by the page.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..claims import FAILS, HOLDS, OPEN, UNSETTLED, UNTRAINED
from ..records.gates import unsettled
from ..records.table import Point
from . import ledger, schemes
from .figure import MOST_DIGITS
from .folder import Run, finite
from .numbers import compact, count, fine_percent, fixed, number, percent, span

ABOVE = "above"
BELOW = "below"
UNCLEAR = "not separable"
PAPER_TOKENS = 70_000 * 256 * 512  # DSTG section 3.3: steps × batch × length (its text says 22B)
SMALL = 0.1  # of the paper's training tokens, below which a run is called small
NAMED = 3  # models that a title names one by one
_HEADS = {
    **{HOLDS: "", FAILS: "Not seen here: ", OPEN: "Not separable: "},
    **{UNTRAINED: "Holds untrained too: ", UNSETTLED: "Not settled: "},
}

Write = Callable[[Point], str]
Title = Callable[[Run, Sequence[Any]], str]  # of what is drawn


# ---- one comparison ----


def compare(a: Point, b: Point) -> str:
    """Where `a` lies to `b`: above or below if the interval of the difference holds no zero, else not separable."""
    low, high = (a - b).interval or (0, 0)
    return ABOVE if low > 0 else BELOW if high < 0 else UNCLEAR


def against(point: Point, threshold: float) -> str:
    """Where a value lies to a number: above (or on it) or below with its whole interval, else not separable."""
    low, high = point.interval or (point.value, point.value)
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


def best(points: Mapping[str, Point], sentence: str, *, lowest: bool = False, write: Write = digits) -> str:
    """The highest (or lowest) of some named values beside the next, "not separable" where their difference may be zero.

    sentence: what leads to the name, as in "Position is read best from".
    """
    ranked = sorted(points, key=lambda name: points[name].value, reverse=not lowest)[:2]
    if not ranked:
        return sentence
    if len(ranked) == 1:
        alone = write(points[ranked[0]])
        lead = sentence.removesuffix("the best is").removesuffix("The best is")  # there is no other to be better than
        return f"{sentence} {ranked[0]}: {alone}" if lead == sentence else f"{lead}{ranked[0]} has {alone}"
    a, b = (points[name] for name in ranked)
    first, second = (f"{name} ({write(points[name])})" for name in ranked)
    if (a - b).interval is None:
        return f"{sentence} {first}, then {second}; no interval"
    if compare(a, b) == UNCLEAR:
        return f"Not separable: {_lowered(sentence)} {first} or {second}"
    return f"{sentence} {first}, then {second}"


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


# ---- claims ----


def claimed(run: Run, *ids: str, what: str = "") -> str | None:
    """The first of some claims that the run's ledger has measured: verdict, sentence, value and interval; None if none.

    what: name of the value. A claim that was measured but cannot be judged says so.
    """
    claims = {str(c.get("id")): c for c in run.claims}
    for row in (ledger.row(claims[i]) for i in ids if i in claims):
        if row.here == ledger.NONE:
            continue
        head = _HEADS.get(row.verdict, "Not testable here: ")
        if row.so_far:
            head = f"Not settled, so far {row.so_far.removesuffix(' here')}: "
        sentence = _lowered(row.claim) if head and row.claim[1:2].islower() else row.claim
        paper = f", paper {row.printed}" if row.printed != ledger.NONE else ""
        return f"{head}{sentence}: {f'{what} {row.here}'.strip()}{paper}"
    return None


def finding(*claims: str, sentence: str, what: str = "", lowest: bool = False, write: Write = digits) -> Title:
    """A rule: the first of some claims that was measured, else the best end of the lines that are drawn (`best`)."""

    def title(run: Run, lines: Sequence[Any]) -> str:
        if told := claimed(run, *claims, what=what):
            return told
        learned = [line for line in lines if line.name not in run.young] or lines
        chosen: dict[str, Any] = {}  # of each name its best line
        for line in learned:
            if line.name not in chosen or (line.end.value < chosen[line.name].end.value) == lowest:
                chosen[line.name] = line
        values = {f"`{name}` {line.part}".replace(" all", "").rstrip(): line.end for name, line in chosen.items()}
        return judged(run, [line.name for line in learned[:1]], best(values, sentence, lowest=lowest, write=write))

    return title


def of_story(
    sentence: str,
    points: Callable[[Sequence[Any]], Mapping[str, Point]],
    *claims: str,
    what: str = "",
    write: Write = digits,
) -> Title:
    """A rule: the first of some claims that was measured, else the best of the story's model.

    sentence: with {} for the model. points: of what is drawn in its panel, by name.
    """

    def title(run: Run, drawn: Sequence[Any]) -> str:
        model = story(run, [thing.panel for thing in drawn])
        values = points([thing for thing in drawn if thing.panel == model])
        told = best(values, sentence.format(f"`{model}`"), write=write)
        return claimed(run, *claims, what=what) or judged(run, [model], told)

    return title


def judged(run: Run, names: Sequence[str], title: str) -> str:
    """The title, as what is seen so far if a model that it tells of has learned too little."""
    young = next((name for name in names if name in run.young), None)
    if young is None:
        return title
    return f"Not testable yet, `{young}` has learned too little; so far {_lowered(title)}"


# ---- names ----


def story(run: Run, models: Sequence[str]) -> str:
    """The model that a title speaks of: `dstg`, else the first."""
    dstg = run.named("dstg")
    return dstg if dstg is not None and dstg in models else models[0]


def listed(words: Sequence[str], most: int = NAMED + 2) -> str:
    """Words with "and" before the last; of more than `most` the first ones."""
    if len(words) > most:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def named(names: Sequence[str]) -> str:
    """All of some names, set as code."""
    return listed([f"`{name}`" for name in names], len(names))


def each(words: Mapping[str, str]) -> str:
    """What is said of each, by name; of more than `NAMED` only the first ones."""
    said = [f"`{name}` {what}" for name, what in words.items()]
    return "; ".join(said if len(said) <= NAMED else [*said[:NAMED], f"{len(said) - NAMED} more below"])


def coded(values: Mapping[str, Point]) -> dict[str, Point]:
    """Values under names that are set as code."""
    return {f"`{name}`": p for name, p in values.items()}


def at(lines: Sequence[Any], x: float) -> dict[str, Point]:
    """Name, as code, -> value of the lines at a place."""
    return coded({line.name: line.points[x] for line in lines if x in line.points})


# ---- a run ----


def losses(run: Run, lines: Sequence[Any] = ()) -> str:
    """Who left the unigram plateau, and who ends lowest, which is a finding only with several seeds and intervals
    apart."""
    finals = {m: p for m in run.models if (p := run.last("loss", m))}
    if not finals:
        return "Loss while training"
    level = run.plateau()
    stuck = [m for m in finals if m in run.stuck]
    if level is not None and len(stuck) == len(finals):
        return f"No model leaves the unigram plateau of {fixed(level, 2)} nats"
    sentence = "The loss ends lowest with"
    end = best(coded(finals), sentence, lowest=True, write=lambda p: f"{fixed(p.value, 2)} nats")
    if level is None or not stuck:
        return end
    who = listed([f"`{m}`" for m in stuck])
    return f"{who} {'stays' if len(stuck) == 1 else 'stay'} on the unigram plateau; {_lowered(end)}"


def caveats(run: Run) -> list[str]:
    """What a run is too small to tell, and what it would need, in one banner; then, where there is no pick to say so,
    what models differ in beside their scheme.

    It is small if no model saw `SMALL` of the paper's training tokens.
    """

    def who(models: Sequence[str]) -> str:
        return "All" if len(models) == len(run.models) > 1 else named(models)

    tokens = totals(run, "tokens")
    seeds = len(run.seeds)
    found = []
    have = "has" if len(run.stuck or run.young) == 1 else "have"
    if (planned := finite(run.facts.get("planned"))) and planned > len(run.entries):
        done = f"{len(run.entries)} of {count(int(planned), 'model')}"
        found.append(f"{done} so far: this page is written anew after each.")
    if tokens and max(tokens) < SMALL * PAPER_TOKENS:
        found.append(f"A small run: {span(tokens)} training tokens a model, where DSTG has {compact(PAPER_TOKENS)}.")
    if run.stuck:
        nobody = "No model has" if who(run.stuck) == "All" else f"{named(run.stuck)} {have} not"
        needed = finite(run.facts.get("needed_tokens"))
        rest = f"; models of this size do after about {compact(needed)} tokens" if needed else ""
        found.append(f"{nobody} learned more than token frequencies: probes of such a model say little{rest}.")
    elif run.young:
        found.append(f"{named(run.young)} {have} learned too little beside the best.")
    if run.young:
        found.append(f"{who(run.young)} {'are' if len(run.young) > 1 else 'is'} drawn grey.")
    if falls := {m: fall[0] for m in run.models if (fall := unsettled(run.table, m))}:
        sizes = " to ".join(dict.fromkeys(fixed(end(falls.values()), 2) for end in (min, max)))
        verb = "learn" if len(falls) > 1 else "learns"
        rest = f"({sizes} nats in the last tenth of the steps): more steps would settle it."
        found.append(f"{who(list(falls))} still {verb} {rest}")
    # Without tokens, seeds are those of an evaluation, and its figures name them.
    if tokens and seeds == 1:
        found.append("One training seed: intervals are over documents, not over trainings; `--seeds 3` gives those.")
    elif tokens and 1 < seeds < 5:
        found.append(f"{count(seeds, 'training seed')}: intervals between them are wide.")
    picked = not run.apart and any(run.last("loss", m) for m in run.models)
    return list(filter(None, (" ".join(found), "" if picked else schemes.unequal_terms(run))))


def totals(run: Run, name: str) -> list[float]:
    """The values of a metric over all models."""
    return [p.value for m in run.models if (p := run.table.point(name, m))]
