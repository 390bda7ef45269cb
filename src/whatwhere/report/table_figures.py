"""Figures of the position tables (DSTG section 4 (1), B.1): their map, their spectrum, how slow their components are."""

from collections.abc import Collection, Iterable

import numpy as np

from ..papers import DSTG_TABLES
from ..points import Point
from . import findings, schemes
from .figures import Cell, Figure, Panel, Table, Trace, of_array, paper_marks, text, value
from .layer_panels import groups, share_axis, styles
from .load import Study
from .numbers import count, fixed, number, percent
from .style import TEXT_SIZE, axis, label_margin, layout, line_end_labels, plain
from .training_figures import stuck_models

# DSTG section 4 (1): share of the first two components, power of components 1 and 2 in the four lowest DCT bins.
# For its `ap` it says "under 0.2 %", which is a bound and no value to draw.
PAPER_TOP2 = {model: v for (metric, model, _), v in DSTG_TABLES.items() if metric == "pca.top2"}
PAPER_LOW4 = {"dstg": (DSTG_TABLES["dct.low4", "dstg", 0], DSTG_TABLES["dct.low4", "dstg", 1])}
NAME_EVERY = 16
MOST_COMPONENTS = 16
NAME_HEIGHTS = (0.66, 0.44, 0.22)  # of the names of components 1, 2, 3 on their lines
DASHES = ("solid", "6px,4px", "2px,3px")


def first_seed(study: Study) -> dict[str, tuple[int | None, dict[str, np.ndarray]]]:
    """Model -> (seed, arrays): components of different seeds have no common axes, so one seed is drawn, the lowest."""
    found: dict[str, tuple[int | None, dict[str, np.ndarray]]] = {}
    for (model, seed), arrays in sorted(study.tables.items(), key=lambda item: -1 if item[0][1] is None else item[0][1]):
        found.setdefault(model, (seed, arrays))
    order = {m: i for i, m in enumerate(study.models)}
    return dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def _shares(study: Study, model: str) -> list[Point]:
    """Shares of variance of the components in order: all of them from the arrays (mean over seeds), else those recorded."""
    kept = [a["shares"] for (m, _), a in study.tables.items() if m == model and "shares" in a]
    if kept and all(k.shape == kept[0].shape and k.ndim == 1 for k in kept):
        return [Point.of(of_seeds[:, None]) for of_seeds in np.array(kept).T]
    shares: list[Point] = []
    while (point := study.point("pca.share", model, index=len(shares))) is not None:
        shares.append(point)
    return shares


def drawn(study: Study, seeds: Iterable[int | None]) -> str:
    """Which training seeds a figure draws, as a sentence; nothing for tables that no training of ours made."""
    known = sorted({seed for seed in seeds if seed is not None})
    if not known:
        return ""
    rest = f" of {count(len(study.seeds), 'training seed')}" if len(study.seeds) > 1 else ", the only training seed"
    return " Drawn: " + ", ".join(f"seed {seed}{rest}" for seed in known) + "."


def top2(study: Study) -> dict[str, Point]:
    """Model -> share of variance in the first two components of its position table."""
    found = {m: study.point("pca.top2", m) for m in study.models}
    return {m: p for m, p in found.items() if p is not None}


def _story(study: Study, models: list[str]) -> str:
    """The table to tell of: `dstg`'s, else the first that is learned."""
    named = study.named("dstg")
    return named if named in models else next((m for m in models if not schemes.fixed_table(study, m)), models[0])


def _judged(study: Study, models: list[str], title: str) -> str:
    """The title, or only its numbers if the model it speaks of has not left the unigram plateau."""
    name = _story(study, models)
    return findings.untestable(name, title) if name in stuck_models(study) else title


