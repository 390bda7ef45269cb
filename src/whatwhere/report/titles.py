"""Titles of figures: the verdict of a claim, or the plain name of what is drawn with two numbers; caveats of a run.

Behind the name stand the marks "still learning", "too little learned" and "not separable", the last where the 95 %
interval of the paired difference of the two numbers holds a zero. Names in `backticks` are set as code by the page.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..claims import FAILS, HOLDS, OPEN, UNTRAINED
from ..records.gates import unsettled
from ..records.table import Point
from . import ledger, schemes
from .figure import MOST_DIGITS
from .loaded_run import Run, finite
from .numbers import compact, count, fine_percent, fixed, number, percent, span

ABOVE = "above"
BELOW = "below"
UNCLEAR = "not separable"
PAPER_TOKENS = 70_000 * 256 * 512  # DSTG section 3.3: steps × batch × length (its text says 22B)
SMALL = 0.1  # of the paper's training tokens, below which a run is called small
NAMED = 3  # models that a title names one by one
_HEADS = {
    HOLDS: "",
    FAILS: "Not seen here: ",
    OPEN: "Not separable: ",
    UNTRAINED: "An untrained model does it too: ",
}
YOUNG = "too little learned"  # marks of a title
LEARNING = "still learning"

Write = Callable[[Point], str]
Title = Callable[[Run, Sequence[Any]], str]  # of what is drawn


# ---- one comparison ----


def compare(a: Point, b: Point) -> str:
    """Say where `a` lies to `b`: above or below if the interval of the difference holds no zero, else not separable."""
    low, high = (a - b).interval or (0, 0)
    if low > 0:
        return ABOVE
    return BELOW if high < 0 else UNCLEAR


def against(point: Point, threshold: float) -> str:
    """Say where a value lies to a number: above (or on it) or below with its whole interval, else not separable."""
    low, high = point.interval or (point.value, point.value)
    if low >= threshold:
        return ABOVE
    return BELOW if high < threshold else UNCLEAR


def digits(point: Point) -> str:
    """Write a value with the digits of its interval."""
    return number(point.value, point.low, point.high, MOST_DIGITS)


def nats(point: Point) -> str:
    """Write a loss, or a difference of losses."""
    return f"{digits(point)} nats"


def rise(point: Point) -> str:
    """Return by how much a loss rises, with its sign."""
    return f"{'+' if point.value > 0 else ''}{nats(point)}"


def per_cent(point: Point) -> str:
    """Write a share to a tenth of a per cent."""
    return percent(point.value)


def share(point: Point) -> str:
    """Write a share, with more digits where it is small."""
    return fine_percent(point.value)


def rounded(point: Point) -> str:
    """Write a share to a per cent."""
    return percent(point.value, 0)


def best(
    points: Mapping[str, Point], caption: str, *, lowest: bool = False, write: Write = digits, mark: str = ""
) -> str:
    """Return a caption with the highest (or lowest) of some named values and the next.

    mark: what stands in brackets behind the caption; "not separable" joins it where the difference may be zero.
    """
    ranked = sorted(points, key=lambda name: points[name].value, reverse=not lowest)[:2]
    marks = [mark] if mark else []
    if len(ranked) == 2:
        difference = points[ranked[0]] - points[ranked[1]]
        if difference.interval is not None and compare(*(points[name] for name in ranked)) == UNCLEAR:
            marks.append(UNCLEAR)
    return two_numbers(caption, {name: write(points[name]) for name in ranked}, *marks)


def two_numbers(caption: str, values: Mapping[str, str], *marks: str) -> str:
    """Return `CAPTION (marks): name value, name value`."""
    head = f"{caption} ({', '.join(marks)})" if marks else caption
    listed_values = ", ".join(f"{name} {written}" for name, written in values.items())
    return f"{head}: {listed_values}" if values else head


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


# ---- claims ----


def claimed(run: Run, *ids: str, what: str = "") -> str | None:
    """Return the first of some claims that the run's ledger has judged: verdict, sentence, value and interval.

    what: name of the value. None where none is judged: a plain name with two numbers stands there instead.
    """
    claims = {str(c.get("id")): c for c in run.claims}
    for row in (ledger.row(claims[i]) for i in ids if i in claims):
        if row.result == ledger.NONE or row.verdict not in _HEADS:
            continue
        head = _HEADS[row.verdict]
        sentence = _lowered(row.claim) if head and row.claim[1:2].islower() else row.claim
        paper = f", paper {row.printed}" if row.printed != ledger.NONE else ""
        return f"{head}{sentence} ({f'{what} {row.result}'.strip()}{paper})"
    return None


def mark(run: Run, *models: str) -> str:
    """Return why values of some models may still move: too little learned, still learning, or ""."""
    if any(model in run.weak_models for model in models):
        return YOUNG
    return LEARNING if any(unsettled(run.table, model) for model in models) else ""


def finding(*claims: str, caption: str, what: str = "", lowest: bool = False, write: Write = digits) -> Title:
    """Make a rule: the first of some claims that was judged, else a caption with the best two models' ends."""

    def title(run: Run, lines: Sequence[Any]) -> str:
        if verdict := claimed(run, *claims, what=what):
            return verdict
        learned = [line for line in lines if line.name not in run.weak_models] or lines
        chosen: dict[str, Any] = {}  # of each name its best line
        for line in learned:
            if line.name not in chosen or (line.end.value < chosen[line.name].end.value) == lowest:
                chosen[line.name] = line
        values = {f"`{name}` {line.part}".replace(" all", "").rstrip(): line.end for name, line in chosen.items()}
        return best(values, caption, lowest=lowest, write=write, mark=mark(run, *chosen))

    return title


