"""Claims of DSTG and TUPE about what encoders are good for, by the paired differences of an evaluation.

A task on which training has helped some model of a claim too little decides nothing. Intervals are over the rows of the
tasks and, where there are several, seeds of fine-tunings or probes, of checkpoints over seeds of the fine-tuning alone:
of each model there is one training.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from ..papers import FLASH_HOLMES, GLUE_AVERAGES, GLUE_MID, HOLMES_BEST, MTEB_AVERAGES, SQUAD
from ..records.gates import TAUGHT
from ..records.table import Point, average, smallest
from .claim import Measured, claim
from .evidence import Evidence, Missing

EARLIEST = 0.2  # of the steps, for "30 %"
LATEST = 0.4
BETTER = 0.005  # of a score: half of the last digit printed
COMPARABLE = 0.02  # of an average score: "comparable"; DSTG's own averages lie 0.00 to 0.04 apart (Table 7)
RIVALS = ("ap", "rope", "rp")  # of dstg; the last where a run has it
_MODELS = ("dstg", "ap", "rope")
of_tasks = partial(claim, learned=0.0, control=False)


def _printed(averages: Mapping[str, float], better: str, *worse: str) -> float:
    """Return the lead of a model's printed average over the best of others."""
    return round(averages[better] - max(averages[m] for m in worse), 4)


def _lead(e: Evidence, family: str, *tasks: str) -> Point:
    """Return the lead of the first model of a claim over the best of the others, on average over tasks, by default
    their shared ones.

    Tasks on which training has not helped are left out, or, where they are named, refused.
    """
    others = [m for m in (RIVALS if e.model == "dstg" else e.models[1:]) if m in e.table.seeds]
    models = (e.model, *others)
    of_each = [set(e.table.distinct("part", f"{family}.score", model)) for model in models]
    paired = set(e.table.distinct("part", f"{family}.difference"))
    shared = [task for task in sorted(set.intersection(*of_each) & paired) if not tasks or task in tasks]
    if not shared or len(shared) < len(tasks):
        names = " and ".join(tasks) or "a task that all of them have"
        raise Missing(f"no {family}.score of {names}, paired (whatwhere evaluate {family})")
    taught = _taught(e, family, models, shared, bool(tasks))
    e.note = f"beside {', '.join(others)}; {e.note}"
    e.over = "rows of the tasks and, where there are several, seeds"
    leads = ([e.beside(family, e.model, other, task) for task in taught] for other in others)
    return smallest(average(of_tasks, on_other_rows=True) for of_tasks in leads)


def _taught(e: Evidence, family: str, models: Sequence[str], tasks: Sequence[str], every: bool = False) -> list[str]:
    """Return the tasks on which training has helped all models, and note them; refused without any, or where every task
    is needed."""
    gains = {t: min((e.taught(family, m, t) for m in models), key=_lowest) for t in tasks} if e.step is None else {}
    taught = [task for task in tasks if task not in gains or _lowest(gains[task]) > (True, 0)]
    if not taught or (every and len(taught) < len(tasks)):
        task, least = min(gains.items(), key=lambda gain: _lowest(gain[1]))
        bounds = "" if least.low is None else f" [{least.low:.2g}, {least.high:.2g}]"
        raise Missing(
            f"needs a gain of {TAUGHT:g} of every model over its untrained self, and an interval above 0; on {task} it "
            f"is {least.value:.2g}{bounds}"
        )
    left = ", ".join(task for task in tasks if task not in taught)
    e.note = ", ".join(taught) + (f", without {left}, where training helped too little" if left else "")
    return taught


def _lowest(gain: Point) -> tuple[bool, float]:
    """Return whether a gain is large enough to count, and its lower end: both must support it."""
    return gain.value >= TAUGHT, gain.value if gain.low is None else gain.low


@of_tasks("DSTG section 3.4, Table 7", *_MODELS, paper=_printed(GLUE_AVERAGES, "dstg", *RIVALS))
def dstg_costs_no_glue(e: Evidence) -> Measured:
    """Separating the streams costs nothing on GLUE.
    The score of dstg, on average over the tasks that all have, is at most {COMPARABLE} below the best of ap,
    rope and, where it is there, rp; the gap is shown, paired by rows. Tasks on which some of them is not {TAUGHT} above
    its untrained self, with an interval above 0, do not count."""
    return _lead(e, "glue") >= -COMPARABLE


