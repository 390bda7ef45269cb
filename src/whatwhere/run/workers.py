"""Worker processes that tokenise shards of text."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .cluster import Cluster
from .files import sha256
from .progress import Progress
from .signals import hold_signals_while_spawning

Work = Callable[..., Any]  # a function of a module: (tokenizer, *task)
Task = tuple[Any, ...]

SHARD = "shard"  # label of a task on a cluster
WORTH_WORKERS = 20_000_000  # characters still to be done: a worker process takes seconds to start (it imports torch)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_not_in_worker(caller: str) -> None:
    """Refuse to start processes in a worker that runs a script again, because the script has no `__main__` guard.

    Raises:
        RuntimeError: this process is such a worker.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise RuntimeError(f"{caller} starts processes: call it below `if __name__ == '__main__':`.")


class Workers:
    """Worker processes, started late and only for a large corpus, or the workers of a cluster.

    The process that starts processes works, too, while they are busy; beside a cluster it reads and hands out alone.

    They are spawned, not forked: a fork of a process with torch's and the tokenizer's threads can hang.
    """

    def __init__(self, tokenizer_file: Path, workers: int | None, cluster: Cluster | None = None):
        self.file = str(tokenizer_file)
        self.tokenizer = Tokenizer.from_file(self.file)
        self.cluster = cluster
        self.children = (cores() if workers is None else workers) - 1
        self.executor: ProcessPoolExecutor | None = None

    def needs_workers(self, characters_read: int, share: float | None) -> bool:
        """Return whether worker processes run, or are worth starting for the characters that are left.

        Args:
            characters_read: by all processes.
            share: share of the corpus that these characters are; None where it is unknown.
        """
        characters_left = characters_read * (1 / share - 1) if share else characters_read
        return self.executor is not None or characters_left >= WORTH_WORKERS

    def map(
        self, work: Work, tasks: Iterable[Task], amount_read: Callable[[], tuple[int, float | None]]
    ) -> Iterator[Any]:
        """Yield the results of work(tokenizer, *task), in any order.

        amount_read: returns the number of characters read, and which share of the corpus they are.
        """
        if self.cluster is not None:
            yield from self.cluster.map(SHARD, work_on_cluster, ((self.file, work, task) for task in tasks))
            return
        waiting: deque[tuple[Task, Future[Any]]] = deque()

        def collect() -> Any:
            task, future = waiting.popleft()
            try:
                return future.result()
            except BrokenProcessPool:  # a worker was killed, or could not start: go on without
                self.children = 0
                return work(self.tokenizer, *task)

        for task in tasks:
            while waiting and waiting[0][1].done():
                yield collect()
            if len(waiting) < 2 * self.children and self.needs_workers(*amount_read()):
                waiting.append((task, self.submit(work, task)))
            else:
                yield work(self.tokenizer, *task)
        while waiting:
            yield collect()

    def submit(self, work: Work, task: Task) -> Future[Any]:
        """Give a task to the worker processes, and start them before the first task.

        Returns:
            The future result; where the processes cannot run it raises `BrokenProcessPool`.
        """
        if self.executor is None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # from now on a core belongs to each process
            context = multiprocessing.get_context("spawn")
            self.executor = ProcessPoolExecutor(self.children, context, _start_worker, (self.file,))
        try:
            with hold_signals_while_spawning():
                return self.executor.submit(_work, work, task)
        except BrokenProcessPool as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def __enter__(self) -> "Workers":
        self.parallelism = os.environ.get("TOKENIZERS_PARALLELISM")
        if self.children < 1:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return self

    def __exit__(self, *error: Any) -> None:
        if self.executor is not None:
            if error[0] is not None:  # a stop must not wait for shards; half of one is made again
                for process in list((self.executor._processes or {}).values()):
                    process.terminate()
            self.executor.shutdown(cancel_futures=True)
        if self.parallelism is None:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = self.parallelism


_worker_tokenizer: Tokenizer | None = None


def _start_worker(tokenizer_file: str) -> None:
    global _worker_tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent says so, and stops all
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _worker_tokenizer = Tokenizer.from_file(tokenizer_file)


def _leave_with_parent() -> None:
    """Wait for the parent's death and end; a worker holds the pipe that it reads, so it would wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def work_on_cluster(tokenizer_file: str, work: Work, task: Task, progress: Progress) -> Any:
    """Do a task on a worker of a cluster, which reads the tokenizer once."""
    del progress  # a shard takes seconds
    return work(_read_tokenizer(tokenizer_file, sha256(Path(tokenizer_file))), *task)


@lru_cache(maxsize=1)
def _read_tokenizer(file: str, digest: str) -> Tokenizer:
    return Tokenizer.from_file(file)


def _work(work: Work, task: Task) -> Any:
    assert _worker_tokenizer is not None
    return work(_worker_tokenizer, *task)
