"""Which encoding fits a corpus: stress, held-out stress, order of distances, and what a table costs."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...records.table import Point
from ..figure import MOST_DIGITS, Cell, Figure, Panel, Table, row
from ..forms.axes import SMALLEST, Axis
from ..forms.curves import LEVEL, Curves, Line
from ..forms.form import note, reference, shaded, symbols
from ..forms.maps import rounded, thinned
from ..forms.rows import Row, Rows
from ..loaded_run import CORPUS, Corpus, Run
from ..numbers import count, interval, number
from ..style import axis, layout, model_styles
from ..titles import UNCLEAR, against, best, digits, join_sentences, per_cent, two_numbers
from .corpus import CLEAN, COUNTED, SUFFIX, _title, maps_of, matrix, most, renamed
from .shape import CORRECTED

FITTED = ("mds", "smacof")  # tables made from the distances that they are then compared with
# As encodings: all distances equal; distances in one half of the documents against the other half, for comparison: no
# bound, since a fitted table can have less noise than a half.
EQUAL = "equidistant"
NOISE = "noise"
CHOSEN = "mds.chosen"
BLIND = ("random", EQUAL)  # know nothing of position
RELATIVE = ("rope", "alibi")  # tell distances only, in the colour of the relative stream
ITSELF = "of the table itself"
Values = Mapping[str, dict[str, Point]]  # encoding -> kind -> value


def colour(encoding: str) -> str:
    """Return the colour of an encoding: the colour of the stream which would hold it."""
    kind = encoding.partition(",")[0]
    if kind in (CORPUS, *BLIND):
        return "combined"
    return "relative" if kind in RELATIVE else "absolute"


def shown(encoding: str) -> str:
    """Return the name of an encoding in a figure."""
    names = {CORPUS: "the corpus itself", EQUAL: "all equally far", NOISE: "half against half", CHOSEN: "rank chosen"}
    return names.get(encoding, encoding)


def ready(encoding: str) -> bool:
    """Return whether an encoding comes ready-made and knows something of position."""
    return encoding.partition(",")[0] not in (*FITTED, *BLIND, CORPUS, NOISE)


def values_of(run: Run, metric: str, c: Corpus) -> dict[str, dict[str, Point]]:
    """Return encoding -> kind -> value of a metric on a corpus.

    Tables made from the distances have their rank in the name: full, or its number where the distances as counted and
    the corrected ones have other ranks, and the ranks of `ranks_shown`.
    """
    values: dict[str, dict[str, Point]] = {}
    shown_ranks = ranks_shown(run, c)
    full_ranks = {kind: _full_rank(run, c, suffix) for kind, suffix in SUFFIX.items()}
    apart = None not in full_ranks.values() and len({*full_ranks.values()}) > 1
    for kind, suffix in SUFFIX.items():
        full = full_ranks[kind]
        for part in run.table.distinct("part", metric + suffix, c.model):
            ranks = {rank: rank for rank in [shown_ranks.get(part)] if rank is not None}
            if apart and part == "mds":
                ranks |= {rank: rank for rank in full_ranks.values() if rank is not None}
            places: dict[str, int | None] = {
                f"{part}, rank {rank}": None if apart and rank == full else rank for rank in ranks
            }
            if not apart or part != "mds":
                places[f"{part}, full rank" if part in FITTED else part] = None
            for name, rank in places.items():
                if (point := run.table.point(metric + suffix, c.model, part=part, index=rank)) is not None:
                    values.setdefault(name, {})[kind] = point
    return values


def _full_rank(run: Run, c: Corpus, suffix: str) -> int | None:
    """Return the rank of the table that has all of the distances; None where it was not recorded."""
    rank = run.table.point(f"rank{suffix}", c.model)
    return None if rank is None else round(rank.value)


def ranks_shown(run: Run, c: Corpus) -> dict[str, int]:
    """Return the ranks shown beside the full one.

    Of `smacof` it is the largest. Of `mds` it is the rank of least stress on other documents, whose table is written;
    where nothing was held out, the rank of `smacof`.
    """
    metrics = ["stress.optimal" + suffix for suffix in SUFFIX.values()]
    mds, smacof = (
        {rank for metric in metrics for rank in run.table.points(metric, c.model, by="index", part=part)}
        for part in FITTED
    )
    points = run.table.points("stress.held_out", c.model, by="index", part="mds")
    rank = min(points, key=lambda r: points[r].value, default=None)
    most = max(smacof, default=None)
    ranks = {"smacof": most, "mds": rank if rank in mds else most}
    return {part: rank for part, rank in ranks.items() if rank is not None}


def last(kinds: Mapping[str, Point]) -> Point:
    """Return the value that counts: against corrected distances where there are any."""
    return next(kinds[k] for k in (CLEAN, ITSELF, COUNTED) if k in kinds)


def counting(values: Values) -> set[str]:
    """Return the encodings whose values may be compared: where any is corrected, those with a corrected value or with
    distances of their own."""
    clean = any(CLEAN in kinds for kinds in values.values())
    return {e for e, kinds in values.items() if not (clean and set(kinds) == {COUNTED})}


def _rows(values: Values, panel: str, axis_: str = "") -> list[Row]:
    """A row an encoding, from the lowest to the highest, the corpus itself before all, what has no corrected value
    after all."""
    counts = counting(values)
    rows = [Row(shown(e), of, panel, colour=colour(e), axis=axis_, counts=e in counts) for e, of in values.items()]
    return sorted(rows, key=lambda row: (row.name != shown(CORPUS), row.value.value if row.value else math.inf))


def _two_best(run: Run, metric: str, c: Corpus, values: Values, lowest: bool) -> str:
    """Return the best two encodings with their values, and the mark "not separable" in front where they are not.

    Both stresses come from the same documents: where the run recorded the ratio of the two, its interval decides.
    """
    points = {e: last(kinds) for e, kinds in values.items()}
    first, *others = sorted(points, key=lambda e: points[e].value, reverse=not lowest)[:2]
    clean = all(CLEAN in values[e] for e in (first, *others))
    name = metric.replace("stress.", "stress.ratio.") + (CORRECTED if clean else "")
    ratios = (run.table.point(name, c.model, part=f"{a}/{b}") for b in others for a, b in ((first, b), (b, first)))
    ratio = next((p for p in ratios if p is not None and p.interval is not None), None)
    if ratio is None:
        return best(points, "", lowest=lowest).removeprefix(": ").strip()
    marks = [UNCLEAR] if against(ratio, 1.0) == UNCLEAR else []
    return two_numbers("", {e: digits(points[e]) for e in (first, *others)}, *marks).removeprefix(": ").strip()


def _fits(metric: str, sentence: str, lowest: bool = True) -> Callable[[Run, Any], str]:
    """The best ready-made encoding of each corpus beside the next, and beside one that knows no position."""

    def title(run: Run, rows: Any) -> str:
        fits = {}
        for c in run.corpora:
            every = values_of(run, metric, c)
            points = {e: last(every[e]) for e in every if e in counting(every)}
            if known := {e: p for e, p in points.items() if ready(e)}:
                sign = 1 if lowest else -1
                first = min(sign * p.value for p in known.values())
                beaten = any(sign * points[e].value <= first for e in BLIND if e in points)
                same = "; a table that knows no position comes as near" if beaten else ""
                fits[c.name] = _two_best(run, metric, c, {e: every[e] for e in known}, lowest) + same
        return f"{sentence}: {join_sentences(fits)}" if fits else sentence

    return title


@Rows(
    "stress",
    "Stress of every encoding",
    _fits("stress.optimal", "Lowest stress of a ready-made encoding"),
    metric="stress.optimal",
    x={
        "stress.optimal": Axis("stress at the best scale", include=(0,)),
        "stress.raw": Axis("raw stress", "log", floor=SMALLEST),
    },
    columns=("Corpus and scale", "", "Encoding"),
    records=("stress.raw, stress.optimal, *.corrected: part = table, index = rank",),
)
def stress(run: Run) -> Iterator[Row]:
    """Sum of squared differences between the distances of a table and the Hellinger distances, over the sum of squares
    of the latter; 0 is a perfect fit. Raw stress depends on the arbitrary scale of a table; at the best scale, the
    table is first multiplied by the number that lowers it most. `mds` and `smacof` are made from these very distances.
    All equally far: every two positions at the same distance. Half against half: corrected distances of one half of the
    documents as the table of the other, for comparison. A dash: not measured against corrected distances."""
    for c in run.corpora:
        for metric, scale in (("stress.optimal", "best scale"), ("stress.raw", "raw")):
            yield from _rows(values_of(run, metric, c), _title(run, c, scale), metric)


def _ordered(run: Run, rows: Sequence[Row]) -> str:
    """How often the distances of a corpus themselves break the order of the lags; 50 % is chance."""
    sides = {"above": ", above chance", "below": ""}
    shares = {}
    for c in run.corpora:
        if kinds := values_of(run, "violations", c).get(CORPUS):
            p = last(kinds)
            side = sides.get(against(p, 0.5), ", not separable from chance") if p.low is not None else ""
            shares[c.name] = per_cent(p) + side
    if not shares:
        return "Triples out of order"
    return f"Triples in which the nearer position is the more distant one: {join_sentences(shares)}"


@Rows(
    "violations",
    "Triples out of order",
    _ordered,
    x=Axis("triples out of order", "share", (0, 0.55)),
    columns=("Corpus", "", "Encoding"),
    records=("violations: part = table",),
    levels={0.5: "chance: 50\u202f%"},
)
def violations(run: Run) -> Iterator[Row]:
    """Share of the triples of positions, one neighbour nearer than the other, in which the nearer one has the larger
    distance. 0\u202f% is a distance that only grows with the lag; dashed: 50\u202f%, which chance gives.
    Corrected squares that came out negative take part with their sign, so chance gives 50\u202f% there too."""
    for c in run.corpora:
        values = values_of(run, "violations", c)
        for e, kinds in values.items():
            if e.partition(",")[0] not in (*FITTED, CORPUS):  # a table that was not made from the corpus has one value
                values[e] = {ITSELF: last(kinds)}
        yield from _rows(values, _title(run, c))


def _supported_rank(run: Run, lines: Sequence[Line]) -> str:
    ranks = {x.name: {f"rank {r}": p for r, p in x.points.items()} for x in lines}
    fits = {name: best(points, "", lowest=True).removeprefix(": ").strip() for name, points in ranks.items()}
    return f"The tables that fit other documents best: {join_sentences(fits)}"


@Curves(
    "held-out",
    "Stress on documents not fitted",
    _supported_rank,
    y=Axis("stress on other documents", "log", floor=SMALLEST),
    x=Axis("rank", "log"),
    columns=("Corpus", "Encoding"),
    records=("stress.held_out: part, index = rank",),
    width=400,
)
def held_out(run: Run) -> Iterator[Line]:
    """Tables made from one half of the documents, held against the corrected distances of the other half at their best
    scale, mean over random halves. More dimensions fit the noise of the first half; the lowest values are what the
    corpus supports; rank chosen: each half chooses its rank by itself. Dashed too: encodings that were fitted to
    nothing; all equally far: every two positions at the same distance."""
    for c in run.corpora:
        points = run.table.points("stress.held_out", c.model, by="index", part="mds")
        if len(points) < 2:
            continue
        yield Line(points, c.name, "mds", panel=_title(run, c))
        for part in run.table.distinct("part", "stress.held_out", c.model):
            if (point := run.table.point("stress.held_out", c.model, part=part)) is not None:
                yield Line({0: point}, shown(part), kind=LEVEL, panel=_title(run, c))


def _growth(run: Run, lines: Sequence[Line]) -> str:
    ends = {
        x.name: [f"{number(x.points[at].value)} at {at}" for at in (min(x.points), max(x.points))]
        for x in lines
        if x.part == "sinusoidal" and x.axis == "raw"
    }
    if not ends:
        return "Stress by the dimensions of a table"
    growth = {name: ", ".join(words) for name, words in ends.items()}
    return f"Raw stress of the sinusoidal table by its dimensions: {join_sentences(growth)}"


@Curves(
    "dimensions",
    "Stress by dimensions",
    _growth,
    y={scale: Axis("stress", "log", floor=SMALLEST) for scale in ("at the best scale", "raw")},
    x=Axis("dimensions", "log"),
    columns=("Corpus", "Encoding"),
    records=("stress.raw, stress.optimal: part, index = dimensions",),
    width=400,
)
def dimensions(run: Run) -> Iterator[Line]:
    """Stress of tables with more and more dimensions against the distances, corrected where they are, on logarithmic
    axes. Raw stress of a table of fixed entries grows with its dimensions, for its distances do."""
    for metric, scale in (("stress.optimal", "at the best scale"), ("stress.raw", "raw")):
        clean = any(run.table.rows(metric + CORRECTED, c.model) for c in run.corpora)
        name = metric + (CORRECTED if clean else "")
        for c in run.corpora:
            parts = run.table.distinct("part", name, c.model)
            marks = model_styles(parts)
            panel = _title(run, c, scale)
            for part in parts:
                points = run.table.points(name, c.model, by="index", part=part)
                points = {d: p for d, p in points.items() if d > 0}
                if len(points) > 1:
                    yield Line(points, c.name, part, colour(part), marks[part], panel=panel, axis=scale)


def scatter(run: Run) -> Figure | None:
    """Draw each table's distances at its best scale (x) against the corpus's (y), a point for a pair, coloured by lag
    (GEOM figure 7)."""
    panels = []
    rows = []
    encodings = list(dict.fromkeys(n for c in run.corpora for n in c.names("scatter_names")))
    sizes = {}
    for c in run.corpora:
        dist = c.array("scatter_dist")
        lag = c.array("scatter_lag")
        tables = c.array("scatter_table", 2)
        names = c.names("scatter_names")
        if dist is None or lag is None or tables is None:
            continue
        if tables.shape != (len(names), len(dist)) or len(lag) != len(dist):
            continue
        pairs = [i for i in thinned(len(dist), most(run)) if np.isfinite(dist[i]) and np.isfinite(lag[i])]
        dist = dist[pairs]
        lag = lag[pairs].astype(int)
        tables = tables[:, pairs]
        sizes[c.name] = len(pairs)
        # The distances come from the same file as the corrected matrix: they are corrected where there is one.
        metric = "correlation" + (CORRECTED if c.array("corrected", 2) is not None else "")
        low = min(0.0, float(np.nanmin(dist)), float(np.nanmin(tables)))
        high = max(float(np.nanmax(dist)), float(np.nanmax(tables)))
        room = 0.06 * ((high - low) or 1.0)
        frame = low - room, high + 2.2 * room  # the corner that the diagonal ends in stays free for its name
        for name, table in zip(names, tables, strict=True):
            r = run.table.point(metric, c.model, part=name)
            panels.append(_pairs(_title(run, c, shown(name)), table, dist, lag, frame, r))
        columns = dict(zip(names, tables, strict=True))
        for i in range(len(pairs)):
            of = (columns[e][i] if e in columns else None for e in encodings)
            rows.append(row(c.name, int(lag[i]), dist[i], *of))
    if not panels:
        return None
    drawn = "; ".join(f"{count(n, 'pair')} of `{name}`" for name, n in sizes.items())
    clean = any(c.array("corrected", 2) is not None for c in run.corpora)
    subtitle = (
        f"One point a pair of positions ({drawn}), coloured by lag: its distance in the table, multiplied by the "
        "number that brings the table closest, against its Hellinger distance in the corpus "
        f"({CLEAN if clean else COUNTED}). On the dashed line the two are equal. r is Pearson's correlation over all "
        "pairs, with its 95\u202f% interval where documents were resampled; it can be high far from the line."
    )
    heads = ["Corpus", "Lag", "In the corpus", *(shown(e) for e in encodings)]
    caption = "Distance in the corpus and in every table at its best scale, by pair of positions"
    return Figure(
        "scatter",
        _fits("correlation", "Highest correlation of a ready-made encoding", lowest=False)(run, None),
        subtitle,
        panels,
        Table.of("scatter", caption, heads, rows),
        width=260,
        even=True,
        records=("arrays/geometry-*.npz", "correlation: part"),
    )


def _pairs(
    head: str, table: np.ndarray, dist: np.ndarray, lag: np.ndarray, frame: tuple[float, float], r: Point | None
) -> Panel:
    is_finite = np.isfinite(table)
    first = int(lag.min())
    end = max(int(lag.max()), int(lag.min()) + 1)
    ticks = sorted({first, *(round(first + (end - first) * k / 3) for k in (1, 2)), end})
    bar = {"orientation": "h", "thickness": 8, "outlinewidth": 0, "len": 1, "xpad": 0, "ypad": 2}
    bar |= {"yref": "container", "y": 1, "yanchor": "top", "tickfont": {"color": "@muted"}}
    bar |= {"tickvals": ticks, "ticktext": [f"{'lag ' if t == first else ''}{t:,}" for t in ticks]}
    marker = shaded(lag[is_finite].tolist(), first, end, size=6, showscale=True, colorbar=bar)
    hover = "lag %{marker.color}<br>table %{x:.3f}<br>corpus %{y:.3f}<extra></extra>"
    points = symbols(rounded(table[is_finite]), rounded(dist[is_finite]), marker, hovertemplate=hover)
    exact = reference(frame, frame, "exact: the same distance in table and corpus")
    notes = [note(frame[1], frame[1], "exact", xanchor="right", yanchor="top", xshift=-24)]
    square = {"range": list(frame), "nticks": 4, "constrain": "domain"}
    x = axis("distance in the table", **square, constraintoward="left")
    y = axis("distance in the corpus", **square, scaleanchor="x")
    plot = layout(420, x, y, {"l": 62, "r": 22, "t": 42, "b": 52}, annotations=notes, meta={"square": True})
    title = f"{head}: r {digits(r)}" if r else head
    bounds = interval(r.low, r.high, MOST_DIGITS) if r else ""
    alt = f"{count(int(is_finite.sum()), 'pair')} of positions, {title} {bounds}".strip() + "."
    return Panel([exact, points], plot, title, alt, bounds)


def correlations(run: Run) -> Table | None:
    """Return the table of Pearson's r of every encoding, against the distances as counted and the corrected ones."""
    rows = [
        row(c.name, shown(e), kind, p)
        for c in run.corpora
        for e, kinds in values_of(run, "correlation", c).items()
        for kind, p in kinds.items()
    ]
    caption = "Correlation of the distances in a table with the corpus's, over all pairs of positions"
    columns = ["Corpus", "Encoding", "Distances", "Value", "Low", "High"]
    return Table.of("correlations", caption, columns, rows) if rows else None


