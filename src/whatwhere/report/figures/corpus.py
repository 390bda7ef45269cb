"""What a corpus says about positions: of a geometry run, or of a study's own corpus.

"As counted" is the plug-in distance of the observed shares, "corrected" the one without the bias of small samples
(split halves).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from ...records.metric import Metric
from ...records.table import Point, curve
from ..figure import Cell, Figure, Panel, Table, measured, row, value
from ..forms.axes import Axis
from ..forms.curves import LEVEL, Curves, Line
from ..forms.dots import path
from ..forms.maps import Maps, heatmap, thinned
from ..loaded_run import CORPUS, Corpus, Run
from ..numbers import count
from ..titles import best, coded, digits, join_sentences, rounded
from .shape import CORRECTED, separation

COUNTED = "as counted"
CLEAN = "corrected"
SUFFIX = {COUNTED: "", CLEAN: CORRECTED}
DASHES = {COUNTED: ("6px,4px", "circle"), CLEAN: ("solid", "circle")}
MOST = 1024  # positions of all corpora together that a table lists
CELLS = 400_000, 40_000  # of all matrices of a geometry page, and of a study's
EIGENVALUES = 64


def most(run: Run) -> int:
    """Return how many positions of each corpus a table shows."""
    return min(512, max(64, MOST // max(1, len(run.corpora))))


def of_each(run: Run, metric: str) -> dict[str, Point]:
    """Return corpus -> value of a metric, for the corpora where it was measured."""
    return {c.name: p for c in run.corpora if (p := run.table.point(metric, c.model)) is not None}


def first(run: Run, metric: str) -> tuple[dict[str, Point], str]:
    """Return corpus -> value of a metric, corrected where there is a corrected one, and which of the two it is."""
    clean = of_each(run, metric + CORRECTED)
    return (clean, CLEAN) if clean else (of_each(run, metric), COUNTED)


def _title(run: Run, c: Corpus, more: str = "") -> str:
    """Heading of a corpus's panel: its name where there are several."""
    return ", ".join(filter(None, (c.name if len(run.corpora) > 1 else "", more))) or more.capitalize()


# ---- support, distances ----


def chance(run: Run) -> list[str]:
    """Return the corpora whose corrected distances are not separable from none."""
    clean = of_each(run, "distance.mean" + CORRECTED)
    return [name for name, p in clean.items() if (p.value if p.low is None else p.low) <= 0]


def _apart(run: Run, lines: Sequence[Line]) -> str:
    """How far apart positions are once noise is taken out; not separable from chance where the interval holds 0."""
    (values, kind) = first(run, "distance.mean")
    counted = of_each(run, "distance.mean")
    noise = chance(run)
    if noise and len(noise) == len(values):
        both = {
            n: f"{digits(p)} corrected" + (f", {digits(counted[n])} as counted" if n in counted else "")
            for n, p in values.items()
        }
        return f"The distances of positions are not separable from chance: {join_sentences(both)}"
    how = "once noise is taken out" if kind == CLEAN else COUNTED
    title = best(coded(values), f"Mean distance of positions, {how}")
    return title + (f"; not separable from chance in {', '.join(f'`{n}`' for n in noise)}" if noise else "")


@Curves(
    "lag",
    "Root mean square distance by lag",
    _apart,
    y=Axis("distance", include=(0,)),
    x=Axis("lag"),
    columns=("Corpus", "Distances"),
    records=("arrays/geometry-*.npz", "distance.mean, floor.mean"),
    width=300,
)
def lag(run: Run) -> Iterator[Line]:
    """Root mean square Hellinger distance of the token distributions of two positions against their lag, as counted and
    corrected for the bias of small samples (largest possible: 1.41). It is below 0 where the corrected squares are on
    average, which is noise. Noise floor: the distance of one position from itself in two halves of the documents, mean
    over positions; all documents together have less noise than a half."""
    for c in run.corpora:
        if (lag := c.array("lag")) is None:
            continue
        for kind, key in ((CLEAN, "lag_mean_corrected"), (COUNTED, "lag_mean")):
            points = curve(c.array(key), lag.astype(int).tolist(), trained=False)
            yield Line(points, c.name, kind, mark=DASHES[kind], panel=_title(run, c))
        if floor := run.table.point("floor.mean", c.model):
            yield Line({0: floor}, "noise floor", kind=LEVEL, panel=_title(run, c))


