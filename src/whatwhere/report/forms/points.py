"""Points: a cloud with one point for each head or pair, and paths through a plane, one point a position."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...points import Point
from ..figure import Cell, Figure, Panel, Table, Trace
from ..numbers import count
from ..run import Run
from ..style import axis, layout, sequential
from .axes import Axis
from .maps import rounded
from .marks import beside, dots, ends_of, errors, line, note, segments


@dataclass(frozen=True)
class Dot:
    """One point: values of x and y, its colour and what it is said to be; `group` names its colour in the plot."""

    x: Point
    y: Point
    panel: str
    group: str
    colour: str
    said: str
    cells: Sequence[Cell] = ()


@dataclass(frozen=True)
class Cloud:
    """A figure of points, a panel for each `Dot.panel`.

    points: what is drawn. title: the rule of the finding. what: in words. columns: of the table, whose rows are
        `Dot.cells`;
    text: how many of them are names.
    """

    id: str
    points: Callable[[Run], Sequence[Dot]]
    title: Callable[[Run, Sequence[Dot]], str]
    what: Callable[[Run, Sequence[Dot]], str]
    caption: str
    x: Axis
    y: Axis
    columns: tuple[str, ...]
    numeric: frozenset[int]
    records: tuple[str, ...] = ()

    def draw(self, run: Run) -> Figure | None:
        """The figure; None where nothing was measured."""
        found = list(self.points(run))
        if not found:
            return None
        x, y = self.x.scale(d.x.value for d in found), self.y.scale(ends_of(d.y for d in found))
        panels = []
        for name in dict.fromkeys(d.panel for d in found):
            mine = [d for d in found if d.panel == name]
            traces: list[Trace] = []
            notes = []
            if y.bounds[0] < 0 < y.bounds[1]:
                ends = x.bounds if x.end is float else [10**v for v in x.bounds]
                traces.append(segments([(ends[0], 0.0, ends[1], 0.0)], dash="6px,5px"))
            for i, group in enumerate(dict.fromkeys(d.group for d in mine)):
                of = [d for d in mine if d.group == group]
                shown = dots(
                    [x.at(d.x.value) for d in of],
                    [y.at(d.y.value) for d in of],
                    [d.colour for d in of],
                    [d.said for d in of],
                )
                traces.append(shown | errors([d.y for d in of], of[0].colour))
                place = {
                    "xref": "paper",
                    "yref": "paper",
                    "xanchor": "left",
                    "yanchor": "top",
                    "yshift": -17 * i,
                    "bgcolor": "@halo",
                }
                notes.append(note(0.02, 1.0, group, f"@ink-{of[0].colour}", borderpad=0, **place))
            plot = layout(320, x.plotly(), y.plotly(), {"l": 70, "r": 14, "t": 8, "b": 52}, annotations=notes)
            panels.append(Panel(traces, plot, name, f"{name}: {count(len(mine), 'point')}."))
        table = Table(self.id, self.caption, self.columns, [d.cells for d in found], self.numeric)
        what = self.what(run, found)
        return Figure(
            self.id, self.title(run, found), what, panels, table, [], 320, len(panels) > 1, records=self.records
        )


def path(
    coords: np.ndarray,
    at: Sequence[int],
    titles: Sequence[str],
    *,
    every: int,
    alone: Collection[int] = (),
    height: int = 430,
) -> tuple[list[Trace], dict[str, Any]]:
    """Traces and layout of positions (n, 2 or more) in the plane of two columns, joined in order.

    at: the position of each row; those divisible by `every`, and those that stand `alone`, which are ringed, are named.
    Later positions are drawn in stronger colours; both axes have one scale.
    """
    x, y = rounded(coords[:, 0]), rounded(coords[:, 1])
    marker = {
        "size": [10 if p % every == 0 else 6 for p in at],
        "color": list(at),
        "cmin": at[0],
        "cmax": max(at[-1], at[0] + 1),
        "colorscale": sequential(3),
        "opacity": 1,
        "line": {"width": 0.5, "color": "@surface"},
    }
    points = {"type": "scatter", "mode": "markers", "x": x, "y": y, "marker": marker}
    traces = [
        line(x, y, "muted", width=0.8, opacity=0.4),
        points | {"hovertext": [f"position {p}" for p in at], "hoverinfo": "text"},
    ]
    if ringed := [i for i, p in enumerate(at) if p in alone]:
        ring = {"size": 15, "symbol": "circle-open", "color": "@text", "line": {"width": 1.4, "color": "@text"}}
        rings = {"type": "scatter", "mode": "markers", "x": [x[i] for i in ringed], "y": [y[i] for i in ringed]}
        traces.append(rings | {"marker": ring, "hoverinfo": "skip"})
    middle = coords[:, :2].mean(axis=0)
    named = [i for i, p in enumerate(at) if p % every == 0 or p in alone]
    notes = [
        beside(float(coords[i, 0]), float(coords[i, 1]), str(at[i]), (float(away[0]), float(away[1])))
        for i in named
        for away in [coords[i, :2] - middle]
    ]
    # A square frame with equal scales: a long thin path is seen to be one.
    middle = (coords[:, :2].min(axis=0) + coords[:, :2].max(axis=0)) / 2
    half = 0.57 * float(np.ptp(coords[:, :2], axis=0).max() or 1.0)
    frame = [[float(m) - half, float(m) + half] for m in middle]
    zero = {"nticks": 5, "constrain": "domain", "zeroline": True, "zerolinecolor": "@grid"}
    across = axis(titles[0], range=frame[0], constraintoward="left", **zero)
    up = axis(titles[1], range=frame[1], scaleanchor="x", **zero)
    return traces, layout(
        height, across, up, {"l": 66, "r": 14, "t": 8, "b": 52}, annotations=notes, meta={"square": True}
    )


def named_every(last: int) -> int:
    """Every how many positions one is named: 16, fewer in a short path, more in a long one."""
    return 16 if 48 <= last <= 256 else 8 if last < 48 else 2 ** int(np.ceil(np.log2(last / 16)))
