"""Holmes and Flash-Holmes (Waldis et al. 2024): linear probes of some two hundred data sets in the files and by the
protocol of the published code, means over phenomena and fields as DSTG has them (Table 5, appendix C.3)."""

import csv
import math
from ast import literal_eval
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.record_context import RecordContext
from ..corpus.labelled import MOST_LABELS
from ..corpus.text_files import data_lines, empty_file, table_rows
from ..models.open import open_model
from ..records.intervals import seed_interval
from ..records.metrics import range_of
from ..records.record import Record
from ..run.files import read_yaml
from ..run.progress import Progress
from .agreement import macro_f1, pearson
from .benchmark import Benchmark, EvaluationConfig, Trial, differences, each_model
from .evaluation_keys import HolmesKeys
from .examples import SPLITS, Examples
from .probe_fits import OF_HOLMES
from .probing import probe_rows

SAMPLES = "samples.csv"
WHOLE = ("SENTENCE", "SENTENCE_PAIR_BI")  # each input is a text, read alone
JOINED = ("SENTENCE_PAIR_CROSS", "SENTENCE_PAIR_TOKENS_CROSS")  # both as one text with the separator between
KINDS = (*WHOLE, *JOINED, "SENTENCE_TOKENS", "SENTENCE_SPANS", "SENTENCE_PAIR_TOKENS_BI")
TABLES = tuple(f"holmes.csv{packed}" for packed in ("", ".xz", ".gz", ".zst"))  # ends of published tables
SPREAD = 0.1  # of a data set over seeds: with more, for any model, it is left out (DSTG C.3)


@dataclass(frozen=True)
class DataSet:
    """Probing data set of Holmes with its splits.

    kind: of its inputs, one of `KINDS`; classes: 0 where labels are numbers.
    """

    name: str
    kind: str
    classes: int
    splits: dict[str, Examples]


