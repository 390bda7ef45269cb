"""Roots of token shares at a smaller sample size: what a position with many tokens would show if it had few.

The root of an estimated share is too small on average where the word was counted a few times only, and 0 where it was
not counted at all. So positions of equal distribution and unequal support differ even on average, more the further
support falls apart. At equal sample size the shrinkage is the same and cancels.
"""

from typing import Any

import numpy as np
from scipy import sparse

_STEPS = 64  # numbers of tokens that are summed over; the mean number is below a quarter of it
_SERIES_FROM = 16.0  # mean number of tokens from which three terms of a series are right to 5e-6


def thinned_roots(counts: Any, tokens: float) -> Any:
    """Mean of √(X / tokens) with X tokens left of each count when `tokens` of a position's tokens are drawn; csr_array
    (m, V).

    X is binomial: each token stays with probability q = tokens / support. A position with no more than `tokens` keeps
    all: √(count / support). The mean over all draws has no randomness of its own, unlike a single draw.

    Args:
        counts: csr_array (m, V) of whole numbers, each row with a token at least.
        tokens: sample size to thin to.
    """
    support = np.asarray(counts.sum(axis=1)).ravel()
    keep = np.minimum(tokens / support, 1.0)
    rows = np.repeat(np.arange(len(support)), np.diff(counts.indptr))
    count = counts.data.astype(np.int64)
    table = _mean_root(np.arange(_STEPS), keep[:, None])  # (m, counts)
    roots = table[rows, np.minimum(count, _STEPS - 1)]
    many = np.flatnonzero(count >= _STEPS)
    count, q = count[many], keep[rows[many]]
    rare = count * q < _SERIES_FROM
    roots[many] = np.where(rare, _mean_root(np.where(rare, count, 0), q), _series(count * q, q))
    sizes = np.sqrt(np.minimum(tokens, support))
    return sparse.csr_array((roots / sizes[rows], counts.indices, counts.indptr), shape=counts.shape)


def _mean_root(count: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Mean of √X for X binomial with `count` and `q`, by the sum; for counts below `_STEPS`, or means below `_STEPS` /
    4."""
    gone = q > 0.5  # then the sum goes over the tokens that are gone, so that its first term does not vanish
    p = np.where(gone, 1 - q, q)
    share, odds = (1 - p) ** count, p / (1 - p)
    total = np.where(gone, np.sqrt(count) * share, 0.0)  # k = 0
    for k in range(1, _STEPS):
        share = share * np.maximum(count - k + 1, 0) / k * odds
        total += np.sqrt(np.where(gone, np.maximum(count - k, 0), k)) * share
    return total


def _series(mean: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Mean of √X for X binomial with a large mean: the square root's series in the central moments, to the third order
    of 1/mean."""
    v, skew, r = 1 - q, 1 - 2 * q, 1 / mean
    first = -v / 8
    second = v * skew / 16 - 15 * v**2 / 128
    third = -5 * v * (1 - 6 * q * v) / 128 + 70 * v**2 * skew / 256 - 315 * v**3 / 1024
    return np.sqrt(mean) * (1 + r * (first + r * (second + r * third)))
