"""Claims of DSTG and TUPE about fine-tuned models: averages over the tasks of GLUE that all models of a claim have.

A model that is no better than with weights drawn anew decides nothing.
"""

from functools import partial

from ..gates import TAUGHT
from ..papers import GLUE_AVERAGES
from ..points import Point, average, largest
from .claim import Measured, claim
from .evidence import Evidence, Missing

COMPARABLE = 0.02  # of an average score: "comparable"; DSTG's own averages lie 0.00 to 0.03 apart (Table 7)
of_tasks = partial(claim, learned=0.0)


def _printed(better: str, *worse: str) -> float:
    """By how much the average printed of a model is above the best of others."""
    return round(GLUE_AVERAGES[better] - max(GLUE_AVERAGES[m] for m in worse), 4)


def _averages(e: Evidence) -> dict[str, Point]:
    """Average score of every model over the tasks that all have.

    Raises:
        Missing: no such task, no control, or a model that pre-training has not helped.
    """
    of_each = [set(e.table.distinct("part", "glue.score", model)) for model in e.models]
    tasks = sorted(str(task) for task in set.intersection(*of_each))
    if not tasks:
        raise Missing("no glue.score of a task that all of them have (whatwhere evaluate glue)")
    found = {}
    for model in e.models:
        found[model] = average([e.value("glue.score", model, part=task) for task in tasks])
        start = average([e.value("glue.score", model, part=task, step=0) for task in tasks])
        e.there(found[model] - start, TAUGHT, f"a gain of {model} over its untrained self, on average")
    e.remark(f"{len(tasks)} tasks: {', '.join(tasks)}")
    return found


def _above(e: Evidence, better: str, worse: str) -> Measured:
    scores = _averages(e)
    gain = scores[better] - scores[worse]
    return gain, gain >= 0


@of_tasks(
    "DSTG section 3.4, Table 7",
    *("dstg", "ap", "rp", "rope"),
    paper=_printed("dstg", "ap", "rp", "rope"),
)
def dstg_costs_no_glue(e: Evidence) -> Measured:
    """Separating the streams costs nothing on GLUE.
    The average score of dstg over the tasks that all have is at most {COMPARABLE} below the best of ap, rp and rope;
    the gap is shown. Every model is at least {TAUGHT} above its untrained self, else nothing is said."""
    scores = _averages(e)
    gap = scores["dstg"] - largest([scores[m] for m in ("ap", "rp", "rope")])
    return gap, gap >= -COMPARABLE


@of_tasks("TUPE section 4.2, Table 2", "tupe-a", "bert-a", paper=_printed("tupe-a", "bert-a"))
def tupe_a_beats_bert_a_on_glue(e: Evidence) -> Measured:
    """Untied absolute position helps on GLUE.
    The average score of tupe-a over the tasks that both have is not below that of bert-a; the gain is shown. Both are
    at least {TAUGHT} above their untrained selves, else nothing is said."""
    return _above(e, "tupe-a", "bert-a")


@of_tasks("TUPE section 4.2, Table 2", "tupe-r", "bert-r", paper=_printed("tupe-r", "bert-r"))
def tupe_r_beats_bert_r_on_glue(e: Evidence) -> Measured:
    """Untied relative position helps on GLUE.
    The average score of tupe-r over the tasks that both have is not below that of bert-r; the gain is shown. Both are
    at least {TAUGHT} above their untrained selves, else nothing is said."""
    return _above(e, "tupe-r", "bert-r")
