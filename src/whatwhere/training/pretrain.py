"""Masked-language-model pretraining: a corpus, a preset and a budget in; a transformers folder out."""

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast

from ..corpus import Windows
from ..corpus.batches import times_read
from ..encoder import EncoderConfig, EncoderForMaskedLM
from ..models.card import model_card
from ..models.explain import costs
from ..run.folder import RunFolder, keep_inner_run
from ..run.progress import Progress
from .budget import steps_of_budget
from .corpus_settings import check_enough_windows, prepare_windows
from .distance_entropy import penalize_entropy
from .environment import process_group_state
from .loop import Trainer
from .optimizers import expected_table_walk
from .pretrain_settings import PretrainConfig, make_batches, make_curriculum
from .training_folder import (
    accept_training,
    finish_training,
    finished_summary,
    has_progress,
    open_training,
    resume_or_clear_training,
)
from .training_keys import LoopConfig
from .validator import Validator

SETTINGS_FILE = "pretrain.yaml"
KIND = "pretrain"  # of the run


def pretrain(
    config: PretrainConfig,
    out: str | Path,
    *,
    windows: Windows | None = None,
    progress: bool | Progress = True,
    label: str | None = None,
) -> dict[str, Any]:
    """Train one encoder and leave a transformers folder at `out`; return its training summary.

    The same call resumes a training in `out` from its newest checkpoint, and returns the summary of a finished one.
    Checkpoints are in `out/checkpoints/step-N`, the log in `out/log.jsonl`, the resolved configuration in
    `out/pretrain.yaml` (give it to `--config` to repeat the run), the summary in `out/training.json`;
    `model.safetensors` is written last. Without `windows` they are made from `config.corpus` in `out/corpus`.

    Args:
        windows: windows to train on. Nothing compares them with the run's: `corpus` and `tokenizer` may then differ.
        label: name of the training in messages and on the progress bar; default: the preset and the seed.

    Raises:
        ValueError: bad configuration, one that `out` was not started with, a corpus smaller than one batch, or a loss
            that is not finite.
        Stopped: a signal asked to stop, and a checkpoint is written.
    """
    # A run that can be resumed keeps its saved settings, which an earlier command has checked.
    if not _is_resumable(RunFolder.at(out)):
        config.check()
    with open_training(out, KIND) as run:
        config = _budget_before_windows(config, run, is_silent=not progress)
        changeable = () if windows is None else ("corpus", "tokenizer")
        config = resume_or_clear_training(config, run, SETTINGS_FILE, changeable)
        summary = finished_summary(run)
        return summary or _train(config, run, windows, progress, label)


def pretrain_on_windows(config: PretrainConfig, out: Path, windows_folder: Path, progress: Progress) -> dict[str, Any]:
    """Do `pretrain` as a job of `run.jobs`, on the windows in a folder."""
    return pretrain(config, out, windows=Windows(windows_folder), progress=progress)


def _is_resumable(run: RunFolder) -> bool:
    """Return whether a run has settings, and either a checkpoint after step 0 or its finished model."""
    return SETTINGS_FILE in run.listed_files() and has_progress(run)


def _budget_before_windows(config: PretrainConfig, run: RunFolder, is_silent: bool) -> PretrainConfig:
    """Return the settings with a budget of tokens turned into steps; minutes of a new run stay until it has windows.

    A run that can be resumed keeps the number of steps in its settings, whatever the minutes; stderr says so.
    """
    config = config.in_steps()
    if config.minutes is None or not _is_resumable(run):
        return config
    steps = config.load_to_resume(run, SETTINGS_FILE).steps
    if not is_silent and finished_summary(run) is None:
        budget = f"ends at the {steps:,} steps that it began with, whatever the minutes of this command buy"
        print(f"{run.path} resumes and {budget}", file=sys.stderr)
    return config.model_copy(update={"steps": steps, "minutes": None})


