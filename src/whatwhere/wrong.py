"""Wrong values in our words: what pydantic, which checks settings and options, says of the first of them."""

import re

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


def wrong_value(name: str, error: ValidationError) -> str:
    """What a setting or an option must be, and the value seen; a sentence of our own stands as it is."""
    first = error.errors()[0]
    words = first["msg"].removeprefix("Value error, ")
    for pattern, ours in _OURS.items():
        words = re.sub(pattern, ours, words)
    seen = repr(first["input"])
    seen = seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]} ..."
    return f"{name}{' ' if words.startswith('must ') else ': '}{words}; got {seen}."
