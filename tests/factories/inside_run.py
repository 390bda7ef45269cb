"""Made-up records and arrays of what a study finds inside its models: smooth invented numbers, never results."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from whatwhere.records.record import Record
from whatwhere.report.loaded_run import Run

TERMS = {
    "dstg": ("semantic", "absolute", "relative"),
    "tupe-r": ("semantic", "absolute", "relative"),
    "tupe-a": ("semantic", "absolute"),
    "bert-a": ("mixed",),
    "ap": ("mixed",),
    "rp": ("semantic", "relative"),
    "rope": ("mixed",),
    "nope": ("semantic",),
}
HEADS = 4
LOOKS = ("previous", "next", "self", "special", "local", "broad")
MATRICES = {"word-word": 0.9, "word-position": 0.015, "position-word": 0.02, "position-position": 0.065}
PATTERNS = ("global", "local", "broad", "previous", "next")


def terms(model: str) -> tuple[str, ...]:
    """Terms of a model's scores."""
    return TERMS.get(model, ("semantic", "absolute", "relative") if model.startswith("dstg") else ("mixed",))


def _bounded(rng: np.random.Generator, value: float, width: float) -> dict[str, float]:
    half = width * (0.6 + 0.8 * float(rng.random()))
    return {"value": value, "low": value - half, "high": value + half}


def _shares(names: tuple[str, ...], layer: int, head: int, layers: int, rng: np.random.Generator) -> np.ndarray:
    """Semantic heads among the low numbers, absolute ones among the others, relative a little everywhere."""
    lead = 0 if head < 1 + (layer % 2) else 1
    weights = np.array([6.0 if i == lead else 0.5 for i in range(len(names))]) + 1.3 * rng.random(len(names))
    if len(names) > 1 and (layer + head) % 5 == 0:
        weights[:] = 1 + 0.4 * rng.random(len(names))
    return weights / weights.sum()


def head_records(study: str, model: str, seed: int | None, layers: int) -> list[Record]:
    """KL divergences, shares, labels and ablations of every head, layer and of the whole model."""
    rng = np.random.default_rng(len(model) + (seed or 0))
    place = {"study": study, "model": model, "seed": seed, "n": 100}
    names = terms(model)
    records: list[Record] = []
    labels = []
    loss = 4.2
    records.append(Record(metric="ablation.loss", unit="nats", **place, **_bounded(rng, loss, 0.05)))
    for layer in range(1, layers + 1):
        for head in range(HEADS):
            where = place | {"layer": layer, "head": head}
            shares = _shares(names, layer, head, layers, rng)
            size = 0.05 * math.exp(2.2 * float(rng.random()))
            for name, share in zip(names, shares, strict=True):
                kl = size * float(share)
                records.append(Record(metric=f"kl.{name}", unit="nats", **where, **_bounded(rng, kl, 0.06 * kl)))
                records.append(Record(metric=f"kl.share.{name}", **where, **_bounded(rng, float(share), 0.02)))
                rise = 0.02 * kl + 0.0004 * float(rng.standard_normal())
                records.append(
                    Record(metric="ablation.remove", part=name, unit="nats", **where, **_bounded(rng, rise, 0.0004))
                )
            best = int(np.argmax(shares))
            label = names[best] if shares[best] >= 0.5 else "several"
            labels.append(label)
            records.append(Record(metric="head.label", part=label, value=0.8 if label == "several" else 1.0, **where))
        for i, name in enumerate(names):
            rise = (0.4, 0.25, 0.06, 0.02)[i] * math.exp(-((layer - 1 - i) ** 2) / 2)
            records.append(
                Record(
                    metric="ablation.remove", part=name, layer=layer, unit="nats", **place, **_bounded(rng, rise, 0.02)
                )
            )
    for label in (*names, "several"):
        share = labels.count(label) / len(labels)
        more = 1 / len(labels) if label == "several" else 0.0
        records.append(
            Record(
                metric="heads.share",
                part=label,
                value=share,
                low=share,
                high=share + more,
                **place | {"n": len(labels)},
            )
        )
    for i, name in enumerate(names):
        for kind, factor in (("remove", 1.0), ("mean", 0.7), ("shuffle", 1.3)):
            rise = factor * (2.4, 0.5, 0.2, 0.1)[i]
            records.append(
                Record(metric=f"ablation.{kind}", part=name, unit="nats", **place, **_bounded(rng, rise, 0.06))
            )
    if model.startswith("dstg"):
        for part, rise in (("position", 0.32), ("semantic", 2.9)):
            for kind, factor in (("remove", 1.0), ("mean", 0.8), ("shuffle", 1.4)):
                found = _bounded(rng, rise * factor, 0.07)
                records.append(Record(metric=f"ablation.{kind}", part=f"stream.{part}", unit="nats", **place, **found))
    return records


