"""GEOM appendix A by numbers: the flow against its closed form, (A1) refuted, bound (13) printed and proved,
monotonicity refuted."""

import numpy as np
import pytest
from dynamics import (
    arc_distributions,
    exponential_kernel,
    flow,
    forcing_ratios,
    separation_bound,
    smallest_minor,
    violations_by_position,
)
from scipy.linalg import expm
from scipy.spatial.distance import cdist

INCREASING = [lambda d: 1 + d, lambda d: np.exp(d), lambda d: d**2, lambda d: 5 + 1e-3 * np.tanh(d)]


def hellinger(p: np.ndarray) -> np.ndarray:
    return cdist(np.sqrt(p), np.sqrt(p))


def random_positions(seed: int, n: int = 8, vocabulary: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Distances of random distributions, and a random forcing (n, 3)."""
    draw = np.random.default_rng(seed)
    return hellinger(draw.dirichlet(np.ones(vocabulary), size=n)), draw.normal(size=(n, 3))


def violated(dist: np.ndarray) -> float:
    """Share of distinct triples with |i-j| < |i-k| and d_ij > d_ik, by loops."""
    n = len(dist)
    bad = 0
    total = 0
    for i in range(n):
        for j in range(n):
            for k in range(n):
                if len({i, j, k}) == 3 and abs(i - j) < abs(i - k):
                    total += 1
                    bad += dist[i, j] > dist[i, k] + 1e-9 * dist.max()
    return bad / total


# The flow


@pytest.mark.parametrize("start", [None, 3.0])
def test_flow_with_falling_kernel_ends_in_the_solution(start):
    """Flow with a falling kernel ends in the solution of alpha p equals b."""
    dist, b = random_positions(0)
    alpha = exponential_kernel(dist)
    done = flow(alpha, b, None if start is None else np.full(b.shape, start))
    assert np.abs(done.tables[-1] - done.fixed_point).max() < 1e-9
    assert np.abs(alpha @ done.fixed_point - b).max() < 1e-12
    assert done.radius == np.linalg.norm(done.tables, axis=2).max()


def test_flow_equals_the_matrix_exponential_on_the_way():
    dist, b = random_positions(1)
    alpha = exponential_kernel(dist, width=0.5)
    done = flow(alpha, b, points=20)
    for time, table in zip(done.times, done.tables, strict=True):
        assert np.abs(table - (np.eye(8) - expm(-time * alpha)) @ done.fixed_point).max() < 1e-8


def test_flow_with_an_increasing_kernel_leaves_every_bound():
    # (A4), bounded orbits, fails together with (A1): growth by e^|λ_min| in a unit of time.
    dist, b = random_positions(2)
    alpha = 1 + dist
    with pytest.raises(ValueError, match="< 0, so the flow has no end. Give time="):
        flow(alpha, b)
    smallest = np.linalg.eigvalsh(alpha)[0]
    short, long = (np.abs(flow(alpha, b, time=t).tables[-1]).max() for t in (30 / -smallest, 40 / -smallest))
    assert long / short == pytest.approx(np.exp(10), rel=1e-3)


def test_wrong_input_of_the_flow_is_one_line():
    with pytest.raises(ValueError, match=r"same n. Got \(2, 2\) and \(3, 1\)"):
        flow(np.eye(2), np.ones((3, 1)))
    with pytest.raises(ValueError, match="must be symmetric. It differs from its transpose by 1"):
        flow(np.array([[1.0, 1.0], [0.0, 1.0]]), np.ones((2, 1)))
    with pytest.raises(ValueError, match="singular"):
        flow(np.ones((2, 2)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="finite"):
        flow(np.full((2, 2), np.nan), np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"shape of b, \(2, 1\). Got \(2, 2\)"):
        flow(np.eye(2), np.ones((2, 1)), start=np.ones((2, 2)))


def test_the_flow_is_competitive_and_not_cooperative():
    # Remark 20: in a cooperative system more of p_i never slows p_j down. f is positive, so every ∂ṗ_j/∂p_i = -α_ij is
    # negative.
    dist, _ = random_positions(0)
    for alpha in (exponential_kernel(dist), 1 + dist):
        nudged = flow(alpha, np.zeros((8, 1)), start=np.eye(8)[:, :1], time=1e-3).tables[-1]
        assert (nudged[1:] < 0).all()


# (A1)


@pytest.mark.parametrize("f", INCREASING)
@pytest.mark.parametrize("seed", range(5))
def test_no_increasing_kernel_is_positive_definite(f, seed):
    dist, _ = random_positions(seed)
    alpha = f(dist)
    assert smallest_minor(alpha) == pytest.approx(f(0.0) ** 2 - f(dist.max()) ** 2) and smallest_minor(alpha) < 0
    assert np.linalg.eigvalsh(alpha)[0] <= f(0.0) - f(dist.max()) < 0


def test_a_falling_kernel_of_hellinger_distances_is_positive_definite():
    for seed in range(5):
        alpha = exponential_kernel(random_positions(seed)[0])
        assert smallest_minor(alpha) > 0 and np.linalg.eigvalsh(alpha)[0] > 0


# (A2)


def test_forcing_ratios_are_over_all_pairs():
    """Forcing ratios are those of all pairs and infinite where equal distributions get different gradients."""
    dist, b = random_positions(3, n=4)
    wanted = [np.linalg.norm(b[i] - b[j]) / dist[i, j] for i in range(4) for j in range(i + 1, 4)]
    assert np.allclose(forcing_ratios(b, dist), wanted)
    dist[0, 1] = 0
    dist[1, 0] = 0
    dist[2, 3] = 0
    dist[3, 2] = 0
    b[3] = b[2]
    found = forcing_ratios(b, dist)
    assert found[0] == np.inf and found[-1] == 0 and np.isfinite(found[1:]).all()


# Bound (13)


def test_the_printed_bound_fails_under_scaling():
    """Printed bound fails when kernel and forcing are scaled though nothing moves."""
    # b constant, α and b × 0.01: 27 of 28 pairs.
    dist = random_positions(0, vocabulary=5)[0]
    b = np.ones((8, 1))
    pairs = np.triu_indices(8, 1)
    failing = []
    tables = []
    for unit in (1.0, 0.01):
        alpha = exponential_kernel(dist, height=unit)
        done = flow(alpha, unit * b)
        bound = separation_bound(alpha, unit * b, dist, done.radius, lipschitz=unit)
        gaps = cdist(done.fixed_point, done.fixed_point)
        failing.append(int(np.sum((gaps > bound)[pairs])))
        tables.append(done.fixed_point)
        proof = separation_bound(alpha, unit * b, dist, done.radius, lipschitz=unit, form="proof")
        assert (gaps <= proof)[pairs].all()
    assert failing == [0, 27] and np.allclose(*tables)


@pytest.mark.parametrize("width", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("unit", [1.0, 1e-3])
@pytest.mark.parametrize("seed", range(4))
def test_the_proof_bound_holds(width, unit, seed):
    """Bound of the proof holds and is never below n times the radius."""
    dist, b = random_positions(seed)
    alpha = exponential_kernel(dist, width, height=unit)
    done = flow(alpha, unit * b)
    bound = separation_bound(alpha, unit * b, dist, done.radius, lipschitz=unit / width, form="proof")
    pairs = np.triu_indices(8, 1)
    gaps = cdist(done.fixed_point, done.fixed_point)[pairs]
    assert (gaps <= bound[pairs]).all() and (gaps <= 2 * done.radius).all()
    assert bound[pairs].min() >= 8 * done.radius


def test_the_bound_needs_a_positive_definite_kernel():
    """Bound needs a positive definite kernel and a known form."""
    dist, b = random_positions(0)
    with pytest.raises(ValueError, match="needs a positive definite"):
        separation_bound(1 + dist, b, dist, 1.0, 1.0)
    with pytest.raises(ValueError, match="'printed' or 'proof'. Got 'other'"):
        separation_bound(np.eye(8), b, dist, 1.0, 1.0, form="other")


def test_the_proof_derivative_has_an_extra_term():
    """The derivative in the proof has a term too many."""
    # Lemma 18 splits -Σ_l (α_il - α_jl) p_l into "-α(p_i - p_j)" and Σ_l (α_jl - α_il) p_l, which is the whole of it
    # already. α(p_i - p_j) has no meaning (α is n × n); read as the diagonal α_ii, the printed derivative is too small
    # by α_ii |p_i - p_j|².
    dist, b = random_positions(4)
    alpha = exponential_kernel(dist)
    p = np.random.default_rng(5).normal(size=b.shape)
    step = 1e-6
    moved = p + step * (b - alpha @ p)
    i = 2
    j = 6
    measured = 0.5 * (np.sum((moved[i] - moved[j]) ** 2) - np.sum((p[i] - p[j]) ** 2)) / step
    gap = p[i] - p[j]
    rest = gap @ ((alpha[j] - alpha[i]) @ p) + gap @ (b[i] - b[j])
    assert measured == pytest.approx(rest, rel=1e-4)
    assert rest - alpha[i, i] * gap @ gap < measured - 1


# Monotonicity


def test_distances_of_the_arc_grow_with_the_lag():
    p = arc_distributions(9)
    assert np.allclose(p.sum(axis=1), 1)
    dist = hellinger(p)
    lags = np.abs(np.arange(9)[:, None] - np.arange(9))
    assert np.allclose(dist, 2 * np.sin(lags * np.pi / 32)) and violated(dist) == 0


@pytest.mark.parametrize("width", [0.1, 0.5, 2.0])
def test_the_fixed_point_need_not_be_monotone(width):
    """The fixed point need not be monotone though the corpus is."""
    # (A2)-(A4) hold and α is positive definite: more than half of the triples of the table are in the wrong order all
    # the same.
    dist = hellinger(arc_distributions(8))
    alpha = exponential_kernel(dist, width)
    b = (-1.0) ** np.arange(8)[:, None]
    done = flow(alpha, b)
    assert violated(dist) == 0 and np.isfinite(forcing_ratios(b, dist).max())
    assert 0.55 < violated(cdist(done.fixed_point, done.fixed_point)) < 0.65


def test_any_table_is_some_forcings_fixed_point():
    """Any table is the fixed point of some forcing that meets a2."""
    dist = hellinger(arc_distributions(8))
    table = np.random.default_rng(0).normal(size=(8, 4))
    b = exponential_kernel(dist) @ table
    assert np.isfinite(forcing_ratios(b, dist).max())
    assert np.allclose(flow(exponential_kernel(dist), b).fixed_point, table)


def test_monotone_smooth_forcing_is_not_enough():
    """A smooth forcing that is monotone itself is not enough."""
    theta = np.linspace(0, 1, 8)[:, None]
    dist = hellinger(arc_distributions(8))
    table = flow(exponential_kernel(dist), theta).fixed_point
    assert violated(cdist(theta, theta)) == 0 and violated(cdist(table, table)) > 0.05


# (A3)


def test_violations_by_position_average_to_those_of_all_triples():
    dist = random_positions(6, n=7)[0]
    shares = violations_by_position(dist)
    triples = [sum(abs(i - j) < abs(i - k) for j in range(7) for k in range(7) if i != j) for i in range(7)]
    assert np.average(shares, weights=triples) == pytest.approx(violated(dist))
    assert not violations_by_position(hellinger(arc_distributions(6))).any()


def test_violations_by_position_find_the_odd_one():
    dist = np.abs(np.arange(9.0)[:, None] - np.arange(9))
    dist[0, 1:] = 20.0 - np.arange(1.0, 9)  # position 0 is nearest to the far end
    dist[1:, 0] = dist[0, 1:]
    shares = violations_by_position(dist)
    assert shares.argmax() == 0 and shares[0] == 1
    assert np.isnan(violations_by_position(np.ones((3, 3)) - np.eye(3))[1])
