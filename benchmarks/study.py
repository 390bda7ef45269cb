"""The trainings of a demo: as many models at once as there are cores, a thread each, against one after the other with
all threads."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context

import torch

import whatwhere as ww
from whatwhere.training.loop import Trainer
from whatwhere.training.pretrain_settings import PretrainConfig

from .models import masked_batch
from .timing import Results, Settings, alternate, figure, row

MODELS = ("dstg", "ap", "rp", "rope")  # of `make demo`
BEFORE = 16  # windows of a batch at commit 76189aa
TOKENS = {"full": 131_072, "quick": 32_768, "micro": 64}  # that each model is trained on in a round
LENGTH = {"full": 128, "quick": 128, "micro": 16}
VOCAB = 4096


def study(settings: Settings) -> Results:
    """Seconds of the four trainings of a demo: the same tokens one model after the other, and as many models at once as
    cores.

    The recipe of size tiny in both, but for the batch: 16 windows with all threads, and the recipe's own with a thread
    each.
    """
    results = Results()
    n = LENGTH[settings.scale]
    tokens = TOKENS[settings.scale]
    cores = torch.get_num_threads()
    batch_size = PretrainConfig.load(None, [], steps=1).batch_size if settings.scale != "micro" else 2
    before = BEFORE if settings.scale != "micro" else 2
    with ExitStack() as stack:

        def workers(count: int, threads: int, b: int) -> list[ProcessPoolExecutor]:
            pools = [
                ProcessPoolExecutor(1, get_context("spawn"), initializer=_prepare, initargs=(threads, b, n))
                for _ in range(count)
            ]
            return [stack.enter_context(pool) for pool in pools]

        def seconds(pools: list[ProcessPoolExecutor]) -> float:
            """Wall-clock time of all models, dealt out to the processes."""
            began = time.perf_counter()
            done = [pools[i % len(pools)].submit(_train, name, tokens) for i, name in enumerate(MODELS)]
            for each in done:
                each.result()
            return time.perf_counter() - began

        one = workers(1, cores, before)
        several = workers(min(cores, len(MODELS)), 1, batch_size)
        times = alternate({"one": one, "several": several}, settings.repeats, measure=seconds)
    first = figure(f"{', '.join(MODELS)} in turn, {cores} threads, batch {before}", times["one"])
    second = figure(f"{min(cores, len(MODELS))} at once, a thread each, batch {batch_size}", times["several"])
    shape = f"tiny, n = {n}, {tokens:,} tokens a model, {os.cpu_count()} cores"
    results.rows.append(row("trainings of a demo, in turn / at once", shape, first, second, at_least=1.5))
    return results


_trainers: dict[str, tuple[Trainer, dict[str, torch.Tensor]]] = {}  # of a process that `study` has started


def _prepare(threads: int, b: int, n: int) -> None:
    torch.set_num_threads(threads)
    for name in MODELS:
        config = PretrainConfig.load(None, [f"batch_size={b}"], preset=name, steps=10**6)
        torch.manual_seed(0)
        model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=VOCAB, **config.model))
        _trainers[name] = Trainer(model, config, 10**6), masked_batch(VOCAB, b, n)


def _train(name: str, tokens: int) -> None:
    """Steps on one batch: making batches goes on beside the training and is timed by `packing`."""
    trainer, batch = _trainers[name]
    for step in range(-(-tokens // batch["input_ids"].numel())):
        trainer.take_step(step, [batch])
