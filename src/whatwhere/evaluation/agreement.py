"""Scores of predictions, (predictions, right answers) -> number: GLUE's by name, and Holmes'."""

from collections.abc import Callable

import numpy as np

Score = Callable[[np.ndarray, np.ndarray], float]


def _f1(predicted: np.ndarray, right: np.ndarray) -> float:
    from sklearn.metrics import f1_score

    return float(f1_score(right, predicted, zero_division=0.0))


def _accuracy(predicted: np.ndarray, right: np.ndarray) -> float:
    return float((predicted == right).mean())


def _spearman(predicted: np.ndarray, right: np.ndarray) -> float:
    from scipy import stats

    if np.ptp(predicted) == 0 or np.ptp(right) == 0:  # a constant has no rank correlation
        return 0.0
    return float(stats.spearmanr(predicted, right).statistic)


def macro_f1(predicted: np.ndarray, right: np.ndarray) -> float:
    """Return the mean F1 score over the classes that occur in predictions or answers (n,), as scikit-learn's `macro`.

    It is Holmes' metric of classes, in [0, 1]; classes are whole numbers.
    """
    low = min(int(predicted.min()), int(right.min()))
    size = max(int(predicted.max()), int(right.max())) - low + 1
    hits = np.bincount(right[predicted == right] - low, minlength=size)
    totals = np.bincount(predicted - low, minlength=size) + np.bincount(right - low, minlength=size)
    return float(np.mean(2 * hits[totals > 0] / totals[totals > 0]))


def pearson(predicted: np.ndarray, right: np.ndarray) -> float:
    """Return Pearson's correlation of predictions and answers (n,), in [-1, 1]; 0 where either does not vary."""
    if np.ptp(predicted) == 0 or np.ptp(right) == 0:
        return 0.0
    return float(np.corrcoef(predicted.astype(float), right.astype(float))[0, 1])


METRICS: dict[str, Score] = {
    "accuracy": _accuracy,
    "f1": _f1,
    "matthews": pearson,  # equal for two classes; scikit-learn's takes forty times as long over a thousand draws
    "pearson": pearson,
    "spearman": _spearman,
}
