"""Error messages of one line in plain words, and checks of arguments that raise them."""

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import ErrorDetails

_LONGEST = 200  # characters of a value or of another library's words in a message
_PLAIN_WORDS = {  # pattern of pydantic's words -> plain words
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
    r"^String should match pattern '\^\[a-z\]\{2,3\}\$'$": "must be two or three small letters, such as en (ISO 639)",
}


class UntrustedScheme(ValueError):
    """Error for a scheme that a file names but the user has not given on the command line: its code is not run."""


def value_problem(name: str, error: ErrorDetails) -> str:
    """Return a sentence on a wrong value of a setting or option, from an error of pydantic.

    The sentence has the name, what the value must be, and the value seen. Words of this package's validators stay.
    """
    words = error["msg"].removeprefix("Value error, ")
    for pattern, plain_words in _PLAIN_WORDS.items():
        words = re.sub(pattern, plain_words, words)
    value = error["input"]
    text = repr(value)
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    texts = [entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, str)]
    shows_value = any(repr(entry) in words for entry in texts)
    return f"{name}{' ' if words.startswith('must ') else ': '}{words}{'' if shows_value else f'; got {text}'}."


def one_line(error: Exception) -> str:
    """Return the message of an error on one line, cut to 200 characters."""
    words = " ".join(str(error).split())
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]} ..."


def check_utf8(texts: Iterable[str], name: str) -> None:
    """Refuse texts with lone surrogates, by which Python stands for bytes that are not UTF-8.

    Args:
        name: Name of the texts in the message.

    Raises:
        ValueError: the first such text, by its number.
    """
    for number, text in enumerate(texts, 1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"Text {number} of {name} is not UTF-8. Convert it: iconv -f ITS-ENCODING.") from None


def as_list(values: Any, kinds: type | tuple[type, ...], expectation: str) -> list[Any]:
    """Return `values` as a list, whether it is one value or an iterable of values.

    Args:
        kinds: Types that a value may have.
        expectation: Beginning of the message, which says how to give the values.

    Raises:
        ValueError: a value has another type.
    """
    items = list(values) if isinstance(values, Iterable) and not isinstance(values, kinds) else [values]
    if misfits := [item for item in items if not isinstance(item, kinds)]:
        raise ValueError(f"{expectation}; got {misfits[0]!r}.")
    return items


@contextmanager
def name_model_in_errors(model: str) -> Iterator[None]:
    """Turn the errors of libraries that open a model into a ValueError of one line that names the model.

    Raises:
        ValueError: the block raised one, which is passed on where it names the model already, or another error.
    """
    from safetensors import SafetensorError

    try:
        yield
    except ValueError as error:
        raise (error if model in str(error) else ValueError(f"{model} does not load ({one_line(error)}).")) from None
    except (SafetensorError, RuntimeError, OSError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{model} does not load ({one_line(error)}). Use a complete copy.") from None


def command_line(*words: str | Path) -> str:
    """Return a command of this program to copy into a shell; a path that begins with a dash gets `./` before it."""
    plain = [f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words]
    return shlex.join(["whatwhere", *plain])


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean X or Y?" for a misspelt name, or "" if none of `names` is close.

    `encoder.registry`, which imports no other folder of the package, has a copy.
    """
    close = difflib.get_close_matches(str(name), list(names), n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""
