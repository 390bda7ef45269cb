"""Claims of GEOM about corpora, about the tables that reproduce their distances, and about models.

Corpora (sections 5, 6.2-6.4) are judged one by one, on distances without what few samples add ("corrected"), for most
of the plug-in distances is noise; models without positions, their tables over training and their layers are of theorems
1 and 4 and sections 6.5-6.8. Some claims are known to be false, effects of scale, or unable to fail: these are
analytic, say why, and stand in docs/theory.md.
"""

from functools import partial

import numpy as np

from ..records.gates import PLACED, PRESENT, ROOM, shifted, unplaced  # noqa: F401  (rules name them)
from ..records.intervals import LOSS_ROUNDING
from ..records.metric import NOT_NEGATIVE
from ..records.table import Point, Table, largest, smallest
from .claim import CORPUS, LOST, MOST, OURS, UNMOVED, Measured, claim, of_losses
from .evidence import Evidence, Missing, entangled

EXACT = 1e-6  # stress up to which an isometry is exact: rounding
FAR = 0.1  # "far below": at most a tenth
NEARLY = 0.03  # "differ by less than 3 %"
FAR_OFF = 1.0  # stress from which a table is wrong by more than the distances themselves
LOW_RANK_BEST = 0.1  # with each table scaled best no ratio is so small: the paper's raw rank 3 has 0.047
LOW_RANK = 0.01  # "reduces stress by 99.8 %": to a hundredth at most (the paper: 0.0025)
MONOTONE = 0.368  # violations half-way between the paper's "well below random" (25.4 %) and its "near-random" (48.2 %)
FEWEST_WIDTHS = 4  # to tell a power from an exponential
PAPER_RANK = 3  # of section 5.4's illustration
APART = 1e-6  # smallest separation of two rows that are not one
FLAT = 0.02  # "essentially flat", with room above the "under 1 %" of the paper
CORRELATED = 0.1  # half-way between the paper's "essentially zero" (0.036) and its "moderate" (0.168)
TUNED = 0.02  # share of the labels, from which a fine-tuning has learned anything
SHARP = 2.0  # "a sharp peak": times the plateau (the paper: "more than 3 times")
FEWEST_BLOCKS = 4  # for a peak with a plateau after it
REGIMES = "synthetic:three-regimes"  # the corpus that section 5.4 speaks of

BEST = "optimal.corrected"  # each table scaled best, against distances without what few samples add


def _corpora(table: Table) -> list[str]:
    """Return the corpora of a run: "corpus" in a study, their own names in a geometry run.

    Corpora whose later pieces were counted as documents are left out.
    """
    texts = table.point("corpus.documents", part="train")
    counts = {m: table.point("corpus.documents", m) for m in table.models("stress.raw", part="sinusoidal", step=None)}
    return [m for m, count in counts.items() if not texts or not count or count.value <= texts.value]


def _checkpoints(table: Table) -> list[str]:
    return list(dict.fromkeys(r.model for r in table.rows("separation") if r.step is not None))


def _added(table: Table, model: str) -> bool:
    """Tell if a model adds a table of positions to the words: its scores have a term of both together."""
    return "mixed" in table.distinct("part", "scores.std", model)


of_corpora = partial(
    claim,
    kind=CORPUS,
    subjects_of=_corpora,
    what="the geometry of a corpus (stress of tables against it), from the beginnings of its documents",
)
of_regimes = partial(
    claim,
    kind=CORPUS,
    subjects_of=lambda table: [m for m in _corpora(table) if m.endswith(REGIMES)],
    what="the geometry of the paper's synthetic corpus (whatwhere geometry --corpus synthetic:three-regimes)",
)
of_checkpoints = partial(
    claim,
    subjects_of=lambda table: [m for m in _checkpoints(table) if entangled(table, m)],
    what="the position table of a model at its checkpoints, added to the words",
)
of_finetunings = partial(
    claim,
    subjects_of=lambda table: [m for m in _checkpoints(table) if table.rows("accuracy.commonest", m)],
    what="the position table of a model at the checkpoints of its fine-tuning (whatwhere finetune)",
)
of_projections = partial(
    claim,
    subjects_of=lambda table: [m for m in table.models("projected.stress.raw", part="sinusoidal") if _added(table, m)],
    what="the sinusoidal table projected through the blocks of a model that adds a table to the words",
)