def table_map(study: Study) -> Figure | None:
    """PCA map of every position table, points joined in order, every 16th named; below, its components along positions."""
    found = {m: arrays for m, (_, arrays) in first_seed(study).items()}
    tables = {
        m: (s, a["scores"])
        for m, (s, a) in first_seed(study).items()
        if "scores" in a and a["scores"].ndim == 2 and a["scores"].shape[1] >= 2
    }
    if not tables:
        return None
    dense = len(tables) > schemes.FEW
    every = NAME_EVERY * (2 if dense else 1)
    panels, rows = [], []
    alone = {m: {int(i) for i in found[m].get("outliers", ())} for m in tables}
    for model, (seed, scores) in tables.items():
        shares = [study.point("pca.share", model, index=i) for i in (0, 1)]
        names = [f"component {i + 1}" + (f" ({percent(p.value)})" if p else "") for i, p in enumerate(shares)]
        note = schemes.table_note(study, model)
        words = f"Map of {len(scores)} positions of {model}, joined in order."
        panels.append(Panel(path(scores, every, alone[model]), path_layout(scores, names, every, dense, alone[model]), model, words, note))
        rows += [
            [text(model), value(seed, "–" if seed is None else str(seed)), value(i, str(i))]
            + [of_array(float(v), fixed(float(v), 4)) for v in row[:3]]
            + [Cell("")] * (3 - len(row[:3]))
            for i, row in enumerate(scores)
        ]
    panels += [_curves_panel(model, scores, dense) for model, (_, scores) in tables.items()]
    shares2 = {m: p for m, p in top2(study).items() if m in tables}
    title = (
        _judged(study, list(shares2), findings.plane(shares2, _story(study, list(shares2))))
        if shares2
        else "The position tables, first two principal components"
    )
    rings = any(alone.values())
    paper = [f"{percent(PAPER_TOP2[schemes.preset(study, m)])} in `{m}`" for m in tables if schemes.preset(study, m) in PAPER_TOP2]
    subtitle = (
        "The position table of each model on its first two principal components; one point a position, joined in order, "
        f"every {every}th named, later positions darker{', those that stand alone ringed' if rings else ''}. "
        "Below, components 1 (solid), 2 (dashed) and 3 (dotted) along the positions." + drawn(study, [seed for seed, _ in tables.values()])
    ) + (f" The paper's two components hold {' and '.join(paper)}." if paper else "")
    table = Table(
        "map",
        "Scores of every position",
        ["Model", "Seed", "Position", "Component 1", "Component 2", "Component 3"],
        rows,
        frozenset(range(1, 6)),
    )
    return Figure(
        "table-map", title, subtitle, panels, table, width=230 if dense else 420, even=dense, records=("arrays/*.npz", "pca.top2")
    )


def path(scores: np.ndarray, every: int, alone: Collection[int] = ()) -> list[Trace]:
    """Positions (n, 2 or more) in the plane of the first two columns, joined in order; those that stand `alone` ringed."""
    n = len(scores)
    named = [i for i in range(n) if i % every == 0]
    x, y = [round(float(v), 5) for v in scores[:, 0]], [round(float(v), 5) for v in scores[:, 1]]
    points = {"type": "scatter", "x": x, "y": y}
    return [
        points | {"mode": "lines", "line": {"color": "@absolute", "width": 1}, "opacity": 0.35, "hoverinfo": "skip"},
        points
        | {
            "mode": "markers",
            "marker": {
                "size": [9 if i in named else 5 for i in range(n)],
                "color": "@absolute",
                "opacity": [0.25 + 0.75 * i / max(1, n - 1) for i in range(n)],
            },
            "hovertext": [f"position {i}" for i in range(n)],
            "hoverinfo": "text",
        },
        *_rings(x, y, sorted(alone)),
    ]


def _rings(x: list[float], y: list[float], alone: list[int]) -> list[Trace]:
    if not alone:
        return []
    ring = {"size": 15, "symbol": "circle-open", "color": "@text", "line": {"width": 1.4, "color": "@text"}}
    at = {"x": [x[i] for i in alone], "y": [y[i] for i in alone]}
    return [{"type": "scatter", "mode": "markers", **at, "marker": ring, "hoverinfo": "skip"}]


