"""Figure of what depends on where a text stands: change of the hidden states when only the positions are shifted (SPLIT, notes)."""

from . import findings, schemes
from .figures import Figure, Table, measured, repeats, text, value
from .layer_panels import WORDS, Frame, Line, groups, many, share_axis, stream_label
from .load import Study
from .numbers import count, percent
from .style import label_margin
from .training_figures import stuck_models, ticks

METRIC = "shift.change"


def shifts(study: Study) -> Figure | None:
    """Relative change of the states by layer, a line for each stream, and for each one-stream model one."""
    lines: list[Line] = []
    for model in study.models:
        parts = [p for p in study.parts(METRIC, model) if study.curve(METRIC, model, p)]
        lines += [(model, p) for p in parts if p != "all" or len(parts) == 1]
    if not lines:
        return None
    lines.sort(key=lambda x: x[1] != "semantic")  # the stream that the question is about comes first
    points = {x: study.curve(METRIC, *x) for x in lines}
    top = max(v for curve in points.values() for p in curve.values() for v in (p.value, p.high) if v is not None)
    bounds = (-0.05 * (top or 1.0), 1.05 * (top or 1.0))
    depth = max(study.depth(m) for m, _ in lines)
    y = share_axis("" if many(study) else "change of the states", bounds, ticks(top or 1.0, 4))
    if many(study):
        frame = Frame(study, METRIC, "change", bounds, depth, y, label_margin([m for m, _ in lines]), 220, 56)
        panels = [frame.panel(g.title, g.lines, [m for m, _ in g.lines]) for g in groups(study, lines)]
    else:
        labels = [stream_label(m, p) for m, p in lines]
        frame = Frame(study, METRIC, "change", bounds, depth, y, label_margin(labels), 360, 72, "layer (0: embedding)")
        panels = [frame.panel("", lines, labels)]
    last = {x: curve[max(curve)] for x, curve in points.items()}
    title = findings.moved(
        {m: p for (m, part), p in last.items() if part == "semantic"}, {m: p for (m, part), p in last.items() if part == "all"}
    )
    told = [m for m in study.models if (m, "semantic") in last] or [m for m, _ in lines]
    if told and set(told) <= set(stuck_models(study)):
        title += ", in models that have learned token frequencies only"
    sizes = sorted({p.n for curve in points.values() for p in curve.values() if p.n})
    documents = f" on {count(sizes[0], 'document')}" if len(sizes) == 1 else ""
    subtitle = (
        f"The same tokens at the start of the positions and half a document further on{documents}: size of the change over the size of the "
        f"state; {_over(study, points)}."
    )
    rows = [
        [text(m), text(WORDS.get(part, part)), text(schemes.block(study, m)), value(layer, str(layer)), *measured(p), value(p.n)]
        for (m, part), curve in points.items()
        for layer, p in curve.items()
    ]
    columns = ["Model", "Part", "Block", "Layer", "Change", "Low", "High", "n"]
    table = Table("shift", "Change of the states by layer, as a share of their size", columns, rows, frozenset(range(3, 8)))
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")]
    if any(layer > study.trained_until(*x) for x, curve in points.items() for layer in curve):
        key.append(("untrained", "no gradient reaches it"))
    return Figure("shift", title, subtitle, panels, table, key, 250, even=many(study), records=(f"{METRIC}: layer, part",))


def _over(study: Study, points: dict[Line, dict]) -> str:
    """What the intervals are over: here those of one seed come from the documents."""
    return repeats([p for curve in points.values() for p in curve.values()]).replace("document splits", "documents")
