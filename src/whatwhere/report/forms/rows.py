"""Rows: dots with whiskers, the name at the left, the value at the right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from ...records.table import Point
from ..figure import Cell, Figure, Panel, Table, Trace, measured, row
from ..loaded_run import Run
from ..numbers import fixed, number
from ..style import CHARACTER, LABEL_LIMIT, TEXT_SIZE, axis, layout, plain
from .axes import Axis, Scale, fitted
from .form import INTERVAL, SEED, SEEDS, Form, dots, errors, hover, note, reference, segments, singles

ROW = 28  # pixels
PAPER = "paper"  # as a kind of value: printed,
UNTRAINED = "weights drawn anew"  # or of the same model without its training,
BEST = "best on these rows"  # or where the rows that judge have chosen, too
# Kind of value -> (marker, colour or "" for the row's, glyph of the key); any other is a dot.
_KINDS = {
    "as counted": ("square-open", "combined", "hollow-square"),
    "shuffled": ("line-ns-open", "combined", "whisker"),
    UNTRAINED: ("square-open", "combined", "hollow-square"),
    BEST: ("line-ns-open", "", "tick"),
    PAPER: ("circle-open", "", "paper"),
}


@dataclass(frozen=True)
class Row:
    """Row of a plot: one model, or one model in one group.

    points: kind -> value; the last one that is not `PAPER` is written at the right, `never` where there is none. panel:
    heading of its panel; group: a heading above it within the panel. axis: which horizontal axis, of several. counts:
    whether its value may stand beside other rows' values. remark: what stands behind the name.
    """

    name: str
    points: Mapping[str, Point]
    panel: str = ""
    group: str = ""
    colour: str = "absolute"
    axis: str = ""
    never: str = "–"
    counts: bool = True
    remark: str = ""

    @property
    def whole(self) -> str:
        """Name and remark."""
        return f"{self.name} {self.remark}".strip()

    @property
    def value(self) -> Point | None:
        """The value that counts."""
        values = [p for kind, p in self.points.items() if kind not in (PAPER, "shuffled")]
        return values[-1] if values and self.counts else None


@dataclass(frozen=True, kw_only=True)
class Rows(Form):
    """A figure of rows, from the top.

    x: one axis, or one for each `Row.axis`. columns: names of panel, group and name in the table. levels: value -> what
    a dashed line there means.
    """

    x: Axis | Mapping[str, Axis]
    columns: Sequence[str] = ("Model", "", "Name")
    levels: Mapping[float, str] = field(default_factory=dict)

    def draw(self, run: Run) -> Figure | None:
        """Draw the figure; None where nothing was measured."""
        rows = list(self.source(run))
        if not any(line.points for line in rows):
            return None
        scales = fitted(self.x, ((line.axis, p) for line in rows for p in line.points.values()), *self.levels)
        left = round(max(min(len(line.whole), LABEL_LIMIT) for line in rows) * CHARACTER) + 22
        titles = dict.fromkeys(line.panel for line in rows)
        panels = [self._panel([line for line in rows if line.panel == title], scales, left) for title in titles]
        points = [p for line in rows for kind, p in line.points.items() if kind != PAPER]
        words = self.sampled(run, rows, points, any(PAPER in line.points for line in rows))
        return self.figure(self.finding(run, rows), words, panels, self._table(rows), _key(rows))

    def _panel(self, rows: Sequence[Row], scales: Mapping[str, Scale], left: int) -> Panel:
        x = scales[rows[0].axis]
        traces: list[Trace] = []
        notes: list[dict[str, Any]] = []
        ticks: dict[float, str] = {}
        spoken = []
        at = -1.0
        group = ""
        for line in rows:
            if line.group and line.group != group:
                at = at + (1.2 if at >= 0 else 1.0)
                group = line.group
                look = {"xref": "paper", "xanchor": "left", "xshift": 8 - left, "yanchor": "middle"}
                notes.append(note(0, at, "", f"@ink-{line.colour}", **look) | {"text": f"<b>{plain(group)}</b>"})
            at += 1
            ticks[at] = plain(line.whole, LABEL_LIMIT)
            name = ", ".join(filter(None, (line.panel, group, line.whole)))
            labels = [line.panel, group, line.name]
            for kind, p in line.points.items():
                traces += [trace | {"meta": labels} for trace in _marks(line, kind, p, name, at, x)]
            text = _written(line, x.axis)
            spoken.append(f"{group} {line.whole} {text}".strip())
            place = {"xref": "paper", "xanchor": "left", "xshift": 10, "name": line.name}
            notes.append(note(1, at, text, "@muted" if line.value is None else "@text", **place))
        bottom = at + 0.6
        for level, words in self.levels.items():
            ends = (level, -0.6, level, bottom)
            traces.insert(0, reference(ends[::2], ends[1::2], words) if words else segments([ends]))
        names = {"tickvals": list(ticks), "ticktext": list(ticks.values())}
        y = axis("", range=[bottom, -0.6], showgrid=True, **names, tickfont={"size": TEXT_SIZE, "color": "@text"})
        margin = {"l": left, "r": 84, "t": 6, "b": 54}
        plot = layout(round(ROW * (bottom + 0.6)) + 62, x.plotly(), y, margin, annotations=notes)
        return Panel(traces, plot, rows[0].panel, f"{rows[0].panel}: {'; '.join(spoken)}.".removeprefix(": "))

    def _table(self, rows: Sequence[Row]) -> Table:
        """A row a value."""
        kinds = any(kind for line in rows for kind in line.points)
        sizes = any(p.n for line in rows for p in line.points.values())
        shown = [*map(bool, self.columns), kinds]
        cells = []
        for line in rows:
            points: Mapping[str, Point | None] = line.points or {"": None}
            for kind, p in points.items():
                header = row(*compress((line.panel, line.group, line.whole, kind), shown))
                of = measured(p, 5) if p else [Cell(line.never), Cell(""), Cell("")]
                n = p.n if p else None
                counts = row(n) if sizes else []
                cells.append([*header, *of, *counts])
        heads = [*compress((*self.columns, "Kind"), shown)]
        counted = ["n"] if sizes else []
        columns = [*heads, self.heading({line.axis for line in rows}), "Low", "High", *counted]
        return Table(self.id, self.caption, columns, cells, frozenset(range(len(heads), len(columns))))


def _marks(line: Row, kind: str, p: Point, name: str, at: float, x: Scale) -> list[Trace]:
    """A value with its interval, before it the values of two or three training seeds."""
    symbol, paint, _ = _KINDS.get(kind, ("circle", "", "dot"))
    paint = paint or line.colour
    words = hover(name, kind or x.axis.title, p, x.axis)
    shown = dots([x.at(p.value)], [at], [paint], [words], symbol=symbol, size=9)
    if symbol.endswith("-open"):
        shown["marker"] |= {"color": f"@{paint}", "line": {"width": 1.6, "color": f"@{paint}"}}
    shown |= errors([p], paint, "x", 4, x.at(-1e9)) if p.low is not None else {}
    return [*singles([p], [at], paint, x.at, "x"), shown | {"cliponaxis": False}]


def _written(line: Row, declared: Axis) -> str:
    """The value at the right."""
    p = line.value
    if p is None:
        return line.never
    if declared.kind in ("share", "layer"):  # the latter: whole numbers
        return declared.write(p.value)
    if declared.kind == "log" and 0 <= p.value < declared.floor:
        return "0"
    return fixed(p.value, 0) if abs(p.value) >= 1000 else number(p.value, p.low, p.high, 3)


def _key(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The marks that a figure uses."""
    kinds = dict.fromkeys(kind for line in rows for kind in line.points)
    key = [
        (_KINDS.get(kind, ("", "", "dot"))[2], "hollow: the paper" if kind == PAPER else kind) for kind in kinds if kind
    ]
    bounded = any(p.low is not None for line in rows for p in line.points.values())
    seeds = any(p.few for line in rows for p in line.points.values())
    if bounded:
        key.append(("whisker", INTERVAL))
    if seeds:
        key.append((SEED, SEEDS))
    return key
