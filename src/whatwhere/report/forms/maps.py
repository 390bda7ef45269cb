"""Maps: matrices as colours, a panel each, on scales that panels may share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..figure import Cell, Figure, Panel, Table, Trace
from ..run import Run
from ..style import TEXT_SIZE, axis, diverging, layout, sequential

MOST_CELLS = 256  # rows or columns of a map that are drawn
BAR = 74  # pixels right of a map for its colour bar


def thinned(size: int, most: int = MOST_CELLS) -> list[int]:
    """At most `most` of the indices 0 ... size - 1 at equal steps, from 0; all of them where they are few enough."""
    return list(range(0, size, -(-size // most) or 1))


def rounded(values: np.ndarray, extent: float | None = None) -> list[Any]:
    """Numbers for a figure: four digits of the largest (or of `extent`), None for what is not finite."""
    values = np.asarray(values, dtype=float)
    finite = values[np.isfinite(values)]
    top = extent if extent is not None else float(np.abs(finite).max(initial=0.0))
    digits = max(0, 3 - math.floor(math.log10(top))) if top > 0 else 0
    if values.ndim == 2:
        return [[round(v, digits) if math.isfinite(v) else None for v in row] for row in values.tolist()]
    return [round(v, digits) if math.isfinite(v) else None for v in values.tolist()]


@dataclass(frozen=True, eq=False)
class Map:
    """One matrix: z (rows, columns), y names the rows, x the columns.

    hover: our own template with %{x}, %{y}, %{z:.3f}, never text from outside. limits: ends of the colours; signed: two
    colours that meet at zero. axes: titles of x and y. square: equal scales. bar: whether the colours' key stands
    beside it. more: fields of trace and layout ("xaxis", ...) that differ.
    """

    z: np.ndarray
    x: Sequence[Any]
    y: Sequence[Any]
    hover: str
    limits: tuple[float, float]
    axes: tuple[str, str]
    title: str
    note: str = ""
    height: int = 320
    signed: bool = False
    square: bool = False
    more: dict[str, Any] | None = None

    def panel(self) -> Panel:
        """The plot of the matrix."""
        more = dict(self.more or {})
        trace: Trace = {
            "type": "heatmap",
            "z": rounded(self.z, max(map(abs, self.limits))),
            "x": list(self.x),
            "y": list(self.y),
            "zmin": self.limits[0],
            "zmax": self.limits[1],
            **({"zmid": 0} if self.signed else {}),
            "colorscale": diverging() if self.signed else sequential(),
            "hovertemplate": f"{self.hover}<extra></extra>",
            "hoverongaps": False,
            "colorbar": {
                "thickness": 10,
                "outlinewidth": 0,
                "x": 1.02,
                "xpad": 6,
                "len": 1,
                "lenmode": "fraction",
                "ypad": 0,
                "nticks": 5,
                "tickfont": {"size": TEXT_SIZE, "color": "@muted"},
            },
        } | more.pop("trace", {})
        x = axis(self.axes[0], showgrid=False, nticks=6, constrain="domain", constraintoward="left")
        y = axis(self.axes[1], showgrid=False, nticks=6, constrain="domain", autorange="reversed")
        y |= {"scaleanchor": "x"} if self.square else {}
        margin = {"l": 62, "r": BAR, "t": 8, "b": 52} | more.pop("margin", {})
        plot = layout(self.height, x | more.pop("xaxis", {}), y | more.pop("yaxis", {}), margin, **more)
        if self.square:
            plot["meta"] = {"square": True}
        return Panel([trace], plot, self.title, f"{self.title} {self.note}".strip() + ".", self.note)


@dataclass(frozen=True)
class Maps:
    """A figure of matrices.

    maps: what is drawn. title, what: the rule of the finding and what is drawn, in words. table: its columns and rows.
    numeric: first column of numbers. behind: what the table holds, read aloud.
    """

    id: str
    maps: Callable[[Run], Sequence[Map]]
    title: Callable[[Run], str]
    what: Callable[[Run], str]
    caption: str
    columns: Callable[[Run], Sequence[str]]
    rows: Callable[[Run], Sequence[Sequence[Cell]]]
    records: tuple[str, ...] = ()
    width: int = 330
    text: int = 1
    behind: str = "The table below holds some of the values."

    def draw(self, run: Run) -> Figure | None:
        """The figure; None where there is no matrix."""
        panels = [each.panel() for each in self.maps(run)]
        if not panels:
            return None
        columns = self.columns(run)
        table = Table(self.id, self.caption, columns, self.rows(run), frozenset(range(self.text, len(columns))))
        return Figure(
            self.id,
            self.title(run),
            self.what(run),
            panels,
            table,
            [],
            self.width,
            len(panels) > 1,
            self.behind,
            self.records,
        )
