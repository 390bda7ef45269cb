"""A made-up study folder: smooth invented numbers, never results."""

import json
import math
from pathlib import Path

import numpy as np

from whatwhere.encoder import PRESETS
from whatwhere.geometry import white_floor
from whatwhere.records.record import Record, write_records

# Invented R² at relative depths 0 ... 1: model, part -> (start, end, bend).
TOKEN = {
    ("dstg", "position"): (0.74, 0.58, 0.7),
    ("dstg", "semantic"): (0.03, 0.015, 1.0),
    ("dstg", "all"): (0.76, 0.60, 0.8),
    ("ap", "all"): (0.92, 0.26, 0.8),
    ("rp", "all"): (0.00, 0.05, 1.0),
    ("rope", "all"): (0.00, 0.03, 1.0),
}
FACTOR = {"r2.token": 1.0, "r2.segment": 0.9, "r2.intra": 0.1}
FINAL = {"dstg": 4.21, "ap": 4.62, "rp": 4.35, "rope": 3.71}
PARAMETERS = {"dstg": 1_548_320, "ap": 1_402_560, "rp": 1_387_776, "rope": 1_387_200}


def scheme(model: str) -> dict[str, object]:
    """The fields of a preset as a configuration has them; of an unknown name, those of a bias of somebody's own."""
    plain = {
        "block": "neobert",
        "absolute": "none",
        "untied": "none",
        "relative": "none",
        "rotation": "none",
        "reset": "none",
    }
    fields = dict(PRESETS.get(model, {"relative": "log_decay"} if not model.startswith("dstg") else PRESETS["dstg"]))
    streams = fields.pop("streams", 1)
    fields.pop("d_pos", None)
    return plain | {"dropout": 0.0, "position_size": 8 if streams == 2 else 0, "mlm_head": "semantic"} | fields


def _shape(model: str, part: str) -> tuple[float, float, float]:
    if (model, part) in TOKEN:
        return TOKEN[model, part]
    return {"position": (0.70, 0.50, 1.0), "semantic": (0.05, 0.03, 1.0)}.get(part, (0.4, 0.2, 1.0))


def _parts(model: str) -> list[str]:
    return ["all", "position", "semantic"] if scheme(model)["position_size"] else ["all"]


def _shifts(name: str, model: str, seed: int, layers: int, rng: np.random.Generator) -> list[Record]:
    """Invented changes of states: large in the position stream, none without a table."""
    records = []
    for part in _parts(model):
        for layer in range(layers + 1):
            moved = (
                0.0
                if scheme(model)["absolute"] == "none"
                else 0.9
                if part == "position"
                else 0.06 * layer
                if part == "semantic"
                else 0.4
            )
            value = moved * (1 + 0.05 * float(rng.standard_normal()))
            place = {"study": name, "model": model, "seed": seed, "layer": layer, "part": part, "n": 100}
            records.append(Record(metric="shift.change", value=value, low=0.95 * value, high=1.05 * value, **place))
    return records


def _probes(name: str, model: str, seed: int, layers: int, rng: np.random.Generator) -> list[Record]:
    records = []
    parts = _parts(model)
    for metric, factor in FACTOR.items():
        for part in parts:
            start, end, bend = _shape(model, part)
            for layer in range(layers + 1):
                share = layer / layers
                value = start + (end - start) * share**bend
                if metric == "r2.intra":
                    value = (
                        0.03
                        if part == "position"
                        else 0.12 + 0.38 * math.sin(math.pi * (0.15 + 0.7 * share)) + 0.02 * len(model)
                    )
                else:
                    value *= factor
                splits = value + 0.008 * rng.standard_normal(5)
                mean = float(splits.mean())
                half = 2.776 * float(splits.std(ddof=1)) / math.sqrt(5)
                place = {"study": name, "model": model, "seed": seed, "layer": layer, "part": part, "n": 12_700}
                records.append(Record(metric=metric, value=mean, low=mean - half, high=mean + half, **place))
                records += [Record(metric=metric, value=float(v), index=i, **place) for i, v in enumerate(splits)]
                chance = float(-0.01 + 0.004 * rng.standard_normal())
                records.append(
                    Record(metric=f"{metric}.chance", value=chance, low=chance - 0.004, high=chance + 0.004, **place)
                )
    return records


