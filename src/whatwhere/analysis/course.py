"""Course of a training: its position table and its attention to neighbours at every checkpoint, and the step at which
it overtakes another's loss.

How far apart a training keeps the rows of its position table (GEOM sections 6.5-6.7, figures 5-7), and how near its
approximations of low rank come to the corpus's own table (remark 8). Who does the local work (DSTG section 4 (2), (3)
and figure 3): an absolute table and a relative bias can both learn to look at neighbours, and the one that learns
faster takes the work. How early a model is as good as another at its end (TUPE section 4.2 and
figure 5).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..geometry import classical_mds, distance_correlation, monotonicity_interval, spectrum, stress
from ..geometry.distances import distances
from ..geometry.encodings import random_table
from ..models.model_tables import read_table
from ..models.open import open_model
from ..records.metric import (
    BASELINE,
    CORRECTED,
    CORRELATION,
    NOT_NEGATIVE,
    ROWS,
    SCALES,
    SHARE,
    TERM,
    UNBOUNDED,
    Metric,
    stress_of,
    with_endings,
)
from ..records.metrics import add_metrics
from ..records.record import Record, select
from ..training.checkpoints import CHECKPOINTS, checkpoint_folders
from .analyses import TRAINING, Analysis
from .attention_weights import TOTAL, WeightReader, Weights, query_mean
from .corpus_geometry import CorpusDistances, rows_of
from .passes import Batch, ChosenWindows, read
from .record_context import RecordContext

PERCENT = (1, 5, 25, 50, 75, 95, 99)  # of the pairs, in `separation.quantile`
RANKS = (1, 2, 3, 5, 8)  # of the approximations in `low_rank_records`
RANDOM = 8  # random tables of each rank, whose mean stress is taken
SHARES = 10  # components whose share is recorded
REACH = 8  # tokens on each side that are neighbours
OFFSETS = range(-REACH, REACH + 1)  # key minus query

add_metrics(
    {
        **with_endings(
            "local.",
            ("weight", "share", "best", "even"),
            Metric(name="weight on neighbours", unit=SHARE, part=TERM, method="neighbours"),
        ),
        "local.lead": Metric(
            name="weight on neighbours above another term's",
            unit=SHARE,
            part=TERM,
            method="neighbours",
            range=CORRELATION,
        ),
        **with_endings(
            "convergence.",
            ("reached", "share"),
            Metric(name="share of its steps", unit=SHARE, part=BASELINE, counts="validations", method="convergence"),
        ),
        "separation.quantile": Metric(
            name="distances of all pairs", part=ROWS, index="percentile", counts="positions", range=NOT_NEGATIVE
        ),
        "change": Metric(
            name="change since the first checkpoint", unit=SHARE, part=ROWS, counts="positions", range=NOT_NEGATIVE
        ),
        **with_endings(
            "low_rank.stress.",
            SCALES,
            stress_of("stress at a rank"),
        ),
        **with_endings(
            "low_rank.closed",
            CORRECTED,
            Metric(name="way from random to MDS", unit=SHARE, index="rank", counts="positions", range=UNBOUNDED),
        ),
    },
    methods={
        "neighbours": """
Attention to neighbours is the weight of a regular token on the regular tokens up to eight places before and after it,
by a softmax of one term alone, as if the others were not there. The model of each checkpoint reads the same few
held-out documents. A term that does not depend on the words gives nearly the same in each, so its interval over
documents is narrow and says nothing about another training.
""",
        "convergence": """
The share of steps to a baseline’s loss is read where the validation loss of a model falls to the final one of the
baseline and stays there (TUPE, figure 5), of each seed by itself. A model that never reaches it has no share.
""",
    },
)


def checkpoints_of(run: str | Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of every checkpoint of a training.

    Raises:
        ValueError: no checkpoints there.
    """
    folders = list(checkpoint_folders(Path(run) / CHECKPOINTS))
    if not folders:
        raise ValueError(
            f"{run} has no checkpoints. Give the folder of a run: whatwhere pretrain or finetune leaves them in "
            "checkpoints/."
        )
    return [(int(folder.name.removeprefix("step-")), folder) for folder in folders]


def checkpoint_tables(run: str | Path) -> Iterator[tuple[int, np.ndarray]]:
    """Yield step and position table of every checkpoint of a training, by step.

    The training is a pretraining or a fine-tuning. Tables are (rows, width) in float64.

    Raises:
        ValueError: no checkpoints there, or a model without a position table.
    """
    for step, folder in checkpoints_of(run):
        yield step, read_table(folder).numpy()