def attention_records(study: str, model: str, seed: int | None, layers: int) -> list[Record]:
    """What heads look at, retrieval, patterns and correlations."""
    rng = np.random.default_rng(3 + len(model) + (seed or 0))
    place = {"study": study, "model": model, "seed": seed, "n": 100}
    base = {"semantic": 0.06, "absolute": 0.3, "relative": 0.7, "mixed": 0.2, "total": 0.25}
    records = []
    for layer in range(1, layers + 1):
        for head in range(HEADS):
            for part in (*terms(model), "total"):
                where = place | {"layer": layer, "head": head, "part": part}
                near = base[part] * (0.6 + 0.4 * float(rng.random()))
                values = {
                    "previous": near / 3,
                    "next": near / 4,
                    "self": 0.1 * float(rng.random()),
                    "special": 0.3 * float(rng.random()),
                    "local": near,
                    "broad": 1 - near,
                }
                records += [
                    Record(metric=f"attention.{look}", **where, **_bounded(rng, values[look], 0.01)) for look in LOOKS
                ]
                copy = (
                    0.42
                    if (layer, head) == (layers, 3) and part in ("semantic", "total")
                    else 0.01 * float(rng.standard_normal())
                )
                records.append(Record(metric="attention.retrieval", **where, **_bounded(rng, copy, 0.015)))
    if model.startswith("tupe"):
        kept = (3, 5, 2, 4, 0)
        heads = sum(kept)
        for pattern, found in zip(PATTERNS, kept, strict=True):
            share = found / heads
            records.append(Record(metric="patterns.share", part=pattern, value=share, **place | {"n": heads}))
    if "mixed" in terms(model) and model != "rope":
        for head in range(HEADS):
            for kind, share in MATRICES.items():
                where = place | {"layer": 1, "head": head, "part": kind}
                found = share * (0.9 + 0.2 * float(rng.random()))
                records.append(Record(metric="correlation.share", **where, **_bounded(rng, found, 0.1 * share)))
                records.append(Record(metric="correlation.row", value=0.3, **where))
                records.append(Record(metric="correlation.column", value=0.2, **where))
                records.append(Record(metric="correlation.std", value=math.sqrt(share), **where))
    return records


def local_records(study: str, model: str, seed: int | None) -> list[Record]:
    """Weight on neighbours at five checkpoints: from equal attention to what each term learns."""
    rng = np.random.default_rng(7 + len(model) + (seed or 0))
    place = {"study": study, "model": model, "seed": seed, "n": 16}
    learned = {"semantic": 0.13, "absolute": 0.3, "relative": 0.6, "mixed": 0.35, "total": 0.55}
    records = [Record(metric="local.even", value=0.12, **place)]
    for step in (0, 10, 100, 500, 1000):
        grown = {t: 0.12 + (learned[t] - 0.12) * math.log10(1 + step) / 3 for t in (*terms(model), "total")}
        for part, share in grown.items():
            where = place | {"part": part, "step": step}
            rivals = [v for t, v in grown.items() if t not in (part, "total")]
            records.append(Record(metric="local.share", **where, **_bounded(rng, share, 0.004)))
            records.append(
                Record(metric="local.best", layer=2, head=1, **where, **_bounded(rng, min(1.0, 1.4 * share), 0.004))
            )
            if rivals and part != "total":
                records.append(Record(metric="local.lead", **where, **_bounded(rng, share - max(rivals), 0.004)))
    return records


def reach_records(study: str, model: str, seed: int | None, layers: int) -> list[Record]:
    """Distances over which attention looks: a near relative term, a far absolute one."""
    rng = np.random.default_rng(11 + len(model) + (seed or 0))
    place = {"study": study, "model": model, "seed": seed, "n": 64, "unit": "tokens"}
    far = {"semantic": 38.0, "absolute": 33.0, "relative": 12.0, "mixed": 25.0, "total": 20.0}
    records = [Record(metric="reach.even", value=41.3, **place)]
    for part in (*terms(model), "total"):
        records.append(Record(metric="reach.mean", part=part, **place, **_bounded(rng, far[part], 0.3)))
        for layer, head in np.ndindex(layers, HEADS):
            here = far[part] * (0.8 + 0.4 * float(rng.random()))
            where = place | {"layer": layer + 1, "head": head, "part": part}
            records.append(Record(metric="reach", **where, **_bounded(rng, here, 0.3)))
    return records


