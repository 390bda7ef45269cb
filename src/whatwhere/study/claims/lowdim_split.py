"""Claims of LOWDIM about the spectra of position and word tables, and of the SPLIT notes about their encoder.

LOWDIM's are judged for every learned table of a run, in a study as in `whatwhere spectra`. A table that has not left its random start
(records of step 0 tell) is not judged.
"""

from .dstg import moved
from .evidence import FIXED_TABLES, Evidence, Missing, tables, words
from .ledger import KEPT, LOST, MOST, PRESENT, UNMOVED, Claim, Measured
from .values import Value, largest

UNDER = 10.0  # per cent: "typically utilizing under 10 % of the dimensions" (abstract)
HALF = 0.5  # of the variance, that the first ten components hold (the paper's least: 0.53)
SLOW = 0.1  # turns for each position: "relatively low" peak frequencies, up to 49 in 512 positions
FIRST = 10  # components of which the paper says that they oscillate smoothly
ROUNDED = 0.005  # half of the last digit printed
SHAPE = 512, 128  # positions and width of the paper's sinusoidal row


def _trained(e: Evidence) -> None:
    name = e.models[0]
    try:
        e.value("pca.top2", step=0)
    except Missing:
        return  # a table from elsewhere: nothing is known of its start
    moved(e, name)


def _few_dimensions(e: Evidence) -> Measured:
    _trained(e)
    n50 = e.value("n50")
    return Measured(n50, [UNDER - n50])


def _ten_hold_half(e: Evidence) -> Measured:
    _trained(e)
    share = e.value("pca.top10")
    return Measured(share, [share - HALF])


def _slow(e: Evidence) -> Measured:
    _trained(e)
    turns = [v for i, v in e.indices("fft.turns").items() if i < FIRST]
    fastest = largest(turns) * (1 / e.count("fft.turns"))
    return Measured(fastest, [SLOW - fastest])


def _pairs_turn(e: Evidence) -> Measured:
    _trained(e)
    e.indices("fft.turns")
    keys = [k for k in e.book.by_metric.get(("rotation.strength", e.models[0]), []) if k.index == 0 and k.step == e.step]
    parts = {k.seed: k.part for k in keys}
    # A table without a pair that turns has no record of one.
    found = [e.book.records[k].value for seed in e.seeds for k in keys if k.seed == seed] if set(e.seeds) <= set(parts) else None
    strength = Value.of([[v] for v in found]) if found else Value.of([[0.0] for _ in e.seeds])
    return Measured(strength, [strength - LOST])


def _equivariant(e: Evidence) -> Measured:
    _trained(e)
    found = e.value("equivariance")
    return Measured(found, [found - e.low_high("equivariance.null", "high")])


def _few_make_it(e: Evidence) -> Measured:
    _trained(e)
    whole = e.value("equivariance")
    first = [v for i, v in e.indices("equivariance.first").items() if i <= FIRST]
    if not first:
        raise Missing(f"needs the equivariance of the first components of {e.models[0]}")
    best = largest(first)
    return Measured(best, [best - MOST * whole])


def _sinusoidal_row(e: Evidence) -> Measured:
    share, total = e.value("pca.top10"), 100 * e.value("n50.count").mean / e.value("n50").mean
    if (e.count("n50"), round(total)) != SHAPE:
        shape = f"{SHAPE[0]} positions and {SHAPE[1]} dimensions"
        raise Missing(f"needs a sinusoidal table of {shape}; this one has {e.count('n50')} and {total:.0f} components")
    return Measured(share, [share - (0.52 - ROUNDED), 0.52 + ROUNDED - share])


def _words_high(e: Evidence) -> Measured:
    n50 = e.value("n50", part="words")
    return Measured(n50, [n50 - UNDER])


def _words_above(e: Evidence) -> Measured:
    gap = e.value("n50", part="words") - e.value("n50")
    return Measured(gap, [gap])


def _semantics_unmoved(e: Evidence) -> Measured:
    change = e.value("shift.change", "split", layer=e.last("split"), part="semantic")
    return Measured(change, [UNMOVED - change])


def _semantics_without_position(e: Evidence) -> Measured:
    peak = e.peak("split", "token", "semantic")
    return Measured(peak, [PRESENT - peak])


def _position_without_semantics(e: Evidence) -> Measured:
    peak = e.peak("split", "intra", "position")
    return Measured(peak, [PRESENT - peak])


def _position_kept(e: Evidence) -> Measured:
    first, late = (e.r2("split", "token", "position", layer) for layer in (1, e.last("split")))
    return Measured(late, [late - KEPT * first, late - PRESENT])


_TABLE, _WORDS = "a learned position table", "the word table of a model (whatwhere spectra --words)"

