"""What a corpus says about positions: of a geometry run, or of a study's own corpus.

"As counted" is the plug-in distance of the observed shares, "corrected" the one without the bias of small samples
(split halves).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...points import Point
from ..figure import Cell, Figure, Panel, Table, count_cell, measured, of_array, text, value
from ..forms.axes import Axis
from ..forms.curves import LEVEL, Curves, Line
from ..forms.maps import Map, Maps, thinned
from ..forms.points import named_every, path
from ..numbers import count, number, percent
from ..run import CORPUS, Corpus, Run
from ..titles import best, digits, each
from .shape import CORRECTED, SEPARATION

FITTED = ("mds", "smacof")  # tables made from the distances that they are then compared with
# As encodings: all distances equal; distances in one half of the documents against the other half, for comparison: no
# bound, since a fitted table can have less noise than a half.
EQUAL, NOISE = "equidistant", "noise"
BLIND = ("random", EQUAL)  # know nothing of position
RELATIVE = ("rope", "alibi")  # tell distances only, in the colour of the relative stream
COUNTED, CLEAN, ITSELF = "as counted", "corrected", "of the table itself"
SUFFIX = {COUNTED: "", CLEAN: CORRECTED}
MOST = 1024  # positions of all corpora together that a table lists
CELLS = 400_000, 40_000  # of all matrices of a geometry page, and of a study's
EIGENVALUES = 64
Values = Mapping[str, dict[str, Point]]  # encoding -> kind -> value


def most(run: Run) -> int:
    """Positions of each corpus that a table shows."""
    return min(512, max(64, MOST // max(1, len(run.corpora))))


def of_each(run: Run, metric: str) -> dict[str, Point]:
    """Corpus -> a value of it, where it was measured."""
    return {c.name: p for c in run.corpora if (p := run.table.point(metric, c.model)) is not None}


def colour(encoding: str) -> str:
    """Colour of an encoding: that of the stream it would be."""
    kind = encoding.partition(",")[0]
    return "combined" if kind in (CORPUS, *BLIND) else "relative" if kind in RELATIVE else "absolute"


def shown(encoding: str) -> str:
    """Name of an encoding in a figure."""
    return {CORPUS: "the corpus itself", EQUAL: "all equally far", NOISE: "half against half"}.get(encoding, encoding)


def ready(encoding: str) -> bool:
    """Whether an encoding comes ready-made, and knows something of position."""
    return encoding.partition(",")[0] not in (*FITTED, *BLIND, CORPUS, NOISE)


def _title(run: Run, c: Corpus, more: str = "") -> str:
    """Heading of a corpus's panel: its name where there are several."""
    return ", ".join(filter(None, (c.name if len(run.corpora) > 1 else "", more))) or more.capitalize()


def _vector(found: np.ndarray | None, at: Sequence[float]) -> dict[float, Point]:
    """Place -> value of an array, where it is finite."""
    values = [] if found is None else found.tolist()
    return {x: _of(v) for x, v in zip(at, values, strict=False) if math.isfinite(v)}


def _of(v: float, low: float | None = None, high: float | None = None) -> Point:
    """A value of a corpus, with which no training has to do."""
    return replace(Point.between(float(v), low, high), trained=False)


# ---- support, distances ----


def _lags(run: Run) -> Sequence[Line]:
    lines = []
    for c in run.corpora:
        if (lag := c.array("lag")) is None:
            continue
        for key, name, dash in (("lag_mean_corrected", CLEAN, "solid"), ("lag_mean", COUNTED, "6px,4px")):
            points = _vector(c.array(key), [int(v) for v in lag])
            lines.append(Line(points, c.name, name, mark=(dash, "circle"), panel=_title(run, c)))
        if floor := run.table.point("floor.mean", c.model):
            lines.append(Line({0: floor}, "noise floor", kind=LEVEL, panel=_title(run, c)))
    return lines


