"""Claims of GEOM about corpora: distances between positions and the tables that reproduce them (sections 5, 6.2-6.4).

They are judged for every corpus of a run, on distances without what few samples add ("corrected"), for
most of the plug-in distances is noise. Some are known to be false, or to be effects of scale (docs/theory.md): these
are analytic, and say why.
"""

from functools import partial

import numpy as np

from ..points import Point, largest, smallest
from .claim import CORPUS, LOST, MOST, Measured, claim
from .evidence import Evidence, Missing

EXACT = 1e-6  # stress up to which an isometry is exact: rounding
FAR = 0.1  # "far below": at most a tenth
NEARLY = 0.03  # "differ by less than 3 %"
FAR_OFF = 1.0  # stress from which a table is wrong by more than the distances themselves
LOW_RANK_BEST = 0.1  # with each table scaled best no ratio is so small: that of the paper's raw rank 3 is 0.047
LOW_RANK = 0.01  # "reduces stress by 99.8 %": to a hundredth at most (the paper: 0.0025)
MONOTONE = 0.368  # violations half-way between the paper's "well below random" (25.4 %) and its "near-random" (48.2 %)
FEWEST_WIDTHS = 4  # to tell a power from an exponential
PAPER_RANK = 3  # of section 5.4's illustration
REGIMES = "synthetic:three-regimes"  # the corpus that section 5.4 speaks of

# Judged for each of a run's corpora ("corpus" in a study, their own names in a geometry run).
of_corpora = partial(
    claim,
    each=lambda table: table.models("stress.raw", part="sinusoidal", step=None),
    what="the geometry of a corpus (stress of tables against it)",
    kind=CORPUS,
)
of_regimes = partial(
    claim,
    each=lambda table: [m for m in table.models("stress.raw", part="sinusoidal", step=None) if m.endswith(REGIMES)],
    what="the geometry of the paper's synthetic corpus (whatwhere geometry --corpus synthetic:three-regimes)",
    kind=CORPUS,
)


def _stress(e: Evidence, part: str, scale: str = "raw", index: int | None = None) -> Point:
    return e.value(f"stress.{scale}", part=part, index=index)


def _ratio(e: Evidence, part: str, other: str, scale: str, index: int | None = None) -> Point:
    """Stress of a table over that of another on the same documents: as it was resampled, else of two values."""
    try:
        return e.value(f"stress.ratio.{scale}", part=f"{part}/{other}", index=index)
    except Missing:
        return _stress(e, part, scale, index) / _stress(e, other, scale)


# Corpora: can a table reproduce the distances?


@of_corpora(
    "GEOM abstract, section 5.2 (no number printed; its own Tables 2 and 4 have 0 at full rank)",
    always="Hellinger distances are Euclidean: a table of full rank has them all",
)
def geom_isometry_unattainable(e: Evidence) -> Measured:
    """No table reproduces the distances of a corpus exactly.
    MDS at full rank, at most one dimension less than positions, leaves a raw stress of at least {EXACT:g}."""
    return _stress(e, "mds") >= EXACT


@of_corpora("GEOM section 6.3, Table 4 (stress near 0)", paper=0.0, always="Hellinger distances are Euclidean")
def geom_mds_exact(e: Evidence) -> Measured:
    """Full-rank MDS reproduces the distances exactly.
    Raw stress of MDS at full rank is at most {EXACT:g}."""
    return _stress(e, "mds") <= EXACT


@of_corpora(
    "GEOM proposition 6 (a minimum: nothing is below)",
    paper=0.0,
    always="MDS minimises another function (strain), and SMACOF lowers stress at every step",
)
def geom_mds_least_stress(e: Evidence) -> Measured:
    """Classical MDS has the least stress at its rank.
    At no rank does SMACOF, started from MDS, reach a lower raw stress; the largest excess of MDS is shown."""
    better = e.along("index", "stress.raw", "smacof")
    return largest([_stress(e, "mds", index=rank) - stress for rank, stress in better.items()]) <= EXACT


# Corpora: sinusoids, RoPE, ALiBi and random tables. The paper measures at one scale only.


BEST = "optimal.corrected"  # each table scaled best, against distances without what few samples add


def _alibi_below(e: Evidence, scale: str) -> Measured:
    return _ratio(e, "alibi", "sinusoidal", scale) <= FAR


def _random_worst(e: Evidence, scale: str) -> Measured:
    ratios = [_ratio(e, "random", part, scale) for part in ("alibi", "sinusoidal", "rope")]
    return smallest(ratios), *(ratio >= 1 for ratio in ratios)


def _low_rank(e: Evidence, scale: str, most: float) -> Measured:
    return _ratio(e, "mds", "sinusoidal", scale, PAPER_RANK) <= most


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2: 0.563 against 272)",
    paper=0.00207,
    always="at raw scale the smaller table wins: one of zeros has a stress of 1",
)
def geom_alibi_far_below(e: Evidence) -> Measured:
    """ALiBi's stress is far below that of sinusoids.
    Raw stress of ALiBi's table is at most {FAR} of that of the sinusoidal one; the ratio is shown. It depends on the
    tables' scale."""
    return _alibi_below(e, "raw")


