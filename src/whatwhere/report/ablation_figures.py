"""Figures of what a model loses when a term of the scores, a stream or a head's term is taken out: loss of masked words."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import rankdata

from ..points import Point
from ..records import Record
from .by_head import (
    Head,
    bold,
    by_head,
    by_layer,
    colour,
    documents,
    dots,
    errors,
    head_name,
    judged,
    meaning,
    parts_of,
    recorded,
    repeats,
    sample,
    seed_cell,
    segments,
    short,
    story,
    terms_of,
    whole,
    with_bounds,
)
from .figures import MOST_DIGITS, Cell, Figure, Panel, Table, Trace, hover, line, measured, text, value
from .findings import ABOVE, BELOW, against
from .load import Study
from .numbers import count, fixed, interval, number
from .style import TEXT_SIZE, axis, label_margin, layout, line_end_labels, log_axis, plain

# Kind -> (what is done, marker).
KINDS = {"remove": ("left out", "circle"), "mean": ("its mean", "diamond"), "shuffle": ("shuffled", "square")}
STREAM = "stream."
FEW_HEADS = 12  # heads below which a rank correlation is called too few, whatever its interval
DRAWS = 1000
SMALLEST = 1e-6  # nats; smaller divergences are drawn there


def figures(study: Study) -> list[Figure]:
    """Rise of the loss by layer and term, against the change of attention by head, and for terms and streams of the whole model."""
    return [f for f in (totals(study), layers(study), agreement(study)) if f is not None]


def name_of(part: str) -> str:
    """A term or stream in words."""
    return f"{part.removeprefix(STREAM)} stream" if part.startswith(STREAM) else short(part)


def hue(part: str) -> str:
    """Colour of a term or a stream."""
    if part.startswith(STREAM):
        return {"position": "absolute", "semantic": "semantic"}.get(part.removeprefix(STREAM), "combined")
    return colour(part)


def _terms(study: Study, model: str, metric: str = "ablation.remove") -> list[str]:
    return [p for p in parts_of(study, metric, model) if not p.startswith(STREAM)]


def costs(point: Point) -> str:
    """Nats that an ablation costs, in words: nothing is said to cost where the interval holds zero."""
    side = against(point, 0.0) if point.low is not None else ABOVE if point.value > 0 else BELOW
    amount = fixed(point.value, 2)
    if point.low is not None and point.low <= 0 <= (point.high or 0.0):
        return f"no separable amount ({amount})"
    return f"{amount} nats" if side == ABOVE else f"{amount} nats (the loss falls)"


def layers(study: Study) -> Figure | None:
    """Rise of the loss when one term is left out of one block, by layer: one panel a model."""
    metric = "ablation.remove"
    found: dict[str, dict[str, dict[int, Point]]] = {}
    for m in study.models:
        if curves := {t: c for t in _terms(study, m) if (c := by_layer(study, metric, m, t))}:
            found[m] = curves
    if not found:
        return None
    values = [
        v for curves in found.values() for c in curves.values() for p in c.values() for v in (p.value, p.low, p.high) if v is not None
    ]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    room = 0.08 * (high - low or 1.0)
    bounds = (low - room, high + room)
    right = label_margin([short(t) for curves in found.values() for t in curves])
    panels = [_layer_panel(study, m, curves, bounds, right) for m, curves in found.items()]
    told = story(study, list(found))
    points = [p for curves in found.values() for c in curves.values() for p in c.values()]
    subtitle = sample(
        "Rise of the loss of masked words, in nats, when one term is left out of the attention scores of one block and of no other",
        documents(r for m in found for t in found[m] for r in study.of(metric, m, t)),
        repeats(points, len(study.seeds)),
    )
    rows = [
        [text(m), text(short(t)), value(layer), *measured(p), value(p.n) if p.n else Cell("–")]
        for m, curves in found.items()
        for t, c in curves.items()
        for layer, p in c.items()
    ]
    table = Table(
        "ablation-layers",
        "Rise of the loss without one term in one block, nats",
        ["Model", "Term", "Layer", "Rise", "Low", "High", "Documents"],
        rows,
        frozenset(range(2, 7)),
    )
    title = judged(study, told, where(told, found[told]))
    key = [("measured", "measured, bar: 95\u202f% interval")]
    return Figure("ablation-layers", title, f"{subtitle}.", panels, table, key, 300, even=True, records=(f"{metric}: layer, part",))


def where(model: str, curves: Mapping[str, Mapping[int, Point]]) -> str:
    """In which layer each term is needed most.

    The layer of the largest rise is named if its interval lies above zero and above that of every other layer (or, without
    intervals, in numbers only); otherwise no layer stands out.
    """
    said = []
    for term, curve in curves.items():
        top = max(curve, key=lambda layer: curve[layer].value)
        best = curve[top]
        others = [p for layer, p in curve.items() if layer != top]
        clear = best.low is not None and best.low > 0 and all(p.high is not None and p.high < best.low for p in others)
        what = meaning(term)
        if clear:
            said.append(f"{what} most in layer {top} ({fixed(best.value, 2)} nats)")
        elif best.low is not None and best.low <= 0:
            said.append(f"{what} in no layer by a separable amount")
        else:
            said.append(f"{what} in no one layer most (up to {fixed(best.value, 2)} nats)")
    return f"`{model}` needs {', '.join(said)}"


def _layer_panel(study: Study, model: str, curves: Mapping[str, Mapping[int, Point]], bounds: tuple[float, float], right: int) -> Panel:
    depth = study.depth(model)
    traces: list[Trace] = [segments([(0.6, 0.0, depth + 0.4, 0.0)], "muted", 1.0, "6px,5px")]
    ends = []
    for i, (term, curve) in enumerate(curves.items()):
        aside = 0.07 * (i - (len(curves) - 1) / 2)  # so that bars of one layer stand side by side
        moved = {layer + aside: p for layer, p in curve.items()}
        places = {layer + aside: f"layer {layer} of {depth}" for layer in curve}
        hue_ = colour(term)
        traces += line(moved, hue_, "solid", "circle", f"{model}, {short(term)}", places, what="rise of loss")
        ends.append((max(moved), curve[max(curve)].value, short(term), hue_))
    height, top, bottom = 270, 8, 50
    x = axis("layer", range=[0.6, depth + 0.4], tickvals=list(range(1, depth + 1, 1 if depth <= 8 else 2)), showgrid=False)
    y = axis("rise of loss, nats", range=list(bounds), nticks=5)
    notes = line_end_labels(ends, bounds, height - top - bottom)
    said = "; ".join(f"{short(t)}: " + ", ".join(fixed(p.value, 2) for p in c.values()) for t, c in curves.items())
    return Panel(
        traces, layout(height, x, y, {"l": 62, "r": right, "t": top, "b": bottom}, annotations=notes), model, f"{model} by layer, {said}."
    )


def pairs(study: Study, model: str) -> dict[tuple[Head, str], tuple[Record, Record]]:
    """(head, term) -> (KL divergence, rise of the loss) where both were measured."""
    found = {}
    for term in terms_of(study, model, "kl.share."):
        kl, rise = by_head(study, f"kl.{term}", model), by_head(study, "ablation.remove", model, term)
        found.update({(head, term): (kl[head], rise[head]) for head in kl if head in rise})
    return found


def rank_correlation(heads: Sequence[Head], x: Sequence[float], y: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Spearman's rank correlation of x and y with its 95 % interval over heads: percentile bootstrap, all points of a head together.

    nan where one of the two is constant; no interval for fewer than `FEW_HEADS` heads.
    """
    members: dict[Head, list[int]] = {}
    for i, head in enumerate(heads):
        members.setdefault(head, []).append(i)
    groups = [np.array(g) for g in members.values()]
    a, b = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    whole_ = _spearman(a, b)
    if len(groups) < FEW_HEADS:
        return whole_, None, None
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(DRAWS):
        chosen = np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))])
        draws.append(_spearman(a[chosen], b[chosen]))
    low, high = np.nanpercentile(draws, [2.5, 97.5]) if np.isfinite(draws).any() else (np.nan, np.nan)
    return (whole_, float(low), float(high)) if np.isfinite([low, high]).all() else (whole_, None, None)


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def agrees(model: str, heads: int, rho: float, low: float | None, high: float | None) -> str:
    """Do the heads whose attention changes most matter most to the loss? By the interval of the rank correlation over heads."""
    if not np.isfinite(rho):
        return f"How far attention changes without a term, and how far the loss of `{model}`"
    words = f"rank correlation {fixed(rho, 2)}"
    if low is None or high is None:
        return f"Too few heads ({heads}) to say whether what changes attention changes predictions in `{model}`: {words}"
    words += f" {interval(low, high, 2)} over {heads} heads of `{model}`"
    if low > 0:
        return f"What changes attention more changes predictions more: {words}"
    if high < 0:
        return f"What changes attention more changes predictions less: {words}"
    return f"Not separable whether what changes attention changes predictions: {words}"


