"""One plain training loop under pretraining and fine-tuning, on accelerate; batches are a pure function of the step."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from pydantic import Field
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from transformers import PreTrainedModel

from ..encoder.attention import Stacked
from ..files import write_text
from ..stop import Stopped, asked, deferring
from .checkpoints import CHECKPOINTS, drop_between, drop_old_optimizers, log_spaced, newest, restore, write_checkpoint
from .config import StrictConfig
from .finite import NotFinite, not_finite
from .memory import give_back_memory, keep_freed_memory
from .muon import Muon

CONSTANT = 0.7  # share of a trapezoid's steps after the warm-up at the peak learning rate
GIVE_BACK = 50  # steps after which free memory is given back; takes 1 % of them
Batch = dict[str, Tensor]
Show = Callable[[str, int, int, str], None]  # told how far a long work is: (what, done, in all, a word on it)
BatchAt = Callable[
    [int, int, int, int], Batch
]  # (micro step, rows of all processes, rank, world) -> this process's batch


class LoopConfig(StrictConfig):
    """What the loop itself needs; recipes extend it."""

    seed: int = Field(0, ge=0, description="seed of weights, masks and order")
    steps: int | None = Field(None, ge=1, description="budget: optimizer steps")
    batch_size: int = Field(
        32, ge=1, description="windows per optimizer step, all processes and accumulated parts together"
    )
    accumulate: int = Field(1, ge=1, description="parts a step's batch is computed in")
    learning_rate: float = Field(4e-3, gt=0, description="peak learning rate of AdamW")
    warmup_steps: int = Field(100, ge=0, description="steps of linear warm-up")
    schedule: Literal["cosine", "linear", "trapezoid"] = Field(
        "cosine",
        description="of the learning rate after the warm-up; trapezoid: constant to 70 % of the steps, then linear",
    )
    minimum_learning_rate_ratio: float = Field(
        0.1, ge=0, le=1, description="learning rate at the end, as a share of the peak"
    )
    optimizer: Literal["adamw", "muon"] = Field("adamw", description="muon: of the hidden matrices; AdamW of all else")
    muon_scale: Literal["adamw", "spectral"] = Field(
        "adamw",
        description="size of muon's updates: adamw, entries as large as AdamW's; spectral, √max(1, rows/columns) times "
        "orthogonal",
    )
    matrix_learning_rate_scale: float = Field(
        1.0, gt=0, description="learning rate of the hidden matrices, times the peak"
    )
    matrix_steps: int | None = Field(
        None,
        ge=1,
        description="steps that matrix_learning_rate_scale is meant for: a training of N, if more, takes √(this / N) "
        "of it",
    )
    embedding_learning_rate_scale: float = Field(
        1.0, gt=0, description="learning rate of the word embeddings, times the peak"
    )
    table_learning_rate_scale: float = Field(
        1.0, gt=0, description="learning rate of the position table, times the peak"
    )
    bias_learning_rate_scale: float = Field(
        1.0, gt=0, description="learning rate of relative-bias tables, times the peak"
    )
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.01, ge=0, description="of matrices, a step: times the learning rate")
    embedding_weight_decay: float = Field(0.0, ge=0, description="of the word embeddings")
    table_weight_decay: float = Field(0.0, ge=0, description="of the position table")
    bias_weight_decay: float = Field(0.0, ge=0, description="of relative-bias tables")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    backend: Literal["sdpa", "eager", "flex_attention"] = "sdpa"
    checkpoint_every: int = Field(
        500, ge=1, description="steps between checkpoints, besides 0, those of checkpoint_steps, and the last"
    )
    checkpoint_steps: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="steps of further checkpoints; default: 1, 3, 10, 30, 100, ..."
    )
    checkpoint_minutes: float = Field(
        10.0,
        gt=0,
        description="minutes of training that a kill costs at most: a checkpoint after so long, gone with the next",
    )
    validate_every: int = Field(100, ge=1, description="steps between validations")
    log_every: int = Field(10, ge=1, description="steps between log lines")
    trackers: list[str] = Field(default_factory=list, description="accelerate trackers, for example tensorboard")


def bf16_pays(device: torch.device) -> bool:
    """Whether bfloat16 is faster than float32: on CUDA, and on CPUs with AVX512-BF16 or AMX."""
    if device.type != "cpu":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def learning_rate_factor(step: int, config: LoopConfig, steps: int) -> float:
    """Share of the peak learning rate at `step` in [0, steps): linear warm-up, then as `schedule` says."""
    warmup = min(config.warmup_steps, steps // 2)
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(steps - warmup, 1)
    if config.schedule == "cosine":
        shape = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        shape = min(1.0, (1 - progress) / (1 - CONSTANT if config.schedule == "trapezoid" else 1))
    return config.minimum_learning_rate_ratio + (1 - config.minimum_learning_rate_ratio) * shape


def make_optimizers(model: PreTrainedModel, config: LoopConfig, steps: int) -> list[torch.optim.Optimizer]:
    """AdamW over everything, or Muon over the hidden matrices and AdamW over the rest; groups with their own peak rates
    and decay.

    steps: of the whole training; long ones learn their matrices slower where `matrix_steps` says so.
    """
    slower = min(1.0, (config.matrix_steps / steps) ** 0.5) if config.matrix_steps else 1.0
    groups: dict[str, dict[str, Any]] = {
        kind: {"params": [], "lr": (peak := config.learning_rate * scale), "peak": peak, "weight_decay": decay}
        for kind, scale, decay in (
            ("matrices", config.matrix_learning_rate_scale * slower, config.weight_decay),
            ("head", 1.0, config.weight_decay),
            ("embeddings", config.embedding_learning_rate_scale, config.embedding_weight_decay),
            ("table", config.table_learning_rate_scale, config.table_weight_decay),
            ("plain", 1.0, 0.0),
            ("biases", config.bias_learning_rate_scale, config.bias_weight_decay),
        )
    }
    for name, parameter in model.named_parameters():
        positional = "relative." in name or "untied." in name
        if "position_embeddings." in name or name.endswith("untied.cls"):
            kind = "table"
        elif "_embeddings" in name:
            kind = "embeddings"
        elif positional and not name.endswith((".query.weight", ".key.weight", "norm.weight", "norm.bias")):
            kind = "biases"
        elif parameter.ndim < 2:
            kind = "plain"
        elif positional or ".layers." in f".{name}":
            kind = "matrices"
        else:
            kind = "head"
        groups[kind]["params"].append(parameter)
    hidden = [groups.pop("matrices")] if config.optimizer == "muon" else []
    rest = [group for group in groups.values() if group["params"]]
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.AdamW(rest, betas=config.betas, eps=config.epsilon, fused=True)
    ]
    if hidden:
        stacked = {id(module.weight): list(module.rows) for module in model.modules() if isinstance(module, Stacked)}
        hidden[0]["rows"] = [stacked.get(id(p), [len(p)]) for p in hidden[0]["params"]]
        optimizers.append(Muon(hidden, scale=config.muon_scale))
    return optimizers


def processes() -> PartialState:
    """This process among those that a launcher started; on machines without CUDA they are joined over gloo."""
    return PartialState(cpu=_on_cpu())


def _on_cpu() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.cuda.is_available()


def make_accelerator(config: LoopConfig, out: Path | None = None) -> Accelerator:
    """Device and precision as configured; `auto` picks bf16 where it pays."""
    AcceleratorState._reset_state()  # it would refuse a precision unlike that of an earlier training of this process
    bf16 = config.precision == "bf16" or (config.precision == "auto" and bf16_pays(processes().device))
    return Accelerator(
        cpu=_on_cpu(), mixed_precision="bf16" if bf16 else "no", log_with=config.trackers or None, project_dir=out
    )


class Trainer:
    """Model, optimizers and accelerator of one run, and the single step that all of them share."""

    def __init__(self, model: PreTrainedModel, config: LoopConfig, steps: int, out: Path | None = None) -> None:
        self.config, self.steps = config, steps
        keep_freed_memory()
        self.accelerator = make_accelerator(config, out)
        model.set_attn_implementation(config.backend)
        model.to(self.accelerator.device)
        self.plain = model
        self.model = self.accelerator.prepare_model(model)
        self.optimizers = make_optimizers(model, config, steps)
        world = self.accelerator.num_processes
        if config.batch_size % (world * config.accumulate):
            raise ValueError(
                f"batch_size must be a multiple of processes × accumulate: batch_size={config.batch_size}, "
                f"processes={world}, accumulate={config.accumulate}."
            )
        self.rows = config.batch_size // (world * config.accumulate)

    def micro_batches(self, batch_at: BatchAt, step: int) -> list[Batch]:
        """This process's parts of the batch of `step`: together, in all processes, always the same windows."""
        a = self.accelerator
        return [
            batch_at(
                step * self.config.accumulate + part, self.rows * a.num_processes, a.process_index, a.num_processes
            )
            for part in range(self.config.accumulate)
        ]

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
            with nullcontext() if last else accelerator.no_sync(self.model):
                with accelerator.autocast():
                    loss = self.model(**batch).loss
                accelerator.backward(loss * (count * accelerator.num_processes / total))
            loss_sum += loss.detach() * count
        loss_value = float(accelerator.reduce(loss_sum, reduction="sum") / total)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if not math.isfinite(loss_value) or not bool(norm.isfinite()):
            raise NotFinite(loss_value, float(norm), not_finite(self.plain))
        torch.nn.utils.clip_grads_with_norm_(parameters, self.config.clip, norm)
        factor = learning_rate_factor(step, self.config, self.steps)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % GIVE_BACK == GIVE_BACK - 1:
            give_back_memory()
        return loss_value, float(norm)

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
    labels = batch.get("labels")
    return (
        (labels != -100).sum() if labels is not None else torch.tensor(len(batch["input_ids"])).to(batch["input_ids"])
    )


