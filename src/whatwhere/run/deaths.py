"""Workers of a cluster that died at jobs, and the causes that Dask knows: memory, a crash, a lost machine."""

import asyncio
import re
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from .admission import WorkerProcess

SECONDS_TO_ASK = 3.0  # to ask a nanny how its worker ended; as long for the scheduler to report the loss
MOST_DEATHS = 20  # at one job, whatever their causes
MEMORY = "passed its memory limit"
GONE = "lost with its machine or batch job, or its nanny cannot be asked"
UNKNOWN = "died of something that its nanny does not name"
# Lines of a nanny's log on the process of its worker.
_END = re.compile(r"Worker process (\d+) ((?:exited with|was killed by) .*)")
_LIMIT = re.compile(r"\(pid=(\d+)\) exceeded .* memory budget")

_Worker = tuple[str, WorkerProcess | None]  # address and process: the next process may have the same address


class Deaths:
    """Deaths of workers with their causes, by the number of the job that the worker was doing.

    Dask counts a death against every job that the worker was given, whatever the cause. This class counts it against
    the job that the worker did, and tells a worker that was killed with its nanny from one that died of the job.

    Args:
        client: `distributed.Client` of the scheduler.
        processes: Processes of the workers, by address (`Admission.processes`).
    """

    def __init__(self, client: Any, processes: Mapping[str, WorkerProcess]) -> None:
        self.client = client
        self.processes = processes
        self._workers: dict[int, str] = {}  # number of a running job -> address of the worker that began it last
        self._deaths: dict[int, list[_Worker]] = defaultdict(list)  # number of a job -> workers that died at it
        self._causes: dict[_Worker, str] = {}

    def record_begin(self, number: int, address: str) -> None:
        """Remember that a worker begins a job. It does one at a time, so that its last one has ended."""
        for last in [job for job, worker in list(self._workers.items()) if worker == address]:
            self._workers.pop(last, None)
        self._workers[number] = address

    def forget(self, number: int) -> None:
        """Forget a job whose result has come: memory would grow with the shards of a text."""
        self._workers.pop(number, None)
        self._deaths.pop(number, None)

    def record_memory_limit(self, address: str) -> None:
        """Remember that a worker passed its memory limit, and that its nanny ends it for that."""
        self._causes[address, self.processes.get(address)] = MEMORY

    def has_passed_memory_limit(self, address: str) -> bool:
        """Return whether the worker's present process has passed its memory limit."""
        return self._causes.get((address, self.processes.get(address))) == MEMORY

    def is_busy(self, address: str) -> bool:
        """Return whether a worker began one of these jobs and is not known to have ended it."""
        return address in list(self._workers.values())

    def record_loss(self, address: str) -> None:
        """Record that a worker was lost without retiring."""
        for number, worker in list(self._workers.items()):  # a copy: another thread may call `forget`
            if worker == address:
                self._deaths[number].append((address, self.processes.get(address)))
                self._workers.pop(number, None)  # the next process at this address has not begun the job

    def wait_for_loss(self, number: int, address: str) -> None:
        """Wait until the scheduler reports that a worker died during a job.

        Return immediately if the worker did not do that job, and after SECONDS_TO_ASK at the latest.
        """
        until = time.monotonic() + SECONDS_TO_ASK
        while self._workers.get(number) == address and time.monotonic() < until:  # `record_loss` removes the number
            time.sleep(0.02)

    def last_worker(self, number: int) -> str:
        """Return the address of the worker that died last at a job; "" where none did."""
        deaths = self._deaths[number]
        return deaths[-1][0] if deaths else ""

    def find_causes(self, number: int) -> Counter[str]:
        """Return how often each cause of death occurred at a job, after asking the nannies of the dead workers."""
        for worker in self._deaths[number]:
            if worker not in self._causes:
                self._causes[worker] = UNKNOWN if worker[1] is None else self._ask_nanny(worker[1])
        return Counter(self._causes[worker] for worker in self._deaths[number])

    def _ask_nanny(self, process: WorkerProcess) -> str:
        """Return how the process of a worker ended, after asking the worker's nanny."""
        if not process.nanny:
            return GONE

        async def ask() -> Any:
            return await asyncio.wait_for(self.client.rpc(process.nanny).get_logs(), SECONDS_TO_ASK)

        until = time.monotonic() + SECONDS_TO_ASK
        while True:
            try:
                lines = [line for _, line in self.client.sync(ask)]
            except (OSError, TimeoutError, RuntimeError):
                # The job may yet be the cause, where only the nanny cannot be reached: MOST_DEATHS ends the retries.
                return GONE
            if any((limit := _LIMIT.search(line)) and int(limit[1]) == process.pid for line in lines):
                return MEMORY
            for line in lines:
                if (end := _END.search(line)) and int(end[1]) == process.pid:
                    return end[2]
            if time.monotonic() > until:
                return UNKNOWN
            time.sleep(0.2)


def count_deaths_caused_by_job(causes: Counter[str]) -> int:
    """Count the workers that died of a job: all but workers that were lost with their machine or batch job."""
    return causes.total() - causes[GONE]


def describe_deaths(causes: Counter[str]) -> str:
    """Return the causes of deaths in words, the most frequent first."""
    return ", ".join(f"{count} {cause}" for cause, count in causes.most_common())
