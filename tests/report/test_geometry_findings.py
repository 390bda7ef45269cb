"""Titles of a geometry run: each says what its rule lets it say, and "not separable" where an interval holds both sides."""

import pytest

from whatwhere.report import geometry_findings as findings
from whatwhere.report.load import Point


def near(value: float, half: float = 0.01) -> Point:
    return Point(value, value - half, value + half, "groups")


def test_distances_above_noise_and_growing():
    said = findings.apart({"a": near(0.5)}, {"a": near(0.2)}, {"a": near(0.9)})
    assert said == "Positions of `a` lie 0.200 apart once noise is taken out, 0.500 as counted; distance grows with the lag (r 0.900)"
    assert "falls with the lag" in findings.apart({"a": near(0.5)}, {"a": near(0.2)}, {"a": near(-0.4)})
    assert "not separable from unrelated" in findings.apart({"a": near(0.5)}, {"a": near(0.2)}, {"a": near(0.0, 0.2)})


def test_distances_within_noise_are_called_so():
    assert "not separable from sampling noise" in findings.apart({"a": near(0.5)}, {"a": near(0.02, 0.05)}, {})
    several = findings.apart({"a": near(0.5)}, {"a": near(0.02, 0.05), "b": near(0.3)}, {})
    assert "`a` 0.020 (as counted 0.500), not separable from noise; `b` 0.300" in several


def test_without_correction_only_the_counts_are_told():
    assert findings.apart({"a": Point(0.5)}, {}, {}) == "Mean distance of two positions as counted: `a` 0.500"


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
    assert findings.fits({"a": {"sinusoidal": Point(0.2), "rope": Point(0.3)}}).endswith("not separable")  # no intervals, no finding


def test_a_table_that_knows_nothing_and_fits_better_is_named():
    assert findings.fits({"a": {"sinusoidal": near(0.2), "equidistant": near(0.1)}}).endswith("a table that knows no position: 0.100")
    assert findings.fits({"a": {"mds, full rank": near(0.0)}}) == "Stress of every table"


@pytest.mark.parametrize(("power", "said"), [(1.0, "(linear)"), (0.5, "(as d to the 0.50)"), (2.0, "(as d to the 2)")])
def test_growth_of_raw_stress_is_a_power_of_the_dimensions(power, said):
    line = {d: Point(3.0 * d**power) for d in (16, 64, 256)}
    assert findings.growth({"a": {"sinusoidal": line}}).endswith(said)


def test_best_rank_on_other_documents():
    said = findings.supported_rank(
        {"a": {1: Point(0.3), 5: Point(0.02), 9: Point(0.05)}}, {"a": {"alibi": Point(0.1), "random": Point(0.01)}}
    )
    assert said == "The table that fits other documents best: `a` rank 5, stress 0.0200 (alibi: 0.100)"
    assert "`a` rank 9 or more, stress 0.0100" in findings.supported_rank({"a": {1: Point(0.3), 9: Point(0.01)}}, {})


def test_order_of_distances_is_held_against_chance():
    said = findings.ordered({"a": near(0.1), "b": near(0.5, 0.05), "c": near(0.7)})
    assert "`a` 10.0" in said and "`b` 50.0\u202f%, not separable from chance" in said and "`c` 70.0\u202f%, above chance" in said