def _distances(c: Corpus) -> dict[str, np.ndarray]:
    """Kind -> distances of every two positions."""
    arrays = {COUNTED: c.array("distance", 2), CLEAN: c.array("corrected", 2)}
    return {kind: m for kind, m in arrays.items() if m is not None}


def _supported(run: Run, lines: Sequence[Line]) -> str:
    support = {c: s for c in run.corpora if (s := c.array("support")) is not None}
    positions = {c.name: (len(c.positions), c.number("positions_asked") or len(s)) for c, s in support.items()}
    empty = {c.name: sum(p < len(s) and not s[p] for p in c.positions) for c, s in support.items()}
    if any(empty.values()):
        shares = {n: f"{k} of {positions[n][0]}" for n, k in empty.items()}
        return f"Positions kept although nothing stands there: {join_sentences(shares)}"
    if all(few == every for few, every in positions.values()):
        counts = {n: count(few, "position") for n, (few, _) in positions.items()}
        return f"Every position is supported: {join_sentences(counts)}"
    shares = {n: f"{few} of {every}" for n, (few, every) in positions.items()}
    return f"Positions that are counted often enough: {join_sentences(shares)}"


@Curves(
    "support",
    "Support, noise floor and distance to the next position",
    _supported,
    metric="floor.mean",
    y={"tokens": Axis("tokens", "log", (1,), floor=1), "distance": Axis("distance", include=(0,))},
    x=Axis("position"),
    columns=("Corpus", "What"),
    records=("arrays/geometry-*.npz",),
    width=400,
)
def support(run: Run) -> Iterator[Line]:
    """Tokens counted at each position, on a logarithmic axis; positions with too few are grey and take part in nothing
    below, unless the run follows the paper's protocol. The other panels: distance of a position from itself in two
    halves of the documents (grey, band: 95\u202f% of the random halves) and of each position from the next, as counted
    (dashed) and corrected (solid)."""
    for c in run.corpora:
        if (counted := c.array("support")) is None:
            continue
        panel = _title(run, c, "tokens at each position")
        left = {*c.left_out}
        tokens = {i: p for i, p in curve(counted, trained=False).items() if p.value > 0}
        for name, colour, out in (("kept", "absolute", False), ("left out", "combined", True)):
            points = {i: p for i, p in tokens.items() if (i in left) == out}
            yield Line(points, c.name, name, colour, panel=panel, axis="tokens")
        if (floor := c.array("floor")) is None or len(floor) != len(c.positions):
            continue
        at = c.positions
        panel = _title(run, c, "noise floor and neighbours")
        noise, low, high = (
            curve(values, at, trained=False) for values in (floor, c.array("floor_low"), c.array("floor_high"))
        )
        if len(low) == len(high) == len(at):
            noise = {
                i: replace(Point.between(p.value, low[i].value, high[i].value), trained=False) for i, p in noise.items()
            }
        yield Line(noise, c.name, "noise floor", "combined", panel=panel, axis="distance")
        for kind, matrix in _distances(c).items():
            if len(matrix) == len(at):
                points = curve(np.diagonal(matrix, 1), at, trained=False)
                yield Line(points, c.name, kind, mark=DASHES[kind], panel=panel, axis="distance", thick=1.6)


def _lag_alone(run: Run, panels: object) -> str:
    points, kind = first(run, "lag.share")
    caption = f"Share of the variance of squared distances that the lag alone explains, {kind}"
    return best(coded(points), caption, write=rounded) if points else "Distances between positions"


