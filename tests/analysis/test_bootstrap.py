"""Means over documents with bootstrap intervals: against loops, and what they should hold."""

import numpy as np
import pytest

from whatwhere.analysis.bootstrap import at_place, document_mean, draw_documents


def test_intervals_are_quantiles_of_resampled_means():
    values = np.random.default_rng(0).normal(size=(12, 2, 3))
    values[3, 0, 1] = values[7, 0, 1] = np.nan
    mean, low, high = document_mean(values, draws=200)
    counts = draw_documents(12, 200)
    assert counts.shape == (200, 12) and (counts.sum(1) == 12).all()
    for a in range(2):
        for b in range(3):
            there = [i for i in range(12) if not np.isnan(values[i, a, b])]
            drawn = [sum(c[i] * values[i, a, b] for i in there) / sum(c[i] for i in there) for c in counts]
            assert mean[a, b] == pytest.approx(np.mean([values[i, a, b] for i in there]))
            np.testing.assert_allclose((low[a, b], high[a, b]), np.quantile(drawn, [0.025, 0.975]))


def test_the_interval_holds_the_mean_about_as_often_as_it_says():
    """400 means of 40 documents each: 95 % of the intervals hold 0, give or take."""
    _, low, high = document_mean(np.random.default_rng(1).normal(size=(40, 400)))
    assert 0.90 <= np.mean((low <= 0) & (high >= 0)) <= 0.98


def test_one_document_has_a_mean_alone_and_none_seen_is_nan():
    mean, low, high = document_mean(np.array([[2.0, np.nan]]))
    assert mean[0] == 2.0 and np.isnan(mean[1]) and low is None and high is None
    mean, low, high = document_mean(np.array([[2.0, np.nan], [4.0, np.nan]]))
    assert np.isnan(mean[1]) and np.isnan(low[1]) and at_place((mean, low, high), (0,)) == (3.0, 2.0, 4.0)
