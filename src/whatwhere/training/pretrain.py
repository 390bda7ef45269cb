"""Masked-language-model pretraining: a corpus, a preset and a budget in; a transformers folder out."""

import math
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast

from ..corpus import Windows
from ..encoder import EncoderConfig, EncoderForMaskedLM
from ..models.card import model_card
from ..models.explain import costs
from ..run.progress import Show
from .budget import budget_steps
from .corpus_settings import check_one_batch, prepare_windows
from .environment import join_processes
from .loop import Trainer
from .pretrain_settings import BUDGET, PretrainConfig, curriculum, make_batches
from .runs import begun, enter, one_writer, save_final
from .validator import Validator

CONFIG = "pretrain.yaml"


@one_writer
def pretrain(
    config: PretrainConfig,
    out: str | Path,
    *,
    resume: bool = False,
    windows: Windows | None = None,
    progress: bool | Show = True,
    label: str | None = None,
) -> dict[str, Any]:
    """Train one encoder and leave a transformers folder at `out`; return its training summary.

    Checkpoints are in `out/checkpoints/step-N`, the log in `out/log.jsonl`, the resolved configuration in
    `out/pretrain.yaml` (it runs again), the summary in `out/training.json`; `model.safetensors` is written last.
    Without `windows` they are made from `config.corpus` in `out/corpus`.

    Args:
        windows: the caller answers for their text.
        label: what messages and the progress bar call the training; default: the preset and the seed.

    Raises:
        ValueError: bad configuration, a corpus smaller than one batch, or a loss that is not finite.
        Stopped: a signal asked to stop, and a checkpoint is written.
    """
    out = Path(out)
    if not (out / CONFIG).is_file():
        config.check()
    free: tuple[str, ...] = (*BUDGET, "workers", "sharding")
    if windows is not None:
        free += ("corpus",)
    saved, summary = enter(config, out, CONFIG, resume, free=free)
    if saved is not None:
        config = _settings_to_resume(config, saved, out, is_silent=summary is not None or not progress)
    if summary is not None:
        return summary

    processes = join_processes()
    with begun(config, out, CONFIG):
        if windows is None:
            with processes.main_process_first():
                windows = prepare_windows(config, out / "corpus", bool(progress))
        model_config = config.encoder_config(windows)
        batches = make_batches(config, windows, "train", model_config)
        check_one_batch(windows, config.batch_size)
        # Where they are timed, those of the main process.
        steps = int(broadcast(torch.tensor(budget_steps(config, windows), device=processes.device)))
        passes = steps * config.batch_size / len(windows["train"])
        if passes > 1 and progress is True and processes.is_main_process:
            print(f"{len(windows['train']):,} training windows, each read {passes:.3g} times", file=sys.stderr)
        config = config.model_copy(update={"steps": steps, "tokens": None, "minutes": None})
        torch.manual_seed(config.seed)
        model = EncoderForMaskedLM(model_config)
    if processes.is_main_process:
        config.save_run(out / CONFIG)

    trainer = Trainer(model, config, steps, out)
    facts = trainer.fit(
        curriculum(config, batches, steps),
        out,
        tokens_per_step=config.batch_size * config.length,
        validator=_make_validator(trainer, config, windows, model_config),
        resume=resume,
        label=label or f"{config.preset} seed {config.seed}",
        progress=progress,
    )

    summary = {
        "size": config.size,
        **facts,
        "operations": _count_operations(config, model_config),
        "pieces": windows.manifest["pieces"],
        "passes": passes,
    }
    save_final(
        trainer.model_to_save(),
        windows.tokenizer(),
        out,
        settings=config.model_dump(),
        summary=summary,
        card=model_card,
        pooling=config.pooling,
    )
    processes.wait_for_everyone()
    return summary


def _settings_to_resume(config: PretrainConfig, saved: PretrainConfig, out: Path, is_silent: bool) -> PretrainConfig:
    """Return the settings that the run in `out` goes on with: the saved ones, but for the keys that may change.

    Raises:
        ValueError: another number of steps is asked for.
    """
    steps = config.steps
    if config.tokens is not None:
        steps = math.ceil(config.tokens / (saved.batch_size * saved.length))
    if None not in (steps, saved.steps) and steps != saved.steps:
        raise ValueError(
            f"{out} holds a run of steps={saved.steps}, now steps={steps} are asked. The schedule is made for its "
            "steps: others need another --out."
        )
    if config.minutes is not None and saved.steps is not None and not is_silent:
        print(f"{out} goes on to its {saved.steps:,} steps; minutes bought them when it began", file=sys.stderr)
    changes: dict[str, Any] = {"corpus": config.corpus, "sharding": config.sharding}
    if saved.steps is None:  # stopped while its text was read: the budget is that of this call
        changes |= {key: getattr(config, key) for key in BUDGET}
    return saved.model_copy(update=changes)


def _make_validator(
    trainer: Trainer, config: PretrainConfig, windows: Windows, model_config: EncoderConfig
) -> Validator | None:
    if not len(windows["held_out"]):
        return None
    held_out = make_batches(config, windows, "held_out", model_config)
    return Validator(trainer, lambda: held_out.in_order(config.batch_size, limit=config.validation_windows))


def _count_operations(config: PretrainConfig, model_config: EncoderConfig) -> float | None:
    """Return the operations per token of a forward pass; None for an own scheme that must see numbers (see `costs`)."""
    try:
        return costs(model_config, config.length, config.mask_rate).of("operations")
    except ValueError as error:
        print(error, file=sys.stderr)
        return None
