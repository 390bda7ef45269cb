"""Rows to probe: places in texts, each with a label."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from .word_states import Slot

T = TypeVar("T")
SPLITS = ("train", "dev", "test")
OTHER = "other"


_caches: list[Callable[[], None]] = []  # functions that empty the caches of `for_one_command`


def for_one_command(read: Callable[..., T], most: int = 1) -> Callable[..., T]:
    """Return a function that remembers what it has read for all the tasks that a process works on for one command."""
    cached = lru_cache(most)(read)
    _caches.append(cached.cache_clear)
    return cached


def forget_data() -> None:
    """Forget what was read for another command, whose files of the same names may have held something else."""
    for clear in _caches:
        clear()


class Row(NamedTuple):
    """Labelled place, or places, in one text, as a probing task makes it.

    spans: of each place first and last character + 1. label: a class, or a number. key: what the surface shows of the
    row, without any model: a word, a length.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    label: str | float
    key: str


@dataclass(frozen=True)
class Examples:
    """Rows of a split of a probing task, each text stored once.

    places: of each row its inputs, whose states are put one after the other; of each input the places whose states are
    averaged. labels: classes, or numbers. keys: as `Row.key`; empty where nothing is said of the surface.
    """

    texts: list[str] = field(default_factory=list)
    places: list[list[list[Slot]]] = field(default_factory=list)
    labels: list[str | float] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict, repr=False, compare=False)  # of each text

    def add(self, inputs: Iterable[Iterable[tuple[str, int, int]]], label: str | float, key: str = "") -> None:
        """Append a row.

        Args:
            inputs: of each input its places: text, first character, last + 1.
        """
        row = [[Slot(self._number(text), start, end) for text, start, end in places] for places in inputs]
        self.places.append(row)
        self.labels.append(label)
        self.keys.append(key)

    def _number(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def groups(self) -> np.ndarray:
        """Number of the text that each row begins in, (n,): rows of one text are not independent."""
        return np.array([row[0][0].text for row in self.places], int)


class Task(Protocol):
    """Protocol of a probing task: a question about places in texts, with rows of three splits."""

    @property
    def words(self) -> bool:
        """True if a row is one word, which can have a control task."""
        ...

    @property
    def most(self) -> int | None:
        """Number of classes beside `other`, None for all."""
        ...

    @property
    def number(self) -> bool:
        """True if labels are numbers to regress."""
        ...

    def has_files(self, data: Path | None) -> bool:
        """Tell if a folder, or the Hub (None), has files of the task, whole or not."""
        ...

    def check(self, data: Path | None) -> None:
        """Refuse missing or damaged files of the task.

        Raises:
            ValueError: the first file that is missing or damaged.
        """

    def examples(self, data: Path | None, split: str, limit: int | None) -> Examples:
        """Read the rows of "train", "dev" or "test" from a folder, or from the Hub (None).

        limit: number of rows that are kept, from the first on; None: all. Balanced tasks count after balancing.

        Raises:
            ValueError: files are missing or damaged.
        """
        ...


def examples(rows: Iterable[Row], limit: int | None = None, balanced: bool = False) -> Examples:
    """Collect rows as `Examples`, in which each text stands once.

    Args:
        limit: number of rows that are kept, from the first on.
        balanced: first keep, of each class, as many rows as the rarest class has.
    """
    if balanced:
        rows = list(rows)
        counts = Counter(row.label for row in rows)
        fewest = min(counts.values(), default=0)
        rows_of_class = Counter[str | float]()
        balanced_rows = []
        for row in rows:
            rows_of_class[row.label] += 1
            if rows_of_class[row.label] <= fewest:
                balanced_rows.append(row)
        rows = balanced_rows
    collected = Examples()
    for text, spans, label, key in islice(rows, limit):
        collected.add([[(text, *span)] for span in spans], label, key)
    return collected


def numbered(splits: Mapping[str, Examples], most: int | None = None) -> tuple[list[str], dict[str, np.ndarray]]:
    """Number the classes of the training rows, the commonest first, and label the rows of every split by number.

    Args:
        most: number of classes that are kept; all others become one more, `other`.

    Returns:
        The names of the classes, and for each split the class number of each row, (n,) int64; -1 where training has no
        such class.
    """
    counts = Counter(str(label) for label in splits["train"].labels)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    if most is not None and len(names) > most:
        names = [*names[:most], OTHER]
    number = {name: i for i, name in enumerate(names)}
    missing = number.get(OTHER, -1) if most is not None else -1
    return names, {
        split: np.array([number.get(str(label), missing) for label in rows.labels], np.int64)
        for split, rows in splits.items()
    }
