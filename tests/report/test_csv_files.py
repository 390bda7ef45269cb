"""The tables of a page as CSV: every number with its digits, nothing that runs, all files or none."""

import csv
import os

import numpy as np
import pytest

from whatwhere.records.record import read_records
from whatwhere.records.table import Point
from whatwhere.report import page_of, write_tables
from whatwhere.report.figure import Cell, Table, row, text, value
from whatwhere.report.page import Page, Section, page_tables


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def page_with(*cells: Cell) -> Page:
    return Page("t", sections=[Section("s", "t", "i", tables=[Table("t", "c", ["=name"], [[c] for c in cells])])])


@pytest.mark.whole
def test_every_page_table_is_a_file(demo, tmp_path):
    """Every table of the page is a file and every value a record."""
    page = page_of(demo)
    paths = write_tables(page, tmp_path / "new" / "tables")
    assert {p.stem for p in paths} == {t.id for t in page_tables(page, page.sections)} and {
        "claims",
        "costs",
        "position",
        "schemes",
    } <= {p.stem for p in paths}
    recorded = {r.value for r in read_records(demo / "records.parquet") if r.metric == "r2.token" and r.index is None}
    head, *rows = rows_of(tmp_path / "new" / "tables" / "position.csv")
    measured = {float(row[head.index("R² of position")]) for row in rows if row[0] == "this run"}
    assert measured <= recorded and len(measured) > 20
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["tables"]


def test_cells_keep_digits_and_escape_formulas(tmp_path):
    """A number has all digits, a dash is empty, and text that a spreadsheet would run is quoted."""
    cells = (
        value(1 / 3),
        Cell("–"),
        value(-0.5),
        text("=1+1"),
        text("-x"),
        text("@a"),
        text('a,"b"\nc'),
        text("+1"),
        value(12_345),
    )
    write_tables(page_with(*cells), tmp_path / "csv")
    head, *rows = rows_of(tmp_path / "csv" / "t.csv")
    assert head == ["'=name"]
    assert [row[0] if row else "" for row in rows] == [
        repr(1 / 3),
        "",
        "-0.5",
        "'=1+1",
        "'-x",
        "'@a",
        'a,"b"\nc',
        "+1",
        "12345",
    ]


def test_tables_of_before_are_replaced_as_a_whole(tmp_path):
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "old.csv").write_text("old")
    write_tables(page_with(text("a")), folder)
    assert [p.name for p in folder.iterdir()] == ["t.csv"] and [p.name for p in tmp_path.iterdir()] == ["csv"]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"holds thesis\.txt, which is no CSV file"):
        write_tables(page_with(text("a")), tmp_path)
    with pytest.raises(ValueError, match="is a file. Give a folder"):
        write_tables(page_with(text("a")), tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("fails", [1, 2])
def test_a_failure_leaves_the_tables_of_before(tmp_path, monkeypatch, fails):
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "old.csv").write_text("old")
    real = os.replace
    calls = []

    def full(*arguments):
        calls.append(arguments)
        if len(calls) == fails:
            raise OSError(28, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        write_tables(page_with(text("a")), folder)
    assert [p.name for p in folder.iterdir()] == ["old.csv"] and [p.name for p in tmp_path.iterdir()] == ["csv"]


def test_cells_of_a_row_come_from_its_values():
    point = Point.between(0.5, 0.4, 0.6)
    made = row("ap", "", 1234, None, 0.25, np.float64(1 / 3), np.float64("nan"), Cell("never"), point)
    assert [c.text for c in made] == ["ap", "–", "1,234", "–", "0.250", "0.333", "–", "never", "0.50", "0.40", "0.60"]
    assert [c.raw for c in made] == ["ap", None, 1234, None, 0.25, 0.333333, None, None, 0.5, 0.4, 0.6]


def test_columns_without_a_word_are_numeric():
    rows = [row("ap", 0, "total", Cell("–"), 0.5), row("rp", None, "", Cell(""), 0.5)]
    assert Table.of("id", "caption", "abcde", rows).numeric == {1, 3, 4}
