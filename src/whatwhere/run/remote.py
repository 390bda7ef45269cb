"""Code that runs on a worker of a Dask cluster: it checks the worker, does a job, sends progress, and stops the job.

The scheduler imports this module, too; therefore it imports nothing that takes seconds.
"""

import asyncio
import gc
import hashlib
import os
import pickle
import platform
import re
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..version import VERSION
from .lock import InUse, is_free
from .memory import trim_heap
from .progress import Progress
from .signals import Stopped, clear_stop, request_stop, stop_work

SECONDS_BETWEEN_LOOKS = 0.5  # at whether a job is still wanted
SECONDS_OF_LONG_JOB = 5.0  # a job that takes more may have loaded a model
SECONDS_TO_WAIT_FOR_WRITER = 900.0  # of the folder that a job opens: a step may take minutes
SECONDS_BETWEEN_REPORTS = 1.0  # of one worker's progress: the scheduler passes on the reports of all workers
# First value of an event of a job, its kind. Its other values are the arguments of `Deaths.record_begin` or
# `ShowProgress`.
BEGIN = "begin"
PROGRESS = "progress"
_PACKAGE = Path(__file__).parents[1]
# Programs on which results depend; worker and command may both lack an extra's programs.
_PROGRAMS = ("torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy", "scipy", "scikit-learn")
_PROGRAMS_OF_EXTRAS = ("sentence-transformers", "mteb")


class JobStopped(Exception):
    """Exception for a job that was stopped because its command has ended; its checkpoints stay."""


@dataclass(frozen=True)
class Requirements:
    """Versions and folders that a worker has to have in common with the machine of a command.

    resource: name of the Dask resource that workers get if they pass. versions: `code_versions` of the command.
    directory: working directory of the command, to which paths are relative. proof_file: file whose text is `resource`,
    in a shared folder that the command has locked.
    """

    resource: str
    versions: tuple[tuple[str, str], ...]
    directory: str
    proof_file: str


@cache
def code_versions() -> tuple[tuple[str, str], ...]:
    """Return names and versions of all programs on which results depend; this package's has a hash of its code."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(_PACKAGE)).encode() + path.read_bytes())
    others = [(name, _version_of(name)) for name in (*_PROGRAMS, *_PROGRAMS_OF_EXTRAS)]
    return ("whatwhere", f"{VERSION} (code {digest.hexdigest()[:8]})"), ("Python", platform.python_version()), *others


def _version_of(program: str) -> str:
    try:
        return version(program)
    except PackageNotFoundError:
        return "(not installed)"


code_versions()  # cached now: the files may change while this process runs


def check_worker(requirements: Requirements, name: str, threads: int) -> None:
    """Refuse this worker if it differs from the machine of a command in a way that results or jobs depend on.

    Args:
        name: Name of the worker, for the message.
        threads: Number of jobs that the worker does at the same time.

    Raises:
        ValueError: the first difference.
    """
    for (program, wanted), (_, installed) in zip(requirements.versions, code_versions(), strict=True):
        if wanted != installed:
            raise ValueError(
                f"The worker {name} has {program} {installed}, this command has {program} {wanted}: results "
                "would differ. Install the same there, and start the worker again."
            )
    if threads > 1:
        raise ValueError(
            f"The worker {name} does {threads} jobs at once, which would share their random numbers. Start it with "
            "--nthreads 1, and --nworkers N for N cores."
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            f"The worker {name} was started by a launcher (WORLD_SIZE), so that its trainings would wait for each "
            "other. Start it without torchrun or accelerate."
        )
    proof = Path(requirements.proof_file)
    is_shared = os.access(requirements.directory, os.X_OK)
    try:
        is_shared = proof.read_text() == requirements.resource and is_shared
        with tempfile.TemporaryFile(dir=proof.parent):
            pass
    except OSError:
        is_shared = False
    if not is_shared:
        raise ValueError(
            f"The worker {name} does not see or may not write {proof.parent}, or lacks {requirements.directory}. "
            "Let every worker have both under the same path, or choose an --out that all share."
        )
    if is_free(proof.parent):
        raise ValueError(
            f"The worker {name} does not see who writes to {proof.parent}: its file system passes no locks on. Mount "
            "it with locks (NFS 4; Lustre: -o flock), or choose another --out."
        )


def cpu_name() -> str:
    """Return the name of this machine's processor."""
    with suppress(OSError):
        if name := re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE):
            return name[1].strip()
    return platform.processor() or platform.machine()


