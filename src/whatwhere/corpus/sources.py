"""Sources of text: the docstrings of the installed Python packages, files and folders, Hub data sets, synthetic documents."""

from collections.abc import Iterator
from typing import Any

PART_CHARACTERS = 1_000_000  # a longer document is handed on in pieces cut at white space


class Source:
    """A text of documents in a fixed order that can be read more than once."""

    name: str = ""

    def documents(self) -> Iterator[str]:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, Any]:
        """What identifies the text, as plain JSON values."""
        raise NotImplementedError

    def characters(self) -> int | None:
        """How many characters there are in all, about; None if that is not known before reading."""
        return None

    def parts(self) -> Iterator[tuple[bool, str]]:
        """(opens a document, text): the documents, the long ones in pieces of at most PART_CHARACTERS."""
        for document in self.documents():
            text = document.strip()
            first = True
            while len(text) > PART_CHARACTERS:
                at = cut_point(text)
                yield first, text[:at]
                first, text = False, text[at:]
            if text:
                yield first, text

    def __iter__(self) -> Iterator[str]:
        pieces: list[str] = []
        for first, text in self.parts():
            if first and pieces:
                yield "".join(pieces)
                pieces = []
            pieces.append(text)
        if pieces:
            yield "".join(pieces)


def cut_point(text: str) -> int:
    """Where to cut a text of more than PART_CHARACTERS: after the last white space of the first piece, or hard if there is none near."""
    piece = text[PART_CHARACTERS - 1000 : PART_CHARACTERS]
    for back, character in enumerate(reversed(piece)):
        if character.isspace():
            return PART_CHARACTERS - back
    return PART_CHARACTERS


def open_source(spec: str, field: str = "text", document: str = "auto") -> Source:
    from whatwhere.corpus.python_docs import PythonDocs

    if spec == "python-docs":
        return PythonDocs()
    raise ValueError(f"No corpus {spec!r}.")
