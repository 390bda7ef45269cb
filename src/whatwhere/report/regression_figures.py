"""Figure of what other models hold of the two streams: their hidden states regressed onto `dstg`'s, layer by layer (DSTG B.2, figure 8)."""

from collections.abc import Mapping

from ..points import Point
from . import findings, schemes
from .figures import MOST_DIGITS, Cell, Figure, Panel, Table, Trace, line, measured, reference, repeats, text, value
from .findings import ABOVE, BELOW, NAMED, PRESENT, UNCLEAR, against
from .layer_panels import MOST_LINES, WORDS, groups, r2_axis, styles
from .load import Study
from .numbers import count, number, percent
from .style import axis, label_margin, layout, line_end_labels
from .training_figures import stuck_models

STREAMS = ("position", "semantic")
LOWEST = -0.3  # smallest R² that an axis shows, as for the probes
Curves = dict[str, dict[int, Point]]  # baseline -> layer -> R²


def metric_of(stream: str) -> str:
    """The metric of the regression onto a stream."""
    return f"regression.{stream}"


def figures(study: Study) -> list[Figure]:
    """A figure for each model whose streams others were regressed onto."""
    found = {r.part for r in study.records if r.part and r.metric in (metric_of(STREAMS[0]), metric_of(STREAMS[1]))}
    references = [m for m in study.models if m in found] + sorted(found - set(study.models))
    return [f for f in (_figure(study, name) for name in references) if f is not None]


def _curves(study: Study, stream: str, name: str, ending: str = "") -> Curves:
    found = {m: study.curve(metric_of(stream) + ending, m, name) for m in study.models if m != name}  # its own streams it has
    return {m: curve for m, curve in found.items() if curve}


def _still(study: Study, name: str, stream: str, model: str) -> frozenset[int]:
    """Layers of a model whose counterpart in `name`'s stream no gradient reaches; of models of unequal depth at the same relative depth."""
    depth, own = study.depth(name), study.depth(model)
    return frozenset(layer for layer in range(own + 1) if round(layer * depth / own) > study.trained_until(name, stream))


def _floor(study: Study, stream: str, name: str) -> dict[int, float]:
    """Layer -> largest R² that any regression of that layer reaches on shuffled targets."""
    floor: dict[int, float] = {}
    for curve in _curves(study, stream, name, ".chance").values():
        for layer, p in curve.items():
            floor[layer] = max(floor.get(layer, p.value), p.value)
    return dict(sorted(floor.items()))


def _figure(study: Study, name: str) -> Figure | None:
    streams = {s: curves for s in STREAMS if (curves := _curves(study, s, name))}
    points = [p for curves in streams.values() for curve in curves.values() for p in curve.values()]
    if not points:
        return None
    floors = {s: _floor(study, s, name) for s in streams}
    ends = [v for p in points for v in (p.value, p.low, p.high) if v is not None] + [v for f in floors.values() for v in f.values()]
    bounds = (max(LOWEST, min([*ends, 0.0]) - 0.05), max([*ends, 1.0]) + 0.04)
    panels = [panel for s, curves in streams.items() for panel in _panels(study, name, s, curves, floors[s], bounds)]
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")]
    if any(_still(study, name, s, m) & set(curve) for s, curves in streams.items() for m, curve in curves.items()):
        key.append(("untrained", "no gradient reaches it"))
    if any(floors.values()):
        key.append(("chance", "best R² on shuffled targets"))
    safe = "" if name == study.named("dstg") else f"-{sorted({*study.models, name}).index(name)}"
    return Figure(
        f"regression{safe}",
        title(study, name, streams),
        _subtitle(name, points),
        panels,
        _table(study, name, streams, f"regression{safe}"),
        key,
        400,
        even=True,
        records=(*(f"{metric_of(s)}: model = baseline, part = {name}, layer, index" for s in streams),),
    )


def title(study: Study, name: str, streams: Mapping[str, Curves]) -> str:
    """Which baselines predict the position stream of `name`, by the rule of `predicted`; models on the unigram plateau support nothing."""
    stuck = stuck_models(study)
    best = {
        s: {m: p for m, curve in curves.items() if m not in stuck and (p := _best(curve, _still(study, name, s, m))) is not None}
        for s, curves in streams.items()
    }
    said = predicted(name, best.get("position", {}), best.get("semantic", {}))
    return findings.untestable(name, said) if name in stuck else said


def _best(curve: Mapping[int, Point], still: frozenset[int]) -> Point | None:
    """The largest value among the outputs of blocks that a gradient reaches; the embedding only where nothing else was measured."""
    found = [p for layer, p in curve.items() if layer and layer not in still] or list(curve.values())
    return max(found, key=lambda p: p.value, default=None)


