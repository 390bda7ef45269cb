"""Claims of GEOM about corpora: distances between positions, and how well tables reproduce them (sections 5 and 6.2-6.4).

Judged for every corpus of a run, on the plug-in distances that the paper has unless a rule says "corrected". Claims about models are
in `geom_models`. Some are known to be false, or to be effects of scale (docs/theory.md); the rules are the paper's words all the same.
"""

from collections.abc import Callable, Sequence

import numpy as np

from .evidence import Evidence, Missing, corpora
from .ledger import LOST, MOST, Claim, Measured
from .values import Value, largest, smallest

EXACT = 1e-6  # stress up to which an isometry is exact: rounding
FAR = 0.1  # "far below": at most a tenth
NEARLY = 0.03  # "differ by less than 3 %"
FAR_OFF = 1.0  # stress from which a table is wrong by more than the distances themselves
LOW_RANK = 0.01  # "reduces stress by 99.8 %": to a hundredth at most (the paper: 0.0025)
MONOTONE = 0.368  # violations half-way between the paper's "well below random" (25.4 %) and its "near-random" (48.2 %)
FEWEST_WIDTHS = 4  # to tell a power from an exponential
PAPER_RANK = 3  # of section 5.4's illustration

Measure = Callable[[Evidence], Measured]


def _stress(e: Evidence, part: str, scale: str = "raw", index: int | None = None) -> Value:
    return e.value(f"stress.{scale}", part=part, index=index)


def _unattainable(e: Evidence) -> Measured:
    left = _stress(e, "mds")
    return Measured(left, [left - EXACT])


def _exact_on_paper(e: Evidence) -> Measured:
    left = _stress(e, "mds")
    return Measured(left, [EXACT - left])


def _mds_is_best(e: Evidence) -> Measured:
    better = e.indices("stress.raw", "smacof")
    excess = largest([_stress(e, "mds", index=rank) - found for rank, found in better.items()])
    return Measured(excess, [EXACT - excess])