def _train(
    config: PretrainConfig, run: RunFolder, windows: Windows | None, progress: bool | Progress, label: str | None
) -> dict[str, Any]:
    """Train in an open folder, with settings that agree with its own; return the summary."""
    process_group = process_group_state()
    if windows is None:
        with process_group.main_process_first():
            windows = prepare_windows(config, run.path / "corpus", bool(progress))
    check_enough_windows(windows, config.batch_size)
    keep_inner_run(windows.folder)  # making them may have taken hours, and the corrected command uses them
    model_config = config.encoder_config(windows)
    batches = make_batches(config, windows, "train", model_config)
    # All processes use the number of steps that the main process timed.
    steps = int(broadcast(torch.tensor(steps_of_budget(config, windows), device=process_group.device)))
    passes = steps * config.batch_size / len(windows["train"])
    if progress is True and process_group.is_main_process:
        if reading := times_read(passes):
            print(f"{len(windows['train']):,} training windows, each {reading}", file=sys.stderr)
        if warning := segments_message(config.preset, model_config, windows):
            print(warning, file=sys.stderr)
    config = config.model_copy(update={"steps": steps, "tokens": None, "minutes": None})
    torch.manual_seed(config.seed)
    model = EncoderForMaskedLM(model_config)
    if process_group.is_main_process:
        accept_training(config, run, SETTINGS_FILE)

    trainer = Trainer(model, config, steps, run.path)
    with penalize_entropy(model, config.entropy_weight):
        trained = trainer.fit(
            make_curriculum(config, batches, steps),
            run.path,
            tokens_per_step=config.batch_size * config.length,
            validator=_make_validator(trainer, config, windows, model_config),
            label=label or f"{config.preset} seed {config.seed}",
            progress=progress,
        )

    summary = {
        "size": config.size,
        **trained,
        "operations": _count_operations(config, model_config),
        "pieces": windows.facts["pieces"],
        "passes": passes,
    }
    finish_training(
        run,
        trainer.model_to_save(),
        windows.tokenizer(),
        settings=config.model_dump(),
        summary=summary,
        card=model_card,
        pooling=config.pooling,
    )
    process_group.wait_for_everyone()
    return summary


def segments_message(name: str, config: EncoderConfig, windows: Windows) -> str:
    """Return a warning if a model counts segments and no token of the text but [SEP] ends one; else ""."""
    ends = [token for token in config.segment_end_ids or () if token != config.sep_token_id]
    if not config.bilevel or windows.unigrams()[ends].any():
        return ""
    return f"No token of the text ends a segment, as . ! ? … or a line break would: {name} reads each text as one"


def _make_validator(
    trainer: Trainer, config: PretrainConfig, windows: Windows, model_config: EncoderConfig
) -> Validator | None:
    if not len(windows["held_out"]):
        return None
    batches = make_batches(config, windows, "held_out", model_config)
    return Validator(trainer, lambda: batches.in_order(config.batch_size, limit=config.validation_windows))


def _count_operations(config: PretrainConfig, model_config: EncoderConfig) -> float | None:
    """Return the operations per token of a forward pass; None, with `costs`' reason on stderr, if they are unknown."""
    try:
        return costs(model_config, config.length, config.mask_rate).of("operations")
    except ValueError as error:
        print(error, file=sys.stderr)
        return None


def saved_table_walk(folder: str | Path) -> float | None:
    """Return `expected_table_walk` by the settings in the folder of a pretraining.

    Returns:
        None for a folder without settings of a pretraining, or settings without a number of steps.

    Raises:
        ValueError: the settings are damaged or refused.
    """
    settings = Path(folder) / SETTINGS_FILE
    if not settings.is_file():
        return None
    values = {key: value for key, value in LoopConfig.merge_values(settings).items() if key in LoopConfig.model_fields}
    config = LoopConfig.parse(values, path=settings)
    return None if config.steps is None else expected_table_walk(config, config.steps)
