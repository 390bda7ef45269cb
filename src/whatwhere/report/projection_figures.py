"""Figures of position tables inside a model: their stress behind each layer's M = W_Qᵀ W_K (GEOM 6.8), and over training (6.5, 6.6)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..points import Point, summary
from . import geometry_curves, schemes
from .figures import Figure, Panel, Table, Trace, line, measured, paper_marks, raised, text, value
from .findings import ABOVE, BELOW, compare
from .geometry_load import CORRECTED, Geometry
from .layer_panels import MOST_LINES, many, styles
from .load import Study
from .numbers import count, fixed, number, percent
from .probe_figures import UNTRAINED, before
from .style import axis, label_margin, layout, line_end_labels, log_axis

RAW, OPTIMAL = "projected.stress.raw", "projected.stress.optimal"
SCALES = {RAW: "raw", OPTIMAL: "best scale"}
PARTS = {"sinusoidal": "sinusoidal", "own": "own table"}  # part -> its name at the end of a line
COLOURS = {"sinusoidal": "combined", "own": "absolute"}
SMALLEST = 1e-4  # stress that a logarithmic axis still shows
# GEOM figure 8, pretrained BERT-base on SST-2, raw stress as its caption has it; layers 4 to 11 lie between 1,100 and 1,900.
PAPER, PAPER_DEPTH = {3: 5000.0, 12: 2500.0}, 12
# Of a table over the steps of a training: what a study's page draws, each with the part that `Geometry.rows_of` takes first.
ROWS = {"corpus": "those of the corpus's positions", "used": "those that training texts reach", None: "all of them"}
OVER_STEPS = ("separation", "violations", "stress.optimal")
Lines = dict[tuple[str, str], dict[int, Point]]  # (model, part) -> layer -> stress


def figures(study: Study) -> list[Figure]:
    """Stress behind M by layer, and separation and order of the models' tables over training."""
    return [f for f in (projected(study), over_steps(study)) if f is not None]


def _ending(study: Study) -> str:
    """Against which distances stress is drawn: the corrected ones, where there are any."""
    return CORRECTED if any(r.metric == OPTIMAL + CORRECTED or r.metric == RAW + CORRECTED for r in study.records) else ""


def _lines(study: Study, metric: str, step: int | None = None) -> Lines:
    found = {(m, part): study.curve(metric + _ending(study), m, part, step) for part in PARTS for m in study.models}
    return {(m, part): _everywhere(curve, study.depth(m), part) for (m, part), curve in found.items() if curve}


def _everywhere(curve: dict[int, Point], depth: int, part: str) -> dict[int, Point]:
    """A model's own table that one matrix reads for all blocks (TUPE) was measured once: its value stands at each layer."""
    return curve | {layer: curve[1] for layer in range(2, depth + 1)} if part == "own" and set(curve) == {0, 1} else curve


def projected(study: Study) -> Figure | None:
    """Stress of the sinusoidal table and of a model's own behind M of every layer: raw, and at the best scale."""
    by_scale = {metric: lines for metric in SCALES if (lines := _lines(study, metric))}
    if not by_scale:
        return None
    panels = [panel for metric, lines in by_scale.items() for panel in _panels(study, metric, lines)]
    points = [p for lines in by_scale.values() for curve in lines.values() for p in curve.values()]
    published = RAW in by_scale and any(study.depth(m) == PAPER_DEPTH for m, _ in by_scale[RAW])
    untrained = {metric: _lines(study, metric, UNTRAINED) for metric in by_scale}
    rows = [
        [text(when), text(SCALES[metric]), text(m), text(PARTS[part]), value(layer, str(layer)), *measured(p), value(p.seeds, str(p.seeds))]
        for when, found in (("this run", by_scale), ("before training", untrained))
        for metric, lines in found.items()
        for (m, part), curve in lines.items()
        for layer, p in curve.items()
    ]
    columns = ["Source", "Scale", "Model", "Table", "Layer", "Stress", "Low", "High", "Seeds"]
    key = [("dot", "measured")]
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")] if any(p.low is not None for p in points) else key
    return Figure(
        "projected",
        title(by_scale.get(OPTIMAL, {}), by_scale.get(RAW, {})),
        _subtitle(study, points, published),
        panels,
        Table("projected", "Stress behind M by layer; layer 0 is the table itself", columns, rows, frozenset(range(4, 9))),
        key
        + ([("before", "the same model before training")] if any(untrained.values()) and not many(study) else [])
        + ([("paper", "GEOM, BERT-base on SST-2")] if published else []),
        400,
        even=True,
        records=tuple(f"{metric}{_ending(study)}: layer, part = sinusoidal or own" for metric in by_scale),
    )


