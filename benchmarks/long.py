"""Long texts: what a forward pass of a whole encoder of paper size takes, over the number of tokens.

Each point is a fresh process: resident is the growth of the process's peak over what it held with the weights there,
seconds those of one pass after one of 64 tokens. BERT of transformers, by its own fused attention, is the peer.
"""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import psutil
import torch
from transformers import BertConfig, BertModel

import whatwhere as ww

from .memory import exponent
from .timing import Results, Settings, figure, row

PEER = "bert"
PRESETS = ("dstg", "rp", "alibi", "rope", "ap")
LENGTHS = {"full": (512, 1024, 2048, 4096, 8192), "quick": (512, 1024, 2048), "micro": (32, 64)}
WORDS = 30_522
MODULE = "whole model"


def build(preset: str, size: str, n: int) -> Any:
    """A preset, or BERT as wide and deep as `ap`."""
    torch.manual_seed(0)
    config = ww.preset("ap" if preset == PEER else preset, size, vocab_size=WORDS, max_position_embeddings=n)
    if preset != PEER:
        return ww.Encoder(config).eval()
    sizes = {"hidden_size": config.hidden_size, "num_hidden_layers": config.num_hidden_layers}
    sizes |= {"num_attention_heads": config.num_attention_heads, "intermediate_size": config.intermediate_size}
    return BertModel(BertConfig(vocab_size=WORDS, max_position_embeddings=n, **sizes), add_pooling_layer=False).eval()


def measure(preset: str, size: str, n: int, threads: int) -> tuple[int, float]:
    """Bytes by which the peak of the process grows in a pass over one text of n tokens, and its seconds."""
    torch.set_num_threads(threads)
    model = build(preset, size, n)
    ids = torch.randint(5, WORDS, (1, n))
    ids[:, 0] = 2
    ids[:, -1] = 3
    with torch.inference_mode():
        model(ids[:, :64])
        before = psutil.Process().memory_info().rss
        began = time.perf_counter()
        model(ids)
        seconds = time.perf_counter() - began
    unit = 1 if sys.platform == "darwin" else 1024
    return max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before, 4096), seconds


def long(settings: Settings) -> Results:
    """Memory and time of each preset over the lengths, and at the longest against BERT."""
    results = Results()
    size = "tiny" if settings.scale == "micro" else "paper"
    lengths = LENGTHS[settings.scale]
    names = (*(PRESETS if settings.scale != "micro" else PRESETS[:1]), PEER)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    last: dict[str, tuple[int, float]] = {}
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for name in names:
            points = [pool.submit(measure, name, size, n, torch.get_num_threads()).result() for n in lengths]
            last[name] = points[-1]
            made: dict[str, Any] = {"module": MODULE, "preset": name, "backend": "sdpa", "size": size}
            made |= {"n": list(lengths), "peak": [p for p, _ in points], "seconds": [s for _, s in points]}
            results.curves.append(made | {"exponent_peak": exponent(list(lengths), made["peak"]), "passes": "forward"})
    shape = f"{size}, n = {lengths[-1]:,}, b = 1, float32"
    for name in names[:-1]:
        for what, i, scale, unit in (("memory", 0, 2**20, "MiB"), ("time", 1, 1, "s")):
            pair = [figure(f"{each} {what}", [last[each][i] / scale], unit=unit) for each in (name, PEER)]
            results.rows.append(row(f"{what} of a forward pass, {name} / BERT", shape, *pair))
    return results
