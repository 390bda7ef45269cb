"""Policy by which torch's threads wait for each other: spinning where the cores are free, sleeping where they are not.

The threads of an operation meet at its end, hundreds of times a training step, and libgomp lets early threads spin for
some milliseconds. Beside another program, a spinning thread takes the core from the thread that it waits for.
Sleeping costs little there, but on an idle machine each thread has to be woken. The number of threads never changes:
results and exact resume depend on it, and not on how threads wait. Times: docs/benchmarks.md.
"""

import os
import sys
import time
from collections.abc import MutableMapping
from dataclasses import dataclass

import psutil

# Environment variables that say how threads wait: of OpenMP, of libgomp, and of libomp (macOS).
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SLEEP = {"OMP_WAIT_POLICY": "PASSIVE"}
# As fast as libgomp's own 300,000 on an idle machine, and less harmful when another program begins later.
SPIN = {"GOMP_SPINCOUNT": "10000"}
MOST_USED = 0.25  # cores: where other programs use no more, the machine counts as idle


@dataclass(frozen=True)
class CoreTimes:
    """Seconds of the clock, of idle cores and of this process, read at one moment; each counts from a fixed moment.

    idle: summed over the cores that this process may use. process: processor time of this process. cores: number of
    cores that this process may use.
    """

    clock: float
    idle: float
    process: float
    cores: int


def core_times() -> CoreTimes:
    """Read the times of the cores that this process may use."""
    all_cores = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(all_cores))
    cores = [times for number, times in enumerate(all_cores) if number in allowed]
    idle = sum(times.idle + getattr(times, "iowait", 0.0) for times in cores)
    return CoreTimes(time.perf_counter(), idle, time.process_time(), len(cores))


def cores_used_by_others(begin: CoreTimes, end: CoreTimes) -> float:
    """Return how many cores, 0 to `end.cores`, other programs kept busy between two readings."""
    seconds = max(end.clock - begin.clock, 0.01)  # the system counts in steps of 10 ms
    free = (end.idle - begin.idle) + (end.process - begin.process)
    return min(max(end.cores - free / seconds, 0.0), float(end.cores))


def set_wait_policy(used_cores: float, environment: MutableMapping[str, str] = os.environ) -> None:
    """Set environment variables for how threads of this process and its children wait, before torch is loaded.

    Nothing is set where the user has set one of these variables, or torch is loaded already, which reads them once.

    Args:
        used_cores: Number of cores that other programs use.
        environment: Mapping in which variables are set.
    """
    if "torch" in sys.modules or any(name in environment for name in VARIABLES):
        return
    environment.update(SPIN if used_cores <= MOST_USED else SLEEP)


def wait_policy() -> str:
    """Return the variables of `VARIABLES` that are set, as NAME=VALUE; "the library's default" where none is."""
    settings = [f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ]
    return ", ".join(settings) or "the library's default"