def title(optimal: Lines, raw: Lines) -> str:
    """Does M move the sinusoidal table away from the corpus? By the stress at the best scale, since raw stress is a matter of scale.

    Worse, better: the interval of the difference from the table itself (layer 0) lies above, below zero; all layers of all models are
    counted. Without intervals the numbers stand alone.
    """
    lines, scale = (optimal, "at the best scale") if optimal else (raw, "raw")
    by_part = {p: [c for (_, part), c in lines.items() if part == p and 0 in c and len(c) > 1] for p in PARTS}
    part = next((p for p, found in by_part.items() if found), None)
    if part is None:
        return "Stress of position tables behind M, layer by layer"
    curves, what = by_part[part], {"sinusoidal": "the sinusoidal table", "own": "a model's own table"}[part]
    itself = _span([c[0] for c in curves])
    behind = _span([p for c in curves for layer, p in c.items() if layer])
    numbers = f"stress {scale} {itself} itself, {behind} behind M"
    if all(p.low is None for c in curves for p in c.values()):
        return f"{what[0].upper()}{what[1:]}: {numbers} (no intervals)"
    sides = [compare(p, c[0]) for c in curves for layer, p in c.items() if layer]
    worse, better = sides.count(ABOVE), sides.count(BELOW)
    layers = count(len(sides), "layer")
    if not worse and not better:
        return f"Not separable whether M moves {what} away from the corpus: {numbers}"
    if worse and better:
        return f"Behind M, {what} fits the corpus worse in {worse}, better in {better} of {layers}: {numbers}"
    return f"Behind M, {what} fits the corpus {'worse' if worse else 'better'} in {worse or better} of {layers}: {numbers}"


def _span(points: Sequence[Point]) -> str:
    low, high = min(points, key=lambda p: p.value), max(points, key=lambda p: p.value)
    said = [number(p.value, p.low, p.high, 3) for p in (low, high)]
    return said[0] if said[0] == said[1] else f"{said[0]} to {said[1]}"


def _panels(study: Study, metric: str, lines: Lines) -> list[Panel]:
    """One panel a scale; where lines are many, one a table and at most `MOST_LINES` models."""
    every = [p for found in (lines, _lines(study, metric, UNTRAINED)) for curve in found.values() for p in curve.values()]
    ends = [end for p in every for end in (p.value, p.low, p.high) if end is not None]
    if metric == RAW and any(study.depth(m) == PAPER_DEPTH for m, _ in lines):
        ends += PAPER.values()
    heading = SCALES[metric].capitalize()
    if len(lines) <= MOST_LINES and not many(study):
        both = len({part for _, part in lines}) > 1
        return [_panel(study, metric, heading, lines, {key: _label(*key) if both else key[0] for key in lines}, ends)]
    panels = []
    for part, words in PARTS.items():
        own = [key for key in lines if key[1] == part]
        for i in range(0, len(own), MOST_LINES):
            piece = own[i : i + MOST_LINES]
            name = f"{heading}, {words}" + (f" ({i // MOST_LINES + 1})" if len(own) > MOST_LINES else "")
            panels.append(_panel(study, metric, name, {k: lines[k] for k in piece}, {k: k[0] for k in piece}, ends))
    return panels


def _label(model: str, part: str) -> str:
    short = {"sinusoidal": "sin.", "own": "own"}[part]
    return f"{model if len(model) < 13 else model[:11] + '…'} {short}"


def _panel(study: Study, metric: str, heading: str, lines: Lines, labels: Mapping[tuple[str, str], str], every: Sequence[float]) -> Panel:
    raw = metric == RAW
    depth = max(layer for curve in lines.values() for layer in curve)
    marks = styles(study)
    traces: list[Trace] = []
    ends = []
    for (model, part), curve in lines.items():
        colour = COLOURS[part]
        if not many(study):
            start = _lines(study, metric, UNTRAINED).get((model, part), {})
            start = {i: raised(p, SMALLEST) for i, p in start.items()} if raw else start
            traces += before(start, colour, f"{model}, {PARTS[part]}", "stress")
        places = {float(i): f"behind M of layer {i}" for i in curve} | {0.0: "the table itself"}
        held = {float(i): raised(p, SMALLEST) if raw else p for i, p in curve.items()}
        traces += line(held, colour, *marks[model], f"{model}, {PARTS[part]}", places, size=7, width=2.0, what="stress")
        if raw and part == "sinusoidal" and study.depth(model) == PAPER_DEPTH:
            where = {float(k): f"layer {k} of {PAPER_DEPTH}" for k in PAPER}
            traces.append(paper_marks({float(k): v for k, v in PAPER.items()}, colour, marks[model][1], "BERT-base", where, "stress"))
        last = held[max(held)].value
        ends.append((max(held), math.log10(last) if raw else last, labels[model, part], colour))
    height, margin = 320, {"l": 66, "r": label_margin(list(labels.values())), "t": 8, "b": 52}
    if raw:
        low, high = max(SMALLEST, min((v for v in every if v > 0), default=SMALLEST)) / 1.5, max(*every, SMALLEST * 10) * 1.5
        y, bounds = log_axis("raw stress", low, high), (math.log10(low), math.log10(high))
    else:
        top = max(*every, 1e-3)
        bounds = (min(0.0, *every) - 0.03 * top, 1.06 * top)
        y = axis("stress at the best scale", range=list(bounds), nticks=5)
    x = axis(
        "layer (0: the table itself)",
        range=[-0.03 * depth - 0.02, depth * 1.03 + 0.02],
        tickvals=list(range(0, depth + 1, 1 if depth <= 8 else 2)),
        showgrid=False,
    )
    plot = layout(height, x, y, margin, annotations=line_end_labels(ends, bounds, height - margin["t"] - margin["b"]))
    said = "; ".join(f"{m} {PARTS[p]}: {', '.join(number(v.value) for v in curve.values())}" for (m, p), curve in lines.items())
    return Panel(traces, plot, heading, f"Stress behind M by layer, {heading}. {said}.")


