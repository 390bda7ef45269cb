"""Jobs in processes of their own, by default one for each core with one thread each, and one display of their progress.

Two trainings side by side, of one thread each, end sooner than the same two one after the other, of two threads each:
an encoder of some million parameters has too little to do in each operation. What a job computes depends on its number
of threads, which the caller fixes (`threads_of_jobs`), not on what else runs.
"""

import os
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any

import torch

from .cluster import Cluster
from .executors import (
    Executor,
    Job,
    MakeContext,
    Show,
    ThisProcess,
    progress_of,
    submit_and_yield,
)
from .processes import Processes, check_not_spawned, cores
from .progress import Progress, ignore_progress, make_bars
from .signals import STOPPING, Stopped

TRAINING_SHARE = 0.8  # of a model's time, for the bar of all jobs
TRAINING_PARTS = ("training", "fine-tuning")  # parts of a job that count as its training


def parallel_jobs() -> int:
    """Return how many jobs run at the same time: one a core, but 1 where an accelerator or a launcher does the work."""
    if torch.cuda.is_available() or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return 1
    return cores()


def threads_of_jobs(jobs: int, at_once: int) -> list[int | None]:
    """Return the threads of each job, where at most `at_once` run at the same time.

    Each job has one thread, but the last jobs share the cores that are left idle. Where jobs run one by one, each is
    None: all threads of the process.
    """
    if at_once < 2:
        return [None] * jobs
    rest = jobs % at_once
    return [*[1] * (jobs - rest), *[at_once // max(rest, 1)] * rest]


def run_jobs(
    jobs: Sequence[Job],
    most_threads: int,
    progress: bool,
    process_per_job: bool = True,
    name: str = "models",
    make_context: MakeContext = nullcontext,
    cluster: Cluster | None = None,
) -> Generator[tuple[Job, Any], None, None]:
    """Run jobs in processes, and yield each with its result when it finishes.

    Consecutive jobs of equal thread count run together; the next ones start when all of these have finished.

    Args:
        most_threads: Threads of all jobs that run at the same time in further processes. With 1, or for a single job,
            jobs run one after another in this process, each with its own number of threads. On a cluster nothing reads
            it.
        progress: Show bars on stderr.
        process_per_job: Start a process for each job, as for trainings: the heap of one stays large, and a second one
            would grow on top of it. False: short jobs share their processes, which take some seconds to start.
        name: Name of the jobs on the screen.
        make_context: Picklable function that returns the context in which each job runs.
        cluster: Workers that do the jobs, on one thread each, in place of processes of this machine.

    Raises:
        Exception: whatever a job raises. The other jobs are stopped, trainings with a checkpoint, and finished work
            stays on disk.
    """
    numbered = list(enumerate(jobs))
    runs_here = len(jobs) < 2 or most_threads < 2
    if cluster is None and not runs_here:
        check_not_spawned("This call")
    with _show_bars(progress, len(jobs), name) as show:
        if cluster is not None:
            with cluster.session(show, make_context) as workers:
                yield from _results(workers, numbered, show)
        elif runs_here:
            yield from _results(ThisProcess(show, make_context), numbered, show)
        else:
            for threads, group in groupby(numbered, key=lambda pair: pair[1].threads or most_threads):
                jobs_of_group = list(group)
                size = min(len(jobs_of_group), most_threads // threads)
                jobs_each = 1 if process_per_job else None
                with (
                    Processes(size, threads, jobs_each, show, make_context) as processes,
                    _explain_end(name, process_per_job, progress),
                ):
                    yield from _results(processes, jobs_of_group, show)


def _results(executor: Executor, jobs: Sequence[tuple[int, Job]], show: Show) -> Generator[tuple[Job, Any], None, None]:
    """Yield each of some numbered jobs with its result when it finishes, and end its bar."""
    for number, job, future in submit_and_yield(executor, jobs):
        result = future.result()
        show(number, job.label, 0, None, "", "")
        yield job, result


@contextmanager
def _explain_end(name: str, process_per_job: bool, progress: bool) -> Iterator[None]:
    """Print what stays where the block, in which processes do jobs, is stopped.

    Raises:
        OSError: in place of the error of a process that was killed, with advice.
    """
    try:
        yield
    except Stopped:
        if progress:
            print(f"\n{STOPPING}", file=sys.stderr, flush=True)
        raise
    except BrokenProcessPool:
        advice = "put `taskset -c 0` before it"
        if process_per_job:  # on one thread, as the killed process had: results depend on the number of threads
            advice = "put `OMP_NUM_THREADS=1` before it and add `--set at_once=1`"
        raise OSError(
            "A process was killed, perhaps for lack of memory. Run the same command to resume. "
            f"To do one of the {name} at a time, {advice}."
        ) from None


@contextmanager
def _show_bars(progress: bool, jobs: int = 0, kind: str = "") -> Iterator[Show]:
    """Yield a function that moves the bar of a job on stderr; without `progress`, one that does nothing.

    Each running job has a bar, and all `jobs` one above them, with the time left. A total of None ends a job, one of 0
    is unknown. Where the block ends well, the bars are shown as complete. Several threads may call the function.
    """
    if not progress:
        yield ignore_progress
        return
    # Seconds that the time left is judged by: long, as the parts behind the bar of all jobs differ in speed.
    with make_bars(speed_estimate_period=600) as display:
        running: dict[int, tuple[str, Any]] = {}
        shares: dict[int, float] = {}  # number of a job -> share of it that is finished
        ended: set[int] = set()  # numbers of jobs, whose progress may still come
        one_at_a_time = threading.Lock()
        bar_of_all = display.add_task(f"all {jobs} {kind}", total=jobs, note="") if jobs > 1 else None

        def show(number: int, label: str, done: int, total: int | None, part: str, note: str) -> None:
            with one_at_a_time:
                if number not in ended:
                    move(number, label, done, total, part, note)

        def move(number: int, label: str, done: int, total: int | None, part: str, note: str) -> None:
            if total is None:
                ended.add(number)
            if number in running and (running[number][0] != part or total is None):
                display.remove_task(running.pop(number)[1])  # a new part has a bar and a clock of its own
            if total is not None:
                if number not in running:
                    running[number] = part, display.add_task(f"{label}: {part}", total=total or None, note="")
                display.update(running[number][1], completed=done, note=note)
            if bar_of_all is not None:
                # Work before a training counts nothing, work after it as a whole training.
                has_trained = number in shares
                share_trained = float(has_trained)
                if total and part in TRAINING_PARTS:
                    share_trained = done / total
                share = 1.0 if total is None else TRAINING_SHARE * share_trained
                if share:
                    shares[number] = max(shares.get(number, 0.0), share)
                display.update(bar_of_all, completed=sum(shares.values(), 0.0))

        yield show
        with one_at_a_time:
            for task in [task for _, task in running.values()] + ([] if bar_of_all is None else [bar_of_all]):
                display.update(task, completed=next(t.total for t in display.tasks if t.id == task))


@contextmanager
def show_progress(name: str, progress: bool) -> Iterator[Progress]:
    """Yield the `Progress` of one long piece of work, with a bar for each part (`progress_bar`: one bar for all).

    progress: False shows nothing.
    """
    with _show_bars(progress) as show:
        yield progress_of(show, 0, name)
