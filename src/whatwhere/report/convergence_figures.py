"""Figure of how fast models converge: the share of its steps that each needs to reach another's final loss (TUPE figure 5)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..points import Point
from . import schemes
from .figures import Cell, Figure, Panel, Table, Trace, hover, measured, text, value
from .findings import ABOVE, BELOW, NAMED, against
from .layer_panels import many, share_axis, styles
from .load import Study
from .maps import heatmap, map_layout
from .numbers import count, percent
from .style import CHARACTER, LABEL_LIMIT, TEXT_SIZE, axis, layout, plain
from .training_figures import stuck_models

SHARE, REACHED = "convergence.share", "convergence.reached"
PAPER_SHARE = 0.3  # TUPE 4.2: a better GLUE average than its baselines after 30 % of the steps
HIGHEST = 1.25  # end of the axis at most: an interval may reach beyond all of the steps
# TUPE's models and its baselines of their own making (BERT-A, BERT-R); a title tells of the first pair that a study has.
_PAIRS = [("tupe-a", "bert-a"), ("tupe-r", "bert-r"), ("tupe-a", "bert-r"), ("tupe-r", "bert-a")]
ROW = 30  # pixels of a model in a panel
Pairs = dict[tuple[str, str], Point]  # (model, baseline) -> value


def figures(study: Study) -> list[Figure]:
    """The share of its steps after which each model reaches each other's final loss."""
    reached, shares = _pairs(study, REACHED), _pairs(study, SHARE)
    pairs = {**reached, **shares}  # every pair that was looked at
    if not pairs:
        return []
    baselines = [m for m in study.models if any(b == m for _, b in pairs)]
    if many(study):
        panels = [_map(study, shares, reached, baselines)]
    else:
        panels = [_dots(study, b, shares, reached) for b in baselines]
    published = any(paper(study, m, b) for m, b in pairs)
    key = [("dot", "reaches it")]
    if any(p.low is not None for p in shares.values()) and not many(study):
        key.append(("whisker", f"{percent(0.95, 0)} interval between seeds"))
    if published and not many(study):
        key.append(("paper", f"TUPE: {percent(PAPER_SHARE, 0)}"))
    return [
        Figure(
            "convergence",
            title(study, shares, reached),
            _subtitle(study, shares, pairs, published),
            panels,
            _table(study, pairs, shares, reached),
            [] if many(study) else key,
            280,
            even=True,
            records=(f"{SHARE}: model, part = baseline, seed", f"{REACHED}: model, part = baseline, seed"),
        )
    ]


def _pairs(study: Study, metric: str) -> Pairs:
    found = {(m, b): study.point(metric, m, b) for m in study.models for b in study.models if m != b}
    return {pair: p for pair, p in found.items() if p is not None}


def paper(study: Study, model: str, baseline: str) -> bool:
    """Whether TUPE says something of the pair."""
    return _presets(study, (model, baseline)) in _PAIRS


def _presets(study: Study, pair: tuple[str, str]) -> tuple[str, str]:
    return schemes.preset(study, pair[0]), schemes.preset(study, pair[1])


def seeds_of(shares: Pairs, reached: Pairs, pair: tuple[str, str]) -> tuple[int, int]:
    """In how many of how many seeds a pair's loss is reached."""
    share, whether = shares.get(pair), reached.get(pair)
    if whether is None:
        seeds = len(share.each) if share else 0
        return seeds, seeds
    return sum(v >= 0.5 for v in whether.each), len(whether.each)


def title(study: Study, shares: Pairs, reached: Pairs) -> str:
    """Where a TUPE model meets a BERT baseline, that pair beside TUPE's 30 %; else the model that reaches most baselines.

    Sooner, later than 30 %: the whole interval between seeds lies on that side; with one seed the numbers stand alone.
    """
    tried = list(dict.fromkeys([*reached, *shares]))
    named = [pair for pair in tried if paper(study, *pair)]
    if named:
        return _against_paper(min(named, key=lambda pair: _PAIRS.index(_presets(study, pair))), shares, reached)
    if not shares:
        return "No model reaches the final loss of another before its own end"
    wins: dict[str, dict[str, Point]] = {}
    for (model, baseline), point in shares.items():
        wins.setdefault(model, {})[baseline] = point
    first = min(wins, key=lambda m: (-len(wins[m]), float(np.mean([p.value for p in wins[m].values()]))))
    goals = sorted(wins[first].items(), key=lambda item: item[1].value)
    said = [f"of `{b}` after {_share(p)}" for b, p in goals[:NAMED]]
    more = f", and {len(goals) - NAMED} more" if len(goals) > NAMED else ""
    some = [b for b, _ in goals if seeds_of(shares, reached, (first, b))[0] < seeds_of(shares, reached, (first, b))[1]]
    unsure = "; not in every seed" if some else ""
    late = [b for b, p in goals if p.high is not None and against(p, 1.0) != BELOW]
    if late:
        unsure += f"; not separable from all of its steps for {', '.join(f'`{b}`' for b in late[:NAMED])}"
    one = "" if any(p.over == "seeds" for _, p in goals) else " (one seed)"
    return f"`{first}` reaches the final loss {', '.join(said)} of its steps{more}{one}{unsure}"


