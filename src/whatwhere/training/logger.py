"""Log of a training: losses, speeds and validations, in `log.jsonl` and in the user's trackers."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..run.files import append_line, flush_file, write_arrays, write_text
from ..run.folder import LOG
from ..run.memory import peak_memory, reset_peak_memory
from ..run.remote import cpu_name
from ..run.status import step_lines
from .optimizers import learning_rate_factor
from .setup import MicroBatch, TrainingSetup


class Logger:
    """Lines of a training's log, its clock, and the losses since the last line.

    Every process has the lines; the main process writes them to `out/log.jsonl` and to the trackers.

    Attributes:
        history: all lines up to now, those before a resume included.
    """

    def __init__(self, out: Path, setup: TrainingSetup, tokens_per_step: int) -> None:
        """Start the clock and the measurement of memory; no file changes before `open`."""
        self.out = out
        self.path = out / LOG
        self.setup = setup
        self.tokens_per_step = tokens_per_step
        self.history: list[dict[str, Any]] = []
        self._losses: list[float] = []  # of the steps since the last line
        self._timed_steps = 0  # steps of this process since the last line: none from before a resume
        self._seconds_waited = 0.0  # seconds without a batch since the last line
        self._seconds_before = 0.0  # seconds of the training before a resume
        self._clock_began = time.perf_counter()
        self._line_began = self._clock_began  # when the next line's clock started, moved forward by every pause
        reset_peak_memory()

    @property
    def seconds(self) -> float:
        """Seconds that the training has taken, before a resume included."""
        return self._seconds_before + time.perf_counter() - self._clock_began

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the log that a checkpoint keeps, beside its lines."""
        return {"seconds": self.seconds, "losses": self._losses}

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Continue the log of a training that resumes after `step`, without the lines of later steps."""
        self._seconds_before = float(state["seconds"])
        self._losses = list(state["losses"])
        self.history = [line for line in step_lines(self.path) if line["step"] <= step]
        if step and not self.history:
            self.setup.accelerator.print(
                f"{self.path} has no lines up to step {step:,}. Restore it, or accept curves that begin after step "
                f"{step:,}.",
                file=sys.stderr,
            )

    def open(self) -> None:
        """Write the file anew with the lines of the history, start the trackers, and start the clock anew."""
        accelerator = self.setup.accelerator
        if accelerator.is_main_process:
            write_text(self.path, "".join(json.dumps(line) + "\n" for line in self.history))
        accelerator.wait_for_everyone()
        if self.setup.config.trackers:
            accelerator.init_trackers("whatwhere")
        self._clock_began = time.perf_counter()
        self._line_began = self._clock_began

    def close(self) -> None:
        """End the trackers; the process group stays, as the model is still gathered and saved."""
        for tracker in self.setup.accelerator.trackers:
            tracker.finish()

    def flush(self) -> None:
        """Wait until the lines are on the disk, as a checkpoint relies on them."""
        if self.setup.accelerator.is_main_process:
            flush_file(self.path)

    @contextlib.contextmanager
    def count_waiting(self) -> Iterator[None]:
        """Count the block's time as waiting for a batch."""
        began = time.perf_counter()
        yield
        self._seconds_waited += time.perf_counter() - began

    @contextlib.contextmanager
    def leave_out_of_speed(self) -> Iterator[None]:
        """Leave the block's time (a validation, a checkpoint) out of the speed of a line, but not out of `seconds`."""
        began = time.perf_counter()
        yield
        self._line_began += time.perf_counter() - began

    def add_loss(self, loss: float) -> None:
        """Add the loss of a step, in nats, to what the next line averages."""
        self._losses.append(loss)
        self._timed_steps += 1

    def is_due(self, step: int) -> bool:
        """Return whether `step` gets a line: every `log_every`-th and the last one do."""
        return step % self.setup.config.log_every == 0 or step == self.setup.steps

    def log_steps(self, step: int, gradient_norm: float) -> dict[str, Any]:
        """Write the line of the steps since the last line, and return it.

        loss: mean of the steps, in nats. gradient_norm: norm in `step` before clipping. learning_rate: rate in `step`,
        before the keys `*_learning_rate_scale`. tokens_per_second: since the last line, without pauses. waiting: share
        of the time without a batch. peak_memory_bytes: of this process, or of its device.
        """
        config = self.setup.config
        ended = time.perf_counter()
        elapsed = ended - self._line_began
        line = {
            "loss": sum(self._losses) / len(self._losses),
            "gradient_norm": gradient_norm,
            "learning_rate": config.learning_rate * learning_rate_factor(step - 1, config, self.setup.steps),
            "tokens_per_second": self._timed_steps * self.tokens_per_step / elapsed,
            "waiting": self._seconds_waited / elapsed,
            "peak_memory_bytes": peak_memory(self.setup.accelerator.device),
        }
        self.log(step, line)
        self._losses = []
        self._timed_steps = 0
        self._seconds_waited = 0.0
        self._line_began = ended
        return line

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Write one line of `step`: the tokens up to it, then `values`."""
        line = {"step": step, "tokens": step * self.tokens_per_step, **values}
        self.history.append(line)
        accelerator = self.setup.accelerator
        if accelerator.is_main_process:
            append_line(self.path, line)
            if self.setup.config.trackers:
                accelerator.log({key: value for key, value in line.items() if key != "step"}, step=step)

    def write_batch(self, micro_batches: Sequence[MicroBatch]) -> Path:
        """Write this process's tensors of a step that was not finite, as arrays MICRO_BATCH.NAME; return the file."""
        path = self.out / f"not-finite-{self.setup.accelerator.process_index}.npz"
        arrays = {
            f"{i}.{name}": value.cpu().numpy()
            for i, micro_batch in enumerate(micro_batches)
            for name, value in micro_batch.items()
        }
        write_arrays(path, arrays)
        return path

    def summary(self) -> dict[str, Any]:
        """Return the facts of the training that every summary has: model, budget, speed, memory, last validation.

        tokens_per_second is the median of the lines of the log, of an even number the larger of the middle two.
        """
        setup = self.setup
        model = setup.model
        device = setup.accelerator.device
        validations = [line for line in self.history if "validation_loss" in line]
        speeds = sorted(line["tokens_per_second"] for line in self.history if "tokens_per_second" in line)
        word_embeddings = model.get_input_embeddings()
        assert isinstance(word_embeddings, torch.nn.Embedding)
        return {
            "preset": getattr(model.config, "preset", model.config.model_type),
            "seed": setup.config.seed,
            "steps": setup.steps,
            "tokens": setup.steps * self.tokens_per_step,
            "seconds": self.seconds,
            "tokens_per_second": speeds[len(speeds) // 2] if speeds else None,  # None: the log was lost
            "parameters": sum(p.numel() for p in model.parameters()),
            "embedding_parameters": word_embeddings.weight.numel(),
            "peak_memory_bytes": peak_memory(device),
            "validation_loss": validations[-1]["validation_loss"] if validations else None,
            "validation_accuracy": validations[-1]["validation_accuracy"] if validations else None,
            "device": torch.cuda.get_device_name() if device.type == "cuda" else cpu_name(),
            "precision": setup.accelerator.mixed_precision.replace("no", "fp32"),
            "processes": setup.accelerator.num_processes,
        }
