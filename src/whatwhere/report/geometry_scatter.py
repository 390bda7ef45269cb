"""Figure 7 of GEOM: the distances in every encoding's table against those of the corpus, one point a pair of positions."""

from typing import Any

import numpy as np

from ..points import Point
from . import geometry_findings as findings
from .figures import MOST_DIGITS, Cell, Figure, Panel, Table, Trace, reference, text, value
from .geometry_figures import CLEAN, PLUG_IN, ends, most_points
from .geometry_fits import Values, measured_table, shown, values_of
from .geometry_load import CORRECTED, Corpus, Geometry
from .maps import rounded, thinned
from .numbers import count, fixed, interval, number
from .style import TEXT_SIZE, axis, layout, sequential

HEIGHT, MARGIN = 420, {"l": 62, "r": 22, "t": 42, "b": 52}


def scatter(run: Geometry) -> Figure | None:
    """Distances of each table at its best scale (x) against the distances of the corpus (y), coloured by lag."""
    corpora = [c for c in run.corpora if _complete(c)]
    if not corpora:
        return None
    panels, rows = [], []
    encodings = list(dict.fromkeys(n for c in corpora for n in c.words["scatter_names"]))
    sizes: dict[str, int] = {}
    kinds: dict[str, str] = {}
    found: dict[str, dict[str, Point]] = {}
    below = False
    for c in corpora:
        # The distances come from the same file as the corrected matrix: they are corrected where there is one.
        kinds[c.name] = CLEAN if c.matrix("corrected") is not None else PLUG_IN
        dist, lag, tables = (c.arrays[f"scatter_{k}"] for k in ("dist", "lag", "table"))
        kept = [i for i in thinned(len(dist), most_points(run.corpora)) if np.isfinite(dist[i]) and np.isfinite(lag[i])]
        dist, lag, tables = dist[kept], lag[kept], tables[:, kept]
        sizes[c.name] = len(kept)
        below = below or bool((dist < 0).any())
        low, high = ends(dist, tables)
        room = 0.06 * ((high - min(low, 0.0)) or 1.0)
        frame = min(low, 0.0) - room, high + 2.2 * room  # the corner that the diagonal ends in stays free for its name
        metric = "correlation" + (CORRECTED if kinds[c.name] == CLEAN else "")
        for name, table in zip(c.words["scatter_names"], tables, strict=True):
            r = run.point(metric, c.name, name)
            if r is not None:
                found.setdefault(c.name, {})[name] = r
            panels.append(_panel(c.name if len(run.corpora) > 1 else "", name, table, dist, lag, frame, r))
        columns = dict(zip(c.words["scatter_names"], tables, strict=True))
        for i in range(len(kept)):
            cells = [_cell(columns[e][i]) if e in columns else Cell("–") for e in encodings]
            rows.append([text(c.name), value(int(lag[i]), str(int(lag[i]))), _cell(dist[i]), *cells])
    title = findings.follow(found) if found else "Distances in tables against those of the corpus"
    table = Table(
        "scatter",
        "Distance in the corpus and in every table at its best scale, by pair of positions",
        ["Corpus", "Lag", "In the corpus", *(shown(e) for e in encodings)],
        rows,
        frozenset(range(1, 3 + len(encodings))),
    )
    return Figure("scatter", title, _subtitle(sizes, kinds, below), panels, table, width=260, even=True)


def _complete(c: Corpus) -> bool:
    """Whether the arrays of the figure are there and fit each other."""
    dist, lag, table = c.vector("scatter_dist"), c.vector("scatter_lag"), c.matrix("scatter_table")
    if dist is None or lag is None or table is None or not len(dist) == len(lag) == table.shape[1]:
        return False
    return len(c.words.get("scatter_names", [])) == len(table) and bool((np.isfinite(dist) & np.isfinite(lag)).any())


def _cell(found: float) -> Cell:
    return value(float(found), fixed(float(found), 4)) if np.isfinite(found) else Cell("–")


