"""Intervals against the written-out formulas, scipy, and simulations whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from whatwhere.records import intervals
from whatwhere.records.intervals import (
    UNBOUNDED,
    bounded,
    hierarchical,
    jackknife_interval,
    p_above_zero,
    seed_interval,
    share_interval,
    smallest_effect,
    split_interval,
)
from whatwhere.records.metrics import range_of

SHARE = (0.0, 1.0)
R2 = range_of("r2.token")
CORRELATION = (-1.0, 1.0)
unit = st.floats(0, 1)


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
    plain = 0
    corrected = 0
    for _ in range(400):
        documents = rng.normal(size=100)
        values = [rng.permutation(documents)[:20].mean() for _ in range(5)]
        plain += seed_interval(values)[0] <= 0 <= seed_interval(values)[1]
        corrected += split_interval(values, 100)[0] <= 0 <= split_interval(values, 100)[1]
    assert plain / 400 < 0.93 < corrected / 400


def test_share_interval_is_wilsons():
    # Wilson 1927 written out for 700 of 872, the size of SST-2's dev set; z = 1.959964.
    p = 700 / 872
    n = 872
    z = stats.norm.ppf(0.975)
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    assert share_interval(700, 872) == pytest.approx((middle - half, middle + half))
    low, high = share_interval(0, 10)
    assert low == 0 and 0 < high < 0.3


def test_the_jackknife_of_a_mean_is_students_interval():
    values = np.random.default_rng(0).normal(size=9)
    left = [np.delete(values, i).mean() for i in range(9)]
    assert jackknife_interval(values.mean(), left) == pytest.approx(seed_interval(values))
    assert jackknife_interval(1.0, [1.0]) is None


# Bounded quantities.


@given(st.lists(unit, min_size=2, max_size=8), st.integers(5, 600))
def test_no_interval_of_a_share_leaves_its_range(values, documents):
    left = values[1:]
    columns = np.array([values, values[::-1]])
    for low, high in (
        seed_interval(values, SHARE),
        split_interval(values, documents, SHARE),
        hierarchical(columns, SHARE),
        hierarchical(columns, SHARE, documents=documents, below=0.3, above=0.6),
        jackknife_interval(values[0], [*left, *left], SHARE),
    ):
        assert 0 <= low <= high <= 1
    low, high = seed_interval(values, SHARE)
    assert low <= np.mean(values) <= high


@given(unit, unit, unit, unit)
def test_intervals_grow_with_half_widths(value, below, above, more):
    """Intervals grow with their half widths and turn with their range."""
    low, high = bounded(value, below, above, SHARE)
    lower, higher = bounded(value, below + more, above + more, SHARE)
    assert lower <= low + 1e-12 and high <= higher + 1e-12
    turned = bounded(1 - value, above, below, SHARE)
    assert turned == pytest.approx((1 - high, 1 - low), abs=1e-9)
    stretched = bounded(100 * value - 3, 100 * below, 100 * above, (-3.0, 97.0))
    assert stretched == pytest.approx((100 * low - 3, 100 * high - 3), abs=1e-7)


def test_narrow_intervals_of_bounded_quantities_are_students():
    values = [0.4998, 0.5003, 0.5001]
    assert seed_interval(values, SHARE) == pytest.approx(seed_interval(values), abs=1e-7)


def test_without_room_the_scales_are_logit_and_fishers_z(monkeypatch):
    monkeypatch.setattr(intervals, "ROOM", 0.0)
    shares = np.array([0.35, 0.23, 0.67])
    half = stats.t.ppf(0.975, 2) * stats.sem(shares)
    mean = shares.mean()
    ends = [1 / (1 + np.exp(-(np.log(mean / (1 - mean)) + side * half / (mean * (1 - mean))))) for side in (-1, 1)]
    assert seed_interval(shares, SHARE) == pytest.approx(ends)
    ends = [np.tanh(np.arctanh(mean) + side * half / (1 - mean**2)) for side in (-1, 1)]
    assert seed_interval(shares, CORRELATION) == pytest.approx(ends)


def test_unbounded_quantities_have_student_intervals():
    """Unbounded quantities have students interval and half bounded ones its part."""
    values = [3.41, 3.50, 3.44]
    expected = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert seed_interval(values, UNBOUNDED) == pytest.approx(expected)
    assert hierarchical(np.array(values)[:, None]) == pytest.approx(expected)
    low, high = stats.t.interval(0.95, 1, loc=0.2, scale=stats.sem([0.1, 0.3]))
    assert seed_interval([0.1, 0.3], (0.0, math.inf)) == pytest.approx((0.0, high)) and low < 0
    assert seed_interval([0.1, 0.3], (-math.inf, 1.0)) == pytest.approx((low, 1.0)) and high > 1


def test_values_beyond_the_range_stay_in_their_interval():
    """R² of a probe on new documents may be anything up to 1, and what came out is shown."""
    far = seed_interval([-2.0, -1.0, -3.0], R2)
    assert far == (-2.0, pytest.approx(min(1.0, stats.t.interval(0.95, 2, loc=-2, scale=stats.sem([-2, -1, -3]))[1])))
    assert seed_interval([-0.03, -0.01, -0.02], SHARE)[0] == pytest.approx(-0.02)


def test_small_r2_has_nearly_student_intervals():
    """Small r2 on both sides of zero has nearly students interval."""
    for values in ([-0.03, 0.0, 0.04], [-0.01, 0.02, 0.005], [-0.16, -0.08, -0.11]):
        assert seed_interval(values, R2) == pytest.approx(seed_interval(values), abs=0.045)
    low, high = seed_interval([0.09, 0.05, 0.27], R2)  # position in `ap`, Wikipedia
    assert -0.1 < low < 0 and 0.4 < high < 0.55


def test_intervals_of_means_on_an_end_stay_there():
    assert seed_interval([1.0, 1.0, 1.0], SHARE) == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, seeds: rng.beta(2, 5, seeds),
        lambda rng, seeds: rng.beta(8, 1, seeds),
        lambda rng, seeds: rng.beta(20, 20, seeds),
        lambda rng, seeds: 1 / (1 + np.exp(-rng.normal(1, 1, seeds))),
    ],
    ids=["beta(2, 5)", "beta(8, 1)", "beta(20, 20)", "logit-normal"],
)
def test_share_intervals_cover_the_mean(draw):
    """Intervals of shares cover the mean and student of three leaves the range."""
    rng = np.random.default_rng(0)
    truth = draw(rng, 1_000_000).mean()
    for seeds in (3, 5):
        samples = [draw(rng, seeds) for _ in range(1000)]
        found = [seed_interval(values, SHARE) for values in samples]
        assert 0.9 < np.mean([low <= truth <= high for low, high in found]) < 0.98
    outside = [seed_interval(values) for values in (draw(rng, 3) for _ in range(1000))]
    assert any(low < 0 or high > 1 for low, high in outside)


# Seeds and documents.


def crossed(rng, seeds, documents, of_seed, of_document, of_both):
    """(seeds, documents) values of mean 0 with standard deviations of their own for seeds, documents and both."""
    shared = of_seed * rng.normal(size=(seeds, 1)) + of_document * rng.normal(size=documents)
    return shared + of_both * rng.normal(size=(seeds, documents))


@pytest.mark.parametrize(
    ("seeds", "documents", "sizes"),
    [(3, 100, (0.1, 1, 1)), (3, 100, (1, 1, 1)), (3, 20, (0.3, 1, 1)), (2, 50, (0.2, 1, 0.5)), (5, 50, (0.1, 1, 1))],
)
def test_intervals_over_seeds_and_documents_cover_both(seeds, documents, sizes):
    """The interval over seeds and documents covers where both vary."""
    rng = np.random.default_rng(1)
    samples = [crossed(rng, seeds, documents, *sizes) for _ in range(1000)]
    ends = np.array([hierarchical(values) for values in samples])
    covered = np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert 0.93 < covered < 0.99


def test_one_source_alone_does_not_cover_both():
    """Either source alone does not cover what the other moves."""
    rng = np.random.default_rng(2)
    samples = [crossed(rng, 3, 100, 0.05, 1, 0.5) for _ in range(500)]
    between_seeds = [seed_interval(values.mean(axis=1)) for values in samples]
    assert np.mean([low <= 0 <= high for low, high in between_seeds]) < 0.9
    samples = [crossed(rng, 3, 100, 1, 1, 1) for _ in range(500)]
    over_documents = [seed_interval(values.mean(axis=0)) for values in samples]
    assert np.mean([low <= 0 <= high for low, high in over_documents]) < 0.5


def test_combined_intervals_are_never_narrower():
    """The interval over both is never narrower than over one."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        values = crossed(rng, 3, 12, *rng.uniform(0, 1, 3))
        low, high = hierarchical(values)
        for alone in (values.mean(axis=1), values.mean(axis=0)):
            assert low <= seed_interval(alone)[0] + 1e-12 and high >= seed_interval(alone)[1] - 1e-12