@of_tasks(
    "DSTG section 3.4, Table 1",
    *_MODELS,
    paper=_printed({model: f1 for (metric, model), f1 in SQUAD.items() if metric == "squad.f1"}, "dstg", *RIVALS),
)
def dstg_costs_no_squad(e: Evidence) -> Measured:
    """Separating the streams costs nothing in finding answers.
    The F1 of dstg on SQuAD 1.1 is at most {COMPARABLE} below the best of ap, rope and, where it is there, rp;
    the gap is shown, paired by questions. Each of them is {TAUGHT} above its untrained self, with an interval above 0,
    else not testable."""
    return _lead(e, "squad", "squad") >= -COMPARABLE


@of_tasks("DSTG section 3.4, Table 8", *_MODELS, paper=_printed(MTEB_AVERAGES, "dstg", *RIVALS))
def dstg_costs_no_mteb(e: Evidence) -> Measured:
    """Separating the streams costs nothing in vectors of texts.
    The main score of dstg (mean of all tokens), on average over the tasks that all have, is at most {COMPARABLE} below
    the best of ap, rope and, where it is there, rp; the gap is shown, paired by rows. Tasks on which some of
    them is not {TAUGHT} above its untrained self, with an interval above 0, do not count. The paper's average is over
    types of tasks."""
    return _lead(e, "mteb") >= -COMPARABLE


@of_tasks("TUPE section 4.2, Table 2", "tupe-a", "bert-a", paper=_printed(GLUE_AVERAGES, "tupe-a", "bert-a"))
def tupe_a_beats_bert_a_on_glue(e: Evidence) -> Measured:
    """Untied absolute position helps on GLUE.
    The score of tupe-a, on average over the tasks that both have, is not below bert-a's; the gain is shown,
    paired by rows. Tasks on which one of them is not {TAUGHT} above its untrained self, with an interval above 0,
    do not count. The paper's average has QQP's accuracy and both parts of MNLI."""
    return _lead(e, "glue") >= 0


@of_tasks("TUPE section 4.2, Table 2", "tupe-r", "bert-r", paper=_printed(GLUE_AVERAGES, "tupe-r", "bert-r"))
def tupe_r_beats_bert_r_on_glue(e: Evidence) -> Measured:
    """Untied relative position helps on GLUE.
    The score of tupe-r, on average over the tasks that both have, is not below bert-r's; the gain is shown,
    paired by rows. Tasks on which one of them is not {TAUGHT} above its untrained self, with an interval above 0,
    do not count. The paper's average has QQP's accuracy and both parts of MNLI."""
    return _lead(e, "glue") >= 0


@of_tasks("TUPE section 4.2, Table 2", "tupe-a", "bert-a", paper=_printed(GLUE_AVERAGES, "tupe-a-mid", "bert-a"))
def tupe_a_30_percent_on_glue(e: Evidence) -> Measured:
    """On GLUE, TUPE needs 30 % of the steps.
    The score of tupe-a after the checkpoint nearest to {GLUE_MID} of its steps (from {EARLIEST} to {LATEST}; the last
    checkpoint that has a score is the end), on average over the tasks that both have, is not below bert-a's at
    the end; the gain is shown, over seeds of the fine-tuning. Tasks on which one of them is not {TAUGHT} above its
    untrained self, with an interval above 0, do not count. The paper's average has QQP's accuracy and both parts of
    MNLI."""
    baseline = e.models[1]
    scored = e.table.points("glue.score", e.model, by=("part", "step"))
    last = max((step for _, step in scored), default=0)
    early = min((step for _, step in scored), key=lambda step: abs(step - GLUE_MID * last), default=0)
    ends = set(e.table.distinct("part", "glue.score", baseline, step=None))
    shared = sorted(task for task, step in scored if step == early and task in ends)
    if not shared or not 0 < EARLIEST * last <= early <= LATEST * last:
        where = f"{e.model} at 30 % of its steps and at the last"
        raise Missing(f"no glue.score of {where}, and of {baseline} (whatwhere evaluate glue --checkpoints)")
    taught = _taught(e, "glue", e.models, shared)
    e.note = f"after {early:,} of {last:,} steps; {e.note}"
    e.over = "seeds of the fine-tuning" if len(e.seeds) > 1 else ""
    end = {task: e.value("glue.score", baseline, part=task) for task in taught}
    gains = [e.value("glue.score", part=task, step=early) - end[task] for task in taught]
    return average(gains, on_other_rows=True) >= 0


