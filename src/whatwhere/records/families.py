"""Families of position schemes, by the part of the encoder that has the positions."""

from collections.abc import Mapping
from typing import Any

FAMILIES = {  # of schemes, and their headings
    "streams": "Separate streams",
    "untied": "Untied positions",
    "added": "Positions added to words",
    "rotated": "Rotated words, or no positions",
    "distance": "A bias by distance",
    "content": "Words and distances",
}


def family_of(config: Mapping[str, Any]) -> str:
    """Return the family of a scheme, a key of `FAMILIES`, by the fields of its configuration."""

    def has(field: str) -> bool:
        return config.get(field) not in (None, "", "none")

    if config.get("position_size"):
        return "streams"
    if config.get("bilevel") and has("rotation"):  # the table is about a segment, the rotation about the text
        return "rotated"
    if config.get("pair_terms") == "fire":  # the one class of pair terms that reads no word
        return "distance"
    fields = {"untied": "untied", "absolute": "added", "pair_terms": "content", "relative": "distance"}
    return next((family for field, family in fields.items() if has(field)), "rotated")
