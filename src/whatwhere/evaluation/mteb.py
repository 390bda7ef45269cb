"""MTEB (Muennighoff et al. 2023; DSTG C.2): vectors of whole texts, measured by mteb's own protocol, on
its tasks or on `local_tasks`; before and after unsupervised SimCSE."""

import difflib
import logging
import tempfile
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator

from ..corpus import Source, Windows, open_source
from ..corpus.python_docs import PythonDocs
from ..corpus.tokenizer import open_tokenizer
from ..corpus.windows import own_windows
from ..encoder import EncoderConfig
from ..models.lengths import usual_length
from ..models.open import OpenModel, check_rows, model_folder, open_config, open_model
from ..models.prediction_kinds import OF_STREAMS, POOLINGS
from ..models.sentence import TextVectors
from ..records.record import Record
from ..run.files import read_json, read_object
from ..run.names import SUMMARY
from ..run.progress import Progress, ignore_progress
from ..training.contrastive import BATCH_SIZE, DROPOUT, save_encoder, train_contrastive, zero_dropout_settings
from .benchmark import (
    UNTRAINED,
    Benchmark,
    EvaluationConfig,
    Trial,
    bounded,
    differences,
    each_model,
    paired,
)
from .evaluation_keys import ENGLISH, MtebKeys
from .local_tasks import LOCAL, local_task

SIMCSE = "simcse"
BATCH = 8, 128  # texts of one forward pass: on a CPU, where more leave its cache, or not
PYTHON_DOCS = 16  # one file of 16 is text enough for some thousand sentences


class MtebConfig(MtebKeys, EvaluationConfig):
    """Settings of sentence-vector tasks for several models.

    Models, tasks, poolings and seeds may be added to a folder.
    """

    GROWING_KEYS = (*EvaluationConfig.GROWING_KEYS, "tasks", "pooling", "contrastive", "seeds")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"tasks": [ENGLISH] if values.get("data") is None else list(LOCAL), **values}

    @model_validator(mode="after")
    def _seeded(self) -> "MtebConfig":
        if self.seeds > 1 and not self.contrastive:
            raise ValueError(f"seeds are of SimCSE, all else has none; got {self.seeds}. Add --contrastive.")
        return self


class Pooling(str):
    """Pooling of token states into a vector, as the setting of a trial."""

    @property
    def name(self) -> str:
        """Name of the pooling, as part of a file's name."""
        return str(self)

    def of(self, metric: str) -> str:
        """Build the name of a metric of these vectors; the mean keeps the metric's own name."""
        return metric if self == "mean" else f"{metric}.{self}"


def poolings(config: MtebConfig, source: str) -> list[Pooling]:
    """List the wanted poolings that a model has: a model of one stream has no vectors of a stream."""
    read = open_config(source)
    streams = read.model_type == EncoderConfig.model_type and bool(read.position_size)
    return [Pooling(name) for name in config.pooling if streams or name not in OF_STREAMS]


def text_encoder(opened: OpenModel, pooling: str, length: int, progress: Progress = ignore_progress) -> Any:
    """Build the `SentenceTransformer` of an opened model that mteb measures; its similarity is the cosine.

    Args:
        pooling: as `models.sentence.pooled`. length: most tokens of a text.
    """
    from sentence_transformers import SentenceTransformer

    config = opened.config
    ours = config.model_type == EncoderConfig.model_type
    most = config.max_position_embeddings if ours else opened.max_tokens  # ours: alike for all schemes
    module = TextVectors(
        opened.model,
        opened.tokenizer,
        pooling,
        min(length, most or length),
        progress,
    )
    return SentenceTransformer(modules=[module], similarity_fn_name="cosine")