def agreement(study: Study) -> Figure | None:
    """A point a head and term: KL divergence of the attention without the term, against the rise of the loss without it."""
    found = {m: p for m in study.models if (p := pairs(study, m))}
    if not found:
        return None
    told = story(study, list(found))
    own = found[told]
    rho = rank_correlation([h for h, _ in own], [kl.value for kl, _ in own.values()], [rise.value for _, rise in own.values()])
    title = judged(study, told, agrees(told, len({h for h, _ in own}), *rho))
    both = [pair for of in found.values() for pair in of.values()]
    xs = [max(kl.value, SMALLEST) for kl, _ in both]
    ys = [v for _, rise in both for v in (rise.value, rise.low, rise.high) if v is not None]
    room = 0.06 * ((max(ys) - min([*ys, 0.0])) or 1.0)
    y_range = [min([*ys, 0.0]) - room, max([*ys, 0.0]) + room]
    ends = (min(xs) / 1.6, max(xs) * 1.6)
    panels = []
    for model, points in found.items():
        traces: list[Trace] = [segments([(ends[0], 0.0, ends[1], 0.0)], "muted", 1.0, "6px,5px")]
        terms = list(dict.fromkeys(t for _, t in points))
        for term in terms:
            mine = {h: pair for (h, t), pair in points.items() if t == term}
            words = [
                f"{bold(model)}, {head_name(h, len(study.seeds))}<br>{plain(short(term))} left out: KL {with_bounds(kl)} nats; "
                f"loss {with_bounds(rise, 4)} nats"
                for h, (kl, rise) in mine.items()
            ]
            shown = dots(
                [max(kl.value, SMALLEST) for kl, _ in mine.values()],
                [rise.value for _, rise in mine.values()],
                [colour(term)] * len(mine),
                words,
                symbol={"semantic": "circle", "absolute": "square", "relative": "diamond"}.get(term, "triangle-up"),
            )
            traces.append(shown | errors([rise for _, rise in mine.values()], colour(term)))
        notes = [
            {
                "x": 0.02,
                "y": 1.0,
                "xref": "paper",
                "yref": "paper",
                "text": plain(short(t)),
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "top",
                "yshift": -17 * i,
                "bgcolor": "@halo",
                "borderpad": 0,
                "font": {"size": TEXT_SIZE, "color": f"@ink-{colour(t)}"},
            }
            for i, t in enumerate(terms)
        ]
        x = log_axis("change of attention (KL), nats", *ends, most=4, showgrid=True)
        ground = layout(320, x, axis("rise of loss, nats", range=y_range, nticks=5), {"l": 70, "r": 14, "t": 8, "b": 52}, annotations=notes)
        panels.append(Panel(traces, ground, model, f"{model}: {count(len(points), 'point')}, one a head and term."))
    rows = [
        [text(m), seed_cell(h[0]), value(h[1]), value(h[2], str(h[2])), text(short(t)), *recorded(kl), *_fine(rise), value(rise.n or 0)]
        for m, points in found.items()
        for (h, t), (kl, rise) in points.items()
    ]
    columns = ["Model", "Seed", "Layer", "Head", "Term", "KL", "KL low", "KL high", "Rise of loss", "Low", "High", "Documents"]
    table = Table(
        "ablation-heads",
        "Every head and term: change of attention and rise of the loss, nats",
        columns,
        rows,
        frozenset({1, 2, 3, *range(5, 12)}),
    )
    subtitle = sample(
        "Each point is a head without one term: how far its attention moves, and how far the loss of masked words rises",
        documents(rise for _, rise in both),
        repeats([Point.between(rise.value, rise.low, rise.high) for _, rise in both], len(study.seeds)),
    )
    least = f" Changes below {number(SMALLEST)} nats stand at the left edge." if min(kl.value for kl, _ in both) < SMALLEST else ""
    records = ("kl.*: layer, head", "ablation.remove: layer, head, part")
    return Figure("ablation-heads", title, f"{subtitle}.{least}", panels, table, [], 320, even=True, records=records)


