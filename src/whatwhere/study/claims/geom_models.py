"""Claims of GEOM about models: theorems 1 and 4, and sections 6.5-6.8 (tables in training, projections of the sinusoidal table)."""

from collections.abc import Callable

import numpy as np

from ...intervals import LOSS_ROUNDING
from .evidence import PLACED, Evidence, Missing, checkpoints, placed, projected, swapped, with_conditions
from .geom import MONOTONE
from .ledger import PRESENT, UNMOVED, Claim, Measured
from .values import Value, largest, smallest

APART = 1e-6  # smallest separation of two rows that are not one
FLAT = 0.01  # "less than 1 % variation"
CORRELATED = 0.1  # half-way between the paper's "essentially zero" (0.036) and its "moderate" (0.168)
SHARP = 2.0  # "a sharp peak": times the plateau (the paper: "more than 3 times")
FEWEST_BLOCKS = 4  # for a peak with a plateau after it

Measure = Callable[[Evidence], Measured]


def _of_checkpoints(e: Evidence, metric: str) -> dict[int, Value]:
    """At every checkpoint: of the corpus's rows, else of those that training reaches, else of all."""
    for part in ("corpus", "used"):
        try:
            return e.steps(metric, part)
        except Missing:
            continue
    return e.steps(metric)


def _separated(e: Evidence) -> Measured:
    least = smallest(list(_of_checkpoints(e, "separation").values()))
    return Measured(least, [least - APART])


def _flat(e: Evidence) -> Measured:
    found = list(_of_checkpoints(e, "separation").values())
    if len(found) < 2:
        raise Missing(f"needs two checkpoints of {e.models[0]}")
    first, *later = found
    change = largest([Value.of(np.abs(v.at - first.at) / first.at) for v in later])
    return Measured(change, [FLAT - change])


def _learned_monotone(e: Evidence) -> Measured:
    *_, last = _of_checkpoints(e, "violations").values()
    return Measured(last, [MONOTONE - last])


def _learned_correlates(e: Evidence) -> Measured:
    placed(e)
    last = e.last_step("correlation", "corpus")
    return Measured(last, [last - CORRELATED])


