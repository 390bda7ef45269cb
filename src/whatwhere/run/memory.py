"""Memory of this process: freed memory that glibc's allocator keeps, and the peak in use."""

import contextlib
import ctypes
import platform
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TRIM_EVERY = 50  # training steps between two calls of `trim_heap`, which then take 1 % of the time
_M_TRIM_THRESHOLD = -1  # glibc's malloc.h
_M_MMAP_THRESHOLD = -3


def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep freed memory for the next step.

    By default every large tensor comes as fresh pages from the system, and faulting them in took up to a third of a
    training step on a CPU (docs/log.md). The price: memory once used stays with the process until `trim_heap`. Another
    allocator is left alone.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        # Blocks below 1 GiB come from the heap. glibc before 2.35 refuses more than 32 MiB, and returns 0.
        if mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 1 << 25):
            mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)  # only `trim_heap` gives the heap back


def trim_heap() -> None:
    """Give the free parts of the heap back to the system.

    The largest tensors change with the number of masked tokens, which leaves holes: a tiny encoder's process grew from
    1.1 GB after 25 steps to 2.5 GB after 600. Another allocator is left alone.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def reset_peak_memory() -> None:
    """Forget the peak, so that `peak_memory` of a model does not include models that were trained before."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):  # Linux: 5 resets the high-water mark of the resident memory
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory(device: "torch.device") -> int:
    """Return the most bytes in use since `reset_peak_memory`: on a CUDA device, else resident in this process.

    Where the system cannot reset the resident peak, it counts from the start of the process.
    """
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024  # macOS counts bytes, other systems kibibytes
