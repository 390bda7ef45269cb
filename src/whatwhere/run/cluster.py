"""Jobs on the workers of a Dask cluster, which share a folder with this machine, in place of processes of this machine.

The scheduler gives a job to a free worker, and to another one if that worker dies; work that keeps what it has finished
then goes on there. A worker does one job at a time, on one thread, so that a model is the same to the last bit wherever
it is trained.
"""

import logging
import os
import pickle
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakSet

from .files import machine_id, write_text
from .lock import InUse, writer_of
from .processes import Context
from .remote import Requirements, call, code_versions, topic_of, wait_until_idle
from .signals import GRACE, Stopped

SECONDS_TO_CONNECT = 5  # twice: to reach the scheduler, and for its first answer
SECONDS_BETWEEN_COUNTS = 5.0  # of workers, which may come and go
SECONDS_OF_WATCHER = 5.0  # to end: it may be asking the scheduler
RESTARTS = "worker-restart-memory"  # dask's name of the events of workers that passed their memory limit

Submit = Callable[[str, Callable[..., Any], tuple[Any, ...]], Any]  # as `Call`, to a future result
Call = tuple[str, Callable[..., Any], tuple[Any, ...]]  # label, function of a module, arguments


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
        self._slots = 1
        self._until = 0.0
        self.resources = {"GPU": 1} if any(map(_has_gpu, workers_of(client))) else None

    @property
    def dashboard(self) -> str:
        """Address of the page that shows what each worker does."""
        return str(self.client.dashboard_link or "")

    def slots(self) -> int:
        """Return how many jobs run at the same time now, at least 1; more workers may come later."""
        workers = workers_of(self.client)
        return max(1, len(workers) if self.resources is None else sum(map(_has_gpu, workers)))

    def run(
        self, calls: Sequence[Call], show: Callable[..., None], context: Context = nullcontext
    ) -> Iterator[tuple[int, Any]]:
        """Do calls on the workers, and yield the number of each with its result when it finishes.

        Args:
            calls: A function gets a `Progress` after its arguments.
            show: Function that gets the number and label of a call, done, total, part and note.
            context: Picklable function that returns the context in which a worker does a call.

        Raises:
            Exception: whatever a call raises, or as `result`. The others are stopped, trainings with a checkpoint.
        """
        from distributed import as_completed

        with self.session(show, context) as submit:
            numbers = {submit(*one): number for number, one in enumerate(calls)}
            for future in as_completed(list(numbers), loop=self.client.loop):
                number = numbers.pop(future)
                label = calls[number][0]
                result = self.result(future, label)
                del future  # else a worker that dies would have the call done again
                show(number, label, 0, None, "", "")
                yield number, result

    def map(
        self, label: str, work: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]
    ) -> Generator[Any, None, None]:
        """Do a call for each of the arguments, in order, and yield the results in that order.

        Arguments are drawn as workers become free: at most two calls a worker are under way.
        """
        waiting: deque[Any] = deque()
        with self.session(lambda *state: None) as submit:
            for one in arguments:
                while waiting and (waiting[0].done() or len(waiting) >= 2 * self._slots_lately()):
                    yield self.result(waiting.popleft(), label)
                waiting.append(submit(label, work, one))
            while waiting:
                yield self.result(waiting.popleft(), label)

    def _slots_lately(self) -> int:
        """Return `slots` as they were at most some seconds ago."""
        if (now := time.monotonic()) > self._until:
            self._slots = self.slots()
            self._until = now + SECONDS_BETWEEN_COUNTS
        return self._slots

    @contextmanager
    def session(self, show: Callable[..., None], context: Context = nullcontext) -> Iterator[Submit]:
        """Yield a function that hands a call to the workers and returns its `distributed.Future`.

        The calls are numbered from 0. Where the block ends early, calls that run are stopped, with a checkpoint.
        """
        run = secrets.token_hex(4)
        token = self.folder / f".token.{machine_id()}-{os.getpid()}"
        write_text(token, run)
        requirements = Requirements(run, code_versions(), os.getcwd(), str(token))
        futures: WeakSet[Any] = WeakSet()
        numbers = count()

        def submit(label: str, work: Callable[..., Any], args: tuple[Any, ...]) -> Any:
            number = next(numbers)
            pickled = pickle.dumps((label, work, args, context))
            key = f"{label.replace(' ', '-')}-{run}-{number}"
            options = {"key": key, "pure": False, "resources": self.resources}
            future = self.client.submit(call, requirements, number, pickled, **options)
            futures.add(future)
            return future

        try:
            with self._reports(run, show), self._warnings():
                yield submit
        except BaseException as error:
            if isinstance(error, Stopped):
                words = "each training writes a checkpoint, and finished work stays"
                print(f"\nStopping: {words}", file=sys.stderr, flush=True)
            self._stop(list(futures))
            raise
        finally:
            token.unlink(missing_ok=True)

    @contextmanager
    def _reports(self, run: str, show: Callable[..., None]) -> Iterator[None]:
        """Show the progress that workers report in the block, and name a worker that passes its memory limit."""

        def name_restart(event: tuple[float, dict[str, Any]]) -> None:
            worker = event[1].get("worker", "")
            words = f"The worker {worker} passed its memory limit and starts again; its job goes on where it can."
            print(f"\n{words} Give workers more: dask worker --memory-limit.", file=sys.stderr, flush=True)

        self.client.subscribe_topic(topic_of(run), lambda event: show(*event[1]))
        self.client.subscribe_topic(RESTARTS, name_restart)
        try:
            yield
        finally:
            with suppress(Exception):  # the scheduler is gone
                self.client.unsubscribe_topic(topic_of(run))
                self.client.unsubscribe_topic(RESTARTS)

    @contextmanager
    def _warnings(self) -> Iterator[None]:
        """Print a line in the block when the last worker is gone: calls then wait for another one."""
        is_over = threading.Event()

        def watch() -> None:
            was_empty = False
            while not is_over.wait(SECONDS_BETWEEN_COUNTS):
                with suppress(Exception):  # the scheduler is gone, which the calls say
                    is_empty = not workers_of(self.client)
                    if is_empty and not was_empty:
                        words = f"No worker of {self.address} is left: waiting for one (dask worker)."
                        print(f"\n{words}", file=sys.stderr, flush=True)
                    was_empty = is_empty

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join(SECONDS_OF_WATCHER)

    def result(self, future: Any, label: str) -> Any:
        """Return the result of a call, or raise its error in the words of this package.

        Raises:
            ValueError: a worker has another version, several threads, or another folder.
            OSError: workers died again and again, or the scheduler is gone.
        """
        from distributed import KilledWorker

        try:
            return future.result()
        except CancelledError:
            raise OSError(
                f"The scheduler at {self.address} is gone. Finished work and checkpoints stay: start a scheduler and "
                "workers, and run the same command."
            ) from None
        except KilledWorker as error:
            raise OSError(
                f"{error.allowed_failures + 1} workers died one after another at {label}, the last at "
                f"{error.last_worker.address}, perhaps for lack of memory. Give each more (dask worker "
                "--memory-limit), and run the same command to resume."
            ) from None
        except (ModuleNotFoundError, RuntimeError) as error:
            cause = error.__cause__ or error
            if not isinstance(cause, ModuleNotFoundError) or (cause.name or "").split(".")[0] != "whatwhere":
                raise
            program, installed = code_versions()[0]
            raise ValueError(
                f"A worker or the scheduler at {self.address} lacks {program} {installed}. Install it there, and start "
                "it again."
            ) from None

    def _stop(self, futures: Sequence[Any]) -> None:
        """Cancel calls, and wait until their workers have written checkpoints."""
        with suppress(Exception):  # the scheduler is gone, and its workers stop by themselves
            self.client.cancel(list(futures), force=True)
            self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait for workers that still do a call in this folder, as for a command that was killed."""
        self.client.run(wait_until_idle, str(self.folder), GRACE, on_error="ignore")


def _has_gpu(worker: dict[str, Any]) -> bool:
    return bool(worker["resources"].get("GPU"))


def workers_of(client: Any) -> list[dict[str, Any]]:
    """Ask the scheduler of a `distributed.Client` for its workers, and return what it knows of each."""
    # Not `scheduler_info`, whose list dask's own look every two seconds empties.
    identity = client.sync(client.scheduler.identity, n_workers=-1)
    return list(identity["workers"].values())


@contextmanager
def connect(address: str | None, folder: Path) -> Iterator[Cluster | None]:
    """Connect to the scheduler of a cluster and wait for its first worker; None yields None.

    Args:
        address: For example tcp://10.0.0.1:8786, or the path of a scheduler file.
        folder: Folder of the command's results, which every worker must have under the same path.

    Raises:
        ValueError: nothing answers there, or `distributed` is not installed.
        InUse: another process writes to the folder.
    """
    if address is None:
        yield None
        return
    try:
        import dask
        from distributed import Client
    except ModuleNotFoundError as error:
        if error.name not in ("dask", "distributed"):  # which lack a package of their own
            raise
        raise ValueError("--on needs Dask: pip install 'whatwhere[cluster]'.") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as an error of the call
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
        try:
            place = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
            client = Client(**place, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, ImportError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"No scheduler answers at {address} ({reason}). Start one: dask scheduler.") from None
        with client:
            if (writer := writer_of(folder)) is not None:
                raise InUse(folder, writer)
            if not workers_of(client):
                print(f"Waiting for a worker of {address}", file=sys.stderr, flush=True)
            client.wait_for_workers(1)
            cluster = Cluster(client, address, folder)
            cluster.wait_until_idle()
            yield cluster
