"""FSDP2: each process keeps a shard of every weight, gradient and optimizer state.

A block's weights are gathered only while the block computes (torch's `fully_shard`, Zhao et al. 2023), where a model
has `layers`, as ours and ModernBERT; other models' weights are gathered all at once.
"""

import os

import torch
from accelerate.utils import DynamoBackend, TorchDynamoPlugin
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from ..models.tensors import gather_whole
from .training_keys import LoopConfig


def check_launcher() -> None:
    """Refuse plugins of accelerate's launcher that would change the model behind the loop's back.

    Raises:
        ValueError: names the first such plugin.
    """
    for plugin in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if os.environ.get(name := f"ACCELERATE_USE_{plugin}", "false").lower() in ("true", "1"):
            raise ValueError(
                f"accelerate was asked for its plugin {plugin} ({name}={os.environ[name]}), which is not used here. "
                f"Launch without --use_{plugin.lower()}, and without it in accelerate's own settings; to shard a "
                "model: --set sharding=full."
            )


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
            f"processes={processes}, accumulate={config.accumulate}."
        )
    return rows


def shard(model: PreTrainedModel, device: torch.device, processes: int, dynamo: TorchDynamoPlugin) -> None:
    """Shard a model, in place, among the processes of a training; it must be equal in all of them.

    dynamo: how accelerate compiles the blocks, each by itself; the gathering of weights stays outside the graphs.
    """
    mesh = init_device_mesh(device.type, (processes,))
    for block in getattr(model.base_model, "layers", ()):
        if dynamo.backend != DynamoBackend.NO:
            block.compile(**dynamo.to_kwargs())
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # and what is in no block


def local_rows(value: Tensor) -> Tensor:
    """Return this process's rows of a sharded tensor (rows, ...), or all of a tensor that is not sharded."""
    return value.to_local() if isinstance(value, DTensor) else value


def shard_bounds(like: Tensor) -> tuple[int, int]:
    """Return the first row of this process's shard and the row after its last.

    The shard is one of `like` (rows, ...); all rows if `like` is not sharded.
    """
    if not isinstance(like, DTensor):
        return 0, len(like) if like.ndim else 0
    size = -(-len(like) // like.device_mesh.size())  # as torch.chunk divides
    first = min(like.device_mesh.get_local_rank() * size, len(like))
    return first, min(first + size, len(like))


def make_shard(rows: Tensor, like: Tensor) -> Tensor:
    """Return rows (k, ...) of this process's shard (`shard_bounds`) as a tensor that is sharded as `like` is."""
    if not isinstance(like, DTensor):
        return rows
    return DTensor.from_local(
        rows.to(like.device, copy=True),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )


def gather_model(model: PreTrainedModel, kind: type[PreTrainedModel], keep: bool) -> PreTrainedModel | None:
    """Return a copy of a sharded model on the CPU, to be saved, in the processes with `keep`; None in the others.

    All processes must call it; they gather one weight at a time. kind: class of the model before it was sharded.
    """
    weights = {}
    for name, value in model.state_dict().items():
        full = gather_whole(value)
        if keep:
            weights[name] = full.cpu()
    if not keep:
        return None
    with torch.device("meta"):
        copy = kind(model.config)
    copy.load_state_dict(weights, assign=True)
    copy.tie_weights()
    return copy


def gather_states(states: dict[str, Tensor], device: torch.device) -> list[dict[str, Tensor]]:
    """Return the `states` of every process, by rank; they travel by the device, as NCCL carries no CPU tensors."""
    gathered: list[dict[str, Tensor]] = [{} for _ in range(torch.distributed.get_world_size())]
    # Bytes, not objects: object collectives would pickle.
    for name in sorted(states):
        local_state = states[name].to(device, torch.uint8).contiguous()
        parts = [torch.empty_like(local_state) for _ in gathered]
        torch.distributed.all_gather(parts, local_state)
        for rank, part in enumerate(parts):
            gathered[rank][name] = part.cpu()
    return gathered