def _against_paper(pair: tuple[str, str], shares: Pairs, reached: Pairs) -> str:
    model, baseline = pair
    printed = f"TUPE: {percent(PAPER_SHARE, 0)}"
    done, seeds = seeds_of(shares, reached, pair)
    if pair not in shares:
        return f"`{model}` never reaches the final loss of `{baseline}` ({printed})"
    point = shares[pair]
    head = f"`{model}` reaches the final loss of `{baseline}` after {_share(point)} of its steps"
    if done < seeds:
        return f"{head} in {done} of {seeds} seeds ({printed})"
    if point.over != "seeds":
        return f"{head} (one seed; {printed})"
    side = {ABOVE: "later than", BELOW: "sooner than"}.get(against(point, PAPER_SHARE), "not separable from")
    return f"{head}, {side} TUPE's {percent(PAPER_SHARE, 0)}"


def _share(point: Point) -> str:
    return percent(point.value, 0)


def _written(pair: tuple[str, str], shares: Pairs, reached: Pairs) -> str:
    done, seeds = seeds_of(shares, reached, pair)
    if pair not in shares:
        return "never"
    return _share(shares[pair]) + (f" ({done}/{seeds})" if done < seeds else "")


def _dots(study: Study, baseline: str, shares: Pairs, reached: Pairs) -> Panel:
    """A row a model: after which share of its steps it is as good as the baseline at the end."""
    pairs = dict.fromkeys([*reached, *shares])
    rows = [m for m in study.models if (m, baseline) in pairs]
    rows.sort(key=lambda m: shares[m, baseline].value if (m, baseline) in shares else 2.0)
    marks = styles(study)
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    for row, model in enumerate(rows):
        pair, paint = (model, baseline), schemes.colour(study, model)
        traces.append(
            {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [row, row], "line": {"color": "@grid", "width": 1}, "hoverinfo": "skip"}
        )
        if (point := shares.get(pair)) is not None:
            trace: Trace = {"type": "scatter", "mode": "markers", "x": [point.value], "y": [row], "hoverinfo": "text", "cliponaxis": False}
            trace["hovertext"] = [hover(model, f"reaches {baseline}'s final loss", point, "share of its steps")]
            trace["marker"] = {"symbol": marks[model][1], "size": 10, "color": f"@{paint}"}
            if point.low is not None and point.high is not None:
                ends = {"array": [point.high - point.value], "arrayminus": [point.value - point.low]}
                trace["error_x"] = {"type": "data", "symmetric": False, **ends, "color": f"@{paint}", "thickness": 1.4, "width": 4}
            traces.append(trace)
        if paper(study, *pair):
            look = {"size": 10, "symbol": "circle-open", "color": f"@{paint}", "line": {"width": 1.4, "color": f"@{paint}"}}
            said = f"TUPE: {percent(PAPER_SHARE, 0)} of the steps for a better GLUE average"
            traces.append(
                {"type": "scatter", "mode": "markers", "x": [PAPER_SHARE], "y": [row], "marker": look}
                | {"hovertext": [said], "hoverinfo": "text"}
            )
        place = {"xref": "paper", "x": 1, "xanchor": "left", "y": row, "showarrow": False, "xshift": 10}
        never = pair not in shares
        notes.append(
            place | {"text": _written(pair, shares, reached), "font": {"size": TEXT_SIZE, "color": "@muted" if never else "@text"}}
        )
    top = max([1.0, *(p.high for p in shares.values() if p.high is not None)])
    x = share_axis("", (-0.03, min(top, HIGHEST) * 1.03), (0, 0.25, 0.5, 0.75, 1)) | {"showgrid": True}
    x["title"]["text"] = "share of its steps"
    names = {"tickvals": list(range(len(rows))), "ticktext": [plain(m, LABEL_LIMIT) for m in rows]}
    y = axis("", range=[len(rows) - 0.5, -0.5], showgrid=False, **(names | {"tickfont": {"size": TEXT_SIZE, "color": "@text"}}))
    longest = max(min(len(m), LABEL_LIMIT) for m in rows)
    plot = layout(ROW * len(rows) + 66, x, y, {"l": round(longest * CHARACTER) + 20, "r": 84, "t": 6, "b": 54}, annotations=notes)
    said = "; ".join(f"{m} {_written((m, baseline), shares, reached)}" for m in rows)
    return Panel(
        traces,
        plot,
        f"Final loss of {baseline}",
        f"Share of its steps after which each model reaches the final loss of {baseline}: {said}.",
    )


