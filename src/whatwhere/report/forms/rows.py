"""Rows: dots with whiskers, the name at the left, the value at the right."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...metrics import metric
from ...points import Point
from ..figure import Cell, Figure, Panel, Table, Trace, count_cell, measured, text
from ..numbers import fixed, number
from ..run import Run
from ..style import CHARACTER, LABEL_LIMIT, TEXT_SIZE, axis, layout, plain
from .axes import Axis, Scale
from .marks import LEVEL as INTERVAL
from .marks import caption, dots, ends_of, errors, hover, note, reference, sample, segments

ROW = 28  # pixels
PAPER = "paper"  # as a kind of value: printed
# Kind of value -> (marker, colour or "" for that of the row, glyph of the key); any other is a dot.
_KINDS = {
    "as counted": ("square-open", "combined", "hollow-square"),
    "shuffled": ("line-ns-open", "combined", "whisker"),
    PAPER: ("circle-open", "", "paper"),
}


@dataclass(frozen=True)
class Row:
    """One row.

    points: kind -> value; the last one that is not `PAPER` is written at the right, `never` where there is none. panel:
    heading of its panel; group: a heading above it within the panel. axis: which horizontal axis, of several. counts:
    whether its value may stand beside those of other rows.
    """

    name: str
    points: Mapping[str, Point]
    panel: str = ""
    group: str = ""
    colour: str = "absolute"
    axis: str = ""
    never: str = "–"
    counts: bool = True

    @property
    def value(self) -> Point | None:
        """The value that counts."""
        return (
            None
            if not self.counts
            else next((p for kind, p in reversed(list(self.points.items())) if kind not in (PAPER, "shuffled")), None)
        )


@dataclass(frozen=True)
class Rows:
    """A figure of rows.

    metric: whose sample size the words under the title tell. rows: what is drawn, from the top. title: the rule of the
    finding. what: in words; caption: of the table. x: one axis, or one for each `Row.axis`. columns: names of panel,
    group and name in the table. levels: value -> what a dashed line there means.
    """

    id: str
    metric: str
    rows: Callable[[Run], Sequence[Row]]
    title: Callable[[Run, Sequence[Row]], str]
    what: str | Callable[[Run, Sequence[Row]], str]
    caption: str
    x: Axis | Mapping[str, Axis]
    columns: tuple[str, str, str] = ("Model", "", "Name")
    records: tuple[str, ...] = ()
    width: int = 330
    levels: Mapping[float, str] = field(default_factory=dict)

    def draw(self, run: Run) -> Figure | None:
        """The figure; None where nothing was measured."""
        rows = list(self.rows(run))
        if not any(each.points for each in rows):
            return None
        axes = {"": self.x} if isinstance(self.x, Axis) else self.x
        scales = {}
        for name, declared in axes.items():
            ends = ends_of(p for each in rows if each.axis == name for p in each.points.values())
            scales[name] = declared, declared.scale([*ends, *self.levels])
        left = round(max(min(len(each.name), LABEL_LIMIT) for each in rows) * CHARACTER) + 22
        panels = [
            self._panel([each for each in rows if each.panel == p], scales, left)
            for p in dict.fromkeys(each.panel for each in rows)
        ]
        points = [p for each in rows for kind, p in each.points.items() if kind != PAPER]
        known = metric(self.metric)
        what = self.what if isinstance(self.what, str) else self.what(run, rows)
        printed = any(PAPER in each.points for each in rows)
        return Figure(
            self.id,
            self.title(run, rows),
            caption(what, sample(points, known.counts, known.over), printed),
            panels,
            self._table(rows),
            _key(rows),
            self.width,
            len(panels) > 1,
            records=self.records,
        )

    def _panel(self, rows: Sequence[Row], scales: Mapping[str, tuple[Axis, Scale]], left: int) -> Panel:
        declared, x = scales[rows[0].axis]
        traces: list[Trace] = []
        notes: list[dict[str, Any]] = []
        ticks, spoken = [], []
        at, group = -1.0, ""
        for each in rows:
            if each.group and each.group != group:
                at, group = at + (1.2 if at >= 0 else 1.0), each.group
                look = {"xref": "paper", "xanchor": "left", "xshift": 8 - left, "yanchor": "middle"}
                notes.append(note(0, at, "", f"@ink-{each.colour}", **look) | {"text": f"<b>{plain(group)}</b>"})
            at += 1
            ticks.append((at, each.name))
            for kind, p in each.points.items():
                symbol, paint, _ = _KINDS.get(kind, ("circle", "", "dot"))
                paint = paint or each.colour
                words = hover(
                    ", ".join(filter(None, (each.panel, group, each.name))),
                    kind or declared.title,
                    p,
                    "",
                    _write(declared),
                )
                shown = dots([x.at(p.value)], [at], [paint], [words], symbol=symbol, size=9)
                if symbol.endswith("-open"):
                    shown["marker"] |= {"color": f"@{paint}", "line": {"width": 1.6, "color": f"@{paint}"}}
                if p.low is not None:
                    shown |= errors([p], paint, "x", 4, x.at(-1e9) if x.end is not float else -1e9)
                traces.append(shown | {"cliponaxis": False})
            said = _written(each, declared)
            spoken.append(f"{group} {each.name} {said}".strip())
            place = {"xref": "paper", "xanchor": "left", "xshift": 10}
            notes.append(note(1, at, said, "@muted" if each.value is None else "@text", **place))
        bottom = at + 0.6
        for level, words in self.levels.items():
            traces.insert(
                0, reference([level] * 2, [-0.6, bottom], words) if words else segments([(level, -0.6, level, bottom)])
            )
        names = {"tickvals": [t for t, _ in ticks], "ticktext": [plain(name, LABEL_LIMIT) for _, name in ticks]}
        y = axis("", range=[bottom, -0.6], showgrid=True, **names | {"tickfont": {"size": TEXT_SIZE, "color": "@text"}})
        plot = layout(
            round(ROW * (bottom + 0.6)) + 62, x.plotly(), y, {"l": left, "r": 84, "t": 6, "b": 54}, annotations=notes
        )
        return Panel(traces, plot, rows[0].panel, f"{rows[0].panel}: {'; '.join(spoken)}.".removeprefix(": "))

    def _table(self, rows: Sequence[Row]) -> Table:
        """A row a value."""
        kinds = any(kind for each in rows for kind in each.points)
        sizes = any(p.n for each in rows for p in each.points.values())
        shown = [bool(name) for name in self.columns]
        cells: list[list[Cell]] = []
        for each in rows:
            head = [text(found) for found, here in zip((each.panel, each.group, each.name), shown, strict=True) if here]
            held: Mapping[str, Point | None] = each.points or {"": None}
            for kind, p in held.items():
                row = [
                    *head,
                    *([text(kind)] if kinds else []),
                    *(measured(p, 5) if p else [Cell(each.never), Cell(""), Cell("")]),
                ]
                cells.append([*row, count_cell(p.n if p else None)] if sizes else row)
        heads = [name for name in self.columns if name] + ["Kind"] * kinds
        name = metric(self.metric).name
        columns = [*heads, f"{name[0].upper()}{name[1:]}", "Low", "High", *(["n"] if sizes else [])]
        return Table(self.id, self.caption, columns, cells, frozenset(range(len(heads), len(columns))))


def _write(declared: Axis) -> Callable[[float], str] | None:
    return declared.write if declared.kind == "share" else None


def _written(each: Row, declared: Axis) -> str:
    """The value at the right."""
    p = each.value
    if p is None:
        return each.never
    if declared.kind == "share":
        return declared.write(p.value)
    if declared.kind == "log" and 0 <= p.value < declared.floor:
        return "0"
    return fixed(p.value, 0) if abs(p.value) >= 1000 else number(p.value, p.low, p.high, 3)


def _key(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The marks that a figure uses."""
    kinds = dict.fromkeys(kind for each in rows for kind in each.points)
    key = [(_KINDS.get(kind, ("", "", "dot"))[2], "the paper" if kind == PAPER else kind) for kind in kinds if kind]
    bounded = any(p.low is not None for each in rows for p in each.points.values())
    return key + ([("whisker", INTERVAL)] if bounded else [])
