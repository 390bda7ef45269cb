"""Measured values with the sources of their intervals, and the table through which all readers query a
run's records."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.stats import rankdata

from .intervals import FEW, UNBOUNDED, Range, hierarchical, p_above_zero, smallest_effect
from .metric import CORRELATION, TWICE, UNIT
from .metrics import is_shared, range_of, repeats
from .record import Record, is_one_of

ANY: Any = ...  # in a query: the column may have any value
DRAWS = 1000  # of the bootstrap over heads
SPLIT_DOCUMENTS = 500  # documents of a split, as in DSTG; a fifth of any other number gives the same interval
FEWEST_HEADS = 8  # below which it is too narrow: of 5 heads with nothing but their sharpness in common it finds 17 %


@dataclass(frozen=True, eq=False)
class Point:
    """Quantity of every training seed, with its interval (one row where no training is involved).

    at: (seeds, k) values of the k splits or documents, k = 1 where nothing was repeated. Arithmetic is paired by seed
        and by split or document, as all models are probed on the same splits and ablated on the same documents; of two
        points with other seeds it takes those that both have.
    below, above: (seeds,) half-widths of the 95 % interval that the records carry, 0 where they carry none; of several
        seeds it is one over what all of them read. Sums and differences combine them in quadrature, which is right for
        independent errors, too wide for errors that go together (of the same documents, as a rule), too narrow for two
        shares of one whole.
    columns: kind of the columns of `at`: "splits", which overlap, "documents", which do not, or "".
    n: observations behind the value. trained: True if the rows are training seeds. numbers: the seeds, ascending; ()
        where they are not known.
    span: least and largest possible value. Sums, differences, multiples and ratios have the range that follows
        from theirs: the difference of two shares lies in [-1, 1]. Intervals are formed on its scale (`intervals`).
    """

    at: np.ndarray
    below: np.ndarray
    above: np.ndarray
    columns: str = ""
    n: int | None = None
    trained: bool = True
    span: Range = UNBOUNDED
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(cls, values: Sequence[Sequence[float]] | np.ndarray, columns: str = "", span: Range = UNBOUNDED) -> "Point":
        """Return a point of (seeds, k) values without half-widths; `columns` is "splits" by default where there are
        several."""
        at = np.asarray(values, dtype=float)
        columns = columns or ("splits" if at.shape[1] > 1 else "")
        return cls(at, np.zeros(len(at)), np.zeros(len(at)), columns, span=span)

    @classmethod
    def between(
        cls,
        value: float,
        low: float | None = None,
        high: float | None = None,
        n: int | None = None,
        span: Range = UNBOUNDED,
    ) -> "Point":
        """Return a point of a single value with its interval."""
        low, high = (value, value) if low is None or high is None else (low, high)
        return cls(np.array([[value]]), np.array([value - low]), np.array([high - value]), n=n, span=span)

    @cached_property
    def value(self) -> float:
        """Mean over seeds and columns."""
        return float(self.at.mean())

    @property
    def seed_values(self) -> np.ndarray:
        """Values of the seeds, (seeds,): means over the columns."""
        return self.at.mean(axis=1)

    @property
    def seeds(self) -> int:
        """Number of training seeds behind the value; 0 where no training is involved."""
        return len(self.at) if self.trained else 0

    @property
    def few(self) -> list[float]:
        """Values of the seeds where there are two or three, which a figure shows beside the interval; else none."""
        return [float(v) for v in self.seed_values] if 1 < self.seeds <= FEW else []

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Interval (95 %) over every known source of error; None where nothing was repeated.

        It is Student's between seeds if there are several, and over documents, by their splits (corrected, as those
        overlap) or as the records carry it (`intervals.hierarchical`).
        """
        documents = None if self.columns == "documents" else SPLIT_DOCUMENTS
        below = float(self.below.mean())
        above = float(self.above.mean())
        return hierarchical(self.at, self.span, documents=documents, below=below, above=above)

    @cached_property
    def p(self) -> float | None:
        """Two-sided p value of a value that is not above 0, by the same errors as the interval; None without one."""
        if self.interval is None:
            return None
        documents = None if self.columns == "documents" else SPLIT_DOCUMENTS
        return p_above_zero(self.at, self.span, documents=documents, below=float(self.below.mean()))

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return self.interval[1] if self.interval else None

    @property
    def over(self) -> str:
        """Source of the interval: "seeds", "splits", "documents", or "seeds and" one of these; "" for none."""
        if self.interval is None:
            return ""
        if len(self.at) == 1:
            return self.columns or "documents"
        if self.at.shape[1] > 1:
            return f"seeds and {self.columns}"
        return "seeds and documents" if self.below.any() or self.above.any() else "seeds"

    def alone(self) -> "Point":
        """Return the value with its interval as a point without seeds and columns."""
        return Point.between(self.value, self.low, self.high, self.n, self.span)

    def __add__(self, other: "Point | float") -> "Point":
        if not isinstance(other, Point):
            return replace(self, at=self.at + other, span=(self.span[0] + other, self.span[1] + other))
        trained = self.trained or other.trained
        ours = self._with_seeds_of(other)
        theirs = other._with_seeds_of(self)
        self = ours._for_each_seed(theirs)
        other = theirs._for_each_seed(self)
        if self.at.shape != other.at.shape:  # nothing to pair
            self = self.alone()
            other = other.alone()
        below = np.hypot(self.below, other.below)
        above = np.hypot(self.above, other.above)
        span = (self.span[0] + other.span[0], self.span[1] + other.span[1])
        at = self.at + other.at
        columns = self.columns or other.columns
        numbers = self.numbers or other.numbers
        return replace(
            self, at=at, below=below, above=above, columns=columns, trained=trained, span=span, numbers=numbers
        )

    def _with_seeds_of(self, other: "Point") -> "Point":
        """Return the rows of the seeds that another point has, too; without a common seed the value `alone`."""
        if not self.numbers or not other.numbers or self.numbers == other.numbers:
            return self
        rows = [row for row, number in enumerate(self.numbers) if number in other.numbers]
        if not rows:
            return self.alone()
        numbers = tuple(self.numbers[row] for row in rows)
        return replace(self, at=self.at[rows], below=self.below[rows], above=self.above[rows], numbers=numbers)

    def _for_each_seed(self, other: "Point") -> "Point":
        """Return a fact of the corpus, which is the same beside every seed, once for each seed of another point that
        has the same columns; any other point unchanged."""
        if self.trained or len(self.at) != 1 or self.at.shape[1] != other.at.shape[1]:
            return self
        at, below, above = (np.repeat(values, len(other.at), axis=0) for values in (self.at, self.below, self.above))
        return replace(self, at=at, below=below, above=above)

    def __neg__(self) -> "Point":
        return replace(self, at=-self.at, below=self.above, above=self.below, span=(-self.span[1], -self.span[0]))

    def __sub__(self, other: "Point | float") -> "Point":
        return self + (-other)

    def __rsub__(self, other: float) -> "Point":
        return -self + other

    def __mul__(self, factor: float) -> "Point":
        """Multiply by a number that is not negative."""
        span = (self.span[0] * factor, self.span[1] * factor) if factor else (0.0, 0.0)
        return replace(self, at=self.at * factor, below=self.below * factor, above=self.above * factor, span=span)

    __rmul__ = __mul__

    def __truediv__(self, other: "Point") -> "Point":
        """Divide two positive values, half-widths to first order; the ratio of two values that cannot be negative
        cannot be negative."""
        top = self._with_seeds_of(other)
        bottom = other._with_seeds_of(self)
        ratio = top.at / bottom.at
        mean = bottom.seed_values
        size = np.abs(ratio.mean(axis=1))
        below = np.hypot(top.below / mean, size * bottom.above / mean)
        above = np.hypot(top.above / mean, size * bottom.below / mean)
        span = (0.0, math.inf) if min(self.span[0], other.span[0]) >= 0 else UNBOUNDED
        return replace(top, at=ratio, below=below, above=above, columns=top.columns or bottom.columns, span=span)

    def __le__(self, other: "Point | float") -> "Margin":
        """Return the margin by which this point is below the other value."""
        return Margin(**vars(other - self), compared=self, bar=_value(other), least=False)

    def __ge__(self, other: "Point | float") -> "Margin":
        """Return the margin by which this point is above the other value."""
        return Margin(**vars(self - other), compared=self, bar=_value(other))


