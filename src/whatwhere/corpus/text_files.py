"""Documents from files and folders: text, JSON lines, tables and parquet, plain or compressed, read as a stream.

Text must be UTF-8: other bytes are an error that names the file and the place, never a silent replacement.
"""

import csv
import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..run.files import unpacked_parquet_bytes
from ..run.folder import RunFolder
from .characters import PACKED, blocks, characters, check_size, ending_of, joined_lines, lines_of, whole_lines
from .paths import check_text
from .source import PART_CHARACTERS, Source, first_line, split_long, valid_unicode
from .values import LONGEST_ROW, json_values

DOCUMENT_RULES = ("auto", "file", "blank-line", "heading", "line")
_KINDS = {
    ".txt": "text",
    ".tokens": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".tsv": "table",
    ".csv": "table",
    ".parquet": "parquet",
}
_SETTINGS_TOO = ".json"  # a folder of texts often holds settings under this ending
_DELIMITERS = ",;\t|"
_ENDINGS = ", ".join(_KINDS) + f", each also with {', '.join(PACKED)}"
_HEADING = re.compile(r"\s*= (?!=)[^\n]*(?<! =) =\s*\Z")  # "= Title =" of WikiText, not "= = Section = ="
_PARQUET_ROWS = 16  # read at once: a few pages can hold a long text for each of them


class Files(Source):
    """Documents of a file, or of all files with known endings below a folder in the order of their sorted paths.

    A file of another ending is read as text if it is; such files of a folder, and .json, are passed over, unless it has
    no other: `remark` counts them. Text whose first two lines (or whose only one) are JSON objects is read as JSON
    lines, and text that begins as a list of objects as their rows, whatever its name.

    `document` is the rule that finds documents in a text file: "file", the whole file; "blank-line", a block between
    empty lines; "heading", from one line "= Title =" to the next (WikiText); "line", a line. "auto" looks at the first
    megabyte of the first text file: "heading" if its first line that is not empty is a heading; else "file" in a
    folder; else "blank-line" if there is an empty line between others; else "line". A JSON line, an object of a JSON
    list, a row of a table or a parquet row is a document, its text in `field`; `doc.text` is the field `text` inside
    the field `doc`. The first line of a table names its fields; .csv may quote and has commas, semicolons, tabs or bars
    between fields, whichever its first line has; .tsv has tabs and no quotes.

    Raises:
        ValueError: nothing there, an unknown ending and no text, no such file in a folder, an unknown rule, a field of
            plain text. While reading: bytes that are not UTF-8, a damaged file, a field that is not there.
    """

    def __init__(self, path: Path, field: str = "text", document: str = "auto"):
        if document not in DOCUMENT_RULES:
            raise ValueError(f"document must be one of {', '.join(DOCUMENT_RULES)}, not {document!r}.")
        check_text(path)
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} is a pipe or a device, and a text is read more than once. Give a file of it.")
        if (path / "windows.json").is_file() and (path / "shards").is_dir():
            raise ValueError(
                f"{path} holds windows of token ids, made for a training. Give the text that they were made from."
            )
        if path.is_dir() and (kind := RunFolder.at(path).kind) is not None:
            raise ValueError(f"{path} is the folder of a {kind} run, whose files are no texts. Give the text itself.")
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(path)))
            known = [p for p in files if _kind(p) is not None]
            texts = [p for p in known if ending_of(p) != _SETTINGS_TOO] or known
            self.paths = texts or [p for p in files if _is_text(p)]
            if not self.paths:
                raise ValueError(f"No text in {path}. Known endings: {_ENDINGS}; others are read if they hold UTF-8.")
        elif _kind(path) is None and not _is_text(path):
            raise ValueError(
                f"{path} has an unknown ending, and is no text in UTF-8. Endings: {_ENDINGS}; others hold text."
            )
        else:
            self.paths = [path]
        if path.is_dir():
            self.remark = _passed_over(path, set(files) - set(self.paths))
        if field != "text" and all(_kind_by_content(p) == "text" for p in self.paths):
            raise ValueError(f"{path} is plain text, which has no field {field!r}. Leave the field out.")
        self.path = path
        self.field = field
        self.name = path.resolve().name
        self._sizes = [p.stat().st_size for p in self.paths]
        self._done = 0
        self._now: IO[bytes] | None = None
        self._fingerprint: dict[str, Any] | None = None
        text = next((p for p in self.paths if _kind(p) in ("text", None)), None)
        self.document = document if document != "auto" or text is None else _guess_rule(text, path.is_dir())

    def fingerprint(self) -> dict[str, Any]:
        """Return names, sizes and SHA-256 of the files as stored, and the rule and field by which they are read."""
        if self._fingerprint is None:
            base = self.path if self.path.is_dir() else self.path.parent
            files = []
            for path, size in zip(self.paths, self._sizes, strict=True):
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                files.append({"file": str(path.relative_to(base)), "bytes": size, "sha256": digest})
            self._fingerprint = {"files": files, "field": self.field, "document": self.document}
        return self._fingerprint

    def share_read(self) -> float | None:
        position = self._now.tell() if self._now is not None and not self._now.closed else 0
        return min(1.0, (self._done + position) / max(sum(self._sizes), 1))

    def parts(self) -> Iterator[tuple[bool, str]]:
        self._done = 0
        for path, size in zip(self.paths, self._sizes, strict=True):
            with open(path, "rb") as raw:
                self._now = raw
                texts = _row_texts(path, raw, self.field)
                if texts is None:
                    yield from _text_parts(lines_of(characters(path, raw)), self.document)
                else:
                    yield from split_long(texts)
            self._done += size
            self._now = None

    def rows(self) -> Iterator[str]:
        """Yield the text of every row, or line of a text file, as it stands: unlike documents, blank ones too."""
        for path in self.paths:
            with open(path, "rb") as raw:
                texts = _row_texts(path, raw, self.field)
                if texts is None:
                    texts = (line.removesuffix("\n") for line in whole_lines(path, raw))
                yield from map(valid_unicode, texts)


