"""Context of records, means over documents with their intervals, and records of an array with named axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat

import numpy as np

from ..records.intervals import split_interval
from ..records.metrics import range_of, unit
from ..records.record import Record

Mean = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high; ends are nan where there is no interval
Axes = Mapping[Any, Sequence[Any]]  # a column of `Record`, or a tuple of them -> its values along an axis

DRAWS = 1000


@dataclass(frozen=True)
class RecordContext:
    """Columns `model`, `seed`, `step` of a `Record`, and `study`: the name of the run that measures the model."""

    model: str
    seed: int | None = None
    run_name: str = ""
    step: int | None = None

    def at(self, step: int | None) -> "RecordContext":
        """Return the context of the same model at another step of its training."""
        return replace(self, step=step)

    @property
    def stem(self) -> str:
        """Ending of the names of this model's files: `NAME-seed-K`."""
        return self.model if self.seed is None else f"{self.model}-seed-{self.seed}"

    def record(self, metric: str, value: SupportsFloat, low: Any = None, high: Any = None, **columns: Any) -> Record:
        """Return a record in the unit of its metric.

        An end that is nan becomes None; `columns` are further columns of `Record`.
        """
        low, high = (None if end is None or np.isnan(end) else float(end) for end in (low, high))
        columns |= {"seed": self.seed, "step": self.step, "unit": unit(metric)}
        return Record(self.run_name, self.model, metric, float(value), low, high, **columns)

    def splits(
        self, metric: str, values: Sequence[float], documents: int, tested: Sequence[int], n: int, **columns: Any
    ) -> list[Record]:
        """Return records of the mean over random splits of the same documents.

        The mean has its `split_interval`, and each split a record by its index. Splits of the windows of one document
        tell nothing about other documents: then the mean alone, without an interval.

        Args:
            values: value of each split. documents: number of documents that were split.
            tested: number of observations of each split. n: number of observations in all.
        """
        ends = split_interval(values, documents, range_of(metric)) or ()
        whole = self.record(metric, np.mean(values), *ends, n=n, **columns)
        if documents < 2:
            return [whole]
        return [whole, *self.records(metric, np.asarray(values), {"index": range(len(values))}, n=tested, **columns)]

    def records(
        self, metric: str, values: np.ndarray | Mean, axes: Axes, n: Any = None, **columns: Any
    ) -> list[Record]:
        """Return a record of each entry of an array that is not nan, in the order of the array.

        Args:
            values: (...), or a `Mean` of three such arrays.
            axes: the column of `Record` that each axis of the array runs through, and the values of that column:
                `{"layer": range(1, L + 1), "head": range(h)}`. An axis of several columns has a tuple of them, and
                tuples of values. Values of the column "metric" are appended to `metric`.
            n: number of observations, one for all or (...).
            columns: columns that are the same in all.
        """
        value, *ends = values if isinstance(values, tuple) else (values,)
        counts = None if n is None else np.broadcast_to(n, value.shape)
        records = []
        for place, v in np.ndenumerate(value):
            if np.isnan(v):
                continue
            entry_columns: dict[str, Any] = {} if counts is None else {"n": int(counts[place])}
            for (column, entries), i in zip(axes.items(), place, strict=True):
                entry_columns |= (
                    {column: entries[i]} if isinstance(column, str) else dict(zip(column, entries[i], strict=True))
                )
            name = metric + entry_columns.pop("metric", "")
            low, high = (end[place] for end in ends) if ends else (None, None)
            records.append(self.record(name, v, low, high, **columns, **entry_columns))
        return records


def which_document(windows: int, document_numbers: np.ndarray | None) -> np.ndarray:
    """Return the number of the document of each window: (windows,) int64.

    Documents are counted from 0 in the order of `document_numbers`.

    document_numbers: (windows,) the document that each begins in; None: each window is a document of its own.
    """
    numbers = np.arange(windows) if document_numbers is None else document_numbers
    return np.unique(numbers, return_inverse=True)[1]


def count_documents(values: np.ndarray, document_numbers: np.ndarray | None = None) -> np.ndarray:
    """Count the documents with a value behind each mean of `values` (windows, ...): (...) int64."""
    at = which_document(len(values), document_numbers)
    has_value = np.zeros((at.max(initial=-1) + 1, *values.shape[1:]), dtype=bool)
    np.logical_or.at(has_value, at, ~np.isnan(values))
    return has_value.sum(0)


def of_documents(values: np.ndarray, document_numbers: np.ndarray | None = None) -> np.ndarray:
    """Average `values` (windows, ...) over the windows of each document: (documents, ...), nan where none has one."""
    at = which_document(len(values), document_numbers)
    finite = ~np.isnan(values)
    sums = np.zeros((at.max(initial=-1) + 1, *values.shape[1:]))
    counts = np.zeros_like(sums)
    np.add.at(sums, at, np.where(finite, values, 0.0))
    np.add.at(counts, at, finite)
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def draw_documents(windows: int, draws: int = DRAWS, document_numbers: np.ndarray | None = None) -> np.ndarray:
    """Draw samples of as many documents with replacement, and count each window in each sample: (draws, windows).

    Documents are drawn whole, each with all of its windows: windows of one document are alike, and drawn one by one
    they would make intervals too narrow. Equal calls give equal samples, so that two quantities of the same windows are
    resampled together.

    document_numbers: (windows,) the document that each begins in; None: each window is a document of its own.
    """
    at = which_document(windows, document_numbers)
    documents = at.max(initial=-1) + 1
    return np.random.default_rng(0).multinomial(documents, np.full(documents, 1 / documents), size=draws)[:, at]


def document_means(
    values: np.ndarray, draws: int = DRAWS, document_numbers: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the mean of `values` over the windows, and over each draw of documents.

    The mean is (...), the means of `draw_documents` are (draws, ...). values: (windows, ...). Windows with nan have no
    value and are left out, of the quantity concerned alone; nan where none has one. A single document has no other
    sample: the mean alone, (1, ...).
    """
    flat = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
    finite = ~np.isnan(flat)
    filled = np.where(finite, flat, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(0) / finite.sum(0)
        drawn = mean[None]
        if which_document(len(values), document_numbers).any():
            samples = draw_documents(len(values), draws, document_numbers).astype(np.float64)
            drawn = samples @ filled / (samples.sum(1, keepdims=True) if finite.all() else samples @ finite)
    drawn = np.where(np.isnan(drawn), mean, drawn)  # samples without a value
    return mean.reshape(values.shape[1:]), drawn.reshape(-1, *values.shape[1:])


def interval(drawn: np.ndarray) -> np.ndarray:
    """Return the ends of the middle 95 % of draws (draws, ...): (2, ...), nan for a single draw."""
    return np.quantile(drawn, [0.025, 0.975], axis=0) if len(drawn) > 1 else np.full((2, *drawn.shape[1:]), np.nan)


def document_mean(values: np.ndarray, draws: int = DRAWS, document_numbers: np.ndarray | None = None) -> Mean:
    """Return mean, low and high, each (...), of values (windows, ...): the percentile bootstrap's 95 % interval.

    It speaks of this model on other documents like these, not of another training seed. Draws are over documents, see
    `document_means`; document_numbers: (windows,) int, None where each window is a document.
    """
    mean, drawn = document_means(values, draws, document_numbers)
    low, high = interval(drawn)
    return mean, low, high
