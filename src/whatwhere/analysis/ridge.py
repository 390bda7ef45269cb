"""Ridge regression and its R² from sums over tokens, so that every token is looked at once however many fits there are.

Equal to scikit-learn's Ridge(alpha=penalty) and r2_score in float64, and after `project` to its PCA before them.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, lstsq


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over n tokens of features x (p wide) and targets y (q wide).

    xx: (p, p) of x xᵀ. xy: (p, q) of x yᵀ. yy: (q,) of the squares of y. x: (p,), y: (q,).
    """

    n: float
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """(p, p) and (p, q): x xᵀ and x yᵀ about the means."""
        return self.xx - np.outer(self.x, self.x) / self.n, self.xy - np.outer(self.x, self.y) / self.n

    def spread(self) -> np.ndarray:
        """(q,) squares of y about its mean: what R² divides by."""
        return self.yy - self.y**2 / self.n

    def project(self, axes: np.ndarray) -> "Sums":
        """The sums of the features x · axes, for axes (p, k)."""
        return Sums(self.n, self.x @ axes, self.y, axes.T @ self.xx @ axes, axes.T @ self.xy, self.yy)


def principal_axes(sums: Sums, components: int) -> np.ndarray:
    """(p, components) axes of the most variance of x, the first the most; signs are left open."""
    p = len(sums.x)
    _, axes = eigh(sums.moments()[0], subset_by_index=[p - components, p - 1])
    return axes[:, ::-1]


def ridge_r2(train: Sums, test: Sums, penalty: float) -> np.ndarray:
    """(q,) R² on the test tokens of the ridge regression of each target on all features of the training tokens.

    The penalty is on the coefficients and not on the intercept, and R² is 1 - squared errors / squares about the mean of the test
    tokens: below 0 where that mean would have been better. Meaningless for a target that does not vary in the test.
    """
    gram, moments = train.moments()
    gram[np.diag_indices_from(gram)] += penalty
    try:
        weights = cho_solve(cho_factor(gram, lower=True), moments)
    except LinAlgError:  # equal features so large that the penalty is lost in rounding
        weights = lstsq(gram, moments)[0]
    intercept = (train.y - train.x @ weights) / train.n
    fitted = test.xx @ weights + np.outer(test.x, intercept)  # sums of x · prediction
    means = test.x @ weights + test.n * intercept
    residual = test.yy - np.sum(weights * (2 * test.xy - fitted), axis=0) - intercept * (2 * test.y - means)
    return 1.0 - residual / test.spread()
