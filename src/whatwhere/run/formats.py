"""Formats in which a run writes and reads files, by the suffix of their names."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import yaml

from .files import open_arrays, put_array, put_arrays, put_json, put_text, read_array, read_json, read_yaml

_HINT = "Use a complete copy of the folder."


@dataclass(frozen=True)
class Format:
    """Format of a file: a function that writes a value to an open binary file, and one that reads it from a path."""

    write: Callable[[IO[bytes], Any], None]
    read: Callable[[Path], Any]


def format_of(name: str) -> Format:
    """Return the format for a file name by its suffix; plain text for an unknown suffix."""
    return _FORMATS.get(Path(name).suffix, _TEXT)


def register_format(suffix: str, write: Callable[[IO[bytes], Any], None], read: Callable[[Path], Any]) -> None:
    """Add or replace the format of files whose names end with a suffix such as ".parquet"."""
    _FORMATS[suffix] = Format(write, read)


def _write_yaml(file: IO[bytes], value: Any) -> None:
    file.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode())


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    with open_arrays(path, _HINT) as file:
        return {name: file[name] for name in file.files}


_TEXT = Format(put_text, lambda path: path.read_text(encoding="utf-8"))
_FORMATS = {  # `records.record` adds .parquet when it is imported
    ".json": Format(put_json, lambda path: read_json(path, _HINT)),
    ".yaml": Format(_write_yaml, lambda path: read_yaml(path, _HINT)),
    ".npy": Format(put_array, lambda path: read_array(path, _HINT)),
    ".npz": Format(put_arrays, _read_arrays),
}