def chance(run: Run) -> list[str]:
    """Corpora whose distances, corrected, are not separable from none."""
    return [
        name
        for name, p in of_each(run, "distance.mean" + CORRECTED).items()
        if (p.value if p.low is None else p.low) <= 0
    ]


def _apart(run: Run, lines: Sequence[Line]) -> str:
    """How far apart positions are once noise is taken out; not separable from chance where the interval holds 0."""
    clean, counted = of_each(run, "distance.mean" + CORRECTED), of_each(run, "distance.mean")
    noise = chance(run)
    if noise and len(noise) == len(clean):
        values = {
            n: f"{digits(p)} corrected" + (f", {digits(counted[n])} as counted" if n in counted else "")
            for n, p in clean.items()
        }
        return f"The distances of positions are not separable from chance: {each(values)}"
    kind = " once noise is taken out" if clean else " as counted"
    told = best({f"`{n}`": p for n, p in (clean or counted).items()}, f"Positions lie furthest apart{kind} in")
    return told + (f"; not separable from chance in {', '.join(f'`{n}`' for n in noise)}" if noise else "")


LAG = Curves(
    "lag",
    "distance.mean",
    _lags,
    _apart,
    "Root mean square Hellinger distance of the token distributions of two positions against their lag, as counted and "
    "corrected for the bias of small samples (largest possible: 1.41). It is below 0 where the corrected squares are "
    "on average, which is noise. Noise floor: the distance of one position from itself in two halves of the documents, "
    "mean over positions; all documents together have less noise than a half",
    "Root mean square distance by lag",
    Axis("lag", word="lag"),
    Axis("distance", include=(0,)),
    ("Corpus", "Distances"),
    ("arrays/geometry-*.npz", "distance.mean, floor.mean"),
    300,
)


def _support(run: Run) -> Sequence[Line]:
    lines = []
    for c in run.corpora:
        if (counted := c.array("support")) is None:
            continue
        left, panel = set(c.left_out), _title(run, c, "tokens at each position")
        tokens = _vector(counted, range(len(counted)))
        kept, out = ({i: p for i, p in tokens.items() if (i in left) == away and p.value > 0} for away in (False, True))
        lines.append(Line(kept, c.name, "kept", panel=panel, axis="tokens"))
        lines.append(Line(out, c.name, "left out", "combined", panel=panel, axis="tokens"))
        if (floor := c.array("floor")) is None or len(floor) != len(c.positions):
            continue
        panel = _title(run, c, "noise floor and neighbours")
        low, high = (c.array(f"floor_{end}") for end in ("low", "high"))
        both = low is not None and high is not None and len(low) == len(high) == len(floor)
        ends = (
            zip(low, high, strict=True)
            if low is not None and high is not None and both
            else [(None, None)] * len(floor)
        )
        held = {p: _of(v, *end) for p, v, end in zip(c.positions, floor, ends, strict=True) if math.isfinite(v)}
        lines.append(Line(held, c.name, "noise floor", "combined", panel=panel, axis="distance"))
        for kind, key, dash in ((COUNTED, "distance", "6px,4px"), (CLEAN, "corrected", "solid")):
            if (matrix := c.array(key, 2)) is not None and len(matrix) == len(c.positions):
                points_ = _vector(np.diagonal(matrix, 1), c.positions)
                lines.append(
                    Line(points_, c.name, kind, mark=(dash, "circle"), panel=panel, axis="distance", thick=1.6)
                )
    return lines


def _supported(run: Run, lines: Sequence[Line]) -> str:
    kept = {
        c.name: (len(c.positions), c.number("positions_asked") or len(c.arrays["support"]))
        for c in run.corpora
        if "support" in c.arrays
    }
    empty = {
        c.name: sum(p < len(s) and not s[p] for p in c.positions)
        for c in run.corpora
        if (s := c.array("support")) is not None
    }
    if any(empty.values()):
        return "Positions kept although nothing stands there: " + each(
            {n: f"{k} of {kept[n][0]}" for n, k in empty.items()}
        )
    if all(few == every for few, every in kept.values()):
        return "Every position is supported: " + each({n: count(few, "position") for n, (few, _) in kept.items()})
    return "Positions that are counted often enough: " + each(
        {n: f"{few} of {every}" for n, (few, every) in kept.items()}
    )


