"""What shape position takes: the position tables, their spectra and waves, how flat states are, stress behind M."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...claims import UNTESTABLE
from ...papers import DSTG_TABLES
from ...records.gates import unplaced
from ...records.metric import UNIT, Metric
from ...records.table import ANY, Point, curve, running_sums
from .. import schemes
from ..figure import Cell, Figure, Table, row
from ..forms.axes import LAYER, SMALLEST, Axis
from ..forms.curves import (
    ASIDE,
    BEFORE,
    EVERYWHERE,
    LEVEL,
    OURS,
    PAPER,
    REFERENCE,
    Curves,
    Line,
    in_families,
    line_of,
    of_models,
)
from ..forms.dots import path
from ..forms.form import drawn
from ..loaded_run import CORPUS, Run
from ..numbers import percent
from ..titles import best, claimed, coded, digits, finding, mark, per_cent, share, story, two_numbers

QUANTILES = (5, 95)  # per cent, of the distances of all pairs, drawn beside their median
COMPONENTS = 16  # of a spectrum that are drawn
DASHES = ("solid", "6px,4px", "2px,3px")
# DSTG section 4 (1); for its `ap` it says "under 0.2 %", which is a bound and no value to draw.
TOP2 = {model: v for (metric, model, _), v in DSTG_TABLES.items() if metric == "pca.top2"}
LOW4 = {"dstg": (DSTG_TABLES["dct.low4", "dstg", 0], DSTG_TABLES["dct.low4", "dstg", 1])}
# GEOM figure 8, pretrained BERT-base on SST-2, raw stress as its caption has it; layers 4 to 11 lie between 1,100 and
# 1,900.
PROJECTED_PAPER = {3: 5000.0, 12: 2500.0}
PROJECTED_DEPTH = 12
CORRECTED = ".corrected"
# Which rows of a table over the steps of a training are drawn: the corpus's positions, else the rows that texts
# reach, else all.
ROWS = ("corpus", "used", None)
STEPS = {
    ("separation", None): "smallest distance of two positions",
    ("h1", None): "smallest distance of two mean words (H1)",
    ("separation.quantile", 50): "distances of all pairs: median; dotted: 5\u202f% and 95\u202f%",
    ("violations", None): "triples out of order",
    ("stress.optimal", None): "stress at the best scale",
    ("n50", None): "components for half the variance, per cent",
    ("change", None): "change since the first checkpoint, over its size",
}


@Curves("table-waves", "", lambda run, lines: "", metric="pca.share", y=Axis("score"), x=Axis("position"))
def _waves(run: Run) -> Iterator[Line]:
    """Components 1 to 3 along the positions."""
    for model, (_, arrays) in run.drawn.items():
        if "scores" in arrays:
            for i, (column, dash) in enumerate(zip(arrays["scores"].T, DASHES, strict=False), 1):
                yield Line(curve(column), model, str(i), mark=(dash, "circle"), panel=f"{model}, along the text")


def _two_components(run: Run, models: Sequence[str]) -> str:
    """Return the share of two components of the tables, `dstg`'s first, each beside the shape of its table and what
    white noise of that shape has."""
    shares = {m: p for m in models if (p := run.table.point("pca.top2", m)) is not None}
    ranked = _told_first(run, shares)
    written = {}
    for model in ranked[:2]:
        noise_holds = schemes.two_components_of_noise(run, model, shares[model].n)
        chance = ""
        if noise_holds:
            white = f"white noise of that shape: {share(Point.between(noise_holds))}"
            chance = f" ({schemes.shape_of_table(run, model)}; {white})"
        written[f"`{model}`"] = f"{share(shares[model])}{chance}"
    return two_numbers("Share of two components of the table", written, *_doubts(run, ranked))


def _halves(run: Run, models: Sequence[str]) -> str:
    """Return which share of a table's components holds half of its variance, `dstg`'s first."""
    halves = {m: p for m in models if (p := run.table.point("n50", m)) is not None}
    ranked = _told_first(run, halves)
    written = {f"`{m}`": percent(halves[m].value / 100) for m in ranked[:2]}
    return two_numbers("Share of components that hold half of the variance", written, *_doubts(run, ranked))


def _told_first(run: Run, models: Collection[str]) -> list[str]:
    """Return `dstg` first, those that have learned too little last."""
    return sorted(models, key=lambda m: (m != run.named("dstg"), m in run.weak_models))


def _doubts(run: Run, ranked: Sequence[str]) -> list[str]:
    """Return the mark of the first model: its claim is not testable, or it may still move."""
    if not ranked:
        return []
    collapse = next((c for c in run.claims if c.get("id") == "dstg-2d-collapse"), {})
    if ranked[0] == run.named("dstg") and collapse.get("verdict") == UNTESTABLE:
        return ["not testable"]
    return [doubt for doubt in [mark(run, ranked[0])] if doubt]


def table_map(run: Run) -> Figure | None:
    """Draw every position table on its first two components, positions joined in order; below, its components along
    positions."""
    tables = {
        m: drawing for m, drawing in run.drawn.items() if "scores" in drawing[1] and drawing[1]["scores"].shape[1] >= 2
    }
    if not tables:
        return None
    dense = len(tables) > schemes.FEW
    panels = []
    rows = []
    for model, (seed, arrays) in tables.items():
        scores = arrays["scores"]
        of_drawn = ANY if seed is None else seed
        shares = [run.table.point("pca.share", model, index=i, seed=of_drawn) for i in (0, 1)]
        names = [f"component {i + 1}" + (f" ({percent(p.value)})" if p else "") for i, p in enumerate(shares)]
        alt = f"Map of {len(scores)} positions of {model}, joined in order."
        alone = {*arrays.get("outliers", ())}
        remark = schemes.table_note(run, model)
        panels.append(path(scores, names, model, alt, remark, alone=alone, height=280 if dense else 430))
        empty = [Cell("")] * (3 - len(scores[0, :3]))
        rows += [row(model, seed, i, *at[:3], *empty) for i, at in enumerate(scores)]
    title = "Tables on two principal components, of runs that differ" if run.apart else None
    title = title or claimed(run, "dstg-2d-collapse", what="share of two components")
    if title is None and any(m in tables for m in run.values("pca.top2")):
        title = _two_components(run, list(tables))
    rings = any(len(arrays.get("outliers", ())) for _, arrays in tables.values())
    subtitle = (
        "The position table of each model on its first two principal components; one point a position, joined in "
        f"order, later positions stronger in colour{', those that stand alone ringed' if rings else ''}. Below, "
        "components 1 (solid), 2 (dashed) and 3 (dotted) along the positions."
    )
    columns = ["Model", "Seed", "Position", "Component 1", "Component 2", "Component 3"]
    along = _waves(run)
    return Figure(
        "table-map",
        title or "The position tables, first two principal components",
        subtitle + drawn(run.trainings[1], [seed for seed, _ in tables.values()]),
        panels + (along.panels if along else []),
        Table.of("map", "Scores of every position", columns, rows),
        width=230 if dense else 420,
        even=dense,
        records=("arrays/*.npz", "pca.top2"),
    )


def shares_of(run: Run, model: str) -> dict[int, Point]:
    """Return component from 1 -> share of variance: all of them from the arrays, else the recorded ones."""
    every = [a["shares"] for (m, _), a in run.tables.items() if m == model and "shares" in a]
    if every and all(k.shape == every[0].shape and k.ndim == 1 for k in every):
        return {i + 1: Point.of(of_seeds[:, None], span=UNIT) for i, of_seeds in enumerate(np.array(every).T)}
    return {i + 1: p for i, p in run.table.points("pca.share", model, by="index").items()}


def _cumulative(run: Run, lines: Sequence[Line]) -> str:
    """Return the title of the spectra; with `dstg` of its table, which its section tells of first."""
    names = list(dict.fromkeys(line.name for line in lines))
    title = claimed(run, "ap-table-high-dimensional", what="share of two components")
    title = title or claimed(run, "lowdim-few-dimensions", what="components of half of it")
    if title is None or run.named("dstg") in names:
        return _halves(run, names)
    return title


_NOISE = " Dashed: the part of it that is white noise, spread evenly over all columns."


@Curves(
    "table-spectrum",
    "Cumulative share of the variance by number of components",
    _cumulative,
    y=Axis("share of variance", "share", (0, 1)),
    x=Axis("number of components", "log", word="components"),
    columns=("Model", ""),
    records=("pca.share: index, step", "table.floor", "arrays/*.npz"),
    gaps=lambda run, lines: {"floor": _NOISE if run.table.rows("table.floor", step=None) else ""},
)
def spectrum(run: Run) -> Sequence[Line]:
    """Cumulative share of the variance of each position table by its first components. A table with few columns fills
    its space with few components.{floor} Hollow: the paper's share of two components (48 columns in `dstg`, 720 in
    `ap`)."""
    lines = []
    for model in run.models:
        shares = shares_of(run, model)
        sums = running_sums(shares)
        lines.append(line_of(run, {k: p for k, p in sums.items() if k <= COMPONENTS}, model))
        lines.append(Line(shares, model, "share of this component alone", kind=ASIDE))
        lines.append(Line({k: p for k, p in sums.items() if k > COMPONENTS}, model, kind=ASIDE))
        if (reference := run.beside.table.point("pca.top2", model)) is not None and shares:
            lines.append(line_of(run, {2: reference}, model, kind=REFERENCE))
        if (printed := TOP2.get(schemes.preset(run, model))) is not None and shares:
            lines.append(line_of(run, {2: Point.between(printed)}, model, kind=PAPER))
        if floor := white_floor(run, model, len(shares)):
            lines.append(line_of(run, floor, model, kind=LEVEL))
    several = sum(line.kind == OURS and bool(line.points) for line in lines) > schemes.FEW
    arranged = in_families(run, lines) if several else lines
    return [replace(line, name=f"noise in {line.name}") if line.kind == LEVEL else line for line in arranged]


def white_floor(run: Run, model: str, components: int) -> dict[int, Point]:
    """Return number of components -> share of a table's variance that white noise in them holds."""
    floor = run.table.point("table.floor", model)
    if floor is None:
        return {}
    return {k: floor * (k / components) for k in range(1, min(components, COMPONENTS) + 1)}


