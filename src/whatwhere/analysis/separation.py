"""How far apart a training keeps the rows of its position table, at every checkpoint (GEOM sections 6.5-6.7, figures 5-7).

And how near its approximations of low rank come to the corpus's own table (remark 8).
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import encoder
from ..geometry import classical_mds, distance_correlation, monotonicity_interval, spectrum, stress
from ..geometry.distances import distances
from ..geometry.encodings import random_table
from ..records import Record
from ..training.checkpoints import all_checkpoints
from .geometry import CorpusDistances, rows_of
from .who import Who

PERCENT = (1, 5, 25, 50, 75, 95, 99)  # of the pairs, in `separation.quantile`
RANKS = (1, 2, 3, 5, 8)  # of the approximations in `low_rank_records`
RANDOM = 8  # random tables of each rank, whose mean stress is taken
SHARES = 10  # components whose share is recorded


def checkpoint_tables(run: str | Path) -> Iterator[tuple[int, np.ndarray]]:
    """(step, position table (rows, width) in float64) of every checkpoint of a pretraining or fine-tuning, by step.

    Raises:
        ValueError: no checkpoints there, or a model without a position table.
    """
    folders = list(all_checkpoints(Path(run) / "checkpoints"))
    if not folders:
        raise ValueError(f"{run} has no checkpoints. Give the folder of a run: whatwhere pretrain or finetune leaves them in checkpoints/.")
    for folder in folders:
        config = encoder.EncoderConfig.from_pretrained(folder, local_files_only=True)
        if config.absolute == "none":
            raise ValueError(f"{run} has no position table: its scheme ({config.preset}) keeps no position in the input. Try ap or dstg.")
        kind = getattr(encoder, (config.architectures or ["Encoder"])[0])
        table = kind.from_pretrained(folder, local_files_only=True).position_table()
        yield int(folder.name.removeprefix("step-")), table.detach().double().numpy()


def separation_records(run: str | Path, who: Who, *, used: int | None = None, corpus: CorpusDistances | None = None) -> list[Record]:
    """Records of a run's position table at every checkpoint; `step` is the checkpoint's.

    `part` says which rows: None all of them; "used" the first `used`, that the training's texts reach (the others have no gradient, so
    what is measured on them is how they began); "corpus" those of the corpus's positions (row i + 1 is position i; row 0 is [CLS]).
    Of each part: `separation` (smallest |p_i - p_j|, GEOM figure 5), `separation.quantile` (index: per cent of the pairs below it),
    `violations` of monotonicity (figure 6), `pca.share` (index: component), `n50` ("%"), `change` (|P - P_0| / |P_0| in Frobenius norm,
    P_0 the table of the first checkpoint). Of "corpus" also `stress.raw`, `stress.optimal` and `correlation` of the distances (figure
    7), and the same with the ending `.corrected` against corrected ones. n is the number of rows. There are no intervals: only several
    seeds can give them.

    Raises:
        ValueError: see `checkpoint_tables`; a corpus with positions that the table does not have.
    """
    records: list[Record] = []
    first: np.ndarray | None = None
    for step, table in checkpoint_tables(run):
        first = table if first is None else first
        parts: dict[str | None, np.ndarray] = {None: np.arange(len(table))}
        if used is not None:
            parts["used"] = np.arange(min(used, len(table)))
        if corpus is not None:
            parts["corpus"] = rows_of(corpus, len(table))
        for part, rows in parts.items():
            record = partial(who.at(step).record, part=part, n=len(rows))
            records += _shape(table[rows], who.at(step), part=part, n=len(rows))
            records.append(record("change", float(np.linalg.norm(table[rows] - first[rows]) / np.linalg.norm(first[rows]))))
            if part == "corpus" and corpus is not None:
                records += _fit(table[rows], corpus, record)
    return records


def _fit(table: np.ndarray, corpus: CorpusDistances, record: "partial[Record]") -> list[Record]:
    """How well the distances of a table are those of the corpus, plug-in and corrected."""
    records = []
    for ending, dist in (("", corpus.dist), (".corrected", corpus.corrected)):
        if dist is not None:
            records.append(record(f"stress.raw{ending}", stress(table, dist)))
            records.append(record(f"stress.optimal{ending}", stress(table, dist, "optimal")))
            records.append(record(f"correlation{ending}", distance_correlation(table, dist)))
    return records


def low_rank_records(table: np.ndarray, corpus: CorpusDistances, who: Who) -> list[Record]:
    """Records of how near the best approximations of a table of rank 1, 2, 3, 5, 8 come to the corpus's distances (GEOM remark 8).

    Index: the rank. `low_rank.stress.raw` and `low_rank.stress.optimal` of part "table", the centred rows of the corpus's positions cut to
    their first principal components (the best approximation of that rank, Eckart & Young), and of part "mds", the corpus's own classical
    MDS at the rank; the optimal one also of "random", the mean of 8 tables of independent normal values. `low_rank.closed`:
    (random - table) ÷ (random - mds) at the optimal scale, the share of the way from a random table to the corpus's own; above 1 where the
    table has less stress, as classical MDS is not the table of least stress. The ending `.corrected` is for corrected distances. Ranks
    above the width of the table are left out. n: rows. There are no intervals: only several seeds can give them.

    Raises:
        ValueError: a corpus with positions that the table does not have.
    """
    rows = table[rows_of(corpus, len(table))]
    u, s, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    own, records = u * s, []
    for ending, dist in (("", corpus.dist), (".corrected", corpus.corrected)):
        if dist is None:
            continue
        best = classical_mds(dist).coords
        for rank in (r for r in RANKS if r <= min(own.shape[1], best.shape[1])):
            record = partial(who.record, index=rank, n=len(rows))
            random = float(np.mean([stress(random_table(len(rows), rank, k), dist, "optimal") for k in range(RANDOM)]))
            found = {"table": stress(own[:, :rank], dist, "optimal"), "mds": stress(best[:, :rank], dist, "optimal"), "random": random}
            records += [record(f"low_rank.stress.optimal{ending}", value, part=part) for part, value in found.items()]
            records += [
                record(f"low_rank.stress.raw{ending}", stress(of_part[:, :rank], dist), part=part)
                for part, of_part in (("table", own), ("mds", best))
            ]
            if random > found["mds"]:
                records.append(record(f"low_rank.closed{ending}", (random - found["table"]) / (random - found["mds"])))
    return records


def _shape(table: np.ndarray, who: Who, **place: Any) -> list[Record]:
    """What the rows of a table say by themselves."""
    apart = distances(table)[np.triu_indices(len(table), 1)]
    violations, shape = monotonicity_interval(table), spectrum(table)
    exact = violations.low == violations.high
    return [
        who.record("separation", float(apart.min()), **place),
        *who.records("separation.quantile", np.percentile(apart, PERCENT), {"index": PERCENT}, **place),
        who.record("violations", violations.value, *((None, None) if exact else (violations.low, violations.high)), **place),
        *who.records("pca.share", shape.shares[:SHARES], {"index": range(SHARES)}, **place),
        who.record("n50", shape.n50, unit="%", **place),
    ]
