"""Means over documents with 95 % intervals, for many quantities at once."""

import numpy as np

Mean = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high; ends are nan where there is no interval

DRAWS = 1000


def draw_documents(documents: int, draws: int = DRAWS, seed: int = 0, articles: np.ndarray | None = None) -> np.ndarray:
    """(draws, documents): how often each document is in each sample of as many documents, drawn with replacement.

    With `articles` (documents,) whole articles are drawn, as many as there are, each with all of its documents: windows
    of one article are alike, and drawn one by one they would make intervals too narrow. Equal calls give equal samples,
    so that two quantities of the same documents are resampled together.
    """
    names, at = np.unique(np.arange(documents) if articles is None else articles, return_inverse=True)
    return np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)[:, at]


def document_means(
    values: np.ndarray, draws: int = DRAWS, seed: int = 0, articles: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (...) of `values` (documents, ...) over the documents, and over each sample of them (draws, ...); articles:
    see `draw_documents`.

    Documents with nan have no value and are left out, of the quantity concerned alone; nan where none has one. A single
    document or article has no other sample: the mean alone, (1, ...).
    """
    values = np.asarray(values, dtype=np.float64)
    flat = values.reshape(len(values), -1)
    there = ~np.isnan(flat)
    filled = np.where(there, flat, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(0) / there.sum(0)
        if len(values if articles is None else np.unique(articles)) < 2:
            drawn = mean[None]
        else:
            samples = draw_documents(len(values), draws, seed, articles).astype(np.float64)
            drawn = samples @ filled / (samples.sum(1, keepdims=True) if there.all() else samples @ there)
    drawn = np.where(np.isnan(drawn), mean, drawn)  # samples without a value
    return mean.reshape(values.shape[1:]), drawn.reshape(-1, *values.shape[1:])


def interval(drawn: np.ndarray) -> np.ndarray:
    """(2, ...): the middle 95 % of draws (draws, ...); nan of a single one."""
    return np.quantile(drawn, [0.025, 0.975], axis=0) if len(drawn) > 1 else np.full((2, *drawn.shape[1:]), np.nan)


def document_mean(values: np.ndarray, draws: int = DRAWS, seed: int = 0, articles: np.ndarray | None = None) -> Mean:
    """Mean, low and high, each (...), of `document_means`: the percentile bootstrap's 95 % interval.

    It speaks of this model on other documents like these, not of another training seed.
    """
    mean, drawn = document_means(values, draws, seed, articles)
    low, high = interval(drawn)
    return mean, low, high