def _subtitle(sizes: dict[str, int], kinds: dict[str, str], below: bool) -> str:
    drawn = "; ".join(f"{count(n, 'pair')} of `{name}`" if len(sizes) > 1 else count(n, "pair") for name, n in sizes.items())
    one = next(iter(kinds.values())) if len(set(kinds.values())) == 1 else None
    which = one or ", ".join(f"{kind} in `{name}`" for name, kind in kinds.items())
    said = (
        f"One point a pair of positions ({drawn}), coloured by lag: its distance in the table, multiplied by the number that brings the "
        f"table closest, against its Hellinger distance in the corpus ({which}). On the dashed line the two are equal. r is Pearson's "
        "correlation over all pairs, with its 95\u202f% interval where documents were resampled; it can be high far from the "
        "line."
    )
    if below:
        said += " A corrected distance whose square came out negative, which is noise, stands below 0."
    return said + (" The panels of one corpus share their axes." if len(sizes) > 1 else "")


def _panel(
    corpus: str, name: str, table: np.ndarray, dist: np.ndarray, lag: np.ndarray, frame: tuple[float, float], r: Point | None
) -> Panel:
    kept = np.isfinite(table)
    marker = {
        "size": 6,
        "color": [int(v) for v in lag[kept]],
        "cmin": int(lag.min()),
        "cmax": max(int(lag.max()), int(lag.min()) + 1),
        "colorscale": sequential(3),
        "opacity": 1,
        "line": {"width": 0.5, "color": "@surface"},
        "showscale": True,
        "colorbar": _bar(int(lag.min()), int(lag.max())),
    }
    points: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(table[kept]),
        "y": rounded(dist[kept]),
        "marker": marker,
        "hovertemplate": "lag %{marker.color}<br>table %{x:.3f}<br>corpus %{y:.3f}<extra></extra>",
    }
    exact = reference(frame, frame, "exact: the same distance in table and corpus")
    note = {"x": frame[1], "y": frame[1], "text": "exact", "showarrow": False, "xanchor": "right", "yanchor": "top", "xshift": -24}
    x = axis("distance in the table", range=list(frame), nticks=4, constrain="domain", constraintoward="left")
    y = axis("distance in the corpus", range=list(frame), nticks=4, constrain="domain", scaleanchor="x")
    notes = [note | {"font": {"size": TEXT_SIZE, "color": "@muted"}}]
    plot = layout(HEIGHT, x, y, MARGIN, annotations=notes, meta={"square": True})
    head = f"{corpus}, {shown(name)}" if corpus else shown(name)
    if r is None:
        return Panel([exact, points], plot, head, f"{count(int(kept.sum()), 'pair')} of positions, {head}.")
    measured = f"{head}: r {number(r.value, r.low, r.high, MOST_DIGITS)}"
    bounds = interval(r.low, r.high, MOST_DIGITS)
    return Panel(
        [exact, points], plot, measured, f"{count(int(kept.sum()), 'pair')} of positions, {measured} {bounds}".strip() + ".", bounds
    )


def _bar(first: int, last: int) -> dict[str, Any]:
    """The key of the colours, over the plot: lags, a few of them named."""
    ticks = sorted({first, *(round(first + (last - first) * k / 3) for k in (1, 2)), last})
    return {
        "orientation": "h",
        "thickness": 8,
        "outlinewidth": 0,
        "yref": "container",
        "y": 1,
        "yanchor": "top",
        "xpad": 0,
        "ypad": 2,
        "len": 1,
        "tickvals": ticks,
        "ticktext": [f"{'lag ' if t == first else ''}{t:,}" for t in ticks],
        "tickfont": {"size": TEXT_SIZE, "color": "@muted"},
    }


def correlations(run: Geometry) -> Table | None:
    """Pearson's r of every encoding, against the distances as counted and against the corrected ones."""
    found: dict[tuple[str, ...], Values] = {(c.name,): v for c in run.corpora if (v := values_of(run, "correlation", c.name))}
    caption = "Correlation of the distances in a table with those of the corpus, over all pairs of positions"
    return measured_table("correlations", caption, ["Corpus"], found) if found else None
