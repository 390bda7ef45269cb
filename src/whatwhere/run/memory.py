"""Memory of a process: what glibc's allocator keeps, and the peak in use."""

import contextlib
import ctypes
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TRIM_EVERY = 50  # training steps after which free memory goes back to the system: this takes 1 % of their time
_M_TRIM_THRESHOLD = -1  # glibc's malloc.h
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep freed memory for the next step.

    By default every large tensor comes as fresh pages from the system, and faulting them in took up to a third of a
    training step on a CPU (docs/log.md). The price: memory once used stays with the process until `trim_heap`. Does
    nothing where the allocator is another.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        # Blocks below 1 GiB come from the heap; glibc before 2.35 takes 32 MiB at most, and 0 says that it refused.
        if mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 1 << 25):
            mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)  # the heap is given back by `trim_heap` alone


def trim_heap() -> None:
    """Give the free parts of the heap back to the system.

    The largest tensors change with the number of masked tokens, which leaves holes: a tiny encoder's process grew from
    1.1 GB after 25 steps to 2.5 GB after 600. Does nothing where the allocator is not glibc's.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def reset_peak_memory() -> None:
    """Start measuring the peak anew, so that a model of a study does not inherit an earlier model's peak."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # Linux: 5 resets the high-water mark of the resident memory
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(device: "torch.device") -> int:
    """Return the most bytes in use since `reset_peak_memory`: on a CUDA device, else resident in this process.

    Where the system cannot reset the resident peak, it is the peak of the process's life.
    """
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