@dataclass(frozen=True, eq=False, kw_only=True)
class Margin(Point):
    """Result of a comparison of points: the distance on the right side of a threshold, negative on the wrong one.

    compared: left side of the comparison. bar: value of the right side. least: True if the left side must be above the
    bar.
    """

    compared: Point
    bar: float
    least: bool = True

    def __bool__(self) -> bool:
        raise TypeError("A comparison of points is a margin with an interval, neither true nor false.")


def _value(other: Point | float) -> float:
    return other.value if isinstance(other, Point) else other


def largest(points: Iterable[Point]) -> Point:
    """Return for each seed the point whose mean is largest, with its interval."""
    return _chosen(list(points), np.argmax)


def smallest(points: Iterable[Point]) -> Point:
    """Return for each seed the point whose mean is smallest, with its interval."""
    return _chosen(list(points), np.argmin)


def _chosen(points: Sequence[Point], best: Callable[..., np.ndarray]) -> Point:
    at = np.stack([p.at for p in points])
    chosen = best(at.mean(axis=2), axis=0)
    seeds = np.arange(at.shape[1])
    below, above = (np.stack([getattr(p, side) for p in points])[chosen, seeds] for side in ("below", "above"))
    return replace(points[0], at=at[chosen, seeds], below=below, above=above, span=_hull(points))


