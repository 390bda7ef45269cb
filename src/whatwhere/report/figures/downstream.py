"""What the encoders are good for: scores on tasks, fine-tuned, probed, or by the vectors of texts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...papers import FLASH_HOLMES, GLUE, GLUE_MID, HOLMES_BEST, HOLMES_PHENOMENA, MTEB_TYPES, SQUAD
from ...records.table import Point, average
from .. import schemes
from ..forms.axes import Axis
from ..forms.curves import Curves, Line, line_of
from ..forms.rows import BEST, PAPER, UNTRAINED, Row, Rows
from ..loaded_run import Run
from ..titles import best, claimed, coded, digits, rounded

SCORE = Axis("score", include=(0.0, 1.0))
RIGHT = Axis("share right", "share", include=(0.0, 1.0))
MTEB = ("mteb.score", "mteb.score.cls", "mteb.score.semantic", "mteb.score.position")
_Tasks = partial(Rows, columns=("Task", "", "Model"), width=300)
FAMILIES = {"linguistic": "Grammar", "holmes": "Holmes", "mteb": "Vectors", "glue": "GLUE", "squad": "Answers"}
STREAMS = {"semantic": "semantic", "position": "absolute"}  # -> its colour


def _row(
    run: Run, metric: str, model: str, part: str | None, paper: Mapping[Any, Any], best: str = "", **more: Any
) -> Iterator[Row]:
    """The values of a model and of the same model untrained, where there are any, and what the paper prints of (part,
    preset). best: metric of the value that is best on the rows that judge. more: fields of the row."""
    kinds = {UNTRAINED: (metric, 0)} | ({BEST: (best, None)} if best else {}) | {"": (metric, None)}
    ours = {kind: run.table.point(name, model, part=part, step=step) for kind, (name, step) in kinds.items()}
    if points := {kind: _plain(p) if kind == BEST else p for kind, p in ours.items() if p is not None}:
        if printed := paper.get((part, schemes.preset(run, model))):
            points[PAPER] = Point.between(printed) if isinstance(printed, float) else printed
        yield Row(**{"name": model, "points": points, "panel": part, "colour": schemes.colour(run, model)} | more)


def _rows(run: Run, metric: str, part: str | None, paper: Mapping[Any, Any], **more: Any) -> Iterator[Row]:
    for model in run.models:
        yield from _row(run, metric, model, part, paper, **more)


def _best_of_first(metric: str, caption: str, write: Callable[[Point], str] = digits) -> Callable[[Run, object], str]:
    """Which model is best on the first task, by the differences from the first model where they were drawn by rows, and
    what it has with weights drawn anew."""

    def title(run: Run, rows: object) -> str:
        first = str(run.table.distinct("part", metric)[0])
        points = run.values(metric, part=first)
        words = best(coded(_paired(run, metric, first, points)), f"{caption} {first}", write=write)
        leader = max(points, key=lambda model: points[model].value, default=None)
        anew = run.table.point(metric, leader, part=first, step=0)
        return words if anew is None else f"{words}; its untrained self has {write(_plain(anew))}"

    return title


def _paired(run: Run, metric: str, part: str, points: Mapping[str, Point]) -> Mapping[str, Point]:
    """Values of models with the intervals of their differences from the first one; as they are where there are none."""
    family = metric.partition(".")[0]
    beside = {model: run.table.point(f"{family}.difference", model, part=part) for model in points}
    first = [model for model, point in beside.items() if point is None]
    if len(first) != 1 or len(points) < 2:
        return points
    base = _plain(points[first[0]])
    return {model: base if point is None else base + point for model, point in beside.items()}


def _plain(point: Point) -> Point:
    return Point.between(point.value, n=point.n)


def _first(run: Run, rows: Sequence[Row]) -> str:
    """Who is first in each family, and whether its place is sure."""
    sentences = []
    for panel in dict.fromkeys(line.panel for line in rows):
        leader = min((line for line in rows if line.panel == panel), key=lambda line: line.points[""].value)
        sure = leader.points[""].high in (None, leader.points[""].value)  # a rank from 1 to 1 has no interval
        sentences.append(f"`{leader.name}` in {panel}{'' if sure else ' (not sure)'}")
    return f"First by average: {'; '.join(sentences)}"


@_Tasks(
    "ranks",
    "Rank by family of tasks and model",
    _first,
    x=Axis("rank, 1 the best", "layer", include=(1.0,)),
    columns=("Family", "", "Model"),
    records=tuple(f"{family}.rank" for family in FAMILIES),
)
def ranks(run: Run) -> Iterator[Row]:
    """Place of each model by its average over the tasks of a family that all have and whose rows are paired, and the
    places that it takes in 95 % of the draws of rows and of seeds; of one training each."""
    for family, name in FAMILIES.items():
        for model in run.models:
            if point := run.table.point(f"{family}.rank", model):
                yield Row(model, {"": point}, name, colour=schemes.colour(run, model))


@_Tasks(
    "glue",
    "Score by task and model",
    lambda run, rows: (
        claimed(run, "dstg-costs-no-glue", "tupe-a-beats-bert-a-on-glue", "tupe-r-beats-bert-r-on-glue")
        or _best_of_first("glue.score", "Score on")(run, rows)
    ),
    x=SCORE,
    records=("glue.score: part = task, none: average; step = 0 untrained",),
)
def glue(run: Run) -> Iterator[Row]:
    """Score on the development rows of each task after fine-tuning: settings and step are chosen on one half of the
    rows and judged on the other, both ways; the papers' way, best on all of them, is the tick. Hollow: the papers'
    models, which are larger and saw a thousand times the text."""
    for task in run.table.distinct("part", "glue.score"):
        yield from _rows(run, "glue.score", task, GLUE, best="glue.best")
    for row in _rows(run, "glue.score", None, {}, panel="average"):  # the papers' averages are over other tasks
        yield replace(row, points={kind: replace(p, n=None) for kind, p in row.points.items()})  # of tasks, not rows


def _rises(run: Run, lines: Sequence[Line]) -> str:
    ends = {line.name: line.end - line.points[min(line.points)] for line in lines if line.panel == lines[0].panel}
    return best(coded(ends), f"Score that training adds on {lines[0].panel}")


@Curves(
    "glue-steps",
    "Score by task, model and training step",
    _rises,
    y=Axis("score"),
    x=Axis("training step", "steps", word="step"),
    records=("glue.score: part = task, step",),
)
def courses(run: Run) -> Iterator[Line]:
    """Score on the development rows after fine-tuning from a checkpoint of the training, by its step; 0: weights drawn
    anew. Hollow: the papers' models at the last of these steps, TUPE's also at 30\u202f% of it."""
    for task in (*run.table.distinct("part", "glue.score"), None):
        for model in run.models:
            points = run.table.points("glue.score", model, by="step", part=task)
            if len(points) > 1 or any(points):  # not the untrained model alone
                preset = schemes.preset(run, model)
                last = max(points)
                printed = {GLUE_MID * last: GLUE.get((task, f"{preset}-mid")), last: GLUE.get((task, preset))}
                panel = "average" if task is None else task  # the papers' averages are over other tasks
                yield line_of(run, points, model, panel=panel)
                paper = {step: Point.between(value) for step, value in printed.items() if value is not None}
                yield line_of(run, paper, model, panel=panel, kind=PAPER)


@_Tasks(
    "squad",
    "F1 and exact match by task and model",
    _best_of_first("squad.f1", "F1 on", write=rounded),
    x=Axis("share", "share", include=(0.0, 1.0)),
    columns=("Task", "Score", "Model"),
    records=("squad.f1, squad.exact: part = task, step = 0 untrained", "squad.unanswerable: F1 of no answer at all"),
)
def answers(run: Run) -> Iterator[Row]:
    """Words that answers and the annotators' answers have in common (F1), and answers equal to one of theirs, after
    fine-tuning: setting, step and threshold are chosen on one half of the development questions and judged on the
    other, both ways; the paper's way, best on all of them, is the tick. Hollow: the paper's models, which
    are larger and trained on all of SQuAD 1.1."""
    for task in run.table.distinct("part", "squad.f1"):
        for metric, whole, name in (
            ("squad.f1", "squad.best", "F1"),
            ("squad.exact", "squad.best.exact", "Exact match"),
        ):
            printed = {("squad", preset): v for (m, preset), v in SQUAD.items() if m == metric}
            yield from _rows(run, metric, task, printed, best=whole, group=name)


@_Tasks(
    "blimp",
    "Share of pairs right by field and model",
    lambda run, rows: best(coded(run.values("blimp")), "Share of BLiMP's pairs right", write=rounded),
    x=Axis("share of pairs right", "share", include=(0.4, 0.8)),
    columns=("Field", "", "Model"),
    records=(
        "blimp.field: part = field, step = 0 untrained",
        "blimp.paradigm: part = paradigm",
        "blimp.term: part = term",
    ),
    levels={0.5: "chance: 50\u202f%"},
)
def grammar(run: Run) -> Iterator[Row]:
    """Share of minimal pairs whose good sentence is the likelier one, by pseudo-log-likelihood; mean of the paradigms
    of a field."""
    for field in run.table.distinct("part", "blimp.field"):
        yield from _rows(run, "blimp.field", field, {}, panel=field.replace("_", " and "))


def _vectors(run: Run) -> Iterator[tuple[str, str, str]]:
    """Metric, model and name of each row of a task: a pooling other than the mean is said."""
    for model in run.models:
        for metric in MTEB:
            yield metric, model, model + metric.removeprefix("mteb.score").replace(".", ", ")


def _best_vectors(run: Run, rows: object) -> str:
    vectors_of_model: dict[str, dict[int | None, dict[str, Point]]] = {}
    for metric, model, name in _vectors(run):
        points = {step: run.table.points(metric, model, by="part", step=step) for step in (0, None)}
        if points[None]:
            vectors_of_model[name] = points
    most = max(len(points[None]) for points in vectors_of_model.values()) if vectors_of_model else 0
    averages = {
        name: average([*points[None].values()], on_other_rows=True)
        for name, points in vectors_of_model.items()
        if len(points[None]) == most
    }
    title = best(coded(averages), f"Mean score over {most} tasks" if most > 1 else "Score")
    first = max(averages, key=lambda name: averages[name].value, default="")
    if first and len(anew := vectors_of_model[first][0]) == most:
        title += f"; its untrained self has {digits(average([*anew.values()], on_other_rows=True))}"
    return title


@_Tasks(
    "mteb",
    "Score of text vectors by task and model",
    _best_vectors,
    x=SCORE,
    records=tuple(f"{name}: part = task, step = 0 untrained" for name in MTEB),
)
def vectors(run: Run) -> Iterator[Row]:
    """Main score of each of mteb's tasks: correlation with people's scores of pairs, accuracy, V-measure of clusters,
    nDCG of what is found. A vector is the mean over the tokens where nothing else is said; NAME+simcse is the model
    after unsupervised SimCSE."""
    for task in dict.fromkeys(task for name in MTEB for task in run.table.distinct("part", name)):
        for metric, model, name in _vectors(run):
            yield from _row(run, metric, model, task, {}, name=name)


@_Tasks(
    "mteb-types",
    "Mean score of text vectors by type of tasks and model",
    _best_of_first("mteb.type", "Mean score of"),
    x=SCORE,
    columns=("Type", "", "Model"),
    records=("mteb.type: part = type of tasks, step = 0 untrained",),
)
def types(run: Run) -> Iterator[Row]:
    """Mean over the tasks of each type of mteb. Hollow, where all tasks are mteb's own: the paper's models, on the 56
    tasks of its first English benchmark."""
    is_published = not any(str(task).endswith("-local") for task in run.table.distinct("part", "mteb.score"))
    for of_type in run.table.distinct("part", "mteb.type"):
        yield from _rows(run, "mteb.type", of_type, MTEB_TYPES if is_published else {})


@_Tasks(
    "linguistic",
    "Share right by task and model",
    _best_of_first("linguistic.score", "Share right on", write=rounded),
    x=RIGHT,
    records=(
        "linguistic.score: part = task, step = 0 untrained",
        "linguistic.surface, linguistic.commonest: part = task",
    ),
)
def read_off(run: Run) -> Iterator[Row]:
    """Share of test rows that linear probes of the last layer have right; of readability the correlation, of blimp the
    share of pairs whose good sentence is the likelier one. The surface: the commonest class of the same word, or of
    what else the surface shows."""
    for task in run.table.distinct("part", "linguistic.score"):
        guesses = [run.table.point(f"linguistic.{name}", part=task) for name in ("surface", "commonest")]
        if guess := next(filter(None, guesses), None):
            yield Row("the surface", {"": guess}, task, colour="muted")
        yield from _rows(run, "linguistic.score", task, {})


@_Tasks(
    "linguistic-streams",
    "Share right by task, model and stream",
    _best_of_first("linguistic.score.semantic", "Share right from the semantic stream alone, on", write=rounded),
    x=RIGHT,
    columns=("Task", "Model", "Stream"),
    records=("linguistic.score.semantic, linguistic.score.position: part = task, step = 0 untrained",),
)
def streams(run: Run) -> Iterator[Row]:
    """Share of test rows that linear probes of one stream of the last layer have right. After the last block the
    position stream of a model whose head reads the semantic stream alone was never trained."""
    for task in run.table.distinct("part", "linguistic.score.semantic"):
        for model in run.models:
            for name, colour in STREAMS.items():
                metric = f"linguistic.score.{name}"
                yield from _row(run, metric, model, task, {}, name=name, group=model, colour=colour)


def _gained(run: Run, rows: Sequence[Row]) -> str:
    """Where a claim tells nothing the best on the first phenomenon; differences by rows are of accuracy, not of F1."""
    first = {row.name: row.points[""] for row in rows if row.panel == rows[0].panel and "" in row.points}
    of_claims = claimed(run, "dstg-keeps-more-syntax", "dstg-keeps-more-structure")
    return of_claims or best(coded(first), f"Score on {rows[0].panel}")


@_Tasks(
    "linguistic-gains",
    "Score by phenomenon where separate streams gain most and model",
    _gained,
    x=SCORE,
    columns=("Phenomenon", "", "Model"),
    records=("linguistic.f1: part = task, step = 0 untrained", "linguistic.score: readability"),
)
def gains(run: Run) -> Iterator[Row]:
    """Macro F1 of linear probes of the last layer, of readability the correlation, on the phenomena where DSTG gains
    most (its Table 6; island effects are of BLiMP here, by likelihood). Hollow: the paper's models, on the texts of
    Flash-Holmes."""
    for task in dict.fromkeys(task for task, _ in HOLMES_BEST):
        metric = "linguistic.score" if task == "readability" else "linguistic.f1"  # numbers have no F1
        yield from _rows(run, metric, task, HOLMES_BEST)


@Curves(
    "linguistic-layers",
    "Share right by task, model and layer",
    _best_of_first("linguistic.score", "Share right after the last layer, on", write=rounded),
    y=RIGHT,
    records=("linguistic.layer: part = task, layer",),
)
def layers(run: Run) -> Iterator[Line]:
    """Share of test rows that linear probes have right by hidden state, 0 the embeddings; of readability the
    correlation."""
    for task in run.table.distinct("part", "linguistic.layer"):
        for model in run.models:
            if points := run.table.points("linguistic.layer", model, by="layer", part=task):
                yield line_of(run, points, model, panel=task)


@_Tasks(
    "holmes",
    "Mean score by field and model",
    _best_of_first("holmes.field", "Mean score on data sets of", write=rounded),
    x=SCORE,
    columns=("Field", "", "Model"),
    records=("holmes.field: part = field, step = 0 untrained", "holmes.phenomenon, holmes.dataset"),
)
def fields(run: Run) -> Iterator[Row]:
    """Mean score of linear probes over the data sets of each field of Holmes: macro F1, of numbers the correlation."""
    for field in run.table.distinct("part", "holmes.field"):
        for model in run.models:
            published = run.table.point("holmes.published", model, part=field)
            paper = {(field, schemes.preset(run, model)): published} | FLASH_HOLMES
            yield from _row(run, "holmes.field", model, field, paper)


@_Tasks(
    "holmes-phenomena",
    "Mean score by phenomenon and model",
    _best_of_first("holmes.phenomenon", "Mean score on", write=rounded),
    x=SCORE,
    columns=("Field", "Phenomenon", "Model"),
    records=("holmes.phenomenon: part = field: phenomenon, step = 0 untrained",),
)
def phenomena(run: Run) -> Iterator[Row]:
    """Mean score of linear probes over the data sets of each phenomenon of Holmes. Hollow: the paper's models (Tables 9
    to 13)."""
    for name in run.table.distinct("part", "holmes.phenomenon"):
        field, _, phenomenon = str(name).partition(": ")
        yield from _rows(run, "holmes.phenomenon", name, HOLMES_PHENOMENA, panel=field, group=phenomenon)


# Figures of each question, in their order (`report.questions`).
FIGURES = {
    "study.downstream": (
        ranks,
        glue,
        courses,
        answers,
        read_off,
        streams,
        layers,
        grammar,
        fields,
        vectors,
        types,
    )
}
# Figures that few ask for, folded.
MORE = {
    "study.downstream": (
        gains,
        phenomena,
    )
}
