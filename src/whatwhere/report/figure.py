"""What a figure of the report is made of: panels, a table behind it, a key."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..records.table import Point
from .numbers import interval, number

Trace = dict[str, Any]
MOST_ROWS = 10  # of the table behind a figure, on the page; its CSV has all
MOST_DIGITS = 3  # after the point, on the page; the CSV has all
_FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d*\.?\d+(e[+-]?\d+)?$)")  # what a spreadsheet would run; no number


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

    @staticmethod
    def of(id: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *records: str) -> "Table":
        """Make a table; its numeric columns are those without a word, after the first."""
        words = {i for row in rows for i, cell in enumerate(row) if isinstance(cell.raw, str)}
        return Table(id, caption, columns, rows, frozenset(range(1, len(columns))) - words, records)


@dataclass(frozen=True)
class Panel:
    """Plot with plotly traces and layout, colours as "@name"; `title` and `note` are above it, `alt` is read aloud."""

    data: list[Trace]
    layout: dict[str, Any]
    title: str = ""
    alt: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels under one finding.

    title: the finding; subtitle: what is drawn, with n and seeds; key: (glyph, text) of marks that no label names;
    width: smallest width of a panel in pixels, from which the number of columns follows; even: all panels are equally
    wide. choice: what a reader chooses it by, of several figures of which one is shown at a time. behind: what the
    table behind it holds, read aloud. records: what it draws, as "metric: columns used" of records.parquet, `*` for any
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
    choice: str = ""
    behind: str = "The CSV below holds every value."
    records: Sequence[str] = ()


def text(value: str) -> Cell:
    """Return a cell of text."""
    return Cell(value, value) if value else Cell("–")


def value(raw: float | None, shown: str | None = None) -> Cell:
    """Return a cell of a number, written as `shown` or to three significant digits."""
    return Cell(shown if shown is not None else number(raw), raw)


def measured(point: Point | None, most: int = MOST_DIGITS) -> list[Cell]:
    """Return three cells: the value, and both ends of its interval; the interval decides the digits.

    Values of two or three training seeds stand behind the value.
    """
    if point is None:
        return [Cell("–"), Cell(""), Cell("")]
    low = point.low
    high = point.high
    bounds = interval(low, high, most).strip("[]").split(", ") if low is not None else ["", ""]
    shown = number(point.value, low, high, most)
    if point.few:
        shown += f" ({', '.join(number(v, low, high, most) for v in point.few)})"
    return [Cell(shown, point.value), Cell(bounds[0], low), Cell(bounds[-1], high)]


def row(*values: Any) -> list[Cell]:
    """Return the cells of a row of words, whole numbers, numbers, points or cells; None becomes a dash.

    A point takes three cells (value and ends of its interval). Numbers of an array keep six digits, as a page has
    thousands of them.
    """
    return [cell for v in values for cell in (measured(v) if isinstance(v, Point) else [_cell(v)])]


def _cell(v: Any) -> Cell:
    if v is None or (isinstance(v, np.floating) and not math.isfinite(v)):
        return Cell("–")
    if isinstance(v, np.floating):
        return Cell(number(float(v)), float(f"{v:.6g}"))
    if isinstance(v, float):
        return value(v)
    if isinstance(v, Cell):
        return v
    return text(v) if isinstance(v, str) else Cell(f"{v:,}", v)


def csv_text(table: Table) -> str:
    """Return the table as CSV: numbers with all of their digits, and nothing that a spreadsheet would run."""
    file = io.StringIO(newline="")
    for cells in ([text(name) for name in table.columns], *table.rows):
        csv.writer(file).writerow([_raw(cell) for cell in cells])
    return file.getvalue()


def _raw(cell: Cell) -> str:
    """What the CSV has of a cell: an apostrophe before what a spreadsheet would run as a formula."""
    if cell.raw is None:
        raw = "" if cell.text == "–" else cell.text
    else:
        raw = repr(float(cell.raw)) if isinstance(cell.raw, float) else str(cell.raw)
    return f"'{raw}" if _FORMULA.match(raw) else raw
