"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016; 2018), and the slots of Restaurants-8k (Coope et al. 2020) in its form:
readers, DSTG's protocol (C.4), fine-tunings, records."""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..corpus.labelled import packed
from ..corpus.sources import hub_rows
from ..corpus.text_files import data_lines
from ..models.open import open_config, open_model
from ..records.record import Record
from ..run.progress import Progress
from .benchmark import Benchmark, Trial, averages, differences
from .evaluation_keys import SquadKeys
from .grid import GridConfig, GridResult, by_seed, chosen, notes_on_unfinished, trials, weights
from .spans import Question, Questions, SpanBatches, answers, best_f1, best_texts, settled, threshold
from .tuning import Recipe, Setting, halves, tune

RECIPES: dict[str, Recipe] = {
    # DSTG C.4 prints the rates alone; batch, passes and warm-up are as in Devlin et al. (2019) for SQuAD 1.1.
    "dstg": Recipe([Setting(rate, 32, 0.01) for rate in (1e-5, 3e-5, 5e-5)], 3, warmup=0.1, patience=15, seeds=1),
    # The rate that C.4 finds best for all four models, and one that small models need.
    "short": Recipe(
        [Setting(rate, 16, 0.01) for rate in (3e-5, 1e-4)], 3, warmup=0.1, patience=15, seeds=3, scores=(3, 500)
    ),
}


class _Gathered:
    """Paragraphs and questions that a reader collects, checked."""

    def __init__(self, version: int) -> None:
        self.paragraphs: list[str] = []
        self.articles: list[str] = []
        self.questions: dict[str, Question] = {}
        self.version = version

    def paragraph(self, text: str, article: str) -> None:
        """Add a paragraph, which the questions that follow are about."""
        self.paragraphs.append(text)
        self.articles.append(article)

    def question(self, name: str, text: str, right: list[tuple[int, str]], place: str) -> None:
        """Add a question; right: (character at which it begins, text) of each answer.

        Raises:
            ValueError: an id twice, an answer that is not there, or none in version 1.
        """
        place = f"{place}, question {_brief(name)}"
        if name in self.questions:
            raise ValueError(f"{place}: the id occurs twice. Leave one of the questions out.")
        if not right and self.version == 1:
            raise ValueError(f"{place}: no answer, which SQuAD 1.1 does not know. For 2.0: --tasks squad-2.")
        for begin, answer in right:
            stands = self.paragraphs[-1][begin : begin + len(answer)] if begin >= 0 else ""
            if stands != answer:
                raise ValueError(
                    f"{place}: the answer {answer[:60]!r} is not in its paragraph at character {str(begin)[:20]}, "
                    f"where {stands[:60]!r} stands. Correct the file, or leave the question out."
                )
        self.questions[name] = Question(name, text, len(self.paragraphs) - 1, tuple(right))

    def all(self, place: str) -> Questions:
        """Return the collected questions.

        Raises:
            ValueError: there are none.
        """
        if not self.questions:
            raise ValueError(f"{place} holds no questions. Bring a complete copy.")
        return Questions(self.paragraphs, self.articles, list(self.questions.values()), self.version)


def _brief(name: str) -> str:
    """Shorten a name of the file for a message."""
    return " ".join(name.split())[:60]


_KINDS = {str: "text", list: "list", dict: "object", int: "whole number"}


def _field(row: Any, key: str, kind: type, place: str, default: Any = None) -> Any:
    """Return a value of an object of JSON; default: where it has no such key.

    Raises:
        ValueError: it is missing without a default, of another kind, or an empty text.
    """
    value = row.get(key, default) if isinstance(row, dict) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise ValueError(f"{place}: no {_KINDS[kind]} {key!r}. Bring a complete copy.")
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"{place}: an empty text in {key!r}. Leave it out.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{place}: half a character (a lone surrogate) in {key!r}. Correct the file.") from None
    return value


def _read_squad(read: Any, path: Path, gathered: _Gathered) -> None:
    """Read the official format: articles with paragraphs with questions with answers."""
    for i, article in enumerate(_field(read, "data", list, str(path)), 1):
        title = _field(article, "title", str, f"{path}, article {i}")
        for j, paragraph in enumerate(_field(article, "paragraphs", list, f"{path}, article {_brief(title)}"), 1):
            place = f"{path}, article {_brief(title)}, paragraph {j}"
            gathered.paragraph(_field(paragraph, "context", str, place), title)
            for row in _field(paragraph, "qas", list, place):
                name = _field(row, "id", str, place)
                at = f"{place}, question {_brief(name)}"
                right = [
                    (_field(answer, "answer_start", int, at), _field(answer, "text", str, at))
                    for answer in _field(row, "answers", list, at)
                ]
                gathered.question(name, _field(row, "question", str, at), right, place)


