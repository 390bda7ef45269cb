"""Workers that died at jobs, and what Dask knows of why: memory, a crash, or a machine or batch job that is gone."""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from .admission import WorkerProcess

SECONDS_TO_ASK = 3.0  # a nanny how its worker ended
MOST_DEATHS = 20  # at one job, whatever their causes
MEMORY = "passed its memory limit"
GONE = "lost with its machine or batch job, or its nanny cannot be asked"
UNKNOWN = "died of something that its nanny does not name"
_END = re.compile(r"Worker process (\d+) ((?:exited with|was killed by) .*)")
_LIMIT = re.compile(r"\(pid=(\d+)\) exceeded .* memory budget")

_Worker = tuple[str, WorkerProcess | None]  # address and process: the next process may have the same address


class Deaths:
    """Deaths of workers by the number of the job that each was doing, and whether the job was the cause.

    Dask counts a death against every job that the worker was given, and all deaths alike. This counts a death at the
    job that the worker did, and tells a worker that was killed with its nanny from one that died of the job.

    Args:
        client: `distributed.Client` of the scheduler.
        processes: of the workers, by address (`Admission.processes`).
    """

    def __init__(self, client: Any, processes: Mapping[str, WorkerProcess]) -> None:
        self.client = client
        self.processes = processes
        self._busy: dict[int, str] = {}  # number of a job -> address of the worker that began it last
        self._deaths: dict[int, list[_Worker]] = defaultdict(list)  # number of a job -> workers that died at it
        self._causes: dict[_Worker, str] = {}

    def record_begin(self, number: int, address: str) -> None:
        """Remember that a worker begins a job, and so has ended the one before: it does one at a time."""
        for before in [other for other, busy in list(self._busy.items()) if busy == address]:
            self._busy.pop(before, None)
        self._busy[number] = address

    def forget(self, number: int) -> None:
        """Forget a job whose result is there: a text has millions of shards."""
        self._busy.pop(number, None)
        self._deaths.pop(number, None)

    def record_memory_limit(self, address: str) -> None:
        """Remember that a worker passed its memory limit, for which its nanny ends it."""
        self._causes[address, self.processes.get(address)] = MEMORY

    def has_passed_memory_limit(self, address: str) -> bool:
        """Return whether the worker's present process has passed its memory limit."""
        return self._causes.get((address, self.processes.get(address))) == MEMORY

    def is_busy(self, address: str) -> bool:
        """Return whether a worker last reported one of these jobs as running."""
        return address in list(self._busy.values())

    def record_loss(self, address: str) -> None:
        """Record that a worker was lost without retiring."""
        for number, busy in list(self._busy.items()):  # Dask's thread calls this, another one `forget`
            if busy == address:
                self._deaths[number].append((address, self.processes.get(address)))
                self._busy.pop(number, None)  # the next process at this address has not begun the job

    def wait_for_loss(self, number: int, address: str) -> None:
        """Wait until the scheduler reports that a worker died during a job.

        Return immediately if the worker did another job, and after SECONDS_TO_ASK at the latest.
        """
        until = time.monotonic() + SECONDS_TO_ASK
        while self._busy.get(number) == address and self.last_worker(number) != address and time.monotonic() < until:
            time.sleep(0.02)

    def last_worker(self, number: int) -> str:
        """Return the address of the worker that died last at a job; empty where none did."""
        deaths = self._deaths[number]
        return deaths[-1][0] if deaths else ""

    def find_causes(self, number: int) -> Counter[str]:
        """Ask how each worker ended that died at a job, and return how often each cause occurred."""
        for worker in self._deaths[number]:
            if worker not in self._causes:
                self._causes[worker] = UNKNOWN if worker[1] is None else self._ask_nanny(worker[1])
        return Counter(self._causes[worker] for worker in self._deaths[number])

    def _ask_nanny(self, process: WorkerProcess) -> str:
        """Ask the nanny of a worker how the process of the worker ended."""
        if not process.nanny:
            return GONE

        async def ask() -> Any:
            return await asyncio.wait_for(self.client.rpc(process.nanny).get_logs(), SECONDS_TO_ASK)

        until = time.monotonic() + SECONDS_TO_ASK
        while True:
            try:
                lines = [line for _, line in self.client.sync(ask)]
            except (OSError, TimeoutError, RuntimeError):
                # The nanny may only be unreachable. GONE is not blamed on the job, so MOST_DEATHS ends the retries.
                return GONE
            if any((limit := _LIMIT.search(line)) and int(limit[1]) == process.pid for line in lines):
                return MEMORY
            for line in lines:
                if (end := _END.search(line)) and int(end[1]) == process.pid:
                    return end[2]
            if time.monotonic() > until:
                return UNKNOWN
            time.sleep(0.2)


def deaths_caused_by_job(causes: Counter[str]) -> int:
    """Return how many workers died of a job: not those that were killed with their machines or batch jobs."""
    return causes.total() - causes[GONE]


def describe_deaths(causes: Counter[str]) -> str:
    """Return the causes of deaths in words, the most frequent first."""
    return ", ".join(f"{number} {cause}" for cause, number in causes.most_common())
