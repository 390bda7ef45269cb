"""Tables that need no training: the encoder's own, rotations, straight lines."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from whatwhere.encoder.distance_biases import alibi_slopes
from whatwhere.encoder.tables import sinusoid
from whatwhere.geometry import ENCODINGS, alibi, random_table, rope, sinusoidal


@pytest.mark.parametrize(("n", "d"), [(128, 768), (32, 16), (5, 7), (3, 1)])
def test_sinusoidal_is_the_encoders_table(n, d):
    np.testing.assert_allclose(sinusoidal(n, d), sinusoid(n, d, torch.float64).numpy(), atol=1e-13)


def test_rope_holds_the_rotation_of_each_position():
    """cos(θi)cos(θj) + sin(θi)sin(θj) = cos(θ(i - j)): inner products depend on the distance, and every head is the
    same."""
    table = rope(50, 256)
    assert table.shape == (50, 256)
    frequencies = 10000.0 ** (-2 * np.arange(32) / 64)
    lag = np.subtract.outer(np.arange(50), np.arange(50))
    np.testing.assert_allclose(table @ table.T, 4 * np.cos(lag[..., None] * frequencies).sum(-1), atol=1e-11)


def test_rope_is_a_reordered_sinusoid():
    """RoPE is the sinusoid of a head in other order."""
    np.testing.assert_allclose(pdist(rope(40, 768)), pdist(sinusoidal(40, 64)) * np.sqrt(12), rtol=1e-12)


@pytest.mark.parametrize(("d", "width"), [(100, 64), (63, 63), (64, 0)])
def test_rope_needs_whole_heads(d, width):
    with pytest.raises(ValueError, match=f"d={d}, head_width={width}"):
        rope(8, d, width)


@pytest.mark.parametrize("heads", [1, 4, 8, 16])
def test_alibi_has_the_encoders_slopes_for_powers_of_two(heads):
    expected = -np.outer(np.arange(10), alibi_slopes(heads)) / 10
    np.testing.assert_allclose(alibi(10, heads), expected, rtol=1e-14)


def test_alibi_distances_are_straight_lines():
    d = pdist(alibi(20, slopes=[0.5] * 12))
    np.testing.assert_allclose(d, pdist(np.arange(20.0)[:, None]) * 0.5 * np.sqrt(12) / 20)
    with pytest.raises(ValueError, match="heads=12, 2 slopes"):
        alibi(20, slopes=[1, 2])


def test_random_tables_are_normal_and_repeat():
    """Random table is standard normal and repeats with its seed."""
    table = random_table(200, 300, seed=1)
    assert abs(table.mean()) < 0.02 and table.std() == pytest.approx(1, abs=0.02)
    np.testing.assert_array_equal(table, random_table(200, 300, seed=1))
    assert not np.array_equal(table, random_table(200, 300, seed=2))


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("d", [16, 768])
def test_every_encoding_gives_a_table(name, d):
    table = ENCODINGS[name](24, d)
    assert table.shape == (24, 12 if name == "alibi" else d) and table.dtype == np.float64
