"""Figures of what a corpus says about positions: support, noise floor, Hellinger distances, their spectrum and their map.

"As counted" is the plug-in distance of the observed shares, "corrected" the one without the bias of small samples (split halves).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..points import Point
from . import geometry_findings as findings
from .figures import Cell, Figure, Panel, Table, Trace, measured, text, value
from .geometry_load import CORRECTED, Corpus, Geometry
from .maps import heatmap, map_layout, rounded, thinned
from .numbers import count, fixed, number
from .style import axis, label_margin, layout, line_end_labels, log_axis, plain

MOST_POINTS = 512  # positions of a line, points of a map, rows of a table, for one corpus
MOST_ROWS = 1024  # of those, for all corpora together
MOST_SIDE = 256  # rows of a matrix
MOST_CELLS = 400_000  # of all matrices of the page together
PLUG_IN, CLEAN = "as counted", "corrected"
HEIGHT, MARGIN = 300, {"l": 62, "r": 16, "t": 10, "b": 52}


def most_points(corpora: Sequence[Corpus]) -> int:
    """Positions of each corpus that a line or a table shows."""
    return min(MOST_POINTS, max(64, MOST_ROWS // max(1, len(corpora))))


def ends(*arrays: np.ndarray) -> tuple[float, float]:
    """Smallest and largest finite number; 0 and 0 where there is none."""
    finite = np.concatenate([a[np.isfinite(a)] for a in arrays] or [np.zeros(0)])
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)


def wide(corpora: Sequence[Corpus]) -> int:
    """Smallest width of a panel where each corpus has one."""
    return {1: 560, 2: 400}.get(len(corpora), 300)


def curve(
    x: Sequence[float], y: Sequence[float | None], colour: str, name: str, dash: str = "solid", width: float = 2.2, what: str = "lag"
) -> Trace:
    """A line without intervals; its hover tells name, place and value."""
    said = [f"<b>{plain(name)}</b><br>{what} {a:g}: {number(b)}" for a, b in zip(x, y, strict=True)]
    look = {"color": f"@{colour}", "dash": dash, "width": width}
    return {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "line": look, "hovertext": said, "hoverinfo": "text"}


def band(x: Sequence[float], low: Sequence[float | None], high: Sequence[float | None], colour: str) -> Trace:
    """The ground between two lines; places where one of them is missing are left out."""
    held = [(a, b, c) for a, b, c in zip(x, low, high, strict=True) if b is not None and c is not None]
    xs = [a for a, _, _ in held]
    ys = [c for _, _, c in held] + [b for _, b, _ in held][::-1]
    ground = {
        "type": "scatter",
        "mode": "lines",
        "fill": "toself",
        "fillcolor": f"@band-{colour}",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    return ground | {"x": xs + xs[::-1], "y": ys}


def named(points: Mapping[str, Point | None]) -> dict[str, Point]:
    """Those that were measured."""
    return {n: p for n, p in points.items() if p is not None}


def of_each(run: Geometry, metric: str, part: str | None = None) -> dict[str, Point]:
    """Corpus -> a value of it, where it was measured."""
    return named({c.name: run.point(metric, c.name, part) for c in run.corpora})


def where(corpus: Corpus) -> str:
    """The file that holds what a figure thins out."""
    return f"arrays/geometry-{corpus.facts.get('file') or corpus.name}.npz"


def lags(run: Geometry) -> Figure | None:
    """Root mean square distance by lag, as counted and corrected, over the noise floor."""
    corpora = [c for c in run.corpora if c.vector("lag") is not None and c.vector("lag_mean") is not None]
    if not corpora:
        return None
    floors = of_each(run, "floor.mean")
    drawn = [v for c in corpora for k in ("lag_mean", "lag_mean_corrected") if (v := c.vector(k)) is not None]
    lowest, highest = ends(*drawn)
    top = max(highest, *(p.value for p in floors.values()), 1e-6) * 1.08
    bottom = min(0.0, lowest) - 0.03 * top
    labels = [PLUG_IN, CLEAN, "noise floor"]
    margin = MARGIN | {"r": label_margin(labels)}
    height = {1: 420, 2: 212}.get(len(corpora), 240)  # two still fit the first screen
    panels, rows = [], []
    for c in corpora:
        lag = c.arrays["lag"]
        kept = thinned(len(lag), most_points(run.corpora))
        xs = [int(lag[i]) for i in kept]
        floor = floors.get(c.name)
        traces, labelled = [], []
        if floor is not None:
            if floor.low is not None and floor.high is not None:
                traces.append(band([xs[0], xs[-1]], [floor.low] * 2, [floor.high] * 2, "combined"))
            traces.append(curve([xs[0], xs[-1]], [floor.value] * 2, "combined", "noise floor, mean", "6px,5px", 1.4))
            labelled.append((float(xs[-1]), floor.value, "noise floor", "combined"))
        columns = []
        for key, name, dash in (("lag_mean", PLUG_IN, "6px,4px"), ("lag_mean_corrected", CLEAN, "solid")):
            found = c.vector(key)
            columns.append([None] * len(xs))
            if found is not None and len(found) == len(lag):
                ys = rounded(found[kept])
                traces.append(curve(xs, ys, "absolute", f"{c.name}, {name}", dash))
                labelled.append((float(xs[-1]), next((y for y in reversed(ys) if y is not None), 0.0), name, "absolute"))
                columns[-1] = ys
        plot = layout(
            height,
            axis("lag", range=[0, xs[-1] * 1.02], showgrid=False, nticks=6),
            axis("distance", range=[bottom, top], nticks=6, zeroline=True, zerolinecolor="@rule"),
            margin,
            annotations=line_end_labels(labelled, (bottom, top), height - margin["t"] - margin["b"]),
        )
        said = ", ".join(f"{name} {number(y)} at lag {xs[-1]}" for x, y, name, _ in labelled)
        panels.append(Panel(traces, plot, c.name if len(run.corpora) > 1 else "", f"{c.name}: {said}."))
        rows += [[text(c.name), value(x, str(x)), *(value(col[i], number(col[i])) for col in columns)] for i, x in enumerate(xs)]
    growth = of_each(run, "lag.correlation" + CORRECTED)
    title = findings.apart(of_each(run, "distance.mean"), of_each(run, "distance.mean" + CORRECTED), growth)
    floor_words = (
        " Noise floor: the distance of one position from itself in two halves of the documents, mean over positions; all documents "
        "together have less noise than a half."
        if floors
        else ""
    )
    kinds = "as counted" + (
        " and corrected for the bias of small samples" if any(c.vector("lag_mean_corrected") is not None for c in corpora) else ""
    )
    below = " It is below 0 where the corrected squares are on average, which is noise." if lowest < 0 else ""
    subtitle = (
        f"Root mean square Hellinger distance of the token distributions of two positions against their lag, {kinds} (largest possible: "
        f"1.41).{below}{floor_words}"
    )
    columns_named = ["Corpus", "Lag", "As counted", "Corrected"]
    return Figure(
        "lag",
        title,
        subtitle,
        panels,
        Table("lag", "Root mean square distance by lag", columns_named, rows, frozenset({1, 2, 3})),
        width=300,
        even=len(panels) > 1,
    )


def support(run: Geometry) -> Figure | None:
    """Tokens counted at each position, the positions left out in grey; below, the noise floor and the distance of neighbours."""
    corpora = [c for c in run.corpora if c.vector("support") is not None]
    if not corpora:
        return None
    most = ends(*(c.arrays["support"] for c in corpora))[1]
    longest = max(len(c.arrays["support"]) for c in corpora)
    panels = [_support_panel(c, most, longest, run) for c in corpora]
    floors = [c for c in corpora if (f := c.vector("floor")) is not None and len(f) == len(c.positions)]
    if floors:
        top = ends(*(v for c in floors for v in (c.arrays["floor"], *_neighbours(c).values())))[1] * 1.08
        panels += [_floor_panel(c, top, longest, run) for c in floors]
    kept = {c.name: (len(c.positions), c.number("positions_asked") or len(c.arrays["support"])) for c in corpora}
    empty = {c.name: sum(p < len(c.arrays["support"]) and not c.arrays["support"][p] for p in c.positions) for c in corpora}
    rows = []
    for c in corpora:
        left = set(c.left_out)
        floor = dict(zip(c.positions, c.arrays["floor"], strict=False)) if c in floors else {}
        rows += [
            [
                text(c.name),
                value(i, str(i)),
                value(float(c.arrays["support"][i]), number(float(c.arrays["support"][i]))),
                text("left out" if i in left else "kept"),
            ]
            + [value(float(floor[i]), number(float(floor[i]))) if i in floor and np.isfinite(floor[i]) else Cell("–")]
            for i in thinned(len(c.arrays["support"]), most_points(run.corpora))
        ]
    subtitle = "Tokens counted at each position, on a logarithmic axis; " + (
        "all positions take part in everything below, those where nothing stands as uniform distributions."
        if run.paper
        else "positions with too few are grey and take part in nothing below."
    )
    if floors:
        subtitle += (
            f" The other panel{'s' if len(floors) > 1 else ''}: distance of a position from itself in two halves of the documents (grey, "
            "band: 95\u202f% of the random halves) and of each position from the next, as counted (dashed) and corrected (solid)."
        )
    table = Table("support", "Support by position", ["Corpus", "Position", "Tokens", "Use", "Noise floor"], rows, frozenset({1, 2, 4}))
    return Figure("support", findings.supported(kept, empty), subtitle, panels, table, width=wide(corpora), even=True)


def _support_panel(c: Corpus, most: float, longest: int, run: Geometry) -> Panel:
    several = len(run.corpora) > 1
    counted = c.arrays["support"]
    left = set(c.left_out)
    indices = thinned(len(counted), most_points(run.corpora))
    step = indices[1] if len(indices) > 1 else 1
    traces: list[Trace] = []
    for colour, name in (("absolute", "kept"), ("combined", "left out")):
        held = [
            (i, float(counted[i])) for i in indices if (i in left) == (name == "left out") and np.isfinite(counted[i]) and counted[i] > 0
        ]
        for stretch in _stretches(held, step):
            trace = curve([i for i, _ in stretch], [v for _, v in stretch], colour, f"{c.name}, {name}", width=1.6, what="position")
            trace["line"]["shape"] = "hvh"
            traces.append(trace | {"fill": "tozeroy", "fillcolor": f"@band-{colour}"})
    y = log_axis("tokens", 1, max(most, 10) * 1.3)
    plot = layout(240, axis("position", range=[-1, longest], showgrid=False, nticks=6), y, MARGIN)
    said = f"Tokens counted at {len(counted)} positions of {c.name}, {len(left)} of them left out."
    return Panel(traces, plot, c.name if several else "Tokens at each position", said, "tokens at each position" if several else "")


def _stretches(held: Sequence[tuple[int, float]], step: int) -> list[list[tuple[int, float]]]:
    """Neighbouring positions together, so that no line crosses a gap."""
    found: list[list[tuple[int, float]]] = []
    for i, v in held:
        if not found or i - found[-1][-1][0] > step:
            found.append([])
        found[-1].append((i, v))
    return found


def _neighbours(c: Corpus) -> dict[str, np.ndarray]:
    """Distance of each kept position from the next kept one, by name of the kind."""
    kinds = {PLUG_IN: c.matrix("distance"), CLEAN: c.matrix("corrected")}
    return {name: np.diagonal(m, 1) for name, m in kinds.items() if m is not None and len(m) == len(c.positions)}


def _floor_panel(c: Corpus, top: float, longest: int, run: Geometry) -> Panel:
    several = len(run.corpora) > 1
    positions = c.positions
    kept = thinned(len(positions), most_points(run.corpora))
    xs = [positions[i] for i in kept]
    traces: list[Trace] = []
    ends = c.vector("floor_low"), c.vector("floor_high")
    if ends[0] is not None and ends[1] is not None and len(ends[0]) == len(ends[1]) == len(positions):
        traces.append(band(xs, rounded(ends[0][kept]), rounded(ends[1][kept]), "combined"))
    traces.append(curve(xs, rounded(c.arrays["floor"][kept]), "combined", f"{c.name}, noise floor", what="position"))
    lowest = 0.0
    for name, found in _neighbours(c).items():
        held = [i for i in kept if i < len(found)]
        ys = rounded(found[held])
        lowest = min([lowest, *(v for v in ys if v is not None)])
        dash = "solid" if name == CLEAN else "6px,4px"
        traces.append(curve([positions[i] for i in held], ys, "absolute", f"{c.name}, to the next position, {name}", dash, 1.6, "position"))
    y = axis("distance", range=[lowest - 0.04 * top, top], nticks=5, zeroline=True, zerolinecolor="@rule")
    plot = layout(240, axis("position", range=[-1, longest], showgrid=False, nticks=6), y, MARGIN)
    words = f"Noise floor and distance to the next position of {c.name}."
    return Panel(traces, plot, c.name if several else "Noise floor and neighbours", words, "noise floor and neighbours" if several else "")


def matrices(run: Geometry, cells: int = MOST_CELLS) -> Figure | None:
    """The Hellinger matrices, as counted and corrected, on the same colours within each kind; at most `cells` cells are drawn."""
    kinds = (("distance", PLUG_IN), ("corrected", CLEAN))
    corpora = [c for c in run.corpora if any(c.matrix(k) is not None for k, _ in kinds)]
    if not corpora:
        return None
    shown = [(key, name, c, m) for c in corpora for key, name in kinds if (m := c.matrix(key)) is not None]
    side = min(MOST_SIDE, int((cells / len(shown)) ** 0.5))
    top: dict[str, float] = {}
    for key, _, _, m in shown:
        top[key] = max(top.get(key, 0.0), ends(m)[1])
    panels, thin = [], 0
    for key, name, c, m in shown:
        kept = thinned(len(m), side)
        thin = max(thin, kept[1] if len(kept) > 1 else 0)
        at = [c.positions[i] for i in kept]
        z = np.maximum(m[np.ix_(kept, kept)], 0.0)
        trace = heatmap(z, at, at, "positions %{x} and %{y}<br>distance %{z:.3f}", (0.0, top[key] or 1.0))
        title = f"{c.name}, {name}" if len(run.corpora) > 1 else name.capitalize()
        panels.append(
            Panel([trace], map_layout(560, "position", "position", square=True), title, f"Hellinger distances of {c.name}, {name}.")
        )
    subtitle = (
        "Distance of every two positions. Colours run from 0 at the ground of the page to the largest value of each kind, the same for "
        "all corpora; a corrected distance whose square came out negative, which is noise, is drawn as 0. In the centred "
        "matrix of squared distances each has its sign; what depends on the lag alone is its Toeplitz part, and a circulant one also "
        "takes first and last position for neighbours."
    )
    if thin > 1:
        subtitle += f" Thinned for drawing: every {_ordinal(thin)} position of the largest matrix; all are in {where(corpora[0])}."
    ending = CORRECTED if of_each(run, "toeplitz" + CORRECTED) else ""
    toeplitz = of_each(run, "toeplitz" + ending)
    title = findings.lag_alone(toeplitz, of_each(run, "circulant" + ending), bool(ending)) if toeplitz else "Distances between positions"
    table = Table(
        "matrix",
        f"Distances of each position, summed up; every single one is in {where(corpora[0])}",
        _MATRIX_COLUMNS,
        _matrix_rows(corpora),
        frozenset(range(1, 8)),
    )
    return Figure("matrix", title, subtitle, panels, table, width=400, even=True, behind="The table below sums up each row.")


_MATRIX_COLUMNS = ["Corpus", "Position", "To the next", "corrected", "To the first", "corrected", "Root mean square", "corrected"]


def _matrix_rows(corpora: Sequence[Corpus]) -> list[list[Cell]]:
    rows = []
    for c in corpora:
        kinds = [c.matrix("distance"), c.matrix("corrected")]
        for i in thinned(len(c.positions), most_points(corpora)):
            cells = []
            for pick in ("next", "first", "mean"):
                for m in kinds:
                    found = None if m is None or i >= len(m) else _summed(m, i, pick)
                    cells.append(value(found, fixed(found, 3)) if found is not None else Cell("–"))
            rows.append([text(c.name), value(c.positions[i], str(c.positions[i])), *cells])
    return rows


def _summed(m: np.ndarray, i: int, pick: str) -> float | None:
    if pick == "mean":
        others = np.delete(m[i], i)
        square = float(np.nanmean(np.sign(others) * others**2)) if np.isfinite(others).any() else None
        found = None if square is None else float(np.sign(square) * np.sqrt(abs(square)))
    else:
        other = 0 if pick == "first" else i + 1
        found = float(m[i, other]) if other < len(m) else None
    return found if found is not None and np.isfinite(found) else None


def _ordinal(n: int) -> str:
    return {2: "second", 3: "third"}.get(n, f"{n}th")


def between(run: Geometry) -> Figure | None:
    """Distance of two corpora at equal positions."""
    names = [c.name for c in run.corpora]
    pairs: dict[tuple[str, str], dict[int, Point]] = {}
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            for model in ("", a, b):
                if found := run.by_index("between", model, f"{a}|{b}"):
                    pairs.setdefault((a, b), found)
    if not pairs:
        return None
    top = max(p.high or p.value for points in pairs.values() for p in points.values()) * 1.08
    panels, rows = [], []
    for (a, b), points in pairs.items():
        xs = [list(points)[i] for i in thinned(len(points), most_points(run.corpora))]
        traces: list[Trace] = []
        if all(points[x].low is not None for x in xs):
            traces.append(band(xs, [points[x].low for x in xs], [points[x].high for x in xs], "combined"))
        traces.append(curve(xs, [points[x].value for x in xs], "combined", f"{a} and {b}", what="position"))
        y = axis("distance", range=[0, top], nticks=5)
        plot = layout(240, axis("position", range=[-1, max(xs) + 1], showgrid=False, nticks=6), y, MARGIN)
        panels.append(Panel(traces, plot, f"{a} and {b}", f"Distance of {a} and {b} at equal positions."))
        rows += [[text(a), text(b), value(x, str(x)), *measured(points[x])] for x in xs]
    title = findings.between({f"`{a}` and `{b}`": list(points.values()) for (a, b), points in pairs.items()})
    subtitle = (
        "Hellinger distance between the token distributions of two corpora at the same position, as counted; 1.41 where no token is shared."
    )
    table = Table(
        "between",
        "Distance of two corpora by position",
        ["One", "Other", "Position", "Distance", "Low", "High"],
        rows,
        frozenset({2, 3, 4, 5}),
    )
    return Figure("between", title, subtitle, panels, table, width=wide(run.corpora), even=True)


def overview(run: Geometry) -> Table | None:
    """One row a corpus: sizes and the numbers that sum it up."""
    metrics = [
        ("Root mean square distance", "distance.mean"),
        ("Corrected", "distance.mean" + CORRECTED),
        ("Noise floor", "floor.mean"),
        ("Correlation with lag", "lag.correlation"),
        ("Corrected", "lag.correlation" + CORRECTED),
    ]
    rows = []
    for c in run.corpora:
        sizes = [run.point(k, c.name) for k in ("corpus.documents", "corpus.tokens")]
        cells: list[Cell] = [text(c.name)]
        cells += [value(p.value, number(p.value)) if p else Cell("–") for p in sizes]
        kept, asked = len(c.positions), c.number("positions_asked")
        cells.append(value(kept, f"{kept} of {asked}" if asked else str(kept)))
        for _, metric in metrics:
            value_, low, high = measured(run.point(metric, c.name))
            cells.append(Cell(value_.text + (f" [{low.text}, {high.text}]" if low.text else ""), value_.raw))
        rows.append(cells)
    columns = ["Corpus", "Documents", "Tokens", "Positions", *(name for name, _ in metrics)]
    bounded = any(p.low is not None for _, metric in metrics for p in of_each(run, metric).values())
    caption = f"{count(len(rows), 'corpus', 'corpora')} in numbers" + (", with 95\u202f% intervals" if bounded else "")
    return Table("corpora", caption, columns, rows, frozenset(range(1, len(columns)))) if rows else None
