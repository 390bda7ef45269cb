"""Environment of a training: a launcher's processes and plugins, the faster precision, the installed trackers."""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from accelerate import PartialState
from accelerate.tracking import get_available_trackers


def process_group_state() -> PartialState:
    """Return the state of the launcher's process group, with this process's rank; the first call joins the group.

    Without CUDA the processes communicate by gloo.
    """
    # The main process may make the windows of a large text for hours while the others wait.
    options: dict[str, Any] = {"timeout": timedelta(days=7)} if int(os.environ.get("WORLD_SIZE", "1")) > 1 else {}
    return PartialState(cpu=must_join_on_cpu(), **options)


def must_join_on_cpu() -> bool:
    """Return whether a launcher started several processes on a machine without CUDA."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.cuda.is_available()


def warn_of_single_process() -> None:
    """Tell the user on stderr if `accelerate launch` started one process: they may have asked for several."""
    if "ACCELERATE_MIXED_PRECISION" in os.environ and "WORLD_SIZE" not in os.environ:
        print(
            "accelerate launch has started one process; on CPUs it starts several only through mpirun. "
            "torchrun --nproc-per-node N -m whatwhere ... starts N.",
            file=sys.stderr,
        )


def is_bf16_faster(device: torch.device) -> bool:
    """Return whether bfloat16 is faster than float32: on CUDA, and on CPUs with AVX512-BF16 or AMX."""
    if device.type != "cpu":
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def check_launcher() -> None:
    """Refuse plugins of accelerate's launcher that would wrap or shard the model again.

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


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not installed here; accelerate would only warn.

    Raises:
        ValueError: names the first tracker that is not installed.
    """
    installed = [str(tracker.value) for tracker in get_available_trackers()]
    for name in names:
        if name not in installed:
            raise ValueError(
                f"No tracker {name!r} is installed here; {', '.join(installed) or 'none'} is. "
                "pip install 'whatwhere[trackers]' brings tensorboard and trackio."
            )
