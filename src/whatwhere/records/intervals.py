"""Intervals (95 %) of a mean over training seeds, over overlapping splits of the same documents, over both, and of a
share.

Bounded quantities have their intervals on a scale of their own. A quantity x of a range [low, high] is taken to the
logit log((x - l) / (h - x)), where [l, h] is the range with `ROOM` of its width added at both ends: the logit for
shares, Fisher's z for correlations and for differences of shares. Student's half-width is taken to that scale at the
mean, by the slope there (Korn & Graubard, Confidence intervals for proportions with small expected number of positive
counts, Survey Methodology 24, 1998), and the ends are taken back and cut at the range. So the interval is one of the
mean, which lies in it, and where it is narrow it is Student's. The room gives a place to means that stand on an end,
which have no logit (the started logit of Tukey, Exploratory Data Analysis, 1977). Where one end of the range is open,
Student's interval is cut at the other, which never loses the true value; where both are, it stays unchanged.

R² has the range [-0.25, 1]: on new documents a probe may come out below 0, and noise puts small R² on both sides of it,
so that a scale from 0 on would stretch them without bound. A mean outside its range, as an R² of -2, has Student's
interval, cut at the range and with the mean as its end.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import expit
from scipy.stats import binomtest, nct, t

Range = tuple[float, float]
Values = Sequence[float] | np.ndarray

LOSS_ROUNDING = 1e-6  # nats: a smaller rise is none, as the same documents in another batch give as much in float32
UNBOUNDED: Range = (-math.inf, math.inf)
ROOM = 0.02  # of the width of a range, beyond each end: about half a head of the 16 to 36 that a model here has
FEW = 3  # seeds up to which their values are shown beside the interval
POWER = 0.8  # chance to find a difference of the smallest size that can be seen


def tested(documents: int) -> int:
    """Return the number of documents that a split holds out: a fifth, 100 of 500 (DSTG section 5), at least one."""
    return max(1, round(documents / 5))


def split_interval(values: Values, documents: int = 500, span: Range = UNBOUNDED) -> tuple[float, float] | None:
    """Return the interval of the mean of `values`, one from each random split of the same documents; None for a single
    value or document.

    mean ± t(0.975, k - 1) · s · sqrt(1/k + tested/trained) for k splits of `documents` documents, s the standard
    deviation of the values. The splits share documents, so their values are not independent and the usual s·sqrt(1/k)
    is too narrow; tested/trained is the corrected resampled t interval of Nadeau & Bengio, Inference for the
    generalization error, Machine Learning 52 (2003). It speaks of this model on other documents, not of another
    training seed. span: range of the values.
    """
    if documents < 2:
        return None
    return _interval(values, _split_factor(max(len(values), 1), documents), span)


def seed_interval(values: Values, span: Range = UNBOUNDED) -> tuple[float, float] | None:
    """Return Student's t interval of the mean of `values`, one from each training seed; None for a single value.

    span: range of the values.
    """
    return _interval(values, 1 / max(len(values), 1), span)


def hierarchical(
    values: np.ndarray,
    span: Range = UNBOUNDED,
    *,
    documents: int | None = None,
    below: float = 0.0,
    above: float = 0.0,
) -> tuple[float, float] | None:
    """Return the interval of the mean of (seeds, k) values over every source of error that they show; None where they
    show none.

    Seeds and documents are crossed, as every model reads the same documents: more seeds make the mean no surer of other
    documents. The variance of the mean is the variance S of the means of the seeds plus the variance D of the means of
    the documents, less the variance of their interaction, which both contain; degrees of freedom are Satterthwaite's
    (Biometrics Bulletin 2, 1946), as in Clark, The language-as-fixed-effect fallacy, Journal of Verbal Learning and
    Verbal Behavior 12 (1973). The interval is never narrower than one over either source alone. Over one source alone
    it is Student's. Half-widths of records hold the interaction whole, which cannot be told apart there, so that
    intervals with them are too wide rather than too narrow.

    Args:
        values: the columns are documents, or splits of them.
        span: range of the values.
        documents: of which the columns are splits, whose interval is `split_interval` and whose interaction is not
            known; None for columns that are documents.
        below, above: half-widths of an interval over documents that all seeds share, for a source that the values do
            not show.
    """
    value = float(values.mean())
    if values.size == 1:
        return cut(value, value - below, value + above, span) if below or above else None

    def half_width(recorded: float) -> float:
        errors = _errors(values, documents, recorded)
        return max(_student(freedom) * variance**0.5 for variance, freedom in errors)

    down = half_width(below)
    return bounded(value, down, down if above == below else half_width(above), span)


def p_above_zero(
    values: np.ndarray, span: Range = UNBOUNDED, *, documents: int | None = None, below: float = 0.0
) -> float:
    """Return the probability of a mean of values (seeds, k) so far above 0 or further, were the true one 0, doubled; at
    most 1.

    It is 5 % exactly where the lower end of `hierarchical` is 0, for any values and half-widths. Args: as there.
    """
    value = float(values.mean())
    errors = [error for error in _errors(values, documents, below) if error[0] > 0]
    if not errors or (value >= 0 and span[0] >= 0):  # nothing varies, or nothing can be below 0
        return 0.0 if value >= 0 else 1.0
    distance = value
    if values.size > 1 and _is_bounded(span) and span[0] <= value <= span[1] and span[1] > 0:
        place, slope = _on_scale(value, span)
        distance = (place - _on_scale(0.0, span)[0]) / slope
    return min(1.0, max(2 * float(t.sf(distance / variance**0.5, freedom)) for variance, freedom in errors))


def _errors(values: np.ndarray, documents: int | None, half: float) -> list[tuple[float, float]]:
    """Compute variance and degrees of freedom of the mean, by each source of error alone and by all of them
    together.

    The widest of their intervals counts. half: half-width of an interval over documents that the values do not show.
    """
    seeds, columns = values.shape
    sources: list[tuple[float, float]] = []
    twice = (0.0, 1.0)  # what two sources both hold
    if seeds > 1:
        sources.append((float(values.mean(axis=1).var(ddof=1)) / seeds, seeds - 1))
    if columns > 1:
        factor = 1 / columns if documents is None else _split_factor(columns, documents)
        sources.append((float(values.mean(axis=0).var(ddof=1)) * factor, columns - 1))
    if seeds > 1 and columns > 1 and documents is None:
        rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
        freedom = (seeds - 1) * (columns - 1)
        twice = (float((rest**2).sum()) / freedom / values.size, freedom)
    if half:
        sources.append(((half / _student(math.inf)) ** 2, math.inf))
    varying = [source for source in sources if source[0] > 0]
    variance = sum(of_source for of_source, _ in varying) - twice[0]
    if len(varying) < 2 or variance <= max(of_source for of_source, _ in varying):
        return sources
    spread = sum((of_source / variance) ** 2 / freedom for of_source, freedom in (*varying, twice))
    fewest = min(freedom for _, freedom in varying)
    return [*sources, (variance, max(fewest, 1 / spread))]


@cache
def _student(freedom: float) -> float:
    """Return Student's quantile at 97.5 %, the normal one where the degrees of freedom are infinite."""
    return float(t.ppf(0.975, freedom))


