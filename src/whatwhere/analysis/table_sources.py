"""Where a table of position (or word) vectors comes from: a .npy file, a model, shipped or in a folder, all models of a study, the Hub."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..encoder.tables import read_table
from ..shipped import model_source

POSITIONS, WORDS = "positions", "words"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SEED = re.compile(r"seed-(\d+)")


@dataclass(frozen=True, eq=False)
class SourceTable:
    """A table and where it comes from.

    name: of its model, unlike every other in a call. kind: "positions" or "words". rows: (rows, width) float64, row i position i
    (or token id i). seed: training seed of a model of a study, else None. source: as given, with the model where it holds several.
    config: the model's config.json; empty for a file.
    """

    name: str
    kind: str
    rows: np.ndarray
    seed: int | None
    source: str
    config: dict[str, Any] = field(default_factory=dict)


def load_tables(sources: Sequence[str | Path], words: bool = False) -> tuple[list[SourceTable], list[str]]:
    """The position tables of all sources in their order, with `words` each followed by the word table of its model.

    A source is a .npy file (one table); a folder of transformers or of ours (safetensors only, one tensor read by name, no model
    built, no code run); a study folder (all its models and seeds); the name of a model on the Hub, whose configuration and
    safetensors are fetched into the Hub's own cache; or the text `reference`, the model that comes with the package.

    Returns:
        The tables, and the names of models of a study that have no position table (`rope`, `rp`), which are left out.

    Raises:
        ValueError: no source, nothing there, a model that keeps no position table or no word table, a study without any table,
            pickle weights, a damaged file, or numbers that are not finite.
    """
    if not sources:
        raise ValueError("No source of a table. Give a .npy file, a model folder, a study folder or a name on the Hub.")
    found: list[SourceTable] = []
    left_out: list[str] = []
    for source in sources:
        tables, missing = _tables_of(source, words)
        found += tables
        left_out += missing
    return _named_apart(found), left_out


def _tables_of(given: str | Path, words: bool) -> tuple[list[SourceTable], list[str]]:
    source, path = str(given), Path(model_source(given))
    if path.is_dir():
        models = sorted((m for m in path.glob("**/seed-*/config.json") if _SEED.fullmatch(m.parent.name)), key=_in_order)
        if models:
            return _tables_of_study(source, [m.parent for m in models], words)
        return _tables_of_model(path, source, words), []
    if path.exists() or path.suffix == ".npy" or not _HUB_NAME.fullmatch(source):
        rows = read_table(path).numpy()
        if words:
            read_table(path, words=True)  # refuses, and says why
        return [SourceTable(path.stem, POSITIONS, rows, None, source)], []
    return _tables_of_model(_fetched(source), source, words, name=source.rpartition("/")[2]), []


def _in_order(config: Path) -> tuple[str, int]:
    """Seed 10 after seed 9."""
    return str(config.parent.parent), int(config.parent.name.removeprefix("seed-"))


def _tables_of_study(source: str, folders: list[Path], words: bool) -> tuple[list[SourceTable], list[str]]:
    tables: list[SourceTable] = []
    missing: list[str] = []
    for folder in folders:
        if _config(folder).get("absolute") == "none":
            missing.append(folder.parent.name)
        else:
            tables += _tables_of_model(folder, str(folder), words)
    missing = list(dict.fromkeys(missing))
    if not tables:
        raise ValueError(f"No model of {source} has a position table: {', '.join(missing)}. Train dstg or ap beside them.")
    return tables, missing


def _tables_of_model(folder: Path, source: str, words: bool, name: str | None = None) -> list[SourceTable]:
    seed = _SEED.fullmatch(folder.resolve().name)
    found = SourceTable(
        name=name or (folder.resolve().parent.name if seed else folder.resolve().name),
        kind=POSITIONS,
        rows=read_table(folder).numpy(),
        seed=int(seed[1]) if seed else None,
        source=source,
        config=_config(folder),
    )
    return [found, replace(found, kind=WORDS, rows=read_table(folder, words=True).numpy())] if words else [found]


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def _fetched(name: str) -> Path:
    """Folder in the Hub's cache with a model's configuration and weights: no code, no pickle, nothing from subfolders."""
    from huggingface_hub import snapshot_download  # not needed for files and folders

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "*.safetensors"], ignore_patterns=["*/*"]))
    except Exception as error:  # the network and the Hub raise classes of several libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{name!r} is no file or folder here, and the Hub gives no such model ({reason[:160]}). Check the name and the network."
        ) from None


def _named_apart(tables: list[SourceTable]) -> list[SourceTable]:
    """Tables of different models under different names: the second model of a name is `name (2)`; seeds of one model share it."""

    def model(table: SourceTable) -> tuple[str, str]:
        return table.name, str(Path(table.source).parent) if table.seed is not None else table.source

    named: dict[tuple[str, str], str] = {}
    for table in tables:
        same = sum(name == table.name for name, _ in named)
        named.setdefault(model(table), f"{table.name} ({same + 1})" if same else table.name)
    return [replace(table, name=named[model(table)]) for table in tables]
