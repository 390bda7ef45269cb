"""What a corpus says about positions, and which encoding fits it: of a geometry run, or of a study's own corpus.

"As counted" is the plug-in distance of the observed shares, "corrected" the one without the bias of small samples (split halves).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...points import Point
from ..figure import MOST_DIGITS, Cell, Figure, Panel, Table, Trace, count_cell, measured, of_array, text, value
from ..forms.axes import SMALLEST, Axis
from ..forms.curves import LEVEL, Curves, Line
from ..forms.maps import Map, Maps, rounded, thinned
from ..forms.marks import note, reference
from ..forms.points import named_every, path
from ..forms.rows import Row, Rows
from ..numbers import count, interval, number, percent
from ..run import CORPUS, Corpus, Run
from ..style import axis, layout, model_styles, sequential
from ..titles import against, best, digits, each
from .shape import CORRECTED, SEPARATION

FITTED = ("mds", "smacof")  # tables made from the distances that they are then compared with
# As encodings: all distances equal; distances in one half of the documents against the other half, for comparison: no bound,
# since a fitted table can have less noise than a half.
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
    return [name for name, p in of_each(run, "distance.mean" + CORRECTED).items() if (p.value if p.low is None else p.low) <= 0]


def _apart(run: Run, lines: Sequence[Line]) -> str:
    """How far apart positions are once noise is taken out; not separable from chance where the interval holds 0."""
    clean, counted = of_each(run, "distance.mean" + CORRECTED), of_each(run, "distance.mean")
    noise = chance(run)
    if noise and len(noise) == len(clean):
        values = {n: f"{digits(p)} corrected" + (f", {digits(counted[n])} as counted" if n in counted else "") for n, p in clean.items()}
        return f"The distances of positions are not separable from chance: {each(values)}"
    kind = " once noise is taken out" if clean else " as counted"
    told = best({f"`{n}`": p for n, p in (clean or counted).items()}, f"Positions lie furthest apart{kind} in")
    return told + (f"; not separable from chance in {', '.join(f'`{n}`' for n in noise)}" if noise else "")


LAG = Curves(
    "lag",
    "distance.mean",
    _lags,
    _apart,
    "Root mean square Hellinger distance of the token distributions of two positions against their lag, as counted and corrected for the "
    "bias of small samples (largest possible: 1.41). It is below 0 where the corrected squares are on average, which is noise. Noise "
    "floor: the distance of one position from itself in two halves of the documents, mean over positions; all documents together have "
    "less noise than a half",
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
        ends = zip(low, high, strict=True) if low is not None and high is not None and both else [(None, None)] * len(floor)
        held = {p: _of(v, *end) for p, v, end in zip(c.positions, floor, ends, strict=True) if math.isfinite(v)}
        lines.append(Line(held, c.name, "noise floor", "combined", panel=panel, axis="distance"))
        for kind, key, dash in ((COUNTED, "distance", "6px,4px"), (CLEAN, "corrected", "solid")):
            if (matrix := c.array(key, 2)) is not None and len(matrix) == len(c.positions):
                points_ = _vector(np.diagonal(matrix, 1), c.positions)
                lines.append(Line(points_, c.name, kind, mark=(dash, "circle"), panel=panel, axis="distance", thick=1.6))
    return lines


def _supported(run: Run, lines: Sequence[Line]) -> str:
    kept = {
        c.name: (len(c.positions), c.number("positions_asked") or len(c.arrays["support"])) for c in run.corpora if "support" in c.arrays
    }
    empty = {c.name: sum(p < len(s) and not s[p] for p in c.positions) for c in run.corpora if (s := c.array("support")) is not None}
    if any(empty.values()):
        return "Positions kept although nothing stands there: " + each({n: f"{k} of {kept[n][0]}" for n, k in empty.items()})
    if all(few == every for few, every in kept.values()):
        return "Every position is supported: " + each({n: count(few, "position") for n, (few, _) in kept.items()})
    return "Positions that are counted often enough: " + each({n: f"{few} of {every}" for n, (few, every) in kept.items()})


SUPPORT = Curves(
    "support",
    "floor.mean",
    _support,
    _supported,
    "Tokens counted at each position, on a logarithmic axis; positions with too few are grey and take part in nothing below, unless the "
    "run follows the paper's protocol. The other panels: distance of a position from itself in two halves of the documents (grey, band: "
    "95\u202f% of the random halves) and of each position from the next, as counted (dashed) and corrected (solid)",
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
        maps.append(Map(z, places, places, hover, (0.0, top), ("position", "position"), _title(run, c, kind), "", 560, square=True))
    return maps


def _lag_alone(run: Run) -> str:
    clean = of_each(run, "toeplitz" + CORRECTED)
    points, kind = clean or of_each(run, "toeplitz"), CLEAN if clean else COUNTED
    if not points:
        return "Distances between positions"
    said = best({f"`{n}`": p for n, p in points.items()}, f"The lag alone accounts for most of the distances ({kind}) in", write=_per_cent)
    return said


def _per_cent(point: Point) -> str:
    return percent(point.value, 0)


def _matrix_rows(run: Run) -> list[list[Cell]]:
    """Distances of each position to the next and to the first; every single one is in the array."""
    rows = []
    for c in run.corpora:
        kinds = [c.array(key, 2) for key in ("distance", "corrected")]
        for i in thinned(len(c.positions), most(run)):
            found = [m[i, j] if m is not None and i < len(m) and j < len(m) else math.nan for j in (i + 1, 0) for m in kinds]
            rows.append([text(c.name), count_cell(c.positions[i]), *(of_array(float(v)) if math.isfinite(v) else Cell("–") for v in found)])
    return rows


MATRIX = Maps(
    "matrix",
    _matrices,
    _lag_alone,
    lambda run: (
        "Distance of every two positions. Colours run from 0 at the ground of the page to the largest value of each kind; a corrected "
        "distance whose square came out negative, which is noise, is drawn as 0. In the centred matrix of squared distances each has its "
        "sign; what depends on the lag alone is its Toeplitz part. Large matrices are thinned; all is in arrays/."
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
            named = (run.table.points("between", model, by="index", part=f"{a.name}|{b.name}") for model in ("", a.model, b.model))
            points = next((found for found in named if found), {})
            lines.append(Line(points, f"{a.name} and {b.name}", colour="combined", panel=f"{a.name} and {b.name}"))
    return lines


BETWEEN = Curves(
    "between",
    "between",
    _between,
    lambda run, lines: best({f"`{x.name}`": x.end for x in lines}, "At the last position that both have, words differ most between"),
    "Hellinger distance between the token distributions of two corpora at the same position, as counted; 1.41 where no token is shared",
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
            panels.append(Panel(traces, plot, _title(run, c, kind), f"Map of {len(kept)} positions of {c.name}, {kind}."))
            rows += [
                [text(c.name), text(kind), count_cell(p), *map(of_array, coords[i, :3]), *[Cell("")] * (3 - len(coords[i, :3]))]
                for i, p in zip(kept, at, strict=True)
            ]
    if not panels:
        return None
    title = best({f"`{n}`": p for n, p in shares.items()}, "Two components hold most of the distances of", write=_per_cent)
    subtitle = (
        "Classical scaling of the distances: one point a position, joined in order, coloured from the first to the last; equal scales on "
        "both axes. As counted, noise puts every position at a place of its own; the corrected map has less of it."
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
        {f"`{n}`": p for n, p in (of_each(run, "rank" + CORRECTED) or of_each(run, "rank")).items()}, "Most dimensions are needed by"
    ),
    "Eigenvalues of the centred matrix of squared distances, largest first, on a logarithmic axis. Corrected distances have negative "
    "eigenvalues too; the size of the most negative one is the noise level, and what lies below it is not told from noise",
    "Eigenvalues",
    Axis("component", word="component"),
    Axis("eigenvalue", "log", floor=1e-6),
    ("Corpus", "Distances"),
    ("arrays/geometry-*.npz: eigenvalues", "rank"),
    400,
)


# ---- fits ----


def values_of(run: Run, metric: str, c: Corpus) -> dict[str, dict[str, Point]]:
    """Encoding -> kind -> value. Tables made from the distances have their rank in the name: full, and that of `ranks_shown`."""
    found: dict[str, dict[str, Point]] = {}
    ranks = ranks_shown(run, c)
    for kind, suffix in SUFFIX.items():
        for part in run.table.distinct("part", metric + suffix, c.model):
            if (point := run.table.point(metric + suffix, c.model, part=part)) is not None:
                found.setdefault(f"{part}, full rank" if part in FITTED else part, {})[kind] = point
            if part in ranks and (point := run.table.point(metric + suffix, c.model, part=part, index=ranks[part])) is not None:
                found.setdefault(f"{part}, rank {ranks[part]}", {})[kind] = point
    return found


def ranks_shown(run: Run, c: Corpus) -> dict[str, int]:
    """Ranks shown beside the full one: of `smacof` the largest; of `mds` that of the least stress on other documents, for this is the
    table that is written, or that of `smacof` where nothing was held out."""
    at = {p: {i for s in SUFFIX.values() for i in run.table.points("stress.optimal" + s, c.model, by="index", part=p)} for p in FITTED}
    found = {"smacof": max(at["smacof"])} if at["smacof"] else {}
    held = run.table.points("stress.held_out", c.model, by="index", part="mds")
    rank = min(held, key=lambda r: held[r].value, default=None)
    rank = rank if rank in at["mds"] else found.get("smacof")
    return found | ({"mds": rank} if rank is not None else {})


def last(kinds: Mapping[str, Point]) -> Point:
    """The value that counts: against corrected distances where there are any."""
    return next(kinds[k] for k in (CLEAN, ITSELF, COUNTED) if k in kinds)


def _rows(values: Values, panel: str, axis_: str = "") -> list[Row]:
    """A row an encoding, from the lowest to the highest, the corpus itself before all, what has no corrected value after all."""
    clean = any(CLEAN in kinds for kinds in values.values())
    rows = [
        Row(shown(e), kinds, panel, colour=colour(e), axis=axis_, counts=not (clean and set(kinds) == {COUNTED}))
        for e, kinds in values.items()
    ]
    return sorted(rows, key=lambda row: (row.name != shown(CORPUS), row.value is None, row.value.value if row.value else 0.0))


def _stress(run: Run) -> Sequence[Row]:
    found = []
    for c in run.corpora:
        for metric, words in (("stress.optimal", "best scale"), ("stress.raw", "raw")):
            found += _rows(values_of(run, metric, c), _title(run, c, words), metric)
    return found


def _fits(metric: str, sentence: str, lowest: bool = True, write: Callable[[Point], str] = digits) -> Callable[[Run, Any], str]:
    """The best ready-made encoding of each corpus beside the next, and beside one that knows no position."""

    def title(run: Run, rows: Any) -> str:
        said = {}
        for c in run.corpora:
            every = values_of(run, metric, c)
            clean = any(CLEAN in kinds for kinds in every.values())
            values = {e: last(kinds) for e, kinds in every.items() if not (clean and set(kinds) == {COUNTED})}
            points = {e: p for e, p in values.items() if ready(e)}
            if points:
                told = best(points, "", lowest=lowest, write=write)
                told = told.removeprefix("Not separable:").strip() + ", not separable" * told.startswith("Not separable")
                blind = [values[e] for e in BLIND if e in values]
                first = (min if lowest else max)(points.values(), key=lambda p: p.value)
                beaten = any((p.value <= first.value) if lowest else (p.value >= first.value) for p in blind)
                said[c.name] = told.removesuffix("; no interval") + ("; a table that knows no position comes as near" if beaten else "")
        return f"{sentence}: {each(said)}" if said else sentence

    return title


STRESS = Rows(
    "stress",
    "stress.optimal",
    _stress,
    _fits("stress.optimal", "Lowest stress of a ready-made encoding"),
    "Sum of squared differences between the distances of a table and the Hellinger distances, over the sum of squares of the latter; 0 is "
    "a perfect fit. Raw stress depends on the arbitrary scale of a table; at the best scale, the table is first multiplied by the number "
    "that lowers it most. `mds` and `smacof` are made from these very distances. All equally far: every two positions at the same "
    "distance. Half against half: corrected distances of one half of the documents as the table of the other, for comparison. A dash: not "
    "measured against corrected distances",
    "Stress of every encoding",
    {"stress.optimal": Axis("stress at the best scale", include=(0,)), "stress.raw": Axis("raw stress", "log", floor=SMALLEST)},
    ("Corpus and scale", "", "Encoding"),
    ("stress.raw, stress.optimal, *.corrected: part = table, index = rank",),
    330,
)


def _violations(run: Run) -> Sequence[Row]:
    found = []
    for c in run.corpora:
        values = values_of(run, "violations", c)
        for e, kinds in values.items():
            if e.partition(",")[0] not in (*FITTED, CORPUS):  # a table that was not made from the corpus has one value
                values[e] = {ITSELF: last(kinds)}
        found += _rows(values, _title(run, c))
    return found


def _ordered(run: Run, rows: Sequence[Row]) -> str:
    """How often the distances of a corpus themselves break the order of the lags; 50 % is chance."""
    said = {}
    for c in run.corpora:
        kinds = values_of(run, "violations", c).get(CORPUS)
        if kinds:
            side = {"above": ", above chance", "below": ""}.get(against(last(kinds), 0.5), ", not separable from chance")
            said[c.name] = percent(last(kinds).value) + (side if last(kinds).low is not None else "")
    return f"Triples in which the nearer position is the more distant one: {each(said)}" if said else "Triples out of order"


VIOLATIONS = Rows(
    "violations",
    "violations",
    _violations,
    _ordered,
    "Of all triples of positions in which one neighbour is nearer than the other, the share in which the nearer one has the larger "
    "distance. 0\u202f% is a distance that only grows with the lag; dashed: 50\u202f%, which chance gives. Corrected squares that came out "
    "negative take part with their sign, so chance gives 50\u202f% there too",
    "Triples out of order",
    Axis("triples out of order", "share", (0, 0.55)),
    ("Corpus", "", "Encoding"),
    ("violations: part = table",),
    330,
    {0.5: "chance: 50\u202f%"},
)


def _held_out(run: Run) -> Sequence[Line]:
    lines = []
    for c in run.corpora:
        points = run.table.points("stress.held_out", c.model, by="index", part="mds")
        if len(points) < 2:
            continue
        lines.append(Line(points, c.name, "mds", panel=_title(run, c)))
        for part in run.table.distinct("part", "stress.held_out", c.model):
            if (point := run.table.point("stress.held_out", c.model, part=part)) is not None:
                lines.append(Line({0: point}, shown(part), kind=LEVEL, panel=_title(run, c)))
    return lines


def _supported_rank(run: Run, lines: Sequence[Line]) -> str:
    said = {
        x.name: best({f"rank {r}": p for r, p in x.points.items()}, "", lowest=True).strip().removesuffix("; no interval") for x in lines
    }
    return f"The tables that fit other documents best: {each(said)}"


HELD_OUT = Curves(
    "held-out",
    "stress.held_out",
    _held_out,
    _supported_rank,
    "Tables made from one half of the documents, held against the corrected distances of the other half at their best scale, mean over "
    "random halves. More dimensions fit the noise of the first half; the lowest values are what the corpus supports. Dashed: encodings "
    "that were fitted to nothing; all equally far: every two positions at the same distance",
    "Stress on documents not fitted",
    Axis("rank", "log", word="rank"),
    Axis("stress on other documents", "log", floor=SMALLEST),
    ("Corpus", "Encoding"),
    ("stress.held_out: part, index = rank",),
    400,
)


def _dimensions(run: Run) -> Sequence[Line]:
    lines = []
    for metric, words in (("stress.optimal", "at the best scale"), ("stress.raw", "raw")):
        clean = any(run.table.rows(metric + CORRECTED, c.model) for c in run.corpora)
        for c in run.corpora:
            name = metric + (CORRECTED if clean else "")
            found = {p: run.table.points(name, c.model, by="index", part=p) for p in run.table.distinct("part", name, c.model)}
            marks = model_styles(list(found))
            for part, points in found.items():
                points = {d: p for d, p in points.items() if d > 0}
                if len(points) > 1:
                    lines.append(Line(points, c.name, part, colour(part), marks[part], panel=_title(run, c, words), axis=words))
    return lines


def _growth(run: Run, lines: Sequence[Line]) -> str:
    told = [x for x in lines if x.part == "sinusoidal" and x.axis == "raw"]
    said = {x.name: f"{number(x.points[min(x.points)].value)} at {min(x.points)}, {number(x.end.value)} at {max(x.points)}" for x in told}
    return f"Raw stress of the sinusoidal table by its dimensions: {each(said)}" if said else "Stress by the dimensions of a table"


DIMENSIONS = Curves(
    "dimensions",
    "stress.raw",
    _dimensions,
    _growth,
    "Stress of tables with more and more dimensions against the distances, corrected where they are, on logarithmic axes. Raw stress of a "
    "table of fixed entries grows with its dimensions, for its distances do",
    "Stress by dimensions",
    Axis("dimensions", "log", word="dimensions"),
    {words: Axis("stress", "log", floor=SMALLEST) for words in ("at the best scale", "raw")},
    ("Corpus", "Encoding"),
    ("stress.raw, stress.optimal: part, index = dimensions",),
    400,
)


def scatter(run: Run) -> Figure | None:
    """Distances of each table at its best scale (x) against those of the corpus (y), a point a pair, coloured by lag (GEOM figure 7)."""
    panels, rows = [], []
    encodings = list(dict.fromkeys(n for c in run.corpora for n in c.names("scatter_names")))
    sizes = {}
    for c in run.corpora:
        dist, lag, tables, names = c.array("scatter_dist"), c.array("scatter_lag"), c.array("scatter_table", 2), c.names("scatter_names")
        if dist is None or lag is None or tables is None or len(names) != len(tables) or not len(dist) == len(lag) == tables.shape[1]:
            continue
        kept = [i for i in thinned(len(dist), most(run)) if np.isfinite(dist[i]) and np.isfinite(lag[i])]
        dist, lag, tables, sizes[c.name] = dist[kept], lag[kept], tables[:, kept], len(kept)
        # The distances come from the same file as the corrected matrix: they are corrected where there is one.
        metric = "correlation" + (CORRECTED if c.array("corrected", 2) is not None else "")
        low, high = min(0.0, float(np.nanmin(dist)), float(np.nanmin(tables))), max(float(np.nanmax(dist)), float(np.nanmax(tables)))
        room = 0.06 * ((high - low) or 1.0)
        frame = low - room, high + 2.2 * room  # the corner that the diagonal ends in stays free for its name
        for name, table in zip(names, tables, strict=True):
            r = run.table.point(metric, c.model, part=name)
            panels.append(_pairs(_title(run, c, shown(name)), table, dist, lag, frame, r))
        columns = dict(zip(names, tables, strict=True))
        for i in range(len(kept)):
            cells = [of_array(float(columns[e][i])) if e in columns and np.isfinite(columns[e][i]) else Cell("–") for e in encodings]
            rows.append([text(c.name), count_cell(int(lag[i])), of_array(float(dist[i])), *cells])
    if not panels:
        return None
    drawn = "; ".join(f"{count(n, 'pair')} of `{name}`" for name, n in sizes.items())
    clean = any(c.array("corrected", 2) is not None for c in run.corpora)
    subtitle = (
        f"One point a pair of positions ({drawn}), coloured by lag: its distance in the table, multiplied by the number that brings the "
        f"table closest, against its Hellinger distance in the corpus ({CLEAN if clean else COUNTED}). On the dashed line the two are "
        "equal. r is Pearson's correlation over all pairs, with its 95\u202f% interval where documents were resampled; it can be high far "
        "from the line."
    )
    heads = ["Corpus", "Lag", "In the corpus", *(shown(e) for e in encodings)]
    caption = "Distance in the corpus and in every table at its best scale, by pair of positions"
    table_ = Table("scatter", caption, heads, rows, frozenset(range(1, len(heads))))
    title = _fits("correlation", "Highest correlation of a ready-made encoding", lowest=False)(run, None)
    return Figure("scatter", title, subtitle, panels, table_, width=260, even=True, records=("arrays/geometry-*.npz", "correlation: part"))


def _pairs(head: str, table: np.ndarray, dist: np.ndarray, lag: np.ndarray, frame: tuple[float, float], r: Point | None) -> Panel:
    kept = np.isfinite(table)
    first, end = int(lag.min()), max(int(lag.max()), int(lag.min()) + 1)
    ticks = sorted({first, *(round(first + (end - first) * k / 3) for k in (1, 2)), end})
    bar = {
        "orientation": "h",
        "thickness": 8,
        "outlinewidth": 0,
        "yref": "container",
        "y": 1,
        "yanchor": "top",
        "xpad": 0,
        "ypad": 2,
        "len": 1,
    }
    bar |= {"tickvals": ticks, "ticktext": [f"{'lag ' if t == first else ''}{t:,}" for t in ticks], "tickfont": {"color": "@muted"}}
    marker = {"size": 6, "color": [int(v) for v in lag[kept]], "cmin": first, "cmax": end, "colorscale": sequential(3), "opacity": 1}
    marker |= {"line": {"width": 0.5, "color": "@surface"}, "showscale": True, "colorbar": bar}
    points: Trace = {"type": "scatter", "mode": "markers", "x": rounded(table[kept]), "y": rounded(dist[kept]), "marker": marker}
    points["hovertemplate"] = "lag %{marker.color}<br>table %{x:.3f}<br>corpus %{y:.3f}<extra></extra>"
    exact = reference(frame, frame, "exact: the same distance in table and corpus")
    notes = [note(frame[1], frame[1], "exact", xanchor="right", yanchor="top", xshift=-24)]
    x = axis("distance in the table", range=list(frame), nticks=4, constrain="domain", constraintoward="left")
    y = axis("distance in the corpus", range=list(frame), nticks=4, constrain="domain", scaleanchor="x")
    plot = layout(420, x, y, {"l": 62, "r": 22, "t": 42, "b": 52}, annotations=notes, meta={"square": True})
    told = f"{head}: r {digits(r)}" if r else head
    bounds = interval(r.low, r.high, MOST_DIGITS) if r else ""
    return Panel([exact, points], plot, told, f"{count(int(kept.sum()), 'pair')} of positions, {told} {bounds}".strip() + ".", bounds)


# ---- tables ----


def correlations(run: Run) -> Table | None:
    """Pearson's r of every encoding, against the distances as counted and against the corrected ones."""
    rows = [
        [text(c.name), text(shown(e)), text(kind), *measured(p)]
        for c in run.corpora
        for e, kinds in values_of(run, "correlation", c).items()
        for kind, p in kinds.items()
    ]
    caption = "Correlation of the distances in a table with those of the corpus, over all pairs of positions"
    columns = ["Corpus", "Encoding", "Distances", "Value", "Low", "High"]
    return Table("correlations", caption, columns, rows, frozenset({3, 4, 5})) if rows else None


