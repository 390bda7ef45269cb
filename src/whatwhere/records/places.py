"""Places of models in an order by training seeds: Holm's correction, and the ties that it leaves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import t

LEVEL = 0.05  # two-sided, as in the 95 % intervals


def after_holm(ps: Sequence[float]) -> list[bool]:
    """Tell for each test if its finding still holds where a false one among all may occur with probability `LEVEL`.

    The smallest p is compared with LEVEL / n, the next with LEVEL / (n - 1), and so on; from the first that is larger
    none holds. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
    (1979). It needs no independence.
    """
    order = np.argsort(ps, kind="stable")
    small = np.asarray(ps)[order] <= LEVEL / np.arange(len(ps), 0, -1) * (1 + 1e-9)  # an end at 0 is on the right side
    holds = np.zeros(len(ps), dtype=bool)
    holds[order] = np.logical_and.accumulate(small)
    return holds.tolist()


@dataclass(frozen=True)
class Ranking:
    """Order of models by the means of their trainings.

    places: the first and the last place that each model may have, 1 for the smallest mean. half_width: of the 95 %
    interval of a difference of two means, without a correction for many pairs. shares: what each model's trainings make
    of the squares behind that width.
    """

    places: list[tuple[int, int]]
    half_width: float
    shares: list[float]


def rank(values: np.ndarray) -> Ranking:
    """Return the places of models, as far as their trainings tell them apart.

    Two models are apart where the difference of their means holds after Holm's correction over all pairs. Its
    standard error comes from the residuals of all models around the sum of a model's and a seed's mean, as in a
    two-way analysis of variance without interaction: of three seeds alone no difference would hold among many pairs. It
    takes the variance of a training to be the same for all models, so that one model that varies much widens the ties
    of all.

    Args:
        values: (models, seeds), at least two of each, in whatever unit; a column holds trainings of one seed.

    Raises:
        ValueError: fewer than two models or seeds.
    """
    models, seeds = values.shape
    if min(models, seeds) < 2:
        raise ValueError(f"A ranking needs two models and two seeds; there are {models} and {seeds}. Add some.")
    means = values.mean(axis=1)
    residuals = values - means[:, None] - values.mean(axis=0) + values.mean()
    freedom = (models - 1) * (seeds - 1)
    error = float(np.sqrt(2 / seeds * (residuals**2).sum() / freedom))
    pairs = list(combinations(range(models), 2))
    gaps = np.array([means[b] - means[a] for a, b in pairs])
    with np.errstate(divide="ignore", invalid="ignore"):  # equal residuals: every gap but none is certain
        ps = np.where(gaps == 0, 1.0, 2 * t(freedom).sf(np.abs(gaps) / error))
    ahead = np.zeros((models, models), dtype=bool)  # of row, column
    for (a, b), gap, holds in zip(pairs, gaps, after_holm(ps.tolist()), strict=True):
        ahead[a, b] = holds and gap > 0
        ahead[b, a] = holds and gap < 0
    places = [(1 + int(ahead[:, m].sum()), models - int(ahead[m].sum())) for m in range(models)]
    squares = (residuals**2).sum(axis=1)
    shares = squares / squares.sum() if squares.any() else squares
    return Ranking(places, float(t.ppf(1 - LEVEL / 2, freedom)) * error, shares.tolist())