@Maps(
    "matrix",
    "Distances of each position to the next and to the first; every single one is in arrays/",
    _lag_alone,
    columns=("Corpus", "Position", "To the next", "corrected", "To the first", "corrected "),
    records=("arrays/geometry-*.npz: distance, corrected", "lag.share, toeplitz, circulant"),
    width=400,
)
def matrix(run: Run) -> Iterator[tuple[Panel | None, list[list[Cell]]]]:
    """Distance of every two positions. Colours run from 0 at the ground of the page to the largest value of each kind;
    a corrected distance whose square came out negative, which is noise, is drawn as 0. In the centred matrix of squared
    distances each has its sign; what depends on the lag alone is its Toeplitz part. Large matrices are thinned; all is
    in arrays/."""
    drawn = [(kind, c, m) for c in run.corpora for kind, m in _distances(c).items()]
    side = min(256, int((CELLS[not run.measured] / max(1, len(drawn))) ** 0.5))
    for kind, c, m in drawn:
        at = thinned(len(m), side)
        top = max(float(np.nanmax(other)) for k, _, other in drawn if k == kind) or 1.0
        places = [c.positions[i] for i in at]
        z = np.maximum(m[np.ix_(at, at)], 0.0)
        hover = "positions %{x} and %{y}<br>distance %{z:.3f}"
        title = _title(run, c, kind)
        axes = ("position", "position")
        yield heatmap(z, places, places, title, hover, (0.0, top), axes, height=560, square=True), []
    for c in run.corpora:
        kinds = [_distances(c).get(kind) for kind in SUFFIX]
        rows = []
        for i in thinned(len(c.positions), most(run)):
            of = [m[i, j] if m is not None and max(i, j) < len(m) else None for j in (i + 1, 0) for m in kinds]
            rows.append(row(c.name, c.positions[i], *of))
        yield None, rows


@Curves(
    "between",
    "Distance of two corpora by position",
    lambda run, lines: best(coded({x.name: x.end for x in lines}), "Distance at the last position that both have"),
    y=Axis("distance", include=(0,)),
    x=Axis("position"),
    columns=("Corpora", ""),
    records=("between: part = two corpora, index = position",),
    width=400,
)
def between(run: Run) -> Iterator[Line]:
    """Hellinger distance between the token distributions of two corpora at the same position, as counted; 1.41 where no
    token is shared."""
    for a, b in combinations(run.corpora, 2):
        part = f"{a.name}|{b.name}"
        name = f"{a.name} and {b.name}"
        curves = (run.table.points("between", model, by="index", part=part) for model in ("", a.model, b.model))
        yield Line(next(filter(None, curves), {}), name, colour="combined", panel=name)


# ---- shape ----


def maps_of(run: Run) -> Figure | None:
    """Draw MDS maps: positions on the first two components, coloured from first to last."""
    panels = []
    rows = []
    shares: dict[str, Point] = {}
    for c in run.corpora:
        for key, kind, ending in (("coords_corrected", CLEAN, CORRECTED), ("coords", COUNTED, "")):
            coords = c.array(key, 2)
            if coords is None or coords.shape[1] < 2 or len(coords) != len(c.positions):
                continue
            parts = [run.table.point("mds.share" + ending, c.model, index=i) for i in (0, 1)]
            if parts[0] and parts[1]:
                shares.setdefault(c.name, parts[0] + parts[1])
            titles = [f"component {i + 1}" + (f" ({rounded(p)})" if p else "") for i, p in enumerate(parts)]
            positions = [i for i in thinned(len(coords), most(run)) if np.isfinite(coords[i, :2]).all()]
            at = [c.positions[i] for i in positions]
            alt = f"Map of {len(positions)} positions of {c.name}, {kind}."
            panels.append(path(coords[positions], titles, _title(run, c, kind), alt, at=at, height=500))
            empty = [Cell("")] * (3 - len(coords[0, :3]))
            rows += [row(c.name, kind, p, *coords[i, :3], *empty) for i, p in zip(positions, at, strict=True)]
    if not panels:
        return None
    columns = ["Corpus", "Kind", "Position", "Component 1", "Component 2", "Component 3"]
    return Figure(
        "map",
        best(coded(shares), "Share of two components of the distances", write=rounded),
        "Classical scaling of the distances: one point a position, joined in order, coloured from the first to the "
        "last; equal scales on both axes. As counted, noise puts every position at a place of its own; the corrected "
        "map has less of it.",
        panels,
        Table.of("map", "Coordinates of every position", columns, rows),
        width=400,
        even=True,
        records=("arrays/geometry-*.npz: coords, coords_corrected", "mds.share: index = component"),
    )


