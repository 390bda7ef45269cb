"""Position tables on their own (LOWDIM figures 1 to 7): shares beside words, score maps, rotations, Fourier magnitudes,
E·Eᵀ."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...points import Point
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, count_cell, of_array, text, value
from ..forms.axes import Axis
from ..forms.curves import Curves, Line
from ..forms.maps import Map, Maps, thinned
from ..forms.marks import drawn
from ..forms.points import named_every, path
from ..forms.rows import Row, Rows
from ..numbers import count, fixed, percent
from ..run import Run
from ..style import model_styles
from ..titles import best, each
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


def _shares(run: Run) -> Sequence[Line]:
    lines = []
    for model, (seed, _) in tables_of(run, "shares").items():
        points = {k: p for k, p in shares_of(run, model).items() if p.value >= LOWEST}
        lines.append(Line(points, model, "positions", "absolute", panel=model))
        if (found := run.words.get((model, seed))) is not None:
            words = {k + 1: Point.between(float(v)) for k, v in enumerate(found) if v >= LOWEST}
            lines.append(Line(words, model, "words", "semantic", ("6px,4px", "circle"), panel=model))
    return lines


def _halves(run: Run, lines: Sequence[Line]) -> str:
    points = {f"`{x.name}`": p for x in lines if x.part == "positions" and (p := run.table.point("n50", x.name))}
    words = {
        f"the words of `{x.name}`": p
        for x in lines
        if x.part == "words" and (p := run.table.point("n50", x.name, part="words"))
    }
    return best(
        points | words,
        "Half of the variance lies in the smallest share of components of",
        lowest=True,
        write=_of_hundred,
    )


def _of_hundred(point: Point) -> str:
    return percent(point.value / 100)


SHARES = Curves(
    "table-shares",
    "pca.share",
    _shares,
    _halves,
    "Share of the variance in each principal component, largest first, both axes logarithmic. Positions solid, words "
    "of the same model dashed",
    "Share of variance by component",
    Axis("component", "log", word="component"),
    Axis("share of variance", "log", floor=LOWEST),
    ("Model", "Table"),
    ("pca.share: index", "arrays/*.npz: shares"),
    260,
)


def _scores(run: Run, components: int) -> list[Map]:
    maps = []
    tables, short = tables_of(run, "scores"), components <= FEW_SCORES
    for model, (_, arrays) in tables.items():
        scores = arrays["scores"][:, :components].T
        at = thinned(scores.shape[1], 128 if len(tables) > schemes.FEW or not short else 256)
        extent = float(np.quantile(np.abs(scores), 0.99)) or 1.0
        height = 74 + (len(scores) * 16 if short else max(180, min(3 * len(scores), 380)))
        more = {"yaxis": {"tickvals": [1, *range(5, 15, 5)] if short else None, "nticks": 5, "dtick": None}}
        hover, axes, rows = (
            "component %{y}, position %{x}: %{z:.3g}",
            ("position", "component"),
            list(range(1, len(scores) + 1)),
        )
        note = schemes.table_note(run, model)
        maps.append(Map(scores[:, at], at, rows, hover, (-extent, extent), axes, model, note, height, True, more=more))
    return maps


def _score_maps(id: str, components: int, sentence: str) -> Maps:
    def rows(run: Run) -> list[list[Cell]]:
        found = []
        for model, (_, arrays) in tables_of(run, "scores").items():
            scores = arrays["scores"][:, :FEW_SCORES]
            for i in thinned(len(scores), LISTED):
                found.append(
                    [
                        text(model),
                        count_cell(i),
                        *map(of_array, scores[i]),
                        *[Cell("")] * (FEW_SCORES - scores.shape[1]),
                    ]
                )
        return found

    def title(run: Run) -> str:
        said = {}
        for model in tables_of(run, "scores"):
            if turns := _of_drawn(run, "fft.turns", model):
                slow = sum(p.value <= (p.n or 0) / 20 for p in turns.values())
                said[model] = f"{slow} of the first {len(turns)}"
        return (
            f"Components that vary slowly, at a tenth of the highest frequency or below: {each(said)}"
            if said and not sentence
            else (sentence or "Scores of the first components")
        )

    what = (
        f"Scores of at most {components} principal components along the positions. Colours end at the 99th percentile "
        "of each table."
    )
    return Maps(
        id,
        lambda run: _scores(run, components),
        title,
        lambda run: what + _seeds(run, "scores"),
        "Scores of the first components",
        lambda run: ["Model", "Position", *(f"Component {k + 1}" for k in range(FEW_SCORES))],
        rows,
        ("arrays/*.npz: scores",),
        380,
    )


SCORES = _score_maps("table-scores", FEW_SCORES, "")
ALL = _score_maps("table-scores-all", ALL_SCORES, "Scores of all components")


def rotating(run: Run, model: str) -> list[tuple[str, float, float, float]]:
    """Pairs of the drawn table that rotate, largest share first: ("1+2", turns, strength, share of the variance)."""
    seed = run.drawn[model][0] if model in run.drawn else None
    known = [
        run.table.points(f"rotation.{what}", model, by=("index", "part"), seed=seed)
        for what in ("turns", "strength", "share")
    ]
    return [
        (at[1], *(found[at].value for found in known)) for at in sorted(known[0]) if all(at in found for found in known)
    ]


def rotations(run: Run) -> Figure | None:
    """The planes of the pairs of components that rotate (LOWDIM figure 4 and what it says of other pairs); None where
    none does."""
    tables = tables_of(run, "scores")
    dense = len(tables) > schemes.FEW
    panels, rows, said = [], [], {}
    for model, (_, arrays) in tables.items():
        pairs = rotating(run, model)
        for part, turns, _, share in pairs[: 1 if dense else PAIRS]:
            columns = [int(c) - 1 for c in part.split("+")]
            if max(columns) >= arrays["scores"].shape[1]:
                continue
            scores = arrays["scores"][:, columns]
            alone = {int(i) for i in arrays.get("outliers", ())}
            every, names = named_every(len(scores)) * (2 if dense else 1), [f"component {c + 1}" for c in columns]
            traces, plot = path(
                scores, list(range(len(scores))), names, every=every, alone=alone, height=280 if dense else 430
            )
            words = f"Components {part} of {model} over the positions, {fixed(turns, 1)} turns."
            panels.append(
                Panel(
                    traces,
                    plot,
                    f"{model}, {part}",
                    words,
                    f"{fixed(turns, 1)} turns, {percent(share)} of the variance",
                )
            )
        rows += [
            [text(model), text(p), value(t, fixed(t, 2)), value(s, percent(s)), value(v, percent(v))]
            for p, t, s, v in pairs
        ]
        if pairs:
            listed = ", ".join(fixed(t, 1) for _, t, _, _ in pairs[:PAIRS]) + (", …" if len(pairs) > PAIRS else "")
            said[model] = f"{count(len(pairs), 'pair')} ({listed} turns)"
    if not panels:
        return None
    subtitle = (
        "Pairs of equal frequency, a quarter of a period apart, of whose motion one steady turn explains at least two "
        f"thirds, largest share of the variance first, at most {PAIRS} a table. Neighbouring half waves draw arcs too "
        "and are not counted." + _seeds(run, "scores")
    )
    columns_ = ["Model", "Components", "Turns", "Explained by one turn", "Share of variance"]
    table = Table("rotations", "Every pair that rotates", columns_, rows, frozenset({2, 3, 4}))
    title = f"Pairs of components that turn together: {each(said)}"
    return Figure(
        "table-rotations",
        title,
        subtitle,
        panels,
        table,
        width=230 if dense else 300,
        even=True,
        records=("rotation.*: part",),
    )


def _magnitudes(run: Run) -> Sequence[Line]:
    lines = []
    for model, (_, arrays) in tables_of(run, "magnitude_sum").items():
        total = arrays["magnitude_sum"][1:]
        top = float(total.max()) or 1.0
        points = {k + 1: Point.between(float(v) / top) for k, v in enumerate(total)}
        lines.append(Line(points, model, panel=model, thick=1.8))
    return lines


def _peaks(run: Run, lines: Sequence[Line]) -> str:
    said = {
        x.name: ", ".join(str(int(p.value)) for p in list(_of_drawn(run, "fft.peak", x.name).values())[:PEAKS])
        or "none"
        for x in lines
    }
    return f"Dominant frequencies, in turns over the table: {each(said)}"


MAGNITUDES = Curves(
    "table-magnitudes",
    "fft.sum",
    _magnitudes,
    _peaks,
    "Fourier magnitudes of the scores, summed over all components, as a share of the largest; both axes are "
    "logarithmic, and half as many turns as positions is the highest frequency there is. In the title: peaks three "
    "times as high as the lows around",
    "Summed Fourier magnitudes",
    Axis("turns over the table", "log", word="turns"),
    Axis("magnitude", "log", floor=1e-6),
    ("Model", ""),
    ("arrays/*.npz: magnitude_sum", "fft.peak: index"),
    330,
)


def _component_magnitudes(run: Run) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(model, magnitudes, each against its own largest, up to one and a half times the highest frequency that
    counts)."""
    found = []
    for model, (_, arrays) in tables_of(run, "magnitudes").items():
        all_ = arrays["magnitudes"]
        most = all_.max(axis=1, keepdims=True)
        highest = int(all_[arrays["shares"][: len(all_)] >= COUNTED].argmax(axis=1).max(initial=1))
        end = min(max(16, highest + highest // 2), all_.shape[1] - 1, 256)
        found.append((model, all_, all_[:, 1 : end + 1] / np.where(most > 0, most, 1.0)))
    return found


def _magnitude_maps(run: Run) -> list[Map]:
    hover, axes = "component %{y}, %{x} turns: %{z:.2f}", ("turns over the table", "component")
    return [
        Map(
            z,
            list(range(1, z.shape[1] + 1)),
            list(range(1, len(z) + 1)),
            hover,
            (0.0, 1.0),
            axes,
            model,
            schemes.table_note(run, model),
            74 + 22 * len(z),
            more={"yaxis": {"tickvals": [k for k in (1, 4, 7, 10) if k <= len(z)]}},
        )
        for model, _, z in _component_magnitudes(run)
    ]


COMPONENT_MAGNITUDES = Maps(
    "table-component-magnitudes",
    _magnitude_maps,
    lambda run: (
        "The first five components turn most strongly, in times: "
        + each(
            {
                m: ", ".join(str(int(v)) for v in found[:, 1:].argmax(axis=1)[:5] + 1)
                for m, found, _ in _component_magnitudes(run)
            }
        )
    ),
    lambda run: (
        "Fourier magnitude of each of the first ten components, as a share of the component's largest. Drawn up to one "
        "and a half times the highest frequency at which a component with a hundredth of the variance is largest."
        + _seeds(run, "magnitudes")
    ),
    "Fourier magnitudes of at least a tenth of the component's largest",
    lambda run: ["Model", "Component", "Turns", "Magnitude"],
    lambda run: [
        [text(model), count_cell(c + 1), count_cell(k + 1), of_array(float(found[c, k + 1]))]
        for model, found, z in _component_magnitudes(run)
        for c, k in zip(*np.nonzero(z >= 0.1), strict=True)
    ],
    ("arrays/*.npz: magnitudes",),
)


def _equivariances(run: Run) -> Sequence[Row]:
    rows = []
    for model in run.models:
        point, null = (run.table.point(metric, model) for metric in ("equivariance", "equivariance.null"))
        if point:
            rows.append(Row(model, ({"shuffled": null} if null else {}) | {"the table": point}))
    return rows


def _depends(run: Run, rows: Sequence[Row]) -> str:
    """Which inner products depend on distance more than shuffled rows do, by the ends of the null's interval."""
    said = {}
    for row in rows:
        null = row.points.get("shuffled")
        if (p := row.value) is not None:
            beyond = null is not None and p.value > (null.value if null.high is None else null.high)
            rest = f", shuffled {percent(null.value, 0)}" if null else ""
            said[row.name] = (
                f"{percent(p.value, 0)}{rest}{'' if beyond or null is None else ', no more than by chance'}"
            )
    return f"Share of the inner products of positions that distance explains: {each(said)}"


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
    lambda run, lines: best(
        {f"`{x.name}`": x.points[2] for x in lines if 2 in x.points},
        "From two components, distance explains most in",
        write=_share,
    ),
    "The same for the table rebuilt from its mean and its first components",
    "Equivariance by number of components",
    Axis("first components", "log", word="components"),
    Axis("share explained", "share", (0, 1)),
    ("Model", ""),
    ("equivariance.first: index",),
)


def _share(point: Point) -> str:
    return percent(point.value, 0)


def _products(run: Run) -> list[Map]:
    tables, maps = tables_of(run, "products"), []
    for model, (_, arrays) in tables.items():
        pictures, counts = arrays["products"], [int(k) for k in arrays["products_of"]]
        at = arrays["rows"].astype(int)
        last = len(counts) - 1
        chosen = range(len(counts)) if len(tables) <= 2 else [0, last] if len(tables) <= schemes.FEW else [last]
        step = 2 if len(tables) > 2 and len(at) > 48 else 1
        low, high = (float(v) for v in np.quantile(pictures[-1], [0.01, 0.99]))
        kept = [int(i) for i in at[::step]]
        for k in dict.fromkeys(chosen):
            of = "all" if k == last else count(counts[k], "component")
            limits, hover = (low, high if high > low else low + 1.0), "positions %{y} and %{x}: %{z:.3g}"
            z = pictures[k][::step, ::step]
            maps.append(
                Map(z, kept, kept, hover, limits, ("position", "position"), f"{model}, {of}", "", 310, square=True)
            )
    return maps


def _product_rows(run: Run) -> list[list[Cell]]:
    rows = []
    for model, (_, arrays) in tables_of(run, "products").items():
        at = arrays["rows"].astype(int)
        places = range(0, len(at), max(1, len(at) // 16))
        rows += [
            [text(model), count_cell(int(at[i])), count_cell(int(at[j])), of_array(float(arrays["products"][-1][i, j]))]
            for i in places
            for j in places
            if j >= i
        ]
    return rows


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
    lambda run: ["Model", "Position", "Position ", "Inner product"],
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


def table(run: Run) -> Table:
    """LOWDIM Table 1, (a) and (b), with what else is one number a table; means over training seeds."""
    rows: list[list[Cell]] = []
    metrics: Mapping[str, int] = {"pca.top3": 2, "pca.top5": 2, "pca.top10": 2, "n50.count": 0, "n50": 1}
    first = {(str(e["name"]), e.get("kind")): e for e in reversed(entries(run))}
    for (model, kind), entry in sorted(
        first.items(), key=lambda item: (item[0][1] != "positions", run.models.index(item[0][0]))
    ):
        sizes = (entry["rows"], entry["width"], min(entry["rows"], entry["width"]))
        part = "words" if kind == "words" else None
        points = [(run.table.point(metric, model, part=part), digits) for metric, digits in metrics.items()]
        points += [
            (None if part else run.table.point(metric, model), 2) for metric in ("equivariance", "equivariance.null")
        ]
        cells = [value(p.value, fixed(p.value, digits)) if p else Cell("–") for p, digits in points]
        rows.append(
            [text(model), text(str(kind)), *map(count_cell, sizes), *cells, text("" if part else alone(run, model))]
        )
    columns = [
        "Model",
        "Table",
        "Rows",
        "Width",
        "PCs",
        "Top 3",
        "Top 5",
        "Top 10",
        "N50",
        "N50 %",
        "Equivariance",
        "Shuffled",
        "Stand alone",
    ]
    return Table("tables", "Every table in one row, as in LOWDIM Table 1", columns, rows, frozenset(range(2, 12)))


def sentence(run: Run, model: str) -> str:
    """What came out of a table, in a few sentences."""
    point = run.table.point
    needed, share = point("n50.count", model), point("n50", model)
    words = [f"`{model}`:"]
    if needed and share:
        words.append(
            f"half of the variance in {count(round(needed.value), 'component')} ({percent(share.value / 100)} of them)"
        )
    words[-1] += "".join(f", {percent(p.value, 0)} in {k}" for k in (3, 10) if (p := point(f"pca.top{k}", model)))
    if other := point("n50", model, part="words"):
        words[-1] += f"; words need {percent(other.value / 100)} for half"
    words[-1] += "."
    pairs = rotating(run, model)
    turns = ", ".join(fixed(turn, 1) for _, turn, _, _ in pairs[:4])
    words.append(
        f"{count(len(pairs), 'pair')} of components turn{'s' * (len(pairs) == 1)}, {turns} times."
        if pairs
        else "No pair turns."
    )
    whole, null = point("equivariance", model), point("equivariance.null", model)
    if whole and null:
        words.append(
            f"Distance explains {percent(whole.value, 0)} of the inner products, {percent(null.value, 0)} with "
            "shuffled positions."
        )
    if named := alone(run, model):
        words.append(f"Standing alone: {named}.")
    return " ".join(words)
