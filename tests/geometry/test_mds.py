"""Classical MDS two ways and against scikit-learn, a textbook's example, SMACOF, signed squares, tables that a model
loads."""

import inspect

import numpy as np
import pytest
from known_distributions import distributions, sample
from scipy import sparse
from scipy.spatial.distance import pdist, squareform
from sklearn.decomposition import PCA
from sklearn.manifold import MDS as SklearnMDS
from sklearn.manifold import ClassicalMDS
from sklearn.manifold import smacof as sklearn_smacof

import whatwhere as ww
from whatwhere.geometry import (
    centred_gram,
    classical_mds,
    hellinger,
    hellinger_mds,
    mds,
    mds_of_squares,
    mds_table,
    positional_distributions,
    smacof,
    stress,
)


@pytest.fixture(scope="module")
def p():
    return positional_distributions(sample(distributions(40, 500), 3000)).p


@pytest.fixture(scope="module")
def dist(p):
    return hellinger(p)


def between(coords):
    return squareform(pdist(coords))


def test_gram_matrix_is_equation_5(dist):
    h = np.eye(40) - 1 / 40
    np.testing.assert_allclose(centred_gram(dist**2), -0.5 * h @ dist**2 @ h, atol=1e-15)


def test_full_rank_reproduces_every_distance(dist):
    """GEOM section 5.2 calls this impossible; d_H is Euclidean in √p, so it always holds."""
    m = classical_mds(dist)
    assert m.rank == 39 and m.coords.shape == (40, 39) and m.eigenvalues.shape == (40,) and m.note == ""
    np.testing.assert_allclose(between(m.coords), dist, atol=1e-12)
    assert m.stress < 1e-24 and m.noise < 1e-14


@pytest.fixture
def lanczos(monkeypatch):
    """Few positions as if they were many: no n x n matrix is built or decomposed."""
    monkeypatch.setattr(mds, "FULL_UP_TO", 10)
    monkeypatch.setattr(mds, "_ROWS_AT_ONCE", 7)
    for name in ("eigh", "hellinger", "distances"):
        monkeypatch.delattr(mds, name)


@pytest.mark.parametrize("dims", [1, 4, 9])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_array.toarray], ids=["sparse", "dense"])
def test_svd_of_roots_gives_the_distances(p, dist, dims, make, request):
    """SVD of the roots gives the distances of the matrix."""
    full = classical_mds(dist, dims)
    request.getfixturevalue("lanczos")
    few = hellinger_mds(make(p), dims)
    np.testing.assert_allclose(between(few.coords), between(full.coords), atol=1e-10)
    np.testing.assert_allclose(few.coords, full.coords, atol=1e-8)
    np.testing.assert_allclose(few.eigenvalues, full.eigenvalues[:dims], atol=1e-12)
    assert few.stress == pytest.approx(full.stress, rel=1e-9) and few.rank == dims and few.note == ""


def test_svd_of_near_equal_and_equal_rows_agrees_too(request):
    true = distributions(60, 800, drift=0.01)
    p = np.concatenate([true, true[:5], 0.999 * true[:5] + 0.001 * true[5:10]])
    dist = hellinger(p)
    full = classical_mds(dist)
    np.testing.assert_allclose(between(full.coords), dist, atol=1e-10)
    np.testing.assert_allclose(between(hellinger_mds(p).coords), dist, atol=1e-10)
    assert hellinger_mds(sparse.csr_array(p)).rank == full.rank == 7
    request.getfixturevalue("lanczos")
    few = hellinger_mds(sparse.csr_array(p), 16)
    np.testing.assert_allclose(between(few.coords), dist, atol=1e-10)
    assert few.rank <= 7 and few.note.startswith("16 dimensions asked")


def test_coordinates_are_pca_of_the_roots(p, dist):
    theirs = PCA(n_components=6).fit_transform(np.sqrt(p.toarray()))
    ours = classical_mds(dist, 6).coords
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-10)
    np.testing.assert_allclose(ours.mean(0), 0, atol=1e-14)
    assert np.all(ours[np.abs(ours).argmax(0), range(6)] > 0)  # signs are fixed


def test_coordinates_are_sklearns(dist):
    theirs = ClassicalMDS(n_components=6, metric="precomputed").fit(dist)
    ours = classical_mds(dist, 6)
    np.testing.assert_allclose(np.abs(ours.coords), np.abs(theirs.embedding_), atol=1e-10)
    np.testing.assert_allclose(ours.eigenvalues[:6], theirs.eigenvalues_, atol=1e-12)