def path_layout(scores: np.ndarray, names: list[str], every: int, dense: bool, alone: Collection[int] = ()) -> dict[str, object]:
    """Equal scales on both axes; the names of points, every so many and those `alone`, are pushed away from the middle of the map."""
    middle = scores[:, :2].mean(axis=0)
    notes = []
    for i in sorted({*range(0, len(scores), every), *alone}):
        away = scores[i, :2] - middle
        away = away / (float(np.hypot(*away)) or 1.0)
        notes.append(
            {
                "x": float(scores[i, 0]),
                "y": float(scores[i, 1]),
                "ax": float(away[0]) * 20,
                "ay": float(-away[1]) * 17,
                "text": str(i),
                "showarrow": True,
                "arrowhead": 0,
                "arrowwidth": 0.5,
                "arrowcolor": "rgba(0,0,0,0)",
                "bgcolor": "@halo",
                "borderpad": 0,
                "font": {"size": TEXT_SIZE, "color": "@ink-absolute"},
            }
        )
    # Room for the names: a tenth of the larger extent on each side.
    low, high = scores[:, :2].min(axis=0), scores[:, :2].max(axis=0)
    room = 0.11 * float((high - low).max() or 1.0)
    x = axis(
        names[0],
        range=[float(low[0]) - room, float(high[0]) + room],
        nticks=4 if dense else 6,
        constrain="domain",
        zeroline=True,
        zerolinecolor="@grid",
    )
    y = axis(
        names[1],
        range=[float(low[1]) - room, float(high[1]) + room],
        nticks=4 if dense else 6,
        scaleanchor="x",
        constrain="domain",
        zeroline=True,
        zerolinecolor="@grid",
    )
    return layout(280 if dense else 430, x, y, {"l": 62, "r": 12, "t": 8, "b": 52}, annotations=notes)


def spectrum(study: Study) -> Figure | None:
    """Cumulative share of variance by number of components, with the paper's share of two; many tables: a panel a family."""
    shares = {m: s for m in study.models if (s := _shares(study, m))}
    if not shares:
        return None
    columns = {m: len(s) for m, s in shares.items()}
    totals = {m: np.cumsum([p.value for p in points]) for m, points in shares.items()}
    reached = {m: next((i + 1 for i, t in enumerate(total) if t >= 0.95 - 1e-12), None) for m, total in totals.items()}
    most = min(MOST_COMPONENTS, max(columns.values()))
    dense = len(shares) > schemes.FEW
    right = label_margin(list(shares))
    if dense:
        tables = [
            (g.title, [m for m, _ in g.lines]) for g in groups(study, [(m, "position" if _streamed(study, m) else "all") for m in shares])
        ]
    else:
        tables = [("", list(shares))]
    panels = [_spectrum_panel(study, title, {m: totals[m] for m in models}, most, right, dense) for title, models in tables]
    rows = []
    for model, points in shares.items():
        published = PAPER_TOP2.get(schemes.preset(study, model))
        rows += [
            [
                text(model),
                text(schemes.table_note(study, model)),
                value(i + 1, str(i + 1)),
                value(p.value, percent(p.value, 2)),
                value(float(totals[model][i]), percent(float(totals[model][i]), 2)),
                value(published, percent(published)) if i == 1 and published is not None else Cell(""),
            ]
            for i, p in enumerate(points)
        ]
    some = next(iter(shares.values()))[0]
    over = f"; mean of {count(some.seeds, 'training seed')}" if some.seeds > 1 else "; one training seed" if study.seeds else ""
    widths = sorted(set(columns.values()))
    sizes = f"{widths[0]} to {widths[-1]}" if dense else ", ".join(f"`{m}` {k}" for m, k in columns.items())
    subtitle = (
        f"Cumulative share of the variance of each position table by its first components{over}. Components in all: {sizes}; "
        "a table with few columns fills its space with few components."
    )
    if still := [f"`{m}`" for m in shares if schemes.fixed_table(study, m)]:
        subtitle += f" Fixed, not learned: {', '.join(still)}."
    if any(schemes.preset(study, m) in PAPER_TOP2 for m in shares):
        subtitle += " Hollow markers: the paper's share of two components (48 columns in `dstg`, 720 in `ap`)."
    table = Table(
        "spectrum",
        "Share of variance of every component",
        ["Model", "Table", "Component", "Share", "Cumulative", "Paper"],
        rows,
        frozenset(range(2, 6)),
    )
    title = _judged(study, list(shares), findings.needed(reached, columns))
    return Figure(
        "table-spectrum",
        title,
        subtitle,
        panels,
        table,
        width=250 if dense else 280,
        even=dense,
        records=("pca.share: index, step", "arrays/*.npz"),
    )


def _streamed(study: Study, model: str) -> bool:
    return schemes.family(study, model) == "streams"


