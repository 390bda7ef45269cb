"""Fine-tuning of a pretrained encoder, ours or of transformers, on a labelled table, for sequence classification.

Pretraining has the same loop, schedules, checkpoints and exact resume. Here are the data, the model and the
defaults (GEOM section 6.1: 3 epochs, batch 64, learning rate 2e-5 from pretrained and 2e-4 from fresh weights,
position tables saved at eight steps).
"""

import math
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import model_validator

from ..corpus.labelled import LabelledTexts, label_names, read_labelled
from ..corpus.labelled_batches import LabelledBatches
from ..corpus.tokenizer import check_tokenizer
from ..encoder import EncoderConfig
from ..encoder.attention import check_backend
from ..models.card import classifier_card, rows_cut
from ..models.lengths import max_tokens, usual_length
from ..models.open import OpenModel, WeightsMisfit, model_folder, model_hashes, open_config, open_model
from ..records.intervals import share_interval
from ..run.errors import suggest_name
from ..run.files import read_object, sha256
from ..run.folder import RunFolder
from .environment import process_group_state
from .loop import Trainer
from .predictions import class_probabilities, write_predictions
from .scheme_settings import ConfigWithScheme
from .setup import rows_of_micro_batch
from .training_folder import (
    accept_training,
    finish_training,
    finished_summary,
    open_training,
    resume_or_clear_training,
)
from .training_keys import FinetuneKeys
from .validator import Validator

SETTINGS_FILE = "finetune.yaml"
KIND = "finetune"  # of the run
DATA = "data.json"  # facts of the rows, and hashes of all input files
LABELLED_TABLE_KEYS = ("data", "dev")  # keys of the tables with labelled rows
GEOM_CHECKPOINT_STEPS = [50, 100, 200, 500, 1000, 2000]  # besides 0 and the last: the eight steps of GEOM 6.1
DEFAULTS: dict[str, Any] = {
    "batch_size": 64,
    "schedule": "linear",
    "minimum_learning_rate_ratio": 0.0,
    "betas": (0.9, 0.999),
    "checkpoint_steps": GEOM_CHECKPOINT_STEPS,
}
EPOCHS = 3.0
LENGTH = 128  # tokens of a row, where the encoder was trained on as many
# Learning rates of a model 768 wide.
RATE_OF_PRETRAINED = 2e-5
RATE_FROM_SCRATCH = 2e-4


def default_rate(start: str, from_scratch: bool) -> float:
    """Return the peak learning rate: GEOM's for width 768, in inverse proportion to the width of the model in `start`.

    Adam's steps are absolute, so narrow models need longer steps.
    """
    config = open_config(start)
    width = getattr(config, "hidden_size", None) or getattr(config, "dim", None) or 768  # dim: DistilBERT's name
    rate = RATE_FROM_SCRATCH if from_scratch else RATE_OF_PRETRAINED
    return rate * 768 / width


def default_length(start: str) -> int:
    """Return the tokens of a row: as many as the model in `start` is usually given, at most `LENGTH`."""
    return min(LENGTH, usual_length(model_folder(start), open_config(start)))


