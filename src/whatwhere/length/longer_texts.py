"""Benchmark of texts longer than in training: each method of extrapolation, with and without a short training
after it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator
from scipy.stats import entropy

from ..analysis.probes import stream_columns
from ..analysis.record_context import RecordContext, document_mean
from ..corpus import open_source
from ..corpus.tokenizer import open_tokenizer, save_tokenizer
from ..encoder import EncoderConfig
from ..evaluation.benchmark import Benchmark, EvaluationConfig, Trial, model_names
from ..geometry.extrapolation import METHODS
from ..models.card import corpus_name
from ..models.lengths import EXTENSION, LENGTHS, configured_length, settings_of_training, trained_length
from ..models.model_tables import read_table, table_key
from ..models.open import check_rows, name_and_seed, open_config, open_model
from ..models.tensors import named_tensors
from ..records.record import Record
from ..run.files import read_object, temporary_folder, write_json
from ..run.folder import RunFolder
from ..run.hub import fetch_model
from ..run.progress import Progress, ignore_progress
from ..training.model_folder import save_model
from .extension import (
    ADAPTED,
    SCALINGS,
    WINDOWS,
    adapt,
    check_enough,
    check_original,
    copy_files,
    extend,
    methods_of,
    say_in_card,
)
from .length_keys import LengthKeys
from .long_documents import LongTexts, long_texts
from .measures import (
    alone_in,
    beyond_records,
    copy_distances,
    copy_gains,
    drifts,
    hidden_in,
    piece_losses,
    shifts,
    token_losses,
    whole,
)

AS_IT_IS = "as-it-is"  # a model that needs nothing; texts read in pieces as long as trained
PIECES = "in-pieces"
PLAIN = "none"  # no training
BOOKS = "books-pd"  # in a folder of the data of all evaluations
BUCKETS = 16  # of positions
FACTS = "trained", "frequencies", "distances", "shifts", "parts", "probes"  # of a piece; of PIECES the first two
KEYS = ("metric", "part", "layer", "value", "low", "high", "n")  # of a record that a piece keeps


@dataclass(frozen=True)
class ExtrapolationMethod:
    """Method by which a model reads texts longer than in its training.

    method: one of `length_keys.CHOICES`, or PIECES. window: tokens on each side that a token looks at, 0 for all.
    adapt: parameters trained on longer texts afterwards: "none", "network" (of `learned`), "table" or "all".
    """

    method: str
    window: int = 0
    adapt: str = PLAIN

    @property
    def name(self) -> str:
        """Name in records and files: METHOD-wWINDOW+ADAPT."""
        window = f"-w{self.window}" if self.window else ""
        adapted = "" if self.adapt == PLAIN else f"+{self.adapt}"
        return f"{self.method}{window}{adapted}"


class LengthConfig(LengthKeys, EvaluationConfig):
    """Long texts for several models; models, methods and adapted parts may be added to a folder."""

    GROWING_KEYS = (*EvaluationConfig.GROWING_KEYS, "methods", "windows", "adapt")
    EMPTY_IS_ALL = ("methods",)

    @model_validator(mode="after")
    def _check(self) -> "LengthConfig":
        if "mds" in self.methods and self.points is None:
            raise ValueError("mds needs the points of a corpus with longer texts. Give --points FILE.npy, of geometry.")
        if self.points is not None and (rows := len(read_table(self.points))) < self.to:
            raise ValueError(
                f"{self.points} has {rows} rows, and --to is {self.to}. Give a table of as many positions."
            )
        if wrong := [window for window in self.windows if window < 0]:
            raise ValueError(f"A window of {wrong[0]} tokens on each side is negative. Give 1 or more, or 0 for all.")
        if wrong := [window for window in self.windows if window >= self.to - 1]:
            raise ValueError(f"A window of {wrong[0]} tokens on each side hides nothing of --to {self.to}. Give less.")
        return self

    @property
    def text(self) -> str:
        """Corpus as the user names it; of a folder of data the last of its books.

        What models were trained on is mostly the first.

        Raises:
            ValueError: the folder has no books.
        """
        if self.folder is None:
            return self.corpus
        if not (files := sorted((self.folder / BOOKS).glob("*.txt*"))):
            raise ValueError(f"{self.folder} holds no {BOOKS}/ with text files. Bring long documents there.")
        return str(files[-1])

    def data_name(self) -> str:
        """Return the name of the corpus."""
        return corpus_name(self.text)

    def models_by_name(self) -> dict[str, str]:
        """Return name -> its first model; several seeds of a study's model have one name."""
        names: dict[str, str] = {}
        for name, _, source in self.trainings():
            names.setdefault(name, source)
        return names

    def trainings(self) -> list[tuple[str, int, str]]:
        """Return (name, seed, model) of each model; the seed of a folder `seed-K` is K, else 0.

        Raises:
            ValueError: two of one name and seed.
        """
        trainings: dict[tuple[str, int], str] = {}
        for source in self.models:
            (name,) = model_names([source])
            seed = name_and_seed(Path(source).resolve())[1] or 0
            if trainings.setdefault((name, seed), source) != source:
                raise ValueError(f"{trainings[name, seed]} and {source} are both {name}, seed {seed}. Rename a folder.")
        return [(name, seed, source) for (name, seed), source in trainings.items()]

    def about(self, source: str) -> "About":
        """Return what is known of a model before it reads the texts: its trained length and the ways to read on."""
        return about(source, self.to, self.points is not None)

    def texts(self, source: str, others: int = 0) -> tuple[LongTexts, LongTexts]:
        """Return `long_texts` in the tokens of a model."""
        corpus = open_source(self.text, self.field, self.document)
        return long_texts(corpus, open_tokenizer(source), self.to, self.documents, others)


