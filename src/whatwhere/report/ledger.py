"""The ledger of claims as the page shows it: a row a claim, the most telling first, every text ready to print."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..claims import FAILS, HOLDS, JUDGED, OPEN, ORIGINS, UNSETTLED, UNTESTABLE, UNTRAINED, VERDICTS
from ..records.gates import FALLING
from .figure import MOST_DIGITS, Table, text
from .loaded_run import finite
from .numbers import THIN, interval, number, printed

NONE = "–"  # where there is no value
_WHY = {
    UNSETTLED: f": a loss still falls by more than {FALLING} nats in the last tenth of the steps",
    UNTESTABLE: ": a model, a record or enough learning is missing",
}


_SHOWN = {UNTRAINED: "an untrained model does it too"}  # where the verdict's own name would read as support


def shown_verdict(verdict: str) -> str:
    """Return a verdict as the page writes it."""
    return _SHOWN.get(verdict, verdict)


def doubt(verdict: str, so_far: str = "") -> str:
    """Return why a value is not judged, in two or three words; "" of a verdict that stands.

    so_far: the verdict if the models had settled.
    """
    if verdict in JUDGED:
        return ""
    if verdict == UNSETTLED and so_far in (HOLDS, FAILS, OPEN):
        return f"so far {so_far.removesuffix(' here')}"
    return verdict.removesuffix(" here")


@dataclass(frozen=True)
class Row:
    """A claim as shown.

    origin: what the paper has of it. paper: whose it is. result: value and interval. seed_values: the values of two or
    three training seeds. reference_result, reference_verdict: of the reference study. printed: value of the paper.
    so_far: the verdict if the models had settled. holm: of what holds, that it may be one of many by chance. bars: what
    the value is held against, and how far the paper's is from it.
    untrained: what the rule says of the untrained model. records: what decided it.
    """

    id: str
    claim: str
    kind: str
    paper: str
    verdict: str
    origin: str = ""
    result: str = NONE
    seed_values: str = ""
    reference_result: str = NONE
    reference_verdict: str = ""
    printed: str = NONE
    bars: str = ""
    so_far: str = ""
    holm: str = ""
    untrained: str = ""
    scale: str = ""
    source: str = ""
    rule: str = ""
    models: str = ""
    records: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        """Target of a link to the claim: "claim-" and the letters, digits and hyphens of its id."""
        return "claim-" + re.sub("[^A-Za-z0-9]+", "-", self.id).strip("-")

    @property
    def mark(self) -> str:
        """The verdict as a class; an unknown one counts as not testable."""
        return (self.verdict if self.verdict in VERDICTS else UNTESTABLE).replace(" ", "-")

    @property
    def tested(self) -> bool:
        """True if the run has the records that the claim's rule needs."""
        return self.verdict in VERDICTS[:-1]

    @property
    def judged(self) -> bool:
        """True if the claim has a verdict that more steps would not move; its row then stands open in the ledger."""
        return self.verdict in JUDGED

    @property
    def reason(self) -> str:
        """Why it is not judged, from its scale; "" where that says nothing."""
        pieces = self.scale.removeprefix("not measured: ").split("; ")
        falls = [piece for piece in pieces if " still learns: " in piece]
        return "; ".join(falls) or pieces[0]


def row(claim: Mapping[str, Any]) -> Row:
    """Return the row of an entry of claims.json."""
    value, low, high, paper = (finite(claim.get(k)) for k in ("value", "low", "high", "paper_value"))
    unit = f"{THIN}{claim['unit']}" if claim.get("unit") else ""
    text = NONE
    if value is not None:
        text = f"{number(value, low, high, MOST_DIGITS)}{unit} {interval(low, high, MOST_DIGITS)}".strip()
    values = [v for v in map(finite, claim.get("values") or ()) if v is not None]
    untrained = claim.get("untrained")
    start = finite(untrained.get("value")) if isinstance(untrained, Mapping) else None
    cells = {
        key: _words(claim.get(key)) for key in ("id", "kind", "origin", "so_far", "holm", "scale", "source", "rule")
    }
    return Row(
        **cells,
        claim=str(claim.get("claim") or cells["id"] or "unnamed claim"),
        paper=cells["source"].partition(" ")[0].rstrip(":,"),
        verdict=str(claim.get("verdict") or UNTESTABLE),
        result=text,
        seed_values=", ".join(number(v, low, high, MOST_DIGITS) for v in values),
        **_reference(claim.get("reference"), unit),
        printed=printed(paper) + unit if paper is not None else NONE,
        bars=_bars(claim.get("bars"), paper),
        untrained=f"{number(start)}{unit}, {untrained['verdict']}" if untrained and start is not None else "",
        models=", ".join(f"`{m}`" for m in claim.get("models") or ()),
        records=claim.get("records") or (),
    )


