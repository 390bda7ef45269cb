"""Points: a cloud with one point for each head or pair, and paths through a plane, one point a position."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ...records.table import Point
from ..figure import Cell, Figure, Panel, Table, Trace
from ..loaded_run import Run
from ..numbers import count
from ..style import axis, layout
from .axes import Axis, Scale, ends_of
from .form import Form, beside, dots, errors, line, note, segments, shaded, singles, symbols
from .maps import rounded


@dataclass(frozen=True)
class Dot:
    """Point of a plot: x and y, its colour, and its hover text; `group` names its colour in the plot."""

    x: Point
    y: Point
    panel: str
    group: str
    colour: str
    hover_text: str
    cells: Sequence[Cell] = ()


@dataclass(frozen=True, kw_only=True)
class Cloud(Form):
    """A figure of points, a panel for each `Dot.panel`; the rows of its table are `Dot.cells`."""

    x: Axis
    y: Axis
    width: int = 320

    def draw(self, run: Run) -> Figure | None:
        """Draw the figure; None where nothing was measured."""
        every = list(self.source(run))
        if not every:
            return None
        x = self.x.scale(d.x.value for d in every)
        y = self.y.scale(ends_of(d.y for d in every))
        names = dict.fromkeys(d.panel for d in every)
        panels = [self._panel([d for d in every if d.panel == name], x, y) for name in names]
        table = Table.of(self.id, self.caption, self.columns, [d.cells for d in every])
        return self.figure(self.finding(run, every), self.sampled(run, every, [d.y for d in every]), panels, table)

    def _panel(self, members: Sequence[Dot], x: Scale, y: Scale) -> Panel:
        traces: list[Trace] = []
        notes = []
        if y.bounds[0] < 0 < y.bounds[1]:
            traces.append(segments([(x.ends[0], 0.0, x.ends[1], 0.0)], dash="6px,5px"))
        for i, group in enumerate(dict.fromkeys(d.group for d in members)):
            of = [d for d in members if d.group == group]
            xs = [x.at(d.x.value) for d in of]
            ys = [y.at(d.y.value) for d in of]
            traces += singles([d.y for d in of], xs, of[0].colour, y.at)
            shown = dots(xs, ys, [d.colour for d in of], [d.hover_text for d in of])
            traces.append(shown | errors([d.y for d in of], of[0].colour))
            place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "top", "yshift": -17 * i}
            notes.append(note(0.02, 1.0, group, f"@ink-{of[0].colour}", borderpad=0, bgcolor="@halo", **place))
        plot = layout(320, x.plotly(), y.plotly(), {"l": 70, "r": 14, "t": 8, "b": 52}, annotations=notes)
        name = members[0].panel
        return Panel(traces, plot, name, f"{name}: {count(len(members), 'point')}.")


def path(
    coords: np.ndarray,
    names: Sequence[str],
    title: str,
    alt: str,
    remark: str = "",
    *,
    at: Sequence[int] | None = None,
    alone: Collection[float] = (),
    height: int = 430,
) -> Panel:
    """Draw positions (n, 2 or more) in the plane of two columns, joined in order, as a panel.

    names: of the columns. at: the position of each row; some at equal steps, and those that stand `alone`, which are
    ringed, are named, half as many in a small panel. Later positions are drawn in stronger colours; both axes have one
    scale.
    """
    at = range(len(coords)) if at is None else at
    every = named_every(at[-1] + 1) * (2 if height < 300 else 1)
    x = rounded(coords[:, 0])
    y = rounded(coords[:, 1])
    marker = shaded(list(at), at[0], at[-1], size=[10 if p % every == 0 else 6 for p in at])
    traces = [
        line(x, y, "muted", width=0.8, opacity=0.4),
        symbols(x, y, marker, hovertext=[f"position {p}" for p in at], hoverinfo="text"),
    ]
    if ringed := [i for i, p in enumerate(at) if p in alone]:
        ring = {"size": 15, "symbol": "circle-open", "color": "@text", "line": {"width": 1.4, "color": "@text"}}
        traces.append(symbols([x[i] for i in ringed], [y[i] for i in ringed], ring, hoverinfo="skip"))
    away = coords[:, :2] - coords[:, :2].mean(axis=0)
    labelled = [i for i, p in enumerate(at) if p % every == 0 or p in alone]
    notes = [beside(coords[i, :2].tolist(), str(at[i]), away[i].tolist()) for i in labelled]
    # A square frame with equal scales: a long thin path is seen to be one.
    middle = (coords[:, :2].min(axis=0) + coords[:, :2].max(axis=0)) / 2
    half = 0.57 * float(np.ptp(coords[:, :2], axis=0).max() or 1.0)
    frame = [[float(m) - half, float(m) + half] for m in middle]
    zero = {"nticks": 5, "constrain": "domain", "zeroline": True, "zerolinecolor": "@grid"}
    across = axis(names[0], range=frame[0], constraintoward="left", **zero)
    up = axis(names[1], range=frame[1], scaleanchor="x", **zero)
    margin = {"l": 66, "r": 14, "t": 8, "b": 52}
    plot = layout(height, across, up, margin, annotations=notes, meta={"square": True})
    return Panel(traces, plot, title, alt, remark)


def named_every(last: int) -> int:
    """Return the steps between two positions that are named: 16, fewer in a short path, more in a long one."""
    if last < 48:
        return 8
    return 16 if last <= 256 else 2 ** int(np.ceil(np.log2(last / 16)))