def _fine(record: Record) -> list[Cell]:
    """As `recorded`, with more digits: one head changes a loss little."""
    low, high = record.low, record.high
    return [
        value(record.value, number(record.value, low, high, 5)),
        Cell("" if low is None else fixed(low, 5), low),
        Cell("" if high is None else fixed(high, 5), high),
    ]


def totals(study: Study) -> Figure | None:
    """Rise of the loss without a term in any block, and with a stream left out, at its mean, or shuffled: a dot plot a model."""
    found: dict[str, dict[str, dict[str, Point]]] = {}
    for model in study.models:
        parts: dict[str, dict[str, Point]] = {}
        for kind in KINDS:
            for part in parts_of(study, f"ablation.{kind}", model):
                if (p := whole(study, f"ablation.{kind}", model, part)) is not None:
                    parts.setdefault(part, {})[kind] = p
        if parts:
            found[model] = dict(sorted(parts.items(), key=lambda item: not item[0].startswith(STREAM)))
    if not found:
        return None
    points = [p for parts in found.values() for kinds in parts.values() for p in kinds.values()]
    values = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    room = 0.06 * ((max([*values, 0.0]) - min([*values, 0.0])) or 1.0)
    bounds = (min([*values, 0.0]) - room, max([*values, 0.0]) + room)
    told = story(study, list(found))
    panels = [_dot_panel(m, parts, bounds) for m, parts in found.items()]
    subtitle = sample(
        "Rise of the loss of masked words, in nats, when a term of the scores or a stream is left out of every block, set to its mean over "
        "documents, or shuffled among positions",
        documents(r for m in found for kind in KINDS for part in found[m] for r in study.of(f"ablation.{kind}", m, part)),
        repeats(points, len(study.seeds)),
    )
    rows = []
    for m, parts in found.items():
        loss = whole(study, "ablation.loss", m)
        for part, kinds in parts.items():
            for kind, p in kinds.items():
                rows.append(
                    [
                        text(m),
                        text(name_of(part)),
                        text(KINDS[kind][0]),
                        *measured(p),
                        *(measured(loss)[:1]),
                        value(p.n) if p.n else Cell("–"),
                    ]
                )
    columns = ["Model", "Taken out", "How", "Rise", "Low", "High", "Loss before", "Documents"]
    table = Table("ablation", "Rise of the loss without a term or a stream, nats", columns, rows, frozenset(range(3, 8)))
    records = (*(f"ablation.{kind}: part" for kind in KINDS), "ablation.loss")
    key = [("measured", "measured, bar: 95\u202f% interval")]
    return Figure(
        "ablation", judged(study, told, price(told, found[told])), f"{subtitle}.", panels, table, key, 330, even=True, records=records
    )


