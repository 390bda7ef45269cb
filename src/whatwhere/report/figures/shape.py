"""What shape position takes: the position tables, their spectra and waves, how flat states are, stress behind M."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ...papers import DSTG_TABLES
from ...points import Point
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, count_cell, of_array, text
from ..forms.axes import SMALLEST, Axis
from ..forms.curves import ASIDE, BEFORE, LEVEL, OURS, PAPER, Curves, Line, in_families, of_models
from ..forms.marks import drawn
from ..forms.points import named_every, path
from ..numbers import percent
from ..run import CORPUS, Run
from ..titles import best, claimed, digits, finding, judged, story
from .where import LAYER

COMPONENTS = 16  # of a spectrum that are drawn
DASHES = ("solid", "6px,4px", "2px,3px")
# DSTG section 4 (1); for its `ap` it says "under 0.2 %", which is a bound and no value to draw.
TOP2 = {model: v for (metric, model, _), v in DSTG_TABLES.items() if metric == "pca.top2"}
LOW4 = {"dstg": (DSTG_TABLES["dct.low4", "dstg", 0], DSTG_TABLES["dct.low4", "dstg", 1])}
# DSTG section 4 (2): the first two components of the position stream retain "about 90 %" of the variance, layer by
# layer; its figure omits the last layer, which no gradient reaches.
FLATNESS = {("hidden.top2", "dstg", "position", layer): 0.9 for layer in range(1, 6)}
# GEOM figure 8, pretrained BERT-base on SST-2, raw stress as its caption has it; layers 4 to 11 lie between 1,100 and
# 1,900.
PROJECTED_PAPER, PROJECTED_DEPTH = {3: 5000.0, 12: 2500.0}, 12
CORRECTED = ".corrected"
# Which rows of a table over the steps of a training are drawn: those of the corpus's positions, else those that texts
# reach, else all.
ROWS = ("corpus", "used", None)
STEPS = {
    ("separation", None): "smallest distance of two positions",
    ("separation.quantile", 50): "distances of all pairs: median, band 5 to 95\u202f%",
    ("violations", None): "triples out of order",
    ("stress.optimal", None): "stress at the best scale",
    ("n50", None): "components for half the variance, per cent",
    ("change", None): "change since the first checkpoint, over its size",
}


def _per_cent(point: Point) -> str:
    return percent(point.value)


def _note(run: Run, model: str) -> str:
    return model if not (words := schemes.table_note(run, model)) else f"{model} ({words})"


def _waves(run: Run) -> Sequence[Line]:
    lines = []
    for model, (_, arrays) in run.drawn.items():
        if (scores := arrays.get("scores")) is not None and scores.ndim == 2:
            for i in range(min(3, scores.shape[1])):
                points = {k: Point.between(float(v)) for k, v in enumerate(scores[:, i])}
                lines.append(
                    Line(points, model, str(i + 1), "absolute", (DASHES[i], "circle"), panel=f"{model}, along the text")
                )
    return lines


_ALONG = Curves(
    "table-waves",
    "pca.share",
    _waves,
    lambda run, lines: "",
    "",
    "",
    Axis("position", word="position"),
    Axis("score"),
    ("Model", "Component"),
)


def table_map(run: Run) -> Figure | None:
    """Every position table on its first two components, positions joined in order; below, its components along
    positions."""
    tables = {
        m: (s, a)
        for m, (s, a) in run.drawn.items()
        if "scores" in a and a["scores"].ndim == 2 and a["scores"].shape[1] >= 2
    }
    if not tables:
        return None
    dense = len(tables) > schemes.FEW
    panels, rows = [], []
    for model, (seed, arrays) in tables.items():
        scores, alone = arrays["scores"], {int(i) for i in arrays.get("outliers", ())}
        shares = [run.table.point("pca.share", model, index=i) for i in (0, 1)]
        names = [f"component {i + 1}" + (f" ({percent(p.value)})" if p else "") for i, p in enumerate(shares)]
        every = named_every(len(scores)) * (2 if dense else 1)
        traces, plot = path(
            scores, list(range(len(scores))), names, every=every, alone=alone, height=280 if dense else 430
        )
        words = f"Map of {len(scores)} positions of {model}, joined in order."
        panels.append(Panel(traces, plot, model, words, schemes.table_note(run, model)))
        rows += [
            [text(model), count_cell(seed), count_cell(i), *map(of_array, row[:3]), *[Cell("")] * (3 - len(row[:3]))]
            for i, row in enumerate(scores)
        ]
    top2 = {m: p for m in tables if (p := run.table.point("pca.top2", m))}
    title = claimed(run, "dstg-2d-collapse", what="share of two components")
    if title is None and top2:
        told = best(
            {f"`{m}`'s": p for m, p in top2.items()}, "Two components hold most of the variance of", write=_per_cent
        )
        title = judged(run, [story(run, list(top2))], told)
    rings = any(len(a.get("outliers", ())) for _, a in tables.values())
    subtitle = (
        "The position table of each model on its first two principal components; one point a position, joined in "
        f"order, later positions darker{', those that stand alone ringed' if rings else ''}. Below, components 1 "
        "(solid), 2 (dashed) and 3 (dotted) along the positions." + drawn(run.seeds, [s for s, _ in tables.values()])
    )
    columns = ["Model", "Seed", "Position", "Component 1", "Component 2", "Component 3"]
    table = Table("map", "Scores of every position", columns, rows, frozenset(range(1, 6)))
    along = _ALONG.draw(run)
    panels += along.panels if along else []
    title = title or "The position tables, first two principal components"
    return Figure(
        "table-map",
        title,
        subtitle,
        panels,
        table,
        width=230 if dense else 420,
        even=dense,
        records=("arrays/*.npz", "pca.top2"),
    )


def shares_of(run: Run, model: str) -> dict[int, Point]:
    """Component from 1 -> share of variance: all of them from the arrays, else those recorded."""
    every = [a["shares"] for (m, _), a in run.tables.items() if m == model and "shares" in a]
    if every and all(k.shape == every[0].shape and k.ndim == 1 for k in every):
        return {i + 1: Point.of(of_seeds[:, None]) for i, of_seeds in enumerate(np.array(every).T)}
    return {i + 1: p for i, p in run.table.points("pca.share", model, by="index").items()}


def _spectrum(run: Run) -> Sequence[Line]:
    lines = []
    for model in run.models:
        shares = shares_of(run, model)
        sums = dict(zip(shares, accumulate(shares.values()), strict=True))
        mark = schemes.marks(run)[model]
        lines.append(Line({k: p for k, p in sums.items() if k <= COMPONENTS}, model, mark=mark))
        lines.append(Line(shares, model, "share of this component alone", kind=ASIDE))
        lines.append(Line({k: p for k, p in sums.items() if k > COMPONENTS}, model, kind=ASIDE))
        if (printed := TOP2.get(schemes.preset(run, model))) is not None and shares:
            lines.append(Line({2: Point.between(printed)}, model, mark=mark, kind=PAPER))
    return (
        in_families(run, lines)
        if len([each for each in lines if each.kind == OURS and each.points]) > schemes.FEW
        else lines
    )


SPECTRUM = Curves(
    "table-spectrum",
    "pca.share",
    _spectrum,
    lambda run, lines: (
        claimed(run, "ap-table-high-dimensional", "lowdim-few-dimensions")
        or best(
            {f"`{each.name}`": p for each in lines if (p := each.points.get(2))},
            "Two components hold most of the table of",
            write=_per_cent,
        )
    ),
    "Cumulative share of the variance of each position table by its first components. A table with few columns fills "
    "its space with few components. Hollow: the paper's share of two components (48 columns in `dstg`, 720 in `ap`)",
    "Cumulative share of the variance by number of components",
    Axis("number of components", "log", word="components"),
    Axis("share of variance", "share", (0, 1)),
    ("Model", ""),
    ("pca.share: index, step", "arrays/*.npz"),
    280,
)


def _frequencies(run: Run) -> Sequence[Line]:
    lines = []
    for model, (_, arrays) in run.drawn.items():
        if (power := arrays.get("dct_power")) is None or power.ndim != 2 or power.shape[1] < 2:
            continue
        for i, row in enumerate(np.cumsum(power[:3], axis=1)):
            points = {k + 1: Point.between(float(v)) for k, v in enumerate(row)}
            lines.append(Line(points, model, f"component {i + 1}", mark=(DASHES[i], "circle"), panel=_note(run, model)))
            if i < len(printed := LOW4.get(schemes.preset(run, model), ())):
                lines.append(replace(lines[-1], points={4: Point.between(printed[i])}, kind=PAPER))
    return lines


FREQUENCIES = Curves(
    "table-frequencies",
    "dct.low4",
    _frequencies,
    lambda run, lines: (
        claimed(run, "dstg-low-frequency", what="power in the four lowest frequencies")
        or best(
            {f"`{m}`'s": p for m in run.models if (p := run.table.point("dct.low4", m, index=0))},
            "The first component is the slowest wave in",
            write=lambda p: f"{percent(p.value)} of its power in the four lowest frequencies",
        )
    ),
    "Cumulative power of the type-II cosine transform of components 1 to 3 over positions, lowest frequencies first",
    "Cumulative power by number of lowest frequencies",
    Axis("number of lowest frequencies", "log", word="frequencies"),
    Axis("power", "share", (0, 1)),
    ("Model", "Component"),
    ("arrays/*.npz", "dct.low4: index"),
    330,
)

FLAT = Curves(
    "hidden-flat",
    "hidden.top2",
    lambda run: in_families(run, of_models(run, "hidden.top2", paper=FLATNESS)),
    finding(
        "dstg-hidden-two-dimensional", sentence="Two components hold most at the end in", what="share", write=_per_cent
    ),
    "Share of the variance within a document that the first two principal components of its states hold, mean over "
    "documents. Hollow and unjoined: the paper’s “about 90 %” of its position stream, at the same relative depth",
    "Share of the first two components by layer",
    LAYER,
    Axis("", "share", (0, 1)),
    width=250,
)


def _projected(run: Run) -> Sequence[Line]:
    """Stress of the sinusoidal table in grey and of the model's own in colour, at the best scale and raw, corrected
    where it is."""
    ending = CORRECTED if any(m.startswith("projected.") and m.endswith(CORRECTED) for m in run.table.metrics) else ""
    lines = []
    for axis, scale in (("optimal", "Best scale"), ("raw", "Raw")):
        for part, words, colour in (("sinusoidal", "sinusoidal", "combined"), ("own", "own table", "absolute")):
            for model in run.models:
                metric, mark = f"projected.stress.{axis}{ending}", schemes.marks(run)[model]
                panel = f"{scale}, {words}" if schemes.many(run) else scale
                for step in (None, 0):
                    curve = run.curve(metric, model, part, step)
                    if part == "own" and set(curve) == {
                        0,
                        1,
                    }:  # one matrix reads it for all blocks (TUPE): measured once
                        curve |= {layer: curve[1] for layer in range(2, run.depth(model) + 1)}
                    if step is None or not schemes.many(run):
                        kind = OURS if step is None else BEFORE
                        lines.append(Line(curve, model, words, colour, mark, kind, panel, axis))
                if axis == "raw" and part == "sinusoidal" and run.depth(model) == PROJECTED_DEPTH and curve:
                    printed = {k: Point.between(v) for k, v in PROJECTED_PAPER.items()}
                    lines.append(Line(printed, model, words, colour, mark, PAPER, panel, axis))
    return lines


PROJECTED = Curves(
    "projected",
    "projected.stress.optimal",
    _projected,
    lambda run, lines: (
        claimed(run, "geom-layer-peak-optimal", "geom-layer-peak")
        or best(
            {f"`{each.name}` ({each.part})": each.end for each in lines if each.axis == lines[0].axis},
            "Behind M of the last layer, stress is lowest in",
            lowest=True,
        )
    ),
    "Stress of a position table multiplied by M = W_Qᵀ W_K of each layer, against the Hellinger distances of the "
    "corpus; layer 0 is the table itself. Raw stress grows with the size of M, which is arbitrary; at the best scale "
    "only the shape counts. Norms, biases and earlier blocks are left out. GEOM figure 8, raw, pretrained BERT-base "
    "(12 layers) on SST-2: about 5,000 in layer 3, 1,100 to 1,900 in layers 4 to 11, 2,500 in layer 12",
    "Stress behind M by layer; layer 0 is the table itself",
    replace(LAYER, title="layer (0: the table itself)"),
    {"optimal": Axis("stress at the best scale", include=(0,)), "raw": Axis("raw stress", "log", floor=SMALLEST)},
    ("Model", "Table"),
    ("projected.stress.*: layer, part = sinusoidal or own",),
    400,
)


def _over_steps(run: Run) -> Sequence[Line]:
    lines = []
    for (metric, index), words in STEPS.items():
        for model in run.models:
            part = next((p for p in ROWS if run.table.points(metric, model, by="step", part=p, index=index)), None)
            where = {"part": part, "index": index}
            points = run.table.points(metric, model, by="step", **where)
            mark = schemes.marks(run)[model]
            if metric == "separation.quantile":
                ends = [run.table.points(metric, model, by="step", part=part, index=q) for q in (5, 95)]
                points = {
                    step: Point.between(p.value, ends[0][step].value, ends[1][step].value)
                    for step, p in points.items()
                    if step in ends[0] and step in ends[1]
                }
            if len(points) > 1 and model != CORPUS:
                lines.append(Line(points, model, mark=mark, panel=words[0].upper() + words[1:], axis=metric))
        if metric == "violations":
            lines.append(Line({0: Point.between(0.5)}, "chance", kind=LEVEL, panel="Triples out of order", axis=metric))
    return lines


SEPARATION = Curves(
    "table-steps",
    "separation",
    _over_steps,
    lambda run, lines: (
        claimed(run, "geom-separation-flat", "geom-separation-positive")
        or "Smallest distance of two positions, first to last step: "
        + "; ".join(
            f"`{each.name}` {digits(each.points[min(each.points)])} → {digits(each.end)}"
            for each in lines
            if each.axis == lines[0].axis
        )
    ),
    "The position table of each model at its kept checkpoints. Steps on a logarithmic axis from 0. Distances are "
    "Euclidean, between the rows that the corpus's positions name, else those that training texts reach, else all. "
    "GEOM, BERT-base on SST-2: smallest distance 0.70 from scratch and 0.35 pretrained, flat; triples out of order "
    "48.2\u202f% and 25.4\u202f%",
    "Position tables over training",
    Axis("step", "steps", word="step"),
    {metric: Axis("", "share" if metric in ("violations", "change") else "linear", (0,)) for metric, _ in STEPS},
    ("Model", ""),
    tuple(f"{metric}: step, part" for metric, _ in STEPS),
    300,
)


def figures(run: Run) -> list[Figure]:
    """Tables, their spectra and frequencies, flatness of states, stress behind M, and tables over training."""
    forms = (SPECTRUM, FREQUENCIES, FLAT, PROJECTED, SEPARATION)
    return [f for f in (table_map(run), *(each.draw(run) for each in forms)) if f]
