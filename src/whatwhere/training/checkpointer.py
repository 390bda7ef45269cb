"""When a training writes a checkpoint, which ones it drops, and how it resumes from the newest that is whole."""

import sys
import time
from pathlib import Path

from ..models.tensors import not_finite
from .checkpoints import (
    CHECKPOINTS,
    all_checkpoints,
    drop_after,
    drop_between,
    drop_old_optimizers,
    log_spaced,
    newest,
    pack,
    restore,
    write_checkpoint,
    write_share,
)
from .divergence import weights_message
from .logger import Logger
from .sharding import gather_states
from .state import TrainingState


class Checkpointer:
    """The checkpoints of one training, in `out/checkpoints/step-N`.

    They hold the model, the optimizers, the random generators of every process, and the state of the logger. Planned
    ones stay; one that only a signal or `checkpoint_minutes` wanted is dropped when the next one is there, so that the
    checkpoints of a finished run do not depend on how it went. The newest two keep the states of the optimizers.
    """

    def __init__(self, out: Path, training: TrainingState, logger: Logger, label: str) -> None:
        """Note the planned steps; no file changes. label: what messages call the training."""
        config = training.config
        self.root = out / CHECKPOINTS
        self.training = training
        self.logger = logger
        self.label = label
        self.marks = log_spaced(training.steps) if config.checkpoint_steps is None else set(config.checkpoint_steps)
        self._saved_at = time.perf_counter()

    def is_planned(self, step: int) -> bool:
        """Return whether `step` gets a checkpoint that stays: the first and last, the marks, every so many steps."""
        is_regular = step % self.training.config.checkpoint_every == 0
        return is_regular or step in self.marks or step in (0, self.training.steps)

    def is_overdue(self) -> bool:
        """Return whether `checkpoint_minutes` have passed since this process's last checkpoint."""
        return time.perf_counter() - self._saved_at > 60 * self.training.config.checkpoint_minutes

    def last(self) -> Path | None:
        """Return the folder of the newest checkpoint, None where there is none."""
        folders = all_checkpoints(self.root)
        return folders[-1] if folders else None

    def load(self) -> int | None:
        """Restore model, optimizers, random generators and logger from the newest checkpoint that is whole.

        Newer ones that are broken are named on stderr and passed over.

        Returns:
            The step after which it was written; None where there is none, and nothing changes.

        Raises:
            ValueError: the checkpoint is of another model, or the log has a line that no training wrote.
        """
        accelerator = self.training.accelerator
        checkpoint, broken = newest(self.root)
        for line in broken:
            accelerator.print(f"Passing over a broken checkpoint: {line}", file=sys.stderr)
        if checkpoint is None:
            return None
        states = restore(checkpoint, self.training.model, self.training.optimizers)
        prefix = f"{accelerator.process_index}."
        random_states = {name.removeprefix(prefix): s for name, s in states.items() if name.startswith(prefix)}
        if random_states:  # a process more than before has none and begins with its own seed
            self.training.set_random_states(random_states)
        self.logger.load_state_dict(checkpoint.state, checkpoint.step)
        return checkpoint.step

    def drop_after(self, step: int) -> None:
        """Remove the checkpoints of later steps, once all processes have read what they resume from.

        Broken ones would count as the newest, and what is written now as old.
        """
        self.training.accelerator.wait_for_everyone()
        if self.training.accelerator.is_main_process:
            drop_after(self.root, step)

    def save(self, step: int) -> None:
        """Write the checkpoint of `step`, then drop what it makes superfluous; all processes must call it.

        Raises:
            ValueError: the step left weights that are not finite; nothing is written.
            OSError: the disk is full or not writable; earlier checkpoints stay whole.
        """
        training = self.training
        accelerator = training.accelerator
        if where := not_finite(training.model):  # no loss has seen yet what the step made of its weights
            raise ValueError(weights_message(where, step, self.label, training.config, self.last()))
        random_states = [training.random_states()]
        if accelerator.num_processes > 1:
            random_states = gather_states(random_states[0], accelerator.device)
        self.logger.flush()
        model = training.model_to_save()
        packed = pack(training.optimizers)
        shares = accelerator.num_processes if training.is_shared else 1
        if shares > 1 and not accelerator.is_main_process:
            write_share(self.root, step, packed, accelerator.process_index, shares)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            flat = {f"{rank}.{name}": s for rank, states in enumerate(random_states) for name, s in states.items()}
            write_checkpoint(self.root, step, model, packed, flat, self.logger.state_dict(), shares)
            self.drop_superfluous()
        accelerator.wait_for_everyone()
        self._saved_at = time.perf_counter()

    def drop_superfluous(self) -> None:
        """Remove unplanned checkpoints but the newest, and the optimizers' states of all but the newest two.

        The main process does. A training also ends with it: a crash may have kept the last `save` from it.
        """
        if self.training.accelerator.is_main_process:
            drop_between(self.root, self.is_planned)
            drop_old_optimizers(self.root)
