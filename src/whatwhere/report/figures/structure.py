"""Whether states know structure: sentences apart and together, and streams read from other models."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...points import Point, highest
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, row
from ..forms.axes import EMBEDDED, R2, Axis
from ..forms.curves import ASIDE, LEVEL, Curves, Line, in_families, of_models
from ..forms.maps import rounded
from ..forms.marks import beside, drawn, line, shaded, symbols
from ..numbers import count
from ..run import Run
from ..style import axis, layout
from ..titles import best, claimed, finding, judged, story

MOST_MODELS = 2  # whose documents are drawn
NAMES = 6  # sentences named in a panel


def maps(run: Run) -> list[Figure]:
    """The first document's states by layer: of position streams, or of all of hidden where no model has one."""
    held = {m: found for m in run.models if (found := run.held("hidden", m))[1]}
    part = "position" if any("scores.position" in arrays for _, arrays in held.values()) else "all"
    models = [m for m, (_, arrays) in held.items() if _usable(arrays.get(f"scores.{part}"), arrays.get("segments"))]
    models.sort(key=lambda m: m != run.named("dstg"))
    return [_map(run, m, part, *held[m], i) for i, m in enumerate(models[:MOST_MODELS])]


def _usable(scores: np.ndarray | None, segments: np.ndarray | None) -> bool:
    return scores is not None and segments is not None and scores.ndim == 4 and segments.ndim == 2 and len(scores) > 0


def _map(run: Run, model: str, part: str, seed: int | None, arrays: dict[str, np.ndarray], number: int) -> Figure:
    scores, segments = arrays[f"scores.{part}"][0], arrays["segments"][0].astype(int)  # (L + 1, n, 2), (n,)
    last = run.trained_until(model, part)
    panels, rows = [], []
    for layer, points in enumerate(scores):
        note = "no gradient reaches it" if layer > last else "embedding" if layer == 0 else ""
        panels.append(_cloud(points, segments, f"Layer {layer}", note, layer > last, f"{model}, layer {layer}"))
        for i in np.flatnonzero(np.isfinite(points).all(axis=1)).tolist():
            segment = Cell("special") if segments[i] < 0 else int(segments[i])
            rows.append(row(model, seed, layer, i, segment, *points[i]))
    subtitle = (
        f"{'Position stream' if part == 'position' else 'All of hidden'} of `{model}` for one held-out document of "
        f"{count(len({*segments[segments >= 0]}), 'segment')} (sentences or lines) and {len(segments)} tokens, on the "
        "first two principal components of each layer: one point a token, joined inside a segment, coloured by the "
        "order of the segments, some of them numbered; special tokens as crosses."
    )
    id = f"hidden-map-{number + 1}" if number else "hidden-map"
    columns = ["Model", "Seed", "Layer", "Token", "Segment", "Component 1", "Component 2"]
    title = None if number else claimed(run, "dstg-sentences-separate")
    return Figure(
        id,
        judged(run, [model], title or f"One document in the states of `{model}`, layer by layer"),
        subtitle + drawn(run.seeds, [seed]),
        panels,
        Table.of(id, "Tokens of the document on two components, by layer", columns, rows),
        width=300,
        even=True,
        records=("arrays/hidden-*.npz", "sentences.separation: layer, part"),
    )


