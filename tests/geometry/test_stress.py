"""Stress: eq. 4 in loops, both scales, what it cannot depend on; correlations with numpy's."""

import numpy as np
import pytest
from known_distributions import distributions
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import pdist, squareform

from whatwhere.geometry import distance_correlation, hellinger, lag_correlation, stress, stress_of_distances


@pytest.fixture(scope="module")
def dist():
    return hellinger(distributions(15, 80))


@pytest.fixture(scope="module")
def table():
    return np.random.default_rng(0).normal(size=(15, 6))


def naive(table, dist):
    """GEOM eq. 4 written out."""
    above = 0.0
    below = 0.0
    for i in range(len(table)):
        for j in range(i + 1, len(table)):
            above += (np.sqrt(((table[i] - table[j]) ** 2).sum()) - dist[i, j]) ** 2
            below += dist[i, j] ** 2
    return above / below


def test_raw_stress_is_equation_4(table, dist):
    assert stress(table, dist) == pytest.approx(naive(table, dist), rel=1e-12)
    assert stress_of_distances(squareform(pdist(table)), dist) == pytest.approx(naive(table, dist), rel=1e-12)


def test_optimal_stress_is_the_least_over_all_scales(table, dist):
    best = minimize_scalar(lambda c: naive(c * table, dist), bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    assert stress(table, dist, "optimal") == pytest.approx(best.fun, rel=1e-9)
    assert 0 < stress(table, dist, "optimal") <= min(1, stress(table, dist))


@pytest.mark.parametrize("factor", [1e-6, 7.0, 1e6])
def test_optimal_stress_ignores_scale(table, dist, factor):
    """Optimal stress does not change with the tables scale and raw stress does."""
    assert stress(factor * table, dist, "optimal") == pytest.approx(stress(table, dist, "optimal"), rel=1e-9)
    assert abs(stress(factor * table, dist) / stress(table, dist) - 1) > 0.5


def test_stress_ignores_rotation_shift_and_permutation(table, dist):
    """Stress does not change under rotation shift and common permutation."""
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    order = np.random.default_rng(2).permutation(15)
    for scale in ("raw", "optimal"):
        assert stress(table @ rotation + 3, dist, scale) == pytest.approx(stress(table, dist, scale), rel=1e-10)
        assert stress(table[order], dist[np.ix_(order, order)], scale) == pytest.approx(
            stress(table, dist, scale), rel=1e-10
        )


def test_stress_of_constant_and_scaled_tables_is_known(dist):
    flat = np.ones((15, 2))
    assert stress(flat, dist) == pytest.approx(1) and stress(flat, dist, "optimal") == pytest.approx(1)
    assert stress_of_distances(dist, dist) == 0
    assert (
        stress_of_distances(3 * dist, dist) == pytest.approx(4)
        and stress_of_distances(3 * dist, dist, "optimal") < 1e-30
    )
    pairs = dist[np.triu_indices(15, 1)]
    constant = stress_of_distances(np.ones((15, 15)) - np.eye(15), dist, "optimal")
    assert constant == pytest.approx(1 - pairs.mean() ** 2 / (pairs**2).mean())


def test_correlations_are_numpys(table, dist):
    pairs = np.triu_indices(15, 1)
    assert distance_correlation(table, dist) == pytest.approx(np.corrcoef(pdist(table), dist[pairs])[0, 1])
    where = np.array([0, 1, 2, 3, 5, 8, 9, 10, 11, 12, 13, 14, 20, 21, 30])
    lag = np.abs(where[pairs[0]] - where[pairs[1]])
    assert lag_correlation(dist, where) == pytest.approx(np.corrcoef(lag, dist[pairs])[0, 1])
    assert lag_correlation(squareform(pdist(np.arange(9.0)[:, None]))) == pytest.approx(1)
    assert np.isnan(lag_correlation(np.ones((5, 5)) - np.eye(5)))
    with pytest.raises(ValueError, match="15 rows belong to 15 ascending positions"):
        lag_correlation(dist, where[:5])  # correlated a corner of the distances, without a word


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, d: stress(t[:9], d), "The table has 9 rows, the distances 15 positions"),
        (lambda t, d: distance_correlation(t[:9], d), "The table has 9 rows, the distances 15 positions"),
        (lambda t, d: stress(t, d, "best"), "Unknown scale 'best'. Use 'raw'"),
        (lambda t, d: stress(t * np.nan, d), "NaN or infinite values in 15 rows, first row 0"),
        (lambda t, d: stress(t, d * np.nan), "is nan"),
        (lambda t, d: stress(t, 0 * d), "All distances are 0"),
        (lambda t, d: stress_of_distances(d[:4, :4], d), "The distances are of 4 and 15 positions"),
        (lambda t, d: stress(t[0], d), r"two dimensions \(positions, width\). Got shape \(6,\)"),
    ],
)
def test_bad_input_is_refused_in_one_line(table, dist, call, message):
    with pytest.raises(ValueError, match=message) as error:
        call(table, dist)
    assert "\n" not in str(error.value)