def _slowest(run: Run, lines: Sequence[Line]) -> str:
    what = "power in the four lowest frequencies"
    seeds = {m: seed for m, (seed, _) in run.drawn.items()}
    of_drawn = {
        m: run.table.point("dct.low4", m, index=0, seed=ANY if seed is None else seed) for m, seed in seeds.items()
    }
    values = {m: p for m, p in of_drawn.items() if p is not None}
    title = best(coded(values), f"First component, {what}", write=per_cent, mark=mark(run, *values))
    return claimed(run, "dstg-low-frequency", what=what) or title


@Curves(
    "table-frequencies",
    "Cumulative power by number of lowest frequencies",
    _slowest,
    y=Axis("power", "share", (0, 1)),
    x=Axis("number of lowest frequencies", "log", word="frequencies"),
    metric=Metric(name="cumulative power"),
    columns=("Model", "Component"),
    records=("arrays/*.npz", "dct.low4: index"),
    width=330,
    gaps=lambda run, lines: {"drawn": drawn(run.trainings[1], [run.drawn[line.name][0] for line in lines])},
)
def frequencies(run: Run) -> Iterator[Line]:
    """Cumulative power of the type-II cosine transform of components 1 to 3 over positions, lowest frequencies
    first.{drawn}"""
    for model, (_, arrays) in run.drawn.items():
        if (power := arrays.get("dct_power")) is None or power.shape[1] < 2:
            continue
        printed = LOW4.get(schemes.preset(run, model), ())
        note = schemes.table_note(run, model)
        for i, of in enumerate(power[:3]):
            points = running_sums(curve(of, range(1, len(of) + 1)))
            mark = (DASHES[i], "circle")
            line = Line(points, model, f"component {i + 1}", mark=mark, panel=f"{model} ({note})" if note else model)
            yield line
            if (reference := run.beside.table.point("dct.low4", model, index=i)) is not None:
                yield replace(line, points={4: reference}, kind=REFERENCE)
            if i < len(printed):
                yield replace(line, points={4: Point.between(printed[i])}, kind=PAPER)


