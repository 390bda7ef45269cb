"""The budget of a pretraining in optimizer steps, and how many steps a model needs to learn."""

import math
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from ..corpus import Windows
from ..encoder import EncoderForMaskedLM
from ..run.progress import Progress
from .distance_entropy import penalize_entropy
from .divergence import NotFiniteError, timing_message
from .environment import process_group_state
from .loop import Trainer
from .pretrain_settings import PretrainConfig, make_batches
from .recipes import TOKENS_TO_LEARN

TIMED_STEPS = 5


def time_step(config: PretrainConfig, windows: Windows) -> float:
    """Return the seconds of one training step on this machine: the median of TIMED_STEPS on a throw-away model.

    Raises:
        ValueError: the loss or the gradient of a step is not finite.
    """
    model_config = config.encoder_config(windows)
    torch.manual_seed(config.seed)
    batches = make_batches(config, windows, "train", model_config)
    untracked = config.model_copy(update={"trackers": []})  # trackers would need a folder
    model = EncoderForMaskedLM(model_config)
    trainer = Trainer(model, untracked, TIMED_STEPS + 1)
    times = []
    for index in range(TIMED_STEPS + 1):
        micro_batches = trainer.make_micro_batches(batches.micro_batch, index)
        began = time.perf_counter()
        try:
            with penalize_entropy(model, config.entropy_weight):
                trainer.take_step(index, micro_batches)
        except NotFiniteError as error:
            raise ValueError(timing_message(error, index + 1, config.preset, config)) from None
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first warms up


def time_trainings(configs: Mapping[str, PretrainConfig], windows_folder: Path, progress: Progress) -> dict[str, float]:
    """Return the seconds of one step of each training on the windows in a folder."""
    seconds = {}
    for number, (name, config) in enumerate(configs.items()):
        progress(number, len(configs), "timing")
        seconds[name] = time_step(config, Windows(windows_folder))
    return seconds


def steps_to_learn(config: PretrainConfig) -> int:
    """Return the steps after which models of this size know more than token frequencies; 0 for an unmeasured size."""
    return math.ceil(TOKENS_TO_LEARN.get(config.size, 0) / (config.batch_size * config.length))


def shortage_message(
    minutes: float, steps: int, config: PretrainConfig, minutes_needed: float, fewest_steps: int = 1
) -> str:
    """Say that `minutes` buy fewer `steps` than `steps_to_learn`, which would take `minutes_needed`.

    fewest_steps: steps that a training takes even if the minutes buy fewer, which the message then says.
    """
    plural = "" if steps == 1 else "s"
    is_least = 1 < steps <= fewest_steps
    bought = f"at most the {steps:,} steps that each model takes at least" if is_least else f"{steps:,} step{plural}"
    return (
        f"{minutes:g} minutes buy {bought}; "
        f"models of size {config.size} need about {steps_to_learn(config):,} to learn more than how often each word "
        f"occurs: about {math.ceil(minutes_needed)} minutes on this machine"
    )


def steps_of_budget(config: PretrainConfig, windows: Windows) -> int:
    """Return the optimizer steps of the budget; for minutes time a step, and say on stderr how many steps they buy."""
    config = config.in_steps()
    if config.steps is not None:
        return config.steps
    assert config.minutes is not None
    seconds = time_step(config, windows)
    steps = max(1, int(config.minutes * 60 / seconds))
    steps_needed = steps_to_learn(config)
    if steps_needed > steps:
        message = shortage_message(config.minutes, steps, config, steps_needed * seconds / 60)
    else:
        plural = "" if steps == 1 else "s"
        message = f"{config.minutes:g} minutes buy {steps:,} step{plural} of {1000 * seconds:,.0f} ms"
    if process_group_state().is_main_process:
        print(message, file=sys.stderr)
    return steps
