"""Figures of how well encodings fit a corpus: stress, held-out stress, order of distances, and what a table costs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..points import Point
from . import geometry_findings as findings
from .figures import Cell, Figure, Panel, Table, Trace, hover, measured, reference, text, value
from .geometry_figures import CLEAN, PLUG_IN
from .geometry_findings import CORPUS, EQUAL, NOISE, base
from .geometry_load import CORRECTED, Geometry
from .numbers import fixed, number, percent
from .style import LABEL_LIMIT, TEXT_SIZE, axis, layout, log_axis, plain

RELATIVE = ("rope", "alibi")  # encodings that tell distances only, in the colour of the relative stream
OWN = "of the table itself"  # as a kind: what does not depend on the corpus
ROW = 30  # pixels of an encoding in a figure of rows
SMALLEST = 1e-4  # stress that a logarithmic axis still shows; an exact table has 1e-30
# Kind of distances -> (symbol, its own colour or "" for that of the encoding)
MARKED = {PLUG_IN: ("square-open", "combined"), CLEAN: ("circle", ""), OWN: ("circle", "")}
SUFFIX = {PLUG_IN: "", CLEAN: CORRECTED}
Values = Mapping[str, dict[str, Point]]  # encoding -> kind -> value
KEY = [("hollow-square", "against distances as counted"), ("dot", "against corrected distances")]
# No bound: the two halves both have noise, and a table fitted to all documents can lie below.
HALVES = ("dash", "half against half, for comparison: corrected distances of one half of the documents as the table of the other")
WHISKER = ("whisker", "95 % interval over groups of documents")


def colour(encoding: str) -> str:
    """Colour of an encoding: that of the stream it would be."""
    kind = base(encoding)
    return "combined" if kind in (CORPUS, EQUAL, "random") else "relative" if kind in RELATIVE else "absolute"


def shown(encoding: str) -> str:
    """Name of an encoding in a figure."""
    return {CORPUS: "the corpus itself", EQUAL: "all equally far"}.get(encoding, encoding)


def values_of(run: Geometry, metric: str, corpus: str) -> dict[str, dict[str, Point]]:
    """Encoding -> kind -> value. Tables made from the distances have their rank in the name: full, and that of `ranks_shown`."""
    found: dict[str, dict[str, Point]] = {}
    ranks = ranks_shown(run, corpus)
    for kind, suffix in SUFFIX.items():
        for part in run.parts(metric + suffix, corpus):
            if part == NOISE:
                continue
            if (point := run.point(metric + suffix, corpus, part)) is not None:
                found.setdefault(f"{part}, full rank" if part in findings.FITTED else part, {})[kind] = point
            if part in ranks and (point := run.by_index(metric + suffix, corpus, part).get(ranks[part])) is not None:
                found.setdefault(f"{part}, rank {ranks[part]}", {})[kind] = point
    return found


def ranks_shown(run: Geometry, corpus: str) -> dict[str, int]:
    """Ranks shown beside the full one: of `smacof` the largest; of `mds` that of the least stress on other documents, for this is the
    table that is written, or that of `smacof` where nothing was held out."""
    measured_at = {p: {i for s in SUFFIX.values() for i in run.by_index("stress.optimal" + s, corpus, p)} for p in findings.FITTED}
    found = {"smacof": max(measured_at["smacof"])} if measured_at["smacof"] else {}
    held = run.by_index("stress.held_out", corpus, "mds")
    best = min(held, key=lambda r: held[r].value, default=None)
    rank = best if best in measured_at["mds"] else found.get("smacof")
    return found | ({"mds": rank} if rank is not None else {})


def counting(values: Values) -> dict[str, Point]:
    """Encoding -> the value that counts; where some are against corrected distances, those that are not are left out."""
    return {e: last(kinds) for e, kinds in values.items() if not only_counted(kinds, values)}


def only_counted(kinds: Mapping[str, Point], values: Values) -> bool:
    """Whether a value is only against distances as counted while others are against corrected ones: the two do not compare."""
    return set(kinds) == {PLUG_IN} and any(CLEAN in k for k in values.values())


def rows_panel(
    values: Values, order: Sequence[str], x: dict[str, Any], title: str, said: str, write: Any, floor: float = -math.inf
) -> Panel:
    """One row an encoding: its values of each kind with their intervals, the one that counts written at the right.

    floor: values below it are drawn there. write: how a value is written.
    """
    traces: list[Trace] = []
    notes = []
    for row, encoding in enumerate(order):
        for kind, (symbol, own) in MARKED.items():
            point = values.get(encoding, {}).get(kind)
            if point is None:
                continue
            paint = f"@{own or colour(encoding)}"
            at = max(point.value, floor)
            trace: Trace = {"type": "scatter", "mode": "markers", "x": [at], "y": [row], "hoverinfo": "text", "cliponaxis": False}
            trace["hovertext"] = [hover(shown(encoding), kind, point, "")]
            trace["marker"] = {"symbol": symbol, "size": 10, "color": paint, "line": {"width": 1.6 if own else 0, "color": paint}}
            if point.low is not None and point.high is not None:
                ends = {"array": [max(point.high, floor) - at], "arrayminus": [max(0.0, at - max(point.low, floor))]}
                trace["error_x"] = {"type": "data", "symmetric": False, **ends, "color": paint, "thickness": 1.4, "width": 4}
            traces.append(trace)
        place = {"xref": "paper", "x": 1, "xanchor": "left", "y": row, "showarrow": False, "xshift": 8}
        notes.append(place | {"text": plain(_at_right(values, encoding, write)), "font": {"size": TEXT_SIZE, "color": "@text"}})
    names = {"tickvals": list(range(len(order))), "ticktext": [plain(shown(e), LABEL_LIMIT) for e in order]}
    y = axis("", range=[len(order) - 0.5, -0.5], **(names | {"tickfont": {"size": TEXT_SIZE, "color": "@text"}}))
    plot = layout(ROW * len(order) + 70, x, y, {"l": 142, "r": 78, "t": 8, "b": 56}, annotations=notes)
    return Panel(traces, plot, title, said)


def _at_right(values: Values, encoding: str, write: Any) -> str:
    return "–" if only_counted(values[encoding], values) else str(write(last(values[encoding])))


def _order(found: Sequence[Values]) -> list[str]:
    """Encodings from the best to the worst in the first corpus that has them, the corpus itself before all, those without the value
    that counts after all."""
    best: dict[str, tuple[bool, float]] = {}
    for values in found:
        for encoding, kinds in values.items():
            best.setdefault(encoding, (only_counted(kinds, values), last(kinds).value))
    return sorted(best, key=lambda e: (e != CORPUS, best[e]))


def last(kinds: Mapping[str, Point]) -> Point:
    """The value that counts: against corrected distances where there are any."""
    return next(kinds[k] for k in (CLEAN, OWN, PLUG_IN) if k in kinds)


def measured_table(name: str, caption: str, columns: Sequence[str], found: Mapping[tuple[str, ...], Values]) -> Table:
    """One row a corpus (and scale), encoding and kind."""
    rows = [
        [*(text(k) for k in keys), text(shown(encoding)), text(kind), *measured(point)]
        for keys, values in found.items()
        for encoding, kinds in values.items()
        for kind, point in kinds.items()
    ]
    heads = [*columns, "Encoding", "Distances", "Value", "Low", "High"]
    return Table(name, caption, heads, rows, frozenset(range(len(heads) - 3, len(heads))))


def stress(run: Geometry) -> Figure | None:
    """Stress of every encoding at its best scale and raw."""
    panels = []
    found: dict[tuple[str, ...], Values] = {}
    scales = {"stress.optimal": "best scale", "stress.raw": "raw"}
    by_scale = {m: {c.name: v for c in run.corpora if (v := values_of(run, m, c.name))} for m in scales}
    for c in run.corpora:
        for metric, words in scales.items():
            if (values := by_scale[metric].get(c.name)) is None:
                continue
            found[c.name, words] = values
            every = _ends(by_scale[metric].values())
            low = SMALLEST if metric == "stress.raw" else -math.inf
            if metric == "stress.raw":
                low = max(SMALLEST, min((v for v in every if v > 0), default=SMALLEST))
                x = log_axis("raw stress", low / 1.6, max(*every, low * 10) * 1.6, most=3)
            else:
                top = max(*every, 1e-3)
                x = axis(
                    "stress at the best scale",
                    range=[min(0.0, *every) - 0.02 * top, top * 1.06],
                    nticks=4,
                    zeroline=True,
                    zerolinecolor="@rule",
                )
            order = [e for e in _order(list(by_scale["stress.optimal"].values()) or [values]) if e in values]
            title = f"{c.name}, {words}" if len(run.corpora) > 1 else words.capitalize()
            panel = rows_panel(values, order, x, title, _spoken(values, words), _written, low)
            if (half := run.point(metric + CORRECTED, c.name, NOISE)) is not None:
                said = f"half against half, for comparison: {number(half.value)}"
                panel.data.insert(0, reference([max(half.value, low)] * 2, [-0.5, len(order) - 0.5], said))
            panels.append(panel)
    if not panels:
        return None
    title = findings.fits({name: counting(v) for name, v in by_scale["stress.optimal"].items()})
    subtitle = (
        "Sum of squared differences between the distances of a table and the Hellinger distances, over the sum of squares of the latter; "
        "0 is a perfect fit. Raw stress depends on the arbitrary scale of a table; at the best scale, the table is first multiplied by "
        "the number that lowers it most. `mds` and `smacof` are made from these very distances."
    )
    if any(run.by_index("stress.held_out", c.name, "mds") for c in run.corpora):
        subtitle += " Beside its full rank, `mds` is shown at the one that fits other documents best."
    if any(EQUAL in v for v in by_scale["stress.optimal"].values()):
        subtitle += " All equally far: every two positions at the same distance, which says nothing about position."
    if any(only_counted(k, v) for values in by_scale.values() for v in values.values() for k in v.values()):
        subtitle += " A dash: not measured against corrected distances."
    table = measured_table("stress", "Stress of every encoding", ["Corpus", "Scale"], found)
    halves = any(run.point(m + CORRECTED, c.name, NOISE) for m in scales for c in run.corpora)
    key = [*_key(found.values(), KEY), *([HALVES] if halves else [])]
    return Figure("stress", title, subtitle, panels, table, key, width=440, even=True)


def _key(found: Iterable[Values], marks: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The marks that a figure uses: of kinds that were measured, and the whisker where there is an interval."""
    kinds = [(kind, p) for values in found for points in values.values() for kind, p in points.items()]
    glyphs = {"hollow-square" if kind == PLUG_IN else "dot" for kind, _ in kinds}
    whisker = [WHISKER] if any(p.low is not None for _, p in kinds) else []
    return [(glyph, words) for glyph, words in marks if glyph in glyphs] + whisker


