"""Labelled texts, read from tables (.tsv, .csv, .jsonl, also packed)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .characters import PACKED, ending_of
from .paths import check_table
from .text_files import (
    check_named_once,
    data_lines,
    has_value,
    json_rows,
    names_inside,
    some_names,
    table_rows,
    value_of,
)

MOST_LABELS = 1000


@dataclass(frozen=True)
class LabelledTexts:
    """Labelled texts, or pairs of texts, with each label as it stands in the file.

    places: file and line of each row, for messages; () where they are not known.
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[str]
    places: Sequence[str] = field(default=(), compare=False)


def read_labelled(path: str | Path, text: str, label: str | None, text_pair: str | None = None) -> LabelledTexts:
    """Read labelled texts from a table with a header (.tsv, .csv), JSON lines or a JSON list of rows, plain or packed.

    A .tsv file has no quotes, a .csv file may quote. A name as `doc.text` is of a field inside a field.

    Args:
        text, text_pair, label: names of the columns or fields; a label may be a word or a whole number; None: no labels
            are wanted.

    Raises:
        ValueError: no such file or column, an unknown ending, a row of another width or without a label, no rows, or a
            column that is to be two things.
    """
    path = Path(path)
    names = [name for name in (text, text_pair, label) if name]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{twice!r} is given for two of text, second text and label. Name a column for each.")
    places: list[str] = []
    data = LabelledTexts([], [] if text_pair else None, [], places)
    columns = [(text, data.texts)]
    if text_pair and data.pairs is not None:
        columns.append((text_pair, data.pairs))
    for place, cells in _rows(path, names):
        row = {name: value_of(cells, name) for name in names if has_value(cells, name)}
        if missing := [name for name in names if name not in row]:
            raise ValueError(
                f"{place}: no column {missing[0]!r}. Give one of those there: {some_names(names_inside(cells))}."
            )
        if label and (not isinstance(row[label], str | int) or not str(row[label]).strip()):
            raise ValueError(
                f"{place}: the label {repr(row[label])[:60]} is neither a word nor a whole number. Leave such rows out."
            )
        for name, values in columns:
            if not isinstance(row[name], str):
                raise ValueError(f"{place}: {name!r} holds {type(row[name]).__name__}, not text. Give another column.")
            values.append(row[name])
        if label:
            data.labels.append(str(row[label]).strip())
            places.append(place)
    if not data.texts:
        raise ValueError(f"{path} holds no rows. Give a table with a header and labelled rows.")
    return data


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, row) of a table; the place names file and line. No name of `columns` may stand twice."""
    check_table(path)
    if ending_of(path) not in (".tsv", ".csv"):
        yield from json_rows(path)
        return
    rows = table_rows(path, data_lines(path))
    _, names = next(rows)
    for column in columns:
        check_named_once(path, names, column)
    for number, row in rows:
        yield f"{path}, line {number}", dict(zip(names, row, strict=True))


def packed(path: Path) -> Path | None:
    """Find a file or its packed copy (.xz, .gz, .zst, .bz2); None if neither exists."""
    return next((p for end in ("", *PACKED) if (p := path.with_name(path.name + end)).is_file()), None)


def read_columns(path: Path, columns: Sequence[str | int], gaps: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Yield (place, fields) for each row of a table, plain or packed; the place names file and line.

    A .csv file may quote; any other has tabs and no quotes.

    Args:
        columns: by name, where the table has a header, or by number from 0, where it has none. Rows of a table with
            tabs may be wider; every row of a .csv file has the width of its first.
        gaps: read columns that a short row with tabs lacks as empty.

    Raises:
        ValueError: an empty file, no such column or one that is named twice, a row that is too short, or, in a .csv
            file, a row of another width than the first or broken quotes.
    """
    lines = data_lines(path)
    rows: Iterator[tuple[int, list[str]]]
    if ".csv" in path.suffixes:
        rows = table_rows(path, lines)
    else:
        rows = enumerate((line.rstrip("\r\n").split("\t") for line in lines), 1)
    places: dict[str, int] = {}
    if any(isinstance(column, str) for column in columns):
        names = [name.lstrip("\ufeff").strip() for name in next(rows)[1]]
        for column in columns:
            check_named_once(path, names, str(column))
        places = {name: i for i, name in enumerate(names)}
        if missing := [name for name in columns if name not in places]:
            raise ValueError(f"{path} has no column {missing[0]!r}. Its columns: {some_names([*places])}.")
    at = [places[column] if isinstance(column, str) else column for column in columns]
    wide = max(at) + 1
    for number, row in rows:
        place = f"{path}, line {number}"
        if len(row) < wide and not gaps:
            raise ValueError(f"{place}: {len(row)} columns, where {wide} are needed. Bring a complete copy.")
        yield place, [row[i] if i < len(row) else "" for i in at]


def label_names(labels: list[str], place: str = "the rows") -> list[str]:
    """List the different labels, numbers by size and words by the alphabet; a label's place is its class number.

    place: name of their file, for messages.

    Raises:
        ValueError: only one, or more than a thousand (then the column holds texts or measurements).
    """
    names = sorted(set(labels), key=lambda name: (int(name) if name.isdecimal() and len(name) < 20 else -1, name))
    if len(names) < 2:
        raise ValueError(
            f"{place}: all {len(labels)} have the label {names[0][:60]!r}. Classification needs two classes or more."
        )
    if len(names) > MOST_LABELS:
        raise ValueError(
            f"{place}: the label column has {len(names)} different values, for example {names[0][:40]!r}. Name the "
            "column of the classes."
        )
    return names
