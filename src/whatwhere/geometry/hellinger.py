"""Distributions of tokens at each position and the Hellinger distances between them (GEOM sections 2 and 5.1)."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .distances import Rows, row_distances, squared_differences

# Tokens at a position below which its distribution is thin. On SST-2 (67,349 sentences) it keeps the first 44 of 64
# positions; at the last of them, with 574 tokens, two halves of the sentences are 0.96 apart, of at most 1.41: beyond,
# distances are noise.
MIN_SUPPORT = 500


@dataclass(frozen=True, eq=False)
class Distributions:
    """Token distributions of the positions that are kept, m of n.

    p: (m, V) rows that sum to 1; csr_array, or dense where smoothing makes every entry positive.
    positions: (m,) which positions the rows are, counted from 0 without special tokens, ascending.
    support: (n,) tokens counted at each position, kept or not.
    left_out: (n - m,) positions left out, because nothing or less than `min_support` was counted there.
    """

    p: Rows
    positions: np.ndarray
    support: np.ndarray
    left_out: np.ndarray


def positional_distributions(counts: Rows, smoothing: float = 0.0, min_support: float = MIN_SUPPORT) -> Distributions:
    """Shares of the tokens at each position, from counts (n, V); thin and unoccupied positions are left out and listed.

    `smoothing` is added to every count before normalising. Positions without any token have no distribution and are
    left out, unless there is smoothing and min_support = 0: then they become uniform, as in GEOM. Its protocol,
    recovered: smoothing = 1e-12, min_support = 0. Smoothing fills every entry, so that p is dense: n · V · 8 bytes (62
    MB for 256 positions of BERT's vocabulary).

    Args:
        counts: (n, V) numbers of tokens, sparse or dense.
        smoothing: added to each count, not negative.
        min_support: fewest tokens at a position that is kept.

    Raises:
        ValueError: no position has that support; counts or settings are negative or not finite.
    """
    dense = not sparse.issparse(counts)
    counts = np.asarray(counts, dtype=np.float64) if dense else sparse.csr_array(counts)
    if counts.ndim != 2 or 0 in counts.shape:
        raise ValueError(f"Counts have shape (positions, vocabulary). Got {counts.shape}.")
    entries = counts if dense else counts.data
    if not np.isfinite(entries).all() or entries.min(initial=0) < 0:
        raise ValueError(f"Counts are finite and not negative. The smallest is {entries.min():.6g}.")
    if not (np.isfinite(smoothing) and smoothing >= 0 and min_support >= 0):
        raise ValueError(
            f"smoothing and min_support are not negative. Got smoothing={smoothing}, min_support={min_support}."
        )
    support = np.asarray(counts.sum(axis=1)).ravel()
    kept = (support >= min_support) & ((support > 0) | (smoothing > 0))
    if not kept.any():
        best = int(support.argmax())
        way = (
            f"Count more text, or take fewer: --set min_support={int(support[best])}."
            if support[best]
            else "Give text with tokens in it."
        )
        raise ValueError(
            f"No position has {max(min_support, 1):g} tokens, so there is no distribution to compare: at most "
            f"{support[best]:g}, "
            f"at position {best}. {way}"
        )
    p = counts if kept.all() else counts[kept]
    totals = support[kept]
    if smoothing > 0:
        p = (p if dense else p.toarray()) + smoothing
        totals = totals + smoothing * p.shape[1]
    if sparse.issparse(p):  # sharing the indices: large corpora are large here
        p = sparse.csr_array((p.data / np.repeat(totals, np.diff(p.indptr)), p.indices, p.indptr), shape=p.shape)
    else:
        p = p / totals[:, None]
    if np.all(support == np.floor(support)):
        support = support.astype(np.int64)
    return Distributions(p=p, positions=np.flatnonzero(kept), support=support, left_out=np.flatnonzero(~kept))


def square_roots(p: Rows) -> Rows:
    """√p, float64, sparse if p is: unit rows, whose Euclidean distances are the Hellinger distances.

    Raises:
        ValueError: not two-dimensional, or a row has a negative entry or does not sum to 1.
    """
    p = sparse.csr_array(p) if sparse.issparse(p) else np.asarray(p, dtype=np.float64)
    if p.ndim != 2:
        raise ValueError(f"Distributions have shape (positions, vocabulary). Got {p.shape}.")
    entries = p.data if sparse.issparse(p) else p
    if entries.min(initial=0) < 0:
        raise ValueError(f"Shares are not negative. The smallest is {entries.min():.6g}.")
    totals = np.asarray(p.sum(axis=1)).ravel()
    wrong = ~(np.abs(totals - 1) < 1e-6)
    if wrong.any():
        raise ValueError(
            f"Every row of p sums to 1. Row {wrong.argmax()} sums to {totals[wrong.argmax()]:.6g}. "
            "Counts become distributions by positional_distributions."
        )
    if sparse.issparse(p):
        return sparse.csr_array((np.sqrt(p.data, dtype=np.float64), p.indices, p.indptr), shape=p.shape)
    return np.sqrt(p)


def hellinger(p: Rows, q: Rows | None = None) -> np.ndarray:
    """Hellinger distances between the distributions of every two positions; with `q`, of two corpora at equal
    positions.

    d(i, j) = |√p_i - √p_j|, from 0 for equal rows to √2 for rows without a common token (no factor 1/√2: GEOM eq. 3).
    It is Euclidean in √p, so that classical MDS of the result is PCA of √p. Near-equal rows are as accurate as distant
    ones; equal rows give 0. Few tokens inflate it: see resampling.corrected_hellinger.

    Args:
        p: (m, V) rows that sum to 1, sparse or dense. Sparse rows are not made dense as a whole.
        q: (m, V) distributions at the same positions of another corpus, over the same vocabulary.

    Returns:
        (m, m), symmetric with zero diagonal; with `q` (m,).

    Raises:
        ValueError: a row of `p` or `q` has a negative entry or does not sum to 1, or their shapes differ.
    """
    roots = square_roots(p)
    if q is None:
        return np.minimum(row_distances(roots), np.sqrt(2.0))
    others = square_roots(q)
    if roots.shape != others.shape:
        raise ValueError(
            f"Two corpora are compared at equal positions over one vocabulary: shapes {roots.shape} and "
            f"{others.shape}. "
            "Use one tokenizer, and keep the positions that both support."
        )
    if sparse.issparse(roots) != sparse.issparse(others):
        roots, others = (x.toarray() if sparse.issparse(x) else x for x in (roots, others))
    return np.minimum(np.sqrt(squared_differences(roots, others)), np.sqrt(2.0))
