"""Characters and lines of a file, plain or compressed, in UTF-8 or with a byte-order mark, read as a stream."""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

import zstandard

from ..run.files import unpacking_problem
from .source import PART_CHARACTERS, cut_point

PACKED = (".gz", ".xz", ".zst", ".bz2")
_STREAMS: Mapping[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
}
_CHUNK = 1 << 20
LONGEST_ROW = 1 << 27  # characters of a line of a table
_ZSTD_BLOCK = 2048  # bytes that are unpacked at once: at most some 60 MB of them, as a block of 4 bytes may hold 128 KB
_MARKS = (  # byte-order mark, encoding, decoder; the longer marks first, as UTF-32's begins with UTF-16's
    (codecs.BOM_UTF32_LE, "UTF-32", codecs.utf_32_le_decode),
    (codecs.BOM_UTF32_BE, "UTF-32", codecs.utf_32_be_decode),
    (codecs.BOM_UTF8, "UTF-8", codecs.utf_8_decode),
    (codecs.BOM_UTF16_LE, "UTF-16", codecs.utf_16_le_decode),
    (codecs.BOM_UTF16_BE, "UTF-16", codecs.utf_16_be_decode),
    (b"", "UTF-8", codecs.utf_8_decode),
)
_LONGEST_MARK = 4


def ending_of(path: Path) -> str:
    """Return the ending of a file's name, below the ending of a compression."""
    name = path.name.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    return Path(name).suffix


def blocks(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    """Yield the unpacked bytes of a file, about a megabyte at a time.

    Raises:
        ValueError: it is damaged, or unpacks to more than any text does.
    """
    unpacked = 0
    waiting: list[bytes] = []  # .zst comes in pieces of 128 kB at most
    size = 0
    for block in _unpacked(path, raw):
        unpacked += len(block)
        check_size(path, unpacked, raw.tell())
        waiting.append(block)
        size += len(block)
        if size >= _CHUNK:
            yield b"".join(waiting)
            waiting = []
            size = 0
    if waiting:
        yield b"".join(waiting)


def check_size(path: Path, unpacked: int, packed: int) -> None:
    """Refuse a packed file that unpacks to far more bytes than it has.

    Args:
        unpacked, packed: bytes after and before unpacking.

    Raises:
        ValueError: the file would unpack to far more than any text does.
    """
    if why := unpacking_problem(unpacked, packed):
        raise ValueError(f"{path} {why}. Text never packs so tightly: unpack the file by hand if it is meant.")


def _unpacked(path: Path, raw: IO[bytes]) -> Iterator[bytes]:
    ending = path.suffix.lower()
    try:
        if ending == ".zst":
            yield from _unpack_zstd(raw)
        else:
            stream: Any = _STREAMS[ending](raw) if ending in _STREAMS else raw
            while block := stream.read(_CHUNK):
                yield block
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError, OSError) as error:
        if type(error) is OSError and ending != ".bz2":  # bz2 has no class of its own for damage
            raise
        raise ValueError(f"{path} is damaged or not a {ending} file ({error}). Get the file again.") from error


def _unpack_zstd(raw: IO[bytes]) -> Iterator[bytes]:
    """Unpack by hand, because the library's reader takes a file that was cut off for a whole one."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    is_inside_frame = False
    while block := raw.read(_ZSTD_BLOCK):
        while block:
            is_inside_frame = True
            yield frame.decompress(block)
            block = frame.unused_data
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
                is_inside_frame = False
    if is_inside_frame:
        raise EOFError("it ends inside a frame")


class _Decoder:
    """Bytes to characters in pieces, as the file's first bytes say: UTF-8, or UTF-16 or UTF-32 with its mark."""

    def __init__(self, path: Path, first: bytes) -> None:
        self.path = path
        mark, self.name, self.decode = next(entry for entry in _MARKS if first.startswith(entry[0]))
        self.rest = b""
        self.offset = len(mark)
        for begin, order in ((1, "le"), (0, "be")):
            if not mark and len(first) >= 8 and 2 * first[begin::2].count(0) > len(first) // 2:
                raise ValueError(
                    f"{path} looks like UTF-16 without a byte-order mark: {first.count(0):,} of its first "
                    f"{len(first):,} bytes are zero. Convert it first, e.g. iconv -f utf-16{order} -t utf-8."
                )

    def characters(self, block: bytes, final: bool = False) -> str:
        """Decode the next bytes.

        Raises:
            ValueError: they are no characters, or the last one is not whole at the end.
        """
        data = self.rest + block
        try:
            text, used = self.decode(data, "strict", False)
        except UnicodeDecodeError as error:
            raise self._wrong(self.offset + error.start, data[error.start]) from error
        self.rest = data[used:]
        self.offset += used
        if final and self.rest:
            raise self._wrong(self.offset, self.rest[0])
        return text

    def _wrong(self, at: int, byte: int) -> ValueError:
        advice = "Convert it: iconv -f ITS-ENCODING -t utf-8." if self.name == "UTF-8" else "Get the file again."
        return ValueError(f"{self.path} is not {self.name}: byte 0x{byte:02x} at offset {at} of the text. {advice}")


def characters(path: Path, raw: IO[bytes]) -> Iterator[str]:
    """Yield the text of a file in pieces, line ends as \\n, without a byte-order mark.

    Raises:
        ValueError: bytes that are not of the encoding that the mark names, without one of UTF-8, or a damaged file.
    """
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    read = blocks(path, raw)
    first = b""
    for block in read:
        first += block
        if len(first) >= _LONGEST_MARK:
            break
    mark = next(len(entry[0]) for entry in _MARKS if first.startswith(entry[0]))
    decoder = _Decoder(path, first)
    for block in chain([first[mark:]], read):
        yield newlines.decode(decoder.characters(block))
    yield newlines.decode(decoder.characters(b"", final=True), final=True)


def lines_of(chunks: Iterator[str]) -> Iterator[tuple[bool, str]]:
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


def whole_lines(path: Path, raw: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a file of rows, each with its \\n, however long.

    Raises:
        ValueError: as `joined_lines` and `characters`.
    """
    return joined_lines(path, characters(path, raw))


def joined_lines(path: Path, chunks: Iterator[str]) -> Iterator[str]:
    """Yield the lines of chunks of text, each with its \\n.

    Raises:
        ValueError: a line of more than 2^27 characters.
    """
    pieces: list[str] = []
    for number, (_, text) in enumerate(lines_of(chunks), 1):
        pieces.append(text)
        if text.endswith("\n"):
            yield "".join(pieces)
            pieces = []
        elif len(pieces) * PART_CHARACTERS > LONGEST_ROW:
            raise ValueError(
                f"{path}: a line of more than {LONGEST_ROW:,} characters after {number - len(pieces):,} others: no "
                "table. Give a file of shorter lines."
            )
    if pieces:
        yield "".join(pieces)
