"""Jobs on the workers of a Dask cluster, which share a folder with this machine, in place of processes of this machine.

The scheduler gives each job to a worker at once, and moves it to one that is free, or to another if that worker dies;
work that keeps what it has finished then goes on there. A worker does one job at a time, on one thread, so that a model
is the same to the last bit wherever it is trained.
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

from .admission import Admission, describe_lost_scheduler, workers_of
from .cluster_jobs import ClusterJobs
from .executors import MakeContext, Show, one_thread_context
from .files import read_json
from .lock import InUse, writer_of
from .progress import ignore_progress
from .remote import wait_until_idle as wait_on_worker
from .signals import GRACE, STOPPING, Stopped

MESSAGES_KEPT = 10  # log messages that Dask keeps, by default 1,000; each holds the texts of a job
SECONDS_OF_SILENCE = 5.0  # until a line says what the command waits for
SECONDS_OF_ANSWERS = 5.0  # to collect the answers of workers that have waited
SECONDS_TO_CONNECT = 5  # twice: to reach the scheduler, and for its first answer


class Cluster:
    """Workers of a Dask cluster, through its scheduler; `connect` returns one.

    Args:
        client: `distributed.Client` of the scheduler.
        folder: Folder that the workers share with this machine, and that this process holds while they work.
    """

    def __init__(self, client: Any, address: str, folder: Path) -> None:
        self.client = client
        self.address = address
        self.folder = Path(os.path.abspath(folder))
        self.admission = Admission(client, address, self.folder)

    @property
    def resources(self) -> dict[str, int]:
        """Resources that a job asks for: the mark of a worker that passed the check, and a GPU where workers have one.

        Jobs of a mark take turns on a worker.
        """
        return {self.admission.mark: 1} | ({"GPU": 1} if self.admission.needs_gpu else {})

    def admit_workers(self) -> int:
        """Admit workers that came, and return how many jobs run at the same time now, at least 1.

        Raises:
            ValueError: no worker has what this command has.
        """
        return max(1, len(self.admission.admit_new_workers()))

    @contextmanager
    def session(self, show: Show = ignore_progress, make_context: MakeContext = nullcontext) -> Iterator[ClusterJobs]:
        """Yield an executor for the block; where it ends early, jobs that run are stopped, with a checkpoint.

        Args:
            show: Function that gets the progress of the jobs, in a thread of its own.
            make_context: Picklable function that returns the context in which a worker does a job.

        Raises:
            ValueError: no worker has what this command has.
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
            with suppress(Exception):  # the scheduler is gone, and its workers stop by themselves
                jobs.cancel()
                self.wait_until_idle()
            raise

    def wait_until_idle(self) -> None:
        """Wait for workers that still do a job in this folder, as for a command that was killed."""

        async def wait() -> None:
            await self.client.run(wait_on_worker, str(self.folder), GRACE, on_error="ignore")

        words = "Waiting for workers that may still do a job in this folder"
        notice = threading.Timer(SECONDS_OF_SILENCE, lambda: print(words, file=sys.stderr, flush=True))
        notice.start()
        try:
            with suppress(TimeoutError), describe_lost_scheduler(self.client, self.address):
                self.client.sync(wait, callback_timeout=GRACE + SECONDS_OF_ANSWERS)
        finally:
            notice.cancel()


@contextmanager
def connect(address: str | None, folder: Path) -> Iterator[Cluster | None]:
    """Connect to the scheduler of a cluster, and yield the cluster once it has a worker.

    Print the address of its dashboard, too.

    Args:
        address: For example tcp://10.0.0.1:8786, or the path of a scheduler file; None yields None.
        folder: Folder of the command's results, which every worker must have under the same path.

    Raises:
        ValueError: nothing answers there, or `distributed` is not installed.
        InUse: another process writes to the folder.
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
        if error.name not in ("dask", "distributed"):  # which lack a package of their own
            raise
        raise ValueError("--on needs Dask: pip install 'whatwhere[cluster]'.") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as an error of the job
    settings = {
        "distributed.admin.large-graph-warning-threshold": "1GB",
        "distributed.admin.low-level-log-length": MESSAGES_KEPT,
    }
    with dask.config.set(settings):
        try:
            place = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
            client = Client(**place, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, ImportError, AssertionError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"No scheduler answers at {address} ({reason}). Start one: dask scheduler.") from None
        with client:
            if (writer := writer_of(folder)) is not None:
                raise InUse(folder, writer)
            with describe_lost_scheduler(client, address):
                with suppress(KeyError):  # its address is made of variables that are not set here
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
        _job = client.submit(int, pure=False)  # a cluster that adapts starts workers where a job waits, else none
    client.wait_for_workers(1)


def _check_scheduler_file(path: Path) -> None:
    """Refuse a file that no scheduler has written.

    Raises:
        ValueError: names it.
    """
    hint = "Give the file that dask scheduler --scheduler-file writes."
    scheduler = read_json(path, hint)
    if not isinstance(scheduler, dict) or "address" not in scheduler:
        raise ValueError(f"{path} is no scheduler file. {hint}")