def _ratio(e: Evidence, part: str, other: str, scale: str, index: int | None = None) -> Point:
    """Return the stress of a table over another's on the same documents, as resampled, else of two values."""
    try:
        return e.value(f"stress.ratio.{scale}", part=f"{part}/{other}", index=index)
    except Missing:
        metric = f"stress.{scale}"
        return e.value(metric, part=part, index=index) / e.value(metric, part=other)


# Corpora: can a table reproduce the distances?


@of_corpora(
    "GEOM abstract, section 5.2 (no number printed; its own Tables 2 and 4 have 0 at full rank)",
    always="Hellinger distances are Euclidean: a table of full rank has them all",
)
def geom_isometry_unattainable(e: Evidence) -> Measured:
    """No table reproduces the distances of a corpus exactly.
    MDS at full rank, at most one dimension less than positions, leaves a raw stress of at least {EXACT:g}."""
    return e.value("stress.raw", part="mds") >= EXACT


@of_corpora("GEOM section 6.3, Table 4 (stress near 0)", paper=0.0, always="Hellinger distances are Euclidean")
def geom_mds_exact(e: Evidence) -> Measured:
    """Full-rank MDS reproduces the distances exactly.
    Raw stress of MDS at full rank is at most {EXACT:g}."""
    return e.value("stress.raw", part="mds") <= EXACT


@of_corpora(
    "GEOM proposition 6 (a minimum: nothing is below)",
    paper=0.0,
    always="MDS minimises another function (strain), and SMACOF lowers stress at every step",
)
def geom_mds_least_stress(e: Evidence) -> Measured:
    """Classical MDS has the least stress at its rank.
    At no rank does SMACOF, started from MDS, reach a lower raw stress; the largest excess of MDS is shown."""
    better = e.along("index", "stress.raw", "smacof")
    return largest([e.value("stress.raw", part="mds", index=rank) - stress for rank, stress in better.items()]) <= EXACT


# Corpora: sinusoids, RoPE, ALiBi and random tables. The paper measures at one scale only.


def _random_worst(e: Evidence, scale: str) -> Measured:
    ratios = [_ratio(e, "random", part, scale) for part in ("alibi", "sinusoidal", "rope")]
    return smallest(ratios), *(ratio >= 1 for ratio in ratios)


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2: 0.563 against 272)",
    paper=0.00207,
    always="at raw scale the smaller table wins: one of zeros has a stress of 1",
)
def geom_alibi_far_below(e: Evidence) -> Measured:
    """ALiBi's stress is far below the stress of sinusoids.
    Raw stress of ALiBi's table is at most {FAR} of the sinusoidal table's; the ratio is shown. It depends on the
    tables' scale."""
    return _ratio(e, "alibi", "sinusoidal", "raw") <= FAR


@of_corpora(
    "GEOM section 6.3: the Hellinger distance is a function of the lag (measured at one scale only)", origin=OURS
)
def geom_alibi_far_below_optimal(e: Evidence) -> Measured:
    """ALiBi is far below with each table scaled best.
    Stress of ALiBi's table at its best scale is at most {FAR} of the sinusoidal table's at its best scale, against
    corrected distances; the ratio is shown."""
    return _ratio(e, "alibi", "sinusoidal", BEST) <= FAR


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2: 279 against 272)",
    paper=0.0257,
    always="at raw scale stress depends on the tables, not on the text, and both have entries of one size",
)
def geom_sinusoidal_like_rope(e: Evidence) -> Measured:
    """Sinusoids and RoPE have nearly the same stress.
    Raw stress of RoPE's rotations differs from the sinusoidal table's by at most {NEARLY:.0%}; the relative
    excess is shown."""
    apart = _ratio(e, "rope", "sinusoidal", "raw") - 1.0
    return apart <= NEARLY, apart >= -NEARLY


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2)",
    paper=272.0,
    always="distances of text are at most 1.41; a table's grow with its width",
)
def geom_sinusoids_above_zero(e: Evidence) -> Measured:
    """Sinusoids are far from the distances of text.
    Raw stress of the sinusoidal table is at least {FAR_OFF:g}: it errs by more than the distances."""
    return e.value("stress.raw", part="sinusoidal") >= FAR_OFF


