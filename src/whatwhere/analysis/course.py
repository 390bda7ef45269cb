"""The course of a training: its position table and its attention to neighbours at every checkpoint, and when it
overtakes another's.

How far apart a training keeps the rows of its position table (GEOM sections 6.5-6.7, figures 5-7), and how near its
approximations of low rank come to the corpus's own table (remark 8). Who does the local work (DSTG section 4 (2), (3)
and figure 3): an absolute table and a relative bias can both learn to look at neighbours, and the one that learns
faster takes the work (DESIGN remark 16). How early a model is as good as another at its end (TUPE section 4.2 and
figure 5).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..encoder import EncoderConfig, EncoderForMaskedLM, EncoderForSequenceClassification
from ..geometry import classical_mds, distance_correlation, monotonicity_interval, spectrum, stress
from ..geometry.distances import distances
from ..geometry.encodings import random_table
from ..records import Record, select
from ..training.checkpoints import all_checkpoints
from .attention import TOTAL, WeightReader, Weights, check_seen, keep, query_mean
from .bootstrap import Mean, at_place, document_mean
from .geometry import CorpusDistances, rows_of
from .passes import Batch, Documents, read
from .who import Who

PERCENT = (1, 5, 25, 50, 75, 95, 99)  # of the pairs, in `separation.quantile`
RANKS = (1, 2, 3, 5, 8)  # of the approximations in `low_rank_records`
RANDOM = 8  # random tables of each rank, whose mean stress is taken
SHARES = 10  # components whose share is recorded
REACH = 8  # tokens on each side that are neighbours
OFFSETS = range(-REACH, REACH + 1)  # key minus query

Curve = list[tuple[int, float]]  # (step, validation loss) by step


def checkpoint_tables(run: str | Path) -> Iterator[tuple[int, np.ndarray]]:
    """(step, position table (rows, width) in float64) of every checkpoint of a pretraining or fine-tuning, by step.

    Raises:
        ValueError: no checkpoints there, or a model without a position table.
    """
    folders = list(all_checkpoints(Path(run) / "checkpoints"))
    if not folders:
        raise ValueError(
            f"{run} has no checkpoints. Give the folder of a run: whatwhere pretrain or finetune leaves them in "
            "checkpoints/."
        )
    for folder in folders:
        config = EncoderConfig.from_pretrained(folder, local_files_only=True)
        if config.absolute == "none":
            raise ValueError(
                f"{run} has no position table: its scheme ({config.preset}) keeps no position in the input. Try ap or "
                "dstg."
            )
        classifies = (config.architectures or [""])[0] == EncoderForSequenceClassification.__name__
        kind = EncoderForSequenceClassification if classifies else EncoderForMaskedLM
        table = kind.from_pretrained(folder, local_files_only=True).position_table()
        assert table is not None
        yield int(folder.name.removeprefix("step-")), table.detach().double().numpy()


def separation_records(
    run: str | Path, who: Who, *, used: int | None = None, corpus: CorpusDistances | None = None
) -> list[Record]:
    """Records of a run's position table at every checkpoint; `step` is the checkpoint's.

    `part` says which rows: None all of them; "used" the first `used`, that the training's texts reach (the others have
    no gradient, so what is measured on them is how they began); "corpus" those of the corpus's positions (row i + 1 is
    position i; row 0 is [CLS]). Of each part: `separation` (smallest |p_i - p_j|, GEOM figure 5), `separation.quantile`
    (index: per cent of the pairs below it), `violations` of monotonicity (figure 6), `pca.share` (index: component),
    `n50` ("%"), `change` (|P - P_0| / |P_0| in Frobenius norm, P_0 the table of the first checkpoint). Of "corpus" also
    `stress.raw`, `stress.optimal` and `correlation` of the distances (figure 7), and the same with the ending
    `.corrected` against corrected ones. n is the number of rows. There are no intervals: only several seeds can give
    them.

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
            records.append(
                record("change", float(np.linalg.norm(table[rows] - first[rows]) / np.linalg.norm(first[rows])))
            )
            if part == "corpus" and corpus is not None:
                records += [record(metric, value) for metric, value in corpus.stress(table[rows]).items()]
                fits = {ending: distance_correlation(table[rows], dist) for ending, dist in corpus.kinds().items()}
                records += [record(f"correlation{ending}", value) for ending, value in fits.items()]
    return records


