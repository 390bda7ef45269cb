"""Figures of the structural probes (DSTG section 5): position by layer on the first screen, then layer × target × stream."""

from collections.abc import Mapping

from . import findings
from .figures import MOST_DIGITS, Cell, Figure, Panel, Table, Trace, line, measured, paper_marks, reference, repeats, text, value
from .load import Point, Study
from .numbers import count, fixed, number, percent
from .paper import PAPER_LAYERS
from .style import LABEL_LIMIT, STREAM, axis, label_margin, layout, line_end_labels, model_styles, plain
from .training_figures import stuck_models

PaperValues = Mapping[tuple[str, str, str, int], float]  # (metric, model, part, our layer index) -> value

LOWEST = -0.3  # smallest R² that an axis shows; a probe far worse than the mean would hide all others
WORDS = {"all": "all of hidden", "position": "position stream", "semantic": "semantic stream"}
TARGETS = {
    "r2.token": ("position", "a token's position in its document"),
    "r2.segment": ("the segment index", "the index of the segment (sentence or line) a token stands in"),
    "r2.intra": ("progress", "a token's progress inside its segment, 0 at the start, 1 at the end,"),
}


def two_streams(study: Study, metric: str) -> str | None:
    """The two-stream model to tell the story with: `dstg`, else the first whose position stream was probed."""
    streams = [m for m in study.models if "position" in study.parts(metric, m)]
    named = study.named("dstg")
    return named if named in streams else next(iter(streams), None)


def chance_floor(study: Study, metric: str) -> dict[int, float]:
    """Layer -> largest R² that any probe of that layer reaches on shuffled targets."""
    floor: dict[int, float] = {}
    for model in study.models:
        for part in study.parts(f"{metric}.chance", model):
            for layer, p in study.curve(f"{metric}.chance", model, part).items():
                floor[layer] = max(floor.get(layer, p.value), p.value)
    return dict(sorted(floor.items()))


def paper_curve(paper: PaperValues, study: Study, metric: str, model: str, part: str) -> dict[float, tuple[int, float]]:
    """x -> (our layer index in a six-layer model, value): the paper's model of the same preset at the same relative depth.

    The paper's models have six layers. Where the model at hand has L, layer k of six stands at x = k · L / 6: the last layer
    falls on the last layer, whose collapse is what the comparison is about. With six layers x is the layer itself.
    """
    kind = str(study.config(model).get("preset") or model)
    depth = study.depth(model)
    found = {k: v for (m, name, p, k), v in paper.items() if m == metric and name == kind and p == part}
    return {k * depth / PAPER_LAYERS: (k, v) for k, v in sorted(found.items())}


def finding(study: Study, metric: str, first_screen: bool = False) -> str:
    """Title of a probe figure by the rules of `findings`; a model that has not left the unigram plateau supports no finding."""
    name, stuck = two_streams(study, metric), stuck_models(study)
    title = _finding(study, metric, first_screen, stuck)
    return findings.untestable(name, title) if name in stuck else title


def _finding(study: Study, metric: str, first_screen: bool, stuck: list[str]) -> str:
    what = TARGETS[metric][0]
    name = two_streams(study, metric)
    ap = study.named("ap")
    curves = {m: study.curve(metric, m, "all") for m in study.models}
    if name is None:
        return findings.best(what, curves)
    position, semantic = study.curve(metric, name, "position"), study.curve(metric, name, "semantic")
    last = study.trained_until(name, "position")
    if metric == "r2.intra":
        return findings.progress(position, semantic, last) or findings.best(what, curves)
    if metric == "r2.token" and not first_screen and (title := findings.apart(what, position, semantic, last)):
        return title  # the first screen has said what the position stream keeps
    other = curves[ap].get(study.depth(ap)) if ap and ap != name and ap not in stuck else None
    return findings.kept(what, name, position, last, ap, other)


def _range(values: list[float]) -> tuple[float, float]:
    return max(LOWEST, min([*values, 0.0]) - 0.05), max([*values, 1.0]) + 0.04


def _values(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues) -> list[float]:
    own = [
        v for m, p in lines for point in study.curve(metric, m, p).values() for v in (point.value, point.low, point.high) if v is not None
    ]
    return own + [v for m, p in lines for _, v in paper_curve(paper, study, metric, m, p).values()]


def _places(study: Study, model: str) -> dict[float, str]:
    return {float(l): "embedding" if l == 0 else f"layer {l} of {study.depth(model)}" for l in range(study.depth(model) + 1)}


