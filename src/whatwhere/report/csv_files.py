"""The tables of a page as CSV files: every number with all of its digits, nothing that a spreadsheet would run."""

import re
from pathlib import Path

from ..files import new_folder
from .figure import csv_text
from .page import Page, page_tables


def write_tables(page: Page, folder: str | Path) -> list[Path]:
    """Write every table of a page as `ID.csv` into `folder`, all or none; returns the paths.

    The folder is made, or replaced if it holds nothing but CSV files.

    Raises:
        ValueError: there is something else at `folder`.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file. Give a folder for the tables.")
    others = [p.name for p in folder.iterdir() if p.suffix != ".csv"] if folder.is_dir() else []
    if others:
        raise ValueError(f"{folder} holds {sorted(others)[0]}, which is no CSV file. Give a new folder for the tables.")
    with new_folder(folder) as new:
        for table in page_tables(page, page.sections):
            name = re.sub(r"[^\w.-]", "_", table.id).lstrip(".") or "table"
            with (new / f"{name}.csv").open("x", encoding="utf-8", newline="") as file:
                file.write(csv_text(table))
    return sorted(folder.glob("*.csv"))
