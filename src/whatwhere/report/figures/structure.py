"""Whether states know structure: sentences apart and together, and streams read from other models."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...points import Point
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, Trace, count_cell, of_array, text
from ..forms.axes import Axis
from ..forms.curves import ASIDE, LEVEL, Curves, Line, in_families, of_models
from ..forms.maps import rounded
from ..forms.marks import beside, drawn, line
from ..numbers import count
from ..run import Run
from ..style import axis, layout, sequential
from ..titles import best, claimed, finding, judged
from .where import LAYER, R2

MOST_MODELS = 2  # whose documents are drawn
NAMES = 6  # sentences named in a panel


def maps(run: Run) -> list[Figure]:
    """The first document's states by layer: of position streams, or of all of hidden where no model has one."""
    held = {m: found for m in run.models if (found := run.held("hidden", m))[1]}
    part = "position" if any("scores.position" in a for _, a in held.values()) else "all"
    models = [m for m, (_, a) in held.items() if _usable(a, part)]
    models.sort(key=lambda m: m != run.named("dstg"))
    return [_map(run, m, part, *held[m], i) for i, m in enumerate(models[:MOST_MODELS])]


def _usable(held: dict[str, np.ndarray], part: str) -> bool:
    scores, segments = held.get(f"scores.{part}"), held.get("segments")
    return (
        scores is not None and segments is not None and scores.ndim == 4 and segments.ndim == 2 and scores.shape[0] > 0
    )


def _map(run: Run, model: str, part: str, seed: int | None, held: dict[str, np.ndarray], number: int) -> Figure:
    scores, segments = held[f"scores.{part}"][0], held["segments"][0]  # (L + 1, n, 2), (n,)
    last = run.trained_until(model, part)
    panels, rows = [], []
    for layer in range(len(scores)):
        note = "no gradient reaches it" if layer > last else "embedding" if layer == 0 else ""
        panels.append(_cloud(scores[layer], segments, f"Layer {layer}", note, layer > last, f"{model}, layer {layer}"))
        rows += [
            [
                text(model),
                count_cell(seed),
                count_cell(layer),
                count_cell(i),
                Cell("special") if s < 0 else count_cell(int(s)),
            ]
            + [of_array(float(x)), of_array(float(y))]
            for i, (s, (x, y)) in enumerate(zip(segments, scores[layer], strict=True))
            if math.isfinite(x) and math.isfinite(y)
        ]
    subtitle = (
        f"{'Position stream' if part == 'position' else 'All of hidden'} of `{model}` for one held-out document of "
        f"{count(len({int(s) for s in segments if s >= 0}), 'segment')} (sentences or lines) and {len(segments)} "
        "tokens, on the first two principal components of each layer: one point a token, joined inside a segment, "
        "coloured by the order of the segments, some of them numbered; special tokens as crosses."
        + drawn(run.seeds, [seed])
    )
    suffix = f"-{number + 1}" if number else ""
    columns = ["Model", "Seed", "Layer", "Token", "Segment", "Component 1", "Component 2"]
    table = Table(
        f"hidden-map{suffix}",
        "Tokens of the document on two components, by layer",
        columns,
        rows,
        frozenset(range(1, 7)),
    )
    title = (
        number == 0 and claimed(run, "dstg-sentences-separate")
    ) or f"One document in the states of `{model}`, layer by layer"
    records = ("arrays/hidden-*.npz", "sentences.separation: layer, part")
    return Figure(
        f"hidden-map{suffix}", judged(run, [model], title), subtitle, panels, table, [], 300, True, records=records
    )