def _is_hidden(path: Path) -> bool:
    """Return whether a file, or a folder on the way to it, has a name that begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def _kind(path: Path) -> str | None:
    """Return the kind of a file by the ending below a compression's; None if unknown, then text."""
    return _KINDS.get(ending_of(path))


def _is_text(path: Path) -> bool:
    """Tell if a file of an unknown ending begins as text does."""
    try:
        return "\0" not in _beginning(path)
    except (ValueError, OSError):
        return False


def _beginning(path: Path) -> str:
    """Return about the first megabyte of a file, from the first character that is no white space."""
    with open(path, "rb") as raw:
        return next((text for text in characters(path, raw) if text.strip()), "").lstrip()


def _passed_over(folder: Path, files: set[Path]) -> str:
    """Write a line that counts the files of a folder that are not read, by ending; "" where all are read."""
    if not files:
        return ""
    counts = Counter(path.suffix.lower() or "no ending" for path in sorted(files)).most_common(6)
    endings = ", ".join(f"{count:,} {ending[:20]}" for ending, count in counts)
    many = "1 file" if len(files) == 1 else f"{len(files):,} files"
    return f"Passed over {many} of {folder} for the ending: {endings}. Give one alone to read it, or rename it."


def _row_texts(path: Path, raw: IO[bytes], field: str) -> Iterator[str] | None:
    """Return the texts of a file of rows; None for a text, which has none."""
    kind = _kind_by_content(path)
    if kind == "table":
        return _table_texts(path, raw, field)
    if kind == "parquet":
        return _parquet_texts(path, raw, field)
    if kind == "json":
        return _json_texts(path, raw, field)
    return None


def _kind_by_content(path: Path) -> str:
    """Return the kind of a file by its ending; a text that holds JSON objects is "json"."""
    kind = _kind(path) or "text"
    return "json" if kind == "text" and _holds_objects(path) else kind


def _holds_objects(path: Path) -> bool:
    """Tell if a file is JSON lines, or a list of JSON objects, by its first two lines that are not empty.

    They are read to their ends, up to the longest row that is read at all.
    """
    with open(path, "rb") as raw:
        chunks = characters(path, raw)
        text = next((text for text in chunks if text.strip()), "").lstrip()
        if re.match(r'\[\s*\{\s*"', text):
            return True
        if not text.startswith("{"):
            return False
        try:
            lines = (line for line in joined_lines(path, chain([text], chunks)) if line.strip())
            return all(line.startswith("{") and isinstance(json.loads(line), dict) for line in islice(lines, 2))
        except (ValueError, RecursionError):
            return False


