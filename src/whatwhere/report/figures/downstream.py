"""What the encoders are good for: scores of fine-tuned models."""

from collections.abc import Iterator

from ...papers import GLUE
from ...points import Point, average
from .. import schemes
from ..forms.axes import Axis
from ..forms.rows import PAPER, UNTRAINED, Row, Rows
from ..run import Run
from ..titles import best, claimed, coded, digits, rounded


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


_STEPS = ((UNTRAINED, 0), ("", None))
_SCORES = ("mteb.score", "mteb.score.cls", "mteb.score.semantic", "mteb.score.position")


def _pooled(run: Run) -> Iterator[tuple[str, str, str]]:
    """Metric, model and name of each row of a task: a pooling other than the mean is said."""
    for model in run.models:
        for name in _SCORES:
            yield name, model, model + name.removeprefix("mteb.score").replace(".", ", ")


def _vectors(run: Run) -> Iterator[Row]:
    for task in dict.fromkeys(task for name in _SCORES for task in run.table.distinct("part", name)):
        for metric, model, name in _pooled(run):
            kinds = {kind: run.table.point(metric, model, part=task, step=step) for kind, step in _STEPS}
            if points := {kind: p for kind, p in kinds.items() if p is not None}:
                yield Row(name, points, str(task), colour=schemes.colour(run, model))


def _best_vectors(run: Run, rows: object) -> str:
    found: dict[str, dict[int | None, dict[str, Point]]] = {}
    for metric, model, name in _pooled(run):
        points = {step: run.table.points(metric, model, by="part", step=step) for _, step in _STEPS}
        if points[None]:
            found[name] = points
    most = max(len(points[None]) for points in found.values()) if found else 0
    averages = {name: average([*points[None].values()]) for name, points in found.items() if len(points[None]) == most}
    title = best(coded(averages), f"On average over {most} tasks the best is" if most > 1 else "The best is")
    first = max(averages, key=lambda name: averages[name].value, default="")
    if first and len(anew := found[first][0]) == most:
        title += f"; with weights drawn anew it has {digits(average([*anew.values()]))}"
    return title


VECTORS = Rows(
    "mteb",
    "mteb.score",
    _vectors,
    _best_vectors,
    "Main score of each of mteb's tasks: correlation with people's scores of pairs, accuracy, V-measure of clusters, "
    "nDCG of what is found. A vector is the mean over the tokens where nothing else is said; NAME+simcse is the model "
    "after unsupervised SimCSE",
    "Score of text vectors by task and model",
    Axis("score", include=(0.0, 1.0)),
    ("Task", "", "Model"),
    tuple(f"{name}: part = task, step = 0 untrained" for name in _SCORES),
    300,
)
