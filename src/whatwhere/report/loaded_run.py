"""A run as the report needs it: the plain files of its folder, read once.

Every string that comes from outside (names, titles, configurations) passes `visible`, so that nothing unseen reaches
the page.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..records.gates import insufficient_gain, plateau
from ..records.record import Arrays, Record, read_records
from ..records.table import Point, Table, summary
from ..run.files import open_arrays, read_json
from ..run.folder import RunFolder
from .references import Beside, beside

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # categories that turn the reading direction or hide text
_LARGEST = 10**308  # whole numbers above are no floats
CORPUS = "corpus"  # as a model of a study's records: its texts

Tables = dict[tuple[str, int | None], Arrays]  # arrays of every (model, seed)


def visible(value: Any) -> Any:
    """Replace every invisible character but line break and tab by U+FFFD, and whole numbers that no float holds by
    infinity.

    Containers are searched.
    """
    if isinstance(value, str):
        if value.isprintable():  # at once for most: Python's notion of printable holds none of the replaced characters
            return value
        return "".join(c if c in "\n\t" or unicodedata.category(c) not in _UNSEEN else "\ufffd" for c in value)
    if isinstance(value, dict):
        return {visible(str(k)): visible(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [visible(v) for v in value]
    if isinstance(value, int) and abs(value) > _LARGEST:
        return math.inf
    return value


def finite(value: Any) -> float | None:
    """Return the value as a number; None where it is none, or not finite."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None


