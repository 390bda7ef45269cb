"""The ledger of claims: one card a claim with its value, interval, the paper's value and the verdict, as plain data for
the page."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .figure import MOST_DIGITS
from .numbers import THIN, interval, number, printed
from .run import finite

VERDICTS = ("holds", "does not hold", "not separable", "not testable here")
MOST_CARDS = 6


@dataclass(frozen=True)
class Strip:
    """Where value, interval and paper's value lie between the ends of a scale, as per cent of its width."""

    left: str
    right: str
    value: float
    low: float | None = None
    high: float | None = None
    paper: float | None = None


@dataclass(frozen=True)
class Card:
    """A claim as it is shown; every text is ready to print, `strip` is None where nothing was measured.

    anchor: of its row in the ledger. models: what it was judged on, in words. records: what decided it, one line each.
    """

    id: str
    claim: str
    verdict: str
    mark: str
    value: str
    bounds: str
    paper: str
    strip: Strip | None
    scale: str = ""
    source: str = ""
    rule: str = ""
    models: str = ""
    records: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """Where a link to the claim leads: "claim-" and its id, of which nothing but letters, digits and hyphens is
        left."""
        return "claim-" + re.sub("[^A-Za-z0-9]+", "-", self.id).strip("-")


def scale_ends(values: Sequence[float], unit: str) -> tuple[float, float]:
    """Ends of a card's scale: 0 to 1, 0 to 100 for per cent, else 0 to a round number beyond the largest; below 0 if
    values are."""
    low, high = min(values), max(values)
    top = 100.0 if unit in ("%", "per cent") else 1.0
    return -_rounded_up(-low) if low < 0 else 0.0, _rounded_up(high) if high > top else top


def _rounded_up(value: float) -> float:
    size: float = 10 ** math.floor(math.log10(value))
    return math.ceil(value / size) * size


def strip(
    value: float | None, low: float | None, high: float | None, paper: float | None, unit: str = ""
) -> Strip | None:
    """The little scale of a card; None where nothing was measured."""
    if value is None:
        return None
    bottom, top = scale_ends([v for v in (value, low, high, paper) if v is not None], unit)

    def place(v: float) -> float:
        return round(100 * (v - bottom) / (top - bottom), 2)

    ends = (None if v is None else place(v) for v in (low, high, paper))
    return Strip(printed(bottom), printed(top), place(value), *ends)


def card(claim: Mapping[str, Any]) -> Card:
    """One entry of claims.json as a card."""
    value, low, high, paper = (finite(claim.get(k)) for k in ("value", "low", "high", "paper_value"))
    id, unit, verdict = (str(claim.get(k) or "") for k in ("id", "unit", "verdict"))
    suffix = f"{THIN}{unit}" if unit else ""
    return Card(
        id=id,
        claim=str(claim.get("claim") or id or "unnamed claim"),
        verdict=verdict or VERDICTS[-1],
        mark=(verdict if verdict in VERDICTS else VERDICTS[-1]).replace(" ", "-"),
        value=number(value, low, high, MOST_DIGITS) + suffix if value is not None else "–",
        bounds=interval(low, high, MOST_DIGITS),
        paper=printed(paper) + suffix if paper is not None else "",
        strip=strip(value, low, high, paper, unit),
        scale=_words(claim.get("scale")),
        source=_words(claim.get("source")),
        rule=_words(claim.get("rule")),
        models=", ".join(f"`{m}`" for m in _list(claim.get("models"))),
        records=tuple(_list(claim.get("records"))),
    )


def _list(entries: Any) -> list[str]:
    return [str(entry) for entry in entries] if isinstance(entries, list | tuple) else []


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_words(v) for v in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return "" if value is None else str(value)


def first_cards(cards: Sequence[Card]) -> list[Card]:
    """The cards of the first screen: measured claims in their order, `MOST_CARDS` at most; the ledger has all."""
    measured = [c for c in cards if c.strip is not None]
    return (measured or list(cards))[:MOST_CARDS]


def ledger(cards: Sequence[Card]) -> list[tuple[str, list[Card]]]:
    """Claims by verdict, in the order of `VERDICTS`, then any other verdict."""
    names = [*VERDICTS, *dict.fromkeys(c.verdict for c in cards if c.verdict not in VERDICTS)]
    groups = [(name, [c for c in cards if c.verdict == name]) for name in names]
    return [(name, group) for name, group in groups if group]


def by_reason(cards: Sequence[Card]) -> list[tuple[str, list[Card]]]:
    """Claims that could not be tested by what is missing, that which most of them lack first."""
    groups: dict[str, list[Card]] = {}
    for c in cards:
        reason = c.scale.removeprefix("not measured: ") or "no reason given"
        groups.setdefault(reason[0].upper() + reason[1:], []).append(c)
    return sorted(groups.items(), key=lambda group: -len(group[1]))
