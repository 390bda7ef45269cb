"""Checkpoints of a training: when one is written, which are dropped, and how a training resumes from the newest."""

import sys
import time
from pathlib import Path

from ..models.tensors import not_finite
from .checkpoints import (
    CHECKPOINTS,
    drop_checkpoints_after,
    drop_old_optimizers,
    drop_unplanned,
    log_spaced_steps,
    newest_checkpoint,
    optimizer_tensors,
    restore,
    trained_checkpoint_folders,
    write_checkpoint,
    write_optimizer_shard,
)
from .divergence import weights_message
from .logger import Logger
from .setup import TrainingSetup
from .sharding import gather_states


class Checkpointer:
    """Checkpoints of one training, in `out/checkpoints/step-N`.

    A checkpoint holds the model, the optimizers, the random generators of every process, and the state of the logger.
    Planned checkpoints stay. One that only a signal or `checkpoint_minutes` asked for is dropped when the next is
    written, so that the checkpoints of a finished run do not depend on its interruptions. The newest two keep the
    states of optimizers and generators.
    """

    def __init__(self, out: Path, setup: TrainingSetup, logger: Logger, label: str) -> None:
        """Set the planned steps and change no file. label: name of the training in messages."""
        config = setup.config
        self.root = out / CHECKPOINTS
        self.setup = setup
        self.logger = logger
        self.label = label
        self.extra_steps = (
            log_spaced_steps(setup.steps) if config.checkpoint_steps is None else set(config.checkpoint_steps)
        )
        self._saved_at = time.perf_counter()

    def is_planned(self, step: int) -> bool:
        """Return whether `step` gets a checkpoint that stays: first, last, extra, every `checkpoint_every`-th."""
        is_regular = step % self.setup.config.checkpoint_every == 0
        return is_regular or step in self.extra_steps or step in (0, self.setup.steps)

    def is_overdue(self) -> bool:
        """Return whether `checkpoint_minutes` have passed since this process's last checkpoint."""
        return time.perf_counter() - self._saved_at > 60 * self.setup.config.checkpoint_minutes

    def newest_folder(self) -> Path | None:
        """Return the folder of the newest checkpoint after step 0, which may be damaged; None where there is none."""
        folders = trained_checkpoint_folders(self.root)
        return folders[-1] if folders else None

    def load(self) -> int:
        """Restore model, optimizers, random generators and logger from the newest usable checkpoint.

        Usable is one after step 0 that is whole and has the states of its optimizers. Messages on stderr name newer
        ones that are broken; `drop_after` then removes them.

        Returns:
            Step of the checkpoint; 0, and nothing changes, where there is none after step 0.

        Raises:
            ValueError: a checkpoint after step 0 exists, and none is usable; the checkpoint is of another model; or the
                log has a line that no training wrote.
        """
        accelerator = self.setup.accelerator
        checkpoint, problems = newest_checkpoint(self.root)
        for problem in problems:
            message = f"A broken checkpoint is passed over, and removed as the training resumes: {problem}"
            accelerator.print(message, file=sys.stderr)
        if checkpoint is None:
            if folders := trained_checkpoint_folders(self.root):
                raise ValueError(
                    f"No checkpoint of {self.root} is whole, with the states of its optimizers. Restore the files of "
                    f"{folders[-1].name}, or delete {self.root} to begin again."
                )
            return 0
        all_states = restore(checkpoint, self.setup.model, self.setup.optimizers)
        prefix = f"{accelerator.process_index}."
        random_states = {name.removeprefix(prefix): s for name, s in all_states.items() if name.startswith(prefix)}
        if random_states:  # a process that the stopped training did not have begins with its own seed
            self.setup.set_random_states(random_states)
        self.logger.load_state_dict(checkpoint.logger_state, checkpoint.step)
        return checkpoint.step

    def drop_after(self, step: int) -> None:
        """Remove the checkpoints of steps after `step`, once all processes have read the checkpoint to resume from.

        A broken one left there would count among the newest two, and a new checkpoint would lose its optimizer states.
        """
        self.setup.accelerator.wait_for_everyone()
        if self.setup.accelerator.is_main_process:
            drop_checkpoints_after(self.root, step)

    def save(self, step: int) -> None:
        """Write the checkpoint of `step`, then drop the checkpoints that it replaces; all processes must call it.

        Raises:
            ValueError: the step left weights that are not finite; nothing is written.
            OSError: the disk is full or not writable; earlier checkpoints stay whole.
        """
        setup = self.setup
        accelerator = setup.accelerator
        if names := not_finite(setup.model):  # the loss of a step does not see the weights that it makes
            raise ValueError(weights_message(names, step, self.label, setup.config, self.newest_folder()))
        states_by_rank = [setup.random_states()]
        if accelerator.num_processes > 1:
            states_by_rank = gather_states(states_by_rank[0], accelerator.device)
        self.logger.flush()
        model = setup.model_to_save()
        optimizer_states = optimizer_tensors(setup.optimizers)
        shards = accelerator.num_processes if setup.is_sharded else 1
        if shards > 1 and not accelerator.is_main_process:
            write_optimizer_shard(self.root, step, optimizer_states, accelerator.process_index, shards)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            random_states = {
                f"{rank}.{name}": s for rank, states in enumerate(states_by_rank) for name, s in states.items()
            }
            logger_state = self.logger.state_dict()
            write_checkpoint(self.root, step, model, optimizer_states, random_states, logger_state, shards)
            self.drop_superfluous()
        accelerator.wait_for_everyone()
        self._saved_at = time.perf_counter()

    def drop_superfluous(self) -> None:
        """Remove unplanned checkpoints but the newest, and the optimizers' states of all but the newest two.

        Only the main process removes files. `fit` calls it at its end, too: a crash may have cut off the last `save`.
        """
        if self.setup.accelerator.is_main_process:
            drop_unplanned(self.root, self.is_planned)
            drop_old_optimizers(self.root)