def _mteb() -> Any:
    """The package, quiet.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import mteb
    except ImportError:
        raise ValueError(
            "evaluate mteb needs the package mteb, which is not installed: pip install 'whatwhere[mteb]'."
        ) from None
    import datasets

    datasets.disable_progress_bars()
    logging.getLogger("mteb").setLevel(logging.ERROR)
    return mteb


def _tasks(config: MtebConfig, only: str | None = None) -> dict[str, Any]:
    """Map names to mteb's tasks, of all benchmarks and tasks; a local task to None, unless it alone is wanted.

    Raises:
        ValueError: no such task, one of more than text, or what local tasks need is missing.
    """
    mteb = _mteb()
    tasks = dict[str, Any]()
    for name in config.tasks:
        if name in LOCAL:
            if config.folder is None:
                raise ValueError(f"{name} is read from files: give their folder, --data FOLDER.")
            tasks[name] = local_task(name, config.folder, config.limit) if name == only else None
            continue
        if config.limit is not None:
            raise ValueError(f"limit is of local tasks, mteb's own are whole; tasks has {name}. Leave one of them out.")
        try:
            tasks[name] = mteb.get_task(name)
        except KeyError as error:
            try:
                tasks |= {task.metadata.name: task for task in mteb.get_benchmark(name).tasks}
            except KeyError:
                longer = [local for local in LOCAL if local.startswith(name.removesuffix("-local"))]
                near = longer or difflib.get_close_matches(name, LOCAL, n=1) or str(error).split("'")[3:4]
                hint = f"Did you mean {near[0]}?" if near else f"Give one of {', '.join(LOCAL)}, or one of mteb's own."
                raise ValueError(f"No task or benchmark {name!r}. {hint}") from None
    for name, task in tasks.items():
        if task is not None and task.metadata.modalities != ["text"]:
            raise ValueError(
                f"{name} is of {', '.join(task.metadata.modalities)}; these encoders read text alone. Leave it out."
            )
    return tasks


def _unreached(name: str, error: Exception) -> ValueError:
    reason = " ".join((str(error).strip() or type(error).__name__).split())[:160]
    return ValueError(
        f"{name} cannot be fetched from the Hub ({reason}). Where there is no network, bring the Hub's cache (HF_HOME) "
        "with it, or take local tasks: --tasks NAME-local --data FOLDER."
    )


def _check(config: MtebConfig) -> None:
    """Read all local files once, and ask the Hub for the data sets of the other tasks."""
    import datasets

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, task in _tasks(config).items():
            if task is None:
                LOCAL[name].read(LOCAL[name].paths(config.folder or Path()))
                continue
            for part in getattr(task.metadata, "tasks", [task]):  # of an aggregate
                where = part.metadata.dataset
                try:
                    datasets.get_dataset_config_names(where["path"], revision=where["revision"])
                except Exception as error:  # network and Hub raise classes of half a dozen libraries
                    raise _unreached(name, error) from None
    sources = [source for _, source, _ in each_model(config)]
    for name in config.pooling:
        if not any(name in poolings(config, source) for source in sources):
            raise ValueError(f"No model here has two streams, which the pooling {name!r} needs. Pool mean or cls.")
    for source in sources if config.contrastive and config.corpus is not None else ():
        tokenizer = open_tokenizer(str(model_folder(source)))
        check_rows(tokenizer, open_config(source).vocab_size, source)
        text = _text(config, tokenizer, source)
        if isinstance(text, Source):
            next(iter(text), None)


def trials(config: MtebConfig) -> list[Trial]:
    """List SimCSE of every model and seed, where it is wanted, then all tasks, each for all models and poolings."""
    plain = each_model(config)
    tuned = [(f"{name}+{SIMCSE}", source, untrained) for name, source, untrained in plain] if config.contrastive else []
    seeded = [(model, seed) for model in tuned for seed in range(config.seeds)]
    poolings_of_source = {source: poolings(config, source) for _, source, _ in plain}
    first = [
        Trial(*model, SIMCSE, seed, poolings_of_source[model[1]][0])  # a model without any of the poolings is left out
        for model, seed in seeded
        if poolings_of_source[model[1]]
    ]
    names = config.tasks if set(config.tasks) <= set(LOCAL) else _tasks(config)
    return first + [
        Trial(*model, task, seed, pooling, stage=1)
        for task in names
        for model, seed in (*((model, None) for model in plain), *seeded)
        for pooling in poolings_of_source[model[1]]
    ]


def _tuned_folder(out: Path, trial: Trial) -> Path:
    """Return the folder of the model after SimCSE."""
    name = trial.name.replace("/", "_")
    if trial.untrained:
        name += f"-{UNTRAINED}"
    return out / "models" / name / f"seed-{trial.seed}"


def _text(config: MtebConfig, tokenizer: Any, source: str) -> Windows | Source:
    """Open the text that SimCSE of a model reads."""
    if config.corpus is None:
        return own_windows(tokenizer, Path(source)) or PythonDocs(PYTHON_DOCS)
    if not (Path(config.corpus) / "windows.json").is_file():
        return open_source(config.corpus, config.field)
    windows = Windows(config.corpus)
    if not windows.has_tokenizer(tokenizer):
        raise ValueError(
            f"The windows in {config.corpus} were made by another tokenizer than {source} has. Give text: --corpus "
            "FILE."
        )
    return windows


def _tune(config: MtebConfig, out: Path, trial: Trial, progress: Progress) -> None:
    """Train one model with SimCSE; leave a folder that transformers and sentence-transformers open, and its facts."""
    changed = open_config(trial.source)
    switched = zero_dropout_settings(changed)
    for name in switched:
        setattr(changed, name, DROPOUT)
    opened = open_model(trial.source, untrained=trial.untrained, config=changed)
    body = opened.model.float()  # weights are trained in float32
    tokenizer = opened.tokenizer
    assert isinstance(trial.setting, Pooling) and trial.seed is not None
    text = _text(config, tokenizer, str(opened.folder))
    facts = train_contrastive(body, tokenizer, text, str(trial.setting), config.steps, trial.seed, progress)
    for name in switched:  # it was for the training alone
        setattr(body.config, name, 0.0)
    facts |= {"dropout_switched_on": switched}
    # The folder has no settings that say the length: a table may have rows that no text of the pretraining reached.
    save_encoder(body, tokenizer, _tuned_folder(out, trial), facts, usual_length(opened.folder, body.config))
    trial.write(out, read_object(_tuned_folder(out, trial) / SUMMARY))


def run_task(out: str, trial: Trial, progress: Progress) -> None:
    """Run one task with one pooling of one model and write mteb's own result, or train one model with SimCSE.

    Raises:
        ValueError: the task's data cannot be reached.
    """
    config = MtebConfig.load_saved(Path(out) / MTEB.file)
    if trial.task == SIMCSE:
        return _tune(config, Path(out), trial, progress)
    mteb = _mteb()
    task = _tasks(config, trial.task)[trial.task]
    tuned = trial.seed is not None  # of a model that SimCSE has trained here; others are measured once
    source = str(_tuned_folder(Path(out), trial)) if tuned else trial.source
    opened = open_model(source, untrained=trial.untrained and not tuned)
    assert isinstance(trial.setting, Pooling)
    encoder = text_encoder(opened, trial.setting, config.length, progress)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classifiers that have not converged, and of newer versions of a task
        how = {
            "encode_kwargs": {"batch_size": BATCH[encoder.device.type != "cpu"], "show_progress_bar": False},
            "cache": None,
            "show_progress_bar": False,
            "co2_tracker": False,
        }
        if not hasattr(task.metadata, "tasks"):
            try:
                task.load_data()
            except Exception as error:  # as in the check
                raise _unreached(trial.task, error) from None
        result = mteb.evaluate(encoder, task, prediction_folder=folder, **how).task_results[0]
        kind, values, labels = judged_rows(task, Path(folder) / f"{trial.task}_predictions.json")
        result.to_disk(Path(folder) / "result.json")
        facts = read_object(Path(folder) / "result.json")
    nothing = (values, np.zeros_like(values))  # its score is 0, so the difference from it is the score
    interval = bounded(paired(SCORES[kind], [nothing], labels))[1:] if kind else ()
    arrays = {"values": values, "labels": labels, "interval": np.array(interval), "kind": np.array(kind)}
    trial.write(Path(out), facts, arrays | {"type": np.array(task.metadata.type)})
    return None


def _mean(values: np.ndarray, labels: np.ndarray) -> float:
    return float(values.mean())


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation of two rows of ranks (n,), in [-1, 1]; 0 where one row is constant.

    Ranks are whole numbers from 0 that may leave some out; ties count as their mean rank.
    """
    ranks = []
    for values in (a, b):
        counts = np.bincount(values)
        middle = (np.cumsum(counts) - (counts - 1) / 2)[values]
        ranks.append(middle - middle.mean())
    size = float(np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
    return float(ranks[0] @ ranks[1]) / size if size else 0.0


SCORES = {"mean": _mean, "ranks": rank_correlation}  # main scores over rows, so that intervals can be drawn


def judged_rows(task: Any, predictions: Path) -> tuple[str, np.ndarray, np.ndarray]:
    """Read the rows that make up a task's main score, so that intervals can be drawn over them.

    Ranks of the cosines and of the scores of pairs; of each test row the share of mteb's ten classifiers that are
    right; of each query its nDCG at 10.

    Returns:
        A key of `SCORES`, and (rows,) values and labels. "" and no rows for other tasks and scores.
    """
    none = "", np.zeros(0), np.zeros(0)
    metadata = task.metadata
    if not predictions.is_file() or len(task.hf_subsets) != 1 or len(task.eval_splits) != 1:
        return none
    (subset,) = task.hf_subsets
    (split,) = task.eval_splits
    predicted = read_json(predictions)[subset][split]
    rows = task.dataset[subset][split] if subset in task.dataset else task.dataset[split]
    if metadata.type == "STS" and metadata.main_score in ("cosine_spearman", "spearman"):
        ranks = [
            np.unique(values, return_inverse=True)[1] for values in (predicted["cosine_scores"], list(rows["score"]))
        ]
        return "ranks", ranks[0], ranks[1]
    if metadata.type == "Classification" and metadata.main_score == "accuracy":
        values = (np.array(predicted) == np.array(list(rows[task.label_column_name]))).mean(0)
        return "mean", values, np.zeros(len(values))
    if metadata.type == "Retrieval" and metadata.main_score == "ndcg_at_10":
        from pytrec_eval import RelevanceEvaluator

        judged = RelevanceEvaluator(rows["relevant_docs"], {"ndcg_cut.10"}).evaluate(predicted)
        values = np.array([judged[query]["ndcg_cut_10"] for query in sorted(judged)])
        return "mean", values, np.zeros(len(values))
    return none


def mteb_records(config: MtebConfig, out: Path) -> list[Record]:
    """Return the records of mteb from all finished tasks of a run.

    Of each model, task and pooling mteb's main score; its mean over the tasks of a type, where all of them are
    finished; and the paired difference from the first model.
    """
    records: list[Record] = []
    predicted: dict[Pooling, dict[tuple[str, bool, str], dict[Any, np.ndarray]]] = defaultdict(dict)
    labels = dict[str, np.ndarray]()
    kinds = dict[str, str]()
    by_model: dict[Trial, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    todo = [trial for trial in trials(config) if trial.task != SIMCSE]
    for trial in todo:
        if not trial.is_finished(out):
            continue
        assert isinstance(trial.setting, Pooling)
        entries = [entry for of_split in trial.facts(out, "scores")["scores"].values() for entry in of_split]
        score = float(np.mean([entry["main_score"] for entry in entries]))
        arrays = trial.arrays(out)
        kind = str(arrays["kind"])
        rows = arrays["values"]
        labels[trial.task] = arrays["labels"]
        ends = arrays["interval"].tolist()
        kinds[trial.task] = kind
        of_model = replace(trial, task="")
        by_model[of_model][str(arrays["type"])].append(score)
        if kind:
            # A model without seeds stands beside each seed of another.
            seeds = range(config.seeds) if trial.seed is None else (trial.seed,)
            of_rows = predicted[trial.setting].setdefault((trial.name, trial.untrained, trial.task), {})
            of_rows |= dict.fromkeys(seeds, rows)
        metric = trial.setting.of("mteb.score")
        records.append(trial.context.record(metric, score, *ends, part=trial.task, n=len(rows) or None))
    for of_model, of_type in by_model.items():
        assert isinstance(of_model.setting, Pooling)
        if sum(map(len, of_type.values())) == len({trial.task for trial in todo}):
            for name, scores in of_type.items():
                metric = of_model.setting.of("mteb.type")
                records.append(of_model.context.record(metric, float(np.mean(scores)), part=name, n=len(scores)))
    scored = {part: SCORES[kind] for part, kind in kinds.items() if kind}
    for pooling, of_pooling in predicted.items():
        records += differences("mteb", config, of_pooling, labels, scored, name_of=pooling.of)
    return records


def _notes(config: MtebConfig, _out: Path) -> list[str]:
    notes = ["Scores are the main scores of mteb's tasks, by mteb's own protocol, without prompts."]
    if local := [name for name in config.tasks if name in LOCAL]:
        notes.append(
            f"{', '.join(local)}: of files on this machine, not mteb's copies: comparable with each other, not with a "
            "leaderboard."
        )
    if config.limit is not None:
        notes.append(f"At most {config.limit:,} pairs, test rows or queries of a task, evenly over all.")
    for name, source in ((name, source) for name, source, untrained in each_model(config) if not untrained):
        if left := [pooling for pooling in config.pooling if pooling not in poolings(config, source)]:
            notes.append(f"{name} has one stream, so it has no vectors pooled as {', '.join(left)}.")
    if config.contrastive:
        seeds = "seeds" if config.seeds > 1 else "seed"
        notes.append(
            f"NAME+{SIMCSE} is the model after {config.steps:,} steps of unsupervised SimCSE of {BATCH_SIZE} sentences "
            f"({config.seeds} {seeds}), on the first of the poolings that it has; dropout is "
            f"{DROPOUT:g} in it where the model has none."
        )
    return notes


MTEB = Benchmark(
    "mteb",
    "What vectors of texts are good for",
    MtebConfig,
    _check,
    trials,
    run_task,
    mteb_records,
    _notes,
    "mteb.score",
    "mteb.difference",
    legend="mteb's main score of each task",
    brief={"tasks": list(LOCAL)},
    variants=tuple(Pooling(name).of("") for name in POOLINGS),
)
