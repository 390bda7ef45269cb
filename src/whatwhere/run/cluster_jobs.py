"""Jobs that a command has handed to the workers of a Dask cluster: progress, results, and retries after deaths."""

import os
import pickle
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from .admission import Admission, explain_lost_scheduler
from .deaths import MEMORY, MOST_DEATHS, Deaths, count_deaths_caused_by_job, describe_deaths
from .executors import Job, MakeContext
from .remote import BEGIN, JobSite, code_versions, do_job

SECONDS_BETWEEN_LOOKS = 5.0  # for workers, which may come and go
SECONDS_OF_WATCHER = 5.0  # for the watching thread to end: it may be asking workers
MEMORY_TOPIC = "worker-restart-memory"  # Dask's name for events of workers that passed their memory limit
WORKERS_TOPIC = "all"  # Dask's name for events of workers that come and go, among others


class ClusterJobs:
    """Executor of jobs on the workers of a cluster, for one `Cluster.session`.

    Args:
        client: `distributed.Client` of the scheduler.
        address: Address of the scheduler, for messages.
        folder: Folder that the workers share with this machine.
        admission: Workers that may do the jobs.
        resources: Dask resources that a job asks for: name -> amount.
        make_context: Picklable function that returns the context manager inside which a worker does a job.
    """

    def __init__(
        self,
        client: Any,
        address: str,
        folder: Path,
        admission: Admission,
        resources: dict[str, int],
        make_context: MakeContext,
    ) -> None:
        self.client = client
        self.address = address
        self.admission = admission
        self.resources = resources
        self.make_context = make_context
        self.token = secrets.token_hex(4)
        self.site = JobSite(f"whatwhere-{self.token}", str(folder), os.getcwd())
        self.deaths = Deaths(client, admission.processes)
        self._under_way: dict[Any, tuple[int, str]] = {}  # number and label of a job, by its `distributed.Future`
        self._look_now = threading.Event()

    def submit(self, job: Job, number: int) -> "Future[Any]":
        """Hand a job to the workers, and return its future result.

        The future raises errors of the job, and further:
            ValueError: the scheduler lacks this package.
            OSError: workers died at the job again and again, or the scheduler is gone.
        """
        pickled = pickle.dumps((job.label, job.work, job.args, self.make_context))
        # Dask expects a job to take as long as jobs whose keys begin alike. It expects half a second of any other, and
        # then leaves jobs behind a long one for minutes while another worker is idle.
        key = f"{getattr(job.work, '__name__', 'job')}-{self.token}-{number}-{job.label.replace(' ', '-')}"
        options = {"key": key, "pure": False, "resources": self.resources}
        with explain_lost_scheduler(self.client, self.address):
            dask_future = self.client.submit(do_job, self.site, number, pickled, **options)
        self._under_way[dask_future] = number, job.label
        future: Future[Any] = Future()
        dask_future.add_done_callback(partial(self._finish, future))
        return future

    def _finish(self, future: "Future[Any]", dask_future: Any) -> None:
        """Give a future the result or the error of a job that Dask has finished, or retry the job."""
        from distributed import KilledWorker

        try:
            try:
                result = self._result(dask_future)
            except KilledWorker as error:
                if self._retry_unless_job_kills_workers(dask_future, error):
                    dask_future.add_done_callback(partial(self._finish, future))
                    return
                raise OSError(self._describe_deaths(dask_future)) from None
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        # The last reference to Dask's future goes: else Dask would repeat the job if the worker with its result died.
        self._under_way.pop(dask_future, None)

    def _retry_unless_job_kills_workers(self, dask_future: Any, error: Any) -> bool:
        """Retry a job that Dask gave up, unless it was the cause of the deaths; return whether it is retried.

        error: the `distributed.KilledWorker` of the job.
        """
        number, _ = self._under_way[dask_future]
        self.deaths.wait_for_loss(number, error.last_worker.address)
        causes = self.deaths.find_causes(number)
        if count_deaths_caused_by_job(causes) > error.allowed_failures or causes.total() >= MOST_DEATHS:
            return False
        with explain_lost_scheduler(self.client, self.address):
            dask_future.retry()
        return True

    def _result(self, dask_future: Any) -> Any:
        """Return the result of a job, or raise its error; a ValueError of one line if the scheduler lacks whatwhere."""
        try:
            with explain_lost_scheduler(self.client, self.address):
                result = dask_future.result()
        except (ModuleNotFoundError, RuntimeError) as error:
            cause = error.__cause__ or error
            if not isinstance(cause, ModuleNotFoundError) or (cause.name or "").split(".")[0] != "whatwhere":
                raise
            program, installed = code_versions()[0]
            raise ValueError(
                f"The scheduler at {self.address} lacks {program} {installed}. Install it there, and start it again."
            ) from None
        self.deaths.forget(self._under_way[dask_future][0])
        return result

    def _describe_deaths(self, dask_future: Any) -> str:
        """Return the error message for a job at which workers died again and again."""
        number, label = self._under_way[dask_future]
        causes = self.deaths.find_causes(number)
        advice = "Look at what it printed"
        if causes[MEMORY]:
            advice = "Give each more memory (dask worker --memory-limit)"
        elif any(cause.endswith("signal 9") for cause in causes):
            advice = "Look whether its machine was short of memory"
        workers = "A worker" if causes.total() == 1 else f"{causes.total()} workers, one after another,"
        last = self.deaths.last_worker(number)
        return (
            f"{workers} died at {label} ({describe_deaths(causes)}), the last at {last}. {advice}, and run the same "
            "command to resume."
        )

    def cancel(self) -> None:
        """Tell the workers to stop the jobs."""
        self.client.cancel(list(self._under_way), force=True)

    @contextmanager
    def listen(self, show: Callable[..., None]) -> Iterator[None]:
        """Handle events in the block: show progress, record deaths, print that a worker is gone or short of memory."""

        def handle_job(event: tuple[float, Any]) -> None:
            kind, *values = event[1]
            if kind == BEGIN:
                self.deaths.record_begin(*values)
            else:
                show(*values)

        def handle_memory(event: tuple[float, dict[str, Any]]) -> None:
            worker = event[1].get("worker", "")
            self.deaths.record_memory_limit(worker)
            if not self.deaths.is_busy(worker):  # the worker does a job of another command
                return
            words = f"The worker {worker} passed its memory limit and starts again; its job goes on where it can."
            print(f"\n{words} Give workers more: dask worker --memory-limit.", file=sys.stderr, flush=True)

        def handle_worker(event: tuple[float, dict[str, Any]]) -> None:
            action = event[1].get("action")
            if action == "add-worker":
                self._look_now.set()
            elif action == "remove-worker" and not event[1]["expected"]:
                worker = event[1]["worker"]
                if self.deaths.is_busy(worker) and not self.deaths.has_passed_memory_limit(worker):
                    print(f"\nThe worker {worker} is gone; its job goes on where it can.", file=sys.stderr, flush=True)
                self.deaths.record_loss(worker)

        topics = {self.site.topic: handle_job, MEMORY_TOPIC: handle_memory, WORKERS_TOPIC: handle_worker}
        for topic, handle in topics.items():
            self.client.subscribe_topic(topic, handle)
        try:
            yield
        finally:
            with suppress(Exception):  # the scheduler is gone
                for topic in topics:
                    self.client.unsubscribe_topic(topic)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Let workers that join during the block check themselves, and print why jobs wait where none can run."""
        is_over = threading.Event()

        def look_for_workers() -> None:
            last_reason = ""
            while not is_over.is_set():
                self._look_now.wait(SECONDS_BETWEEN_LOOKS)
                self._look_now.clear()
                if is_over.is_set():
                    return
                with suppress(Exception):  # the scheduler is gone: the jobs raise that
                    reason = self.reason_for_waiting(self.admission.admit_new_workers(may_raise=False))
                    if reason and reason != last_reason:
                        print(f"\n{reason}", file=sys.stderr, flush=True)
                    last_reason = reason

        watcher = threading.Thread(target=look_for_workers, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            self._look_now.set()
            watcher.join(SECONDS_OF_WATCHER)

    def reason_for_waiting(self, usable: Sequence[Mapping[str, Any]]) -> str:
        """Return a line on why jobs wait, if none of the `usable` workers can do a job now; else ""."""
        if not usable:
            which = "No worker with a GPU" if self.admission.needs_gpu else "No worker"
            return f"{which} of {self.address} is left: waiting for one (dask worker)."
        if all(worker["status"] == "paused" and not self.deaths.is_busy(worker["address"]) for worker in usable):
            advice = "Give workers more: dask worker --memory-limit"
            return f"Each worker of {self.address} holds most of its memory, and Dask gives it no job. {advice}."
        return ""
