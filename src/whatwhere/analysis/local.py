"""Who does the local work: attention to neighbouring tokens by each term of the scores alone, at every checkpoint of a training.

DSTG section 4 (2), (3) and figure 3, followed through the training: an absolute table and a relative bias can both learn to look at
neighbours, and the one that learns faster takes the work (DESIGN remark 16).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..encoder import EncoderForMaskedLM
from ..records import Record
from ..training.checkpoints import all_checkpoints
from .attention import TOTAL, WeightReader, Weights, check_seen, keep, query_mean
from .bootstrap import Mean, at_place, document_mean
from .features import Documents
from .passes import Batch, read
from .who import Who

REACH = 8  # tokens on each side that are neighbours
OFFSETS = range(-REACH, REACH + 1)  # key minus query


class NeighbourWeights(WeightReader):
    """How much each head looks at the tokens up to eight places away, by a softmax of each term alone and, part `total`, of their sum.

    Queries and keys are regular tokens that may look at each other; special tokens take their part of the softmax and count nowhere.
    Records, with part (a term's name or `total`), n documents, each a mean over documents:

    - `local.weight` (layer, head, index = offset -8 ... 8, key minus query): mean weight over the queries that have such a key. Without
      an interval.
    - `local.share`: weight on all keys of offsets -8 ... 8 but 0 together, mean over the regular queries, in [0, 1]; of each head
      (layer, head), of the mean over the heads of a block (layer) and over all heads.
    - `local.best`: the largest `local.share` of a head, with its layer and head. Its interval is that of the head once chosen.
    - `local.lead` (of each term beside others; layer, or none for all heads): `local.share` of the mean over heads minus that of the
      nearest rival, the largest of the other terms. Positive for the term that leads; paired over documents.
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
        found = np.stack([[self._found[block, part] for block in blocks] for part in parts])  # (parts, L, documents, h, offsets + 1)
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
            records.append(record("local.best", *at_place(heads, (p, b, head)), part=part, layer=blocks[b] + 1, head=head))
        terms = [p for p, part in enumerate(parts) if part != TOTAL]
        for layer, values in [(None, share.mean((-2, -1))), *((block + 1, share[:, :, b].mean(-1)) for b, block in enumerate(blocks))]:
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
    """Records of `NeighbourWeights` for every checkpoint of a pretraining; `step` is the checkpoint's, none for `local.even`.

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
        raise ValueError(f"{run} has no checkpoints. Give the folder of a run: whatwhere pretrain leaves them in checkpoints/.")
    return records