def _read_restaurants(read: Any, path: Path, gathered: _Gathered) -> None:
    """Read turns of users with the spans of slots, as questions.

    Each slot that a turn fills is a question with an answer, and one slot that it does not fill, another from turn to
    turn, is one without; what the system had asked for stands in both.
    """
    turns = []
    for number, turn in enumerate(read if isinstance(read, list) else [], 1):
        place = f"{path}, turn {number}"
        text = _field(_field(turn, "userInput", dict, place), "text", str, place)
        filled: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for label in _field(turn, "labels", list, place, []):
            slot = _field(label, "slot", str, place)
            span = _field(label, "valueSpan", dict, place)
            begin = _field(span, "startIndex", int, place, 0)
            end = _field(span, "endIndex", int, place)
            if not 0 <= begin < end <= len(text):
                raise ValueError(
                    f"{place}: {_brief(slot)} at {begin} to {end} is not in {text[:60]!r}. Correct the file."
                )
            filled[slot].append((begin, text[begin:end]))
        requested = _field(_field(turn, "context", dict, place, {}), "requestedSlots", list, place, [])
        turns.append((text, filled, f"; asked for: {', '.join(map(_named, requested))}" if requested else ""))
    slots = sorted({slot for _, filled, _ in turns for slot in filled})
    for number, (text, filled, requested) in enumerate(turns, 1):
        gathered.paragraph(text, "")
        absent = [slot for slot in slots if slot not in filled]
        for slot in [*filled, *absent[number % max(len(absent), 1) :][:1]]:
            question = _named(slot) + requested
            gathered.question(f"{number}-{slot}", question, filled.get(slot, []), f"{path}, turn {number}")


def _named(slot: Any) -> str:
    return str(slot).replace("_", " ")


Read = Callable[[Any, Path, _Gathered], None]


@dataclass(frozen=True)
class SpanTask:
    """Task of questions with answers in paragraphs: its files, reader and source.

    files: training and development rows, in the first of `folders` below the data's that has them; read: their reader;
    source: who has them. hub: its name on the Hub, "" if it is not there. version: of the official scores. articles:
    true if paragraphs are of articles.
    """

    name: str
    files: dict[str, str]
    folders: tuple[str, ...]
    read: Read
    source: str
    hub: str = ""
    version: int = 2
    articles: bool = True


_EXPLORER = "rajpurkar.github.io/SQuAD-explorer"
_POLYAI = "github.com/PolyAI-LDN/task-specific-datasets, span_extraction/restaurant8k"
_ONE, _TWO = ({"train": f"train-{v}.json", "dev": f"dev-{v}.json"} for v in ("v1.1", "v2.0"))
_TURNS = {"train": "train_0.json", "dev": "test.json"}
_SQUAD = (".", "squad")
_RESTAURANTS = (".", "restaurant8k", "span-extraction/restaurant8k")
TASKS: dict[str, SpanTask] = {
    task.name: task
    for task in (
        SpanTask("squad", _ONE, _SQUAD, _read_squad, _EXPLORER, "rajpurkar/squad", 1),
        SpanTask("squad-2", _TWO, _SQUAD, _read_squad, _EXPLORER, "rajpurkar/squad_v2"),
        SpanTask("restaurants", _TURNS, _RESTAURANTS, _read_restaurants, _POLYAI, articles=False),
    )
}


def _of_hub(task: SpanTask, split: str, gathered: _Gathered) -> None:
    """Read the rows of the Hub, a question each."""
    advice = f"Without a network, bring {task.files[split]} ({task.source}) and give its folder: --data FOLDER."
    rows = hub_rows(task.hub, None, {"dev": "validation"}.get(split, split), advice)
    for number, row in enumerate(rows):
        place = f"{task.hub}, row {number}"
        text = _field(row, "context", str, place)
        if not gathered.paragraphs or gathered.paragraphs[-1] != text:
            gathered.paragraph(text, _field(row, "title", str, place))
        answers = _field(row, "answers", dict, place)
        right = list(zip(answers["answer_start"], answers["text"], strict=True))
        gathered.question(_field(row, "id", str, place), _field(row, "question", str, place), right, place)


