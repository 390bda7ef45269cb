"""Claims of the SPLIT notes, which measure nothing, about their encoder."""

from ..gates import PRESENT
from .claim import KEPT, UNMOVED, Measured, claim
from .evidence import Evidence


def _positions(e: Evidence) -> None:
    e.there(e.peak("split", "token", "position"), PRESENT, "R² (token) in the position stream of split")


@claim("SPLIT notes, eq. 1 and the text around it (they measure nothing: 0 is what they say)", "split", paper=0.0)
def split_semantics_invariant(e: Evidence) -> Measured:
    """Semantics of split do not depend on position.
    Shifting all positions by half a document changes the semantic states after the last block by at most {UNMOVED} of
    their size. By construction it can change them through the attention weights alone. R² (token) of the position
    stream is at least {PRESENT} at its best layer, else there is no position to depend on."""
    _positions(e)
    return e.value("shift.change", layer=e.last(), part="semantic") <= UNMOVED


@claim(
    "SPLIT notes, eq. 1: semantic vectors stay invariant (they measure nothing: 0 is what they say)", "split", paper=0.0
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
)
def split_position_without_semantics(e: Evidence) -> Measured:
    """Positions of split know nothing of sentences.
    R² (intra) of the position stream of split at its best layer is at most {PRESENT}; words can reach it through the
    weights alone. Of the semantic stream it is at least as much, else nothing is known of sentences."""
    e.there(e.peak("split", "intra", "semantic"), PRESENT, "R² (intra) in the semantic stream of split")
    return e.peak("split", "intra", "position") <= PRESENT


@claim("SPLIT notes: dimensions reserved for position (no number printed)", "split")
def split_position_kept(e: Evidence) -> Measured:
    """Reserved dimensions keep position to the end.
    R² (token) of the position stream of split after the last block is at least {KEPT} of that after the first, which is
    at least {PRESENT}, else there is nothing to keep."""
    first, last = (e.r2("split", "token", "position", layer) for layer in (1, e.last()))
    e.there(first, PRESENT, "R² (token) after the first block of the position stream of split")
    return last >= KEPT * first
