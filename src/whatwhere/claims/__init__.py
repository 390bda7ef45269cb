"""Ledger of claims: a paper's statement, a fixed rule that decides it, and the verdict from a run's records alone.

A claim is a function whose docstring is its rule, one file a paper. The thresholds put the paper's words into numbers;
the paper's own printed values meet every one of them. `docs/claims.md` lists all claims (`python -m whatwhere.claims`)
and the results that were known when the rules were set. Statements that arithmetic decides (`FACTS`) are no part of a
ledger; docs/theory.md has them.
"""

from . import dstg, tupe, tasks, geom, lowdim, split  # noqa: F401, I001  (the ledger has their order)
from .claim import ANALYTIC, FAILS, HOLDS, JUDGED, NUMBER, OPEN, ORIGINS, OURS, REGISTRY, SENTENCE, UNSETTLED
from .claim import UNTESTABLE, UNTRAINED, VERDICTS, Claim, evaluate

# The claims that tell most come first.
_FIRST = (
    "dstg-position-kept",
    "ap-keeps-position",
    "ap-loses-position",
    "dstg-2d-collapse",
    "rope-no-position",
    "dstg-most-heads-absolute",
    "dstg-full-mlm-loses-position",
    "tupe-a-beats-bert-a",
    "dstg-costs-no-loss",
    "geom-sinusoids-near-optimal",
    "lowdim-few-dimensions",
    "split-semantics-invariant",
)
REGISTRY.sort(key=lambda claim: _FIRST.index(claim.id) if claim.id in _FIRST else len(_FIRST))
CLAIMS: tuple[Claim, ...] = tuple(claim for claim in REGISTRY if claim.kind != ANALYTIC)
FACTS: tuple[Claim, ...] = tuple(claim for claim in REGISTRY if claim.kind == ANALYTIC)

__all__ = [
    "ANALYTIC",
    "CLAIMS",
    "FACTS",
    "FAILS",
    "HOLDS",
    "JUDGED",
    "NUMBER",
    "OPEN",
    "ORIGINS",
    "OURS",
    "SENTENCE",
    "UNSETTLED",
    "UNTESTABLE",
    "UNTRAINED",
    "VERDICTS",
    "Claim",
    "evaluate",
]
