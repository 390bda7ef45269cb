"""Violated triples against three loops, known shares, the sampled interval; Toeplitz and circulant shares."""

import numpy as np
import pytest
from known_distributions import distributions
from scipy.linalg import circulant, toeplitz

from whatwhere.geometry import (
    circulant_share,
    hellinger,
    monotonicity,
    monotonicity_interval,
    monotonicity_violations,
    sinusoidal,
    toeplitz_share,
    violations_of_distances,
)
from whatwhere.geometry.distances import distances
from whatwhere.geometry.mds import centred_gram


def naive(d):
    """The contract written out: distinct i, j, k with |i - j| < |i - k|."""
    n = len(d)
    violated = 0
    triples = 0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if len({i, j, k}) == 3 and abs(i - j) < abs(i - k):
                    triples += 1
                    violated += bool(d[i, j] > d[i, k] + 1e-9 * d.max())
    return violated / triples


@pytest.mark.parametrize("n", [3, 4, 11, 16])
def test_violations_equal_three_loops(n):
    table = np.random.default_rng(n).normal(size=(n, 3))
    expected = naive(distances(table))
    assert monotonicity_violations(table) == pytest.approx(expected, abs=1e-15)
    assert violations_of_distances(distances(table)) == pytest.approx(expected, abs=1e-15)
    d = hellinger(distributions(n))
    assert violations_of_distances(d) == pytest.approx(naive(d), abs=1e-15)


def test_lines_noise_and_circles_have_their_known_shares():
    line = np.arange(40.0)[:, None]
    assert monotonicity_violations(line) == 0
    assert monotonicity_violations(np.ones((9, 2))) == 0  # equal distances violate nothing
    assert monotonicity_violations(np.random.default_rng(0).normal(size=(200, 64))) == pytest.approx(0.5, abs=0.02)
    circle = np.concatenate([np.cos(2 * np.pi * line / 40), np.sin(2 * np.pi * line / 40)], axis=1)
    assert monotonicity_violations(circle) == pytest.approx(1 / 6, abs=0.005)  # its ends meet


def test_rounding_violates_nothing():
    """All distances of a simplex are equal up to rounding."""
    table = np.eye(50) + 1e-13 * np.random.default_rng(0).normal(size=(50, 50))
    assert monotonicity_violations(table) == 0


def test_up_to_1024_positions_are_exact():
    """Up to 1024 positions are exact and take no cube of memory."""
    table = sinusoidal(256, 64)
    value, low, high = monotonicity_interval(table)
    assert value == low == high == violations_of_distances(distances(table))


def test_sampled_triples_agree_with_all_of_them(monkeypatch):
    table = sinusoidal(200, 16)
    exact = monotonicity_violations(table)
    monkeypatch.setattr(monotonicity, "EXACT_UP_TO", 100)
    value, low, high = monotonicity_interval(table, samples=200_000)
    assert low < exact < high and high - low < 0.005 and low < value < high
    assert monotonicity_interval(table, samples=200_000) == (value, low, high)
    assert monotonicity_violations(np.arange(150.0)[:, None]) == 0


def test_rows_beside_a_gap_are_no_neighbours(monkeypatch):
    """A table that is monotone at places with gaps had 8 % violations, as kept rows counted as neighbours."""
    places = np.array([0, 1, 2, 3, 10, 11, 12, 40, 41])
    table = places[:, None].astype(float)
    assert monotonicity_interval(table).value == pytest.approx(0.08, abs=0.01)
    for most in (1024, 8):  # all triples, random ones
        monkeypatch.setattr(monotonicity, "EXACT_UP_TO", most)
        assert monotonicity_interval(table, 10_000, positions=places).value == 0


def test_random_triples_are_uniform_over_those_that_count():
    i, j, k = monotonicity._triples(5, 300_000, np.random.default_rng(0))
    assert np.all((i != j) & (i != k) & (j != k) & (abs(i - j) < abs(i - k)))
    found, counts = np.unique(i * 25 + j * 5 + k, return_counts=True)
    triples = [
        (a, b, c)
        for a in range(5)
        for b in range(5)
        for c in range(5)
        if len({a, b, c}) == 3 and abs(a - b) < abs(a - c)
    ]
    assert len(found) == len(triples)
    assert np.abs(counts / counts.mean() - 1).max() < 0.05


def test_toeplitz_and_circulant_shares_are_one():
    """Share of a Toeplitz and of a circulant matrix is one."""
    lags = np.random.default_rng(0).normal(size=12)
    assert toeplitz_share(toeplitz(lags)) == pytest.approx(1)
    assert circulant_share(toeplitz(lags)) < 0.9
    assert circulant_share(circulant(lags)) == pytest.approx(1) == toeplitz_share(circulant(lags))


@pytest.mark.parametrize("power", [1, 2])
def test_centring_mixes_lags(power):
    """A claim that distances depend on the lag alone read the centred matrix, of which no such distances pass 0.9."""
    squares = toeplitz(np.arange(126.0) ** power)
    assert toeplitz_share(squares) == pytest.approx(1)
    assert toeplitz_share(centred_gram(squares)) == pytest.approx({1: 0.83, 2: 0.74}[power], abs=0.01)
    assert toeplitz_share(centred_gram(squares)) < 0.9


def test_shares_are_r2_of_the_means_off_the_diagonal():
    matrix = np.random.default_rng(0).normal(size=(9, 9))
    i, j = np.nonzero(~np.eye(9, dtype=bool))
    for label, share in ((j - i, toeplitz_share), ((j - i) % 9, circulant_share)):
        fit = np.array([matrix[i, j][label == value].mean() for value in label])
        entries = matrix[i, j]
        assert share(matrix) == pytest.approx(
            1 - ((entries - fit) ** 2).sum() / ((entries - entries.mean()) ** 2).sum()
        )
        assert share(3 * matrix + 5 + np.diag(np.arange(9))) == pytest.approx(share(matrix))


def test_share_without_order_is_small():
    """Share without order is small and of equal entries undefined."""
    noise = np.random.default_rng(0).normal(size=(100, 100))
    noise = noise + noise.T
    assert toeplitz_share(noise) == pytest.approx(2 / 100, abs=0.01) and circulant_share(noise) == pytest.approx(
        1 / 100, abs=0.006
    )
    assert np.isnan(toeplitz_share(np.ones((5, 5)) - np.eye(5)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: monotonicity_violations(np.ones((2, 3))), "Got 2 positions, 3 are needed"),
        (lambda: monotonicity_violations(np.ones(3)), "two dimensions"),
        (lambda: toeplitz_share(np.ones((3, 4))), r"Got shape \(3, 4\)"),
        (lambda: circulant_share(np.full((3, 3), np.nan)), "NaN"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
