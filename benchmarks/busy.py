"""Training steps on an idle machine and beside a program that keeps a core busy, by how torch's threads wait.

Each way to wait has a process of its own, as it is read when torch is loaded. The busy program is started and stopped
for every measurement, so that idle ones and busy ones alternate in one run.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import get_context

import torch

import whatwhere as ww
from whatwhere.run.thread_waiting import SLEEP, SPIN, VARIABLES
from whatwhere.training.loop import Trainer
from whatwhere.training.pretrain_settings import PretrainConfig

from .models import masked_batch
from .timing import Results, Settings, alternate, figure, row

SHAPE = {"full": (32, 128, 4096), "quick": (32, 128, 4096), "micro": (2, 16, 300)}  # rows, tokens, vocabulary
LONGEST = {"full": 0.3, "quick": 0.3, "micro": 0.0}  # seconds of steps in a measurement; at least one step
ROUNDS = {"full": 4, "quick": 2, "micro": 1}  # times the usual: short rounds, of which some are undisturbed
WAYS: dict[str, Mapping[str, str]] = {  # to wait: the environment, as torch is loaded
    "libgomp's default": {},
    "sleeping": SLEEP,
    "spinning 10,000 times": SPIN,
    "one thread": {},
}
PROGRAM = """
import os
parent = os.getppid()
print(flush=True)
while os.getppid() == parent:  # it ends with the benchmark, however that ends
    for _ in range(10**6):
        pass
"""
IDLE = "nothing begun beside"
BUSY = "a core kept busy"


def busy(settings: Settings) -> Results:
    """Seconds of a training step by each way to wait, idle and beside a core that is kept busy."""
    results = Results()
    b, n, vocab = SHAPE[settings.scale]
    every = torch.get_num_threads()
    with ExitStack() as stack:
        runs: dict[tuple[str, str], Callable[[], float]] = {}
        for way, variables in WAYS.items():
            threads = 1 if way == "one thread" else every
            pool = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
            with _environment(variables):  # the process begins with its first work
                pool.submit(_prepare, threads, b, n, vocab).result()
            measure = partial(_seconds_in, pool, LONGEST[settings.scale])
            runs[way, IDLE] = measure
            runs[way, BUSY] = partial(_beside_a_busy_core, measure)
        slow = "libgomp's default", BUSY  # a step can take ten seconds
        apart = {key: runs.pop(key) for key in [slow]}
        times = alternate(runs, ROUNDS[settings.scale] * settings.repeats, measure=lambda seconds: seconds())
        times |= alternate(apart, settings.repeats, measure=lambda seconds: seconds())
    figures = {key: figure(key[0], values) for key, values in times.items()}

    def compare(first: str, second: str, state: str, at_most: float | None = None) -> None:
        shape = f"tiny, n = {n}, b = {b}, {every} threads of {os.cpu_count()} cores, {state}"
        what = f"training step, {first} / {second}"
        results.rows.append(row(what, shape, figures[first, state], figures[second, state], at_most=at_most, of="min"))

    default, sleeping, spinning, one = WAYS
    compare(sleeping, one, BUSY, at_most=1.3)
    compare(spinning, default, IDLE, at_most=1.03)
    compare(default, one, BUSY)
    compare(spinning, one, BUSY)
    compare(sleeping, default, IDLE)
    compare(default, one, IDLE)
    return results


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables that say how threads wait, and no others."""
    before = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


_trained: list[Callable[[int], object]] = []  # takes step N, in a process that `busy` has started
_steps = 0


def _prepare(threads: int, b: int, n: int, vocab: int) -> None:
    """Build model and batch, and take two steps: the heap still grows in the second."""
    torch.set_num_threads(threads)
    config = PretrainConfig.load(None, [f"batch_size={b}"], preset="dstg", steps=10**6)
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=vocab, **config.model))
    trainer = Trainer(model, config, 10**6)
    batch = masked_batch(vocab, b, n)
    _trained[:] = [lambda step: trainer.take_step(step, [batch])]
    for _ in range(2):
        _seconds(0.0)


def _seconds(longest: float) -> float:
    """Mean seconds of as many steps as take so many seconds, at least one."""
    global _steps
    began = time.perf_counter()
    first = _steps
    while _steps == first or time.perf_counter() - began < longest:
        _trained[0](_steps)
        _steps += 1
    return (time.perf_counter() - began) / (_steps - first)


def _seconds_in(pool: ProcessPoolExecutor, longest: float) -> float:
    return pool.submit(_seconds, longest).result()


def _beside_a_busy_core(measure: Callable[[], float]) -> float:
    """The same while another program computes, in a session of its own: Linux shares cores out by sessions."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert program.stdout is not None
        program.stdout.readline()  # it has begun
        return measure()
    finally:
        program.kill()
        program.communicate()