def _alibi(scale: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        alibi, sinusoidal = _stress(e, "alibi", scale), _stress(e, "sinusoidal", scale)
        return Measured(alibi / sinusoidal, [FAR * sinusoidal - alibi])

    return measure


def _like_rope(e: Evidence) -> Measured:
    rope, sinusoidal = _stress(e, "rope"), _stress(e, "sinusoidal")
    apart = (rope / sinusoidal) - 1.0
    return Measured(apart, [NEARLY - apart, apart + NEARLY])


def _sinusoids_off(scale: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        found = _stress(e, "sinusoidal", scale)
        return Measured(found, [found - FAR_OFF])

    return measure


def _near_optimal(e: Evidence) -> Measured:
    sinusoidal, random = (_stress(e, part, "optimal") for part in ("sinusoidal", "random"))
    return Measured(sinusoidal / random, [LOST * random - sinusoidal])


def _random_worst(scale: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        next_worst = largest([_stress(e, part, scale) for part in ("alibi", "sinusoidal", "rope")])
        random = _stress(e, "random", scale)
        return Measured(random / next_worst, [random - next_worst])

    return measure


def _widths(e: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Widths d and the raw stress of the sinusoidal table of each."""
    found = e.indices("stress.raw", "sinusoidal")
    if len(found) < FEWEST_WIDTHS:
        raise Missing(f"needs stress of the sinusoidal table at {FEWEST_WIDTHS} widths; there are {len(found)}")
    return np.array(list(found)), np.array([v.mean for v in found.values()])


def _exponential(e: Evidence) -> Measured:
    widths, values = _widths(e)
    logs = np.log(values)
    exponential, power = (float(np.corrcoef(x, logs)[0, 1] ** 2) for x in (widths, np.log(widths)))
    gap = Value.of([[exponential - power]])
    slope = float(np.polyfit(np.log(widths), logs, 1)[0])
    return Measured(gap, [gap], f"stress grows as the power {slope:.2f} of d")


def _monotone_in_width(e: Evidence) -> Measured:
    _, values = _widths(e)
    least = Value.of([[float(np.diff(values).min() / values.max())]])
    return Measured(least, [least])


def _kept(e: Evidence) -> float:
    """Largest rank that positions can have: one less than there are."""
    return e.value("positions.kept").mean - 1


def _needs_all(metric: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        share = e.value(metric) * (1 / _kept(e))
        return Measured(share, [share - MOST])

    return measure


def _at_least(metric: str, threshold: float, part: str | None = None) -> Measure:
    def measure(e: Evidence) -> Measured:
        found = e.value(metric, part=part)
        return Measured(found, [found - threshold])

    return measure


def _mds_monotone(e: Evidence) -> Measured:
    found = e.value("violations", part="mds")
    return Measured(found, [MONOTONE - found])


def _corpus_monotone(e: Evidence) -> Measured:
    found = e.value("violations.corrected", part="corpus")
    return Measured(found, [MONOTONE - found])


def _two_eigenvectors(e: Evidence) -> Measured:
    share = e.value("mds.share", index=0) + e.value("mds.share", index=1)
    return Measured(share, [share - LOST])


def _low_rank(scale: str) -> Measure:
    def measure(e: Evidence) -> Measured:
        low, sinusoidal = _stress(e, "mds", scale, PAPER_RANK), _stress(e, "sinusoidal", scale)
        return Measured(low / sinusoidal, [LOW_RANK * sinusoidal - low])

    return measure


def _fewer_parameters(e: Evidence) -> Measured:
    ranks = [k.index for k in e.book.by_metric.get(("parameters", e.models[0]), []) if k.index is not None]
    low_rank, free = e.value("parameters", part="mds", index=max(ranks, default=None)), e.value("parameters", part="free")
    return Measured(low_rank / free, [free - low_rank])


def _held_out(e: Evidence) -> Measured:
    best = smallest(list(e.indices("stress.held_out", "mds").values()))
    random = e.value("stress.held_out", part="random")
    return Measured(best / random, [random - best])


_WHAT = "the geometry of a corpus (stress of tables against it)"


def _claim(name: str, sentence: str, source: str, value: float | None, rule: str, measure: Measure, unit: str = "") -> Claim:
    return Claim(name, sentence, source, value, rule, (), measure, unit, corpora, _WHAT)


UNATTAINABLE = _claim(
    "geom-isometry-unattainable",
    "No table reproduces the distances of a corpus exactly",
    "GEOM abstract, section 5.2 (no number printed; its own Tables 2 and 4 have 0 at full rank)",
    None,
    f"MDS at full rank, at most one dimension less than positions, leaves a raw stress of at least {EXACT:g}",
    _unattainable,
)
ALIBI_RAW = _claim(
    "geom-alibi-far-below",
    "ALiBi's stress is far below that of sinusoids",
    "GEOM section 6.3, Table 4 (SST-2: 0.563 against 272)",
    0.00207,
    f"Raw stress of ALiBi's table is at most {FAR} of that of the sinusoidal one; the ratio is shown. It depends on the tables' scale",
    _alibi("raw"),
)
ALIBI_OPTIMAL = _claim(
    "geom-alibi-far-below-optimal",
    "The same holds with each table scaled best",
    "GEOM section 6.3: the Hellinger distance is a function of the lag (measured at one scale only)",
    None,
    f"Stress of ALiBi's table at its best scale is at most {FAR} of that of the sinusoidal one at its best scale; the ratio is shown",
    _alibi("optimal"),
)

CLAIMS: Sequence[Claim] = (
    UNATTAINABLE,
    _claim(
        "geom-mds-exact",
        "Full-rank MDS reproduces the distances exactly",
        "GEOM section 6.3, Table 4 (stress near 0)",
        0.0,
        f"Raw stress of MDS at full rank is at most {EXACT:g}",
        _exact_on_paper,
    ),
    _claim(
        "geom-mds-least-stress",
        "Classical MDS has the least stress at its rank",
        "GEOM proposition 6 (a minimum: nothing is below)",
        0.0,
        "At no rank does SMACOF, started from MDS, reach a lower raw stress; the largest excess of MDS is shown",
        _mds_is_best,
    ),
    ALIBI_RAW,
    ALIBI_OPTIMAL,
    _claim(
        "geom-sinusoidal-like-rope",
        "Sinusoids and RoPE have nearly the same stress",
        "GEOM section 6.3, Table 4 (SST-2: 279 against 272)",
        0.0257,
        f"Raw stress of RoPE's rotations differs from that of the sinusoidal table by at most {NEARLY:.0%}; the relative excess is shown",
        _like_rope,
    ),
    _claim(
        "geom-sinusoids-above-zero",
        "Sinusoids are far from the distances of text",
        "GEOM section 6.3, Table 4 (SST-2)",
        272.0,
        f"Raw stress of the sinusoidal table is at least {FAR_OFF:g}: it errs by more than the distances",
        _sinusoids_off("raw"),
    ),
    _claim(
        "geom-sinusoids-near-optimal",
        "Sinusoids come close to the corpus's own table",
        "GEOM remark 7 (no number printed)",
        None,
        f"At its best scale the sinusoidal table has at most {LOST} of the stress of a random table at its best scale; the ratio is shown",
        _near_optimal,
    ),
    _claim(
        "geom-random-worst",
        "A random table has the highest stress",
        "GEOM section 6.3, Table 4 (SST-2: 1,337 against 279)",
        4.79,
        "Raw stress of a random table is above that of ALiBi, sinusoids and RoPE; its ratio to the next is shown",
        _random_worst("raw"),
    ),
    _claim(
        "geom-random-worst-optimal",
        "Random stays worst with each table scaled best",
        "GEOM section 6.3 (measured at one scale only)",
        None,
        "Stress at the best scale of a random table is above that of ALiBi, sinusoids and RoPE; its ratio to the next is shown",
        _random_worst("optimal"),
    ),
    _claim(
        "geom-stress-exponential",
        "Stress grows exponentially with the width",
        "GEOM section 6.4, figure 4 (no number printed)",
        None,
        "The logarithm of the sinusoidal table's raw stress follows a line in d better than one in log d (squared correlations; their "
        "difference is shown)",
        _exponential,
    ),
    _claim(
        "geom-stress-grows",
        "More dimensions mean more stress",
        "GEOM section 6.4: adding dimensions monotonically increases the stress (no number printed)",
        None,
        "Raw stress of the sinusoidal table rises with every larger width; the smallest rise is shown, as share of the largest stress",
        _monotone_in_width,
    ),
    _claim(
        "geom-rank-full",
        "Positions of long text need every dimension",
        "GEOM section 6.4: IMDB needs 254 of 255",
        0.996,
        f"Rank of the doubly centred matrix is at least {MOST} of the positions less one; the share is shown",
        _needs_all("rank"),
    ),
    _claim(
        "geom-dimensions-real",
        "These dimensions are of the text, not noise",
        "GEOM section 6.4: the intrinsic dimensionality (nothing is said of sampling)",
        None,
        f"Rank is still at least {MOST} of the positions less one once what few samples add is taken out (corrected); the share is shown",
        _needs_all("rank.corrected"),
    ),
    _claim(
        "geom-toeplitz",
        "Distances depend on the lag alone",
        "GEOM remark 7, section 6.3 (no number printed)",
        None,
        f"Matrices that are constant along diagonals hold at least {MOST} of the square of the doubly centred matrix",
        _at_least("toeplitz", MOST),
    ),
    _claim(
        "geom-circulant",
        "The centred distances are circulant, hence sinusoidal",
        "GEOM remark 7 (no number printed)",
        None,
        f"Circulant matrices hold at least {MOST} of the square of the doubly centred matrix",
        _at_least("circulant", MOST),
    ),
    _claim(
        "geom-mds-monotone",
        "The corpus-optimal table is far from random order",
        "GEOM section 6.6, figure 6 (SST-2)",
        0.22,
        f"Violations of monotonicity of full-rank MDS are at most {MONOTONE} (random 0.5)",
        _mds_monotone,
    ),
    _claim(
        "geom-corpus-monotone",
        "Distances of the corpus grow with the lag",
        "GEOM hypothesis A3 of conjecture 5 (no number printed)",
        None,
        f"Violations of monotonicity of the corrected distances are at most {MONOTONE} (random 0.5)",
        _corpus_monotone,
    ),
    _claim(
        "geom-two-eigenvectors",
        "Two eigenvectors hold most of the positional variance",
        "GEOM remark 8, figure 1 (synthetic corpus)",
        0.799,
        f"The first two eigenvalues are at least {LOST} of the sum of the positive ones",
        _two_eigenvectors,
    ),
    _claim(
        "geom-rank-3-suffices",
        "Three dimensions reproduce what sinusoids cannot",
        "GEOM remark 8, Table 2 (0.047 against 18.98 on the synthetic corpus)",
        0.00248,
        f"Raw stress of MDS at rank {PAPER_RANK} is at most {LOW_RANK} of that of the sinusoidal table; the ratio is shown",
        _low_rank("raw"),
    ),
    _claim(
        "geom-rank-3-suffices-optimal",
        "Three dimensions suffice with each table scaled best",
        "GEOM remark 8 (measured at one scale only)",
        None,
        f"Stress at the best scale of MDS at rank {PAPER_RANK} is at most {LOW_RANK} of that of the sinusoidal table; the ratio is shown",
        _low_rank("optimal"),
    ),
    _claim(
        "geom-low-rank-saves",
        "The factorised table needs fewer parameters",
        "GEOM remark 8 (SST-2: 57,344 against 98,304)",
        0.583,
        "r(n + d) parameters at the rank of the corpus are at most the nd of a free table; the ratio is shown",
        _fewer_parameters,
    ),
    _claim(
        "geom-optimal-on-new-text",
        "The corpus-optimal table fits text not yet seen",
        "GEOM section 5 (not measured there)",
        None,
        "MDS of half of the documents, at its best rank, has less stress at the best scale than a random table on the corrected distances "
        "of the others; the ratio is shown",
        _held_out,
    ),
)
