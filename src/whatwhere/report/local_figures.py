"""Figure of who does the local work: attention to neighbours by each term alone, over the training."""

import math

from ..points import Point, summary
from . import schemes
from .by_head import TOTAL, colour, documents, in_order, judged, meaning, repeats, sample, short, story, whole
from .figures import Figure, Panel, Table, line, measured, reference, text, value
from .layer_panels import share_axis
from .load import Study
from .numbers import number, percent
from .style import axis, label_margin, layout, line_end_labels
from .training_figures import ticks

MARGIN = 0.02  # of the weight, by which the whole interval must lie ahead: terms without content hardly differ between documents


def neighbours(study: Study) -> Figure | None:
    """Weight on the eight tokens on each side by step, a line a term (mean over heads) with its best head dotted, a panel a model."""
    found = {m: {t: c for t in _terms(study, m) if (c := by_step(study, "local.share", m, t))} for m in study.models}
    found = {m: curves for m, curves in found.items() if curves}
    if not found:
        return None
    best = {(m, t): by_step(study, "local.best", m, t) for m, curves in found.items() for t in curves}
    last = max(step for curves in found.values() for c in curves.values() for step in c)
    every = [p for m, curves in found.items() for t, c in curves.items() for p in (*c.values(), *best[m, t].values())]
    top = min(1.0, 1.05 * max(v for p in every for v in (p.value, p.high) if v is not None))
    right = label_margin([short(t) for curves in found.values() for t in curves])
    panels = [_panel(study, m, curves, best, last, top, right) for m, curves in found.items()]
    told = story(study, list(found))
    over = repeats([p for curves in found.values() for c in curves.values() for p in c.values()], len(study.seeds))
    subtitle = sample(
        "Attention weight on the eight tokens on each side together, by training step (logarithmic, from 0), each term under a softmax of "
        "its own: mean over all heads, and dotted the head with most; even: what equal attention to all tokens would give",
        documents(r for m in found for r in study.of("local.share", m, TOTAL)),
        over,
    )
    rows = [
        [text(m), text(short(t)), value(step, number(step)), *measured(p), value(best[m, t][step].value if step in best[m, t] else None)]
        for m, curves in found.items()
        for t, c in curves.items()
        for step, p in c.items()
    ]
    columns = ["Model", "Term", "Step", "Weight", "Low", "High", "Best head"]
    table = Table("neighbours", "Weight on the eight tokens on each side, by step", columns, rows, frozenset(range(2, 7)))
    title = judged(study, told, leader(study, told))
    records = ("local.share: part, step", "local.best: part, step", "local.lead: part, step", "local.even")
    return Figure("neighbours", title, f"{subtitle}.", panels, table, [], 250 if len(found) > schemes.FEW else 320, True, records=records)


def _terms(study: Study, model: str) -> list[str]:
    """Terms that are drawn; of one term, the sum is that term."""
    terms = in_order(study.parts("local.share", model))
    return [TOTAL] if TOTAL in terms and len(terms) == 2 else terms


def by_step(study: Study, metric: str, model: str, part: str) -> dict[int, Point]:
    """Step -> value of the whole model, at the steps that all seeds have; of `local.best`, of the head that is best at that step."""
    found: dict[int, list] = {}
    for r in study.of(metric, model, part):
        if r.step is not None and (metric == "local.best" or (r.layer is None and r.head is None)):
            found.setdefault(r.step, []).append(r)
    seeds = max((len({r.seed for r in rs}) for rs in found.values()), default=0)
    return {step: p for step in sorted(found) if len({r.seed for r in found[step]}) == seeds and (p := summary(found[step]))}


def _panel(
    study: Study,
    model: str,
    curves: dict[str, dict[int, Point]],
    best: dict[tuple[str, str], dict[int, Point]],
    last: int,
    top: float,
    right: int,
) -> Panel:
    even = whole(study, "local.even", model)
    end = math.log10(1 + last)
    traces = [reference([0, end], [even.value] * 2, "equal attention to all tokens")] if even else []
    ends = [(end, even.value, "even", "combined")] if even else []
    for term, curve in curves.items():
        for points, dash, size, width, what in ((best[model, term], "2px,4px", 5, 1.4, "best head"), (curve, "solid", 7, 2.4, "mean")):
            places = {math.log10(1 + step): f"{short(term)}, step {number(step)}" for step in points}
            at = {math.log10(1 + step): p for step, p in points.items()}
            traces += line(at, colour(term), dash, "circle", model, places, size=size, width=width, what=what)
        ends.append((math.log10(1 + max(curve)), curve[max(curve)].value, short(term), colour(term)))
    marks = [0, *(10**k for k in range(math.ceil(end)) if 10**k <= last)]
    x = axis(
        "training step", range=[-0.02 * end, 1.02 * end], tickvals=[math.log10(1 + m) for m in marks], ticktext=[number(m) for m in marks]
    )
    bounds, height, margin = (-0.02 * top, top), 270, {"l": 60, "r": right, "t": 8, "b": 50}
    y = share_axis("", bounds, ticks(top, 4))
    notes = line_end_labels(ends, bounds, height - margin["t"] - margin["b"])
    said = ", ".join(f"{short(t)} {percent(c[max(c)].value, 0)}" for t, c in curves.items())
    return Panel(traces, layout(height, x, y, margin, annotations=notes), model, f"{model}, weight on neighbours at the last step: {said}.")


def leader(study: Study, model: str) -> str:
    """Which term alone attends to neighbours most, and from which step on.

    It leads at a step where the whole interval of `local.lead` lies above `MARGIN`; one that is not as far above equal attention to all
    tokens does no local work.
    """
    shares = {t: by_step(study, "local.share", model, t) for t in _terms(study, model)}
    last = max(step for curve in shares.values() for step in curve)
    now = {t: curve[last] for t, curve in shares.items() if last in curve}
    if (terms := [t for t in now if t != TOTAL]) and len(terms) > 1:
        first, second = sorted(terms, key=lambda t: -now[t].value)[:2]
        values = f"{percent(now[first].value, 0)} and {percent(now[second].value, 0)} of the weight alone on the eight tokens on each side"
        even = whole(study, "local.even", model)
        if even and now[first].value < even.value + MARGIN:
            return f"No term of `{model}` attends to neighbours more than to other tokens: {meaning(first)} and {meaning(second)}, {values}"
        lead = by_step(study, "local.lead", model, first)
        if last not in lead or not _ahead(lead[last]):
            return f"Not separable which term of `{model}` attends to neighbours most: {meaning(first)} and {meaning(second)}, {values}"
        behind = [step for step, p in lead.items() if not _ahead(p)]
        since = min(step for step in lead if step > max(behind, default=-1))
        return f"In `{model}`, {meaning(first)} attends to neighbours most from step {number(since)} on, before {meaning(second)}: {values}"
    return f"Heads of `{model}` give {percent(next(iter(now.values())).value, 0)} of their weight to the eight tokens on each side"


def _ahead(lead: Point) -> bool:
    return (lead.value if lead.low is None else lead.low) > MARGIN
