"""Curves of a geometry run: stress against dimensions, fit to other documents against rank, and position tables over training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..points import Point
from . import geometry_findings as findings
from .figures import Cell, Figure, Panel, Table, Trace, line, measured, raised, text, value
from .geometry_figures import band, curve, wide
from .geometry_fits import SMALLEST, colour, shown
from .geometry_load import CORRECTED, Geometry
from .numbers import number, percent
from .style import LABEL_LIMIT, TEXT_SIZE, axis, label_margin, layout, line_end_labels, log_axis, model_styles, plain

HEIGHT = 300
# Encoding -> (dash, marker, width) of its curve. What rope and sinusoids do is nearly the same: a dashed line over a wide solid one.
MARKS = {
    "sinusoidal": ("solid", "circle", 5.0),
    "rope": ("8px,8px", "triangle-up", 2.0),
    "mds": ("9px,3px", "square", 2.0),
    "smacof": ("dot", "diamond", 2.0),
}
COINCIDE = 0.1  # of the larger value: curves that nowhere differ by more are called so


def dimensions(run: Geometry) -> Figure | None:
    """Stress against the dimensions of a table, raw and at the best scale, on logarithmic axes."""
    panels, rows = [], []
    raw_curves: dict[str, dict[str, dict[int, Point]]] = {}
    for metric, words in (("stress.optimal", "at the best scale"), ("stress.raw", "raw")):
        suffix = CORRECTED if any(run.parts(metric + CORRECTED, c.name) for c in run.corpora) else ""
        curves = {
            c.name: {p: k for p in run.parts(metric + suffix, c.name) if len(k := run.by_index(metric + suffix, c.name, p)) > 1}
            for c in run.corpora
        }
        curves = {name: lines for name, lines in curves.items() if lines}
        if not curves:
            continue
        if metric == "stress.raw":
            raw_curves = curves
        every = [p.value for lines in curves.values() for k in lines.values() for p in k.values()]
        dims = sorted({d for lines in curves.values() for k in lines.values() for d in k if d > 0})
        lows = [p.low for lines in curves.values() for k in lines.values() for p in k.values() if p.low is not None]
        limits = (math.log10(max(SMALLEST, min([*every, *lows]))), math.log10(max(*every, SMALLEST * 10)) + 0.15)
        limits = (limits[0] - 0.14 * (limits[1] - limits[0]), limits[1])  # a label under the lowest point
        styles = dimension_styles(list(dict.fromkeys(p for lines in curves.values() for p in lines)))
        right = label_margin(list(styles))
        for name, lines in curves.items():
            traces: list[Trace] = []
            ends, under = [], []
            for encoding, points in lines.items():
                dash, symbol, thick = styles[encoding]
                held = {float(d): raised(p, SMALLEST) for d, p in points.items() if d > 0}
                places = {d: f"{d:g} dimensions" for d in held}
                traces += line(held, colour(encoding), dash, symbol, f"{name}, {encoding}", places, size=7, width=thick, what="stress")
                last = max(held)
                if last < dims[-1]:
                    under.append(_label_under(last, held[last], encoding))
                else:
                    ends.append((math.log10(last), math.log10(held[last].value), encoding, colour(encoding)))
                rows += [[text(name), text(words), text(encoding), value(d, f"{d:,}"), *measured(p)] for d, p in points.items()]
            margin = {"l": 66, "r": right, "t": 10, "b": 52}
            x_limits = [math.log10(dims[0]) - 0.08, math.log10(dims[-1]) + 0.05]
            ticks = [d for i, d in enumerate(dims) if i == 0 or len(dims) < 7 or (len(dims) - 1 - i) % 2 == 0]
            plot = layout(
                HEIGHT,
                axis("dimensions", type="log", range=x_limits, tickvals=ticks, ticktext=[f"{d:,}" for d in ticks], showgrid=False),
                log_axis("stress", 10 ** limits[0], 10 ** limits[1]),
                margin,
                annotations=line_end_labels(ends, limits, HEIGHT - margin["t"] - margin["b"]) + under,
            )
            panels.append(
                Panel(
                    traces,
                    plot,
                    f"{name}, {words}" if len(run.corpora) > 1 else words.capitalize(),
                    f"Stress by dimensions of {name}: {', '.join(lines)}.",
                )
            )
    if not panels:
        return None
    which = "corrected" if any(run.parts("stress.raw" + CORRECTED, c.name) for c in run.corpora) else "as counted"
    subtitle = (
        f"Stress of tables with more and more dimensions against the distances ({which}), on logarithmic axes. Raw stress of a table of "
        f"fixed entries grows with its dimensions, for its distances do; values below {SMALLEST:g} are drawn there."
    )
    if raw_curves and all(_coincide(lines.get("rope", {}), lines.get("sinusoidal", {})) for lines in raw_curves.values()):
        subtitle += " `rope` (dashed, on top) and `sinusoidal` (solid) nearly coincide."
    heads = ["Corpus", "Scale", "Encoding", "Dimensions", "Stress", "Low", "High"]
    table = Table("dimensions", "Stress by dimensions", heads, rows, frozenset(range(3, 7)))
    return Figure("dimensions", findings.growth(raw_curves), subtitle, panels, table, width=wide(run.corpora) - 60, even=True)


def dimension_styles(encodings: Sequence[str]) -> dict[str, tuple[str, str, float]]:
    """Encoding -> (dash, marker, width); those without marks of their own get some that no other has."""
    others = model_styles([e for e in encodings if e not in MARKS])
    return {e: MARKS.get(e) or (*others[e], 2.0) for e in encodings}


def _coincide(one: Mapping[int, Point], other: Mapping[int, Point]) -> bool:
    both = [(one[d].value, other[d].value) for d in one if d in other]
    return bool(both) and all(abs(a - b) <= COINCIDE * max(abs(a), abs(b)) for a, b in both)


def _label_under(dimensions: float, point: Point, encoding: str) -> dict[str, Any]:
    """The name of a line that ends inside the plot, under its last point, where no other line goes on."""
    low = point.value if point.low is None else point.low
    place = {"x": math.log10(dimensions), "y": math.log10(low), "yshift": -13, "xanchor": "center", "yanchor": "middle"}
    font = {"size": TEXT_SIZE, "color": f"@ink-{colour(encoding)}"}
    return place | {"text": plain(encoding, LABEL_LIMIT), "showarrow": False, "font": font}


def held_out(run: Geometry) -> Figure | None:
    """Stress of tables fitted on half of the documents against the other half, by rank; fixed encodings as levels."""
    fitted = {c.name: k for c in run.corpora if len(k := run.by_index("stress.held_out", c.name, "mds")) > 1}
    if not fitted:
        return None
    fixed = {c: {p: v for p in run.parts("stress.held_out", c) if (v := run.point("stress.held_out", c, p)) is not None} for c in fitted}
    every = [p.value for k in fitted.values() for p in k.values()] + [p.value for k in fixed.values() for p in k.values()]
    low, high = max(SMALLEST, min(every)) / 1.4, max(*every, SMALLEST * 10) * 1.4
    right = label_margin(["mds", *(shown(e) for found in fixed.values() for e in found)])
    margin = {"l": 66, "r": right, "t": 10, "b": 52}
    panels, rows = [], []
    for name, points in fitted.items():
        ranks = list(points)
        traces: list[Trace] = []
        ends = []
        for encoding, point in fixed[name].items():
            level = max(point.value, SMALLEST)
            traces.append(curve([ranks[0], ranks[-1]], [level] * 2, colour(encoding), encoding, "6px,5px", 1.4, "rank"))
            ends.append((math.log10(ranks[-1]), math.log10(level), shown(encoding), colour(encoding)))
            rows.append([text(name), text(encoding), Cell(""), *measured(point)])
        held = {float(r): raised(p, SMALLEST) for r, p in points.items()}
        traces += line(held, "absolute", "solid", "circle", f"{name}, mds", {r: f"rank {r:g}" for r in held}, size=7, what="stress")
        ends.append((math.log10(ranks[-1]), math.log10(held[ranks[-1]].value), "mds", "absolute"))
        rows += [[text(name), text("mds"), value(r, str(r)), *measured(p)] for r, p in points.items()]
        ticks = _rank_ticks(ranks)
        x = axis("rank", type="log", range=[math.log10(ranks[0]) - 0.04, math.log10(ranks[-1]) + 0.02], showgrid=False)
        x |= {"tickvals": ticks, "ticktext": [f"{t:,}" for t in ticks]}
        notes = line_end_labels(ends, (math.log10(low), math.log10(high)), HEIGHT - margin["t"] - margin["b"])
        plot = layout(HEIGHT, x, log_axis("stress on other documents", low, high), margin, annotations=notes)
        said = f"Stress on documents not fitted, by rank, of {name}: {', '.join(f'{number(p.value)} at {r}' for r, p in points.items())}."
        panels.append(Panel(traces, plot, name if len(run.corpora) > 1 else "", said))
    subtitle = (
        "Tables made from one half of the documents, held against the corrected distances of the other half at their best scale, mean "
        "over random halves. More dimensions fit the noise of the first half; the lowest values are what the corpus supports, and ranks "
        f"within {percent(findings.ALIKE, 0)} of the lowest are named together. Dashed: encodings that were fitted to nothing."
    )
    if any(findings.EQUAL in found for found in fixed.values()):
        subtitle += " All equally far: every two positions at the same distance, which says nothing about position."
    table = Table(
        "held-out", "Stress on documents not fitted", ["Corpus", "Encoding", "Rank", "Stress", "Low", "High"], rows, frozenset(range(2, 6))
    )
    return Figure(
        "held-out", findings.supported_rank(fitted, fixed), subtitle, panels, table, width=wide(run.corpora) - 60, even=len(panels) > 1
    )


def _rank_ticks(ranks: Sequence[int]) -> list[int]:
    """Ranks that are named on the axis: from the last down, those that stand far enough from the one before."""
    kept = [ranks[-1]]
    for r in reversed(ranks[:-1]):
        if math.log(kept[-1] / r) > 0.09 * math.log(ranks[-1] / ranks[0]):
            kept.append(r)
    return kept[::-1]


# metric, index -> title of its panel; a percentile of the distances has a band of others around it
SEPARATION: dict[tuple[str, int | None], str] = {
    ("separation", None): "smallest distance of two positions",
    ("separation.quantile", 50): "distances of all pairs: median, band 5 to 95\u202f%",
    ("violations", None): "triples out of order",
    ("stress.optimal", None): "stress at the best scale",
    ("n50", None): "components for half the variance, per cent",
    ("change", None): "change since the first checkpoint, over its size",
}
BAND = (5, 95)


def step_place(step: int, first: int) -> float:
    """Where a step stands on the axis: linear up to `first`, logarithmic beyond, so that step 0 has a place."""
    return math.log1p(step / max(first, 1))


def separation(run: Geometry) -> Figure | None:
    """Separation, order, stress and spectrum of the position tables of models, over the steps of their training."""
    panels, rows = [], []
    for (metric, index), words in SEPARATION.items():
        if curves := {m: k for m in run.models if len(k := run.by_step(metric, m, index)) > 1}:
            panels.append(_steps_panel(run, metric, curves, words))
            rows += [[text(m), text(words), value(s, f"{s:,}"), *measured(p)] for m, k in curves.items() for s, p in k.items()]
    if not panels:
        return None
    ends = {m: (k[min(k)], k[max(k)]) for m in run.models if (k := run.by_step("separation", m))}
    title = findings.separated(ends) if ends else "Position tables over training"
    subtitle = (
        "The position table of each model at its kept checkpoints, one training seed, no interval; steps on a logarithmic axis that "
        f"begins at 0. Distances are Euclidean, between rows of the table: {_rows_said(run)}."
    )
    table = Table("separation", "Tables over training", ["Model", "What", "Step", "Value", "Low", "High"], rows, frozenset(range(2, 6)))
    return Figure("separation", title, subtitle, panels, table, width=400, even=True)


ROWS = {"corpus": "those of the positions that the first corpus supports", "used": "those that training texts reach", None: "all of them"}


def _rows_said(run: Geometry) -> str:
    """Which rows are told of: once for all models, or one model after the other where they differ."""
    drawn = {m: {run.rows_of(metric, m) for metric, _ in SEPARATION if run.has_steps(metric, m)} for m in run.models}
    said = {m: " or ".join(words for part, words in ROWS.items() if part in parts) for m, parts in drawn.items() if parts}
    return next(iter(said.values())) if len(set(said.values())) == 1 else findings.each(said)


def _steps_panel(run: Geometry, metric: str, curves: Mapping[str, Mapping[int, Point]], words: str) -> Panel:
    styles = model_styles(run.models)
    bands = {m: [run.by_step(metric, m, q) for q in BAND] for m in curves} if metric == "separation.quantile" else {}
    steps = sorted({s for k in curves.values() for s in k})
    first = next((s for s in steps if s > 0), 1)
    drawn = [*curves.values(), *(k for pair in bands.values() for k in pair)]
    every = [end for k in drawn for p in k.values() for end in (p.value, p.high, p.low) if end is not None]
    limits = (min(0.0, *every) - 0.02 * max(every), max(every) * 1.08 or 1.0)
    traces: list[Trace] = []
    ends = []
    for low, high in bands.values():
        both = [s for s in low if s in high]
        places = [step_place(s, first) for s in both]
        traces.append(band(places, [low[s].value for s in both], [high[s].value for s in both], "absolute"))
    for model, points in curves.items():
        held = {step_place(s, first): p for s, p in points.items()}
        places_said = {step_place(s, first): f"step {s:,}" for s in points}
        traces += line(held, "absolute", *styles[model], model, places_said, size=7, width=2.0, what=words)
        ends.append((max(held), held[max(held)].value, model, "absolute"))
    margin = {"l": 62, "r": label_margin(run.models), "t": 10, "b": 52}
    ticks, last = _ticks(steps, first), step_place(steps[-1], first) or 1.0
    x = axis("step", range=[-0.03 * last, last * 1.03], showgrid=False)
    x |= {"tickvals": [step_place(s, first) for s in ticks], "ticktext": [f"{s:,}" for s in ticks]}
    y = axis("", range=list(limits), nticks=5, **({"tickformat": ".0%"} if metric == "violations" else {}))
    plot = layout(260, x, y, margin, annotations=line_end_labels(ends, limits, 260 - margin["t"] - margin["b"]))
    return Panel(traces, plot, words[0].upper() + words[1:], f"{words[0].upper() + words[1:]} over the steps of {', '.join(curves)}.")


def _ticks(steps: Sequence[int], first: int) -> list[int]:
    """Steps that are named on the axis: from the last down, those that stand far enough from the one before."""
    whole = step_place(steps[-1], first) or 1.0
    kept = [steps[-1]]
    for s in reversed(steps[:-1]):
        if step_place(kept[-1], first) - step_place(s, first) > 0.14 * whole:
            kept.append(s)
    return kept[::-1]


def hypotheses(run: Geometry) -> Table | None:
    """H1 and H3 of GEOM on models: smallest distance of mean embeddings, and of their images in the head where it is smallest.

    H3 has two matrices, M and its transpose, which are never mixed: each has its own smallest head.
    """
    found: dict[tuple[str, str, str, int | None, int | None], dict[str, float]] = {}
    for r in run.records:
        metric, _, what = r.metric.partition(".")
        if metric in ("h1", "h3") and math.isfinite(r.value):
            found.setdefault((r.model, metric.upper(), r.part or "", r.layer, r.head), {})[what or "smallest"] = r.value
    smallest: dict[tuple[str, str, str, int | None], dict[str, float]] = {}
    for (*place, _), values in found.items():
        kept = smallest.setdefault(tuple(place), values)  # type: ignore[arg-type]
        if values.get("smallest", math.inf) < kept.get("smallest", math.inf):
            smallest[tuple(place)] = values  # type: ignore[index]
    order = list(dict.fromkeys(model for model, *_ in smallest))
    rows = [
        [text(model), text(condition), text(part.replace("^T", "ᵀ")), value(layer, str(layer)) if layer is not None else Cell("")]
        + [value(values[k], f"{values[k]:.3g}") if k in values else Cell("–") for k in ("smallest", "floor", "median")]
        for (model, condition, part, layer), values in sorted(
            smallest.items(), key=lambda i: (order.index(i[0][0]), *i[0][1:3], -1 if i[0][3] is None else i[0][3])
        )
    ]
    caption = (
        "Distances of positions in a model: mean embeddings (H1), and M or Mᵀ times them in the head where the smallest is smallest (H3; "
        "the condition names M, the proof of the theorem uses Mᵀ)"
    )
    heads = ["Model", "Condition", "Matrix", "Layer", "Smallest", "Between halves", "Median"]
    return Table("hypotheses", caption, heads, rows, frozenset(range(3, 7))) if rows else None
