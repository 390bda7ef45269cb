"""A claim as a function over the records of a run, and its verdict."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..records.gates import HALF, ONE_SEED
from ..records.record import Record
from ..records.table import Margin, Point, Table
from .evidence import Evidence, Missing, described
from .multiplicity import after_holm, p_value

HOLDS = "holds here"
FAILS = "not seen here"
OPEN = "not separable"
UNTRAINED = "holds untrained too"
UNSETTLED = "not settled"
UNTESTABLE = "not testable here"
JUDGED = (HOLDS, FAILS, OPEN, UNTRAINED)  # what more steps or records would not move
VERDICTS = (*JUDGED, UNSETTLED, UNTESTABLE)
# What a claim is about: trained models, text, or nothing that a measurement could decide. The last are no part of a
# ledger: docs/theory.md has them.
EMPIRICAL = "empirical"
CORPUS = "corpus"
ANALYTIC = "analytic"
# What a paper has of a claim: the number that its rule meets, or a sentence; or nobody has said it but we.
ORIGINS = NUMBER, SENTENCE, OURS = "printed number", "printed sentence", "rule of our own"

# What words of the papers mean in numbers, the same in all claims; what must be there at all is in `gates`.
KEPT = 0.75  # "preserves": at least this share of what was there
LOST = 0.5  # "loses", "largely unable": at most this share of the R², or of the variance, is left
HARDLY = 0.6  # "hardly": at most this share of what models that are given positions have (the paper's rp: 0.51)
MOST = 0.9  # "collapses to", "concentrates in", "almost exclusively": at least this share
UNMOVED = 0.05  # "invariant": states change by at most this share of their size
SOME = 0.01  # "there are": more than this share of the heads, which is less than one head of any model here
MARGINAL = 0.05  # nats of MLM loss that count as no difference ("comparable", "marginal")

# The parts of the rule as comparisons of points, after what is shown where that is not the left side of the first.
Measured = Margin | tuple[Point, ...]
Measure = Callable[[Evidence], Measured]


@dataclass(frozen=True)
class Claim:
    """One row of the ledger. `rule` says in words what `measure` computes.

    paper_value: printed in the paper, None where it prints none. origin: what the paper has of it, `NUMBER`, `SENTENCE`
    or, where nobody has said it, `OURS`. models: those that the claim compares; models[0] is the one it is about.
    each: in their place, what finds everything in a run that the claim is about (its corpora, its tables); the verdict
    is that of the middle one. what: such a thing in words. kind: what decides it. always: of an analytic one, why it
    cannot come out otherwise. learned: share of the gain of the run's best model that every model needs. alone:
    smallest half-width of what is compared where there is one training seed. control: whether it says nothing where it
    holds of the untrained models; of models beside each other, whose scores and losses are level before they learn, it
    does.
    """

    id: str
    claim: str
    source: str
    paper_value: float | None
    rule: str
    models: tuple[str, ...]
    measure: Measure
    unit: str = ""
    each: Callable[[Table], list[str]] | None = None
    what: str = ""
    kind: str = EMPIRICAL
    origin: str = SENTENCE
    always: str = ""
    learned: float = HALF
    alone: float = 0.0
    control: bool = True


REGISTRY: list[Claim] = []


def claim(source: str, *models: str, paper: float | None = None, **more: Any) -> Callable[[Measure], Measure]:
    """Make a measure a row of the ledger; the arguments are those of `Claim`, `always` makes it analytic. With a value
    of the paper the origin is `NUMBER` by default.

    The measure returns what is shown, then the margins: comparisons of points. What is shown may be left out where it
    is what the first of them compares. Its name, with hyphens, is the claim's. Its docstring is the claim, on the first
    line, and the rule, in which names in braces are those of its module.
    """

    def register(measure: Measure) -> Measure:
        name = measure.__name__.replace("_", "-")
        sentence, _, text = (measure.__doc__ or "").format_map(measure.__globals__).partition("\n")
        rule = " ".join(text.split()).removesuffix(".")
        given = {"origin": SENTENCE if paper is None else NUMBER} | more
        row = Claim(name, sentence.removesuffix("."), source, paper, rule, models, measure, **given)
        REGISTRY.append(replace(row, kind=ANALYTIC) if row.always else row)
        return measure

    return register


of_losses = partial(claim, unit="nats", learned=0.0, alone=ONE_SEED, control=False)  # a loss too high is the finding


@dataclass(frozen=True)
class _Finding:
    """The verdict on one of the things that a claim is about; what it shares with a row of the ledger is named so."""

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
    *("id", "claim", "kind", "origin", "always", "verdict", "so_far", "holm", "value", "low", "high", "values", "p"),
    *("bars", "paper_value", "untrained", "scale", "source", "rule", "unit", "models", "records"),
)
NO_P = "no p: a value without an interval decides"


def evaluate(records: Iterable[Record] | Table, claims: Sequence[Claim] | None = None) -> list[dict[str, Any]]:
    """Every claim with its verdict, as claims.json holds them.

    A claim holds if every part of its rule does. A part with an interval (over training seeds if there are several, and
    over documents, their splits, or as the records carry it) is "not separable" if the interval of its margin
    straddles the threshold; without one the value alone decides. Records' own intervals are combined in quadrature, as
    `Point` says. Where records are missing, a model has learned too little, or what a claim speaks of is not there at
    all (`gates`), the claim is "not testable here", and `scale` says what is missing. Where a loss still falls, an
    empirical claim is "not settled", and `scale` says what it would be. Where the same rule holds of the untrained
    models, training has taught nothing of it: "holds untrained too". With one training seed a verdict is about that
    model; `scale` says so. A claim about corpora or tables is judged for each that the records have; the row is that of
    the middle one, by the smallest margin, which `scale` names first.

    Args:
        records: of a study, a geometry run or a spectra run.
        claims: default `CLAIMS`; analytic ones are judged where they are given.

    Returns:
        Dictionaries with id, claim, kind, origin, always, verdict, so_far, holm, value, low, high, values, p, bars,
        paper_value, untrained, scale, source, rule, unit, models, records; value, low, high, p, paper_value may be
        None. values: of each training seed where there are two or three. bars: what the value is held against, as ("at
        least" or "at most", number); of a part of the rule about something else there is none. so_far: of what is not
        settled, the verdict if it were. p: of the least certain part of the rule (`multiplicity.p_value`); None where
        some part has no interval. holm: of what holds here, why it may be chance: that it does not hold after Holm's
        correction over the empirical claims that these records decide, or that it has no p; else "". untrained: value
        and verdict of the same rule on the untrained models, None where there are no records of them. models is what
        was judged, records what decided, in words.
    """
    table = records if isinstance(records, Table) else Table(records)
    chosen = [claim for claim in REGISTRY if claim.kind != ANALYTIC] if claims is None else claims
    rows = _corrected([vars(claim) | vars(_judged(claim, table)) for claim in chosen])
    return [{name: row[name] for name in _ROW} for row in rows]


def _corrected(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows; of the empirical ones that hold, those that do not after Holm's correction over all that are decided,
    or have no p, say so."""
    decided = [row for row in rows if row["kind"] == EMPIRICAL and row["verdict"] in (HOLDS, FAILS, OPEN)]
    tested = [row for row in decided if row["p"] is not None]
    held = after_holm([row["p"] for row in tested])
    marks = {row["id"]: NO_P for row in decided if row["p"] is None}
    marks |= {
        row["id"]: f"not after Holm's correction over {len(tested)} claims"
        for row, holds in zip(tested, held, strict=True)
        if not holds
    }
    return [row | {"holm": marks.get(row["id"], "") if row["verdict"] == HOLDS else ""} for row in rows]


def _judged(claim: Claim, table: Table) -> _Finding:
    """The finding on the models of a claim, or on the middle one of the things that it is about."""
    findings = []
    missing = []
    subjects = [claim.models] if claim.each is None else [(name,) for name in claim.each(table)]
    for models in subjects:
        try:
            findings.append(_finding(claim, Evidence(table, models)))
        except Missing as lacks:
            missing.append(lacks)
    if not findings:
        reason = missing[0] if missing else f"needs {claim.what}"
        return _Finding(UNTESTABLE, f"not measured: {reason}", list(claim.models))
    if claim.each is None:
        return findings[0]
    tested = [f for f in findings if f.verdict != UNTESTABLE] or findings
    judged = [f for f in tested if f.verdict != UNSETTLED] or tested
    middle = sorted(judged, key=lambda f: f.margin)[(len(judged) - 1) // 2]
    others = ", ".join(f"{f.models[0]} {f.verdict}" for f in findings if f is not middle)
    place = f"{middle.models[0]}{f', the middle of {len(findings)} ({others})' if others else ''}"
    lacking = f"; {len(missing)} more lack records" if missing else ""
    return replace(middle, scale=f"{place}; {middle.scale}{lacking}")


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
    if reason := evidence.unlearned(claim.learned):
        verdict = UNTESTABLE
        pieces = [reason, *pieces]
    elif claim.kind == EMPIRICAL and (reason := evidence.unsettled()):
        so_far, verdict, pieces = verdict, UNSETTLED, [f"so far: {verdict}", reason, *pieces]
    if alone:
        pieces.append(f"one seed: differences below {alone:g} nats are not separable")
    scale = "; ".join(filter(None, pieces))
    margin = min(m.value for m in margins)
    bars = [["at least" if m.least else "at most", m.bar] for m in margins if m.compared.value == shown.value]
    models = list(evidence.models)
    records = described(evidence.read)
    (low, high) = shown.interval or (None, None)
    p = _largest([p_value(margin, alone) for margin in margins])
    found = (models, shown.value, low, high, shown.few, untrained, records, bars, so_far, margin, p)
    return _Finding(verdict, scale, *found)


def _untrained(claim: Claim, evidence: Evidence) -> dict[str, Any] | None:
    """Value and verdict of a claim's rule on the untrained models; None where records lack, or the rule compares with
    untrained models itself."""
    try:
        start, margins = _measured(claim, Evidence(evidence.table, evidence.models, step=0))
    except (Missing, ValueError):
        return None
    return {"value": start.value, "verdict": _verdict(margins)}


def _largest(ps: Sequence[float | None]) -> float | None:
    """The p of a rule that holds only if all of its parts do: the largest, None where a part has none."""
    known = [p for p in ps if p is not None]
    return max(known) if len(known) == len(ps) else None


def _measured(claim: Claim, evidence: Evidence) -> tuple[Point, Sequence[Margin]]:
    """What is shown, and how far each part of the rule is on the right side of its threshold."""
    result = claim.measure(evidence)
    parts = result if isinstance(result, tuple) else (result,)
    margins = [part for part in parts if isinstance(part, Margin)]
    return parts[0] if len(margins) < len(parts) else margins[0].compared, margins


def _verdict(margins: Sequence[Margin], alone: float = 0.0) -> str:
    """From margins, whose intervals reach at least `alone` to both sides."""
    sides = set()
    for margin in margins:
        low, high = margin.interval or (margin.value, margin.value)
        low = min(low, margin.value - alone)
        high = max(high, margin.value + alone)
        sides.add(HOLDS if low >= 0 else FAILS if high < 0 else OPEN)
    return next(verdict for verdict in (FAILS, OPEN, HOLDS) if verdict in sides)
