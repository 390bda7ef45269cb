"""Claims of DSTG and TUPE about what encoders are good for: averages over the tasks that all models of a claim have.

A model that is no better than with weights drawn anew decides nothing.
"""

from collections.abc import Mapping
from functools import partial

from ..gates import TAUGHT
from ..papers import GLUE_AVERAGES, HOLMES_BEST, MTEB_AVERAGES, SQUAD
from ..points import Point, average, largest, smallest
from .claim import Measured, claim
from .evidence import Evidence, Missing

COMPARABLE = 0.02  # of an average score: "comparable"; DSTG's own averages lie 0.00 to 0.03 apart (Table 7)
of_tasks = partial(claim, learned=0.0)


RIVALS = ("ap", "rp", "rope")


def _printed(averages: Mapping[str, float], better: str, *worse: str) -> float:
    """By how much the average printed of a model is above the best of others."""
    return round(averages[better] - max(averages[m] for m in worse), 4)


def _averages(e: Evidence, metric: str = "glue.score") -> dict[str, Point]:
    """Average score of every model over the tasks that all have.

    Raises:
        Missing: no such task, no control, or a model that pre-training has not helped.
    """
    of_each = [set(e.table.distinct("part", metric, model)) for model in e.models]
    tasks = sorted(str(task) for task in set.intersection(*of_each))
    if not tasks:
        family = metric.partition(".")[0]
        raise Missing(f"no {metric} of a task that all of them have (whatwhere evaluate {family})")
    found = {}
    for model in e.models:
        found[model] = average([e.value(metric, model, part=task) for task in tasks])
        start = average([e.value(metric, model, part=task, step=0) for task in tasks])
        e.there(found[model] - start, TAUGHT, f"a gain of {model} over its untrained self, on average")
    e.remark(f"{len(tasks)} tasks: {', '.join(tasks)}")
    return found


def _gap(e: Evidence, metric: str) -> Measured:
    scores = _averages(e, metric)
    gap = scores["dstg"] - largest([scores[m] for m in RIVALS])
    return gap, gap >= -COMPARABLE


def _above(e: Evidence, better: str, worse: str) -> Measured:
    scores = _averages(e)
    gain = scores[better] - scores[worse]
    return gain, gain >= 0


@of_tasks("DSTG section 3.4, Table 7", "dstg", *RIVALS, paper=_printed(GLUE_AVERAGES, "dstg", *RIVALS))
def dstg_costs_no_glue(e: Evidence) -> Measured:
    """Separating the streams costs nothing on GLUE.
    The average score of dstg over the tasks that all have is at most {COMPARABLE} below the best of ap, rp and rope;
    the gap is shown. Every model is at least {TAUGHT} above its untrained self, else nothing is said."""
    return _gap(e, "glue.score")


@of_tasks(
    "DSTG section 3.4, Table 1",
    "dstg",
    *RIVALS,
    paper=_printed({model: f1 for (metric, model), f1 in SQUAD.items() if metric == "squad.f1"}, "dstg", *RIVALS),
)
def dstg_costs_no_squad(e: Evidence) -> Measured:
    """Separating the streams costs nothing in finding answers.
    The average F1 of dstg over the tasks that all have is at most {COMPARABLE} below the best of ap, rp and rope; the
    gap is shown. Every model is at least {TAUGHT} above its untrained self, else nothing is said."""
    return _gap(e, "squad.score")


@of_tasks("DSTG section 3.4, Table 8", "dstg", *RIVALS, paper=_printed(MTEB_AVERAGES, "dstg", *RIVALS))
def dstg_costs_no_mteb(e: Evidence) -> Measured:
    """Separating the streams costs nothing in vectors of texts.
    The average main score of dstg (mean of all tokens) over the tasks that all have is at most {COMPARABLE} below the
    best of ap, rp and rope; the gap is shown. Every model is at least {TAUGHT} above its untrained self, else nothing
    is said."""
    return _gap(e, "mteb.score")


@of_tasks("TUPE section 4.2, Table 2", "tupe-a", "bert-a", paper=_printed(GLUE_AVERAGES, "tupe-a", "bert-a"))
def tupe_a_beats_bert_a_on_glue(e: Evidence) -> Measured:
    """Untied absolute position helps on GLUE.
    The average score of tupe-a over the tasks that both have is not below that of bert-a; the gain is shown. Both are
    at least {TAUGHT} above their untrained selves, else nothing is said."""
    return _above(e, "tupe-a", "bert-a")


@of_tasks("TUPE section 4.2, Table 2", "tupe-r", "bert-r", paper=_printed(GLUE_AVERAGES, "tupe-r", "bert-r"))
def tupe_r_beats_bert_r_on_glue(e: Evidence) -> Measured:
    """Untied relative position helps on GLUE.
    The average score of tupe-r over the tasks that both have is not below that of bert-r; the gain is shown. Both are
    at least {TAUGHT} above their untrained selves, else nothing is said."""
    return _above(e, "tupe-r", "bert-r")


# What linear probes read: section 5.4. The paper's data are Flash-Holmes'; ours make the same questions of UD and text.


def _leads(e: Evidence, *tasks: str) -> Measured:
    leads = []
    for task in tasks:
        scores = {model: e.value("linguistic.score", model, part=task) for model in e.models}
        for model, score in scores.items():
            start = e.value("linguistic.score", model, part=task, step=0)
            e.there(score - start, TAUGHT, f"a gain of {model} over its untrained self on {task}")
        leads.append(scores["dstg"] - largest([scores[m] for m in RIVALS]))
    least = smallest(leads)
    return least, least >= 0


def _least_lead(*tasks: str) -> float:
    leads = (HOLMES_BEST[task, "dstg"] - max(HOLMES_BEST[task, m] for m in RIVALS) for task in tasks)
    return round(min(leads), 4)


_SYNTAX, _STRUCTURE = ("pos", "constituents"), ("sentence-order", "readability")


@of_tasks("DSTG section 5.4, Table 6", "dstg", *RIVALS, paper=_least_lead(*_SYNTAX))
def dstg_keeps_more_syntax(e: Evidence) -> Measured:
    """Separate streams keep more of syntax.
    Linear probes of the last layer of dstg, both streams together, have more parts of speech and sequences of top
    constituents right than those of ap, rp and rope; the smaller of the two leads over the best of them is shown. Every
    model is at least {TAUGHT} above its untrained self on both, else nothing is said. UD English-EWT here, Flash-Holmes
    there."""
    return _leads(e, *_SYNTAX)


@of_tasks("DSTG section 5.4, Table 6", "dstg", *RIVALS, paper=_least_lead(*_STRUCTURE))
def dstg_keeps_more_structure(e: Evidence) -> Measured:
    """Separate streams keep more of a text's structure.
    Linear probes of the last layer of dstg, both streams together, tell the order of sentences and readability better
    than those of ap, rp and rope; the smaller of the two leads over the best of them is shown. Every model is at least
    {TAUGHT} above its untrained self on both, else nothing is said. Paragraphs of a corpus here, Flash-Holmes there."""
    return _leads(e, *_STRUCTURE)