@of_corpora("GEOM section 6.3: the Hellinger distance is a function of the lag (measured at one scale only)")
def geom_alibi_far_below_optimal(e: Evidence) -> Measured:
    """ALiBi is far below with each table scaled best.
    Stress of ALiBi's table at its best scale is at most {FAR} of that of the sinusoidal one at its best scale, against
    corrected distances; the ratio is shown."""
    return _alibi_below(e, BEST)


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2: 279 against 272)",
    paper=0.0257,
    always="at raw scale stress is that of the tables, not of the text, and both have entries of one size",
)
def geom_sinusoidal_like_rope(e: Evidence) -> Measured:
    """Sinusoids and RoPE have nearly the same stress.
    Raw stress of RoPE's rotations differs from that of the sinusoidal table by at most {NEARLY:.0%}; the relative
    excess is shown."""
    apart = _ratio(e, "rope", "sinusoidal", "raw") - 1.0
    return apart <= NEARLY, apart >= -NEARLY


@of_corpora(
    "GEOM section 6.3, Table 4 (SST-2)",
    paper=272.0,
    always="distances of text are at most 1.41, those of its rows grow with the width",
)
def geom_sinusoids_above_zero(e: Evidence) -> Measured:
    """Sinusoids are far from the distances of text.
    Raw stress of the sinusoidal table is at least {FAR_OFF:g}: it errs by more than the distances."""
    return _stress(e, "sinusoidal") >= FAR_OFF


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
    Raw stress of a random table is above that of ALiBi, sinusoids and RoPE; its ratio to the next is shown."""
    return _random_worst(e, "raw")


@of_corpora("GEOM section 6.3 (measured at one scale only)")
def geom_random_worst_optimal(e: Evidence) -> Measured:
    """A random table is worst with each scaled best.
    Stress at the best scale of a random table, against corrected distances, is above that of ALiBi, sinusoids and RoPE;
    its ratio to the next is shown."""
    return _random_worst(e, BEST)


# Corpora: how many dimensions?


def _widths(e: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Widths d and the raw stress of the sinusoidal table of each."""
    stress = e.along("index", "stress.raw", "sinusoidal")
    if len(stress) < FEWEST_WIDTHS:
        raise Missing(f"needs stress of the sinusoidal table at {FEWEST_WIDTHS} widths; there are {len(stress)}")
    return np.array(list(stress)), np.array([v.value for v in stress.values()])


@of_corpora(
    "GEOM section 6.4, figure 4 (no number printed)",
    always="raw stress of entries of one size grows linearly with their number",
)
def geom_stress_exponential(e: Evidence) -> Measured:
    """Stress grows exponentially with the width.
    The logarithm of the sinusoidal table's raw stress follows a line in d better than one in log d (squared
    correlations; their difference is shown)."""
    widths, values = _widths(e)
    logs = np.log(values)
    exponential, power = (float(np.corrcoef(x, logs)[0, 1] ** 2) for x in (widths, np.log(widths)))
    gap = Point.of([[exponential - power]])
    e.remark(f"stress grows as the power {np.polyfit(np.log(widths), logs, 1)[0]:.2f} of d")
    return gap >= 0


@of_corpora(
    "GEOM section 6.4: adding dimensions monotonically increases the stress (no number printed)",
    always="raw stress of entries of one size grows with their number",
)
def geom_stress_grows(e: Evidence) -> Measured:
    """More dimensions mean more stress.
    Raw stress of the sinusoidal table rises with every larger width; the smallest rise is shown, as share of the
    largest stress."""
    _, values = _widths(e)
    return Point.of([[float(np.diff(values).min() / values.max())]]) >= 0


def _needs_all(e: Evidence, metric: str) -> Measured:
    share = e.value(metric) * (1 / (e.value("positions.kept").value - 1))  # the largest rank: one less than positions
    return share >= MOST


@of_corpora("GEOM section 6.4: IMDB needs 254 of 255", paper=0.996, always="noise of counting needs every dimension")
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
    Matrices that are constant along diagonals hold at least {MOST} of the square of the doubly centred matrix of
    corrected distances."""
    return e.value("toeplitz.corrected") >= MOST


@of_corpora("GEOM remark 7 (no number printed)")
def geom_circulant(e: Evidence) -> Measured:
    """The centred distances are circulant, hence sinusoidal.
    Circulant matrices hold at least {MOST} of the square of the doubly centred matrix of corrected distances."""
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
    Raw stress of MDS at rank {PAPER_RANK} is at most {LOW_RANK} of that of the sinusoidal table; the ratio is shown."""
    return _low_rank(e, "raw", LOW_RANK)


@of_regimes("GEOM remark 8 (measured at one scale only)")
def geom_rank_3_suffices_optimal(e: Evidence) -> Measured:
    """Three dimensions suffice with each table scaled best.
    Stress at the best scale of MDS at rank {PAPER_RANK} is at most {LOW_RANK_BEST} of that of the sinusoidal table,
    against corrected distances; the ratio is shown."""
    return _low_rank(e, BEST, LOW_RANK_BEST)


@of_corpora("GEOM remark 8 (SST-2: 57,344 against 98,304)", paper=0.583)
def geom_low_rank_saves(e: Evidence) -> Measured:
    """The factorised table needs fewer parameters.
    r(n + d) parameters at the rank of the corpus are at most the nd of a free table; the ratio is shown."""
    ranks = [r.index for r in e.table.rows("parameters", e.models[0]) if r.index is not None]
    low_rank = e.value("parameters", part="mds", index=max(ranks, default=None))
    free = e.value("parameters", part="free")
    return low_rank / free, low_rank <= free


@of_corpora("GEOM section 5 (not measured there)")
def geom_optimal_on_new_text(e: Evidence) -> Measured:
    """The corpus-optimal table fits text not yet seen.
    MDS of half of the documents, at the rank that these choose by themselves, has less stress at the best scale than a
    random table on the corrected distances of the others; the ratio is shown."""
    best, random = (e.value("stress.held_out", part=part) for part in ("mds.chosen", "random"))
    return best / random, best <= random