def bounded(value: float, below: float, above: float, span: Range) -> tuple[float, float]:
    """Return the ends of a mean's interval from its half-widths, on the scale of its range."""
    if not _is_bounded(span) or not span[0] <= value <= span[1]:
        return cut(value, value - below, value + above, span)
    place, slope = _on_scale(value, span)
    room = ROOM * (span[1] - span[0])
    least, most = (
        span[0] - room + (span[1] - span[0] + 2 * room) * expit([place - below * slope, place + above * slope])
    )
    return cut(value, float(least), float(most), span)


def _is_bounded(span: Range) -> bool:
    return math.isfinite(span[0]) and math.isfinite(span[1]) and span[0] < span[1]


def _on_scale(value: float, span: Range) -> tuple[float, float]:
    """Return the place of a value on the scale of a bounded range, and how fast the place moves with the value."""
    room = ROOM * (span[1] - span[0])
    down = value - span[0] + room  # distances from the ends of the scale
    up = span[1] - value + room
    return math.log(down / up), 1 / down + 1 / up


def cut(value: float, low: float, high: float, span: Range) -> tuple[float, float]:
    """Return the part of an interval that lies in a range; a value outside the range becomes its end."""
    return min(max(low, span[0]), value), max(min(high, span[1]), value)


def jackknife_interval(value: float, left: Sequence[float], span: Range = UNBOUNDED) -> tuple[float, float] | None:
    """Return the interval of a statistic from its values without each group of documents; None for fewer than two
    groups.

    value ± t(0.975, G - 1) · √((G - 1)/G · sum of squares of the G values around their mean), as `geometry.jackknife`;
    for statistics that are no means over documents. left: the value without each group. span: range of the statistic.
    """
    groups = len(left)
    if groups < 2:
        return None
    squares = np.sum((np.asarray(left) - np.mean(left)) ** 2)
    half = _student(groups - 1) * float(np.sqrt((groups - 1) / groups * squares))
    return bounded(value, half, half, span)


def share_interval(hits: int, trials: int) -> tuple[float, float]:
    """Return Wilson's score interval of a share of trials, in [0, 1]; it is never empty, even at 0 and 1.

    It speaks of this model on other rows like these, not of another training seed.
    """
    ends = binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    return float(ends.low), float(ends.high)


def smallest_effect(seeds: int, paired: bool = True, power: float = POWER) -> float:
    """Return the smallest true difference that a two-sided t test at 5 % finds with a chance of `power`.

    It is in standard deviations, and exact by the noncentral t distribution (Cohen, Statistical Power Analysis for the
    Behavioral Sciences, 1988, chapter 2): 3.3 for the differences of 3 paired seeds, 3.1 for two models of 3 other
    seeds each.

    Args:
        seeds: of each model, at least 2.
        paired: one sample of differences seed by seed, in standard deviations of the differences; else two samples of
            as many seeds each, in standard deviations of a model's values between seeds.

    Raises:
        ValueError: fewer than two seeds.
    """
    if seeds < 2:
        raise ValueError(f"A smallest effect needs the spread between seeds; got {seeds} seed. Train at least two.")
    freedom = seeds - 1 if paired else 2 * (seeds - 1)
    error = math.sqrt((1 if paired else 2) / seeds)  # of the mean difference, in standard deviations
    bar = _student(freedom)

    def power_at(effect: float) -> float:
        return float(nct.sf(bar, freedom, effect / error) + nct.cdf(-bar, freedom, effect / error))

    low = 0.0
    high = 1.0
    while power_at(high) < power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if power_at(middle) < power else (low, middle)
    return high


def _split_factor(splits: int, documents: int) -> float:
    """Return the variance of a mean over splits that overlap, in variances of the values (Nadeau & Bengio)."""
    return 1 / splits + tested(documents) / (documents - tested(documents))


def _interval(values: Values, variance_factor: float, span: Range) -> tuple[float, float] | None:
    if len(values) < 2:
        return None
    half = _student(len(values) - 1) * float(np.std(values, ddof=1)) * variance_factor**0.5
    return bounded(float(np.mean(values)), half, half, span)
