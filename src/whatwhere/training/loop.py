"""Training loop of pretraining and fine-tuning, and the single step that every training of the package takes.

Batches, their order and masks are a pure function of seed and step (`corpus.batches`), so a resumed training needs no
state of a loader.
"""

import contextlib
import math
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ..models.tensors import gather_whole, not_finite
from ..run.memory import TRIM_EVERY, trim_heap
from ..run.progress import Progress, progress_bar
from ..run.signals import Stopped, defer_stop
from .checkpointer import Checkpointer
from .divergence import NotFiniteError, step_message
from .environment import warn_of_single_process
from .logger import Logger
from .optimizers import learning_rate_factor
from .setup import MicroBatch, MicroBatchFunction, TrainingSetup
from .stop import StopAgreement
from .validator import Validator


class Trainer(TrainingSetup):
    """Training with its model and optimizers, the optimizer step, and the loop over all steps."""

    def fit(
        self,
        make_micro_batch: MicroBatchFunction,
        out: Path,
        *,
        tokens_per_step: int,
        validator: Validator | None = None,
        label: str = "training",
        progress: bool | Progress = True,
    ) -> dict[str, Any]:
        """Train to the last step and return the facts of `Logger.summary`.

        The log is `out/log.jsonl`, the checkpoints are in `out/checkpoints`.

        The training resumes from the newest whole checkpoint after step 0 that still has optimizer states; where there
        is no checkpoint after step 0 it begins. On a CPU of the same kind, with as many processes and threads, losses
        and weights of a resumed run equal the uninterrupted run's. All processes have the same weights, or shards of
        them, after every step.

        Args:
            make_micro_batch: function that returns this process's rows of a micro-batch.
            tokens_per_step: tokens of a step, of all processes together. Pretraining counts padding, too; fine-tuning
                gives the mean without it.
            label: name of the training in messages and on the progress bar.
            progress: True for a bar on stderr, False for none, or a function that is called at each log line of steps.

        Raises:
            ValueError: the loss, the gradient or the weights are not finite; earlier checkpoints stay. Or there
                are checkpoints after step 0, and none is usable, or one is of another model.
            Stopped: a signal asked to stop, and the checkpoint of the step that it came in is written.
        """
        warn_of_single_process()
        self.seed_by_rank()
        logger = Logger(out, self, tokens_per_step)
        checkpointer = Checkpointer(out, self, logger, label)
        stop = StopAgreement(self.accelerator)

        # Resume
        steps_done = checkpointer.load()
        checkpointer.drop_after(steps_done)
        logger.open()

        # Before the first step
        if steps_done == 0:
            with logger.leave_out_of_speed():
                checkpointer.save(0)
                if validator:
                    logger.log(0, validator.validate())

        progress_here = progress if self.accelerator.is_main_process else False
        prefetch = contextlib.closing(self._prefetch(make_micro_batch, steps_done))
        with defer_stop(), progress_bar(label, progress_here, steps_done) as advance, prefetch as batches:
            for step in range(steps_done + 1, self.steps + 1):
                # Step
                with logger.count_waiting():
                    micro_batches = next(batches)
                try:
                    loss, gradient_norm = self.take_step(step - 1, micro_batches)
                except NotFiniteError as error:
                    file = logger.write_batch(micro_batches)
                    message = step_message(error, step, label, self.config, file, checkpointer.newest_folder())
                    raise ValueError(message) from None
                logger.add_loss(loss)

                # Log
                if logger.is_due(step):
                    line = logger.log_steps(step, gradient_norm)
                    speed = f"{line['tokens_per_second']:,.0f} tokens/s"
                    advance(step, self.steps, "training", f"loss {line['loss']:.3f}  {speed}")

                # Validate
                if validator and validator.is_due(step):
                    with logger.leave_out_of_speed():
                        logger.log(step, validator.validate())

                # Save, and stop
                must_stop, must_save = stop.agree(checkpointer.is_overdue())
                if checkpointer.is_planned(step) or must_stop or must_save:
                    with logger.leave_out_of_speed():
                        checkpointer.save(step)
                if must_stop:
                    raise Stopped(f"after step {step:,} of {label}, with a checkpoint")

        is_validated = any(line["step"] == self.steps and "validation_loss" in line for line in logger.history)
        if validator and not is_validated:  # resumed after the last step, without its log
            logger.log(self.steps, validator.validate())
        checkpointer.drop_superfluous()
        logger.close()
        return logger.summary()

    def _prefetch(self, make_micro_batch: MicroBatchFunction, steps_done: int) -> Generator[list[MicroBatch]]:
        """Yield the batches of all steps after the first `steps_done`; a thread makes each during the step before."""
        with ThreadPoolExecutor(1) as thread:
            upcoming = thread.submit(self.make_micro_batches, make_micro_batch, steps_done)
            for index in range(steps_done, self.steps):
                micro_batches = upcoming.result()
                if index + 1 < self.steps:
                    upcoming = thread.submit(self.make_micro_batches, make_micro_batch, index + 1)
                yield micro_batches

    def make_micro_batches(self, make_micro_batch: MicroBatchFunction, index: int) -> list[MicroBatch]:
        """Make this process's micro-batches for the step with number `index`, from 0.

        All processes together read the same rows, whatever the number of processes and of micro-batches. A micro-batch
        is tensors (rows_per_process, ...) by name, as `make_micro_batch` gives them.
        """
        world = self.accelerator.num_processes
        rank = self.accelerator.process_index
        first_micro_step = index * self.config.accumulate
        return [
            make_micro_batch(first_micro_step + i, self.rows_per_process * world, rank, world)
            for i in range(self.config.accumulate)
        ]

    def take_step(self, index: int, micro_batches: list[MicroBatch]) -> tuple[float, float]:
        """Take one optimizer step; return the mean loss over the batch's labels and the gradient's norm.

        Each micro-batch's mean loss is weighted by its number of labels (of rows, where it has no `labels`: spans,
        sentences), so that neither accumulation nor the number of processes changes the gradient. Exceptions: SimCSE,
        whose negatives come from the micro-batch, and the entropy penalty, which is no mean over labels.

        Args:
            index: number of the step, from 0; the learning rate depends on it.
            micro_batches: this process's micro-batches, as `make_micro_batches` returns them.

        Returns:
            The loss in nats, and the norm before clipping.

        Raises:
            NotFiniteError: the loss or the gradient is not finite; the weights are as before.
        """
        loss = self._compute_gradient(micro_batches)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        gradient_norm = float(gather_whole(norm))
        if not math.isfinite(loss) or not math.isfinite(gradient_norm):
            raise NotFiniteError(loss, gradient_norm, not_finite(self.model))
        torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip, norm)
        factor = learning_rate_factor(index, self.config, self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (index + 1) % TRIM_EVERY == 0:
            trim_heap()
        return loss, gradient_norm

    def _compute_gradient(self, micro_batches: list[MicroBatch]) -> float:
        """Add the gradient of a batch to the parameters' `grad`; return the batch's mean loss over all processes."""
        accelerator = self.accelerator
        self.step_module.train()
        micro_batches = [
            {key: value.to(accelerator.device) for key, value in micro_batch.items()} for micro_batch in micro_batches
        ]
        counts = [_count_targets(micro_batch) for micro_batch in micro_batches]
        total = accelerator.reduce(torch.stack(counts).sum(), reduction="sum").clamp(min=1)
        loss_sum = torch.zeros((), device=accelerator.device)
        for i, (micro_batch, count) in enumerate(zip(micro_batches, counts, strict=True)):
            with self._gradient_sync(is_last=i == len(micro_batches) - 1):
                with accelerator.autocast():
                    loss = self.step_module(**micro_batch, **self.model_arguments).loss
                accelerator.backward(loss * (count * accelerator.num_processes / total))
            loss_sum += loss.detach() * count
        return float(accelerator.reduce(loss_sum, reduction="sum") / total)

    def _gradient_sync(self, is_last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which the processes average their gradients if the micro-batch is the batch's last."""
        if self.is_sharded:
            cast(FSDPModule, self.step_module).set_requires_gradient_sync(is_last)
        if is_last or self.is_sharded:
            return contextlib.nullcontext()
        return self.accelerator.no_sync(self.step_module)


def _count_targets(micro_batch: MicroBatch) -> Tensor:
    """Count the targets that the loss of a micro-batch averages over: its labels, or its rows where it has none."""
    if "labels" in micro_batch:
        return (micro_batch["labels"] != -100).sum()
    return torch.tensor(len(micro_batch["input_ids"])).to(micro_batch["input_ids"])
