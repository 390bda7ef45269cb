"""Titles of a geometry run: each says what its rule lets it say, "not separable" where an interval holds both sides, and no verdict
without intervals."""

import pytest

from whatwhere.points import Point
from whatwhere.report import geometry_findings as findings


def near(value: float, half: float = 0.01) -> Point:
    return Point.between(value, value - half, value + half)


def test_distances_above_noise_and_growing():
    said = findings.apart({"a": near(0.5)}, {"a": near(0.2)}, {"a": near(0.9)})
    head = "Positions of `a` lie 0.200 apart (root mean square) once noise is taken out, 0.500 as counted"
    assert said == f"{head}; distance grows with the lag (r 0.900)"
    assert "falls with the lag" in findings.apart({"a": near(0.5)}, {"a": near(0.2)}, {"a": near(-0.4)})
    assert "not separable from unrelated" in findings.apart({"a": near(0.5)}, {"a": near(0.2)}, {"a": near(0.0, 0.2)})


def test_distances_within_noise_are_called_so():
    said = findings.apart({"a": near(0.5)}, {"a": near(0.02, 0.05)}, {})
    assert said == "The geometry of `a` is not separable from chance: root mean square distance 0.020 corrected, 0.500 as counted"
    several = findings.apart({"a": near(0.5)}, {"a": near(0.02, 0.05), "b": near(0.3)}, {})
    assert "`a` 0.020 (as counted 0.500), not separable from chance; `b` 0.300" in several


@pytest.mark.parametrize(
    ("point", "left"),
    [
        (Point.between(0.1, 0.02, 0.14), ""),
        (Point.between(0.1, 0.0, 0.14), "not separable from chance"),  # 0 is an end of the interval
        (Point.between(-0.05, -0.1, 0.07), "not separable from chance"),  # the mean square came out negative
        (Point.between(0.0), "not above 0 (no intervals)"),
        (Point.between(0.1), ""),  # nothing resampled: the value decides
        (Point.between(-0.1, -0.15, -0.02), "below what chance gives"),
    ],
)
def test_a_geometry_remains_where_the_interval_of_the_root_mean_square_lies_above_zero(point, left):
    said = findings.apart({}, {"a": point}, {})
    assert findings.remains(point) == (not left) and (left in said if left else said.startswith("Positions of `a` lie"))


def test_without_correction_only_the_counts_are_told():
    assert findings.apart({"a": Point.between(0.5)}, {}, {}) == "Root mean square distance of two positions as counted: `a` 0.500"


def test_supported_positions():
    assert findings.supported({"a": (44, 128), "b": (9, 9)}) == "Positions that are counted often enough: `a` 44 of 128; `b` 9 of 9"
    assert findings.supported({"a": (64, 64)}, {"a": 12}) == "Positions kept although nothing stands there: `a` 12 of 64"
    assert findings.supported({"a": (1, 1)}, {"a": 0}) == "Every position is supported: `a` 1 position"


def test_many_corpora_are_not_all_named():
    said = findings.supported({f"c{i}": (i, 9) for i in range(6)})
    assert said.endswith("`c2` 2 of 9; 3 more below")


def test_the_best_encoding_needs_an_interval_of_its_own():
    apart = {"sinusoidal": near(0.2), "rope": near(0.3), "mds, rank 7": near(0.01), "random": near(0.5)}
    assert findings.fits({"a": apart}) == "Lowest stress of a ready-made encoding: `a` sinusoidal 0.200, then rope 0.300"
    assert findings.fits({"a": apart | {"rope": near(0.21)}}).endswith("sinusoidal 0.200 and rope 0.210, not separable")


def test_without_intervals_the_lowest_is_named_and_nothing_is_called_separable_or_not():
    points = {"sinusoidal": Point.between(0.2), "rope": Point.between(0.3), "equidistant": Point.between(0.25)}
    said = "sinusoidal 0.200, then rope 0.300 (no intervals); all equally far apart 0.250"
    assert findings.fits({"a": points}) == f"Lowest stress of a ready-made encoding: `a` {said}"
    assert findings.follow({"a": {"sinusoidal": Point.between(0.2), "rope": Point.between(0.3)}}).endswith(
        "rope 0.300, then sinusoidal 0.200 (no intervals)"
    )
    assert findings.apart({}, {"a": Point.between(0.2)}, {"a": Point.between(0.9)}).endswith(
        "distance and lag correlate with r 0.900 (no intervals)"
    )
    assert findings.ordered({"a": Point.between(0.7)}).endswith("`a` 70.0\u202f%")


