"""Spectra of position tables: identities, scikit-learn's PCA, known values of LOWDIM, E·Eᵀ, outliers, invariances, bad
input."""

import itertools

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.stats import ortho_group
from sklearn.decomposition import PCA

from whatwhere.geometry import (
    approximation,
    component_shares,
    dominant_turns,
    equivariance,
    equivariance_null,
    equivariance_of_first,
    inner_products,
    isolation,
    outliers,
    spectrum,
    white_floor,
)


def sinusoidal(n, d, exponent):
    """Sine and cosine at frequencies 10000^(-exponent * k / d), k < d/2."""
    angles = np.arange(n)[:, None] * 10000.0 ** (-exponent * np.arange(d // 2) / d)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def waves(n, *bins):
    """Columns cos(pi m (i + 1/2) / n): exactly one DCT-II bin each."""
    return np.cos(np.pi * (np.arange(n)[:, None] + 0.5) * np.array(bins) / n)


@pytest.fixture
def table():
    return np.random.default_rng(0).normal(size=(40, 12)) * np.linspace(3, 0.1, 12) + 5.0


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (7, 7), (2, 1), (3, 5)])
def test_scores_reproduce_the_centred_table_up_to_rotation(shape):
    table = np.random.default_rng(1).normal(size=shape)
    s = spectrum(table)
    centred = table - table.mean(0)
    np.testing.assert_allclose(s.scores @ s.scores.T, centred @ centred.T, atol=1e-12)
    np.testing.assert_allclose((s.scores**2).sum(0) / (centred**2).sum(), s.shares, atol=1e-14)
    assert len(s.shares) == min(shape[0] - 1, shape[1])


def test_shares_and_power_sum_to_one_and_parseval_holds(table):
    s = spectrum(table)
    assert s.shares.sum() == pytest.approx(1, abs=1e-14) and np.all(np.diff(s.shares) <= 0)
    np.testing.assert_allclose(s.dct_power.sum(1), 1, atol=1e-14)
    assert s.dct_power.shape == (12, 40) and s.dct_power[:, 0].max() < 1e-25
    np.testing.assert_allclose(s.low4, s.dct_power[:, :4].sum(1))


def test_dct_power_is_the_written_out_sum(table):
    s = spectrum(table)
    i = np.arange(40)
    m = np.arange(40)
    raw = s.scores.T @ np.cos(np.pi * np.outer(i + 0.5, m) / 40)
    power = raw**2 * np.where(m == 0, 1 / 40, 2 / 40)
    np.testing.assert_allclose(power.sum(1), (s.scores**2).sum(0))  # Parseval
    np.testing.assert_allclose(s.dct_power, power / power.sum(1, keepdims=True), atol=1e-13)


def test_components_equal_sklearn_pca(table):
    s = spectrum(table)
    pca = PCA().fit(table)
    np.testing.assert_allclose(s.shares, pca.explained_variance_ratio_, atol=1e-14)
    np.testing.assert_allclose(np.abs(s.scores), np.abs(pca.transform(table)), atol=1e-11)


@pytest.mark.parametrize(("exponent", "expected"), [(4, (0.283, 0.366, 0.521, 10)), (2, (0.287, 0.366, 0.485, 11))])
def test_sinusoidal_table_of_lowdim_table_1(exponent, expected):
    """512 positions, width 128: the printed row (0.28, 0.37, 0.52, 10, 7.8 %) has the exponent doubled; 2 is the
    textbook's."""
    s = spectrum(sinusoidal(512, 128, exponent))
    top = np.cumsum(s.shares)
    assert tuple(np.round(top[[2, 4, 9]], 3)) == pytest.approx(expected[:3], abs=6e-4)
    assert s.n50_count == expected[3] and s.n50 == pytest.approx(100 * expected[3] / 128)


def test_sinusoidal_table_is_equivariant_and_noise_is_not():
    assert spectrum(sinusoidal(512, 128, 2)).equivariance == pytest.approx(1, abs=1e-12)
    noise = spectrum(np.random.default_rng(0).normal(size=(256, 64))).equivariance
    assert noise == pytest.approx(64 / (64 + 256), abs=0.02)


def test_equivariance_is_r2_of_the_diagonal_means(table):
    p = table @ table.T
    fit = toeplitz([p.diagonal(lag).mean() for lag in range(len(p))])
    expected = 1 - ((p - fit) ** 2).sum() / ((p - p.mean()) ** 2).sum()
    assert spectrum(table).equivariance == pytest.approx(expected, abs=1e-10)


def test_equivariance_ignores_the_table_width():
    """Equivariance of a wide table is that of a narrow one with the same products."""
    wide = np.random.default_rng(2).normal(size=(20, 300))
    u, s, _ = np.linalg.svd(wide, full_matrices=False)
    assert equivariance(wide) == pytest.approx(equivariance(u * s), abs=1e-12)
    assert equivariance(np.ones((5, 3))) == 1


