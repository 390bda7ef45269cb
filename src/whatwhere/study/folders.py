"""Folders for what a command writes: new ones, empty ones, and those of an earlier call, whose results are replaced."""

from pathlib import Path


def check_folder(out: Path, ours: bool, what: str) -> None:
    """Refuse a folder that holds something else.

    Args:
        ours: whether an earlier call wrote what it holds. what: what it would hold then.

    Raises:
        ValueError: it is no folder, or holds something else.
    """
    if out.is_file():
        raise ValueError(f"{out} is a file. Give a folder for the records, arrays and the page.")
    if out.is_dir() and any(out.iterdir()) and not ours:
        raise ValueError(f"{out} is not empty and holds no {what}. Give a new folder.")
