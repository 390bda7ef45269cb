"""The pick: what every model of a run gives and costs, a row each, and one sentence by rule."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..records.gates import ONE_SEED, READ, USED, use
from ..records.table import Point
from ..records.terms import APART, rates
from . import schemes
from .figure import Cell, Table, row, value
from .folder import Run
from .forms.curves import paper_curve, reference_curve
from .numbers import compact, fixed, interval, percent
from .titles import listed

UNLIMITED = "any"
COLUMNS = ("Model", "Loss", "Beside the best", "Position kept", "Operations a token", "Longest input", "Parameters")


@dataclass(frozen=True)
class Pick:
    """The sentence, the terms of the comparison, a sentence each, the table, lowest loss first, and the colours of its
    models, which the rows switch.

    beside: position kept here, in the reference study and in the paper; None without a reference study.
    """

    sentence: str
    terms: Sequence[str]
    table: Table
    colours: Mapping[str, str]
    beside: Table | None = None


def pick(run: Run) -> Pick | None:
    """The pick of a run; None where no loss was recorded, or where it is several runs that differ."""
    ends = {} if run.apart else {m: p for m in run.models if (p := run.last("loss", m))}
    finals = dict(sorted(ends.items(), key=lambda end: end[1].value))
    if not finals:
        return None
    behind = {m: _behind(run, m, next(iter(finals)), finals) for m in list(finals)[1:]}
    rows = [_row(run, m, loss, behind.get(m)) for m, loss in finals.items()]
    pairs = [p.at.shape[1] for p in behind.values() if p.columns == "documents"]
    paired = f"paired over {max(pairs)} documents" if pairs else "difference"
    caption = (
        f"Loss: all held-out masked tokens, nats; beside the best: {paired}. Position kept: R² of position in the last "
        "trained layer, of a model with streams in its position stream"
    )
    if (beside := run.facts.get("at_once")) and isinstance(beside, int) and beside > 1:
        caption += f". Tokens/s: {beside} trainings side by side on this machine, the last perhaps alone"
    records = ("loss: part, step", "loss.document: index", "r2.token: layer, part, index = split")
    table = Table("pick", caption, (*COLUMNS, "Tokens/s"), rows, frozenset(range(1, 8)), records)
    terms = [said for said in (schemes.unequal_terms(run), rates(run.entries)) if said]
    colours = {m: schemes.colour(run, m) for m in finals}
    return Pick(_sentence(run, finals, behind), terms, table, colours, _beside(run, finals))


def _beside(run: Run, models: Iterable[str]) -> Table | None:
    """Position kept in three columns: of this run, of the reference study, of the paper."""
    study = run.beside.study
    if study is None or schemes.many(run):
        return None
    rows = []
    for model in models:
        there, printed = (draw(run, "r2.token", model, _part(run, model)) for draw in (reference_curve, paper_curve))
        points = (_kept(run, model), _end(there), _end(printed))
        rows.append(row(model, *(value(p.value, _bounded(p)) if p else None for p in points)))
    if all(cells[2].raw is None for cells in rows):
        return None
    caption = f"Position kept beside the reference study ({study.label}) and DSTG"
    caption += f". Terms: {run.beside.terms}" if run.beside.terms else ""
    columns = ("Model", "This run", f"Reference, {study.scale}", "Paper")
    return Table("position-kept", caption, columns, rows, frozenset({1, 2, 3}), ("r2.token: layer, part",))


def _bounded(point: Point) -> str:
    return f"{fixed(point.value, 2)} {interval(point.low, point.high, 2)}".strip()


def _end(points: Mapping[Any, Point]) -> Point | None:
    """The value of the last layer."""
    return points[max(points)] if points else None


def _behind(run: Run, model: str, best: str, finals: Mapping[str, Point]) -> Point:
    """How far a model's loss is above the best: paired by training seed, of one seed by held-out document."""
    for metric in ("loss.document", "ablation.loss"):  # of many documents, of the few that are ablated
        ours, theirs = (run.table.point(metric, m) for m in (model, best))
        if finals[model].seeds <= 1 and ours and theirs and ours.columns == theirs.columns == "documents":
            return ours - theirs
    return finals[model] - finals[best]


