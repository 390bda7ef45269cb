"""Mean roots of thinned counts: scipy's binomial distribution summed out, random draws, what stays as it is."""

import numpy as np
import pytest
from known_distributions import distributions, sample
from scipy import sparse
from scipy.stats import binom

from whatwhere.geometry.resampling import thinned_roots


def expected(count, q):
    """Mean of √X summed over every X."""
    k = np.arange(count + 1)
    return float(np.sqrt(k) @ binom.pmf(k, count, q))


@pytest.mark.parametrize("support", [1000, 2500, 60_000])
def test_mean_roots_are_the_sums_over_the_binomial_distribution(support):
    """Counts on both sides of each of the three ways; the series is right to 5e-6."""
    counts = np.array([0, 1, 2, 5, 63, 64, 65, 300, 499])
    row = np.append(counts, support - counts.sum() if support > counts.sum() else 1)
    total = row.sum()
    tokens = 700
    found = thinned_roots(sparse.csr_array(row[None]), tokens).toarray()[0]
    np.testing.assert_allclose(
        found, [expected(c, tokens / total) / np.sqrt(tokens) for c in row], rtol=5e-6, atol=1e-12
    )


def test_positions_of_no_more_tokens_keep_their_shares():
    counts = sample(distributions(5, 80), [40, 200, 500, 900, 1000])
    found = thinned_roots(counts, 1000).toarray()
    np.testing.assert_allclose(found, np.sqrt(counts.toarray() / counts.sum(axis=1)[:, None]), rtol=1e-12)


def test_mean_roots_are_what_draws_give_on_average():
    counts = sample(distributions(3, 40), [3000, 800, 400])
    rng = np.random.default_rng(0)
    keep = np.array([0.1, 0.375, 0.75])[:, None]
    draws = np.mean([np.sqrt(rng.binomial(counts.toarray(), keep) / 300) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(thinned_roots(counts, 300).toarray(), draws, atol=3e-3)


def test_result_has_the_cells_of_the_counts():
    counts = sample(distributions(4, 300), 500)
    found = thinned_roots(counts, 100)
    np.testing.assert_array_equal(found.indices, counts.indices)
    assert found.shape == counts.shape and found.data.min() > 0
