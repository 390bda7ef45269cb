"""Jobs of a command, and the way to hand them to an executor and take their results as they finish.

Executors are this process, further processes of this machine (`processes.Processes`), or the workers of a Dask cluster
(`cluster_jobs.ClusterJobs`); `shard_pool.ShardPool` uses each of them. As in `concurrent.futures`,
`submit` returns a future.
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
# (number and label of a job, done, total, part, note); a total of None ends the job's bar, 0 is unknown.
Show = Callable[[int, str, int, int | None, str, str], None]


@dataclass(frozen=True)
class Job:
    """Piece of work of a command. Where another process does it, arguments and result must be picklable.

    label: its name on the screen. work: function of a module, which is called with `args` and, last, a `Progress`.
    threads: how many it computes on in a process of this machine; None: all that there are. On a worker it has one.
    """

    label: str
    work: Callable[..., Any]
    args: tuple[Any, ...]
    threads: int | None = None


class Executor(Protocol):
    """Processes that do jobs: this one, others of this machine, or the workers of a cluster."""

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Hand over a job, which has a number that no other job of this executor has, and return its future result."""


class ThisProcess:
    """Executor that does each job immediately, inside `submit`, in this process; `submit` raises the error of a job.

    Args:
        show: Function that gets the progress of the jobs.
        make_context: Function that returns the context in which each job runs, such as `trust_scheme_of_job`.
    """

    def __init__(self, show: Show | None = None, make_context: MakeContext = nullcontext) -> None:
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
        max_under_way: Function that returns how many jobs may be submitted and unfinished; default any number. While
            that many are, no further job is drawn.
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


def progress_of(show: Show, number: int, label: str) -> Progress:
    """Return the `Progress` of one job."""

    def progress(done: int, total: int, part: str = "", note: str = "") -> None:
        show(number, label, done, total, part, note)

    return progress


@contextmanager
def one_thread_context(make_context: MakeContext) -> Iterator[None]:
    """Run the block on one thread in the context of `make_context`; afterwards determinism is as it was before.

    A worker of a cluster does the jobs of many commands in one process.
    """
    before = _determinism()
    try:
        with make_context(), limit_threads(1):
            yield
    finally:
        if before != _determinism():  # torch's function imports its compiler, which takes a worker some five seconds
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def _determinism() -> tuple[bool, bool]:
    """Return whether torch uses deterministic algorithms alone, and whether it only warns of others."""
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


@contextmanager
def limit_threads(threads: int | None) -> Iterator[None]:
    """Limit this process to a number of threads inside the block; None leaves them as they are."""
    previous = torch.get_num_threads()
    if threads is None:
        yield
        return
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(previous)
