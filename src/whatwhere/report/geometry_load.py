"""Reads the folder of a geometry run (geometry.json, records.parquet, arrays/) into one `Geometry`.

Every string from outside passes `visible`; numbers that are not finite never leave this file.
"""

import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..points import Point, Table
from ..records import Record
from .load import read_json, visible, visible_records

CORRECTED = ".corrected"


@dataclass(frozen=True, eq=False)
class Corpus:
    """One corpus of a run: its entry in geometry.json, its arrays of numbers and those of words."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)

    def vector(self, name: str) -> np.ndarray | None:
        """A one-dimensional array with at least one finite number, else None."""
        found = self.arrays.get(name)
        return found if found is not None and found.ndim == 1 and np.isfinite(found).any() else None

    def matrix(self, name: str) -> np.ndarray | None:
        """A two-dimensional array with at least one finite number, else None."""
        found = self.arrays.get(name)
        return found if found is not None and found.ndim == 2 and np.isfinite(found).any() else None

    @property
    def positions(self) -> list[int]:
        """The positions kept, in the order of the rows of the other arrays."""
        found = self.vector("positions")
        if found is not None:
            return [int(p) for p in found]
        rows = next((len(m) for name in ("distance", "corrected", "coords") if (m := self.matrix(name)) is not None), 0)
        return list(range(rows))

    @property
    def left_out(self) -> list[int]:
        """The positions left out."""
        found = self.vector("left_out")
        return [] if found is None else [int(p) for p in found]

    def number(self, key: str) -> int | None:
        """A count among the facts, None where there is none."""
        found = self.facts.get(key)
        return int(found) if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found) else None


@dataclass(frozen=True)
class Geometry:
    """What the folder of a geometry run holds, as the report needs it."""

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    corpora: list[Corpus] = field(default_factory=list)

    @cached_property
    def table(self) -> Table:
        """The records as points."""
        return Table(self.records)

    def of(self, metric: str, name: str, part: str | None = None) -> list[Record]:
        """All records of a metric of a corpus or model, and of a part."""
        return self.table.rows(metric, name, part=part)

    def point(self, metric: str, name: str, part: str | None = None) -> Point | None:
        """The value that belongs to no step and no index."""
        return self.table.point(metric, name, part=part)

    def by_index(self, metric: str, name: str, part: str | None = None) -> dict[int, Point]:
        """Index -> value, indices ascending."""
        return self.table.points(metric, name, by="index", part=part)

    def by_step(self, metric: str, name: str, index: int | None = None) -> dict[int, Point]:
        """Optimizer step -> value of a model's table, steps ascending; of its first seed, and of the rows `rows_of` tells."""
        where = {"part": self.rows_of(metric, name), "index": index}
        seed = next((r.seed for r in self.table.rows(metric, name, **where) if r.step is not None), None)
        return self.table.points(metric, name, by="step", seed=seed, **where)

    def rows_of(self, metric: str, name: str) -> str | None:
        """Which rows of a model's table `by_step` tells of.

        "corpus", those of the corpus's positions, for they are what everything else on the page is about; else "used", those that training
        texts reach; else None, all.
        """
        parts = {r.part for r in self.table.rows(metric, name) if r.step is not None}
        return next((p for p in ("corpus", "used") if p in parts), None)

    def has_steps(self, metric: str, name: str) -> bool:
        """Whether a metric of a model was measured at any step."""
        return bool(self.table.distinct("step", metric, name))

    def parts(self, metric: str, name: str) -> list[str]:
        """Parts of a metric in the order of the records."""
        return self.table.distinct("part", metric, name)

    @cached_property
    def models(self) -> list[str]:
        """Models whose separation over training was measured, in the order of the records."""
        return list(dict.fromkeys(r.model for r in self.records if r.step is not None and r.model))

    @property
    def paper(self) -> bool:
        """Whether the run follows the paper's protocol, which invents uniform distributions for unoccupied positions."""
        return self.facts.get("protocol") == "paper"


def _named(found: Any) -> Sequence[dict[str, Any]]:
    return [c for c in found if isinstance(c, dict) and c.get("name")] if isinstance(found, list) else []


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, list[str]]]:
    """The arrays of numbers of an .npz file as float64, and those of strings as lists; never a pickle."""
    numbers, words = {}, {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            for name in arrays.files:
                found = arrays[name]
                if found.dtype.kind == "U":
                    words[name] = [visible(str(word)) for word in found.ravel()]
                else:
                    numbers[name] = np.asarray(found, dtype=float)
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a complete array file ({error}). Delete it and run the command again.") from error
    return numbers, words


def load_geometry(folder: str | Path) -> Geometry:
    """Read the folder of a geometry run. A corpus is named in geometry.json; its arrays are in arrays/geometry-FILE.npz, where
    FILE is its `file` or else its name.

    Raises:
        ValueError: there is no record file, or a file is damaged.
    """
    folder = Path(folder)
    records = visible_records(folder)
    facts = read_json(folder / "geometry.json", dict)
    arrays = {visible(p.stem.removeprefix("geometry-")): p for p in sorted((folder / "arrays").glob("geometry-*.npz"))}
    corpora = []
    for entry in _named(facts.get("corpora")):
        path = arrays.get(str(entry.get("file") or entry["name"]))
        corpora.append(Corpus(str(entry["name"]), entry, *(_read(path) if path else ({}, {}))))
    return Geometry(visible(folder.resolve().name), facts, records, corpora)