def parameters(run: Run) -> Table | None:
    """What a table of rank r costs, r (n + d), beside its stress."""
    rows = []
    for c in run.corpora:
        costs = run.table.points("parameters", c.model, by="index", part="mds")
        for rank, cost in costs.items():
            found = [run.table.point(f"stress.optimal{s}", c.model, part="mds", index=rank) for s in SUFFIX.values()]
            if rank == max(costs):
                found = [
                    p or run.table.point(f"stress.optimal{s}", c.model, part="mds") for p, s in zip(found, SUFFIX.values(), strict=True)
                ]
            cells = [value(p.value) if p else Cell("–") for p in found]
            rows.append([text(c.name), count_cell(rank), count_cell(round(cost.value)), *cells])
        if (free := run.table.point("parameters", c.model, part="free")) is not None:
            rows.append([text(c.name), text("a free table"), count_cell(round(free.value)), Cell(""), Cell("")])
    caption = "What the table made from a corpus costs, r(n + d), and its stress at the best scale"
    columns = ["Corpus", "Rank", "Parameters", "Stress as counted", "Stress corrected"]
    return Table("parameters", caption, columns, rows, frozenset(range(1, 5))) if rows else None


def hypotheses(run: Run) -> Table | None:
    """H1 and H3 of GEOM on models: smallest distance of mean embeddings, and of their images in the head where it is smallest.

    H3 has two matrices, M and its transpose, which are never mixed: each has its own smallest head.
    """
    rows = []
    for model in run.table.models("h1") + [m for m in run.table.models("h3") if m not in run.table.models("h1")]:
        h1 = [run.table.point(f"h1{what}", model) for what in ("", ".floor", ".median")]
        if h1[0]:
            rows.append([text(model), text("H1"), Cell("–"), Cell(""), *(value(p.value) if p else Cell("–") for p in h1)])
        for part in run.table.distinct("part", "h3", model):
            found = run.table.points("h3", model, by=("layer", "head"), part=part)
            for layer in sorted({at for at, _ in found}):
                at = min((place for place in found if place[0] == layer), key=lambda place: found[place].value)
                rest = [run.table.points(f"h3{what}", model, by=("layer", "head"), part=part).get(at) for what in (".floor", ".median")]
                row = [text(model), text("H3"), text(part.replace("^T", "ᵀ")), count_cell(layer), value(found[at].value)]
                rows.append([*row, *(value(p.value) if p else Cell("–") for p in rest)])
    caption = (
        "Distances of positions in a model: mean embeddings (H1), and M or Mᵀ times them in the head where the smallest is smallest (H3; "
        "the condition names M, the proof of the theorem uses Mᵀ)"
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
    caption = f"{count(len(rows), 'corpus', 'corpora')} in numbers, with 95\u202f% intervals where documents were resampled"
    return (
        Table("corpora" if run.measured else f"{CORPUS}-numbers", caption, columns, rows, frozenset(range(1, len(columns))))
        if rows
        else None
    )


SEPARATIONS = replace(SEPARATION, id="separation")


def of_study(run: Run) -> list[Figure]:
    """Distances, their map and the stress of every table against the corpus of a study."""
    found = [f for f in (MATRIX.draw(run), maps_of(run), STRESS.draw(run)) if f]
    return [replace(f, id=f"{CORPUS}-{f.id}", table=replace(f.table, id=f"{CORPUS}-{f.table.id}")) for f in found]
