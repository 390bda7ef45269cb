"""Executor of jobs on shards of a text that this process reads: it and its children, or a cluster's workers."""

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
from .processes import Processes, count_cores

SHARD = "shard"  # label of the jobs
WORTH_PROCESSES = 20_000_000  # characters left for which processes are started: one takes seconds to import torch


class ShardPool:
    """Executor of jobs on the shards of a corpus: this process and its children, or the workers of a cluster.

    The children start late and only for a large corpus. While they are busy, this process does a shard itself.

    Args:
        workers: Number of processes, this one included; None: one per core.
        cluster: Cluster whose workers do all shards, in place of processes of this machine.
    """

    def __init__(self, tokenizer_file: Path, workers: int | None, cluster: Cluster | None = None):
        self.tokenizer_file = str(tokenizer_file)
        self.cluster = cluster
        self.children = (count_cores() if workers is None else workers) - 1
        self.processes: Processes | None = None
        self.this_process = ThisProcess()
        self.numbers = count()  # of jobs
        self.amount_read: Callable[[], tuple[int, float | None]] = lambda: (0, None)  # see `map`, which sets it
        self.sent: list[Future[Any]] = []  # futures of jobs that the children have not finished
        self.cluster_results: Generator[Any, None, None] | None = None

    def needs_processes(self, characters_read: int, share: float | None) -> bool:
        """Return whether children run, or are worth starting for the characters that are left.

        Args:
            characters_read: Characters that were read so far.
            share: Share of the corpus that was read; None where it is unknown: half is assumed.
        """
        characters_left = characters_read * (1 / share - 1) if share else characters_read
        return self.processes is not None or characters_left >= WORTH_PROCESSES

    def job_of_shard(self, work: Callable[..., Any], *arguments: Any) -> Job:
        """Return a job that calls `work(tokenizer, *arguments)`; `work` is a function at the top of a module."""
        return Job(SHARD, work_with_tokenizer, (self.tokenizer_file, work, *arguments))

    def map(self, jobs: Iterable[Job], amount_read: Callable[[], tuple[int, float | None]]) -> Iterator[Any]:
        """Yield the results of jobs in any order; jobs are drawn only as processes or workers get free for them.

        amount_read: Function that returns the arguments of `needs_processes`.
        """
        numbered = ((next(self.numbers), job) for job in jobs)
        if self.cluster is not None:
            self.cluster_results = _results_of_workers(self.cluster, numbered)
            yield from self.cluster_results
            return
        self.amount_read = amount_read
        for number, job, future in submit_and_yield(self, numbered):
            try:
                result = future.result()
            except BrokenProcessPool:  # a child was killed or could not start: go on without children
                self.children = 0
                result = self.this_process.submit(job, number).result()
            yield result

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Hand a job to the children where they are worth it and have few jobs waiting, else do it here."""
        self.sent = [future for future in self.sent if not future.done()]
        if len(self.sent) >= 2 * self.children or not self.needs_processes(*self.amount_read()):
            return self.this_process.submit(job, number)
        future = self.submit_to_process(job, number)
        self.sent.append(future)
        return future

    def submit_to_process(self, job: Job, number: int) -> "Future[Any]":
        """Hand a job to the children, which start before their first job.

        Returns:
            The future result; it raises `BrokenProcessPool` where the children cannot do the job.
        """
        if self.processes is None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # from now on each process has one core
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
        if self.cluster_results is not None:
            self.cluster_results.close()  # else a traceback could keep the jobs alive
        if self.processes is not None:
            self.processes.__exit__(*error)  # at an error it stops shards; they are made again
        if self.parallelism is None:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = self.parallelism


def _results_of_workers(cluster: Cluster, jobs: Iterable[tuple[int, Job]]) -> Generator[Any, None, None]:
    with cluster.session() as cluster_jobs:
        # No more jobs wait than keep the workers busy: each job holds the text of its shard.
        for _, _, future in submit_and_yield(cluster_jobs, jobs, lambda: 2 * max(1, cluster.admission.usable_count)):
            yield future.result()


def work_with_tokenizer(tokenizer_file: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of `work(tokenizer, *arguments)`; a process reads a tokenizer file once while it is unchanged.

    arguments: The last one is the `Progress` of the job. It is left out: a shard takes seconds and shows none.
    """
    *arguments_of_work, _ = arguments
    return work(_read_tokenizer(tokenizer_file, sha256(Path(tokenizer_file))), *arguments_of_work)


@lru_cache(maxsize=1)
def _read_tokenizer(file: str, digest: str) -> Tokenizer:
    return Tokenizer.from_file(file)
