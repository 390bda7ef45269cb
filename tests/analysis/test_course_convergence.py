"""When a model is as good as another at its end: curves whose crossings are known, noise, and trainings that
diverged."""

import math

import pytest

from whatwhere.analysis.course import convergence_records, reached
from whatwhere.records.record import Record, select


def losses(model, curve, seed=0, part="validation"):
    return [Record("s", model, "loss", v, unit="nats", seed=seed, part=part, step=step) for step, v in curve]


def share(records, model, baseline, seed=0):
    found = select(records, metric="convergence.share", model=model, part=baseline, seed=seed)
    return found[0].value if found else None


def did_reach(records, model, baseline, seed=0):
    (found,) = select(records, metric="convergence.reached", model=model, part=baseline, seed=seed)
    return found.value


FAST = [(100, 5.0), (200, 4.0), (300, 3.0), (400, 2.5)]
SLOW = [(100, 6.0), (200, 5.0), (300, 4.0), (400, 3.5)]


def test_the_crossing_is_interpolated_between_validations():
    records = convergence_records(losses("fast", FAST) + losses("slow", SLOW), run_name="t")
    assert share(records, "fast", "slow") == pytest.approx(250 / 400)  # 3.5 lies half way from 4 to 3
    assert did_reach(records, "fast", "slow") == 1.0
    assert did_reach(records, "slow", "fast") == 0.0 and share(records, "slow", "fast") is None
    assert {(r.study, r.n, r.low, r.high, r.step) for r in records} == {("t", 4, None, None, None)}
    assert len(records) == 3


@pytest.mark.parametrize(
    ("curve", "loss", "expected"),
    [
        ([(10, 4.0), (20, 3.0)], 3.0, 20.0),  # just at the end
        ([(10, 4.0), (20, 3.0)], 2.9, None),
        ([(10, 4.0), (20, 3.0)], 4.0, 10.0),  # there at once: an upper bound
        ([(0, 9.0), (10, 4.0)], 6.5, 5.0),
        ([(10, 4.0), (20, 2.0), (30, 3.5), (40, 1.5)], 3.0, 32.5),  # a dip that does not stay
        ([(10, 4.0), (20, 2.0), (30, 3.5)], 3.0, None),
        ([(10, 4.0), (20, 3.0), (30, 3.0)], 3.0, 20.0),  # a plateau at the loss itself
        ([(10, 4.0), (20, math.nan)], 3.0, None),
        ([(10, 4.0), (20, math.nan), (30, 2.0)], 3.0, 30.0),
        ([(10, math.inf), (20, 2.0)], 3.0, 20.0),
        ([(10, 2.0)], 3.0, 10.0),
    ],
)
def test_a_step_counts_once_the_curve_stays_below(curve, loss, expected):
    assert reached(curve, loss) == (None if expected is None else pytest.approx(expected))


def test_shares_are_of_own_steps_per_seed():
    """Shares are of the models own steps and pairs of one seed."""
    longer = [(2 * step, loss) for step, loss in FAST]
    records = convergence_records(
        losses("fast", longer, seed=1)
        + losses("slow", SLOW, seed=1)
        + losses("slow", FAST, seed=2)
        + losses("lone", FAST, seed=3),
        run_name="t",
    )
    assert share(records, "fast", "slow", 1) == pytest.approx(500 / 800)
    assert {(r.model, r.part, r.seed) for r in records} == {("fast", "slow", 1), ("slow", "fast", 1)}


def test_equal_models_converge_at_the_last_step():
    """Of two models with equal losses, each reaches the other's final loss at its last step."""
    records = convergence_records(losses("a", FAST) + losses("b", FAST), run_name="t")
    assert share(records, "a", "b") == share(records, "b", "a") == 1.0


def test_order_repeats_and_other_records_do_not_matter():
    plain = convergence_records(losses("fast", FAST) + losses("slow", SLOW), run_name="t")
    others = losses("fast", [(400, 0.0)], part="train") + [Record("s", "fast", "loss", 0.0, part="validation", seed=0)]
    assert (
        convergence_records(
            losses("fast", FAST[::-1]) + others + losses("slow", SLOW) + losses("slow", SLOW), run_name="t"
        )
        == plain
    )


def test_diverged_trainings_reach_nothing_and_set_no_goal():
    """A training that diverged reaches nothing and is no goal."""
    records = convergence_records(losses("bad", [(100, 5.0), (200, math.nan)]) + losses("slow", SLOW), run_name="t")
    assert [(r.model, r.part, r.metric, r.value) for r in records] == [("bad", "slow", "convergence.reached", 0.0)]


def test_one_model_or_no_validation_has_no_records():
    assert convergence_records(losses("fast", FAST), run_name="t") == []
    assert convergence_records(losses("fast", FAST) + losses("slow", [(0, 9.0)]), run_name="t") == []
    assert convergence_records([], run_name="t") == []
