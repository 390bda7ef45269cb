"""Texts longer than in training: what each way to read on costs, and what it keeps."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...records.table import Point
from .. import schemes
from ..forms.axes import Axis
from ..forms.curves import EVERYWHERE, LEVEL, UPRIGHT, Curves, Line
from ..forms.rows import Row, Rows
from ..loaded_run import Run
from ..style import MODEL_COLOURS, model_styles
from ..titles import ABOVE, BELOW, UNCLEAR, against, best, claimed, coded, listed, nats

PIECES = "in-pieces"
POSITION = Axis("position", word="position")


def _best_first(run: Run, model: str) -> dict[str, Point]:
    """Ways of a model -> loss beyond the trained length, the lowest first; without reading in pieces."""
    points = {str(k): p for k, p in run.table.points("length.beyond", model, by="part").items() if k != PIECES}
    return dict(sorted(points.items(), key=lambda pair: pair[1].value))


def _lines(run: Run, model: str, metric: str, by: str = "index") -> Iterator[Line]:
    """A line a way of a model, a colour a method, a dash what is done beside it; without intervals, which speak of
    other texts or seeds and would hide that the lines of a panel go together."""
    more = {way: way.removeprefix(_method(way)) for way in run.table.points("length.beyond", model, by="part")}
    methods = list(dict.fromkeys(map(_method, more)))
    marks = {"": ("solid", "circle")} | model_styles(list(dict.fromkeys(filter(None, more.values()))))
    for way in _best_first(run, model):
        if points := _plain(run.table.points(metric, model, by=by, part=way)):
            colour = f"model-{methods.index(_method(way)) % len(MODEL_COLOURS['light'])}"
            yield Line(points, way, colour=colour, mark=marks[more[way]], panel=model)


def _method(way: str) -> str:
    """Of METHOD-wWINDOW+ADAPT."""
    return re.split(r"-w\d|\+", way)[0]


def _plain(points: Mapping[Any, Point]) -> dict[Any, Point]:
    return {x: replace(Point.between(p.value, n=p.n), trained=False) for x, p in points.items()}


def _trained(run: Run) -> Iterator[Line]:
    """A vertical line at the length of the training: one for all, or one each model."""
    lengths = {m: p for m in run.models if (p := run.table.point("length.trained", m)) is not None}
    if len({p.value for p in lengths.values()}) == 1:
        lengths = {EVERYWHERE: next(iter(lengths.values()))}
    for panel, p in lengths.items():
        yield Line({p.value: p}, "length of the training", kind=UPRIGHT, panel=panel)


def _take(run: Run, drawn: Any) -> str:
    """Which way is worth taking, of the model that it serves best."""
    judged = run.values("length.chosen")  # on other texts than those that chose the way
    gains = {f"`{model}` by the way that other texts prefer": point for model, point in judged.items()} or {
        f"`{model}` by {way}": point
        for model in run.models
        for way, point in run.table.points("length.gain", model, by="part").items()
    }
    if not gains:
        return "By way"
    better = [name_of_method for name_of_method, gain in gains.items() if against(gain, 0.0) == ABOVE]
    name = max(better or gains, key=lambda name_of_method: gains[name_of_method].value)
    where = against(gains[name], 0.0)
    by = f"{name} ({nats(gains[name])})"
    if where == ABOVE:
        return f"Better than reading in pieces, most of all {by}"
    nearest = "not separable from it is" if where == UNCLEAR else "the nearest is"
    ways = "No way that needs no training" if judged else "No way"
    return f"{ways} beats reading in pieces; {nearest} {by}"


def _take_each(run: Run, lines: Sequence[Line]) -> str:
    """The best way of each model, and whether it is better than reading in pieces."""
    judged = run.values("length.chosen")
    models = defaultdict(list)
    for model in run.models:
        if gains := run.table.points("length.gain", model, by="part"):
            way = max(gains, key=lambda method: gains[method].value)
            chosen = judged.get(model)  # its way is the one that other texts prefer
            by = f"`{model}`" if chosen else f"`{model}` by {way}"
            models[against(chosen or gains[way], 0.0)].append(by)
    heads = {ABOVE: "better than pieces", UNCLEAR: "not separable from pieces", BELOW: "worse than pieces"}
    title = "; ".join(f"{head}: {listed(models[where])}" for where, head in heads.items() if models[where])
    ways = "The way that other texts prefer" if judged else "The best way"
    return f"{ways} of each model, {title}" if title else "Loss by position"


@Curves(
    "length-loss",
    "Loss by position, model and way to read on",
    _take_each,
    y=Axis("loss, nats"),
    x=POSITION,
    columns=("Way", ""),
    width=420,
    records=("length.loss: part = way, index = position",),
    metric="length.loss",
)
def loss(run: Run) -> Iterator[Line]:
    """Loss of hidden tokens at each sixteenth of the positions, the same tokens for all. The vertical line is the
    length of the training; grey: the text read in pieces of that length. -wN: looking N tokens to each side. Means
    over seeds; intervals are in the records."""
    yield from _trained(run)
    for model in run.models:
        yield from _lines(run, model, "length.loss")
        if points := _plain(run.table.points("length.loss", model, by="index", part=PIECES)):
            yield Line(points, PIECES, colour="combined", kind=LEVEL, panel=model)


@Rows(
    "length-gain",
    "Nats below reading in pieces, by model and way",
    lambda run, rows: claimed(run, "split-extends-by-table") or _take(run, rows),
    x=Axis("nats below reading in pieces", include=(0.0,)),
    columns=("Model", "", "Way"),
    width=420,
    records=("length.gain: part = way", "length.chosen"),
    levels={0.0: "in pieces"},
)
def gain(run: Run) -> Iterator[Row]:
    """By how much the loss beyond the trained length is below the loss of the same tokens read in pieces as long as
    trained: right of 0 a way is worth taking. -wN: looking N tokens to each side. +table, +network, +all: after a
    short training of these on longer texts, beside pieces that the same model reads. Chosen: by the way
    that the other half of the texts prefers, of those without a training."""
    for model in run.models:
        if judged := run.table.point("length.chosen", model):
            yield Row("chosen", {"": judged}, model, colour=schemes.colour(run, model))
        points = run.table.points("length.gain", model, by="part")
        for way in [way for way in _best_first(run, model) if way in points]:
            yield Row(way, {"": points[way]}, model, colour=schemes.colour(run, model))


@Curves(
    "length-copy",
    "Loss saved by a passage that comes again, by distance",
    lambda run, lines: best(
        coded({f"{e.panel} {e.name}": e.end for e in lines}),
        "Nats saved by the farthest passage",
        write=nats,
    ),
    y=Axis("nats saved", include=(0.0,)),
    x=Axis("tokens before", "steps", word="tokens before"),
    columns=("Way", ""),
    width=420,
    records=("length.copy: part = way, index = tokens before",),
)
def copies(run: Run) -> Iterator[Line]:
    """By how much the loss of the last words of a text falls if they have stood in it before, by how many tokens
    earlier: does attention still find them?"""
    for model in run.models:
        yield from _lines(run, model, "length.copy")


@Curves(
    "length-drift",
    "Change of the states where positions move",
    lambda run, lines: best(
        coded({f"{e.panel} {e.name}": e.end for e in lines}),
        "Change of the states where positions move farthest",
        lowest=True,
    ),
    y=Axis("share", "share", include=(0.0,)),
    x=Axis("positions moved", "steps", word="positions moved"),
    columns=("Way", "Part"),
    width=420,
    records=("length.drift, length.drift.position, length.drift.semantic: part = way, index = positions moved",),
)
def drift(run: Run) -> Iterator[Line]:
    """Change of the last hidden states of a text that fits the training where nothing but its positions moves, as a
    share of their size. Of models with two streams: the semantic one."""
    for model in run.models:
        streams = bool(run.table.rows("length.drift.semantic", model))
        yield from _lines(run, model, "length.drift.semantic" if streams else "length.drift")


@Curves(
    "length-probes",
    "R² of position beyond the trained length, by layer",
    lambda run, lines: best(
        coded({f"{e.panel} {e.name}": e.end for e in lines}), "R² of position beyond the trained length"
    ),
    y=Axis("R²", "r2", include=(0.0, 1.0), floor=-0.05),
    columns=("Way", ""),
    width=420,
    records=("length.r2.token, length.r2.segment, length.r2.intra: part = way, layer",),
)
def probes(run: Run) -> Iterator[Line]:
    """Linear probes of the position of tokens that stand beyond the trained length, trained on others there."""
    for model in run.models:
        yield from _lines(run, model, "length.r2.token", by="layer")


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.longer": (
        gain,
        loss,
        copies,
    )
}
# Figures that few ask for, folded.
MORE = {
    "study.longer": (
        drift,
        probes,
    )
}