@dataclass(frozen=True)
class About:
    """Facts that a model's folder tells about texts longer than in its training.

    trained: tokens of the longest text of its training. reads: tokens that it can be given unchanged. methods: methods
    of extrapolation that it has. table: True if it has a position table that can be trained. spread: True if it was
    trained at random positions. ours: True if it is a model of this package. corpus: corpus of its training; "" if
    unknown.
    """

    trained: int
    reads: int
    methods: Sequence[str]
    table: bool
    spread: bool
    ours: bool
    corpus: str


def about(source: str, to: int, points: bool = False) -> About:
    """Return the facts of a model before it reads texts of `to` tokens.

    Args:
        points: There are points of a corpus with longer texts, which the method mds needs.

    Raises:
        ValueError: there is no such folder; the model has no masked-language head, its positions cannot be continued or
            were continued already, or it was trained on texts of `to` tokens or more.
    """
    folder = fetch_model(source)
    if not (folder / "config.json").is_file():
        raise ValueError(f"No model at {folder}: config.json is missing. Give folders of trained models.")
    config = read_object(folder / "config.json", hint="Use a complete copy.")
    heads = [str(name) for name in config.get("architectures") or ()]
    if heads and not any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in heads):
        raise ValueError(f"{source} has no masked-language head ({heads[0]}). Give models of masked words.")
    methods_known = methods_of(config, source)
    most = configured_length(config)
    trained = trained_length(folder, config)
    ours = config.get("model_type") == EncoderConfig.model_type
    if config.get("rotation_scaling", "none") != "none":  # of a copy: it is not scaled again
        methods_known = ()
    if methods_known == METHODS and table_key(named_tensors(folder), ours) is None:
        methods_known = ()
    if most < 1:
        raise ValueError(
            f"{folder}/config.json does not say how many tokens the model was trained on. Give a model whose "
            f"config.json has {', '.join(LENGTHS[:-1])} or {LENGTHS[-1]}."
        )
    if trained < 8:
        raise ValueError(f"{source} was trained on texts of {trained} tokens. Give models trained on 8 or more.")
    if trained >= to:
        raise ValueError(f"{source} was trained on texts of {trained} tokens, and --to is {to}. Give more.")
    check_original(folder, to)
    table = methods_known == METHODS and config.get("absolute") not in ("fixed", "mds")
    methods_without_change = (AS_IT_IS,) if methods_known in ((), SCALINGS) else ()
    methods = (*methods_without_change, *(m for m in methods_known if points or m != "mds"))
    if most >= to:  # with more rows, or a longer training of rotations, than the training had tokens
        methods = (AS_IT_IS,)
    run = settings_of_training(folder)
    return About(trained, most, methods, table, bool(run.get("subset")), ours, str(run.get("corpus", "")))


