"""Positional distributions and Hellinger distances: eq. 3 in loops, known values, what is left out and said."""

import numpy as np
import pytest
from known_distributions import distributions, naive_hellinger, sample
from scipy import sparse

from whatwhere.geometry import MIN_SUPPORT, hellinger, positional_distributions

SQRT2 = np.sqrt(2)


def test_hellinger_equals_the_written_out_sum_sparse_and_dense():
    counts = sample(distributions(12, 60), 400)
    kept = positional_distributions(counts, min_support=1)
    expected = naive_hellinger(kept.p.toarray())
    np.testing.assert_allclose(hellinger(kept.p), expected, atol=1e-14)
    np.testing.assert_allclose(hellinger(kept.p.toarray()), expected, atol=1e-14)
    np.testing.assert_allclose(hellinger(sparse.csr_matrix(kept.p)), expected, atol=1e-14)


def test_known_distances():
    """No common token: √2. Uniform over 2 against one of them: (1 - √½)² + ½ = 2 - √2."""
    p = np.array([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0], [1, 0, 0]])
    d = hellinger(p)
    assert d[0, 1] == pytest.approx(SQRT2) and d[0, 2] == pytest.approx(np.sqrt(2 - SQRT2))
    assert d[0, 3] == 0 and d.max() <= SQRT2 and d.dtype == np.float64
    np.testing.assert_array_equal(d, d.T)


def test_distances_satisfy_the_triangle_inequality():
    d = hellinger(distributions(15))
    assert np.all(d[:, :, None] <= d[:, None, :] + d.T[None, :, :] + 1e-12)


def test_near_equal_distributions_are_told_apart():
    p = distributions(3, 50)
    q = p.copy()
    q[:, 0] += 1e-12
    q[:, 1] -= 1e-12
    expected = [naive_hellinger(np.stack([a, b]))[0, 1] for a, b in zip(p, q, strict=True)]
    assert np.all(np.array(expected) < 1e-10)
    np.testing.assert_allclose(
        hellinger(p, q), expected, rtol=1e-3
    )  # sharing 12 of 16 digits, the entries have 3 or 4 of their own
    np.testing.assert_allclose(hellinger(np.concatenate([p, q]))[[0, 1, 2], [3, 4, 5]], expected, rtol=1e-3)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_two_corpora_are_compared_position_by_position(make):
    p = distributions(10, 40, 0)
    q = distributions(10, 40, 1)
    both = naive_hellinger(np.concatenate([p, q]))
    np.testing.assert_allclose(hellinger(make(p), q), both[np.arange(10), np.arange(10, 20)], atol=1e-14)
    assert not hellinger(make(p), make(p)).any()


def test_rows_that_are_no_distributions_are_refused():
    p = distributions(4, 10)
    with pytest.raises(ValueError, match="Every row of p sums to 1. Row 2 sums to 2"):
        hellinger(p * np.array([1, 1, 2, 1])[:, None])
    with pytest.raises(ValueError, match="Every row of p sums to 1. Row 0 sums to nan"):
        hellinger(p * np.nan)
    with pytest.raises(ValueError, match="not negative"):
        hellinger(p - 0.1)
    with pytest.raises(ValueError, match=r"shapes \(4, 10\) and \(3, 10\)"):
        hellinger(p, p[:3])


def test_thin_and_unoccupied_positions_are_left_out_and_listed():
    counts = np.array([[300, 300], [0, 500], [0, 0], [499, 0], [1, 700]])
    d = positional_distributions(sparse.csr_array(counts))
    assert MIN_SUPPORT == 500
    assert list(d.positions) == [0, 1, 4] and list(d.left_out) == [2, 3] and list(d.support) == [600, 500, 0, 499, 701]
    np.testing.assert_allclose(d.p.toarray(), [[0.5, 0.5], [0, 1], [1 / 701, 700 / 701]])
    assert sparse.issparse(d.p) and d.p.dtype == np.float64
    everything = positional_distributions(counts, min_support=0)
    assert list(everything.positions) == [0, 1, 3, 4] and list(everything.left_out) == [2]  # never invented


def test_smoothing_adds_to_every_count():
    d = positional_distributions(sparse.csr_array(np.array([[3, 0, 1]])), smoothing=0.5, min_support=0)
    np.testing.assert_allclose(d.p, [[3.5 / 5.5, 0.5 / 5.5, 1.5 / 5.5]])


def test_papers_protocol_makes_unoccupied_positions_uniform():
    counts = sample(distributions(6, 30), [50, 50, 50, 50, 0, 0])
    d = positional_distributions(counts, smoothing=1e-12, min_support=0)
    np.testing.assert_allclose(d.p[4:], 1 / 30, rtol=1e-12)
    assert not len(d.left_out) and hellinger(d.p)[4, 5] == 0


@pytest.mark.parametrize(
    ("counts", "settings", "message"),
    [
        (np.zeros((4, 3)), {}, "No position has 500 tokens.*at most 0, at position 0. Give text with tokens in it"),
        (
            [[1, 2], [3, 4]],
            {},
            r"No position has 500 tokens.*at most 7, at position 1. Count more text, .*are the smallest\.$",
        ),
        ([[10, 0], [50, 49], [40, 20], [70, 1]], {}, r"at most 99, at position 1\. .* Or take .* min_support=60\.$"),
        ([[1, -2], [3, 4]], {}, "Counts are finite and not negative. The smallest is -2"),
        ([1, 2], {}, r"Counts have shape \(positions, vocabulary\). Got \(2,\)"),
        ([[1, 2]], {"smoothing": -1.0}, "Got smoothing=-1.0"),
    ],
)
def test_bad_counts_are_refused_in_one_line(counts, settings, message):
    with pytest.raises(ValueError, match=message) as error:
        positional_distributions(np.array(counts), **settings)
    assert "\n" not in str(error.value)