SUPPORT = Curves(
    "support",
    "floor.mean",
    _support,
    _supported,
    "Tokens counted at each position, on a logarithmic axis; positions with too few are grey and take part in nothing "
    "below, unless the run follows the paper's protocol. The other panels: distance of a position from itself in two "
    "halves of the documents (grey, band: 95\u202f% of the random halves) and of each position from the next, as "
    "counted (dashed) and corrected (solid)",
    "Support, noise floor and distance to the next position",
    Axis("position", word="position"),
    {"tokens": Axis("tokens", "log", (1,), floor=1), "distance": Axis("distance", include=(0,))},
    ("Corpus", "What"),
    ("arrays/geometry-*.npz",),
    400,
)


def _matrices(run: Run) -> Sequence[Map]:
    """The Hellinger matrices, as counted and corrected, on the same colours within each kind."""
    shown_ = [
        (k, kind, c, m)
        for c in run.corpora
        for kind, k in ((COUNTED, "distance"), (CLEAN, "corrected"))
        if (m := c.array(k, 2)) is not None
    ]
    side = min(256, int((CELLS[not run.measured] / max(1, len(shown_))) ** 0.5))
    maps = []
    for key, kind, c, m in shown_:
        at = thinned(len(m), side)
        top = max(float(np.nanmax(other)) for k, _, _, other in shown_ if k == key) or 1.0
        places = [c.positions[i] for i in at]
        hover = "positions %{x} and %{y}<br>distance %{z:.3f}"
        z = np.maximum(m[np.ix_(at, at)], 0.0)
        maps.append(
            Map(
                z,
                places,
                places,
                hover,
                (0.0, top),
                ("position", "position"),
                _title(run, c, kind),
                "",
                560,
                square=True,
            )
        )
    return maps


def _lag_alone(run: Run) -> str:
    clean = of_each(run, "toeplitz" + CORRECTED)
    points, kind = clean or of_each(run, "toeplitz"), CLEAN if clean else COUNTED
    if not points:
        return "Distances between positions"
    said = best(
        {f"`{n}`": p for n, p in points.items()},
        f"The lag alone accounts for most of the distances ({kind}) in",
        write=_per_cent,
    )
    return said


def _per_cent(point: Point) -> str:
    return percent(point.value, 0)


def _matrix_rows(run: Run) -> list[list[Cell]]:
    """Distances of each position to the next and to the first; every single one is in the array."""
    rows = []
    for c in run.corpora:
        kinds = [c.array(key, 2) for key in ("distance", "corrected")]
        for i in thinned(len(c.positions), most(run)):
            found = [
                m[i, j] if m is not None and i < len(m) and j < len(m) else math.nan for j in (i + 1, 0) for m in kinds
            ]
            rows.append(
                [
                    text(c.name),
                    count_cell(c.positions[i]),
                    *(of_array(float(v)) if math.isfinite(v) else Cell("–") for v in found),
                ]
            )
    return rows


MATRIX = Maps(
    "matrix",
    _matrices,
    _lag_alone,
    lambda run: (
        "Distance of every two positions. Colours run from 0 at the ground of the page to the largest value of each "
        "kind; a corrected distance whose square came out negative, which is noise, is drawn as 0. In the centred "
        "matrix of squared distances each has its sign; what depends on the lag alone is its Toeplitz part. Large "
        "matrices are thinned; all is in arrays/."
    ),
    "Distances of each position to the next and to the first; every single one is in arrays/",
    lambda run: ["Corpus", "Position", "To the next", "corrected", "To the first", "corrected "],
    _matrix_rows,
    ("arrays/geometry-*.npz: distance, corrected", "toeplitz, circulant"),
    400,
    behind="The table below holds some of the distances.",
)


