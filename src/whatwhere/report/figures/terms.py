"""Terms of the scores: their colours and names."""

from collections.abc import Iterable

# Term -> (colour, what a head that follows it looks for, the term in a few words).
TERMS: dict[str, tuple[str, str, str]] = {
    "semantic": ("semantic", "meaning", "semantic"),
    "absolute": ("absolute", "absolute position", "absolute"),
    "relative": ("relative", "relative position", "relative"),
    "mixed": ("combined", "words and positions in one", "mixed"),
    "semantic_to_absolute": ("untied", "position from words", "words to positions"),
    "absolute_to_semantic": ("untied", "words from position", "positions to words"),
    "total": ("combined", "all terms", "total"),
    "several": ("combined", "no term alone", "several"),
    "stream.position": ("absolute", "the position stream", "position stream"),
    "stream.semantic": ("semantic", "the semantic stream", "semantic stream"),
}
TOTAL, SEVERAL = "total", "several"


def colour(term: str) -> str:
    """Colour name of a term; that of its stream where it has one."""
    return TERMS.get(term, ("untied", "", ""))[0]


def meaning(term: str) -> str:
    """What a head of that term looks for, in words."""
    return TERMS[term][1] if term in TERMS else term.replace("_", " ")


def short(term: str) -> str:
    """A term in a few words."""
    return TERMS[term][2] if term in TERMS else term.replace("_", " ")


def in_order(terms: Iterable[str]) -> list[str]:
    """Terms in the order of `TERMS`, others before `total` and `several`."""
    order = {t: i for i, t in enumerate(TERMS)}
    last = {TOTAL: 1, SEVERAL: 2}
    return sorted(set(terms), key=lambda t: (last.get(t, 0), order.get(t, len(order)), t))
