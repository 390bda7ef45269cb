"""Connection to a Dask cluster, whose workers do jobs in place of processes of this machine and share a folder with it.

The scheduler gives each job to a worker at once. It moves the job to a worker that becomes free, or to another one if
the worker dies; work with checkpoints then resumes there. A worker does one job at a time, on one thread, so that a
model is the same to the last bit on every worker with processors of one kind. Without a cluster a model may have more
threads, and other last bits.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from .admission import Admission, explain_lost_scheduler, workers_of
from .cluster_jobs import ClusterJobs
from .executors import MakeContext, ShowProgress, one_thread_context
from .files import read_json
from .lock import InUse, writer_of
from .progress import ignore_progress
from .remote import wait_for_job_end
from .signals import GRACE, STOPPING, Stopped

MESSAGES_KEPT = 10  # log messages that Dask keeps, by default 1,000; each has the texts of a job
SECONDS_OF_SILENCE = 5.0  # until a line says what the command waits for
SECONDS_OF_ANSWERS = 5.0  # to collect the answers of workers that have waited
SECONDS_TO_CONNECT = 5  # to reach the scheduler, and as long again for its first answer


class Cluster:
    """Workers of a Dask cluster, through its scheduler; `connect` returns one.

    Args:
        client: `distributed.Client` of the scheduler.
        folder: Folder that the workers share with this machine; the command opens it (`RunFolder.open`) before they
            work.
    """

    def __init__(self, client: Any, address: str, folder: Path) -> None:
        self.client = client
        self.address = address
        self.folder = Path(os.path.abspath(folder))
        self.admission = Admission(client, address, self.folder)

    @property
    def resources(self) -> dict[str, int]:
        """Dask resources that a job asks for: the one of workers that passed, and a GPU where workers have one."""
        return {self.admission.resource: 1} | ({"GPU": 1} if self.admission.needs_gpu else {})

    def admit_workers(self) -> int:
        """Admit new workers, and return how many jobs can now run at the same time, at least 1.

        Raises:
            ValueError: workers were refused, and none has ever passed.
        """
        return max(1, len(self.admission.admit_new_workers()))

    @contextmanager
    def session(
        self, show: ShowProgress = ignore_progress, make_context: MakeContext = nullcontext
    ) -> Iterator[ClusterJobs]:
        """Yield an executor; where an error or a signal ends the block, jobs are stopped, trainings with a checkpoint.

        Args:
            show: Function that gets the progress of the jobs, in a thread of its own.
            make_context: Picklable function that returns the context manager inside which a worker does a job.

        Raises:
            ValueError: workers were refused, and none has ever passed.
        """
        self.admission.admit_new_workers()
        on_one_thread = partial(one_thread_context, make_context)
        jobs = ClusterJobs(self.client, self.address, self.folder, self.admission, self.resources, on_one_thread)
        try:
            with jobs.listen(show), jobs.watch():
                yield jobs
        except BaseException as error:
            if isinstance(error, Stopped):
                print(f"\n{STOPPING}", file=sys.stderr, flush=True)
            with suppress(Exception):  # where the scheduler is gone, its workers stop by themselves
                jobs.cancel()
                self.wait_until_idle()
            raise

    def wait_until_idle(self) -> None:
        """Wait until no worker does a job in this folder (of a killed command), about `GRACE` seconds at most."""

        async def wait() -> None:
            await self.client.run(wait_for_job_end, str(self.folder), GRACE, on_error="ignore")

        words = "Waiting for workers that may still do a job in this folder"
        notice = threading.Timer(SECONDS_OF_SILENCE, lambda: print(words, file=sys.stderr, flush=True))
        notice.start()
        try:
            with suppress(TimeoutError), explain_lost_scheduler(self.client, self.address):
                self.client.sync(wait, callback_timeout=GRACE + SECONDS_OF_ANSWERS)
        finally:
            notice.cancel()


@contextmanager
def connect(address: str | None, folder: Path) -> Iterator[Cluster | None]:
    """Connect to a scheduler, print the address of its dashboard, and yield the cluster once it has a worker.

    Connect before the run in `folder` is opened: a lock of this process would be refused as well.

    Args:
        address: Address such as tcp://10.0.0.1:8786, or the path of a scheduler file; None yields None.
        folder: Folder of the command's results, which every worker must have under the same path.

    Raises:
        ValueError: nothing answers there, or `distributed` is not installed.
        InUse: a process writes to the folder.
    """
    if address is None:
        yield None
        return
    if not Path(address).is_file() and ":" not in address:
        raise ValueError(f"There is no scheduler file {address}. Give the file of dask scheduler, or tcp://HOST:8786.")
    if Path(address).is_file():
        _check_scheduler_file(Path(address))
    try:
        import dask
        from distributed import Client
    except ModuleNotFoundError as error:
        if error.name not in ("dask", "distributed"):  # they are installed and lack a package
            raise
        raise ValueError("--on needs Dask: pip install 'whatwhere[cluster]'.") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors of jobs say what matters
    settings = {
        "distributed.admin.large-graph-warning-threshold": "1GB",
        "distributed.admin.low-level-log-length": MESSAGES_KEPT,
    }
    with dask.config.set(settings):
        try:
            scheduler = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
            client = Client(**scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, ImportError, AssertionError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"No scheduler answers at {address} ({reason}). Start one: dask scheduler.") from None
        with client:
            if (writer := writer_of(folder)) is not None:
                raise InUse(folder, writer)
            with explain_lost_scheduler(client, address):
                with suppress(KeyError):  # the link needs environment variables that are not set here
                    if link := client.dashboard_link:
                        print(f"What each worker does: {link}", file=sys.stderr, flush=True)
                _wait_for_worker(client, address)
            cluster = Cluster(client, address, folder)
            cluster.wait_until_idle()
            yield cluster


def _wait_for_worker(client: Any, address: str) -> None:
    """Wait until the scheduler of a `distributed.Client` has a worker, and print a line if it has none now."""
    if not any(worker["status"] == "running" for worker in workers_of(client).values()):
        print(f"Waiting for a worker of {address}", file=sys.stderr, flush=True)
        _job = client.submit(int, pure=False)  # a cluster that adapts starts workers only while a job waits
    client.wait_for_workers(1)


def _check_scheduler_file(path: Path) -> None:
    """Refuse a file that no scheduler has written.

    Raises:
        ValueError: the file has no address of a scheduler.
    """
    hint = "Give the file that dask scheduler --scheduler-file writes."
    scheduler = read_json(path, hint)
    if not isinstance(scheduler, dict) or "address" not in scheduler:
        raise ValueError(f"{path} is no scheduler file. {hint}")