@of_corpora("GEOM remark 7 (no number printed)")
def geom_sinusoids_near_optimal(e: Evidence) -> Measured:
    """Sinusoids come close to the corpus's own table.
    At its best scale the sinusoidal table has at most {LOST} of the stress of a random table at its best scale, against
    corrected distances; the ratio is shown."""
    return _ratio(e, "sinusoidal", "random", BEST) <= LOST


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2: 1,337 against 279)",
    paper=4.79,
    always="at raw scale the stress follows the size of a table's entries",
)
def geom_random_worst(e: Evidence) -> Measured:
    """A random table has the highest stress.
    Raw stress of a random table is above the stress of ALiBi, sinusoids and RoPE; its ratio to the next is shown."""
    return _random_worst(e, "raw")


@of_corpora("GEOM section 6.3 (measured at one scale only)", origin=OURS)
def geom_random_worst_optimal(e: Evidence) -> Measured:
    """A random table is worst with each scaled best.
    Stress at the best scale of a random table, against corrected distances, is above ALiBi's, sinusoids' and RoPE's;
    its ratio to the next is shown."""
    return _random_worst(e, BEST)


# Corpora: how many dimensions?


def _by_width(e: Evidence) -> dict[int, float]:
    """Return width d -> raw stress of the sinusoidal table, ascending."""
    stress = e.along("index", "stress.raw", "sinusoidal")
    if len(stress) < FEWEST_WIDTHS:
        raise Missing(f"needs stress of the sinusoidal table at {FEWEST_WIDTHS} widths; there are {len(stress)}")
    return {width: v.value for width, v in stress.items()}


@of_corpora(
    "GEOM section 6.4, figure 4 (no number printed)",
    always="raw stress of entries of one size grows linearly with their number",
)
def geom_stress_exponential(e: Evidence) -> Measured:
    """Stress grows exponentially with the width.
    The logarithm of the sinusoidal table's raw stress follows a line in d better than one in log d (squared
    correlations; their difference is shown)."""
    widths, values = (np.array(list(v)) for v in zip(*_by_width(e).items(), strict=True))
    exponential, power = (np.corrcoef(x, np.log(values))[0, 1] ** 2 for x in (widths, np.log(widths)))
    e.note = f"stress grows as the power {np.polyfit(np.log(widths), np.log(values), 1)[0]:.2f} of d"
    return Point.of([[exponential - power]]) >= 0


@of_corpora(
    "GEOM section 6.4: adding dimensions monotonically increases the stress (no number printed)",
    always="raw stress of entries of one size grows with their number",
)
def geom_stress_grows(e: Evidence) -> Measured:
    """More dimensions mean more stress.
    Raw stress of the sinusoidal table rises with every larger width; the smallest rise is shown, as share of the
    largest stress."""
    values = list(_by_width(e).values())
    return Point.of([[np.diff(values).min() / max(values)]]) >= 0


def _needs_all(e: Evidence, metric: str) -> Measured:
    share = e.value(metric) * (1 / (e.value("positions.kept").value - 1))  # the largest rank: one less than positions
    return share >= MOST


@of_corpora("GEOM section 6.4: IMDB needs 254 of 255", paper=0.996, always="noise of counting needs every dimension")
def geom_rank_full(e: Evidence) -> Measured:
    """Positions of long text need every dimension.
    Rank of the doubly centred matrix is at least {MOST} of the positions less one; the share is shown."""
    return _needs_all(e, "rank")