def data_sets(data: Path) -> dict[str, Path]:
    """Map the name of each data set to its folder, below the data's folder or flash-holmes/ or holmes/ in it.

    Each has a samples.csv and a config-none.yaml.

    Raises:
        ValueError: there is none.
    """
    for folder in (data, data / "flash-holmes", data / "holmes"):
        if folders := {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{SAMPLES}"))}:
            return folders
    raise ValueError(
        f"{data} holds no data set of Holmes: no */{SAMPLES}. Fetch them by data/holmes/download.py or data/flash-"
        "holmes/download.py of github.com/Holmes-Benchmark/holmes-evaluation and give that folder."
    )


def read_settings(folder: Path) -> tuple[str, int]:
    """Read the kind of a data set's inputs and its number of classes, 0 of a regression.

    Raises:
        ValueError: no such file, or another kind.
    """
    path = next(iter(sorted(folder.glob("config*none*.yaml"))), None)
    if path is None:
        raise ValueError(f"{folder} has no config-none.yaml. Bring the complete data set.")
    settings = read_yaml(path, "Bring the complete data set.")
    if settings is None:
        raise empty_file(path)
    kind, classes = (
        settings.get(key) if isinstance(settings, dict) else None for key in ("probe_task_type", "num_labels")
    )
    if kind not in KINDS or not isinstance(classes, int) or not 1 <= classes <= MOST_LABELS:
        raise ValueError(
            f"{path}: probe_task_type {str(kind)[:40]!r} with num_labels {str(classes)[:40]}. Known kinds: "
            f"{', '.join(KINDS)}; num_labels is from 1 to {MOST_LABELS:,}."
        )
    return kind, 0 if classes == 1 else classes


def read_data_set(folder: Path, separator: str = "[SEP]", limit: int | None = None) -> DataSet:
    """Read a data set of Holmes from its samples.csv and settings.

    A row has `inputs`, a list of texts, or of (word, number of the context, first character, last + 1) with, for spans,
    the number of the input that it belongs to; `context`, a list of texts; `label`; and `set-0`, its split.

    Args:
        separator: stands between two texts that are read as one.
        limit: number of rows of each split that are read, from the first on.

    Raises:
        ValueError: a file or column is missing, a row is damaged, a label is no class, a split is empty.
    """
    kind, classes = read_settings(folder)
    path = folder / SAMPLES
    if not path.is_file():
        raise ValueError(f"{folder} has no {SAMPLES}. Bring the complete data set.")
    splits = {split: Examples() for split in SPLITS}
    csv.field_size_limit(1 << 27)
    with path.open(encoding="utf-8", newline="") as file, _in_words(path):
        rows = csv.DictReader(file)
        if rows.fieldnames is None:
            raise empty_file(path)
        if lacking := [name for name in ("inputs", "label", "set-0") if name not in rows.fieldnames]:
            raise ValueError(f"{path} has no column {lacking[0]!r}. Bring the complete data set.")
        for row in rows:
            place = f"{path}, line {rows.line_num}"
            split = row["set-0"]
            if split not in splits or (limit is not None and len(splits[split].labels) >= limit):
                continue
            try:
                inputs = literal_eval(row["inputs"])
                context = literal_eval(row.get("context") or "[]")
                label = float(row["label"])
                if not math.isfinite(label):
                    raise ValueError(f"its label is {label}")
                places_of_row = list(_places(kind, inputs, context, f" {separator} "))
                if not places_of_row or {which for which, *_ in places_of_row} - set(range(len(places_of_row))):
                    raise ValueError("its inputs are not numbered from 0")
                for _, text, *ends in places_of_row:
                    if not isinstance(text, str) or not all(isinstance(end, int | float) for end in ends):
                        raise ValueError(f"a text and two places are wanted, got {text!r}, {ends}")
            except (ValueError, SyntaxError, TypeError, IndexError, MemoryError, RecursionError) as error:
                raise ValueError(
                    f"{place}: no row of the kind {kind} ({str(error)[:80]}). Bring a complete copy."
                ) from None
            if classes and not (label.is_integer() and 0 <= label < classes):
                raise ValueError(
                    f"{place}: the label {row['label'][:40]} is no class from 0 to {classes - 1}. Correct it."
                )
            places: list[list[tuple[str, int, int]]] = [
                [] for _ in range(1 + max(which for which, *_ in places_of_row))
            ]
            for which, text, start, end in places_of_row:
                places[which].append((text, start, end))
            splits[split].add(places, label)
    if empty := [split for split, rows_of in splits.items() if not rows_of.labels]:
        raise ValueError(f"{path} has no row of the split {empty[0]}. Bring the complete data set.")
    return DataSet(folder.name, kind, classes, splits)


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Name the file in errors about damaged bytes."""
    try:
        yield
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no table in UTF-8 ({error}). Bring the complete data set.") from None


def _places(kind: str, inputs: Any, context: Any, between: str) -> Iterator[tuple[int, str, int, int]]:
    """Yield (number of the input, text, first character, last + 1) of the places of a row.

    -1 for the last: the whole text with the special tokens around it.
    """
    if kind in WHOLE:
        yield from ((i, text, 0, -1) for i, text in enumerate(inputs))
    elif kind == "SENTENCE_PAIR_CROSS":
        yield 0, between.join(inputs), 0, -1
    else:
        for i, (_, which, start, end, *of) in enumerate(inputs):
            if kind in JOINED:
                shift = len(context[0]) + len(between) if which else 0
                yield i, between.join(context), start + shift, end + shift
            else:
                yield of[0] if of else i, context[which], start, end


class HolmesConfig(HolmesKeys, EvaluationConfig):
    """Holmes for several models; models and data sets may be added to a folder."""

    GROWING_KEYS = (*EvaluationConfig.GROWING_KEYS, "tasks")
    EMPTY_IS_ALL = ("tasks",)


def read_phenomena(path: Path) -> dict[str, tuple[str, str]]:
    """Read the field and phenomenon of each data set from a published table of Holmes, plain or packed.

    Returns:
        Data set -> (field, phenomenon).

    Raises:
        ValueError: no such file or column.
    """
    return {name: (row["linguistic subfield"], row["linguistic phenomena"]) for name, row in _published(path)}


def published_scores(path: Path, model: str) -> dict[str, float]:
    """Read the scores of a model from a published table of Holmes; none if the model is not in it.

    The table has several shares of the training rows: the largest share is read that has most data sets, whoever has a
    score of them (all of Flash-Holmes are there up to 1/32).

    Returns:
        Data set -> score.

    Raises:
        ValueError: no such file or column.
    """
    shares: dict[float, dict[str, float | None]] = defaultdict(dict)
    for name, row in _published(path):
        try:
            shares[float(row["train portion"])][name] = float(row[model]) if row.get(model) else None
        except ValueError:
            raise ValueError(f"{path}: no number for {name[:60]!r} and {model}. Bring a complete copy.") from None
    _, scores = max(shares.items(), key=lambda share: (len(share[1]), share[0]), default=(0.0, {}))
    return {name: score for name, score in scores.items() if score is not None}


def _published(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    if not path.is_file():
        raise ValueError(f"No published table {path}. Bring data/leaderboards/*.csv of the repository of Holmes.")
    rows = table_rows(path, data_lines(path))
    _, names = next(rows)
    for column in ("probing dataset", "linguistic subfield", "linguistic phenomena", "train portion"):
        if column not in names:
            raise ValueError(f"{path} has no column {column!r}. Bring data/leaderboards/*.csv of Holmes.")
    for _, row in rows:
        of = {key: value.strip() for key, value in zip(names, row, strict=True)}
        yield of["probing dataset"], of


def table_of(config: HolmesConfig) -> Path | None:
    """Find the published table: the one given, or the one that lies beside the data; None if there is none.

    Beside the data: `leaderboards/*holmes.csv` as in the repository of Holmes, or `leaderboard*holmes.csv`, plain or
    packed; of several the one of the data's name.
    """
    if config.table is not None:
        return Path(config.table)
    data = next(iter(data_sets(Path(config.data)).values())).parent
    folders = (folder.glob(name) for folder in (data, data.parent) for name in ("leaderboards/*", "leaderboard*"))
    tables = [path for paths in folders for path in sorted(paths) if path.name.endswith(TABLES)]
    same = [p for p in tables if p.name.partition(".")[0].removeprefix("leaderboard-") == data.name]
    return next(iter(same or tables), None)


def aggregated(
    scores: Mapping[str, float], phenomena: Mapping[str, tuple[str, str]]
) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
    """Average scores by (field, phenomenon) and by field, each over its data sets.

    A field is the mean of its data sets, not of its phenomena: so DSTG's Tables 9-13 give its Table 5.
    """
    of_phenomenon = defaultdict(list)
    of_field = defaultdict(list)
    for name, score in scores.items():
        if name in phenomena:
            of_phenomenon[phenomena[name]].append(score)
            of_field[phenomena[name][0]].append(score)
    return (
        {key: float(np.mean(values)) for key, values in of_phenomenon.items()},
        {key: float(np.mean(values)) for key, values in of_field.items()},
    )


def _tasks(config: HolmesConfig) -> list[str]:
    return config.tasks or list(data_sets(Path(config.data)))


def _check(config: HolmesConfig) -> None:
    folders = data_sets(Path(config.data))
    if strange := [name for name in config.tasks if name not in folders]:
        raise ValueError(f"{config.data} has no data set {strange[0]!r}. Use one of {', '.join(list(folders)[:8])} ...")
    for name in _tasks(config):
        read_data_set(folders[name], limit=2)
    if (table := table_of(config)) is not None:
        read_phenomena(table)


def _trials(config: HolmesConfig) -> list[Trial]:
    return [Trial(*model, name) for name in _tasks(config) for model in each_model(config)]


def work(out: str, trial: Trial, progress: Progress) -> None:
    """Probe one model on one data set, and write the scores as .json and the predictions as .npz.

    The .json file is written last: it marks the trial of the run in the folder `out` as finished.
    """
    config = HolmesConfig.load_saved(Path(out) / HOLMES.file)
    opened = open_model(trial.source, untrained=trial.untrained)
    model = opened.model
    tokenizer = opened.tokenizer
    data_set = read_data_set(data_sets(Path(config.data))[trial.task], tokenizer.sep_token or "", config.limit)
    kind = np.int64 if data_set.classes else np.float32
    labels = {}
    rng = np.random.default_rng(0)
    for split, rows in data_set.splits.items():
        targets = np.array(rows.labels, kind)
        labels[split] = np.stack([targets, rng.permutation(targets)] if config.control else [targets])
    probed = probe_rows(model, tokenizer, data_set.splits, labels, data_set.classes, OF_HOLMES, config, progress)
    score = macro_f1 if data_set.classes else pearson

    def scores(layer: int, labelling: int) -> dict[str, list[float]]:
        of_layer = probed.scores(score, labelling)[layer]  # (seeds, parts)
        return dict(zip(probed.parts, of_layer.T.tolist(), strict=True))

    facts: dict[str, Any] = {"scores": scores(-1, 0), "kind": data_set.kind, "classes": data_set.classes}
    if config.control:
        facts["control"] = scores(-1, 1)
    if len(probed.layers) > 1:
        facts["layers"] = [scores(layer, 0) for layer in probed.layers]
    facts["rows"] = {split: len(rows) for split, rows in probed.rows.items()}
    trial.write(Path(out), facts, {"predicted": probed.predicted[-1, :, 0, 0], "labels": probed.labels[0]})


def unsteady(scores: Mapping[Any, Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Find data sets whose scores vary over seeds: a standard deviation above 0.1 for at least one model (DSTG C.3).

    Args:
        scores: model -> data set -> score of each seed.

    Returns:
        Data set -> the largest deviation over the models.
    """
    spread: dict[str, float] = defaultdict(float)
    for of in scores.values():
        for name, values in of.items():
            spread[name] = max(spread[name], float(np.std(values, ddof=1)) if len(values) > 1 else 0.0)
    return {name: spread[name] for name in sorted(spread) if spread[name] > SPREAD}


def _finished(config: HolmesConfig, out: Path) -> Iterator[tuple[Trial, dict[str, Any]]]:
    for trial in _trials(config):
        if trial.is_finished(out):
            yield trial, trial.facts(out, "scores", "classes", "rows")


def holmes_records(config: HolmesConfig, out: Path) -> list[Record]:
    """Return the records of Holmes from all finished probes of a run.

    Of each data set; and means of phenomena, of fields and of all over the data sets that all models have and none has
    unsteady. Metrics of a stream alone end with its name.
    """
    records: list[Record] = []
    by_model: dict[RecordContext, dict[str, dict[str, list[float]]]] = defaultdict(dict)
    predicted: dict[tuple[str, bool, str], dict[Any, np.ndarray]] = {}
    labels: dict[str, np.ndarray] = {}
    scores: dict[str, Any] = {}
    for trial, facts in _finished(config, out):
        by_model[trial.context][trial.task] = facts["scores"]
        arrays = trial.arrays(out)
        predicted[trial.name, trial.untrained, trial.task] = dict(enumerate(arrays["predicted"]))
        labels[trial.task] = arrays["labels"]
        scores[trial.task] = macro_f1 if facts["classes"] else pearson
        records += _data_set_records(trial, facts)
    table = table_of(config)
    if table is not None and by_model:
        phenomena = read_phenomena(table)
        trained = {context: of_sets for context, of_sets in by_model.items() if context.step is None}
        wide = unsteady({c: {name: of["all"] for name, of in of_sets.items()} for c, of_sets in trained.items()})
        records += [
            RecordContext("").record("holmes.unsteady", deviation, part=name, n=len(by_model))
            for name, deviation in wide.items()
        ]
        names = sorted(set.intersection(*map(set, by_model.values())) & set(phenomena) - set(wide))
        for context, of_sets in by_model.items():
            for part in next(iter(of_sets.values())):
                means = {name: float(np.mean(of_sets[name][part])) for name in names}
                records += _mean_records(context, part, means, phenomena)
            if context in trained:
                records += _published_records(context, names, phenomena, published_scores(table, context.model))
        predicted = {key: of for key, of in predicted.items() if key[2] in names}  # the data sets of the means
    return [*records, *differences("holmes", config, predicted, labels, scores)]


def _data_set_records(trial: Trial, facts: Mapping[str, Any]) -> list[Record]:
    """Write records of a data set: its score, each layer's and the lead over permuted labels where they were probed."""
    records = []
    for part, seed_scores in facts["scores"].items():
        rows: list[tuple[str, Any, int | None]] = [("dataset", seed_scores, None)]
        rows += [("layer", of[part], layer) for layer, of in enumerate(facts.get("layers", ()))]
        if "control" in facts:
            rows.append(("selectivity", np.subtract(seed_scores, facts["control"][part]), None))
        for metric, values, layer in rows:
            place = {"part": trial.task, "layer": layer, "n": facts["rows"]["test"]}
            name = f"holmes.{metric}{_of(part)}"
            interval = seed_interval(values, range_of(name)) or ()
            records.append(trial.context.record(name, np.mean(values), *interval, **place))
    return records


def _mean_records(
    context: RecordContext, part: str, means: Mapping[str, float], phenomena: Mapping[str, tuple[str, str]]
) -> list[Record]:
    """Write records of phenomena, fields and all data sets, from the mean of each data set over seeds."""
    of_phenomenon, of_field = aggregated(means, phenomena)
    sets = Counter(phenomena[name] for name in means)
    fields = Counter(phenomena[name][0] for name in means)
    end = _of(part)
    records = list[Record]()
    for place, value in of_phenomenon.items():
        records.append(context.record(f"holmes.phenomenon{end}", value, part=": ".join(place), n=sets[place]))
    for field, value in of_field.items():
        records.append(context.record(f"holmes.field{end}", value, part=field, n=fields[field]))
    if means:
        records.append(context.record(f"holmes{end}", np.mean(list(means.values())), n=len(means)))
    return records


def _published_records(
    context: RecordContext, names: Sequence[str], phenomena: Mapping[str, tuple[str, str]], printed: Mapping[str, float]
) -> list[Record]:
    """Write records of fields, from the scores that a published table has of the same data sets."""
    known = {name: printed[name] for name in names if name in printed}
    fields = Counter(phenomena[name][0] for name in known)
    _, of_field = aggregated(known, phenomena)
    return [context.record("holmes.published", value, part=f, n=fields[f]) for f, value in of_field.items()]


def _of(part: str) -> str:
    return "" if part == "all" else f".{part}"


def _notes(config: HolmesConfig, _out: Path) -> list[str]:
    words = f"Holmes: {len(_tasks(config))} data sets, {config.seeds} seeds, macro F1 or Pearson's correlation."
    table = table_of(config)
    if table is None:
        return [words, "No means of phenomena and fields: leaderboards/*.csv is not there, see --table."]
    phenomena = read_phenomena(table)
    unknown = [name for name in _tasks(config) if name not in phenomena]
    return [words, f"Of no phenomenon in {table.name}: {', '.join(unknown)}."] if unknown else [words]


HOLMES = Benchmark(
    "holmes",
    "What the encoders know of language",
    HolmesConfig,
    _check,
    _trials,
    work,
    holmes_records,
    _notes,
    "holmes.field",
    legend=f"mean of the data sets of a field; those with a deviation above {SPREAD} over seeds are left out",
)
