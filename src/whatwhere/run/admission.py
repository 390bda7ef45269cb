"""Workers of a Dask cluster that may do the jobs of a command, because they have its versions and its folder.

Each worker checks itself once for a command. A worker that passes gets a Dask resource that every job of the command
asks for. The scheduler then gives these jobs to no other worker; others may work for other commands.
"""

import asyncio
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import machine_id, write_text
from .remote import Requirements, admit, code_versions

SECONDS_TO_ANSWER = 30.0  # for a worker that is asked to check itself
SECONDS_FOR_SILENT = 2.0  # for a worker that did not answer before


@dataclass(frozen=True)
class WorkerProcess:
    """Process of a worker: its `pid`, and the address of the nanny that starts it again; "" where it has no nanny."""

    pid: int
    nanny: str


class Admission:
    """Workers that passed the check of a command, and workers that did not.

    Args:
        client: `distributed.Client` of the scheduler.
        address: Address of the scheduler, for messages.
        folder: Folder that the workers share with this machine; the command has locked it when they are checked.
    """

    def __init__(self, client: Any, address: str, folder: Path) -> None:
        self.client = client
        self.address = address
        self.folder = folder
        self.resource = f"whatwhere-{secrets.token_hex(4)}"  # name of the Dask resource of a worker that passed
        self.usable_count = 0  # workers that the last `admit_new_workers` returned
        # True where jobs ask for a GPU, because one of the first workers that passed has one; None before any passed.
        self.needs_gpu: bool | None = None
        self.processes: dict[str, WorkerProcess] = {}  # of every worker that ever passed, by its address
        self._processors: set[str] = set()  # names of the processors of workers that passed
        self._silent: set[str] = set()  # addresses of workers that did not answer, for which a line was printed
        self._refusals: dict[str, str] = {}  # address of a worker that did not pass -> the reason, as a message
        self._lock = threading.Lock()  # between the thread that looks for new workers and the one that hands out jobs

    def admit_new_workers(self, may_raise: bool = True) -> list[dict[str, Any]]:
        """Let new workers check themselves, print why some do not pass, and return the workers that may get jobs.

        These have passed, and have a GPU where jobs ask for one. Their descriptions are as in `workers_of`.

        Args:
            may_raise: True: raise an error where workers were refused and none has ever passed. False: only print why.

        Raises:
            ValueError: workers were refused, and none has ever passed.
            OSError: the scheduler is gone.
        """
        with self._lock, explain_lost_scheduler(self.client, self.address):
            workers = workers_of(self.client)
            self._refusals = {address: why for address, why in self._refusals.items() if address in workers}
            # A worker that has the resource but is not in `processes` has passed, and answered too late.
            new = [
                address
                for address, worker in workers.items()
                if (self.resource not in worker["resources"] or address not in self.processes)
                and address not in self._refusals
                and not worker["status"].startswith("clos")
            ]
            refused = self._check(new, workers) if new else []
            passed = [worker for worker in workers.values() if self.resource in worker["resources"]]
            if self.needs_gpu is None and passed:
                self.needs_gpu = any(map(_has_gpu, passed))
            usable = [worker for worker in passed if _has_gpu(worker) or not self.needs_gpu]
            if may_raise and self._refusals and not self.processes:
                reason, *others = self._refusals.values()
                rest = f" No other worker of {self.address} can be used ({len(others)} more)." if others else ""
                raise ValueError(reason + rest)
            for address in refused:
                print(f"\n{self._refusals[address]} Until then it gets no work.", file=sys.stderr, flush=True)
            self.usable_count = len(usable)
            return usable

    def _check(self, new: list[str], workers: dict[str, dict[str, Any]]) -> list[str]:
        """Let new workers check themselves, and return the addresses of workers that do not pass."""
        # A temporary name of `files.TEMPORARY`, which the next command clears where this process is killed.
        proof = self.folder / f".token.{machine_id()}-{os.getpid()}"
        requirements = Requirements(self.resource, code_versions(), os.getcwd(), str(proof))

        async def ask(address: str) -> Any:
            answer = self.client.run(admit, requirements, workers=[address], on_error="return")
            try:
                seconds = SECONDS_FOR_SILENT if address in self._silent else SECONDS_TO_ANSWER
                return (await asyncio.wait_for(answer, seconds)).get(address)
            except TimeoutError as error:
                return error

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*map(ask, new))

        write_text(proof, requirements.resource)
        try:
            answers = dict(zip(new, self.client.sync(ask_all), strict=True))
        finally:
            proof.unlink(missing_ok=True)
        refused = []
        for address, answer in answers.items():
            if answer is None or isinstance(answer, OSError):  # the worker is gone, or is asked again the next time
                self._print_silent(address, answer)
            elif isinstance(answer, Exception):
                self._refusals[address] = _refusal_message(address, answer)
                refused.append(address)
            else:
                self._silent.discard(address)
                pid, processor = answer
                workers[address]["resources"][self.resource] = 1
                self.processes[address] = WorkerProcess(pid, workers[address]["nanny"] or "")
                self._print_kinds_of_processors(processor)
        return refused

    def _print_silent(self, address: str, answer: OSError | None) -> None:
        """Print once that a worker does not answer, if it exceeded its time."""
        if isinstance(answer, TimeoutError) and address not in self._silent:
            self._silent.add(address)
            print(
                f"\nThe worker {address} does not answer: it gets no work until it does.", file=sys.stderr, flush=True
            )

    def _print_kinds_of_processors(self, processor: str) -> None:
        """Add a worker's processor, and print a line if it is another than those before."""
        if self._processors and processor not in self._processors:
            kinds = ", ".join(sorted({*self._processors, processor}))
            words = "The last bits of a result may depend on the worker that computes it"
            print(f"\nWorkers have processors of several kinds ({kinds}). {words}.", file=sys.stderr, flush=True)
        self._processors.add(processor)


def _has_gpu(worker: dict[str, Any]) -> bool:
    return bool(worker["resources"].get("GPU"))


@contextmanager
def explain_lost_scheduler(client: Any, address: str) -> Iterator[None]:
    """Turn an error that Dask raises in the block into an error of one line, if the scheduler is gone.

    Raises:
        OSError: the scheduler is gone.
    """
    from distributed.comm import CommClosedError

    try:
        yield
    except Exception as error:
        # A client whose scheduler comes back is running again, but has cancelled all its jobs.
        is_lost = client.status != "running" or isinstance(error, CancelledError | CommClosedError)
        if not is_lost or isinstance(error, ValueError):
            raise
        raise OSError(
            f"The scheduler at {address} is gone. Finished work and checkpoints stay: start a scheduler and workers, "
            "and run the same command."
        ) from None


def _refusal_message(address: str, error: Exception) -> str:
    """Return the message on a worker that did not pass."""
    if isinstance(error, ValueError):
        return str(error)
    program, installed = code_versions()[0]
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] == "whatwhere":
        return f"The worker {address} lacks {program} {installed}. Install it there, and start the worker again."
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"The worker {address} cannot check itself ({what}). Install {program} {installed} there, and start the worker "
        "again."
    )


def workers_of(client: Any) -> dict[str, dict[str, Any]]:
    """Return the scheduler's description of each of its workers by address; `client` is a `distributed.Client`."""
    # Not `scheduler_info`: every two seconds Dask replaces its answer by one without workers.
    workers = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return {address: {"address": address, **worker} for address, worker in workers.items()}