def _training(name: str, model: str, seed: int, steps: int, rng: np.random.Generator) -> list[Record]:
    records = []
    final = FINAL.get(model, 4.4) + 0.03 * float(rng.standard_normal())
    place = {"study": name, "model": model, "seed": seed}

    def loss(step: int) -> float:
        return final + (8.3 - final) * (0.55 * math.exp(-step / 60) + 0.45 / (1 + math.exp((step - 420) / 90)))

    for step in range(10, steps + 1, 10):
        records.append(
            Record(
                metric="loss",
                value=loss(step) + 0.06 * float(rng.standard_normal()),
                part="train",
                step=step,
                unit="nats",
                **place,
            )
        )
    for step in range(0, steps + 1, 100):
        records.append(Record(metric="loss", value=loss(step), part="validation", step=step, unit="nats", **place))
    records.append(Record(metric="loss", value=loss(steps), part="validation", unit="nats", **place))
    facts = {
        "parameters": (PARAMETERS.get(model, 1_450_000), "parameters"),
        "tokens": (steps * 32 * 128, "tokens"),
        "seconds": (101.0 + len(model), "s"),
        "tokens_per_second": (24_300 - 900 * len(model), "tokens/s"),
        "memory.peak": (1.31e9, "bytes"),
    }
    return records + [Record(metric=k, value=float(v), unit=unit, **place) for k, (v, unit) in facts.items()]


def _table(
    name: str, model: str, seed: int, positions: int, rng: np.random.Generator
) -> tuple[list[Record], dict[str, np.ndarray]]:
    """An invented table: slow waves for dstg, mostly noise for ap."""
    width = 8 if scheme(model)["position_size"] else 120
    noise = 0.03 if scheme(model)["position_size"] else 0.16
    t = (np.arange(positions) + 0.5) / positions
    waves = np.stack([np.cos(np.pi * t), 0.7 * np.cos(2 * np.pi * t)], axis=1)
    table = waves @ rng.standard_normal((2, width)) + noise * math.sqrt(width) * rng.standard_normal((positions, width))
    u, s, _ = np.linalg.svd(table - table.mean(axis=0), full_matrices=False)
    shares = s**2 / (s**2).sum()
    scores = (u * s)[:, :3]
    k = np.arange(positions)
    basis = np.cos(np.pi * np.outer(k, k + 0.5) / positions)
    power = (basis @ scores).T ** 2
    power /= power.sum(axis=1, keepdims=True)
    place = {"study": name, "model": model, "seed": seed}
    records = [Record(metric="pca.share", value=float(v), index=i, **place) for i, v in enumerate(shares)]
    records.append(Record(metric="pca.top2", value=float(shares[:2].sum()), **place))
    records += [Record(metric="dct.low4", value=float(power[i, :4].sum()), index=i, **place) for i in range(3)]
    records.append(Record(metric="table.floor", value=white_floor(table), n=positions, **place))
    if scheme(model)["absolute"] not in ("sinusoidal", "mds"):
        records += [Record(metric="pca.share", value=1 / width, index=i, step=0, **place) for i in range(2)]
    return records, {"scores": scores, "shares": shares, "dct_power": power}