def of_story(
    caption: str,
    points: Callable[[Sequence[Any]], Mapping[str, Point]],
    *claims: str,
    what: str = "",
    write: Write = digits,
) -> Title:
    """Make a rule: the first of some claims that was judged, else a caption with the best two of the story's model.

    caption: with {} for the model. points: of what is drawn in its panel, by name.
    """

    def title(run: Run, drawn: Sequence[Any]) -> str:
        model = story(run, [line.panel for line in drawn])
        values = points([line for line in drawn if line.panel == model])
        title = best(values, caption.format(f"`{model}`"), write=write, mark=mark(run, model))
        return claimed(run, *claims, what=what) or title

    return title


# ---- names ----


def story(run: Run, models: Sequence[str]) -> str:
    """Return the model that a title speaks of: `dstg`, else the first."""
    dstg = run.named("dstg")
    return dstg if dstg is not None and dstg in models else models[0]


def listed(words: Sequence[str], most: int = NAMED + 2) -> str:
    """Join words with commas and "and"; of more than `most` take the first ones."""
    if len(words) > most:
        words = [*words[:NAMED], f"{len(words) - NAMED} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def named(names: Sequence[str]) -> str:
    """Join all of some names, set as code."""
    return listed([f"`{name}`" for name in names], len(names))


def join_sentences(words: Mapping[str, str]) -> str:
    """Join sentences, each after its name; of more than `NAMED` take the first ones."""
    phrases = [f"`{name}` {what}" for name, what in words.items()]
    return "; ".join(phrases if len(phrases) <= NAMED else [*phrases[:NAMED], f"{len(phrases) - NAMED} more below"])


def coded(values: Mapping[str, Point]) -> dict[str, Point]:
    """Return values under names that are set as code."""
    return {f"`{name}`": p for name, p in values.items()}


def at(lines: Sequence[Any], x: float) -> dict[str, Point]:
    """Return name, as code, -> value of the lines at a place."""
    return coded({line.name: line.points[x] for line in lines if x in line.points})


# ---- a run ----


def _two_digits(point: Point) -> str:
    return f"{fixed(point.value, 2)} nats"


def losses(run: Run, lines: Sequence[Any] = ()) -> str:
    """Return the title of the losses: who is on the unigram plateau, else the two lowest."""
    finals = {m: p for m in run.models if (p := run.last("loss", m))}
    if not finals:
        return "Loss while training"
    level = run.plateau()
    stuck = [m for m in finals if m in run.stuck]
    if level is not None and len(stuck) == len(finals):
        return f"No model leaves the unigram plateau of {fixed(level, 2)} nats"
    still = mark(run, *(m for m in finals if m not in run.weak_models))
    end = best(coded(finals), "Loss of all held-out tokens", lowest=True, write=_two_digits, mark=still)
    if level is None or not stuck:
        return end
    verb = "stays" if len(stuck) == 1 else "stay"
    where = "" if max(p.seeds for p in finals.values()) < 2 else " in one seed at least"
    return f"{end}; {listed([f'`{m}`' for m in stuck])} {verb} on the unigram plateau{where}"


def caveats(run: Run) -> list[str]:
    """Return sentences on what a run is too small to tell and what it would need.

    Where no pick says so, the differences of the models beside their schemes follow. A run is small if no model saw
    `SMALL` of the paper's training tokens.
    """

    def subject_of(models: Sequence[str]) -> str:
        return "All" if len(models) == len(run.models) > 1 else named(models)

    def are(models: Collection[str]) -> str:
        return "are" if len(models) > 1 else "is"

    tokens = totals(run, "tokens")
    fewest, most = run.trainings
    sentences = []
    have = "has" if len(run.stuck or run.weak_models) == 1 else "have"
    if (planned := finite(run.facts.get("planned"))) and planned > len(run.entries):
        done = f"{len(run.entries)} of {count(int(planned), 'model')}"
        sentences.append(f"{done} so far: this page is drawn again when every model of a seed is measured.")
    if tokens and max(tokens) < SMALL * PAPER_TOKENS:
        sentences.append(
            f"A small run: {span(tokens)} training tokens a model, where DSTG has {compact(PAPER_TOKENS)}."
        )
    if run.stuck:
        nobody = "No model has" if subject_of(run.stuck) == "All" else f"{named(run.stuck)} {have} not"
        needed = finite(run.facts.get("needed_tokens"))
        rest = f"; models of this size do after about {compact(needed)} tokens" if needed else ""
        sentences.append(f"{nobody} learned more than token frequencies: probes of such a model say little{rest}.")
    elif run.weak_models:
        sentences.append(f"{named(run.weak_models)} {have} learned too little beside the best.")
    if run.weak_models:
        sentences.append(f"{subject_of(run.weak_models)} {are(run.weak_models)} drawn grey.")
    if falls := {m: fall[0] for m in run.models if (fall := unsettled(run.table, m))}:
        sizes = " to ".join(dict.fromkeys(fixed(end(falls.values()), 2) for end in (min, max)))
        learners = "All models are" if subject_of(list(falls)) == "All" else f"{named(list(falls))} {are(falls)}"
        sentences.append(f"{learners} still learning ({sizes} nats in the last tenth of the steps): train longer.")
    # Without tokens, seeds belong to an evaluation, and its figures name them.
    if tokens and most == 1:
        sentences.append(
            "One training seed: intervals are over documents, not over trainings; `--seeds 3` gives those."
        )
    elif tokens and fewest < most:
        sentences.append(f"{fewest} to {most} training seeds a model: intervals between few of them are wide.")
    elif tokens and 1 < most < 5:
        sentences.append(f"{count(most, 'training seed')}: intervals between them are wide.")
    picked = not run.apart and any(run.last("loss", m) for m in run.models)
    return list(filter(None, (" ".join(sentences), "" if picked else schemes.unequal_terms(run))))


def totals(run: Run, name: str) -> list[float]:
    """Return the values of a metric over all models."""
    return [p.value for m in run.models if (p := run.table.point(name, m))]
