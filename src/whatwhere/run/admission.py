"""Workers of a Dask cluster that may do the calls of a command: those that have what the command has.

Each worker checks itself once for a command. One that passes gets a resource that every call of the command asks for,
so that the scheduler gives no call to another one, which may work for other commands.
"""

import os
import secrets
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import machine_id, write_text
from .remote import Requirements, admit, code_versions


@dataclass(frozen=True)
class Process:
    """Process of a worker: its `pid`, and the address of the nanny that starts it again; empty where there is none."""

    pid: int
    nanny: str


class Admission:
    """Workers that passed the check of a command, and those that did not.

    Args:
        client: `distributed.Client` of the scheduler.
        address: of the scheduler, for messages.
        folder: Folder that the workers share with this machine; this process holds it while they are checked.
    """

    def __init__(self, client: Any, address: str, folder: Path) -> None:
        self.client = client
        self.address = address
        self.folder = folder
        self.mark = f"whatwhere-{secrets.token_hex(4)}"  # the resource of a worker that passed
        self.usable = 0  # workers that had passed at the last look
        self.processes: dict[str, Process] = {}  # of every worker that ever passed, by its address
        self._refused: dict[str, str] = {}  # address -> why
        self._lock = threading.Lock()  # the thread that looks for new workers, and the one that hands out calls

    def look(self, may_raise: bool = True) -> list[dict[str, Any]]:
        """Let new workers check themselves, name those that do not pass, and return what is known of the workers
        that passed.

        Args:
            may_raise: False: where no worker has ever passed, those that do not pass are only named.

        Raises:
            ValueError: there are workers, and none has ever passed.
        """
        with self._lock:
            workers = workers_of(self.client)
            self._refused = {address: why for address, why in self._refused.items() if address in workers}
            new = [
                address
                for address, worker in workers.items()
                if self.mark not in worker["resources"]
                and address not in self._refused
                and not worker["status"].startswith("clos")
            ]
            refused = self._check(new, workers) if new else []
            usable = [worker for worker in workers.values() if self.mark in worker["resources"]]
            if may_raise and self._refused and not self.processes:
                reason, *others = self._refused.values()
                rest = f" No other worker of {self.address} can be used ({len(others)} more)." if others else ""
                raise ValueError(reason + rest)
            for address in refused:
                print(f"\n{self._refused[address]} Until then it gets no work.", file=sys.stderr, flush=True)
            self.usable = len(usable)
            return usable

    def _check(self, new: list[str], workers: dict[str, dict[str, Any]]) -> list[str]:
        """Let new workers check themselves, and return the addresses of those that do not pass."""
        token = self.folder / f".token.{machine_id()}-{os.getpid()}"
        requirements = Requirements(self.mark, code_versions(), os.getcwd(), str(token))
        write_text(token, requirements.mark)
        try:
            answers = self.client.run(admit, requirements, workers=new, on_error="return")
        finally:
            token.unlink(missing_ok=True)
        refused = []
        for address, answer in answers.items():
            if isinstance(answer, OSError):  # it is gone, or asked again at the next look
                continue
            if isinstance(answer, Exception):
                self._refused[address] = _reason(address, answer)
                refused.append(address)
            else:
                workers[address]["resources"][self.mark] = 1
                self.processes[address] = Process(answer, workers[address]["nanny"] or "")
        return refused


def _reason(address: str, error: Exception) -> str:
    """Return the line on a worker that did not pass."""
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
    """Ask the scheduler of a `distributed.Client` for its workers, and return what it knows of each, by address."""
    # Not `scheduler_info`, whose list dask's own look every two seconds empties.
    return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