def _level(difference: Point) -> bool:
    """Whether two losses cannot be told apart: their difference may be 0, or with one seed is below `ONE_SEED`."""
    low, high = difference.interval or (difference.value, difference.value)
    room = ONE_SEED if difference.seeds == 1 else 0.0
    return min(low, difference.value - room) <= 0 <= max(high, difference.value + room)


def _kept(run: Run, model: str) -> Point | None:
    """R² of position in the last trained layer, of a model with streams in its position stream."""
    part = _part(run, model)
    layers = run.curve("r2.token", model, part)
    return _end({layer: p for layer, p in layers.items() if 0 < layer <= run.trained_until(model, part)})


def _part(run: Run, model: str) -> str:
    """The part whose position is read: the position stream where there is one."""
    return "position" if "position" in run.parts("r2.token", model) else "all"


def _longest(run: Run, model: str) -> str:
    """The longest input in tokens; any, where no table or matrix of positions ends."""
    config = run.config(model)
    if schemes.family(run, model) == "distance" and config.get("untied") != "free":
        return UNLIMITED
    most = config.get("max_position_embeddings")
    return f"{most:,}" if isinstance(most, int) else "–"


def _row(run: Run, model: str, loss: Point, behind: Point | None) -> list[Cell]:
    beside = Cell("best", 0.0)
    if behind is not None:
        beside = value(behind.value, f"{behind.value:+.2f} {interval(behind.low, behind.high, 2)}".strip())
    held, lost = (value(p.value, fixed(p.value, 2)) if p else None for p in (_kept(run, model), loss))
    costs = (run.table.point(name, model) for name in ("operations", "parameters", "tokens_per_second"))
    operations, *rest = (value(p.value, compact(p.value)) if p else None for p in costs)
    return row(model, lost, beside, held, operations, _longest(run, model), *rest)


def _sentence(run: Run, finals: Mapping[str, Point], behind: Mapping[str, Point]) -> str:
    """Who is level with the lowest loss, which of these costs least, and which alone keep position apart."""
    order = list(finals)
    best = order[0]
    if best in run.stuck:
        return "No model has learned more than token frequencies: there is nothing to choose between yet."
    level = [best, *(m for m, difference in behind.items() if _level(difference))]
    pieces = [_losses(level, finals, behind)]
    costs = {m: p.value for m in (level if len(level) > 1 else order) if (p := run.table.point("operations", m))}
    if len(costs) > 1:
        cheap = min(costs, key=lambda m: costs[m])
        dear = best if len(level) == 1 else max(costs, key=lambda m: costs[m])
        if dear in costs and costs[dear] > (1 + APART) * costs[cheap]:
            limits = _longest(run, cheap) == UNLIMITED != _longest(run, dear)
            less = f"{percent(1 - costs[cheap] / costs[dear], 0)} fewer operations than `{dear}`"
            pieces.append(f"`{cheap}` needs {less}" + " and has no length limit" * limits)
    positions = {m: p for m in order if "position" in run.parts("r2.token", m) and (p := _kept(run, m))}
    positions = {m: p for m, p in positions.items() if (worth := use(run.table, m)) is None or worth >= USED}
    keepers = [f"`{m}` (R² {fixed(p.value, 2)})" for m, p in positions.items() if p.value >= READ]
    if keepers:
        only = "only " if len(keepers) < len(order) else ""
        pieces.append(f"{only}{listed(keepers)} keep{'s' * (len(keepers) == 1)} position in a stream of its own")
    return "; ".join(pieces) + "."


def _losses(level: Sequence[str], finals: Mapping[str, Point], behind: Mapping[str, Point]) -> str:
    values = ", ".join(fixed(finals[m].value, 2) for m in level)
    if len(level) > 1:
        return f"{listed([f'`{m}`' for m in level])} are level in held-out loss ({values} nats)"
    once = ", one training each" * (finals[level[0]].seeds == 1 and bool(behind))
    told = f"`{level[0]}` has the lowest held-out loss ({values} nats{once})"
    for second, difference in list(behind.items())[:1]:
        bounds = f" {interval(difference.low, difference.high, 2)}".rstrip()
        told += f", `{second}` {difference.value:+.2f}{bounds}"
    return told
