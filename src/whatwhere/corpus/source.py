"""Sources of text: documents in a fixed order, the long ones in pieces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
PART_CHARACTERS = 1_000_000  # a longer document is handed on in pieces cut at white space
MOST_LISTS = 100_000  # of texts that are handed on from one file of a source of several
KINDS = (  # values of a corpus argument: sources.open_source
    "python-docs, a file or folder (.txt, .jsonl, .json, .tsv, .csv, .parquet; also .gz, .xz, .zst, .bz2), "
    "hub:NAME[:CONFIG], synthetic:repeat, synthetic:three-regimes"
)


class Source:
    """A readable text of documents in a fixed order, which can be read more than once.

    A source gives `documents()`, or `parts()` where a document may be too long to hold in memory. White space round a
    document is no part of it, empty documents are passed over, and lone surrogates (JSON can carry them) become U+FFFD.
    """

    name: str = ""
    remark: str = ""  # a line on what is not read, for whoever names the source

    def documents(self) -> Iterator[str]:
        """Yield the documents in their order."""
        raise NotImplementedError

    def fingerprint(self) -> dict[str, Any]:
        """Return plain JSON values that identify the text, such as hashes of its files."""
        raise NotImplementedError

    def share_read(self) -> float | None:
        """Estimate the share of the text that the latest pass has read, in [0, 1]; None if it is not known."""
        return None

    def files(self) -> Sequence["Source"]:
        """List the sources that make up this one in their order, each readable without the others."""
        return [self]

    def parts(self) -> Iterator[tuple[bool, str]]:
        """Yield (opens a document, text) for the documents; long ones come in pieces of at most PART_CHARACTERS."""
        return split_long(self.documents())

    def __iter__(self) -> Iterator[str]:
        return self.beginnings(None)

    def beginnings(self, most: int | None) -> Iterator[str]:
        """Yield the beginning of each document, up to the piece that passes `most` characters; None: all of it."""
        pieces: list[str] = []
        size = 0
        for first, text in self.parts():
            if first and pieces:
                yield "".join(pieces)
                pieces = []
                size = 0
            if most is None or size < most:
                pieces.append(text)
                size += len(text)
        if pieces:
            yield "".join(pieces)


def numbered_lists(source: Source, lists: Callable[[Source], Iterable[T]]) -> Iterator[tuple[int, T]]:
    """Yield (number, list), where `lists` splits each file of a source into lists of documents, or of any values.

    The number says which file a list is of, and which list of that file it is.
    """
    for number, file in enumerate(source.files()):
        for i, of_file in enumerate(lists(file)):
            yield number * MOST_LISTS + i, of_file


def split_long(documents: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """Split documents into (opens a document, text) as `Source.parts` yields them."""
    for document in documents:
        text = valid_unicode(document).strip()
        first = True
        while len(text) > PART_CHARACTERS:
            at = cut_point(text)
            yield first, text[:at]
            first = False
            text = text[at:]
        if text:
            yield first, text


def cut_point(text: str) -> int:
    """Find where to cut a long text: after the last white space in the thousand characters before PART_CHARACTERS."""
    for at in range(PART_CHARACTERS, PART_CHARACTERS - 1000, -1):
        if text[at - 1].isspace():
            return at
    return PART_CHARACTERS


def valid_unicode(text: str) -> str:
    """Join surrogate pairs of a text and replace lone surrogates by U+FFFD, so that it can be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def first_line(error: Exception) -> str:
    """Return the first line of a library's error, or the name of its class if it has no text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
