"""Figures of position tables on their own (LOWDIM figures 1, 2, 4-7): shares beside words, score maps, rotations, Fourier magnitudes.

They read a `Study` whose tables hold the arrays of `analysis.tables.table_arrays`; the map, the cumulative spectrum and the cosine
transform are those of `table_figures`, E·Eᵀ is in `equivariance_figures`. Titles are findings by the rules in the docstrings.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import schemes
from .figures import Cell, Figure, Panel, Table, Trace, text, value
from .load import Study
from .maps import heatmap, map_layout, rounded, thinned
from .numbers import count, fixed, number, percent
from .style import TEXT_SIZE, axis, layout, plain
from .table_figures import NAME_EVERY, drawn, first_seed, path, path_layout

LISTED, LISTED_ROWS = 100, 64  # components and positions of a data table
FEW_SCORES, ALL_SCORES = 14, 128  # components of the two score maps (LOWDIM figures 2 and 7)
LOWEST_SHARE = 1e-5  # of the axis of shares
SOME = "The table below holds some of the values."
ROW = 3  # panels that stand in one row at any width
PAIRS = 4  # rotations that are drawn of a table
NAMED_PEAKS = 4
COUNTED = 0.01  # share of the variance from which a component says how far the map of magnitudes goes
Words = Mapping[tuple[str, int | None], np.ndarray]  # (model, seed) -> shares of the components of its word table


def arrays_of(study: Study, key: str) -> dict[str, tuple[int | None, dict[str, np.ndarray]]]:
    """Model -> (seed, arrays) of the tables that are drawn and have this array."""
    return {m: found for m, found in first_seed(study).items() if key in found[1]}


def dense_in(found: Mapping[str, Any]) -> bool:
    """Whether the tables are too many for full panels."""
    return len(found) > schemes.FEW


def seed_of(study: Study, tables: Mapping[str, tuple[int | None, Any]]) -> str:
    """Which training seeds are drawn, as a sentence."""
    return drawn(study, [seed for seed, _ in tables.values()])


def six_digits(found: float) -> Cell:
    """A cell of a number with the six digits that a table can use."""
    return value(float(f"{found:.6g}"), number(float(found)))


def few(said: list[str], most: int = 3) -> str:
    """The first of what is said of each table, and how many more there are."""
    return "; ".join(said[:most]) + (f"; and {len(said) - most} more tables" if len(said) > most else "")


def shares(study: Study, words: Words) -> Figure | None:
    """Share of variance of every component, positions solid and words dashed (LOWDIM figure 1).

    The title gives N50 of the first table, and where words were read whether every table needs a smaller share of its components than
    its words do.
    """
    tables = arrays_of(study, "shares")
    if not tables:
        return None
    most = max(len(v) for v in [a["shares"] for _, a in tables.values()] + list(words.values()))
    low = float(np.log10(LOWEST_SHARE))
    ticks = [k for k in (1, 10, 100, 1000) if k <= most]
    panels, rows = [], []
    for model, (seed, arrays) in tables.items():
        others = [_share_line(a["shares"], "ghost", "solid", "", width=1) for m, (_, a) in tables.items() if m != model]
        lines = [("positions", "absolute", "solid", arrays["shares"])]
        if (model, seed) in words:
            lines.append(("words", "semantic", "6px,4px", words[model, seed]))
        traces = others + [_share_line(v, colour, dash, f"{model}, {name}") for name, colour, dash, v in lines]
        names = [
            {
                "x": 0,
                "y": float(np.log10(max(v[0], LOWEST_SHARE))),
                "text": name,
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "bottom",
                "font": {"size": TEXT_SIZE, "color": f"@ink-{colour}"},
            }
            for name, colour, _, v in lines
        ]
        plot = layout(
            260,
            axis("component", type="log", range=[-0.03, float(np.log10(most)) + 0.05], tickvals=ticks, ticktext=[number(t) for t in ticks]),
            axis(
                "share of variance",
                type="log",
                range=[low, 0.25],
                tickvals=[1, 1e-2, 1e-4],
                ticktext=[percent(1, 0), percent(1e-2, 0), percent(1e-4, 2)],
            ),
            {"l": 72, "r": 14, "t": 12, "b": 52},
            annotations=names,
        )
        panels.append(Panel(traces, plot, model, f"Share of variance by component of {model}.", schemes.table_note(study, model)))
        for name, _, _, v in lines:
            total = np.cumsum(v)
            rows += [
                [
                    text(model),
                    text(name),
                    value(k + 1, str(k + 1)),
                    value(float(v[k]), percent(float(v[k]), 2)),
                    value(float(total[k]), percent(float(total[k]), 2)),
                ]
                for k in range(min(LISTED, len(v)))
            ]
    table = Table(
        "shares",
        f"Share of variance, the first {LISTED} components",
        ["Model", "Table", "Component", "Share", "Cumulative"],
        rows,
        frozenset({2, 3, 4}),
    )
    subtitle = (
        "Share of the variance in each principal component, largest first, both axes logarithmic. "
        + ("Positions solid, words of the same model dashed. " if words else "")
        + ("Behind in grey, the other tables' positions." if len(tables) > 1 else "")
        + seed_of(study, tables)
    )
    return Figure("table-shares", _share_title(study, list(tables)), subtitle, panels, table, width=260, even=len(panels) > ROW)


def _share_title(study: Study, models: list[str]) -> str:
    halves = {m: (study.point("n50.count", m), study.point("n50", m)) for m in models}
    both = {m: (study.point("n50", m), study.point("n50", m, "words")) for m in models}
    compared = {m: (p.value, w.value) for m, (p, w) in both.items() if p and w}
    name, (needed, per_cent) = next(iter(halves.items()))
    if needed is None or per_cent is None:
        return "Share of variance by component"
    head = (
        f"Half of the variance of `{name}`'s positions lies in {percent(per_cent.value / 100)} of the components ({number(needed.value)})"
    )
    if name in compared:
        head += f", half of its words' in {percent(compared[name][1] / 100)}"
    if len(compared) > 1:
        fewer = sum(p < w for p, w in compared.values())
        head += f"; positions need the smaller share in {fewer} of {len(compared)} models"
    return head


def _share_line(shares: np.ndarray, colour: str, dash: str, name: str, width: float = 2.2) -> Trace:
    kept = [(k + 1, float(v)) for k, v in enumerate(shares) if v >= LOWEST_SHARE]
    trace: Trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) == 1 and name else "lines",
        "x": [k for k, _ in kept],
        "y": rounded(np.array([v for _, v in kept]), LOWEST_SHARE),
        "line": {"color": f"@{colour}", "dash": dash, "width": width},
        "hoverinfo": "text" if name else "skip",
    }
    if name:
        trace["hovertext"] = [f"<b>{plain(name)}</b><br>component {k}: {percent(v, 2)}" for k, v in kept]
    return trace


def score_maps(study: Study, components: int) -> Figure | None:
    """Heat maps of the scores of the first components along the positions (LOWDIM figure 2 with 14, figure 7 with all).

    The title of the short one says of how many of its components one Fourier frequency is at most a tenth of the highest possible.
    """
    tables = arrays_of(study, "scores")
    if not tables:
        return None
    dense = dense_in(tables)
    short = components <= FEW_SCORES
    panels, rows = [], []
    for model, (_, arrays) in tables.items():
        scores = arrays["scores"][:, :components].T
        at = thinned(scores.shape[1], 128 if dense or not short else 256)
        extent = float(np.quantile(np.abs(scores), 0.99)) or 1.0
        hover = "component %{y}, position %{x}: %{z:.3g}"
        trace = heatmap(scores[:, at], at, list(range(1, len(scores) + 1)), hover, (-extent, extent), signed=True)
        height = 74 + (len(scores) * 16 if short else max(180, min(3 * len(scores), 380)))
        plot = map_layout(height, "position", "component")
        plot["yaxis"] |= {"tickvals": [1, *range(5, 15, 5)] if short else None, "nticks": 5, "dtick": None}
        panels.append(Panel([trace], plot, model, f"Scores of {len(scores)} components of {model}.", schemes.table_note(study, model)))
        if short:
            rows += [
                [text(model), value(i, str(i))] + [six_digits(v) for v in scores[:, i]] + [Cell("")] * (components - len(scores))
                for i in thinned(scores.shape[1], LISTED_ROWS)
            ]
        else:
            size = np.sqrt(np.mean(scores**2, axis=1))
            rows += [[text(model), value(k + 1, str(k + 1)), six_digits(v)] for k, v in enumerate(size)]
    limits = "Colours end at the 99th percentile of each table."
    if short:
        columns = ["Model", "Position", *(f"Component {k + 1}" for k in range(components))]
        table = Table("scores", "Scores of the first components", columns, rows, frozenset(range(1, len(columns))))
        subtitle = f"Scores of the first {components} principal components along the positions. {limits}"
        said = subtitle + seed_of(study, tables)
        return Figure("table-scores", _slow_title(study, list(tables)), said, panels, table, width=380, behind=SOME)
    table = Table("scores-all", "Root mean square of the scores", ["Model", "Component", "Root mean square"], rows, frozenset({1, 2}))
    subtitle = f"The same for all components, at most {components}. {limits} Every few positions are left out where there are many."
    title = (
        "Beyond the first components the scores fade"
        if all(_fades(a["scores"]) for _, a in tables.values())
        else "Scores of all components"
    )
    return Figure("table-scores-all", title, subtitle + seed_of(study, tables), panels, table, width=380, behind=SOME)


def _fades(scores: np.ndarray) -> bool:
    """Whether the last half of the components holds less than a tenth of the variance."""
    variance = np.sum(scores**2, axis=0)
    return float(variance[len(variance) // 2 :].sum()) < 0.1 * float(variance.sum())


def _slow_title(study: Study, models: list[str]) -> str:
    """How many of the first ten components turn at most n/20 times over the n positions, a tenth of the Nyquist limit."""
    said = []
    for model in models[:3]:
        turns = [r for r in study.of("fft.turns", model) if r.step is None and r.seed == study_seed(study, model)]
        if turns:
            said.append(f"{sum(r.value <= (r.n or 0) / 20 for r in turns)} of the first {len(turns)} in `{model}`")
    return (
        f"Components that vary slowly, at a tenth of the highest frequency or below: {', '.join(said)}"
        if said
        else "Scores of the first components"
    )


def study_seed(study: Study, model: str) -> int | None:
    """The seed that the figures draw of a model."""
    return first_seed(study)[model][0] if model in first_seed(study) else None


def rotating(study: Study, model: str) -> list[tuple[str, float, float, float]]:
    """Pairs of the drawn table that rotate, by share: ("1+2", turns, strength, share of the variance)."""
    seed = study_seed(study, model)
    found = {}
    for metric in ("turns", "strength", "share"):
        for name, kind, part in {
            (r.model, r.metric, r.part) for r in study.records if r.metric == f"rotation.{metric}" and r.model == model
        }:
            for r in study.of(kind, name, part):
                if r.seed == seed and r.step is None and part:
                    found[part, metric] = (r.index or 0, r.value)
    pairs = sorted({part for part, _ in found}, key=lambda p: found[p, "turns"][0])
    return [(p, found[p, "turns"][1], found[p, "strength"][1], found[p, "share"][1]) for p in pairs]


def rotation_maps(study: Study) -> Figure | None:
    """The planes of the pairs of components that rotate (LOWDIM figure 4 and what it says of other pairs); None where none does."""
    tables = arrays_of(study, "scores")
    dense = dense_in(tables)
    panels, rows, said = [], [], []
    for model, (_, arrays) in tables.items():
        pairs = rotating(study, model)
        for part, turns, _, share in pairs[: 1 if dense else PAIRS]:
            columns = [int(c) - 1 for c in part.split("+")]
            if max(columns) >= arrays["scores"].shape[1]:
                continue
            scores = arrays["scores"][:, columns]
            alone = {int(i) for i in arrays.get("outliers", ())}
            names = [f"component {c + 1}" for c in columns]
            every = NAME_EVERY * (2 if dense else 1)
            words = f"Components {part} of {model} over the positions, {fixed(turns, 1)} turns."
            note = f"{fixed(turns, 1)} turns, {percent(share)} of the variance"
            panels.append(
                Panel(path(scores, every, alone), path_layout(scores, names, every, dense, alone), f"{model}, {part}", words, note)
            )
        rows += [[text(model), text(p), value(t, fixed(t, 2)), value(s, percent(s)), value(v, percent(v))] for p, t, s, v in pairs]
        if pairs:
            listed = ", ".join(fixed(t, 1) for _, t, _, _ in pairs[:PAIRS]) + (", …" if len(pairs) > PAIRS else "")
            said.append(f"{count(len(pairs), 'pair')} in `{model}` ({listed} turns)")
    if not panels:
        return None
    title = f"Pairs of components that turn together: {few(said)}"
    subtitle = (
        "Pairs of equal frequency, a quarter of a period apart, of whose motion one steady turn explains at least two thirds, "
        f"largest share of the variance first{'' if dense else f', at most {PAIRS} a table'}. Neighbouring half waves draw arcs too "
        "and are not counted." + seed_of(study, tables)
    )
    table = Table(
        "rotations",
        "Every pair that rotates",
        ["Model", "Components", "Turns", "Explained by one turn", "Share of variance"],
        rows,
        frozenset({2, 3, 4}),
    )
    return Figure("table-rotations", title, subtitle, panels, table, width=230 if dense else 300, even=True)


def summed_magnitudes(study: Study) -> Figure | None:
    """Fourier magnitudes summed over all components, logarithmic, with the dominant frequencies named (LOWDIM figure 5)."""
    tables = arrays_of(study, "magnitude_sum")
    if not tables:
        return None
    panels, rows, said = [], [], []
    for model, (seed, arrays) in tables.items():
        total = arrays["magnitude_sum"][1:]
        n = len(arrays["scores"])
        frequency = np.arange(1, len(total) + 1) / n
        top = float(total.max()) or 1.0
        shown = np.maximum(total / top, 1e-6)
        peaks = [int(r.value) for r in sorted(study.of("fft.peak", model), key=lambda r: r.index or 0) if r.seed == seed and r.step is None]
        trace = {
            "type": "scatter",
            "mode": "lines",
            "x": [round(float(f), 5) for f in frequency],
            "y": rounded(shown, 0.001),
            "line": {"color": "@absolute", "width": 1.8},
            "hovertext": [f"{count(k + 1, 'turn')} over the table<br>magnitude {number(float(v))}" for k, v in enumerate(total)],
            "hoverinfo": "text",
        }
        names = [
            {
                "x": float(np.log10(frequency[k - 1])),
                "y": float(np.log10(shown[k - 1])),
                "text": str(k),
                "showarrow": False,
                "yanchor": "bottom",
                "yshift": 2,
                "bgcolor": "@halo",
                "font": {"size": TEXT_SIZE, "color": "@ink-absolute"},
            }
            for k in peaks[:NAMED_PEAKS]
        ]
        low = float(np.floor(np.log10(shown.min())))
        powers = [10.0**p for p in range(int(low), 1)]
        plot = layout(
            250,
            axis(
                "turns per position",
                type="log",
                range=[float(np.log10(0.8 / n)), float(np.log10(0.56))],
                tickvals=[0.002, 0.01, 0.1, 0.5],
                ticktext=["0.002", "0.01", "0.1", "0.5"],
            ),
            axis("magnitude", type="log", range=[low, 0.3], tickvals=powers, ticktext=[f"{p:g}" for p in powers]),
            {"l": 72, "r": 14, "t": 14, "b": 52},
            annotations=names,
        )
        panels.append(Panel([trace], plot, model, f"Summed Fourier magnitude of {model}.", schemes.table_note(study, model)))
        rows += [
            [text(model), value(k + 1, str(k + 1)), value(float(f), fixed(float(f), 4)), six_digits(v)]
            for k, (f, v) in enumerate(zip(frequency, total, strict=True))
        ]
        said.append(f"{', '.join(map(str, peaks[:NAMED_PEAKS])) if peaks else 'none'} in `{model}`")
    title = f"Dominant frequencies, in turns over the table: {few(said)}"
    subtitle = (
        "Fourier magnitudes of the scores, summed over all components, as a share of the largest; both axes are logarithmic, and 0.5 "
        "turns per position is the highest frequency there is. Named, in whole turns: peaks three times as high as the lows around."
        + seed_of(study, tables)
    )
    table = Table(
        "magnitudes", "Summed Fourier magnitudes", ["Model", "Turns", "Turns per position", "Magnitude"], rows, frozenset({1, 2, 3})
    )
    return Figure("table-magnitudes", title, subtitle, panels, table, width=330, even=len(panels) > ROW)


def magnitude_maps(study: Study) -> Figure | None:
    """Fourier magnitudes of each of the first ten components (LOWDIM figure 6), each against its own largest."""
    tables = arrays_of(study, "magnitudes")
    if not tables:
        return None
    panels, rows, said = [], [], []
    for model, (_, arrays) in tables.items():
        found = arrays["magnitudes"]
        most = found.max(axis=1, keepdims=True)
        counted = found[arrays["shares"][: len(found)] >= COUNTED]
        highest = int(counted.argmax(axis=1).max(initial=1))
        last = min(max(16, highest + highest // 2), found.shape[1] - 1, 256)
        relative = found[:, 1 : last + 1] / np.where(most > 0, most, 1.0)
        trace = heatmap(
            relative, list(range(1, last + 1)), list(range(1, len(found) + 1)), "component %{y}, %{x} turns: %{z:.2f}", (0.0, 1.0)
        )
        plot = map_layout(74 + 22 * len(found), "turns over the table", "component")
        plot["yaxis"] |= {"tickvals": [k for k in (1, 4, 7, 10) if k <= len(found)]}
        panels.append(
            Panel([trace], plot, model, f"Fourier magnitudes of {len(found)} components of {model}.", schemes.table_note(study, model))
        )
        rows += [
            [text(model), value(c + 1, str(c + 1)), value(k, str(k)), six_digits(found[c, k])]
            for c in range(len(found))
            for k in range(1, last + 1)
            if relative[c, k - 1] >= 0.1
        ]
        said.append(f"{', '.join(str(int(v)) for v in found[:, 1:].argmax(axis=1)[:5] + 1)} times in `{model}`")
    title = f"The first five components turn most strongly {few(said)}"
    subtitle = (
        "Fourier magnitude of each of the first ten components, as a share of the component's largest. Drawn up to one and a half "
        "times the highest frequency at which a component with a hundredth of the variance is largest." + seed_of(study, tables)
    )
    table = Table(
        "component-magnitudes",
        "Fourier magnitudes of at least a tenth of the component's largest",
        ["Model", "Component", "Turns", "Magnitude"],
        rows,
        frozenset({1, 2, 3}),
    )
    return Figure("table-component-magnitudes", title, subtitle, panels, table, width=330, behind=SOME)