def test_dimensions_above_the_rank_use_the_rank(p, dist):
    """Dimensions above the rank use the rank and say so."""
    for m in (classical_mds(dist, 768), hellinger_mds(p, 768)):
        assert m.coords.shape == (40, 39) and m.rank == 39
        assert m.note == "768 dimensions asked, 39 used: that is the rank, and they reproduce all distances."


def test_rank_counts_distinct_positions():
    """GEOM's 64 on SST-2: 64 positions that occur and 64 that do not, which smoothing makes equal, are 65 points."""
    d = positional_distributions(sample(distributions(20, 100), [200] * 8 + [0] * 12), smoothing=1e-12, min_support=0)
    assert classical_mds(hellinger(d.p)).rank == 8


def test_negative_eigenvalues_are_kept():
    """Torgerson's case: shortest paths on a circle are no Euclidean distances."""
    lag = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    m = classical_mds(np.minimum(lag, 12 - lag).astype(float))
    assert m.eigenvalues[-1] < -0.1 and m.noise == -m.eigenvalues[-1] and m.rank < 11 and m.stress > 1e-3
    np.testing.assert_allclose(m.eigenvalues.sum(), np.trace(centred_gram(np.minimum(lag, 12 - lag) ** 2)))


def test_signed_squares_give_a_rank_above_the_noise():
    points = np.random.default_rng(0).normal(size=(50, 2)) * [5, 2]
    noise = np.random.default_rng(1).normal(size=(50, 50))
    squares = between(points) ** 2 + np.triu(noise, 1) + np.triu(noise, 1).T
    m = mds_of_squares(squares)
    assert squares.min() < 0 and m.rank == 2 and m.noise > 1
    np.testing.assert_allclose(between(m.coords), between(points), atol=1)
    np.testing.assert_allclose(m.eigenvalues.sum(), np.trace(centred_gram(squares)))
    exact = mds_of_squares(between(points) ** 2)
    assert exact.rank == 2 and exact.stress < 1e-24


def guttman(coords, dist):
    """One step of SMACOF written out (Borg & Groenen, eq. 8.25)."""
    n = len(coords)
    d = between(coords)
    b = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                b[i, j] = -dist[i, j] / d[i, j] if d[i, j] > 0 else 0.0
    return (b - np.diag(b.sum(1))) @ coords / n


def test_smacof_steps_are_guttman_transforms(dist):
    coords = classical_mds(dist, 2).coords
    for steps in (1, 2, 5):
        expected = coords
        for _ in range(steps):
            expected = guttman(expected, dist)
        found = smacof(dist, 2, max_iter=steps)
        np.testing.assert_allclose(between(found.coords), between(expected), atol=1e-12)
        assert len(found.history) == steps + 1


@pytest.mark.parametrize("dims", [1, 2, 3, 10])
def test_smacof_stress_never_rises_and_is_below_classical_mds(dist, dims):
    classical = classical_mds(dist, dims)
    m = smacof(dist, dims)
    assert np.all(np.diff(m.history) <= 0) and m.history[0] == pytest.approx(classical.stress)
    assert m.stress < classical.stress
    assert m.stress == m.history[-1] == pytest.approx(stress(m.coords, dist), rel=1e-12)
    assert m.coords.shape == (40, dims) and m.rank == 39


@pytest.mark.parametrize("seed", range(5))
def test_smacof_stress_never_rises_from_any_start(seed):
    rng = np.random.default_rng(seed)
    d = rng.random((20, 20)) + 1
    d = np.triu(d, 1) + np.triu(d, 1).T
    start = rng.normal(size=(20, 3))
    start[4] = start[5]  # a pair at distance 0
    m = smacof(d, 3, init=start, max_iter=400, tol=0)
    assert np.all(np.diff(m.history) <= 0)


def test_smacof_is_sklearns(dist):
    """From one start both go the same way: the stress of scikit-learn is half the sum of all squares, ours over the sum
    of dist²."""
    start = np.random.default_rng(0).normal(size=(40, 2))
    theirs, theirs_stress = sklearn_smacof(
        dist, n_components=2, init=start.copy(), n_init=1, max_iter=60, eps=0.0, normalized_stress=False, random_state=0
    )
    ours = smacof(dist, 2, init=start, max_iter=60, tol=0)
    pairs = np.triu_indices(40, 1)
    assert ours.stress == pytest.approx(theirs_stress / (dist[pairs] ** 2).sum(), rel=0.02)
    np.testing.assert_allclose(between(ours.coords), between(theirs), atol=0.05)