def _between(run: Run) -> Sequence[Line]:
    lines = []
    for i, a in enumerate(run.corpora):
        for b in run.corpora[i + 1 :]:
            named = (
                run.table.points("between", model, by="index", part=f"{a.name}|{b.name}")
                for model in ("", a.model, b.model)
            )
            points = next((found for found in named if found), {})
            lines.append(Line(points, f"{a.name} and {b.name}", colour="combined", panel=f"{a.name} and {b.name}"))
    return lines


BETWEEN = Curves(
    "between",
    "between",
    _between,
    lambda run, lines: best(
        {f"`{x.name}`": x.end for x in lines}, "At the last position that both have, words differ most between"
    ),
    "Hellinger distance between the token distributions of two corpora at the same position, as counted; 1.41 where no "
    "token is shared",
    "Distance of two corpora by position",
    Axis("position", word="position"),
    Axis("distance", include=(0,)),
    ("Corpora", ""),
    ("between: part = two corpora, index = position",),
    400,
)


# ---- shape ----


def maps_of(run: Run) -> Figure | None:
    """MDS maps: positions on the first two components, coloured from first to last."""
    panels, rows = [], []
    shares: dict[str, Point] = {}
    for c in run.corpora:
        for key, kind, ending in (("coords_corrected", CLEAN, CORRECTED), ("coords", COUNTED, "")):
            coords = c.array(key, 2)
            if coords is None or coords.shape[1] < 2 or len(coords) != len(c.positions):
                continue
            parts = [run.table.point("mds.share" + ending, c.model, index=i) for i in (0, 1)]
            if parts[0] and parts[1]:
                shares.setdefault(c.name, parts[0] + parts[1])
            titles = [f"component {i + 1}" + (f" ({percent(p.value, 0)})" if p else "") for i, p in enumerate(parts)]
            kept = [i for i in thinned(len(coords), most(run)) if np.isfinite(coords[i, :2]).all()]
            at = [c.positions[i] for i in kept]
            traces, plot = path(coords[kept], at, titles, every=named_every(at[-1] + 1), height=500)
            panels.append(
                Panel(traces, plot, _title(run, c, kind), f"Map of {len(kept)} positions of {c.name}, {kind}.")
            )
            rows += [
                [
                    text(c.name),
                    text(kind),
                    count_cell(p),
                    *map(of_array, coords[i, :3]),
                    *[Cell("")] * (3 - len(coords[i, :3])),
                ]
                for i, p in zip(kept, at, strict=True)
            ]
    if not panels:
        return None
    title = best(
        {f"`{n}`": p for n, p in shares.items()}, "Two components hold most of the distances of", write=_per_cent
    )
    subtitle = (
        "Classical scaling of the distances: one point a position, joined in order, coloured from the first to the "
        "last; equal scales on both axes. As counted, noise puts every position at a place of its own; the corrected "
        "map has less of it."
    )
    columns = ["Corpus", "Kind", "Position", "Component 1", "Component 2", "Component 3"]
    table = Table("map", "Coordinates of every position", columns, rows, frozenset(range(2, 6)))
    records = ("arrays/geometry-*.npz: coords, coords_corrected", "mds.share: index = component")
    return Figure("map", title, subtitle, panels, table, width=400, even=True, records=records)


def _eigenvalues(run: Run) -> Sequence[Line]:
    lines = []
    for c in run.corpora:
        clean = c.array("eigenvalues_corrected")
        for kind, values, dash in ((CLEAN, clean, "solid"), (COUNTED, c.array("eigenvalues"), "6px,4px")):
            points = {k: p for k, p in _vector(values, range(1, EIGENVALUES + 1)).items() if p.value > 0}
            lines.append(Line(points, c.name, kind, mark=(dash, "circle"), panel=_title(run, c)))
        if clean is not None and (level := -float(np.nanmin(clean))) > 0:
            lines.append(Line({0: Point.between(level)}, "noise level", kind=LEVEL, panel=_title(run, c)))
    return lines