@dataclass(frozen=True)
class Outcome:
    """What a finished loop reports: `history` holds its log lines (dicts with `step` and `loss` or
    `validation_loss`)."""

    steps: int
    seconds: float
    history: list[dict[str, Any]]


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
) -> Outcome:
    """Train for `trainer.steps` steps, logging to `out/log.jsonl` and writing checkpoints to `out/checkpoints`.

    With `resume`, go on from the newest complete checkpoint (from the beginning where there is none); on CPU every
    number then equals that of an uninterrupted run. Batches, masks and order depend on the step alone, so no loader
    state exists. A checkpoint that only a signal or `checkpoint_minutes` wanted is gone when the next one is there, so
    that the checkpoints of a finished run do not depend on how it went.

    Raises:
        ValueError: the loss is not a finite number. Checkpoints written before stay.
        Stopped: a signal came (see `stop`), and the checkpoint of the step it came in is written.
    """
    config, accelerator, steps = trainer.config, trainer.accelerator, trainer.steps
    main = accelerator.is_main_process
    root, log_path = out / CHECKPOINTS, out / "log.jsonl"
    history: list[dict[str, Any]] = []
    start, before = 0, 0.0
    losses: list[float] = []  # of the steps since the last log line
    if resume:
        checkpoint, broken = newest(root)
        for line in broken:
            accelerator.print(f"Passing over a broken checkpoint: {line}")
        if checkpoint is not None:
            states = restore(checkpoint, trainer.plain, trainer.optimizers)
            rank = accelerator.process_index
            trainer.set_random_states({k.split(".")[1]: v for k, v in states.items() if k.startswith(f"{rank}.")})
            start, before = checkpoint.step, float(checkpoint.state["seconds"])
            losses = list(checkpoint.state["losses"])
            history = [line for line in _read_log(log_path) if line["step"] <= start]
    if main:
        write_text(log_path, "".join(json.dumps(line) + "\n" for line in history))
    accelerator.wait_for_everyone()
    if config.trackers:
        accelerator.init_trackers("whatwhere")
    marks = log_spaced(steps) if config.checkpoint_steps is None else set(config.checkpoint_steps)
    began = time.perf_counter()

    def log(line: dict[str, Any]) -> None:
        history.append(line)
        if main:
            with log_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if config.trackers:
                accelerator.log({k: v for k, v in line.items() if k != "step"}, step=line["step"])

    def planned(step: int) -> bool:
        return step in marks or step in (0, steps) or step % config.checkpoint_every == 0

    def save(step: int) -> None:
        if where := not_finite(trainer.plain):  # what the step made of its weights has not been seen yet
            raise ValueError(
                f"Step {step} of {label} left {where} not finite. Lower --set learning_rate= (now "
                f"{config.learning_rate:g}) or --set precision=fp32; checkpoints before are in {root}."
            )
        states = [trainer.random_states()]
        if accelerator.num_processes > 1:
            states = _gather_states(states[0])
        if main:
            flat = {f"{rank}.{name}": value for rank, each in enumerate(states) for name, value in each.items()}
            state = {"seconds": before + time.perf_counter() - began, "losses": losses}
            write_checkpoint(root, step, trainer.plain, trainer.optimizers, flat, state)
            drop_between(root, planned)
            drop_old_optimizers(root)
        accelerator.wait_for_everyone()

    def evaluate(step: int) -> None:
        if validate is not None:
            log({"step": step, "tokens": step * tokens_per_step, **validate(trainer)})

    if start == 0:
        if not (root / "step-0").is_dir() or not resume:
            save(0)
        if not history:
            evaluate(0)
    with (
        deferring(),
        _bar(label, start, progress if main else False) as show,
        ThreadPoolExecutor(1) as ahead,
    ):
        upcoming = ahead.submit(trainer.micro_batches, batch_at, start) if start < steps else None
        marked, window = time.perf_counter(), 0
        saved = marked
        for step in range(start, steps):
            assert upcoming is not None
            batches = upcoming.result()
            if step + 1 < steps:
                upcoming = ahead.submit(trainer.micro_batches, batch_at, step + 1)
            try:
                loss, norm = trainer.step(step, batches)
            except NotFinite as error:
                way_out = f"Lower --set learning_rate= (now {config.learning_rate:g}) or --set precision=fp32"
                if step == 0:
                    way_out = (
                        "No weight has changed yet, so the formula is at fault, not learning_rate: whatwhere explain "
                        "NAME --scheme FILE tries an own one"
                    )
                raise ValueError(
                    f"{error} at step {step + 1} of {label}{f', in {error.where}' if error.where else ''}. {way_out}; "
                    f"checkpoints up to here are in {root}."
                ) from None
            losses.append(loss)
            window += 1
            done = step + 1
            if done % config.log_every == 0 or done == steps:
                now = time.perf_counter()
                rate = window * tokens_per_step / (now - marked)
                marked, window = now, 0
                mean = sum(losses) / len(losses)
                entry = {"step": done, "tokens": done * tokens_per_step, "loss": mean}
                log({**entry, "gradient_norm": norm, "learning_rate": _rate(trainer), "tokens_per_second": rate})
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
    if config.trackers:
        accelerator.end_training()
    return Outcome(steps, before + time.perf_counter() - began, history)


