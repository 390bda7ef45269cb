"""Whose records they are, and records of an array with named axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, SupportsFloat

import numpy as np

from ..intervals import split_interval
from ..metrics import unit
from ..records import Record
from .bootstrap import Mean

Axes = Mapping[Any, Sequence[Any]]  # a column of `Record`, or a tuple of them -> its values along an axis


@dataclass(frozen=True)
class Who:
    """The model that records are about: columns `model`, `seed`, `study` and `step` of `Record`."""

    model: str
    seed: int | None = None
    study: str = ""
    step: int | None = None

    def at(self, step: int | None) -> "Who":
        """The same model at another step of its training."""
        return replace(self, step=step)

    @property
    def stem(self) -> str:
        """What files of this model end in: `NAME-seed-K`."""
        return self.model if self.seed is None else f"{self.model}-seed-{self.seed}"

    def record(self, metric: str, value: SupportsFloat, low: Any = None, high: Any = None, **columns: Any) -> Record:
        """One record, in the unit that `metrics` says; an end that is nan is none, `columns` are others of `Record`."""
        low, high = (None if end is None or np.isnan(end) else float(end) for end in (low, high))
        columns |= {"seed": self.seed, "step": self.step, "unit": unit(metric)}
        return Record(self.study, self.model, metric, float(value), low, high, **columns)

    def splits(
        self, metric: str, values: Sequence[float], documents: int, tested: Sequence[int], n: int, **columns: Any
    ) -> list[Record]:
        """The mean of a value of each random split of the same documents, with `split_interval`, and each by its index;
        `tested`: observations of each split, n: in all."""
        whole = self.record(metric, np.mean(values), *split_interval(values, documents) or (), n=n, **columns)
        return [whole, *self.records(metric, np.asarray(values), {"index": range(len(values))}, n=tested, **columns)]

    def records(
        self, metric: str, values: np.ndarray | Mean, axes: Axes, n: Any = None, **columns: Any
    ) -> list[Record]:
        """A record of each entry of an array that is not nan, in the order of the array.

        Args:
            values: (...), or a `Mean` of three such arrays; ends that are nan are none.
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
            here: dict[str, Any] = {} if counts is None else {"n": int(counts[place])}
            for (column, entries), i in zip(axes.items(), place, strict=True):
                here |= {column: entries[i]} if isinstance(column, str) else dict(zip(column, entries[i], strict=True))
            name = metric + here.pop("metric", "")
            low, high = (end[place] for end in ends) if ends else (None, None)
            records.append(self.record(name, v, low, high, **columns, **here))
        return records