def separation_records(
    run: str | Path, context: RecordContext, *, used: int | None = None, corpus: CorpusDistances | None = None
) -> list[Record]:
    """Measure a run's position table at every checkpoint; `step` is the checkpoint's, n the number of rows.

    `part` names the rows: None all of them; "used" the first `used`, that the training's texts reach (the others have
    no gradient); "corpus" the corpus's positions (row i + 1 is position i; row 0 is [CLS]). Of each part:
    `separation` (smallest |p_i - p_j|, GEOM figure 5) and its quantiles, `violations` (figure 6), `pca.share`, `n50`,
    `change` (|P - P_0| / |P_0| in Frobenius norm, P_0 the table of the first checkpoint). Of "corpus" also
    `stress.raw`, `stress.optimal` and `correlation` of the distances (figure 7). Only several seeds can give intervals.

    Raises:
        ValueError: see `checkpoint_tables`; a corpus with positions that the table does not have, or a table that is
            not finite or whose rows are all equal.
    """
    records: list[Record] = []
    start: np.ndarray | None = None
    for step, table in checkpoint_tables(run):
        start = table if start is None else start
        parts: dict[str | None, np.ndarray] = {None: np.arange(len(table))}
        if used is not None:
            parts["used"] = np.arange(min(used, len(table)))
        if corpus is not None:
            parts["corpus"] = rows_of(corpus, len(table))
        for part, chosen in parts.items():
            rows = table[chosen]
            before = start[chosen]
            place: dict[str, Any] = {"part": part, "n": len(rows)}
            at = corpus.positions if part == "corpus" and corpus is not None else chosen
            records += _shape(rows, np.asarray(at), context.at(step), **place)
            values = {"change": float(np.linalg.norm(rows - before) / np.linalg.norm(before))}
            if part == "corpus" and corpus is not None:
                values |= corpus.stress(rows)
                values |= {f"correlation{e}": distance_correlation(rows, dist) for e, dist in corpus.kinds().items()}
            records += [context.at(step).record(metric, value, **place) for metric, value in values.items()]
    return records


def low_rank_records(table: np.ndarray, corpus: CorpusDistances, context: RecordContext) -> list[Record]:
    """Measure the least stress of tables of low rank against the corpus's distances (GEOM remark 8).

    Index: the rank, 1, 2, 3, 5, 8. `low_rank.stress.raw` and `low_rank.stress.optimal` of part "table", the centred
    rows of the corpus's positions cut to their first principal components (the best approximation of that rank, Eckart
    & Young), and of part "mds", the corpus's own classical MDS at the rank; the optimal one also of "random", the mean
    of 8 tables of independent normal values. `low_rank.closed`: (random - table) ÷ (random - mds) at the optimal scale,
    the share of the way from a random table to the corpus's own; above 1 where the table has less stress, as classical
    MDS is not the table of least stress. Ranks above the width of the table are left out. n: rows. No intervals.

    table: (rows, width), row 0 [CLS], row i + 1 position i.

    Raises:
        ValueError: a corpus with positions that the table does not have, or NaN or infinity in the table.
    """
    rows = table[rows_of(corpus, len(table))]
    u, s, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    components = u * s
    records = []
    for ending, dist in corpus.kinds().items():
        best = classical_mds(dist).coords
        for rank in (r for r in RANKS if r <= min(components.shape[1], best.shape[1])):
            record = partial(context.record, index=rank, n=len(rows))
            coords = {"table": components[:, :rank], "mds": best[:, :rank]}
            optimal = {part: stress(of_part, dist, "optimal") for part, of_part in coords.items()}
            chance = [stress(random_table(len(rows), rank, k), dist, "optimal") for k in range(RANDOM)]
            optimal["random"] = float(np.mean(chance))
            for scale, values in (("optimal", optimal), ("raw", {p: stress(x, dist) for p, x in coords.items()})):
                name = f"low_rank.stress.{scale}{ending}"
                records += [record(name, value, part=part) for part, value in values.items()]
            way = optimal["random"] - optimal["mds"]
            if way > 0:
                records.append(record(f"low_rank.closed{ending}", (optimal["random"] - optimal["table"]) / way))
    return records