def _stream(study: Study, metric: str, model: str, part: str, paper: PaperValues, styles: dict[str, tuple[str, str]]) -> list[Trace]:
    """Our line of one model and stream, and the paper's markers of the same."""
    curve = study.curve(metric, model, part)
    colour = STREAM.get(part, "combined")
    dash, symbol = styles[model]
    name = model if part == "all" else f"{model}, {WORDS.get(part, part)}"
    trained = study.trained_until(model, part)
    hollow = frozenset(float(l) for l in curve if l > trained)
    places = _places(study, model) | {l: f"layer {l:.0f}, which no gradient reaches" for l in hollow}
    traces = line({float(l): p for l, p in curve.items()}, colour, dash, symbol, name, places, hollow)
    if published := paper_curve(paper, study, metric, model, part):
        where = {x: f"layer {k} of {PAPER_LAYERS}" for x, (k, _) in published.items()}
        traces.append(paper_marks({x: v for x, (_, v) in published.items()}, colour, symbol, name, where))
    return traces


def _table(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues, id: str, caption: str) -> Table:
    """Every point that is drawn: ours with interval and chance, the paper's as rows of their own."""
    rows: list[list[Cell]] = []
    for model, part in lines:
        depth = study.depth(model)
        chance = study.curve(f"{metric}.chance", model, part)
        for layer, p in study.curve(metric, model, part).items():
            floor = chance.get(layer)
            untrained = " (no gradient)" if layer > study.trained_until(model, part) else ""
            rows.append(
                [
                    text("this run"),
                    text(model),
                    text(WORDS.get(part, part) + untrained),
                    value(layer, str(layer)),
                    value(layer / depth, fixed(layer / depth, 2)),
                ]
                + measured(p)
                + [
                    value(floor.value, number(floor.value, floor.low, floor.high, MOST_DIGITS)) if floor else Cell("–"),
                    value(p.n) if p.n else Cell("–"),
                ]
            )
        for k, v in paper_curve(paper, study, metric, model, part).values():
            share = k / PAPER_LAYERS
            rows.append(
                [
                    text("paper"),
                    text(model),
                    text(WORDS.get(part, part)),
                    value(k, str(k)),
                    value(share, fixed(share, 2)),
                    value(v, fixed(v, 2)),
                ]
                + [Cell(""), Cell(""), Cell("–"), Cell("–")]
            )
    columns = ["Source", "Model", "Read from", "Layer", "Relative depth", "R²", "Low", "High", "Chance", "n"]
    return Table(id, caption, columns, rows, frozenset(range(3, 10)))


def _subtitle(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues) -> str:
    points = [p for m, part in lines for p in study.curve(metric, m, part).values()]
    sizes = sorted({p.n for p in points if p.n})
    n = f"n = {number(sizes[0])}" + (f" to {number(sizes[-1])}" if len(sizes) > 1 else "") + " tokens" if sizes else ""
    documents = {p.value for m in study.models if (p := study.point("probe.documents", m))}
    if n and len(documents) == 1:
        n += f" of {count(round(documents.pop()), 'document')}"
    said = f"A ridge probe reads {TARGETS[metric][1]} from each layer: R² on held-out documents"
    said += (f" ({n})" if n else "") + f"; {repeats(points)}."
    if any(paper_curve(paper, study, metric, m, p) for m, p in lines):
        depths = {study.depth(m) for m, _ in lines}
        where = "layer by layer" if depths == {PAPER_LAYERS} else "at the same relative depth"
        said += f" Hollow and unjoined: the paper's six-layer models, {where}."
    if any(p.value < LOWEST for p in points):
        said += f" Values below {fixed(LOWEST, 1)} are in the table only."
    return said


def _key(study: Study, metric: str, lines: list[tuple[str, str]], paper: PaperValues, chance: bool) -> list[tuple[str, str]]:
    key = [("measured", f"measured, bar: {percent(0.95, 0)} interval")]
    if any(paper_curve(paper, study, metric, m, p) for m, p in lines):
        key.append(("paper", "the paper"))
    if any(l > study.trained_until(m, p) for m, p in lines for l in study.curve(metric, m, p)):
        key.append(("untrained", "no gradient reaches it"))
    if chance:
        key.append(("chance", "best R² on shuffled targets"))
    return key


