"""GLUE (Wang et al. 2018): its tasks as the official release and the Hub have them, its metrics, the papers' protocols
(DSTG C.1; TUPE Table 1)."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..corpus.labelled import LabelledTexts, label_names, packed, read_columns
from ..corpus.labelled_batches import LabelledBatches
from ..corpus.sources import hub_rows
from ..corpus.text_files import some_names
from ..models.open import open_model
from ..records.record import Record
from ..run.progress import Progress
from .agreement import METRICS
from .benchmark import Benchmark, Trial, averages, differences
from .evaluation_keys import GlueKeys
from .grid import (
    GridConfig,
    by_seed,
    chosen,
    medians,
    notes_on_unfinished,
    of_both,
    one_after_the_other,
    trials,
    weights,
)
from .tuning import Recipe, Setting, tune

HUB = "nyu-mll/glue"
FEWEST = 4  # development rows
FEW_CUT = 0.05  # share of the training rows; less is not worth a note


@dataclass(frozen=True)
class GlueTask:
    """GLUE task: its files, columns, metrics and splits.

    folder: of the official release; hub: its configuration on the Hub. texts, label: columns of the release, by name,
    or by place where its tables have no header; hub_texts: of the Hub (whose label is `label`). metrics: the first
    decides. splits: of its development rows. regression: true if labels are numbers. gaps: true if the release itself
    has rows that lack a text, which are left out. classes: number of labels, where they are no numbers. words: labels
    of the release by their numbers on the Hub, where they are words.
    """

    name: str
    folder: str
    hub: str
    texts: tuple[str | int, ...]
    label: str | int
    hub_texts: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    splits: tuple[str, ...] = ("dev",)
    regression: bool = False
    gaps: bool = False
    classes: int = 2
    words: tuple[str, ...] = ()


_PAIR = ("sentence1", "sentence2")
_ENTAILED = ("entailment", "not_entailment")
TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        GlueTask("rte", "RTE", "rte", _PAIR, "label", _PAIR, words=_ENTAILED),
        GlueTask("mrpc", "MRPC", "mrpc", ("#1 String", "#2 String"), "Quality", _PAIR, ("accuracy", "f1")),
        GlueTask("cola", "CoLA", "cola", (3,), 1, ("sentence",), ("matthews",)),
        GlueTask("sts-b", "STS-B", "stsb", _PAIR, "score", _PAIR, ("pearson", "spearman"), regression=True),
        GlueTask("sst-2", "SST-2", "sst2", ("sentence",), "label", ("sentence",)),
        GlueTask("qnli", "QNLI", "qnli", ("question", "sentence"), "label", ("question", "sentence"), words=_ENTAILED),
        GlueTask(
            "qqp",
            "QQP",
            "qqp",
            ("question1", "question2"),
            "is_duplicate",
            ("question1", "question2"),
            ("f1", "accuracy"),
            gaps=True,
        ),
        GlueTask(
            "mnli",
            "MNLI",
            "mnli",
            _PAIR,
            "gold_label",
            ("premise", "hypothesis"),
            splits=("dev_matched", "dev_mismatched"),
            classes=3,
            words=("entailment", "neutral", "contradiction"),
        ),
        GlueTask("wnli", "WNLI", "wnli", _PAIR, "label", _PAIR),
    )
}
_HUB_SPLITS = {"dev": "validation", "dev_matched": "validation_matched", "dev_mismatched": "validation_mismatched"}

RECIPES: dict[str, Recipe] = {
    # DSTG C.1. The schedule is not printed: linear to 0 without warm-up here.
    "dstg": Recipe(
        [Setting(*values) for values in itertools.product((6e-6, 5e-6, 2e-5), (4, 16, 32), (1e-2, 1e-5))],
        epochs=10,
        warmup=0.0,
        patience=15,
        seeds=1,
    ),
    # TUPE Table 1: five seeds and their median, ten epochs (five of the four large tasks there).
    "tupe": Recipe(
        [Setting(rate, 32, 0.01) for rate in (2e-5, 3e-5, 4e-5, 5e-5)], epochs=10, warmup=0.06, patience=10_000, seeds=5
    ),
    # For a first look and for many seeds: the papers' rate, and one that small models need (docs/log.md).
    "short": Recipe(
        [Setting(rate, 32, 0.01) for rate in (2e-5, 1e-4)], epochs=5, warmup=0.06, patience=15, seeds=3, scores=(2, 500)
    ),
}


def read_task(task: GlueTask, data: Path | None, split: str, limit: int | None = None) -> LabelledTexts:
    """Read the labelled texts of a split, "train" or one of `task.splits`, from files or the Hub.

    Args:
        data: a folder laid out as the official release, its tables plain or packed, or one that holds it as glue/;
            None: the Hub.
        limit: most rows, evenly spaced, as some tables are sorted by source.

    Raises:
        ValueError: no such split, column or row, a label missing or out of range, or no network.
    """
    rows = _of_hub(task, split) if data is None else _of_release(task, data, split)
    texts = []
    pairs = []
    labels = []
    for place, (words, label) in rows:
        if not all(text.strip() for text in words):
            if task.gaps:
                continue
            raise ValueError(f"{place}: an empty text. Leave the row out.")
        if not label.strip():
            raise ValueError(f"{place}: no label. Leave the row out.")
        if task.regression:
            similarity(label, place)
        texts.append(words[0])
        pairs += words[1:]
        labels.append(label.strip())
    if not labels:
        source = f"{HUB}, {task.hub}" if data is None else f"{data}, {task.folder}/{split}.tsv"
        raise ValueError(f"{source}: {task.name} has no rows in the split {split}. Bring a complete copy.")
    if limit is not None and limit < len(labels):
        chosen = np.linspace(0, len(labels) - 1, limit, dtype=int).tolist()
        texts = [texts[i] for i in chosen]
        labels = [labels[i] for i in chosen]
        pairs = [pairs[i] for i in chosen] if pairs else []
    return LabelledTexts(texts, pairs or None, labels)


def similarity(score: str, place: str) -> float:
    """Read people's score of a pair of sentences, from 0 to 5 as in all STS tasks.

    Raises:
        ValueError: no number from 0 to 5; the message begins with `place`.
    """
    try:
        value = float(score)
    except ValueError:
        raise ValueError(f"{place}: the score {score[:60]!r} is no number. Correct the row.") from None
    if not 0 <= value <= 5:
        raise ValueError(f"{place}: the score {value:g} is out of range, from 0 to 5. Correct the row.")
    return value


def _of_release(task: GlueTask, data: Path, split: str) -> Iterator[tuple[str, tuple[list[str], str]]]:
    """Rows of a table of the official release: tabs, no quoting, a header but for CoLA."""
    data = data / "glue" if (data / "glue").is_dir() else data
    path = packed(data / task.folder / f"{split}.tsv")
    if path is None:
        raise ValueError(
            f"{data / task.folder} has no {split}.tsv (nor .xz, .gz, .zst). Bring GLUE's release there, or leave "
            f"--data out to fetch {HUB} from the Hub."
        )
    for place, (*words, label) in read_columns(path, (*task.texts, task.label), task.gaps):
        yield place, (words, label)


def _of_hub(task: GlueTask, split: str) -> Iterator[tuple[str, tuple[list[str], str]]]:
    advice = (
        f"Without a network, bring the file {task.folder}/{split}.tsv of GLUE's release and give its folder: --data "
    )
    rows = hub_rows(HUB, task.hub, _HUB_SPLITS.get(split, split), f"{advice}FOLDER.")
    words = dict(enumerate(task.words))
    for number, row in enumerate(rows):
        label = str(words.get(row["label"], row["label"]))
        yield f"{HUB}, {task.hub}, row {number}", ([row[c] for c in task.hub_texts], label)


@dataclass(frozen=True)
class Texts:
    """The rows of a task. dev: split -> rows. classes: names of the classes, none where labels are numbers."""

    train: LabelledTexts
    dev: dict[str, LabelledTexts]
    classes: list[str]

    def encoded(
        self, tokenizer: Any, length: int, seed: int, types: bool
    ) -> tuple[LabelledBatches, dict[str, LabelledBatches]]:
        """Return training and development rows for a tokenizer."""

        def batches(rows: LabelledTexts) -> LabelledBatches:
            return LabelledBatches(rows, self.classes or None, tokenizer, length, seed, types=types)

        return batches(self.train), {split: batches(rows) for split, rows in self.dev.items()}


def task_texts(task: GlueTask, data: Path | None, limit: int | None = None) -> Texts:
    """Read the training and development rows of a task, with the names of its classes.

    Args:
        limit: most training rows, evenly spaced.

    Raises:
        ValueError: as `read_task`; too few development rows, or more labels than the task has.
    """
    train = read_task(task, data, "train", limit)
    dev = {split: read_task(task, data, split) for split in task.splits}
    for split, rows in dev.items():
        if len(rows.labels) < FEWEST:
            raise ValueError(
                f"{task.name} has {len(rows.labels)} rows in {split}, {FEWEST} are needed for two halves. Bring a "
                "complete copy."
            )
    names = [] if task.regression else label_names(train.labels, f"{task.name}, training rows")
    if len(names) > task.classes:
        raise ValueError(
            f"{task.name} has {task.classes} labels, its training rows {len(names)}: {some_names(names)}. Bring a "
            "complete copy."
        )
    return Texts(train, dev, names)


class GlueConfig(GlueKeys, GridConfig):
    """Fine-tunings on GLUE; of a folder that has some, models, tasks and seeds may be added."""

    TASKS = TASKS
    RECIPES = RECIPES


def _check(config: GlueConfig) -> None:
    config.check_checkpoints()
    for name in config.tasks:
        task_texts(TASKS[name], config.folder)


def fine_tune(out: str, trial: Trial, progress: Progress) -> None:
    """Train one model on one GLUE task, and write the evaluations as .json and the predictions as .npz.

    The .json file is written last: it marks the trial of the run in the folder `out` as finished.
    """
    config = GlueConfig.load_saved(Path(out) / GLUE.file)
    assert isinstance(trial.setting, Setting) and trial.seed is not None
    recipe = RECIPES[config.recipe]
    task = TASKS[trial.task]
    texts = task_texts(task, config.folder, config.limit)
    classes = len(texts.classes)
    opened = open_model(weights(trial), "labels", classes=classes, seed=trial.seed, untrained=trial.untrained)
    model = opened.model.float()  # weights are trained in float32
    length = opened.cap_length(config.length)
    train, dev = texts.encoded(opened.tokenizer, length, trial.seed, opened.token_types)
    # A head begins at 0: of raw scores the first steps would only learn their mean, and bfloat16 near 2.7 has steps of
    # 1/64. Correlations do not change under it.
    middle = 0.0
    scale = 1.0
    if task.regression:
        middle = float(train.labels.mean())
        scale = float(train.labels.std()) or 1.0
        train.labels = ((train.labels - middle) / scale).astype(np.float32)
    first, *others = task.splits
    tuned = tune(
        model,
        train,
        dev[first],
        trial.setting,
        recipe,
        METRICS[task.metrics[0]],
        others={split: dev[split] for split in others},
        seed=trial.seed,
        progress=progress,
    )
    labels = {f"labels.{split}": rows.labels for split, rows in dev.items()}
    predictions = {"predicted": tuned.predicted, **tuned.others}
    predictions = {name: array * scale + middle if task.regression else array for name, array in predictions.items()}
    facts = {
        **tuned.facts,
        "rows": len(train),
        "dev_rows": len(dev[first]),
        "truncated": train.truncated,
        "share_cut": train.share_cut,
        "length": length,
    }
    trial.write(Path(out), facts, predictions | labels)


def glue_records(config: GlueConfig, out: Path) -> list[Record]:
    """Return the records of GLUE from all finished fine-tunings of a run.

    Of each model, task and seed: the score at what one half of the development rows chose on the other half, and the
    papers' own, the best on all rows; of each model and task the difference from the first model.
    """
    runs = by_seed(trials(config), out)
    records: list[Record] = []
    predicted: dict[tuple[str, bool, str], dict[Any, np.ndarray]] = defaultdict(dict)
    ordered = dict[str, np.ndarray]()
    strata = dict[str, np.ndarray]()
    of_task: dict[Trial, dict[str, float]] = defaultdict(dict)
    for trial, of_grid in runs:
        task = TASKS[trial.task]
        labels = of_grid[0].arrays[f"labels.{task.splits[0]}"]
        figures, predictions = chosen(of_grid, labels, {name: METRICS[name] for name in task.metrics})
        for split in task.splits[1:]:
            best = max(of_grid, key=lambda run: float(run.scores[:, 2].max())).arrays
            figures[f"score.{split.removeprefix('dev_')}"] = METRICS[task.metrics[0]](
                best[split], best[f"labels.{split}"]
            )
        of_task[replace(trial, task="")][trial.task] = figures["score"]
        if trial.step is None:
            order, strata[trial.task] = one_after_the_other(len(predictions))
            ordered[trial.task] = labels[order]
            predicted[trial.name, trial.untrained, trial.task][trial.seed] = predictions[order]
        records += [
            trial.context.record(f"glue.{key}", value, part=task.name, n=len(predictions))
            for key, value in figures.items()
        ]
    records += [*averages("glue.score", of_task), *medians("glue.median", runs)]
    scores = {name: of_both(METRICS[task.metrics[0]]) for name, task in TASKS.items()}
    return [*records, *differences("glue", config, predicted, ordered, scores, strata)]


def _notes(config: GlueConfig, out: Path) -> list[str]:
    recipe = RECIPES[config.recipe]
    cut = defaultdict[str, float](float)
    few = f" At most {config.limit:,} training rows, evenly spaced." if config.limit else ""
    notes = [f"GLUE by {config.protocol()}, at most {recipe.epochs:g} epochs.{few}"]
    for trial in trials(config):
        if trial.is_finished(out):
            facts = trial.facts(out, "truncated", "rows")
            cut[trial.task] = max(cut[trial.task], facts["truncated"] / facts["rows"])
    if shares := ", ".join(f"{share:.0%} of {part}" for part, share in cut.items() if share >= FEW_CUT):
        notes.append(f"Training rows that are cut after {config.length} tokens or where the model ends: {shares}.")
    return [*notes, *notes_on_unfinished(config, out)]


GLUE = Benchmark(
    "glue",
    "What the encoders are good for",
    GlueConfig,
    _check,
    trials,
    fine_tune,
    glue_records,
    _notes,
    "glue.score",
    "glue.difference",
    lambda task: f"{task} ({TASKS[task].metrics[0]})",
    "scores on the half of the development rows that did not choose",
    {"tasks": ["rte", "mrpc", "cola", "sts-b", "sst-2"], "limit": 4000},
)
