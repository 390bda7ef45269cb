"""Figures of the shape of a corpus's positions: the spectrum of their distances and their map."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import geometry_findings as findings
from .figures import Cell, Figure, Panel, Table, Trace, text, value
from .geometry_figures import CLEAN, HEIGHT, MARGIN, PLUG_IN, curve, ends, most_points, of_each, wide
from .geometry_load import CORRECTED, Geometry
from .maps import rounded, thinned
from .numbers import fixed, percent
from .style import TEXT_SIZE, axis, label_margin, layout, line_end_labels, log_axis, sequential

MOST_EIGENVALUES = 64


def noise_level(eigenvalues: np.ndarray) -> float:
    """Size of the most negative eigenvalue: squared distances cannot make one, so noise did."""
    return max(0.0, -ends(eigenvalues)[0])


def spectrum(run: Geometry) -> Figure | None:
    """Eigenvalues of the centred matrix of squared distances as counted and corrected, with the noise level."""
    corpora = [c for c in run.corpora if c.vector("eigenvalues") is not None]
    if not corpora:
        return None
    above, all_, panels, rows = {}, {}, [], []
    top = ends(*(c.arrays["eigenvalues"] for c in corpora))[1] or 1.0
    bottom = top * 1e-5
    most = min(MOST_EIGENVALUES, max(len(c.arrays["eigenvalues"]) for c in corpora))
    labels = [PLUG_IN, CLEAN, "noise level"]
    margin = MARGIN | {"r": label_margin(labels), "l": 70}
    for c in corpora:
        kinds = [(PLUG_IN, c.arrays["eigenvalues"], "6px,4px", "circle-open")]
        traces, labelled = [], []
        if (clean := c.vector("eigenvalues_corrected")) is not None:
            kinds.append((CLEAN, clean, "solid", "circle"))
            level = noise_level(clean)
            above[c.name], all_[c.name] = int(np.sum(clean > max(level, 1e-9 * top))), int(np.sum(c.arrays["eigenvalues"] > 1e-9 * top))
            if level > bottom:
                traces.append(curve([1, most], [level] * 2, "combined", "noise level", "6px,5px", 1.4, "component"))
                labelled.append((float(most), float(np.log10(level)), "noise level", "combined"))
        for name, found, dash, symbol in kinds:
            held = [(i + 1, float(v)) for i, v in enumerate(found[:most]) if np.isfinite(v) and v > bottom]
            if held:
                trace = curve([x for x, _ in held], [v for _, v in held], "absolute", f"{c.name}, {name}", dash, 1.6, "component")
                traces.append(trace | {"mode": "lines+markers", "marker": {"symbol": symbol, "size": 6, "color": "@absolute"}})
                labelled.append((float(held[-1][0]), float(np.log10(held[-1][1])), name, "absolute"))
        limits = (float(np.log10(bottom)), float(np.log10(top)) + 0.15)
        height = HEIGHT
        plot = layout(
            height,
            axis("component", range=[0, most + 1], showgrid=False, nticks=6),
            log_axis("eigenvalue", 10 ** limits[0], 10 ** limits[1]),
            margin,
            annotations=line_end_labels(labelled, limits, height - margin["t"] - margin["b"]),
        )
        said = f"{len(c.arrays['eigenvalues'])} eigenvalues of {c.name}"
        panels.append(
            Panel(
                traces,
                plot,
                c.name if len(run.corpora) > 1 else "",
                f"{said}{f', {above[c.name]} above the noise' if c.name in above else ''}.",
            )
        )
        rows += [
            [
                text(c.name),
                value(i + 1, str(i + 1)),
                value(float(v), f"{v:.3g}"),
                value(float(clean[i]), f"{clean[i]:.3g}") if clean is not None and i < len(clean) else Cell("–"),
            ]
            for i, v in enumerate(c.arrays["eigenvalues"][: most_points(corpora)])
            if np.isfinite(v)
        ]
    title = findings.components(above, all_) if above else findings.ranks(of_each(run, "rank"))
    subtitle = "Eigenvalues of the centred matrix of squared distances, largest first, on a logarithmic axis. "
    if above:
        subtitle += (
            "Corrected distances have negative eigenvalues too; the size of the most negative one is the noise level, and what lies "
            "below it is not told from noise. "
        )
    subtitle += f"Drawn: the first {most}, down to a hundred-thousandth of the largest."
    table = Table("eigenvalues", "Eigenvalues", ["Corpus", "Component", "As counted", "Corrected"], rows, frozenset({1, 2, 3}))
    return Figure("spectrum", title, subtitle, panels, table, width=wide(corpora), even=len(panels) > 1)


def table_maps(run: Geometry) -> Figure | None:
    """MDS maps: positions on the first two components, coloured from first to last."""
    kinds = (("coords", PLUG_IN, ""), ("coords_corrected", CLEAN, CORRECTED))
    panels, rows = [], []
    shares: dict[str, dict[str, float]] = {PLUG_IN: {}, CLEAN: {}}
    corpora = [
        c for c in run.corpora if any((m := c.matrix(k)) is not None and m.shape[1] > 1 and len(m) == len(c.positions) for k, *_ in kinds)
    ]
    for c in corpora:
        for key, kind, ending in kinds:
            coords = c.matrix(key)
            if coords is None or coords.shape[1] < 2 or len(coords) != len(c.positions):
                continue
            recorded = run.by_index("mds.share" + ending, c.name)
            parts = [recorded[i].value for i in (0, 1) if i in recorded]
            if len(parts) == 2:
                shares[kind][c.name] = sum(parts)
            titles = [f"component {i + 1}" + (f" ({percent(parts[i], 0)})" if len(parts) == 2 else "") for i in range(2)]
            kept = [i for i in thinned(len(coords), most_points(corpora)) if np.isfinite(coords[i, :2]).all()]
            at = [c.positions[i] for i in kept]
            name = f"{c.name}, {kind}" if len(run.corpora) > 1 else kind.capitalize()
            panels.append(
                Panel(
                    _map_traces(coords[kept], at),
                    _map_layout(coords[kept], at, titles),
                    name,
                    f"Map of {len(kept)} positions of {c.name}, {kind}.",
                )
            )
            rows += [[text(c.name), text(kind), value(p, str(p)), *_three(coords[i])] for i, p in zip(kept, at, strict=True)]
    if not panels:
        return None
    title = findings.two(shares[PLUG_IN], shares[CLEAN]) if shares[PLUG_IN] else "Positions on their first two components"
    subtitle = (
        "Classical scaling of the distances: one point a position, joined in order, coloured from the first to the last, every "
        f"{_step([c.positions for c in corpora])}th named; equal scales on both axes."
    )
    if shares[PLUG_IN] and shares[CLEAN]:
        subtitle += " As counted, noise puts every position at a place of its own; the corrected map has less of it."
    table = Table(
        "map",
        "Coordinates of every position",
        ["Corpus", "Kind", "Position", "Component 1", "Component 2", "Component 3"],
        rows,
        frozenset(range(2, 6)),
    )
    return Figure("map", title, subtitle, panels, table, width=400, even=True)


def _three(row: np.ndarray) -> list[Cell]:
    return [value(float(v), fixed(float(v), 4)) for v in row[:3]] + [Cell("")] * (3 - len(row[:3]))


def _step(positions: Sequence[Sequence[int]]) -> int:
    """Every how many positions one is named: 16, fewer in a short map, more in a long one."""
    longest = max((p[-1] + 1 for p in positions if p), default=1)
    return 16 if 48 <= longest <= 256 else 8 if longest < 48 else 2 ** int(np.ceil(np.log2(longest / 16)))


def _map_traces(coords: np.ndarray, at: Sequence[int]) -> list[Trace]:
    x, y = rounded(coords[:, 0]), rounded(coords[:, 1])
    points = {"type": "scatter", "x": x, "y": y}
    step = _step([at])
    marker = {
        "size": [10 if p % step == 0 else 6 for p in at],
        "color": list(at),
        "cmin": at[0],
        "cmax": max(at[-1], at[0] + 1),
        "colorscale": sequential(3),
        "opacity": 1,
        "line": {"width": 0.5, "color": "@surface"},
    }
    return [
        points | {"mode": "lines", "line": {"color": "@muted", "width": 0.8}, "opacity": 0.4, "hoverinfo": "skip"},
        points | {"mode": "markers", "marker": marker, "hovertext": [f"position {p}" for p in at], "hoverinfo": "text"},
    ]


def _map_layout(coords: np.ndarray, at: Sequence[int], titles: Sequence[str]) -> dict[str, Any]:
    middle = coords[:, :2].mean(axis=0)
    step, notes = _step([at]), []
    for i, p in enumerate(at):
        if p % step:
            continue
        away = coords[i, :2] - middle
        away = away / (float(np.hypot(*away)) or 1.0)
        place = {"x": float(coords[i, 0]), "y": float(coords[i, 1]), "ax": float(away[0]) * 19, "ay": float(-away[1]) * 17}
        look = {"showarrow": True, "arrowhead": 0, "arrowwidth": 0.5, "arrowcolor": "rgba(0,0,0,0)", "bgcolor": "@halo", "borderpad": 0}
        notes.append(place | look | {"text": str(p), "font": {"size": TEXT_SIZE, "color": "@text"}})
    # A square frame with equal scales: a long thin map is seen to be one.
    middle = (coords[:, :2].min(axis=0) + coords[:, :2].max(axis=0)) / 2
    half = 0.57 * float(np.ptp(coords[:, :2], axis=0).max() or 1.0)
    frame = [[float(m) - half, float(m) + half] for m in middle]
    x = axis(titles[0], range=frame[0], nticks=5, constrain="domain", constraintoward="left", zeroline=True, zerolinecolor="@grid")
    y = axis(titles[1], range=frame[1], nticks=5, constrain="domain", scaleanchor="x", zeroline=True, zerolinecolor="@grid")
    return layout(500, x, y, {"l": 66, "r": 14, "t": 8, "b": 52}, annotations=notes, meta={"square": True})
