"""Means over documents with 95 % intervals, for many quantities at once."""

import numpy as np

Mean = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]  # mean, low, high

DRAWS = 1000


def draw_documents(documents: int, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """(draws, documents): how often each document is in each sample of as many documents, drawn with replacement; rows sum to `documents`.

    Equal calls give equal samples, so that two quantities of the same documents are resampled together.
    """
    return np.random.default_rng(seed).multinomial(documents, np.full(documents, 1 / documents), size=draws)


def document_mean(values: np.ndarray, draws: int = DRAWS, seed: int = 0) -> Mean:
    """Mean of `values` (documents, ...) over the documents, with the percentile bootstrap's 95 % interval.

    It speaks of this model on other documents like these, not of another training seed. Documents with nan have no value and are left
    out, of the quantity concerned alone.

    Returns:
        mean, low and high, each (...); low and high are None for a single document. nan where no document has a value.
    """
    values = np.asarray(values, dtype=np.float64)
    flat = values.reshape(len(values), -1)
    there = ~np.isnan(flat)
    filled = np.where(there, flat, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (filled.sum(0) / there.sum(0)).reshape(values.shape[1:])
        if len(values) < 2:
            return mean, None, None
        samples = draw_documents(len(values), draws, seed).astype(np.float64)
        counts = np.full(1, len(values)) if there.all() else samples @ there
        drawn = samples @ filled / counts
    drawn = np.where(np.isnan(drawn), mean.reshape(-1), drawn)  # samples without a value
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return mean, low.reshape(mean.shape), high.reshape(mean.shape)


def at_place(mean: Mean, place: tuple[int, ...]) -> tuple[float, float | None, float | None]:
    """Value, low and high of one quantity of a `document_mean`."""
    value, low, high = mean
    return float(value[place]), None if low is None else float(low[place]), None if high is None else float(high[place])
