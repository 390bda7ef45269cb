"""Distances between rows: scipy's pdist and cdist, near-equal and equal rows, offsets and scales, sparse as dense."""

import numpy as np
import pytest
from known_distributions import distributions, sample
from scipy import sparse
from scipy.spatial.distance import pdist, squareform

from whatwhere.geometry import distances as module
from whatwhere.geometry.distances import check_distances, distances, inner_products, row_distances


def random_sparse(m, v, density, seed):
    """Rows in which some columns are crowded and most are not."""
    rng = np.random.default_rng(seed)
    share = density * np.linspace(0, 2, v) ** 4
    return sparse.csr_array(rng.normal(size=(m, v)) * (rng.random((m, v)) < share))


@pytest.mark.parametrize("shape", [(30, 7), (7, 30), (2, 1), (50, 400)])
def test_dense_distances_equal_pdist(shape):
    x = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(distances(x), squareform(pdist(x)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("density", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("block", [64, 2**22])
def test_sparse_products_and_distances_equal_dense_ones(density, block, monkeypatch):
    """With blocks of a few columns and rows, and with one block; crowded columns and others."""
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_PAIRS", block)
    a = random_sparse(40, 300, density, 0)
    b = random_sparse(25, 300, density, 1)
    np.testing.assert_allclose(inner_products(a), a.toarray() @ a.toarray().T, atol=1e-12)
    np.testing.assert_allclose(inner_products(a, b), a.toarray() @ b.toarray().T, atol=1e-12)
    np.testing.assert_allclose(row_distances(a), squareform(pdist(a.toarray())), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("gap", [1e-3, 1e-8, 1e-13])
@pytest.mark.parametrize(
    "measure",
    [distances, row_distances, lambda x: row_distances(sparse.csr_array(x))],
    ids=["table", "dense", "sparse"],
)
def test_near_rows_keep_their_digits(gap, measure):
    """|x|² + |y|² - 2 x·y alone would give 0 or 1e-8 for distances below 1e-8."""
    x = np.random.default_rng(0).random((6, 50))
    near = np.concatenate([x, x, x[:1]])
    near[6:12, 3] += gap
    expected = squareform(pdist(near))
    found = measure(near)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=0)
    assert found[0, 12] == 0 and np.array_equal(found, found.T) and not found.diagonal().any()


@pytest.mark.parametrize(("scale", "offset"), [(1e-200, 0), (1e150, 0), (1, 1e6), (1e-3, 1e3)])
def test_scale_and_offset_cost_no_digits(scale, offset):
    x = np.random.default_rng(0).normal(size=(20, 9)) * scale
    x = x + offset - offset if offset else x  # what is left of the digits of x beside the offset
    np.testing.assert_allclose(distances(x + offset), scale * squareform(pdist(x / scale)), rtol=1e-9)


def test_no_sparse_matrix_is_made_dense(monkeypatch):
    """Of the columns of a block only, so that memory does not grow with the vocabulary."""
    monkeypatch.setattr(module, "_BLOCK", 4000)
    sizes = []
    whole = sparse.csr_array.toarray
    monkeypatch.setattr(sparse.csr_array, "toarray", lambda self, **k: sizes.append(self.shape) or whole(self, **k))
    row_distances(np.sqrt(sample(distributions(20, 2000), 3000).astype(float)))
    assert sizes and max(a * b for a, b in sizes) <= 4000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (np.zeros((3, 4)), r"square matrix \(positions, positions\). Got shape \(3, 4\)"),
        (np.zeros((1, 1)), "at least 2 positions. Got 1"),
        (np.array([[0, np.nan], [np.nan, 0]]), "The distance of positions 0 and 1 is nan"),
        (np.array([[0, 1.0], [2.0, 0]]), r"Distances are symmetric, but \(0, 1\) is 1 and \(1, 0\) is 2"),
        (np.array([[0, -1.0], [-1.0, 0]]), "Distances are not negative. The smallest is -1"),
        (np.array([[1, 1.0], [1.0, 1]]), "the diagonal reaches 1"),
    ],
)
def test_what_are_no_distances_is_refused_in_one_line(wrong, message):
    with pytest.raises(ValueError, match=message) as error:
        check_distances(wrong)
    assert "\n" not in str(error.value)
