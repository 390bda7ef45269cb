"""Curves: values over layer, step, lag, rank or component, a line each, in panels that share their axes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...metrics import metric
from ...papers import DSTG_LAYERS
from ...points import Point
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, Trace, count_cell, measured, text, value
from ..numbers import number
from ..run import Run
from ..style import LABEL_LIMIT, label_margin, layout, line_end_labels
from .axes import Axis, Scale
from .maps import thinned
from .marks import LEVEL as INTERVAL
from .marks import band, caption, dots, ends_of, errors, hover, line, reference, said, sample

# Kinds of lines: measured; the same before training; printed in a paper; a level for comparison; for the table alone.
OURS, BEFORE, PAPER, LEVEL, ASIDE = "this run", "before training", "paper", "for comparison", "not drawn"
FULL = "full"  # as the dash of a level, which is dashed otherwise
EVERYWHERE = "*"  # as a panel: in all of them
MANY = 40  # points from which a line has no marks, its intervals are a band, and only
MOST = 512  # of them are drawn
MOST_LINES = 8  # of one panel of many models


@dataclass(frozen=True)
class Line:
    """One line.

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
    def end(self) -> Point:
        """The last point that a gradient reaches."""
        return self.points[max([x for x in self.points if x not in self.hollow] or self.points)]


Lines = Sequence[Line]
Words = str | Callable[[Run, Lines], str]


