"""Claims of GEOM: distances between positions of corpora and the tables that reproduce them (sections 5 and 6.2-6.4),
and models (theorems 1 and 4, sections 6.5-6.8).

Those about corpora are judged for every corpus of a run, on the plug-in distances that the paper has unless a rule says
"corrected". Some are known to be false, or to be effects of scale (docs/theory.md); the rules are the paper's words all
the same.
"""

from functools import partial

import numpy as np

from ..gates import PLACED, unplaced  # noqa: F401  (a rule names it)
from ..intervals import LOSS_ROUNDING
from ..points import Point, largest, smallest
from .claim import LOST, MOST, PRESENT, UNMOVED, Measured, claim
from .evidence import Evidence, Missing

EXACT = 1e-6  # stress up to which an isometry is exact: rounding
FAR = 0.1  # "far below": at most a tenth
NEARLY = 0.03  # "differ by less than 3 %"
FAR_OFF = 1.0  # stress from which a table is wrong by more than the distances themselves
LOW_RANK = 0.01  # "reduces stress by 99.8 %": to a hundredth at most (the paper: 0.0025)
MONOTONE = 0.368  # violations half-way between the paper's "well below random" (25.4 %) and its "near-random" (48.2 %)
FEWEST_WIDTHS = 4  # to tell a power from an exponential
PAPER_RANK = 3  # of section 5.4's illustration
APART = 1e-6  # smallest separation of two rows that are not one
FLAT = 0.01  # "less than 1 % variation"
CORRELATED = 0.1  # half-way between the paper's "essentially zero" (0.036) and its "moderate" (0.168)
SHARP = 2.0  # "a sharp peak": times the plateau (the paper: "more than 3 times")
FEWEST_BLOCKS = 4  # for a peak with a plateau after it

# Judged for each of a run's corpora ("corpus" in a study, their own names in a geometry run), or of its models.
of_corpora = partial(
    claim,
    each=lambda table: table.models("stress.raw", part="sinusoidal", step=None),
    what="the geometry of a corpus (stress of tables against it)",
)
of_checkpoints = partial(
    claim,
    each=lambda table: list(dict.fromkeys(r.model for r in table.rows("separation") if r.step is not None)),
    what="the position table of a model at its checkpoints",
)
of_projections = partial(
    claim,
    each=lambda table: table.models("projected.stress.raw", part="sinusoidal"),
    what="the sinusoidal table projected through the blocks of a model",
)


def _stress(e: Evidence, part: str, scale: str = "raw", index: int | None = None) -> Point:
    return e.value(f"stress.{scale}", part=part, index=index)


# Corpora: can a table reproduce the distances?


@of_corpora("GEOM abstract, section 5.2 (no number printed; its own Tables 2 and 4 have 0 at full rank)")
def geom_isometry_unattainable(e: Evidence) -> Measured:
    """No table reproduces the distances of a corpus exactly.
    MDS at full rank, at most one dimension less than positions, leaves a raw stress of at least {EXACT:g}."""
    left = _stress(e, "mds")
    return left, left >= EXACT


@of_corpora("GEOM section 6.3, Table 4 (stress near 0)", paper=0.0)
def geom_mds_exact(e: Evidence) -> Measured:
    """Full-rank MDS reproduces the distances exactly.
    Raw stress of MDS at full rank is at most {EXACT:g}."""
    left = _stress(e, "mds")
    return left, left <= EXACT


@of_corpora("GEOM proposition 6 (a minimum: nothing is below)", paper=0.0)
def geom_mds_least_stress(e: Evidence) -> Measured:
    """Classical MDS has the least stress at its rank.
    At no rank does SMACOF, started from MDS, reach a lower raw stress; the largest excess of MDS is shown."""
    better = e.along("index", "stress.raw", "smacof")
    excess = largest([_stress(e, "mds", index=rank) - stress for rank, stress in better.items()])
    return excess, excess <= EXACT


# Corpora: sinusoids, RoPE, ALiBi and random tables. The paper measures at one scale only.


def _alibi_below(e: Evidence, scale: str) -> Measured:
    alibi, sinusoidal = _stress(e, "alibi", scale), _stress(e, "sinusoidal", scale)
    return alibi / sinusoidal, alibi <= FAR * sinusoidal


def _random_worst(e: Evidence, scale: str) -> Measured:
    next_worst = largest([_stress(e, part, scale) for part in ("alibi", "sinusoidal", "rope")])
    random = _stress(e, "random", scale)
    return random / next_worst, random >= next_worst


def _low_rank(e: Evidence, scale: str) -> Measured:
    low, sinusoidal = _stress(e, "mds", scale, PAPER_RANK), _stress(e, "sinusoidal", scale)
    return low / sinusoidal, low <= LOW_RANK * sinusoidal


