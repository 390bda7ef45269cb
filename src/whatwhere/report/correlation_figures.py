"""Figures of words against positions in the first scores (TUPE figure 2), and of patterns over positions alone (TUPE 4.4, figure 6)."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..points import Point
from . import schemes
from .by_head import (
    arrays,
    bold,
    by_head,
    documents,
    dots,
    errors,
    judged,
    mean_of,
    parts_of,
    recorded,
    sample,
    seed_cell,
    seeds_drawn,
    size_cell,
    story,
    whole,
)
from .figures import Cell, Figure, Panel, Table, measured, text, value
from .findings import ABOVE, BELOW, against
from .load import Study
from .maps import heatmap, map_layout, thinned
from .numbers import count, interval, percent
from .style import axis, layout

HARDLY = 0.1  # share of the variance that words against positions may have and still "hardly correlate"
MOST_MODELS = 3  # whose maps are drawn; the table has all
MOST_MAP = 64  # rows and columns of a correlation map
MATRICES = {
    "word-word": "words with words",
    "word-position": "words with positions",
    "position-word": "positions with words",
    "position-position": "positions with positions",
}
PATTERNS = {"global": "far, not near", "local": "near", "broad": "everywhere", "previous": "before", "next": "after"}


def figures(study: Study) -> list[Figure]:
    """The four correlations of models with an added table, and the patterns of heads; empty without such records."""
    return [f for f in (correlations(study), patterns(study)) if f is not None]


def correlations(study: Study) -> Figure | None:
    """TUPE figure 2: the four products of words and positions in the first block's scores, mean over heads, on one scale a model."""
    found = {}
    for model in study.models:
        seed, held = arrays(study, "correlations", model)
        if all(k in held and held[k].ndim == 3 for k in MATRICES):
            found[model] = (seed, {k: np.nanmean(held[k], axis=0) for k in MATRICES})
    if not found:
        return None
    told = story(study, list(found))
    drawn = [told, *(m for m in found if m != told)][:MOST_MODELS]
    panels = []
    rows: list[list[Cell]] = []
    for model in drawn:
        maps = found[model][1]
        extent = max(float(np.nanmax(np.abs(m))) for m in maps.values()) or 1.0
        for kind, full in maps.items():
            kept = thinned(len(full), MOST_MAP if len(drawn) <= 2 else MOST_MAP // 2)
            small = full[np.ix_(kept, kept)]
            hover = f"{MATRICES[kind]}<br>query %{{y}}, key %{{x}}: %{{z:.3f}}"
            trace = heatmap(small, kept, kept, hover, (-extent, extent), signed=True)
            share = mean_of([r.value for r in by_head(study, "correlation.share", model, kind).values()])
            words = f"{MATRICES[kind]}{f', {percent(share.value)} of the variance' if share else ''}"
            title = MATRICES[kind].capitalize() if len(drawn) == 1 else f"{model}: {MATRICES[kind]}"
            ground = map_layout(330, "key", "query" if kind == "word-word" else "", square=True, left=52 if kind == "word-word" else 38)
            if kind != "position-position":  # one scale of the four, so one bar
                trace["showscale"] = False
                ground["margin"] |= {"r": 8}
            panels.append(Panel([trace], ground, title, f"{model}: {words}.", percent(share.value) if share else ""))
    models = [m for m in study.models if parts_of(study, "correlation.share", m)]
    records_ = []
    for model in models:
        for kind in parts_of(study, "correlation.share", model):
            for head, r in by_head(study, "correlation.share", model, kind).items():
                rest = [by_head(study, f"correlation.{what}", model, kind).get(head) for what in ("row", "column", "std")]
                rows.append(
                    [text(model), seed_cell(head[0]), value(head[2], str(head[2])), text(MATRICES.get(kind, kind)), *recorded(r)]
                    + [value(o.value) if o else Cell("–") for o in rest]
                    + [size_cell(r)]
                )
                records_.append(r)
    if not rows:
        rows = [
            [text(m), seed_cell(s), Cell("–"), text(MATRICES[k]), *[Cell("–")] * 6, Cell("–")]
            for m, (s, maps) in found.items()
            for k in maps
        ]
    subtitle = sample(
        "The four parts of the scores of the first block where a position is added to a word (TUPE, equation 6), mean over heads and "
        "documents, on one scale a model with zero in the middle; beside the names, each part's share of the variance within a document, "
        "mean over heads",
        documents(records_),
    )
    columns = [
        "Model",
        "Seed",
        "Head",
        "Part",
        "Share",
        "Low",
        "High",
        "Between rows",
        "Between columns",
        "Standard deviation",
        "Documents",
    ]
    table = Table(
        "correlations", "Variance of the four parts of the first block's scores, by head", columns, rows, frozenset({1, 2, *range(4, 11)})
    )
    seed = found[told][0]
    some = f" Drawn: {len(drawn)} of {len(found)} models; the table has all." if len(drawn) < len(found) else ""
    records = ("arrays/correlations-*.npz", *(f"correlation.{what}: head, part" for what in ("share", "row", "column", "std")))
    return Figure(
        "correlations",
        judged(study, told, correlate(study, told)),
        f"{subtitle}.{some}{seeds_drawn(study, seed)}",
        panels,
        table,
        [],
        236,
        records=records,
    )


def correlate(study: Study, model: str) -> str:
    """Do words and positions correlate? Share of the variance of both mixed parts together, mean over heads.

    Hardly: the interval over heads lies below `HARDLY`; they do: above it; else not separable.
    """
    mixed = [by_head(study, "correlation.share", model, kind) for kind in ("word-position", "position-word")]
    share = mean_of([mixed[0][h].value + mixed[1][h].value for h in mixed[0] if h in mixed[1]])
    if share is None:
        return f"Words and positions in the first scores of `{model}`"
    bounds = f" {interval(100 * share.low, 100 * share.high, 1)}" if share.low is not None and share.high is not None else ""
    words = f"{percent(share.value)}{bounds} of the variance of the first scores"
    if against(share, HARDLY) == BELOW:
        return f"Words and positions hardly correlate in `{model}`: {words}"
    if against(share, HARDLY) == ABOVE:
        return f"Words and positions correlate in `{model}`: {words}"
    return f"Not separable from {percent(HARDLY, 0)} how far words and positions correlate in `{model}`: {words}"


def patterns(study: Study) -> Figure | None:
    """TUPE 4.4: how many heads show each of five patterns over positions, whatever the words; a dot plot a model."""
    found = {m: {k: p for k in PATTERNS if (p := whole(study, "patterns.share", m, k)) is not None} for m in study.models}
    found = {m: p for m, p in found.items() if p}
    if not found:
        return None
    panels, rows = [], []
    for model, shares in found.items():
        names = [PATTERNS[k] for k in shares]
        points = list(shares.values())
        words = [f"{bold(model)}<br>{PATTERNS[k]}: {_heads(p)}" for k, p in shares.items()]
        shown = dots([p.value for p in points], list(range(len(points))), ["untied"] * len(points), words) | errors(points, "untied", "x")
        stem = {
            "type": "bar",
            "orientation": "h",
            "x": [p.value for p in points],
            "y": list(range(len(points))),
            "width": 0.12,
            "marker": {"color": "@untied"},
            "opacity": 0.5,
            "hoverinfo": "skip",
        }
        ground = layout(
            26 * len(points) + 62,
            axis("share of heads", range=[-0.02, 1.04], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%"),
            axis("", range=[len(points) - 0.4, -0.6], tickvals=list(range(len(points))), ticktext=names, showgrid=False),
            {"l": 104, "r": 16, "t": 6, "b": 50},
        )
        said = ", ".join(f"{PATTERNS[k]} {_heads(p)}" for k, p in shares.items())
        panels.append(Panel([stem, shown], ground, model, f"{model}: {said}."))
        rows += [[text(model), text(PATTERNS[k]), *measured(p), value(p.n) if p.n else Cell("–")] for k, p in shares.items()]
    told = next((m for m in found if schemes.family(study, m) == "untied"), story(study, list(found)))
    subtitle = sample(
        "Heads by the pattern of their scores over positions alone, without words (TUPE 4.4), as a share of all heads of a model",
        _counted([p for shares in found.values() for p in shares.values()], len(study.seeds)),
    )
    table = Table(
        "patterns", "Share of heads with each pattern", ["Model", "Pattern", "Share", "Low", "High", "Heads"], rows, frozenset({2, 3, 4, 5})
    )
    title = judged(study, told, shows(told, found[told]))
    return Figure(
        "patterns", title, f"{subtitle}.", panels, table, [], 290, even=True, records=("patterns.share: part", "pattern: layer, head, part")
    )


def _heads(p: Point) -> str:
    return f"{percent(p.value, 0)}" + (f" of {count(p.n, 'head')}" if p.n else "")


def _counted(points: Sequence[Point], seeds: int) -> str:
    sizes = sorted({p.n for p in points if p.n})
    n = f"n = {sizes[0]}" + (f" to {sizes[-1]}" if len(sizes) > 1 else "") + " heads" if sizes else ""
    return "; ".join(piece for piece in (n, count(seeds, "training seed") if seeds else "") if piece)


def shows(model: str, shares: Mapping[str, Point]) -> str:
    """Which of the five patterns a model shows: those of at least one head, in every training seed's mean."""
    seen = sorted((k for k, p in shares.items() if p.value > 0), key=lambda k: -shares[k].value)
    absent = [k for k in shares if k not in seen]
    if not seen:
        return f"`{model}` shows none of the five patterns over positions"
    said = ", ".join(
        f"{percent(shares[k].value, 0)} look {PATTERNS[k]}" if i == 0 else f"{percent(shares[k].value, 0)} {PATTERNS[k]}"
        for i, k in enumerate(seen)
    )
    rest = f", none {' or '.join(PATTERNS[k] for k in absent)}" if absent else ""
    return f"`{model}` shows {len(seen)} of the five patterns over positions: of its heads {said}{rest}"
