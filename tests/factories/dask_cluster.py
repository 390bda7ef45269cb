"""A scheduler and workers of Dask on this machine, each a process of its own that a test can strike."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from cli_runner import environment

LONGEST = 120  # seconds until something that does not come is an error


class DaskCluster:
    """A scheduler, whose file is `file`, and its workers; what they print lies beside it."""

    def __init__(self, folder: Path, workers: int, *options: str) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--scheduler-file", str(self.file), "--port", "0")
        wait_for(self.file.is_file)
        for _ in range(workers):
            self.add_worker(*options)
        for worker in range(workers):
            log = folder / f"worker-{worker}.log"
            wait_for(lambda log=log: b"Registered to" in log.read_bytes())

    def add_worker(self, *options: str) -> None:
        """Start a worker of one thread."""
        name = f"worker-{len(self.workers)}"
        place = ("--scheduler-file", str(self.file), "--local-directory", str(self.folder / name))
        threads = () if "--nthreads" in options else ("--nthreads", "1")
        preload = ("--preload", "whatwhere.study.model_task")  # so that the first job need not wait for its imports
        self.workers.append(self._start("worker", *place, *threads, *preload, *options))

    def _start(self, kind: str, *options: str) -> "subprocess.Popen[bytes]":
        number = "" if kind == "scheduler" else f"-{len(self.workers)}"
        return start_dask(kind, "--no-dashboard", *options, log=self.folder / f"{kind}{number}.log")

    def writer_of(self, folder: Path) -> psutil.Process:
        """The process of the worker that writes to a folder."""
        wait_for((folder / ".writer").is_file)
        return psutil.Process(int((folder / ".writer").read_text().split()[0]))

    def printed(self) -> str:
        """What all of them have printed."""
        return "\n".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("*.log")))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in [*self.workers, self.scheduler]:
            end(process)


def start_dask(kind: str, *options: str, log: Path) -> "subprocess.Popen[bytes]":
    """Start `dask scheduler` or `dask worker`; a worker finds the jobs of this file."""
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{kind}", *options]
    with log.open("wb") as file:
        values = environment() | {"PYTHONPATH": paths}
        return subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=values)


def end(process: "subprocess.Popen[bytes]") -> None:
    """kill -9 of a process and of all below it."""
    if process.poll() is None:
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            os.kill(one.pid, signal.SIGKILL)
    process.wait(LONGEST)


def wait_for(is_there) -> None:
    """Until a condition holds."""
    end = time.monotonic() + LONGEST
    while not is_there():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)


def take_memory(size: int, progress) -> int:
    """A job that takes more and more memory."""
    taken = []
    for done in range(0, size, 10**8):
        taken.append(b"x" * 10**8)
        progress(done, size)
        time.sleep(0.1)
    return len(taken)