@of_corpora("GEOM section 6.3, Table 4 (SST-2: 0.563 against 272)", paper=0.00207)
def geom_alibi_far_below(e: Evidence) -> Measured:
    """ALiBi's stress is far below that of sinusoids.
    Raw stress of ALiBi's table is at most {FAR} of that of the sinusoidal one; the ratio is shown. It depends on the
    tables' scale."""
    return _alibi_below(e, "raw")


@of_corpora("GEOM section 6.3: the Hellinger distance is a function of the lag (measured at one scale only)")
def geom_alibi_far_below_optimal(e: Evidence) -> Measured:
    """The same holds with each table scaled best.
    Stress of ALiBi's table at its best scale is at most {FAR} of that of the sinusoidal one at its best scale; the
    ratio is shown."""
    return _alibi_below(e, "optimal")


@of_corpora("GEOM section 6.3, Table 4 (SST-2: 279 against 272)", paper=0.0257)
def geom_sinusoidal_like_rope(e: Evidence) -> Measured:
    """Sinusoids and RoPE have nearly the same stress.
    Raw stress of RoPE's rotations differs from that of the sinusoidal table by at most {NEARLY:.0%}; the relative
    excess is shown."""
    apart = _stress(e, "rope") / _stress(e, "sinusoidal") - 1.0
    return apart, apart <= NEARLY, apart >= -NEARLY


@of_corpora("GEOM section 6.3, Table 4 (SST-2)", paper=272.0)
def geom_sinusoids_above_zero(e: Evidence) -> Measured:
    """Sinusoids are far from the distances of text.
    Raw stress of the sinusoidal table is at least {FAR_OFF:g}: it errs by more than the distances."""
    stress = _stress(e, "sinusoidal")
    return stress, stress >= FAR_OFF


@of_corpora("GEOM remark 7 (no number printed)")
def geom_sinusoids_near_optimal(e: Evidence) -> Measured:
    """Sinusoids come close to the corpus's own table.
    At its best scale the sinusoidal table has at most {LOST} of the stress of a random table at its best scale; the
    ratio is shown."""
    sinusoidal, random = (_stress(e, part, "optimal") for part in ("sinusoidal", "random"))
    return sinusoidal / random, sinusoidal <= LOST * random


@of_corpora("GEOM section 6.3, Table 4 (SST-2: 1,337 against 279)", paper=4.79)
def geom_random_worst(e: Evidence) -> Measured:
    """A random table has the highest stress.
    Raw stress of a random table is above that of ALiBi, sinusoids and RoPE; its ratio to the next is shown."""
    return _random_worst(e, "raw")


@of_corpora("GEOM section 6.3 (measured at one scale only)")
def geom_random_worst_optimal(e: Evidence) -> Measured:
    """Random stays worst with each table scaled best.
    Stress at the best scale of a random table is above that of ALiBi, sinusoids and RoPE; its ratio to the next is
    shown."""
    return _random_worst(e, "optimal")


# Corpora: how many dimensions?


