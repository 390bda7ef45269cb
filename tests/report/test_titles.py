"""Titles: a claim with its verdict, or one comparison by its interval; caveats by fixed rules."""

import pytest

from whatwhere.records.record import Record
from whatwhere.records.table import Point
from whatwhere.report.folder import Run, load_run
from whatwhere.report.titles import (
    ABOVE,
    BELOW,
    UNCLEAR,
    against,
    best,
    caveats,
    claimed,
    compare,
    each,
    judged,
    losses,
)

CLAIM = {
    "id": "kept",
    "claim": "The stream keeps position",
    "verdict": "holds here",
    "value": 0.87,
    "low": 0.85,
    "high": 0.89,
    "paper_value": 0.92,
}


@pytest.mark.parametrize(
    ("verdict", "title"),
    [
        ("holds here", "The stream keeps position: R² 0.870 [0.850, 0.890], paper 0.92"),
        ("not seen here", "Not seen here: the stream keeps position: R² 0.870 [0.850, 0.890], paper 0.92"),
        ("not separable", "Not separable: the stream keeps position: R² 0.870 [0.850, 0.890], paper 0.92"),
        ("not testable here", "Not testable here: the stream keeps position: R² 0.870 [0.850, 0.890], paper 0.92"),
    ],
)
def test_a_claim_leads_with_its_verdict(verdict, title):
    assert claimed(Run("r", claims=[CLAIM | {"verdict": verdict}]), "none", "kept", what="R²") == title


def test_an_unmeasured_claim_is_no_title():
    assert claimed(Run("r", claims=[CLAIM | {"value": None}]), "kept") is None and claimed(Run("r"), "kept") is None


A, B, NEAR = (Point.between(v, v - 0.01, v + 0.01) for v in (0.9, 0.5, 0.89))


def test_differences_are_told_by_the_interval_of_the_difference():
    assert (compare(A, B), compare(B, A), compare(A, NEAR)) == (ABOVE, BELOW, UNCLEAR)
    assert compare(Point.between(1.0), Point.between(0.0)) == UNCLEAR
    assert [against(A, t) for t in (0.5, 0.895, 0.95)] == [ABOVE, UNCLEAR, BELOW]
    paired = Point.of([[0.5, 0.7, 0.6]]), Point.of([[0.4, 0.6, 0.501]])  # far more apart within splits than between
    assert compare(*paired) == ABOVE


def test_the_best_is_named_beside_the_next():
    assert best({"a": B, "b": A}, "Read best from") == "Read best from b (0.900), then a (0.500)"
    assert best({"a": NEAR, "b": A}, "Read best from") == "Not separable: read best from b (0.900) or a (0.890)"
    assert best({"a": B, "b": A}, "Lowest in", lowest=True).startswith("Lowest in a")
    assert (
        best({"a": Point.between(1.0), "b": Point.between(2.0)}, "Most in") == "Most in b (2), then a (1); no interval"
    )
    assert best({"a": A}, "Read best from") == "Read best from a: 0.900" and best({}, "Read") == "Read"
    assert (
        best({"a": A}, "On rte the best is") == "On rte a has 0.900" and best({"a": A}, "The best is") == "a has 0.900"
    )


def stuck(*finals, level=5.0):
    place = {"study": "s", "seed": 0, "part": "validation"}
    records = [Record(metric="loss", model=f"m{i}", value=v, **place) for i, v in enumerate(finals)]
    return Run("r", records=[*records, Record("s", "", "loss.unigram", level)])


def test_a_model_on_the_plateau_supports_no_finding():
    run = stuck(4.95, 4.0)
    assert run.stuck == ["m0"]
    # "Not testable, `m0` has learned too little: 0.9" did not say what 0.9 is of.
    told = "Not testable yet, `m0` has learned too little; so far it is read best: 0.9"
    assert judged(run, ["m0"], "It is read best: 0.9") == told
    assert judged(run, ["m1"], "It is read best: 0.9") == "It is read best: 0.9"
    assert losses(run).startswith("`m0` stays on the unigram plateau; the loss ends lowest with `m1`")
    assert losses(stuck(5.0, 4.99)) == "No model leaves the unigram plateau of 5.00 nats"


@pytest.mark.parametrize(("seeds", "told"), [((0,), " One training seed: "), ((0, 1, 2), " 3 training seeds: ")])
def test_caveats_say_what_a_run_is_too_small_to_say(build, seeds, told):
    (banner,) = caveats(load_run(build(models=("ap",), seeds=seeds)))
    assert banner.startswith("A small run: 4.51M training tokens a model, where DSTG has 9.18B.") and told in banner


def test_the_banner_says_who_still_learns_and_who_has_learned_too_little():
    def loss(model, value, step):
        return Record("s", model, "loss", value, seed=0, part="validation", step=step)

    courses = {"a": (4.5, 3.0), "b": (3.02, 3.0), "c": (4.81, 4.8)}
    records = [Record("s", "", "loss.unigram", 5.0)]
    records += [loss(m, v, step) for m, of in courses.items() for v, step in zip(of, (90, 100), strict=True)]
    (banner,) = caveats(Run("s", {"models": [{"name": m} for m in courses]}, records))
    assert "`c` has learned too little beside the best." in banner
    assert "`a` still learns (1.50 nats in the last tenth of the steps): more steps would settle it." in banner


def test_of_many_only_the_first_are_named():
    assert each({n: "x" for n in "abcde"}) == "`a` x; `b` x; `c` x; 2 more below"
