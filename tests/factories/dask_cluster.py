"""A scheduler and workers of Dask on this machine, each a process of its own that a test can strike."""

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from cli_runner import environment

LONGEST = 300  # seconds until something that does not come is an error


PRELOAD = ("--preload", "whatwhere.study.model_task")  # options with which the first job need not wait for its imports
FORKS = {"DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}  # a worker that died is back at once


class DaskCluster:
    """A scheduler, whose file is `file`, and its workers; what they print lies beside it."""

    def __init__(self, folder: Path, workers: int, *options: str, **variables: str) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.variables = variables
        self.workers: list[subprocess.Popen[bytes]] = []
        self.numbers = count()  # of the commands that started workers
        self.scheduler = self._start("scheduler", "--port", "0", log=folder / "scheduler.log")
        wait_for(self.file.is_file)
        for log in [self.add_worker(*options) for _ in range(workers)]:
            wait_for_worker(log)

    def add_worker(self, *options: str) -> Path:
        """Start a worker of one thread; return the file of what it prints."""
        name = f"worker-{next(self.numbers)}"
        threads = () if "--nthreads" in options else ("--nthreads", "1")
        log = self.folder / f"{name}.log"
        self.workers.append(
            self._start("worker", "--local-directory", str(self.folder / name), *threads, *options, log=log)
        )
        return log

    def _start(self, kind: str, *options: str, log: Path) -> "subprocess.Popen[bytes]":
        page = ("--dashboard-address", ":0") if kind == "scheduler" else ("--no-dashboard",)
        place = (*page, "--scheduler-file", str(self.file))
        return start_dask(kind, *place, *options, log=log, variables=self.variables)

    def pids(self) -> list[int]:
        """Processes of the workers."""
        from distributed import Client

        with Client(scheduler_file=str(self.file), set_as_default=False) as client:
            return list(client.run(os.getpid).values())

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


def start_dask(
    kind: str, *options: str, log: Path, variables: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start `dask scheduler` or `dask worker`; a worker finds the jobs of this file."""
    paths = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-W", "ignore", "-m", f"distributed.cli.dask_{kind}", *options]
    with log.open("wb") as file:
        values = environment() | {"PYTHONPATH": paths} | (variables or {})
        return subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=values)


def end(process: "subprocess.Popen[bytes]") -> None:
    """kill -9 of a process and of all below it."""
    if process.poll() is None:
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            os.kill(one.pid, signal.SIGKILL)
    process.wait(LONGEST)


def wait_for_worker(log: Path, workers: int = 1) -> None:
    """Wait until the scheduler knows the workers of a command, by what they print."""
    wait_for(lambda: log.read_bytes().count(b"Registered to") >= workers)


def processes_of(worker: "subprocess.Popen[bytes]") -> set[int]:
    """Numbers of a command's process and of all below it."""
    return {worker.pid} | {child.pid for child in psutil.Process(worker.pid).children(recursive=True)}


def wait_for(is_there) -> None:
    """Until a condition holds."""
    end = time.monotonic() + LONGEST
    while not is_there():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
