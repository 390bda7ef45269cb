"""Counts with known distributions for the tests of the corpus geometry."""

import numpy as np
from scipy import sparse


def distributions(n=20, vocabulary=300, seed=0, drift=1.0):
    """(n, V) true token distributions that move smoothly with position: Zipf's law, each word with its own slow
    waves."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, n)
    waves = np.stack([np.cos(np.pi * k * x) / k for k in (1, 2, 3)], axis=1)
    weights = np.arange(1, vocabulary + 1) ** -1.1 * np.exp(drift * waves @ rng.normal(size=(3, vocabulary)))
    return weights / weights.sum(axis=1, keepdims=True)


def sample(p, tokens, seed=0):
    """Counts (n, V) of `tokens` tokens (a number or one a position) at each position."""
    rng = np.random.default_rng(seed)
    return sparse.csr_array(
        np.stack([rng.multinomial(t, row) for t, row in zip(np.broadcast_to(tokens, len(p)), p, strict=True)])
    )


def naive_hellinger(p):
    """GEOM eq. 3 written out in loops."""
    n, v = p.shape
    return np.array(
        [
            [np.sqrt(sum((np.sqrt(p[i, t]) - np.sqrt(p[j, t])) ** 2 for t in range(v))) for j in range(n)]
            for i in range(n)
        ]
    )
