"""A made-up study folder with records and arrays of every analysis that the report shows: invented numbers, never
results."""

import json
from pathlib import Path

import numpy as np
from geometry_run import make_run
from inside_run import inside

from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report.loaded_run import load_run


def between(study: str, models: list[str], layers: int, steps: int) -> list[Record]:
    """Invented regressions, convergence, projected stress and probes of the untrained models."""
    rng = np.random.default_rng(3)
    records = []
    for number, model in enumerate(models):
        place = {"study": study, "model": model, "seed": 0}
        for layer in range(layers + 1):
            for stream, top in (("position", 0.8), ("semantic", 0.3)):
                if model != "dstg":
                    splits = top * (1 - 0.1 * layer) + 0.01 * rng.standard_normal(5)
                    where = place | {"layer": layer, "part": "dstg", "metric": f"regression.{stream}", "n": 500}
                    records.append(
                        Record(value=float(splits.mean()), low=float(splits.min()), high=float(splits.max()), **where)
                    )
                    records += [Record(value=float(v), index=i, **where) for i, v in enumerate(splits)]
            for scale in ("raw", "optimal"):
                for part in ("sinusoidal", "own"):
                    records.append(
                        Record(
                            metric=f"projected.stress.{scale}", value=0.2 + 0.1 * layer, layer=layer, part=part, **place
                        )
                    )
            for part in ("all", "position", "semantic") if model == "dstg" else ("all",):
                for step, stress in ((None, 0.1 + 0.05 * layer), (0, 0.4)):
                    where = place | {"layer": layer, "part": part, "step": step, "n": 250}
                    records.append(Record(metric="hidden.stress", value=stress, low=stress - 0.02, high=0.7, **where))
                where = place | {"layer": layer, "n": 12_700}
                records.append(Record(metric="r2.token", value=0.2, low=0.18, high=0.22, part=part, step=0, **where))
                for k in (2, 8):
                    records.append(
                        Record(metric="r2.token", value=0.1 * k / 2, low=0.0, high=0.5, part=f"{part}.pca{k}", **where)
                    )
        records.append(Record(metric="hidden.stress.level", value=0.45, n=126, **place))
        for other in models:
            if other != model:
                reached = float(number % 2 == 0)
                records.append(Record(metric="convergence.reached", value=reached, part=other, **place))
                records += [Record(metric="convergence.share", value=0.7, part=other, **place)] if reached else []
        if number < 2:
            for step in (0, steps // 2, steps):
                for metric in ("separation", "violations", "stress.raw", "stress.optimal"):
                    records.append(
                        Record(metric=metric, value=0.4 + step / (4 * steps), step=step, part="corpus", **place)
                    )
    return records


def explore(folder: Path, models: list[str], layers: int, heads: int = 4, n: int = 128) -> None:
    """Texts of an attention explorer: smooth maps of every head."""
    rng = np.random.default_rng(5)
    tokens = [f"w{i % 40}" for i in range(n)]
    lag = np.abs(np.arange(n)[:, None] - np.arange(n))
    entries = []
    for model in models:
        terms = ["semantic", "absolute", "relative", "total"] if model == "dstg" else ["mixed", "total"]
        arrays = {"levels": (np.arange(256) / 255) ** 2}
        for text in range(2):
            for term in terms:
                slopes = rng.random((layers, heads, 1, 1)) * (0.2 if term == "relative" else 0.02)
                weights = np.exp(-slopes * lag + 0.8 * rng.standard_normal((layers, heads, 1, n)))
                weights /= weights.sum(-1, keepdims=True)
                arrays[f"{text}.{term}"] = np.rint(255 * np.sqrt(weights)).astype(np.uint8)
        np.savez_compressed(folder / "arrays" / f"explorer-{model}-seed-0.npz", **arrays)
        texts = [{"title": f"Text {i + 1}", "tokens": tokens} for i in range(2)]
        entries.append(
            {
                "name": model,
                "seed": 0,
                "file": f"arrays/explorer-{model}-seed-0.npz",
                "terms": terms,
                "missing": "",
                "texts": texts,
            }
        )
    (folder / "explorer.json").write_text(json.dumps(entries))


def complete(folder: Path, steps: int = 1100, layers: int = 4) -> Path:
    """Adds every analysis to a made-up study folder; returns it."""
    study = load_run(folder)
    whole = inside(study)
    for stem, arrays in whole.arrays.items():
        np.savez_compressed(folder / "arrays" / f"{stem}.npz", **arrays)
    run = make_run(folder.parent / f"{folder.name}-geometry")
    corpus = next(r.model for r in read_records(run / "records.parquet") if r.metric == "distance.mean")
    stem = json.loads((run / "geometry.json").read_text())["corpora"][0]
    source = run / "arrays" / f"geometry-{stem.get('file') or stem['name']}.npz"
    with np.load(source) as arrays:
        np.savez_compressed(
            folder / "arrays" / "geometry-corpus.npz",
            **{k: arrays[k] for k in arrays.files if arrays[k].dtype.kind != "U"},
        )
    counted = [r for r in read_records(run / "records.parquet") if r.model == corpus]
    records = [*whole.records, *between(study.name, study.models, layers, steps)]
    records += [Record(**{**vars(r), "study": study.name, "model": "corpus"}) for r in counted]
    write_records(folder / "records.parquet", records)
    explore(folder, study.models, layers)
    return folder
