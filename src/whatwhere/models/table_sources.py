"""Sources of position and word tables: a .npy file, a model that is shipped or in a folder, all models of a study, or a
model of the Hub."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..run.files import read_object
from ..run.hub import fetch_model
from ..run.reference import model_source
from .model_tables import read_table

POSITIONS = "positions"
WORDS = "words"
_FILES = ("config.json", "*.safetensors")  # files fetched of a model on the Hub, no subfolders
_SEED = re.compile(r"seed-(\d+)")


@dataclass(frozen=True, eq=False)
class SourceTable:
    """Table with its source.

    name: name of its model, unique in a call. kind: "positions" or "words". rows: (rows, width) float64, row i is
    position i (or token id i). seed: training seed of a model of a study, else None. source: as given, with the model
    where it holds several. config: the model's config.json; empty for a file.
    """

    name: str
    kind: str
    rows: np.ndarray
    seed: int | None
    source: str
    config: dict[str, Any] = field(default_factory=dict)


def load_tables(sources: Sequence[str | Path], words: bool = False) -> tuple[list[SourceTable], list[str]]:
    """Load the position tables of all sources in their order, with `words` each followed by the word table of its
    model.

    A source is a .npy file (one table); a folder of transformers or of ours (safetensors only, one tensor read by name,
    no model built, no code run); a study folder (all its models and seeds); the name of a model on the Hub, whose
    configuration and safetensors are fetched into the Hub's own cache; or the text `reference`, the model that comes
    with the package.

    Returns:
        The tables, and the names of models of a study that have no position table (`rope`, `rp`), which are left out.

    Raises:
        ValueError: no source, nothing there, a model that keeps no position table or no word table, a study without any
            table, pickle weights, a damaged file, or numbers that are not finite.
    """
    if not sources:
        raise ValueError("No source of a table. Give a .npy file, a model folder, a study folder or a name on the Hub.")
    of_each = [_tables_of(source, words) for source in sources]
    tables = [table for tables, _ in of_each for table in tables]
    return _named_apart(tables), [name for _, missing in of_each for name in missing]


def _tables_of(folder_or_name: str | Path, words: bool) -> tuple[list[SourceTable], list[str]]:
    source = str(folder_or_name)
    path = fetch_model(folder_or_name, _FILES, ["*/*"])
    if path.is_dir():
        models = [m.parent for m in path.glob("**/seed-*/config.json") if _SEED.fullmatch(m.parent.name)]
        if models:
            # Seed 10 after seed 9.
            in_order = sorted(models, key=lambda m: (str(m.parent), int(m.name.removeprefix("seed-"))))
            return _tables_of_study(source, in_order, words)
        name = None if Path(model_source(folder_or_name)).is_dir() else source.rpartition("/")[2]  # of the Hub
        return _tables_of_model(path, source, words, name), []
    rows = read_table(path).numpy()
    if words:
        read_table(path, words=True)  # refuses, and says why
    return [SourceTable(path.stem, POSITIONS, rows, None, source)], []


def _tables_of_study(source: str, folders: list[Path], words: bool) -> tuple[list[SourceTable], list[str]]:
    configs = {folder: _config(folder) for folder in folders}  # of `bilevel` the rows are places in a segment
    without = [folder for folder, c in configs.items() if c.get("absolute") == "none" or c.get("bilevel")]
    missing = list(dict.fromkeys(folder.parent.name for folder in without))
    tables = [table for m in folders if m not in without for table in _tables_of_model(m, str(m), words)]
    if not tables:
        raise ValueError(
            f"No model of {source} has a position table: {', '.join(missing)}. Train dstg or ap beside them."
        )
    return tables, missing


def _tables_of_model(folder: Path, source: str, words: bool, name: str | None = None) -> list[SourceTable]:
    place = folder.resolve()
    seed = _SEED.fullmatch(place.name)
    name = name or (place.parent.name if seed else place.name)
    rows = read_table(folder).numpy()
    positions = SourceTable(name, POSITIONS, rows, int(seed[1]) if seed else None, source, _config(folder))
    if not words:
        return [positions]
    return [positions, replace(positions, kind=WORDS, rows=read_table(folder, words=True).numpy())]


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    return read_object(path) if path.is_file() else {}


def _named_apart(tables: list[SourceTable]) -> list[SourceTable]:
    """Rename tables so that different models differ in name: the second model of a name is `name (2)`; seeds of one
    model share it."""

    def model(table: SourceTable) -> tuple[str, str]:
        return table.name, str(Path(table.source).parent) if table.seed is not None else table.source

    sources_of_name: dict[tuple[str, str], str] = {}
    for table in tables:
        same = sum(name == table.name for name, _ in sources_of_name)
        sources_of_name.setdefault(model(table), f"{table.name} ({same + 1})" if same else table.name)
    return [replace(table, name=sources_of_name[model(table)]) for table in tables]
