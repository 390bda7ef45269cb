"""Lemmas 12 and 16 of GEOM by numbers: both sides on random distributions, and small cases in which a printed step is
false."""

from itertools import product

import numpy as np
import pytest
from inequalities import (
    Inequality,
    attention_bound,
    expected_attention,
    kl_divergences,
    kl_step_share,
    kl_upper_bound,
    mean_embedding_bound,
    score_gradient,
)
from scipy.sparse import csr_array
from scipy.special import rel_entr, softmax

from whatwhere.geometry.distances import hellinger


def distributions(seed: int, n: int = 12, vocabulary: int = 5, concentration: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(vocabulary, concentration), size=n)


def test_used_constant_is_the_largest_ratio():
    """Used is the largest ratio of both sides off the diagonal."""
    left = np.array([[0.0, 2.0], [1.0, 0.0]])
    right = np.array([[0.0, 4.0], [0.5, 0.0]])
    case = Inequality(left, right, 2 * right)
    assert case.used() == 2 and case.used("sharp") == 1
    assert Inequality(left, 0 * right, right).used() == np.inf and Inequality(0 * left, 0 * right, right).used() == 0


# Lemma 12


def test_kl_divergences_equal_scipy():
    """KL divergences are those of SciPy and infinite without support."""
    p = np.vstack([distributions(0, n=4), [0.5, 0.5, 0, 0, 0], [0, 0, 0.2, 0.3, 0.5]])
    wanted = np.array([[rel_entr(a, b).sum() for b in p] for a in p])
    assert np.isinf(wanted).any()
    for found in (kl_divergences(p), kl_divergences(csr_array(p))):
        assert np.array_equal(np.isinf(found), np.isinf(wanted))
        assert np.allclose(found[np.isfinite(found)], wanted[np.isfinite(wanted)])


def test_the_kl_step_fails_for_random_triples():
    """The step on KL differences fails for a third of random triples."""
    # 31 % of random triples. Uniform distributions over five tokens.
    d = kl_divergences(distributions(1, n=120))
    share = kl_step_share(d)
    assert 0.27 < share < 0.36
    small = d[:7, :7]
    triples = [(i, j, k) for i, j, k in product(range(7), repeat=3) if len({i, j, k}) == 3]
    assert kl_step_share(small) == np.mean([abs(small[i, k] - small[j, k]) > small[i, j] for i, j, k in triples])


def test_the_step_on_kl_differences_leaves_infinite_divergences_out():
    d = kl_divergences(distributions(2, n=5))
    d[0, 1:] = np.inf
    triples = [(i, j, k) for i, j, k in product(range(5), repeat=3) if len({i, j, k}) == 3]
    wanted = [abs(d[i, k] - d[j, k]) > d[i, j] for i, j, k in triples if np.isfinite([d[i, k], d[j, k], d[i, j]]).all()]
    assert kl_step_share(d) == np.mean(wanted)
    assert np.isnan(kl_step_share(np.full((3, 3), np.inf)))


def test_no_constant_bounds_kl_by_the_hellinger_distance():
    rare = np.array([[0.99, 0.01], [0.01, 0.99]])
    case = kl_upper_bound(rare)
    assert case.left[0, 1] == pytest.approx(4.503, abs=1e-3) and case.printed[0, 1] == pytest.approx(3.580, abs=1e-3)
    rarer = np.array([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])
    assert kl_upper_bound(rarer).used() > 4 * case.used() > 4
    assert np.isinf(kl_upper_bound(np.eye(2)).left[0, 1])


@pytest.mark.parametrize("concentration", [0.5, 1.0, 5.0])
def test_kl_lies_between_its_bounds(concentration):
    """KL lies between the squared distance and the bound by the rarest token."""
    # The paper's "Pinsker-Hellinger" D ≥ d²/2 is true and can be doubled: D ≥ -2 log(1 - d²/2) ≥ d².
    p = distributions(3, n=100, concentration=concentration)
    case = kl_upper_bound(p)
    dist = hellinger(p)
    assert (case.left >= dist**2 - 1e-12).all() and case.used("sharp") <= 1
    near = kl_upper_bound(np.array([[0.5, 0.5], [0.505, 0.495]]))
    assert near.left[0, 1] / hellinger(np.array([[0.5, 0.5], [0.505, 0.495]]))[0, 1] ** 2 == pytest.approx(2, abs=0.01)


# Lemma 16


@pytest.mark.parametrize("vocabulary", [2, 5, 300])
def test_mean_embeddings_are_lipschitz(vocabulary):
    """Mean embeddings are lipschitz with the printed constant and with one without the vocabulary."""
    p = distributions(4, vocabulary=vocabulary, concentration=0.3)
    E = np.random.default_rng(5).normal(size=(vocabulary, 7))
    case = mean_embedding_bound(p, E)
    mean = p @ E
    assert case.left[2, 5] == pytest.approx(np.linalg.norm(mean[2] - mean[5]))
    assert case.used() <= case.used("sharp") <= 1
    assert case.printed[2, 5] / case.sharp[2, 5] == pytest.approx(np.sqrt(2 * vocabulary) / 2)


