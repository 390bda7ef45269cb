"""Position tables on their own (LOWDIM figures 1 to 7): shares beside words, score maps, rotations, Fourier magnitudes,
E·Eᵀ."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count as numbered
from typing import Any

import numpy as np

from ...points import Point, curve
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, row, value
from ..forms.axes import Axis
from ..forms.curves import Curves, Line
from ..forms.maps import Maps, heatmap, thinned
from ..forms.marks import drawn
from ..forms.points import path
from ..forms.rows import Row, Rows
from ..numbers import count, fixed, percent
from ..run import Run
from ..style import model_styles
from ..titles import at, best, each, per_cent, rounded
from .shape import shares_of

LISTED = 64  # positions of a data table
FEW_SCORES, ALL_SCORES = 14, 128  # components of the two score maps (LOWDIM figures 2 and 7)
PAIRS = 4  # rotations that are drawn of a table
PEAKS = 4  # frequencies that a title names
COUNTED = 0.01  # share of the variance from which a component says how far the map of magnitudes goes
LOWEST = 1e-5  # share that an axis shows


def tables_of(run: Run, key: str) -> dict[str, tuple[int | None, dict[str, np.ndarray]]]:
    """Model -> (seed, arrays) of the tables that are drawn and have this array."""
    return {m: found for m, found in run.drawn.items() if key in found[1]}


def _seeds(run: Run, key: str) -> str:
    return drawn(run.seeds, [seed for seed, _ in tables_of(run, key).values()])


def _of_drawn(run: Run, metric: str, model: str) -> dict[Any, Point]:
    """Index -> value of the drawn table."""
    return run.table.points(metric, model, by="index", seed=run.drawn[model][0]) if model in run.drawn else {}


def _shares(run: Run) -> Iterator[Line]:
    for model, (seed, _) in tables_of(run, "shares").items():
        positions, words = shares_of(run, model), curve(run.words.get((model, seed)), numbered(1))
        yield Line(_visible(positions), model, "positions", "absolute", panel=model)
        yield Line(_visible(words), model, "words", "semantic", ("6px,4px", "circle"), panel=model)


def _visible(points: dict[int, Point]) -> dict[int, Point]:
    return {k: p for k, p in points.items() if p.value >= LOWEST}


def _halves(run: Run, lines: Sequence[Line]) -> str:
    points: dict[str, Point] = {}
    for part, name, record in (("positions", "`{}`", None), ("words", "the words of `{}`", "words")):
        halves = {x.name: run.table.point("n50", x.name, part=record) for x in lines if x.part == part}
        points |= {name.format(model): p * 0.01 for model, p in halves.items() if p}
    sentence = "Half of the variance lies in the smallest share of components of"
    return best(points, sentence, lowest=True, write=per_cent)


SHARES = Curves(
    "table-shares",
    "pca.share",
    _shares,
    _halves,
    "Share of the variance in each principal component, largest first, both axes logarithmic. Positions solid, words "
    "of the same model dashed",
    "Share of variance by component",
    Axis("share of variance", "log", floor=LOWEST),
    Axis("component", "log", word="component"),
    ("Model", "Table"),
    ("pca.share: index", "arrays/*.npz: shares"),
    260,
)


def _scores(run: Run, components: int) -> Iterator[Panel]:
    tables, short = tables_of(run, "scores"), components <= FEW_SCORES
    for model, (_, arrays) in tables.items():
        scores = arrays["scores"][:, :components].T
        columns = thinned(scores.shape[1], 128 if len(tables) > schemes.FEW or not short else 256)
        extent = float(np.quantile(np.abs(scores), 0.99)) or 1.0
        yield heatmap(
            scores[:, columns],
            columns,
            range(1, len(scores) + 1),
            model,
            "component %{y}, position %{x}: %{z:.3g}",
            (-extent, extent),
            ("position", "component"),
            note=schemes.table_note(run, model),
            height=74 + (len(scores) * 16 if short else max(180, min(3 * len(scores), 380))),
            signed=True,
            yaxis={"tickvals": [1, *range(5, 15, 5)] if short else None, "nticks": 5, "dtick": None},
        )


def _score_rows(run: Run) -> Iterator[list[Cell]]:
    for model, (_, arrays) in tables_of(run, "scores").items():
        scores = arrays["scores"][:, :FEW_SCORES]
        empty = [Cell("")] * (FEW_SCORES - scores.shape[1])
        yield from [row(model, i, *scores[i], *empty) for i in thinned(len(scores), LISTED)]


def _slow(run: Run) -> str:
    slow = {}
    for model in tables_of(run, "scores"):
        if turns := _of_drawn(run, "fft.turns", model):
            few = sum(p.value <= (p.n or 0) / 20 for p in turns.values())
            slow[model] = f"{few} of the first {len(turns)}"
    if not slow:
        return "Scores of the first components"
    return f"Components that vary slowly, at a tenth of the highest frequency or below: {each(slow)}"


def _score_maps(id: str, components: int, title: Callable[[Run], str]) -> Maps:
    return Maps(
        id,
        lambda run: _scores(run, components),
        title,
        lambda run: (
            f"Scores of at most {components} principal components along the positions. Colours end at the 99th "
            f"percentile of each table.{_seeds(run, 'scores')}"
        ),
        "Scores of the first components",
        ("Model", "Position", *(f"Component {k + 1}" for k in range(FEW_SCORES))),
        _score_rows,
        ("arrays/*.npz: scores",),
        380,
    )


SCORES = _score_maps("table-scores", FEW_SCORES, _slow)
ALL = _score_maps("table-scores-all", ALL_SCORES, lambda run: "Scores of all components")


def rotating(run: Run, model: str) -> list[tuple[str, float, float, float]]:
    """Pairs of the drawn table that rotate, largest share first: ("1+2", turns, strength, share of the variance)."""
    seed = run.drawn[model][0] if model in run.drawn else None
    turns, *others = (
        run.table.points(f"rotation.{what}", model, by=("index", "part"), seed=seed)
        for what in ("turns", "strength", "share")
    )
    pairs = [place for place in sorted(turns) if all(place in of for of in others)]
    return [(place[1], turns[place].value, *(of[place].value for of in others)) for place in pairs]


def rotations(run: Run) -> Figure | None:
    """The planes of the pairs of components that rotate (LOWDIM figure 4 and what it says of other pairs); None where
    none does."""
    tables = tables_of(run, "scores")
    dense = len(tables) > schemes.FEW
    panels, rows, turning = [], [], {}
    for model, (_, arrays) in tables.items():
        pairs, scores = rotating(run, model), arrays["scores"]
        alone, height = {*arrays.get("outliers", ())}, 280 if dense else 430
        for part, turns, _, share in pairs[: 1 if dense else PAIRS]:
            columns = [int(c) - 1 for c in part.split("+")]
            if max(columns) < scores.shape[1]:
                alt = f"Components {part} of {model} over the positions, {fixed(turns, 1)} turns."
                remark = f"{fixed(turns, 1)} turns, {percent(share)} of the variance"
                names = [f"component {c + 1}" for c in columns]
                panels.append(
                    path(scores[:, columns], names, f"{model}, {part}", alt, remark, alone=alone, height=height)
                )
        for part, turns, *shares in pairs:
            rows.append(row(model, part, value(turns, fixed(turns, 2)), *(value(s, percent(s)) for s in shares)))
        if pairs:
            first = ", ".join(fixed(turns, 1) for _, turns, _, _ in pairs[:PAIRS])
            turning[model] = f"{count(len(pairs), 'pair')} ({first}{', …' * (len(pairs) > PAIRS)} turns)"
    if not panels:
        return None
    subtitle = (
        "Pairs of equal frequency, a quarter of a period apart, of whose motion one steady turn explains at least two "
        f"thirds, largest share of the variance first, at most {PAIRS} a table. Neighbouring half waves draw arcs too "
        f"and are not counted.{_seeds(run, 'scores')}"
    )
    columns_ = ["Model", "Components", "Turns", "Explained by one turn", "Share of variance"]
    return Figure(
        "table-rotations",
        f"Pairs of components that turn together: {each(turning)}",
        subtitle,
        panels,
        Table.of("rotations", "Every pair that rotates", columns_, rows),
        width=230 if dense else 300,
        even=True,
        records=("rotation.*: part",),
    )


def _magnitudes(run: Run) -> Iterator[Line]:
    for model, (_, arrays) in tables_of(run, "magnitude_sum").items():
        total = arrays["magnitude_sum"][1:]
        points = curve(total / (total.max() or 1.0), range(1, len(total) + 1))
        yield Line(points, model, panel=model, thick=1.8)


def _peaks(run: Run, lines: Sequence[Line]) -> str:
    peaks = {x.name: list(_of_drawn(run, "fft.peak", x.name).values())[:PEAKS] for x in lines}
    named = {model: ", ".join(str(int(p.value)) for p in of) or "none" for model, of in peaks.items()}
    return f"Dominant frequencies, in turns over the table: {each(named)}"


MAGNITUDES = Curves(
    "table-magnitudes",
    "fft.sum",
    _magnitudes,
    _peaks,
    "Fourier magnitudes of the scores, summed over all components, as a share of the largest; both axes are "
    "logarithmic, and half as many turns as positions is the highest frequency there is. In the title: peaks three "
    "times as high as the lows around",
    "Summed Fourier magnitudes",
    Axis("magnitude", "log", floor=1e-6),
    Axis("turns over the table", "log", word="turns"),
    records=("arrays/*.npz: magnitude_sum", "fft.peak: index"),
    width=330,
)


def _component_magnitudes(run: Run) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(model, magnitudes, each against its own largest, up to one and a half times the highest frequency that
    counts)."""
    for model, (_, arrays) in tables_of(run, "magnitudes").items():
        every = arrays["magnitudes"]
        most = every.max(axis=1, keepdims=True)
        highest = int(every[arrays["shares"][: len(every)] >= COUNTED].argmax(axis=1).max(initial=1))
        end = min(max(16, highest + highest // 2), every.shape[1] - 1, 256)
        yield (model, every, every[:, 1 : end + 1] / np.where(most > 0, most, 1.0))


def _magnitude_maps(run: Run) -> Iterator[Panel]:
    hover, axes = "component %{y}, %{x} turns: %{z:.2f}", ("turns over the table", "component")
    for model, _, z in _component_magnitudes(run):
        turns, components = range(1, z.shape[1] + 1), range(1, len(z) + 1)
        ticks = [k for k in (1, 4, 7, 10) if k <= len(z)]
        note, height = schemes.table_note(run, model), 74 + 22 * len(z)
        look = {"tickvals": ticks}
        yield heatmap(z, turns, components, model, hover, (0.0, 1.0), axes, note=note, height=height, yaxis=look)


def _strongest(run: Run) -> str:
    every = {model: magnitudes[:5, 1:].argmax(axis=1) + 1 for model, magnitudes, _ in _component_magnitudes(run)}
    turns = {model: ", ".join(map(str, of)) for model, of in every.items()}
    return f"The first five components turn most strongly, in times: {each(turns)}"


COMPONENT_MAGNITUDES = Maps(
    "table-component-magnitudes",
    _magnitude_maps,
    _strongest,
    lambda run: (
        "Fourier magnitude of each of the first ten components, as a share of the component's largest. Drawn up to one "
        "and a half times the highest frequency at which a component with a hundredth of the variance is "
        f"largest.{_seeds(run, 'magnitudes')}"
    ),
    "Fourier magnitudes of at least a tenth of the component's largest",
    ("Model", "Component", "Turns", "Magnitude"),
    lambda run: [
        row(model, int(c) + 1, int(k) + 1, magnitudes[c, k + 1])
        for model, magnitudes, z in _component_magnitudes(run)
        for c, k in zip(*np.nonzero(z >= 0.1), strict=True)
    ],
    ("arrays/*.npz: magnitudes",),
)


def _equivariances(run: Run) -> Iterator[Row]:
    for model in run.models:
        point, null = (run.table.point(metric, model) for metric in ("equivariance", "equivariance.null"))
        if point:
            yield Row(model, ({"shuffled": null} if null else {}) | {"the table": point})


def _depends(run: Run, rows: Sequence[Row]) -> str:
    """Which inner products depend on distance more than shuffled rows do, by the ends of the null's interval."""
    shares = {each.name: rounded(each.points["the table"]) for each in rows}
    for each_ in rows:
        if (null := each_.points.get("shuffled")) is not None:
            beyond = each_.points["the table"].value > (null.value if null.high is None else null.high)
            shares[each_.name] += f", shuffled {rounded(null)}{'' if beyond else ', no more than by chance'}"
    return f"Share of the inner products of positions that distance explains: {each(shares)}"


EQUIVARIANCE = Rows(
    "table-equivariance",
    "equivariance",
    _equivariances,
    _depends,
    "Share of the variance of the entries of E·Eᵀ that the nearest Toeplitz matrix explains. Grey: the same rows in 99 "
    "random orders, the middle 95 of 100; it is not zero, for the diagonal stays the diagonal",
    "Translation equivariance",
    Axis("share explained", "share", (0, 1)),
    ("", "", "Model"),
    ("equivariance, equivariance.null",),
    330,
)


def _firsts(run: Run) -> Sequence[Line]:
    names = run.table.models("equivariance.first")
    styles = model_styles(names)
    return [
        Line(run.table.points("equivariance.first", m, by="index"), m, mark=styles[m]) for m in names if m in run.models
    ]


FIRST = Curves(
    "table-equivariance-first",
    "equivariance.first",
    _firsts,
    lambda run, lines: best(at(lines, 2), "From two components, distance explains most in", write=rounded),
    "The same for the table rebuilt from its mean and its first components",
    "Equivariance by number of components",
    Axis("share explained", "share", (0, 1)),
    Axis("first components", "log", word="components"),
    records=("equivariance.first: index",),
)


def _products(run: Run) -> list[Panel]:
    tables, maps = tables_of(run, "products"), []
    for model, (_, arrays) in tables.items():
        pictures, counts = arrays["products"], [int(k) for k in arrays["products_of"]]
        rows = arrays["rows"].astype(int).tolist()
        last = len(counts) - 1
        chosen = range(len(counts)) if len(tables) <= 2 else [0, last] if len(tables) <= schemes.FEW else [last]
        step = 2 if len(tables) > 2 and len(rows) > 48 else 1
        low, high = (float(v) for v in np.quantile(pictures[-1], [0.01, 0.99]))
        limits, axes = (low, high if high > low else low + 1.0), ("position", "position")
        places, hover = rows[::step], "positions %{y} and %{x}: %{z:.3g}"
        for k in dict.fromkeys(chosen):
            title = f"{model}, {'all' if k == last else count(counts[k], 'component')}"
            z = pictures[k][::step, ::step]
            maps.append(heatmap(z, places, places, title, hover, limits, axes, height=310, square=True))
    return maps


def _product_rows(run: Run) -> Iterator[list[Cell]]:
    for model, (_, arrays) in tables_of(run, "products").items():
        places, whole = arrays["rows"].astype(int).tolist(), arrays["products"][-1]
        some = range(0, len(places), max(1, len(places) // 16))
        yield from [row(model, places[i], places[j], whole[i, j]) for i in some for j in some if j >= i]


PRODUCTS = Maps(
    "table-products",
    _products,
    lambda run: "Inner products of positions from few components and from all",
    lambda run: (
        "Inner products of all pairs of position vectors, the table not centred, from its mean and the first "
        "components and from all. Colours end at the 1st and 99th percentile of the whole table's."
        + _seeds(run, "products")
    ),
    "Inner products of some pairs",
    ("Model", "Position", "Position ", "Inner product"),
    _product_rows,
    ("arrays/*.npz: products",),
    300,
)


def alone(run: Run, model: str) -> str:
    """Outliers of the drawn table, the first six by name."""
    places = sorted(_of_drawn(run, "outlier", model))
    return ", ".join(map(str, places[:6])) + (f" and {len(places) - 6} more" if len(places) > 6 else "")


def entries(run: Run) -> list[dict[str, Any]]:
    """`tables` of spectra.json, one a table."""
    return [e for e in run.facts.get("tables") or [] if isinstance(e, dict)]


# Column of the table -> (metric, digits), of positions and words, and of positions alone.
_OF_ALL = {
    "Top 3": ("pca.top3", 2),
    "Top 5": ("pca.top5", 2),
    "Top 10": ("pca.top10", 2),
    "N50": ("n50.count", 0),
    "N50 %": ("n50", 1),
}
_OF_POSITIONS = {"Equivariance": ("equivariance", 2), "Shuffled": ("equivariance.null", 2)}


def table(run: Run) -> Table:
    """LOWDIM Table 1, (a) and (b), with what else is one number a table; means over training seeds."""
    rows = []
    first = {(str(e["name"]), str(e.get("kind"))): e for e in reversed(entries(run))}
    for model, kind in sorted(first, key=lambda of: (of[1] != "positions", run.models.index(of[0]))):
        entry, words = first[model, kind], kind == "words"
        sizes = (entry["rows"], entry["width"], min(entry["rows"], entry["width"]))
        cells = []
        for metric, digits in (_OF_ALL | _OF_POSITIONS).values():
            p = run.table.point(metric, model, part="words" if words else None)
            cells.append(value(p.value, fixed(p.value, digits)) if p else None)
        rows.append(row(model, kind, *sizes, *cells, "" if words else alone(run, model)))
    columns = ["Model", "Table", "Rows", "Width", "PCs", *_OF_ALL, *_OF_POSITIONS, "Stand alone"]
    return Table("tables", "Every table in one row, as in LOWDIM Table 1", columns, rows, frozenset(range(2, 12)))


def sentence(run: Run, model: str) -> str:
    """What came out of a table, in a few sentences."""
    point = run.table.point
    facts = []
    needed, share = point("n50.count", model), point("n50", model)
    if needed and share:
        components = count(round(needed.value), "component")
        facts.append(f"half of the variance in {components} ({percent(share.value / 100)} of them)")
    tops = "".join(f", {rounded(p)} in {k}" for k in (3, 10) if (p := point(f"pca.top{k}", model)))
    other = point("n50", model, part="words")
    words = f"; words need {percent(other.value / 100)} for half" if other else ""
    sentences = [f"`{model}`:" + "".join(f" {fact}" for fact in facts) + tops + words + "."]
    pairs = rotating(run, model)
    turns = ", ".join(fixed(turn, 1) for _, turn, _, _ in pairs[:4])
    turning = f"{count(len(pairs), 'pair')} of components turn{'s' * (len(pairs) == 1)}, {turns} times."
    sentences.append(turning if pairs else "No pair turns.")
    whole, null = point("equivariance", model), point("equivariance.null", model)
    if whole and null:
        explained = f"Distance explains {rounded(whole)} of the inner products"
        sentences.append(f"{explained}, {rounded(null)} with shuffled positions.")
    if named := alone(run, model):
        sentences.append(f"Standing alone: {named}.")
    return " ".join(sentences)
