"""What a scheme buys: loss over training, how soon a model reaches another's loss, and what each costs."""

from collections.abc import Sequence

import numpy as np

from ...points import Point
from .. import schemes
from ..figure import Cell, Figure, Table, measured, text, value
from ..forms.axes import Axis
from ..forms.curves import EVERYWHERE, LEVEL, OURS, Curves, Line, in_families
from ..forms.maps import Map, Maps
from ..forms.marks import LEVEL as INTERVAL
from ..forms.rows import PAPER, Row, Rows
from ..numbers import compact, duration, memory, percent
from ..run import Run
from ..style import CHARACTER, LABEL_LIMIT, plain
from ..titles import best, claimed, judged, losses, totals

PAPER_SHARE = 0.3  # TUPE 4.2: a better GLUE average than its baselines after 30 % of the steps
# TUPE's models and its baselines of their own making.
PAIRS = [("tupe-a", "bert-a"), ("tupe-r", "bert-r"), ("tupe-a", "bert-r"), ("tupe-r", "bert-a")]


def _losses(run: Run) -> Sequence[Line]:
    """Validation and training loss by step; of many models the validation losses alone, a panel a family."""
    parts = [
        p for p in ("validation", "train") if any(run.table.points("loss", m, by="step", part=p) for m in run.models)
    ]
    lines = []
    for part in parts[:1] if schemes.many(run) else parts:
        panel = "Validation loss" if part == "validation" else "Training loss"
        for model in run.models:
            points = run.table.points("loss", model, by="step", part=part)
            lines.append(
                Line(points, model, "", schemes.colour(run, model), schemes.marks(run)[model], panel=panel, thick=1.8)
            )
    if (level := run.plateau()) is not None:
        lines.append(Line({0: Point.between(level)}, "unigram", kind=LEVEL, panel=EVERYWHERE))
    return (
        in_families(run, [e for e in lines if e.kind == OURS]) + [e for e in lines if e.kind == LEVEL]
        if schemes.many(run)
        else lines
    )


def _loss_words(run: Run, lines: Sequence[Line]) -> str:
    rates = [
        t.value / max(each.points)
        for each in lines
        if each.kind == OURS and (t := run.table.point("tokens", each.name)) and max(each.points)
    ]
    rate = f". A step sees {compact(rates[0])} tokens" if rates and max(rates) <= 1.01 * min(rates) else ""
    level = (
        ". Dashed: the entropy of token frequencies, where a model that learns nothing else stays"
        if run.plateau() is not None
        else ""
    )
    return f"Cross-entropy of masked tokens in nats{rate}{level}"


LOSS = Curves(
    "loss",
    "loss",
    _losses,
    losses,
    _loss_words,
    "Loss by step, as drawn",
    Axis("steps", word="step"),
    Axis("nats"),
    ("Model", ""),
    ("loss: part, step", "loss.unigram"),
    400,
)


def _shares(run: Run) -> Sequence[Row]:
    """A row a model and baseline: after which share of its steps it is as good as the baseline at the end."""
    rows = []
    for baseline in run.models:
        mine = []
        for model in run.models:
            reached, share = (
                run.table.point(f"convergence.{what}", model, part=baseline) for what in ("reached", "share")
            )
            if model == baseline or not (reached or share):
                continue
            points = {"": share} if share else {}
            if (schemes.preset(run, model), schemes.preset(run, baseline)) in PAIRS:
                points |= {PAPER: Point.between(PAPER_SHARE)}
            some = reached and 0 < reached.value < 1
            name = f"{model} ({round(float(reached.each.sum()))}/{len(reached.each)})" if some and reached else model
            mine.append(
                Row(name, points, f"Final loss of {baseline}", colour=schemes.colour(run, model), never="never")
            )
        rows += sorted(mine, key=lambda row: row.value.value if row.value else 2.0)
    return rows


def _soonest(run: Run, rows: Sequence[Row]) -> str:
    if told := claimed(run, "tupe-a-30-percent", "tupe-r-30-percent", what="share of the steps"):
        return told
    points = {f"`{row.name}` to the {row.panel[0].lower()}{row.panel[1:]}": row.value for row in rows if row.value}
    if not points:
        return "No model reaches the final loss of another before its own end"
    told = best(points, "The fewest of its steps needs", lowest=True, write=lambda p: percent(p.value, 0))
    return judged(run, [m for m in run.stuck if any(row.panel.endswith(f"of {m}") for row in rows)][:1], told)


_CONVERGENCE_WORDS = (
    "The share of its own steps from which on a model's validation loss stays at or below the baseline's at the end, "
    "between two validations by straight lines. “Never”: not within its own steps, in brackets the seeds that do"
)
_CONVERGENCE_RECORDS = (
    "convergence.share: model, part = baseline, seed",
    "convergence.reached: model, part = baseline, seed",
)

