"""Messages on a training that diverged: the step or the weights that are not finite, and what the user can do."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from .training_keys import LoopConfig


class NotFiniteError(ValueError):
    """Error for a step whose loss or gradient is not finite, raised before weights change.

    `parameters` names a few parameters, or gradients, that are not finite.
    """

    def __init__(self, loss: float, norm: float, parameters: str) -> None:
        super().__init__(f"Loss is {loss}, gradient norm {norm}")
        self.parameters = parameters


def step_message(
    error: NotFiniteError, step: int, label: str, config: LoopConfig, batch: Path, checkpoint: Path | None
) -> str:
    """Say which step was not finite, what to change, and which files are left.

    Args:
        step: number of the step, from 1.
        batch: file that holds the step's batch.
        checkpoint: folder of the last good checkpoint, None where there is none.
    """
    place = f"step {step} of {label}"
    if error.parameters:
        place += f", in {error.parameters}"
    advice = f"{_rate_hint(config)}, in another --out"
    if step == 1:
        advice = (
            "The first step failed, so the start weights, the data or the scheme are at fault. "
            "For a scheme of yours: whatwhere explain NAME --scheme FILE"
        )
    return f"{error} at {place}. {advice}; {_checkpoint_hint(checkpoint)}, and the step's batch in {batch}."


def timing_message(error: NotFiniteError, step: int, label: str, config: LoopConfig) -> str:
    """Say that a step that was only timed is not finite, and what to change; arguments as for `step_message`.

    Nothing is trained yet, so the same folder begins anew.
    """
    return f"{error} at step {step} of timing {label}. {_rate_hint(config)}."


def weights_message(parameters: str, step: int, label: str, config: LoopConfig, checkpoint: Path | None) -> str:
    """Name the weights that are not finite after a step; arguments as for `step_message`."""
    if step == 0:
        return f"The start weights of {label} are not finite: {parameters}. Use a complete copy, or mend the scheme."
    advice = f"{_rate_hint(config)}, in another --out; {_checkpoint_hint(checkpoint)}"
    return f"Step {step} of {label} left {parameters} not finite. {advice}."


def batch_arrays(micro_batches: Sequence[dict[str, Tensor]]) -> dict[str, np.ndarray]:
    """Return the tensors of a step's batch as arrays called MICRO_BATCH.NAME, for inspection."""
    return {
        f"{i}.{name}": value.cpu().numpy()
        for i, micro_batch in enumerate(micro_batches)
        for name, value in micro_batch.items()
    }


def _rate_hint(config: LoopConfig) -> str:
    exact = "" if config.precision == "fp32" else " or --set precision=fp32"
    return f"Lower --set learning_rate= (now {config.learning_rate:g}){exact}"


def _checkpoint_hint(checkpoint: Path | None) -> str:
    return "there is no checkpoint yet" if checkpoint is None else f"the last good checkpoint is {checkpoint}"
