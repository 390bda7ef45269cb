"""What a scheme buys: loss over training, how soon a model reaches another's loss, and what each costs."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from ...records.table import Point
from .. import schemes
from ..figure import Cell, Figure, Panel, Table, measured, row, text, value
from ..forms.axes import Axis
from ..forms.curves import EVERYWHERE, LEVEL, OURS, Curves, Line, in_families, line_of
from ..forms.form import INTERVAL
from ..forms.maps import Maps, heatmap
from ..forms.rows import PAPER, Row, Rows
from ..loaded_run import Run
from ..numbers import compact, duration, memory
from ..style import CHARACTER, LABEL_LIMIT, plain
from ..titles import best, claimed, losses, mark, per_cent, rounded, totals

PAPER_SHARE = 0.3  # TUPE 4.2: a better GLUE average than its baselines after 30 % of the steps
# TUPE's models and its baselines of their own making.
PAIRS = [("tupe-a", "bert-a"), ("tupe-r", "bert-r"), ("tupe-a", "bert-r"), ("tupe-r", "bert-a")]


def _gaps(run: Run, lines: Sequence[Line]) -> Mapping[str, str]:
    steps = {line.name: max(line.points) for line in lines if line.kind == OURS and max(line.points)}
    rates = [t.value / most for model, most in steps.items() if (t := run.table.point("tokens", model))]
    rate = f". A step sees {compact(rates[0])} tokens" if rates and max(rates) <= 1.01 * min(rates) else ""
    level = ". Dashed: the entropy of token frequencies, where a model that learns nothing else stays"
    return {"rate": rate, "level": level if run.plateau() is not None else ""}


@Curves(
    "loss",
    "Loss by step, as drawn",
    losses,
    y=Axis("nats"),
    x=Axis("steps", word="step"),
    records=("loss: part, step", "loss.unigram"),
    width=400,
    gaps=_gaps,
)
def loss(run: Run) -> Iterator[Line]:
    """Cross-entropy of masked tokens in nats{rate}{level}."""
    lines: list[Line] = []
    many = schemes.many(run)  # of these the validation losses alone, a panel a family
    for part, panel in (("validation", "Validation loss"), ("train", "Training loss")):
        if not (lines and many):
            curves = {m: run.table.points("loss", m, by="step", part=part) for m in run.models}
            lines += [line_of(run, points, m, panel=panel, thick=1.8) for m, points in curves.items() if points]
    yield from in_families(run, lines) if many else lines
    if (level := run.plateau()) is not None:
        yield Line({0: Point.between(level)}, "unigram", kind=LEVEL, panel=EVERYWHERE)


def _shares(run: Run) -> Iterator[Row]:
    """A row a model and baseline: after which share of its steps it is as good as the baseline at the end."""
    for baseline in run.models:
        panel = f"Final loss of {baseline}"
        against = []
        for model in run.models:
            reached = run.table.point("convergence.reached", model, part=baseline)
            share = run.table.point("convergence.share", model, part=baseline)
            if model == baseline or not (reached or share):
                continue
            points = {"": share} if share else {}
            if (schemes.preset(run, model), schemes.preset(run, baseline)) in PAIRS:
                points[PAPER] = Point.between(PAPER_SHARE)
            some = ""
            if reached and 0 < reached.value < 1:
                some = f"({reached.seed_values.sum():.0f}/{len(reached.seed_values)})"
            hue = schemes.colour(run, model)
            against.append(Row(model, points, panel, colour=hue, never="never", remark=some))
        yield from sorted(against, key=lambda row: row.value.value if row.value else 2.0)


def _soonest(run: Run, drawn: object) -> str:
    if verdict := claimed(run, "tupe-a-30-percent", "tupe-r-30-percent", what="share of the steps"):
        return verdict
    rows = list(_shares(run))
    points = {f"`{row.name}` to the {row.panel[0].lower()}{row.panel[1:]}": row.value for row in rows if row.value}
    if not points:
        return "No model reaches the final loss of another before its own end"
    undertrained = [m for m in run.weak_models if any(row.panel.endswith(f"of {m}") for row in rows)]
    return best(points, "Share of its own steps", lowest=True, write=rounded, mark=mark(run, *undertrained))


_SHARE = "Share of its steps to each baseline's final loss"
_CONVERGENCE = tuple(f"convergence.{what}: model, part = baseline, seed" for what in ("share", "reached"))


@Rows(
    "convergence",
    _SHARE,
    _soonest,
    x=Axis("share of its steps", "share", (0, 1), top=1.25),
    columns=("Baseline", "", "Model"),
    records=_CONVERGENCE,
    width=280,
)
def convergence_rows(run: Run) -> Iterator[Row]:
    """The share of its own steps from which on a model's validation loss stays at or below the baseline's at the end,
    between two validations by straight lines. “Never”: not within its own steps, in brackets the seeds that do.
    Hollow: TUPE's 30\u202f% of the steps for a better GLUE average, for BERT-base and 1M steps."""
    yield from _shares(run)


