"""Documents from files and folders: text, JSON lines, tables and parquet, plain or compressed, read as a stream.

Text must be UTF-8: other bytes are an error that names the file and the place, never a silent replacement.
"""

import codecs
import csv
import gzip
import hashlib
import io
import json
import lzma
import re
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from ..run.files import page_bytes, unpacking_problem
from .source import KINDS, PART_CHARACTERS, Source, cut_point, first_line, split_long, valid_unicode

DOCUMENT_RULES = ("auto", "file", "blank-line", "heading", "line")
_KINDS = {".txt": "text", ".tokens": "text", ".jsonl": "jsonl", ".tsv": "table", ".csv": "table", ".parquet": "parquet"}
_PACKED = (".gz", ".xz", ".zst")
_ENDINGS = ", ".join(_KINDS) + f", each also with {', '.join(_PACKED)}"
_HEADING = re.compile(r"\s*= (?!=)[^\n]*(?<! =) =\s*\Z")  # "= Title =" of WikiText, not "= = Section = ="
_CHUNK = 1 << 20
_LONGEST_ROW = 1 << 27  # characters of a line of a table
_PARQUET_ROWS = 16  # read at once: a few pages can hold a long text for each of them
_ZSTD_BLOCK = 2048  # bytes that are unpacked at once: at most some 60 MB of them, as a block of 4 bytes may hold 128 KB


class Files(Source):
    """Documents of a file, or of all files with known endings below a folder in the order of their sorted paths.

    A file of another ending is read as text if it is; such files of a folder are passed over, unless it has no other.

    `document` is the rule that finds documents in a text file: "file", the whole file; "blank-line", a block between
    empty lines; "heading", from one line "= Title =" to the next (WikiText); "line", a line. "auto" looks at the first
    megabyte of the first text file: "heading" if its first line that is not empty is a heading; else "file" in a
    folder; else "blank-line" if there is an empty line between others; else "line". A JSON line, a row of a table or a
    parquet row is a document, its text in `field`. The first line of a table names its fields; .csv has commas and may
    quote, .tsv has tabs and does not.

    Raises:
        ValueError: nothing there, an unknown ending and no text, no such file in a folder, an unknown rule. While
            reading: bytes that are not UTF-8, a damaged file, a field that is not there.
    """

    def __init__(self, path: Path, field: str = "text", document: str = "auto"):
        if document not in DOCUMENT_RULES:
            raise ValueError(f"document must be one of {', '.join(DOCUMENT_RULES)}, not {document!r}.")
        if not path.exists():
            raise ValueError(f"No corpus {str(path)!r}: no such file or folder. A corpus is {KINDS}.")
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} is a pipe or a device, and a text is read more than once. Give a file of it.")
        if (path / "manifest.json").is_file() and (path / "shards").is_dir():
            raise ValueError(
                f"{path} holds windows of token ids, made for a training. Give the text that they were made from."
            )
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
            self.paths = [p for p in files if _kind(p) is not None] or [p for p in files if _is_text(p)]
            if not self.paths:
                raise ValueError(f"No text in {path}. Known endings: {_ENDINGS}; others are read if they hold UTF-8.")
        elif _kind(path) is None and not _is_text(path):
            raise ValueError(
                f"{path} has an unknown ending, and is no text in UTF-8. Endings: {_ENDINGS}; others hold text."
            )
        else:
            self.paths = [path]
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
        now = self._now.tell() if self._now is not None and not self._now.closed else 0
        return min(1.0, (self._done + now) / max(sum(self._sizes), 1))

    def parts(self) -> Iterator[tuple[bool, str]]:
        self._done = 0
        for path, size in zip(self.paths, self._sizes, strict=True):
            with open(path, "rb") as raw:
                self._now = raw
                read = {"jsonl": _json_texts, "table": _table_texts, "parquet": _parquet_texts}.get(_kind(path) or "")
                if read is None:
                    yield from _text_parts(_lines(_characters(path, raw)), self.document)
                else:
                    yield from split_long(read(path, raw, self.field))
            self._done += size
            self._now = None


