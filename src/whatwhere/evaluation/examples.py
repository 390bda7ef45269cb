"""Rows to probe: places in texts, each with a label."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from .word_states import Slot

OTHER = "other"


class Row(NamedTuple):
    """A row as a task makes it. spans: of each place first and last character + 1. label: a class, or a number. key:
    what the surface shows of it, without any model: a word, a length."""

    text: str
    spans: tuple[tuple[int, int], ...]
    label: str | float
    key: str


@dataclass(frozen=True)
class Examples:
    """The rows of a split. slots: of each row the places whose states stand one after the other. groups: of each row
    the number of its sentence or document, as rows of one are not independent."""

    texts: list[str] = field(default_factory=list)
    slots: list[tuple[Slot, ...]] = field(default_factory=list)
    labels: list[str | float] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def groups(self) -> np.ndarray:
        """(n,) the number of the text that each row begins in."""
        return np.array([slots[0].text for slots in self.slots], int)


class Task(Protocol):
    """A question to probe. words: whether a row is one word, which can have a control task. most: classes beside
    `other`. number: whether labels are numbers."""

    @property
    def words(self) -> bool: ...
    @property
    def most(self) -> int | None: ...
    @property
    def number(self) -> bool: ...

    def there(self, data: Path | None) -> bool:
        """Whether a folder has files of the task, be they whole or not; None: whether the Hub has them."""
        ...

    def check(self, data: Path | None) -> None:
        """Raises ValueError where files are missing or damaged."""

    def examples(self, data: Path | None, split: str, limit: int | None) -> Examples:
        """The rows of "train", "dev" or "test"."""
        ...


def examples(rows: Iterable[Row], limit: int | None = None, balanced: bool = False) -> Examples:
    """Rows as examples, each text once.

    balanced: of each class as many as of the rarest, the first; limit: of all rows the first so many.
    """
    if balanced:
        rows = list(rows)
        counts = Counter(row.label for row in rows)
        fewest = min(counts.values(), default=0)
        seen = Counter[str | float]()
        kept = []
        for row in rows:
            seen[row.label] += 1
            if seen[row.label] <= fewest:
                kept.append(row)
        rows = kept
    found = Examples()
    numbers = dict[str, int]()
    for text, spans, label, key in islice(rows, limit):
        number = numbers.setdefault(text, len(numbers))
        if number == len(found.texts):
            found.texts.append(text)
        found.slots.append(tuple(Slot(number, *span) for span in spans))
        found.labels.append(label)
        found.keys.append(key)
    return found


def numbered(splits: Mapping[str, Examples], most: int | None = None) -> tuple[list[str], dict[str, np.ndarray]]:
    """The classes of the training rows, the commonest first, and the class number of each row of each split: -1 where
    training has no such class.

    most: so many classes at most; all others are one more, `other`.
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