def low_rank_records(table: np.ndarray, corpus: CorpusDistances, who: Who) -> list[Record]:
    """Records of how near the best approximations of a table of rank 1, 2, 3, 5, 8 come to the corpus's distances (GEOM
    remark 8).

    Index: the rank. `low_rank.stress.raw` and `low_rank.stress.optimal` of part "table", the centred rows of the
    corpus's positions cut to their first principal components (the best approximation of that rank, Eckart & Young),
    and of part "mds", the corpus's own classical MDS at the rank; the optimal one also of "random", the mean of 8
    tables of independent normal values. `low_rank.closed`: (random - table) ÷ (random - mds) at the optimal scale, the
    share of the way from a random table to the corpus's own; above 1 where the table has less stress, as classical MDS
    is not the table of least stress. The ending `.corrected` is for corrected distances. Ranks above the width of the
    table are left out. n: rows. There are no intervals: only several seeds can give them.

    Raises:
        ValueError: a corpus with positions that the table does not have.
    """
    rows = table[rows_of(corpus, len(table))]
    u, s, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    own, records = u * s, []
    for ending, dist in corpus.kinds().items():
        best = classical_mds(dist).coords
        for rank in (r for r in RANKS if r <= min(own.shape[1], best.shape[1])):
            record = partial(who.record, index=rank, n=len(rows))
            random = float(np.mean([stress(random_table(len(rows), rank, k), dist, "optimal") for k in range(RANDOM)]))
            found = {
                "table": stress(own[:, :rank], dist, "optimal"),
                "mds": stress(best[:, :rank], dist, "optimal"),
                "random": random,
            }
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
        who.record(
            "violations", violations.value, *((None, None) if exact else (violations.low, violations.high)), **place
        ),
        *who.records("pca.share", shape.shares[:SHARES], {"index": range(SHARES)}, **place),
        who.record("n50", shape.n50, unit="%", **place),
    ]