def _hull(points: Sequence[Point]) -> Range:
    """Return the smallest range that contains the ranges of all points."""
    return min(p.span[0] for p in points), max(p.span[1] for p in points)


def average(points: Sequence[Point], *, on_other_rows: bool = False) -> Point:
    """Return the mean of values of one model.

    Values on the same documents have errors that go together, so that half-widths are averaged too. on_other_rows: each
    has rows of its own, as the tasks of a benchmark; their errors are independent, and half-widths add in quadrature.
    """
    at = np.mean([p.at for p in points], axis=0)
    halves = [np.array([getattr(p, side) for p in points]) for side in ("below", "above")]
    if on_other_rows:
        below, above = (np.sqrt((half**2).sum(axis=0)) / len(points) for half in halves)
    else:
        below, above = (half.mean(axis=0) for half in halves)
    return replace(points[0], at=at, below=below, above=above, span=_hull(points))


def curve(values: np.ndarray | None, at: Iterable[Any] | None = None, *, trained: bool = True) -> dict[Any, Point]:
    """Return place (from 0 by default) -> finite value of an array (n,), or of the mean over the rows of (k, n); {} for
    None.

    trained: whether training has to do with the values.
    """
    if values is None:
        return {}
    means = values if values.ndim == 1 else values.mean(axis=0)
    places = range(len(means)) if at is None else at
    points = {x: replace(Point.between(float(v)), trained=trained) for x, v in zip(places, means, strict=False)}
    return {x: p for x, p in points.items() if math.isfinite(p.value)}


def running_sums(points: Mapping[Any, Point]) -> dict[Any, Point]:
    """Return place -> sum of the values up to it. Sums of shares are shares of the same whole."""
    sums = dict(zip(points, accumulate(points.values()), strict=True))
    return {x: replace(total, span=UNIT) if points[x].span == UNIT else total for x, total in sums.items()}


def highest(curves: Iterable[Mapping[Any, Point]]) -> dict[Any, Point]:
    """Return place -> highest value of several curves, in the order of the places."""
    best: dict[Any, Point] = {}
    for points in curves:
        best |= {x: max(best.get(x, p), p, key=lambda point: point.value) for x, p in points.items()}
    return dict(sorted(best.items()))


def share_above(points: Sequence[Point], threshold: float) -> Point:
    """Return for each seed the share of points that are at least `threshold`; its only interval is that
    between seeds."""
    return Point.of(np.mean([p.seed_values >= threshold for p in points], axis=0)[:, None], span=UNIT)


def effects(seeds: int) -> tuple[float, float]:
    """Return the smallest effects that a number of seeds shows with a chance of 80 %, paired by seed and not paired, in
    standard deviations (`intervals.smallest_effect`)."""
    return smallest_effect(seeds), smallest_effect(seeds, paired=False)


def smallest_difference(places: Iterable[Sequence[Point]], paired: bool = True) -> tuple[int, float] | None:
    """Return the number of seeds and the smallest difference that they show with a chance of 80 %.

    It is in the unit of the points; in standard deviations that is `intervals.smallest_effect`; the variance is the
    mean over all that can be compared, the number of seeds their fewest. Of bounded values it holds away from the ends
    of their range. None without several seeds, or where they do not vary.

    Args:
        places: values of several models in one place each, which are compared with each other.
        paired: of differences between two models, seed by seed; else of a value and a threshold.
    """
    variances: list[float] = []
    counts: list[int] = []  # of seeds
    for points in places:
        seeded = [p for p in points if p.seeds > 1]
        rows = [p.seed_values for p in seeded]
        if paired:
            rows = [d.seed_values for a, b in combinations(seeded, 2) if (d := a - b).seeds > 1]
        variances += [float(row.var(ddof=1)) for row in rows]
        counts += [len(row) for row in rows]
    if not variances:
        return None
    seeds = min(counts)
    size = smallest_effect(seeds) * math.sqrt(float(np.mean(variances)))
    return (seeds, size) if size > 0 else None