def _stress_by_rank(run: Run, c: Corpus, suffix: str, most: int) -> dict[int, Point]:
    """Return rank -> stress of the table made from the distances, the full rank by its number.

    most: the full rank where none was recorded.
    """
    name = f"stress.optimal{suffix}"
    curve = run.table.points(name, c.model, by="index", part="mds")
    full = run.table.point(name, c.model, part="mds")
    rank = _full_rank(run, c, suffix) or most
    return curve if full is None else {rank: full} | curve


def parameters(run: Run) -> Table | None:
    """Return the table of what each rank r costs, r (n + d) parameters, beside its stress."""
    rows = []
    for c in run.corpora:
        costs = {r: p.value for r, p in run.table.points("parameters", c.model, by="index", part="mds").items()}
        stress = [_stress_by_rank(run, c, suffix, max(costs, default=0)) for suffix in SUFFIX.values()]
        for rank in [r for r in (_full_rank(run, c, suffix) for suffix in SUFFIX.values()) if r and costs]:
            costs.setdefault(rank, rank * max(costs.values()) / max(costs))
        for rank, cost in sorted(costs.items()):
            of_rank = [curve.get(rank) for curve in stress]
            rows.append(row(c.name, rank, round(cost), *(p and p.value for p in of_rank)))
        if (free := run.table.point("parameters", c.model, part="free")) is not None:
            rows.append(row(c.name, "a free table", round(free.value), Cell(""), Cell("")))
    caption = "What the table made from a corpus costs, r(n + d), and its stress at the best scale"
    columns = ["Corpus", "Rank", "Parameters", "Stress as counted", "Stress corrected"]
    return Table("parameters", caption, columns, rows, frozenset(range(1, 5))) if rows else None


def of_study(run: Run) -> list[Figure]:
    """Draw the distances of a study's corpus, their map, and the stress of every table."""
    return [renamed(f, f"{CORPUS}-{f.id}") for f in (matrix(run), maps_of(run), stress(run)) if f]


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.corpus": (of_study,),
    "geometry.fit": (
        stress,
        scatter,
        held_out,
        dimensions,
        violations,
    ),
}
# Tables of each question.
TABLES = {
    "geometry.fit": (
        correlations,
        parameters,
    )
}