# Linear probes: section 5.4. The paper's data are Flash-Holmes'; ours make the same questions of UD and text.


def _both(e: Evidence, *tasks: str) -> Measured:
    leads = []
    notes = []
    for task in tasks:
        leads.append(_lead(e, "linguistic", task))
        notes.append(e.note)
    e.note = "; ".join(notes)
    return smallest(leads) >= 0


def _least_lead(*tasks: str) -> float:
    of_task = ({model: HOLMES_BEST[task, model] for model in ("dstg", *RIVALS)} for task in tasks)
    return min(_printed(scores, "dstg", *RIVALS) for scores in of_task)


_SYNTAX = ("pos", "constituents")
_STRUCTURE = ("sentence-order", "readability")


@of_tasks("DSTG section 5.4, Table 6", *_MODELS, paper=_least_lead(*_SYNTAX))
def dstg_keeps_more_syntax(e: Evidence) -> Measured:
    """Separate streams keep more of syntax.
    Linear probes of dstg, both streams together, each after the last block that trains it (position: the last but one),
    have more parts of speech and sequences of top constituents right than ap's, rope's and, where it is there, rp's;
    the smaller of the two leads over the best of them is shown, paired by sentences. Each of them is {TAUGHT} above its
    untrained self on both, with an interval above 0, else not testable. Accuracy on UD English-EWT here, F1 on
    Flash-Holmes there."""
    return _both(e, *_SYNTAX)


@of_tasks("DSTG section 5.4, Table 6", *_MODELS, paper=_least_lead(*_STRUCTURE))
def dstg_keeps_more_structure(e: Evidence) -> Measured:
    """Separate streams keep more of a text's structure.
    Linear probes of dstg, both streams together, each after the last block that trains it (position: the last but one),
    tell the order of sentences and readability better than ap's, rope's and, where it is there, rp's; the smaller of
    the two leads over the best of them is shown, paired by rows. Each of them is {TAUGHT} above its untrained self on
    both, with an interval above 0, else not testable. Paragraphs of a corpus here, Flash-Holmes there."""
    return _both(e, *_STRUCTURE)


FIELDS = ("morphology", "reasoning", "semantics", "discourse", "syntax")  # of Flash-Holmes


def _field_lead(e: Evidence, field: str) -> Point:
    """Return the lead of the first model's mean of a field over the best of its rivals'."""
    models = (e.model, *(m for m in RIVALS if m in e.table.seeds))
    scores = [e.value("holmes.field", model, part=field) for model in models]
    if e.step is None:
        for model, score in zip(models, scores, strict=True):
            gain = score - e.value("holmes.field", model, part=field, step=0)
            e.require(gain, TAUGHT, f"a gain of {model} over its untrained self in {field}")
    return smallest([scores[0] - score for score in scores[1:]])


@of_tasks(
    "DSTG section 5.4, Table 5",
    *_MODELS,
    paper=min(_printed({m: FLASH_HOLMES[field, m] for m in ("dstg", *RIVALS)}, "dstg", *RIVALS) for field in FIELDS),
)
def dstg_better_in_all_fields(e: Evidence) -> Measured:
    """Separate streams know more in all five fields.
    Mean score of dstg on Flash-Holmes, less the score of the best of ap, rope and, where it is there, rp, is at least
    {BETTER} in each of morphology, reasoning, semantics, discourse and syntax; the smallest lead is shown. Each of them
    is {TAUGHT} above its untrained self in each field, else not testable. Means of fields have no interval."""
    return smallest([_field_lead(e, field) for field in FIELDS]) >= BETTER
