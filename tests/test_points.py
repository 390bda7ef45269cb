"""Points and the table of records: seeds and splits summed up, differences paired, a query that names what it leaves
open."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whatwhere.records.intervals import hierarchical, seed_interval, smallest_effect, split_interval
from whatwhere.records.metric import READ, UNIT
from whatwhere.records.record import Record
from whatwhere.records.table import (
    ANY,
    Margin,
    Point,
    Table,
    average,
    curve,
    highest,
    largest,
    running_sums,
    smallest_difference,
    summary,
)


def r2(value, seed=0, index=None, low=None, high=None, layer=1, model="ap", part="all", **more):
    return Record(
        "s", model, "r2.token", value, low, high, seed=seed, index=index, layer=layer, part=part, n=10, **more
    )


def test_one_seed_keeps_the_records_interval():
    point = summary([r2(0.5, low=0.4, high=0.65)])
    assert (point.value, point.low, point.high, point.over, point.seeds, point.n) == (
        0.5,
        0.4,
        0.65,
        "documents",
        1,
        10,
    )


def test_splits_have_the_corrected_interval():
    splits = [0.45, 0.55, 0.5]
    point = summary([r2(0.5, low=0.0, high=1.0), *(r2(v, index=i) for i, v in enumerate(splits))])
    assert (point.low, point.high) == pytest.approx(split_interval(splits, span=READ)) and point.over == "splits"


def test_several_seeds_give_the_student_interval_between_seeds():
    values = [3.5, 3.6, 3.55]
    point = summary([Record("s", "ap", "loss", v, seed=i) for i, v in enumerate(values)])
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (point.low, point.high) == pytest.approx((low, high)) and point.over == "seeds" and point.seeds == 3
    assert point.few == values
    shares = summary([r2(v, seed=i) for i, v in enumerate((0.35, 0.23, 0.67))])
    assert (shares.low, shares.high) == pytest.approx(seed_interval([0.35, 0.23, 0.67], READ))
    assert -0.06 < shares.low < 0.02 and 0.8 < shares.high < 0.9  # Student's: [-0.15, 0.98]


def test_intervals_hold_seeds_and_documents():
    """Seeds and documents are both in the interval where both are known."""
    seeds = [r2(v, seed=i, low=v - 0.2, high=v + 0.2) for i, v in enumerate((0.5, 0.6, 0.55))]
    both = summary(seeds)
    alone = summary([r2(v, seed=i) for i, v in enumerate((0.5, 0.6, 0.55))])
    assert both.over == "seeds and documents" and both.low < alone.low and both.high > alone.high
    splits = summary([r2(0.5 + 0.1 * s + 0.02 * i, seed=s, index=i) for s in range(3) for i in range(5)])
    assert splits.over == "seeds and splits"
    assert splits.interval == pytest.approx(hierarchical(splits.at, READ, documents=500))
    losses = np.random.default_rng(0).normal(3.4, 0.3, (3, 40))
    places = np.ndindex(losses.shape)
    document = [Record("s", "ap", "loss.document", losses[s, i], seed=s, index=i) for s, i in places]
    assert summary(document).interval == pytest.approx(hierarchical(losses)) and summary(document).few


def test_draws_of_each_seed_enter_the_spread():
    """What every seed draws for itself is in the spread of the seeds."""
    rows = [Record("s", "ap", "equivariance.null", v, v - 0.1, v + 0.1, seed=i) for i, v in enumerate((0.5, 0.6, 0.55))]
    assert summary(rows).over == "seeds" and summary(rows[:1]).interval == pytest.approx((0.4, 0.6))


def test_four_seeds_are_not_few():
    """Four seeds are no few and tables alone no seeds."""
    assert Point.of([[0.1], [0.2], [0.3], [0.4]]).few == [] and Point.of([[0.1]]).few == []
    assert replace(Point.of([[0.1], [0.2]]), trained=False).few == []


def test_ranges_follow_arithmetic():
    share = Point.of([[0.2], [0.9]], span=UNIT)
    other = Point.of([[0.3], [0.1]], span=UNIT)
    loss = Point.of([[3.0], [3.1]])
    assert (share - other).span == (-1, 1) and (share + other).span == (0, 2) and (-share).span == (-1, 0)
    assert (1 - share).span == UNIT and (100 * share).span == (0, 100) and (share / other).span == (0, np.inf)
    assert (share - 0.5).span == (-0.5, 0.5) and (share - loss).span == (-np.inf, np.inf)
    assert largest([share, other - 0.5]).span == (-0.5, 1) and average([share, other]).span == UNIT
    sums = running_sums({0: share, 1: 0.1 * share + 0 * other})
    assert sums[0].span == UNIT
    for point in (share - other, share + other, 1 - share, 100 * share, share / other, share - 0.5):
        low, high = point.interval
        assert point.span[0] <= low <= point.value <= high <= point.span[1]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=4), st.floats(0, 1))
def test_share_margins_stay_in_range(pairs, bar):
    """Margins of shares stay where differences can be and agree with the interval."""
    a, b = (Point.of([[v] for v in values], span=UNIT) for values in zip(*pairs, strict=True))
    for point, (least, most) in ((a - b, (-1, 1)), (a >= b, (-1, 1)), (a <= 0.75 * b, (-1, 1)), (a >= bar, (-bar, 1))):
        assert least - 1e-9 <= point.low <= point.high <= most + 1e-9
    assert (a >= bar).interval == pytest.approx((a.low - bar, a.high - bar), abs=1e-9)


def test_difference_intervals_are_cut_at_the_possible():
    """Recorded intervals of differences are cut at what is possible."""
    a, b = (summary([r2(v, low=max(0, v - 0.4), high=min(1, v + 0.4))]) for v in (0.95, 0.05))
    assert (a - b).high <= 1 and (a - b).low == pytest.approx(0.9 - np.hypot(0.4, 0.4))
    assert (b - a).low >= -1
    assert summary([r2(0.9, low=0.5, high=1.3)]).high == 1  # as records of earlier versions have them


def test_the_smallest_difference_has_the_points_unit():
    """The smallest difference is in the unit of the points."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=(3, 1))
    models = [Point.of(base + rng.normal(0, 0.1, (3, 1))) for _ in range(40)]
    seeds, size = smallest_difference([models])
    assert seeds == 3 and size == pytest.approx(smallest_effect(3) * 0.1 * np.sqrt(2), rel=0.2)
    assert smallest_difference([models], paired=False)[1] > 2 * size  # of one model: what seeds have in common too
    assert smallest_difference([[Point.of([[1.0]])]]) is None and smallest_difference([[models[0]]]) is None