@of_corpora("GEOM section 6.4: the intrinsic dimensionality (nothing is said of sampling)", origin=OURS)
def geom_dimensions_real(e: Evidence) -> Measured:
    """These dimensions are of the text, not noise.
    Rank is still at least {MOST} of the positions less one once what few samples add is taken out (corrected); the
    share is shown."""
    return _needs_all(e, "rank.corrected")


@of_corpora("GEOM remark 7, section 6.3 (no number printed)")
def geom_toeplitz(e: Evidence) -> Measured:
    """Distances depend on the lag alone.
    Means over equal lags explain at least {MOST} of the variance of the squared corrected distances. (Centring mixes
    lags: of distances that depend on the lag alone these means explain 0.7 to 0.8 of the centred matrix.)"""
    return e.value("lag.share.corrected") >= MOST


@of_corpora("GEOM remark 7 (no number printed)")
def geom_circulant(e: Evidence) -> Measured:
    """The centred distances are circulant, hence sinusoidal.
    Circulant matrices explain at least {MOST} of the variance of the entries off the diagonal of the doubly centred
    matrix of corrected distances."""
    return e.value("circulant.corrected") >= MOST


@of_corpora("GEOM section 6.6, figure 6 (SST-2)", paper=0.22)
def geom_mds_monotone(e: Evidence) -> Measured:
    """The corpus-optimal table is far from random order.
    Violations of monotonicity of full-rank MDS of the corrected distances are at most {MONOTONE} (random 0.5)."""
    return e.value("violations.corrected", part="mds") <= MONOTONE


@of_corpora("GEOM hypothesis A3 of conjecture 5 (no number printed)")
def geom_corpus_monotone(e: Evidence) -> Measured:
    """Distances of the corpus grow with the lag.
    Violations of monotonicity of the corrected distances are at most {MONOTONE} (random 0.5)."""
    return e.value("violations.corrected", part="corpus") <= MONOTONE


@of_regimes("GEOM remark 8, figure 1 (synthetic corpus)", paper=0.799)
def geom_two_eigenvectors(e: Evidence) -> Measured:
    """Two eigenvectors hold most of the positional variance.
    The first two eigenvalues of the corrected distances are at least {LOST} of the sum of the positive ones."""
    return e.value("mds.share.corrected", index=0) + e.value("mds.share.corrected", index=1) >= LOST


@of_regimes(
    "GEOM remark 8, Table 2 (0.047 against 18.98 on the synthetic corpus)",
    paper=0.00248,
    always="at raw scale a table of zeros would do",
)
def geom_rank_3_suffices(e: Evidence) -> Measured:
    """Three dimensions reproduce what sinusoids cannot.
    Raw stress of MDS at rank {PAPER_RANK} is at most {LOW_RANK} of the sinusoidal table's; the ratio is shown."""
    return _ratio(e, "mds", "sinusoidal", "raw", PAPER_RANK) <= LOW_RANK


@of_regimes("GEOM remark 8 (measured at one scale only)", origin=OURS)
def geom_rank_3_suffices_optimal(e: Evidence) -> Measured:
    """Three dimensions suffice with each table scaled best.
    Stress at the best scale of MDS at rank {PAPER_RANK} is at most {LOW_RANK_BEST} of the sinusoidal table's,
    against corrected distances; the ratio is shown."""
    return _ratio(e, "mds", "sinusoidal", BEST, PAPER_RANK) <= LOW_RANK_BEST


@of_corpora("GEOM remark 8 (SST-2: 57,344 against 98,304)", paper=0.583)
def geom_low_rank_saves(e: Evidence) -> Measured:
    """The factorised table needs fewer parameters.
    r(n + d) parameters at the rank of the corpus are at most the nd of a free table; the ratio is shown."""
    ranks = [r.index for r in e.table.rows("parameters", e.model) if r.index is not None]
    low_rank = e.value("parameters", part="mds", index=max(ranks, default=None))
    free = e.value("parameters", part="free")
    return low_rank / free, low_rank <= free


