"""What the encoders are good for: scores on tasks, fine-tuned, probed, or by the vectors of texts."""

from collections.abc import Callable, Iterator, Sequence

from ...papers import FLASH_HOLMES, GLUE, SQUAD
from ...points import Point, average
from .. import schemes
from ..forms.axes import Axis
from ..forms.curves import Curves, Line
from ..forms.rows import PAPER, UNTRAINED, Row, Rows
from ..run import Run
from ..titles import best, claimed, coded, digits, rounded


def _marks(run: Run, metric: str, model: str, part: object, printed: float | Point | None = None) -> dict[str, Point]:
    """A model's value on a task, that of its weights drawn anew, and what a paper prints; none where it has neither."""
    ours = {UNTRAINED: run.table.point(metric, model, part=part, step=0), "": run.table.point(metric, model, part=part)}
    points = {kind: point for kind, point in ours.items() if point is not None}
    if points and printed is not None:
        points[PAPER] = printed if isinstance(printed, Point) else Point.between(printed)
    return points


def _best_of_first(metric: str, sentence: str) -> Callable[[Run, object], str]:
    def title(run: Run, rows: object) -> str:
        first = str(next(iter(run.table.distinct("part", metric))))
        points = {m: p for m in run.models if (p := run.table.point(metric, m, part=first))}
        return best(coded(points), f"{sentence} {first} the best is", write=rounded)

    return title


def _scores(run: Run) -> Iterator[Row]:
    for task in (*run.table.distinct("part", "glue.score"), None):
        for model in run.models:
            printed = GLUE.get((str(task), schemes.preset(run, model)))  # its averages are over other tasks
            if points := _marks(run, "glue.score", model, task, printed):
                yield Row(model, points, "average" if task is None else str(task), colour=schemes.colour(run, model))


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
    ("glue.score: part = task, none: average; step = 0 untrained",),
    300,
)


def _courses(run: Run) -> Iterator[Line]:
    for task in run.table.distinct("part", "glue.score"):
        for model in run.models:
            points = run.table.points("glue.score", model, by="step", part=task)
            if len(points) > 1 or any(points):  # not the untrained model alone
                look = schemes.colour(run, model), schemes.marks(run)[model]
                yield Line(points, model, "", *look, panel=str(task))


def _rises(run: Run, lines: Sequence[Line]) -> str:
    ends = {each.name: each.end - each.points[min(each.points)] for each in lines if each.panel == lines[0].panel}
    return best(coded(ends), f"On {lines[0].panel} training adds most to")


COURSES = Curves(
    "glue-steps",
    "glue.score",
    _courses,
    _rises,
    "Score on the development rows after fine-tuning from a checkpoint of the training, by its step; 0: weights drawn "
    "anew",
    "Score by task, model and training step",
    Axis("score"),
    Axis("training step", "steps", word="step"),
    records=("glue.score: part = task, step",),
)


def _answers(run: Run) -> Iterator[Row]:
    for task in run.table.distinct("part", "squad.f1"):
        for metric, name in (("squad.f1", "F1"), ("squad.exact", "Exact match")):
            for model in run.models:
                printed = SQUAD.get((metric, schemes.preset(run, model))) if task == "squad" else None
                if points := _marks(run, metric, model, task, printed):
                    yield Row(model, points, str(task), name, colour=schemes.colour(run, model))


ANSWERS = Rows(
    "squad",
    "squad.f1",
    _answers,
    _best_of_first("squad.f1", "By F1 on"),
    "Words that answers and those of the annotators have in common (F1), and answers that are theirs, after "
    "fine-tuning: setting, step and threshold are chosen on one half of the development questions and judged on the "
    "other, both ways. Hollow: the paper's models, which are larger and trained on all of SQuAD 1.1",
    "F1 and exact match by task and model",
    Axis("share", "share", include=(0.0, 1.0)),
    ("Task", "Score", "Model"),
    ("squad.f1, squad.exact: part = task, step = 0 untrained", "squad.unanswerable: F1 of no answer at all"),
    300,
)


def _grammar(run: Run) -> Iterator[Row]:
    for field in run.table.distinct("part", "blimp.field"):
        for model in run.models:
            if points := _marks(run, "blimp.field", model, field):
                yield Row(model, points, str(field).replace("_", " and "), colour=schemes.colour(run, model))


def _most_right(run: Run, rows: object) -> str:
    points = {m: p for m in run.models if (p := run.table.point("blimp", m))}
    return best(coded(points), "Of BLiMP's pairs most are right by", write=rounded)


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


_SCORES = ("mteb.score", "mteb.score.cls", "mteb.score.semantic", "mteb.score.position")


def _pooled(run: Run) -> Iterator[tuple[str, str, str]]:
    """Metric, model and name of each row of a task: a pooling other than the mean is said."""
    for model in run.models:
        for name in _SCORES:
            yield name, model, model + name.removeprefix("mteb.score").replace(".", ", ")


def _vectors(run: Run) -> Iterator[Row]:
    for task in dict.fromkeys(task for name in _SCORES for task in run.table.distinct("part", name)):
        for metric, model, name in _pooled(run):
            if points := _marks(run, metric, model, task):
                yield Row(name, points, str(task), colour=schemes.colour(run, model))


def _best_vectors(run: Run, rows: object) -> str:
    found: dict[str, dict[int | None, dict[str, Point]]] = {}
    for metric, model, name in _pooled(run):
        points = {step: run.table.points(metric, model, by="part", step=step) for step in (0, None)}
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


SURFACE = "the surface"
_STREAMS = {"semantic": "semantic", "position": "absolute"}  # -> its colour


def _read_off(run: Run) -> Iterator[Row]:
    for task in run.table.distinct("part", "linguistic.score"):
        guesses = [run.table.point(f"linguistic.{name}", part=task) for name in ("surface", "commonest")]
        if guess := next((p for p in guesses if p is not None), None):
            yield Row(SURFACE, {"": guess}, str(task), colour="muted", counts=False)
        for model in run.models:
            if points := _marks(run, "linguistic.score", model, task):
                yield Row(model, points, str(task), colour=schemes.colour(run, model))


READ_OFF = Rows(
    "linguistic",
    "linguistic.score",
    _read_off,
    _best_of_first("linguistic.score", "On"),
    "Share of test rows that linear probes of the last layer have right; of readability the correlation, of blimp the "
    "share of pairs whose good sentence is the likelier one. The surface: the commonest class of the same word, or of "
    "what else the surface shows",
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
                if points := _marks(run, f"linguistic.score.{stream}", model, task):
                    yield Row(stream, points, str(task), model, colour)


ALONE = Rows(
    "linguistic-streams",
    "linguistic.score.semantic",
    _alone,
    _best_of_first("linguistic.score.semantic", "From the semantic stream alone, on"),
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
            printed = FLASH_HOLMES.get((str(field), schemes.preset(run, model)))
            beside = printed or run.table.point("holmes.published", model, part=field)
            if points := _marks(run, "holmes.field", model, field, beside):
                yield Row(model, points, str(field), colour=schemes.colour(run, model))


FIELDS = Rows(
    "holmes",
    "holmes.field",
    _fields,
    _best_of_first("holmes.field", "Of the data sets of"),
    "Mean score of linear probes over the data sets of each field of Holmes: macro F1, of numbers the correlation",
    "Mean score by field and model",
    Axis("score", include=(0.0, 1.0)),
    ("Field", "", "Model"),
    ("holmes.field: part = field, step = 0 untrained", "holmes.phenomenon, holmes.dataset"),
    300,
)
