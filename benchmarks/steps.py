"""Training steps: every preset against `nope`, dstg against ap, fused against eager, all presets on one backbone, ours
against transformers' BERT and ModernBERT."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch

import whatwhere as ww
from whatwhere.encoder import PRESETS, EncoderConfig
from whatwhere.run.memory import keep_freed_memory, peak_memory, reset_peak_memory

from .models import PRECISION, VOCAB, masked_batch, ours, parameters, theirs, training_step
from .timing import DEVICE, Results, Settings, alternate, clock, figure, row

# Presets that are timed at paper size, one of every kind.
MAIN = (
    "ap rope xpos conv rp alibi tisa fire dstg shaw deberta transformer-xl cope dape bert-a tupe-a tupe-r split".split()
)
AT_A_TIME = {"tiny": 8, "paper": 3}  # presets in processes at the same time: each holds a model, of 3 GB at paper size
SHAPES = {  # size, tokens in a row, rows
    "full": [("tiny", 128, 16), ("paper", 128, 16), ("paper", 512, 4)],
    "quick": [("tiny", 128, 16), ("paper", 128, 8), ("paper", 512, 2)],
    "micro": [("tiny", 16, 2)],
}
SCHEME_SHAPES = {"full": [(128, 32), (512, 8)], "quick": [(128, 8)], "micro": [(16, 2)]}  # tokens in a row, rows
# Of docs/results/schemes/schemes.yaml.
BACKBONE = {"block": "neobert", "residual": "normalized", "dropout": 0.0, "norm_eps": 1e-6}
LAYERS = {"full": (6, 12), "quick": (6,), "micro": (2,)}
LENGTHS = {"full": [(128, 16), (512, 4)], "quick": [(128, 8)], "micro": [(16, 2)]}
AT_LEAST = {6: 1.35, 12: 1.2}  # ours against transformers', by number of layers


def described(size: str, n: int, b: int) -> str:
    return f"{size}, n = {n}, b = {b}, {PRECISION}"


def _timed(
    configs: dict[str, tuple[EncoderConfig, str]], n: int, b: int, settings: Settings
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Figures of time and of memory for each named configuration and backend, each in a process of its own as a
    training is, all in the same rounds.

    Rounds of seven models in one process gave `dstg` / `ap` 0.1 to 0.2 more than rounds of three, though no page was
    faulted in (docs/log.md).
    """
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        runs: dict[str, partial[float]] = {}
        for name, (config, backend) in configs.items():
            pool = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=_prepare, initargs=(config, backend, n, b, threads)
            )
            stack.enter_context(pool)
            runs[name] = partial(_seconds_in, pool)
        times = alternate(runs, settings.repeats, measure=lambda seconds: seconds())
        growth = {name: [run.args[0].submit(_growth).result()] for name, run in runs.items()}
    seconds = {name: figure(name, values) for name, values in times.items()}
    return seconds, {name: figure(name, values, "MiB") for name, values in growth.items()}


def _seconds_in(pool: ProcessPoolExecutor) -> float:
    return pool.submit(_step).result()


_prepared: list[Callable[[], None]] = []  # the training step of a process that `_timed` has started
_held_before: list[int] = []  # bytes, before the process had a model


def _prepare(config: EncoderConfig, backend: str, n: int, b: int, threads: int) -> None:
    """Build model and batch, and take two steps: the heap still grows in the second."""
    torch.set_num_threads(threads)
    reset_peak_memory()
    _held_before.append(peak_memory(DEVICE))
    keep_freed_memory()  # as a training does
    _prepared.append(training_step(ours(config, backend), masked_batch(config.vocab_size, b, n)))
    for _ in range(2):
        _prepared[0]()


def _growth() -> float:
    """MiB that model and steps add at their peak to what the process held before; at least a page."""
    return max((peak_memory(DEVICE) - _held_before[0]) / 2**20, 2**-8)


def _step() -> float:
    return clock(_prepared[0])