@Maps(
    "convergence",
    _SHARE,
    _soonest,
    columns=("Baseline", "Model", "Share of its steps", "Low", "High"),
    records=_CONVERGENCE,
    width=280,
    every=True,
)
def _map(run: Run) -> Iterator[tuple[Panel, list[list[Cell]]]]:
    """The share of its own steps from which on a model's validation loss stays at or below the baseline's at the end,
    between two validations by straight lines. “Never”: not within its own steps, in brackets the seeds that do. A row a
    model, columns in the same order its baselines; empty: never."""
    never = [Cell("never"), Cell(""), Cell("")]
    rows = [
        row(row_share.panel, row_share.whole, row_share.value)
        if row_share.value
        else row(row_share.panel, row_share.whole, *never)
        for row_share in _shares(run)
    ]
    share = {(m, b): p for b in run.models for m, p in run.values("convergence.share", part=b).items() if m != b}
    models = sorted(run.models, key=lambda m: -sum(model == m for model, _ in share))
    z = np.array([[p.value if (p := share.get((m, b))) else np.nan for b in models] for m in models])
    values = {pair: rounded(p) for pair, p in share.items()}
    texts = [
        [f"<b>{plain(m)}</b> reaches {plain(b)}'s final loss: {values.get((m, b), 'never')}" for b in models]
        for m in models
    ]
    places = list(range(1, len(models) + 1))
    look: dict[str, Any] = {
        "height": 24 * len(models) + 64,
        "trace": {"hoverinfo": "text", "text": texts},
        "yaxis": {"tickvals": places, "ticktext": [f"{plain(m, LABEL_LIMIT)} {i}" for i, m in enumerate(models, 1)]},
        "xaxis": {"tickvals": [i for i in places if i == 1 or i % 5 == 0]},
        "margin": {"l": round(CHARACTER * max(min(len(m), LABEL_LIMIT) + 3 for m in models)) + 16},
    }
    if rows:
        yield heatmap(z, places, places, "", "%{text}", (0.0, 1.0), ("final loss of", ""), **look), rows


def convergence(run: Run) -> Figure | None:
    """Draw how soon a model reaches another's loss: rows, or a map where models are many."""
    return _map(run) if schemes.many(run) else convergence_rows(run)


# Column of the table of costs -> (metric, how it is written).
COSTS = {
    "Parameters": ("parameters", compact),
    "of them embeddings": ("parameters.embedding", compact),
    "Operations/token": ("operations", compact),
    "Steps": ("steps", compact),
    "Training tokens": ("tokens", compact),
    "Training time": ("seconds", duration),
    "Tokens/s": ("tokens_per_second", compact),
    "Peak memory": ("memory.peak", memory),
}


def costs(run: Run) -> Table | None:
    """Return the table of final validation loss, size and cost of every model."""
    kinds = {name: kind for name, kind in COSTS.items() if totals(run, kind[0])}
    finals = {m: p for m in run.models if (p := run.last("loss", m))}
    if not finals and not kinds:
        return None
    rows = []
    for model in run.models:
        right = run.last("accuracy", model)
        cells = [*measured(finals.get(model)), value(right.value, per_cent(right)) if right else Cell("–")]
        for metric, write in kinds.values():
            p = run.table.point(metric, model)
            cells.append(value(p.value, write(p.value)) if p else Cell("–"))
        rows.append([text(model), *cells])
    columns = ["Model", "Validation loss, nats", "Low", "High", "Masked tokens right", *kinds]
    shown = [i == 0 or any(row[i].raw is not None for row in rows) for i in range(len(columns))]
    fewest, most = run.trainings
    number = f"{most}" if fewest == most else f"{fewest} to {most}"
    seeds = f"means over {number} training seeds with the {INTERVAL} between seeds"
    caption = f"Final loss, size and cost, {seeds if most > 1 else 'one training seed'}"
    rows = [list(compress(row, shown)) for row in rows]
    records = ("loss: part", "accuracy: part", *(metric for metric, _ in kinds.values()))
    return Table.of("costs", caption, list(compress(columns, shown)), rows, *records)


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.learning": (
        loss,
        convergence,
    )
}