@dataclass(frozen=True)
class Curves:
    """A figure of lines.

    metric: whose unit and sample size the words under the title tell. lines: what is drawn. title: the rule of the
        finding.
    what: what is drawn, in words. caption: of the table. y: one axis, or one for each `Line.axis`. columns: names of
    `Line.name` and `Line.part`. records: as in `Figure`. width: smallest width of a panel. ghosts: the lines of other
    panels stand behind in grey.
    """

    id: str
    metric: str
    lines: Callable[[Run], Lines]
    title: Callable[[Run, Lines], str]
    what: Words
    caption: str
    x: Axis
    y: Axis | Mapping[str, Axis]
    columns: tuple[str, str] = ("Model", "Part")
    records: tuple[str, ...] = ()
    width: int = 280
    ghosts: bool = False

    def draw(self, run: Run) -> Figure | None:
        """The figure; None where nothing was measured."""
        lines = [_thin(each) for each in self.lines(run) if each.points]
        ours = [each for each in lines if each.kind == OURS]
        if not ours:
            return None
        x = self.x.scale(v for each in lines for v in each.points if each.kind != LEVEL or len(each.points) > 1)
        panels = list(dict.fromkeys(each.panel for each in ours))
        height = 400 if len(panels) == 1 else 300 if len(panels) == 2 and self.width >= 400 else 212
        inside = {p: [each for each in lines if each.panel in (p, EVERYWHERE)] for p in panels}
        labels = {p: _labels(of, len(panels) == 1) for p, of in inside.items()}
        right = (
            label_margin([name for of in labels.values() for name in of.values()])
            if any(map(any, labels.values()))
            else 14
        )
        axes = {"": self.y} if isinstance(self.y, Axis) else self.y
        scales = {}
        for name, declared in axes.items():
            points = [p for each in lines if each.axis == name and each.kind != ASIDE for p in each.points.values()]
            scales[name] = declared, declared.scale(ends_of(points))
        made = [
            self._panel(p, inside[p], labels[p], lines if self.ghosts else (), x, scales, (height, right))
            for p in panels
        ]
        points = [p for each in ours for p in each.points.values()]
        known = metric(self.metric)
        what = self.what if isinstance(self.what, str) else self.what(run, lines)
        subtitle = caption(what, sample(points, known.counts, known.over), any(each.kind == PAPER for each in lines))
        return Figure(
            self.id,
            self.title(run, ours),
            subtitle,
            made,
            self._table(lines),
            _key(lines, len(panels) == 1),
            self.width,
            len(panels) > 1,
            records=self.records or (f"{self.metric}: part, {self.x.word or 'layer'}",),
        )

    def _panel(
        self,
        title: str,
        lines: Lines,
        labels: Mapping[int, str],
        every: Lines,
        x: Scale,
        scales: Mapping[str, tuple[Axis, Scale]],
        size: tuple[int, int],
    ) -> Panel:
        declared, y = scales[next(each.axis for each in lines if each.panel == title)]
        height, right = size
        # Small panels of shares and R² have ticks that tell it, and no room for a title.
        left = {"r2": 40, "share": 54}.get(declared.kind, 66) if height < 300 else 66
        margin = {"l": left, "r": right, "t": 16, "b": 50}
        traces: list[Trace] = []
        for each in every:
            if each.kind == OURS and each not in lines and each.part in ("", "all"):
                traces.append(
                    line([x.at(v) for v in each.points], [p.value for p in each.points.values()], "ghost", width=1.4)
                )
        ends = []
        for each in sorted(reversed(lines), key=lambda each: _ORDER.index(each.kind)):
            traces += _traces(each, (self.x, x), (declared, y))
            if label := labels.get(id(each)):
                last = max(each.points)
                place = x.bounds[1] if each.kind == LEVEL and len(each.points) == 1 else x.end(x.at(last))
                ends.append((place, y.end(y.at(each.points[last].value)), label, _ink(each)))
        notes = line_end_labels(ends, y.bounds, height - margin["t"] - margin["b"])
        up = y.plotly()
        if left < 66:
            up["title"]["text"] = ""
        plot = layout(height, x.plotly(), up, margin, annotations=notes)
        spoken = "; ".join(f"{each.whole}: {said(each.points, declared.write)}" for each in lines if each.kind == OURS)
        return Panel(traces, plot, title, f"{title}. {spoken}.".removeprefix(". "))

    def _table(self, lines: Lines) -> Table:
        """A row a point."""
        several = len({each.kind for each in lines}) > 1
        panels = {each.panel for each in lines} - {EVERYWHERE}
        named = len(panels) > 1 and not panels <= {each.name for each in lines}
        parts = any(each.part for each in lines)
        sizes = any(p.n for each in lines for p in each.points.values())
        rows: list[list[Cell]] = []
        for each in lines:
            for v, p in each.points.items():
                level = each.kind == LEVEL and len(each.points) == 1
                row = (
                    [text(each.kind)] * several + [text(each.panel.replace(EVERYWHERE, ""))] * named + [text(each.name)]
                )
                row += [text(each.part)] * parts
                row += [
                    Cell("–") if level else value(v, f"{v:,}" if isinstance(v, int) else number(v)),
                    *measured(p, 5),
                ]
                rows.append([*row, count_cell(p.n)] if sizes else row)
        heads = ["Source"] * several + ["Plot"] * named + [self.columns[0]] + [self.columns[1]] * parts
        place, name = (self.x.word or "layer").capitalize(), metric(self.metric).name
        columns = [*heads, place, f"{name[0].upper()}{name[1:]}", "Low", "High", *(["n"] if sizes else [])]
        return Table(self.id, self.caption, columns, rows, frozenset(range(len(heads), len(columns))))


_ORDER = (ASIDE, LEVEL, BEFORE, OURS, PAPER)  # from the ground up


def _ink(each: Line) -> str:
    return "combined" if each.kind == LEVEL or each.colour.startswith("map-") else each.colour


def _thin(each: Line) -> Line:
    kept = thinned(len(each.points), MOST)
    places = list(each.points)
    return each if len(kept) == len(places) else replace(each, points={places[i]: each.points[places[i]] for i in kept})


