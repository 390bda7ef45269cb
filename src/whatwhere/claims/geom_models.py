"""Claims of GEOM about models: without positions, their tables over training, their layers (theorems 1 and 4, sections
6.5-6.8)."""

from functools import partial

import numpy as np

from ..gates import PLACED, PRESENT, unplaced  # noqa: F401  (rules name them)
from ..intervals import LOSS_ROUNDING
from ..points import Point, Table, largest, smallest
from .claim import CORPUS, UNMOVED, Measured, claim, of_losses
from .evidence import Evidence, Missing, entangled
from .geom import MONOTONE

APART = 1e-6  # smallest separation of two rows that are not one
FLAT = 0.02  # "essentially flat", with room above the "under 1 %" of the paper
CORRELATED = 0.1  # half-way between the paper's "essentially zero" (0.036) and its "moderate" (0.168)
TUNED = 0.02  # share of the labels, from which a fine-tuning has learned anything
SHARP = 2.0  # "a sharp peak": times the plateau (the paper: "more than 3 times")
FEWEST_BLOCKS = 4  # for a peak with a plateau after it

of_checkpoints = partial(
    claim,
    each=lambda table: [m for m in _checkpoints(table) if entangled(table, m)],
    what="the position table of a model at its checkpoints, added to the words",
)
of_finetunings = partial(
    claim,
    each=lambda table: [m for m in _checkpoints(table) if table.rows("accuracy.commonest", m)],
    what="the position table of a model at the checkpoints of its fine-tuning (whatwhere finetune)",
)
of_projections = partial(
    claim,
    each=lambda table: [m for m in table.models("projected.stress.raw", part="sinusoidal") if _added(table, m)],
    what="the sinusoidal table projected through the blocks of a model that adds a table to the words",
)


def _checkpoints(table: Table) -> list[str]:
    return list(dict.fromkeys(r.model for r in table.rows("separation") if r.step is not None))


def _added(table: Table, model: str) -> bool:
    """Whether a model adds a table of positions to the words: its scores have a term of both together."""
    return "mixed" in table.distinct("part", "scores.std", model)


# Models without positions: theorem 1.


@claim("GEOM theorem 1 (no number printed)", "nope")
def geom_no_position_without_signal(e: Evidence) -> Measured:
    """A model without positions cannot tell them.
    R² (token) of nope at its best layer is at most {PRESENT}; text itself may tell a little (remark 2)."""
    return e.peak("nope", "token") <= PRESENT


@claim("GEOM theorem 1: 0", "nope", paper=0.0, always="no position enters the model")
def geom_nope_blind_to_shift(e: Evidence) -> Measured:
    """A model without positions ignores where text stands.
    Shifting all positions changes the states of nope after the last block by at most {UNMOVED} of their size."""
    return e.value("shift.change", layer=e.last(), part="all") <= UNMOVED


@of_losses("GEOM theorem 1 (no number printed)", "nope", "ap")
def geom_position_needed(e: Evidence) -> Measured:
    """Predicting words needs positions.
    Held-out MLM loss of nope is not below that of ap; how far above is shown."""
    return e.loss("nope") - e.loss("ap") >= 0


# Position tables in training: theorem 4, sections 6.5-6.7.


def _by_step(e: Evidence, metric: str) -> list[Point]:
    """At every checkpoint: of the corpus's rows, else of those that training reaches, else of all."""
    for part in ("corpus", "used"):
        try:
            return list(e.steps(metric, part).values())
        except Missing:
            continue
    return list(e.steps(metric).values())


@of_checkpoints(
    "GEOM theorem 4, section 6.5, figure 5 (pre-trained model)",
    paper=0.35,
    always="rows of random numbers never meet",
)
def geom_separation_positive(e: Evidence) -> Measured:
    """Training never merges two positions.
    The smallest distance of two rows of a learned table is at least {APART:g} at every checkpoint; the smallest is
    shown."""
    return smallest(_by_step(e, "separation")) >= APART


@of_finetunings("GEOM section 6.5, figure 5 (under 1 %)", paper=0.01)
def geom_separation_flat(e: Evidence) -> Measured:
    """Training leaves the smallest separation as it was.
    The smallest distance of two rows stays within {FLAT:.0%} of that of the first checkpoint; the largest change is
    shown. Accuracy ends at least {TUNED} above that of always naming the commonest class, else nothing was tuned."""
    gain = e.last_step("accuracy", "validation") - e.value("accuracy.commonest", part="validation")
    e.there(gain, TUNED, "accuracy above that of naming the commonest class")
    first, *later = _by_step(e, "separation")
    if not later:
        raise Missing(f"needs two checkpoints of {e.models[0]}")
    return largest([Point.of(np.abs(v.at - first.at) / first.at) for v in later]) <= FLAT


