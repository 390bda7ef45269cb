"""Means over documents with 95 % intervals, for many quantities at once."""

import numpy as np

Mean = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]  # mean, low, high

DRAWS = 1000


def draw_documents(documents: int, draws: int = DRAWS, seed: int = 0, articles: np.ndarray | None = None) -> np.ndarray:
    """(draws, documents): how often each document is in each sample of as many documents, drawn with replacement; rows
    sum to `documents`.

    With `articles` (documents,) whole articles are drawn, as many as there are, each with all of its documents: windows
    of one article are alike, and drawn one by one they would make intervals too narrow. Rows then sum to about
    `documents`. Equal calls give equal samples, so that two quantities of the same documents are resampled together.
    """
    if articles is None:
        return np.random.default_rng(seed).multinomial(documents, np.full(documents, 1 / documents), size=draws)
    names, at = np.unique(articles, return_inverse=True)
    return np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)[:, at]


def enough(documents: int, articles: np.ndarray | None) -> bool:
    """Whether there is more than one thing to draw."""
    return documents > 1 if articles is None else len(np.unique(articles)) > 1


def joined(articles: list[np.ndarray | None]) -> np.ndarray | None:
    """The articles of all batches of a pass; None where the documents have none."""
    known = [a for a in articles if a is not None]
    return np.concatenate(known) if known and len(known) == len(articles) else None


def document_mean(values: np.ndarray, draws: int = DRAWS, seed: int = 0, articles: np.ndarray | None = None) -> Mean:
    """Mean of `values` (documents, ...) over the documents, with the percentile bootstrap's 95 % interval; articles:
    see `draw_documents`.

    It speaks of this model on other documents like these, not of another training seed. Documents with nan have no
    value and are left out, of the quantity concerned alone.

    Returns:
        mean, low and high, each (...); low and high are None for a single document or article. nan where no document
        has a value.
    """
    values = np.asarray(values, dtype=np.float64)
    flat = values.reshape(len(values), -1)
    there = ~np.isnan(flat)
    filled = np.where(there, flat, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (filled.sum(0) / there.sum(0)).reshape(values.shape[1:])
        if not enough(len(values), articles):
            return mean, None, None
        samples = draw_documents(len(values), draws, seed, articles).astype(np.float64)
        counts = samples.sum(1, keepdims=True) if there.all() else samples @ there
        drawn = samples @ filled / counts
    drawn = np.where(np.isnan(drawn), mean.reshape(-1), drawn)  # samples without a value
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return mean, low.reshape(mean.shape), high.reshape(mean.shape)


def at_place(mean: Mean, place: tuple[int, ...]) -> tuple[float, float | None, float | None]:
    """Value, low and high of one quantity of a `document_mean`."""
    value, low, high = mean
    return float(value[place]), None if low is None else float(low[place]), None if high is None else float(high[place])
