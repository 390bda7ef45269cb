"""Corrected distances against known truth, what makes them honest, noise floor, jackknife against closed forms."""

import numpy as np
import pytest
from known_distributions import distributions, naive_hellinger, sample
from scipy import sparse
from scipy.stats import t

from whatwhere.geometry import (
    corrected_hellinger,
    corrected_squares,
    hellinger,
    jackknife,
    lag_correlation,
    positional_distributions,
)

FALLING = np.geomspace(40_000, 600, 20).astype(int)  # support along the positions, as short documents have it


def grouped(p, tokens, groups=16, seed=0):
    """Counts of groups of documents, `tokens` at a position in all of them."""
    return [sample(p, np.broadcast_to(tokens, len(p)) // groups, seed=1000 * seed + g) for g in range(groups)]


def plug_in(groups):
    return hellinger(positional_distributions(sum(groups[1:], groups[0]), min_support=1).p)


def error(found, truth):
    pairs = np.triu_indices(len(truth), 1)
    return np.sqrt(np.mean((found - truth)[pairs] ** 2))


@pytest.mark.parametrize("make", [sparse.csr_array, np.asarray], ids=["sparse", "dense"])
def test_corrected_squares_are_the_formula_of_four_distances(make):
    """½(|a_i - b_j|² + |b_i - a_j|²) - ½(|a_i - b_i|² + |a_j - b_j|²)."""
    p = distributions(8, 40, 0)
    q = distributions(8, 40, 1)
    d = naive_hellinger(np.concatenate([p, q])) ** 2
    i = np.arange(8)[:, None]
    j = np.arange(8)
    expected = (d[i, j + 8] + d[i + 8, j]) / 2 - (d[i, i + 8] + d[j, j + 8]) / 2
    found = corrected_squares(make(np.sqrt(p)), make(np.sqrt(q)))
    np.testing.assert_allclose(found, expected, atol=1e-14)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("vocabulary", [300, 3000])
@pytest.mark.parametrize("tokens", [1000, 20_000, FALLING], ids=["few", "many", "falling"])
@pytest.mark.parametrize("drift", [0.1, 0.5])
def test_correction_is_nearer_the_truth(vocabulary, tokens, drift):
    """Correction is nearer to the truth than the plug in."""
    p = distributions(20, vocabulary, drift=drift)
    groups = grouped(p, tokens)
    truth = hellinger(p)
    corrected = corrected_hellinger(groups, np.arange(20))
    assert error(corrected.distances, truth) < 0.4 * error(plug_in(groups), truth)


def test_equal_distributions_average_zero():
    """Without equal support the fall of support alone makes distances that grow with the lag: a geometry of nothing."""
    p = np.repeat(distributions(1, 3000), 20, axis=0)
    pairs = np.triu_indices(20, 1)
    thinned = []
    plain = []
    for seed in range(6):
        groups = grouped(p, FALLING, seed=seed)
        thinned.append(corrected_hellinger(groups, np.arange(20), splits=4).squares[pairs])
        plain.append(corrected_hellinger(groups, np.arange(20), splits=4, equal_support=False).squares[pairs])
    lag = pairs[1] - pairs[0]
    assert np.corrcoef(lag, np.mean(plain, axis=0))[0, 1] > 0.9 and np.mean(plain) > 0.03
    means = np.mean(thinned, axis=1)
    assert abs(means.mean()) < 3 * means.std(ddof=1) / np.sqrt(6) + 1e-4 and abs(means.mean()) < 0.03 * np.mean(plain)
    assert abs(np.corrcoef(lag, np.mean(thinned, axis=0))[0, 1]) < 0.3


def test_equal_supports_need_no_thinning():
    groups = grouped(distributions(10, 200), 1600)
    a, b = (corrected_hellinger(groups, np.arange(10), equal_support=equal).squares for equal in (True, False))
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_noise_floor_is_the_distance_of_two_halves():
    p = distributions(12, 300)
    groups = grouped(p, 4000, groups=2)
    corrected = corrected_hellinger(groups, np.arange(12), splits=3)
    a, b = (positional_distributions(g, min_support=1).p for g in groups)
    np.testing.assert_allclose(corrected.floor, hellinger(a, b), atol=1e-12)  # two groups have one split
    np.testing.assert_allclose(corrected.floor_low, corrected.floor_high, atol=1e-12)
    assert corrected.splits == 3
    many = corrected_hellinger(grouped(p, 64_000), np.arange(12))
    assert np.all(many.floor < corrected.floor / 2) and np.all(
        (many.floor_low <= many.floor) & (many.floor <= many.floor_high)
    )


def test_only_the_positions_asked_for_are_compared():
    groups = grouped(distributions(10, 100), [800] * 6 + [0] * 4)
    some, all_six = (corrected_hellinger(groups, np.array(kept), equal_support=False) for kept in ([0, 2, 5], range(6)))
    np.testing.assert_allclose(some.squares, all_six.squares[np.ix_([0, 2, 5], [0, 2, 5])], atol=1e-14)
    with pytest.raises(
        ValueError, match="Position 6 has no token in one half of the documents. Keep positions with more support"
    ):
        corrected_hellinger(groups, np.arange(10))


def test_splits_repeat_with_their_seed():
    groups = grouped(distributions(6, 100), 1000)
    a, b, c = (corrected_hellinger(groups, np.arange(6), 2, seed).squares for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 1e-4


def test_negative_squares_are_kept_and_their_distances_zero():
    corrected = corrected_hellinger(grouped(np.repeat(distributions(1, 500), 8, axis=0), 1600), np.arange(8), splits=1)
    assert corrected.squares.min() < 0 == corrected.distances.min()
    np.testing.assert_allclose(corrected.distances**2, np.maximum(corrected.squares, 0))


def test_jackknife_of_a_mean_is_students_interval():
    """Groups of equal size: leaving out group g gives (G·mean - x_g) / (G - 1), and the interval is mean ± t·s/√G."""
    x = np.random.default_rng(0).integers(1, 100, size=12)
    groups = [sparse.csr_array(np.array([[value, 100 - value]])) for value in x]
    value, low, high = jackknife(groups, lambda counts: counts[0, 0] / counts.sum())
    half = t.ppf(0.975, 11) * x.std(ddof=1) / np.sqrt(12) / 100
    assert value == pytest.approx(x.mean() / 100) and (low, high) == pytest.approx((value - half, value + half))


def test_jackknife_of_arrays_is_entrywise():
    """Jackknife of arrays goes entry by entry and both forms agree."""
    groups = grouped(distributions(5, 50), 800, groups=6)
    summed = jackknife(groups, lambda counts: hellinger(positional_distributions(counts, min_support=1).p))
    listed = jackknife(groups, plug_in, summed=False)
    for a, b in zip(summed, listed, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert summed.value.shape == (5, 5)
    assert np.all((summed.high - summed.low)[~np.eye(5, dtype=bool)] > 0)


def test_jackknife_interval_covers_what_other_samples_give():
    """The spread of the plug-in mean distance over fresh corpora, against the interval from one of them."""
    p = distributions(8, 200)

    def mean_distance(counts):
        return hellinger(positional_distributions(counts, min_support=1).p).mean()

    fresh = [mean_distance(sum((gs := grouped(p, 3200, seed=s))[1:], gs[0])) for s in range(40)]
    widths = [(i := jackknife(grouped(p, 3200, seed=s), mean_distance)).high - i.low for s in range(5)]
    assert np.mean(widths) == pytest.approx(2 * t.ppf(0.975, 15) * np.std(fresh, ddof=1), rel=0.4)


def test_corrected_statistics_have_intervals_too():
    groups = grouped(distributions(8, 200), FALLING[:8], groups=8)
    found = jackknife(
        groups, lambda left: lag_correlation(corrected_hellinger(left, np.arange(8), 2).distances), summed=False
    )
    assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda g: corrected_hellinger(g[:1], np.arange(6)),
            "at least 2 groups of documents. Got 1: of one document nothing tells",
        ),
        (lambda g: jackknife(g[:1], np.sum), "Got 1"),
        (lambda g: jackknife(g[:1], len, summed=False), "Got 1"),
        (lambda g: jackknife([g[0], g[1][:3]], np.sum), r"Got shapes \[\(3, 50\), \(6, 50\)\]"),
        (lambda g: corrected_squares(g[0], g[0][:3]), r"halves have shapes \(6, 50\) and \(3, 50\)"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as raised:
        call(grouped(distributions(6, 50), 800, groups=4))
    assert "\n" not in str(raised.value)