@Curves(
    "hidden-flat",
    "Share of the first two components by layer",
    finding(
        "dstg-hidden-two-dimensional",
        caption="Share of two components in the last trained layer",
        what="share",
        write=per_cent,
    ),
    y=Axis("", "share", (0, 1)),
    records=("hidden.top2: part, layer",),
    width=250,
)
def flat(run: Run) -> list[Line]:
    """Share of the variance within a document that the first two principal components of its states hold, mean over
    documents. Hollow and unjoined: the paper’s “about 90 %” of its position stream, at the same relative depth."""
    return in_families(run, of_models(run, "hidden.top2"))


@Curves(
    "projected",
    "Stress behind M by layer; layer 0 is the table itself",
    lambda run, lines: (
        claimed(run, "geom-layer-peak-optimal", "geom-layer-peak")
        or best(
            {f"`{curve.name}` ({curve.part})": curve.end for curve in lines if curve.axis == lines[0].axis},
            "Stress behind M of the last layer",
            lowest=True,
        )
    ),
    metric="projected.stress.optimal",
    y={"optimal": Axis("stress at the best scale", include=(0,)), "raw": Axis("raw stress", "log", floor=SMALLEST)},
    x=replace(LAYER, title="layer (0: the table itself)", word="layer"),
    columns=("Model", "Table"),
    records=("projected.stress.*: layer, part = sinusoidal or own",),
    width=400,
)
def projected(run: Run) -> Iterator[Line]:
    """Stress of a position table multiplied by M = W_Qᵀ W_K of each layer, against the Hellinger distances of the
    corpus; layer 0 is the table itself. Raw stress grows with the size of M, which is arbitrary; at the best scale only
    the shape counts. Norms, biases and earlier blocks are left out. GEOM figure 8, raw, pretrained BERT-base (12
    layers) on SST-2: about 5,000 in layer 3, 1,100 to 1,900 in layers 4 to 11, 2,500 in layer 12."""
    many = schemes.many(run)
    ending = CORRECTED if any(m.startswith("projected.") and m.endswith(CORRECTED) for m in run.table.metrics) else ""
    for axis, scale in (("optimal", "Best scale"), ("raw", "Raw")):
        for part, words in (("sinusoidal", "sinusoidal"), ("own", "own table")):
            for model in run.models:
                colour = schemes.colour(run, model) if part == "own" else "combined"
                metric = f"projected.stress.{axis}{ending}"
                panel = f"{scale}, {words}" if many else scale
                line = Line({}, model, words, colour, schemes.marks(run)[model], panel=panel, axis=axis)
                curves = {kind: run.curve(metric, model, part, step) for kind, step in ((OURS, None), (BEFORE, 0))}
                for kind, points in curves.items():
                    if part == "own" and set(points) == {0, 1}:  # one matrix for all blocks (TUPE) is measured once
                        points |= {layer: points[1] for layer in range(2, run.depth(model) + 1)}
                    if kind == OURS or not many:
                        yield replace(line, points=points, kind=kind)
                if axis == "raw" and part == "sinusoidal" and run.depth(model) == PROJECTED_DEPTH and curves[OURS]:
                    printed = {k: Point.between(v) for k, v in PROJECTED_PAPER.items()}
                    yield replace(line, points=printed, kind=PAPER)