def test_smacof_reaches_what_sklearns_mds_reaches(dist):
    known = {
        "n_components": 2,
        "n_init": 4,
        "max_iter": 2000,
        "eps": 1e-9,
        "random_state": 0,
        "normalized_stress": False,
    }
    new = "metric_mds" in inspect.signature(SklearnMDS).parameters
    known |= (
        {"metric": "precomputed", "metric_mds": True, "init": "random"} if new else {"dissimilarity": "precomputed"}
    )
    theirs = SklearnMDS(**known).fit(dist).stress_ / (dist[np.triu_indices(40, 1)] ** 2).sum()
    assert smacof(dist, 2, max_iter=2000, tol=1e-9).stress <= theirs * 1.001


def test_smacof_at_the_rank_is_classical_mds(dist):
    m = smacof(dist, 100)
    assert (
        m.converged
        and m.stress < 1e-14
        and m.coords.shape == (40, 39)
        and m.note.startswith("100 dimensions asked, 39 used")
    )
    np.testing.assert_allclose(between(m.coords), dist, atol=1e-12)


def test_smacof_that_is_stopped_says_so(dist):
    m = smacof(dist, 2, max_iter=3)
    assert (
        not m.converged
        and m.note.startswith("SMACOF stopped at max_iter=3, stress still falling by")
        and "(tol=1e-06)" in m.note
    )
    assert smacof(dist, 2, max_iter=5000).note == ""


def test_smacof_coordinates_lie_on_principal_axes(dist):
    m = smacof(dist, 3)
    np.testing.assert_allclose(m.coords.T @ m.coords, np.diag(m.eigenvalues), atol=1e-10)
    assert np.all(np.diff(m.eigenvalues) < 0) and np.all(m.coords[np.abs(m.coords).argmax(0), range(3)] > 0)


def test_tables_have_a_zero_row_and_filled_gaps():
    """Table has a zero row and fills gaps in straight lines."""
    coords = np.array([[0.0, 1], [2, 3], [8, 0]])
    table = mds_table(coords, np.array([0, 1, 4]), 2)
    np.testing.assert_allclose(table, [[0, 0], [0, 1], [2, 3], [4, 2], [6, 1], [8, 0]])
    np.testing.assert_allclose(mds_table(coords, np.array([0, 1, 4]), 1, rows=3), [[0], [0], [2]])


def test_table_is_what_a_model_loads(dist, tmp_path):
    rank = 5
    table = mds_table(classical_mds(dist).coords, np.arange(40), rank)
    np.save(tmp_path / "corpus-mds.npy", table)
    fields = {
        "table_file": str(tmp_path / "corpus-mds.npy"),
        "table_width": rank,
        "max_position_embeddings": 41,
        "table_scale": 1.0,
    }
    model = ww.Encoder(ww.preset("ap", size="tiny", vocab_size=50, absolute="mds", **fields))
    np.testing.assert_allclose(model.position_embeddings.table().detach().numpy(), table, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: classical_mds(d * np.nan), "is nan. Leave positions without support out"),
        (lambda d: classical_mds(d + np.triu(d)), "Distances are symmetric"),
        (lambda d: classical_mds(d, 0), "Got dims=0"),
        (lambda d: classical_mds(0 * d), "All positions have the same distribution"),
        (lambda d: mds_of_squares(np.triu(d)), "symmetric"),
        (lambda d: hellinger_mds(np.array([[0.5, 0.5]])), "at least 2 positions. Got 1"),
        (lambda d: smacof(d, 2, init="best"), "Unknown start 'best'. Use 'classical'"),
        (lambda d: smacof(d, 2, init=np.ones((3, 2))), r"2 numbers for each of 40 positions. Got shape \(3, 2\)"),
        (lambda d: mds_table(d, np.arange(40), 41), "1 to 40 columns, the rank of the corpus. Got rank=41"),
        (lambda d: mds_table(d, np.arange(1, 41), 2), "first supported position is 1"),
        (lambda d: mds_table(d, np.arange(40), 2, rows=50), "makes 2 to 41 rows with .CLS.. Got rows=50"),
        (lambda d: mds_table(d, np.arange(39), 2), r"Got shapes \(40, 40\) and \(39,\)"),
    ],
)
def test_bad_input_is_refused_in_one_line(dist, call, message):
    with pytest.raises(ValueError, match=message) as error:
        call(dist)
    assert "\n" not in str(error.value)