def test_one_source_alone_has_its_own_interval():
    values = np.random.default_rng(4).normal(size=(3, 5))
    assert hierarchical(values[:, :1]) == pytest.approx(seed_interval(values[:, 0]))
    assert hierarchical(values[:1]) == pytest.approx(seed_interval(values[0]))
    assert hierarchical(values[:1], documents=500) == pytest.approx(split_interval(values[0]))
    assert hierarchical(values[:1, :1]) is None
    assert hierarchical(np.array([[0.9]]), SHARE, below=0.1, above=0.4) == pytest.approx((0.8, 1.0))
    same = np.ones((3, 1))  # the seeds agree: what is left is over documents
    assert hierarchical(same, below=0.2, above=0.3) == pytest.approx((0.8, 1.3))


@given(
    st.lists(st.lists(st.floats(-0.4, 0.9).map(lambda v: round(v, 6)), min_size=3, max_size=3), min_size=1, max_size=4),
    st.sampled_from([UNBOUNDED, (-0.4, 1.0), (-1.0, 1.0), (-math.inf, 1.0)]),
    st.sampled_from([None, 500]),
    st.floats(0, 0.3),
)
def test_small_p_means_an_interval_above_zero(values, span, documents, below):
    """P is below five per cent exactly where the interval lies above zero."""
    values = np.array(values)
    low, _ = hierarchical(values, span, documents=documents, below=below, above=below)
    p = p_above_zero(values, span, documents=documents, below=below)
    assert 0 <= p <= 1
    if abs(low) > 1e-9:
        assert (p <= 0.05) == (low > 0)


def test_p_over_seeds_is_students():
    values = np.array([[0.2], [0.3], [0.5]])
    assert p_above_zero(values) == pytest.approx(stats.ttest_1samp(values[:, 0], 0).pvalue)
    assert p_above_zero(-values) == 1.0 and p_above_zero(np.ones((3, 1))) == 0.0


# Power.


def test_the_smallest_effect_is_found_at_its_power():
    """The smallest effect is found in four of five samples."""
    rng = np.random.default_rng(5)
    for seeds in (3, 5):
        differences = rng.normal(smallest_effect(seeds), 1, (4000, seeds))
        assert np.mean(stats.ttest_1samp(differences, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.025)
        a, b = rng.normal(size=(2, 4000, seeds))
        found = stats.ttest_ind(a + smallest_effect(seeds, paired=False), b, axis=1).pvalue < 0.05
        assert np.mean(found) == pytest.approx(0.8, abs=0.025)
    assert smallest_effect(3) == pytest.approx(3.264, abs=0.001)
    with pytest.raises(ValueError, match="Train at least two"):
        smallest_effect(1)