def portion(a: Point, b: Point) -> Point:
    """Return a / (a + b) of two values that are not negative, a half where both are 0; half-widths of independent
    errors."""
    total = a.at + b.at
    whole = np.where(total > 0, total, 1.0)
    square = whole.mean(axis=1) ** 2
    below = np.hypot(b.seed_values * a.below, a.seed_values * b.above) / square
    above = np.hypot(b.seed_values * a.above, a.seed_values * b.below) / square
    return Point(np.where(total > 0, a.at / whole, 0.5), below, above, span=UNIT)


def rank_correlations(a: Sequence[Point], b: Sequence[Point], c: Sequence[Point]) -> tuple[Point, Point]:
    """Return Spearman's correlation of a with b over heads, and by how much it exceeds the correlation of a with c.

    The two correlations share `a`, and so do their errors: the intervals of one seed are percentiles of a bootstrap
    over heads, the same draws for both. Every seed has heads of its own, so that the spread of several seeds holds what
    the bootstrap would say.

    Raises:
        ValueError: fewer than eight heads.
    """
    if len(a) < FEWEST_HEADS:
        raise ValueError(f"a rank correlation over {FEWEST_HEADS} heads; the model has {len(a)}")
    draws = np.random.default_rng(0).integers(len(a), size=(DRAWS, len(a)))
    rows = np.concatenate([np.arange(len(a))[None], draws])  # the heads as they are, then the draws
    first, second, third = (np.array([p.seed_values for p in points]).T[:, rows] for points in (a, b, c))
    with_b = _spearman(first, second)
    with_c = _spearman(first, third)
    return _bootstrapped(with_b, CORRELATION), _bootstrapped(with_b - with_c, TWICE)


def _bootstrapped(rows: np.ndarray, span: Range) -> Point:
    """Return the first entry of each seed's row; of a single seed with the 2.5 and 97.5 % percentiles of the others."""
    at = rows[:, 0]
    (low, high) = np.percentile(rows[:, 1:], (2.5, 97.5), axis=1)
    if len(rows) > 1:
        return Point.of(at[:, None], span=span)
    return Point(at[:, None], np.maximum(at - low, 0.0), np.maximum(high - at, 0.0), span=span)


