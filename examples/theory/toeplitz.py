"""Biases of the distance as matrices: a Toeplitz matrix as G·D·G* (TUPE proposition 1), and how much each family of
biases can say.

TUPE section 3.2 calls the two terms of its scores, b_{j-i} and the correlation of positions, "different subspaces".
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import toeplitz


@dataclass(frozen=True, eq=False)
class ToeplitzFactor:
    """B = G·diag(d)·G* of an n × n Toeplitz matrix B.

    G: (n, 2n) complex, G[j, k] = exp(iπ(j + 1)k/n) / √(2n): rows of a unitary matrix, so G·G* is the identity.
    d: (2n,) complex, the eigenvalues of the circulant matrix of size 2n around B; real for a symmetric B of real
    numbers.
    """

    G: np.ndarray
    d: np.ndarray

    def matrix(self) -> np.ndarray:
        """G·diag(d)·G*, (n, n) complex."""
        return (self.G * self.d) @ self.G.conj().T


def factor(b: np.ndarray) -> ToeplitzFactor:
    """The factors of TUPE's proposition 1 for B[i, j] = b_{j-i}.

    The paper prints G[j, k] = exp(...)/(2n). With D the eigenvalues of the circulant, as in its proof (Gray, theorem
    7), that G gives B/(2n); 1/√(2n) makes the matrix Q of the proof unitary. (The phase (j + 1)k instead of jk cancels
    in G·D·G*.)

    Args:
        b: (2n - 1,) real or complex, the values of the distances j - i = -(n-1) ... n-1, as `encoder.biases.toeplitz`
            takes them.

    Raises:
        ValueError: not one-dimensional, an even number of values, or values that are not finite.

    Reference: Gray 2006, Toeplitz and Circulant Matrices: A Review, theorem 7.
    """
    b, n = _checked(b)
    # First row of the circulant: distances 0 ... n-1, then n (the paper takes b_0 there; any value does), then -(n-1)
    # ... -1.
    row = np.concatenate([b[n - 1 :], b[n - 1 : n], b[: n - 1]])
    k = np.arange(2 * n)
    # The product (j + 1)k only counts modulo 2n; large arguments of exp would cost digits.
    turns = np.outer(np.arange(1, n + 1), k) % (2 * n)
    return ToeplitzFactor(G=np.exp(1j * np.pi * turns / n) / np.sqrt(2 * n), d=2 * n * np.fft.ifft(row))


def toeplitz_matrix(b: np.ndarray) -> np.ndarray:
    """(n, n): B[i, j] = b_{j-i}, from the (2n - 1,) values of the distances -(n-1) ... n-1."""
    b, n = _checked(b)
    return toeplitz(b[n - 1 :: -1], b[n - 1 :])


def low_rank_freedoms(n: int, rank: int) -> int:
    """Dimension of the set of n × n matrices of rank `rank`: r(2n - r), against the 2n - 1 freedoms of a Toeplitz
    matrix.

    A correlation of positions (PU_Q)(PU_K)ᵀ of one head has rank at most d_head, and every such matrix is one.
    """
    if not 0 <= rank <= n:
        raise ValueError(f"A rank of {n} × {n} matrices lies in [0, {n}]. Got {rank}.")
    return rank * (2 * n - rank)


def numerical_rank(matrix: np.ndarray, tolerance: float = 1e-9) -> int:
    """Singular values above `tolerance` times the largest."""
    s = np.linalg.svd(np.asarray(matrix, dtype=np.float64), compute_uv=False)
    return int(np.sum(s > tolerance * s[0])) if s.size and s[0] > 0 else 0


def low_rank_share(matrix: np.ndarray, rank: int) -> float:
    """Share of a matrix's sum of squares that its nearest matrix of rank `rank` has (Eckart-Young), in [0, 1]; 1 for
    zeros."""
    squares = np.linalg.svd(np.asarray(matrix, dtype=np.float64), compute_uv=False) ** 2
    return float(squares[:rank].sum() / squares.sum()) if squares.any() else 1.0


def _checked(b: np.ndarray) -> tuple[np.ndarray, int]:
    b = np.asarray(b)
    if b.ndim != 1 or len(b) % 2 == 0:
        raise ValueError(
            "A Toeplitz matrix of n rows has 2n - 1 values, those of the distances -(n-1) ... n-1. Got shape "
            f"{b.shape}."
        )
    if not np.isfinite(b).all():
        raise ValueError(f"The values of a Toeplitz matrix must be finite. Got {np.sum(~np.isfinite(b))} that are not.")
    return b.astype(np.complex128 if np.iscomplexobj(b) else np.float64), (len(b) + 1) // 2