class FinetuneConfig(FinetuneKeys, ConfigWithScheme):
    """Settings of a fine-tuning for sequence classification.

    Keys that are left out have the values of DEFAULTS, else of FinetuneKeys; `_fill` derives `learning_rate` and
    `length` from the model, and sets `epochs` if the user gives no `steps`.
    """

    RESUME_ARGUMENTS: ClassVar[str] = "{start} --out {out}"
    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = ("sharding",)

    def has_same_content(self, key: str, out: Path) -> bool:
        """Return whether the table that a key names equals the table of the run in `out`, byte by byte."""
        saved_facts = out / DATA
        path = Path(str(getattr(self, key)))
        if key not in LABELLED_TABLE_KEYS or not saved_facts.is_file() or not path.is_file():
            return super().has_same_content(key, out)
        return bool(read_object(saved_facts).get("file_hashes", {}).get(key) == sha256(path))

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: dict[str, Any]) -> dict[str, Any]:
        filled = {**DEFAULTS, **values}
        if isinstance(start := filled.get("start"), str):
            if filled.get("learning_rate") is None:
                filled["learning_rate"] = default_rate(start, bool(filled.get("from_scratch")))
            if filled.get("length") is None:
                filled["length"] = default_length(start)
        if filled.get("steps") is None and filled.get("epochs") is None:
            filled["epochs"] = EPOCHS
        return filled

    def given_keys(self) -> set[str]:
        """Return the keys that the user gave, but for those that equal a default which `_fill` writes."""
        defaults = DEFAULTS | {"epochs": EPOCHS}
        with suppress(ValueError):  # the encoder that the training started from is gone
            defaults["learning_rate"] = default_rate(self.start, self.from_scratch)
            defaults["length"] = default_length(self.start)
        return {key for key in super().given_keys() if key not in defaults or defaults[key] != getattr(self, key)}

    def total_steps(self, rows: int) -> int:
        """Return the optimizer steps that the budget takes on `rows` training rows."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return math.ceil(self.epochs * rows / self.batch_size)

    def encoder_config(self, class_names: list[str]) -> Any:
        """Return the configuration of the encoder in `start`, with the overrides of `model` and the classes.

        Keys that other tools left in the encoder's config.json stay.

        Raises:
            ValueError: no such field, or a length that the position table does not have.
        """
        source = open_config(self.start)
        if isinstance(source, EncoderConfig):
            fields = {field: getattr(source, field) for field in EncoderConfig.__annotations__ if field != "model_type"}
            known = EncoderConfig(**{**fields, **self.model}).to_dict()  # refuses unknown fields
            foreign = {key: value for key, value in source.to_dict().items() if key not in known}
            config: Any = EncoderConfig.from_dict({**fields, **self.model, **foreign})
        else:
            config = source
            names = [key for key in config.to_dict() if not key.startswith("_")]
            for key, value in self.model.items():
                if key not in names:
                    advice = suggest_name(key, names) or " Use a field of the encoder's config.json."
                    raise ValueError(f"model.{key} is no field of a {config.model_type}.{advice}")
                setattr(config, key, value)
        config.id2label = dict(enumerate(class_names))
        config.label2id = {name: number for number, name in enumerate(class_names)}
        config.problem_type = "single_label_classification"
        if (longest := max_tokens(config)) is not None and self.length > longest:
            problem = f"length={self.length} tokens, but the position table has {longest} rows"
            raise ValueError(f"{problem}. Use --length {longest}.")
        return config


def build_classifier(config: FinetuneConfig, class_names: list[str]) -> OpenModel:
    """Open the model that a fine-tuning starts from, in float32; new weights come from `config.seed`.

    Raises:
        ValueError: no finished model in the folder, or overrides that change the shapes of its weights.
    """
    encoder = config.encoder_config(class_names)
    try:
        opened = open_model(config.start, "labels", untrained=config.from_scratch, seed=config.seed, config=encoder)
    except WeightsMisfit:
        changed = ", ".join(f"model.{key}={value}" for key, value in config.model.items())
        raise ValueError(
            f"The weights of {config.start} do not fit {changed or f'{len(class_names)} classes'}. Start from another "
            "encoder, or --from-scratch."
        ) from None
    opened.model.float()
    return opened


def finetune(config: FinetuneConfig, out: str | Path, *, progress: bool = True) -> dict[str, Any]:
    """Train a classifier and leave a transformers folder at `out`; return its summary.

    As with `pretrain`, the same call resumes a training in `out`. The planned checkpoints stay in
    `out/checkpoints/step-N`, the log in `out/log.jsonl`, settings in `out/finetune.yaml`, the summary in
    `out/training.json`, the classifier's answers for the dev rows in `out/dev-predictions.csv`, their counts in
    `out/dev-confusion.csv`; `model.safetensors` is written last. `study.finetune_run.run_finetuning` also writes
    the run's records.

    Raises:
        ValueError: bad settings or data; other settings, data or weights in `start` than `out` was started with; or a
            loss that is not finite.
        Stopped: a signal asked to stop, and a checkpoint is written.
    """
    with open_training(out, KIND) as run:
        config = resume_or_clear_training(config, run, SETTINGS_FILE)
        _check_start(config, run)
        summary = finished_summary(run)
        return summary or _train(config, run, progress)


@dataclass(frozen=True)
class _Input:
    """Input of a fine-tuning: the model, its tokenizer, and labelled rows as texts and as batches of token ids."""

    model: Any
    tokenizer: Any
    class_names: list[str]
    rows: LabelledTexts
    dev_rows: LabelledTexts
    batches: LabelledBatches
    dev_batches: LabelledBatches


def _train(config: FinetuneConfig, run: RunFolder, progress: bool) -> dict[str, Any]:
    """Train in an open folder, with settings that agree with its own; return the summary."""
    # Refuses a batch that cannot be divided, before data are read.
    rows_of_micro_batch(config, process_group_state().num_processes)
    training_input = _read_input(config)
    model = training_input.model
    class_names = training_input.class_names
    batches = training_input.batches
    dev_batches = training_input.dev_batches
    facts = _data_facts(batches, dev_batches, class_names) | {
        "file_hashes": {key: sha256(Path(getattr(config, key))) for key in LABELLED_TABLE_KEYS}
    }
    if process_group_state().is_main_process:
        _bind_data(run, facts | {"start": _hashes_of_start(config)})
        accept_training(config, run, SETTINGS_FILE)
        if progress:
            _print_notes(config, training_input, facts)
    name = model.config.preset if isinstance(model.config, EncoderConfig) else model.config.model_type
    trainer = Trainer(model, config, config.total_steps(len(batches)), run.path)
    trained = trainer.fit(
        batches.micro_batch,
        run.path,
        tokens_per_step=round(config.batch_size * batches.mean_length),
        validator=Validator(trainer, lambda: dev_batches.in_order(config.batch_size), _accuracy_interval),
        label=f"{name} seed {config.seed}",
        progress=progress,
    )
    interval = _accuracy_interval(round(trained["validation_accuracy"] * len(dev_batches)), len(dev_batches))
    summary = {**trained, "from_scratch": config.from_scratch, **facts, **interval}
    # The last validation has read these rows, too, but it keeps counts alone, and may lie before a resume.
    probabilities = class_probabilities(trainer, dev_batches.in_order(config.batch_size))
    if process_group_state().is_main_process:
        write_predictions(run, training_input.dev_rows, class_names, probabilities)
    finish_training(
        run,
        trainer.model_to_save(),
        training_input.tokenizer,
        settings=config.model_dump(),
        summary=summary,
        card=classifier_card,
    )
    trainer.accelerator.wait_for_everyone()
    return summary


def _read_input(config: FinetuneConfig) -> _Input:
    """Read both tables, and open the model with their classes.

    Raises:
        ValueError: a table, the model, its tokenizer or the attention backend does not fit; or fewer rows than a batch.
    """
    columns = (config.text, config.label, config.text_pair)
    rows = read_labelled(config.data, *columns)
    class_names = label_names(rows.labels, f"{config.data}")
    opened = build_classifier(config, class_names)
    tokenizer = opened.tokenizer
    check_tokenizer(tokenizer, config.start)
    if isinstance(encoder := opened.model.config, EncoderConfig):
        check_backend(config.backend, process_group_state().device, needs_gradient=True, dropout=encoder.dropout)
    types = opened.token_types
    batches = LabelledBatches(rows, class_names, tokenizer, config.length, config.seed, types=types)
    dev_rows = read_labelled(config.dev, *columns)
    dev_batches = LabelledBatches(dev_rows, class_names, tokenizer, config.length, types=types)
    if len(batches) < config.batch_size:
        problem = f"{config.data} has {len(batches)} rows, less than one batch of {config.batch_size}"
        raise ValueError(f"{problem}. Use a smaller --set batch_size=.")
    return _Input(opened.model, tokenizer, class_names, rows, dev_rows, batches, dev_batches)


def _print_notes(config: FinetuneConfig, training_input: _Input, facts: dict[str, Any]) -> None:
    """Warn the user on stderr of rows that are cut or blank, of negative labels, and of one file for both tables."""
    rows = training_input.rows
    if cut := rows_cut(facts, config.length):
        note = _length_note(config.length, max_tokens(training_input.model.config))
        print(f"{cut[0].upper()}{cut[1:]}.{note}", file=sys.stderr)
    if line := _note_on_negative_labels(training_input.class_names, rows.labels):
        print(line, file=sys.stderr)
    if blank := sum(not text.strip() for text in rows.texts):
        print(
            f"{blank:,} of {len(rows.texts):,} rows have no text: they train on special tokens alone.", file=sys.stderr
        )
    if facts["file_hashes"]["data"] == facts["file_hashes"]["dev"]:
        print(f"{config.dev} is trained on: the accuracy says nothing about other rows.", file=sys.stderr)


def _data_facts(batches: LabelledBatches, dev_batches: LabelledBatches, class_names: list[str]) -> dict[str, Any]:
    """Return the facts of the data that summary and card show; lengths in tokens, special ones included.

    `commonest` is the accuracy on the dev set of always naming the class that is commonest in training.
    """
    majority_class = int(np.bincount(batches.labels).argmax())
    return {
        "labels": class_names,
        "rows": len(batches),
        "dev_rows": len(dev_batches),
        "truncated": batches.truncated,
        "share_cut": batches.share_cut,
        "dev_truncated": dev_batches.truncated,
        "mean_length": batches.mean_length,
        "longest": batches.longest,
        "commonest": float((dev_batches.labels == majority_class).mean()),
        "sha256": batches.digest(),
        "dev_sha256": dev_batches.digest(),
    }


def _length_note(length: int, longest: int | None) -> str:
    """Return a hint to raise --length, or a sentence that the model reads no more tokens."""
    if longest is not None and longest <= length:
        return f" {longest} tokens are all that the model reads."
    return f" To read more of them: --length N{f', N up to {longest}' if longest else ''}."


def _note_on_negative_labels(class_names: list[str], labels: list[str]) -> str:
    """Return a line on negative labels, by which data sets mark rows without a label; "" if no label is negative."""
    negative = [name for name in class_names if re.fullmatch(r"-\d+", name)]
    count = sum(label in negative for label in labels)
    if not negative:
        return ""
    return (
        f"{' and '.join(negative)} is trained on as a class: {count:,} of {len(labels):,} rows have it. Leave such "
        "rows out if it means that they have no label."
    )


def _bind_data(run: RunFolder, facts: dict[str, Any]) -> None:
    """Refuse other rows than the training was started with, which would give other numbers; write the facts.

    Raises:
        ValueError: the rows or the tokenizer are not those that the training was started with.
    """
    before = run.read(DATA) if DATA in run.listed_files() else facts
    if any(before[key] != facts[key] for key in ("sha256", "dev_sha256")):
        raise ValueError(
            f"The training rows, the --dev rows or the tokenizer are not those that {run.path} was started with. "
            "Restore them, or choose another --out."
        )
    run.write(DATA, facts)


def _hashes_of_start(config: FinetuneConfig) -> dict[str, str] | None:
    """Return the hashes of the START files that the training reads; None for the Hub, or a folder that is gone."""
    hashes = model_hashes(config.start)
    if hashes is None or not config.from_scratch:
        return hashes
    return {name: digest for name, digest in hashes.items() if not name.endswith(".safetensors")}


def _check_start(config: FinetuneConfig, run: RunFolder) -> None:
    """Refuse to resume or report a training whose START is another model now.

    Raises:
        ValueError: names the first file that differs.
    """
    before = run.read(DATA).get("start") if DATA in run.listed_files() else None
    now = _hashes_of_start(config)
    if before is None or now is None or before == now:
        return
    name = next(name for name in sorted({*before, *now}) if before.get(name) != now.get(name))
    raise ValueError(
        f"{config.start} is another model than {run.path} was started from: {name} differs. Restore it, or choose "
        "another --out."
    )


def _accuracy_interval(correct: int, rows: int) -> dict[str, float]:
    """Return the 95 % interval of the share of rows that are predicted correctly."""
    low, high = share_interval(correct, rows)
    return {"accuracy_low": low, "accuracy_high": high}
