"""FSDP2: each process keeps a shard of every weight, gradient and optimizer state.

A block's weights are gathered only while the block computes (torch's `fully_shard`, Zhao et al. 2023), where a model
has `layers`, as ours and ModernBERT; other models' weights are gathered all at once.
"""

import torch
from accelerate.utils import DynamoBackend, TorchDynamoPlugin
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from ..models.tensors import gather_whole


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
    """Return the first row of this process's shard of `like` (rows, ...), and the row after the shard's last.

    A tensor that is not sharded counts as one shard of all rows.
    """
    if not isinstance(like, DTensor):
        return 0, len(like) if like.ndim else 0
    size = -(-len(like) // like.device_mesh.size())  # as torch.chunk divides
    first = min(like.device_mesh.get_local_rank() * size, len(like))
    return first, min(first + size, len(like))


def make_shard(rows: Tensor, like: Tensor) -> Tensor:
    """Return the rows (k, ...) of this process's shard (`shard_bounds`) as a tensor that is sharded like `like`."""
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


def gather_model(
    model: PreTrainedModel, model_class: type[PreTrainedModel], is_main_process: bool
) -> PreTrainedModel | None:
    """Return a copy of a sharded model on the CPU in the main process, which saves it; None in the others.

    All processes must call it; they gather one weight at a time. model_class: class before the model was sharded.
    """
    weights = {}
    for name, value in model.state_dict().items():
        full = gather_whole(value)
        if is_main_process:
            weights[name] = full.cpu()
    if not is_main_process:
        return None
    with torch.device("meta"):
        copy = model_class(model.config)
    copy.load_state_dict(weights, assign=True)
    copy.tie_weights()
    return copy


def gather_states(states: dict[str, Tensor], device: torch.device) -> list[dict[str, Tensor]]:
    """Return the `states` of every process, (bytes,) uint8 by name, by rank; they travel on the device, as NCCL carries
    no CPU tensors."""
    gathered: list[dict[str, Tensor]] = [{} for _ in range(torch.distributed.get_world_size())]
    # Bytes, not objects: object collectives would pickle.
    for name in sorted(states):
        local_state = states[name].to(device, torch.uint8).contiguous()
        parts = [torch.empty_like(local_state) for _ in gathered]
        torch.distributed.all_gather(parts, local_state)
        for rank, part in enumerate(parts):
            gathered[rank][name] = part.cpu()
    return gathered