def _cloud(points: np.ndarray, segments: np.ndarray, title: str, note: str, hollow: bool, alt: str) -> Panel:
    """One layer: a token a point, coloured by its segment's order."""
    known = [s for s in dict.fromkeys(segments.tolist()) if s >= 0]
    finite = np.isfinite(points).all(axis=1)
    inside, special = (np.flatnonzero(finite & side).tolist() for side in (segments >= 0, segments < 0))
    x, y = (rounded(column) for column in np.nan_to_num(points).T)
    way: list[int | None] = []
    for a, b in zip([None, *inside], inside, strict=False):
        way += [None, b] if a is not None and segments[a] != segments[b] else [b]
    look = {"size": 6, "symbol": "circle-open"} if hollow else {"size": 5, "symbol": "circle"}
    edge = {"opacity": 0.95, "line": {"width": 1.2 if hollow else 0}}
    marker = shaded([known.index(segments[i]) for i in inside], 0, len(known) - 1, 2, **look, **edge)
    names = [f"token {i}, segment {segments[i] + 1}" for i in inside]
    along, up = ([None if i is None else column[i] for i in way] for column in (x, y))
    traces = [
        line(along, up, "muted", width=0.7, opacity=0.35),
        symbols([x[i] for i in inside], [y[i] for i in inside], marker, hovertext=names, hoverinfo="text"),
    ]
    if special:
        cross = {"size": 7, "symbol": "x-thin", "color": "@muted", "line": {"width": 1.4, "color": "@muted"}}
        names = [f"token {i}, special" for i in special]
        place = [x[i] for i in special], [y[i] for i in special]
        traces.append(symbols(*place, cross, hovertext=names, hoverinfo="text"))
    notes = []
    middle = _middle(x, y, inside)
    for s in known[:: -(-len(known) // NAMES) or 1]:
        if members := [i for i in inside if segments[i] == s]:
            at = _middle(x, y, members)
            notes.append(beside(at, str(s + 1), (at[0] - middle[0], at[1] - middle[1])))
    frame = []
    for values in (x, y):
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.14 * ((high - low) or 1.0)
        frame.append([low - room, high + room])
    bare = {"nticks": 4, "showticklabels": False, "showgrid": False, "constrain": "domain"}
    bare |= {"zeroline": True, "zerolinecolor": "@grid"}
    axes = axis("", range=frame[0], **bare), axis("", range=frame[1], scaleanchor="x", **bare)
    ground = layout(230, *axes, {"l": 6, "r": 6, "t": 4, "b": 6}, annotations=notes)
    return Panel(traces, ground, title, f"{alt}: {len(inside)} tokens in {len(known)} segments.", note)


def _middle(x: Sequence[float], y: Sequence[float], members: Sequence[int]) -> tuple[float, float]:
    at = [float(np.median([column[i] for i in members] or [0.0])) for column in (x, y)]
    return at[0], at[1]


def _sentences(run: Run) -> Iterator[Line]:
    """Of the model told of, separation beside random cuts; of all models, the excess of the one over the other."""
    excess = of_models(run, "sentences.excess")
    told = story(run, [each.name for each in excess]) if excess else None
    for each in sorted(of_models(run, "sentences.separation"), key=lambda each: each.name != told):
        null = run.curve("sentences.null", each.name, each.part)
        if each.name == told:
            panel = f"{each.name}, {each.part}"
            yield replace(each, panel=panel, axis="ratio")
            yield Line(null, "random cuts", each.part, kind=LEVEL, panel=panel, axis="ratio")
        else:
            yield (aside := replace(each, axis="ratio", kind=ASIDE))
            yield replace(aside, points=null, part=f"{each.part}, random cuts")
    levels = set()
    for each in in_families(run, excess):
        panel = f"Excess: {each.panel[0].lower()}{each.panel[1:]}"
        yield replace(each, panel=panel)
        if panel not in levels:
            levels.add(panel)
            yield Line({0: Point.between(0.0)}, "random cuts", kind=LEVEL, panel=panel)


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
    {"ratio": Axis("between ÷ within", include=(0,)), "": Axis("log ratio", include=(0,))},
    records=tuple(f"sentences.{what}: layer, part" for what in ("separation", "null", "excess")),
    width=250,
)


def _onto(run: Run, reference: str) -> Iterator[Line]:
    """R² of each stream of a model from the states of every other, a panel a stream; where models are many, a
    family."""
    asides = {".chance": "shuffled targets", ".place": "same place in another document"}
    for stream in ("position", "semantic"):
        metric, panel = f"regression.{stream}", f"Onto the {stream} stream"
        colour, until = schemes.colour(run, reference, stream), run.trained_until(reference, stream)
        curves = {m: points for m in run.models if m != reference and (points := run.curve(metric, m, reference))}
        onto = []
        for model, points in curves.items():
            depth, other = run.depth(reference), run.depth(model)
            still = frozenset(layer for layer in points if round(layer * depth / other) > until)
            onto.append(Line(points, model, stream, colour, schemes.marks(run)[model], panel=panel, hollow=still))
            for ending, name in asides.items():
                beside = run.curve(metric + ending, model, reference)
                yield Line(beside, model, f"{stream}, {name}", kind=ASIDE, panel=panel)
        if schemes.many(run):
            families = {e.name: e.panel.lower() for e in in_families(run, [replace(e, part="") for e in onto])}
            onto = [replace(e, panel=f"{panel}: {families[e.name]}") for e in onto]
        floor = highest(run.curve(f"{metric}.chance", model, reference) for model in curves)
        levels = dict.fromkeys(e.panel for e in onto)
        yield from [*onto, *(Line(floor, "chance", stream, kind=LEVEL, panel=p) for p in levels)]


def regression(run: Run, reference: str, number: int) -> Figure | None:
    """What other models hold of the two streams of one (DSTG B.2, figure 8)."""

    def title(run: Run, lines: Sequence[Line]) -> str:
        if reference == run.named("dstg") and (told := claimed(run, "only-ap-predicts-position", what="R²")):
            return told
        values = {f"`{e.name}`": e.end for e in lines if e.part == "position" and e.name not in run.young}
        told = best(values, f"The position stream of `{reference}` is predicted best by")
        return judged(run, [reference], told if values else f"What others hold of `{reference}`")

    form = Curves(
        f"regression-{number}" if number else "regression",
        "regression.position",
        lambda run: _onto(run, reference),
        title,
        f"A ridge regression predicts each stream of `{reference}` from all of the hidden state of another model at "
        "the same layer: R² on held-out documents",
        f"R² of the regressions onto {reference}",
        R2,
        EMBEDDED,
        ("Model", "Onto"),
        tuple(f"regression.{s}: model = baseline, part = {reference}, layer, index" for s in ("position", "semantic")),
        400,
    )
    return form.draw(run)


def others(run: Run) -> list[Figure]:
    """One document by layer, and regressions onto the streams of every model that has them."""
    parts = {p for s in ("position", "semantic") for p in run.table.distinct("part", f"regression.{s}")}
    known = [m for m in run.models if m in parts]
    references = sorted([*known, *sorted(parts - {*known})], key=lambda m: m != run.named("dstg"))
    regressions = [regression(run, m, i) for i, m in enumerate(references)]
    return [f for f in (*maps(run), *regressions) if f]
