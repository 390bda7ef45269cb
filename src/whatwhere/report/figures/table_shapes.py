"""Position tables on their own (LOWDIM figures 1 to 7): shares beside words, score maps, rotations, Fourier magnitudes,
E·Eᵀ."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count as numbered
from typing import Any

import numpy as np

from ...records.metric import Metric
from ...records.table import Point, curve
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, row, value
from ..forms.axes import Axis
from ..forms.curves import Curves, Line
from ..forms.dots import path
from ..forms.form import Draw, drawn
from ..forms.maps import Maps, heatmap, thinned
from ..forms.rows import Row, Rows
from ..loaded_run import Run
from ..numbers import count, fixed, percent
from ..style import model_styles
from ..titles import at, best, join_sentences, per_cent, rounded, story
from .shape import shares_of

LISTED = 64  # positions of a data table
FEW_SCORES = 14  # components of the two score maps (LOWDIM figures 2 and 7)
ALL_SCORES = 128
PAIRS = 4  # rotations that are drawn of a table
PEAKS = 4  # frequencies that a title names
COUNTED = 0.01  # share of the variance from which a component says how far the map of magnitudes goes
LOWEST = 1e-5  # share that an axis shows


def tables_of(run: Run, key: str) -> dict[str, tuple[int | None, dict[str, np.ndarray]]]:
    """Return model -> (seed, arrays) of the drawn tables that have an array `key`."""
    return {m: arrays for m, arrays in run.drawn.items() if key in arrays[1]}


def _drawn(key: str) -> Callable[[Run, object], Mapping[str, str]]:
    return lambda run, _: {"drawn": drawn(run.trainings[1], [seed for seed, _ in tables_of(run, key).values()])}


def _of_drawn(run: Run, metric: str, model: str) -> dict[Any, Point]:
    """Index -> value of the drawn table."""
    return run.table.points(metric, model, by="index", seed=run.drawn[model][0]) if model in run.drawn else {}


def _halves(run: Run, lines: Sequence[Line]) -> str:
    points: dict[str, Point] = {}
    for part, name, record in (("positions", "`{}`", None), ("words", "the words of `{}`", "words")):
        halves = {x.name: run.table.point("n50", x.name, part=record) for x in lines if x.part == part}
        points |= {name.format(model): p * 0.01 for model, p in halves.items() if p}
    caption = "Share of components that hold half of the variance"
    return best(points, caption, lowest=True, write=per_cent)


@Curves(
    "table-shares",
    "Share of variance by component",
    _halves,
    y=Axis("share of variance", "log", floor=LOWEST),
    x=Axis("component", "log"),
    columns=("Model", "Table"),
    records=("pca.share: index", "arrays/*.npz: shares"),
    width=260,
)
def shares(run: Run) -> Iterator[Line]:
    """Share of the variance in each principal component, largest first, both axes logarithmic. Positions solid, words
    of the same model dashed."""
    for model, (seed, _) in tables_of(run, "shares").items():
        words = curve(run.words.get((model, seed)), numbered(1))
        for name, points, colour, dash in (
            ("positions", shares_of(run, model), "absolute", "solid"),
            ("words", words, "semantic", "6px,4px"),
        ):
            visible = {k: p for k, p in points.items() if p.value >= LOWEST}
            yield Line(visible, model, name, colour, (dash, "circle"), panel=model)


def _slow(run: Run, panels: object) -> str:
    slow = {}
    for model in tables_of(run, "scores"):
        if turns := _of_drawn(run, "fft.turns", model):
            few = sum(p.value <= (p.n or 0) / 20 for p in turns.values())
            slow[model] = f"{few} of the first {len(turns)}"
    if not slow:
        return "Scores of the first components"
    return f"Components that vary slowly, at a tenth of the highest frequency or below: {join_sentences(slow)}"


def _score_maps(id: str, most: int, title: Callable[[Run, object], str]) -> Draw:
    @Maps(
        id,
        "Scores of the first components",
        title,
        columns=("Model", "Position", *(f"Component {k + 1}" for k in range(FEW_SCORES))),
        records=("arrays/*.npz: scores",),
        width=380,
        gaps=lambda run, panels: {"most": str(most), **_drawn("scores")(run, panels)},
    )
    def draw(run: Run) -> Iterator[tuple[Panel, list[list[Cell]]]]:
        """Scores of at most {most} principal components along the positions. Colours end at the 99th percentile
        of each table.{drawn}"""
        tables = tables_of(run, "scores")
        short = most <= FEW_SCORES
        for model, (_, arrays) in tables.items():
            scores = arrays["scores"][:, :most].T
            maps = arrays["scores"][:, :FEW_SCORES]
            columns = thinned(scores.shape[1], 128 if len(tables) > schemes.FEW or not short else 256)
            extent = float(np.quantile(np.abs(scores), 0.99)) or 1.0
            components = range(1, len(scores) + 1)
            height = 74 + (len(scores) * 16 if short else max(180, min(3 * len(scores), 380)))
            ticks = {"tickvals": [1, *range(5, 15, 5)] if short else None, "nticks": 5, "dtick": None}
            look: dict[str, Any] = {
                "note": schemes.table_note(run, model),
                "height": height,
                "signed": True,
                "yaxis": ticks,
            }
            z = scores[:, columns]
            limits = (-extent, extent)
            axes = ("position", "component")
            panel = heatmap(
                z, columns, components, model, "component %{y}, position %{x}: %{z:.3g}", limits, axes, **look
            )
            empty = [Cell("")] * (FEW_SCORES - maps.shape[1])
            yield panel, [row(model, i, *maps[i], *empty) for i in thinned(len(maps), LISTED)]

    return draw


scores = _score_maps("table-scores", FEW_SCORES, _slow)
all_scores = _score_maps("table-scores-all", ALL_SCORES, lambda run, panels: "Scores of all components")


def rotating(run: Run, model: str) -> list[tuple[str, float, float, float]]:
    """Return the pairs of the drawn table that rotate, largest share first: ("1+2", turns, strength, share of
    variance)."""
    seed = run.drawn[model][0] if model in run.drawn else None
    turns, *others = (
        run.table.points(f"rotation.{what}", model, by=("index", "part"), seed=seed)
        for what in ("turns", "strength", "share")
    )
    pairs = [place for place in sorted(turns) if all(place in of for of in others)]
    return [(place[1], turns[place].value, *(of[place].value for of in others)) for place in pairs]


def rotations(run: Run) -> Figure | None:
    """Draw the planes of the pairs of components that rotate (LOWDIM figure 4, and other pairs); None where none
    does."""
    tables = tables_of(run, "scores")
    dense = len(tables) > schemes.FEW
    panels = []
    rows = []
    turning = {}
    for model, (_, arrays) in tables.items():
        pairs = rotating(run, model)
        scores = arrays["scores"]
        look: dict[str, Any] = {"alone": {*arrays.get("outliers", ())}, "height": 280 if dense else 430}
        for part, turns, _, share in pairs[: 1 if dense else PAIRS]:
            columns = [int(c) - 1 for c in part.split("+")]
            if max(columns) < scores.shape[1]:
                alt = f"Components {part} of {model} over the positions, {fixed(turns, 1)} turns."
                remark = f"{fixed(turns, 1)} turns, {percent(share)} of the variance"
                names = [f"component {c + 1}" for c in columns]
                panels.append(path(scores[:, columns], names, f"{model}, {part}", alt, remark, **look))
        for part, turns, *shares in pairs:
            rows.append(row(model, part, value(turns, fixed(turns, 2)), *(value(s, percent(s)) for s in shares)))
        if pairs:
            few = ", ".join(fixed(turns, 1) for _, turns, _, _ in pairs[:PAIRS])
            more = ", …" if len(pairs) > PAIRS else ""
            turning[model] = f"{count(len(pairs), 'pair')} ({few}{more} turns)"
    if not panels:
        return None
    words = (
        "Pairs of equal frequency, a quarter of a period apart, of whose motion one steady turn explains at least two "
        f"thirds, largest share of the variance first, at most {PAIRS} a table. Neighbouring half waves draw arcs too "
        f"and are not counted.{_drawn('scores')(run, panels)['drawn']}"
    )
    heads = ["Model", "Components", "Turns", "Explained by one turn", "Share of variance"]
    return Figure(
        "table-rotations",
        f"Pairs of components that turn together: {join_sentences(turning)}",
        words,
        panels,
        Table.of("rotations", "Every pair that rotates", heads, rows),
        width=230 if dense else 300,
        even=True,
        records=("rotation.*: part",),
    )


def _peaks(run: Run, lines: Sequence[Line]) -> str:
    peaks = {x.name: list(_of_drawn(run, "fft.peak", x.name).values())[:PEAKS] for x in lines}
    turns = {model: ", ".join(str(int(p.value)) for p in of) or "none" for model, of in peaks.items()}
    return f"Dominant frequencies, in turns over the table: {join_sentences(turns)}"


@Curves(
    "table-magnitudes",
    "Summed Fourier magnitudes",
    _peaks,
    metric=Metric(name="magnitude"),
    y=Axis("magnitude", "log", floor=1e-6),
    x=Axis("turns over the table", "log", word="turns"),
    records=("arrays/*.npz: magnitude_sum", "fft.peak: index"),
    width=330,
)
def magnitudes(run: Run) -> Iterator[Line]:
    """Fourier magnitudes of the scores, summed over all components, as a share of the largest; both axes are
    logarithmic, and half as many turns as positions is the highest frequency there is. In the title: peaks three times
    as high as the lows around."""
    for model, (_, arrays) in tables_of(run, "magnitude_sum").items():
        total = arrays["magnitude_sum"][1:]
        points = curve(total / (total.max() or 1.0), range(1, len(total) + 1))
        yield Line(points, model, panel=model, thick=1.8)


def _strongest(run: Run, panels: object) -> str:
    every = {model: arrays["magnitudes"] for model, (_, arrays) in tables_of(run, "magnitudes").items()}
    model = story(run, list(every))
    turns = " and ".join(map(str, every[model][:2, 1:].argmax(axis=1) + 1))
    return f"The first two components of `{model}` are largest at {turns} turns over the table"


@Maps(
    "table-component-magnitudes",
    "Fourier magnitudes of at least a tenth of the component's largest",
    _strongest,
    columns=("Model", "Component", "Turns", "Magnitude"),
    records=("arrays/*.npz: magnitudes",),
    gaps=_drawn("magnitudes"),
)
def component_magnitudes(run: Run) -> Iterator[tuple[Panel, list[list[Cell]]]]:
    """Fourier magnitude of each of the first ten components, as a share of the component's largest. Drawn up to one and
    a half times the highest frequency at which a component with a hundredth of the variance is largest.{drawn}"""
    hover = "component %{y}, %{x} turns: %{z:.2f}"
    axes = ("turns over the table", "component")
    for model, (_, arrays) in tables_of(run, "magnitudes").items():
        every = arrays["magnitudes"]
        most = every.max(axis=1, keepdims=True)
        highest = int(every[arrays["shares"][: len(every)] >= COUNTED].argmax(axis=1).max(initial=1))
        end = min(max(16, highest + highest // 2), every.shape[1] - 1, 256)
        z = every[:, 1 : end + 1] / np.where(most > 0, most, 1.0)
        note = schemes.table_note(run, model)
        height = 74 + 22 * len(z)
        look = {"tickvals": [k for k in (1, 4, 7, 10) if k <= len(z)]}
        turns = range(1, end + 1)
        components = range(1, len(z) + 1)
        panel = heatmap(z, turns, components, model, hover, (0.0, 1.0), axes, note=note, height=height, yaxis=look)
        yield panel, [row(model, int(c) + 1, int(k) + 1, every[c, k + 1]) for c, k in np.argwhere(z >= 0.1)]


def _depends(run: Run, rows: Sequence[Row]) -> str:
    """Which inner products depend on distance more than shuffled rows do, by the ends of the null's interval."""
    shares = {}
    for line in rows:
        point = line.points["the table"]
        null = line.points.get("shuffled")
        shares[line.name] = rounded(point)
        if null is not None:
            beyond = point.value > (null.value if null.high is None else null.high)
            shares[line.name] += f", shuffled {rounded(null)}{'' if beyond else ', no more than by chance'}"
    return f"Share of the inner products of positions that distance explains: {join_sentences(shares)}"


