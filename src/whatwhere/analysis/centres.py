"""Stress of a model's states: distances between the mean states of positions against the distances of the corpus.

GEOM 6.8 asks what each layer makes of the distances between positions, and projects a sinusoidal table through the
query and key matrices of each; its limitations say that this "does not account for the full attention computation".
This analysis reads the states themselves.
"""

from typing import Any

import numpy as np

from ..geometry import corrected_squares, stress_of_distances
from ..records.intervals import jackknife_interval
from ..records.metric import GROUPS, NOT_NEGATIVE, STREAM, Metric
from ..records.metrics import add_metrics, range_of
from ..records.record import Record
from .analyses import CONTROLS, TRAINING, Analysis, AnalysisInput
from .corpus_geometry import CorpusDistances, equidistant
from .hidden import PositionVariance
from .passes import ChosenWindows, read
from .record_context import RecordContext

FEWEST_POSITIONS = 3

add_metrics(
    {
        "hidden.stress": Metric(
            name="stress at the best scale", part=STREAM, over=GROUPS, method="centres", range=NOT_NEGATIVE
        ),
        "hidden.stress.level": Metric(
            name="stress of equal distances", counts="positions", method="centres", range=NOT_NEGATIVE
        ),
    },
    methods={
        "centres": """
The mean state of a position, over the words that stand there, has distances to the other means; their stress at
the best common factor says how far they are from the Hellinger distances of the corpus. Two halves of the documents
give two means, and products across the halves hold none of their noise on average. What is left of it adds stress, so
a layer that tells positions less apart has more; one that does not tell them apart has none. Where all positions are
equally far from each other, the stress is at its level; 95 % intervals leave out one group of documents after the
other.
""",
    },
)


def centre_records(model: Any, windows: ChosenWindows, corpus: CorpusDistances, context: RecordContext) -> list[Record]:
    """Measure the stress of mean states, `hidden.stress`, by layer and part.

    Layer 0 is the embedding; parts are `all`, `position` and `semantic`. The mean state of a position is taken over the
    regular tokens that stand there. Two halves of the documents give two means a_i, b_i of independent noise; the mean
    over pairs of (a_i - a_j) · (b_i - b_j) is the square of the distance without it, on average. Their roots, cut at 0,
    are held against the corrected distances of the corpus if it has them. The remaining noise of single pairs adds
    stress, so a layer that separates positions less has more stress at any shape, and a layer whose mean square is not
    above 0 with its whole interval has no record. Intervals: 95 %, jackknife over at most 16 groups of documents.

    Positions that some half lacks when a group is left out do not count; [] where fewer than 3 are left, as in
    windows of fewer than four documents, and where the corpus has no distances. Where windows run on, a place in a
    window is none in a document, and the comparison means nothing: claim and figure ask `gates.unplaced`.

    `hidden.stress.level`: the stress of distances that are all equal, the mark to beat; n: positions.
    """
    places = np.asarray(corpus.positions) + 1  # row 0 is [CLS]
    present = np.flatnonzero(places <= windows.position_ids.max())
    if len(present) < FEWEST_POSITIONS:
        return []
    states = PositionVariance(model)
    read(model, windows, [states])
    counts = states.counts.numpy()[:, places[present]]
    groups = np.arange(len(states.counts))
    # Every other group and the others, of all groups and of all but one, which keep their sides.
    splits = [[groups[(groups % 2 == side) & (groups != left)] for side in (0, 1)] for left in (None, *groups)]
    filled = np.all([(counts[half].sum(0) > 0) for halves in splits for half in halves], axis=0)
    pairs = np.ix_(present[filled], present[filled])
    dist = (corpus.dist if corpus.corrected is None else corpus.corrected)[pairs]
    if filled.sum() < FEWEST_POSITIONS or not dist.any():
        return []
    level = stress_of_distances(equidistant(dist), dist, "optimal")
    records = [context.record("hidden.stress.level", level, n=len(dist))]
    weights = counts[:, filled, None]
    for layer, sums in enumerate(states.sums):
        of_layer = sums.numpy()[:, places[present[filled]]]
        for part, columns in states.parts.items():
            centres = (
                [of_layer[half][..., columns].sum(0) / weights[half].sum(0) for half in halves] for halves in splits
            )
            squares = [corrected_squares(a, b) for a, b in centres]  # signed
            mean, *left = (s.sum() / (len(s) * (len(s) - 1)) for s in squares)
            if mean <= 0 or (jackknife_interval(mean, left) or (0.0,))[0] <= 0:
                continue
            whole, *left = (stress_of_distances(np.sqrt(np.maximum(s, 0.0)), dist, "optimal") for s in squares)
            ends = jackknife_interval(whole, left, range_of("hidden.stress")) or ()
            records.append(
                context.record("hidden.stress", whole, *ends, layer=layer, part=part, n=windows.document_count)
            )
    return records


def _centres(s: AnalysisInput) -> list[Record]:
    records = centre_records(s.model, s.evenly_spaced(), s.corpus, s.context)
    if s.untrained is None:
        return records
    return records + centre_records(s.untrained, s.evenly_spaced(CONTROLS), s.corpus, s.context.at(0))


ANALYSES = (Analysis("centres", TRAINING, _centres, needs=("windows", "corpus")),)