@contextmanager
def _bar(label: str, start: int, progress: bool | Show) -> Iterator[Show]:
    """Where to show how far the training is: as told, or a bar on stderr."""
    if callable(progress):
        yield progress
        return
    with bars(disable=not progress) as bar:
        task = bar.add_task(label, total=None, completed=start, word="")
        yield lambda what, done, total, word: bar.update(task, completed=done, total=total, word=word)


def bars(**options: Any) -> Progress:
    """Bars on stderr, each with its label, how far it is, a `word`, and the time that it took and still takes."""
    share = TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn()
    times = TextColumn("{task.fields[word]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    return Progress(*share, *times, console=Console(stderr=True), **options)


def _agreed(accelerator: Accelerator, *votes: bool) -> list[bool]:
    """What any process of the training says: all must write a checkpoint after the same step."""
    if accelerator.num_processes == 1:
        return list(votes)
    summed: Tensor = accelerator.reduce(torch.tensor(votes, dtype=torch.float32, device=accelerator.device), "sum")
    return [vote > 0 for vote in summed.tolist()]


def _rate(trainer: Trainer) -> float:
    return float(trainer.optimizers[0].param_groups[0]["lr"])


def _read_log(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a log; a line cut off by a crash is dropped."""
    lines = []
    if path.is_file():
        for text in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
    return lines


def _gather_states(states: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    gathered: list[dict[str, Tensor]] = [{} for _ in range(torch.distributed.get_world_size())]
    # Bytes, not objects: object collectives would pickle.
    for name in sorted(states):
        mine = states[name].to(torch.uint8).contiguous()
        parts = [torch.empty_like(mine) for _ in gathered]
        torch.distributed.all_gather(parts, mine)
        for rank, part in enumerate(parts):
            gathered[rank][name] = part
    return gathered


def seconds_per_step(model: PreTrainedModel, config: LoopConfig, batch_at: BatchAt, repeats: int = 5) -> float:
    """Median time of a training step of `model` (whose weights are changed), after one warm-up step."""
    trainer = Trainer(model, config, steps=repeats + 1)
    times = []
    for step in range(repeats + 1):
        batches = trainer.micro_batches(batch_at, step)
        began = time.perf_counter()
        trainer.step(step, batches)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[repeats // 2]
