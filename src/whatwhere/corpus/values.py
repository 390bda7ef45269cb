"""JSON values one after the other: a value a line, or the values of one list, read as a stream."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from .characters import LONGEST_ROW, joined_lines
from .source import valid_unicode

_CUT_OFF = 16  # characters before the end of what was read in which an error may be one of the cut alone
_HOW = "Give a row a line, or a list of rows."


def json_values(path: Path, chunks: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of a file of JSON lines, or of one JSON list of rows; the place names file and line or row.

    Lone surrogates in texts are joined or replaced by U+FFFD.

    Args:
        chunks: the characters of the file; memory holds about one row.

    Raises:
        ValueError: what is no JSON, or a row of more than 2^27 characters.
    """
    for chunk in chunks:
        if start := chunk.lstrip():
            values = _of_list(path, start[1:], chunks) if start[0] == "[" else _of_lines(path, chain([chunk], chunks))
            yield from values
            return


def _of_lines(path: Path, chunks: Iterator[str]) -> Iterator[tuple[str, Any]]:
    first = True
    for number, line in enumerate(joined_lines(path, chunks), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield place, _mended(json.loads(line), line)
            except ValueError as error:
                advice = _HOW if first else "Mend the line."
                reason = error.msg if isinstance(error, json.JSONDecodeError) else error  # its places are of the line
                raise ValueError(f"{place}: not JSON ({reason}). {advice}") from error
            except RecursionError as error:
                raise _too_deep(place) from error
            first = False


def _of_list(path: Path, text: str, chunks: Iterator[str]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a list whose text begins behind its bracket."""
    decoder = json.JSONDecoder()
    number = 0
    while True:
        text = text.lstrip()
        place = f"{path}, row {number + 1}"
        if text[:1] == "]" and not text[1:].strip():
            return
        begin = len(text) - len(text.removeprefix(",").lstrip()) if number and text else 0
        try:
            if text[:1] == "]":
                raise ValueError(f"{place}: text after the end of the list. {_HOW}")
            if number and text and not begin:
                raise ValueError(f"{place}: not JSON (a comma is missing). {_HOW}")
            value, end = decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            is_cut = error.pos >= len(text) - _CUT_OFF or error.msg.startswith("Unterminated string")
            more = _read_more(chunks, max(len(text), 1)) if is_cut else ""
            if not more:
                raise ValueError(f"{place}: not JSON ({error.msg}). {_HOW}") from None
            if len(text) > LONGEST_ROW:
                raise ValueError(f"{place}: more than {LONGEST_ROW:,} characters. {_HOW}") from None
            text += more
        except RecursionError as error:
            raise _too_deep(place) from error
        else:
            yield place, _mended(value, text[begin:end])
            number += 1
            text = text[end:]


def _read_more(chunks: Iterator[str], characters: int) -> str:
    """Read on until there are this many more characters, so that a long row is not parsed again for every chunk."""
    pieces: list[str] = []
    size = 0
    for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size >= characters:
            break
    return "".join(pieces)


def _mended(value: Any, text: str) -> Any:
    """Replace halves of characters in the texts of a value; only as an escape can one stand there."""
    return _valid(value) if "\\ud" in text.lower() else value


def _valid(value: Any) -> Any:
    if isinstance(value, str):
        return valid_unicode(value)
    if isinstance(value, dict):
        return {key: _valid(inner) for key, inner in value.items()}
    return [_valid(inner) for inner in value] if isinstance(value, list) else value


def _too_deep(place: str) -> ValueError:
    return ValueError(f"{place}: JSON nested too deeply. Leave the line out.")
