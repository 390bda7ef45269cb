"""FSDP2: each process keeps a share of every weight, gradient and optimizer state, and puts a block's weights together
only while it computes it (torch's `fully_shard`, Zhao et al. 2023). Checkpoints are whole, so that they do not depend
on how many processes wrote them."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel


def shard(model: PreTrainedModel, device: torch.device, processes: int) -> None:
    """Share a model, in place, among the processes of a training; it must be equal in all of them.

    Raises:
        ValueError: there is one process.
    """
    if processes == 1:
        raise ValueError(
            "sharding=full shares a model among processes, and there is one. Start several (torchrun --nproc-per-node "
            "2 -m whatwhere ...), or --set sharding=none."
        )
    mesh = init_device_mesh(device.type, (processes,))
    for block in getattr(model.base_model, "layers", ()):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # and what is in no block


def whole(value: Tensor) -> Tensor:
    """A tensor of which this process may have a share only: all of it. All processes must ask for it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def own_rows(value: Tensor, like: DTensor) -> Tensor:
    """The share of a whole tensor that this process has of `like`."""
    parts, place = value.chunk(like.device_mesh.size()), like.device_mesh.get_local_rank()
    return parts[place] if place < len(parts) else value[:0]


def shared(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor in the form of `like`: whole, or this process's share."""
    if not isinstance(like, DTensor) or value.shape != like.shape:  # counts of steps are whole everywhere
        return value
    own = own_rows(value, like).to(like.device, copy=True)
    mesh, places = like.device_mesh, like.placements
    return DTensor.from_local(own, mesh, places, run_check=False, shape=like.shape, stride=like.stride())


def shared_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights by name in the form that a model has them."""
    own = model.state_dict()
    return {name: shared(value, own[name]) if name in own else value for name, value in weights.items()}


def whole_model(model: PreTrainedModel, kind: type[PreTrainedModel]) -> PreTrainedModel:
    """A copy of a shared model, of the class that it was of, on the CPU: to be saved. All processes must ask for it."""
    weights = {name: whole(value).cpu() for name, value in model.state_dict().items()}
    with torch.device("meta"):
        copy = kind(model.config)
    copy.load_state_dict(weights, assign=True)
    copy.tie_weights()
    return copy