def _shape(table: np.ndarray, positions: np.ndarray, context: RecordContext, **place: Any) -> list[Record]:
    """Return records of a table's rows by themselves; positions: (rows,), with gaps where a corpus has some."""
    apart = distances(table)[np.triu_indices(len(table), 1)]
    violations = monotonicity_interval(table, positions=positions)
    shape = spectrum(table)
    ends = () if violations.low == violations.high else (violations.low, violations.high)
    return [
        context.record("separation", apart.min(), **place),
        *context.records("separation.quantile", np.percentile(apart, PERCENT), {"index": PERCENT}, **place),
        context.record("violations", violations.value, *ends, **place),
        *context.records("pca.share", shape.shares[:SHARES], {"index": range(SHARES)}, **place),
        context.record("n50", shape.n50, **place),
    ]


class NeighbourWeights(WeightReader):
    """Reader of the weight of each head on tokens up to eight places away.

    The weight is by term alone and, part `total`, for the sum of the terms.

    Queries and keys are regular tokens that may look at each other; special tokens take their part of the softmax and
    count nowhere. Records, each a mean over windows:

    - `local.weight` (index: offset, key minus query): mean weight over the queries that have such a key. Without an
      interval.
    - `local.share`: weight on all keys of offsets -8 ... 8 but 0 together, mean over the regular queries, in [0, 1]; of
      each head (layer, head), of the mean over the heads of a block (layer) and over all heads.
    - `local.best`: the largest `local.share` of a head, with its layer and head. Its interval takes the choice of the
      head as given.
    - `local.lead` (of each term beside others; layer, or none for all heads): `local.share` of the mean over heads
      minus the share of the nearest rival, the largest of the other terms. Positive for the term that leads; paired
      over documents.
    - `local.even` (no part): `local.share` of attention that is equal over all keys.
    """

    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        regular = batch.regular
        n = batch.regular.shape[1]
        b = len(regular)
        h = weights.values.shape[1]
        means = weights.values.new_full((b, h, len(OFFSETS) + 1), torch.nan)  # the last is the share
        near = weights.values.new_zeros(b, h, n)
        count = near.new_zeros(b, n)  # neighbours of each query
        for i, offset in enumerate(OFFSETS):
            if abs(offset) < n:
                of_keys = weights.diagonal(offset)
                pairs = weights.pairs(offset, regular, regular)
                means[..., i] = query_mean(of_keys, pairs)
                if offset:
                    queries = slice(max(0, -offset), n - max(0, offset))
                    near[..., queries] += of_keys * pairs[:, None]
                    count[:, queries] += pairs
        means[..., -1] = query_mean(near, regular)
        self.keep((block, part), batch, means)
        if (block, part) == (0, TOTAL):
            keys = torch.full_like(count, n) if weights.allowed is None else weights.allowed.sum(-1)[:, 0].expand(b, n)
            self.keep("even", batch, query_mean((count / keys)[:, None], regular)[:, 0])

    def records(self, context: RecordContext) -> list[Record]:
        self.places()  # raises where there is nothing
        places = [key for key in self.values if isinstance(key, tuple)]
        parts = list(dict.fromkeys(part for _, part in places))
        blocks = sorted({block for block, _ in places})
        means = np.stack([[self.values[block, part] for block in blocks] for part in parts])
        means = np.moveaxis(means, 2, 0)  # (windows, parts, L, h, offsets + 1)
        share = means[..., -1]
        n = int(self.count(share[:, 0, 0, 0]))
        by_part: dict[str, Any] = {"part": parts}
        by_layer = by_part | {"layer": [block + 1 for block in blocks]}
        by_head = by_layer | {"head": range(share.shape[-1])}
        heads = self.mean(share)
        records = [
            *context.records("local.weight", self.mean(means[..., :-1], draws=1), {**by_head, "index": OFFSETS}, n=n),
            *context.records("local.share", self.mean(share.mean((-2, -1))), by_part, n=n),
            *context.records("local.share", self.mean(share.mean(-1)), by_layer, n=n),
            *context.records("local.share", heads, by_head, n=n),
        ]
        for p, part in enumerate(parts):
            b, head = divmod(int(np.argmax(heads[0][p])), share.shape[-1])
            best = (end[p, b, head] for end in heads)
            records.append(context.record("local.best", *best, part=part, layer=blocks[b] + 1, head=head, n=n))
        terms = [p for p, part in enumerate(parts) if part != TOTAL]
        by_block = [(block + 1, share[:, :, b].mean(-1)) for b, block in enumerate(blocks)]
        for layer, values in [(None, share.mean((-2, -1))), *by_block]:  # (windows, parts)
            for p in terms if len(terms) > 1 else ():
                rival = max((q for q in terms if q != p), key=lambda q: float(np.nanmean(values[:, q])))
                lead = self.mean(values[:, p] - values[:, rival])
                records.append(context.record("local.lead", *lead, part=parts[p], layer=layer, n=n))
        return [*records, context.record("local.even", *self.mean(self.values["even"]), n=n)]


