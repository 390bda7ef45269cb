"""Jobs of a command in this process, in further processes or on a cluster, with one display of their progress.

Two trainings side by side, of one thread each, end sooner than the same two one after the other, of two threads each:
an encoder of some million parameters has too little to do in each operation. The result of a job depends on its number
of threads, which the caller fixes (`threads_of_jobs`), not on the jobs beside it.
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
from .executors import Executor, Job, MakeContext, ShowProgress, ThisProcess, progress_of, submit_and_yield
from .processes import Processes, check_not_spawned, count_cores
from .progress import Progress, ignore_progress, make_bars
from .signals import STOPPING, Stopped

TRAINING_SHARE = 0.8  # of a job's share of the bar of all jobs: the part that its training fills
TRAINING_PARTS = ("training", "fine-tuning")  # names of parts (`Progress`) that count as the training of a job


def parallel_jobs() -> int:
    """Return how many jobs run at the same time: one per core, but one in all on an accelerator or under a launcher."""
    if torch.cuda.is_available() or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return 1
    return count_cores()


def threads_of_jobs(job_count: int, at_once: int) -> list[int | None]:
    """Return the threads of each job, where `at_once` jobs run at the same time on as many threads in all.

    Each job has one, except the last jobs where these are fewer than `at_once`: they divide the threads evenly, rounded
    down, so that the last of 5 jobs, 4 at once, has 4. Where jobs run one by one, each has None: all threads of the
    process. A caller with several threads for each job multiplies.
    """
    if at_once < 2:
        return [None] * job_count
    rest = job_count % at_once
    return [*[1] * (job_count - rest), *[at_once // max(rest, 1)] * rest]


def run_jobs(
    jobs: Sequence[Job],
    total_threads: int | None,
    progress: bool,
    process_per_job: bool = True,
    name: str = "models",
    make_context: MakeContext = nullcontext,
    cluster: Cluster | None = None,
) -> Generator[tuple[Job, Any], None, None]:
    """Run jobs, and yield each with its result when it finishes.

    In further processes, consecutive jobs of equal thread count run together, and the next ones start when all of
    these have finished.

    Args:
        total_threads: Threads of all further processes together. None, or a single job: no further process is started,
            and jobs run one after another in this process, on as many threads as each `Job` has. On a cluster it is
            ignored.
        progress: Show bars on stderr.
        process_per_job: True for trainings, which leave a process with a large heap: each job has a process of its own.
            False for short jobs, which share processes: one takes some seconds to start.
        name: Plural noun for the jobs on the screen.
        make_context: Picklable function that returns the context manager inside which each job runs.
        cluster: Workers that do the jobs, on one thread each, in place of processes of this machine.

    Raises:
        Exception: the error of a job. The other jobs are stopped, trainings with a checkpoint; finished work stays.
    """
    numbered = list(enumerate(jobs))
    runs_here = len(jobs) < 2 or total_threads is None
    if cluster is None and not runs_here:
        check_not_spawned("This call")
    with _show_bars(progress, len(jobs), name) as show:
        if cluster is not None:
            with cluster.session(show, make_context) as cluster_jobs:
                yield from _results(cluster_jobs, numbered, show)
        elif total_threads is None or runs_here:
            yield from _results(ThisProcess(show, make_context), numbered, show)
        else:
            for threads, group in groupby(numbered, key=lambda pair: pair[1].threads or total_threads):
                jobs_of_group = list(group)
                count = min(len(jobs_of_group), total_threads // threads)
                jobs_per_process = 1 if process_per_job else None
                with (
                    Processes(count, threads, jobs_per_process, show, make_context) as processes,
                    _explain_end(name, process_per_job, progress, threads),
                ):
                    yield from _results(processes, jobs_of_group, show)


def _results(
    executor: Executor, jobs: Sequence[tuple[int, Job]], show: ShowProgress
) -> Generator[tuple[Job, Any], None, None]:
    """Submit numbered jobs, yield each with its result when it finishes, and end its bar."""
    for number, job, future in submit_and_yield(executor, jobs):
        result = future.result()
        show(number, job.label, 0, None, "", "")
        yield job, result


@contextmanager
def _explain_end(name: str, process_per_job: bool, progress: bool, threads: int) -> Iterator[None]:
    """Print that finished work stays where a signal stops the block, whose processes run on `threads` threads each.

    Raises:
        OSError: a process was killed; the message has advice.
    """
    try:
        yield
    except Stopped:
        if progress:
            print(f"\n{STOPPING}", file=sys.stderr, flush=True)
        raise
    except BrokenProcessPool:
        advice = "put `taskset -c 0` before it"
        if process_per_job:  # with the threads of the killed process: results depend on their number
            advice = f"put `OMP_NUM_THREADS={threads}` before it and add `--set at_once=1`"
        raise OSError(
            "A process was killed, perhaps for lack of memory. Run the same command to resume. "
            f"To do one of the {name} at a time, {advice}."
        ) from None


@contextmanager
def _show_bars(progress: bool, job_count: int = 0, name: str = "") -> Iterator[ShowProgress]:
    """Yield a function that moves the bar of a job on stderr; without `progress`, one that does nothing.

    Each running job has a bar, and several jobs have one bar together above them, with the time left. Where the block
    ends well, the bars are shown as complete. Several threads may call the function.
    """
    if not progress:
        yield ignore_progress
        return
    # Rich estimates the time left from these last seconds: many, as the parts of jobs differ in speed.
    with make_bars(speed_estimate_period=600) as display:
        running: dict[int, tuple[str, Any]] = {}  # number of a job -> its part, and the bar of this part
        shares: dict[int, float] = {}  # number of a job -> share of it that is finished
        ended: set[int] = set()  # numbers of finished jobs, of which reports may still come
        bars_lock = threading.Lock()
        bar_of_all = display.add_task(f"all {job_count} {name}", total=job_count, note="") if job_count > 1 else None

        def show(number: int, label: str, done: int, total: int | None, part: str, note: str) -> None:
            with bars_lock:
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
                # A job has the share 0 before its training, and TRAINING_SHARE after it, until the job ends. Between
                # reports of its training it reports no other part.
                training_reported = number in shares
                share_trained = float(training_reported)
                if total and part in TRAINING_PARTS:
                    share_trained = done / total
                share = 1.0 if total is None else TRAINING_SHARE * share_trained
                if share:
                    shares[number] = max(shares.get(number, 0.0), share)
                display.update(bar_of_all, completed=sum(shares.values(), 0.0))

        yield show
        with bars_lock:
            for task in [task for _, task in running.values()] + ([] if bar_of_all is None else [bar_of_all]):
                display.update(task, completed=next(t.total for t in display.tasks if t.id == task))


@contextmanager
def progress_by_part(name: str, progress: bool) -> Iterator[Progress]:
    """Yield the `Progress` of one long piece of work, with a new bar for each part (`progress_bar`: one bar for all).

    progress: Show bars on stderr; False: nothing.
    """
    with _show_bars(progress) as show:
        yield progress_of(show, 0, name)
