"""Gradient checkpointing: memory and time of a training step of `dstg` and `bert-a`, with it and without.

Each side is a process of its own, which takes a step to warm up and then the measured ones. Memory is what the
process's peak grows by over the weights, gradients and optimizer states after that first step of one row.
"""

import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor
from statistics import median

import psutil
import torch

import whatwhere as ww

from .models import PRECISION, VOCAB, masked_batch, ours, training_step
from .steps import described
from .timing import Results, Settings, clock, figure, row

PRESETS = ("dstg", "bert-a")
SHAPES = {"full": ("paper", 512, 8), "quick": ("paper", 256, 4), "micro": ("tiny", 16, 2)}


def measure(preset: str, scale: str, checkpointed: bool, repeats: int, threads: int) -> tuple[int, float]:
    """Return the bytes by which the process's peak grows in training steps, and the median seconds of a step."""
    torch.set_num_threads(threads)
    size, n, b = SHAPES[scale]
    model = ours(ww.preset(preset, size, vocab_size=VOCAB[scale], max_position_embeddings=n))
    if checkpointed:
        model.gradient_checkpointing_enable()
    training_step(model, masked_batch(VOCAB[scale], 1, n))()
    step = training_step(model, masked_batch(VOCAB[scale], b, n))
    before = psutil.Process().memory_info().rss
    seconds = [clock(step) for _ in range(repeats)]
    unit = 1 if sys.platform == "darwin" else 1024
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before, 4096), median(seconds)


def checkpointing(settings: Settings) -> Results:
    """A training step with gradient checkpointing / without: memory and time."""
    results = Results()
    shape = described(*SHAPES[settings.scale])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for preset in PRESETS:
            rounds = []
            for turn in range(settings.repeats):
                sides = (True, False) if turn % 2 == 0 else (False, True)
                made = {
                    side: pool.submit(measure, preset, settings.scale, side, 2, torch.get_num_threads()).result()
                    for side in sides
                }
                rounds.append((made[True], made[False]))
            for what, i, scale, unit in (("memory", 0, 2**20, "MiB"), ("time", 1, 1, "s")):
                first, second = (
                    figure(f"{preset} {name}", [pair[side][i] / scale for pair in rounds], unit=unit)
                    for side, name in enumerate(("checkpointed", "whole"))
                )
                title = f"{what} of a training step, {preset}, with checkpointing / without"
                results.rows.append(row(title, shape, first, second, note=PRECISION))
    return results
