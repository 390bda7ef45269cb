"""Shards of text in further processes or on the workers of a cluster, while this process reads the text."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .cluster import Cluster
from .executors import Job, ThisProcess, submit_and_yield
from .files import sha256
from .processes import Processes, cores

SHARD = "shard"  # label of the jobs
WORTH_PROCESSES = 20_000_000  # characters still to be done: a process takes seconds to start (it imports torch)


class ShardPool:
    """Executor of jobs on the shards of a corpus: this process and further ones.

    They start late and only for a large corpus. This process does a shard itself while the others are busy. With a
    cluster, its workers do them all.

    Args:
        workers: Processes in all, this one included; None: one a core.
        cluster: Workers in place of processes.
    """

    def __init__(self, tokenizer_file: Path, workers: int | None, cluster: Cluster | None = None):
        self.file = str(tokenizer_file)
        self.cluster = cluster
        self.children = (cores() if workers is None else workers) - 1
        self.processes: Processes | None = None
        self.this_process = ThisProcess()
        self.numbers = count()  # of jobs
        self.amount_read: Callable[[], tuple[int, float | None]] = lambda: (0, None)  # set by `map`
        self.sent: list[Future[Any]] = []  # to the further processes, which they have not finished
        self.results: Generator[Any, None, None] | None = None  # of the cluster

    def needs_processes(self, characters_read: int, share: float | None) -> bool:
        """Return whether further processes run, or are worth starting for the characters that are left.

        Args:
            characters_read: by all processes.
            share: share of the corpus that these characters are; None where it is unknown: as much again is left.
        """
        characters_left = characters_read * (1 / share - 1) if share else characters_read
        return self.processes is not None or characters_left >= WORTH_PROCESSES

    def job_of_shard(self, work: Callable[..., Any], *arguments: Any) -> Job:
        """Return the job that calls a function of a module, work(tokenizer, *arguments)."""
        return Job(SHARD, work_with_tokenizer, (self.file, work, *arguments))

    def map(self, jobs: Iterable[Job], amount_read: Callable[[], tuple[int, float | None]]) -> Iterator[Any]:
        """Yield the results of jobs in any order; no more jobs are drawn than keep the processes busy.

        amount_read: returns the number of characters read, and which share of the corpus they are.
        """
        numbered = ((next(self.numbers), job) for job in jobs)
        if self.cluster is not None:
            self.results = _results_of_workers(self.cluster, numbered)
            yield from self.results
            return
        self.amount_read = amount_read
        for number, job, future in submit_and_yield(self, numbered):
            try:
                result = future.result()
            except BrokenProcessPool:  # a process was killed, or could not start: go on without
                self.children = 0
                result = self.this_process.submit(job, number).result()
            yield result

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Hand a shard to the further processes where they are worth it and have few waiting, else do it here."""
        self.sent = [future for future in self.sent if not future.done()]
        if len(self.sent) >= 2 * self.children or not self.needs_processes(*self.amount_read()):
            return self.this_process.submit(job, number)
        future = self.submit_to_process(job, number)
        self.sent.append(future)
        return future

    def submit_to_process(self, job: Job, number: int) -> "Future[Any]":
        """Hand a shard to the further processes, and start them before the first one.

        Returns:
            The future result; where the processes cannot do it, one that raises `BrokenProcessPool`.
        """
        if self.processes is None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # from now on a core belongs to each process
            self.processes = Processes(self.children)
        try:
            return self.processes.submit(job, number)
        except BrokenProcessPool as error:
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def __enter__(self) -> "ShardPool":
        self.parallelism = os.environ.get("TOKENIZERS_PARALLELISM")
        if self.children < 1:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return self

    def __exit__(self, *error: Any) -> None:
        if self.results is not None:
            self.results.close()  # else a traceback could keep the jobs alive
        if self.processes is not None:
            self.processes.__exit__(*error)  # a stop does not wait for shards; half of one is made again
        if self.parallelism is None:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = self.parallelism


def _results_of_workers(cluster: Cluster, jobs: Iterable[tuple[int, Job]]) -> Generator[Any, None, None]:
    with cluster.session() as workers:
        # As few wait as keep the workers busy: each holds the text of its shard.
        for _, _, future in submit_and_yield(workers, jobs, lambda: 2 * max(1, cluster.admission.usable_count)):
            yield future.result()


def work_with_tokenizer(tokenizer_file: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Do work(tokenizer, *arguments); the tokenizer is read once a process or worker.

    arguments: of a job, so that a `Progress` is the last.
    """
    *task, _ = arguments  # a shard takes seconds: it shows no progress of its own
    return work(_read_tokenizer(tokenizer_file, sha256(Path(tokenizer_file))), *task)


@lru_cache(maxsize=1)
def _read_tokenizer(file: str, digest: str) -> Tokenizer:
    return Tokenizer.from_file(file)
