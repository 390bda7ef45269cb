"""What a source of text is: documents in a fixed order, the long ones in pieces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")
PART_CHARACTERS = 1_000_000  # a longer document is handed on in pieces cut at white space
MOST_LISTS = 100_000  # of texts that are handed on from one file of a source of several
KINDS = (  # what a corpus argument may name: sources.open_source
    "python-docs, a file or folder (.txt, .jsonl, .tsv, .csv, .parquet; also .gz, .xz, .zst), hub:NAME[:CONFIG], "
    "synthetic:repeat, synthetic:three-regimes"
)


class Source:
    """A text of documents in a fixed order that can be read more than once.

    A source gives `documents()`, or `parts()` where a document may be too long to hold in memory. White space round a
    document is no part of it, empty documents are passed over, and lone surrogates (JSON can carry them) become U+FFFD.
    """

    name: str = ""

    def documents(self) -> Iterator[str]:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the text, as plain JSON values."""
        raise NotImplementedError

    def share_read(self) -> float | None:
        """How much of the text the latest pass has read, in [0, 1], about; None if that cannot be told."""
        return None

    def files(self) -> Sequence["Source"]:
        """Sources that make up this one in their order, each of which can be read without the others."""
        return [self]

    def parts(self) -> Iterator[tuple[bool, str]]:
        """(opens a document, text): the documents, the long ones in pieces of at most PART_CHARACTERS."""
        return split_long(self.documents())

    def __iter__(self) -> Iterator[str]:
        return self.beginnings(None)

    def beginnings(self, most: int | None) -> Iterator[str]:
        """Of each document the pieces that begin in its first `most` characters; None: all of it."""
        pieces: list[str] = []
        size = 0
        for first, text in self.parts():
            if first and pieces:
                yield "".join(pieces)
                pieces, size = [], 0
            if most is None or size < most:
                pieces.append(text)
                size += len(text)
        if pieces:
            yield "".join(pieces)


def lists_of_part(
    source: Source, part: tuple[int, int], lists: Callable[[Source], Iterable[T]]
) -> Iterator[tuple[int, T]]:
    """What `lists` makes of the files of a source, each with its number in the whole: of part (k, n) every n-th file
    from the k-th on, where there are n; else every n-th list, for which all is read."""
    (k, n), files, turn = part, source.files(), count()
    apart = len(files) >= n
    for number, file in enumerate(files):
        if apart and number % n != k:
            continue
        for i, each in enumerate(lists(file)):
            if apart or next(turn) % n == k:
                yield number * MOST_LISTS + i, each


def split_long(documents: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """Documents as `Source.parts` wants them."""
    for document in documents:
        text = valid_unicode(document).strip()
        first = True
        while len(text) > PART_CHARACTERS:
            at = cut_point(text)
            yield first, text[:at]
            first, text = False, text[at:]
        if text:
            yield first, text


def cut_point(text: str) -> int:
    """Where to cut a longer text: after the last white space of the thousand characters before, else there."""
    for at in range(PART_CHARACTERS, PART_CHARACTERS - 1000, -1):
        if text[at - 1].isspace():
            return at
    return PART_CHARACTERS


def valid_unicode(text: str) -> str:
    """`text` with surrogate pairs joined and lone surrogates replaced by U+FFFD, so that it can be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def first_line(error: Exception) -> str:
    """What a library's error says, in a line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