@Rows(
    "table-equivariance",
    "Translation equivariance",
    _depends,
    x=Axis("share explained", "share", (0, 1)),
    columns=("", "", "Model"),
    records=("equivariance, equivariance.null",),
)
def equivariance(run: Run) -> Iterator[Row]:
    """Share of the variance of the entries of E·Eᵀ that the nearest Toeplitz matrix explains. Grey: the same rows in 99
    random orders, the middle 95 of 100; it is not zero, for the diagonal stays the diagonal."""
    nulls = run.values("equivariance.null")
    for model, point in run.values("equivariance").items():
        yield Row(model, ({"shuffled": nulls[model]} if model in nulls else {}) | {"the table": point})


@Curves(
    "table-equivariance-first",
    "Equivariance by number of components",
    lambda run, lines: best(at(lines, 2), "Share that distance explains, from two components", write=rounded),
    y=Axis("share explained", "share", (0, 1)),
    x=Axis("first components", "log", word="components"),
    records=("equivariance.first: index",),
)
def first(run: Run) -> Iterator[Line]:
    """The same for the table rebuilt from its mean and its first components."""
    names = run.table.models("equivariance.first")
    styles = model_styles(names)
    for model in names:
        yield Line(run.table.points("equivariance.first", model, by="index"), model, mark=styles[model])


