"""Jobs of a command, and the way to hand them to an executor and take their results as they finish.

Executors are this process, further processes of this machine (`processes.Processes`), or the workers of a Dask cluster
(`cluster_jobs.ClusterJobs`). As with those of `concurrent.futures`, `submit` returns a future.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from threadpoolctl import threadpool_limits

from .progress import Progress

MakeContext = Callable[[], AbstractContextManager[object]]
Show = Callable[[int, str, int, int | None, str, str], None]  # number and label of a job, done, total, part, note


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
    """Executor that does each job at once, in this process; an error of the job is raised by `submit`.

    Args:
        show: Function that gets the progress of the jobs.
        make_context: Function that returns the context in which each job runs.
    """

    def __init__(self, show: Show | None = None, make_context: MakeContext = nullcontext) -> None:
        self.show = show or ignore_job_progress
        self.make_context = make_context

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Do a job, and return a future that holds its result."""
        finished: Future[Any] = Future()
        with self.make_context(), limit_threads(job.threads):
            finished.set_result(job.work(*job.args, progress_of(self.show, number, job.label)))
        return finished


def as_finished(
    executor: Executor, jobs: Iterable[tuple[int, Job]], most_waiting: Callable[[], int] | None = None
) -> Iterator[tuple[int, Job, "Future[Any]"]]:
    """Hand numbered jobs to an executor, and yield number, job and future of each when it finishes, in any order.

    Args:
        jobs: Numbers and jobs, which are drawn one by one.
        most_waiting: Function that returns how many jobs may be under way; default any number. No further job is
            drawn before one of so many has finished.
    """
    waiting: dict[Future[Any], tuple[int, Job]] = {}
    for number, job in jobs:
        waiting[executor.submit(job, number)] = number, job
        while waiting:
            is_full = most_waiting is not None and len(waiting) >= most_waiting()
            finished = wait(waiting, None if is_full else 0, FIRST_COMPLETED).done
            if not finished:
                break
            for future in finished:
                yield *waiting.pop(future), future
    while waiting:
        for future in wait(waiting, return_when=FIRST_COMPLETED).done:
            yield *waiting.pop(future), future


def progress_of(show: Show, number: int, label: str) -> Progress:
    """Return the `Progress` of one job."""

    def progress(done: int, total: int, part: str = "", note: str = "") -> None:
        show(number, label, done, total, part, note)

    return progress


def ignore_job_progress(number: int, label: str, done: int, total: int | None, part: str, note: str) -> None:
    """Show nothing."""


@contextmanager
def one_thread_context(make_context: MakeContext) -> Iterator[None]:
    """Run the block on one thread in the context of `make_context`; afterwards determinism is as it was before.

    A worker of a cluster does the jobs of many commands in one process.
    """
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    warns_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        with make_context(), limit_threads(1):
            yield
    finally:
        torch.use_deterministic_algorithms(is_deterministic, warn_only=warns_only)


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
