"""Error and messages of a training that diverged: which values are not finite, and what the user can do."""

from pathlib import Path

from .training_keys import LoopConfig


class NotFiniteError(ValueError):
    """Error for a step whose loss or gradient is not finite, raised before weights change.

    `parameters` names a few parameters, or gradients, that are not finite.
    """

    def __init__(self, loss: float, norm: float, parameters: str) -> None:
        super().__init__(f"Loss is {loss}, gradient norm {norm}")
        self.parameters = parameters


def step_message(
    error: NotFiniteError, step: int, label: str, config: LoopConfig, batch_file: Path, checkpoint: Path | None
) -> str:
    """Say which step was not finite, what to change, and which files are left.

    Args:
        step: number of the step, from 1.
        batch_file: file that holds the step's batch.
        checkpoint: folder of the last checkpoint, None where there is none after step 0.
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
    return f"{error} at {place}. {advice}; {_checkpoint_hint(checkpoint)}, and the step's batch in {batch_file}."


def timing_message(error: NotFiniteError, step: int, label: str, config: LoopConfig) -> str:
    """Say that a step is not finite that was only timed, and what to change; arguments as for `step_message`.

    It asks for no other --out: nothing is trained yet, so the same folder begins anew.
    """
    return f"{error} at step {step} of timing {label}. {_rate_hint(config)}."


def weights_message(parameters: str, step: int, label: str, config: LoopConfig, checkpoint: Path | None) -> str:
    """Name the weights that are not finite after a step; arguments as for `step_message`."""
    if step == 0:
        return f"The start weights of {label} are not finite: {parameters}. Use a complete copy, or mend the scheme."
    advice = f"{_rate_hint(config)}, in another --out; {_checkpoint_hint(checkpoint)}"
    return f"Step {step} of {label} left {parameters} not finite. {advice}."


def _rate_hint(config: LoopConfig) -> str:
    precision_hint = "" if config.precision == "fp32" else " or --set precision=fp32"
    return f"Lower --set learning_rate= (now {config.learning_rate:g}){precision_hint}"


def _checkpoint_hint(checkpoint: Path | None) -> str:
    return "there is no checkpoint after step 0" if checkpoint is None else f"the last checkpoint is {checkpoint}"