@Maps(
    "table-products",
    "Inner products of some pairs",
    lambda run, panels: "Inner products of positions from few components and from all",
    columns=("Model", "Position", "Position ", "Inner product"),
    records=("arrays/*.npz: products",),
    width=300,
    gaps=_drawn("products"),
)
def products(run: Run) -> Iterator[tuple[Panel | None, list[list[Cell]]]]:
    """Inner products of all pairs of position vectors, the table not centred, from its mean and the first components
    and from all. Colours end at the 1st and 99th percentile of the whole table's.{drawn}"""
    tables = tables_of(run, "products")
    for model, (_, arrays) in tables.items():
        pictures = arrays["products"]
        counts = [int(k) for k in arrays["products_of"]]
        places = arrays["rows"].astype(int).tolist()
        last = len(counts) - 1
        chosen = [0, last] if len(tables) <= schemes.FEW else [last]
        if len(tables) <= 2:
            chosen = list(range(len(counts)))
        step = 2 if len(tables) > 2 and len(places) > 48 else 1
        low, high = (float(v) for v in np.quantile(pictures[-1], [0.01, 0.99]))
        limits = (low, high if high > low else low + 1.0)
        axes = ("position", "position")
        at = places[::step]
        hover = "positions %{y} and %{x}: %{z:.3g}"
        for k in dict.fromkeys(chosen):
            title = f"{model}, {'all' if k == last else count(counts[k], 'component')}"
            z = pictures[k][::step, ::step]
            yield heatmap(z, at, at, title, hover, limits, axes, height=310, square=True), []
        some = range(0, len(places), max(1, len(places) // 16))
        yield None, [row(model, places[i], places[j], pictures[-1][i, j]) for i in some for j in some if j >= i]


def alone(run: Run, model: str) -> str:
    """Return a sentence on the outliers of the drawn table, the first six by name."""
    places = sorted(_of_drawn(run, "outlier", model))
    return ", ".join(map(str, places[:6])) + (f" and {len(places) - 6} more" if len(places) > 6 else "")


def entries(run: Run) -> list[dict[str, Any]]:
    """Return `tables` of spectra.json, an object for each table."""
    return [e for e in run.facts.get("tables") or [] if isinstance(e, dict)]


# Column of the table -> (metric, digits), of positions and words, and of positions alone.
_OF_ALL = {f"Top {k}": (f"pca.top{k}", 2) for k in (3, 5, 10)} | {"N50": ("n50.count", 0), "N50 %": ("n50", 1)}
_OF_POSITIONS = {"Equivariance": ("equivariance", 2), "Shuffled": ("equivariance.null", 2)}


def table(run: Run) -> Table:
    """Return LOWDIM Table 1, (a) and (b), with further columns of one number a table; means over training seeds."""
    rows = []
    first = {(str(e["name"]), str(e.get("kind"))): e for e in reversed(entries(run))}
    for model, kind in sorted(first, key=lambda of: (of[1] != "positions", run.models.index(of[0]))):
        entry = first[model, kind]
        words = kind == "words"
        sizes = (entry["rows"], entry["width"], min(entry["rows"], entry["width"]))
        cells = []
        for metric, digits in (_OF_ALL | _OF_POSITIONS).values():
            p = run.table.point(metric, model, part="words" if words else None)
            cells.append(value(p.value, fixed(p.value, digits)) if p else None)
        rows.append(row(model, kind, *sizes, *cells, "" if words else alone(run, model)))
    columns = ["Model", "Table", "Rows", "Width", "PCs", *_OF_ALL, *_OF_POSITIONS, "Stand alone"]
    return Table("tables", "Every table in one row, as in LOWDIM Table 1", columns, rows, frozenset(range(2, 12)))


def sentence(run: Run, model: str) -> str:
    """Return a few sentences on the results of a table."""
    point = run.table.point
    facts = []
    needed = point("n50.count", model)
    share = point("n50", model)
    if needed and share:
        components = count(round(needed.value), "component")
        facts.append(f"half of the variance in {components} ({percent(share.value / 100)} of them)")
    tops = "".join(f", {rounded(p)} in {k}" for k in (3, 10) if (p := point(f"pca.top{k}", model)))
    other = point("n50", model, part="words")
    words = f"; words need {percent(other.value / 100)} for half" if other else ""
    sentences = [f"`{model}`:" + "".join(f" {fact}" for fact in facts) + tops + words + "."]
    pairs = rotating(run, model)
    turns = ", ".join(fixed(turn, 1) for _, turn, _, _ in pairs[:4])
    turning = f"{count(len(pairs), 'pair')} of components turn{'s' if len(pairs) == 1 else ''}, {turns} times."
    sentences.append(turning if pairs else "No pair turns.")
    whole = point("equivariance", model)
    null = point("equivariance.null", model)
    if whole and null:
        explained = f"Distance explains {rounded(whole)} of the inner products"
        sentences.append(f"{explained}, {rounded(null)} with shuffled positions.")
    if name := alone(run, model):
        sentences.append(f"Standing alone: {name}.")
    return " ".join(sentences)


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "spectra.dimensions": (shares,),
    "spectra.path": (
        rotations,
        scores,
        all_scores,
    ),
    "spectra.waves": (
        magnitudes,
        component_magnitudes,
    ),
    "spectra.distance": (
        equivariance,
        first,
        products,
    ),
}
# Tables of each question.
TABLES = {"spectra.dimensions": (table,)}