async def admit(requirements: Requirements, dask_worker: Any) -> tuple[int, str] | ValueError:
    """Check this worker, and let the scheduler give it jobs that ask for `Requirements.resource` if it passes.

    Returns:
        The worker's process id and the name of its processor; or the error of `check_worker`, which is not raised:
        Dask would write its traceback to the worker's log.
    """
    try:
        await asyncio.to_thread(check_worker, requirements, dask_worker.address, dask_worker.state.nthreads)
    except ValueError as error:
        return ValueError(str(error))
    await dask_worker.set_resources(**{requirements.resource: 1})
    if dask_worker.status.name == "running":
        # Dask gives waiting jobs to a worker that begins to run, not to one that gets a resource.
        running = dask_worker.status
        dask_worker.status = type(running).paused
        dask_worker.status = running
    return os.getpid(), cpu_name()


_folder_in_work: Path | None = None  # shared folder of the job that this worker does now


async def wait_for_job_end(folder: str, seconds: float) -> None:
    """Wait until this worker does no job of a command that writes to `folder`, for at most `seconds`."""
    until = time.monotonic() + seconds
    while _folder_in_work == Path(folder) and time.monotonic() < until:
        await asyncio.sleep(0.1)


@dataclass(frozen=True)
class JobSite:
    """Surroundings of jobs: topic of their events, folder and working directory of their command."""

    topic: str
    folder: str
    directory: str


def do_job(site: JobSite, number: int, pickled: bytes) -> Any:
    """Do a job on this worker; `pickled` has the job's label, `work` and `args`, and a function that makes its context.

    Raises:
        JobStopped: the command does not wait for the job any more.
        Reschedule: this worker ends; Dask gives the job to another one.
    """
    global _folder_in_work
    from distributed import Reschedule, get_worker

    worker = get_worker()
    key = str(worker.get_current_task())
    last = 0.0
    label = ""

    def send_progress(done: int, total: int, part: str = "", note: str = "") -> None:
        nonlocal last
        if (now := time.perf_counter()) - last > SECONDS_BETWEEN_REPORTS:
            last = now
            worker.log_event(site.topic, (PROGRESS, number, label, float(done), float(total), part, note))

    began = time.monotonic()
    _folder_in_work = Path(site.folder)
    worker.log_event(site.topic, (BEGIN, number, worker.address))
    try:
        label, work, args, make_context = pickle.loads(pickled)
        os.chdir(site.directory)
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        with _stop_if_unwanted(worker, key, send_progress) as progress, make_context():
            return _do_when_run_is_free(work, args, progress)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # frames keep the model in memory
        if not isinstance(error, Stopped):
            raise
        raise (Reschedule() if _is_wanted(worker, key) else JobStopped(label)) from None
    finally:
        clear_stop()
        _folder_in_work = None
        if time.monotonic() - began > SECONDS_OF_LONG_JOB:
            gc.collect()  # Dask gives no jobs to a worker that uses 80 % of its memory
            trim_heap()


def _is_wanted(worker: Any, key: str) -> bool:
    """Return whether a command still waits for a job."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled"


@contextmanager
def _stop_if_unwanted(worker: Any, key: str, send_progress: Progress) -> Iterator[Progress]:
    """Yield a `Progress`, and tell the work in the block to stop once its command or its worker ends.

    Work that defers a stop (`signals.defer_stop`) stops after its step; other work stops where it calls the `Progress`.
    """
    is_over = threading.Event()
    is_unwanted = threading.Event()

    def watch() -> None:
        while not is_over.wait(SECONDS_BETWEEN_LOOKS):
            if not _is_wanted(worker, key) or worker.status.name not in ("running", "paused"):
                is_unwanted.set()
                request_stop()
                return

    def progress(done: int, total: int, part: str = "", note: str = "") -> None:
        if is_unwanted.is_set():
            stop_work()
        send_progress(done, total, part, note)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield progress
    finally:
        is_over.set()
        watcher.join()


def _do_when_run_is_free(work: Callable[..., Any], args: tuple[Any, ...], progress: Progress) -> Any:
    """Do a job; where it opens a run, as a training does, wait until no other process writes to that run.

    A worker may still do that job for a command that has ended. Jobs that write by `RunFolder.at` wait for nothing: for
    them `Cluster.wait_until_idle` has waited.
    """
    until = time.monotonic() + SECONDS_TO_WAIT_FOR_WRITER
    while True:
        try:
            return work(*args, progress)
        except InUse:
            if time.monotonic() > until:
                raise
            progress(0, 0, "waiting for the last writer")
            time.sleep(1)
