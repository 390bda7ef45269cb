"""The ledger of claims: what a paper says, a fixed rule that decides it, and the verdict from a run's records alone.

A claim is a row of `CLAIMS`, one file a paper. The thresholds say in numbers what the paper says in words; the paper's own printed
values meet every one of them. `docs/claims.md` lists them all (`python -m whatwhere.study.claims`), and says what was known when they
were set.
"""

from . import dstg, dstg_heads, geom, geom_models, lowdim_split, tupe
from .evidence import Missing
from .ledger import FAILS, HOLDS, OPEN, UNTESTABLE, Claim, Measured, evaluate

_FIRST = (
    dstg.POSITION_KEPT,
    dstg.AP_LOSES,
    dstg.TWO_DIMENSIONS,
    dstg.ROPE_LITTLE,
    dstg_heads.MOST_ABSOLUTE,
    dstg.FULL_MLM_LOSES,
    tupe.BEATS_BERT_A,
    geom.UNATTAINABLE,
    geom.ALIBI_RAW,
    geom.ALIBI_OPTIMAL,
    lowdim_split.LOW_DIMENSIONAL,
    lowdim_split.SEMANTICS_UNMOVED,
)

# Those that tell most come first: the cards of a page are the first six that its run measured.
CLAIMS: tuple[Claim, ...] = tuple(
    dict.fromkeys(
        (
            *_FIRST,
            *dstg.OTHERS,
            *dstg_heads.OTHERS,
            *tupe.OTHERS,
            *geom.CLAIMS,
            *geom_models.CLAIMS,
            *lowdim_split.LOWDIM_CLAIMS,
            *lowdim_split.SPLIT_CLAIMS,
        )
    )
)

__all__ = ["CLAIMS", "FAILS", "HOLDS", "OPEN", "UNTESTABLE", "Claim", "Measured", "Missing", "evaluate"]