LOW_DIMENSIONAL = Claim(
    "lowdim-few-dimensions",
    "Learned position tables use under 10 % of dimensions",
    "LOWDIM section 3, Table 1a (1.4 to 5.5 %)",
    5.5,
    f"At most {UNDER:g} % of the components hold half of the variance of a learned position table",
    (),
    _few_dimensions,
    "%",
    tables,
    _TABLE,
)
SEMANTICS_UNMOVED = Claim(
    "split-semantics-invariant",
    "Semantics of split do not depend on position",
    "SPLIT notes, eq. 1 and the text around it (they measure nothing: 0 is what they say)",
    0.0,
    f"Shifting all positions by half a document changes the semantic states after the last block by at most {UNMOVED} of their size. "
    "By construction it can change them through the attention weights alone",
    ("split",),
    _semantics_unmoved,
)

LOWDIM_CLAIMS = (
    LOW_DIMENSIONAL,
    Claim(
        "lowdim-ten-components",
        "Ten components hold half of a learned table",
        "LOWDIM section 3, Table 1a (least of twelve: bert-large-uncased)",
        0.53,
        f"The first ten components hold at least {HALF} of the variance of a learned position table",
        (),
        _ten_hold_half,
        "",
        tables,
        _TABLE,
    ),
    Claim(
        "lowdim-slow-components",
        "First components of learned tables are slow waves",
        "LOWDIM section 4, figure 5 (at most 49 turns in 512 positions)",
        0.0957,
        f"None of the first ten components of a learned table turns more than {SLOW} times for each position; the fastest is shown",
        (),
        _slow,
        "turns a position",
        tables,
        _TABLE,
    ),
    Claim(
        "lowdim-pairs-rotate",
        "Components of learned tables turn in pairs",
        "LOWDIM section 4, figures 2 and 4 (no number printed)",
        None,
        f"In the strongest pair of components of a learned table at least {LOST} of the motion is rotation",
        (),
        _pairs_turn,
        "",
        tables,
        _TABLE,
    ),
    Claim(
        "lowdim-equivariant",
        "Inner products of learned tables depend on lag",
        "LOWDIM section 4, figure 3 (no number printed)",
        None,
        "Equivariance of a learned table's inner products is above what 95 % of random orders of its rows give",
        (),
        _equivariant,
        "",
        tables,
        _TABLE,
    ),
    Claim(
        "lowdim-equivariant-from-few",
        "A few components make that structure",
        "LOWDIM section 4, figure 3 (no number printed)",
        None,
        f"At most {FIRST} components give at least {MOST} of the equivariance of the whole table",
        (),
        _few_make_it,
        "",
        tables,
        _TABLE,
    ),
    Claim(
        "lowdim-words-high-dimensional",
        "Word tables need far more of their dimensions",
        "LOWDIM section 3, Table 1b (19.3 to 30.5 %)",
        19.3,
        f"At least {UNDER:g} % of the components hold half of the variance of a word table",
        (),
        _words_high,
        "%",
        words,
        _WORDS,
    ),
    Claim(
        "lowdim-words-above-positions",
        "Words need more dimensions than their model's positions",
        "LOWDIM section 3, Table 1 (smallest gap of twelve: albert-xlarge-v1)",
        17.2,
        "The share of components that hold half of the variance is larger in the word table than in the position table; the gap is shown",
        (),
        _words_above,
        "%",
        words,
        _WORDS,
    ),
    Claim(
        "lowdim-sinusoidal-row",
        "Ten components hold 0.52 of the sinusoidal table",
        "LOWDIM Table 1a (its table has the exponent doubled)",
        0.52,
        f"The share of the first ten components of the textbook table of {SHAPE[0]} positions and {SHAPE[1]} dimensions rounds to it",
        FIXED_TABLES,
        _sinusoidal_row,
    ),
)

SPLIT_CLAIMS = (
    SEMANTICS_UNMOVED,
    Claim(
        "split-semantics-without-position",
        "Semantics of split hold no position",
        "SPLIT notes, eq. 1: semantic vectors stay invariant (they measure nothing: 0 is what they say)",
        0.0,
        f"R² (token) of the semantic stream of split at its best layer is at most {PRESENT}",
        ("split",),
        _semantics_without_position,
    ),
    Claim(
        "split-position-without-semantics",
        "Positions of split know nothing of sentences",
        "SPLIT notes: semantics must not reach the positional dimensions (they measure nothing: 0 is what they say)",
        0.0,
        f"R² (intra) of the position stream of split at its best layer is at most {PRESENT}; words can reach it through the weights alone",
        ("split",),
        _position_without_semantics,
    ),
    Claim(
        "split-position-kept",
        "Reserved dimensions keep position to the end",
        "SPLIT notes: dimensions reserved for position (no number printed)",
        None,
        f"R² (token) of the position stream of split after the last block is at least {KEPT} of that after the first and {PRESENT}",
        ("split",),
        _position_kept,
    ),
)