@Curves(
    "hidden-stress",
    "Stress of the mean states of positions by layer",
    finding("geom-states-peak", caption="Stress of mean states in the last trained layer", what="ratio", lowest=True),
    y=Axis("stress at the best scale", include=(0,)),
    records=("hidden.stress: part, layer", "hidden.stress.level"),
    width=250,
)
def centres(run: Run) -> list[Line]:
    """Stress of the mean states of positions, after every layer, against the Hellinger distances of the corpus, at the
    best scale."""
    if unplaced(run.table) is not None or not (lines := of_models(run, "hidden.stress", before=True)):
        return []
    levels = list(run.values("hidden.stress.level").values())
    if len({p.value for p in levels}) != 1:  # not of one corpus
        return in_families(run, lines)
    level = Line({0: levels[0]}, "all equally far", kind=LEVEL, panel=EVERYWHERE)
    return [*in_families(run, lines), level]


def _by_step(run: Run, metric: str, model: str, index: int | None) -> dict[int, Point]:
    """Step -> value of the first of `ROWS` that were measured."""
    curves = (run.table.points(metric, model, by="step", part=part, index=index) for part in ROWS)
    return next(filter(None, curves), {})


def _separated(run: Run, lines: Sequence[Line]) -> str:
    if verdict := claimed(run, "geom-separation-flat"):
        return verdict
    ends = {line.name: (line.points[min(line.points)], line.end) for line in lines if line.axis == lines[0].axis}
    model = story(run, list(ends))
    first, last = ends[model]
    return f"Smallest distance of two positions in `{model}`, first to last step: {digits(first)} → {digits(last)}"


@Curves(
    "table-steps",
    "Position tables over training",
    _separated,
    y={metric: Axis("", "share" if metric in ("violations", "change") else "linear", (0,)) for metric, _ in STEPS},
    x=Axis("step", "steps"),
    records=tuple(f"{metric}: step, part" for metric, _ in STEPS),
    width=300,
)
def separation(run: Run) -> Iterator[Line]:
    """The position table of each model at its kept checkpoints. Steps on a logarithmic axis from 0. Distances are
    Euclidean, between the rows that the corpus's positions name, else those that training texts reach, else all. GEOM,
    BERT-base on SST-2: smallest distance 0.70 from scratch and 0.35 pretrained, flat; triples out of order 48.2\u202f%
    and 25.4\u202f%."""
    for (metric, index), words in STEPS.items():
        for model in (m for m in run.models if m != CORPUS):
            points = _by_step(run, metric, model, index)
            line = line_of(run, points, model, panel=words[0].upper() + words[1:], axis=metric)
            if len(points) > 1:
                yield line
            if metric == "separation.quantile" and len(points) > 1:
                dotted = ("2px,3px", line.mark[1])
                for percentile in QUANTILES:
                    points = _by_step(run, metric, model, percentile)
                    yield replace(line, points=points, part=f"{percentile}\u202f%", mark=dotted, thick=1.2)
        if metric == "violations":
            yield Line({0: Point.between(0.5)}, "chance", kind=LEVEL, panel="Triples out of order", axis=metric)


# What few ask: frequencies, flatness of states, stress of states and behind M, tables over training.


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.shape": (
        table_map,
        spectrum,
    ),
    "spectra.dimensions": (spectrum,),
    "spectra.path": (table_map,),
    "spectra.waves": (frequencies,),
}
# Figures that few ask for, folded.
MORE = {
    "study.shape": (
        frequencies,
        flat,
        centres,
        projected,
        separation,
    )
}
