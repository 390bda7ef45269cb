"""Figures of E·Eᵀ, the inner products of a table's positions, and of how far they depend on distance alone (LOWDIM figure 3)."""

import numpy as np

from .figures import Cell, Figure, Panel, Table, Trace, reference, text, value
from .load import Study
from .maps import heatmap, map_layout
from .numbers import count, number, percent
from .spectra_figures import SOME, arrays_of, dense_in, few, seed_of
from .style import axis, label_margin, layout, line_end_labels, model_styles, plain

MOSTLY = 0.5  # share of E·Eᵀ from which it is said to depend on distance


def products(study: Study) -> Figure | None:
    """E·Eᵀ from the first components and from all (LOWDIM figure 3)."""
    tables = arrays_of(study, "products")
    if not tables:
        return None
    panels, rows = [], []
    for model, (_, arrays) in tables.items():
        pictures, counts = arrays["products"], [int(k) for k in arrays["products_of"]]
        at = arrays["rows"].astype(int)
        chosen = list(range(len(counts))) if len(tables) <= 2 else [0, len(counts) - 1] if not dense_in(tables) else [len(counts) - 1]
        step = 2 if len(tables) > 2 and len(at) > 48 else 1
        low, high = (float(v) for v in np.quantile(pictures[-1], [0.01, 0.99]))
        high = high if high > low else low + 1.0
        kept = [int(i) for i in at[::step]]
        for k in dict.fromkeys(chosen):
            trace = heatmap(pictures[k][::step, ::step], kept, kept, "positions %{y} and %{x}: %{z:.3g}", (low, high))
            of = "all" if k == len(counts) - 1 else count(counts[k], "component")
            plot = map_layout(310, "position", "position", square=True)
            panels.append(Panel([trace], plot, f"{model}, {of}", f"Inner products of positions of {model} from {of}."))
        rows += [
            [text(model), value(int(at[i]), str(at[i])), value(int(at[j]), str(at[j]))]
            + [value(float(pictures[-1][i, j]), number(float(pictures[-1][i, j])))]
            for i in range(0, len(at), max(1, len(at) // 16))
            for j in range(i, len(at), max(1, len(at) // 16))
        ]
    subtitle = (
        "Inner products of all pairs of position vectors, the table not centred, from its mean and the first components and from all. "
        "Colours end at the 1st and 99th percentile of the whole table's." + seed_of(study, tables)
    )
    table = Table(
        "products", "Inner products of some pairs", ["Model", "Position", "Position ", "Inner product"], rows, frozenset({1, 2, 3})
    )
    return Figure(
        "table-products",
        _picture_title(study, list(tables)),
        subtitle,
        panels,
        table,
        width=300,
        even=True,
        behind=SOME,
    )


def _picture_title(study: Study, models: list[str]) -> str:
    """How much of E·Eᵀ distance explains from two components alone and from all."""
    said = []
    for model in models:
        two, whole = study.point("equivariance.first", model, index=2), study.point("equivariance", model)
        if two and whole:
            said.append(f"{percent(two.value, 0)} in `{model}`, from all {percent(whole.value, 0)}")
    return f"Distance explains the inner products from two components by {few(said)}" if said else "Inner products of positions"


def _title(study: Study, models: list[str]) -> str:
    """Does E·Eᵀ depend on distance? Mostly from `MOSTLY` on, in part where it is at least above the null, else not."""
    said: dict[str, list[str]] = {}
    for model in models:
        point, null = study.point("equivariance", model), study.point("equivariance.null", model)
        if point and null:
            above = point.value > (null.high if null.high is not None else null.value)
            verb = "depend on distance" if above and point.value >= MOSTLY else "depend in part" if above else "do not depend on it"
            said.setdefault(verb, []).append(f"`{model}` ({percent(point.value, 0)}, shuffled {percent(null.value, 0)})")
    return "Inner products of positions " + few([f"{verb} in {few(names, 2).replace(';', ',')}" for verb, names in said.items()])


def equivariances(study: Study) -> Figure | None:
    """Equivariance of every table with its null, and of its first components (LOWDIM figure 3 as numbers)."""
    tables = [m for m in study.models if study.point("equivariance", m)]
    if not tables:
        return None
    traces: list[Trace] = []
    rows = []
    for i, model in enumerate(tables):
        point, null = study.point("equivariance", model), study.point("equivariance.null", model)
        assert point is not None
        if null is not None:
            ends = [null.low if null.low is not None else null.value, null.high if null.high is not None else null.value]
            traces.append(
                reference(ends, [i, i], f"{plain(model)}, shuffled positions: {number(null.value)}", "solid")
                | {"line": {"color": "@muted", "width": 6}}
            )
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "x": [null.value],
                    "y": [i],
                    "marker": {"symbol": "line-ns-open", "size": 12, "color": "@muted"},
                    "hoverinfo": "skip",
                }
            )
        mark = {"size": 10, "color": "@absolute"}
        words = [f"<b>{plain(model)}</b><br>{number(point.value)}"]
        traces.append(
            {"type": "scatter", "mode": "markers", "x": [point.value], "y": [i], "marker": mark, "hovertext": words, "hoverinfo": "text"}
        )
        firsts = sorted(r.index for r in study.of("equivariance.first", model) if r.index is not None and r.step is None)
        rows.append(
            [
                text(model),
                text("all"),
                value(point.value),
                *([value(v) for v in (null.value, null.low, null.high)] if null else [Cell("")] * 3),
            ]
        )
        rows += [
            [text(model), value(k, f"first {k}"), value(p.value), Cell(""), Cell(""), Cell("")]
            for k in dict.fromkeys(firsts)
            if (p := study.point("equivariance.first", model, index=k))
        ]
    margin = {"l": label_margin(tables, 20), "r": 16, "t": 8, "b": 52}
    dots = layout(
        60 + 34 * len(tables),
        axis("share explained", range=[-0.03, 1.03], tickvals=[0, 0.5, 1], ticktext=[percent(v, 0) for v in (0, 0.5, 1)]),
        axis(
            "", range=[len(tables) - 0.5, -0.5], tickvals=list(range(len(tables))), ticktext=[plain(m, 18) for m in tables], showgrid=False
        ),
        margin,
    )
    panels = [Panel(traces, dots, "The whole table", "Equivariance of every table and of its shuffled rows.")]
    if not dense_in(dict.fromkeys(tables)):
        panels.append(_first_components(study, tables))
    subtitle = (
        "Share of the variance of the entries of E·Eᵀ that the nearest Toeplitz matrix explains. Grey: the same rows in 99 random orders, "
        "the middle 95 of 100; it is not zero, for the diagonal stays the diagonal."
    )
    table = Table(
        "equivariance",
        "Translation equivariance",
        ["Model", "Components", "Share explained", "Shuffled", "Low", "High"],
        rows,
        frozenset({2, 3, 4, 5}),
    )
    return Figure("table-equivariance", _title(study, tables), subtitle, panels, table, width=330)


def _first_components(study: Study, tables: list[str]) -> Panel:
    marks = model_styles(tables)
    traces: list[Trace] = []
    ends = []
    for model in tables:
        firsts = sorted({r.index for r in study.of("equivariance.first", model) if r.index is not None and r.step is None})
        found = [(k, p.value) for k in firsts if (p := study.point("equivariance.first", model, index=k))]
        if not found:
            continue
        dash, symbol = marks[model]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "x": [k for k, _ in found],
                "y": [v for _, v in found],
                "line": {"color": "@absolute", "dash": dash, "width": 2.2},
                "marker": {"symbol": symbol, "size": 7, "color": "@absolute"},
                "hovertext": [f"<b>{plain(model)}</b><br>first {k}: {percent(v)}" for k, v in found],
                "hoverinfo": "text",
            }
        )
        ends.append((float(np.log10(found[-1][0])), found[-1][1], model, "absolute"))
    margin = {"l": 62, "r": label_margin(tables), "t": 14, "b": 52}
    plot = layout(
        260,
        axis("first components", type="log", range=[-0.05, 2.05], tickvals=[1, 3, 10, 30, 100]),
        axis("share explained", range=[0, 1.15], tickvals=[0, 0.5, 1], ticktext=[percent(v, 0) for v in (0, 0.5, 1)]),
        margin,
        annotations=line_end_labels(ends, (0, 1.15), 260 - margin["t"] - margin["b"]),
    )
    return Panel(traces, plot, "Its first components", "Equivariance by number of components.")