@of_corpora("GEOM section 5 (not measured there)", origin=OURS)
def geom_optimal_on_new_text(e: Evidence) -> Measured:
    """The corpus-optimal table fits text not yet seen.
    MDS of half of the documents, at the rank that these choose by themselves, has less stress at the best scale than a
    random table on the corrected distances of the others; the ratio is shown."""
    best, random = (e.value("stress.held_out", part=part) for part in ("mds.chosen", "random"))
    return best / random, best <= random


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
    Held-out MLM loss of nope is not below ap's; how far above is shown."""
    return e.loss("nope") - e.loss("ap") >= 0


# Position tables in training: theorem 4, sections 6.5-6.7.


def _by_step(e: Evidence, metric: str) -> list[Point]:
    """Return a metric at every checkpoint: of the corpus's rows, else of those that training reaches, else of all."""
    part = next((p for p in ("corpus", "used") if e.table.distinct("step", metric, e.model, part=p)), None)
    return [e.value(metric, part=part, step=step) for step in e.checkpoints(metric, part)]


@of_checkpoints(
    "GEOM theorem 4, section 6.5, figure 5 (pre-trained model)", paper=0.35, always="rows of random numbers never meet"
)
def geom_separation_positive(e: Evidence) -> Measured:
    """Training never merges two positions.
    The smallest distance of two rows of a learned table is at least {APART:g} at every checkpoint; the smallest is
    shown."""
    return smallest(_by_step(e, "separation")) >= APART


@of_finetunings("GEOM section 6.5, figure 5 (under 1 %)", paper=0.01)
def geom_separation_flat(e: Evidence) -> Measured:
    """Training leaves the smallest separation as it was.
    The smallest distance of two rows stays within {FLAT:.0%} of the first checkpoint's; the largest change is
    shown. Accuracy ends at least {TUNED} above always naming the commonest class, else nothing was tuned."""
    gain = e.last_step("accuracy", "validation") - e.value("accuracy.commonest", part="validation")
    e.require(gain, TUNED, "a lead in accuracy (over naming the commonest class)")
    first, *later = _by_step(e, "separation")
    if not later:
        raise Missing(f"needs two checkpoints of {e.model}")
    return largest([Point.of(np.abs(v.at - first.at) / first.at) for v in later]) <= FLAT


@of_checkpoints(
    "GEOM section 6.6, figure 6 (pre-trained model; trained from scratch for three epochs: 0.482)", paper=0.254
)
def geom_learned_monotone(e: Evidence) -> Measured:
    """Learned tables are far from random order.
    Violations of monotonicity of a learned table at its last checkpoint, which stands above its noise, are at most
    {MONOTONE} (random 0.5); not testable where fewer than {PLACED} of the training windows begin with a document, or
    where they leave more than {ROOM} of the rows free, by which training shifts them."""
    _placed(e)
    _unshifted(e)
    e.moved()
    return _by_step(e, "violations")[-1] <= MONOTONE


def _placed(e: Evidence) -> None:
    """Refuse to compare a model's table with the corpus where its rows are no places in documents."""
    if (share := unplaced(e.table)) is not None:
        begin = f"{share:.1%} begin with a document".replace("%", " %")
        raise Missing(f"of the windows {begin}, so table rows are no places in documents")


def _unshifted(e: Evidence) -> None:
    """Refuse to compare a model's table with the corpus where training shifts texts over many of its rows."""
    e.read |= dict.fromkeys(e.table.rows("corpus.room"))
    if (share := shifted(e.table, e.model)) is not None:
        free = f"{share:.0%} of the rows of {e.model}'s table".replace("%", " %")
        raise Missing(
            f"training windows leave {free} free, by which it shifts them (shift, on by default), so rows are no "
            "places in documents"
        )