def presets(settings: Settings) -> Results:
    """Every preset against `nope` on the same block with the same dropout; dstg against ap; a whole step eager against
    fused."""
    results = Results()
    vocab = VOCAB[settings.scale]
    for size, n, b in SHAPES[settings.scale]:
        shape = described(size, n, b)
        for block in ("neobert", "bert"):
            names = [
                name
                for name in PRESETS
                if name != "nope" and ww.preset(name).block == block and (name in MAIN or size == "tiny")
            ]
            if settings.scale == "micro":
                names = [name for name in names if name in ("ap", "dstg", "bert-a", "tupe-r")]
            fields = {"vocab_size": vocab, "max_position_embeddings": max(n, 128)}
            config = {name: ww.preset(name, size, **fields) for name in names}
            example = config[names[0]]
            base = ww.preset("nope", size, block=block, dropout=example.dropout, norm_eps=example.norm_eps, **fields)
            runs = {"nope": (base, "sdpa"), **{name: (config[name], "sdpa") for name in names}}
            both = "dstg" if block == "neobert" else "tupe-r"  # one scheme of each block is timed with eager too
            note = f"{block} block, dropout {example.dropout:g}"
            order = sorted(names, key=lambda name: name not in ("ap", both))  # these two in one group
            timed: dict[str, dict[str, Any]] = {}
            for start in range(0, len(order), AT_A_TIME[size]):
                group = order[start : start + AT_A_TIME[size]]
                eager = {f"{both} eager": (config[both], "eager")} if both in group else {}
                of_group, _ = _timed({name: runs[name] for name in ("nope", *group)} | eager, n, b, settings)
                for name in group:
                    what = f"training step, {name} / nope"
                    results.rows.append(row(what, shape, of_group[name], of_group["nope"], note=note))
                timed = of_group | timed
            if block == "neobert":
                limit = {("tiny", 128): 1.25, ("paper", 128): 1.15, ("paper", 512): 1.2}.get((size, n))
                results.rows.append(
                    row("training step, dstg / ap", shape, timed["dstg"], timed["ap"], at_most=limit, note=note)
                )
            limit = 1.0 if size == "paper" else None
            what = f"training step, {both}, eager / fused"
            results.rows.append(row(what, shape, timed[f"{both} eager"], timed[both], at_least=limit, note=note))
    return results


def schemes(settings: Settings) -> Results:
    """Every preset at size tiny on one backbone against dstg: time of a step, and memory that model and steps add."""
    results = Results()
    size = AT_A_TIME["tiny"]
    names = [name for name in PRESETS if name != "dstg" and (settings.scale != "micro" or name in ("ap", "tupe-r"))]
    for n, b in SCHEME_SHAPES[settings.scale]:
        fields = {"vocab_size": 4096, "max_position_embeddings": max(n, 128), **BACKBONE}
        shape = described("tiny", n, b)
        for start in range(0, len(names), size):
            group = ["dstg", *names[start : start + size]]
            configs = {name: (ww.preset(name, "tiny", **fields), "sdpa") for name in group}
            seconds, growth = _timed(configs, n, b, settings)
            for name in group[1:]:
                results.rows.append(row(f"training step, {name} / dstg", shape, seconds[name], seconds["dstg"]))
                results.rows.append(row(f"memory, {name} / dstg", shape, growth[name], growth["dstg"]))
    return results


def peers(settings: Settings) -> Results:
    """bert-a against transformers' BERT, with dropout and without; rope against ModernBERT."""
    results = Results()
    fields = {"vocab_size": VOCAB[settings.scale], "tie_word_embeddings": True}
    if settings.scale != "micro":
        fields |= {"hidden_size": 768, "num_attention_heads": 12}
    size = "tiny" if settings.scale == "micro" else "paper"
    for layers in LAYERS[settings.scale]:
        for n, b in LENGTHS[settings.scale]:
            shape = f"{layers} layers, n = {n}, b = {b}, {PRECISION}"
            for dropout in (0.0, 0.1):
                config = ww.preset("bert-a", size, num_hidden_layers=layers, dropout=dropout, **fields)
                pair = {"bert-a": ours(config), "BertForMaskedLM": theirs("bert", config)}
                results.rows += _against(pair, n, b, layers, shape, f"dropout {dropout:g}", settings)
            config = ww.preset("rope", size, num_hidden_layers=layers, **fields)
            several = {
                "rope": ours(config),
                "ModernBertForMaskedLM": theirs("modernbert", config),
                "ModernBertForMaskedLM, sparse_prediction": theirs("modernbert", config, sparse=True),
            }
            results.rows += _against(several, n, b, layers, shape, "dropout 0", settings)
    return results


def _against(
    models: dict[str, Any], n: int, b: int, layers: int, shape: str, note: str, settings: Settings
) -> list[dict[str, Any]]:
    """Rows of each other model against the first; the budget holds for the one that projects every token on the
    vocabulary."""
    batch = masked_batch(VOCAB[settings.scale], b, n)
    counts = ", ".join(f"{parameters(model) / 1e6:.2f}" for model in models.values())
    runs: dict[str, Callable[[], None]] = {name: training_step(model, batch) for name, model in models.items()}
    times = alternate(runs, settings.repeats)
    own, *others = models
    return [
        row(
            f"training step, {name} / {own}",
            shape,
            figure(name, times[name]),
            figure(own, times[own]),
            at_least=None if "sparse" in name else AT_LEAST.get(layers),
            note=f"{note}; million parameters: {counts}",
        )
        for name in others
    ]
