"""What commands write, in folders that are new, empty or of an earlier call, and columns of text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..records.record import Record, write_records
from ..report import write_report
from ..run.files import check_writable, read_lines, write_arrays, write_json
from ..run.hashes import forget_hashes, write_hashes
from .machine import versions

RECORDS = "records.parquet"


# What a call that was killed leaves, before the file that says what the folder is.
UNFINISHED = {"arrays", "explorer.json", "records.parquet", "report.html", "hashes.json"}


def check_folder(out: Path, ours: bool, what: str) -> None:
    """Refuse a folder that holds something else; what a killed call has left is no such thing.

    Args:
        ours: whether an earlier call wrote what it holds. what: what it would hold then.

    Raises:
        ValueError: it is no folder, cannot be written, or holds something else.
    """
    check_writable(out)
    if out.is_file():
        raise ValueError(f"{out} is a file. Give a folder for the records, arrays and the page.")
    held = {path.name for path in out.iterdir() if not path.name.startswith(".")} if out.is_dir() else set()
    if held - UNFINISHED and not ours:
        raise ValueError(f"{out} is not empty and holds no {what}. Give a new folder.")


def save_arrays(out: Path, arrays: Mapping[str, Mapping[str, Any]]) -> None:
    """Write arrays/STEM.npz for every stem."""
    forget_hashes(out)
    for stem, named in arrays.items():
        write_arrays(out / "arrays" / f"{stem}.npz", named)


def write_results(
    out: Path,
    records: Iterable[Record],
    manifest: str,
    facts: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]] | None = None,
) -> Path:
    """Write what a page is made of but for arrays, the manifest with versions last, then the page; returns its path."""
    forget_hashes(out)
    write_records(out / RECORDS, records)
    if claims is not None:
        write_json(out / "claims.json", claims)
    write_json(out / manifest, {**facts, "versions": versions()})
    write_hashes(out)
    return write_report(out)


def columns(lines: Sequence[Sequence[str]], align: Callable[[str, int], str] = str.ljust) -> list[str]:
    """Lines of cells as text, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(align, line, widths)) for line in lines]


def total_seconds(log: Path, current: float) -> float:
    """Time spent over all calls of a study: the last entry of each call, the current one included."""
    total, last = 0.0, 0.0
    for line in read_lines(log):
        seconds = line.get("seconds")
        if not isinstance(seconds, int | float):  # of a damaged log
            continue
        if seconds < last:
            total += last
        last = seconds
    return total + current
