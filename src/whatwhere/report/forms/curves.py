"""Curves: values over layer, step, lag, rank or component, a line each, in panels that share their axes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

from ...papers import DSTG_LAYERS, DSTG_R2
from ...records.table import Point
from .. import schemes
from ..figure import Figure, Panel, Table, Trace, measured, row, value
from ..loaded_run import Run
from ..numbers import number
from ..references import ReferenceStudy
from ..style import LABEL_GAP, LABEL_LIMIT, label_margin, layout, line_end_labels
from .axes import LAYER, Axis, Scale, fitted
from .form import INTERVAL, SEED, SEEDS, Form, band, dots, errors, hover, line, reference, singles
from .maps import thinned

# Kinds of lines: measured; the same before training; printed in a paper; of the reference study; a level for
# comparison; for the table alone; a vertical line at its first place.
OURS = "this run"
BEFORE = "before training"
PAPER = "paper"
LEVEL = "for comparison"
ASIDE = "not drawn"
REFERENCE = "reference study"
UPRIGHT = "upright"
FULL = "full"  # as the dash of a level, which is dashed otherwise
EVERYWHERE = "*"  # as a panel: in all of them
MANY = 40  # points from which a line has no marks, its intervals are a band, and only
MOST = 512  # of them are drawn
MOST_LINES = 8  # of one panel of many models
# What the DSTG paper prints of layers: (metric, preset, part, layer of six) -> value. Its section 4 (2): the first two
# components of the position stream retain "about 90 %" of the variance, layer by layer; its figure omits the last
# layer, which no gradient reaches.
PRINTED = {**DSTG_R2, **{("hidden.top2", "dstg", "position", layer): 0.9 for layer in range(1, 6)}}


@dataclass(frozen=True)
class Line:
    """Line of a plot.

    points: x -> value; a single one of kind LEVEL is a level over the whole axis. name, part: the first cells of its
    rows, and its label. colour, mark: palette name, (dash, symbol). panel: heading of the panel. axis: which vertical
    axis, of several. hollow: places that no gradient reaches. thick: its width in pixels.
    """

    points: Mapping[Any, Point]
    name: str
    part: str = ""
    colour: str = "absolute"
    mark: tuple[str, str] = ("solid", "circle")
    kind: str = OURS
    panel: str = ""
    axis: str = ""
    hollow: frozenset[float] = frozenset()
    thick: float = 2.2

    @property
    def whole(self) -> str:
        """Name and part."""
        return f"{self.name} {self.part}".strip()

    @property
    def level(self) -> bool:
        """True if the line is a level over the whole axis."""
        return self.kind == LEVEL and len(self.points) == 1

    @property
    def end(self) -> Point:
        """The last point that a gradient reaches."""
        return self.points[max([x for x in self.points if x not in self.hollow] or self.points)]


Lines = Sequence[Line]


@dataclass(frozen=True, kw_only=True)
class Curves(Form):
    """A figure of lines.

    title: over the measured lines. y: one axis, or one for each `Line.axis`. columns: names of `Line.name` and
    `Line.part`. ghosts: the lines of other panels stand behind in grey.
    """

    y: Axis | Mapping[str, Axis]
    x: Axis = LAYER
    columns: Sequence[str] = ("Model", "Part")
    width: int = 280
    ghosts: bool = False

    def draw(self, run: Run) -> Figure | None:
        """Draw the figure; None where nothing was measured."""
        lines = [_thin(curve) for curve in self.source(run) if curve.points]
        ours = [curve for curve in lines if curve.kind == OURS]
        if not ours:
            return None
        x = self.x.scale(v for curve in lines for v in curve.points if not curve.level and curve.kind != ASIDE)
        titles = list(dict.fromkeys(curve.panel for curve in ours))
        alone = len(titles) == 1
        shown = [_without_bars(curve) if alone and curve.kind == REFERENCE else curve for curve in lines]
        y = fitted(self.y, ((e.axis, p) for e in shown if e.kind not in (ASIDE, UPRIGHT) for p in e.points.values()))
        height = 300 if len(titles) == 2 and self.width >= 400 else 212
        if alone:
            height = 350
        labels: dict[int, str] = {}
        for title in titles:
            end_labels = _labels([curve for curve in shown if curve.panel in (title, EVERYWHERE)], alone)
            height = max(
                height, LABEL_GAP * len([*filter(None, end_labels.values())]) + 54
            )  # above and below a plot are 66
            labels |= end_labels
        panels = [self._panel(title, shown, labels, x, y, height) for title in titles]
        points = [p for curve in ours for p in curve.points.values()]
        words = self.sampled(run, lines, points, any(curve.kind == PAPER for curve in lines))
        table = self._table([curve for curve in lines if curve.kind != UPRIGHT])
        return self.figure(self.finding(run, ours), words, panels, table, _key(lines, alone, run.beside.study))

    def _panel(
        self, title: str, every: Lines, labels: Mapping[int, str], x: Scale, scales: Mapping[str, Scale], height: int
    ) -> Panel:
        """The lines of a panel with their labels (by id) at their ends, the other ones behind them."""
        lines = [curve for curve in every if curve.panel in (title, EVERYWHERE)]
        y = scales[next(curve.axis for curve in lines if curve.panel == title)]
        # Small panels of shares and R² have ticks that tell it, and no room for a title.
        left = {"r2": 40, "share": 54}.get(y.axis.kind, 66) if height < 300 else 66
        margin = {"l": left, "r": label_margin([*labels.values()]) if labels else 14, "t": 16, "b": 50}
        others = [e for e in every if self.ghosts and e.kind == OURS and e not in lines and e.part in ("", "all")]
        traces = [
            line(map(x.at, e.points), [p.value for p in e.points.values()], "ghost", width=1.4, meta=[e.name])
            for e in others
        ]
        ends = []
        for curve in sorted(reversed(lines), key=lambda curve: _ORDER.index(curve.kind)):
            traces += [trace | {"meta": [curve.name]} for trace in _traces(curve, x, y)]
            if label := labels.get(id(curve)):
                last = max(curve.points)
                place = x.bounds[1] if curve.level else x.end(x.at(last))
                grey = curve.kind == LEVEL or curve.colour.startswith("map-")
                ink = "combined" if grey else curve.colour
                ends.append((place, y.end(y.at(curve.points[last].value)), label, ink, curve.name))
        farthest = max((x.end(x.at(max(curve.points))) for curve in lines if curve.kind in (OURS, PAPER)), default=0.0)
        notes = line_end_labels(ends, y.bounds, height - margin["t"] - margin["b"], farthest)
        up = y.plotly()
        if left < 66:
            up["title"]["text"] = ""
        spoken = "; ".join(f"{curve.whole}: {_describe_values(curve, y.axis)}" for curve in lines if curve.kind == OURS)
        plot = layout(height, x.plotly(), up, margin, annotations=notes)
        return Panel(traces, plot, title, f"{title}. {spoken}.".removeprefix(". "))

    def _table(self, lines: Lines) -> Table:
        """A row a point; columns that tell nothing apart are left out."""
        panels = {curve.panel for curve in lines} - {EVERYWHERE}
        shown = {
            "Source": len({curve.kind for curve in lines}) > 1,
            "Plot": len(panels) > 1 and not panels <= {curve.name for curve in lines},
            self.columns[0]: True,
            self.columns[1]: any(curve.part for curve in lines),
        }
        sizes = any(p.n for curve in lines for p in curve.points.values())
        rows = []
        for curve in lines:
            words = (curve.kind, curve.panel.replace(EVERYWHERE, ""), curve.name, curve.part)
            header = row(*compress(words, shown.values()))
            for v, p in curve.points.items():
                words_of_v = f"{v:,}" if isinstance(v, int) else number(v)
                at = None if curve.level else value(v, words_of_v)
                counts = row(p.n) if sizes else []
                rows.append([*header, *row(at), *measured(p, 5), *counts])
        heads = [*compress(shown, shown.values())]
        named = [self.x.place.capitalize(), self.heading({curve.axis for curve in lines})]
        counted = ["n"] if sizes else []
        columns = [*heads, *named, "Low", "High", *counted]
        return Table(self.id, self.caption, columns, rows, frozenset(range(len(heads), len(columns))))


_ORDER = (ASIDE, UPRIGHT, LEVEL, BEFORE, REFERENCE, OURS, PAPER)  # from the ground up


def _thin(curve: Line) -> Line:
    places = list(curve.points)
    return replace(curve, points={places[i]: curve.points[places[i]] for i in thinned(len(places), MOST)})


def _without_bars(curve: Line) -> Line:
    """The line with its values alone: bars of several models in one plot would hide each other."""
    return replace(curve, points={x: Point.between(p.value, n=p.n) for x, p in curve.points.items()})


def _describe_values(curve: Line, y: Axis) -> str:
    """Values in words, for those who hear the page: all of a few, first and last of many."""
    values = [y.write(p.value) for p in curve.points.values()]
    return ", ".join(values) if len(values) <= 12 else f"{values[0]} to {values[-1]}"


def _labels(lines: Lines, alone: bool) -> dict[int, str]:
    """Names at the ends of the lines of a panel: by what tells them apart, a long name cut, the part never."""
    ours = [curve for curve in lines if curve.kind == OURS]
    names = {curve.name for curve in ours}
    parts = {curve.part for curve in ours}
    labels = {id(curve): curve.name for curve in lines if curve.kind == LEVEL and (alone or curve.panel != EVERYWHERE)}
    for curve in ours:
        if len(names) == 1 and curve.name in curve.panel:
            labels[id(curve)] = curve.part if len(parts) > 1 else ""
        elif len(parts) == 1 or curve.part in ("", "all"):
            labels[id(curve)] = curve.name
        else:
            room = LABEL_LIMIT - len(curve.part) - 1
            name = curve.name if len(curve.name) <= room else f"{curve.name[: max(1, room - 1)]}…"
            labels[id(curve)] = f"{name} {curve.part}"
    return labels


def _traces(curve: Line, x: Scale, y: Scale) -> list[Trace]:
    """How a line is drawn, by its kind and the number of its points."""
    if curve.kind == ASIDE:
        return []
    if curve.kind == UPRIGHT:
        return [reference([x.at(next(iter(curve.points)))] * 2, y.ends, curve.name, "2px,3px")]
    places = sorted(curve.points)
    points = [curve.points[v] for v in places]
    xs = [x.at(v) for v in places]
    ys = [y.at(p.value) for p in points]
    remarks = [", which no gradient reaches" if v in curve.hollow else "" for v in places]
    where = [f"{x.axis.place} {v:,.6g}{remark}" for v, remark in zip(places, remarks, strict=True)]
    words = [hover(curve.whole, place, p, y.axis) for place, p in zip(where, points, strict=True)]
    bounded = any(p.low is not None for p in points)
    dash, symbol = curve.mark
    if curve.level:
        ground = [band(x.bounds, points * 2, "combined")] if bounded and x.end is float else []
        name = f"{curve.name}: {y.axis.write(points[-1].value)}"
        return [*ground, reference(x.ends, ys * 2, name, "solid" if dash == FULL else "6px,5px")]
    if curve.kind == LEVEL:
        return [reference(xs, ys, curve.whole) | {"hovertext": words}]
    if curve.kind == BEFORE:
        ink = {"color": f"@{curve.colour}"}
        look = {"symbol": "line-ew", "size": 11, **ink, "line": {**ink, "width": 1.6}}
        before = [word.replace("</b>", ", before training</b>", 1) for word in words]
        more = {"mode": "lines+markers", "marker": look, "hovertext": before, "hoverinfo": "text"}
        return [line(xs, ys, curve.colour, "1px,3px", 1.2, **more)]
    if curve.kind == REFERENCE:
        dotted: dict[str, Any] = {"symbol": f"{symbol}-open-dot", "line": {"width": 1.4, "color": f"@{curve.colour}"}}
        words_of_reference = [word.replace("</b>", "</b> in the reference study", 1) for word in words]
        shown = dots(xs, ys, [curve.colour] * len(xs), words_of_reference, size=10, **dotted) | {"opacity": 0.75}
        return [shown | (errors(points, curve.colour, width=0, floor=y.at(-1e9)) if bounded else {})]
    if curve.kind == PAPER:
        open_: dict[str, Any] = {"symbol": f"{symbol}-open", "line": {"width": 1.4, "color": f"@{curve.colour}"}}
        printed = [word.replace("</b>", "</b> in the paper", 1) for word in words]
        return [dots(xs, ys, [curve.colour] * len(xs), printed, **open_) | {"opacity": 0.75}]
    if len(places) > MANY:
        ground = [band(xs, points, curve.colour)] if bounded else []
        short = [float(f"{v:.5g}") for v in ys]
        more = {"hovertext": words, "hoverinfo": "text"}
        return [*ground, line(xs, short, curve.colour, dash, min(curve.thick, 1.8), **more)]
    hollow = [v in curve.hollow for v in places]
    solid = [i for i, out in enumerate(hollow) if not out]
    traces = [line([xs[i] for i in solid], [ys[i] for i in solid], curve.colour, dash, curve.thick)]
    for i, out in enumerate(hollow):  # the way to a hollow point is dotted, for it is no part of the trend
        if out and (before_ := [j for j in solid if j < i]):
            traces.append(line([xs[before_[-1]], xs[i]], [ys[before_[-1]], ys[i]], curve.colour, "1px,4px", 1.6))
    marked = dots(xs, ys, [curve.colour] * len(xs), words, hollow, symbol=symbol)
    of_seeds = singles(points, xs, curve.colour, y.at)
    return [*traces, *of_seeds, marked | (errors(points, curve.colour, floor=y.at(-1e9)) if bounded else {})]


def _key(lines: Lines, alone: bool, study: ReferenceStudy | None = None) -> list[tuple[str, str]]:
    """Marks that no label names."""
    few = [curve for curve in lines if curve.kind == OURS and len(curve.points) <= MANY]
    bounded = any(p.low is not None for curve in few for p in curve.points.values())
    key = [("measured", f"measured, bar: {INTERVAL}")] if bounded else []
    kinds = {curve.kind for curve in lines}
    key += [(SEED, SEEDS)] if any(p.few for curve in few for p in curve.points.values()) else []
    key += [("paper", "hollow, whatever its shape: the paper")] if PAPER in kinds else []
    if study and REFERENCE in kinds:
        key.append(("reference", f"hollow with a dot: reference study, {study.label}"))
    key += [("untrained", "no gradient reaches it")] if any(curve.hollow & set(curve.points) for curve in few) else []
    key += [("before", "the same model before training")] if BEFORE in kinds else []
    shared = [
        curve for curve in lines if curve.kind == LEVEL and curve.panel == EVERYWHERE and (curve.part or not alone)
    ]
    levels = dict.fromkeys((f"{curve.name}: {curve.part}".removesuffix(": "), curve.mark[0]) for curve in shared)
    return key + [("ceiling" if dash == FULL else "chance", name) for name, dash in levels]


def line_of(run: Run, points: Mapping[Any, Point], model: str, part: str = "", **more: Any) -> Line:
    """Return the line of a model in its colour, dash and mark."""
    colour = schemes.colour(run, model, part or "all")
    mark = schemes.marks(run)[model]
    return replace(Line(points, model, part, colour, mark), **more)


def of_models(
    run: Run, name: str, *, streams: bool = False, apart: bool = False, before: bool = False, models: Iterable[str] = ()
) -> list[Line]:
    """Return a line for every model and part of a metric, beside the reference study's and a paper's.

    streams: of models with streams these alone. apart: a panel a model; where models are many, families share one
    anyway. before: the untrained models too. models: some in this order, all by default.
    """
    lines = []
    for model in models or run.models:
        parts = sorted(run.parts(name, model) or [""], key=lambda part: part == "all")
        for part in parts[:-1] if streams and len(parts) > 1 and parts[-1] == "all" else parts:
            points = run.curve(name, model, part or None)
            hollow = frozenset(layer for layer in points if layer > run.trained_until(model, part))
            curve = line_of(run, points, model, part, panel=model if apart else "", hollow=hollow)
            lines.append(curve)
            if before and not schemes.many(run):
                lines.append(replace(curve, points=run.curve(name, model, part or None, 0), kind=BEFORE))
            if reference := reference_curve(run, name, model, part):
                lines.append(replace(curve, points=reference, kind=REFERENCE, hollow=frozenset()))
            if printed := paper_curve(run, name, model, part):
                lines.append(replace(curve, points=printed, kind=PAPER, hollow=frozenset()))
    return in_families(run, lines) if schemes.many(run) else lines


def paper_curve(run: Run, name: str, model: str, part: str) -> dict[float, Point]:
    """Return x -> value of the paper's model of the same preset at the same relative depth.

    The paper's models have six layers. Where the model at hand has L, layer k of six stands at x = k · L / 6: the last
    layer falls on the last layer, whose collapse is what the comparison is about.
    """
    kind = schemes.preset(run, model)
    depth = run.depth(model)
    of_kind = {layer: v for (*what, layer), v in PRINTED.items() if what == [name, kind, part]}
    return {k * depth / DSTG_LAYERS: Point.between(v) for k, v in sorted(of_kind.items())}


def reference_curve(run: Run, name: str, model: str, part: str) -> dict[int, Point]:
    """Return layer -> value of the reference study's model beside one of the run, at the layers that a gradient
    reaches."""
    points = run.beside.table.points(name, model, by="layer", part=part or None)
    return {layer: point for layer, point in points.items() if layer <= run.trained_until(model, part)}


def in_families(run: Run, lines: Lines) -> list[Line]:
    """Divide many models into panels: one for a stream, one for a family of one-stream models, at most `MOST_LINES` in
    each."""
    places = [schemes.place(run, curve.name, curve.part) for curve in lines]
    arranged = []
    for place, curve in sorted(zip(places, lines, strict=True), key=lambda pair: pair[0]):
        names = list(dict.fromkeys(e.name for at, e in zip(places, lines, strict=True) if at == place))
        pieces = -(-len(names) // MOST_LINES)
        piece = names.index(curve.name) // -(-len(names) // pieces) + 1
        arranged.append(replace(curve, panel=place[1] + (f" ({piece} of {pieces})" if pieces > 1 else "")))
    return arranged
