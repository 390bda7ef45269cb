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


@dataclass(frozen=True)
class Row:
    """A claim as it is shown.

    anchor: where a link to it leads. paper: whose it is. mark: its verdict as a class. here: value and interval.
    printed: the paper's value. so_far: the verdict if the models had settled. bars: what the value is held against,
    and how far the paper's is from it. untrained: what the rule says of the untrained model. records: what
    decided it. shown: whether it stands in the table before a reader asks for more.
    """

    id: str
    claim: str
    kind: str
    paper: str
    verdict: str
    here: str = "–"
    printed: str = "–"
    bars: str = ""
    so_far: str = ""
    always: str = ""
    untrained: str = ""
    scale: str = ""
    source: str = ""
    rule: str = ""
    models: str = ""
    records: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        """ "claim-" and the id, of which nothing but letters, digits and hyphens is left."""
        return "claim-" + re.sub("[^A-Za-z0-9]+", "-", self.id).strip("-")

    @property
    def mark(self) -> str:
        """The verdict as a class; of an unknown one that of what cannot be tested."""
        return (self.verdict if self.verdict in VERDICTS else UNTESTABLE).replace(" ", "-")

    @property
    def shown(self) -> bool:
        """Whether it counts and could be tested."""
        return self.kind != ANALYTIC and self.mark != UNTESTABLE.replace(" ", "-")


def row(claim: Mapping[str, Any]) -> Row:
    """One entry of claims.json."""
    value, low, high, paper = (finite(claim.get(k)) for k in ("value", "low", "high", "paper_value"))
    unit = f"{THIN}{claim['unit']}" if claim.get("unit") else ""
    here = "–"
    if value is not None:
        here = f"{number(value, low, high, MOST_DIGITS)}{unit} {interval(low, high, MOST_DIGITS)}".strip()
    untrained = claim.get("untrained")
    before = ""
    if isinstance(untrained, Mapping) and (start := finite(untrained.get("value"))) is not None:
        before = f"{number(start)}{unit}, {untrained.get('verdict')}"
    id, source = str(claim.get("id") or ""), _words(claim.get("source"))
    return Row(
        id=id,
        claim=str(claim.get("claim") or id or "unnamed claim"),
        kind=str(claim.get("kind") or ""),
        paper=source.partition(" ")[0].rstrip(":,"),
        verdict=str(claim.get("verdict") or UNTESTABLE),
        here=here,
        printed=printed(paper) + unit if paper is not None else "–",
        so_far=str(claim.get("so_far") or ""),
        bars=_bars(claim.get("bars"), paper),
        always=_words(claim.get("always")),
        untrained=before,
        scale=_words(claim.get("scale")),
        source=source,
        rule=_words(claim.get("rule")),
        models=", ".join(f"`{m}`" for m in _list(claim.get("models"))),
        records=tuple(_list(claim.get("records"))),
    )


def _bars(bars: Any, paper: float | None) -> str:
    """`at least 0.62 (the paper: 0.27 inside)`, of each bar."""
    words = []
    for side, level in bars if isinstance(bars, list | tuple) else ():
        told = f"{side} {number(level)}"
        if paper is not None:
            room = paper - level if side == "at least" else level - paper
            told += f" (the paper: {number(abs(room))} {'inside' if room >= 0 else 'outside'})"
        words.append(told)
    return "; ".join(words)


def rows(claims: Sequence[Mapping[str, Any]]) -> list[Row]:
    """All claims: those that count first, by verdict, what untrained models meet too last of each."""
    made = [row(c) for c in claims]
    order = [verdict.replace(" ", "-") for verdict in VERDICTS]
    leans = (HOLDS, FAILS, OPEN)
    return sorted(
        made,
        key=lambda r: (
            *(r.kind == ANALYTIC, order.index(r.mark)),
            *(leans.index(r.so_far) if r.so_far in leans else len(leans), r.untrained.endswith(HOLDS)),
        ),
    )


def told(rows: Sequence[Row]) -> str:
    """The counts of those that count, in words."""
    counts = Counter(r.verdict for r in rows if r.kind != ANALYTIC)
    ordered = [v for v in dict.fromkeys((*VERDICTS, *counts)) if counts[v]]
    pieces = [f"{counts[v]} {'hold here' if v == HOLDS and counts[v] > 1 else v}" for v in ordered]
    leans = Counter(r.so_far for r in rows if r.kind != ANALYTIC and r.so_far)
    if leans:
        so_far = ", ".join(f"{n} {verdict}" for verdict, n in leans.most_common())
        pieces = [f"{p} (so far {so_far})" if p.endswith(UNSETTLED) else p for p in pieces]
    analytic = sum(r.kind == ANALYTIC for r in rows)
    rest = (
        f" {analytic} more come out as they do by arithmetic or construction, and count for nothing."
        if analytic
        else ""
    )
    return ", ".join(pieces) + "." * bool(pieces) + rest


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


def table(rows: Sequence[Row]) -> Table | None:
    """The ledger as a table, for its CSV."""
    if not rows:
        return None
    fields = {
        **{"Id": "id", "Claim": "claim", "Kind": "kind", "Verdict": "verdict", "Here": "here", "Paper": "printed"},
        "Bar": "bars",
        **{"Untrained": "untrained", "Source": "source", "Rule": "rule", "Always": "always", "Scale": "scale"},
    }
    cells = [[text(getattr(r, field)) for field in fields.values()] for r in rows]
    return Table("claims", "Every claim with its rule", tuple(fields), cells, frozenset({4, 5}))