def _reference(of: Any, unit: str) -> dict[str, str]:
    """Value, interval and verdict of the reference study; where it is not settled, the verdict so far."""
    if not isinstance(of, Mapping):
        return {}
    verdict = str(of.get("verdict") or "")
    if so_far := str(of.get("so_far") or ""):
        verdict = f"{verdict}, so far {so_far}"
    verdict = verdict.replace(UNTRAINED, shown_verdict(UNTRAINED))
    cells = {"reference_verdict": verdict.replace("here", "there")}
    value, low, high = (finite(of.get(key)) for key in ("value", "low", "high"))
    if value is None:
        return cells
    bounds = interval(low, high, MOST_DIGITS)
    return cells | {"reference_result": f"{number(value, low, high, MOST_DIGITS)}{unit} {bounds}".strip()}


def _bars(bars: Any, paper: float | None) -> str:
    """`at least 0.62 (the paper: 0.27 inside)`, of each bar."""
    words = []
    for side, level in bars or ():
        place = ""
        if paper is not None:
            room = paper - level if side == "at least" else level - paper
            place = f" (the paper: {number(abs(room))} {'inside' if room >= 0 else 'outside'})"
        words.append(f"{side} {number(level)}{place}")
    return "; ".join(words)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    if value is None:
        return ""
    return number(value) if isinstance(value, int | float) else str(value)


def rows(claims: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return all claims by verdict; unsettled ones by the verdict so far."""
    order = [verdict.replace(" ", "-") for verdict in VERDICTS]

    def place(r: Row) -> tuple[int, int]:
        lean = JUDGED.index(r.so_far) if r.so_far in JUDGED else len(JUDGED)
        return order.index(r.mark), lean

    return sorted(map(row, claims), key=place)


def shown(claims: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return `rows`, or [] where the run has measured nothing that a claim needs."""
    ledger = rows(claims)
    return ledger if any(r.result != NONE for r in ledger) else []


def counts(rows: Sequence[Row]) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """Return columns and lines of a table that counts the claims of each verdict.

    Each count is divided by origin: a printed number, a printed sentence, or a rule of our own.
    """
    origins = [origin for origin in ORIGINS if any(r.origin == origin for r in rows)]
    verdicts = dict.fromkeys((*(v for v in VERDICTS if any(r.verdict == v for r in rows)), *(r.verdict for r in rows)))
    lines = []
    for verdict in verdicts:
        rows_of_verdict = [r for r in rows if r.verdict == verdict]
        lines.append(
            (verdict, [len(rows_of_verdict), *(sum(r.origin == origin for r in rows_of_verdict) for origin in origins)])
        )
    return ["all", *origins], lines


def folds(rows: Sequence[Row]) -> list[tuple[str, str, list[tuple[str, list[Row]]]]]:
    """Return the claims that cannot be judged: each verdict with a sentence of counts, and its rows by reason, the most
    common first."""
    groups = []
    for verdict in dict.fromkeys(r.verdict for r in rows if not r.judged):
        of_verdict = [r for r in rows if r.verdict == verdict]
        by_reason: dict[str, list[Row]] = {}
        for r in of_verdict:
            by_reason.setdefault(r.reason, []).append(r)
        leans = Counter(r.so_far for r in of_verdict if r.so_far)
        so_far = ", ".join(
            f"{leans[v]} {'hold here' if v == HOLDS and leans[v] > 1 else shown_verdict(v)}" for v in JUDGED if leans[v]
        )
        pieces = [f"{len(of_verdict)} {verdict}{_WHY.get(verdict, '')}", so_far and f"so far {so_far}"]
        words = "; ".join(filter(None, pieces))
        groups.append((verdict, words, sorted(by_reason.items(), key=lambda group: -len(group[1]))))
    return groups


def table(rows: Sequence[Row]) -> Table | None:
    """Return the ledger as a table, for its CSV; None without rows."""
    fields = (
        "id",
        "claim",
        "kind",
        "origin",
        "verdict",
        "holm",
        "result",
        "seeds",
        "reference",
        "reference verdict",
        "paper",
        "bar",
        "untrained",
        "source",
        "rule",
        "scale",
    )
    of = {"paper": "printed", "bar": "bars", "seeds": "seed_values"}  # where a column is called otherwise
    of |= {"reference": "reference_result", "reference verdict": "reference_verdict"}
    cells = [[text(getattr(r, of.get(field, field))) for field in fields] for r in rows]
    columns = tuple(field.capitalize() for field in fields)
    return Table("claims", "Every claim with its rule", columns, cells, frozenset({6, 8, 10})) if rows else None