def _widths(e: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Widths d and the raw stress of the sinusoidal table of each."""
    stress = e.along("index", "stress.raw", "sinusoidal")
    if len(stress) < FEWEST_WIDTHS:
        raise Missing(f"needs stress of the sinusoidal table at {FEWEST_WIDTHS} widths; there are {len(stress)}")
    return np.array(list(stress)), np.array([v.value for v in stress.values()])


@of_corpora("GEOM section 6.4, figure 4 (no number printed)")
def geom_stress_exponential(e: Evidence) -> Measured:
    """Stress grows exponentially with the width.
    The logarithm of the sinusoidal table's raw stress follows a line in d better than one in log d (squared
    correlations; their difference is shown)."""
    widths, values = _widths(e)
    logs = np.log(values)
    exponential, power = (float(np.corrcoef(x, logs)[0, 1] ** 2) for x in (widths, np.log(widths)))
    gap = Point.of([[exponential - power]])
    e.remark(f"stress grows as the power {np.polyfit(np.log(widths), logs, 1)[0]:.2f} of d")
    return gap, gap >= 0


@of_corpora("GEOM section 6.4: adding dimensions monotonically increases the stress (no number printed)")
def geom_stress_grows(e: Evidence) -> Measured:
    """More dimensions mean more stress.
    Raw stress of the sinusoidal table rises with every larger width; the smallest rise is shown, as share of the
    largest stress."""
    _, values = _widths(e)
    least = Point.of([[float(np.diff(values).min() / values.max())]])
    return least, least >= 0


def _needs_all(e: Evidence, metric: str) -> Measured:
    share = e.value(metric) * (1 / (e.value("positions.kept").value - 1))  # the largest rank: one less than positions
    return share, share >= MOST


@of_corpora("GEOM section 6.4: IMDB needs 254 of 255", paper=0.996)
def geom_rank_full(e: Evidence) -> Measured:
    """Positions of long text need every dimension.
    Rank of the doubly centred matrix is at least {MOST} of the positions less one; the share is shown."""
    return _needs_all(e, "rank")


@of_corpora("GEOM section 6.4: the intrinsic dimensionality (nothing is said of sampling)")
def geom_dimensions_real(e: Evidence) -> Measured:
    """These dimensions are of the text, not noise.
    Rank is still at least {MOST} of the positions less one once what few samples add is taken out (corrected); the
    share is shown."""
    return _needs_all(e, "rank.corrected")


@of_corpora("GEOM remark 7, section 6.3 (no number printed)")
def geom_toeplitz(e: Evidence) -> Measured:
    """Distances depend on the lag alone.
    Matrices that are constant along diagonals hold at least {MOST} of the square of the doubly centred matrix."""
    share = e.value("toeplitz")
    return share, share >= MOST


@of_corpora("GEOM remark 7 (no number printed)")
def geom_circulant(e: Evidence) -> Measured:
    """The centred distances are circulant, hence sinusoidal.
    Circulant matrices hold at least {MOST} of the square of the doubly centred matrix."""
    share = e.value("circulant")
    return share, share >= MOST


@of_corpora("GEOM section 6.6, figure 6 (SST-2)", paper=0.22)
def geom_mds_monotone(e: Evidence) -> Measured:
    """The corpus-optimal table is far from random order.
    Violations of monotonicity of full-rank MDS are at most {MONOTONE} (random 0.5)."""
    violations = e.value("violations", part="mds")
    return violations, violations <= MONOTONE


@of_corpora("GEOM hypothesis A3 of conjecture 5 (no number printed)")
def geom_corpus_monotone(e: Evidence) -> Measured:
    """Distances of the corpus grow with the lag.
    Violations of monotonicity of the corrected distances are at most {MONOTONE} (random 0.5)."""
    violations = e.value("violations.corrected", part="corpus")
    return violations, violations <= MONOTONE


@of_corpora("GEOM remark 8, figure 1 (synthetic corpus)", paper=0.799)
def geom_two_eigenvectors(e: Evidence) -> Measured:
    """Two eigenvectors hold most of the positional variance.
    The first two eigenvalues are at least {LOST} of the sum of the positive ones."""
    share = e.value("mds.share", index=0) + e.value("mds.share", index=1)
    return share, share >= LOST


@of_corpora("GEOM remark 8, Table 2 (0.047 against 18.98 on the synthetic corpus)", paper=0.00248)
def geom_rank_3_suffices(e: Evidence) -> Measured:
    """Three dimensions reproduce what sinusoids cannot.
    Raw stress of MDS at rank {PAPER_RANK} is at most {LOW_RANK} of that of the sinusoidal table; the ratio is shown."""
    return _low_rank(e, "raw")


@of_corpora("GEOM remark 8 (measured at one scale only)")
def geom_rank_3_suffices_optimal(e: Evidence) -> Measured:
    """Three dimensions suffice with each table scaled best.
    Stress at the best scale of MDS at rank {PAPER_RANK} is at most {LOW_RANK} of that of the sinusoidal table; the
    ratio is shown."""
    return _low_rank(e, "optimal")


@of_corpora("GEOM remark 8 (SST-2: 57,344 against 98,304)", paper=0.583)
def geom_low_rank_saves(e: Evidence) -> Measured:
    """The factorised table needs fewer parameters.
    r(n + d) parameters at the rank of the corpus are at most the nd of a free table; the ratio is shown."""
    ranks = [r.index for r in e.table.rows("parameters", e.models[0]) if r.index is not None]
    low_rank, free = (
        e.value("parameters", part="mds", index=max(ranks, default=None)),
        e.value("parameters", part="free"),
    )
    return low_rank / free, low_rank <= free


@of_corpora("GEOM section 5 (not measured there)")
def geom_optimal_on_new_text(e: Evidence) -> Measured:
    """The corpus-optimal table fits text not yet seen.
    MDS of half of the documents, at its best rank, has less stress at the best scale than a random table on the
    corrected distances of the others; the ratio is shown."""
    best = smallest(e.along("index", "stress.held_out", "mds").values())
    random = e.value("stress.held_out", part="random")
    return best / random, best <= random


# Models without positions: theorem 1.


@claim("GEOM theorem 1 (no number printed)", "nope")
def geom_no_position_without_signal(e: Evidence) -> Measured:
    """A model without positions cannot tell them.
    R² (token) of nope at its best layer is at most {PRESENT}; text itself may tell a little (remark 2)."""
    peak = e.peak("nope", "token")
    return peak, peak <= PRESENT


@claim("GEOM theorem 1: 0", "nope", paper=0.0)
def geom_nope_blind_to_shift(e: Evidence) -> Measured:
    """A model without positions ignores where text stands.
    Shifting all positions changes the states of nope after the last block by at most {UNMOVED} of their size."""
    change = e.value("shift.change", layer=e.last(), part="all")
    return change, change <= UNMOVED


@claim("GEOM theorem 1 (no number printed)", "nope", "ap", unit="nats")
def geom_position_needed(e: Evidence) -> Measured:
    """Predicting words needs positions.
    Held-out MLM loss of nope is not below that of ap; how far above is shown."""
    gain = e.loss("nope") - e.loss("ap")
    return gain, gain >= 0


# Position tables in training: theorem 4, sections 6.5-6.7.


def _by_step(e: Evidence, metric: str) -> list[Point]:
    """At every checkpoint: of the corpus's rows, else of those that training reaches, else of all."""
    for part in ("corpus", "used"):
        try:
            return list(e.steps(metric, part).values())
        except Missing:
            continue
    return list(e.steps(metric).values())