def _text_parts(lines: Iterator[tuple[bool, str]], rule: str) -> Iterator[tuple[bool, str]]:
    """Yield (opens a document, text) from the lines of a file."""
    lines_of_part: list[str] = []
    size = 0
    opens = True
    for line_opens, line in lines:
        blank = line_opens and not line.strip()
        begins = line_opens and (rule == "line" or (rule == "heading" and _HEADING.match(line) is not None))
        if begins or (rule == "blank-line" and blank):
            yield from _part(opens, "".join(lines_of_part).rstrip())
            lines_of_part = []
            size = 0
            opens = True
        elif size + len(line) > PART_CHARACTERS and lines_of_part:
            yield from _part(opens, "".join(lines_of_part))
            lines_of_part = []
            size = 0
            opens = False
        if lines_of_part or not blank or not opens:
            lines_of_part.append(line)
            size += len(line)
    yield from _part(opens, "".join(lines_of_part).rstrip())


def _part(opens: bool, text: str) -> Iterator[tuple[bool, str]]:
    text = text.lstrip() if opens else text
    if text:
        yield opens, text


def _guess_rule(path: Path, folder: bool) -> str:
    """Choose the rule that "auto" means for a text file; see `Files`."""
    text = _beginning(path).rstrip()
    if _HEADING.match(text.partition("\n")[0]):
        return "heading"
    if folder:
        return "file"
    return "blank-line" if re.search(r"\n[ \t]*\n", text) else "line"


def _json_texts(path: Path, raw: IO[bytes], field: str) -> Iterator[str]:
    for place, row in json_rows(path, raw, f"an object with a field {field!r}"):
        yield text_field(row, field, place)


def json_rows(
    path: Path, raw: IO[bytes] | None = None, wanted: str = "an object"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, object) for each line of a JSON-lines file, plain or packed, that is not empty.

    Args:
        raw: the open file; None: open `path`, and refuse one without data.
        wanted: name of the wanted object, for messages.

    Raises:
        ValueError: a line that is no object; without `raw`, as `data_lines`.
    """
    if raw is None:
        with path.open("rb") as opened:
            empty = True
            for row in json_rows(path, opened, wanted):
                empty = False
                yield row
        if empty:
            raise empty_file(path)
        return
    for place, value in json_values(path, characters(path, raw)):
        if not isinstance(value, dict):
            raise ValueError(f"{place}: {wanted} is wanted, this is a {type(value).__name__}. Mend the line.")
        yield place, value


def _table_texts(path: Path, raw: IO[bytes], field: str) -> Iterator[str]:
    rows = table_rows(path, whole_lines(path, raw))
    _, names = next(rows, (0, []))
    if names and field not in names:
        columns = f"Its first line must name the fields, there: {some_names(names)}"
        raise _no_field(path, field, columns)
    if names:
        check_named_once(path, names, field)
    for _, row in rows:
        yield row[names.index(field)]


def check_named_once(path: Path, names: Sequence[str], column: str) -> None:
    """Refuse a column whose name stands twice in the header: one reader would take the first, another the last.

    Raises:
        ValueError: it does.
    """
    if names.count(column) > 1:
        raise ValueError(f"{path} names the column {column!r} {names.count(column)} times. Rename all but one.")


def table_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its last line, fields) for each row of a .tsv or .csv file, the header first.

    Raises:
        ValueError: a row that is not as wide as the header, or broken quotes.
    """
    csv.field_size_limit(LONGEST_ROW)  # the module's own limit, 131,072, is less than some documents have
    skipped = 0  # lines before the first that the reader sees
    if ending_of(path) == ".tsv":
        reader = csv.reader(lines, strict=True, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        skipped, header = next((pair for pair in enumerate(lines) if pair[1].strip()), (0, ""))
        named = re.fullmatch(r"sep=(.)\s*", header)  # Excel's way to name the delimiter
        skipped += named is not None
        delimiter = named[1] if named else _delimiter_of(header)
        reader = csv.reader(lines if named else chain([header], lines), strict=True, delimiter=delimiter)
    width = None
    try:
        for row in reader:
            if not row and width is None:  # empty lines before the header
                continue
            width = len(row) if width is None else width
            if len(row) == width:
                yield skipped + reader.line_num, row
            elif width == 1 and not row:  # an empty line of a table of one column is a row of it
                yield skipped + reader.line_num, [""]
            elif row:
                raise ValueError(
                    f"{path}, line {skipped + reader.line_num}: {len(row)} fields, but the first line names {width}. "
                    "Mend or remove the line."
                )
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {skipped + reader.line_num}: no comma-separated values ({error}). Mend the line, or its "
            "quotes."
        ) from error