@of_checkpoints("GEOM section 6.7, figure 7 (pre-trained model; from scratch: 0.036)", paper=0.168)
def geom_learned_correlates(e: Evidence) -> Measured:
    """Learned distances follow the corpus's distances.
    Distances of a learned table at its last checkpoint, which stands above its noise, correlate with the corpus's
    corrected ones by at least {CORRELATED}; not testable where fewer than {PLACED} of the training windows begin with a
    document, or where they leave more than {ROOM} of the rows free, by which training shifts them."""
    _placed(e)
    _unshifted(e)
    e.moved()
    return e.last_step("correlation.corrected", "corpus") >= CORRELATED


# Layers: section 6.8.


def _layer_peak(e: Evidence, metric: str, part: str = "sinusoidal") -> Measured:
    layers = {layer: v for layer, v in e.along("layer", metric, part).items() if layer > 0}
    probed = e.table.distinct("layer", "r2.token", e.model)
    scored = e.table.distinct("layer", "scores.std", e.model)
    blocks = max([*layers, *probed, *scored], default=0)  # a block that separates positions too little has no stress
    if lacking := [at for at in range(1, blocks + 1) if at not in layers]:
        raise Missing(f"no {metric} of {e.model} at block {', '.join(map(str, lacking))}")
    if len(layers) < FEWEST_BLOCKS:
        raise Missing(f"needs a model of {FEWEST_BLOCKS} blocks; {e.model} has {len(layers)}")
    values = np.array([layers[at].seed_values for at in layers])  # (blocks, seeds)
    half = len(values) // 2
    at = np.unique(np.array(list(layers))[values.argmax(axis=0)])
    e.note = f"largest at block {', '.join(map(str, at))} of {len(values)}"
    ratios = values[:half].max(axis=0) / np.median(values[half:], axis=0)
    return Point.of(ratios[:, None], span=NOT_NEGATIVE) >= SHARP


@of_projections("GEOM section 6.8, figure 8 (layer 3 of 12: about 5,000; layers 4-11: 1,100-1,900)", paper=3.0)
def geom_layer_peak(e: Evidence) -> Measured:
    """An early layer distorts position most.
    Raw stress of the sinusoidal table, projected through each block's query and key matrices: the largest of the first
    half of the blocks is at least {SHARP:g} times the median of the second half; the ratio is shown (the paper: more
    than 3)."""
    return _layer_peak(e, "projected.stress.raw")


@of_projections("GEOM section 6.8 (measured at one scale only)", origin=OURS)
def geom_layer_peak_optimal(e: Evidence) -> Measured:
    """An early layer distorts most at the best scale.
    The same at the best scale: the largest of the first half of the blocks is at least {SHARP:g} times the median of
    the others."""
    return _layer_peak(e, "projected.stress.optimal")


@claim(
    'GEOM section 6.8 (layer 3 of 12 "transforms the positional signal most aggressively"; states are not measured)',
    origin=OURS,
    subjects_of=lambda table: [m for m in table.models("hidden.stress", part="all") if _added(table, m)],
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
    subjects_of=lambda table: table.models("h1"),
    what="mean word embeddings of a model at the positions of a corpus (a geometry run with --model)",
)
def geom_mean_embeddings_differ(e: Evidence) -> Measured:
    """Mean words of any two positions differ.
    The smallest distance of the mean word embeddings of two positions is larger than for two halves of the documents at
    one position; the ratio is shown."""
    least = e.value("h1")
    floor = e.value("h1.floor")
    return least / floor, least >= floor


@claim(
    "GEOM hypothesis H2, section 4 (assumed for every pair; no number printed)",
    unit="nats",
    always="what a model has learned of order makes two words out of their places harder to tell",
    subjects_of=lambda table: table.models("swap.loss"),
    what="the loss of a model when two tokens change places",
)
def geom_swaps_cost(e: Evidence) -> Measured:
    """Swapping two positions raises the loss.
    Held-out masked loss of two tokens that change places rises, at the distance (1, 2, 4, ...) where it rises least;
    that rise is shown. H2 speaks of every pair and of any model; a mean over a few pairs is weaker."""
    # One distance for all seeds: the least of each would be the least of the noise of each.
    least = min(e.along("index", "swap.loss", "swapped").values(), key=lambda v: v.value)
    return least >= LOSS_ROUNDING