def local_records(run: str | Path, windows: ChosenWindows, context: RecordContext) -> list[Record]:
    """Measure attention to neighbours at every checkpoint of a pretraining.

    `NeighbourWeights` has the records; `step` is the checkpoint's, none for `local.even`.

    Raises:
        ValueError: the folder has no checkpoints.
    """
    records: list[Record] = []
    for step, folder in checkpoints_of(run):
        model = open_model(folder, "masked").model
        reader = NeighbourWeights()
        read(model, windows, [reader])
        *of_step, even = reader.records(context.at(step))
        if not records:
            records.append(replace(even, step=context.step))
        records += of_step
    return records


def convergence_records(records: Sequence[Record], *, run_name: str) -> list[Record]:
    """Return the step at which a model reaches another's final validation loss.

    There is a record for every ordered pair and each shared seed.

    `convergence.reached` (part: the baseline) is 1.0 if the model's final validation loss is not above the baseline's,
    else 0.0. `convergence.share`, only where reached: step from which on the model's loss stays at or below the
    baseline's final loss, as a share of the model's own steps, in (0, 1]. Between two validations the loss is taken as
    linear. A loss that dips below and rises again has not reached it: validations are few and noisy, and the first dip
    of a noisy curve comes too early. A model that is there at its first validation gets that step, an upper bound. n is
    the number of the model's validations.

    All models of a study train on the same batches, so a share of steps is a share of tokens; it is one of time or
    operations only where steps cost the same (`whatwhere study --match`). Only several seeds can give intervals. A
    diverged training reaches nothing, and has no record as a baseline.

    Args:
        records: of a study; those with metric "loss", part "validation" and a step are read.
    """
    curves = _curves(records)
    pairs: list[Record] = []
    for (model, seed), curve in curves.items():
        for (baseline, other), goal in curves.items():
            if baseline == model or other != seed or not math.isfinite(goal[-1][1]):
                continue
            step = reached(curve, goal[-1][1])
            record = partial(RecordContext(model, seed, run_name).record, part=baseline, n=len(curve))
            pairs.append(record("convergence.reached", step is not None))
            if step is not None:
                pairs.append(record("convergence.share", step / curve[-1][0]))
    return pairs


def reached(curve: Sequence[tuple[int, float]], loss: float) -> float | None:
    """Return the step from which on a curve stays at or below `loss`, or None.

    curve: (step, loss) of each validation, linear between two of them. None if the curve ends above `loss`.
    """
    above = [not value <= loss for _, value in curve]  # nan is above
    if above[-1]:
        return None
    if not any(above):
        return float(curve[0][0])
    last = len(above) - 1 - above[::-1].index(True)
    (a, high), (b, low) = curve[last : last + 2]
    return a + (b - a) * (high - loss) / (high - low) if math.isfinite(high) else float(b)


def _curves(records: Sequence[Record]) -> dict[tuple[str, int | None], list[tuple[int, float]]]:
    """Return the validation losses of each training, by step, without trainings that have none after step 0."""
    losses: dict[tuple[str, int | None], dict[int, float]] = {}
    for r in select(records, metric="loss", part="validation"):
        if r.step is not None:
            losses.setdefault((r.model, r.seed), {})[r.step] = r.value
    return {key: sorted(by_step.items()) for key, by_step in losses.items() if max(by_step) > 0}


AT_CHECKPOINTS = 16  # windows that the model of every checkpoint reads
ANALYSES = (
    Analysis(
        "separation",
        TRAINING,
        lambda s: separation_records(s.training_folder, s.context, corpus=s.corpus),
        needs=("training_folder", "table"),
        optional=True,
    ),
    Analysis(
        "neighbours",
        TRAINING,
        lambda s: local_records(s.training_folder, s.evenly_spaced(AT_CHECKPOINTS), s.context),
        needs=("training_folder", "windows"),
    ),
    Analysis(
        "low rank",
        TRAINING,
        lambda s: low_rank_records(s.table, s.corpus, s.context),
        needs=("corpus", "table"),
        optional=True,
    ),
)
