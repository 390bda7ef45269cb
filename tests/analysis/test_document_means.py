"""Means over documents with bootstrap intervals: against loops, and what they should hold."""

import numpy as np
import pytest

from whatwhere.analysis.record_context import count_documents, document_mean, draw_documents, of_documents


def test_intervals_are_quantiles_of_resampled_means():
    values = np.random.default_rng(0).normal(size=(12, 2, 3))
    values[[3, 7], 0, 1] = np.nan
    mean, low, high = document_mean(values, draws=200)
    counts = draw_documents(12, 200)
    assert counts.shape == (200, 12) and (counts.sum(1) == 12).all()
    for a in range(2):
        for b in range(3):
            there = [i for i in range(12) if not np.isnan(values[i, a, b])]
            drawn = [sum(c[i] * values[i, a, b] for i in there) / sum(c[i] for i in there) for c in counts]
            assert mean[a, b] == pytest.approx(np.mean([values[i, a, b] for i in there]))
            np.testing.assert_allclose((low[a, b], high[a, b]), np.quantile(drawn, [0.025, 0.975]))


def test_document_mean_intervals_cover_at_their_rate():
    """400 means of 40 documents each: 95 % of the intervals hold 0, give or take."""
    _, low, high = document_mean(np.random.default_rng(1).normal(size=(40, 400)))
    assert 0.90 <= np.mean((low <= 0) & (high >= 0)) <= 0.98


def test_one_document_has_a_mean_without_interval():
    """One document has a mean alone and none seen is nan."""
    mean, low, high = document_mean(np.array([[2.0, np.nan]]))
    assert mean[0] == 2.0 and np.isnan(mean[1]) and np.isnan(low[0]) and np.isnan(high[0])
    mean, low, high = document_mean(np.array([[2.0, np.nan], [4.0, np.nan]]))
    assert np.isnan(mean[1]) and np.isnan(low[1]) and (mean[0], low[0], high[0]) == (3.0, 2.0, 4.0)


def test_whole_documents_are_drawn_with_all_their_windows():
    numbers = np.array([4, 4, 4, 7, 7, 9])
    samples = draw_documents(6, draws=500, document_numbers=numbers)
    np.testing.assert_array_equal(samples[:, 0], samples[:, 2])
    np.testing.assert_array_equal(samples[:, 3], samples[:, 4])
    assert (samples[:, [0, 3, 5]].sum(1) == 3).all()
    values = np.array([1.0, 2.0, 3.0, 10.0, 20.0, 5.0])
    means = (samples @ values) / samples.sum(1)
    mean, low, high = document_mean(values, draws=500, document_numbers=numbers)
    assert mean == values.mean()
    np.testing.assert_allclose([low, high], np.quantile(means, [0.025, 0.975]))


def test_intervals_respect_documents_of_similar_windows():
    """Intervals of alike windows are as wide as their documents say."""
    rng = np.random.default_rng(0)
    numbers = np.repeat(np.arange(20), 10)
    values = np.repeat(rng.standard_normal(20), 10) + 0.01 * rng.standard_normal(200)
    _, low, high = document_mean(values, document_numbers=numbers)
    _, few, many = document_mean(values)
    assert (high - low) > 2.5 * (many - few)  # sqrt(10) for windows that are the same
    assert np.isnan(document_mean(values, document_numbers=np.zeros(200, int))[1])


def test_values_of_windows_are_counted_and_averaged_by_document():
    numbers = np.array([7, 7, 3, 9, 9])
    values = np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 2.0], [np.nan, 4.0], [6.0, 8.0]])
    np.testing.assert_array_equal(of_documents(values, numbers), [[5.0, 2.0], [2.0, np.nan], [6.0, 6.0]])
    assert count_documents(values, numbers).tolist() == [3, 2] and count_documents(values).tolist() == [4, 3]
    np.testing.assert_array_equal(of_documents(values), values)