CONVERGENCE = Rows(
    "convergence",
    "convergence.share",
    _shares,
    _soonest,
    f"{_CONVERGENCE_WORDS}. Hollow: TUPE's 30\u202f% of the steps for a better GLUE average, for BERT-base and 1M "
    "steps",
    "Share of its steps to each baseline's final loss",
    Axis("share of its steps", "share", (0, 1), top=1.25),
    ("Baseline", "", "Model"),
    _CONVERGENCE_RECORDS,
    280,
)


def _share_map(run: Run) -> Sequence[Map]:
    """Models by baselines, where they are many: shares as colours, nothing where the loss is never reached."""
    rows = _shares(run)
    if not rows:
        return []
    share = {(m, b): run.table.point("convergence.share", m, part=b) for m in run.models for b in run.models if m != b}
    models = sorted(run.models, key=lambda m: -sum(p is not None for (model, _), p in share.items() if model == m))
    z = np.array([[p.value if (p := share.get((m, b))) else np.nan for b in models] for m in models])
    places = list(range(1, len(models) + 1))
    said = [
        [
            f"<b>{plain(m)}</b> reaches {plain(b)}'s final loss: "
            f"{percent(p.value, 0) if (p := share.get((m, b))) else 'never'}"
            for b in models
        ]
        for m in models
    ]
    left = round(CHARACTER * max(min(len(m), LABEL_LIMIT) + 3 for m in models)) + 16
    more = {
        "trace": {"hoverinfo": "text", "text": said, "hovertemplate": "%{text}<extra></extra>"},
        "yaxis": {"tickvals": places, "ticktext": [f"{plain(m, LABEL_LIMIT)} {i}" for i, m in enumerate(models, 1)]},
        "xaxis": {"tickvals": [i for i in places if i == 1 or i % 5 == 0]},
        "margin": {"l": left},
    }
    return [Map(z, places, places, "", (0.0, 1.0), ("final loss of", ""), "", height=24 * len(models) + 64, more=more)]


CONVERGENCE_MAP = Maps(
    "convergence",
    _share_map,
    lambda run: _soonest(run, _shares(run)),
    lambda run: f"{_CONVERGENCE_WORDS}. A row a model, columns in the same order its baselines; empty: never.",
    "Share of its steps to each baseline's final loss",
    lambda run: ["Baseline", "Model", "Share of its steps", "Low", "High"],
    lambda run: [
        [text(r.panel), text(r.name), *(measured(r.value) if r.value else [Cell("never"), Cell(""), Cell("")])]
        for r in _shares(run)
    ],
    _CONVERGENCE_RECORDS,
    280,
    2,
    "The table below holds every value.",
)


def costs(run: Run) -> Table | None:
    """Final validation loss, size and cost of every model."""
    kinds = [
        ("Parameters", "parameters", compact),
        ("of them embeddings", "parameters.embedding", compact),
        ("Operations/token", "operations", compact),
        ("Steps", "steps", compact),
        ("Training tokens", "tokens", compact),
        ("Training time", "seconds", duration),
        ("Tokens/s", "tokens_per_second", compact),
        ("Peak memory", "memory.peak", memory),
    ]
    kinds = [k for k in kinds if totals(run, k[1])]
    finals = {m: p for m in run.models if (p := run.last("loss", m))}
    if not finals and not kinds:
        return None
    rows = []
    for model in run.models:
        right = run.last("accuracy", model)
        row = [
            text(model),
            *measured(finals.get(model)),
            value(right.value, percent(right.value)) if right else Cell("–"),
        ]
        points = [(run.table.point(metric, model), write) for _, metric, write in kinds]
        rows.append([*row, *(value(p.value, write(p.value)) if p else Cell("–") for p, write in points)])
    columns = ["Model", "Validation loss, nats", "Low", "High", "Masked tokens right", *(name for name, _, _ in kinds)]
    keep = [i for i in range(len(columns)) if i == 0 or any(row[i].raw is not None for row in rows)]
    several = (
        f", means over {len(run.seeds)} training seeds with the {INTERVAL} between seeds"
        if len(run.seeds) > 1
        else ", one training seed"
    )
    records = ["loss: part", "accuracy: part", *(metric for _, metric, _ in kinds)]
    shown = [[row[i] for i in keep] for row in rows]
    return Table(
        "costs",
        f"Final loss, size and cost{several}",
        [columns[i] for i in keep],
        shown,
        frozenset(range(1, len(keep))),
        records,
    )


def figures(run: Run) -> list[Figure]:
    """Losses, and how soon a model reaches another's."""
    form = CONVERGENCE_MAP if schemes.many(run) else CONVERGENCE
    return [f for f in (LOSS.draw(run), form.draw(run)) if f]