def test_every_place_counts_in_the_smallest_difference():
    """One place of two seeds hid the variances of all places of three."""
    wide = [Point.of([[v] for v in values]) for values in ((0.0, 10.0, 20.0), (5.0, 3.0, 1.0))]
    calm = [Point.of([[v] for v in values]) for values in ((0.0, 0.01), (0.005, 0.0))]
    seeds, size = smallest_difference([wide, calm])
    spread = [np.var([-5.0, 7.0, 19.0], ddof=1), np.var([-0.005, 0.01], ddof=1)]
    assert seeds == 2 and size == pytest.approx(smallest_effect(2) * np.sqrt(np.mean(spread)))


def test_values_that_are_not_finite_are_left_out():
    assert Table([r2(float("nan"))]).point("r2.token", "ap", layer=1, part="all") is None
    assert summary([r2(0.5, low=float("nan"), high=0.6)]).low is None


def test_of_two_records_in_one_place_the_later_counts():
    assert summary([r2(0.5), r2(0.7)]).value == 0.7
    assert summary([r2(0.1, index=2), r2(0.3, index=2)]).value == 0.3


def test_seeds_of_other_splits_use_their_own_values():
    """Seeds with other splits are summed up by their own values."""
    rows = [r2(0.5), r2(0.4, index=0), r2(0.6, index=1), r2(0.9, seed=1), r2(0.9, seed=1, index=0)]
    assert summary(rows).at.tolist() == [[0.5], [0.9]]


def test_a_difference_is_paired_by_seed_and_split():
    rng = np.random.default_rng(0)
    common = rng.standard_normal((1, 5))
    a = Point.of(common + 1 + 0.01 * rng.standard_normal((1, 5)))
    b = Point.of(common)
    assert (a - b).interval == pytest.approx(split_interval((a.at - b.at)[0])) and (a - b).low > 0.9
    seeds = Point.of(rng.standard_normal((3, 5)))
    assert (seeds - 2 * seeds).interval == pytest.approx(hierarchical(-seeds.at, documents=500))


def test_a_difference_takes_the_seeds_that_both_have():
    """Three seeds less two, or seeds 1 and 2 less 0 and 1, were taken for independent or paired by their order."""
    ours = summary([r2(value, seed) for seed, value in ((2, 0.7), (0, 0.5), (1, 0.65))])
    theirs = summary([r2(value, seed, model="rp") for seed, value in ((1, 0.6), (2, 0.62))])
    difference = ours - theirs
    assert difference.numbers == (1, 2) and difference.seed_values == pytest.approx([0.05, 0.08])
    assert difference.interval == pytest.approx(seed_interval(np.array([0.05, 0.08])), abs=0.02)
    assert (theirs - ours).seed_values == pytest.approx([-0.05, -0.08])
    shifted = summary([r2(value, seed) for seed, value in ((0, 0.5), (1, 0.65))])
    assert (shifted - theirs).seed_values == pytest.approx([0.05])
    apart = summary([r2(0.5, 7)])
    unpaired = ours - apart
    assert unpaired.numbers == () and unpaired.value == pytest.approx(ours.value - 0.5)


def test_a_fact_of_the_corpus_pairs_with_seeds():
    """With several seeds the ceiling of a text's splits was taken as independent of what is read in these splits."""
    splits = np.array([[0.50, 0.62, 0.55, 0.47, 0.58]])
    ceiling = replace(Point.of(splits), trained=False)
    seeds = Point.of(splits + np.array([[0.04], [0.05], [0.03]]))
    for gain in (seeds - ceiling, -(ceiling - seeds)):
        assert gain.at.shape == (3, 5) and gain.seeds == 3
        assert gain.interval == pytest.approx(seed_interval([0.04, 0.05, 0.03]))
    other = replace(Point.of(splits[:, :4]), trained=False)
    assert (seeds - other).at.shape == (1, 1)