def _spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compute Spearman's correlation over the last axis; 0 where one side is equal in all heads, as it goes with
    nothing."""
    x, y = (rankdata(v, axis=-1) - (v.shape[-1] + 1) / 2 for v in (a, b))
    size = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return (x * y).sum(axis=-1) / np.where(size > 0, size, 1.0)


def summary(records: Iterable[Record]) -> Point | None:
    """Return one point from all records of one quantity, at any seeds and repetitions; None without records.

    Several repetitions of every seed are the columns; else the value that each seed's own record has.
    """
    by_seed: dict[int | None, dict[int | None, Record]] = {}
    for r in records:
        by_seed.setdefault(r.seed, {})[r.index] = r  # of two records in one place the later one counts
    if not by_seed:
        return None
    numbers = tuple(sorted(seed for seed in by_seed if seed is not None))
    trained = bool(numbers)
    places = [by_seed[seed] for seed in numbers]
    if None in by_seed:
        places.append(by_seed[None])
        numbers = ()
    parts = [sorted(index for index in place if index is not None) for place in places]
    n = next((place[None].n for place in places if None in place), next(iter(places[0].values())).n)
    name = next(iter(places[0].values())).metric
    span = range_of(name)
    if len(parts[0]) > 1 and all(part == parts[0] for part in parts):
        at = np.array([[place[index].value for index in parts[0]] for place in places])
        zeros = np.zeros(len(places))
        return Point(at, zeros, zeros, repeats(name) or "splits", n, trained, span, numbers)
    at, below, above = np.array([_alone(place) for place in places]).T
    if len(places) > 1 and not is_shared(name):
        below = np.zeros(len(places))
        above = np.zeros(len(places))
    return Point(at[:, None], below, above, "", n, trained, span, numbers)


def _alone(place: Mapping[int | None, Record]) -> tuple[float, float, float]:
    """Return value and half-widths of the one record of a seed: of several, the mean."""
    record = place.get(None) or (next(iter(place.values())) if len(place) == 1 else None)
    if record is None:
        return float(np.mean([r.value for r in place.values()])), 0.0, 0.0
    if record.low is None or record.high is None or not math.isfinite(record.low + record.high):
        return record.value, 0.0, 0.0
    return record.value, max(0.0, record.value - record.low), max(0.0, record.high - record.value)


class Table:
    """Records of a run with finite values, by metric and model; every reader of records queries them here.

    A query names columns of `Record`: a value, a set or tuple of values, or `ANY`. A column that it does not name has
    to be empty, but for `seed`, over which points sum up, and `index` where that repeats a quantity
    (`metrics.repeats`).
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = [r for r in records if math.isfinite(r.value)]
        self._by_place: dict[str, dict[str, list[Record]]] = {}
        for r in self.records:
            self._by_place.setdefault(r.metric, {}).setdefault(r.model, []).append(r)

    @cached_property
    def seeds(self) -> dict[str, set[int | None]]:
        """Seeds of the records of every model; seeds of untrained weights (step 0) where it has no others."""
        seeds: dict[str, set[int | None]] = {}
        drawn: dict[str, set[int | None]] = {}
        for r in self.records:
            (drawn if r.step == 0 else seeds).setdefault(r.model, set()).add(r.seed)
        return drawn | seeds

    @property
    def metrics(self) -> list[str]:
        """Names of all metrics, in the order of the records."""
        return list(self._by_place)

    def models(self, metric: str, **where: Any) -> list[str]:
        """Return the models that have records of a metric, in the order of the records; columns without a condition may
        be anything."""
        return list(dict.fromkeys(r.model for r in self.rows(metric, **where)))

    def rows(self, metric: str, model: Any = ANY, **where: Any) -> list[Record]:
        """Return records of a metric (and a model) whose named columns match; columns without a condition may be
        anything."""
        of_metric = self._by_place.get(metric, {})
        models = [m for m in of_metric if model is ANY or is_one_of(m, model)]
        records = [r for m in models for r in of_metric[m]]
        for column, wanted in where.items():  # one column after the other: a test of all for each record takes thrice
            of_record = attrgetter(column)
            if wanted is ANY:
                continue
            if isinstance(wanted, tuple | set | frozenset):
                records = [r for r in records if of_record(r) in wanted]
            else:
                records = [r for r in records if of_record(r) == wanted]
        return records

    def distinct(self, column: str, metric: str, model: Any = ANY, **where: Any) -> list[Any]:
        """Return the values of a column, without None, in the order of the records; columns without a condition may be
        anything."""
        values = (getattr(r, column) for r in self.rows(metric, model, **where))
        return list(dict.fromkeys(v for v in values if v is not None))

    def points(self, metric: str, model: Any = "", by: str | tuple[str, ...] = (), **where: Any) -> dict[Any, Point]:
        """Return values of the columns `by`, which must not be empty, -> point, ascending where they can be
        compared.

        Keys are plain values for a single column, else tuples.
        """
        columns = (by,) if isinstance(by, str) else by
        empty = {c: None for c in ("layer", "head", "part", "step", "index") if c not in columns and c not in where}
        if repeats(metric) and "index" in empty:
            del empty["index"]
        groups: dict[Any, list[Record]] = {}
        for r in self.rows(metric, ANY if "model" in columns else model, **empty, **where):
            key = tuple(getattr(r, c) for c in columns)
            if None not in key:
                groups.setdefault(key[0] if isinstance(by, str) else key, []).append(r)
        keys = list(groups)
        if all(isinstance(k, int) or (isinstance(k, tuple) and all(isinstance(p, int) for p in k)) for k in keys):
            keys.sort()
        return {key: point for key in keys if (point := summary(groups[key])) is not None}

    def point(self, metric: str, model: Any = "", **where: Any) -> Point | None:
        """Return the value of a metric of a model in one place, over all seeds; None without records.

        With `index`, the value at that index.
        """
        if isinstance(where.get("index"), int):
            return self.points(metric, model, by="index", **where).get(where["index"])
        return self.points(metric, model, **where).get(())