def _delimiter_of(header: str) -> str:
    """Return what stands between the names in the first line of a .csv file; a comma where there is one name."""
    try:
        delimiter = csv.Sniffer().sniff(header, delimiters=_DELIMITERS).delimiter
    except csv.Error:
        return ","
    return delimiter if delimiter and delimiter in _DELIMITERS else ","


def data_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a data file, plain or packed, that must not be empty; otherwise as `whole_lines`.

    Raises:
        ValueError: all lines are empty, or as `whole_lines`.
    """
    empty = True
    with path.open("rb") as raw:
        for line in whole_lines(path, raw):
            empty = empty and not line.strip()
            yield line
    if empty:
        raise empty_file(path)


def empty_file(path: Path) -> ValueError:
    """Build the error that refuses a file with nothing in it."""
    return ValueError(f"{path} is empty. Bring a complete copy.")


def text_field(row: dict[str, Any], field: str, place: str) -> str:
    """Return the text of a field in a row; null is an empty text.

    Raises:
        ValueError: no such field, or a value that is no text; the message begins with `place`.
    """
    if not has_value(row, field):
        raise _no_field(place, field, f"Fields there: {some_names(names_inside(row)) or 'none'}")
    value = value_of(row, field)
    if value is not None and not isinstance(value, str):
        kind = type(value).__name__
        raise ValueError(f"{place}: field {field!r} is of type {kind}, not text. Name a field of text: --field NAME.")
    return value or ""


def has_value(row: dict[str, Any], field: str) -> bool:
    """Tell if a row has a field; a null on the way to a field inside it counts as one."""
    value: Any = row
    for name in [field] if field in row else field.split("."):
        if value is None:
            return True
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def value_of(row: dict[str, Any], field: str) -> Any:
    """Return the value of a field that a row has: of that name, or with dots inside an object, as `doc.text`."""
    value: Any = row
    for name in [field] if field in row else field.split("."):
        value = None if value is None else value[name]
    return value


def names_inside(row: dict[str, Any]) -> list[str]:
    """List the fields of a row, those inside an object as `doc.text`."""
    names = []
    for name, value in row.items():
        names += [f"{name}.{inner}" for inner in names_inside(value)] if isinstance(value, dict) else [str(name)]
    return names


def some_names(names: Sequence[Any]) -> str:
    """Join the first 20 names in one line, and count the rest."""
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return ", ".join(str(name)[:40] for name in names[:20]) + more


def _no_field(place: str | Path, field: str, known: str) -> ValueError:
    return ValueError(f"{place}: no field {field!r}. {known}. Name the one that holds the text: --field NAME.")


def _leaves(column: Any, before: str = "") -> list[str]:
    """List the names of a parquet column: its own, or those inside it, as `doc.text`."""
    name = f"{before}{column.name}"
    if not pa.types.is_struct(column.type):
        return [name]
    inside = [column.type.field(i) for i in range(column.type.num_fields)]
    return [leaf for field in inside for leaf in _leaves(field, f"{name}.")]


def _parquet_texts(path: Path, raw: IO[bytes], field: str) -> Iterator[str]:
    with tempfile.TemporaryFile() if path.suffix.lower() in PACKED else nullcontext(raw) as plain:
        if plain is not raw:  # parquet is read from its end, so a packed one is unpacked beside
            for block in blocks(path, raw):
                plain.write(block)
            plain.seek(0)
        try:
            file = pq.ParquetFile(plain)
            row = 0
            size = path.stat().st_size
            names = [name for column in file.schema_arrow for name in _leaves(column)]
            if field not in names and field not in file.schema_arrow.names:
                raise _no_field(path, field, f"Fields there: {some_names(names)}")
            check_size(path, unpacked_parquet_bytes(file.metadata), size)
            unpacked = 0  # also of a text that is there once, and named by many rows
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=[field]):
                column = batch.schema.names[0]
                for value in batch.column(0).to_pylist():
                    row += 1
                    text = text_field({column: value}, field, f"{path}, row {row}")
                    unpacked += 1 + len(text)
                    check_size(path, unpacked, size)
                    yield text
        except (pa.ArrowException, OSError) as error:  # it raises the latter for damaged bytes, too
            raise ValueError(
                f"{path} is no readable parquet file ({first_line(error)[:200]}). Get the file again."
            ) from error
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: field {field!r} holds bytes that are not UTF-8 after row {row}. Write it again in UTF-8."
            ) from error