def _cloud(points: np.ndarray, segments: np.ndarray, title: str, note: str, hollow: bool, alt: str) -> Panel:
    """One layer: a token a point, coloured by its segment's order."""
    known = [int(s) for s in dict.fromkeys(segments.tolist()) if s >= 0]
    rank = {s: i for i, s in enumerate(known)}
    finite = np.isfinite(points).all(axis=1)
    inside = [i for i, s in enumerate(segments) if s >= 0 and finite[i]]
    special = [i for i, s in enumerate(segments) if s < 0 and finite[i]]
    x, y = (rounded(column) for column in np.nan_to_num(points).T)
    ways: tuple[list[float | None], list[float | None]] = ([], [])
    for a, b in zip([None, *inside], inside, strict=False):
        if a is not None and segments[a] != segments[b]:
            ways[0].append(None)
            ways[1].append(None)
        ways[0].append(x[b])
        ways[1].append(y[b])
    marker = {
        "size": 6 if hollow else 5,
        "opacity": 0.95,
        "symbol": "circle-open" if hollow else "circle",
        "color": [rank[int(segments[i])] for i in inside],
        "cmin": 0,
        "cmax": max(1, len(known) - 1),
        "colorscale": sequential(2),
        "line": {"width": 1.2 if hollow else 0},
    }
    dots: Trace = {"type": "scatter", "mode": "markers", "hoverinfo": "text"}
    traces: list[Trace] = [
        line(*ways, "muted", width=0.7, opacity=0.35),
        dots
        | {"x": [x[i] for i in inside], "y": [y[i] for i in inside], "marker": marker}
        | {"hovertext": [f"token {i}, segment {int(segments[i]) + 1}" for i in inside]},
    ]
    if special:
        cross = {"size": 7, "symbol": "x-thin", "color": "@muted", "line": {"width": 1.4, "color": "@muted"}}
        place = {"x": [x[i] for i in special], "y": [y[i] for i in special], "marker": cross}
        traces.append(dots | place | {"hovertext": [f"token {i}, special" for i in special]})
    notes = []
    middle = [float(np.median([column[i] for i in inside] or [0.0])) for column in (x, y)]
    for s in known[:: -(-len(known) // NAMES) or 1]:
        if members := [i for i in inside if segments[i] == s]:
            at = [float(np.median([column[i] for i in members])) for column in (x, y)]
            notes.append(beside(at[0], at[1], str(s + 1), (at[0] - middle[0], at[1] - middle[1])))
    ends = []
    for values in (x, y):
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.14 * ((high - low) or 1.0)
        ends.append([low - room, high + room])
    bare = {
        "nticks": 4,
        "showticklabels": False,
        "zeroline": True,
        "zerolinecolor": "@grid",
        "showgrid": False,
        "constrain": "domain",
    }
    across, up = axis("", range=ends[0], **bare), axis("", range=ends[1], scaleanchor="x", **bare)
    ground = layout(230, across, up, {"l": 6, "r": 6, "t": 4, "b": 6}, annotations=notes)
    return Panel(traces, ground, title, f"{alt}: {len(inside)} tokens in {len(known)} segments.", note)


def _sentences(run: Run) -> Sequence[Line]:
    """Of the model told of, separation beside random cuts; of all models, the excess of the one over the other."""
    excess = of_models(run, "sentences.excess")
    told = (
        run.named("dstg")
        if any(each.name == run.named("dstg") for each in excess)
        else next((each.name for each in excess), None)
    )
    lines = []
    for each in of_models(run, "sentences.separation", models=[told] if told else []):
        panel = f"{each.name}, {each.part}"
        lines.append(replace(each, panel=panel, axis="ratio"))
        null = run.curve("sentences.null", each.name, each.part)
        lines.append(Line(null, "random cuts", each.part, kind=LEVEL, panel=panel, axis="ratio"))
    for each in of_models(run, "sentences.separation", models=[m for m in run.models if m != told]):
        null = run.curve("sentences.null", each.name, each.part)
        lines += [
            replace(each, axis="ratio", kind=ASIDE),
            replace(each, points=null, part=f"{each.part}, random cuts", axis="ratio", kind=ASIDE),
        ]
    for each in in_families(run, excess):
        panel = f"Excess: {each.panel[0].lower()}{each.panel[1:]}"
        zero = Line({0: Point.between(0.0)}, "random cuts", kind=LEVEL, panel=panel)
        lines += [replace(each, panel=panel), *([zero] if panel not in {other.panel for other in lines} else [])]
    return lines


SENTENCES = Curves(
    "sentences",
    "sentences.excess",
    _sentences,
    lambda run, lines: (
        claimed(run, "dstg-sentences-beyond-contiguity", what="log ratio")
        or finding(sentence="Beyond random cuts, sentences are at the end furthest apart in")(
            run, [e for e in lines if not e.axis]
        )
    ),
    "Variance of the states between sentences ÷ that within, and the same for cuts into equally long pieces in random "
    "order (dashed). Excess: mean over documents of the logarithm of the one over the other, 0 where sentences are no "
    "further apart than random contiguous pieces",
    "How far apart sentences are, beside random cuts, by layer",
    LAYER,
    {"ratio": Axis("between ÷ within", include=(0,)), "": Axis("log ratio", include=(0,))},
    records=tuple(f"sentences.{what}: layer, part" for what in ("separation", "null", "excess")),
    width=250,
)


def _onto(run: Run, reference: str) -> Sequence[Line]:
    """R² of each stream of a model from the states of every other, a panel a stream; where models are many, a
    family."""
    lines = []
    for stream in ("position", "semantic"):
        metric, panel = f"regression.{stream}", f"Onto the {stream} stream"
        colour = schemes.colour(run, reference, stream)
        floor: dict[float, Point] = {}
        found = []
        for model in run.models:
            if model == reference or not (points := run.curve(metric, model, reference)):
                continue
            depth, own = run.depth(reference), run.depth(model)
            until = run.trained_until(reference, stream)
            still = frozenset(layer for layer in points if round(layer * depth / own) > until)
            found.append(Line(points, model, stream, colour, schemes.marks(run)[model], panel=panel, hollow=still))
            for ending, name in ((".chance", "shuffled targets"), (".place", "same place in another document")):
                lines.append(
                    Line(
                        run.curve(metric + ending, model, reference),
                        model,
                        f"{stream}, {name}",
                        kind=ASIDE,
                        panel=panel,
                    )
                )
            for layer, p in run.curve(f"{metric}.chance", model, reference).items():
                floor[layer] = max(floor.get(layer, p), p, key=lambda point: point.value)
        if schemes.many(run):
            families = {e.name: e.panel.lower() for e in in_families(run, [replace(e, part="") for e in found])}
            found = [replace(e, panel=f"{panel}: {families[e.name]}") for e in found]
        lines += found
        lines += [
            Line(dict(sorted(floor.items())), "chance", stream, kind=LEVEL, panel=p)
            for p in dict.fromkeys(e.panel for e in found)
        ]
    return lines


def regression(run: Run, reference: str, number: int) -> Figure | None:
    """What other models hold of the two streams of one (DSTG B.2, figure 8)."""

    def title(run: Run, lines: Sequence[Line]) -> str:
        if reference == run.named("dstg") and (told := claimed(run, "only-ap-predicts-position", what="R²")):
            return told
        position = {f"`{e.name}`": e.end for e in lines if e.part == "position" and e.name not in run.stuck}
        told = (
            best(position, f"The position stream of `{reference}` is predicted best by")
            if position
            else f"What others hold of `{reference}`"
        )
        return judged(run, [reference], told)

    form = Curves(
        f"regression-{number}" if number else "regression",
        "regression.position",
        lambda run: _onto(run, reference),
        title,
        f"A ridge regression predicts each stream of `{reference}` from all of the hidden state of another model at "
        "the same layer: R² on held-out documents",
        f"R² of the regressions onto {reference}",
        replace(LAYER, title="layer (0: embedding)"),
        R2,
        ("Model", "Onto"),
        tuple(f"regression.{s}: model = baseline, part = {reference}, layer, index" for s in ("position", "semantic")),
        400,
    )
    return form.draw(run)


def figures(run: Run) -> list[Figure]:
    """One document by layer, how far apart sentences are, and regressions onto the streams of every model that has
    them."""
    found = [p for s in ("position", "semantic") for p in run.table.distinct("part", f"regression.{s}")]
    references = sorted(
        set(found),
        key=lambda m: (m != run.named("dstg"), run.models.index(m) if m in run.models else len(run.models), m),
    )
    return [
        f for f in (*maps(run), SENTENCES.draw(run), *(regression(run, m, i) for i, m in enumerate(references))) if f
    ]