def read_questions(task: SpanTask, data: Path | None, split: str) -> Questions:
    """Read all questions of a split, "train" or "dev", from files or the Hub.

    Args:
        data: a folder with the task's files, plain or packed; None: the Hub.

    Raises:
        ValueError: no such file, no JSON, a missing key, an empty text, an id twice, an answer that is not in its
            paragraph, or no network.
    """
    gathered = _Gathered(task.version)
    if data is None and task.hub:
        _of_hub(task, split, gathered)
        return gathered.all(f"{task.hub}, {split}")
    path = None if data is None else _file(task, data, split)
    if path is None:
        missing = (
            f"{data} has no {task.files[split]} (nor .xz, .gz, .zst)" if data else f"{task.name} is not on the Hub"
        )
        ways = [f"Bring {task.files[split]} ({task.source}) and give its folder: --data FOLDER"]
        if split == "train" and task.articles:
            ways.append("train on a share of the development articles: --train-on-dev 0.8")
        if task.hub:
            ways.append(f"leave --data out to fetch {task.hub} from the Hub")
        raise ValueError(f"{missing}. {'; or '.join(ways)}.")
    text = "".join(data_lines(path))
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no complete JSON ({error}). Get the file again.") from None
    task.read(read, path, gathered)
    return gathered.all(str(path))


def _file(task: SpanTask, data: Path, split: str) -> Path | None:
    """Find the file of a split."""
    return next((path for folder in task.folders if (path := packed(data / folder / task.files[split]))), None)


def by_article(data: Questions, share: float) -> tuple[Questions, Questions]:
    """Split questions by article: a share of the articles, at least one, and the others, at least one.

    Articles are ordered by the hashes of their titles, so that the same article is always on the same side.

    Raises:
        ValueError: fewer than two articles.
    """
    articles = [data.articles[question.paragraph] for question in data.questions]
    titles = sorted(set(articles), key=lambda title: sha256(title.encode()).digest())
    if len(titles) < 2:
        raise ValueError(f"One article ({titles[0]}) cannot be parted for training and test. Bring more.")
    ours = set(titles[: min(max(1, round(share * len(titles))), len(titles) - 1)])
    sides = np.array([article in ours for article in articles])
    return data.only(np.flatnonzero(sides).tolist()), data.only(np.flatnonzero(~sides).tolist())


class SquadConfig(SquadKeys, GridConfig):
    """Settings of fine-tunings on questions; of a folder that has some, models, tasks and seeds may be added."""

    TASKS = TASKS
    RECIPES = RECIPES


def task_questions(config: SquadConfig, name: str) -> tuple[Questions, Questions]:
    """Read the training and development questions of a task, as the settings split and limit them.

    Raises:
        ValueError: as `read_questions`.
    """
    task = TASKS[name]
    dev = read_questions(task, config.folder, "dev")
    if config.train_on_dev is not None and task.articles:
        train, dev = by_article(dev, config.train_on_dev)
    else:
        train = read_questions(task, config.folder, "train")
    if config.limit is not None and config.limit < len(train.questions):
        train = train.only(np.linspace(0, len(train.questions) - 1, config.limit, dtype=int).tolist())
    return train, dev


def _check(config: SquadConfig) -> None:
    config.check_checkpoints()
    for model in config.models:
        open_config(model, "answers")
    for name in config.tasks:
        task_questions(config, name)


