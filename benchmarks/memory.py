"""Memory of attention over length: what a forward pass holds for the backward pass, and the peak of both, fused and
eager.

Each point is a fresh process. Tracked bytes are every allocation of torch (its profiler), without weights, in float32
on a CPU; resident is the growth of the process's peak. From rows of n/2 and n tokens, f(n) - 2 f(n/2) leaves what grows
with n²: in units of one (h, n, n) map of float32 that says how many score maps are kept, for the batch or for each
example of it.
"""

import json
import math
import multiprocessing
import resource
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import whatwhere as ww

from .timing import Results, Settings, figure, row

PRESETS = ("dstg", "rp", "tupe-r", "alibi", "ap")
LENGTHS = {"full": (128, 256, 512, 1024, 2048, 4096), "quick": (128, 256, 512, 1024), "micro": (16, 32)}
SHORT = 512  # the length up to which BERT is used: what is kept there is shown beside what is kept at the longest row
WHOLE = "2-layer model"
ALONE = "attention alone"


@dataclass(frozen=True)
class Point:
    """One forward and backward pass of `module` of a preset with b rows of n tokens."""

    module: str
    preset: str
    size: str
    backend: str
    n: int
    b: int

    def build(self) -> tuple[Callable[[], torch.Tensor], int]:
        """The forward pass to a number, and the heads of the model."""
        torch.manual_seed(0)
        layers = 2 if self.module == WHOLE else 1
        config = ww.preset(
            self.preset, self.size, vocab_size=100, max_position_embeddings=self.n, num_hidden_layers=layers
        )
        model = ww.Encoder(config).train()
        model.set_attn_implementation(self.backend)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)  # there before the pass, as the weights are
        ids = torch.randint(5, 100, (self.b, self.n))
        ids.scatter_(1, torch.randint(1, self.n - 1, (self.b, 1)), 3)  # a [SEP] at a place of its own in each row
        ids[:, 0] = 2
        ids[:, -1] = 3
        streams = tuple(torch.randn(self.b, self.n, d, requires_grad=True) for d in config.stream_sizes)

        def forward() -> torch.Tensor:
            if self.module == WHOLE:
                return model(ids).last_hidden_state.sum()
            outputs, _ = model.layers[0].attention(streams, model.attention_inputs(ids, None, None, None), self.backend)
            return torch.stack([o.sum() for o in outputs]).sum()

        return forward, config.num_attention_heads


def measure(point: Point, threads: int) -> dict[str, int]:
    """Bytes: `held` after the forward pass, `peak`, `resident`; and the model's `heads`."""
    torch.set_num_threads(threads)
    forward, heads = point.build()
    before = psutil.Process().memory_info().rss
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with record_function("whole forward"):
            loss = forward()
        loss.backward()
    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    span = next(e for e in events if e.get("name") == "whole forward" and "dur" in e)
    now = 0
    held = 0
    peak = 0
    for event in sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"]):
        now += event["args"]["Bytes"]
        peak = max(peak, now)
        if event["ts"] <= span["ts"] + span["dur"]:
            held = now
    return {"held": held, "peak": peak, "resident": max(resident, 0), "heads": heads}


def exponent(lengths: list[int], values: list[int]) -> float:
    """Slope of log bytes over log n at the three longest rows."""
    x = [math.log(n) for n in lengths[-3:]]
    y = [math.log(max(value, 1)) for value in values[-3:]]
    middle = sum(x) / len(x)
    height = sum(y) / len(y)
    return sum((a - middle) * (b - height) for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


def maps(n: int, heads: int, shorter: int, longer: int) -> float:
    """Number of (h, n, n) maps of float32 in what grows with the square of n, from bytes at n / 2 and n tokens."""
    return (longer - 2 * shorter) / (n * n / 2) / (4 * heads)


def curve(
    module: str, preset: str, backend: str, settings: Settings, run: Callable[[Point], dict[str, int]]
) -> dict[str, Any]:
    """Bytes over all lengths for one row, and what a second row adds."""
    size = "tiny" if settings.scale == "micro" else "paper"
    lengths = list(LENGTHS[settings.scale])
    points = [run(Point(module, preset, size, backend, n, 1)) for n in lengths]
    made: dict[str, Any] = {"module": module, "preset": preset, "backend": backend, "size": size, "n": lengths}
    made |= {key: [p[key] for p in points] for key in ("held", "peak", "resident")}
    made |= {f"exponent_{key}": exponent(lengths, made[key]) for key in ("held", "peak")}
    heads = points[-1]["heads"]
    n = lengths[-1]
    made["maps_peak"] = maps(n, heads, *made["peak"][-2:])
    made["maps_held"] = maps(n, heads, *made["held"][-2:])
    if backend != "eager":  # eager holds maps for each example by definition
        two = [run(Point(module, preset, size, backend, n, 2)) for n in lengths]
        more = [pair["held"] - one["held"] for pair, one in zip(two, points, strict=True)]
        made["held_by_example"] = more
        short = max((i for i, n in enumerate(lengths) if n <= SHORT), default=0)
        ends = dict.fromkeys(i for i in (short, len(lengths) - 1) if i > 0)
        made["maps_by_example"] = [[lengths[i], maps(lengths[i], heads, more[i - 1], more[i])] for i in ends]
    return made


def memory(settings: Settings) -> Results:
    """Curves of each preset with both backends, and the ratio of their peaks at the longest row."""
    results = Results()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:

        def run(point: Point) -> dict[str, int]:
            return pool.submit(measure, point, torch.get_num_threads()).result()

        # A whole model of eager attention takes minutes a point at the longest rows, and says the same of attention.
        for module in (ALONE,) if settings.scale == "full" else (ALONE, WHOLE):
            for name in PRESETS if settings.scale != "micro" else PRESETS[:1]:
                pair = [curve(module, name, backend, settings, run) for backend in ("eager", "sdpa")]
                results.curves += pair
                n = pair[0]["n"][-1]
                peaks = [figure(f"{name} {c['backend']}", [c["peak"][-1] / 2**20], unit="MiB") for c in pair]
                shape = f"{pair[0]['size']}, n = {n}, b = 1, float32"
                results.rows.append(row(f"peak memory of {module}, {name}, eager / fused", shape, *peaks))
    return results
