"""Grammar in encoders: BLiMP by pseudo-log-likelihood, and linear probes of trees and of paragraphs on their
hidden states, each stream of a two-stream model also alone."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator

from ..analysis.record_context import RecordContext
from ..models.open import open_config, open_model
from ..records.intervals import seed_interval
from ..records.metrics import range_of
from ..records.record import Record
from ..run.progress import Progress, ignore_progress
from . import paragraphs, ud
from .agreement import METRICS, macro_f1, pearson
from .benchmark import Benchmark, EvaluationConfig, Trial, differences, each_model
from .blimp import Acceptability, blimp_records, paradigm_mean, paradigm_numbers, read_blimp, right
from .evaluation_keys import LinguisticKeys
from .examples import SPLITS, Examples, Task, numbered
from .probe_fits import PLAIN, codelength, commonest_by, control_labels
from .probing import probe_rows

BLIMP = "blimp"
ROWS = 10_000  # of training and test of a task, where nothing else is said, and a quarter of development
TASKS: dict[str, Task] = {**ud.TASKS, **paragraphs.TASKS, "acceptability": Acceptability()}


class LinguisticConfig(LinguisticKeys, EvaluationConfig):
    """BLiMP and probes for several models; models and tasks may be added to a folder."""

    GROWING_KEYS = (*EvaluationConfig.GROWING_KEYS, "tasks")

    @model_validator(mode="after")
    def _check(self) -> "LinguisticConfig":
        if self.data is None and (of_files := [name for name in self.tasks if not has_files(name, None)]):
            raise ValueError(
                f"{of_files[0]} is read from files. Give the folder that holds ud-ewt/ or wikipedia-en/: --data FOLDER."
            )
        if not self.tasks:
            names = [name for name in (BLIMP, *TASKS) if has_files(name, self.folder)]
            if BLIMP in names and without_words(self.models):
                names.remove(BLIMP)
            if not names:
                raise ValueError(
                    f"{self.data} holds no task: none of blimp/*.jsonl, ud-ewt/*-ud-train.conllu, wikipedia-en/. Bring "
                    "one of them, and give the folder that holds it by --data."
                )
            self.tasks = names
        return self


def has_files(name: str, data: Path | None) -> bool:
    """Tell if a folder, or the Hub (None), has files of a task, whole or not."""
    return TASKS["acceptability" if name == BLIMP else name].has_files(data)


def without_words(models: Sequence[str]) -> str:
    """Return why one of some models cannot say how likely a word is; "" where all of them can."""
    for model in models:
        try:
            open_config(model)
        except ValueError:
            continue  # no model at all, which is refused later
        try:
            open_model(model, "masked")
        except ValueError as error:
            return str(error)
    return ""


def _check_all(config: LinguisticConfig) -> None:
    for name in config.tasks:
        if name == BLIMP:
            read_blimp(config.folder, 1)
            for model in config.models:
                open_model(model, "masked")
        else:
            TASKS[name].check(config.folder)


def _trials(config: LinguisticConfig) -> list[Trial]:
    """List one task after the other, each for all models, BLiMP last, because it takes longest."""
    tasks = sorted(config.tasks, key=[*TASKS, BLIMP].index)
    return [Trial(*model, task) for task in tasks for model in each_model(config)]


def work(out: str, trial: Trial, progress: Progress) -> None:
    """Measure one model on one task, and write the figures as .json and the predictions as .npz.

    The .json file is written last: it marks the trial of the run in the folder `out` as finished.
    """
    config = LinguisticConfig.load_saved(Path(out) / LINGUISTIC.file)
    opened = open_model(trial.source, "masked" if trial.task == BLIMP else None, untrained=trial.untrained)
    model = opened.model
    tokenizer = opened.tokenizer
    if trial.task == BLIMP:
        pairs = read_blimp(config.folder, config.pairs)
        judged = right(model, tokenizer, pairs, progress=progress)
        arrays = {"right": judged}
        facts = {"pairs": len(pairs)}
    else:
        arrays, facts = probe(model, tokenizer, TASKS[trial.task], config, progress)
    trial.write(Path(out), facts, arrays)


def probe(
    model: Any, tokenizer: Any, task: Task, config: LinguisticConfig, progress: Progress = ignore_progress
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Train and test linear probes of one task on the hidden states of one model.

    Returns:
        arrays: `score`, `f1`, `bits` (layers, seeds, parts, 1 or, with a control, 2), `predicted` (seeds, parts, rows)
        of the last layer, `labels` and `groups` (rows,) of the test. facts: the names of `parts` and `layers`, the
        numbers of rows, classes and rows without a token, and the share right of guesses without a model.

    Raises:
        ValueError: as `task_labels`.
    """
    most = config.limit or ROWS
    splits = {split: task.examples(config.folder, split, -(-most // 4) if split == "dev" else most) for split in SPLITS}
    classes, numbers = task_labels(task, splits)
    variants = [numbers]
    if task.words:
        controls = control_labels([splits[s].keys for s in SPLITS], numbers["train"])
        variants.append(dict(zip(SPLITS, controls, strict=True)))
    labels = {split: np.stack([of_split[split] for of_split in variants]) for split in SPLITS}
    probed = probe_rows(model, tokenizer, splits, labels, len(classes), PLAIN, config, progress)
    score = METRICS["accuracy"] if classes else pearson
    arrays = {
        "score": np.stack([probed.scores(score, variant) for variant in range(len(variants))], axis=-1),
        "predicted": probed.predicted[-1, :, :, 0],
        "labels": probed.labels[0],
    }
    arrays["groups"] = splits["test"].groups
    if classes:
        arrays["f1"] = probed.scores(macro_f1)
    if config.code and classes:
        how = (probed.columns, len(classes), range(config.seeds))
        arrays["bits"] = codelength(probed.rows["train"], probed.rows["dev"], *how, PLAIN)
    facts = {"parts": list(probed.parts), "layers": probed.layers, "classes": classes, "lost": probed.lost}
    facts |= {"rows": {split: len(rows) for split, rows in probed.rows.items()}}
    return arrays, facts | _guesses(splits, numbers, bool(classes))


def task_labels(task: Task, splits: Mapping[str, Examples]) -> tuple[list[str], dict[str, np.ndarray]]:
    """List the classes of a task and label the rows of each split, by class number or by standardised number.

    Returns:
        The names of the classes, none where labels are numbers. For each split (rows,) class numbers, or numbers with
        mean 0 and deviation 1 in training.

    Raises:
        ValueError: a split without rows, or training rows that are all alike.
    """
    if empty := [split for split, rows in splits.items() if not len(rows)]:
        raise ValueError(f"No row of the {empty[0]} part fits this task. Bring complete data, or leave the task out.")
    if task.number:
        values = {split: np.array(rows.labels, np.float32) for split, rows in splits.items()}
        mean = values["train"].mean()
        spread = values["train"].std()
        if not spread:
            raise ValueError(f"All training rows have the number {mean:g}. Bring complete data.")
        return [], {split: (numbers_of_split - mean) / spread for split, numbers_of_split in values.items()}
    classes, numbers = numbered(splits, task.most)
    if len(classes) < 2:
        raise ValueError(f"All training rows are {classes[0]!r}. A probe needs two classes; bring complete data.")
    return classes, numbers


def _guesses(splits: Mapping[str, Examples], numbers: Mapping[str, np.ndarray], classes: bool) -> dict[str, float]:
    """Compute the share right of guesses that see the classes, or the surface, of the training rows alone."""
    if not classes:
        return {}
    guesses = commonest_by(splits["train"].keys, numbers["train"], splits["test"].keys)
    return {
        name: float((guess == numbers["test"]).mean())
        for name, guess in zip(("commonest", "surface"), guesses, strict=True)
    }


def linguistic_records(config: LinguisticConfig, out: Path) -> list[Record]:
    """Return the records of all finished tasks of a run (see `METRICS`), and differences from the first model.

    Differences are over the same rows, drawn by sentences (of BLiMP by pairs of each paradigm).
    """
    records: list[Record] = []
    predicted: dict[tuple[str, bool, str], dict[Any, np.ndarray]] = defaultdict(dict)
    labels: dict[str, np.ndarray] = {}
    scores: dict[str, Any] = {}
    pairs = read_blimp(config.folder, config.pairs) if BLIMP in config.tasks else []
    for trial in _trials(config):
        if not trial.is_finished(out):
            continue
        task = trial.task
        key = (trial.name, trial.untrained, trial.task)
        keys = [] if task == BLIMP else ["parts", "layers", "classes", "rows"]
        facts = trial.facts(out, *keys)
        arrays = trial.arrays(out)
        first = task not in labels
        if task == BLIMP:
            labels[task] = paradigm_numbers(pairs)
            scores[task] = paradigm_mean
            predicted[key][0] = arrays["right"]
            records += blimp_records(trial.context, pairs, arrays["right"])
            share = paradigm_mean(arrays["right"], labels[task])
            records.append(trial.context.record("linguistic.score", share, part=task, n=len(pairs)))
            continue
        predictions = arrays["predicted"][:, facts["parts"].index("all")]  # (seeds, rows)
        if facts["classes"]:
            scores[task] = _share
            counts = np.unique(arrays["groups"], return_inverse=True)[1]
            labels[task] = np.bincount(counts)
            predicted[key] = {i: np.bincount(counts, row == arrays["labels"]) for i, row in enumerate(predictions)}
        else:
            scores[task] = pearson
            labels[task] = arrays["labels"]
            predicted[key] = dict(enumerate(predictions))
        records += _probe_records(trial.context, task, arrays, facts)
        if first:
            data = RecordContext("")
            guesses = [name for name in ("commonest", "surface") if name in facts]
            n = facts["rows"]["test"]
            records += [data.record(f"linguistic.{name}", facts[name], part=task, n=n) for name in guesses]
    strata = {BLIMP: labels[BLIMP]} if BLIMP in labels else {}
    return [*records, *differences("linguistic", config, predicted, labels, scores, strata)]


def _share(hits: np.ndarray, rows: np.ndarray) -> float:
    return float(hits.sum() / rows.sum())


def _probe_records(
    context: RecordContext, task: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]
) -> list[Record]:
    """Return the records of a task: of the last layer, and of each layer where there are several.

    Metrics of a stream alone end with its name.
    """
    n = facts["rows"]["test"]
    records = []

    def record(metric: str, values: np.ndarray, **place: Any) -> None:
        """values: (seeds,)"""
        name = f"linguistic.{metric}"
        interval = seed_interval(values, range_of(name)) or ()
        records.append(context.record(name, values.mean(), *interval, part=task, n=n, **place))

    for p, part in enumerate(facts["parts"]):
        stream = "" if part == "all" else f".{part}"
        for f, layer in enumerate(facts["layers"]):
            score = arrays["score"][f, :, p]  # (seeds, variants)
            if len(facts["layers"]) > 1:
                record(f"layer{stream}", score[:, 0], layer=layer)
            if layer != facts["layers"][-1]:
                continue
            record(f"score{stream}", score[:, 0])
            if score.shape[1] > 1:
                record(f"selectivity{stream}", score[:, 0] - score[:, 1])
            if "f1" in arrays:
                record(f"f1{stream}", arrays["f1"][f, :, p])
            if "bits" in arrays:
                uniform = facts["rows"]["train"] * np.log2(len(facts["classes"]))
                record(f"compression{stream}", uniform / arrays["bits"][f, :, p, 0])
    return records


def _notes(config: LinguisticConfig, out: Path) -> list[str]:
    notes = []
    if any(trial.task == BLIMP and trial.is_finished(out) for trial in _trials(config)):
        pairs = read_blimp(config.folder, config.pairs)
        notes.append(
            f"BLiMP: {len(pairs):,} pairs of {len({p.paradigm for p in pairs})} paradigms, by pseudo-log-likelihood."
        )
    if any(name in TASKS for name in config.tasks):
        states = "the last hidden state that is trained" if config.layers == "last" else "all hidden states"
        rows = config.limit or ROWS
        notes.append(f"Linear probes of {config.seeds} seeds on {states}, at most {rows:,} rows of training and test.")
    if BLIMP not in config.tasks and has_files(BLIMP, config.folder) and (reason := without_words(config.models)):
        notes.append(f"BLiMP was left out. {reason}")
    missing = [name for name in (BLIMP, *TASKS) if not has_files(name, config.folder)]
    if missing and len(config.tasks) + len(missing) == 1 + len(TASKS):  # others were not asked for
        where = "the Hub has no data of theirs" if config.data is None else "the folder has no files of theirs"
        notes.append(f"Left out, as {where}: {', '.join(missing)}.")
    return notes


LINGUISTIC = Benchmark(
    "linguistic",
    "What the encoders know of grammar",
    LinguisticConfig,
    _check_all,
    _trials,
    work,
    linguistic_records,
    _notes,
    "linguistic.score",
    "linguistic.difference",
    brief={"tasks": [BLIMP, *TASKS], "pairs": 100},
    legend="share right of the last layer's probes (readability: correlation; blimp: mean of paradigms, chance 0.5); "
    "intervals are over seeds of the probe, intervals of differences over sentences",
)