def _check_all(config: LengthConfig) -> None:
    trials = _trials(config)
    methods = ", ".join(config.methods) or "any way"
    near = "" if 0 in config.windows else " A window is of this package's encoders alone; --windows 0 is without one."
    known = {m for _, _, source in config.trainings() for m in config.about(source).methods}
    for part in config.adapt:
        if not any(
            p.setting.adapt == part for p in trials if isinstance(p.setting, ExtrapolationMethod) and p.task != PIECES
        ):
            what = "" if part == PLAIN else f", and then have the {part} trained"
            raise ValueError(
                f"None of these models can be read on by {methods}{what}. They have: {', '.join(sorted(known))}.{near}"
            )
    adapted = config.adapt != [PLAIN]
    sources = [str(fetch_model(source)) for _, _, source in config.trainings()]
    for source in sources:
        check_rows(open_tokenizer(source), open_config(source).vocab_size, source)
    # A text has other lengths in other vocabularies.
    for source in {open_tokenizer(source).backend_tokenizer.to_str(): source for source in sources}.values():
        _, others = config.texts(source, WINDOWS * adapted)
        if adapted:
            check_enough(others)


def _trials(config: LengthConfig) -> list[Trial]:
    """In pieces as long as trained, then each way, what needs no training first."""
    trials = []
    order = sorted(config.adapt, key=(PLAIN, *ADAPTED).index)
    for adapted in order:
        for name, seed, source in config.trainings():
            known = config.about(source)
            methods = [m for m in known.methods if not config.methods or m in config.methods]
            if adapted in ("network", "table"):
                methods = [m for m in methods if known.table and (adapted == "table" or m == "learned")]
            methods_of_adapt = [ExtrapolationMethod(PIECES)] if adapted == order[0] else []
            methods_of_adapt += [
                ExtrapolationMethod(m, window, adapted)
                for window in config.windows
                for m in methods
                if not window or known.ours
            ]
            trials += [
                Trial(name, source, False, extrapolation.name, seed, extrapolation)
                for extrapolation in methods_of_adapt
            ]
    return trials


def work(out: str, trial: Trial, progress: Progress) -> None:
    """Measure one model by one method: write losses as .npz, then its other numbers as .json."""
    config = LengthConfig.load_saved(Path(out) / LONG_TEXTS.file)
    extrapolation = trial.setting
    source = str(fetch_model(trial.source))
    assert isinstance(extrapolation, ExtrapolationMethod)
    known = config.about(source)
    tokenizer = open_tokenizer(source)
    texts, others = config.texts(source, 0 if extrapolation.adapt == PLAIN else config.steps * WINDOWS)
    windows = whole(texts)
    _, counts = np.unique(windows.input_ids[windows.regular], return_counts=True)
    facts: dict[str, Any] = {"trained": known.trained, "frequencies": float(entropy(counts))}
    how = (known.trained, tokenizer, known.reads * known.spread)
    if extrapolation.method == PIECES:
        model = open_model(source, "masked").model
        arrays = {"loss": piece_losses(model, windows, hidden_in(windows), *how)}
        arrays["alone"] = piece_losses(model, windows, alone_in(windows), *how)
    else:
        with temporary_folder(trial.file(Path(out), "")) as new:
            longer = Path(source)
            if extrapolation.method != AS_IT_IS or extrapolation.window:
                longer = new / "longer"
                method = None if extrapolation.method in (AS_IT_IS, "formula") else extrapolation.method
                points = read_table(config.points).numpy() if config.points and method == "mds" else None
                length = max(config.to, known.reads)
                extend(trial.source, longer, length, method, points=points, window=extrapolation.window or None)
            model = open_model(longer, "masked").model
            if extrapolation.adapt != PLAIN:
                model = model.float()  # training is in float32
                facts["losses"] = adapt(
                    model, others, config.steps, extrapolation.adapt, known.trained, trial.seed or 0, progress
                )
                place = Path(out) / "models" / trial.name / extrapolation.name / f"seed-{trial.seed}"
                with RunFolder.create(place, "model") as keep:
                    extension: dict[str, Any] = {"trained": known.trained}
                    if (longer / EXTENSION).is_file():  # else there is no copy whose card and code could come along
                        copy_files(longer, keep)
                        extension = read_object(keep / EXTENSION)
                    save_model(model, keep, with_code=True)
                    save_tokenizer(tokenizer, keep)
                    write_json(keep / EXTENSION, extension | {"adapted": extrapolation.adapt, "steps": config.steps})
                    what = "All of it" if extrapolation.adapt == "all" else f"The {extrapolation.adapt} alone"
                    where = f"on further documents of {config.data_name()}, {config.to:,} tokens a text"
                    say_in_card(keep, f"{what} was trained on for {config.steps} steps, {where}.")
        arrays, more = measure(model, tokenizer, texts, known.trained, progress)
        facts |= more
        if extrapolation.adapt != PLAIN:  # what it gained by these texts is no gain of length
            arrays["pieces"] = piece_losses(model, windows, hidden_in(windows), *how)
    trial.write(Path(out), facts, arrays)


