"""Intervals against the written-out formulas and a simulation of overlapping splits."""

import numpy as np
import pytest
from scipy import stats

from whatwhere.intervals import jackknife_interval, seed_interval, share_interval, split_interval


def test_seed_interval_is_students_t():
    values = [0.3, 0.5, 0.4, 0.7]
    expected = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert seed_interval(values) == pytest.approx(expected)


def test_split_interval_is_the_corrected_resampled_t():
    low, high = split_interval([1.0, 2, 3, 4, 5], 500)
    half = 2.7764451 * np.sqrt(2.5) * np.sqrt(1 / 5 + 1 / 4)
    assert (low, high) == pytest.approx((3 - half, 3 + half))


def test_one_value_has_no_interval():
    assert split_interval([0.5], 500) is None and seed_interval([0.5]) is None and seed_interval([]) is None


def test_corrected_interval_covers_where_the_plain_one_does_not():
    """The mean of 100 documents, estimated by five overlapping fifths: the true mean is 0."""
    rng = np.random.default_rng(0)
    plain = corrected = 0
    for _ in range(400):
        documents = rng.normal(size=100)
        values = [rng.permutation(documents)[:20].mean() for _ in range(5)]
        plain += seed_interval(values)[0] <= 0 <= seed_interval(values)[1]
        corrected += split_interval(values, 100)[0] <= 0 <= split_interval(values, 100)[1]
    assert plain / 400 < 0.93 < corrected / 400


def test_share_interval_is_wilsons():
    # Wilson 1927 written out for 700 of 872, the size of SST-2's dev set; z = 1.959964.
    p, n, z = 700 / 872, 872, stats.norm.ppf(0.975)
    middle, half = (
        (p + z**2 / (2 * n)) / (1 + z**2 / n),
        z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)),
    )
    assert share_interval(700, 872) == pytest.approx((middle - half, middle + half))
    low, high = share_interval(0, 10)
    assert low == 0 and 0 < high < 0.3


def test_the_jackknife_of_a_mean_is_students_interval():
    values = np.random.default_rng(0).normal(size=9)
    left = [np.delete(values, i).mean() for i in range(9)]
    assert jackknife_interval(values.mean(), left) == pytest.approx(seed_interval(values))
    assert jackknife_interval(1.0, [1.0]) is None
