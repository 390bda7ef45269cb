"""The pick: what every model of a run gives and costs, a row each, and one sentence by rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..gates import ONE_SEED, READ
from ..points import Point
from . import schemes
from .figure import Cell, Table, text, value
from .numbers import compact, fixed, interval, percent
from .run import Run
from .titles import listed

UNLIMITED = "any"
COLUMNS = (
    *("Model", "Loss", "Beside the best", "Position kept", "Operations a token", "Longest input", "Parameters"),
    "Tokens/s",
)


@dataclass(frozen=True)
class Pick:
    """The sentence, and the table below it, the model with the lowest loss first; colours: of the models, which its
    rows switch on and off."""

    sentence: str
    table: Table
    colours: Mapping[str, str]


def pick(run: Run) -> Pick | None:
    """The pick of a run; None where no loss was recorded, or where it is several runs that differ."""
    finals = {} if run.apart else {m: p for m in run.models if (p := run.last("loss", m))}
    order = sorted(finals, key=lambda m: finals[m].value)
    if not order:
        return None
    behind = {m: _behind(run, m, order[0], finals) for m in order}
    rows = [_row(run, m, finals[m], behind[m] if m != order[0] else None) for m in order]
    pairs = {p.at.shape[1] for m, p in behind.items() if m != order[0] and p.columns == "documents"}
    paired = f"paired over {max(pairs)} documents" if pairs else "difference"
    caption = (
        f"Loss: all held-out masked tokens, nats; beside the best: {paired}. Position kept: R² of position in the last "
        "trained layer, of a model with streams in its position stream"
    )
    records = ("loss: part, step", "loss.document: index", "r2.token: layer, part, index = split")
    table = Table("pick", caption, COLUMNS, rows, frozenset(range(1, len(COLUMNS))), records)
    return Pick(_sentence(run, order, finals, behind), table, {m: schemes.colour(run, m) for m in order})


def _behind(run: Run, model: str, best: str, finals: Mapping[str, Point]) -> Point:
    """How far a model's loss is above the best: paired by training seed, of one seed by held-out document."""
    if finals[model].seeds > 1:
        return finals[model] - finals[best]
    for metric in ("loss.document", "ablation.loss"):  # of many documents, of the few that are ablated
        ours, theirs = (run.table.point(metric, m) for m in (model, best))
        if ours and theirs and ours.columns == theirs.columns == "documents":
            return ours - theirs
    return finals[model] - finals[best]


def _level(difference: Point) -> bool:
    """Whether two losses cannot be told apart: their difference may be 0, or with one seed is below `ONE_SEED`."""
    low, high = difference.interval or (difference.value, difference.value)
    room = ONE_SEED if difference.seeds == 1 else 0.0
    return min(low, difference.value - room) <= 0 <= max(high, difference.value + room)


def kept(run: Run, model: str) -> Point | None:
    """R² of position in the last trained layer, of a model with streams in its position stream."""
    part = "position" if "position" in run.parts("r2.token", model) else "all"
    layers = run.curve("r2.token", model, part)
    trained = [layer for layer in layers if 0 < layer <= run.trained_until(model, part)]
    return layers[max(trained)] if trained else None


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
    position = kept(run, model)
    costs = {name: run.table.point(name, model) for name in ("operations", "parameters", "tokens_per_second")}
    shown = {name: value(p.value, compact(p.value)) if p else Cell("–") for name, p in costs.items()}
    return [
        *(text(model), value(loss.value, fixed(loss.value, 2)), beside),
        value(position.value, fixed(position.value, 2)) if position else Cell("–"),
        *(shown["operations"], text(_longest(run, model)), shown["parameters"], shown["tokens_per_second"]),
    ]


def _sentence(run: Run, order: Sequence[str], finals: Mapping[str, Point], behind: Mapping[str, Point]) -> str:
    """Who is level with the lowest loss, which of these costs least, and which alone keep position apart."""
    best = order[0]
    if best in run.stuck:
        return "No model has learned more than token frequencies: there is nothing to choose between yet."
    level = [m for m in order if m == best or _level(behind[m])]
    pieces = [_losses(order, level, finals, behind)]
    costs = {m: p.value for m in (level if len(level) > 1 else order) if (p := run.table.point("operations", m))}
    if len(costs) > 1:
        cheap = min(costs, key=lambda m: costs[m])
        dear = best if len(level) == 1 else max(costs, key=lambda m: costs[m])
        if dear in costs and costs[dear] > (1 + schemes.APART) * costs[cheap]:
            limits = _longest(run, cheap) == UNLIMITED != _longest(run, dear)
            pieces.append(
                f"`{cheap}` needs {percent(1 - costs[cheap] / costs[dear], 0)} fewer operations than `{dear}`"
                + " and has no length limit" * limits
            )
    positions = {m: p for m in order if "position" in run.parts("r2.token", m) and (p := kept(run, m))}
    keepers = [f"`{m}` (R² {fixed(p.value, 2)})" for m, p in positions.items() if p.value >= READ]
    if keepers:
        only = "only " if len(keepers) < len(order) else ""
        pieces.append(f"{only}{listed(keepers)} keep{'s' * (len(keepers) == 1)} position in a stream of its own")
    return "; ".join(pieces) + "."


def _losses(
    order: Sequence[str], level: Sequence[str], finals: Mapping[str, Point], behind: Mapping[str, Point]
) -> str:
    if len(level) > 1:
        values = ", ".join(fixed(finals[m].value, 2) for m in level)
        return f"{listed([f'`{m}`' for m in level])} are level in held-out loss ({values} nats)"
    once = ", one training each" * (finals[order[0]].seeds == 1 and len(order) > 1)
    told = f"`{order[0]}` has the lowest held-out loss ({fixed(finals[order[0]].value, 2)} nats{once})"
    if len(order) == 1:
        return told
    second = behind[order[1]]
    bounds = f" {interval(second.low, second.high, 2)}" if second.low is not None else ""
    return f"{told}, `{order[1]}` {second.value:+.2f}{bounds}"