def _spectrum_panel(study: Study, title: str, totals: dict[str, np.ndarray], most: int, right: int, dense: bool) -> Panel:
    marks = styles(study)
    traces: list[Trace] = []
    ends = []
    for model, total in totals.items():
        dash, symbol = marks[model]
        xs, ys = list(range(1, min(most, len(total)) + 1)), [float(t) for t in total[:most]]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": xs,
                "y": ys,
                "line": {"color": "@absolute", "dash": dash, "width": 2.2},
                "marker": {"symbol": symbol, "size": 7, "color": "@absolute"},
                "hovertext": [
                    f"<b>{plain(model)}</b><br>{x} of {len(total)} components: {percent(y)}" for x, y in zip(xs, ys, strict=True)
                ],
                "hoverinfo": "text",
            }
        )
        ends.append((float(xs[-1]), ys[-1], model, "absolute"))
        if (published := PAPER_TOP2.get(schemes.preset(study, model))) is not None:
            traces.append(paper_marks({2.0: published}, "absolute", symbol, model, {2.0: "two components"}, "share"))
    height, margin = 240 if dense else 340, {"l": 62, "r": right, "t": 18, "b": 52}
    bounds = (0.0, 1.05)
    plot = layout(
        height,
        axis(
            "components" if dense else "number of components",
            range=[0.6, most + 0.4],
            tickvals=[i for i in (1, 2, 4, 8, 12, 16) if i <= most and not (dense and i in (2, 12))],
            showgrid=False,
        ),
        share_axis("" if dense else "share of variance", bounds, (0, 0.5, 1) if dense else (0, 0.25, 0.5, 0.75, 1)),
        margin,
        annotations=line_end_labels(ends, bounds, height - margin["t"] - margin["b"]),
    )
    return Panel(traces, plot, title, f"Cumulative variance by component: {', '.join(totals)}.")


def frequencies(study: Study) -> Figure | None:
    """Cumulative DCT-II power of the first three components of every table, by frequency bin."""
    tables = {
        m: (s, a["dct_power"])
        for m, (s, a) in first_seed(study).items()
        if "dct_power" in a and a["dct_power"].ndim == 2 and a["dct_power"].shape[1] > 1
    }
    if not tables:
        return None
    panels: list[Panel] = []
    rows: list[list[Cell]] = []
    low4: dict[str, list[float]] = {}
    dense = len(tables) > schemes.FEW
    for model, (_, power) in tables.items():
        power = power[:3]
        total = np.cumsum(power, axis=1)
        bins = power.shape[1]
        recorded = [study.point("dct.low4", model, index=i) for i in range(len(power))]
        if len(recorded) > 1 and all(p is not None for p in recorded[:2]):
            low4[model] = [p.value for p in recorded[:2] if p is not None]
        traces: list[Trace] = [_low_bins()]
        ends, names = [], []
        for i, row in enumerate(total):
            xs = list(range(1, bins + 1))
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": xs,
                    "y": [round(float(v), 6) for v in row],
                    "line": {"color": "@absolute", "dash": DASHES[i], "width": 2.2 if i < 2 else 1.6},
                    "hovertext": [
                        f"<b>component {i + 1}</b><br>lowest {x} of {bins} frequencies: {percent(float(v))}"
                        for x, v in zip(xs, row, strict=True)
                    ],
                    "hoverinfo": "text",
                }
            )
            ends.append(f"component {i + 1} {percent(float(row[min(3, bins - 1)]), 0)}")
            names.append(_name_on_line(str(i + 1), row, NAME_HEIGHTS[i]))
        if (published := PAPER_LOW4.get(schemes.preset(study, model))) is not None:
            for i, power_in_four in enumerate(published):
                traces.append(
                    paper_marks({4.0: power_in_four}, "absolute", "circle", f"component {i + 1}", {4.0: "four lowest frequencies"}, "power")
                )
        words = f"{model}: {', '.join(ends)} in the four lowest."
        panels.append(Panel(traces, _frequency_layout(bins, names, dense), model, words, schemes.table_note(study, model)))
        rows += [
            [text(model), value(k, str(k))]
            + [of_array(float(power[i, k]), percent(float(power[i, k]), 2)) if i < len(power) else Cell("") for i in range(3)]
            for k in range(bins)
        ]
    title = (
        _judged(study, list(low4), findings.slow(low4, _story(study, list(low4)))) if low4 else "Power of the first components by frequency"
    )
    paper = [f"{percent(v[0])} and {percent(v[1])} for `{m}`" for m in tables if (v := PAPER_LOW4.get(schemes.preset(study, m)))]
    subtitle = (
        "Cumulative power of the type-II cosine transform of components 1 to 3 over positions, lowest frequencies first, "
        "four lowest shaded." + drawn(study, [seed for seed, _ in tables.values()])
    ) + (f" Hollow: the paper's components 1 and 2, {'; '.join(paper)}." if paper else "")
    table = Table(
        "frequencies",
        "Power of every frequency",
        ["Model", "Frequency", "Component 1", "Component 2", "Component 3"],
        rows,
        frozenset(range(1, 5)),
    )
    return Figure(
        "table-frequencies",
        title,
        subtitle,
        panels,
        table,
        width=230 if dense else 360,
        even=dense,
        records=("arrays/*.npz", "dct.low4: index"),
    )