def test_shuffled_positions_keep_the_diagonal_and_no_more():
    # The exact mean over all orders, for a table whose rows have unequal lengths: from all 720 permutations of 6 rows.
    rows = np.random.default_rng(4).normal(size=(6, 3)) * np.arange(1, 7)[:, None]
    every = np.mean([equivariance(rows[list(order)]) for order in itertools.permutations(range(6))])
    null = equivariance_null(rows, shuffles=2000)
    assert null.mean() == pytest.approx(every, abs=4 * null.std() / np.sqrt(2000))
    assert np.all(np.diff(null) >= 0) and np.array_equal(null, equivariance_null(rows, shuffles=2000))
    assert equivariance(waves(64, 1, 2)) > equivariance_null(waves(64, 1, 2))[-1]


def test_approximations_end_at_the_table(table):
    """Approximations end at the table and lose what the components hold."""
    np.testing.assert_allclose(approximation(table, 12), table, atol=1e-12)
    np.testing.assert_allclose(approximation(table, 0), np.tile(table.mean(0), (40, 1)), atol=1e-12)
    s = spectrum(table)
    for k in (1, 3, 7):
        left = table - approximation(table, k)
        assert np.sum(left**2) / np.sum((table - table.mean(0)) ** 2) == pytest.approx(s.shares[k:].sum())
    np.testing.assert_allclose(inner_products(table), table @ table.T)
    np.testing.assert_allclose(inner_products(table, 2), approximation(table, 2) @ approximation(table, 2).T)
    expected = [equivariance(approximation(table, k)) for k in (0, 1, 5, 12)]
    np.testing.assert_allclose(equivariance_of_first(table, (0, 1, 5, 12)), expected, atol=1e-11)
    np.testing.assert_allclose(
        equivariance_of_first(table.T, (2, 30)), [equivariance(approximation(table.T, 2)), equivariance(table.T)]
    )
    with pytest.raises(ValueError, match="0 or more components. Got -1"):
        approximation(table, -1)


@pytest.mark.parametrize("shape", [(300, 20), (20, 300), (30, 30)])
def test_component_shares_are_those_of_the_spectrum(shape):
    table = np.random.default_rng(6).normal(size=shape) * np.linspace(3, 0.1, shape[1]) + 5.0
    np.testing.assert_allclose(component_shares(table), spectrum(table).shares, atol=1e-13)
    with pytest.raises(ValueError, match="equal"):
        component_shares(np.full(shape, 0.1))


def test_the_first_and_last_position_stand_alone():
    # LOWDIM figure 4: two outliers from the circle, and not their neighbours.
    turn = 2 * np.pi * np.arange(64) / 70
    circle = np.stack([np.cos(turn), np.sin(turn)], 1)
    assert isolation(circle) == pytest.approx(1) and outliers(circle).size == 0
    circle[0] += 3
    circle[-1] -= 2
    assert outliers(circle).tolist() == [0, 63]
    assert outliers(np.random.default_rng(0).normal(size=(256, 16))).size == 0
    assert isolation(np.ones((9, 2))).tolist() == [0] * 9


def test_isolation_is_the_nearest_distance_in_medians():
    rows = np.random.default_rng(8).normal(size=(1500, 3))  # more than one block
    distance = np.linalg.norm(rows[:, None] - rows[None], axis=2) + np.where(np.eye(1500), np.inf, 0)
    nearest = distance.min(1)
    np.testing.assert_allclose(isolation(1e5 * rows), nearest / np.median(nearest), rtol=1e-6)


def test_dominant_turns_are_the_peaks_of_the_summed_magnitudes():
    turn = 2 * np.pi * np.arange(128)[:, None] / 128
    table = np.concatenate([4 * np.cos(turn), 2 * np.sin(5 * turn), np.cos(15 * turn), np.cos(40 * turn + 1)], 1)
    noisy = table + 0.05 * np.random.default_rng(0).normal(size=table.shape)
    s = spectrum(noisy)
    assert set(dominant_turns(s.magnitudes)[:4].tolist()) == {1, 5, 15, 40}
    np.testing.assert_allclose(s.magnitudes, np.abs(np.fft.rfft(s.scores, axis=0)).T, atol=1e-10)
    assert dominant_turns(spectrum(np.random.default_rng(1).normal(size=(256, 64))).magnitudes).size == 0


