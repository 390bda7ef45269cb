"""Claims of LOWDIM about the spectra of position and word tables.

They are judged for every learned table of a run that is added to the words, as the paper's are, and has at
least `WIDE` components, in a study as in `whatwhere spectra`. A table that is no more than noise is not judged.
"""

from functools import partial

from ..records.gates import CHANGED
from ..records.metric import UNIT
from ..records.table import Point, Table, largest
from .claim import LOST, MOST, Measured, claim
from .evidence import Evidence, Missing, entangled

UNDER = 10.0  # per cent: "typically utilizing under 10 % of the dimensions" (abstract)
HALF = 0.5  # of the variance, that the first ten components hold (the paper's least: 0.53)
SLOW = 0.1  # turns for each position: "relatively low" peak frequencies, up to 49 in 512 positions
SHAPED = 40.0  # per cent: of the components of a random word table nearly half hold half of the variance (30.5 printed)
FIRST = 10  # components of which the paper says that they oscillate smoothly
ROUNDED = 0.005  # half of the last digit printed
WIDE = 100  # components from which "under 10 %" says something: of 8, one is more
SINUSOIDAL = 0.52  # what ten components hold of the textbook table of the paper's shape
SHAPE = 512, 128  # positions and width of the paper's sinusoidal row

# Presets whose tables no training made; a table under another name that training left as it was is one, too.
FIXED_TABLES = ("sinusoidal", "shape", "cape", "dstg-waves-frozen")


def _components(table: Table, model: str) -> int | None:
    """Return the number of principal components of a position table, the smaller of its rows and columns; None if
    unknown."""
    count, share = (table.point(metric, model) for metric in ("n50.count", "n50"))
    return None if count is None or share is None else round(100 * count.value / share.value)


def _is_fixed(table: Table, model: str) -> bool:
    moves = table.rows("table.rms", model, part=CHANGED)
    return model in FIXED_TABLES or (bool(moves) and not any(r.value for r in moves))


def _tables(table: Table) -> list[str]:
    models = table.models("n50", part=None, step=None)
    learned = [m for m in models if not _is_fixed(table, m) and entangled(table, m)]
    return [m for m in learned if (c := _components(table, m)) is None or c >= WIDE]


of_tables = partial(
    claim,
    subjects_of=_tables,
    what=f"a learned position table that is added to the words, with {WIDE} components or more",
)
of_words = partial(
    claim,
    subjects_of=lambda table: table.models("n50", part="words"),
    what="the word table of a model (whatwhere spectra --words)",
    unit="%",
)


@of_tables("LOWDIM section 3, Table 1a (1.4 to 5.5 %)", paper=5.5, unit="%")
def lowdim_few_dimensions(e: Evidence) -> Measured:
    """Learned position tables use under 10 % of dimensions.
    At most {UNDER:g} % of the components hold half of the variance of a learned position table."""
    e.moved()
    return e.value("n50") <= UNDER


@of_tables("LOWDIM section 3, Table 1a (least of twelve: bert-large-uncased)", paper=0.53)
def lowdim_ten_components(e: Evidence) -> Measured:
    """Ten components hold half of a learned table.
    The first ten components hold at least {HALF} of the variance of a learned position table."""
    e.moved()
    return e.value("pca.top10") >= HALF


@of_tables("LOWDIM section 4, figure 5 (at most 49 turns in 512 positions)", paper=0.0957, unit="turns a position")
def lowdim_slow_components(e: Evidence) -> Measured:
    """First components of learned tables are slow waves.
    None of the first ten components of a learned table turns more than {SLOW} times for each position; the fastest is
    shown."""
    e.moved()
    turns = [v for i, v in e.along("index", "fft.turns").items() if i < FIRST]
    return largest(turns) * (1 / e.count("fft.turns")) <= SLOW


@of_tables("LOWDIM section 4, figures 2 and 4 (no number printed)")
def lowdim_pairs_rotate(e: Evidence) -> Measured:
    """Components of learned tables turn in pairs.
    In the strongest pair of components of a learned table at least {LOST} of the motion is rotation."""
    e.moved()
    e.along("index", "fft.turns")
    pairs = {seed: [r for r in e.rows("rotation.strength") if r.seed == seed] for seed in e.seeds}
    strongest = [max(rows, key=lambda r: r.value) for rows in pairs.values() if rows]
    e.read |= dict.fromkeys(strongest)
    turned = {r.seed: r.value for r in strongest}  # a table without a pair has no rotation
    return Point.of([[turned.get(seed, 0.0)] for seed in e.seeds], span=UNIT) >= LOST


@of_tables("LOWDIM section 4, figure 3 (no number printed)")
def lowdim_equivariant(e: Evidence) -> Measured:
    """Inner products of learned tables depend on lag.
    Equivariance of a learned table's inner products is above what 97.5 % of random orders of its rows give."""
    e.moved()
    return e.value("equivariance") >= e.upper("equivariance.null")


@of_tables("LOWDIM section 4, figure 3 (no number printed)")
def lowdim_equivariant_from_few(e: Evidence) -> Measured:
    """A few components make the dependence on lag.
    At most {FIRST} components give at least {MOST} of the equivariance of the whole table."""
    e.moved()
    whole = e.value("equivariance")
    e.require(whole, e.upper("equivariance.null").value, "equivariance of the whole table beyond chance, a share")
    first = [v for i, v in e.along("index", "equivariance.first").items() if i <= FIRST]
    if not first:
        raise Missing(f"needs the equivariance of the first components of {e.model}")
    return largest(first) >= MOST * whole


def _words(e: Evidence) -> Point:
    """Return the share of components that hold half of the variance of a word table that is not random."""
    n50 = e.value("n50", part="words")
    if n50.value > SHAPED:
        raise Missing(f"needs a word table that training has shaped: {n50.value:.0f} % of its components hold half")
    return n50


@of_words("LOWDIM section 3, Table 1b (19.3 to 30.5 %)", paper=19.3)
def lowdim_words_high_dimensional(e: Evidence) -> Measured:
    """Word tables need far more of their dimensions.
    At least {UNDER:g} % of the components hold half of the variance of a word table, and at most {SHAPED:g} %, else not
    testable: in a table without training it is nearly half of them."""
    return _words(e) >= UNDER


@of_words("LOWDIM section 3, Table 1 (smallest gap of twelve: albert-xlarge-v1)", paper=17.2)
def lowdim_words_above_positions(e: Evidence) -> Measured:
    """Words need more dimensions than their model's positions.
    The share of components that hold half of the variance is larger in the word table than in the position table; the
    gap is shown. Of the words it is at most {SHAPED:g} %, else not testable, as a table without training has as
    much."""
    return _words(e) - e.value("n50") >= 0


@claim(
    "LOWDIM Table 1a (its table has the exponent doubled)",
    "sinusoidal",
    paper=SINUSOIDAL,
    always="the table is a formula",
)
def lowdim_sinusoidal_row(e: Evidence) -> Measured:
    """Ten components hold 0.52 of the sinusoidal table.
    The share of the first ten components of the textbook table of {SHAPE[0]} positions and {SHAPE[1]} dimensions rounds
    to it."""
    share = e.value("pca.top10")
    width = _components(e.table, e.model)
    if (e.count("n50"), width) != SHAPE:
        shape = f"{SHAPE[0]} positions and {SHAPE[1]} dimensions"
        raise Missing(f"needs a sinusoidal table of {shape}; this one has {e.count('n50')} and {width} components")
    return share >= SINUSOIDAL - ROUNDED, share <= SINUSOIDAL + ROUNDED
