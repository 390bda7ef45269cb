"""Both sides of the inequalities of GEOM's appendix A: the steps of Lemma 12 on KL divergences, Lemma 16 on embeddings
and attention.

Names as in the paper: μ the distributions of positions (here p), E the embedding, ē_i = Σ_v μ_i(v) E(v), M = W_Q·W_Kᵀ,
A the attention weights; ‖E‖∞ and ‖ē‖∞ are the largest norms of a row, ‖M‖ is the largest singular value. Which of them
hold: docs/theory.md.
"""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse
from scipy.spatial.distance import cdist
from scipy.special import softmax

from whatwhere.geometry.distances import Rows, hellinger, square_roots


@dataclass(frozen=True, eq=False)
class Inequality:
    """left ≤ right for every two positions, each (n, n): `printed` as the paper has it, `sharp` a smaller right side
    that holds too."""

    left: np.ndarray
    printed: np.ndarray
    sharp: np.ndarray

    def used(self, right: str = "printed") -> float:
        """The largest left/right over all pairs: above 1 if the inequality fails, inf if some right side is 0 and the
        left is not."""
        pairs = ~np.eye(len(self.left), dtype=bool)
        left = self.left[pairs]
        bound = getattr(self, right)[pairs]
        decided = np.isfinite(left) & (bound > 0)
        return float(np.divide(left, bound, out=np.where(left > 0, np.inf, 0.0), where=decided).max())


def kl_divergences(p: Rows) -> np.ndarray:
    """D(p_i ‖ p_j) in nats between every two rows, (n, n); inf where p_i has a token that p_j has not."""
    p = _dense(p)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    divergences = np.sum(p * logs, axis=1)[:, None] - p @ logs.T
    divergences[p @ (p == 0).T > 0] = np.inf
    np.fill_diagonal(divergences, 0.0)
    return np.maximum(divergences, 0.0)


def kl_step_share(divergences: np.ndarray) -> float:
    """Share of the triples (i, j, k) of different positions that break Lemma 12's |D(μ_i‖μ_k) - D(μ_j‖μ_k)| ≤
    D(μ_i‖μ_j).

    The paper gives the data-processing inequality as its reason, which compares one pair before and after a channel and
    says nothing of three distributions. Triples with an infinite divergence are left out; nan if none is left.

    Args:
        divergences: (n, n) as `kl_divergences` gives them.
    """
    n = len(divergences)
    failing = 0
    counted = 0
    for k in range(n):
        to = divergences[:, k]
        finite = np.isfinite(to)
        good = finite[:, None] & finite[None, :] & np.isfinite(divergences)
        np.fill_diagonal(good, False)
        good[k] = False
        good[:, k] = False
        gap = np.abs(np.where(finite, to, 0.0)[:, None] - np.where(finite, to, 0.0)[None, :])
        failing += int(np.sum((gap > divergences * (1 + 1e-12)) & good))
        counted += int(good.sum())
    return failing / counted if counted else float("nan")


def kl_upper_bound(p: Rows) -> Inequality:
    """Lemma 12's D(μ_i‖μ_j) ≤ 2√2·d_H, "for distributions bounded away from zero", for every pair.

    No such constant exists: D grows without end as a token becomes rare in μ_j, d_H does not. What holds, with m the
    smallest share of a token in μ_j: D ≤ χ² ≤ (1 + 1/√m)²·d_H², which is `sharp` (inf where μ_j lacks a token).
    """
    p, dist = _dense(p), hellinger(p)
    smallest = p.min(axis=1)
    factor = np.divide(1.0, np.sqrt(smallest), out=np.full(len(p), np.inf), where=smallest > 0)
    sharp = np.multiply(1 + factor[None, :], dist, out=np.zeros_like(dist), where=dist > 0) ** 2
    return Inequality(kl_divergences(p), 2 * np.sqrt(2) * dist, sharp)