def hero(study: Study, paper: PaperValues) -> Figure | None:
    """The figure of the first screen: position R² by layer of both streams of `dstg` and of every one-stream model."""
    metric = "r2.token"
    name = two_streams(study, metric)
    lines = [(name, p) for p in ("position", "semantic")] if name else []
    lines += [(m, "all") for m in study.models if "position" not in study.parts(metric, m)]
    lines = [(m, p) for m, p in lines if study.curve(metric, m, p)]
    if not lines:
        return None
    styles = model_styles(study.models)
    chance = chance_floor(study, metric)
    traces: list[Trace] = []
    if chance:
        traces.append(reference(list(chance), list(chance.values()), "chance: the best R² that a probe reaches on shuffled targets"))
    ends = []
    for model, part in reversed(lines):  # the first line of the story is drawn last, on top
        traces += _stream(study, metric, model, part, paper, styles)
        curve = study.curve(metric, model, part)
        end = max(curve)
        ends.append((float(end), curve[end].value, model if part == "all" else stream_label(model, part), STREAM.get(part, "combined")))
    if chance:
        ends.append((float(max(chance)), chance[max(chance)], "chance", "combined"))
    depth = max(study.depth(m) for m, _ in lines)
    bounds = _range(_values(study, metric, lines, paper) + list(chance.values()))
    height, margin = 470, {"l": 52, "r": label_margin([e[2] for e in ends]), "t": 10, "b": 52}
    plot = layout(
        height,
        axis("layer (0: embedding)", range=[-0.12, depth + 0.12], tickmode="array", tickvals=list(range(depth + 1)), showgrid=False),
        axis("R² of position", range=list(bounds), tickvals=[0, 0.25, 0.5, 0.75, 1], ticktext=["0", "0.25", "0.5", "0.75", "1"]),
        margin,
        annotations=line_end_labels(ends, bounds, height - margin["t"] - margin["b"]),
    )
    title = finding(study, metric, first_screen=True)
    panel = Panel(traces, plot, alt="Position R² by layer. " + _spoken(study, metric, lines))
    table = _table(study, metric, lines, paper, "position-by-layer", "Position R² by layer, as drawn")
    return Figure(
        "position", title, _subtitle(study, metric, lines, paper), [panel], table, _key(study, metric, lines, paper, bool(chance))
    )


def stream_label(model: str, part: str) -> str:
    """Name of a stream at its line's end: a long model name is cut, the stream's never."""
    room = LABEL_LIMIT - len(part) - 1
    return f"{model if len(model) <= room else model[: max(1, room - 1)] + '…'} {part}"


def _spoken(study: Study, metric: str, lines: list[tuple[str, str]]) -> str:
    """The lines in words, for those who hear the page."""
    said = []
    for model, part in lines:
        curve = study.curve(metric, model, part)
        values = ", ".join(fixed(p.value, 2) for p in curve.values())
        said.append(f"{model}{'' if part == 'all' else ' ' + part}: {values}")
    return "; ".join(said) + "."


def targets(study: Study, paper: PaperValues) -> list[Figure]:
    """One figure a target, one panel a model on shared axes; the other models' lines stand behind as ghosts."""
    return [f for f in (_target(study, paper, metric) for metric in TARGETS) if f is not None]


def _target(study: Study, paper: PaperValues, metric: str) -> Figure | None:
    models = [m for m in study.models if any(study.curve(metric, m, p) for p in study.parts(metric, m))]
    lines = [(m, p) for m in models for p in study.parts(metric, m)]
    if not lines:
        return None
    styles = model_styles(study.models)
    chance = chance_floor(study, metric)
    bounds = _range(_values(study, metric, lines, paper) + list(chance.values()))
    depth = max(study.depth(m) for m in models)
    panels = [_model_panel(study, paper, metric, m, models, styles, chance, bounds, depth) for m in models]
    title = finding(study, metric)
    short = metric.removeprefix("r2.")
    table = _table(study, metric, lines, paper, f"probe-{short}", f"R² of {TARGETS[metric][0]} by model, stream and layer")
    return Figure(
        f"probe-{short}", title, _subtitle(study, metric, lines, paper), panels, table, _key(study, metric, lines, paper, bool(chance)), 250
    )


def _model_panel(
    study: Study,
    paper: PaperValues,
    metric: str,
    model: str,
    models: list[str],
    styles: dict[str, tuple[str, str]],
    chance: dict[int, float],
    bounds: tuple[float, float],
    depth: int,
) -> Panel:
    parts = study.parts(metric, model)
    traces: list[Trace] = []
    for other in models:
        if other != model and (ghost := study.curve(metric, other, "all")):
            traces.append(_ghost(ghost, other))
    if chance:
        traces.append(reference(list(chance), list(chance.values()), "chance: the best R² on shuffled targets"))
    ends = []
    for part in sorted(parts, key=lambda p: p != "all"):
        traces += _stream(study, metric, model, part, paper, styles)
        curve = study.curve(metric, model, part)
        if len(parts) > 1 and curve:
            ends.append((float(max(curve)), curve[max(curve)].value, part, STREAM.get(part, "combined")))
    height, margin = 236, {"l": 40, "r": label_margin([e[2] for e in ends]) if ends else 12, "t": 6, "b": 48}
    plot = layout(
        height,
        axis("layer", range=[-0.2, depth + 0.2], tickmode="array", tickvals=list(range(depth + 1)), showgrid=False),
        axis("", range=list(bounds), tickvals=[0, 0.5, 1], ticktext=["0", "0.5", "1"]),
        margin,
        annotations=line_end_labels(ends, bounds, height - margin["t"] - margin["b"]),
    )
    return Panel(traces, plot, model, _spoken(study, metric, [(model, p) for p in parts]))


def _ghost(curve: dict[int, Point], name: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(curve),
        "y": [p.value for p in curve.values()],
        "line": {"color": "@ghost", "width": 1.6},
        "hovertext": [plain(name)] * len(curve),
        "hoverinfo": "skip",
    }
