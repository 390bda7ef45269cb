"""Figures and tables of the training: loss against steps and tokens, final losses, what each model cost."""

import math
from collections.abc import Sequence

from ..points import Point, average, summary
from . import findings, schemes
from .figures import Cell, Figure, Panel, Table, Trace, measured, reference, text, value
from .layer_panels import groups, many, styles
from .load import Study
from .numbers import compact, duration, fixed, memory, number, percent
from .style import axis, label_margin, layout, line_end_labels, plain

MOST_POINTS = 400  # of one curve; longer ones are averaged over equal runs of steps

Curve = list[tuple[float, Point]]  # (step, loss)


def at_the_end(study: Study, metric: str) -> dict[str, Point]:
    """Model -> a validation metric of the finished model; that of the last recorded step where no record says "finished"."""
    found = {}
    for model in study.models:
        point = study.point(metric, model, "validation")
        if point is None and (steps := [r for r in study.of(metric, model, "validation") if r.step is not None]):
            last = {r.seed: r for r in sorted(steps, key=lambda r: r.step or 0)}
            point = summary(last.values())
        if point is not None:
            found[model] = point
    return found


def final_losses(study: Study) -> dict[str, Point]:
    """Model -> validation loss at the end of the training."""
    return at_the_end(study, "loss")


def plateau(study: Study, model: str = "") -> float | None:
    """Loss of a model that knows token frequencies only, in nats; `model`: its own, where runs of several corpora stand side by side."""
    point = study.point("loss.unigram", model) or study.point("loss.unigram", "")
    return point.value if point else None


def stuck_models(study: Study) -> list[str]:
    """Models whose final validation loss is not clearly below the plateau."""
    finals = final_losses(study)
    levels = {m: level for m in finals if (level := plateau(study, m)) is not None}
    return [m for m, level in levels.items() if not findings.left_plateau(finals[m], level)]


def loss_curve(study: Study, model: str, part: str) -> Curve:
    """Loss by step: mean over seeds at the steps that all seeds have, averaged over runs of steps where there are many."""
    by_step: dict[int, list] = {}
    for r in study.of("loss", model, part):
        if r.step is not None and math.isfinite(r.value):
            by_step.setdefault(r.step, []).append(r)
    seeds = max((len({r.seed for r in rs}) for rs in by_step.values()), default=0)
    points = [(float(s), p) for s in sorted(by_step) if len({r.seed for r in by_step[s]}) == seeds and (p := summary(by_step[s]))]
    run = math.ceil(len(points) / MOST_POINTS)
    return points if run <= 1 else [_mean(points[i : i + run]) for i in range(0, len(points), run)]


def _mean(points: Curve) -> tuple[float, Point]:
    return sum(s for s, _ in points) / len(points), average([p for _, p in points])


def tokens_per_step(study: Study) -> float | None:
    """Training tokens that one step sees: tokens over steps, if it is the same for all models (to 1 %)."""
    rates = []
    for model in study.models:
        tokens = study.point("tokens", model)
        steps = [r.step for part in ("train", "validation") for r in study.of("loss", model, part) if r.step is not None]
        if tokens and steps and max(steps) > 0:
            rates.append(tokens.value / max(steps))
    return sum(rates) / len(rates) if rates and max(rates) <= 1.01 * min(rates) else None