def _layer_peak(metric: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        layers = {layer: v for layer, v in e.layers(metric, "sinusoidal").items() if layer > 0}
        if len(layers) < FEWEST_BLOCKS:
            raise Missing(f"needs a model of {FEWEST_BLOCKS} blocks; {e.models[0]} has {len(layers)}")
        values = np.array([layers[at].at.mean(axis=1) for at in sorted(layers)])  # (blocks, seeds)
        half = len(values) // 2
        early = values[:half].max(axis=0)
        plateau = np.median(values[half:], axis=0)
        ratio = Value.of((early / plateau)[:, None])
        at = [sorted(layers)[i] for i in values.argmax(axis=0)]
        return Measured(ratio, [ratio - SHARP], f"largest at block {', '.join(map(str, sorted(set(at))))} of {len(values)}")

    return measure


def _h1(e: Evidence) -> Measured:
    least, floor = e.value("h1"), e.value("h1.floor")
    return Measured(least / floor, [least - floor])


def _swaps_cost(e: Evidence) -> Measured:
    # One distance for all seeds: the least of each would be the least of the noise of each.
    least = min(e.indices("swap.loss", "swapped").values(), key=lambda v: v.mean)
    return Measured(least, [least - LOSS_ROUNDING])


def _nope_knows_nothing(e: Evidence) -> Measured:
    peak = e.peak("nope", "token", "all")
    return Measured(peak, [PRESENT - peak])


def _needed(e: Evidence) -> Measured:
    gain = e.loss("nope") - e.loss("ap")
    return Measured(gain, [gain])


def _nope_shift(e: Evidence) -> Measured:
    change = e.value("shift.change", layer=e.last("nope"), part="all")
    return Measured(change, [UNMOVED - change])


_TABLES = "the position table of a model at its checkpoints"

SEPARATED = Claim(
    "geom-separation-positive",
    "Training never merges two positions",
    "GEOM theorem 4, section 6.5, figure 5 (pre-trained model)",
    0.35,
    f"The smallest distance of two rows of a learned table is at least {APART:g} at every checkpoint; the smallest is shown",
    (),
    _separated,
    each=checkpoints,
    what=_TABLES,
)

CLAIMS = (
    Claim(
        "geom-no-position-without-signal",
        "A model without positions cannot tell them",
        "GEOM theorem 1 (no number printed)",
        None,
        f"R² (token) of nope at its best layer is at most {PRESENT}; text itself may tell a little (remark 2)",
        ("nope",),
        _nope_knows_nothing,
    ),
    Claim(
        "geom-nope-blind-to-shift",
        "A model without positions ignores where text stands",
        "GEOM theorem 1: 0",
        0.0,
        f"Shifting all positions changes the states of nope after the last block by at most {UNMOVED} of their size",
        ("nope",),
        _nope_shift,
    ),
    Claim(
        "geom-position-needed",
        "Predicting words needs positions",
        "GEOM theorem 1 (no number printed)",
        None,
        "Held-out MLM loss of nope is not below that of ap; how far above is shown",
        ("nope", "ap"),
        _needed,
        "nats",
    ),
    SEPARATED,
    Claim(
        "geom-separation-flat",
        "Training leaves the smallest separation as it was",
        "GEOM section 6.5, figure 5 (under 1 %)",
        FLAT,
        f"The smallest distance of two rows stays within {FLAT:.0%} of that of the first checkpoint; the largest change is shown",
        (),
        _flat,
        each=checkpoints,
        what=_TABLES,
    ),
    Claim(
        "geom-learned-monotone",
        "Learned tables are far from random order",
        "GEOM section 6.6, figure 6 (pre-trained model; trained from scratch for three epochs: 0.482)",
        0.254,
        f"Violations of monotonicity of a learned table at its last checkpoint are at most {MONOTONE} (random 0.5)",
        (),
        _learned_monotone,
        each=checkpoints,
        what=_TABLES,
    ),
    Claim(
        "geom-learned-correlates",
        "Learned distances follow those of the corpus",
        "GEOM section 6.7, figure 7 (pre-trained model; from scratch: 0.036)",
        0.168,
        f"Distances of a learned table at its last checkpoint correlate with the corpus's by at least {CORRELATED}; not testable where "
        f"fewer than {PLACED} of the training windows begin with a document, as rows then are no places in documents",
        (),
        _learned_correlates,
        each=checkpoints,
        what=_TABLES,
    ),
    Claim(
        "geom-layer-peak",
        "An early layer distorts position most",
        "GEOM section 6.8, figure 8 (layer 3 of 12: about 5,000; layers 4-11: 1,100-1,900)",
        3.0,
        "Raw stress of the sinusoidal table, projected through each block's query and key matrices: the largest of the first half of the "
        f"blocks is at least {SHARP:g} times the median of the second half; the ratio is shown (the paper: more than 3)",
        (),
        _layer_peak("projected.stress.raw"),
        each=projected,
        what="the sinusoidal table projected through the blocks of a model",
    ),
    Claim(
        "geom-layer-peak-optimal",
        "That peak is no matter of scale",
        "GEOM section 6.8 (measured at one scale only)",
        None,
        f"The same at the best scale: the largest of the first half of the blocks is at least {SHARP:g} times the median of the others",
        (),
        _layer_peak("projected.stress.optimal"),
        each=projected,
        what="the sinusoidal table projected through the blocks of a model",
    ),
    Claim(
        "geom-mean-embeddings-differ",
        "Mean words of any two positions differ",
        "GEOM hypothesis H1 (holds with probability one; no number printed)",
        None,
        "The smallest distance of the mean word embeddings of two positions is above that of two halves of the documents at one position; "
        "the ratio is shown",
        (),
        _h1,
        each=with_conditions,
        what="mean word embeddings of a model at the positions of a corpus (a geometry run with --model)",
    ),
    Claim(
        "geom-swaps-cost",
        "Swapping two positions raises the loss",
        "GEOM hypothesis H2, section 4 (assumed for every pair; no number printed)",
        None,
        "Held-out masked loss of two tokens that change places rises, at the distance (1, 2, 4, ...) where it rises least; that rise is "
        "shown. H2 speaks of every pair and of any model; a mean over a few pairs is weaker",
        (),
        _swaps_cost,
        "nats",
        each=swapped,
        what="the loss of a model when two tokens change places",
    ),
)