def test_errors_of_other_rows_are_independent():
    """Averages over tasks had intervals as wide as one task's."""
    tasks = [Point.between(0.0, -0.025, 0.025)] * 4
    assert average(tasks).interval == pytest.approx((-0.025, 0.025))
    assert average(tasks, on_other_rows=True).interval == pytest.approx((-0.0125, 0.0125))


def test_what_cannot_be_paired_is_taken_as_independent():
    seeds = Point.of([[1.0], [1.2], [1.4]])
    other = Point.between(0.5, 0.4, 0.6)
    low, high = (seeds - other).interval
    assert low == pytest.approx(0.7 - np.hypot(1.2 - seeds.low, 0.1)) and high == pytest.approx(
        0.7 + np.hypot(seeds.high - 1.2, 0.1)
    )


def test_a_comparison_is_a_margin_and_no_truth():
    point = Point.between(0.5, 0.4, 0.6)
    assert (
        isinstance(point >= 0.3, Margin)
        and (point >= 0.3).low == pytest.approx(0.1)
        and (point <= 0.3).value == pytest.approx(-0.2)
    )
    with pytest.raises(TypeError, match="neither true nor false"):
        assert 0.1 <= point <= 0.9


TABLE = Table(
    [
        *(r2(v, layer=layer, index=i) for layer in (2, 1) for i, v in enumerate((0.1 * layer, 0.2 * layer))),
        r2(0.9, layer=1, step=0),
        *(Record("s", "ap", "pca.share", v, index=i, seed=0) for i, v in enumerate((0.6, 0.3))),
        *(
            Record("s", m, "kl.semantic", v, layer=1, head=h, seed=0)
            for m in ("ap", "rp")
            for h, v in enumerate((0.2, 0.4))
        ),
        Record("s", "ap", "ablation.remove", 2.0, seed=0, part="mixed"),
        Record("s", "ap", "ablation.remove", 1.0, seed=0, part="mixed", layer=1),
    ]
)


def test_unnamed_columns_must_be_empty():
    """A column that a query does not name has to be empty."""
    assert TABLE.point("ablation.remove", "ap", part="mixed").value == 2.0
    assert TABLE.point("ablation.remove", "ap", part="mixed", layer=1).value == 1.0
    assert TABLE.point("ablation.remove", "ap") is None and TABLE.point("kl.semantic", "ap", layer=1) is None


def test_points_are_selected_by_columns():
    assert list(TABLE.points("r2.token", "ap", by="layer", part="all")) == [1, 2]
    assert TABLE.points("r2.token", "ap", by="layer", part="all")[2].at.tolist() == [[0.2, 0.4]]
    assert {k: p.value for k, p in TABLE.points("r2.token", "ap", by="layer", part="all", step=0).items()} == {1: 0.9}
    assert {k: p.value for k, p in TABLE.points("pca.share", "ap", by="index").items()} == {0: 0.6, 1: 0.3}
    assert TABLE.point("pca.share", "ap", index=1).value == 0.3
    heads = TABLE.points("kl.semantic", by=("model", "layer", "head"))
    assert list(heads) == [("ap", 1, 0), ("ap", 1, 1), ("rp", 1, 0), ("rp", 1, 1)]


def test_a_table_lists_models_layers_and_seeds():
    assert TABLE.models("kl.semantic") == ["ap", "rp"] and TABLE.distinct("layer", "r2.token", "ap") == [2, 1]
    assert len(TABLE.rows("kl.semantic", head={0, 1})) == 4 and len(TABLE.rows("kl.semantic", ANY, head=1)) == 2
    assert TABLE.seeds == {"ap": {0}, "rp": {0}}


def values(points):
    return {x: p.value for x, p in points.items()}


def test_curves_average_the_rows_of_finite_values():
    """An array is a curve of its finite values and its rows are averaged."""
    heads = np.array([[0.2, 0.4, np.inf], [0.4, 0.8, 1.0]])
    assert values(curve(heads, "abc")) == pytest.approx({"a": 0.3, "b": 0.6}) and curve(None) == {}
    assert values(curve(heads[1])) == {0: 0.4, 1: 0.8, 2: 1.0}
    assert curve(heads[1])[0].seeds == 1 and curve(heads[1], trained=False)[0].seeds == 0


def test_curves_have_running_sums_and_a_highest():
    a = curve(np.array([0.5, 0.3, 0.2]), (1, 2, 3))
    b = curve(np.array([0.4, 0.6]), (3, 0))
    assert values(running_sums(a)) == pytest.approx(dict(enumerate(np.cumsum([0.5, 0.3, 0.2]), 1)))
    assert values(highest([a, b])) == {0: 0.6, 1: 0.5, 2: 0.3, 3: 0.4} and list(highest([a, b])) == [0, 1, 2, 3]
