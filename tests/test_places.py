"""Holm's correction beside closed testing, and places of models beside Student's test and least squares."""

import itertools

import numpy as np
import pytest
from scipy.stats import t, ttest_rel

from whatwhere.records.places import LEVEL, after_holm, rank


@pytest.mark.parametrize("seed", range(20))
def test_holm_is_closed_testing_with_bonferroni(seed):
    """A claim holds if every group of claims with it has one p of at most LEVEL over the size of the group."""
    rng = np.random.default_rng(seed)
    ps = rng.choice([1e-4, 0.004, 0.009, 0.012, 0.02, 0.04, 0.3, 1.0], size=6)
    groups = [set(g) for n in range(1, 7) for g in itertools.combinations(range(6), n)]
    closed = [all(min(ps[list(g)]) <= LEVEL / len(g) for g in groups if i in g) for i in range(6)]
    assert after_holm(list(ps)) == closed
    assert after_holm([]) == []


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.1, 0.2, 0.4, -0.4])
def test_two_models_are_placed_by_the_paired_t_test(gap):
    """Of two models the residuals are those of their difference."""
    values = np.array([[1.0, 1.3, 1.1, 1.25], [1.02, 1.25, 1.2, 1.22]]) + [[0.0], [gap]]
    apart = ttest_rel(*values).pvalue <= LEVEL
    ordered = [(1, 1), (2, 2)] if gap > 0 else [(2, 2), (1, 1)]
    ranking = rank(values)
    assert ranking.places == (ordered if apart else [(1, 2), (1, 2)])
    low, high = ttest_rel(*values).confidence_interval()
    assert ranking.half_width == pytest.approx((high - low) / 2)


@pytest.mark.parametrize("seed", range(12))
def test_places_are_those_of_least_squares(seed):
    """The error of a difference is the one of a regression on models and seeds, pair by pair in float64."""
    rng = np.random.default_rng(seed)
    models = 5
    seeds = 3
    values = rng.normal(size=(models, 1)) * 0.3 + rng.normal(size=seeds) + 0.05 * rng.normal(size=(models, seeds))
    rows = [(m, s) for m in range(models) for s in range(seeds)]
    design = np.array([[*np.eye(models)[m], *np.eye(seeds)[s][1:]] for m, s in rows])
    found, squares, columns, _ = np.linalg.lstsq(design, values.reshape(-1), rcond=None)
    inverse = np.linalg.inv(design.T @ design)
    freedom = len(rows) - columns
    pairs = list(itertools.combinations(range(models), 2))
    ps = []
    for a, b in pairs:
        contrast = np.eye(columns)[a] - np.eye(columns)[b]
        error = np.sqrt(contrast @ inverse @ contrast * squares[0] / freedom)
        ps.append(float(2 * t(freedom).sf(abs(contrast @ found) / error)))
    apart = [pair for pair, holds in zip(pairs, after_holm(ps), strict=True) if holds]
    means = values.mean(axis=1)
    for m, (first, last) in enumerate(rank(values).places):
        others = [a + b - m for a, b in apart if m in (a, b)]
        assert first == 1 + sum(means[o] < means[m] for o in others)
        assert last == models - sum(means[o] > means[m] for o in others)


def test_equal_models_are_seldom_told_apart():
    """Of 200 tables of models that do not differ at most one in ten names any order; the level is one in twenty."""
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(200, 1, 3)) + rng.normal(size=(200, 8, 3))
    assert np.mean([rank(table).places != [(1, 8)] * 8 for table in tables]) < 0.1


def test_equal_residuals_leave_no_doubt():
    """Without any residual each gap is certain, and equal values stay tied."""
    values = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]])
    assert rank(values).places == [(1, 2), (1, 2), (3, 3)]


@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_a_ranking_needs_two_models_and_two_seeds(shape):
    """A single model or seed is refused in words."""
    with pytest.raises(ValueError, match="two models and two seeds; there are"):
        rank(np.zeros(shape))
