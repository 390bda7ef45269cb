"""Figures of the hidden states (DSTG section 4 (2), figure 4): sentences in the plane of two components, how far apart, how flat."""

import math
from collections.abc import Sequence

import numpy as np

from . import schemes
from .by_head import arrays, documents, errors, judged, repeats, sample, seed_cell, seeds_drawn, story
from .figures import Cell, Figure, Panel, Table, Trace, line, measured, of_array, reference, text, value
from .findings import ABOVE, BELOW, MOST, against, compare
from .layer_panels import WORDS, Frame, Line, PaperValues, groups, many, paper_curve, share_axis, stream_label
from .load import Study
from .numbers import count, fixed, number, percent
from .style import TEXT_SIZE, axis, label_margin, layout, line_end_labels, sequential

# DSTG section 4 (2): the first two components of the position stream retain "about 90 %" of the variance, layer by layer; its
# figure omits the last layer, which no gradient reaches.
PAPER_TOP2: PaperValues = {("hidden.top2", "dstg", "position", layer): 0.9 for layer in range(1, 6)}
MOST_MODELS = 2  # whose documents are drawn
NAMES = 6  # sentences named in a panel
ORDER = ("position", "semantic", "all")


def figures(study: Study) -> list[Figure]:
    """Maps of one document by layer, how far apart sentences are, how flat states are; empty without such records."""
    return [f for f in (*maps(study), separation(study), flatness(study)) if f is not None]


def maps(study: Study) -> list[Figure]:
    """The first document's states by layer: of position streams, or of all of hidden where no model has one."""
    found = {m: held for m in study.models if (held := arrays(study, "hidden", m))[1]}
    streams = [m for m, (_, a) in found.items() if "scores.position" in a]
    part = "position" if streams else "all"
    models = [m for m in found if _usable(found[m][1], part)]
    if study.named("dstg") in models:
        models.sort(key=lambda m: m != study.named("dstg"))
    return [_map(study, m, part, *found[m], i) for i, m in enumerate(models[:MOST_MODELS])]


def _usable(held: dict[str, np.ndarray], part: str) -> bool:
    scores, segments = held.get(f"scores.{part}"), held.get("segments")
    return scores is not None and segments is not None and scores.ndim == 4 and segments.ndim == 2 and scores.shape[0] > 0


def _map(study: Study, model: str, part: str, seed: int | None, held: dict[str, np.ndarray], number_: int) -> Figure:
    scores, segments = held[f"scores.{part}"][0], held["segments"][0]  # (L + 1, n, 2), (n,)
    last = study.trained_until(model, part)
    panels, rows = [], []
    for layer in range(len(scores)):
        note = "no gradient reaches it" if layer > last else "embedding" if layer == 0 else ""
        panels.append(_cloud(scores[layer], segments, f"Layer {layer}", note, layer > last, f"{model}, layer {layer}"))
        rows += [
            [text(model), seed_cell(seed), value(layer, str(layer)), value(i, str(i))]
            + [
                Cell("special") if s < 0 else value(int(s), str(int(s))),
                of_array(float(x), fixed(float(x), 4)),
                of_array(float(y), fixed(float(y), 4)),
            ]
            for i, (s, (x, y)) in enumerate(zip(segments, scores[layer], strict=True))
            if math.isfinite(x) and math.isfinite(y)
        ]
    sentences = len({int(s) for s in segments if s >= 0})
    subtitle = (
        f"{WORDS.get(part, part).capitalize()} of `{model}` for one held-out document of {count(sentences, 'segment')} (sentences or "
        f"lines) and {len(segments)} tokens, on the first two principal components of each layer: one point a token, joined "
        "inside a segment, coloured by the order of the segments, some of them numbered; special tokens as crosses."
        + seeds_drawn(study, seed)
    )
    suffix = f"-{number_ + 1}" if number_ else ""
    table = Table(
        f"hidden-map{suffix}",
        "Tokens of the document on two components, by layer",
        ["Model", "Seed", "Layer", "Token", "Segment", "Component 1", "Component 2"],
        rows,
        frozenset(range(1, 7)),
    )
    records = ("arrays/hidden-*.npz", "sentences.separation: layer, part")
    title = judged(study, model, growing(study, model, part))
    return Figure(f"hidden-map{suffix}", title, subtitle, panels, table, [], 300, even=True, records=records)