def price(model: str, parts: Mapping[str, Mapping[str, Point]]) -> str:
    """What each stream costs when it is shuffled (else left out), or each term when it is left out."""
    streams = [p for p in parts if p.startswith(STREAM)]
    chosen = streams or list(parts)
    kind = next(
        (k for k in (("shuffle", "remove", "mean") if streams else ("remove", "mean", "shuffle")) if all(k in parts[p] for p in chosen)), ""
    )
    if not kind:
        kind = next(iter(parts[chosen[0]]))
    verb = {"shuffle": "Shuffling", "remove": "Leaving out", "mean": "Taking the mean of"}[kind]
    said = [
        f"{'the ' if p in streams else ''}{name_of(p) if p in streams else meaning(p)} {costs(parts[p][kind])}"
        for p in chosen
        if kind in parts[p]
    ]
    first, rest = said[0], said[1:]
    words = name_of(chosen[0]) if streams else meaning(chosen[0])
    first = first.replace(words, f"{words} costs `{model}`", 1)
    return f"{verb} {', '.join([first, *rest])}"


def _dot_panel(model: str, parts: Mapping[str, Mapping[str, Point]], bounds: tuple[float, float]) -> Panel:
    """Rows of dots, a heading above those of each term or stream."""
    traces: list[Trace] = []
    ticks: list[tuple[float, str]] = []
    notes = []
    y, said = 0.0, []
    for part, kinds in parts.items():
        notes.append(
            {
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "xshift": -76,
                "y": y,
                "yanchor": "middle",
                "text": f"<b>{plain(name_of(part))}</b>",
                "showarrow": False,
                "font": {"size": TEXT_SIZE, "color": f"@ink-{hue(part)}"},
            }
        )
        for kind, p in kinds.items():
            y += 1
            words = hover(f"{model}, {name_of(part)}", KINDS[kind][0], p, "rise of loss")
            shown = dots([p.value], [y], [hue(part)], [words], symbol=KINDS[kind][1])
            traces.append(shown | errors([p], hue(part), "x"))
            ticks.append((y, KINDS[kind][0]))
            said.append(f"{name_of(part)} {KINDS[kind][0]} {number(p.value, p.low, p.high, MOST_DIGITS)}")
        y += 1.3
    traces.insert(0, segments([(0.0, -0.6, 0.0, y - 0.6)], "muted", 1.0, "6px,5px"))
    ground = layout(
        round(24 * (y + 0.2)) + 58,
        axis("rise of loss, nats", range=list(bounds), nticks=5),
        axis("", range=[y - 0.6, -0.6], tickvals=[t for t, _ in ticks], ticktext=[w for _, w in ticks], showgrid=True),
        {"l": 78, "r": 14, "t": 6, "b": 52},
        annotations=notes,
    )
    return Panel(traces, ground, model, f"{model}: {', '.join(said)}.")
