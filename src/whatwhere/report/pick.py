"""The pick: what every model of a run gives and costs, a row each, and one sentence by rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..claims import HOLDS, UNSETTLED, UNTESTABLE
from ..claims.claim import MARGINAL
from ..papers import DSTG_TABLES
from ..records.gates import ONE_SEED, PRESENT, READ, USED, insufficient_gain, noise, use
from ..records.places import rank
from ..records.table import Point
from ..records.terms import APART, rates
from . import ledger, schemes
from .figure import Cell, Table, row, value
from .forms.curves import paper_curve, reference_curve
from .ledger import doubt
from .loaded_run import Run
from .numbers import compact, fine_percent, fixed, interval, number, percent
from .references import studies
from .titles import PAPER_TOKENS, SMALL, listed, named, totals

UNLIMITED = "any"
LOSSES = ("Model", "Loss", "Above the lowest")
OTHERS = ("Position kept", "Operations a token", "Longest input", "Parameters", "Tokens/s")
PLACE = (
    "Place: the first and the last that a model may have, over training seeds, where two models are apart by Holm's "
    "correction over all pairs (5 %). It and the intervals take one variance of a training for all"
)
DOUBT = "\u2020"  # stands at a value of the first table that the ledger cannot test
PAPER_COLUMNS = {"dstg": 48, "ap": 720}  # of the position tables of DSTG's models
# Preset -> the claim about its position in the last trained layer, about the share of two components of its table.
KEPT = {"dstg": "dstg-position-kept", "ap": "ap-loses-position"}
FLAT = {"dstg": "dstg-2d-collapse", "ap": "ap-table-high-dimensional"}


@dataclass(frozen=True)
class Comparison:
    """Comparison of one quantity in this run, in the reference study and in the paper, with a sentence on its claim.

    table: None without a reference study. sentence: "" where there is nothing to say.
    """

    table: Table | None
    sentence: str = ""


@dataclass(frozen=True)
class Pick:
    """The first screen of a study.

    sentence: which models are level, which costs less. terms: of the comparison, a sentence each. table: a row a model,
    lowest loss first. colours: of its models, which the rows switch. beside: position kept, and the share of two
    components, here, in the reference study and in the paper. apart: in what the reference study differs, sentences.
    """

    sentence: str
    terms: Sequence[str]
    table: Table
    colours: Mapping[str, str]
    beside: Sequence[Comparison] = ()
    apart: Sequence[str] = ()


def pick(run: Run) -> Pick | None:
    """Return the pick of a run; None where no loss was recorded, or where it is several runs that differ."""
    losses = {} if run.apart else _losses_of(run)
    finals = dict(sorted(losses.items(), key=lambda end: end[1].value))
    if not finals:
        return None
    best = next(iter(finals))
    behind = {m: loss - finals[best] for m, loss in finals.items() if m != best}
    places = _places(run, finals, behind)
    if places is not None:
        behind = dict(places.behind)
    rows = [_row(run, m, loss, behind.get(m), places) for m, loss in finals.items()]
    caption = f"{_sample(finals[best])} Position kept: R² in the last trained layer"
    if any(DOUBT in cell.text for cells in rows for cell in cells):
        caption += f" ({DOUBT} not testable)"
    at_once = run.facts.get("at_once")
    if isinstance(at_once, int) and at_once > 1:
        caption += f". Tokens/s: {at_once} trainings at once, the last perhaps alone"
    if places is not None:
        caption += f". {places.sentence}"
    records = ("loss: part, step", "loss.document: index", "r2.token: layer, part, index = split")
    columns = (*LOSSES, *OTHERS) if places is None else (*LOSSES, "Place", *OTHERS)
    table = Table("pick", caption, columns, rows, frozenset(range(1, len(columns))), records)
    terms = [sentence for sentence in (schemes.unequal_terms(run), rates(run.entries)) if sentence]
    colours = {m: schemes.colour(run, m) for m in finals}
    comparisons = [] if schemes.many(run) else [_position_kept(run, list(finals)), _components(run)]
    beside = [comparison for comparison in comparisons if comparison.table or comparison.sentence]
    apart: list[str] = []
    if run.beside.study and any(comparison.table for comparison in beside):
        apart = [f"Reference: {run.beside.study.label}. Paper: DSTG.", *run.beside.terms]
    return Pick(_sentence(run, finals, behind, places), terms, table, colours, beside, apart)


# ---- loss ----


def _losses_of(run: Run) -> dict[str, Point]:
    """Return the final loss of every model, so that the difference of two is what stands beside them.

    With one training seed it is the loss of the same held-out documents (of many, else of the few that were ablated),
    where every model has it: a difference then has an interval. Else, and of runs that are not known to hold back the
    same documents, it is the loss of all held-out tokens.
    """
    finals = {m: p for m in run.models if (p := run.last("loss", m))}
    if not run.paired or any(p.seeds > 1 for p in finals.values()):
        return finals
    for metric in ("loss.document", "ablation.loss"):
        points = {m: run.table.point(metric, m) for m in finals}
        known = {m: p for m, p in points.items() if p is not None and p.columns == "documents"}
        if len(known) == len(finals) and len({p.at.shape for p in known.values()}) == 1:
            return known
    return finals


@dataclass(frozen=True)
class Places:
    """Places of many models by their trainings.

    of: model -> first and last place. behind: model -> difference from the lowest loss, with an interval by the
    variance of all trainings where the model has a place. sentence: what a place is, and who widens the ties.
    """

    of: Mapping[str, tuple[int, int]]
    behind: Mapping[str, Point]
    sentence: str


def _places(run: Run, finals: Mapping[str, Point], behind: Mapping[str, Point]) -> Places | None:
    """Return the places of models; None of few models, of one seed, or where some model has other seeds.

    A model that has learned token frequencies alone has none: its trainings vary more than others'.
    """
    models = [m for m in finals if m not in run.stuck]
    seeds = {finals[m].numbers for m in models}
    if not schemes.many(run) or len(models) < 2 or len(seeds) > 1 or len(next(iter(seeds))) < 2:
        return None
    ranking = rank(np.array([finals[m].seed_values for m in models]))
    half = ranking.half_width
    pooled = {m: Point.between(d.value, d.value - half, d.value + half) for m, d in behind.items() if m in models}
    share = max(ranking.shares)
    widest = models[ranking.shares.index(share)]
    sentence = PLACE
    if share > 1 / 2:
        sentence += f"; `{widest}` makes {percent(share, 0)} of it and so widens all ties"
    return Places(dict(zip(models, ranking.places, strict=True)), {**behind, **pooled}, sentence)


def _sample(loss: Point) -> str:
    """Return what the losses of the table are means over."""
    if loss.columns == "documents":
        which = f"the same {loss.at.shape[1]} held-out documents that fill a window"
        return f"Loss: nats, mean over {which}, differences paired. That of the training counts shorter ones, too."
    return "Loss: nats, all held-out masked tokens."


# ---- beside the reference study and the paper ----


def _position_kept(run: Run, models: Sequence[str]) -> Comparison:
    """Compare the position that is kept in the last trained layer."""
    rows = []
    for model in models:
        part = _part(run, model)
        reference = _end(reference_curve(run, "r2.token", model, part))
        paper = _end(paper_curve(run, "r2.token", model, part))
        value = _marked(_position_r2_of(run, model), _bounded, _doubt(run, model, KEPT))
        other = _marked(reference, _bounded, _doubt_there(run, model, KEPT))
        rows.append(row(model, value, other, _marked(paper, _bounded, "")))
    streams = named([m for m in models if _part(run, m) == "position"])
    title = "R² of position in the last trained layer"
    title += f", of {streams} in its position stream" if streams else ""
    return Comparison(_beside_table(run, "position-kept", title, rows, "r2.token: layer, part"), _use(run))


def _components(run: Run) -> Comparison:
    """Compare the share of two components of the position tables of `dstg` and `ap`."""
    rows = []
    for preset in FLAT:
        model = run.named(preset)
        share = run.table.point("pca.top2", model) if model else None
        if model is None or share is None:
            continue
        reference = run.beside.table.point("pca.top2", model)
        shape = schemes.shape_of_table(run, model)
        noise_holds = schemes.two_components_of_noise(run, model, share.n)
        chance = value(noise_holds, f"{fine_percent(noise_holds)} ({shape})") if noise_holds else None
        here_cell = _marked(share, _shares, _doubt(run, model, FLAT))
        there_cell = _marked(reference, _shares, _doubt_there(run, model, FLAT))
        printed = DSTG_TABLES["pca.top2", preset, None]
        paper = value(printed, f"{fine_percent(printed)} ({PAPER_COLUMNS[preset]} columns)")
        rows.append(row(model, chance, here_cell, there_cell, paper))
    title = "Share of two components of the position table"
    return Comparison(_beside_table(run, "two-components", title, rows, "pca.top2", "Of noise"), _collapse(run))


def _beside_table(
    run: Run, id: str, title: str, rows: Sequence[Sequence[Cell]], record: str, *more: str
) -> Table | None:
    """Return the rows as a table; None without a reference study, or where it has nothing of them."""
    study = run.beside.study
    if study is None or all(cells[-2].raw is None for cells in rows):
        return None
    columns = ("Model", *more, "This run", f"Reference, {study.scale}", "Paper")
    return Table(id, title, columns, rows, frozenset(range(1, len(columns))), (record,))


def _marked(point: Point | None, write: Callable[[Point], str], doubt: str) -> Cell | None:
    """Return a measured value with the ledger's doubt behind it."""
    if point is None:
        return None
    return value(point.value, f"{write(point)}, {doubt}" if doubt else write(point))


