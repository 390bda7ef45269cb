"""The ledger of claims as the page shows it: a row a claim, the most telling first, every text ready to print."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..claims import ANALYTIC, FAILS, HOLDS, OPEN, UNSETTLED, UNTESTABLE
from .figure import MOST_DIGITS, Table, text
from .numbers import THIN, interval, number, printed
from .run import finite

VERDICTS = (HOLDS, FAILS, OPEN, UNSETTLED, UNTESTABLE)
NONE = "–"  # where there is no value


@dataclass(frozen=True)
class Row:
    """A claim as it is shown.

    paper: whose it is. here: value and interval. printed: the paper's value. so_far: the verdict if the models had
    settled. bars: what the value is held against, and how far the paper's is from it. untrained: what the rule says of
    the untrained model. records: what decided it.
    """

    id: str
    claim: str
    kind: str
    paper: str
    verdict: str
    here: str = NONE
    printed: str = NONE
    bars: str = ""
    so_far: str = ""
    always: str = ""
    untrained: str = ""
    scale: str = ""
    source: str = ""
    rule: str = ""
    models: str = ""
    records: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        """Where a link to it leads: "claim-" and what of the id is letters, digits and hyphens."""
        return "claim-" + re.sub("[^A-Za-z0-9]+", "-", self.id).strip("-")

    @property
    def mark(self) -> str:
        """The verdict as a class; of an unknown one that of what cannot be tested."""
        return (self.verdict if self.verdict in VERDICTS else UNTESTABLE).replace(" ", "-")

    @property
    def shown(self) -> bool:
        """Whether it counts and could be tested, and so stands in the table before a reader asks for more."""
        return self.kind != ANALYTIC and self.verdict in VERDICTS[:-1]


def row(claim: Mapping[str, Any]) -> Row:
    """One entry of claims.json."""
    value, low, high, paper = (finite(claim.get(k)) for k in ("value", "low", "high", "paper_value"))
    unit = f"{THIN}{claim['unit']}" if claim.get("unit") else ""
    here = NONE
    if value is not None:
        here = f"{number(value, low, high, MOST_DIGITS)}{unit} {interval(low, high, MOST_DIGITS)}".strip()
    untrained = claim.get("untrained")
    start = finite(untrained.get("value")) if isinstance(untrained, Mapping) else None
    said = {key: _words(claim.get(key)) for key in ("id", "kind", "so_far", "always", "scale", "source", "rule")}
    return Row(
        **said,
        claim=str(claim.get("claim") or said["id"] or "unnamed claim"),
        paper=said["source"].partition(" ")[0].rstrip(":,"),
        verdict=str(claim.get("verdict") or UNTESTABLE),
        here=here,
        printed=printed(paper) + unit if paper is not None else NONE,
        bars=_bars(claim.get("bars"), paper),
        untrained=f"{number(start)}{unit}, {untrained['verdict']}" if untrained and start is not None else "",
        models=", ".join(f"`{m}`" for m in claim.get("models") or ()),
        records=claim.get("records") or (),
    )


def _bars(bars: Any, paper: float | None) -> str:
    """`at least 0.62 (the paper: 0.27 inside)`, of each bar."""
    words = []
    for side, level in bars or ():
        room = None if paper is None else paper - level if side == "at least" else level - paper
        place = "" if room is None else f" (the paper: {number(abs(room))} {'inside' if room >= 0 else 'outside'})"
        words.append(f"{side} {number(level)}{place}")
    return "; ".join(words)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return "" if value is None else number(value) if isinstance(value, int | float) else str(value)


def rows(claims: Sequence[Mapping[str, Any]]) -> list[Row]:
    """All claims: those that count first, by verdict, what untrained models meet too last of each."""
    order = [verdict.replace(" ", "-") for verdict in VERDICTS]
    leans = (HOLDS, FAILS, OPEN)

    def place(r: Row) -> tuple[bool, int, int, bool]:
        lean = leans.index(r.so_far) if r.so_far in leans else len(leans)
        return r.kind == ANALYTIC, order.index(r.mark), lean, r.untrained.endswith(HOLDS)

    return sorted(map(row, claims), key=place)


def shown(claims: Sequence[Mapping[str, Any]]) -> list[Row]:
    """`rows`, none where the run has measured nothing that counts."""
    found = rows(claims)
    return found if any(r.kind != ANALYTIC and r.here != NONE for r in found) else []


def told(rows: Sequence[Row]) -> str:
    """The counts of those that count, in words."""
    counted = [r for r in rows if r.kind != ANALYTIC]
    counts, leans = Counter(r.verdict for r in counted), Counter(r.so_far for r in counted if r.so_far)
    pieces = []
    for verdict in dict.fromkeys((*(v for v in VERDICTS if counts[v]), *counts)):
        piece = f"{counts[verdict]} {'hold here' if verdict == HOLDS and counts[verdict] > 1 else verdict}"
        so_far = ", ".join(f"{n} {lean}" for lean, n in leans.most_common())
        pieces.append(f"{piece} (so far {so_far})" if so_far and verdict == UNSETTLED else piece)
    sentence = ", ".join(pieces) + "." * bool(pieces)
    if analytic := len(rows) - len(counted):
        sentence += f" {analytic} more come out as they do by arithmetic or construction, and count for nothing."
    return sentence


def table(rows: Sequence[Row]) -> Table | None:
    """The ledger as a table, for its CSV."""
    fields = (
        "id",
        "claim",
        "kind",
        "verdict",
        "here",
        "paper",
        "bar",
        "untrained",
        "source",
        "rule",
        "always",
        "scale",
    )
    of = {"paper": "printed", "bar": "bars"}  # where a column is called otherwise
    cells = [[text(getattr(r, of.get(field, field))) for field in fields] for r in rows]
    columns = tuple(field.capitalize() for field in fields)
    return Table("claims", "Every claim with its rule", columns, cells, frozenset({4, 5})) if rows else None