def predicted(name: str, position: Mapping[str, Point], semantic: Mapping[str, Point]) -> str:
    """Who predicts the position stream, each baseline by its best layer: R² with its whole interval at least `PRESENT`, or below it.

    "Only": one does, every other lies below. Where an interval holds `PRESENT`, the title says "not separable". The semantic stream
    follows by its numbers alone.
    """
    rest = f"; semantic stream {_ends(semantic)}" if semantic else ""
    if not position:
        return f"Regression onto the semantic stream of `{name}`: R² {_ends(semantic)}" if semantic else f"Regression onto `{name}`"
    sides = {m: against(p, PRESENT) for m, p in position.items()}
    able = {m: position[m] for m, side in sides.items() if side == ABOVE}
    unable = {m: position[m] for m, side in sides.items() if side == BELOW}
    what = f"the position stream of `{name}`"
    if unclear := [m for m, side in sides.items() if side == UNCLEAR]:
        named = ", ".join(f"`{m}` ({findings.r2(position[m])})" for m in unclear[:NAMED])
        more = f" and {len(unclear) - NAMED} more" if len(unclear) > NAMED else ""
        others = {**able, **unable}
        return f"Not separable whether {named}{more} predict{'s' if len(unclear) == 1 else ''} {what}" + (
            f"; the others: R² {_ends(others)}" if others else ""
        )
    if not able:
        return f"No baseline predicts {what}: R² at most {findings.r2(max(unable.values(), key=lambda p: p.value))}{rest}"
    if not unable:
        who = {1: f"`{next(iter(able))}` predicts", 2: "Both baselines predict"}.get(len(able), "All baselines predict")
        return f"{who} {what}: R² {_ends(able)}{rest}"
    most = findings.r2(max(unable.values(), key=lambda p: p.value))
    low = f"`{next(iter(unable))}` {most}" if len(unable) == 1 else f"the others at most {most}"
    if len(able) == 1:
        who = f"Only `{next(iter(able))}` predicts"
    elif len(able) <= NAMED:
        names = [f"`{m}`" for m in able]
        who = f"{', '.join(names[:-1])} and {names[-1]} predict"
    else:
        who = f"{len(able)} of {len(position)} baselines predict"
    return f"{who} {what}: R² {_ends(able)}, {low}{rest}"


def _ends(points: Mapping[str, Point]) -> str:
    low, high = (findings.r2(pick(points.values(), key=lambda p: p.value)) for pick in (min, max))
    return low if low == high else f"{low} to {high}"


def _panels(study: Study, name: str, stream: str, curves: Curves, floor: dict[int, float], bounds: tuple[float, float]) -> list[Panel]:
    """One panel a stream; baselines that are too many for one stand in a panel a family."""
    heading = f"Onto the {WORDS[stream]}"
    if len(curves) <= MOST_LINES:
        return [_panel(study, name, stream, heading, "", curves, floor, bounds)]
    return [
        _panel(study, name, stream, heading, g.title, {m: curves[m] for m, _ in g.lines}, floor, bounds)
        for g in groups(study, [(m, "all") for m in curves])
    ]


def _panel(
    study: Study, name: str, stream: str, heading: str, note: str, curves: Curves, floor: dict[int, float], bounds: tuple[float, float]
) -> Panel:
    colour = schemes.colour(study, name, stream)
    marks = styles(study)
    depth = max(layer for curve in curves.values() for layer in curve)
    traces: list[Trace] = []
    ends = []
    if floor:
        traces.append(reference(list(floor), list(floor.values()), "chance: the best R² that a regression reaches on shuffled targets"))
        ends.append((float(max(floor)), floor[max(floor)], "chance", "combined"))
    for model, curve in reversed(curves.items()):
        places = {float(i): f"layer {i} of {depth}" for i in curve} | {0.0: "embedding"}
        hollow = frozenset(float(i) for i in _still(study, name, stream, model) & set(curve))
        traces += line({float(i): p for i, p in curve.items()}, colour, *marks[model], model, places, hollow)
        ends.append((float(max(curve)), curve[max(curve)].value, model, colour))
    height, margin = 300, {"l": 48, "r": label_margin([*curves, "chance"] if floor else list(curves)), "t": 8, "b": 52}
    x = axis(
        "layer (0: embedding)",
        range=[-0.03 * depth - 0.02, depth * 1.03 + 0.02],
        tickvals=list(range(0, depth + 1, 1 if depth <= 8 else 2)),
        showgrid=False,
    )
    notes = line_end_labels(ends, bounds, height - margin["t"] - margin["b"])
    plot = layout(height, x, r2_axis("R²", bounds, 0.25), margin, annotations=notes)
    said = "; ".join(f"{m}: {', '.join(findings.r2(p) for p in curve.values())}" for m, curve in curves.items())
    return Panel(traces, plot, heading, f"{heading} of {name}, layer by layer. {said}.", note)


def _subtitle(name: str, points: list[Point]) -> str:
    sizes = sorted({p.n for p in points if p.n})
    n = f" (n = {number(sizes[0])}" + (f" to {number(sizes[-1])}" if len(sizes) > 1 else "") + " documents)" if sizes else ""
    said = (
        f"A ridge regression predicts each stream of `{name}` from all of the hidden state of another model at the same layer: R² on "
        f"held-out documents{n}; {repeats(points)}. The table also has R² of the same tokens' place in another document."
    )
    if any(p.value < LOWEST for p in points):
        said += " Values far below 0 are in the table only."
    return said


def _table(study: Study, name: str, streams: Mapping[str, Curves], id: str) -> Table:
    rows: list[list[Cell]] = []
    for stream, curves in streams.items():
        floors, places = (_curves(study, stream, name, ending) for ending in (".chance", ".place"))
        for model, curve in curves.items():
            for layer, p in curve.items():
                still = " (no gradient)" if layer in _still(study, name, stream, model) else ""
                beside = [found.get(model, {}).get(layer) for found in (floors, places)]
                rows.append(
                    [text(model), text(WORDS[stream] + still), value(layer, str(layer)), *measured(p)]
                    + [value(b.value, number(b.value, b.low, b.high, MOST_DIGITS)) if b else Cell("–") for b in beside]
                    + [value(p.n) if p.n else Cell("–"), value(p.seeds, str(p.seeds))]
                )
    columns = ["Model", f"Onto {name}'s", "Layer", "R²", "Low", "High", "Chance", "Same place", "n", "Seeds"]
    layers = {row[2].raw for row in rows}
    caption = f"R² of the regressions onto {name}, {count(len(layers), 'layer')}"
    return Table(id, caption, columns, rows, frozenset(range(2, 10)))
