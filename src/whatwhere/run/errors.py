"""Wrong values in our words: what pydantic, which checks settings and options, says of the first of them, what is given
in place of one or several, and what libraries say of a model that does not open."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

_LONGEST = 200  # characters of a value that is shown
_OURS = {  # pydantic's words -> ours
    r"^Input should be ": "must be ",
    "^Field required$": "must be given",
    r"^(?:List|Tuple|Dictionary) should have (.+) items? after validation.*$": r"must have \1 entries",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid string": "a text",
    "a valid ": "a ",
    r", (unable to|got a number with) .*$": "",
}


class UnknownProgram(ValueError):
    """Code that only a file names, and not who started the process."""


def wrong_value(name: str, error: ValidationError) -> str:
    """What a setting or an option must be, and the value seen; a sentence of our own stands as it is."""
    first = error.errors()[0]
    words = first["msg"].removeprefix("Value error, ")
    for pattern, ours in _OURS.items():
        words = re.sub(pattern, ours, words)
    given = first["input"]
    seen = repr(given)
    seen = seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]} ..."
    words_given = [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
    told = any(repr(each) in words for each in words_given)
    return f"{name}{' ' if words.startswith('must ') else ': '}{words}{'' if told else f'; got {seen}'}."


def shortly(error: Exception) -> str:
    """The words of an error on one line, 200 characters of them at most."""
    words = " ".join(str(error).split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} ..."


def check_utf8(texts: Iterable[str], what: str) -> None:
    """Raises ValueError of the first text with bytes that were no UTF-8, which Python keeps as lone surrogates."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"Text {number} of {what} is not UTF-8. Convert it first: iconv -f latin1.") from None


def several(given: Any, kinds: type | tuple[type, ...], what: str) -> list[Any]:
    """One or several things, given alone or as a list, as a list.

    Raises:
        ValueError: one of them is of another kind; what: how they are to be given.
    """
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, kinds) else [given]
    if wrong := [each for each in found if not isinstance(each, kinds)]:
        raise ValueError(f"{what}; got {wrong[0]!r}.")
    return found


@contextmanager
def opening(model: str) -> Iterator[None]:
    """Errors of the libraries that open a model become a ValueError of one line that names it; one that names it
    already stands as it is."""
    from safetensors import SafetensorError

    try:
        yield
    except ValueError as error:
        raise (error if model in str(error) else ValueError(f"{model} does not load ({shortly(error)}).")) from None
    except (SafetensorError, RuntimeError, OSError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{model} does not load ({shortly(error)}). Use a complete copy.") from None