def fine_tune(out: str, trial: Trial, progress: Progress) -> None:
    """Train one model on one task of questions, and write predictions, answers, spans and evaluations.

    Predictions are a .npz file; answers, as the official script reads them, and the best five spans are of the best
    evaluation of all questions. The .json file of the evaluations is written last: it marks the trial of the run in the
    folder `out` as finished.
    """
    config = SquadConfig.load_saved(Path(out) / SQUAD.file)
    assert isinstance(trial.setting, Setting) and trial.seed is not None
    data, dev_data = task_questions(config, trial.task)
    opened = open_model(weights(trial), "answers", new_head=True, seed=trial.seed, untrained=trial.untrained)
    length = opened.cap_length(config.length)
    train, dev = (
        SpanBatches(rows, opened.tokenizer, length, config.stride, trial.seed, types=opened.token_types)
        for rows in (data, dev_data)
    )
    recipe = RECIPES[config.recipe]
    model = opened.model.float()  # weights are trained in float32
    tuned = tune(model, train, dev, trial.setting, recipe, best_f1, predict=answers, seed=trial.seed, progress=progress)
    # The threshold of the other half decides which questions of a half stay unanswered.
    parts = (*halves(len(dev.labels)), np.arange(len(dev.labels)))
    most = [threshold(scored[rows], dev.labels[rows]) for scored, rows in zip(tuned.predicted, parts, strict=True)]
    scored = np.array([settled(scored, dev.labels, m) for scored, m in zip(tuned.predicted, most, strict=True)])
    spans = best_texts(dev_data, scored[2])
    texts = [
        best[0][0] if best and one["answered"] else "" for best, one in zip(spans.values(), scored[2], strict=True)
    ]
    facts = {
        **tuned.facts,
        "thresholds": [None if np.isinf(m) else m for m in most],
        "questions": len(data.questions),
        "windows": len(train),
        "dev_questions": len(dev_data.questions),
        "dev_windows": len(dev),
        "cut": train.cut + dev.cut,
        "unmarked": train.unmarked,
        "length": length,
    }
    arrays = {"predicted": scored, "unanswerable": dev.labels}
    trial.write(Path(out), facts, arrays, answers=dict(zip(spans, texts, strict=True)), spans=spans)


def _mean(metric: str) -> Callable[[np.ndarray, np.ndarray], float]:
    return lambda scored, _: float(scored[metric].mean())


def squad_records(config: SquadConfig, out: Path) -> list[Record]:
    """Return the records of questions from all finished fine-tunings of a run.

    Of each model, task and seed F1 and exact match at what one half of the development questions chose (setting, step,
    threshold) on the other half, and the papers' own, the best on all of them; of each model and task the difference of
    F1 from the first model.
    """
    records: list[Record] = []
    predicted: dict[tuple[str, bool, str], dict[Any, np.ndarray]] = defaultdict(dict)
    unanswerable: dict[str, np.ndarray] = {}
    of_task: dict[Trial, dict[str, float]] = defaultdict(dict)
    for trial, of_grid in by_seed(trials(config), out):
        labels = of_grid[0].arrays["unanswerable"]
        unanswerable[trial.task] = labels
        figures, scored = chosen(of_grid, labels, {"f1": _mean("f1"), "exact": _mean("exact")})
        best = max(of_grid, key=_best).arrays["predicted"][2]
        figures["best.exact"] = float(best["exact"].mean())
        if labels.any():
            figures["unanswerable"] = float(labels.mean())
        of_task[replace(trial, task="")][trial.task] = figures["score"]
        if trial.step is None:
            predicted[trial.name, trial.untrained, trial.task][trial.seed] = scored["f1"]
        records += [
            trial.context.record(f"squad.{key}", value, part=trial.task, n=len(scored))
            for key, value in figures.items()
        ]
    scores = dict.fromkeys(TASKS, lambda scored, _: float(scored.mean()))
    records += averages("squad.score", of_task)
    return [*records, *differences("squad", config, predicted, unanswerable, scores)]


def _best(run: GridResult) -> float:
    return float(run.scores[:, 2].max())


def _notes(config: SquadConfig, out: Path) -> list[str]:
    recipe = RECIPES[config.recipe]
    few = f" At most {config.limit:,} training questions, evenly spaced." if config.limit else ""
    windows = f"Windows have {config.length} tokens, or as many as the model reads if these are fewer, and a new one "
    windows += f"begins each {config.stride} tokens, or earlier where a window has less room."
    notes = [f"Questions by {config.protocol()}, at most {recipe.epochs:g} epochs.{few} {windows}"]
    if config.train_on_dev is not None:
        notes.append(f"Trained on {config.train_on_dev:.0%} of SQuAD's development articles and tested on the others.")
    return [*notes, *notes_on_unfinished(config, out)]


SQUAD = Benchmark(
    "squad",
    "What the encoders can answer",
    SquadConfig,
    _check,
    trials,
    fine_tune,
    squad_records,
    _notes,
    "squad.score",
    "squad.difference",
    lambda task: f"{task} (F1)",
    "F1 on the half of the development questions that did not choose",
    {"tasks": ["squad", "restaurants"], "train_on_dev": 0.7, "limit": 3000, "length": 128, "stride": 64, "seeds": 1},
)
