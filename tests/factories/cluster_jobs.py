"""Jobs that need nothing but Python, so that a worker begins one at once."""

import os
import signal
import time
from pathlib import Path


def rest(seconds: float, progress) -> tuple[int, float, float]:
    """Sleep; return the process, when it began and when it ended."""
    begun = time.monotonic()
    time.sleep(seconds)
    return os.getpid(), begun, time.monotonic()


def wait_in(folder: str, progress) -> int:
    """Leave the number of this process in a folder, and return it once there is the number of another one."""
    (Path(folder) / str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < 2:
        progress(0, 1)
        time.sleep(0.05)
    return os.getpid()


def end_process(number: int, progress) -> None:
    """Send a signal to this process."""
    os.kill(os.getpid(), number)
    signal.pause()


def take_memory(size: int, progress) -> int:
    """Take more and more memory."""
    taken = []
    for done in range(0, size, 10**8):
        taken.append(b"x" * 10**8)
        progress(done, size)
        time.sleep(0.1)
    return len(taken)
