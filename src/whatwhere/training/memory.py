"""What a training tells the allocator of the system, where that is glibc's."""

import ctypes
from contextlib import suppress


def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep what is freed for the next step.

    By default every large tensor comes as fresh pages from the system, and faulting them in took up to a third of a
    training step on a CPU (docs/log.md). The price: memory once used stays with the process. Does nothing where the
    allocator is another.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL("libc.so.6").mallopt
        mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD: blocks below 1 GiB come from the heap
        mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: and the heap is not given back


def give_back_memory() -> None:
    """Give what is free of the heap back to the system.

    The number of hidden words, and with it the size of the largest tensors, changes from step to step, so that holes
    are left which the next tensor does not fit: a tiny encoder's process grew from 1.1 GB after 25 steps to 2.5 GB
    after 600.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
