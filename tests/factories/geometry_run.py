"""Made-up folders of a geometry run: counts are drawn from invented distributions, everything else is computed from
them.

The quantities are computed plainly here (float64, dense, small), so that the page can be tested without the parts that
measure.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from whatwhere.records.record import Record, write_records

GROUPS = 8
MIN_SUPPORT = 500


def _distributions(positions: int, vocabulary: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    """(n, V): three regimes with soft borders, or slow drift that is over after some positions."""
    t = np.arange(positions)[:, None] / positions
    if kind == "regimes":
        parts = rng.dirichlet(np.full(vocabulary, 0.1), 3)
        weights = np.concatenate([np.exp(-(((t - c) / 0.13) ** 2)) for c in (0.05, 0.5, 0.95)], axis=1) + 0.02
    else:
        parts = rng.dirichlet(np.full(vocabulary, 0.3), 2)
        weights = np.concatenate([np.exp(-t * 6), np.ones_like(t)], axis=1)
    return (weights / weights.sum(axis=1, keepdims=True)) @ parts


def counts(
    positions: int, vocabulary: int, documents: int, mean: float, kind: str, rng: np.random.Generator
) -> np.ndarray:
    """(groups, n, V): lengths are geometric with the given mean, so later positions are counted less."""
    p = _distributions(positions, vocabulary, kind, rng)
    reached = np.stack([rng.binomial(documents // GROUPS, np.exp(-np.arange(positions) / mean)) for _ in range(GROUPS)])
    return np.stack([[rng.multinomial(k, row) for k, row in zip(group, p, strict=True)] for group in reached])


def _roots(c: np.ndarray) -> np.ndarray:
    return np.sqrt(c / np.maximum(c.sum(axis=1, keepdims=True), 1))


def _distances(a: np.ndarray) -> np.ndarray:
    gram = a @ a.T
    return np.sqrt(np.maximum(np.add.outer(np.diag(gram), np.diag(gram)) - 2 * gram, 0))


def _corrected(groups: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Signed squares (m, m), mean over random halves of the groups; floor of each half (splits, m)."""
    squares = []
    floors = []
    for _ in range(5):
        order = rng.permutation(len(groups))
        a, b = (_roots(groups[half].sum(axis=0)) for half in np.array_split(order, 2))
        cross = a @ b.T
        squares.append(np.add.outer(np.diag(cross), np.diag(cross)) - cross - cross.T)
        floors.append(np.linalg.norm(a - b, axis=1))
    return np.mean(squares, axis=0), np.array(floors)


def _mds(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = len(squares)
    centre = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ squares @ centre)
    order = np.argsort(-values)
    vectors = vectors[:, order] * np.sign(vectors[0, order])  # else the sign is the processor's
    return values[order], vectors * np.sqrt(np.maximum(values[order], 0))


def _pairs(d: np.ndarray) -> np.ndarray:
    return d[np.triu_indices(len(d), 1)]


def _stress(table: np.ndarray, d: np.ndarray, scale: bool) -> float:
    got = _pairs(_distances(table))
    want = _pairs(d)
    return float(np.sum((got * (got @ want / (got @ got) if scale else 1) - want) ** 2) / np.sum(want**2))


def _root(square: float) -> float:
    """The root, with the sign of the square."""
    return float(np.sign(square) * np.sqrt(abs(square)))


