"""Reads the plain files of a study folder into one `Study`, and sums up what was repeated over seeds.

Every string that comes from outside (names, titles, configurations) passes `visible`, so that nothing unseen reaches the page.
"""

import json
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..points import Point, Table
from ..records import Record, read_records

# Formatting characters that do harm in a page: they turn the reading direction or hide text.
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_KEPT = {"\n", "\t"}
CORPUS = "corpus"  # as a model of a study's records: its texts


def visible(value: Any) -> Any:
    """The value with every control, bidirectional or otherwise invisible character replaced by U+FFFD; containers as a whole."""
    if isinstance(value, str):
        if value.isprintable():  # at once for most: Python's notion of printable holds none of what is replaced
            return value
        return "".join(c if c in _KEPT or unicodedata.category(c) not in _UNSEEN else "\ufffd" for c in value)
    if isinstance(value, dict):
        return {visible(str(k)): visible(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [visible(v) for v in value]
    return value


class ArrayFiles(Mapping[str, dict[str, np.ndarray]]):
    """The .npz files of a folder by their stems; a file is read when it is first asked for, and kept.

    Raises (on access):
        ValueError: the file is damaged, or an array in it holds no numbers.
    """

    def __init__(self, folder: Path) -> None:
        self._paths = {visible(path.stem): path for path in sorted(folder.glob("*.npz"))}
        self._read: dict[str, dict[str, np.ndarray]] = {}

    def __getitem__(self, stem: str) -> dict[str, np.ndarray]:
        path = self._paths[stem]
        if stem not in self._read:
            self._read[stem] = read_arrays(path)
        return self._read[stem]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def __contains__(self, stem: object) -> bool:
        return stem in self._paths  # Mapping would read the file to know


@dataclass(frozen=True)
class Study:
    """What a study folder holds, as the report needs it.

    facts: study.json; claims: claims.json; tables: (model, seed) -> arrays of its position table, seed None where no training
    of ours made it; arrays: file stem -> arrays of every file of arrays/, each read when it is first asked for.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    tables: dict[tuple[str, int | None], dict[str, np.ndarray]] = field(default_factory=dict)
    arrays: Mapping[str, dict[str, np.ndarray]] = field(default_factory=dict)

    @cached_property
    def table(self) -> Table:
        """The records as points."""
        return Table(self.records)

    @cached_property
    def models(self) -> list[str]:
        """Names of the models: in the order of study.json, then those that only records know, without `CORPUS`."""
        named = [str(m["name"]) for m in self.entries if m.get("name")]
        return list(dict.fromkeys(named + [r.model for r in self.records if r.model not in ("", CORPUS)]))

    @cached_property
    def metrics(self) -> frozenset[str]:
        """Every metric that any record names."""
        return frozenset(self.table.metrics)

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The `models` of study.json, one a model and seed."""
        found = self.facts.get("models")
        return [m for m in found if isinstance(m, dict)] if isinstance(found, list) else []

    @cached_property
    def seeds(self) -> list[int]:
        """Training seeds of the run."""
        return sorted({r.seed for r in self.records if r.model and r.seed is not None})

    def config(self, model: str) -> dict[str, Any]:
        """The encoder configuration of a model; empty if study.json has none."""
        found = next((m.get("config") for m in self.entries if m.get("name") == model), None)
        return found if isinstance(found, dict) else {}

    def named(self, kind: str) -> str | None:
        """The first model that is called `kind` or was built from the preset `kind`."""
        return next((m for m in self.models if m == kind), next((m for m in self.models if self.config(m).get("preset") == kind), None))

    def of(self, metric: str, model: str, part: str | None = None) -> list[Record]:
        """All records of a metric, model and part."""
        return self.table.rows(metric, model, part=part)

    def point(self, metric: str, model: str, part: str | None = None, layer: int | None = None, index: int | None = None) -> Point | None:
        """The value of the finished model; `index` None means the summary."""
        return self.table.point(metric, model, part=part, layer=layer, **({} if index is None else {"index": index}))

    def curve(self, metric: str, model: str, part: str | None, step: int | None = None) -> dict[int, Point]:
        """Layer -> value of a probe of the finished model or of the model at a step (0: untrained), layers ascending."""
        return self.table.points(metric, model, by="layer", part=part, step=step)

    def parts(self, metric: str, model: str) -> list[str]:
        """Parts of the hidden state that were measured: all, position, semantic, others; no first components of them (`all.pca2`)."""
        parts = {part for part in self.table.distinct("part", metric, model) if ".pca" not in part}
        order = [p for p in ("all", "position", "semantic") if p in parts]
        return order + sorted(parts - set(order))

    def depth(self, model: str) -> int:
        """Number of layers of a model: its configuration's, or the deepest layer that records name (at least 1)."""
        layers = self.config(model).get("num_hidden_layers")
        if isinstance(layers, int) and layers > 0:
            return layers
        return max((r.layer for r in self.records if r.model == model and r.layer is not None), default=1) or 1

    def trained_until(self, model: str, part: str) -> int:
        """Last layer of a part that a gradient reaches: the last but one for a position stream that the MLM head does not read."""
        last = self.depth(model)
        if part != "position":
            return last
        head = self.config(model).get("mlm_head") or ("full" if "full-mlm" in model else "semantic")
        return last if head == "full" else last - 1


def read_json(path: Path, kind: type) -> Any:
    """The object in a JSON file, all of its strings visible; an empty one of the kind where there is no file.

    Raises:
        ValueError: the file is damaged or holds something else.
    """
    if not path.is_file():
        return kind()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not complete JSON ({error}). Delete it and run the command again.") from error
    if not isinstance(found, kind):
        raise ValueError(f"{path} holds a {type(found).__name__}, expected a {kind.__name__}. Delete it and run the command again.")
    return visible(found)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file as float64; never a pickle.

    Raises:
        ValueError: the file is damaged, or an array holds no numbers.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {k: np.asarray(arrays[k], dtype=float) for k in arrays.files}
    except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is not a complete array file ({error}). Delete it and run the command again.") from error


def visible_records(folder: Path) -> list[Record]:
    """The records of a run's folder, all of their strings visible."""
    return [
        replace(r, model=visible(r.model), metric=visible(r.metric), part=visible(r.part), unit=visible(r.unit))
        for r in read_records(folder / "records.parquet")
    ]


def _read_tables(folder: Path) -> dict[tuple[str, int | None], dict[str, np.ndarray]]:
    tables: dict[tuple[str, int | None], dict[str, np.ndarray]] = {}
    for path in sorted(folder.glob("table-*-seed-*.npz")):
        name, _, seed = path.stem.removeprefix("table-").rpartition("-seed-")
        if seed.isdigit():
            tables[visible(name), int(seed)] = read_arrays(path)
    return tables


def load_study(folder: str | Path) -> Study:
    """Read a study folder.

    Raises:
        ValueError: there is no record file, or a file is damaged.
    """
    folder = Path(folder)
    return Study(
        name=visible(folder.resolve().name),
        facts=read_json(folder / "study.json", dict),
        records=visible_records(folder),
        claims=[c for c in read_json(folder / "claims.json", list) if isinstance(c, dict)],
        tables=_read_tables(folder / "arrays"),
        arrays=ArrayFiles(folder / "arrays"),
    )
