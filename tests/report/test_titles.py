"""Titles: a claim with its verdict, or a plain name with two numbers; caveats by fixed rules."""

import pytest

from whatwhere.records.record import Record
from whatwhere.records.table import Point
from whatwhere.report.loaded_run import Run, load_run
from whatwhere.report.titles import (
    ABOVE,
    BELOW,
    UNCLEAR,
    against,
    best,
    caveats,
    claimed,
    compare,
    join_sentences,
    losses,
    mark,
    rise,
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
        ("holds here", "The stream keeps position (R² 0.870 [0.850, 0.890], paper 0.92)"),
        ("not seen here", "Not seen here: the stream keeps position (R² 0.870 [0.850, 0.890], paper 0.92)"),
        ("not separable", "Not separable: the stream keeps position (R² 0.870 [0.850, 0.890], paper 0.92)"),
        (
            "holds untrained too",
            "An untrained model does it too: the stream keeps position (R² 0.870 [0.850, 0.890], paper 0.92)",
        ),
    ],
)
def test_a_claim_leads_with_its_verdict(verdict, title):
    assert claimed(Run("r", claims=[CLAIM | {"verdict": verdict}]), "none", "kept", what="R²") == title


@pytest.mark.parametrize("field", [{"value": None}, {"verdict": "not settled"}, {"verdict": "not testable here"}])
def test_a_claim_that_is_not_judged_is_no_title(field):
    # "Not settled, so far not seen: the position stream keeps position" stood over a line that was nearly flat.
    assert claimed(Run("r", claims=[CLAIM | field]), "kept") is None and claimed(Run("r"), "kept") is None


A, B, NEAR = (Point.between(v, v - 0.01, v + 0.01) for v in (0.9, 0.5, 0.89))


def test_differences_are_told_by_the_interval_of_the_difference():
    assert (compare(A, B), compare(B, A), compare(A, NEAR)) == (ABOVE, BELOW, UNCLEAR)
    assert compare(Point.between(1.0), Point.between(0.0)) == UNCLEAR
    assert [against(A, t) for t in (0.5, 0.895, 0.95)] == [ABOVE, UNCLEAR, BELOW]
    paired = Point.of([[0.5, 0.7, 0.6]]), Point.of([[0.4, 0.6, 0.501]])  # far more apart within splits than between
    assert compare(*paired) == ABOVE


def test_a_plain_name_has_two_numbers_and_its_marks():
    assert best({"a": B, "b": A}, "R²") == "R²: b 0.900, a 0.500"
    assert best({"a": NEAR, "b": A}, "R²") == "R² (not separable): b 0.900, a 0.890"
    assert (
        best({"a": NEAR, "b": A}, "R²", mark="still learning") == "R² (still learning, not separable): b 0.900, a 0.890"
    )
    assert best({"a": B, "b": A}, "Loss", lowest=True) == "Loss: a 0.500, b 0.900"
    assert best({"a": Point.between(1.0), "b": Point.between(2.0)}, "Rank") == "Rank: b 2, a 1"
    assert best({"a": A}, "R²") == "R²: a 0.900" and best({}, "R²") == "R²"


def test_a_rise_has_its_sign():
    assert [rise(Point.between(v)) for v in (0.467, -0.2)] == ["+0.467 nats", "−0.200 nats"]


def stuck(*finals, level=5.0):
    place = {"study": "s", "seed": 0, "part": "validation"}
    records = [Record(metric="loss", model=f"m{i}", value=v, **place) for i, v in enumerate(finals)]
    return Run("r", records=[*records, Record("s", "", "loss.unigram", level)])


def test_a_model_on_the_plateau_supports_no_finding():
    run = stuck(4.95, 4.0)
    assert run.stuck == ["m0"]
    assert mark(run, "m1", "m0") == "too little learned" and mark(run, "m1") == ""
    assert (
        losses(run) == "Loss of all held-out tokens: `m1` 4.00 nats, `m0` 4.95 nats; `m0` stays on the unigram plateau"
    )
    assert losses(stuck(5.0, 4.99)) == "No model leaves the unigram plateau of 5.00 nats"


@pytest.mark.parametrize(("seeds", "told"), [((0,), " One training seed: "), ((0, 1, 2), " 3 training seeds: ")])
def test_caveats_say_what_small_runs_cannot(build, seeds, told):
    """Caveats say what a run is too small to say."""
    (banner,) = caveats(load_run(build(models=("ap",), seeds=seeds)))
    assert banner.startswith("A small run: 4.51M training tokens a model, where DSTG has 9.18B.") and told in banner


def test_the_banner_names_undertrained_models():
    """The banner says who still learns and who has learned too little."""

    def loss(model, value, step):
        return Record("s", model, "loss", value, seed=0, part="validation", step=step)

    courses = {"a": (4.5, 3.0), "b": (3.02, 3.0), "c": (4.81, 4.8)}
    records = [Record("s", "", "loss.unigram", 5.0)]
    records += [loss(m, v, step) for m, of in courses.items() for v, step in zip(of, (90, 100), strict=True)]
    (banner,) = caveats(Run("s", {"models": [{"name": m} for m in courses]}, records))
    assert "`c` has learned too little beside the best." in banner
    assert "`a` is still learning (1.50 nats in the last tenth of the steps): train longer." in banner
    assert mark(Run("s", {}, records), "a") == "still learning"


def test_of_many_only_the_first_are_named():
    assert join_sentences({n: "x" for n in "abcde"}) == "`a` x; `b` x; `c` x; 2 more below"