def _kind(path: Path) -> str | None:
    """Return the kind of a file by the ending below a compression's; None if unknown, then text."""
    return _KINDS.get(_ending(path))


def _is_text(path: Path) -> bool:
    """Tell if a file of an unknown ending begins as text in UTF-8 does."""
    try:
        with open(path, "rb") as raw:
            return "\0" not in next(_characters(path, raw), "")
    except (ValueError, OSError):
        return False


def _ending(path: Path) -> str:
    """Return the ending of a file's name, below the ending of a compression."""
    name = path.name.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return Path(name).suffix


def _blocks(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file, about a megabyte at a time.

    Raises:
        ValueError: it is damaged, or unpacks to more than any text does.
    """
    unpacked = 0
    for block in _unpacked(path, raw):
        unpacked += len(block)
        _check_size(path, unpacked, raw.tell())
        yield block


def _check_size(path: Path, unpacked: int, packed: int) -> None:
    if why := unpacking_problem(unpacked, packed):
        raise ValueError(f"{path} {why}. No text does; unpack it by hand if it is meant.")


def _unpacked(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    ending = path.suffix.lower()
    try:
        if ending == ".zst":
            yield from _unpack_zstd(raw)
        else:
            stream: Any = raw
            if ending in (".gz", ".xz"):
                stream = gzip.GzipFile(fileobj=raw) if ending == ".gz" else lzma.LZMAFile(raw)
            while block := stream.read(_CHUNK):
                yield block
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise ValueError(f"{path} is damaged or not a {ending} file ({error}). Get the file again.") from error


def _unpack_zstd(raw: IO[bytes]) -> Iterator[bytes]:
    """Unpack by hand, because the library's reader takes a file that was cut off for a whole one."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    begun = False
    while block := raw.read(_ZSTD_BLOCK):
        while block:
            begun = True
            yield frame.decompress(block)
            block = frame.unused_data
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
                begun = False
    if begun:
        raise EOFError("it ends inside a frame")


def _not_utf8(path: Path, at: int, byte: int) -> ValueError:
    return ValueError(
        f"{path} is not UTF-8: byte 0x{byte:02x} at offset {at} of the text. Convert it first, e.g. iconv -f latin1 -t "
        "utf-8."
    )


def _characters(path: Path, raw: IO[bytes]) -> Iterator[str]:
    """Yield the text of a file in pieces, line ends as \\n, without a byte-order mark."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    rest = b""
    offset = 0
    start = True
    for block in _blocks(path, raw):
        data = rest + block
        try:
            text, used = codecs.utf_8_decode(data, "strict", False)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, offset + error.start, data[error.start]) from error
        rest = data[used:]
        offset += used
        if start and text:
            text = text.removeprefix("\ufeff")
            start = False
        yield newlines.decode(text)
    if rest:
        raise _not_utf8(path, offset, rest[0])
    yield newlines.decode("", final=True)


def _lines(chunks: Iterator[str]) -> Iterator[tuple[bool, str]]:
    """Yield (opens a line, text): lines with their \\n, endless ones in pieces."""
    rest = ""
    first = True
    for chunk in chunks:
        rest += chunk
        *whole, rest = rest.split("\n")
        for line in whole:
            yield first, line + "\n"
            first = True
        while len(rest) > PART_CHARACTERS:
            at = cut_point(rest)
            yield first, rest[:at]
            first = False
            rest = rest[at:]
    if rest:
        yield first, rest


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
    with open(path, "rb") as raw:
        text = next((t for t in _characters(path, raw) if t.strip()), "").strip()
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
    for number, line in enumerate(data_lines(path) if raw is None else whole_lines(path, raw), 1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{place}: not JSON ({error}). Mend the line.") from error
            except RecursionError as error:
                raise ValueError(f"{place}: JSON nested too deeply. Leave the line out.") from error
            if not isinstance(row, dict):
                raise ValueError(f"{place}: {wanted} is wanted, this is a {type(row).__name__}. Mend the line.")
            if "\\ud" in line.lower():  # only as an escape can half a character stand there
                row = {key: valid_unicode(value) if isinstance(value, str) else value for key, value in row.items()}
            yield place, row


def _table_texts(path: Path, raw: IO[bytes], field: str) -> Iterator[str]:
    rows = table_rows(path, whole_lines(path, raw))
    _, names = next(rows, (0, []))
    if names and field not in names:
        columns = f"Its first line must name the fields, there: {some_names(names)}"
        raise _no_field(path, field, columns)
    for _, row in rows:
        yield row[names.index(field)]


def table_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of its last line, fields) for each row of a .tsv or .csv file, the header first.

    Raises:
        ValueError: a row that is not as wide as the header, or broken quotes.
    """
    csv.field_size_limit(_LONGEST_ROW)  # the module's own limit, 131,072, is less than some documents have
    tabs: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if _ending(path) == ".tsv" else {}
    reader = csv.reader(lines, strict=True, **tabs)
    width = None
    try:
        for row in reader:
            if not row and width is None:  # empty lines before the header
                continue
            width = len(row) if width is None else width
            if len(row) == width:
                yield reader.line_num, row
            elif row:
                raise ValueError(
                    f"{path}, line {reader.line_num}: {len(row)} fields, but the first line names {width}. Mend or "
                    "remove the line."
                )
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {reader.line_num}: no comma-separated values ({error}). Mend the line, or its quotes."
        ) from error


