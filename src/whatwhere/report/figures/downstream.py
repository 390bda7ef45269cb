"""What the encoders are good for: scores of fine-tuned models."""

from collections.abc import Callable, Iterator

from ...papers import FLASH_HOLMES, GLUE
from ...points import Point
from .. import schemes
from ..forms.axes import Axis
from ..forms.rows import PAPER, UNTRAINED, Row, Rows
from ..run import Run
from ..titles import best, claimed, coded, rounded
from .corpus import COUNTED


def _scores(run: Run) -> Iterator[Row]:
    for task in run.table.distinct("part", "glue.score"):
        for model in run.models:
            point = run.table.point("glue.score", model, part=task)
            start = run.table.point("glue.score", model, part=task, step=0)
            kinds = {UNTRAINED: start, "": point}
            printed = GLUE.get((str(task), schemes.preset(run, model)))
            points = {kind: p for kind, p in kinds.items() if p is not None}
            if points:
                points |= {} if printed is None else {PAPER: Point.between(printed)}
                yield Row(model, points, str(task), colour=schemes.colour(run, model))


def _highest(run: Run, rows: object) -> str:
    if told := claimed(run, "dstg-costs-no-glue", "tupe-a-beats-bert-a-on-glue", "tupe-r-beats-bert-r-on-glue"):
        return told
    tasks = run.table.distinct("part", "glue.score")
    first = str(next(iter(tasks)))
    points = {m: p for m in run.models if (p := run.table.point("glue.score", m, part=first))}
    return best(coded(points), f"On {first} the best is")


GLUE_SCORES = Rows(
    "glue",
    "glue.score",
    _scores,
    _highest,
    "Score on the development rows of each task after fine-tuning: settings and step are chosen on one half of the "
    "rows and judged on the other, both ways. Hollow: the papers' models, which are larger and saw a thousand times "
    "the text",
    "Score by task and model",
    Axis("score", include=(0.0, 1.0)),
    ("Task", "", "Model"),
    ("glue.score: part = task, step = 0 untrained",),
    300,
)


def _grammar(run: Run) -> Iterator[Row]:
    for field in run.table.distinct("part", "blimp.field"):
        for model in run.models:
            kinds = {UNTRAINED: run.table.point("blimp.field", model, part=field, step=0)}
            kinds[""] = run.table.point("blimp.field", model, part=field)
            if points := {kind: p for kind, p in kinds.items() if p is not None}:
                yield Row(model, points, str(field).replace("_", " and "), colour=schemes.colour(run, model))


def _most_right(run: Run, rows: object) -> str:
    points = {m: p for m in run.models if (p := run.table.point("blimp", m))}
    return best(coded(points), "Most pairs of BLiMP has right", write=rounded)


GRAMMAR = Rows(
    "blimp",
    "blimp.field",
    _grammar,
    _most_right,
    "Share of minimal pairs whose good sentence is the likelier one, by pseudo-log-likelihood; mean of the paradigms "
    "of a field",
    "Share of pairs right by field and model",
    Axis("share of pairs right", "share", include=(0.4, 0.8)),
    ("Field", "", "Model"),
    ("blimp.field: part = field, step = 0 untrained", "blimp.paradigm: part = paradigm"),
    300,
    {0.5: "chance: 50\u202f%"},
)


SURFACE = "by the surface alone"
_STREAMS = {"semantic": "semantic", "position": "absolute"}  # -> its colour


def _read_off(run: Run) -> Iterator[Row]:
    for task in run.table.distinct("part", "linguistic.score"):
        guesses = [run.table.point(f"linguistic.{name}", part=task) for name in ("surface", "commonest")]
        if guess := next((p for p in guesses if p is not None), None):
            yield Row(SURFACE, {COUNTED: guess}, str(task), counts=False)
        for model in run.models:
            kinds = {UNTRAINED: run.table.point("linguistic.score", model, part=task, step=0)}
            kinds[""] = run.table.point("linguistic.score", model, part=task)
            if points := {kind: p for kind, p in kinds.items() if p is not None}:
                yield Row(model, points, str(task), colour=schemes.colour(run, model))


def _best_read(metric: str, sentence: str) -> Callable[[Run, object], str]:
    def title(run: Run, rows: object) -> str:
        first = str(next(iter(run.table.distinct("part", metric))))
        points = {m: p for m in run.models if (p := run.table.point(metric, m, part=first))}
        return best(coded(points), f"{sentence} {first} the best is", write=rounded)

    return title


READ_OFF = Rows(
    "linguistic",
    "linguistic.score",
    _read_off,
    _best_read("linguistic.score", "On"),
    "Share of test rows that linear probes of the last layer have right; of readability the correlation, of blimp the "
    "share of pairs whose good sentence is the likelier one",
    "Share right by task and model",
    Axis("share right", "share", include=(0.0, 1.0)),
    ("Task", "", "Model"),
    ("linguistic.score: part = task, step = 0 untrained", "linguistic.surface, linguistic.commonest: part = task"),
    300,
)


def _alone(run: Run) -> Iterator[Row]:
    for task in run.table.distinct("part", "linguistic.score.semantic"):
        for model in run.models:
            for stream, colour in _STREAMS.items():
                kinds = {UNTRAINED: run.table.point(f"linguistic.score.{stream}", model, part=task, step=0)}
                kinds[""] = run.table.point(f"linguistic.score.{stream}", model, part=task)
                if points := {kind: p for kind, p in kinds.items() if p is not None}:
                    yield Row(stream, points, str(task), model, colour)


ALONE = Rows(
    "linguistic-streams",
    "linguistic.score.semantic",
    _alone,
    _best_read("linguistic.score.semantic", "From the semantic stream alone, on"),
    "Share of test rows that linear probes of one stream of the last layer have right. After the last block the "
    "position stream of a model whose head reads the semantic stream alone was never trained",
    "Share right by task, model and stream",
    Axis("share right", "share", include=(0.0, 1.0)),
    ("Task", "Model", "Stream"),
    ("linguistic.score.semantic, linguistic.score.position: part = task, step = 0 untrained",),
    300,
)


def _fields(run: Run) -> Iterator[Row]:
    for field in run.table.distinct("part", "holmes.field"):
        for model in run.models:
            kinds = {UNTRAINED: run.table.point("holmes.field", model, part=field, step=0)}
            kinds[""] = run.table.point("holmes.field", model, part=field)
            points = {kind: p for kind, p in kinds.items() if p is not None}
            printed = FLASH_HOLMES.get((str(field), schemes.preset(run, model)))
            beside = (
                run.table.point("holmes.published", model, part=field) if printed is None else Point.between(printed)
            )
            if points:
                points |= {} if beside is None else {PAPER: beside}
                yield Row(model, points, str(field), colour=schemes.colour(run, model))


FIELDS = Rows(
    "holmes",
    "holmes.field",
    _fields,
    _best_read("holmes.field", "Of the data sets of"),
    "Mean score of linear probes over the data sets of each field of Holmes: macro F1, of numbers the correlation",
    "Mean score by field and model",
    Axis("score", include=(0.0, 1.0)),
    ("Field", "", "Model"),
    ("holmes.field: part = field, step = 0 untrained", "holmes.phenomenon, holmes.dataset"),
    300,
)