@of_checkpoints("GEOM theorem 4, section 6.5, figure 5 (pre-trained model)", paper=0.35)
def geom_separation_positive(e: Evidence) -> Measured:
    """Training never merges two positions.
    The smallest distance of two rows of a learned table is at least {APART:g} at every checkpoint; the smallest is
    shown."""
    least = smallest(_by_step(e, "separation"))
    return least, least >= APART


@of_checkpoints("GEOM section 6.5, figure 5 (under 1 %)", paper=FLAT)
def geom_separation_flat(e: Evidence) -> Measured:
    """Training leaves the smallest separation as it was.
    The smallest distance of two rows stays within {FLAT:.0%} of that of the first checkpoint; the largest change is
    shown."""
    first, *later = _by_step(e, "separation")
    if not later:
        raise Missing(f"needs two checkpoints of {e.models[0]}")
    change = largest([Point.of(np.abs(v.at - first.at) / first.at) for v in later])
    return change, change <= FLAT


@of_checkpoints(
    "GEOM section 6.6, figure 6 (pre-trained model; trained from scratch for three epochs: 0.482)", paper=0.254
)
def geom_learned_monotone(e: Evidence) -> Measured:
    """Learned tables are far from random order.
    Violations of monotonicity of a learned table at its last checkpoint are at most {MONOTONE} (random 0.5)."""
    last = _by_step(e, "violations")[-1]
    return last, last <= MONOTONE


def _placed(e: Evidence) -> None:
    """Refuse to hold a model's table against the corpus where its rows are no places in documents."""
    if (share := unplaced(e.table)) is not None:
        percent = f"{share:.1%}".replace("%", " %")
        raise Missing(f"windows run on: {percent} begin with a document, so table rows are no places in documents")


@of_checkpoints("GEOM section 6.7, figure 7 (pre-trained model; from scratch: 0.036)", paper=0.168)
def geom_learned_correlates(e: Evidence) -> Measured:
    """Learned distances follow those of the corpus.
    Distances of a learned table at its last checkpoint correlate with the corpus's by at least {CORRELATED}; not
    testable where fewer than {PLACED} of the training windows begin with a document, as rows then are no places in
    documents."""
    _placed(e)
    last = e.last_step("correlation", "corpus")
    return last, last >= CORRELATED


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
    return ratio, ratio >= SHARP


@of_projections("GEOM section 6.8, figure 8 (layer 3 of 12: about 5,000; layers 4-11: 1,100-1,900)", paper=3.0)
def geom_layer_peak(e: Evidence) -> Measured:
    """An early layer distorts position most.
    Raw stress of the sinusoidal table, projected through each block's query and key matrices: the largest of the first
    half of the blocks is at least {SHARP:g} times the median of the second half; the ratio is shown (the paper: more
    than 3)."""
    return _layer_peak(e, "projected.stress.raw")


@of_projections("GEOM section 6.8 (measured at one scale only)")
def geom_layer_peak_optimal(e: Evidence) -> Measured:
    """That peak is no matter of scale.
    The same at the best scale: the largest of the first half of the blocks is at least {SHARP:g} times the median of
    the others."""
    return _layer_peak(e, "projected.stress.optimal")


@claim(
    'GEOM section 6.8 (layer 3 of 12 "transforms the positional signal most aggressively"; no number printed)',
    each=lambda table: table.models("hidden.stress", part="all"),
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
    "GEOM hypothesis H1 (holds with probability one; no number printed)",
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
    return least, least >= LOSS_ROUNDING