def _ends(found: Any) -> list[float]:
    """Every value and upper end, for the axis that panels share."""
    return [end for values in found for kinds in values.values() for p in kinds.values() for end in (p.value, p.high) if end is not None]


def _written(point: Point) -> str:
    if 0 <= point.value < SMALLEST:
        return "0"
    return number(point.value, point.low, point.high, 3 if point.value > 0.01 else 5) if point.value < 1000 else f"{point.value:,.0f}"


def _spoken(values: Values, words: str) -> str:
    said = [f"{shown(e)} {', '.join(f'{number(p.value)} {kind}' for kind, p in kinds.items())}" for e, kinds in values.items()]
    return f"Stress {words}: {'; '.join(said)}."


def violations(run: Geometry) -> Figure | None:
    """Share of triples out of order, for the corpus itself and every encoding."""
    found: dict[str, dict[str, dict[str, Point]]] = {}
    for c in run.corpora:
        values = values_of(run, "violations", c.name)
        for encoding, kinds in values.items():
            if base(encoding) not in (*findings.FITTED, CORPUS):  # a table that was not made from the corpus has one value
                values[encoding] = {OWN: last(kinds)}
        if values:
            found[c.name] = values
    if not found:
        return None
    order = _order(list(found.values()))
    top = max(0.55, *_ends(found.values())) * 1.04
    ticks = [t for t in (0, 0.25, 0.5, 0.75, 1) if t <= top]
    panels = []
    for name, values in found.items():
        x = axis("triples out of order", range=[-0.02 * top, top], tickvals=ticks, ticktext=[percent(t, 0) for t in ticks])
        said = "; ".join(
            f"{shown(e)} {', '.join(f'{percent(p.value)} {kind}' for kind, p in kinds.items())}" for e, kinds in values.items()
        )
        own = [e for e in order if e in values]
        panel = rows_panel(
            values, own, x, name if len(run.corpora) > 1 else "", f"Triples out of order: {said}.", lambda p: percent(p.value)
        )
        panel.data.insert(0, reference([0.5, 0.5], [-0.5, len(own) - 0.5], "chance: 50\u202f%"))
        panels.append(panel)
    title = findings.ordered({name: last(v[CORPUS]) for name, v in found.items() if CORPUS in v})
    subtitle = (
        "Of all triples of positions in which one neighbour is nearer than the other, the share in which the nearer one has the larger "
        "distance. 0\u202f% is a distance that only grows with the lag; dashed: 50\u202f%, which chance gives. Corrected squares that "
        "came out negative take part with their sign, so chance gives 50\u202f% there too."
    )
    key = [("hollow-square", "distances as counted"), ("dot", "corrected distances, or those of a fixed table")]
    table = measured_table("violations", "Triples out of order", ["Corpus"], {(name,): v for name, v in found.items()})
    return Figure("violations", title, subtitle, panels, table, _key(found.values(), key), width=440, even=True)


def parameters(run: Geometry) -> Table | None:
    """What a table of rank r costs, r (n + d), beside its stress."""
    rows = []
    for c in run.corpora:
        for rank, cost in run.by_index("parameters", c.name, "mds").items():
            full = rank == max(run.by_index("parameters", c.name, "mds"))
            stresses = [
                run.by_index(f"stress.optimal{s}", c.name, "mds").get(rank)
                or (run.point(f"stress.optimal{s}", c.name, "mds") if full else None)
                for s in SUFFIX.values()
            ]
            cells = [value(p.value, fixed(p.value, 4)) if p else Cell("–") for p in stresses]
            rows.append([text(c.name), value(rank, f"{rank:,}"), value(cost.value, f"{cost.value:,.0f}"), *cells])
        if (free := run.point("parameters", c.name, "free")) is not None:
            rows.append([text(c.name), text("a free table"), value(free.value, f"{free.value:,.0f}"), Cell(""), Cell("")])
    heads = ["Corpus", "Rank", "Parameters", "Stress as counted", "Stress corrected"]
    return (
        Table(
            "parameters",
            "What the table made from a corpus costs, r(n + d), and its stress at the best scale",
            heads,
            rows,
            frozenset(range(1, 5)),
        )
        if rows
        else None
    )
