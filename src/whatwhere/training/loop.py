"""One plain training loop under pretraining and fine-tuning, on accelerate; batches are a pure function of the step."""

import contextlib
import ctypes
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from accelerate.tracking import get_available_trackers
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

from ..models.tensors import not_finite, whole
from ..run.files import append_line, flush_file, write_arrays, write_text
from ..run.progress import Show, training_bar
from ..run.signals import Stopped, asked, deferring
from ..run.status import step_lines
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
from .optimizers import learning_rate_factor, make_optimizers
from .settings import LoopConfig
from .sharding import check_launcher, gather_states, shard, whole_model

GIVE_BACK = 50  # steps after which free memory is given back; takes 1 % of them
Batch = dict[str, Tensor]
BatchAt = Callable[[int, int, int, int], Batch]  # (micro step, rows of all processes, rank, world) -> this process's


def bf16_pays(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32: on CUDA, and on CPUs with AVX512-BF16 or AMX."""
    if device.type != "cpu":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def processes() -> PartialState:
    """This process among those that a launcher started; on machines without CUDA they are joined over gloo."""
    return PartialState(cpu=_on_cpu())


def _on_cpu() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.cuda.is_available()


def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep what is freed for the next step.

    By default every large tensor comes as fresh pages from the system, and faulting them in took up to a third of a
    training step on a CPU (docs/log.md). The price: memory once used stays with the process. Does nothing where the
    allocator is another.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: blocks below 1 GiB come from the heap
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: and the heap is not given back


def give_back_memory() -> None:
    """Give what is free of the heap back to the system: the largest tensors change with the number of hidden words,
    which leaves holes, so that a tiny encoder's process grew from 1.1 GB after 25 steps to 2.5 GB after 600."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not installed here; accelerate would only warn.

    Raises:
        ValueError: names the first of them.
    """
    there = [str(each.value) for each in get_available_trackers()]
    for name in names:
        if name not in there:
            way_out = "pip install 'whatwhere[trackers]' brings tensorboard and trackio"
            raise ValueError(f"No tracker {name!r} is installed here; {', '.join(there) or 'none'} is. {way_out}.")


class NotFinite(ValueError):
    """A step whose loss or gradient is not finite, before it changed any weight; `where` says in which parameter."""

    def __init__(self, loss: float, norm: float, where: str) -> None:
        super().__init__(f"Loss is {loss}, gradient norm {norm}")
        self.where = where


class Trainer:
    """Model, optimizers and accelerator of one run, and the single step that all of them share."""

    def __init__(self, model: PreTrainedModel, config: LoopConfig, steps: int, out: Path | None = None) -> None:
        self.config, self.steps = config, steps
        check_trackers(config.trackers)
        check_launcher()
        keep_freed_memory()
        if config.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
        torch.use_deterministic_algorithms(config.deterministic)
        AcceleratorState._reset_state()  # it would refuse a precision unlike that of an earlier training here
        bf16 = config.precision == "bf16" or (config.precision == "auto" and bf16_pays(processes().device))
        trackers, precision = config.trackers or None, "bf16" if bf16 else "no"
        self.accelerator = Accelerator(cpu=_on_cpu(), mixed_precision=precision, log_with=trackers, project_dir=out)
        model.set_attn_implementation(config.backend)
        model.to(self.accelerator.device)
        self.plain, self.kind, self.shared = model, type(model), config.sharding == "full"
        if self.shared:  # not by accelerate, whose plugin takes the optimizers out of our hands
            shard(model, self.accelerator.device, self.accelerator.num_processes, self.accelerator.state.dynamo_plugin)
        self.model = model if self.shared else self.accelerator.prepare_model(model)
        self.optimizers = make_optimizers(model, config, steps)
        world = self.accelerator.num_processes
        self.rows, left = divmod(config.batch_size, world * config.accumulate)
        if left:
            raise ValueError(
                f"batch_size must be a multiple of processes × accumulate: batch_size={config.batch_size}, "
                f"processes={world}, accumulate={config.accumulate}."
            )

    def micro_batches(self, batch_at: BatchAt, step: int) -> list[Batch]:
        """This process's parts of the batch of `step`: together, in all processes, always the same windows."""
        rank, world, parts = self.accelerator.process_index, self.accelerator.num_processes, self.config.accumulate
        return [batch_at(step * parts + part, self.rows * world, rank, world) for part in range(parts)]

    def step(self, step: int, batches: list[Batch]) -> tuple[float, float]:
        """One optimizer step; returns the mean loss over all labelled tokens of the batch and the gradient's norm.

        Each part's mean loss is weighted by its number of labels (of rows, where it has no `labels`: spans), so that
        neither accumulation nor the number of processes changes the gradient.

        Raises:
            NotFinite: the loss or the gradient is no finite number; the weights are as before.
        """
        accelerator = self.accelerator
        self.model.train()
        batches = [{key: value.to(accelerator.device) for key, value in batch.items()} for batch in batches]
        counts = [_labelled(batch) for batch in batches]
        total = accelerator.reduce(torch.stack(counts).sum(), reduction="sum").clamp(min=1)
        loss_sum = torch.zeros((), device=accelerator.device)
        for part, (batch, count) in enumerate(zip(batches, counts, strict=True)):
            last = part == len(batches) - 1
            if self.shared:
                cast(FSDPModule, self.model).set_requires_gradient_sync(last)
            with contextlib.nullcontext() if last or self.shared else accelerator.no_sync(self.model):
                with accelerator.autocast():
                    loss = self.model(**batch).loss
                accelerator.backward(loss * (count * accelerator.num_processes / total))
            loss_sum += loss.detach() * count
        loss_value = float(accelerator.reduce(loss_sum, reduction="sum") / total)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        length = float(whole(norm))
        if not math.isfinite(loss_value) or not math.isfinite(length):
            raise NotFinite(loss_value, length, not_finite(self.plain))
        torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip, norm)
        factor = learning_rate_factor(step, self.config, self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % GIVE_BACK == GIVE_BACK - 1:
            give_back_memory()
        return loss_value, length

    def whole(self) -> Any:
        """The model as it is saved; of a shared one, for which all must ask, a copy in the first process alone."""
        main = self.accelerator.is_main_process
        return whole_model(self.plain, self.kind, main) if self.shared else self.plain

    def random_states(self) -> dict[str, Tensor]:
        """States of this process's random generators (dropout draws from them)."""
        states = {"cpu": torch.get_rng_state()}
        if self.accelerator.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def set_random_states(self, states: dict[str, Tensor]) -> None:
        """Undo what happened to the generators since `random_states`."""
        torch.set_rng_state(states["cpu"])
        if "cuda" in states and self.accelerator.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"])


def _labelled(batch: Batch) -> Tensor:
    """What the loss of a batch is a mean over: its labels, or its rows where the model names them otherwise."""
    if "labels" in batch:
        return (batch["labels"] != -100).sum()
    return torch.tensor(len(batch["input_ids"])).to(batch["input_ids"])


@torch.no_grad()
def validation(trainer: Trainer, batches: Iterable[Batch]) -> tuple[float, int, int]:
    """Mean loss of a label, how many labels are predicted right, and how many there are (-100 is none)."""
    trainer.plain.eval()
    total, correct, labels = 0.0, 0, 0
    for batch in batches:
        batch = {key: value.to(trainer.accelerator.device) for key, value in batch.items()}
        with trainer.accelerator.autocast():
            output = trainer.plain(**batch)
        targets = batch["labels"][batch["labels"] != -100]
        total += float(output.loss) * len(targets)
        correct += int((output.logits.argmax(-1) == targets).sum())
        labels += len(targets)
    return total / max(labels, 1), correct, labels


def run(
    trainer: Trainer,
    batch_at: BatchAt,
    out: Path,
    *,
    tokens_per_step: int,
    validate: Callable[[Trainer], dict[str, float]] | None = None,
    resume: bool = False,
    label: str = "training",
    progress: bool | Show = True,
) -> dict[str, Any]:
    """Train, log to `out/log.jsonl` and write checkpoints to `out/checkpoints`; returns the facts of every summary.

    With `resume`, go on from the newest complete checkpoint (from the beginning where there is none); on CPU every
    number then equals that of an uninterrupted run. Batches, masks and order depend on the step alone, so no loader
    state exists. A checkpoint that only a signal or `checkpoint_minutes` wanted is gone when the next one is there, so
    that the checkpoints of a finished run do not depend on how it went. The weights are the same in all processes.

    Raises:
        ValueError: the loss is not a finite number. Checkpoints written before stay.
        Stopped: a signal came (see `stop`), and the checkpoint of the step it came in is written.
    """
    config, accelerator, steps = trainer.config, trainer.accelerator, trainer.steps
    main, rank = accelerator.is_main_process, accelerator.process_index
    root, log_path = out / CHECKPOINTS, out / "log.jsonl"
    if rank:  # dropout of its own in each process
        torch.manual_seed((config.seed << 16) + rank)
    if "ACCELERATE_MIXED_PRECISION" in os.environ and "WORLD_SIZE" not in os.environ:
        print(
            "accelerate launch has started one process; on CPUs it starts several only through mpirun. "
            "torchrun --nproc-per-node N -m whatwhere ... starts N.",
            file=sys.stderr,
        )
    _forget_peak_memory()
    history: list[dict[str, Any]] = []
    checkpoint, start, before = None, 0, 0.0
    losses: list[float] = []  # of the steps since the last log line
    if resume:
        checkpoint, broken = newest(root)
        for line in broken:
            accelerator.print(f"Passing over a broken checkpoint: {line}", file=sys.stderr)
        if checkpoint is not None:
            states = restore(checkpoint, trainer.plain, trainer.optimizers)
            mine = {k.split(".")[1]: v for k, v in states.items() if k.startswith(f"{rank}.")}
            if mine:  # a process more than before has none and begins with its own seed
                trainer.set_random_states(mine)
            start, before = checkpoint.step, float(checkpoint.state["seconds"])
            losses = list(checkpoint.state["losses"])
            history = [line for line in step_lines(log_path) if line["step"] <= start]
            if start and not history:
                accelerator.print(
                    f"{log_path} lacks the steps up to {start:,}: its curves begin there", file=sys.stderr
                )
    accelerator.wait_for_everyone()  # all have looked at the checkpoints
    if main:
        drop_after(root, start)  # broken ones would count as the newest, and what is written now as old
        write_text(log_path, "".join(json.dumps(line) + "\n" for line in history))
    accelerator.wait_for_everyone()
    if config.trackers:
        accelerator.init_trackers("whatwhere")
    marks = log_spaced(steps) if config.checkpoint_steps is None else set(config.checkpoint_steps)
    began = time.perf_counter()

    def seconds() -> float:
        return before + time.perf_counter() - began

    def log(line: dict[str, Any]) -> None:
        history.append(line)
        if main:
            append_line(log_path, line)
            if config.trackers:
                accelerator.log({k: v for k, v in line.items() if k != "step"}, step=line["step"])

    def planned(step: int) -> bool:
        return step in marks or step in (0, steps) or step % config.checkpoint_every == 0

    def save(step: int) -> None:
        if where := not_finite(trainer.plain):  # what the step made of its weights has not been seen yet
            raise ValueError(
                f"Step {step} of {label} left {where} not finite. Lower --set learning_rate= (now "
                f"{config.learning_rate:g}) or --set precision=fp32; {_last_good(root)}."
            )
        states = [trainer.random_states()]
        if accelerator.num_processes > 1:
            states = gather_states(states[0], accelerator.device)
        if main:
            flush_file(log_path)  # a checkpoint stands on it
        model, packed = trainer.whole(), pack(trainer.optimizers)
        shares = accelerator.num_processes if trainer.shared else 1
        if shares > 1 and not main:
            write_share(root, step, packed, rank, shares)
        accelerator.wait_for_everyone()
        if main:
            flat = {f"{rank}.{name}": value for rank, each in enumerate(states) for name, value in each.items()}
            state = {"seconds": seconds(), "losses": losses}
            write_checkpoint(root, step, model, packed, flat, state, shares)
            drop_between(root, planned)
            drop_old_optimizers(root)
        accelerator.wait_for_everyone()

    def evaluate(step: int) -> None:
        if validate is not None:
            log({"step": step, "tokens": step * tokens_per_step, **validate(trainer)})

    if start == 0:
        if checkpoint is None:
            save(0)
        if not history:
            evaluate(0)
    with deferring(), training_bar(label, start, progress if main else False) as show, ThreadPoolExecutor(1) as ahead:
        upcoming = ahead.submit(trainer.micro_batches, batch_at, start) if start < steps else None
        marked, window, waited = time.perf_counter(), 0, 0.0
        saved = marked
        for step in range(start, steps):
            assert upcoming is not None
            waiting = time.perf_counter()
            batches = upcoming.result()
            waited += time.perf_counter() - waiting
            if step + 1 < steps:
                upcoming = ahead.submit(trainer.micro_batches, batch_at, step + 1)
            try:
                loss, norm = trainer.step(step, batches)
            except NotFinite as error:
                way_out = f"Lower --set learning_rate= (now {config.learning_rate:g}) or --set precision=fp32"
                if step == 0:
                    way_out = "No weight has changed yet, so the formula is at fault, not learning_rate: "
                    way_out += "whatwhere explain NAME --scheme FILE tries an own one"
                place = f"step {step + 1} of {label}{f', in {error.where}' if error.where else ''}"
                write_arrays(out / f"not-finite-{rank}.npz", _arrays(batches))
                raise ValueError(
                    f"{error} at {place}. {way_out}; {_last_good(root)}, and the "
                    f"step's batch in {out / f'not-finite-{rank}.npz'}."
                ) from None
            losses.append(loss)
            window += 1
            done = step + 1
            if done % config.log_every == 0 or done == steps:
                now = time.perf_counter()
                rate, wait = window * tokens_per_step / (now - marked), waited / (now - marked)
                marked, window, waited = now, 0, 0.0
                mean, of_adamw = sum(losses) / len(losses), float(trainer.optimizers[0].param_groups[0]["lr"])
                entry = {"step": done, "tokens": done * tokens_per_step, "loss": mean, "gradient_norm": norm}
                entry |= {"learning_rate": of_adamw, "tokens_per_second": rate, "waiting": wait}
                log({**entry, "memory_peak_bytes": _peak_memory_here(trainer)})
                losses.clear()
                show("training", done, steps, f"loss {mean:.3f}  {rate:,.0f} tokens/s")
            # Pauses for validation and checkpoints do not count as training speed.
            if done % config.validate_every == 0 or done == steps:
                pause = time.perf_counter()
                evaluate(done)
                marked += time.perf_counter() - pause
            pause = time.perf_counter()
            stop, due = _agreed(accelerator, asked() is not None, pause - saved > 60 * config.checkpoint_minutes)
            if planned(done) or stop or due:
                save(done)
                saved = time.perf_counter()
                marked += saved - pause
            if stop:
                raise Stopped(f"after step {done:,} of {label}, with a checkpoint")
    if main and resume:  # a crash may have kept the last checkpoint from it
        drop_between(root, planned)
        drop_old_optimizers(root)
    if config.trackers:
        accelerator.end_training()
    return _facts(trainer, history, seconds(), steps * tokens_per_step)


def _facts(trainer: Trainer, history: list[dict[str, Any]], seconds: float, tokens: int) -> dict[str, Any]:
    model, on_gpu = trainer.plain, trainer.accelerator.device.type == "cuda"
    validated = [line for line in history if "validation_loss" in line]
    rates = sorted(line["tokens_per_second"] for line in history if "tokens_per_second" in line)
    words = model.get_input_embeddings()
    assert isinstance(words, torch.nn.Embedding)
    return {
        "preset": getattr(model.config, "preset", model.config.model_type),
        "seed": trainer.config.seed,
        "steps": trainer.steps,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": rates[len(rates) // 2] if rates else None,  # its log was lost
        "parameters": sum(p.numel() for p in model.parameters()),
        "embedding_parameters": words.weight.numel(),
        "peak_memory_bytes": _peak_memory_here(trainer),
        "validation_loss": validated[-1]["validation_loss"] if validated else None,
        "validation_accuracy": validated[-1]["validation_accuracy"] if validated else None,
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "precision": trainer.accelerator.mixed_precision.replace("no", "fp32"),
        "processes": trainer.accelerator.num_processes,
    }


def _forget_peak_memory() -> None:
    """Start measuring the peak anew, so that a model in a study does not inherit that of the one before."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # Linux: 5 resets the high-water mark of the resident memory
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_memory_here(trainer: Trainer) -> int:
    """Of the accelerator where there is one, else of this process."""
    on_gpu = trainer.accelerator.device.type == "cuda"
    return torch.cuda.max_memory_allocated() if on_gpu else _peak_memory()


def _peak_memory() -> int:
    """Largest resident memory in bytes since `_forget_peak_memory`; of the process's life where that has no effect."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _agreed(accelerator: Accelerator, *votes: bool) -> list[bool]:
    """What any process of the training says: all must write a checkpoint after the same step."""
    if accelerator.num_processes == 1:
        return list(votes)
    summed: Tensor = accelerator.reduce(torch.tensor(votes, dtype=torch.float32, device=accelerator.device), "sum")
    return [vote > 0 for vote in summed.tolist()]


def _last_good(root: Path) -> str:
    there = all_checkpoints(root)
    return f"the last good checkpoint is {there[-1]}" if there else "there is no checkpoint yet"


def _arrays(batches: Sequence[Batch]) -> dict[str, np.ndarray]:
    """The parts of a step's batch, for inspection: PART.NAME."""
    return {f"{i}.{name}": value.cpu().numpy() for i, batch in enumerate(batches) for name, value in batch.items()}