class NeighbourWeights(WeightReader):
    """How much each head looks at the tokens up to eight places away, by a softmax of each term alone and, part
    `total`, of their sum.

    Queries and keys are regular tokens that may look at each other; special tokens take their part of the softmax and
    count nowhere. Records, with part (a term's name or `total`), n documents, each a mean over documents:

    - `local.weight` (layer, head, index = offset -8 ... 8, key minus query): mean weight over the queries that have
      such a key. Without an interval.
    - `local.share`: weight on all keys of offsets -8 ... 8 but 0 together, mean over the regular queries, in [0, 1]; of
      each head (layer, head), of the mean over the heads of a block (layer) and over all heads.
    - `local.best`: the largest `local.share` of a head, with its layer and head. Its interval is that of the head once
      chosen.
    - `local.lead` (of each term beside others; layer, or none for all heads): `local.share` of the mean over heads
      minus that of the nearest rival, the largest of the other terms. Positive for the term that leads; paired over
      documents.
    - `local.even` (no part): `local.share` of attention that is equal over all keys.

    layer is the block's number from 1. Intervals: bootstrap over documents, whole articles where they are known.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], np.ndarray] = {}  # (documents, h, offsets + 1), the last is the share
        self._even: dict[tuple[int, str], np.ndarray] = {}  # (documents,)
        self._articles: np.ndarray | None = None

    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        regular, n = batch.regular, batch.regular.shape[1]
        b, h = len(regular), weights.values.shape[1]
        means = weights.values.new_full((b, h, len(OFFSETS) + 1), torch.nan)
        near = weights.values.new_zeros(b, h, n)
        count = near.new_zeros(b, n)  # neighbours of each query
        for i, offset in enumerate(OFFSETS):
            if abs(offset) < n:
                found, pairs = weights.diagonal(offset), weights.pairs(offset, regular, regular)
                means[..., i] = query_mean(found, pairs)
                if offset:
                    queries = slice(max(0, -offset), n - max(0, offset))
                    near[..., queries] += found * pairs[:, None]
                    count[:, queries] += pairs
        means[..., -1] = query_mean(near, regular)
        keep(self._found, (block, part), batch, means)
        if (block, part) == (0, TOTAL):
            self._articles = batch.documents.articles
            keys = torch.full_like(count, n) if weights.allowed is None else weights.allowed.sum(-1)[:, 0].expand(b, n)
            keep(self._even, (block, part), batch, query_mean((count / keys)[:, None], regular)[:, 0])

    def records(self, who: Who) -> list[Record]:
        """The records; see the class.

        Raises:
            ValueError: no document has passed, or none has a regular token.
        """
        check_seen(self._found)
        parts = list(dict.fromkeys(part for _, part in self._found))
        blocks = sorted({block for block, _ in self._found})
        found = np.stack(
            [[self._found[block, part] for block in blocks] for part in parts]
        )  # (parts, L, documents, h, offsets + 1)
        found = np.moveaxis(found, 2, 0)  # (documents, parts, L, h, offsets + 1)
        n = int((~np.isnan(found[:, 0, 0, 0, -1])).sum())
        record, mean_of = partial(who.record, n=n), partial(document_mean, articles=self._articles)
        by_part: dict[str, Any] = {"part": parts}
        by_layer = by_part | {"layer": [block + 1 for block in blocks]}
        by_head = by_layer | {"head": range(found.shape[3])}
        weight, _, _ = mean_of(found[..., :-1], draws=1)  # no interval is kept of these
        share = found[..., -1]  # (documents, parts, L, h)
        heads = mean_of(share)
        records = [
            *who.records("local.weight", weight, {**by_head, "index": OFFSETS}, n=n),
            *who.records("local.share", mean_of(share.mean((-2, -1))), by_part, n=n),
            *who.records("local.share", mean_of(share.mean(-1)), by_layer, n=n),
            *who.records("local.share", heads, by_head, n=n),
        ]
        for p, part in enumerate(parts):
            b, head = divmod(int(np.argmax(heads[0][p])), share.shape[-1])
            records.append(
                record("local.best", *at_place(heads, (p, b, head)), part=part, layer=blocks[b] + 1, head=head)
            )
        terms = [p for p, part in enumerate(parts) if part != TOTAL]
        for layer, values in [
            (None, share.mean((-2, -1))),
            *((block + 1, share[:, :, b].mean(-1)) for b, block in enumerate(blocks)),
        ]:
            for p in terms if len(terms) > 1 else ():
                ahead = _lead(values, p, [q for q in terms if q != p], mean_of)
                records.append(record("local.lead", *at_place(ahead, ()), part=parts[p], layer=layer))
        records.append(record("local.even", *at_place(mean_of(self._even[0, TOTAL]), ())))
        return records


def _lead(share: np.ndarray, part: int, rivals: list[int], mean_of: Callable[[np.ndarray], Mean]) -> Mean:
    """Mean over documents of `share` (documents, parts) of a part minus that of the rival with the largest mean."""
    rival = max(rivals, key=lambda q: float(np.nanmean(share[:, q])))
    return mean_of(share[:, part] - share[:, rival])


def local_records(run: str | Path, documents: Documents, who: Who, *, batch_size: int = 8) -> list[Record]:
    """Records of `NeighbourWeights` for every checkpoint of a pretraining; `step` is the checkpoint's, none for
    `local.even`.

    Raises:
        ValueError: no checkpoints there, or as `NeighbourWeights.records`.
    """
    records: list[Record] = []
    for folder in all_checkpoints(Path(run) / "checkpoints"):
        model = EncoderForMaskedLM.from_pretrained(folder, local_files_only=True).eval()
        reader = NeighbourWeights()
        read(model, documents, [reader], batch_size)
        *of_step, even = reader.records(who.at(int(folder.name.removeprefix("step-"))))
        records += [*([] if records else [replace(even, step=who.step)]), *of_step]
    if not records:
        raise ValueError(
            f"{run} has no checkpoints. Give the folder of a run: whatwhere pretrain leaves them in checkpoints/."
        )
    return records


def convergence_records(records: Sequence[Record], *, study: str) -> list[Record]:
    """For every ordered pair of models and each seed that both have: when the model reaches the baseline's final
    validation loss.

    `convergence.reached` (part: the baseline) is 1.0 if the model's final validation loss is not above the baseline's,
    else 0.0. `convergence.share`, only where reached: step from which on the model's loss stays at or below the
    baseline's final loss, as a share of the model's own steps, in (0, 1]. Between two validations the loss is taken as
    linear. A loss that dips below and rises again has not reached it: validations are few and noisy, and the first dip
    of a noisy curve comes too early. A model that is there at its first validation gets that step, an upper bound. n is
    the number of the model's validations.

    All models of a study train on the same batches, so a share of steps is a share of tokens; it is one of time or
    operations only where steps cost the same (`whatwhere study --match`). There are no intervals: only several seeds
    can give them. A training that diverged has reached nothing, and nothing is said about when others reach it.

    Args:
        records: of a study; those with metric "loss", part "validation" and a step are read.
    """
    curves = _curves(records)
    found = []
    for (model, seed), curve in curves.items():
        for (baseline, other), goal in curves.items():
            if baseline == model or other != seed or not math.isfinite(goal[-1][1]):
                continue
            step = reached(curve, goal[-1][1])
            record = partial(Who(model, seed, study).record, part=baseline, n=len(curve))
            found.append(record("convergence.reached", float(step is not None)))
            if step is not None:
                found.append(record("convergence.share", step / curve[-1][0]))
    return found


def reached(curve: Curve, loss: float) -> float | None:
    """Step, between validations by linear interpolation, from which on a curve stays at or below `loss`; None if it
    ends above."""
    above = [not value <= loss for _, value in curve]  # nan is above
    if above[-1]:
        return None
    if not any(above):
        return float(curve[0][0])
    last = len(above) - 1 - above[::-1].index(True)
    (a, high), (b, low) = curve[last : last + 2]
    return a + (b - a) * (high - loss) / (high - low) if math.isfinite(high) else float(b)


def _curves(records: Sequence[Record]) -> dict[tuple[str, int | None], Curve]:
    """The validation losses of each training, by step; without trainings that have none after step 0."""
    losses: dict[tuple[str, int | None], dict[int, float]] = {}
    for r in select(records, metric="loss", part="validation"):
        if r.step is not None:
            losses.setdefault((r.model, r.seed), {})[r.step] = r.value
    return {key: sorted(by_step.items()) for key, by_step in losses.items() if max(by_step) > 0}