def measure(
    model: Any, tokenizer: Any, texts: LongTexts, trained: int, progress: Progress = ignore_progress
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the measurements of a model that reads long texts.

    Returns:
        arrays: `loss` and `alone` (m, n) in nats, see `token_losses`; `copy` (distances, m) in nats; `drift` (shifts,
            m,
            parts), shares. facts: `distances`, `shifts`, `parts`, and `probes`, records as lists of KEYS.
    """
    windows = whole(texts)
    mask_id = tokenizer.mask_token_id
    n = texts.length
    distances = copy_distances(trained, n)
    by = shifts(trained, n)
    steps = (
        ("loss", lambda: token_losses(model, windows, hidden_in(windows), mask_id)),
        ("alone", lambda: token_losses(model, windows, alone_in(windows), mask_id)),
        ("copy", lambda: copy_gains(model, windows, distances, mask_id)),
        ("drift", lambda: drifts(model, windows, trained, by)),
    )
    arrays = {}
    for number, (name, step) in enumerate(steps):
        arrays[name] = step()
        progress(number + 1, len(steps) + 1, "reading", name)
    probes = [
        r for r in beyond_records(model, texts, trained, RecordContext("")) if r.index is None and r.layer is not None
    ]
    facts = {"distances": distances, "shifts": by, "parts": list(stream_columns(model.config))}
    probe_values = [[getattr(r, key) for key in KEYS] for r in probes if not r.metric.endswith(".chance")]
    return arrays, facts | {"probes": probe_values}


def length_records(config: LengthConfig, out: Path) -> list[Record]:
    """Return the records of all finished tasks."""
    records: list[Record] = []
    losses_in_pieces: dict[tuple[str, int | None], np.ndarray] = {}
    gains_without_training: dict[RecordContext, list[np.ndarray]] = defaultdict(
        list
    )  # gains of the ways that no training follows
    for trial in _trials(config):  # reading in pieces comes first
        if not trial.is_finished(out):
            continue
        arrays = trial.arrays(out)
        method = trial.task
        context = trial.context
        facts = trial.facts(out, *FACTS[: 2 if method == PIECES else None])
        records += _loss_records(context, method, arrays)
        losses = _beyond(arrays["loss"], facts)
        records.append(context.record("length.beyond", *document_mean(losses), part=method, n=len(losses)))
        if method == PIECES:
            losses_in_pieces[trial.name, trial.seed] = losses
            records += [context.record(f"length.{name}", facts[name]) for name in ("trained", "frequencies")]
            continue
        level = (
            _beyond(arrays["pieces"], facts) if "pieces" in arrays else losses_in_pieces.get((trial.name, trial.seed))
        )
        if level is not None:
            records.append(context.record("length.gain", *document_mean(level - losses), part=method, n=len(losses)))
            if isinstance(trial.setting, ExtrapolationMethod) and trial.setting.adapt == PLAIN:
                gains_without_training[context].append(level - losses)
        records += _other_records(context, method, arrays, facts)
    for context, gains in gains_without_training.items():
        if len(gains) > 1:
            records.append(
                context.record("length.chosen", *document_mean(chosen_gains(np.array(gains))), n=len(gains[0]))
            )
    return records


def chosen_gains(gains: np.ndarray) -> np.ndarray:
    """Return for each document the gain of the method that is best on average over the other half of the documents.

    The halves are those at even and at odd places. So no document judges a method that it has chosen itself.

    Args:
        gains: (methods, documents), nats.

    Returns:
        (documents,), nats.
    """
    gains_of_choice = np.empty(gains.shape[1])
    for half in (0, 1):
        gains_of_choice[half::2] = gains[gains[:, 1 - half :: 2].mean(1).argmax(), half::2]
    return gains_of_choice


def _beyond(losses: np.ndarray, facts: Mapping[str, Any]) -> np.ndarray:
    """(m,) mean loss of each document beyond the trained length."""
    return np.asarray(np.nanmean(losses[:, facts["trained"] :], axis=1))


def _loss_records(context: RecordContext, method: str, arrays: Mapping[str, np.ndarray]) -> Iterator[Record]:
    """The loss and the pseudo-perplexity at the positions of each bucket, by its middle."""
    for name, metric in (("loss", "length.loss"), ("alone", "length.perplexity")):
        for places in np.array_split(np.arange(1, arrays[name].shape[1] - 1), BUCKETS):
            if np.isnan(arrays[name][:, places]).all(1).any():  # of a short text too few are hidden alone
                continue
            mean = document_mean(np.nanmean(arrays[name][:, places], axis=1))
            values = np.exp(mean) if name == "alone" else mean
            at = int(places[len(places) // 2])
            yield context.record(metric, *values, part=method, index=at, n=len(arrays[name]))


def _other_records(
    context: RecordContext, method: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]
) -> Iterator[Record]:
    """A passage that comes again, states under other positions, probes of the tokens beyond."""
    n = arrays["copy"].shape[1]
    for distance, gains in zip(facts["distances"], arrays["copy"], strict=True):
        yield context.record("length.copy", *document_mean(gains), part=method, index=distance, n=n)
    for p, part in enumerate(facts["parts"]):
        for by, changes in zip(facts["shifts"], arrays["drift"][..., p], strict=True):
            yield context.record(f"length.drift{_of(part)}", *document_mean(changes), part=method, index=by, n=n)
    for metric, part, layer, value, low, high, tokens in facts["probes"]:
        yield context.record(f"length.{metric}{_of(part)}", value, low, high, part=method, layer=layer, n=tokens)


def _of(part: str) -> str:
    return "" if part == "all" else f".{part}"


def _notes(config: LengthConfig, _out: Path) -> list[str]:
    notes = [
        f"Texts: {config.documents} documents of {config.data_name()}, of each {config.to:,} tokens behind its first "
        "quarter; intervals are over them, or over seeds where there are several."
    ]
    known = {name: config.about(source) for name, _, source in config.trainings()}
    if trained := [name for name, facts in known.items() if facts.corpus == config.text]:
        notes.append(f"Trained on this very corpus: {', '.join(trained)}; what is read may have been read before.")
    for name, facts in known.items():
        lacks = [method for method in config.methods if method not in facts.methods]
        lacks += [f"{part} to adapt" for part in config.adapt if part in ("network", "table") and not facts.table]
        if any(config.windows) and not facts.ours:
            lacks.append("windows")
        if lacks:
            notes.append(f"{name} has no {', no '.join(lacks)}: left out.")
    if config.adapt != [PLAIN]:
        tokens = config.steps * WINDOWS * config.to
        notes.append(f"Adapted: {config.steps} steps, {tokens:,} tokens of the documents after them.")
    return notes


LONG_TEXTS = Benchmark(
    "length",
    "Texts longer than in training",
    LengthConfig,
    _check_all,
    _trials,
    work,
    length_records,
    _notes,
    "length.beyond",
    legend="mean loss in nats of hidden tokens beyond the trained length; in-pieces: the same, read "
    "in pieces as long as trained; +network, +table, +all: after a short training of these",
    brief={"documents": 10},
)