def _over(points: Sequence[Point], over: str = "documents") -> str:
    seeds = max((p.seeds for p in points), default=0)
    if any(p.over == "seeds" for p in points):
        return f"mean over {count(seeds, 'training seed')}, {percent(0.95, 0)} interval between seeds"
    bounded = f", {percent(0.95, 0)} interval over {over}" if any(p.low is not None for p in points) else ", no interval"
    return f"one training seed{bounded}"


def _subtitle(study: Study, points: Sequence[Point], published: bool) -> str:
    said = (
        "Stress of a position table multiplied by M = W_Qᵀ W_K of each layer, against the Hellinger distances of the corpus"
        f"{' without noise' if _ending(study) else ''}, the sinusoidal table in grey and the model's own in colour. Raw stress grows with "
        "the size of M, which is arbitrary; at the best scale only the shape counts. Norms, biases and earlier blocks are left out. "
        f"{_over(points)[0].upper()}{_over(points)[1:]}."
    )
    if any(p.value < SMALLEST for p in points):
        said += f" Raw values below {SMALLEST:g} are drawn there."
    layers = f"{number(PAPER[3])} in layer 3, 1,100 to 1,900 in layers 4 to 11, {number(PAPER[12])} in layer 12"
    more = "Hollow: GEOM figure 8" if published else "GEOM figure 8"
    return f"{said} {more}, raw, pretrained BERT-base (12 layers) on SST-2: about {layers}."


def over_steps(study: Study) -> Figure | None:
    """Smallest distance, order and stress of the models' position tables over the steps of their training (GEOM figures 5 and 6)."""
    groups: dict[tuple[str, str, str | None, int], list[Any]] = {}
    for r in study.records:
        if r.step is not None and r.metric in OVER_STEPS and r.index is None and r.layer is None and r.model in study.models:
            groups.setdefault((r.metric, r.model, r.part, r.step), []).append(r)
    points = {key: p for key, found in groups.items() if (p := summary(found)) is not None}
    # One record a step with what the seeds give together, since the figure of a geometry run draws one seed.
    records = [replace(groups[key][0], value=p.value, low=p.low, high=p.high, seed=None, n=p.n) for key, p in points.items()]
    run = Geometry(study.name, {}, records)
    figure = geometry_curves.separation(run)
    if figure is None:
        return None
    drawn = [p for (metric, model, part, _), p in points.items() if part == run.rows_of(metric, model)]
    rows_of = {run.rows_of(metric, model) for metric, model, _, _ in points}
    rows_said = " or ".join(words for part, words in ROWS.items() if part in rows_of)
    subtitle = (
        f"The position table of each model at its kept checkpoints; {_over(drawn, 'triples')}; steps on a logarithmic axis from 0. Rows "
        f"of the table: {rows_said}. GEOM, BERT-base on SST-2: smallest distance {fixed(0.70, 2)} from scratch "
        f"and {fixed(0.35, 2)} pretrained, flat; triples out of order {percent(0.482)} and {percent(0.254)}."
    )
    shown = {m for _, m, _, _ in points}
    still = [f"`{m}`" for m in study.models if m in shown and schemes.fixed_table(study, m)]
    subtitle += f" Fixed, not learned: {', '.join(still)}." if still else ""
    return replace(
        figure,
        id="table-steps",
        width=300,
        subtitle=subtitle,
        table=replace(figure.table, id="table-steps"),
        records=tuple(f"{metric}: step, part" for metric in OVER_STEPS if any(k[0] == metric for k in points)),
    )
