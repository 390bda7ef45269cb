"""Figures of the attention itself: weight by distance and what heads look at (DSTG figure 3)."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..points import Point
from ..records import Record
from . import correlation_figures, local_figures, schemes
from .by_head import (
    TOTAL,
    Head,
    arrays,
    by_head,
    documents,
    in_order,
    judged,
    lowest_seed,
    mean_of,
    meaning,
    parts_of,
    recorded,
    repeats,
    sample,
    seed_cell,
    seeds_drawn,
    short,
    size_cell,
    story,
)
from .figures import Cell, Figure, Panel, Table, Trace, of_array, text, value
from .load import Study
from .maps import heatmap, map_layout
from .numbers import count, fixed, number, percent
from .style import axis, layout, line_end_labels, log_axis

MOST_LAYERS = 12  # lines of a profile; of deeper models every second layer and the last
NEAR = 16  # lags drawn one by one; beyond, every fourth
RETRIEVAL = 0.1  # share of its weight that a head gives to the other copy of a token to be called a retrieval head
LOOKS = {
    "previous": "before",
    "next": "after",
    "self": "itself",
    "local": "near",
    "special": "special",
    "retrieval": "copy",
    "broad": "spread",
}


def figures(study: Study) -> list[Figure]:
    """Distance profiles, what heads look at, who attends to neighbours, correlations and patterns; empty without such records."""
    own = (profiles(study), looks(study), local_figures.neighbours(study))
    return [f for f in own if f is not None] + correlation_figures.figures(study)


def many(study: Study, models: Sequence[str]) -> bool:
    """Whether only the sum of the terms is drawn, because the models are many."""
    return len(models) > schemes.FEW


def profiles(study: Study) -> Figure | None:
    """Mean attention weight by distance, one line a layer: for all terms together, and for each under a softmax of its own."""
    found = {}
    for model in study.models:
        seed, held = arrays(study, "attention", model)
        own = {k.removeprefix("profile."): v for k, v in held.items() if k.startswith("profile.") and v.ndim == 3}
        if own and "lags" in held and all(v.shape[2] == len(held["lags"]) for v in own.values()):
            found[model] = (seed, held["lags"], {t: own[t].mean(axis=1) for t in in_order(own)})
    if not found:
        return None
    only_total = many(study, list(found))
    planned: list[tuple[str, str, np.ndarray, np.ndarray, int]] = []
    rows: list[list[Cell]] = []
    drawn = []
    columns = _shown_layers(max(len(c) for _, _, curves in found.values() for c in curves.values()))
    for model, (seed, lags, curves) in found.items():
        terms = list(curves)
        if TOTAL in curves and (only_total or len(curves) == 2):
            terms = [TOTAL]  # of one term, the sum is that term
        terms.sort(key=lambda t: t != TOTAL)
        drawn += [curves[t] for t in terms]
        for term in terms:
            planned.append((model, term, lags, curves[term], len(terms)))
        rows += _profile_rows(model, seed, lags, {t: curves[t] for t in terms}, columns)
    least, most = _log_ends(drawn)
    panels = [_profile_panel(*p, (least, most)) for p in planned]
    told = story(study, list(found))
    seeds = lowest_seed((seed, 0, 0) for seed, *_ in found.values())
    who = {r.n for m in found for r in study.of("attention.local", m, TOTAL) if r.n}
    subtitle = (
        "Mean attention weight from a token to the one so many places after it, negative: before it; both axes are logarithmic. One line "
        "a layer, mean over its heads, named at its right end, stronger in deeper layers; single terms under a softmax of their own"
    )
    subtitle = sample(subtitle, f"n = {number(max(who))} documents" if who else "") + "." + seeds_drawn(study, seeds)
    table = Table(
        "attention-profile",
        "Mean attention weight by distance",
        ["Model", "Seed", "Term", "Distance", *(f"Layer {c + 1}" for c in columns)],
        rows,
        frozenset({1, *range(3, 4 + len(columns))}),
    )
    records = ("arrays/attention-*.npz", "attention.local: layer, head, part")
    return Figure(
        "attention-profile", judged(study, told, nearness(study, told)), subtitle, panels, table, [], 250, even=True, records=records
    )


def _kept_lags(lags: np.ndarray) -> list[int]:
    """Which lags are drawn: the near ones, and every fourth of the others."""
    return [i for i, lag in enumerate(lags) if abs(lag) <= NEAR or round(abs(float(lag))) % 4 == 0]


def _shown_layers(depth: int) -> list[int]:
    step = -(-depth // MOST_LAYERS)
    return sorted({*range(0, depth, step), depth - 1})


def _log_ends(curves: Sequence[np.ndarray]) -> tuple[float, float]:
    """Ends of the logarithmic axis: the largest weight, and the smallest within five decades of it."""
    values = np.concatenate([c[np.isfinite(c) & (c > 0)] for c in curves]) if curves else np.array([1.0])
    if not values.size:
        return 1e-3, 1.0
    top = float(values.max())
    return max(float(values.min()), top * 1e-5) / 1.3, top * 1.3


def _profile_rows(
    model: str, seed: int | None, lags: np.ndarray, curves: Mapping[str, np.ndarray], columns: Sequence[int]
) -> list[list[Cell]]:
    """A row a term and distance, a column a layer."""
    return [
        [text(model), seed_cell(seed), text(short(term)), value(float(lags[i]), fixed(float(lags[i]), 0))]
        + [
            of_array(float(curve[c, i]), number(float(curve[c, i]))) if c < len(curve) and math.isfinite(curve[c, i]) else Cell("–")
            for c in columns
        ]
        for term, curve in curves.items()
        for i in _kept_lags(lags)
    ]


def _stretched(lag: float) -> float:
    """Place of a distance on an axis that gives near ones room: a logarithm to both sides of 0, steps of 1 next to it."""
    return round(math.copysign(math.log2(1 + abs(lag)), lag), 4)


def _profile_panel(model: str, term: str, lags: np.ndarray, curve: np.ndarray, terms: int, limits: tuple[float, float]) -> Panel:
    least, most = limits
    kept, depth = _kept_lags(lags), len(curve)
    shown = _shown_layers(depth)
    traces: list[Trace] = []
    ends = []
    for layer in shown:
        points = [(float(lags[i]), float(curve[layer, i])) for i in kept if math.isfinite(curve[layer, i])]
        inside = [(x, max(y, least)) for x, y in points]
        if not inside:
            continue
        shade = 3 + round(5 * layer / max(1, depth - 1))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [_stretched(x) for x, _ in inside],
                "y": [float(f"{y:.4g}") for _, y in inside],
                "line": {"color": f"@map-{shade}", "width": 1.8},
                "text": [f"{x:.0f}" for x, _ in inside],
                "hovertemplate": f"layer {layer + 1}<br>distance %{{text}}: %{{y:.3g}}<extra></extra>",
            }
        )
        ends.append((_stretched(inside[-1][0]), math.log10(inside[-1][1]), str(layer + 1), "combined"))
    height, top, bottom = 250, 6, 50
    w = _stretched(float(np.abs(lags).max()))
    far = [lag for lag in (0, 1, 4, 16, 64, 256) if _stretched(lag) <= w]
    ticks = [-lag for lag in reversed(far[1:])] + far
    y = log_axis("", least, most, most=4)
    y["ticktext"] = [f"{100 * t:.4g}\u202f%" for t in y["tickvals"]]
    x = axis(
        "distance, tokens",
        range=[-w, w],
        tickvals=[_stretched(lag) for lag in ticks],
        ticktext=[fixed(lag, 0) if abs(lag) != 1 else "" for lag in ticks],
    )
    notes = line_end_labels(ends, (math.log10(least), math.log10(most)), height - top - bottom)
    ground = layout(height, x, y, {"l": 66, "r": 46, "t": top, "b": bottom}, annotations=notes)
    at = {round(float(lag)): i for i, lag in enumerate(lags)}
    said = ", ".join(f"layer {layer + 1} {number(float(curve[layer, at[1]]))}" for layer in shown if 1 in at)
    alt = f"{model}, {short(term)}: weight of the next token by layer, {said}." if said else f"{model}, {short(term)}, by distance."
    return Panel(
        traces, ground, model, alt, "all terms" if term == TOTAL and terms > 1 else "" if term == TOTAL else f"{short(term)} alone"
    )


def nearness(study: Study, model: str) -> str:
    """Which term looks nearest, by the weight on the three nearest tokens on each side (`attention.local`, mean over heads).

    The nearest term is named if its paired difference to the farthest, over heads, has an interval without zero.
    """
    means: dict[str, tuple[Point, dict[Head, Record]]] = {}
    for term in parts_of(study, "attention.local", model):
        records = by_head(study, "attention.local", model, term)
        if (p := mean_of([r.value for r in records.values()])) is not None:
            means[term] = (p, records)
    single = {t: m for t, m in means.items() if t != TOTAL}
    if len(single) < 2:
        if not means:
            return f"Attention of `{model}` by distance"
        p = next(iter(means.values()))[0]
        return f"Heads of `{model}` give {percent(p.value, 0)} of their weight to the three nearest tokens on each side"
    near, far = max(single, key=lambda t: single[t][0].value), min(single, key=lambda t: single[t][0].value)
    a, b = single[near][1], single[far][1]
    apart = mean_of([a[h].value - b[h].value for h in a if h in b])
    shares = (
        f"{percent(single[near][0].value, 0)} and {percent(single[far][0].value, 0)} of the weight on the three nearest tokens on each side"
    )
    if apart is None or apart.low is None or apart.low <= 0:
        return f"Not separable which term of `{model}` looks nearest: {meaning(near)} and {meaning(far)}, {shares}"
    return f"In `{model}`, {meaning(near)} looks nearest and {meaning(far)} farthest: {shares}"


def looks(study: Study) -> Figure | None:
    """Heads by what they look at: one map a model, columns are heads by layer, rows are places."""
    found: dict[str, list[str]] = {}
    for model in study.models:
        parts = in_order(p for look in LOOKS for p in parts_of(study, f"attention.{look}", model))
        parts = [p for p in parts if any(by_head(study, f"attention.{look}", model, p) for look in LOOKS)]
        if parts:
            found[model] = parts
    if not found:
        return None
    only_total = many(study, list(found))
    panels = []
    rows: list[list[Cell]] = []
    records_: list[Record] = []
    seed = None
    for model, parts in found.items():
        shown = [p for p in parts if p == TOTAL] if TOTAL in parts and (only_total or len(parts) == 2) else parts
        for part in sorted(shown, key=lambda p: p != TOTAL):
            of = {look: by_head(study, f"attention.{look}", model, part) for look in LOOKS}
            of = {look: r for look, r in of.items() if r}
            seed = lowest_seed(h for r in of.values() for h in r)
            panels.append(_look_panel(model, part, of, seed, study.depth(model), len(shown)))
            records_ += [r for by in of.values() for r in by.values()]
            rows += [
                [text(model), seed_cell(s), text(short(part)), value(layer), value(head, str(head)), text(LOOKS[look])]
                + recorded(r)
                + [size_cell(r)]
                for look, by in of.items()
                for (s, layer, head), r in by.items()
            ]
    told = story(study, list(found))
    subtitle = sample(
        "Mean attention weight of each head to the token before, the token after, the token itself, the three nearest on each side, "
        "special tokens; copy: weight to the other copy of the same token in a repeated text, minus that in a text that does not repeat; "
        "spread: entropy of its weights, 1 where all keys are equal",
        documents(records_),
        repeats([Point.between(r.value, r.low, r.high) for r in records_], len(study.seeds)),
    )
    table = Table(
        "attention-looks",
        "What every head looks at",
        ["Model", "Seed", "Term", "Layer", "Head", "Place", "Weight", "Low", "High", "Documents"],
        rows,
        frozenset({1, 3, 4, 6, 7, 8, 9}),
    )
    title = judged(study, told, retrieval(study, told))
    records = tuple(f"attention.{look}: layer, head, part" for look in LOOKS)
    return Figure("attention-looks", title, f"{subtitle}.{seeds_drawn(study, seed)}", panels, table, [], 330, even=True, records=records)


def _look_panel(model: str, part: str, of: Mapping[str, Mapping[Head, Record]], seed: int | None, depth: int, parts: int) -> Panel:
    heads = sorted({h for by in of.values() for h in by if h[0] == seed}, key=lambda h: h[1:])
    z = np.array([[by[h].value if h in by else np.nan for h in heads] for by in of.values()])
    names = [f"{layer}.{head}" for _, layer, head in heads]
    trace = heatmap(z, list(range(len(heads))), [LOOKS[look] for look in of], "", (0.0, 1.0))
    trace["customdata"] = [names] * len(z)
    trace["hovertemplate"] = "layer.head %{customdata}<br>%{y}: %{z:.3f}<extra></extra>"
    trace |= {"ygap": 1}
    firsts = [i for i, h in enumerate(heads) if i == 0 or heads[i - 1][1] != h[1]]
    middle = [(a + b - 1) / 2 for a, b in zip(firsts, [*firsts[1:], len(heads)], strict=True)]
    every = 1 if len(firsts) <= 12 else 2
    ground = map_layout(24 * len(z) + 62, "layer, its heads side by side", "", left=66)
    ground["yaxis"] |= {"tickvals": [LOOKS[look] for look in of]}
    ground["xaxis"] |= {"tickvals": middle[::every], "ticktext": [str(heads[i][1]) for i in firsts[::every]]}
    ground["shapes"] = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": i - 0.5,
            "x1": i - 0.5,
            "y0": 0,
            "y1": 1,
            "line": {"color": "@surface", "width": 3},
        }
        for i in firsts[1:]
    ]
    means = ", ".join(
        f"{LOOKS[look]} {fixed(float(np.nanmean(row)), 2)}" for look, row in zip(of, z, strict=True) if np.isfinite(row).any()
    )
    note = "all terms" if part == TOTAL and parts > 1 else "" if part == TOTAL else f"{short(part)} alone"
    return Panel([trace], ground, model, f"{model}, {short(part)}, mean over heads: {means}.", note)


def retrieval(study: Study, model: str) -> str:
    """Which heads give the other copy of a token at least `RETRIEVAL` more of their weight than chance, with their whole interval."""
    heads = by_head(study, "attention.retrieval", model, TOTAL)
    seeds = len({s for s, _, _ in heads})
    if not heads:
        return f"What the heads of `{model}` look at"
    ranked = sorted(heads.items(), key=lambda item: -item[1].value)
    found = [(h, r) for h, r in ranked if (r.value if r.low is None else r.low) >= RETRIEVAL]
    maybe = [(h, r) for h, r in ranked if r.value >= RETRIEVAL and (h, r) not in found]

    def named(of: Sequence[tuple[Head, Record]]) -> str:
        said = [
            f"layer {layer} head {head}{f' seed {s}' if seeds > 1 else ''} ({percent(r.value, 0)} of its weight)"
            for (s, layer, head), r in of[:3]
        ]
        return ", ".join(said) + (f" and {len(of) - 3} more" if len(of) > 3 else "")

    total = count(len(heads), "head")
    if found:
        verb = "retrieves" if len(found) == 1 else "retrieve"
        rest = f"; not separable for {len(maybe)} more" if maybe else ""
        return f"{len(found)} of {total} of `{model}` {verb} the other copy of a token: {named(found)}{rest}"
    if maybe:
        return f"Not separable whether a head of `{model}` retrieves the other copy of a token: {named(maybe)}"
    return f"No head of `{model}` retrieves the other copy of a token: at most {percent(ranked[0][1].value)} of its weight"