def _low_bins() -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [1, 4, 4, 1, 1],
        "y": [0, 0, 1.05, 1.05, 0],
        "fill": "toself",
        "fillcolor": "@band-combined",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _frequency_layout(bins: int, names: list[dict[str, object]], dense: bool) -> dict[str, object]:
    ticks = [2**k for k in range(0, 14, 2 if dense else 1) if 2**k <= bins]
    return layout(
        220 if dense else 280,
        axis(
            "number of lowest frequencies",
            type="log",
            range=[-0.04, float(np.log10(bins)) + 0.03],
            tickvals=ticks,
            ticktext=[number(t) for t in ticks],
            showgrid=False,
        ),
        axis("power", range=[0, 1.05], tickvals=[0, 0.5, 1], ticktext=[percent(v, 0) for v in (0, 0.5, 1)]),
        {"l": 62, "r": 14, "t": 8, "b": 52},
        annotations=names,
    )


def _name_on_line(name: str, row: np.ndarray, height: float) -> dict[str, object]:
    """The name of a component, set on its line where the line passes `height`; each component has its own height."""
    after = int(np.searchsorted(row, height))
    k = min(max(after, 1), len(row) - 1)
    low, high = float(row[k - 1]), float(row[k])
    share = (height - low) / (high - low) if high > low else 0.0
    x = (1 - share) * np.log10(k) + share * np.log10(k + 1)
    return {
        "x": float(x),
        "y": min(max(height, low), max(high, low)),
        "text": name,
        "showarrow": False,
        "bgcolor": "@surface",
        "borderpad": 1,
        "font": {"size": TEXT_SIZE, "color": "@ink-absolute"},
    }


def _curves_panel(model: str, scores: np.ndarray, dense: bool) -> Panel:
    """The first three components as curves over positions."""
    extent = float(np.abs(scores).max() or 1.0) * 1.08
    shown = range(min(3, scores.shape[1]))
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": list(range(len(scores))),
            "y": [round(float(v), 5) for v in scores[:, i]],
            "line": {"color": "@absolute", "dash": DASHES[i], "width": 2.2 if i < 2 else 1.6},
            "hovertext": [f"component {i + 1}, position {k}" for k in range(len(scores))],
            "hoverinfo": "text",
        }
        for i in shown
    ]
    ends = [(float(len(scores) - 1), float(scores[-1, i]), str(i + 1), "absolute") for i in shown]
    height, margin = 180 if dense else 240, {"l": 62, "r": 12 if dense else 52, "t": 8, "b": 52}
    plot = layout(
        height,
        axis("position", range=[-1, len(scores)], nticks=4 if dense else 6, showgrid=False),
        axis("score", range=[-extent, extent], nticks=3 if dense else 5, zeroline=True, zerolinecolor="@rule"),
        margin,
        annotations=[] if dense else line_end_labels(ends, (-extent, extent), height - margin["t"] - margin["b"]),
    )
    return Panel(traces, plot, f"{model}, along the text", f"Components of {model} over {len(scores)} positions.")


def figures(study: Study) -> list[Figure]:
    """All that the run has of: map, spectrum, frequencies."""
    return [f for f in (table_map(study), spectrum(study), frequencies(study)) if f is not None]
