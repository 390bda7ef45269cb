"""TUPE proposition 1 against scipy's Toeplitz and circulant matrices, and the ranks of the two families of biases."""

import numpy as np
import pytest
import torch
from scipy.linalg import circulant, toeplitz
from toeplitz import factor, low_rank_freedoms, low_rank_share, numerical_rank, toeplitz_matrix

import whatwhere as ww
from whatwhere.encoder.biases import t5_bucket
from whatwhere.encoder.biases import toeplitz as encoder_toeplitz


def values(n: int, seed: int = 0, imaginary: bool = False) -> np.ndarray:
    draw = np.random.default_rng(seed)
    b = draw.normal(size=2 * n - 1)
    return b + 1j * draw.normal(size=2 * n - 1) if imaginary else b


@pytest.mark.parametrize("n", [1, 2, 3, 17, 128, 512])
@pytest.mark.parametrize("imaginary", [False, True])
def test_a_toeplitz_matrix_is_g_d_g_star(n, imaginary):
    b = values(n, imaginary=imaginary)
    wanted = toeplitz(b[n - 1 :: -1], b[n - 1 :])
    assert np.array_equal(toeplitz_matrix(b), wanted)
    found = factor(b).matrix()
    assert found.shape == (n, n) and np.abs(found - wanted).max() < 1e-12 * max(np.abs(wanted).max(), 1)


def test_entries_are_those_of_the_distance_key_minus_query():
    b = values(9)
    matrix = toeplitz_matrix(b)
    assert all(matrix[i, j] == b[j - i + 8] for i in range(9) for j in range(9))
    assert np.array_equal(matrix, encoder_toeplitz(torch.from_numpy(b)).numpy())


def test_d_are_the_circulant_eigenvalues():
    """D are the eigenvalues of the circulant matrix of the paper and g is unitary in its rows."""
    n = 6
    b = values(6)
    row = np.array([b[n - 1 + m] for m in range(n)] + [b[n - 1]] + [b[n - 1 + m - 2 * n] for m in range(n + 1, 2 * n)])
    big = circulant(row).T  # eq. 12: entry (j, k) is row[k - j mod 2n]
    assert np.array_equal(big[:n, :n], toeplitz_matrix(b))
    found = factor(b)
    assert np.allclose(np.sort_complex(np.round(np.linalg.eigvals(big), 9)), np.sort_complex(np.round(found.d, 9)))
    assert np.abs(found.G @ found.G.conj().T - np.eye(n)).max() < 1e-14


@pytest.mark.parametrize("n", [4, 64])
def test_the_printed_factor_divides_by_2n(n):
    """The factor as printed gives the matrix divided by 2n."""
    b = values(n)
    found = factor(values(n))
    printed = np.exp(1j * np.pi * np.outer(np.arange(1, n + 1), np.arange(2 * n)) / n) / (2 * n)
    assert np.abs((printed * found.d) @ printed.conj().T - toeplitz_matrix(b) / (2 * n)).max() < 1e-12


def test_values_that_are_no_toeplitz_matrix_are_errors():
    with pytest.raises(ValueError, match=r"2n - 1 values.*Got shape \(4,\)"):
        factor(np.zeros(4))
    with pytest.raises(ValueError, match="must be finite. Got 1"):
        factor(np.array([0.0, np.nan, 1.0]))
    with pytest.raises(ValueError, match=r"\[0, 3\]. Got 4"):
        low_rank_freedoms(3, 4)


@pytest.mark.parametrize(("n", "rank"), [(5, 1), (6, 2), (6, 6)])
def test_low_rank_freedoms_are_a_map_rank(n, rank):
    """Freedoms of low rank matrices are the rank of the map of two factors."""
    draw = np.random.default_rng(n)
    a, b = draw.normal(size=(2, n, rank))
    # Derivatives of A·Bᵀ by the entries of A and of B.
    eye = np.eye(n)
    by_a = np.einsum("ij,kr->ikjr", eye, b).reshape(n * n, -1)
    by_b = np.einsum("ir,kj->ikjr", a, eye).reshape(n * n, -1)
    assert np.linalg.matrix_rank(np.hstack([by_a, by_b])) == low_rank_freedoms(n, rank)


def test_toeplitz_matrices_span_2n_minus_1_dimensions():
    """Toeplitz matrices span 2n minus 1 dimensions and have full rank in general."""
    n = 7
    basis = np.stack([toeplitz_matrix(b).ravel() for b in np.eye(2 * n - 1)])
    assert np.linalg.matrix_rank(basis) == 2 * n - 1
    assert numerical_rank(toeplitz_matrix(values(n))) == n
    buckets = t5_bucket(torch.arange(-127, 128)).numpy()
    assert numerical_rank(toeplitz_matrix(np.random.default_rng(0).normal(size=32)[buckets])) == 128
    assert numerical_rank(toeplitz_matrix(-np.abs(np.arange(-127.0, 128)))) == 128  # ALiBi


def test_the_two_families_meet():
    """The families meet sines of the distance have rank two."""
    lags = np.arange(-63, 64)
    waves = toeplitz_matrix(np.cos(0.2 * lags))
    assert numerical_rank(waves) == 2 and low_rank_share(waves, 2) == pytest.approx(1)
    table = np.stack([np.sin(0.2 * np.arange(64)), np.cos(0.2 * np.arange(64))], axis=1)
    assert np.abs(table @ table.T - waves).max() < 1e-12


def test_low_rank_share_is_that_of_the_truncated_svd():
    matrix = np.random.default_rng(3).normal(size=(6, 6))
    u, s, v = np.linalg.svd(matrix)
    near = (u[:, :2] * s[:2]) @ v[:2]
    assert low_rank_share(matrix, 2) == pytest.approx(1 - ((matrix - near) ** 2).sum() / (matrix**2).sum())
    assert low_rank_share(np.zeros((3, 3)), 1) == 1 and numerical_rank(np.zeros((3, 3))) == 0


def test_tupe_terms_are_low_rank_and_toeplitz():
    """Terms of a TUPE encoder are low rank and Toeplitz."""
    torch.manual_seed(0)
    config = ww.preset("tupe-r", "tiny", vocab_size=64, hidden_size=32, num_hidden_layers=1, max_position_embeddings=48)
    model = ww.Encoder(config).double().eval()
    with torch.no_grad():
        for parameter in model.relative.parameters():
            parameter.normal_()
        terms = model.attention_terms(torch.randint(5, 64, (1, 48)))  # no [CLS], so that nothing is reset
    absolute = terms["absolute"][0, 0].numpy()
    relative = terms["relative"][0, 0].numpy()
    assert [numerical_rank(head) for head in absolute] == [8] * 4  # d_head = 32 / 4
    assert [numerical_rank(head) for head in relative] == [48] * 4
    for head in relative:
        assert np.abs(factor(np.concatenate([head[:0:-1, 0], head[0]])).matrix() - head).max() < 1e-12