def whole_lines(path: Path, raw: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a table or a JSON-lines file, each with its \\n, however long.

    Raises:
        ValueError: a line of more than 2^27 characters, or as `Files` while it reads.
    """
    pieces: list[str] = []
    for number, (_, text) in enumerate(_lines(_characters(path, raw)), 1):
        pieces.append(text)
        if text.endswith("\n"):
            yield "".join(pieces)
            pieces = []
        elif len(pieces) * PART_CHARACTERS > _LONGEST_ROW:
            raise ValueError(
                f"{path}: a line of more than {_LONGEST_ROW:,} characters after {number - len(pieces):,} others: no "
                "table. Give a file of shorter lines."
            )
    if pieces:
        yield "".join(pieces)


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
    if field not in row:
        raise _no_field(place, field, f"Fields there: {some_names([*row]) or 'none'}")
    value = row[field]
    if value is not None and not isinstance(value, str):
        kind = type(value).__name__
        raise ValueError(f"{place}: field {field!r} is of type {kind}, not text. Name one of text: --field NAME.")
    return value or ""


def some_names(names: Sequence[Any]) -> str:
    """Join the first 20 names of columns in one line, and count the rest."""
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return ", ".join(str(name)[:40] for name in names[:20]) + more


def _no_field(place: str | Path, field: str, known: str) -> ValueError:
    return ValueError(f"{place}: no field {field!r}. {known}. Name the one that holds the text: --field NAME.")


def _parquet_texts(path: Path, raw: IO[bytes], field: str) -> Iterator[str]:
    with tempfile.TemporaryFile() if path.suffix.lower() in _PACKED else nullcontext(raw) as plain:
        if plain is not raw:  # parquet is read from its end, so a packed one is unpacked beside
            for block in _blocks(path, raw):
                plain.write(block)
            plain.seek(0)
        try:
            file = pq.ParquetFile(plain)
            row = 0
            size = path.stat().st_size
            names = file.schema_arrow.names
            if field not in names:
                raise _no_field(path, field, f"Fields there: {some_names(names)}")
            _check_size(path, page_bytes(file.metadata), size)
            unpacked = 0  # also of a text that is there once, and named by many rows
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=[field]):
                for value in batch.column(0).to_pylist():
                    row += 1
                    text = text_field({field: value}, field, f"{path}, row {row}")
                    unpacked += 1 + len(text)
                    _check_size(path, unpacked, size)
                    yield text
        except (pa.ArrowException, OSError) as error:  # it raises the latter for damaged bytes, too
            raise ValueError(
                f"{path} is no readable parquet file ({first_line(error)[:200]}). Get the file again."
            ) from error
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: field {field!r} holds bytes that are not UTF-8 after row {row}. Write it again in UTF-8."
            ) from error
