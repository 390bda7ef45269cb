"""What a figure of the report is made of (panels, a table behind it, a key), and the marks that all figures share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..points import Point
from .numbers import interval, number, percent
from .style import plain

Trace = dict[str, Any]
MOST_DIGITS = 3  # after the point, on the page; the CSV has all


@dataclass(frozen=True)
class Cell:
    """A table cell: the text shown, and the raw value that sorting and the CSV use (None: empty)."""

    text: str
    raw: float | str | None = None


@dataclass(frozen=True)
class Table:
    """A sortable table; `numeric` tells which columns stand right-aligned, `records` what it shows, as in `Figure`."""

    id: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: frozenset[int] = frozenset()
    records: Sequence[str] = ()


@dataclass(frozen=True)
class Panel:
    """One plot: plotly traces and layout, colours as "@name". `title` and `note` stand above it, `alt` is read aloud for it."""

    data: list[Trace]
    layout: dict[str, Any]
    title: str = ""
    alt: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels under one finding.

    title: the finding; subtitle: what is drawn, with n and seeds; key: (glyph, text) of marks that no label names;
    width: smallest width of a panel in pixels, from which the number of columns follows; even: all panels are equally wide.
    behind: what the table behind it holds, read aloud. records: what it draws, as "metric: columns used" of records.parquet, `*` for any
    name (`kl.share.*: layer, head`); an entry that begins with `arrays/` is a file beside the records.
    """

    id: str
    title: str
    subtitle: str
    panels: list[Panel]
    table: Table
    key: list[tuple[str, str]] = field(default_factory=list)
    width: int = 280
    even: bool = False
    behind: str = "The table below holds every value."
    records: Sequence[str] = ()


def text(value: str) -> Cell:
    """A cell of text."""
    return Cell(value, value)


def value(raw: float | None, shown: str | None = None) -> Cell:
    """A cell of a number, written as `shown` or to three significant digits."""
    return Cell(shown if shown is not None else number(raw), raw)


def of_array(raw: float, shown: str) -> Cell:
    """A cell of a number that an array holds: six significant digits, as thousands of them stand in a page; the array file has all."""
    return Cell(shown, float(f"{raw:.6g}"))


def measured(point: Point | None) -> list[Cell]:
    """Three cells: value and the two ends of its interval, digits by the interval."""
    if point is None:
        return [Cell("–"), Cell(""), Cell("")]
    low, high = point.low, point.high
    bounds = interval(low, high, MOST_DIGITS).strip("[]").split(", ") if low is not None else ["", ""]
    return [Cell(number(point.value, low, high, MOST_DIGITS), point.value), Cell(bounds[0], low), Cell(bounds[-1], high)]


def raised(point: Point, floor: float) -> Point:
    """The point with its interval, raised to what a logarithmic axis shows."""
    low, high = (None if end is None else max(end, floor) for end in (point.low, point.high))
    return Point.between(max(point.value, floor), low, high, point.n)


def repeats(points: Sequence[Point | None]) -> str:
    """What the intervals of some points are over, in words for a subtitle."""
    found = [p for p in points if p is not None]
    over = {p.over for p in found}
    level = percent(0.95, 0)
    seeds = max((p.seeds for p in found), default=0)
    if "seeds" in over:
        return f"mean over {seeds} training seeds, {level} interval between seeds"
    if over & {"splits", "documents"}:
        return f"one training seed, {level} interval over document splits"
    return "one training seed, no interval"


def hover(name: str, where: str, point: Point, what: str = "R²") -> str:
    """Literal hover text: name, place, value with its interval."""
    bounds = f" {interval(point.low, point.high, MOST_DIGITS)}" if point.low is not None else ""
    return f"<b>{plain(name)}</b><br>{plain(where)}: {what} {number(point.value, point.low, point.high, MOST_DIGITS)}{bounds}"


def line(
    points: Mapping[float, Point],
    colour: str,
    dash: str,
    symbol: str,
    name: str,
    places: Mapping[float, str],
    hollow: frozenset[float] = frozenset(),
    size: int = 8,
    width: float = 2.4,
    what: str = "R²",
) -> list[Trace]:
    """Traces of one line through its points with a bar for every interval.

    places: x -> what the place is called in the hover. hollow: x of points that are drawn hollow; the way to a hollow
    point is dotted, for it is no part of the trend.
    """
    xs = sorted(points)
    solid = [x for x in xs if x not in hollow]
    traces: list[Trace] = []
    ways: list[tuple[list[float], str, float]] = [(solid, dash, width)]
    ways += [([max(s for s in solid if s < x), x], "1px,4px", 1.6) for x in xs if x in hollow and any(s < x for s in solid)]
    for way, style, thick in ways:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": way,
                "y": [points[x].value for x in way],
                "line": {"color": f"@{colour}", "dash": style, "width": thick},
                "hoverinfo": "skip",
            }
        )
    bounded = [x for x in xs if points[x].low is not None]
    if bounded:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": bounded,
                "y": [points[x].value for x in bounded],
                "marker": {"size": 1, "color": f"@{colour}"},
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [(points[x].high or 0.0) - points[x].value for x in bounded],
                    "arrayminus": [points[x].value - (points[x].low or 0.0) for x in bounded],
                    "color": f"@{colour}",
                    "thickness": 1.4,
                    "width": 3,
                },
                "hoverinfo": "skip",
            }
        )
    traces.append(
        {
            "type": "scatter",
            "mode": "markers",
            "x": xs,
            "y": [points[x].value for x in xs],
            "marker": {
                "size": [size + 2 if x in hollow else size for x in xs],
                "symbol": symbol,
                "opacity": 1,  # plotly makes markers of several sizes see-through
                "color": ["@surface" if x in hollow else f"@{colour}" for x in xs],
                "line": {
                    "color": [f"@{colour}" if x in hollow else "@surface" for x in xs],
                    "width": [2 if x in hollow else 1 for x in xs],
                },
            },
            "hovertext": [hover(name, places.get(x, f"{x:g}"), points[x], what) for x in xs],
            "hoverinfo": "text",
        }
    )
    return traces


def paper_marks(points: Mapping[float, float], colour: str, symbol: str, name: str, places: Mapping[float, str], what: str = "R²") -> Trace:
    """The paper's values: hollow markers that no line joins."""
    xs = sorted(points)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": xs,
        "y": [points[x] for x in xs],
        "marker": {"size": 8, "symbol": f"{symbol}-open", "color": f"@{colour}", "line": {"width": 1.4, "color": f"@{colour}"}},
        "opacity": 0.75,
        "hovertext": [f"<b>{plain(name)}</b> in the paper<br>{plain(places.get(x, f'{x:g}'))}: {what} {number(points[x])}" for x in xs],
        "hoverinfo": "text",
    }


def reference(xs: Sequence[float], ys: Sequence[float], words: str, dash: str = "6px,5px") -> Trace:
    """A thin dashed grey line: chance, a plateau."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(xs),
        "y": list(ys),
        "line": {"color": "@muted", "dash": dash, "width": 1.2},
        "hovertext": [words] * len(xs),
        "hoverinfo": "text",
    }