def hidden_records(study: str, model: str, seed: int | None, layers: int) -> list[Record]:
    """Flatness and separation of sentences by layer and part."""
    rng = np.random.default_rng(5 + len(model) + (seed or 0))
    place = {"study": study, "model": model, "seed": seed, "n": 50}
    parts = ("all", "position", "semantic") if model.startswith("dstg") else ("all",)
    records = []
    for part in parts:
        for layer in range(layers + 1):
            where = place | {"layer": layer, "part": part}
            grown = {"position": 1.2 + 1.1 * layer, "semantic": 0.12 + 0.03 * layer, "all": 0.3 + 0.1 * layer}[part]
            null = {"position": 1.1 + 0.3 * layer, "semantic": 0.11 + 0.02 * layer, "all": 0.28 + 0.05 * layer}[part]
            top2 = {"position": 0.97 - 0.015 * layer, "semantic": 0.2, "all": 0.35}[part]
            records.append(Record(metric="sentences.separation", **where, **_bounded(rng, grown, 0.03 * grown)))
            records.append(Record(metric="sentences.null", **where, **_bounded(rng, null, 0.03 * null)))
            records.append(Record(metric="sentences.excess", **where, **_bounded(rng, math.log(grown / null), 0.05)))
            records.append(Record(metric="hidden.top2", **where, **_bounded(rng, top2, 0.008)))
    return records


def arrays(model: str, seed: int, layers: int, n: int = 128) -> dict[str, dict[str, np.ndarray]]:
    """Array files of one model by their stem."""
    rng = np.random.default_rng(11 + seed)
    w = n - 1
    lags = np.arange(-w, w + 1)
    falls = {"semantic": 60.0, "absolute": 20.0, "relative": 4.0, "mixed": 15.0, "total": 12.0}
    profile = {}
    for part in (*terms(model), "total"):
        falling = np.exp(-np.abs(lags)[None, None] / (falls[part] * (1 + 0.4 * np.arange(layers))[:, None, None]))
        own = falling * (1 + 0.1 * rng.random((layers, HEADS, 1)))
        profile[f"profile.{part}"] = own / own.sum(axis=2, keepdims=True)
    found = {f"attention-{model}-seed-{seed}": profile | {"lags": lags.astype(float)}}
    if "mixed" in terms(model) and model != "rope":
        m = 40
        i = np.arange(m)
        wave = np.cos(np.subtract.outer(i, i) / 9)
        maps = {
            "word-word": 0.9 * rng.standard_normal((HEADS, m, m)),
            "word-position": 0.1 * rng.standard_normal((HEADS, m, m)) + 0.1,
            "position-word": 0.1 * rng.standard_normal((HEADS, m, m)),
            "position-position": np.stack([0.4 * wave] * HEADS),
        }
        found[f"correlations-{model}-seed-{seed}"] = maps
    segments = np.minimum(np.arange(n) // 10, n // 10 - 1).astype(float)
    segments[[0, -1]] = -1
    hidden: dict[str, np.ndarray] = {"segments": np.stack([segments, segments])}
    for part in ("position", "semantic", "all") if model.startswith("dstg") else ("all",):
        t = np.arange(n) / n
        layer_states = []
        for layer in range(layers + 1):
            step = (segments + 0.5) * 10 / n
            at = t + (step - t) * layer / layers
            path = np.stack([np.cos(math.pi * at), 0.6 * np.cos(2 * math.pi * at)], axis=1)
            layer_states.append(path * (1 + 3 * layer) + 0.03 * rng.standard_normal((n, 2)))
        hidden[f"scores.{part}"] = np.stack([layer_states, layer_states])
    found[f"hidden-{model}-seed-{seed}"] = hidden
    return found


def inside(study: Run, layers: int | None = None) -> Run:
    """The study with invented records and arrays of what lies inside each of its models."""
    records: list[Record] = list(study.records)
    held: dict[str, dict[str, np.ndarray]] = {}
    for model in study.models:
        depth = layers or study.depth(model)
        for seed in study.seeds:
            records += head_records(study.name, model, seed, depth) + attention_records(study.name, model, seed, depth)
            records += hidden_records(study.name, model, seed, depth) + local_records(study.name, model, seed)
            records += reach_records(study.name, model, seed, depth)
            held |= arrays(model, seed, depth)
    both: Mapping[str, dict[str, np.ndarray]] = dict(study.arrays) | held
    return replace(study, records=records, arrays=both)
