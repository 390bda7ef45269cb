"""Claims as functions over the records of a run, and their verdicts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..records.gates import HALF, ONE_SEED
from ..records.places import after_holm
from ..records.record import Record
from ..records.table import Margin, Point, Table
from .evidence import Evidence, Missing, described
from .p_values import p_value

HOLDS = "holds here"
FAILS = "not seen here"
OPEN = "not separable"
UNTRAINED = "holds untrained too"
UNSETTLED = "not settled"
UNTESTABLE = "not testable here"
JUDGED = (HOLDS, FAILS, OPEN, UNTRAINED)  # verdicts that more steps or records would not move
VERDICTS = (*JUDGED, UNSETTLED, UNTESTABLE)
# Subject of a claim: trained models, text, or arithmetic, which no measurement decides. Claims of the last kind are no
# part of a ledger; docs/theory.md has them.
EMPIRICAL = "empirical"
CORPUS = "corpus"
ANALYTIC = "analytic"
# Origin of a claim: the number that its rule meets, a sentence of the paper, or a rule of our own.
NUMBER = "printed number"
SENTENCE = "printed sentence"
OURS = "rule of our own"
ORIGINS = (NUMBER, SENTENCE, OURS)

# Words of the papers as numbers, equal in all claims; conditions that a run must meet are in `gates`.
KEPT = 0.75  # "preserves": at least this share of the earlier R²
LOST = 0.5  # "loses", "largely unable": at most this share of the R², or of the variance, is left
HARDLY = 0.6  # "hardly": at most this share of what models that are given positions have (the paper's rp: 0.51)
MOST = 0.9  # "collapses to", "concentrates in", "almost exclusively": at least this share
UNMOVED = 0.05  # "invariant": states change by at most this share of their size
SOME = 0.01  # "there are": more than this share of the heads, which is less than one head of any model here
MARGINAL = 0.05  # nats of MLM loss that count as no difference ("comparable", "marginal")

# Parts of the rule as comparisons of points, after the value to show where that is not the left side of the first.
Measured = Margin | tuple[Point, ...]
Measure = Callable[[Evidence], Measured]


@dataclass(frozen=True)
class Claim:
    """Row of the ledger: a paper's statement and the rule that decides it; `rule` puts `measure` into words.

    paper_value: value that the paper prints, None without one. origin: the paper's form of the statement, `NUMBER` or
    `SENTENCE`, or `OURS` for a rule of our own. models: models that the claim compares; models[0] is its subject.
    subjects_of: function that lists, in their place, all subjects of the claim in a run (its corpora, its tables); the
    middle one gives the verdict. what: such a subject in words. kind: subject of the claim, `EMPIRICAL`, `CORPUS` or
    `ANALYTIC`. always: reason why an analytic claim cannot come out otherwise. learned: share of the gain of the run's
    best model that every model needs. alone: smallest half-width of a difference where there is one training seed.
    control: True if the claim tells nothing where it also holds of the untrained models; False for comparisons of
    models, whose scores and losses are level before training.
    """

    id: str
    claim: str
    source: str
    paper_value: float | None
    rule: str
    models: tuple[str, ...]
    measure: Measure
    unit: str = ""
    subjects_of: Callable[[Table], list[str]] | None = None
    what: str = ""
    kind: str = EMPIRICAL
    origin: str = SENTENCE
    always: str = ""
    learned: float = HALF
    alone: float = 0.0
    control: bool = True


REGISTRY: list[Claim] = []


def claim(source: str, *models: str, paper: float | None = None, **more: Any) -> Callable[[Measure], Measure]:
    """Register a measure as a row of the ledger by a decorator, with the arguments of `Claim`.

    `always` makes the claim analytic. With a value of the paper the origin is `NUMBER` by default. The measure returns
    the value to show, then the margins: comparisons of points. The value may be left out where it is the left side of
    the first margin. The name of the measure, with hyphens, is the claim's id. Its docstring is the claim, on the first
    line, and the rule, in which names in braces are names of its module.
    """

    def register(measure: Measure) -> Measure:
        name = measure.__name__.replace("_", "-")
        sentence, _, text = (measure.__doc__ or "").format_map(measure.__globals__).partition("\n")
        rule = " ".join(text.split()).removesuffix(".")
        fields = {"origin": SENTENCE if paper is None else NUMBER} | more
        row = Claim(name, sentence.removesuffix("."), source, paper, rule, models, measure, **fields)
        REGISTRY.append(replace(row, kind=ANALYTIC) if row.always else row)
        return measure

    return register


of_losses = partial(claim, unit="nats", learned=0.0, alone=ONE_SEED, control=False)  # a loss too high is the finding


@dataclass(frozen=True)
class _Finding:
    """Verdict on one of the subjects of a claim; its fields have the names of a row of the ledger."""

    verdict: str
    scale: str
    models: list[str]
    value: float | None = None
    low: float | None = None
    high: float | None = None
    values: list[float] = field(default_factory=list)
    untrained: dict[str, Any] | None = None
    records: list[str] = field(default_factory=list)
    bars: list[list[str | float]] = field(default_factory=list)
    so_far: str = ""
    margin: float = 0.0  # the smallest of the rule
    p: float | None = None
    holm: str = ""


_ROW = (
    "id claim kind origin always verdict so_far holm value low high values p bars paper_value untrained scale source "
    "rule unit models records"
).split()
MOST_NAMED = 3  # models behind a verdict
NO_P = "no p: a value without an interval decides"


def evaluate(records: Iterable[Record] | Table, claims: Sequence[Claim] | None = None) -> list[dict[str, Any]]:
    """Return every claim with its verdict, as claims.json holds them.

    A claim holds if every part of its rule does. A part with an interval (over training seeds if there are several, and
    over documents, their splits, or as the records carry it) is "not separable" if the interval of its margin straddles
    the threshold; without one the value alone decides. Records' own intervals are combined in quadrature, as `Point`
    says. Where records are missing, a model is undertrained, or the quantity of a claim is absent (`gates`), the claim
    is "not testable here", and `scale` names the lack. Where a loss still falls, an empirical claim is "not settled",
    and `scale` gives the verdict so far. Where the same rule holds of the untrained models, training has taught nothing
    of it: "holds untrained too". With one training seed a verdict is about that model; `scale` says so. A claim about
    corpora or tables is judged for each that the records have; among those that are testable and settled, if any, the
    middle one by the smallest margin gives the row, and `scale` names it first.

    Args:
        records: of a study, a geometry run or a spectra run.
        claims: default `CLAIMS`; analytic ones are judged where they are given.

    Returns:
        Dictionaries with id, claim, kind, origin, always, verdict, so_far, holm, value, low, high, values, p, bars,
        paper_value, untrained, scale, source, rule, unit, models, records; value, low, high, p, paper_value may be
        None. values: one for each training seed where there are two or three. bars: thresholds of the value, as ("at
        least" or "at most", number); a part of the rule about another quantity has none. so_far: verdict of an
        unsettled claim if it were settled. p: p of the least certain part of the rule (`p_values.p_value`); None
        where some part has no interval. holm: reason why a claim that holds here may be chance: that it does not hold
        after Holm's correction over the empirical claims that these records decide, or that it has no p; else "".
        untrained: value and verdict of the same rule on the untrained models, None without records of them. models:
        models that were judged. records: records that decided, in words.
    """
    table = records if isinstance(records, Table) else Table(records)
    chosen = [claim for claim in REGISTRY if claim.kind != ANALYTIC] if claims is None else claims
    rows = _corrected([vars(claim) | vars(_judged(claim, table)) for claim in chosen])
    return [{name: row[name] for name in _ROW} for row in rows]


def _corrected(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, with a mark on empirical claims that hold but not after Holm's correction, or have no p."""
    decided = [row for row in rows if row["kind"] == EMPIRICAL and row["verdict"] in (HOLDS, FAILS, OPEN)]
    tested = [row for row in decided if row["p"] is not None]
    after_correction = after_holm([row["p"] for row in tested])
    marks = {row["id"]: NO_P for row in decided if row["p"] is None}
    marks |= {
        row["id"]: f"not after Holm's correction over {len(tested)} claims"
        for row, holds in zip(tested, after_correction, strict=True)
        if not holds
    }
    return [row | {"holm": marks.get(row["id"], "") if row["verdict"] == HOLDS else ""} for row in rows]


def _judged(claim: Claim, table: Table) -> _Finding:
    """Return the finding on the models of a claim, or on the middle one of its subjects."""
    findings = []
    missing = []
    subjects = [claim.models] if claim.subjects_of is None else [(name,) for name in claim.subjects_of(table)]
    for models in subjects:
        try:
            findings.append(_finding(claim, Evidence(table, models)))
        except Missing as lacks:
            missing.append(lacks)
    if not findings:
        reason = missing[0] if missing else f"needs {claim.what}"
        return _Finding(UNTESTABLE, f"not measured: {reason}", list(claim.models))
    if claim.subjects_of is None:
        return findings[0]
    tested = [f for f in findings if f.verdict != UNTESTABLE] or findings
    judged = [f for f in tested if f.verdict != UNSETTLED] or tested
    middle = sorted(judged, key=lambda f: f.margin)[(len(judged) - 1) // 2]
    others = _list_by_verdict([f for f in findings if f is not middle])
    place = f"{middle.models[0]}{f', the middle of {len(findings)} ({others})' if others else ''}"
    lacking = f"; {len(missing)} more lack records" if missing else ""
    # A page shows the first words of what is not testable as the reason.
    words = [middle.scale, place] if middle.verdict == UNTESTABLE else [place, middle.scale]
    return replace(middle, scale=f"{'; '.join(words)}{lacking}")


def _list_by_verdict(findings: Sequence[_Finding]) -> str:
    """Return verdicts with the models that have them, the first few by name."""
    models: dict[str, list[str]] = {}
    for finding in findings:
        models.setdefault(finding.verdict, []).append(finding.models[0])
    groups = []
    for verdict, names in models.items():
        more = len(names) - MOST_NAMED
        which = ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        groups.append(f"{which} {verdict}")
    return "; ".join(groups)


def _finding(claim: Claim, evidence: Evidence) -> _Finding:
    try:
        shown, margins = _measured(claim, evidence)
    except ValueError as lacking:
        raise Missing(f"needs {lacking}") from None
    alone = claim.alone if len(evidence.seeds) == 1 else 0.0
    untrained = _untrained(claim, evidence)
    verdict = _verdict(margins, alone)
    so_far = ""
    pieces = [evidence.note, evidence.scale(shown)]
    if claim.kind == EMPIRICAL and claim.control and verdict == HOLDS and untrained and untrained["verdict"] == HOLDS:
        verdict = UNTRAINED
    if reason := evidence.undertrained(claim.learned):
        verdict = UNTESTABLE
        pieces = [reason, *pieces]
    elif claim.kind == EMPIRICAL and (reason := evidence.unsettled()):
        so_far = verdict
        pieces = [f"so far: {verdict}", reason, *pieces]
        verdict = UNSETTLED
    if alone:
        pieces.append(f"one seed: differences below {alone:g} nats are not separable")
    scale = "; ".join(filter(None, pieces))
    margin = min(m.value for m in margins)
    bars = [["at least" if m.least else "at most", m.bar] for m in margins if m.compared.value == shown.value]
    (low, high) = shown.interval or (None, None)
    return _Finding(
        verdict,
        scale,
        list(evidence.models),
        value=shown.value,
        low=low,
        high=high,
        values=shown.few,
        untrained=untrained,
        records=described(evidence.read),
        bars=bars,
        so_far=so_far,
        margin=margin,
        p=_largest([p_value(margin, alone) for margin in margins]),
    )


def _untrained(claim: Claim, evidence: Evidence) -> dict[str, Any] | None:
    """Return value and verdict of a claim's rule on the untrained models; None without records of them, or where the
    rule itself compares with untrained models."""
    try:
        start, margins = _measured(claim, Evidence(evidence.table, evidence.models, step=0))
    except (Missing, ValueError):
        return None
    return {"value": start.value, "verdict": _verdict(margins)}


def _largest(ps: Sequence[float | None]) -> float | None:
    """Return the p of a rule that holds only if all of its parts do: the largest, None where a part has none."""
    known = [p for p in ps if p is not None]
    return max(known) if len(known) == len(ps) else None


def _measured(claim: Claim, evidence: Evidence) -> tuple[Point, Sequence[Margin]]:
    """Return the value to show, and the distance of each part of the rule on the right side of its threshold."""
    result = claim.measure(evidence)
    parts = result if isinstance(result, tuple) else (result,)
    margins = [part for part in parts if isinstance(part, Margin)]
    return parts[0] if len(margins) < len(parts) else margins[0].compared, margins


def _verdict(margins: Sequence[Margin], alone: float = 0.0) -> str:
    """Return the verdict from margins, whose intervals reach at least `alone` to both sides."""
    sides = set()
    for margin in margins:
        low, high = margin.interval or (margin.value, margin.value)
        low = min(low, margin.value - alone)
        high = max(high, margin.value + alone)
        if low >= 0:
            sides.add(HOLDS)
        elif high < 0:
            sides.add(FAILS)
        else:
            sides.add(OPEN)
    return next(verdict for verdict in (FAILS, OPEN, HOLDS) if verdict in sides)