# id, claim, verdict, value, low, high, the paper's value, rule
CLAIMS = [
    (
        "kept",
        "The position stream keeps position through the layers",
        "holds here",
        0.612,
        0.598,
        0.626,
        0.89,
        "R² is at least 0.75 of layer 1",
    ),
    (
        "lost",
        "Entangled absolute position is lost by the end",
        "holds here",
        0.262,
        0.25,
        0.274,
        0.24,
        "R² is at most 0.5 of the best layer",
    ),
    ("rope", "RoPE hardly encodes absolute position", "holds here", 0.05, 0.041, 0.059, 0.32, "R² is at most 0.5"),
    (
        "plane",
        "The separate position table collapses to two dimensions",
        "not seen here",
        0.871,
        None,
        None,
        0.941,
        "at least 0.9",
    ),
    (
        "sem",
        "Progress inside a segment lives in the semantics",
        "not separable",
        0.02,
        -0.03,
        0.07,
        None,
        "at least 0.25",
    ),
    ("slow", "Its two components are slow `waves`", "holds here", 0.98, None, None, 0.984, "at least 0.9"),
    (
        "holmes",
        "Linguistic probes gain from the position stream",
        "not testable here",
        None,
        None,
        None,
        0.52,
        "Needs Flash-Holmes.",
    ),
]


def make_study(
    folder: Path,
    models: tuple[str, ...] = ("dstg", "ap", "rp", "rope"),
    seeds: tuple[int, ...] = (0,),
    layers: int = 4,
    steps: int = 1100,
    positions: int = 128,
    title: str = "Does separating position from meaning keep position?",
    corpus: str = "python-docs",
    shifts: bool = False,
) -> Path:
    """A complete made-up study folder."""
    rng = np.random.default_rng(7)
    name = folder.name
    (folder / "arrays").mkdir(parents=True)
    records = [
        Record(study=name, model="", metric=f"corpus.{k}", value=float(v), unit=k)
        for k, v in {"documents": 24_318, "characters": 41_300_512, "tokens": 10_240_771, "windows": 81_004}.items()
    ]
    records.append(Record(study=name, model="", metric="loss.unigram", value=6.43, unit="nats"))
    for model in models:
        for seed in seeds:
            records += _probes(name, model, seed, layers, rng) + _training(name, model, seed, steps, rng)
            records += _shifts(name, model, seed, layers, rng) if shifts else []
            if scheme(model)["absolute"] != "none":
                found, arrays = _table(name, model, seed, positions, rng)
                records += found
                np.savez(folder / "arrays" / f"table-{model.replace('/', '_')}-seed-{seed}.npz", **arrays)
    write_records(folder / "records.parquet", records)
    entries = [
        {
            "name": model,
            "seed": seed,
            "config": {
                "preset": model,
                "num_hidden_layers": layers,
                "num_attention_heads": 4,
                "hidden_size": 128 if model.startswith("dstg") else 120,
                "intermediate_size": 512 if model.startswith("dstg") else 480,
                "max_position_embeddings": positions,
                "vocab_size": 4096,
            }
            | scheme(model),
            "training": {
                "optimizer": "adamw",
                "learning_rate": 0.004,
                "batch_size": 32,
                "steps": steps,
                "warmup_steps": 100,
            },
        }
        for model in models
        for seed in seeds
    ]
    facts = {
        "title": title,
        "corpus": {"name": corpus},
        "models": entries,
        "seeds": list(seeds),
        "size": "tiny",
        "machine": {"cpu": "Invented CPU at 2.1 GHz", "cores": 2, "memory_bytes": 16 * 2**30, "accelerator": None},
        "versions": {"whatwhere": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0", "numpy": "2.4.6"},
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 541.0,
        "command": "whatwhere study --out runs/demo",
    }
    (folder / "study.json").write_text(json.dumps(facts))
    keys = ("id", "claim", "verdict", "value", "low", "high", "paper_value", "rule")
    claims = [
        dict(zip(keys, c, strict=True)) | {"source": "DSTG section 5", "scale": "tiny, 4.5M tokens, 1 seed", "unit": ""}
        for c in CLAIMS
    ]
    (folder / "claims.json").write_text(json.dumps(claims))
    return folder
