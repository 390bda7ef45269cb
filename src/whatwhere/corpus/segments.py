"""Segments of a text: where sentences and lines begin, and each token's index and progress in one (DSTG section 5).

Boundaries come from the characters, because a tokenizer drops line breaks and white space.
"""

import re

import numpy as np

SPECIAL = 1  # marks of a token: [CLS] or [SEP] that frames text
SEGMENT = 2  # it is the first token of a segment
DOCUMENT = 4  # it is the first token of a document
PIECE = 8  # it opens a piece whose positions count anew: the [CLS] of each piece of a row with join=isolate

# End of a sentence: terminal punctuation, closing quotes and brackets, white space. End of a line: any line break.
# Possessive, and started only at the beginning of a run: linear also on a megabyte of dots.
_END = re.compile("(?<![.!?\u2026])([.!?\u2026]++)[\"'\u2019\u201d\u00bb)\\]}*_`]*+\\s++|[\\n\\r\u2028\u2029]\\s*+")
_BREAK = re.compile("[\\n\\r\u2028\u2029]")
_ABBREVIATIONS = frozenset(
    "cf vs al eq eqs fig figs vol pp mr mrs ms dr prof st jr sr inc ltd co approx resp ca".split()
)


def segment_starts(text: str) -> np.ndarray:
    """Find the character offsets at which the second, third, ... segment of a text begins: (k,) int64, ascending.

    A segment ends at a line break, or at a run of . ! ? … with closing quotes and brackets and white space after it. So
    a full stop inside a number or name ("3.14", "numpy.ndarray") ends none; nor does one after a capital on its own or
    a letter after another full stop ("J. Smith", "U.S.", "e.g."), after a number that opens a line ("1. First") and
    after a few abbreviations ("Dr.", "cf.", "Fig.").
    """
    starts = []
    for match in _END.finditer(text):
        end = match.end()
        if end < len(text) and not (match.group(1) == "." and _inside(text, match.start(), match.end(1), end)):
            starts.append(end)
    return np.array(starts, dtype=np.int64)


def _inside(text: str, stop: int, after: int, end: int) -> bool:
    """Tell if the full stop at `stop` belongs to a word; the next segment would begin at `end`."""
    if _BREAK.search(text, after, end) is not None:
        return False
    begin = stop
    while begin > max(0, stop - 8) and text[begin - 1].isalnum():
        begin -= 1
    word = text[begin:stop]
    if len(word) == 1 and word.isalpha():
        return word.isupper() or text[max(0, begin - 1) : begin] == "."
    if word.isdigit():
        before = text[max(0, begin - 8) : begin].rstrip(" \t")
        return (begin <= 8 and not before) or _BREAK.match(before[-1:]) is not None
    return word.lower() in _ABBREVIATIONS


def token_segments(marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute each token's segment and its progress in it for one window from the marks (n,) of the tokens.

    Returns:
        segments (n,) int32: counted from 0 in the window, -1 at special tokens.
        progress (n,) float32: (position - start) / (length - 1) inside the segment's part that the window shows (DSTG
        5.3), in [0, 1]; nan at special tokens and in one-token segments.
    """
    regular = np.flatnonzero((marks & SPECIAL) == 0)
    segments = np.full(len(marks), -1, np.int32)
    progress = np.full(len(marks), np.nan, np.float32)
    if len(regular):
        first = (marks[regular] & SEGMENT) != 0
        first[0] = True  # a window may begin inside a segment
        begin = np.flatnonzero(first)
        length = np.diff(begin, append=len(regular))
        index = np.cumsum(first) - 1
        segments[regular] = index
        span = (length - 1)[index]
        with np.errstate(invalid="ignore"):
            progress[regular] = np.where(span > 0, (np.arange(len(regular)) - begin[index]) / span, np.nan)
    return segments, progress