@of_checkpoints(
    "GEOM section 6.6, figure 6 (pre-trained model; trained from scratch for three epochs: 0.482)", paper=0.254
)
def geom_learned_monotone(e: Evidence) -> Measured:
    """Learned tables are far from random order.
    Violations of monotonicity of a learned table at its last checkpoint, which has moved by at least its first size,
    are at most {MONOTONE} (random 0.5)."""
    e.moved(e.models[0])
    return _by_step(e, "violations")[-1] <= MONOTONE


def _placed(e: Evidence) -> None:
    """Refuse to hold a model's table against the corpus where its rows are no places in documents."""
    if (share := unplaced(e.table)) is not None:
        percent = f"{share:.1%}".replace("%", " %")
        raise Missing(f"windows run on: {percent} begin with a document, so table rows are no places in documents")


@of_checkpoints("GEOM section 6.7, figure 7 (pre-trained model; from scratch: 0.036)", paper=0.168)
def geom_learned_correlates(e: Evidence) -> Measured:
    """Learned distances follow those of the corpus.
    Distances of a learned table at its last checkpoint, which has moved by at least its first size, correlate with the
    corpus's corrected ones by at least {CORRELATED}; not testable where fewer than {PLACED} of the training windows
    begin with a document, as rows then are no places in documents."""
    _placed(e)
    e.moved(e.models[0])
    return e.last_step("correlation.corrected", "corpus") >= CORRELATED


# Layers: section 6.8.


def _layer_peak(e: Evidence, metric: str, part: str = "sinusoidal") -> Measured:
    layers = {layer: v for layer, v in e.along("layer", metric, part).items() if layer > 0}
    if len(layers) < FEWEST_BLOCKS:
        raise Missing(f"needs a model of {FEWEST_BLOCKS} blocks; {e.models[0]} has {len(layers)}")
    values = np.array([layers[at].each for at in sorted(layers)])  # (blocks, seeds)
    half = len(values) // 2
    ratio = Point.of((values[:half].max(axis=0) / np.median(values[half:], axis=0))[:, None])
    at = [sorted(layers)[i] for i in values.argmax(axis=0)]
    e.remark(f"largest at block {', '.join(map(str, sorted(set(at))))} of {len(values)}")
    return ratio >= SHARP


@of_projections("GEOM section 6.8, figure 8 (layer 3 of 12: about 5,000; layers 4-11: 1,100-1,900)", paper=3.0)
def geom_layer_peak(e: Evidence) -> Measured:
    """An early layer distorts position most.
    Raw stress of the sinusoidal table, projected through each block's query and key matrices: the largest of the first
    half of the blocks is at least {SHARP:g} times the median of the second half; the ratio is shown (the paper: more
    than 3)."""
    return _layer_peak(e, "projected.stress.raw")


@of_projections("GEOM section 6.8 (measured at one scale only)")
def geom_layer_peak_optimal(e: Evidence) -> Measured:
    """An early layer distorts most at the best scale.
    The same at the best scale: the largest of the first half of the blocks is at least {SHARP:g} times the median of
    the others."""
    return _layer_peak(e, "projected.stress.optimal")


@claim(
    'GEOM section 6.8 (layer 3 of 12 "transforms the positional signal most aggressively"; no number printed)',
    each=lambda table: [m for m in table.models("hidden.stress", part="all") if _added(table, m)],
    what="the mean states of positions in a model",
)
def geom_states_peak(e: Evidence) -> Measured:
    """States of an early layer fit the corpus worst.
    Stress at the best scale of the mean states of positions: the largest of the first half of the blocks is at least
    {SHARP:g} times the median of the second half; the ratio is shown. Not testable where fewer than {PLACED} of the
    training windows begin with a document."""
    _placed(e)
    return _layer_peak(e, "hidden.stress", "all")


# Hypotheses H1 and H2: section 4.


@claim(
    "GEOM hypothesis H1 (holds with probability one for any embeddings; no number printed)",
    kind=CORPUS,
    each=lambda table: table.models("h1"),
    what="mean word embeddings of a model at the positions of a corpus (a geometry run with --model)",
)
def geom_mean_embeddings_differ(e: Evidence) -> Measured:
    """Mean words of any two positions differ.
    The smallest distance of the mean word embeddings of two positions is above that of two halves of the documents at
    one position; the ratio is shown."""
    least, floor = e.value("h1"), e.value("h1.floor")
    return least / floor, least >= floor


@claim(
    "GEOM hypothesis H2, section 4 (assumed for every pair; no number printed)",
    unit="nats",
    each=lambda table: table.models("swap.loss"),
    what="the loss of a model when two tokens change places",
)
def geom_swaps_cost(e: Evidence) -> Measured:
    """Swapping two positions raises the loss.
    Held-out masked loss of two tokens that change places rises, at the distance (1, 2, 4, ...) where it rises least;
    that rise is shown. H2 speaks of every pair and of any model; a mean over a few pairs is weaker."""
    # One distance for all seeds: the least of each would be the least of the noise of each.
    least = min(e.along("index", "swap.loss", "swapped").values(), key=lambda v: v.value)
    return least >= LOSS_ROUNDING