@Curves(
    "spectrum",
    "Eigenvalues",
    lambda run, lines: best(coded(first(run, "rank")[0]), "Dimensions of the distances"),
    metric=Metric(name="eigenvalue"),
    y=Axis("eigenvalue", "log", floor=1e-6),
    x=Axis("component"),
    columns=("Corpus", "Distances"),
    records=("arrays/geometry-*.npz: eigenvalues", "rank"),
    width=400,
)
def spectrum(run: Run) -> Iterator[Line]:
    """Eigenvalues of the centred matrix of squared distances, largest first, on a logarithmic axis. Corrected distances
    have negative eigenvalues too; the size of the most negative one is the noise level, and what lies below it is not
    told from noise."""
    for c in run.corpora:
        clean = c.array("eigenvalues_corrected")
        for kind, values in ((CLEAN, clean), (COUNTED, c.array("eigenvalues"))):
            points = curve(values, range(1, EIGENVALUES + 1), trained=False)
            least = 1e-12 * max((p.value for p in points.values()), default=0.0)  # the rest is rounding
            points = {k: p for k, p in points.items() if p.value > least}
            yield Line(points, c.name, kind, mark=DASHES[kind], panel=_title(run, c))
        if clean is not None and (level := -float(np.nanmin(clean))) > 0:
            yield Line({0: Point.between(level)}, "noise level", kind=LEVEL, panel=_title(run, c))


def hypotheses(run: Run) -> Table | None:
    """Return the table of H1 and H3 of GEOM on models: smallest distance of mean embeddings, and of their images in the
    head where it is smallest.

    H3 has two matrices, M and its transpose, which are never mixed: each has its own smallest head.
    """
    rows = []
    for model in dict.fromkeys(run.table.models("h1") + run.table.models("h3")):
        h1 = [run.table.point(f"h1{what}", model) for what in ("", ".floor", ".median")]
        before = run.table.point("h1", model, step=0)
        if h1[0]:
            rows.append(row(model, "H1", None, Cell(""), *(p and p.value for p in (*h1, before))))
        for part in run.table.distinct("part", "h3", model):
            distances, *others = (
                run.table.points(f"h3{what}", model, by=("layer", "head"), part=part)
                for what in ("", ".floor", ".median")
            )
            others.append(run.table.points("h3", model, by=("layer", "head"), part=part, step=0))
            for layer in sorted({at for at, _ in distances}):
                at = min((place for place in distances if place[0] == layer), key=lambda place: distances[place].value)
                rest = [of[at].value if at in of else None for of in others]
                rows.append(row(model, "H3", part.replace("^T", "ᵀ"), layer, distances[at].value, *rest))
    caption = (
        "Distances of positions in a model: mean embeddings (H1), and M or Mᵀ times them in the head where the "
        "smallest is smallest (H3; the condition names M, the proof of the theorem uses Mᵀ); the same at step 0. "
        "Layer 0 is the first block's"
    )
    columns = ["Model", "Condition", "Matrix", "Layer", "Smallest", "Between halves", "Median", "Smallest at step 0"]
    return Table.of("hypotheses", caption, columns, rows) if rows else None


def overview(run: Run) -> Table | None:
    """Return a table with a row for each corpus: sizes, and the numbers that sum it up."""
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
        positions_kept = len(c.positions)
        positions_asked = c.number("positions_asked")
        positions = value(
            positions_kept, f"{positions_kept} of {positions_asked}" if positions_asked else str(positions_kept)
        )
        cells = []
        for metric in metrics.values():
            mean, low, high = measured(run.table.point(metric, c.model))
            cells.append(Cell(mean.text + (f" [{low.text}, {high.text}]" if low.text else ""), mean.raw))
        rows.append(row(c.name, *(p and p.value for p in sizes), positions, *cells))
    columns = ["Corpus", "Documents", "Tokens", "Positions", *metrics]
    numbers = f"{count(len(rows), 'corpus', 'corpora')} in numbers"
    caption = f"{numbers}, with 95\u202f% intervals where documents were resampled"
    id = "corpora" if run.measured else f"{CORPUS}-numbers"
    return Table.of(id, caption, columns, rows) if rows else None


def renamed(figure: Figure, id: str) -> Figure:
    """Return the figure and its table under another id."""
    return replace(figure, id=id, table=replace(figure.table, id=id))


def separations(run: Run) -> Figure | None:
    """Draw the position tables of models over training beside the distances of corpora."""
    drawn = separation(run)
    return drawn and renamed(drawn, "separation")


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "geometry.support": (support,),
    "geometry.distances": (
        matrix,
        between,
    ),
    "geometry.shape": (
        maps_of,
        spectrum,
    ),
    "geometry.training": (separations,),
}
# Tables of each question.
TABLES = {"study.corpus": (overview,), "geometry.support": (overview,), "geometry.training": (hypotheses,)}
