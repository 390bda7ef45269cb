"""Further processes of this machine that do jobs, on a fixed number of threads each, and send their progress."""

import multiprocessing
import os
import signal
import time
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, Self

import torch
from threadpoolctl import threadpool_limits

from .executors import Job, MakeContext, ShowProgress, progress_of
from .signals import end_process, hold_signals_while_spawning

SECONDS_BETWEEN_REPORTS = 0.2  # of one process's progress
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_not_spawned(caller: str) -> None:
    """Refuse to start processes in a spawned process that runs a script without a `__main__` guard again.

    caller: Start of the message, such as "This call".

    Raises:
        RuntimeError: this process was spawned and imports the script.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(f"{caller} starts processes: call it below `if __name__ == '__main__':`.")


class Processes:
    """Executor whose processes start with the first jobs, and end with the block or with this process.

    They are spawned, not forked: a fork of a process with torch's and the tokenizer's threads can hang.

    Args:
        count: Number of processes, each with `threads` threads.
        jobs_per_process: Jobs after which a process is replaced by a new one; None: never.
        show: Function that gets the progress of the jobs, in a thread of its own.
        make_context: Picklable function that returns the context manager inside which each job runs.
    """

    def __init__(
        self,
        count: int,
        threads: int = 1,
        jobs_per_process: int | None = None,
        show: ShowProgress | None = None,
        make_context: MakeContext = nullcontext,
    ) -> None:
        self.make_context = make_context
        context = multiprocessing.get_context("spawn")
        # A pipe, not an Event: setting an Event hangs once a process that waits for it was killed.
        stop_receiver, self._stop_sender = context.Pipe(duplex=False)
        self._reports: Any = None
        if show is not None:
            self._reports = context.SimpleQueue()
            Thread(target=_forward_reports, args=(self._reports, show), daemon=True).start()
        arguments = threads, stop_receiver, self._reports
        self._pool = ProcessPoolExecutor(count, context, _prepare, arguments, max_tasks_per_child=jobs_per_process)

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Hand a job to a process; `show` is called with `number`.

        Raises:
            BrokenProcessPool: a process of this executor was killed.
            Stopped: a signal came while a process started.
        """
        with hold_signals_while_spawning():
            return self._pool.submit(_do_job, number, job, self.make_context)

    def stop(self) -> None:
        """Tell the processes to end, trainings after a checkpoint; the end of the block waits until they have."""
        self._stop_sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        has_failed = error[0] is not None
        if has_failed:
            self.stop()
        self._pool.shutdown(cancel_futures=has_failed)
        self.stop()
        # After a failure a dead process may hold the queue's lock, and `put` would hang.
        if not has_failed and self._reports is not None:
            self._reports.put(None)


_reports: Any = None  # queue to the parent, in a process that does jobs


def _prepare(threads: int, stop_receiver: Connection, reports: Any) -> None:
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which stops all processes
    # In a thread, which waits: work that defers a stop ends its step first.
    signal.signal(signal.SIGTERM, lambda number, _: Thread(target=end_process, args=(number,), daemon=True).start())
    Thread(target=_end_when_told, args=(stop_receiver,), daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))  # for libraries that jobs load
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _end_when_told(stop_receiver: Connection) -> None:
    """Wait until the parent closes its end of the pipe or dies, then end this process.

    It ends without a checkpoint if the parent died: the user may have started the same command again.
    """
    parent = multiprocessing.parent_process()
    wait([stop_receiver] if parent is None else [stop_receiver, parent.sentinel])
    if parent is None or not parent.is_alive():
        os._exit(1)
    end_process(signal.SIGTERM)


def _do_job(number: int, job: Job, make_context: MakeContext) -> Any:
    last = 0.0

    def put(*report: Any) -> None:
        nonlocal last
        if _reports is not None and (now := time.perf_counter()) - last > SECONDS_BETWEEN_REPORTS:
            last = now
            _reports.put(report)

    with make_context():
        return job.work(*job.args, progress_of(put, number, job.label))


def _forward_reports(reports: Any, show: ShowProgress) -> None:
    while (report := reports.get()) is not None:
        show(*report)
