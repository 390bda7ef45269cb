"""Stress of a model's own states: the distances between the mean states of positions against those of the corpus.

GEOM 6.8 asks what each layer makes of the distances between positions, and projects a sinusoidal table through the
query and key matrices of each; its limitations say that this "does not account for the full attention computation".
Here the states themselves are read.
"""

from typing import Any

import numpy as np
import torch

from ..geometry import corrected_squares, stress_of_distances
from ..intervals import jackknife_interval
from ..records import Record
from .geometry import CorpusDistances
from .hidden import article_groups
from .passes import Documents, check_finite, hidden_states
from .probes import stream_columns
from .who import Who

FEWEST_POSITIONS = 3


def centre_records(
    model: Any,
    documents: Documents,
    corpus: CorpusDistances,
    who: Who,
    *,
    batch_size: int = 32,
) -> list[Record]:
    """Records `hidden.stress`, see `metrics`, by layer (0 = embedding) and part (`all`, `position`, `semantic`).

    The mean state of a position is taken over the regular tokens that stand there. Two halves of the articles give two
    means a_i, b_i of independent noise, and (a_i - a_j) · (b_i - b_j) the squared distance without it, cut at 0. Held
    against the corrected distances of the corpus if it has them. Interval: 95 %, jackknife over at most 16 groups of
    articles. Positions that some half lacks when a group is left out do not count; [] where fewer than 3 are left, as
    in documents of one article.

    `hidden.stress.level`: the stress of distances that are all equal, the mark to beat; n: positions.
    """
    groups = article_groups(documents)
    kinds = int(groups.max()) + 1
    places = np.asarray(corpus.positions) + 1  # row 0 is [CLS]
    there = np.flatnonzero(places <= documents.position_ids.max())
    column = np.full(int(max(places.max(), documents.position_ids.max())) + 1, -1)
    column[places[there]] = np.arange(len(there))
    counts, sums = np.zeros((kinds, len(there))), list[torch.Tensor]()
    for rows, hidden in hidden_states(model, documents, batch_size=batch_size):
        at = np.where(documents.regular[rows], column[documents.position_ids[rows]], -1)
        counted = torch.from_numpy(at >= 0)
        cells = torch.from_numpy((groups[rows][:, None] * len(there) + at)[at >= 0])
        counts += np.bincount(cells.numpy(), minlength=counts.size).reshape(counts.shape)
        sums = sums or [torch.zeros(counts.size, h.shape[2], dtype=torch.float64) for h in hidden]
        for layer, (total, states) in enumerate(zip(sums, hidden, strict=True)):
            check_finite(states, f"hidden[{layer}]")
            total.index_add_(0, cells, states.cpu()[counted].double())
    of_layers = [total.numpy().reshape(*counts.shape, -1) for total in sums]  # (groups, positions, width) each

    splits = [_halves(kinds, left) for left in (None, *range(kinds))]
    kept = np.all([(counts[half].sum(0) > 0) for halves in splits for half in halves], axis=0)
    if kept.sum() < FEWEST_POSITIONS:
        return []
    wanted = np.ix_(there[kept], there[kept])
    dist = (corpus.dist if corpus.corrected is None else corpus.corrected)[wanted]
    level = stress_of_distances(1.0 - np.eye(len(dist)), dist, "optimal")
    records = [who.record("hidden.stress.level", level, n=len(dist))]
    for layer, of_layer in enumerate(of_layers):
        for part, columns in stream_columns(model.config).items():
            whole, *left = (_stress(of_layer[:, kept, columns], counts[:, kept], halves, dist) for halves in splits)
            low, high = jackknife_interval(whole, left) or (None, None)
            records.append(who.record("hidden.stress", whole, low, high, layer=layer, part=part, n=len(documents)))
    return records


def _halves(groups: int, left_out: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Every other one of the groups, and the others; all of them, or all but one, which keep their sides."""
    numbers = np.arange(groups)
    return tuple(numbers[(numbers % 2 == side) & (numbers != left_out)] for side in (0, 1))  # type: ignore[return-value]


def _stress(sums: np.ndarray, counts: np.ndarray, halves: tuple[np.ndarray, np.ndarray], dist: np.ndarray) -> float:
    """Stress at the best scale of sums (groups, positions, width) and counts (groups, positions) of two halves."""
    a, b = (sums[half].sum(0) / counts[half].sum(0)[:, None] for half in halves)
    squares = corrected_squares(a, b)
    return stress_of_distances(np.sqrt(np.maximum((squares + squares.T) / 2, 0.0)), dist, "optimal")