def _labels(lines: Lines, alone: bool) -> dict[int, str]:
    """Names at the ends of the lines of a panel: by what tells them apart, a long name cut, the part never."""
    ours = [each for each in lines if each.kind == OURS]
    names, parts = {each.name for each in ours}, {each.part for each in ours}
    found = {id(each): each.name for each in lines if each.kind == LEVEL and (alone or each.panel != EVERYWHERE)}
    for each in ours:
        if len(names) == 1 and each.name in each.panel:
            found[id(each)] = each.part if len(parts) > 1 else ""
        elif len(parts) == 1 or each.part in ("", "all"):
            found[id(each)] = each.name
        else:
            room = LABEL_LIMIT - len(each.part) - 1
            found[id(each)] = (
                f"{each.name if len(each.name) <= room else each.name[: max(1, room - 1)] + '…'} {each.part}"
            )
    return found


def _traces(each: Line, across: tuple[Axis, Scale], up: tuple[Axis, Scale]) -> list[Trace]:
    """How a line is drawn, by its kind and the number of its points."""
    (axis, x), (declared, y) = across, up
    places = sorted(each.points)
    points = [each.points[v] for v in places]
    xs, ys = [x.at(v) for v in places], [y.at(p.value) for p in points]
    where = [f"{axis.word or 'layer'} {v:,.6g}" + ", which no gradient reaches" * (v in each.hollow) for v in places]
    words = [
        hover(each.whole, place, p, "", declared.write if declared.kind == "share" else None)
        for place, p in zip(where, points, strict=True)
    ]
    dash, symbol = each.mark
    if each.kind == ASIDE:
        return []
    if each.kind == LEVEL:
        name = f"{each.name}: {declared.write(points[-1].value)}"
        if len(points) > 1:
            return [reference(xs, ys, each.whole) | {"hovertext": words}]
        ground = [band(x.bounds, points * 2, "combined")] if points[0].low is not None and x.end is float else []
        ends = x.bounds if x.end is float else [10**v for v in x.bounds]
        return [*ground, reference(ends, ys * 2, name, "solid" if dash == FULL else "6px,5px")]
    if each.kind == BEFORE:
        look = {
            "symbol": "line-ew",
            "size": 11,
            "color": f"@{each.colour}",
            "line": {"color": f"@{each.colour}", "width": 1.6},
        }
        before = [word.replace("</b>", ", before training</b>", 1) for word in words]
        return [
            line(
                xs,
                ys,
                each.colour,
                "1px,3px",
                1.2,
                mode="lines+markers",
                marker=look,
                hovertext=before,
                hoverinfo="text",
            )
        ]
    if each.kind == PAPER:
        open_: dict[str, Any] = {"symbol": f"{symbol}-open", "line": {"width": 1.4, "color": f"@{each.colour}"}}
        printed = [word.replace("</b>", "</b> in the paper", 1) for word in words]
        return [dots(xs, ys, [each.colour] * len(xs), printed, **open_) | {"opacity": 0.75}]
    if len(places) > MANY:
        ground = [band(xs, points, each.colour)] if any(p.low is not None for p in points) else []
        return [
            *ground,
            line(
                xs,
                [float(f"{v:.5g}") for v in ys],
                each.colour,
                dash,
                min(each.thick, 1.8),
                hovertext=words,
                hoverinfo="text",
            ),
        ]
    solid = [i for i, v in enumerate(places) if v not in each.hollow]
    traces = [line([xs[i] for i in solid], [ys[i] for i in solid], each.colour, dash, each.thick)]
    for i, v in enumerate(places):  # the way to a hollow point is dotted, for it is no part of the trend
        if v in each.hollow and (before_ := [j for j in solid if j < i]):
            traces.append(line([xs[before_[-1]], xs[i]], [ys[before_[-1]], ys[i]], each.colour, "1px,4px", 1.6))
    marked = dots(xs, ys, [each.colour] * len(xs), words, [v in each.hollow for v in places], symbol=symbol)
    if any(p.low is not None for p in points):
        marked |= errors(points, each.colour, floor=y.at(-1e9) if y.end is not float else -1e9)
    return [*traces, marked]