def _bounded(point: Point) -> str:
    return f"{fixed(point.value, 2)} {interval(point.low, point.high, 2)}".strip()


def _shares(point: Point) -> str:
    if point.low is None or point.high is None:
        return fine_percent(point.value)
    return f"{fine_percent(point.value)} [{fixed(100 * point.low, 0)}, {fixed(100 * point.high, 0)}]"


def _doubt(run: Run, model: str, claims: Mapping[str, str]) -> str:
    """Return why the ledger does not judge a value of a model: not testable, so far not seen; or ""."""
    if model in run.weak_models:
        return doubt(UNTESTABLE)
    claim = _claim(run, model, claims)
    return "" if claim is None else doubt(str(claim.get("verdict")), str(claim.get("so_far") or ""))


def _doubt_there(run: Run, model: str, claims: Mapping[str, str]) -> str:
    """Return why the reference study's ledger does not judge its value, or ""."""
    if insufficient_gain(run.beside.table, model):
        return doubt(UNTESTABLE)
    id = claims.get(schemes.preset(run, model), "")
    claim = run.beside.claims.get(id) if run.named(schemes.preset(run, model)) == model else None
    return "" if claim is None else doubt(str(claim["verdict"]), str(claim["so_far"] or ""))


def _claim(run: Run, model: str, claims: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the claim of a model's preset, where the model is the one that it is judged on."""
    preset = schemes.preset(run, model)
    if run.named(preset) != model:
        return None
    return next((claim for claim in run.claims if claim.get("id") == claims.get(preset)), None)


def _use(run: Run) -> str:
    """Say that `dstg` keeps position without using it; "" where it does not, or where that was not measured."""
    model = run.named("dstg")
    claim = _claim(run, model, KEPT) if model else None
    share = _position_r2_of(run, model) if model else None
    worth = use(run.table, model) if model else None
    if claim is None or share is None or worth is None or worth >= USED:
        return ""
    bars = claim.get("bars") or [("at least", PRESENT)]
    if share.value < bars[0][1]:
        return ""
    mean = run.table.point("ablation.remove", model, part="absolute")
    rise = _rise(mean.value if mean else worth, worth, mean.seeds if mean else 1)
    return f"`{model}` keeps position but does not use it: without the absolute term {rise}."


def _rise(mean: float, weakest: float, seeds: int) -> str:
    """Say by how much the loss rises, mean over seeds with the seed where it rises least, and what is needed."""
    rise = f"the loss rises by {number(mean, most=3)} nats" if mean > 0 else "the loss does not rise"
    if seeds < 2:
        return f"{rise}, and {USED} are needed"
    return f"{rise} ({number(weakest, most=3)} in the weakest seed), and {USED} are needed in every seed"


def _collapse(run: Run) -> str:
    """Say whether the position table of `dstg` collapses to two dimensions, or why that is not known."""
    model = run.named("dstg")
    claim = _claim(run, model, FLAT) if model else None
    if model is None or claim is None or run.table.point("pca.top2", model) is None:
        return ""
    verdict = ledger.row(claim)
    sentence = f"The position table of `{model}` collapses to two dimensions"
    if verdict.verdict == UNTESTABLE:
        why = noise(run.table, model) or verdict.reason
        remark = f"Whether the position table of `{model}` collapses to two dimensions cannot be tested here: {why}."
    elif verdict.verdict == UNSETTLED:
        remark = f"{sentence}: not settled, so far {verdict.so_far}."
    else:
        remark = f"{sentence}: {ledger.shown_verdict(verdict.verdict)}."
    tokens = max(totals(run, "tokens"), default=0.0)
    if verdict.verdict == HOLDS or tokens >= SMALL * PAPER_TOKENS:
        return remark
    return f"{remark} From a random start it was not seen at this scale.{_half_turn(run)}"


def _half_turn(run: Run) -> str:
    """Say what became of a position table that started as half a turn, in the reference study beside the run or else in
    another of its size; "" without one."""
    beside = run.beside.study
    others = [] if beside is None else [s for s in studies()[0] if s.facts["size"] == beside.facts.get("size")]
    for study in filter(None, [beside, *others]):
        for name, settings in study.models.items():
            first, last = (study.table.point("pca.top2", name, step=step) for step in (0, None))
            if settings.get("table_start") == "half-turn" and first is not None and last is not None:
                return (
                    f" Of one that starts in two (`table_start: half-turn`) two components hold "
                    f"{fine_percent(first.value)} before training and {_shares(last)} after {study.label}."
                )
    return ""


def _end(points: Mapping[Any, Point]) -> Point | None:
    """Return the value of the last layer."""
    return points[max(points)] if points else None


# ---- one table, one sentence ----


def _level(difference: Point) -> bool:
    """Say whether two losses cannot be told apart: their difference may be 0, or with one seed is below `ONE_SEED`."""
    low, high = difference.interval or (difference.value, difference.value)
    room = ONE_SEED if difference.seeds == 1 else 0.0
    return min(low, difference.value - room) <= 0 <= max(high, difference.value + room)


def _is_within(difference: Point, margin: float) -> bool:
    """Return whether a difference and its interval lie within a margin around 0."""
    low, high = difference.interval or (difference.value, difference.value)
    return -margin <= low and high <= margin


def _position_r2_of(run: Run, model: str) -> Point | None:
    """Return R² of position in the last trained layer, of a model with streams in its position stream."""
    part = _part(run, model)
    layers = run.curve("r2.token", model, part)
    return _end({layer: p for layer, p in layers.items() if 0 < layer <= run.trained_until(model, part)})


def _written(run: Run, model: str) -> Point | None:
    """Return R² of position in what the last trained block writes into the position stream; None if not probed."""
    layers = run.curve("r2.update.token", model, "position")
    return _end({layer: p for layer, p in layers.items() if 0 < layer <= run.trained_until(model, "position")})


def _part(run: Run, model: str) -> str:
    """Return the part whose position is read: the position stream of a model with streams, whether probed or not."""
    return "position" if schemes.family(run, model) == "streams" else "all"


def _longest(run: Run, model: str) -> str:
    """Return the longest input in tokens; any, where no table or matrix of positions ends."""
    config = run.config(model)
    if schemes.family(run, model) in ("rotated", "distance", "content"):
        return UNLIMITED
    most = config.get("max_position_embeddings")
    return f"{most:,}" if isinstance(most, int) else "–"


def _row(run: Run, model: str, loss: Point, behind: Point | None, places: Places | None) -> list[Cell]:
    """Return the row of a model."""
    beside = Cell("lowest", 0.0)
    if behind is not None:
        beside = value(behind.value, f"{behind.value:+.2f} {interval(behind.low, behind.high, 2)}".strip())
    share = _position_r2_of(run, model)
    mark = DOUBT if _doubt(run, model, KEPT) == doubt(UNTESTABLE) else ""
    position = value(share.value, fixed(share.value, 2) + mark) if share else None
    costs = [run.table.point(name, model) for name in ("operations", "parameters", "tokens_per_second")]
    operations, parameters, speed = (value(p.value, compact(p.value)) if p else None for p in costs)
    final = value(loss.value, fixed(loss.value, 2))
    place: list[Cell | None] = []
    if places is not None:
        ends = places.of.get(model)
        place = [value(ends[0], "–".join(map(str, dict.fromkeys(ends)))) if ends else None]
    return row(model, final, beside, *place, position, operations, _longest(run, model), parameters, speed)


def _sentence(run: Run, finals: Mapping[str, Point], behind: Mapping[str, Point], places: Places | None) -> str:
    """Say who is level with the lowest loss, which of these costs least, and which alone keep position apart.

    Level are the models that may have the first place, or without places those whose difference may be 0.
    """
    order = list(finals)
    best = order[0]
    if all(model in run.stuck for model in order):
        return "No model has learned more than token frequencies: there is nothing to choose between yet."
    if places is None:
        level = [best, *(m for m, difference in behind.items() if _level(difference))]
    else:
        level = [m for m, (first, _) in places.of.items() if first == 1]
    pieces = [_losses(level, finals, behind)]
    costs = {m: p.value for m in (level if len(level) > 1 else order) if (p := run.table.point("operations", m))}
    if len(costs) > 1:
        cheap = min(costs, key=lambda m: costs[m])
        dear = best if len(level) == 1 else max(costs, key=lambda m: costs[m])
        if dear in costs and costs[dear] > (1 + APART) * costs[cheap]:
            limits = _longest(run, cheap) == UNLIMITED != _longest(run, dear)
            less = f"{percent(1 - costs[cheap] / costs[dear], 0)} fewer operations than `{dear}`"
            pieces.append(f"`{cheap}` needs {less}{' and has no length limit' if limits else ''}")
    streams = [m for m in order if "position" in run.parts("r2.token", m)]
    positions = {m: p for m in streams if m not in run.weak_models and (p := _position_r2_of(run, m))}
    positions = {m: p for m, p in positions.items() if (worth := use(run.table, m)) is None or worth >= USED}
    positions = {m: p for m, p in positions.items() if (added := _written(run, m)) is None or added.value >= PRESENT}
    judged = {m: _kept_verdict(run, m) for m in streams}
    keepers = [
        f"`{m}` (R² {fixed(p.value, 2)}{f', {judged[m]}' if judged[m] else ''})"
        for m, p in positions.items()
        if p.value >= READ and judged[m] is not None
    ]
    if keepers:
        known = all(_doubt(run, m, KEPT) != doubt(UNTESTABLE) for m in streams)
        only = "only " if known and len(keepers) < len(streams) else ""
        pieces.append(f"{only}{listed(keepers)} keep{'s' if len(keepers) == 1 else ''} position in a stream of its own")
    return "; ".join(pieces) + "."


def _kept_verdict(run: Run, model: str) -> str | None:
    """Return what stands behind a stream that keeps position: "" if the model's claim holds or the ledger has none,
    "so far holds" if its loss still falls, None if the claim holds in no way."""
    claim = _claim(run, model, KEPT)
    if claim is None or claim.get("verdict") == HOLDS:
        return ""
    if claim.get("verdict") == UNSETTLED and claim.get("so_far") == HOLDS:
        return doubt(UNSETTLED, HOLDS)
    return None


def _losses(level: Sequence[str], finals: Mapping[str, Point], behind: Mapping[str, Point]) -> str:
    values = ", ".join(dict.fromkeys(fixed(finals[m].value, 2) for m in level))
    if len(level) > 1:
        names = listed([f"`{m}`" for m in level])
        if all(_is_within(behind[m], MARGINAL) for m in level[1:]):
            return f"{names} are level in held-out loss ({values} nats)"
        seeds = finals[level[0]].seeds
        trainings = "one training each" if seeds == 1 else f"{seeds} trainings each"
        return f"{names} cannot be told apart in held-out loss ({values} nats, {trainings})"
    if len(finals) == 1:
        return f"`{level[0]}` has a held-out loss of {values} nats"
    once = ", one training each" if finals[level[0]].seeds == 1 and behind else ""
    sentence = f"`{level[0]}` has the lowest held-out loss ({values} nats{once})"
    for second, difference in list(behind.items())[:1]:
        bounds = f" {interval(difference.low, difference.high, 2)}".rstrip()
        sentence += f", `{second}` {difference.value:+.2f}{bounds}"
    return sentence