def test_no_smaller_constant_holds_for_mean_embeddings():
    # Opposite tokens, two near-equal distributions: |μ - ν|₁ is then 2·d_H.
    p = np.array([[0.5, 0.5], [0.5 + 1e-5, 0.5 - 1e-5]])
    assert mean_embedding_bound(p, np.array([[1.0], [-1.0]])).used("sharp") == pytest.approx(1, abs=1e-6)


def test_softmax_is_one_half_lipschitz_in_the_largest_norm():
    draw = np.random.default_rng(6)
    u = draw.normal(size=(20000, 3)) * draw.choice([0.01, 1, 5], size=(20000, 1))
    step = draw.uniform(-1, 1, size=u.shape)
    ratio = np.abs(softmax(u + step, axis=1) - softmax(u, axis=1)).max(axis=1) / np.abs(step).max(axis=1)
    assert ratio.max() <= 0.5
    u = np.zeros(2)
    step = np.array([1e-6, -1e-6])
    assert np.abs(softmax(u + step) - softmax(u)).max() / 1e-6 == pytest.approx(0.5)


@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_attention_of_mean_embeddings_is_lipschitz_with_both_constants(size):
    draw = np.random.default_rng(7)
    p = distributions(8, vocabulary=9)
    E = size * draw.normal(size=(9, 6))
    M = draw.normal(size=(6, 6))
    case = attention_bound(p, E, M, d_k=3)
    weights = softmax((p @ E) @ M @ (p @ E).T / np.sqrt(3), axis=1)
    assert case.left[1, 4] == pytest.approx(np.abs(weights[1] - weights[4]).max())
    assert case.used() <= case.used("sharp") <= 1


def test_expected_attention_is_the_mean_over_queries_and_contexts():
    draw = np.random.default_rng(9)
    p = distributions(10, n=3, vocabulary=4)
    E = draw.normal(size=(4, 2))
    M = draw.normal(size=(2, 2))
    contexts = draw.integers(0, 4, size=(5, 6))
    wanted = np.zeros((3, 6))
    for i in range(3):
        for v in range(4):
            for context in contexts:
                wanted[i] += p[i, v] * softmax([E[v] @ M @ E[key] / np.sqrt(2) for key in context]) / 5
    found = expected_attention(p, E, M, 2, contexts)
    assert np.allclose(found, wanted) and np.allclose(found.sum(axis=1), 1)


def test_expected_attention_breaks_the_printed_bound():
    """Expected attention breaks the printed bound where mean embeddings vanish."""
    # Tokens ±1 and ±2, both signs alike at every position: ē = 0 everywhere, so L_A = 0 and the lemma says that Ā does
    # not depend on μ_i.
    E = np.array([[1.0], [-1.0], [2.0], [-2.0]])
    p = np.array([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])
    contexts = np.array(list(product([0, 1], [2, 3], [2, 3])))
    weights = expected_attention(p, E, np.eye(1), 1, contexts)
    case = attention_bound(p, E, np.eye(1), 1, weights)
    assert case.left[0, 1] == pytest.approx(0.0249, abs=1e-4)
    assert not case.printed.any() and case.used() == np.inf and case.used("sharp") <= 1


def test_the_score_gradient_is_the_derivative():
    """Score gradient is the derivative and the printed one is not."""
    draw = np.random.default_rng(11)
    values = draw.normal(size=(5, 3))
    scores = draw.normal(size=5)
    target = draw.normal(size=3)

    def loss(scores):
        return 0.5 * np.sum((softmax(scores) @ values - target) ** 2)

    numeric = [(loss(scores + step) - loss(scores - step)) / 2e-6 for step in 1e-6 * np.eye(5)]
    weights = softmax(scores)
    exact, printed = score_gradient(values, weights, weights @ values - target)
    assert np.allclose(exact, numeric, atol=1e-8) and abs(exact.sum()) < 1e-14
    assert np.abs(printed - exact).max() > 0.1 * np.abs(exact).max()
    # Equal values: no score matters. The printed form says otherwise.
    exact, printed = score_gradient(np.ones((4, 1)), np.full(4, 0.25), np.ones(1))
    assert not exact.any() and np.allclose(printed, 3 / 16)


def test_an_embedding_of_another_vocabulary_is_an_error():
    with pytest.raises(ValueError, match=r"each of the 5 tokens of p. Got shape \(4, 2\)"):
        mean_embedding_bound(distributions(0), np.ones((4, 2)))
    with pytest.raises(ValueError, match="sums to 1"):
        kl_divergences(np.ones((2, 2)))