def ticks(top: float, most: int = 5) -> list[float]:
    """At most `most` + 1 round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0]
    unit = 10.0 ** math.floor(math.log10(top / most))
    step = next(unit * k for k in (1, 2, 2.5, 5, 10, 20) if top / (unit * k) <= most)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def losses(study: Study) -> Figure | None:
    """Validation and training loss by step, with the tokens seen under the steps and the unigram plateau as a line.

    Of many models the validation losses alone are drawn, a panel a family.
    """
    curves = {part: {m: c for m in study.models if (c := loss_curve(study, m, part))} for part in ("validation", "train")}
    curves = {part: found for part, found in curves.items() if found}
    if not curves:
        return None
    if many(study) and len(curves) > 1:
        del curves["train"]
    level = plateau(study)
    last = max(c[-1][0] for found in curves.values() for c in found.values())
    every = [p.value for found in curves.values() for c in found.values() for _, p in c] + ([level] if level is not None else [])
    room = 0.04 * (max(every) - min(every) or 1.0)
    bounds = (min(every) - room, max(every) + room)
    names = [m for found in curves.values() for m in found] + (["unigram"] if level is not None else [])
    rate = tokens_per_step(study)
    panels = [
        _loss_panel(study, title, part, {m: curves[part][m] for m in models}, level, last, bounds, label_margin(names), rate)
        for part in curves
        for title, models in _loss_groups(study, part, curves[part])
    ]
    finals = final_losses(study)
    title = findings.losses(finals, level) if finals else "Loss while training"
    repeated = any(p.over == "seeds" for found in curves.values() for c in found.values() for _, p in c)
    seeds = (
        f"mean over {len(study.seeds)} training seeds, band: {percent(0.95, 0)} interval between seeds" if repeated else "one training seed"
    )
    long = any(len(study.of("loss", m, p)) > MOST_POINTS * max(1, len(study.seeds)) for p in curves for m in curves[p])
    what = "held-out masked tokens" if many(study) and "validation" in curves else "masked tokens"
    subtitle = f"Cross-entropy of {what} in nats; {seeds}." + (
        f" Dashed line: {fixed(level, 2)} nats, the entropy of token frequencies, where a model that learns nothing else stays."
        if level is not None
        else ""
    )
    subtitle += f" Curves of more than {MOST_POINTS} points are averaged over equal runs of steps." if long else ""
    table = _loss_table(curves, rate)
    records = ("loss: part, step", *(("loss.unigram",) if level is not None else ()))
    return Figure("loss", title, subtitle, panels, table, width=250 if many(study) else 460, even=many(study), records=records)


def _loss_groups(study: Study, part: str, curves: dict[str, Curve]) -> list[tuple[str, list[str]]]:
    """Title and models of every panel: all models together, or where they are many a panel a family."""
    if not many(study):
        return [("Validation loss" if part == "validation" else "Training loss", list(curves))]
    together = {"Both streams together": schemes.FAMILIES["streams"][0]}  # a loss is no stream's
    return [(together.get(g.title, g.title), [m for m, _ in g.lines]) for g in groups(study, [(m, "all") for m in curves])]


def _loss_panel(
    study: Study,
    title: str,
    part: str,
    curves: dict[str, Curve],
    level: float | None,
    last: float,
    bounds: tuple[float, float],
    right: int,
    rate: float | None,
) -> Panel:
    traces: list[Trace] = []
    if level is not None:
        traces.append(reference([0, last], [level, level], "the unigram plateau"))
    ends, marks_of = [], styles(study)
    for model, curve in curves.items():
        dash, symbol = marks_of[model]
        colour = schemes.colour(study, model)
        xs, ys = [s for s, _ in curve], [p.value for _, p in curve]
        if all(p.low is not None and p.high is not None for _, p in curve):
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": xs + xs[::-1],
                    "y": [p.high for _, p in curve] + [p.low for _, p in curve][::-1],
                    "fill": "toself",
                    "fillcolor": f"@band-{colour}",
                    "line": {"width": 0},
                    "hoverinfo": "skip",
                }
            )
        marks = part == "validation" and len(curve) <= 60
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if marks else "lines",
                "x": xs,
                "y": ys,
                "line": {"color": f"@{colour}", "dash": dash, "width": 1.8},
                "marker": {"symbol": symbol, "size": 6, "color": f"@{colour}"},
                "hovertext": [f"<b>{plain(model)}</b><br>step {number(round(s))}: {fixed(y, 3)} nats" for s, y in zip(xs, ys, strict=True)],
                "hoverinfo": "text",
            }
        )
        ends.append((xs[-1], ys[-1], model, colour))
    if level is not None and not many(study):
        ends.append((last, level, "unigram", "combined"))
    places = ticks(last, 2 if many(study) else 5)
    shown = [compact(t) + (f"<br>{compact(t * rate)}" if rate else "") for t in places]
    height, margin = 250 if many(study) else 360, {"l": 52, "r": right, "t": 8, "b": 78 if rate else 52}
    plot = layout(
        height,
        axis(
            ("steps and tokens" if many(study) else "steps, below them training tokens") if rate else "steps",
            range=[-0.01 * last, last * 1.01],
            tickvals=places,
            ticktext=shown,
            showgrid=False,
        ),
        axis("nats", range=list(bounds), nticks=5 if many(study) else 7),
        margin,
        annotations=line_end_labels(ends, bounds, height - margin["t"] - margin["b"]),
    )
    spoken = "; ".join(f"{m}: {fixed(c[0][1].value, 2)} to {fixed(c[-1][1].value, 2)}" for m, c in curves.items())
    return Panel(traces, plot, title, f"{title}, {part} loss from first to last step. {spoken}.")


def _loss_table(curves: dict[str, dict[str, Curve]], rate: float | None) -> Table:
    rows: list[list[Cell]] = [
        [
            text({"train": "training"}.get(part, part)),
            text(model),
            value(step, compact(step)),
            value(step * rate, compact(step * rate)) if rate else Cell("–"),
        ]
        + measured(p)
        for part, found in curves.items()
        for model, curve in found.items()
        for step, p in curve
    ]
    return Table(
        "loss", "Loss by step, as drawn", ["Part", "Model", "Step", "Tokens", "Loss, nats", "Low", "High"], rows, frozenset(range(2, 7))
    )


def costs(study: Study) -> Table | None:
    """Final validation loss, size and cost of every model."""
    finals = final_losses(study)
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
    found = {metric: {m: p for m in study.models if (p := study.point(metric, m))} for _, metric, _ in kinds}
    kinds = [k for k in kinds if found[k[1]]]
    accuracies = at_the_end(study, "accuracy")
    if not finals and not kinds:
        return None
    rows = []
    for model in study.models:
        accuracy = accuracies.get(model)
        row = [text(model), *measured(finals.get(model)), value(accuracy.value, percent(accuracy.value)) if accuracy else Cell("–")]
        row += [value(p.value, write(p.value)) if (p := found[metric].get(model)) else Cell("–") for _, metric, write in kinds]
        rows.append(row)
    columns = ["Model", "Validation loss, nats", "Low", "High", "Masked tokens right", *(name for name, _, _ in kinds)]
    keep = [i for i in range(len(columns)) if i == 0 or any(row[i].raw is not None for row in rows)]
    many = len(study.seeds) > 1
    caption = "Final loss, size and cost" + (
        f", means over {len(study.seeds)} training seeds with the {percent(0.95, 0)} interval between seeds"
        if many
        else ", one training seed"
    )
    records = [*(f"{m}: part" for m, kept in (("loss", finals), ("accuracy", accuracies)) if kept), *(metric for _, metric, _ in kinds)]
    shown = [[row[i] for i in keep] for row in rows]
    return Table("costs", caption, [columns[i] for i in keep], shown, frozenset(range(1, len(keep))), records)


def totals(study: Study, metric: str) -> Sequence[float]:
    """The values of a metric over all models, for the line under the title."""
    return [p.value for m in study.models if (p := study.point(metric, m))]