def mean_embedding_bound(p: Rows, E: np.ndarray) -> Inequality:
    """Lemma 16 (i): |ē_i - ē_k| ≤ L_e·d_H with L_e = ‖E‖∞·√(2V); `sharp` has 2‖E‖∞, from |μ - ν|₁ ≤ 2·d_H
    (Cauchy-Schwarz).

    Args:
        p: (n, V). E: (V, d) embedding, a row for each token.
    """
    p, E = _dense(p), _embedding(p, E)
    mean = p @ E
    largest = float(np.linalg.norm(E, axis=1).max())
    dist = hellinger(p)
    return Inequality(cdist(mean, mean), largest * np.sqrt(2 * p.shape[1]) * dist, 2 * largest * dist)


def attention_bound(p: Rows, E: np.ndarray, M: np.ndarray, d_k: int, weights: np.ndarray | None = None) -> Inequality:
    """Lemma 16 (ii): |Ā_ij - Ā_kj| ≤ L_A·d_H(μ_i, μ_k) with L_A = ‖M‖·‖ē‖∞·L_e/√d_k; left is the largest over the keys
    j.

    The lemma defines Ā_ij as the expected weight; its proof takes the softmax of expected scores, ē_i·M·ē_jᵀ/√d_k,
    another thing. For the proof's Ā `sharp` has L_e with 2‖E‖∞ and a softmax that is ½-Lipschitz in the largest norm.
    (The proof says 1, which holds and is not the smallest: dσ_j ≤ 2σ_j(1 - σ_j) ≤ ½.) For expected weights `printed`
    need not hold at all: with ē = 0 it is 0. What holds for any weights a(v, j) in [0, 1] of a query token v is d_H
    itself, as |E_μ a - E_ν a| ≤ ½|μ - ν|₁ ≤ d_H.

    Args:
        p: (n, V). E: (V, d). M: (d, d) = W_Q·W_Kᵀ of a head, d_k its width.
        weights: (n, keys) expected weights of a query at each position, as `expected_attention` gives them; default:
        the proof's.
    """
    p, E = _dense(p), _embedding(p, E)
    mean = p @ E
    dist = hellinger(p)
    largest = float(np.linalg.norm(mean, axis=1).max())
    norm = float(np.linalg.norm(M, 2))
    score = norm * largest / np.sqrt(d_k)
    sharp = score * np.linalg.norm(E, axis=1).max() * dist if weights is None else dist
    if weights is None:
        weights = softmax(mean @ M @ mean.T / np.sqrt(d_k), axis=1)
    left = cdist(weights, weights, metric="chebyshev")
    return Inequality(left, score * mean_embedding_bound(p, E).printed, sharp)


def expected_attention(p: Rows, E: np.ndarray, M: np.ndarray, d_k: int, contexts: np.ndarray) -> np.ndarray:
    """Ā_ij as Lemma 16 defines it: the mean weight on key j of a query whose token is drawn from μ_i, over given
    contexts; (n, keys).

    Args:
        contexts: (c, keys) token ids that stand as keys, all weighted alike.
    """
    p, E = _dense(p), _embedding(p, E)
    queries = E @ M / np.sqrt(d_k)
    mean = np.zeros((len(E), contexts.shape[1]))
    for context in contexts:
        mean += softmax(queries @ E[context].T, axis=1)
    expected: np.ndarray = p @ mean / len(contexts)
    return expected


def score_gradient(values: np.ndarray, weights: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """∂L/∂L_j of the scores of one query, exact and as Lemma 16 (iii) has it; both (keys,).

    With h = Σ_j A_j v_j and G = ∂L/∂h the exact derivative is A_j·G·(v_j - h). The lemma multiplies G·v_j by A_j(1 -
    A_j), which forgets that a score changes the weights of all other keys; and it bounds a difference of products by
    the product of bounds.

    Args:
        values: (keys, d_v). weights: (keys,) attention weights. gradient: (d_v,) G.
    """
    along = values @ gradient
    return weights * (along - weights @ along), weights * (1 - weights) * along


def _dense(p: Rows) -> np.ndarray:
    square_roots(p)  # refuses what is no distribution
    dense: np.ndarray = p.toarray() if issparse(p) else np.asarray(p, dtype=np.float64)
    return dense


def _embedding(p: np.ndarray, E: np.ndarray) -> np.ndarray:
    E = np.asarray(E, dtype=np.float64)
    if E.ndim != 2 or len(E) != p.shape[1]:
        raise ValueError(f"E must have a row for each of the {p.shape[1]} tokens of p. Got shape {E.shape}.")
    return E
