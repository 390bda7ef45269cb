"""A claim as a function over the records of a run, and its verdict."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..points import Point, Table
from ..records import Record
from .evidence import Evidence, Missing

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

# The quantity that is shown, then how far on the right side of its threshold each part of the rule is.
Measured = tuple[Point, ...]
Measure = Callable[[Evidence], Measured]
Subjects = Callable[[Table], list[str]]


@dataclass(frozen=True)
class Claim:
    """One row of the ledger. `rule` says in words what `measure` computes.

    paper_value: printed in the paper, None where it prints none. models: those that the claim compares; models[0] is
    the one it is about. each: in their place, what finds everything in a run that the claim is about (its corpora, its
    tables); the verdict is that of the worst. what: such a thing in words.
    """

    id: str
    claim: str
    source: str
    paper_value: float | None
    rule: str
    models: tuple[str, ...]
    measure: Measure
    unit: str = ""
    each: Subjects | None = None
    what: str = ""


REGISTRY: list[Claim] = []


def claim(
    source: str, *models: str, paper: float | None = None, unit: str = "", each: Subjects | None = None, what: str = ""
) -> Callable[[Measure], Measure]:
    """Make a measure a row of the ledger.

    The measure returns what is shown, then the margins: comparisons of points. Its name, with hyphens, is the claim's.
    Its docstring is the claim, on the first line, and the rule, in which names in braces are those of its module.
    """

    def register(measure: Measure) -> Measure:
        sentence, _, text = (measure.__doc__ or "").format_map(measure.__globals__).partition("\n")
        rule = " ".join(text.split()).removesuffix(".")
        name = measure.__name__.replace("_", "-")
        row = Claim(name, sentence.removesuffix("."), source, paper, rule, models, measure, unit, each, what)
        REGISTRY.append(row)
        return measure

    return register


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


def evaluate(records: Iterable[Record] | Table, claims: Sequence[Claim] | None = None) -> list[dict[str, Any]]:
    """Every claim with its verdict, as claims.json holds them.

    A claim holds if every part of its rule does. A part with an interval (over training seeds if there are several;
    else over document splits, or the one that the records carry) is "not separable" if the interval of its margin
    straddles the threshold; without one the value alone decides. Records' own intervals are combined in quadrature, as
    `Point` says. Where records are missing, or a model never left the unigram plateau, the claim is "not testable here"
    and `scale` says what is missing. With one training seed a verdict is about that model; `scale` says so. It also
    names models whose loss was still falling and, where the records of step 0 are there, what the same rule says of the
    untrained model. A claim about corpora or tables is judged for each that the records have; the row is that of the
    worst (does not hold before not separable before holds, then by the smallest margin), which `scale` names first.

    Args:
        records: of a study, a geometry run or a spectra run.
        claims: default `CLAIMS`.

    Returns:
        Dictionaries with id, claim, verdict, value, low, high, paper_value, scale, source, rule, unit, models,
        records; value, low, high and paper_value may be None; models is what was judged, records what decided, in
        words.
    """
    table = records if isinstance(records, Table) else Table(records)
    return [_row(claim, table) for claim in (REGISTRY if claims is None else claims)]


def _row(claim: Claim, table: Table) -> dict[str, Any]:
    try:
        finding = _judged(claim, table)
    except Missing as missing:
        finding = _Finding("", UNTESTABLE, None, None, f"not measured: {missing}", [], 0.0)
    low, high = finding.bounds or (None, None)
    return {
        "id": claim.id,
        "claim": claim.claim,
        "verdict": finding.verdict,
        "value": finding.value,
        "low": low,
        "high": high,
        "paper_value": claim.paper_value,
        "scale": finding.scale,
        "source": claim.source,
        "rule": claim.rule,
        "unit": claim.unit,
        "models": list(claim.models) or [finding.name] * bool(finding.name),
        "records": finding.records,
    }


def _judged(claim: Claim, table: Table) -> _Finding:
    if claim.each is None:
        return _finding(claim, Evidence(table, claim.models), "")
    names = claim.each(table)
    if not names:
        raise Missing(f"needs {claim.what}")
    findings, missing = [], []
    for name in names:
        try:
            findings.append(_finding(claim, Evidence(table, (name,)), name))
        except Missing as lacks:
            missing.append(lacks)
    if not findings:
        raise missing[0]
    judged = [f for f in findings if f.verdict != UNTESTABLE] or findings
    worst = min(judged, key=lambda f: (_SEVERITY.index(f.verdict) if f.verdict in _SEVERITY else 3, f.margin))
    others = ", ".join(f"{f.name} {f.verdict}" for f in findings if f is not worst)
    worst_of = f", the worst of {len(findings)} ({others})" if others else ""
    scale = f"{worst.name}{worst_of}; {worst.scale}"
    return _Finding(worst.name, worst.verdict, worst.value, worst.bounds, scale, worst.records, worst.margin)


def _finding(claim: Claim, evidence: Evidence, name: str) -> _Finding:
    try:
        shown, *margins = claim.measure(evidence)
    except ValueError as lacking:
        raise Missing(f"needs {lacking}") from None
    verdict = _verdict(margins)
    pieces = (evidence.note, evidence.scale(shown), _control(claim, evidence), evidence.learning())
    scale = "; ".join(filter(None, pieces))
    if reason := evidence.plateau():
        verdict, scale = UNTESTABLE, f"{reason}; {scale}"
    margin = min(m.value for m in margins)
    return _Finding(name, verdict, shown.value, shown.interval, scale, evidence.read, margin)


def _control(claim: Claim, evidence: Evidence) -> str:
    """What the rule says of the untrained models; "" where records lack, or the rule compares with them itself."""
    try:
        shown, *margins = claim.measure(Evidence(evidence.table, evidence.models, step=0))
    except (Missing, ValueError):
        return ""
    return f"untrained {shown.value:.3g}, which {_OF_CONTROL[_verdict(margins)]}"


def _verdict(margins: Sequence[Point]) -> str:
    sides = []
    for margin in margins:
        low, high = margin.interval or (margin.value, margin.value)
        sides.append(HOLDS if low >= 0 else FAILS if high < 0 else OPEN)
    return next((v for v in _SEVERITY if v in sides), HOLDS)
