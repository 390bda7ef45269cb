"""Jobs of a command, and executors, whose `submit` takes a job and returns a future as in `concurrent.futures`.

An executor is this process (`ThisProcess`), further processes of this machine (`processes.Processes`), the workers of a
Dask cluster (`cluster_jobs.ClusterJobs`), or `shard_pool.ShardPool`, which uses each of the others.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from threadpoolctl import threadpool_limits

from .progress import Progress, ignore_progress

MakeContext = Callable[[], AbstractContextManager[object]]
# Takes number and label of a job, then done, total, part, note (`Progress`); a total of None ends the job's bar.
ShowProgress = Callable[[int, str, int, int | None, str, str], None]


@dataclass(frozen=True)
class Job:
    """Piece of work of a command. Where another process does the job, arguments and result must be picklable.

    label: name of the job on the screen. work: function at the top of a module, called with `args` and a `Progress` as
    the last argument. threads: threads of the job on this machine; None: all of the process. On a worker it has one.
    """

    label: str
    work: Callable[..., Any]
    args: tuple[Any, ...]
    threads: int | None = None


class Executor(Protocol):
    """Processes that do jobs: this one, others of this machine, or the workers of a cluster."""

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Hand over a job under a number that no other job of this executor has, and return its future result."""


class ThisProcess:
    """Executor that does each job in this process, inside `submit`, which raises the error of the job.

    Args:
        show: Function that gets the progress of the jobs.
        make_context: Function that returns the context manager inside which each job runs.
    """

    def __init__(self, show: ShowProgress | None = None, make_context: MakeContext = nullcontext) -> None:
        self.show = show or ignore_progress
        self.make_context = make_context

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Run the job now and return its finished future."""
        finished: Future[Any] = Future()
        with self.make_context(), limit_threads(job.threads):
            finished.set_result(job.work(*job.args, progress_of(self.show, number, job.label)))
        return finished


def submit_and_yield(
    executor: Executor, jobs: Iterable[tuple[int, Job]], max_under_way: Callable[[], int] | None = None
) -> Iterator[tuple[int, Job, "Future[Any]"]]:
    """Submit numbered jobs to an executor, and yield number, job and future of each when it finishes, in any order.

    Args:
        jobs: Numbers and jobs, which are drawn one by one.
        max_under_way: Function that returns how many jobs may be submitted and unfinished at once; None: any number.
            No further job is drawn while there are that many.
    """
    under_way: dict[Future[Any], tuple[int, Job]] = {}

    def pop_finished(timeout: float | None) -> Iterator[tuple[int, Job, "Future[Any]"]]:
        for future in wait(under_way, timeout, FIRST_COMPLETED).done:
            yield *under_way.pop(future), future

    for number, job in jobs:
        under_way[executor.submit(job, number)] = number, job
        yield from pop_finished(0)
        while max_under_way is not None and len(under_way) >= max_under_way():
            yield from pop_finished(None)
    while under_way:
        yield from pop_finished(None)


def progress_of(show: ShowProgress, number: int, label: str) -> Progress:
    """Return the `Progress` that a job calls, which passes its reports to `show`."""

    def progress(done: int, total: int, part: str = "", note: str = "") -> None:
        show(number, label, done, total, part, note)

    return progress


@contextmanager
def one_thread_context(make_context: MakeContext) -> Iterator[None]:
    """Run the block on one thread in the context of `make_context`, and restore torch's determinism afterwards.

    A worker of a cluster does the jobs of many commands, one after another, in one process.
    """
    before = _determinism()
    try:
        with make_context(), limit_threads(1):
            yield
    finally:
        if before != _determinism():  # the setter imports torch's compiler, for some five seconds
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _determinism() -> tuple[bool, bool]:
    """Return whether torch uses deterministic algorithms alone, and whether it only warns of others."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Limit this process to a number of threads inside the block; None sets no limit."""
    if threads is None:
        yield
        return
    previous = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(previous)