SPECTRUM = Curves(
    "spectrum",
    "mds.share",
    _eigenvalues,
    lambda run, lines: best(
        {f"`{n}`": p for n, p in (of_each(run, "rank" + CORRECTED) or of_each(run, "rank")).items()},
        "Most dimensions are needed by",
    ),
    "Eigenvalues of the centred matrix of squared distances, largest first, on a logarithmic axis. Corrected distances "
    "have negative eigenvalues too; the size of the most negative one is the noise level, and what lies below it is "
    "not told from noise",
    "Eigenvalues",
    Axis("component", word="component"),
    Axis("eigenvalue", "log", floor=1e-6),
    ("Corpus", "Distances"),
    ("arrays/geometry-*.npz: eigenvalues", "rank"),
    400,
)


def hypotheses(run: Run) -> Table | None:
    """H1 and H3 of GEOM on models: smallest distance of mean embeddings, and of their images in the head where it is
    smallest.

    H3 has two matrices, M and its transpose, which are never mixed: each has its own smallest head.
    """
    rows = []
    for model in run.table.models("h1") + [m for m in run.table.models("h3") if m not in run.table.models("h1")]:
        h1 = [run.table.point(f"h1{what}", model) for what in ("", ".floor", ".median")]
        if h1[0]:
            rows.append(
                [text(model), text("H1"), Cell("–"), Cell(""), *(value(p.value) if p else Cell("–") for p in h1)]
            )
        for part in run.table.distinct("part", "h3", model):
            found = run.table.points("h3", model, by=("layer", "head"), part=part)
            for layer in sorted({at for at, _ in found}):
                at = min((place for place in found if place[0] == layer), key=lambda place: found[place].value)
                rest = [
                    run.table.points(f"h3{what}", model, by=("layer", "head"), part=part).get(at)
                    for what in (".floor", ".median")
                ]
                row = [
                    text(model),
                    text("H3"),
                    text(part.replace("^T", "ᵀ")),
                    count_cell(layer),
                    value(found[at].value),
                ]
                rows.append([*row, *(value(p.value) if p else Cell("–") for p in rest)])
    caption = (
        "Distances of positions in a model: mean embeddings (H1), and M or Mᵀ times them in the head where the "
        "smallest is smallest (H3; the condition names M, the proof of the theorem uses Mᵀ)"
    )
    heads = ["Model", "Condition", "Matrix", "Layer", "Smallest", "Between halves", "Median"]
    return Table("hypotheses", caption, heads, rows, frozenset(range(3, 7))) if rows else None


def overview(run: Run) -> Table | None:
    """One row a corpus: sizes and the numbers that sum it up."""
    metrics = {
        "Root mean square distance": "distance.mean",
        "Corrected": "distance.mean" + CORRECTED,
        "Noise floor": "floor.mean",
        "Correlation with lag": "lag.correlation",
        "Corrected ": "lag.correlation" + CORRECTED,
    }
    rows = []
    for c in run.corpora:
        sizes = [run.table.point(k, c.model) or run.table.point(k) for k in ("corpus.documents", "corpus.tokens")]
        kept, asked = len(c.positions), c.number("positions_asked")
        row = [text(c.name), *(value(p.value, number(p.value)) if p else Cell("–") for p in sizes)]
        row.append(value(kept, f"{kept} of {asked}" if asked else str(kept)))
        for metric in metrics.values():
            found, low, high = measured(run.table.point(metric, c.model))
            row.append(Cell(found.text + (f" [{low.text}, {high.text}]" if low.text else ""), found.raw))
        rows.append(row)
    columns = ["Corpus", "Documents", "Tokens", "Positions", *metrics]
    caption = (
        f"{count(len(rows), 'corpus', 'corpora')} in numbers, with 95\u202f% intervals where documents were resampled"
    )
    return (
        Table(
            "corpora" if run.measured else f"{CORPUS}-numbers",
            caption,
            columns,
            rows,
            frozenset(range(1, len(columns))),
        )
        if rows
        else None
    )


SEPARATIONS = replace(SEPARATION, id="separation")
