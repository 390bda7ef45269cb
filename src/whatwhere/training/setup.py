"""State of a training: the model that its steps change, the optimizers, and the accelerator under them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor
from transformers import PreTrainedModel

from ..encoder import EncoderForMaskedLM
from ..run.memory import keep_freed_memory
from .environment import check_launcher, check_trackers, is_bf16_faster, must_join_on_cpu, process_group_state
from .optimizers import make_optimizers
from .sharding import gather_model, shard
from .training_keys import LoopConfig

MicroBatch = dict[str, Tensor]  # rows of one process
# (micro_step, rows_of_all_processes, rank, world) -> rows of this process; micro_step counts micro-batches from 0 on.
MicroBatchFunction = Callable[[int, int, int, int], MicroBatch]


def rows_of_micro_batch(config: LoopConfig, processes: int) -> int:
    """Return the rows of a micro-batch in each of the processes of a training.

    Raises:
        ValueError: a batch that does not divide among processes and micro-batches, or one process to shard a model.
    """
    if config.sharding == "full" and processes == 1:
        raise ValueError(
            "sharding=full shards a model among processes, and there is one. Start several (torchrun --nproc-per-node "
            "2 -m whatwhere ...), or set sharding=none."
        )
    rows, rest = divmod(config.batch_size, processes * config.accumulate)
    if rest:
        raise ValueError(
            f"batch_size must be a multiple of processes × accumulate: batch_size={config.batch_size}, "
            f"processes={processes}, accumulate={config.accumulate}. Change one of them."
        )
    return rows


class TrainingSetup:
    """Model, optimizers and accelerator of one training.

    Attributes:
        model: the model itself, on the accelerator's device.
        model_arguments: further arguments of the model's forward pass in training and validation.
        step_module: the module that a step calls: the model as accelerate prepared it; a sharded model itself.
        is_sharded: whether each process keeps one shard of the model (`sharding=full`).
        optimizers: optimizers of all parameters of the model.
        steps: optimizer steps of the whole training.
        rows_per_process: rows of a micro-batch in each process; a step accumulates one or more micro-batches.
    """

    def __init__(self, model: PreTrainedModel, config: LoopConfig, steps: int, out: Path | None = None) -> None:
        """Move the model to the device, shard or wrap it, and make its optimizers.

        out: folder that trackers write to.

        Raises:
            ValueError: a tracker or a launcher's plugin that does not work here, one process to shard a model, or a
                batch that does not divide among processes and micro-batches.
        """
        check_trackers(config.trackers)
        check_launcher()
        keep_freed_memory()
        _set_determinism(config.deterministic)
        self.config = config
        self.steps = steps
        self.accelerator = _make_accelerator(config, out)
        world = self.accelerator.num_processes
        self.rows_per_process = rows_of_micro_batch(config, world)

        model.set_attn_implementation(config.backend)
        model.to(self.accelerator.device)
        self.model = model
        # A step of our masked-language models projects only the labelled tokens to the vocabulary.
        self.model_arguments = {"targets_only": True} if isinstance(model, EncoderForMaskedLM) else {}
        self._model_class = type(model)  # sharding changes the model's class
        self.is_sharded = config.sharding == "full"
        if self.is_sharded:  # not by accelerate, whose plugin takes the optimizers out of our hands
            shard(model, self.accelerator.device, world, self.accelerator.state.dynamo_plugin)
            self.step_module = model
        else:
            self.step_module = self.accelerator.prepare_model(model)
        is_in_bf16 = self.accelerator.mixed_precision == "bf16"
        # Where passes are in float32, so is Muon: on most processors without bfloat16 its products took more than half
        # of a step.
        self.optimizers = make_optimizers(model, config, steps, torch.bfloat16 if is_in_bf16 else torch.float32)

    def model_to_save(self) -> Any:
        """Return the whole model, to write its folder; all processes must call it.

        For a sharded model the main process gets a copy on the CPU, and the others None.
        """
        if self.is_sharded:
            return gather_model(self.model, self._model_class, self.accelerator.is_main_process)
        return self.model

    def random_states(self) -> dict[str, Tensor]:
        """Return the states of this process's random generators by device, (bytes,) uint8; dropout draws from them."""
        states = {"cpu": torch.get_rng_state()}
        if self.accelerator.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def set_random_states(self, states: dict[str, Tensor]) -> None:
        """Set this process's random generators to what `random_states` returned, (bytes,) uint8 by device."""
        torch.set_rng_state(states["cpu"])
        if "cuda" in states and self.accelerator.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"])

    def seed_by_rank(self) -> None:
        """Seed this process by its rank, so that each process draws its own dropout.

        The main process goes on from where the drawing of weights left its generator: `pretrain` and `open_model` (of a
        fine-tuning) seeded it before.
        """
        if rank := self.accelerator.process_index:
            torch.manual_seed((self.config.seed << 16) + rank)


_made_deterministic = False  # True: a training switched the kernels on, not the program around it


def _set_determinism(is_deterministic: bool) -> None:
    """Switch deterministic kernels on, or off again where an earlier training switched them on."""
    global _made_deterministic
    if is_deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for
    if is_deterministic and not torch.are_deterministic_algorithms_enabled():
        _made_deterministic = True
        torch.use_deterministic_algorithms(True)
    if not is_deterministic and _made_deterministic:
        _made_deterministic = False
        torch.use_deterministic_algorithms(False)


def _make_accelerator(config: LoopConfig, out: Path | None) -> Accelerator:
    AcceleratorState._reset_state()  # the old state would refuse another precision than an earlier training's
    is_in_bf16 = config.precision == "bf16"
    if config.precision == "auto":
        is_in_bf16 = is_bf16_faster(process_group_state().device)
    return Accelerator(
        cpu=must_join_on_cpu(),
        mixed_precision="bf16" if is_in_bf16 else "no",
        log_with=config.trackers or None,
        project_dir=out,
    )
