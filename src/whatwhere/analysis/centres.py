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
from .geometry import CorpusDistances, equidistant
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
    means a_i, b_i of independent noise; the mean over pairs of (a_i - a_j) · (b_i - b_j) is the square of the distance
    without it, on average. Their roots, cut at 0, are held against the corrected distances of the corpus if it has
    them. What noise is left in single pairs adds stress, so a layer that tells positions less apart has more of it
    whatever the shape, and a layer whose mean square is not above 0 with its whole interval has no record. Intervals:
    95 %, jackknife over at most 16 groups of articles.

    Positions that some half lacks when a group is left out do not count; [] where fewer than 3 are left, as in
    documents of fewer than four articles, and where the corpus has no distances. Where windows run on, a place in a
    window is none in a document, and the comparison means nothing: claim and figure ask `gates.unplaced`.

    `hidden.stress.level`: the stress of distances that are all equal, the mark to beat; n: positions.
    """
    groups = article_groups(documents)
    kinds = int(groups.max()) + 1
    places = np.asarray(corpus.positions) + 1  # row 0 is [CLS]
    there = np.flatnonzero(places <= documents.position_ids.max())
    if len(there) < FEWEST_POSITIONS:
        return []
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
            x = states.cpu()[counted].double()
            check_finite(x, f"hidden[{layer}]")
            total.index_add_(0, cells, x)

    splits = [_halves(kinds, left) for left in (None, *range(kinds))]
    kept = np.all([(counts[half].sum(0) > 0) for halves in splits for half in halves], axis=0)
    wanted = np.ix_(there[kept], there[kept])
    dist = (corpus.dist if corpus.corrected is None else corpus.corrected)[wanted]
    if kept.sum() < FEWEST_POSITIONS or not dist.any():
        return []
    level = stress_of_distances(equidistant(dist), dist, "optimal")
    records = [who.record("hidden.stress.level", level, n=len(dist))]
    for layer, total in enumerate(sums):
        of_layer = total.numpy().reshape(*counts.shape, -1)[:, kept]
        for part, columns in stream_columns(model.config).items():
            squares = [_squares(of_layer[..., columns], counts[:, kept], halves) for halves in splits]
            mean, *left = (s.sum() / (len(s) * (len(s) - 1)) for s in squares)
            if mean <= 0 or (jackknife_interval(mean, left) or (0.0,))[0] <= 0:
                continue
            whole, *left = (stress_of_distances(np.sqrt(np.maximum(s, 0.0)), dist, "optimal") for s in squares)
            low, high = jackknife_interval(whole, left) or (None, None)
            records.append(who.record("hidden.stress", whole, low, high, layer=layer, part=part, n=len(documents)))
    return records


def _halves(groups: int, left_out: int | None) -> list[np.ndarray]:
    """Every other one of the groups, and the others; all of them, or all but one, which keep their sides."""
    numbers = np.arange(groups)
    return [numbers[(numbers % 2 == side) & (numbers != left_out)] for side in (0, 1)]


def _squares(sums: np.ndarray, counts: np.ndarray, halves: list[np.ndarray]) -> np.ndarray:
    """Signed squared distances of the means of sums (groups, positions, width) and counts (groups, positions)."""
    a, b = (sums[half].sum(0) / counts[half].sum(0)[:, None] for half in halves)
    return corrected_squares(a, b)
