"""Paths of texts and labelled tables, looked at before anything is read; nothing here loads torch."""

import os
from pathlib import Path

from ..run.errors import suggest_name
from .characters import ending_of
from .source import KINDS

LABELLED = (".tsv", ".csv", ".jsonl", ".ndjson", ".json")  # endings of labelled tables
NAMES = ("python-docs", "synthetic:repeat", "synthetic:three-regimes")  # of corpora that are no paths
_NAMED = ("hub:", "synthetic:")  # beginnings of corpora that are no paths


def check_corpus(spec: str | Path) -> None:
    """Refuse a corpus argument that is a path and does not exist or may not be read.

    Raises:
        ValueError: as `check_text`.
    """
    name = str(spec)
    if name != "python-docs" and not name.startswith(_NAMED):
        check_text(Path(spec).expanduser())


def check_text(path: Path) -> None:
    """Refuse a path that does not exist, or that this user may not read, where a text is asked for.

    Raises:
        ValueError: there is no such file or folder, or its rights forbid to read it.
    """
    if not path.exists():
        hint = suggest_name(str(path), NAMES)
        raise ValueError(f"No corpus {str(path)!r}: no such file or folder.{hint} A corpus is {KINDS}.")
    _check_readable(path)


def check_table(path: Path) -> None:
    """Refuse a path that is no labelled table.

    Raises:
        ValueError: there is no such file, its ending is unknown, or its rights forbid to read it.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Give one labelled table: a {', '.join(LABELLED)} file.")
    if not path.is_file():
        raise ValueError(f"No labelled table {str(path)!r}: no such file. Give a {', '.join(LABELLED)} file.")
    if ending_of(path) not in LABELLED:
        endings = ", ".join(LABELLED)
        raise ValueError(
            f"{path} has an unknown ending. A labelled table is {endings}, also with .gz, .xz, .zst or .bz2."
        )
    _check_readable(path)


def _check_readable(path: Path) -> None:
    if not os.access(path, os.R_OK | os.X_OK if path.is_dir() else os.R_OK):
        raise ValueError(f"{path} may not be read. Change its rights (chmod u+r), or give another text.")
