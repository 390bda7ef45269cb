"""Maps: matrices as colours, a panel each, on scales that panels may share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..figure import Figure, Panel, Table, Trace
from ..loaded_run import Run
from ..style import TEXT_SIZE, axis, diverging, layout, sequential
from .form import Form

MOST_CELLS = 256  # rows or columns of a map that are drawn
BAR = 74  # pixels right of a map for its colour bar


def thinned(size: int, most: int = MOST_CELLS) -> list[int]:
    """Return at most `most` of the indices 0 ... size - 1 at equal steps, from 0; all of them where they are few
    enough."""
    return list(range(0, size, -(-size // most) or 1))


def rounded(values: np.ndarray, extent: float | None = None) -> list[Any]:
    """Round numbers (columns,) or (rows, columns) for a figure, to lists of the same shape.

    They keep four digits of the largest (or of `extent`); what is not finite becomes None.
    """
    values = np.asarray(values, dtype=float)
    finite = values[np.isfinite(values)]
    top = extent if extent is not None else float(np.abs(finite).max(initial=0.0))
    digits = max(0, 3 - math.floor(math.log10(top))) if top > 0 else 0
    if values.ndim == 2:
        return [[round(v, digits) if math.isfinite(v) else None for v in row] for row in values.tolist()]
    return [round(v, digits) if math.isfinite(v) else None for v in values.tolist()]


def heatmap(
    z: np.ndarray,
    x: Sequence[Any],
    y: Sequence[Any],
    title: str,
    hover: str,
    limits: tuple[float, float],
    axes: tuple[str, str],
    *,
    note: str = "",
    height: int = 320,
    signed: bool = False,
    square: bool = False,
    **more: Any,
) -> Panel:
    """Draw a matrix (rows, columns) as a panel: y names its rows, x its columns.

    hover: our own template with %{x}, %{y}, %{z:.3f}, never text from outside. limits: ends of the colours; signed: two
    colours that meet at zero. axes: titles of x and y. square: equal scales. more: fields of "trace", "margin", "xaxis"
    and "yaxis" that differ, and other fields of the layout.
    """
    bar = {"thickness": 10, "outlinewidth": 0, "x": 1.02, "xpad": 6, "len": 1, "lenmode": "fraction", "ypad": 0}
    trace: Trace = {
        "type": "heatmap",
        "z": rounded(z, max(map(abs, limits))),
        "x": list(x),
        "y": list(y),
        "zmin": limits[0],
        "zmax": limits[1],
        "colorscale": diverging() if signed else sequential(),
        "hovertemplate": f"{hover}<extra></extra>",
        "hoverongaps": False,
        "colorbar": bar | {"nticks": 5, "tickfont": {"size": TEXT_SIZE, "color": "@muted"}},
    }
    trace |= ({"zmid": 0} if signed else {}) | more.pop("trace", {})
    common = {"showgrid": False, "nticks": 6, "constrain": "domain"}
    across = axis(axes[0], **common, constraintoward="left") | more.pop("xaxis", {})
    up = (
        axis(axes[1], **common, autorange="reversed") | ({"scaleanchor": "x"} if square else {}) | more.pop("yaxis", {})
    )
    margin = {"l": 62, "r": BAR, "t": 8, "b": 52} | more.pop("margin", {})
    plot = layout(height, across, up, margin, **more, **({"meta": {"square": True}} if square else {}))
    return Panel([trace], plot, title, f"{title} {note}".strip() + ".", note)


@dataclass(frozen=True, kw_only=True)
class Maps(Form):
    """A figure of matrices: (`heatmap` or None, its rows of the table) for each; `every`: the table holds every value
    that is drawn."""

    every: bool = False

    def draw(self, run: Run) -> Figure | None:
        """Draw the figure; None where there is no matrix."""
        drawn = [(panel, list(rows)) for panel, rows in self.source(run)]
        panels = [panel for panel, _ in drawn if panel]
        if not panels:
            return None
        table = Table.of(self.id, self.caption, self.columns, [row for _, rows in drawn for row in rows])
        figure = self.figure(self.finding(run, panels), self.words(run, panels), panels, table)
        return figure if self.every else replace(figure, behind="The table below holds some of the values.")
