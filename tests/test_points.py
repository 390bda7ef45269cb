"""Points and the table of records: seeds and splits summed up, differences paired, a query that names what it leaves
open."""

import numpy as np
import pytest
from scipy import stats

from whatwhere.intervals import seed_interval, split_interval
from whatwhere.points import ANY, Margin, Point, Table, curve, highest, running_sums, summary
from whatwhere.records import Record


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
    assert (point.low, point.high) == pytest.approx(split_interval(splits)) and point.over == "splits"


def test_several_seeds_give_the_student_interval_between_seeds():
    values = [0.5, 0.6, 0.55]
    point = summary([r2(v, seed=i, low=v - 0.2, high=v + 0.2) for i, v in enumerate(values)])
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (point.low, point.high) == pytest.approx((low, high)) and point.over == "seeds" and point.seeds == 3


def test_values_that_are_not_finite_are_left_out():
    assert Table([r2(float("nan"))]).point("r2.token", "ap", layer=1, part="all") is None
    assert summary([r2(0.5, low=float("nan"), high=0.6)]).low is None


def test_of_two_records_in_one_place_the_later_counts():
    assert summary([r2(0.5), r2(0.7)]).value == 0.7
    assert summary([r2(0.1, index=2), r2(0.3, index=2)]).value == 0.3


def test_seeds_with_other_splits_are_summed_up_by_their_own_values():
    rows = [r2(0.5), r2(0.4, index=0), r2(0.6, index=1), r2(0.9, seed=1), r2(0.9, seed=1, index=0)]
    assert summary(rows).at.tolist() == [[0.5], [0.9]]


def test_a_difference_is_paired_by_seed_and_split():
    rng = np.random.default_rng(0)
    common = rng.standard_normal((1, 5))
    a, b = Point.of(common + 1 + 0.01 * rng.standard_normal((1, 5))), Point.of(common)
    assert (a - b).interval == pytest.approx(split_interval((a.at - b.at)[0])) and (a - b).low > 0.9
    seeds = Point.of(rng.standard_normal((3, 5)))
    assert (seeds - 2 * seeds).interval == pytest.approx(seed_interval(-seeds.at.mean(axis=1)))


def test_what_cannot_be_paired_is_taken_as_independent():
    seeds, other = Point.of([[1.0], [1.2], [1.4]]), Point.between(0.5, 0.4, 0.6)
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


def test_a_column_that_a_query_does_not_name_has_to_be_empty():
    assert TABLE.point("ablation.remove", "ap", part="mixed").value == 2.0
    assert TABLE.point("ablation.remove", "ap", part="mixed", layer=1).value == 1.0
    assert TABLE.point("ablation.remove", "ap") is None and TABLE.point("kl.semantic", "ap", layer=1) is None


def test_points_by_columns():
    assert list(TABLE.points("r2.token", "ap", by="layer", part="all")) == [1, 2]
    assert TABLE.points("r2.token", "ap", by="layer", part="all")[2].at.tolist() == [[0.2, 0.4]]
    assert {k: p.value for k, p in TABLE.points("r2.token", "ap", by="layer", part="all", step=0).items()} == {1: 0.9}
    assert {k: p.value for k, p in TABLE.points("pca.share", "ap", by="index").items()} == {0: 0.6, 1: 0.3}
    assert TABLE.point("pca.share", "ap", index=1).value == 0.3
    heads = TABLE.points("kl.semantic", by=("model", "layer", "head"))
    assert list(heads) == [("ap", 1, 0), ("ap", 1, 1), ("rp", 1, 0), ("rp", 1, 1)]


def test_what_a_metric_has():
    assert TABLE.models("kl.semantic") == ["ap", "rp"] and TABLE.distinct("layer", "r2.token", "ap") == [2, 1]
    assert len(TABLE.rows("kl.semantic", head={0, 1})) == 4 and len(TABLE.rows("kl.semantic", ANY, head=1)) == 2
    assert TABLE.seeds == {"ap": {0}, "rp": {0}}


def values(points):
    return {x: p.value for x, p in points.items()}


def test_an_array_is_a_curve_of_its_finite_values_and_its_rows_are_averaged():
    heads = np.array([[0.2, 0.4, np.inf], [0.4, 0.8, 1.0]])
    assert values(curve(heads, "abc")) == pytest.approx({"a": 0.3, "b": 0.6}) and curve(None) == {}
    assert values(curve(heads[1])) == {0: 0.4, 1: 0.8, 2: 1.0}
    assert curve(heads[1])[0].seeds == 1 and curve(heads[1], trained=False)[0].seeds == 0


def test_running_sums_and_the_highest_of_several_curves():
    a, b = curve(np.array([0.5, 0.3, 0.2]), (1, 2, 3)), curve(np.array([0.4, 0.6]), (3, 0))
    assert values(running_sums(a)) == pytest.approx(dict(enumerate(np.cumsum([0.5, 0.3, 0.2]), 1)))
    assert values(highest([a, b])) == {0: 0.6, 1: 0.5, 2: 0.3, 3: 0.4} and list(highest([a, b])) == [0, 1, 2, 3]
