"""Scores of predictions, (predictions, right answers) -> number: those of GLUE by name, and Holmes'."""

from collections.abc import Callable

import numpy as np

Score = Callable[[np.ndarray, np.ndarray], float]


def _f1(said: np.ndarray, right: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(right, said, zero_division=0.0))


def _accuracy(said: np.ndarray, right: np.ndarray) -> float:
    return float((said == right).mean())


def _spearman(said: np.ndarray, right: np.ndarray) -> float:
    from scipy import stats

    if np.ptp(said) == 0 or np.ptp(right) == 0:  # one answer for all goes with nothing
        return 0.0
    return float(stats.spearmanr(said, right).statistic)


def macro_f1(said: np.ndarray, right: np.ndarray) -> float:
    """Mean over classes, of those that occur in either, of the F1 score: Holmes' metric, scikit-learn's `macro`."""
    low = min(int(said.min()), int(right.min()))
    size = max(int(said.max()), int(right.max())) - low + 1
    hits = np.bincount(right[said == right] - low, minlength=size)
    whole = np.bincount(said - low, minlength=size) + np.bincount(right - low, minlength=size)
    return float(np.mean(2 * hits[whole > 0] / whole[whole > 0]))


def pearson(said: np.ndarray, right: np.ndarray) -> float:
    """Pearson's correlation, 0 where one of both does not vary."""
    if np.ptp(said) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(np.corrcoef(said.astype(float), right.astype(float))[0, 1])


METRICS: dict[str, Score] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": pearson,  # which it is of two classes; scikit-learn's takes forty times as long, a thousand draws over
    "pearson": pearson,
    "spearman": _spearman,
}
