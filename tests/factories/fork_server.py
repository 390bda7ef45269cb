"""Processes of their own that start in a tenth of a second: a server that has imported everything forks them.

A new interpreter takes seconds to import torch and transformers. What a test wants of a process of its own - that it
can be killed, that several talk to each other - does not depend on how it came to be; where it does, `cli_runner` has
the command as a shell would give it. The server itself has run nothing, so that there is no thread to lose in a fork.
"""

import itertools
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest import mock

from cli_runner import environment

CONTEXT = multiprocessing.get_context("forkserver")
PRELOADED = [
    "whatwhere.cli.show",
    "whatwhere.study.study",
    "whatwhere.training.pretrain",
    "torch.distributed",
    "transformers",
]
CONTEXT.set_forkserver_preload(PRELOADED)
LONGEST = 600  # seconds until a process that hangs is an error; none takes a tenth of it


class Processes:
    """Running processes that do the same work, joined as torch's launcher joins them where they are several."""

    def __init__(self, work: Callable[..., object], *arguments: str, count: int = 1) -> None:
        with tempfile.NamedTemporaryFile(delete=False) as file:
            self.output = Path(file.name)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.processes: list[BaseProcess] = []
        for rank in range(count):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            joined = {key: str(value) for key, value in place.items()} if count > 1 else {}
            values = environment() | joined | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            process = CONTEXT.Process(target=_run, args=(work, arguments, values, str(self.output)))
            process.start()
            self.processes.append(process)

    def running(self) -> bool:
        """Whether every process still runs."""
        return all(process.is_alive() for process in self.processes)

    def kill_after(self, path: Path) -> None:
        """kill -9 of every process as soon as a file or folder is there."""
        self.wait_for(path)
        self.kill()

    def wait_for(self, *paths: Path) -> None:
        """Until all these files or folders are there."""
        end = time.monotonic() + LONGEST
        while not all(path.exists() for path in paths):
            assert self.running() and time.monotonic() < end, self.printed()
            time.sleep(0.002)

    def kill(self) -> None:
        """kill -9 of every process."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(LONGEST)

    def finish(self) -> None:
        """Wait for the end, which must be a good one."""
        assert self.statuses() == [0] * len(self.processes), self.printed()

    def statuses(self) -> list[int | None]:
        """How each of them ended, waited for."""
        for process in self.processes:
            process.join(LONGEST)
        return [process.exitcode for process in self.processes]

    def printed(self) -> str:
        """The end of what they printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-2000:]


def command(
    *arguments: str, count: int = 1, held_before: int | None = None, signalled: tuple[int, ...] = ()
) -> Processes:
    """The command line in so many processes; held before its so manieth training step, for whoever is to kill it.

    Without that a test that waits for a checkpoint would find the run finished where the machine has no time for it.

    signalled: a step, and the signals that each process gets while it takes that step.
    """
    return Processes(
        _whatwhere, str(held_before or ""), ",".join(map(str, map(int, signalled))), *arguments, count=count
    )


def _whatwhere(held_before: str, signalled: str, *arguments: str) -> None:
    from whatwhere.cli import main
    from whatwhere.training.loop import Trainer

    take = Trainer.take_step
    taken = itertools.count(1)
    at, *signals = map(int, signalled.split(",")) if signalled else (0,)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background with it ignored

    def step(*given: Any) -> tuple[float, float]:
        now = next(taken)
        if str(now) == held_before:
            time.sleep(LONGEST)
        for number in signals if now == at else ():
            signal.raise_signal(number)
        return take(*given)

    sys.argv = ["whatwhere", *arguments]
    with mock.patch.object(Trainer, "take_step", step):
        main()


def _run(work: Callable[..., object], arguments: tuple[str, ...], values: dict[str, str], output: str) -> None:
    with open(output, "a", encoding="utf-8") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(values)
    # Where a pool of workers was the first to start the server, it began with Ctrl-C blocked, and so would this
    # process: a test that sends it waited until LONGEST.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    work(*arguments)
