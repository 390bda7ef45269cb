"""The ledger of claims: what a paper says, a fixed rule that decides it, and the verdict from a run's records alone.

A claim is a function whose docstring is its rule, one file a paper; an analytic one counts for nothing. The thresholds
say in numbers what the paper says in words; the paper's own printed values meet every one of them. `docs/claims.md`
lists them all (`python -m whatwhere.claims`), and says what was known when they were set.
"""

from . import dstg, tupe, tasks, geom, lowdim, split  # noqa: F401, I001  (their order is that of the ledger)
from .claim import ANALYTIC, FAILS, HOLDS, OPEN, REGISTRY, UNSETTLED, UNTESTABLE, Claim, evaluate

# Those that tell most come first.
_FIRST = (
    "dstg-position-kept",
    "ap-loses-position",
    "dstg-2d-collapse",
    "rope-no-position",
    "dstg-most-heads-absolute",
    "dstg-full-mlm-loses-position",
    "tupe-a-beats-bert-a",
    "dstg-costs-no-loss",
    "geom-alibi-far-below-optimal",
    "lowdim-few-dimensions",
    "split-semantics-invariant",
)
REGISTRY.sort(key=lambda claim: _FIRST.index(claim.id) if claim.id in _FIRST else len(_FIRST))
CLAIMS: tuple[Claim, ...] = tuple(REGISTRY)

__all__ = ["ANALYTIC", "CLAIMS", "FAILS", "HOLDS", "OPEN", "UNSETTLED", "UNTESTABLE", "Claim", "evaluate"]