def _key(lines: Lines, alone: bool) -> list[tuple[str, str]]:
    """Marks that no label names."""
    few = [each for each in lines if each.kind == OURS and len(each.points) <= MANY]
    bounded = any(p.low is not None for each in few for p in each.points.values())
    key = [("measured", f"measured, bar: {INTERVAL}")] if bounded else []
    kinds = {each.kind for each in lines}
    key += [("paper", "the paper")] if PAPER in kinds else []
    key += [("untrained", "no gradient reaches it")] if any(each.hollow & set(each.points) for each in few) else []
    key += [("before", "the same model before training")] if BEFORE in kinds else []
    shared = [each for each in lines if each.kind == LEVEL and each.panel == EVERYWHERE and (each.part or not alone)]
    levels = dict.fromkeys((f"{each.name}: {each.part}".removesuffix(": "), each.mark[0]) for each in shared)
    return key + [("ceiling" if dash == FULL else "chance", name) for name, dash in levels]


def of_models(
    run: Run,
    name: str,
    by: str = "layer",
    *,
    streams: bool = False,
    panel: str = "",
    paper: Mapping[tuple[str, str, str, int], float] | None = None,
    before: bool = False,
    models: Iterable[str] | None = None,
) -> list[Line]:
    """A line for every model and part of a metric.

    streams: of models with streams these alone. panel: "model" for one a model; where models are many, families share
    one anyway. paper: what is printed, (metric, preset, part, layer of six) -> value. before: the untrained models too.
    """
    found = []
    for model in run.models if models is None else models:
        parts = run.parts(name, model) or [""]
        for part in [p for p in parts if p != "all"] + [
            p for p in parts if p == "all" and not (streams and len(parts) > 1)
        ]:
            points = run.table.points(name, model, by=by, part=part or None)
            hollow = frozenset(v for v in points if by == "layer" and v > run.trained_until(model, part))
            colour, mark = schemes.colour(run, model, part or "all"), schemes.marks(run)[model]
            each = Line(points, model, part, colour, mark, OURS, model if panel == "model" else panel, hollow=hollow)
            found.append(each)
            if before and not schemes.many(run):
                found.append(
                    replace(each, points=run.table.points(name, model, by=by, part=part or None, step=0), kind=BEFORE)
                )
            if printed := paper_curve(run, paper or {}, name, model, part):
                found.append(replace(each, points=printed, kind=PAPER, hollow=frozenset()))
    return in_families(run, found) if schemes.many(run) else found


def paper_curve(
    run: Run, paper: Mapping[tuple[str, str, str, int], float], name: str, model: str, part: str
) -> dict[float, Point]:
    """x -> value of the paper's model of the same preset at the same relative depth.

    The paper's models have six layers. Where the model at hand has L, layer k of six stands at x = k · L / 6: the last
    layer falls on the last layer, whose collapse is what the comparison is about.
    """
    kind, depth = schemes.preset(run, model), run.depth(model)
    of_kind = {k: v for (m, preset, p, k), v in paper.items() if m == name and preset == kind and p == part}
    return {k * depth / DSTG_LAYERS: Point.between(v) for k, v in sorted(of_kind.items())}


def in_families(run: Run, lines: Lines) -> list[Line]:
    """Panels for many models: one a stream, one a family of one-stream models, at most `MOST_LINES` models each."""
    places: dict[tuple[int, str], list[str]] = {}
    for each in lines:
        members = places.setdefault(schemes.place(run, each.name, each.part), [])
        if each.name not in members:
            members.append(each.name)
    found = []
    for place in sorted(places):
        members = places[place]
        pieces = -(-len(members) // MOST_LINES)
        size = -(-len(members) // pieces)
        for each in lines:
            if schemes.place(run, each.name, each.part) == place:
                piece = members.index(each.name) // size
                found.append(replace(each, panel=place[1] + (f" ({piece + 1} of {pieces})" if pieces > 1 else "")))
    return found