def entries(facts: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects in a list of a JSON file; [] where there is no such list."""
    values = facts.get(key)
    return [e for e in values if isinstance(e, dict)] if isinstance(values, list) else []


class ArrayFiles(Mapping[str, Arrays]):
    """Files of arrays by their stems; a file is read when it is first asked for, and kept.

    Raises ValueError on access: as its reader; of a run's folder as `read_arrays`.
    """

    def __init__(self, readers: Mapping[str, Callable[[], Arrays]]) -> None:
        self._readers = {stem: cache(reader) for stem, reader in readers.items()}

    def __getitem__(self, stem: str) -> Arrays:
        return self._readers[stem]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, stem: object) -> bool:
        return stem in self._readers  # Mapping would read the file to know


@dataclass(frozen=True, eq=False)
class Corpus:
    """Corpus of a run: its name, the name in its records, its facts, and its arrays."""

    name: str
    model: str
    facts: dict[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    def array(self, name: str, dimensions: int = 1) -> np.ndarray | None:
        """Return an array whose shape has `dimensions` axes, with at least one finite number; else None."""
        array = self.arrays.get(name)
        known = array is not None and array.dtype.kind == "f" and array.ndim == dimensions and np.isfinite(array).any()
        return array if known else None

    def names(self, name: str) -> list[str]:
        """Return an array of words as a list; [] where there is none."""
        array = self.arrays.get(name)
        return [str(word) for word in array.ravel()] if array is not None and array.dtype.kind == "U" else []

    @property
    def positions(self) -> list[int]:
        """The positions kept, in the order of the rows of the other arrays."""
        if (positions := self.array("positions")) is not None:
            return [int(p) for p in positions]
        rows = (len(m) for name in ("distance", "corrected", "coords") if (m := self.array(name, 2)) is not None)
        return list(range(next(rows, 0)))

    @property
    def left_out(self) -> list[int]:
        """The positions left out."""
        return [] if (left := self.array("left_out")) is None else [int(p) for p in left]

    def number(self, key: str) -> int | None:
        """Return a count among the facts, None where there is none."""
        return None if (number := finite(self.facts.get(key))) is None else int(number)


@dataclass(frozen=True)
class Run:
    """Contents of the folder of a study, a geometry run, or a spectra run.

    facts: study.json, geometry.json or spectra.json; claims: claims.json; tables: (model, seed) -> arrays of its
    position table, seed None where no training of ours made it; arrays: file stem -> arrays of every file of arrays/,
    each read when it is first asked for; corpora: those whose geometry was measured; words: (model, seed) -> shares of
    variance of the components of its word table. apart: whether it is several runs that differ, across which nothing is
    ranked. paired: whether documents of one number are the same documents for all models.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    tables: Tables = field(default_factory=dict)
    arrays: Mapping[str, Arrays] = field(default_factory=dict)
    measured: Sequence[Corpus] = ()
    words: dict[tuple[str, int | None], np.ndarray] = field(default_factory=dict)
    apart: bool = False
    paired: bool = True

    @cached_property
    def table(self) -> Table:
        """The records as points."""
        return Table(self.records)

    @cached_property
    def beside(self) -> Beside:
        """The reference study of the run's size with its notes; an empty one for what is no study of one corpus."""
        return beside(self.facts, self.table) or Beside()

    @cached_property
    def corpora(self) -> list[Corpus]:
        """The corpora of a geometry run; of a study its own, under its own name."""
        if self.measured:
            return list(self.measured)
        arrays = self.arrays.get(f"geometry-{CORPUS}", {})
        if not arrays and (CORPUS not in self.table.models("stress.raw") or CORPUS in self.models):
            return []
        return [Corpus(self.corpus_name or CORPUS, CORPUS, arrays=arrays)]

    @property
    def corpus(self) -> dict[str, Any]:
        """Entry of the study's corpus in study.json; {} if it has none."""
        corpus = self.facts.get("corpus")
        return corpus if isinstance(corpus, dict) else {}

    @property
    def corpus_name(self) -> str:
        """Name of the study's corpus; empty if study.json has none."""
        return str(self.corpus.get("name") or "")

    @cached_property
    def models(self) -> list[str]:
        """Names of the models: in the order of study.json, then those that only records know, without corpora."""
        names = [str(m["name"]) for m in self.entries if m.get("name")]
        texts = {"", CORPUS, *(c.model for c in self.measured)}
        return list(dict.fromkeys(names + [r.model for r in self.records if r.model not in texts]))

    @cached_property
    def entries(self) -> list[dict[str, Any]]:
        """The `models` of study.json, one a model and seed."""
        return entries(self.facts, "models")

    @cached_property
    def seeds(self) -> list[int]:
        """Training seeds of the run."""
        return sorted({r.seed for r in self.records if r.model and r.seed is not None})

    @cached_property
    def trainings(self) -> tuple[int, int]:
        """The fewest and the most training seeds of a model; (0, 0) where records name no seeds."""
        numbers = (seeds - {None} for model, seeds in self.table.seeds.items() if model)
        counts = [len(of_model) for of_model in numbers if of_model]
        return min(counts, default=0), max(counts, default=0)

    def config(self, model: str) -> dict[str, Any]:
        """Return the encoder configuration of a model; {} if study.json has none."""
        config = next((m.get("config") for m in self.entries if m.get("name") == model), None)
        return config if isinstance(config, dict) else {}

    def named(self, kind: str) -> str | None:
        """Return the first model that is called `kind` or was built from the preset `kind`."""
        built = (m for m in self.models if self.config(m).get("preset") == kind)
        return kind if kind in self.models else next(built, None)

    def parts(self, metric: str, model: str) -> list[str]:
        """Return the measured parts of the hidden state: all, position, semantic, others; no first components."""
        parts = [part for part in self.table.distinct("part", metric, model) if ".pca" not in part]
        first = ("all", "position", "semantic")
        return sorted(parts, key=lambda part: (first.index(part) if part in first else len(first), part))

    def curve(self, metric: str, model: str, part: str | None, step: int | None = None) -> dict[int, Point]:
        """Return layer -> value of the finished model, or of the model at a step (0: untrained)."""
        return self.table.points(metric, model, by="layer", part=part, step=step)

    def values(self, metric: str, **where: Any) -> dict[str, Point]:
        """Return model -> value of the finished model, where it was measured."""
        return {m: p for m in self.models if (p := self.table.point(metric, m, **where)) is not None}

    def depth(self, model: str) -> int:
        """Return the layers of a model: its configuration's, or the deepest layer that records name (at least 1)."""
        layers = self.config(model).get("num_hidden_layers")
        if isinstance(layers, int) and layers > 0:
            return layers
        return self._deepest.get(model, 1)

    @cached_property
    def _deepest(self) -> dict[str, int]:
        """Model -> the deepest layer that records name (at least 1); figures ask for it once a point."""
        deepest: dict[str, int] = {}
        for r in self.records:
            deepest[r.model] = max(deepest.get(r.model, 1), r.layer or 1)
        return deepest

    def trained_until(self, model: str, part: str) -> int:
        """Return the last layer of a part that a gradient reaches: the last but one if the MLM head does not read the
        part."""
        last = self.depth(model)
        if part != "position":
            return last
        head = self.config(model).get("mlm_head") or ("full" if "full-mlm" in model else "semantic")
        return last if head == "full" else last - 1

    def last(self, metric: str, model: str, part: str | None = "validation") -> Point | None:
        """Return a metric of the finished model, or of its last recorded step where no record says "finished"."""
        if (point := self.table.point(metric, model, part=part)) is not None:
            return point
        rows = [r for r in self.table.rows(metric, model, part=part) if r.step is not None]
        return summary({r.seed: r for r in sorted(rows, key=lambda r: r.step or 0)}.values())

    def plateau(self, model: str = "") -> float | None:
        """Return the entropy of token frequencies in nats; a model's own where runs of several corpora are merged."""
        return plateau(self.table, model)

    @cached_property
    def stuck(self) -> list[str]:
        """Models that have learned token frequencies only, in one seed at least."""
        return [m for m in self.models if insufficient_gain(self.table, m, share=0.0)]

    @cached_property
    def weak_models(self) -> list[str]:
        """Models that have learned too little to be compared with the best (`gates.insufficient_gain`)."""
        return [m for m in self.models if insufficient_gain(self.table, m)]

    @cached_property
    def drawn(self) -> dict[str, tuple[int | None, Arrays]]:
        """Model -> seed and arrays of the table that is drawn: of the lowest seed, as seeds have no common axes."""
        places = sorted(self.tables, key=lambda place: -1 if place[1] is None else place[1])
        seeds = dict(reversed(places))
        order = dict.fromkeys([*self.models, *(model for model, _ in places)])
        return {m: (seeds[m], self.tables[m, seeds[m]]) for m in order if m in seeds}

    def arrays_of(self, kind: str, model: str) -> tuple[int | None, Arrays]:
        """Return seed and arrays of the file `kind-NAME-seed-K` of the lowest seed, else of `kind-NAME`; {} if none."""
        name = model.replace("/", "_")
        stems = [(seed, f"{kind}-{name}-seed-{seed}") for seed in self.seeds] + [(None, f"{kind}-{name}")]
        return next(((seed, self.arrays[stem]) for seed, stem in stems if stem in self.arrays), (None, {}))


def visible_json(path: Path, kind: type) -> Any:
    """Read the object in a JSON file, all of its strings visible; an empty one of the kind where there is no file.

    Raises ValueError: the file is damaged or holds something else.
    """
    if not path.is_file():
        return kind()
    value = read_json(path)
    if not isinstance(value, kind):
        what = f"{path} holds a {type(value).__name__} where a {kind.__name__} is expected"
        raise ValueError(f"{what}. Delete it and run the command again.")
    return visible(value)


def read_arrays(path: Path) -> Arrays:
    """Read all arrays of an .npz file in their shapes: numbers as float64, words visible.

    Raises:
        ValueError: the file is damaged, or an array holds neither numbers nor words.
    """
    with open_arrays(path) as arrays:
        return {k: _numbers_or_words(arrays[k]) for k in arrays.files}


def _numbers_or_words(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "U":
        return np.array([visible(str(word)) for word in array.ravel()]).reshape(array.shape)
    return np.asarray(array, dtype=float)


def _visible_record(r: Record) -> Record:
    names = {"model": r.model, "metric": r.metric, "part": r.part, "unit": r.unit}
    if all(name is None or name.isprintable() for name in names.values()):
        return r  # a new one for each takes seconds
    return replace(r, **visible(names))


def page_kind(folder: Path) -> str:
    """Return which page shows the files of a folder: "geometry", "spectra" or "study", the page of all other records;
    "model" for a training without records, which has none; "" for anything else."""
    files = {"geometry": "geometry.json", "spectra": "spectra.json", "study": "records.parquet", "model": "config.json"}
    return next((kind for kind, name in files.items() if (folder / name).is_file()), "")


def load_run(folder: str | Path) -> Run:
    """Read the folder of a run, of whichever kind.

    A corpus of a geometry run is named in geometry.json; its arrays are in arrays/geometry-FILE.npz, where FILE is its
    `file` or else its name.

    Raises ValueError: there is no record file, or a file is damaged.
    """
    folder = Path(folder)
    _check(folder)
    records = [_visible_record(r) for r in read_records(folder / "records.parquet")]
    files = {visible(path.stem): partial(read_arrays, path) for path in sorted((folder / "arrays").glob("*.npz"))}
    run = Run(visible(folder.resolve().name), records=records, arrays=ArrayFiles(files))
    kind = page_kind(folder)
    if kind == "geometry":
        return _geometry_run(run, visible_json(folder / "geometry.json", dict))
    if kind == "spectra":
        return _spectra_run(run, visible_json(folder / "spectra.json", dict), folder / "arrays")
    claims = [c for c in visible_json(folder / "claims.json", list) if isinstance(c, dict)]
    places = {stem: re.fullmatch(r"table-(.*)-seed-([0-9]+)", stem) for stem in files}
    tables: Tables = {}
    for stem, place in places.items():
        if place:
            arrays_of_file = run.arrays[stem]
            tables[place[1], int(place[2])] = arrays_of_file
            if wrong := [
                name
                for name, of in _TABLE.items()
                if name in arrays_of_file and not _has_shape(arrays_of_file[name], of)
            ]:
                file = folder / "arrays" / f"{stem}.npz"
                raise ValueError(f"{file} has no {wrong[0]} of a table. Delete it and run the command again.")
    return replace(run, facts=visible_json(folder / "study.json", dict), claims=claims, tables=tables)


def _check(folder: Path) -> None:
    """Compare the files of a run that a page is made of with their hashes.

    Raises:
        ValueError: the first file that is missing or not as it was written.
    """
    run = RunFolder.at(folder)
    for name in run.listed_files():
        if name in _READ or Path(name).match("arrays/*.npz"):
            run.check(name)


_READ = ("records.parquet", "claims.json", "explorer.json", "study.json", "geometry.json", "spectra.json")
_TABLE = {"scores": 2, "shares": 1, "dct_power": 2}  # arrays of a position table -> their dimensions


def _has_shape(array: np.ndarray, dimensions: int) -> bool:
    return array.dtype.kind == "f" and array.ndim == dimensions and array.size > 0


def _geometry_run(run: Run, facts: dict[str, Any]) -> Run:
    corpora = [(str(c["name"]), c) for c in entries(facts, "corpora") if c.get("name")]
    arrays = {name: run.arrays.get(f"geometry-{c.get('file') or name}", {}) for name, c in corpora}
    return replace(run, facts=facts, measured=[Corpus(name, name, c, arrays[name]) for name, c in corpora])


def _spectra_run(run: Run, facts: dict[str, Any], folder: Path) -> Run:
    tables: Tables = {}
    words = {}
    models = []
    for e in entries(facts, "tables"):
        place = (str(e["name"]), e.get("seed"))
        arrays = read_arrays(folder / Path(e["arrays"]).name)
        if e.get("kind") == "words":
            words[place] = arrays["shares"]
        elif e.get("kind") == "positions":
            tables[place] = arrays
            # A table of another make has no preset of ours, whatever its name; what we know of presets is not said.
            config = e.get("config") or {}
            models.append({"name": e["name"], "seed": e.get("seed"), "config": {"preset": "–", **config}})
    return replace(run, facts=facts | {"models": models}, tables=tables, words=words)