def _map(study: Study, shares: Pairs, reached: Pairs, baselines: list[str]) -> Panel:
    """Models by baselines, where they are many: shares as colours and in the hover, nothing where the loss is never reached."""
    models = [m for m in study.models if m in baselines or any(pair[0] == m for pair in (*shares, *reached))]
    models.sort(key=lambda m: -sum((m, b) in shares for b in baselines))
    z = np.array([[shares[m, b].value if (m, b) in shares else np.nan for b in models] for m in models])
    places = list(range(1, len(models) + 1))
    trace = heatmap(z, places, places, "", (0.0, 1.0)) | {"hoverinfo": "text"}
    del trace["hovertemplate"]
    trace["text"] = [
        [f"<b>{plain(m)}</b> reaches {plain(b)}'s final loss:<br>{_written((m, b), shares, reached)}" if m != b else "" for b in models]
        for m in models
    ]
    trace["colorbar"] |= {"tickformat": ".0%"}
    names = [f"{plain(m, LABEL_LIMIT)} {i}" for i, m in enumerate(models, 1)]
    left = round(CHARACTER * max(min(len(m), LABEL_LIMIT) + 3 for m in models)) + 16
    plot = map_layout(24 * len(models) + 64, "", "", left=left)
    plot["xaxis"] |= {"tickvals": [i for i in places if i == 1 or i % 5 == 0]}
    plot["xaxis"]["title"]["text"] = "final loss of"
    plot["yaxis"] |= {"tickvals": places, "ticktext": names}
    never = "; ".join(f"{m}: {sum((m, b) in shares for b in baselines)} of {len(baselines)}" for m in models)
    return Panel([trace], plot, "", f"How many final losses of others each model reaches. {never}.")


def _subtitle(study: Study, shares: Pairs, pairs: Mapping[tuple[str, str], Point], published: bool) -> str:
    seeds = max((p.seeds for p in pairs.values()), default=0)
    over = (
        f"mean over {count(seeds, 'training seed')}, {percent(0.95, 0)} interval between seeds"
        if any(p.over == "seeds" for p in shares.values())
        else "one training seed, no interval"
    )
    drawn = (
        "A row a model, columns in the same order its baselines; empty: never. Intervals are in the table."
        if many(study)
        else "Each panel is one baseline, each row a model; \u201cnever\u201d: not within its own steps, in brackets the seeds that do."
    )
    said = (
        "The share of its own steps from which on a model's validation loss stays at or below the baseline's at the end, between two "
        f"validations by straight lines; {over}. {drawn}"
    )
    if published:
        drawn = "" if many(study) else "Hollow: "
        said += f" {drawn}TUPE's {percent(PAPER_SHARE, 0)} of the steps for a better GLUE average, printed for BERT-base and 1M steps."
    if stuck := stuck_models(study):
        said += f" On the unigram plateau, so easily reached: {', '.join(f'`{m}`' for m in stuck[: NAMED + 2])}."
    return said


def _table(study: Study, pairs: Mapping[tuple[str, str], Point], shares: Pairs, reached: Pairs) -> Table:
    rows: list[list[Cell]] = []
    for pair in pairs:
        done, seeds = seeds_of(shares, reached, pair)
        cells = measured(shares[pair]) if pair in shares else [Cell("never"), Cell(""), Cell("")]
        cells = [value(c.raw, percent(c.raw)) if isinstance(c.raw, float) else c for c in cells]
        printed = value(PAPER_SHARE, percent(PAPER_SHARE, 0)) if paper(study, *pair) else Cell("–")
        rows.append([text(pair[0]), text(pair[1]), *cells, value(done, str(done)), value(seeds, str(seeds)), printed])
    columns = ["Model", "Baseline", "Share of its steps", "Low", "High", "Seeds that reach it", "Seeds", "TUPE"]
    return Table("convergence", "Share of its steps to each baseline's final loss", columns, rows, frozenset(range(2, 8)))