def test_waves_land_in_their_bins():
    s = spectrum(waves(64, 1, 2, 9) * [3, 2, 1])
    np.testing.assert_allclose(s.dct_power[[0, 1, 2], [1, 2, 9]], 1, atol=1e-12)
    np.testing.assert_allclose(s.low4, [1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(s.shares, np.array([9, 4, 1]) / 14)
    assert s.revolutions[1] == 1  # two half waves
    assert s.n50 == pytest.approx(100 / 3)


def test_n50_is_per_cent_of_the_smaller_side():
    wide = np.concatenate([waves(8, 1, 2, 3), np.zeros((8, 29))], axis=1)
    assert spectrum(wide).n50 == pytest.approx(100 * 2 / 8)
    assert spectrum(wide.T).n50 == pytest.approx(100 * 2 / 8)


def test_first_four_bins_are_zero_to_three():
    low4 = spectrum(waves(64, 3, 4) * [2, 1]).low4
    np.testing.assert_allclose(low4, [1, 0], atol=1e-12)


def test_revolutions_count_whole_turns():
    turn = 2 * np.pi * np.arange(60) / 60
    assert list(spectrum(np.stack([3 * np.cos(5 * turn), np.sin(15 * turn)], 1)).revolutions) == [5, 15]


def test_sign_is_fixed(table):
    s = spectrum(table)
    flipped = spectrum(-table)
    np.testing.assert_allclose(s.scores, flipped.scores, atol=1e-11)
    assert spectrum(-waves(32, 1)).scores[0, 0] > 0


@pytest.mark.parametrize("factor", [1e-200, 1e-8, 3.0, 1e200])
def test_scale_changes_scores_only(table, factor):
    a = spectrum(table)
    b = spectrum(table * factor)
    for name in ("shares", "dct_power", "low4", "n50", "equivariance", "revolutions"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.scores, b.scores / factor, atol=1e-10)


def test_rotation_and_offset_change_nothing(table):
    q = ortho_group.rvs(12, random_state=0)
    a = spectrum(table)
    rotated = spectrum(table @ q)
    moved = spectrum(table + np.arange(12))
    for name in ("shares", "scores", "dct_power", "n50"):
        np.testing.assert_allclose(getattr(a, name), getattr(rotated, name), atol=1e-11)
        np.testing.assert_allclose(getattr(a, name), getattr(moved, name), atol=1e-11)
    assert rotated.equivariance == pytest.approx(a.equivariance, abs=1e-10)
    assert moved.equivariance != pytest.approx(a.equivariance, abs=1e-3)


def test_large_offset_leaves_the_spectrum():
    table = np.random.default_rng(3).normal(size=(30, 4))
    np.testing.assert_allclose(spectrum(table + 1e6).shares, spectrum(table).shares, atol=1e-8)


def test_float32_and_integers_are_accepted(table):
    np.testing.assert_allclose(spectrum(table.astype(np.float32)).shares, spectrum(table).shares, atol=1e-6)
    assert spectrum(np.array([[1], [2], [3]])).shares == pytest.approx([1])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((4, 3), 0.1), "equal"),
        (np.zeros((4, 3)), "equal"),
        (np.ones((1, 3)), "at least 2"),
        (np.ones(3), "two dimensions"),
        (np.ones((4, 0)), "two dimensions"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "first row 1"),
        (np.array([[1.0, np.inf], [2.0, 1.0]]), "first row 0"),
        (np.ones((2, 2)) * 1j, "real"),
        (np.array([["a", "b"]] * 2), "real"),
    ],
)
def test_bad_tables_are_one_line_errors(bad, message):
    with pytest.raises(ValueError, match=message) as error:
        spectrum(bad)
    assert "\n" not in str(error.value)


def test_the_white_floor_equals_added_noise():
    """The white floor is the share of noise that was added."""
    n = 128
    d = 8
    noise = np.array([white_floor(np.random.default_rng(k).normal(size=(n, d))) for k in range(200)])
    assert noise.mean() == pytest.approx(0.97, abs=0.02) and noise.min() > 2 / 3  # cut at 1
    # Waves outside the band, slow and from row to row, have no floor; noise of equal power beside them is half.
    signal = np.tile(waves(n, 1, 2, 120, 127), 2)
    assert white_floor(signal) < 1e-12
    mixed = [white_floor(signal + np.random.default_rng(k).normal(size=(n, d)) * signal.std()) for k in range(200)]
    assert np.mean(mixed) == pytest.approx(0.5, abs=0.01)
    # 20 and 42 turns lie in a band each. All of all-MiniLM-L6-v2's table counted as noise for its waves of 88 turns.
    assert white_floor(np.tile(waves(n, 40), 2)) < 1e-12 and white_floor(np.tile(waves(n, 84), 2)) < 1e-12
    assert white_floor(np.random.default_rng(0).normal(size=(n, d)) * 1e-9 + 7) == pytest.approx(noise[0], rel=1e-5)
    assert white_floor(np.full((n, d), 0.3)) == 1.0
    with pytest.raises(ValueError, match="needs 8 positions; got 7"):
        white_floor(np.eye(7))
