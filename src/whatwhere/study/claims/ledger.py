"""A claim and its verdict from the records of a run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...records import Record
from .evidence import Book, Evidence, Missing
from .values import Value

HOLDS, FAILS, OPEN, UNTESTABLE = "holds", "does not hold", "not separable", "not testable here"
_SEVERITY = (FAILS, OPEN, HOLDS)
_OF_CONTROL = {HOLDS: "meets the rule too", FAILS: "does not meet the rule", OPEN: "is not separable"}

# What words of the papers mean in numbers, the same in all claims.
KEPT = 0.75  # "preserves": at least this share of what was there
LOST = 0.5  # "loses", "largely unable": at most this share of the R², or of the variance, is left
PRESENT = 0.25  # below this R² a part is said not to carry a target (ap's last layer, which "loses" it, has 0.24)
MOST = 0.9  # "collapses to", "concentrates in", "almost exclusively": at least this share
UNMOVED = 0.05  # "invariant": states change by at most this share of their size
SOME = 0.01  # "there are": more than this share of the heads, which is less than one head of any model here
MARGINAL = 0.05  # nats of MLM loss that count as no difference ("comparable", "marginal")


@dataclass(frozen=True)
class Measured:
    """What a claim's measurement found.

    shown: the quantity on the card. margins: how far on the right side of its threshold each part of the rule is; all of them must
    be at least 0. note: what else is to be known of it, for `scale`.
    """

    shown: Value
    margins: Sequence[Value]
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """One row of the ledger. `rule` says in words what `measure` computes.

    paper_value: printed in the paper, None where it prints none. models: those that the claim compares; models[0] is the one it is
    about. each: in their place, what finds everything in a run that the claim is about (its corpora, its tables); the verdict is that
    of the worst.
    """

    id: str
    claim: str
    source: str
    paper_value: float | None
    rule: str
    models: tuple[str, ...]
    measure: Callable[[Evidence], Measured]
    unit: str = ""
    each: Callable[[Book], list[str]] | None = None
    what: str = ""


@dataclass(frozen=True)
class _Finding:
    """The verdict on one of the things that a claim is about."""

    name: str
    verdict: str
    value: float | None
    bounds: tuple[float, float] | None
    scale: str
    records: list[str]
    margin: float


def evaluate(records: Sequence[Record], claims: Sequence[Claim] | None = None) -> list[dict[str, Any]]:
    """Every claim with its verdict, as claims.json holds them.

    A claim holds if every part of its rule does. A part with an interval (over training seeds if there are several; else over document
    splits, or the one that the records carry) is "not separable" if the interval of its margin straddles the threshold; without one the
    value alone decides. Records' own intervals are combined in quadrature, as `Value` says. Where records are missing, or a model never
    left the unigram plateau, the claim is "not testable here" and `scale` says what is missing. With one training seed a verdict is
    about that model; `scale` says so. It also names models whose loss was still falling and, where the records of step 0 are there, what
    the same rule says of the untrained model. A claim about corpora or tables is judged for each that the records have; the row is that
    of the worst (does not hold before not separable before holds, then by the smallest margin), which `scale` names first.

    Args:
        records: of a study, a geometry run or a spectra run.
        claims: default `CLAIMS`.

    Returns:
        Dictionaries with id, claim, verdict, value, low, high, paper_value, scale, source, rule, unit, models,
        records; value, low, high and paper_value may be None; models is what was judged, records what decided, in words.
    """
    if claims is None:
        from . import CLAIMS

        claims = CLAIMS
    book = Book.of(records)
    return [_row(claim, book) for claim in claims]


def _row(claim: Claim, book: Book) -> dict[str, Any]:
    try:
        found = _judged(claim, book)
    except Missing as missing:
        found = _Finding("", UNTESTABLE, None, None, f"not measured: {missing}", [], 0.0)
    low, high = found.bounds or (None, None)
    return {
        "id": claim.id,
        "claim": claim.claim,
        "verdict": found.verdict,
        "value": found.value,
        "low": low,
        "high": high,
        "paper_value": claim.paper_value,
        "scale": found.scale,
        "source": claim.source,
        "rule": claim.rule,
        "unit": claim.unit,
        "models": list(claim.models) or [found.name] * bool(found.name),
        "records": found.records,
    }


def _judged(claim: Claim, book: Book) -> _Finding:
    if claim.each is None:
        return _finding(claim, Evidence(book, claim.models), "")
    names = claim.each(book)
    if not names:
        raise Missing(f"needs {claim.what}")
    found, missing = [], []
    for name in names:
        try:
            found.append(_finding(claim, Evidence(book, (name,)), name))
        except Missing as lacks:
            missing.append(lacks)
    if not found:
        raise missing[0]
    judged = [f for f in found if f.verdict != UNTESTABLE] or found
    worst = min(judged, key=lambda f: (_SEVERITY.index(f.verdict) if f.verdict in _SEVERITY else 3, f.margin))
    others = [f"{f.name} {f.verdict}" for f in found if f is not worst]
    said = ", ".join(others)
    worst_of = f", the worst of {len(found)} ({said})" if others else ""
    scale = f"{worst.name}{worst_of}; {worst.scale}"
    return _Finding(worst.name, worst.verdict, worst.value, worst.bounds, scale, worst.records, worst.margin)


def _finding(claim: Claim, evidence: Evidence, name: str) -> _Finding:
    try:
        measured = claim.measure(evidence)
    except ValueError as lacking:
        raise Missing(f"needs {lacking}") from None
    verdict = next((v for v in _SEVERITY if v in [_side(m, evidence) for m in measured.margins]), HOLDS)
    scale = "; ".join(filter(None, (measured.note, evidence.scale(measured.shown), _control(claim, evidence), evidence.learning())))
    if reason := evidence.plateau():
        verdict, scale = UNTESTABLE, f"{reason}; {scale}"
    margin = min(m.mean for m in measured.margins)
    return _Finding(name, verdict, measured.shown.mean, evidence.interval(measured.shown), scale, evidence.read, margin)


def _control(claim: Claim, evidence: Evidence) -> str:
    """What the rule says of the same models before the first step; "" where their records lack, or the rule compares with them itself."""
    start = Evidence(evidence.book, evidence.models).untrained()
    try:
        measured = claim.measure(start)
    except (Missing, ValueError):
        return ""
    verdict = next((v for v in _SEVERITY if v in [_side(m, start) for m in measured.margins]), HOLDS)
    return f"untrained {measured.shown.mean:.3g}, which {_OF_CONTROL[verdict]}"


def _side(margin: Value, evidence: Evidence) -> str:
    low, high = evidence.interval(margin) or (margin.mean,) * 2
    return HOLDS if low >= 0 else FAILS if high < 0 else OPEN