def _cloud(points: np.ndarray, segments: np.ndarray, title: str, note: str, hollow: bool, alt: str) -> Panel:
    """One layer: a token a point, coloured by its segment's order."""
    known = [int(s) for s in dict.fromkeys(segments.tolist()) if s >= 0]
    rank = {s: i for i, s in enumerate(known)}
    inside = [i for i, s in enumerate(segments) if s >= 0 and np.isfinite(points[i]).all()]
    special = [i for i, s in enumerate(segments) if s < 0 and np.isfinite(points[i]).all()]
    extent = float(np.nanmax(np.abs(points))) if np.isfinite(points).any() else 1.0
    digits = max(0, 3 - math.floor(math.log10(extent or 1.0)))
    x, y = ([round(float(v), digits) for v in column] for column in np.nan_to_num(points).T)
    ways: tuple[list[float | None], list[float | None]] = ([], [])
    for a, b in zip([None, *inside], inside, strict=False):
        if a is not None and segments[a] != segments[b]:
            ways[0].append(None)
            ways[1].append(None)
        ways[0].append(x[b])
        ways[1].append(y[b])
    colours = [rank[int(segments[i])] for i in inside]
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": ways[0],
            "y": ways[1],
            "line": {"color": "@muted", "width": 0.7},
            "opacity": 0.35,
            "hoverinfo": "skip",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "x": [x[i] for i in inside],
            "y": [y[i] for i in inside],
            "marker": {
                "size": 6 if hollow else 5,
                "opacity": 0.95,
                "symbol": "circle-open" if hollow else "circle",
                "color": colours,
                "cmin": 0,
                "cmax": max(1, len(known) - 1),
                "colorscale": sequential(2),
                "line": {"width": 1.2 if hollow else 0},
            },
            "hovertext": [f"token {i}, segment {int(segments[i]) + 1}" for i in inside],
            "hoverinfo": "text",
        },
    ]
    if special:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [x[i] for i in special],
                "y": [y[i] for i in special],
                "marker": {"size": 7, "symbol": "x-thin", "color": "@muted", "line": {"width": 1.4, "color": "@muted"}},
                "hovertext": [f"token {i}, special" for i in special],
                "hoverinfo": "text",
            }
        )
    notes = []
    middle = (float(np.median([x[i] for i in inside] or [0.0])), float(np.median([y[i] for i in inside] or [0.0])))
    for s in known[:: -(-len(known) // NAMES) or 1]:
        members = [i for i in inside if segments[i] == s]
        if members:  # the number stands beside its points, on the side that looks away from the middle of the cloud
            at = (float(np.median([x[i] for i in members])), float(np.median([y[i] for i in members])))
            away = math.hypot(at[0] - middle[0], at[1] - middle[1]) or 1.0
            notes.append(
                {
                    "x": at[0],
                    "y": at[1],
                    "ax": 17 * (at[0] - middle[0]) / away,
                    "ay": -17 * (at[1] - middle[1]) / away,
                    "text": str(s + 1),
                    "showarrow": True,
                    "arrowhead": 0,
                    "arrowwidth": 0.5,
                    "arrowcolor": "rgba(0,0,0,0)",
                    "bgcolor": "@halo",
                    "borderpad": 0,
                    "font": {"size": TEXT_SIZE, "color": "@text"},
                }
            )
    ends = []
    for values in (x, y):
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.14 * ((high - low) or 1.0)
        ends.append([low - room, high + room])
    ground = layout(
        230,
        axis("", range=ends[0], nticks=4, showticklabels=False, zeroline=True, zerolinecolor="@grid", showgrid=False, constrain="domain"),
        axis(
            "",
            range=ends[1],
            nticks=4,
            showticklabels=False,
            zeroline=True,
            zerolinecolor="@grid",
            showgrid=False,
            scaleanchor="x",
            constrain="domain",
        ),
        {"l": 6, "r": 6, "t": 4, "b": 6},
        annotations=notes,
    )
    return Panel(traces, ground, title, f"{alt}: {len(inside)} tokens in {len(known)} segments.", note)


def _exp(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    return None if low is None else math.exp(low), None if high is None else math.exp(high)


def growing(study: Study, model: str, part: str) -> str:
    """Do sentences move apart through the layers? By `sentences.excess` in layer 1 and in the last layer that a gradient reaches.

    Beyond what random contiguous cuts do in the same states, which change with the layers too. They do if the intervals do not meet
    and the later one lies above, they come closer together if it lies below.
    """
    curve = study.curve("sentences.excess", model, part)
    last = study.trained_until(model, part)
    where = f"the {WORDS.get(part, part)} of `{model}`" if part != "all" else f"the states of `{model}`"
    if 1 not in curve or last not in curve or last == 1:
        return f"One document in {where}, layer by layer"
    start, end = curve[1], curve[last]
    first, later = (number(math.exp(p.value), *_exp(p.low, p.high), most=2) for p in (start, end))
    tail = f"separation {first} times that of random cuts in layer 1, {later} in layer {last}"
    side = compare(end, start)
    if side == ABOVE:
        return f"Sentences move apart through the layers in {where}: {tail}"
    if side == BELOW:
        return f"Sentences come closer together through the layers in {where}: {tail}"
    return f"Not separable whether sentences move apart in {where}: {tail}"


def separation(study: Study) -> Figure | None:
    """Variance between and within sentences beside that of cuts at random places, and the excess of the one over the other."""
    lines = _lines(study, "sentences.excess") or _lines(study, "sentences.separation")
    if not lines:
        return None
    told = next((m for m, p in lines if p == "position" and m == study.named("dstg")), None) or lines[0][0]
    own = [(m, p) for m, p in lines if m == told and study.curve("sentences.separation", m, p)]
    right = label_margin(["random cuts", *(stream_label(m, p) for m, p in lines)])
    panels = [_against_null(study, m, p, right) for m, p in own]
    if excess := [(m, p) for m, p in lines if study.curve("sentences.excess", m, p)]:
        panels += _excess(study, excess, right)
    points = [pt for m, p in lines for metric in ("sentences.excess", "sentences.separation") for pt in study.curve(metric, m, p).values()]
    subtitle = sample(
        f"Of `{told}`: variance of the states between sentences ÷ that within (solid), and the same for cuts into equally long pieces in "
        "random order (dashed). Excess: mean over documents of the logarithm of the one over the other, 0 where sentences are no further "
        "apart than random contiguous pieces",
        documents(r for m, p in lines for r in study.of("sentences.excess", m, p) or study.of("sentences.separation", m, p)),
        repeats(points, len(study.seeds)),
    )
    rows = []
    for m, p in lines:
        curves = [study.curve(f"sentences.{what}", m, p) for what in ("separation", "null", "excess")]
        for layer in sorted({l for c in curves for l in c}):
            beyond = " (no gradient)" if layer > study.trained_until(m, p) else ""
            row = [text(m), text(WORDS.get(p, p) + beyond), value(layer, str(layer))]
            for c in curves:
                row += measured(c.get(layer))
            sizes = [c[layer].n for c in curves if layer in c and c[layer].n]
            rows.append([*row, value(sizes[0]) if sizes else Cell("–")])
    columns = ["Model", "Part", "Layer"]
    columns += [f"{what}{end}" for what in ("Separation", "Random cuts", "Excess") for end in ("", " low", " high")] + ["Documents"]
    table = Table("sentences", "How far apart sentences are, beside random cuts, by layer", columns, rows, frozenset(range(2, 13)))
    key = [("measured", "measured, bar: 95\u202f% interval"), ("chance", "random cuts, as many and as long")]
    if any(l > study.trained_until(m, p) for m, p in lines for l in study.curve("sentences.excess", m, p)):
        key.append(("untrained", "no gradient reaches it"))
    records = tuple(f"sentences.{what}: layer, part" for what in ("separation", "null", "excess"))
    part = next((p for m, p in own if p == "position"), own[0][1] if own else lines[0][1])
    title = judged(study, told, exceeds(study, told, part))
    return Figure("sentences", title, f"{subtitle}.", panels, table, key, 250, even=True, records=records)


def _lines(study: Study, metric: str) -> list[Line]:
    """(model, part) of a metric, streams first; of models with streams, both together last."""
    found = []
    for model in study.models:
        parts = [p for p in study.parts(metric, model) if study.curve(metric, model, p)]
        found += [(model, p) for p in sorted(parts, key=lambda p: ORDER.index(p) if p in ORDER else len(ORDER))]
    return found


def exceeds(study: Study, model: str, part: str) -> str:
    """Are sentences further apart than random contiguous cuts in the last layer that a gradient reaches? By the excess and its interval.

    Words alone keep sentences a little apart, so what a trained model has is held against the same layer before the first step.
    """
    curve = study.curve("sentences.excess", model, part)
    last = study.trained_until(model, part)
    where = f"the {WORDS.get(part, part)} of `{model}`" if part != "all" else f"`{model}`"
    if last not in curve:
        return f"How far apart sentences are in {where}, layer by layer"
    p, before = curve[last], study.curve("sentences.excess", model, part, step=0).get(last)
    low, high = _exp(p.low, p.high)
    times = f"separation {number(math.exp(p.value), low, high, most=2)} times that of random cuts in layer {last}"
    if before is not None:
        times += f", {number(math.exp(before.value), most=2)} times before training"
    if p.low is None or p.high is None or p.low <= 0 <= p.high:
        return f"Not separable whether sentences in {where} are further apart than random contiguous cuts: {times}"
    if p.low <= 0:
        return f"Sentences are no further apart than random contiguous cuts in {where}: {times}"
    if before is not None and p.low <= (before.high if before.high is not None else before.value):
        return f"Sentences are further apart than random contiguous cuts in {where}, but not separably more than before training: {times}"
    return f"Sentences are further apart than random contiguous cuts in {where}: {times}"


def _against_null(study: Study, model: str, part: str, right: int) -> Panel:
    """Separation of one stream by layer over that of random cuts."""
    found, null = study.curve("sentences.separation", model, part), study.curve("sentences.null", model, part)
    hue = schemes.colour(study, model, part)
    values = [v for c in (found, null) for p in c.values() for v in (p.value, p.low, p.high) if v is not None]
    top = max(values) * 1.08 or 1.0
    depth, last = study.depth(model), study.trained_until(model, part)
    places = {float(l): "embedding" if l == 0 else f"layer {l} of {depth}" for l in found}
    traces: list[Trace] = []
    if null:
        words = [f"random cuts, layer {l}: {number(p.value, p.low, p.high, 3)}" for l, p in null.items()]
        traces.append(
            reference(list(null), [p.value for p in null.values()], "") | {"hovertext": words} | errors(list(null.values()), "muted")
        )
    hollow = frozenset(float(l) for l in found if l > last)
    traces += line(
        {float(l): p for l, p in found.items()}, hue, "solid", "circle", f"{model}, {WORDS.get(part, part)}", places, hollow, what="ratio"
    )
    ends = [(float(max(found)), found[max(found)].value, "sentences", hue)]
    if null:
        ends.append((float(max(null)), null[max(null)].value, "random cuts", "combined"))
    height, above, below = 236, 6, 48
    x = axis(
        "layer",
        range=[-0.03 * depth - 0.02, depth * 1.03 + 0.02],
        tickvals=list(range(0, depth + 1, 1 if depth <= 8 else 2)),
        showgrid=False,
    )
    ground = layout(
        height,
        x,
        axis("between ÷ within", range=[0, top], nticks=5),
        {"l": 58, "r": right, "t": above, "b": below},
        annotations=line_end_labels(ends, (0, top), height - above - below),
    )
    said = ", ".join(fixed(p.value, 2) for p in found.values())
    return Panel(traces, ground, f"{model}, {WORDS.get(part, part)}", f"Variance between over within sentences by layer: {said}.")


def _excess(study: Study, lines: Sequence[Line], right: int) -> list[Panel]:
    """Excess by layer of all models, in the panels of their families."""
    metric = "sentences.excess"
    values = [v for m, p in lines for pt in study.curve(metric, m, p).values() for v in (pt.value, pt.low, pt.high) if v is not None]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    room = 0.08 * (high - low or 1.0)
    bounds = (low - room, high + room)
    depth = max(study.depth(m) for m, _ in lines)
    frame = Frame(study, metric, "excess", bounds, depth, axis("log ratio", range=list(bounds), nticks=5), right, 236, 58)
    panels = []
    for g in groups(study, lines, together=not many(study)):
        panel = frame.panel(f"Excess: {g.title[0].lower()}{g.title[1:]}", g.lines, [stream_label(m, p) for m, p in g.lines])
        panel.data.insert(0, reference([0, depth], [0.0, 0.0], "no further apart than random cuts"))
        panels.append(panel)
    return panels


def flatness(study: Study) -> Figure | None:
    """Share of the variance in the first two components of a document's states, by layer and model, with the paper's about 0.9."""
    metric = "hidden.top2"
    lines = _lines(study, metric)
    if not lines:
        return None
    labels = [stream_label(m, p) for m, p in lines]
    depth = max(study.depth(m) for m, _ in lines)
    bounds = (-0.03, 1.05)
    frame = Frame(
        study, metric, "share", bounds, depth, share_axis("", bounds, (0, 0.5, 1)), label_margin(labels), 236, 58, "layer", PAPER_TOP2
    )
    panels = [frame.panel(g.title, g.lines, [stream_label(m, p) for m, p in g.lines]) for g in groups(study, lines)]
    marked = any(paper_curve(PAPER_TOP2, study, metric, m, p) for m, p in lines)
    points = [pt for m, p in lines for pt in study.curve(metric, m, p).values()]
    subtitle = sample(
        "Share of the variance within a document that the first two principal components of its states hold, mean over documents",
        documents(r for m, p in lines for r in study.of(metric, m, p)),
        repeats(points, len(study.seeds)),
    )
    subtitle += ". Hollow and unjoined: the paper’s “about 90 %” of its position stream, at the same relative depth." if marked else "."
    rows = []
    for m, p in lines:
        for layer, pt in study.curve(metric, m, p).items():
            beyond = " (no gradient)" if layer > study.trained_until(m, p) else ""
            rows.append(
                [text("this run"), text(m), text(WORDS.get(p, p) + beyond), value(layer, str(layer)), *measured(pt)]
                + [value(pt.n) if pt.n else Cell("–")]
            )
        rows += [
            [text("paper"), text(m), text(WORDS.get(p, p)), value(k, str(k)), value(v, fixed(v, 1)), Cell(""), Cell(""), Cell("–")]
            for k, v in paper_curve(PAPER_TOP2, study, metric, m, p).values()
        ]
    columns = ["Source", "Model", "Part", "Layer", "Share", "Low", "High", "Documents"]
    table = Table("hidden-flat", "Share of the first two components by layer", columns, rows, frozenset(range(3, 8)))
    key = [("measured", "measured, bar: 95\u202f% interval")]
    if marked:
        key.append(("paper", "the paper"))
    if any(l > study.trained_until(m, p) for m, p in lines for l in study.curve(metric, m, p)):
        key.append(("untrained", "no gradient reaches it"))
    told = next((m for m, p in lines if p == "position" and m == study.named("dstg")), None)
    told = told or next((m for m, p in lines if p == "position"), None) or story(study, [m for m, _ in lines])
    title = judged(study, told, flat(study, told))
    return Figure("hidden-flat", title, subtitle, panels, table, key, 250, even=True, records=("hidden.top2: layer, part",))


def flat(study: Study, model: str) -> str:
    """Does the position stream stay flat up to its last trained layer? Yes if two components hold at least `MOST` in every one."""
    part = "position" if study.curve("hidden.top2", model, "position") else "all"
    last = study.trained_until(model, part)
    curve = {l: p for l, p in study.curve("hidden.top2", model, part).items() if 1 <= l <= last}
    where = f"the position stream of `{model}`" if part == "position" else f"the states of `{model}`"
    if not curve:
        return f"Two components of {where}, layer by layer"
    low, high = min(curve.values(), key=lambda p: p.value), max(curve.values(), key=lambda p: p.value)
    most = percent(MOST, 0)
    values = f"{percent(low.value, 0)} to {percent(high.value, 0)} in layers 1 to {last}"
    sides = [against(p, MOST) for p in curve.values()]
    if set(sides) == {ABOVE}:
        return f"Two components hold at least {most} of the variance of a document in {where}: {values}"
    if set(sides) == {BELOW}:
        return f"Two components hold less than {most} of the variance of a document in {where}: {values}"
    if ABOVE not in sides:
        return f"Not separable whether two components hold {most} of the variance of a document in {where}: {values}"
    return f"Two components hold {most} of the variance of a document in {sides.count(ABOVE)} of {len(sides)} layers of {where}: {values}"