def _scaled(table: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Distances (pairs,) of a table at its best scale."""
    got = _pairs(_distances(table))
    want = np.maximum(_pairs(d), 0)
    return got * (got @ want / (got @ got))


def _violations(d: np.ndarray) -> float:
    n = len(d)
    wrong = 0
    seen = 0
    lag = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    for i in range(n):
        nearer = (lag[i][:, None] < lag[i][None, :]) & (lag[i][:, None] > 0)
        wrong += int(np.sum(nearer & (d[i][:, None] > d[i][None, :] + 1e-9 * d.max())))
        seen += int(nearer.sum())
    return wrong / max(seen, 1)


def _sinusoidal(n: int, d: int) -> np.ndarray:
    angles = np.arange(n)[:, None] / 10000 ** (2 * np.arange(d // 2) / d)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(n, d)


def encodings(n: int, d: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Name -> (n, ...) table."""
    slopes = 2.0 ** -np.linspace(0.67, 8, 12)
    return {
        "sinusoidal": _sinusoidal(n, d),
        "rope": _sinusoidal(n, 64),
        "alibi": -np.arange(n)[:, None] / n * slopes,
        "random": rng.standard_normal((n, d)),
    }


def _measured(
    groups: np.ndarray, tables: dict[str, np.ndarray], rank: int
) -> dict[tuple[str, str | None, int | None], float]:
    """(metric, part, index) -> value, of everything that the groups are resampled for."""
    rng = np.random.default_rng(1)
    d = _distances(_roots(groups.sum(axis=0)))
    squares, floors = _corrected(groups, rng)
    signed = np.sign(squares) * np.sqrt(np.abs(squares))
    _, coords = _mds(d**2)
    _, clean = _mds(squares)
    lag = _pairs(np.abs(np.subtract.outer(np.arange(len(d)), np.arange(len(d)))).astype(float))
    found: dict[tuple[str, str | None, int | None], float] = {
        ("floor.mean", None, None): float(floors.mean()),
        ("distance.mean", None, None): float(_pairs(d**2).mean()),  # roots are taken when its interval is known
        ("distance.mean.corrected", None, None): float(_pairs(squares).mean()),
        ("lag.correlation", None, None): float(np.corrcoef(_pairs(d), lag)[0, 1]),
        ("lag.correlation.corrected", None, None): float(np.corrcoef(_pairs(signed), lag)[0, 1]),
        ("violations", "corpus", None): _violations(d),
        ("violations.corrected", "corpus", None): _violations(signed),
    }
    for suffix, target, made in (("", d, coords), (".corrected", signed, clean)):
        used: dict[tuple[str, int | None], np.ndarray] = {(name, None): table for name, table in tables.items()}
        used |= {
            ("mds", None): made,
            ("mds", rank): made[:, :rank],
            ("mds", rank + 1): made[:, : rank + 1],
            ("smacof", rank): made[:, : rank + 1],
        }
        for (name, index), table in used.items():
            found["stress.raw" + suffix, name, index] = _stress(table, target, False)
            found["stress.optimal" + suffix, name, index] = _stress(table, target, True)
            if not suffix or name == "mds":
                found["violations" + suffix, name, index] = _violations(_distances(table))
        for name, table in tables.items():
            found["correlation" + suffix, name, None] = float(
                np.corrcoef(_pairs(_distances(table)), _pairs(target))[0, 1]
            )
        equal = np.eye(len(d))  # the distances of its rows are all equal
        found["stress.optimal" + suffix, "equidistant", None] = _stress(equal, target, True)
        for metric, share in (("lag.share", 0.83), ("toeplitz", 0.71), ("circulant", 0.41)):
            found[metric + suffix, None, None] = share
    return found


def _corpus(
    folder: Path, study: str, name: str, groups: np.ndarray, rng: np.random.Generator, d: int, rank: int
) -> tuple[dict, list[Record], np.ndarray]:
    total = groups.sum(axis=0)
    support = total.sum(axis=1)
    positions = np.flatnonzero(support >= MIN_SUPPORT)
    kept = groups[:, positions]
    roots = _roots(kept.sum(axis=0))
    dist = _distances(roots)
    squares, floors = _corrected(kept, rng)
    signed = np.sign(squares) * np.sqrt(np.abs(squares))
    values, coords = _mds(dist**2)
    clean_values, clean = _mds(squares)
    lags = np.arange(1, len(positions))
    lag_of = np.abs(np.subtract.outer(positions, positions))
    tables = encodings(len(positions), d, rng)
    chosen = rng.permutation(len(_pairs(dist)))[:400]
    np.savez(
        folder / "arrays" / f"geometry-{name.replace('/', '_')}.npz",
        positions=positions,
        support=support,
        left_out=np.flatnonzero(support < MIN_SUPPORT),
        distance=dist.astype(np.float32),
        corrected=signed.astype(np.float32),
        floor=floors.mean(axis=0),
        floor_low=np.quantile(floors, 0.025, axis=0),
        floor_high=np.quantile(floors, 0.975, axis=0),
        eigenvalues=values,
        eigenvalues_corrected=clean_values,
        coords=coords[:, :3],
        coords_corrected=clean[:, :3],
        lag=lags,
        lag_mean=[_root((dist**2)[lag_of == k].mean()) for k in lags],
        lag_mean_corrected=[_root(squares[lag_of == k].mean()) for k in lags],
        tables_dims=[4, 8, 16, 32, 64, 128],
        scatter_dist=_pairs(signed)[chosen],
        scatter_lag=_pairs(lag_of)[chosen],
        scatter_table=np.array([_scaled(table, signed)[chosen] for table in tables.values()]),
        scatter_names=np.array(list(tables)),
    )
    measured = _measured(kept, tables, rank)
    again = [_measured(np.delete(kept, g, axis=0), tables, rank) for g in range(GROUPS)]
    records = []
    for key, value in measured.items():
        half = 2.365 * np.sqrt((GROUPS - 1) * np.var([a[key] for a in again]))
        metric, part, index = key
        around = [value, value - half, value + half]
        if metric.startswith("distance.mean"):
            around = [_root(v) for v in around]
        records.append(Record(study, name, metric, *around, part=part, index=index))
    facts = {
        "corpus.documents": total[0].sum(),
        "corpus.tokens": total.sum(),
        "positions.kept": len(positions),
        "rank": len(positions) - 1,
    }
    records += [Record(study, name, k, float(v)) for k, v in facts.items()]
    records += [Record(study, name, "support", float(v), index=i) for i, v in enumerate(support)]
    records += [Record(study, name, "mds.share", float(v / values.sum()), index=i) for i, v in enumerate(values[:-1])]
    records += [
        Record(study, name, "mds.share.corrected", float(max(v, 0) / clean_values[clean_values > 0].sum()), index=i)
        for i, v in enumerate(clean_values)
    ]
    records += [
        Record(study, name, "stress.held_out", 0.02 + 0.3 / r**2 + 0.004 * r, part="mds", index=r)
        for r in (1, 2, 3, 4, 5, 7, 10, 15)
    ]
    records += [
        Record(study, name, "stress.held_out", measured["stress.optimal.corrected", e, None] + 0.01, part=e)
        for e in tables
    ]
    records.append(Record(study, name, "stress.held_out", 0.31, part="equidistant"))
    records.append(Record(study, name, "parameters", float(len(support) * d), part="free"))
    records += [Record(study, name, f"stress.{scale}.corrected", 0.02, part="noise") for scale in ("raw", "optimal")]
    for width in (4, 8, 16, 32, 64, 128):
        for part, table in {
            "sinusoidal": _sinusoidal(len(positions), width),
            "mds": coords[:, :width],
        }.items():
            for suffix, target in (("", dist), (".corrected", signed)):
                records.append(
                    Record(study, name, f"stress.raw{suffix}", _stress(table, target, False), part=part, index=width)
                )
                records.append(
                    Record(study, name, f"stress.optimal{suffix}", _stress(table, target, True), part=part, index=width)
                )
        records.append(Record(study, name, "parameters", width * (len(positions) + d), part="mds", index=width))
    entry = {
        "name": name,
        "documents": int(total[0].sum()),
        "tokens": int(total.sum()),
        "positions_asked": len(support),
        "positions_kept": len(positions),
        "left_out": [int(i) for i in np.flatnonzero(support < MIN_SUPPORT)],
        "align": "start",
        "summary": [
            f"{len(positions)} of {len(support)} positions are counted often enough; the others are left out.",
            f"As counted, two positions are {_root(_pairs(dist**2).mean()):.2f} apart (root mean square); "
            f"{floors.mean():.2f} of that "
            f"is reached by two halves of the same position. Corrected for it, {_root(_pairs(squares).mean()):.2f} "
            "remain.",
            f"A table of {rank} dimensions made for this corpus reaches stress "
            f"{measured['stress.optimal.corrected', 'mds', None]:.3f}, "
            f"sinusoidal {measured['stress.optimal.corrected', 'sinusoidal', None]:.3f} at its best scale.",
        ],
    }
    return entry, records, roots


def _separation(study: str, model: str, rng: np.random.Generator) -> list[Record]:
    records = []
    for i, step in enumerate((0, 50, 100, 200, 500, 1000, 2000, 4200)):
        place = {"study": study, "model": model, "step": step, "seed": 0, "part": "corpus"}
        records += [
            Record(metric=metric, value=99.0, **place | {"part": None}) for metric in ("separation", "violations")
        ]  # all rows
        records.append(
            Record(
                metric="separation",
                value=0.2 + 0.1 * i * (len(model) % 3 + 1) / 3 + 0.01 * float(rng.standard_normal()),
                **place,
            )
        )
        records += [
            Record(metric="separation.quantile", value=0.3 + 0.1 * i + 0.004 * q, index=q, **place)
            for q in (5, 25, 50, 75, 95)
        ]
        records.append(Record(metric="violations", value=0.5 - 0.04 * i, **place))
        records.append(Record(metric="stress.optimal", value=0.25 - 0.02 * i, **place))
        records.append(Record(metric="change", value=0.2 * i, **place))
        records.append(Record(metric="n50", value=20.0 - 2 * i, **place))
    records += [Record(study, model, "h1", 0.013, seed=0), Record(study, model, "h1.floor", 0.02, seed=0)]
    return records + [
        Record(study, model, "h3", value * (layer + head + 1), part=part, seed=0, layer=layer, head=head)
        for layer in range(2)
        for head in range(2)
        for part, value in (("M", 0.002), ("M^T", 0.003))
    ]


def make_run(
    folder: Path,
    corpora: Sequence[str] = ("reviews", "tags"),
    positions: int = 24,
    vocabulary: int = 60,
    documents: int = 4000,
    models: Sequence[str] = ("from-pretrained", "from-scratch"),
    protocol: str = "default",
    **facts: object,
) -> Path:
    """A complete made-up folder; corpora take turns between three regimes and an early drift."""
    rng = np.random.default_rng(3)
    (folder / "arrays").mkdir(parents=True)
    study = folder.name
    entries = []
    records = []
    roots = []
    for i, name in enumerate(corpora):
        groups = counts(
            positions, vocabulary, documents, positions * (0.42 + 0.3 * i), ("drift", "regimes")[i % 2], rng
        )
        entry, found, root = _corpus(folder, study, name, groups, rng, d=64, rank=4)
        entries.append(entry)
        records += found
        for before, other in zip(corpora[:i], roots, strict=True):
            both = min(len(other), len(root))
            apart = np.linalg.norm(other[:both] - root[:both], axis=1)
            records += [
                Record(
                    study,
                    before,
                    "between",
                    float(v),
                    float(v) - 0.02,
                    float(v) + 0.02,
                    part=f"{before}|{name}",
                    index=k,
                )
                for k, v in enumerate(apart)
            ]
        roots.append(root)
    for model in models:
        records += _separation(study, model, rng)
    write_records(folder / "records.parquet", records)
    found = {
        "title": "How much does position matter?",
        "protocol": protocol,
        "corpora": entries,
        "models": list(models),
        "command": "whatwhere geometry --corpus reviews --corpus tags --out runs/geometry",
        "started": "2026-01-02T03:04:05+00:00",
        "seconds": 93.0,
        "machine": {"cpu": "Invented CPU at 2.1 GHz", "cores": 2, "memory_bytes": 16 * 2**30, "accelerator": None},
        "versions": {"whatwhere": "0.1.0", "numpy": "2.4.6", "scipy": "1.17.0"},
        "settings": {"positions": positions, "dims": 64, "min_support": MIN_SUPPORT, "groups": GROUPS, "seed": 0},
    }
    (folder / "geometry.json").write_text(json.dumps(found | facts))
    return folder