@pytest.mark.parametrize(
    ("equal", "said"),
    [(0.1, "above all equally far apart 0.100"), (0.3, "below all"), (0.21, "not separable from all equally far apart 0.210")],
)
def test_the_best_encoding_is_held_against_all_equally_far(equal, said):
    assert f"`a` sinusoidal 0.200; {said}" in findings.fits({"a": {"sinusoidal": near(0.2), "equidistant": near(equal)}})


def test_a_random_table_that_fits_better_is_named():
    assert findings.fits({"a": {"sinusoidal": near(0.2), "random": near(0.1)}}).endswith("0.200; a random table 0.100")
    assert "random" not in findings.fits({"a": {"sinusoidal": near(0.2), "random": near(0.3)}})
    assert findings.fits({"a": {"mds, full rank": near(0.0)}}) == "Stress of every table"


@pytest.mark.parametrize(("power", "said"), [(1.0, "(linear)"), (0.5, "(as d to the 0.50)"), (2.0, "(as d to the 2)")])
def test_growth_of_raw_stress_is_a_power_of_the_dimensions(power, said):
    line = {d: Point.between(3.0 * d**power) for d in (16, 64, 256)}
    assert findings.growth({"a": {"sinusoidal": line}}).endswith(said)


def test_best_rank_on_other_documents():
    said = findings.supported_rank(
        {"a": {1: Point.between(0.3), 5: Point.between(0.02), 9: Point.between(0.05)}},
        {"a": {"alibi": Point.between(0.1), "random": Point.between(0.01)}},
    )
    assert said == "The tables that fit other documents best: `a` rank 5, stress 0.0200 (alibi: 0.100)"
    assert "`a` rank 9 or more, stress 0.0100" in findings.supported_rank({"a": {1: Point.between(0.3), 9: Point.between(0.01)}}, {})


@pytest.mark.parametrize(
    ("stresses", "said"),
    [
        ({2: 0.2, 3: 0.104, 5: 0.1, 7: 0.105, 10: 0.106}, "3 to 7"),  # 0.105 is the 5 % that still counts
        ({1: 0.3, 2: 0.1, 3: 0.2}, "2"),
        ({1: 0.3, 7: 0.1, 10: 0.101}, "7 or more"),
        ({1: 0.1, 2: 0.2, 3: 0.102, 4: 0.103, 5: 0.3}, "1 and 3 to 4"),
        ({1: 0.0, 2: 0.1}, "1"),
    ],
)
def test_ranks_within_five_per_cent_of_the_lowest_stress_are_named_together(stresses, said):
    assert findings.best_ranks({r: Point.between(v) for r, v in stresses.items()}) == said


def test_the_highest_correlation_needs_an_interval_of_its_own_and_to_be_above_zero():
    def said(points):
        return findings.follow({"a": points}).removeprefix("Highest correlation of a ready-made encoding: `a` ")

    points = {"sinusoidal": near(0.2), "rope": near(0.6), "mds, rank 7": near(0.99), "random": near(0.0)}
    assert said(points) == "rope 0.600, then sinusoidal 0.200"
    assert said(points | {"sinusoidal": near(0.59)}) == "rope 0.600 and sinusoidal 0.590, not separable"
    assert said({"sinusoidal": near(0.1, 0.2)}) == "none separable from 0 (highest: sinusoidal 0.10)"
    assert said({"sinusoidal": near(-0.5)}) == "none above 0 (highest: sinusoidal \u22120.500)"
    assert said({"sinusoidal": near(0.2), "random": near(0.3)}).endswith("; a table that knows no position: 0.300")
    assert findings.follow({"a": {"mds": near(1.0)}}) == "Distances in tables against those of the corpus"


def test_order_of_distances_is_held_against_chance():
    said = findings.ordered({"a": near(0.1), "b": near(0.5, 0.05), "c": near(0.7)})
    assert "`a` 10.0" in said and "`b` 50.0\u202f%, not separable from chance" in said and "`c` 70.0\u202f%, above chance" in said
