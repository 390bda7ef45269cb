"""Continued tables: SPLIT's equations written out, exact continuation of what turns, rows that stay."""

import cmath
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from whatwhere import geometry
from whatwhere.geometry import extrapolate
from whatwhere.geometry.extrapolation import METHODS, _network

N = 24
D = 6
LONG = 61
GIVEN = {"mds": {"points": np.random.default_rng(5).normal(size=(200, 3))}}
STRETCHED = ("linear", "nearest")


@pytest.fixture
def table():
    """Smooth, with noise and a mean."""
    rng = np.random.default_rng(0)
    i = np.arange(N)[:, None]
    return np.cos(0.3 * i * np.arange(1, D + 1) / 3 + rng.random(D)) + 0.1 * rng.normal(size=(N, D)) + rng.random(D)


def turning(length, turns, rng):
    """Points on circles of so many turns over N positions, seen through a random linear map, off the origin."""
    angles = 2 * np.pi * np.outer(np.arange(length), turns) / N
    circles = np.hstack([np.cos(angles), np.sin(angles)]) * rng.uniform(0.5, 3, 2 * len(turns))
    return circles @ rng.normal(size=(2 * len(turns), 9)) + rng.normal(size=9)


def test_sinusoidal_is_equation_2(table):
    made = extrapolate(table, LONG, "sinusoidal", as_written=True)
    size = math.sqrt(sum((x - table.mean()) ** 2 for x in table.flat) / table.size)
    for i in range(LONG):
        for k in range(D // 2):
            assert made[i, 2 * k] == pytest.approx(size * math.sin(i / 10000 ** (2 * k / D)), abs=1e-12)
            assert made[i, 2 * k + 1] == pytest.approx(size * math.cos(i / 10000 ** (2 * k / D)), abs=1e-12)


@pytest.mark.parametrize("components", [1, 5, N // 2])
def test_fourier_is_equation_3(table, components):
    made = extrapolate(table, LONG, "fourier", components=components, as_written=True)
    waves = {
        k: [sum(table[j, c] * cmath.exp(-2j * cmath.pi * j * k / N) for j in range(N)) for c in range(D)]
        for k in range(1, N // 2 + 1)
    }
    strongest = sorted(waves, key=lambda k: -sum(abs(x) ** 2 for x in waves[k]))[:components]
    for i in range(LONG):
        for c in range(D):
            whole = sum((waves[k][c] * cmath.exp(2j * cmath.pi * k * i / N)).real for k in strongest)
            assert made[i, c] == pytest.approx(2 / N * whole, abs=1e-10)


@pytest.mark.parametrize("n", [N, N - 1])
def test_all_frequencies_reproduce_the_table(table, n):
    """All frequencies give the table back where the mean is kept."""
    table = table[:n]
    made = extrapolate(table, 3 * n, "fourier", components=n // 2)
    assert made == pytest.approx(np.tile(table, (3, 1)), abs=1e-10)
    written = extrapolate(table, n, "fourier", components=n // 2, as_written=True)
    assert np.abs(written - table).max() > 0.1  # neither the mean nor, of an even length, the last frequency is theirs


def test_cyclic_is_equation_4(table):
    made = extrapolate(table, LONG, "cyclic", as_written=True)
    step = sum(table[j] - table[j - 1] for j in range(1, N)) / (N - 1)
    for i in range(LONG):
        assert made[i] == pytest.approx(table[i % N] + (i // N) * step, abs=1e-12)


def test_learned_is_equation_5(table):
    made = extrapolate(table, LONG, "learned", as_written=True)
    f = _network(table, np.arange(LONG) / N)
    for i in range(LONG):
        share = 1 / (1 + math.exp(-5 * (i / N - 1)))
        assert made[i] == pytest.approx((1 - share) * table[i % N] + share * f[i], abs=1e-12)
    # the network is a function of i / L that says most of the table, and does not run away beyond it
    assert _network(table, np.array([1.5])) == pytest.approx(f[[3 * N // 2]])
    left = ((f[:N] - table) ** 2).sum() / ((table - table.mean(0)) ** 2).sum()
    assert left < 0.1 and np.abs(f).max() < 3 * np.abs(table).max()
    assert extrapolate(table, LONG, "learned")[N:] == pytest.approx(made[N:])


def test_decay_is_equation_6(table):
    made = extrapolate(table, LONG, "decay", as_written=True)
    for i in range(LONG):
        assert made[i] == pytest.approx(table[min(i, N - 1)] / (1 + math.log(1 + max(0, i - N + 1))), abs=1e-12)


@given(st.lists(st.floats(0.6, N / 2 - 1), min_size=1, max_size=3), st.integers(0, 99))
@example([1.0, 5.0, 3.0], 0)  # the first frequency stayed at a bound of its fit
def test_a_table_that_turns_goes_on_turning(turns, seed):
    turns = np.array([t for i, t in enumerate(turns) if all(abs(t - s) > 1.6 for s in turns[:i])])
    truth = turning(5 * N, turns, np.random.default_rng(seed))
    made = extrapolate(truth[:N], 5 * N, "rotation", components=len(turns))
    assert made == pytest.approx(truth, abs=1e-5 * np.abs(truth).max())


def test_whole_turns_go_on_by_frequencies_too():
    truth = turning(5 * N, np.array([2, 5]), np.random.default_rng(0))
    for method in ("fourier", "rotation"):
        assert extrapolate(truth[:N], 5 * N, method, components=2) == pytest.approx(truth, abs=1e-8)


def test_a_longer_corpus_reproduces_an_image_of_its_points(table):
    """A longer corpus gives the table where it is an image of its points."""
    points = np.random.default_rng(1).normal(size=(LONG, 4))
    truth = points @ np.random.default_rng(2).normal(size=(4, D)) + 3
    assert extrapolate(truth[:N], LONG, "mds", points=points) == pytest.approx(truth)


def test_stretched_tables_keep_their_ends(table):
    made = extrapolate(table, LONG, "linear")
    at = np.arange(LONG) * (N - 1) / (LONG - 1)
    assert made == pytest.approx(np.stack([np.interp(at, np.arange(N), column) for column in table.T], axis=1))
    assert extrapolate(table, 2 * N, "nearest") == pytest.approx(np.repeat(table, 2, axis=0))


@pytest.mark.long
def test_waves_of_a_smooth_table_do_not_run_away():
    # Waves drifted together after they were chosen apart: two of nearly one frequency with large opposite amplitudes.
    largest = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        smooth = np.cumsum(np.cumsum(rng.normal(size=(64, 6)), axis=0), axis=0)
        smooth = (smooth - smooth.mean(0)) / smooth.std()
        made = extrapolate(smooth, 5 * 64, "rotation", components=4)
        largest.append(np.abs(made).max() / np.abs(smooth).max())
    assert max(largest) < 3  # 5 where they drift


@pytest.mark.parametrize("method", METHODS)
def test_rows_of_the_table_stay(table, method):
    kept = table.copy()
    made = extrapolate(table, LONG, method, **GIVEN.get(method, {}))
    assert made.shape == (LONG, D) and made.dtype == np.float64 and np.isfinite(made).all()
    assert (table == kept).all()
    if method not in STRETCHED:
        assert (made[:N] == table).all() and np.abs(made[N:] - table[-1]).max() > 1e-3
    assert extrapolate(table, N, method, **GIVEN.get(method, {})) == pytest.approx(table)
    # a scaled table is continued by the scaled rows
    scaled = extrapolate(1e3 * table, LONG, method, **GIVEN.get(method, {}))
    assert scaled == pytest.approx(1e3 * made, abs=0.05 * 1e3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"method": "spline"}, "no method 'spline'. Known: sinusoidal, fourier"),
        ({"length": N - 1}, f"The table has {N} positions. Got length={N - 1}; give a whole number, {N} or more"),
        ({"length": 0}, "Got length=0; give a whole number"),
        ({"length": -3}, "Got length=-3; give a whole number"),
        ({"length": 128.5}, "Got length=128.5; give a whole number"),
        ({"length": 200.0}, "Got length=200.0; give a whole number"),  # numpy refused it, in words of its own
        ({"length": float("nan")}, "Got length=nan; give a whole number"),
        ({"length": float("inf")}, "Got length=inf; give a whole number"),
        ({"length": None}, "Got length=None; give a whole number"),
        ({"method": "fourier", "components": N // 2 + 1}, f"from 1 to half of the {N} positions. Got 13"),
        ({"method": "fourier", "components": 2.5}, "a whole number from 1 to half of the 24 positions. Got 2.5"),
        ({"method": "rotation", "components": 0}, "Got 0 with method='rotation'"),
        ({"method": "cyclic", "components": 2}, "components are of fourier and rotation. Got method='cyclic'"),
        ({"method": "mds"}, "mds needs points, .* tables/NAME-mds.npy of `whatwhere geometry` .--points FILE.npy., or"),
        ({"method": "cyclic", "points": np.ones((LONG, 2))}, "Got method='cyclic'; give mds, or leave points out"),
        ({"method": "mds", "points": np.ones((LONG - 1, 2))}, "a row of finite numbers for each of 61 positions"),
        ({"method": "mds", "points": np.full((LONG, 2), np.nan)}, "Got shape .61, 2. with NaN or infinity"),
    ],
)
def test_wrong_input_is_named(table, more, said):
    with pytest.raises(ValueError, match=said):
        extrapolate(table, **{"length": LONG, **more})


def test_a_table_with_nan_is_refused(table):
    table[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite values in 1 rows, first row 3"):
        extrapolate(table, LONG)


def test_the_name_is_public():
    assert geometry.extrapolate is extrapolate
