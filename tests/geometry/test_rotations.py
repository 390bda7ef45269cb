"""Pairs of components that turn: circles of known turns, half waves that are none, least squares written out, order and
noise."""

import numpy as np
import pytest
from scipy.stats import ortho_group

from whatwhere.geometry import Waves, rotations, spectrum


def circles(n, *turns, width=12, phase=0.0, seed=0):
    """One circle for each number of turns, ever smaller, in orthogonal planes of a wide table."""
    t = 2 * np.pi * np.arange(n)[:, None] / n
    flat = np.concatenate(
        [2.0**-i * np.concatenate([np.cos(f * t + phase), np.sin(f * t + phase)], 1) for i, f in enumerate(turns)], 1
    )
    return flat @ ortho_group.rvs(width, random_state=seed)[: 2 * len(turns)]


def half_waves(n, m):
    """What principal components of a smooth table look like: cos πt, cos 2πt, ..., ever smaller."""
    t = (np.arange(n)[:, None] + 0.5) / n
    return np.cos(np.pi * t * np.arange(1, m + 1)) * 0.8 ** np.arange(m)


def test_circles_are_found_with_their_turns():
    # The revolutions of LOWDIM section 4: 1, 5, 15 and 49 turns over 512 positions.
    found = rotations(spectrum(circles(512, 1, 5, 15, 49)))
    assert [(r.first, r.second, r.turns) for r in found] == [(0, 1, 1), (2, 3, 5), (4, 5, 15), (6, 7, 49)]
    for r in found:
        assert r.frequencies == (r.turns, r.turns) and r.shift == pytest.approx(0.25) and r.strength == pytest.approx(1)
    assert [r.share for r in found] == pytest.approx([64 / 85, 16 / 85, 4 / 85, 1 / 85])


@pytest.mark.parametrize("turns", [0.75, 0.9375, 1.5, 7.25])
def test_turns_need_not_be_whole(turns):
    # LOWDIM figure 4: "almost completes a full turn". The centre of an open arc is not its mean, which the constant
    # takes up.
    (r,) = rotations(spectrum(circles(256, turns)))
    assert r.turns == pytest.approx(turns, abs=1 / 16) and r.strength > 0.95


def test_half_waves_of_a_smooth_table_are_no_rotation():
    # They draw arcs too, and one steady turn explains over 0.8 of the first two, but their frequencies lie half a turn
    # apart.
    s = spectrum(half_waves(128, 8))
    assert Waves(s.scores).frequency == pytest.approx(np.arange(1, 9) / 2, abs=0.07)
    assert Waves(s.scores).fit == pytest.approx(1, abs=0.01)
    assert rotations(s) == []


def test_noise_has_no_rotations():
    for seed in range(5):
        assert rotations(spectrum(np.random.default_rng(seed).normal(size=(128, 32)))) == []


def test_noise_around_circles_is_left_out():
    table = circles(256, 2, 9) + 0.1 * np.random.default_rng(1).normal(size=(256, 12))
    found = rotations(spectrum(table))
    assert [(r.first, r.second) for r in found] == [(0, 1), (2, 3)]
    assert all(0.5 < r.strength < 1 for r in found)


def test_direction_phase_and_sign_do_not_matter():
    table = circles(100, 3, phase=0.7)
    for other in (-table, table[::-1], table + 5.0, 1e6 * table):
        (r,) = rotations(spectrum(other))
        assert (r.turns, r.shift, r.strength) == (3, pytest.approx(0.25), pytest.approx(1))


def test_each_component_is_in_one_pair():
    found = rotations(spectrum(circles(200, 4, 4.1, 4.2) + 0.02 * np.random.default_rng(0).normal(size=(200, 12))))
    used = [c for r in found for c in (r.first, r.second)]
    assert found and len(used) == len(set(used))


def test_waves_equal_least_squares():
    series = np.random.default_rng(3).normal(size=(30, 2)) + np.sin(2 * np.pi * 2.3 * np.arange(30) / 30)[:, None]
    waves = Waves(series)
    for i in range(2):
        best = {}
        for turns in np.arange(4, 30 * 8) / 16:
            angle = 2 * np.pi * turns * np.arange(30) / 30
            basis = np.stack([np.ones(30), np.cos(angle), np.sin(angle)], 1)
            left = series[:, i] - basis @ np.linalg.lstsq(basis, series[:, i])[0]
            best[turns] = 1 - np.sum(left**2) / np.sum((series[:, i] - series[:, i].mean()) ** 2)
        assert waves.frequency[i] == max(best, key=best.get)
        assert waves.fit[i] == pytest.approx(max(best.values()))


def test_strength_equals_the_best_circle_by_least_squares():
    table = circles(40, 3) + 0.3 * np.random.default_rng(5).normal(size=(40, 12))
    s = spectrum(table)
    (r, *_) = rotations(s)
    z = s.scores[:, r.first] / np.linalg.norm(s.scores[:, r.first]) + 1j * s.scores[:, r.second] / np.linalg.norm(
        s.scores[:, r.second]
    )
    explained = []
    for direction in (1, -1):
        basis = np.stack([np.ones(40), np.exp(direction * 2j * np.pi * r.turns * np.arange(40) / 40)], 1)
        explained.append(1 - np.sum(np.abs(z - basis @ np.linalg.lstsq(basis, z)[0]) ** 2) / np.sum(np.abs(z) ** 2))
    assert r.strength == pytest.approx(max(explained))


def test_few_positions_give_no_pairs():
    assert rotations(spectrum(circles(7, 1))) == []
    assert rotations(spectrum(np.arange(20.0)[:, None])) == []
