"""Digits follow the uncertainty; counts, times and bytes get their units."""

import math

import pytest

from whatwhere.report.numbers import (
    compact,
    count,
    decimals,
    duration,
    fixed,
    interval,
    memory,
    number,
    percent,
    printed,
    span,
)


@pytest.mark.parametrize(
    ("uncertainty", "digits"),
    [(0.036, 3), (0.01, 3), (0.0099, 4), (1.4, 1), (52.0, 0), (0.0, 3), (math.inf, 3), (1e-12, 6)],
)
def test_decimals_show_two_significant_digits_of_the_uncertainty(uncertainty, digits):
    assert decimals(uncertainty) == digits


def test_number_has_the_digits_of_its_half_interval():
    assert number(0.58734, 0.5512, 0.6234) == "0.587"
    assert number(1234.567, 1200.0, 1270.0) == "1,235"
    assert number(0.58734) == "0.587"
    assert number(12.345) == "12.3"
    assert number(4.0) == "4"
    assert number(0.05, 0.041, 0.059) == "0.0500"
    assert number(0.05, 0.041, 0.059, most=3) == "0.050"


def test_missing_numbers_are_a_dash():
    """Numbers that are none or not finite are a dash."""
    assert number(None) == number(math.nan) == fixed(None, 2) == compact(math.inf) == percent(None) == "–"


def test_minus_is_a_true_minus_and_zero_has_none():
    assert fixed(-0.25, 2) == "\u22120.25"
    assert fixed(-0.001, 2) == "0.00"
    assert interval(-0.03, 0.07) == "[\u22120.030, 0.070]"


def test_interval_is_empty_without_ends():
    assert interval(None, 0.1) == ""


def test_printed_keeps_the_digits_of_the_source():
    assert [printed(v) for v in (0.89, 0.941, 0.5, 22.0)] == ["0.89", "0.941", "0.5", "22"]


def test_counts_have_three_significant_digits():
    shown = [compact(v) for v in (0, 812, 9_999, 24_318, 999_400, 1_500_000, 41_300_512, 999_600_000, 9_175_040_000)]
    assert shown == ["0", "812", "9,999", "24,300", "999,400", "1.50M", "41.3M", "1.00B", "9.18B"]


def test_span_is_one_value_where_both_ends_look_alike():
    assert span([1_387_200, 1_388_000]) == "1.39M"
    assert span([1_387_200, 1_548_320]) == "1.39M to 1.55M"


def test_quantities_are_written_with_units():
    assert duration(48.2) == "48\u202fs"
    assert duration(200) == "3\u202fmin 20\u202fs"
    assert duration(7500) == "2\u202fh 05\u202fmin"
    assert memory(2**30) == "1.00\u202fGiB"
    assert memory(5 * 2**20) == "5\u202fMiB"
    assert percent(0.9412) == "94.1\u202f%"
    assert count(1, "seed") == "1 seed" and count(3, "seed") == "3 seeds"
