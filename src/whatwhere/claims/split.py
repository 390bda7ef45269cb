"""Claims of the SPLIT notes, which measure nothing, about their encoder, and about texts longer than the training's."""

from ..records.gates import PRESENT, USED
from ..records.table import Point, largest
from .claim import KEPT, MARGINAL, OURS, SENTENCE, UNMOVED, Measured, claim
from .evidence import Evidence, Missing

READS = 1.5  # nats below token frequencies: less, and a model reads so little that there is nothing to keep beyond


def _positions(e: Evidence) -> None:
    e.require(e.peak("split", "token", "position"), PRESENT, "R² (token) in the position stream of split")


@claim(
    "SPLIT notes, eq. 1 and the text around it (they measure nothing: 0 is what they say)",
    "split",
    paper=0.0,
    origin=SENTENCE,
)
def split_semantics_invariant(e: Evidence) -> Measured:
    """Semantics of split do not depend on position.
    Shifting all positions by half a document changes the semantic states after the last block by at most {UNMOVED} of
    their size. By construction it can change them through the attention weights alone. R² (token) of the position
    stream is at least {PRESENT} at its best layer, else there is no position to depend on."""
    _positions(e)
    return e.value("shift.change", layer=e.last(), part="semantic") <= UNMOVED


@claim(
    "SPLIT notes, eq. 1: semantic vectors stay invariant (they measure nothing: 0 is what they say)",
    "split",
    paper=0.0,
    origin=SENTENCE,
)
def split_semantics_without_position(e: Evidence) -> Measured:
    """Semantics of split hold no position.
    R² (token) of the semantic stream of split at its best layer is at most {PRESENT}; of the position stream it is at
    least as much, else there is no position to hold."""
    _positions(e)
    return e.peak("split", "token", "semantic") <= PRESENT


@claim(
    "SPLIT notes: semantics must not reach the positional dimensions (they measure nothing: 0 is what they say)",
    "split",
    paper=0.0,
    origin=SENTENCE,
)
def split_position_without_semantics(e: Evidence) -> Measured:
    """Positions of split know nothing of sentences.
    R² (intra) of the position stream of split at its best layer is at most {PRESENT}; words can reach it through the
    weights alone. Of the semantic stream it is at least as much, else not testable."""
    e.require(e.peak("split", "intra", "semantic"), PRESENT, "R² (intra) in the semantic stream of split")
    return e.peak("split", "intra", "position") <= PRESENT


@claim("SPLIT notes: dimensions reserved for position (no number printed)", "split")
def split_position_kept(e: Evidence) -> Measured:
    """Reserved dimensions keep position to the end.
    R² (token) of the position stream of split after the last block is at least {KEPT} of that after the first, which is
    at least {PRESENT}, else there is nothing to keep. Kept means used: without the absolute term the loss rises by at
    least {USED} nats in every seed, and R² (token) of what the last block writes into the stream is at least
    {PRESENT}."""
    first, last = (e.r2("split", "token", "position", layer) for layer in (1, e.last()))
    e.require(first, PRESENT, "R² (token) after the first block of the position stream of split")
    worth, writes = e.used("token", e.last())
    return last >= KEPT * first, worth >= USED, writes >= PRESENT


# Texts longer than in training: "only p_i needs extrapolation".
_BEYOND = "SPLIT notes, eq. 1 to 6 (they measure nothing: no number printed)"


def _gain(e: Evidence, model: str) -> Point:
    """Return the gain over reading in pieces by the best continuation of a model's table."""
    parts = [str(part) for part in e.table.distinct("part", "length.gain", model)]
    if not (ways := [part for part in parts if "+" not in part and "-w" not in part and part != "as-it-is"]):
        raise Missing(f"no length.gain of {model} by a continued table (whatwhere evaluate length)")
    pieces = e.value("length.beyond", model, part="in-pieces")
    e.require(e.value("length.frequencies", model) - pieces, READS, f"a loss of {model} below token frequencies")
    best = {way: e.value("length.gain", model, part=way) for way in ways}
    e.note = "; ".join(filter(None, (e.note, f"{model} by {max(best, key=lambda way: best[way].value)}")))
    return largest(best.values())


@claim(_BEYOND, "split", learned=0.0)
def split_extends_by_table(e: Evidence) -> Measured:
    """Only the position table of split needs extending.
    By the best way to continue its table, all else unchanged, the loss of split at positions that the training did not
    have is at most {MARGINAL} nats above the loss of the same tokens read in pieces as long as in training. In
    pieces it is {READS} nats below the loss of token frequencies, else not testable."""
    return _gain(e, "split") >= -MARGINAL


@claim(_BEYOND, "dstg", learned=0.0, origin=OURS)
def dstg_extends_by_table(e: Evidence) -> Measured:
    """Only the position table of dstg needs extending.
    The rule of the claim on split, for DSTG's encoder, whose streams are separate, too, and whose bias by distance
    continues by itself: at most {MARGINAL} nats above reading in pieces, by the best way to continue its table. In
    pieces it is {READS} nats below token frequencies, else not testable."""
    return _gain(e, "dstg") >= -MARGINAL


@claim(_BEYOND, "split", "ap", learned=0.0, origin=OURS)
def separate_tables_extend_better(e: Evidence) -> Measured:
    """Separate position tables extend better than added ones.
    The gain of split over reading in pieces, by the best way to continue its table, is larger than ap's, whose
    table is added to the words; each model has its own best way. (dstg is no fair comparison: it has a bias by
    distance, too. Nor is ap in all: its block is NeoBERT's, split's is BERT's with dropout.) In pieces both are
    {READS} nats below token frequencies, else not testable."""
    return _gain(e, "split") >= _gain(e, "ap")
