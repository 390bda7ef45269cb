"""The tables of a page as CSV files: every number with all of its digits, nothing that a spreadsheet would run."""

import csv
import re
from pathlib import Path

from ..files import new_folder
from .figures import Cell, Table
from .page import Page, claims_table

_FORMULA = re.compile(r"^[=+@\t\r-]")


def page_tables(page: Page) -> list[Table]:
    """Every table of a page in its order: claims, those behind figures, those of sections, those of the last section."""
    claims = claims_table(page.cards)
    found = [claims] if claims else []
    found += [page.hero.table] if page.hero else []
    for section in page.sections:
        found += [f.table for f in section.figures] + list(section.tables)
    return [*found, *page.how.tables]


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
        for table in page_tables(page):
            _write(new / f"{_file_name(table.id)}.csv", table)
    return sorted(folder.glob("*.csv"))


def _file_name(id: str) -> str:
    return re.sub(r"[^\w.-]", "_", id).lstrip(".") or "table"


def _write(path: Path, table: Table) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow([quoted(name) for name in table.columns])
        writer.writerows([quoted(_raw(cell)) for cell in row] for row in table.rows)


def _raw(cell: Cell) -> str:
    if cell.raw is None:
        return "" if cell.text == "–" else cell.text
    return repr(float(cell.raw)) if isinstance(cell.raw, float) else str(cell.raw)


def quoted(value: str) -> str:
    """The value with an apostrophe before it if a spreadsheet would run it as a formula; numbers stay."""
    return f"'{value}" if _FORMULA.match(value) and not _is_number(value) else value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
