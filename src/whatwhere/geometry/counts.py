"""Sparse counts of tokens at positions, made in a stream, summed over parts of a corpus, and stored in a file (GEOM
algorithm 1, line 3, before the division).

Special tokens are neither counted nor positions: position i is the i-th token of the text, from 0.
"""

import json
import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from mmap import ACCESS_COPY, mmap
from operator import add
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from ..run.files import name_in_errors, open_arrays, write_array, write_arrays

ALIGNMENTS = ("start", "relative")
FORMAT = "whatwhere-counts-1"
_CHUNK = 1 << 20  # tokens that are sorted at once, some forty bytes each
_HELD = 1 << 21  # non-zeros of a sum that is made in memory, 12 bytes each; a larger one is made in files
_STORED: dict[str, np.dtype[Any]] = {"data": np.dtype(np.int64), "indices": np.dtype(np.int32)}  # of a csr_array
_INDPTR = "indptr.npy"
T = TypeVar("T")


class Tally:
    """Running sum of token counts over rows of token ids, with the options of `positional_counts`.

    Each token becomes one number, (group * n + position) * V + id. Numbers are sorted a million at a time (numpy sorts
    unsigned integers faster than they can be scattered into a table of that size), runs of equal ones become a sparse
    matrix, and matrices of about the same size are added, as a binary counter carries. Large sums are made in temporary
    files, so memory holds the chunk and a few times `_HELD` non-zeros, however many there are; disk, under TMPDIR,
    up to three times the result.

    Raises:
        ValueError: a size below 1, an unknown `align`, or a special id outside the vocabulary.
    """

    def __init__(
        self, vocab_size: int, max_positions: int, special_ids: Collection[int], align: str, n_groups: int
    ) -> None:
        for name, value in (("vocab_size", vocab_size), ("max_positions", max_positions), ("n_groups", n_groups)):
            if value < 1:
                raise ValueError(f"{name}={value} is too small. Give 1 or more.")
        if align not in ALIGNMENTS:
            raise ValueError(f"align={align!r} is unknown. Give one of {', '.join(ALIGNMENTS)}.")
        if strange := [i for i in special_ids if not 0 <= i < vocab_size]:
            raise ValueError(
                f"special_ids has {strange[0]}, but ids run from 0 to {vocab_size - 1} (vocab_size={vocab_size}). "
                "Give ids of that range."
            )
        self.vocab_size = vocab_size
        self.positions = max_positions
        self.n_groups = n_groups
        self.align = align
        self.ordinary = np.ones(vocab_size, bool)
        self.ordinary[list(special_ids)] = False
        rows = n_groups * max_positions
        self._key = np.dtype(np.uint32 if rows * vocab_size < 2**32 else np.uint64)
        self._row_starts = np.arange(rows + 1, dtype=self._key) * self._key.type(vocab_size)
        self._keys: list[np.ndarray] = []
        self._key_count = 0
        self._sums: list[csr_array | StoredCounts] = []

    def add(self, ids: np.ndarray, starts: np.ndarray, groups: np.ndarray | int = 0) -> None:
        """Count the rows ids[starts[i]:starts[i + 1]]; `groups` is the group of each row, (rows,), or of all rows.

        ids: (tokens,) whole numbers. starts: (rows + 1,).

        Raises:
            ValueError: an id or a group out of range.
        """
        groups = np.broadcast_to(groups, len(starts) - 1)
        if len(groups) and not 0 <= groups.min() <= groups.max() < self.n_groups:
            raise ValueError(
                f"groups run from {groups.min()} to {groups.max()}, but n_groups={self.n_groups}: 0 to "
                f"{self.n_groups - 1}. Give n_groups above the highest group."
            )
        begin = 0
        while begin < len(groups):  # as many whole rows as make a chunk, at least one
            end = max(begin + 1, int(np.searchsorted(starts, starts[begin] + _CHUNK, side="right")) - 1)
            keys = self._keys_of(ids[starts[begin] : starts[end]], starts[begin : end + 1], groups[begin:end])
            self._keys.append(keys)
            self._key_count += len(keys)
            if self._key_count >= _CHUNK:
                self._flush()
            begin = end

    def add_counts(self, matrix: csr_array) -> None:
        """Add counts, csr_array (n_groups * max_positions, vocab_size)."""
        total: csr_array | StoredCounts = matrix
        while self._sums and self._sums[-1].nnz <= 2 * total.nnz:
            total = _sum(self._sums.pop(), total)
        self._sums.append(total)

    def total(self) -> csr_array:
        """Return the counts so far, (n_groups * max_positions, vocab_size) int64; large ones are mapped from a file."""
        self._flush()
        nothing = csr_array((len(self._row_starts) - 1, self.vocab_size), dtype=np.int64)
        total = reduce(_sum, reversed(self._sums or [nothing]))
        self._sums = [total]
        return total.mapped() if isinstance(total, StoredCounts) else total

    def _keys_of(self, ids: np.ndarray, starts: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Return one number for each token that counts."""
        if len(ids) and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            wrong = int(ids.min() if ids.min() < 0 else ids.max())
            raise ValueError(
                f"Token id {wrong}, but ids run from 0 to {self.vocab_size - 1}. Use the tokenizer that made the "
                "windows."
            )
        bounds = starts - starts[0]
        if not self.ordinary.all():
            counts = np.take(self.ordinary, ids)
            ids = np.compress(counts, ids)
            bounds = np.concatenate([[0], np.cumsum(counts)])[bounds]
        lengths = np.diff(bounds)
        first_row = groups.astype(np.int64) * self.positions
        if self.align == "start":
            row = np.arange(len(ids)) + np.repeat(first_row - bounds[:-1], lengths)
            if len(lengths) and lengths.max() > self.positions:
                inside = row < np.repeat(first_row + self.positions, lengths)
                row = np.compress(inside, row)
                ids = np.compress(inside, ids)
        else:
            place = np.arange(len(ids)) - np.repeat(bounds[:-1], lengths)
            row = place * self.positions // np.repeat(lengths, lengths) + np.repeat(first_row, lengths)
        return row.astype(self._key) * self._key.type(self.vocab_size) + ids.astype(self._key)

    def _flush(self) -> None:
        if self._key_count:
            keys = np.sort(np.concatenate(self._keys))
            first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
            values = np.diff(first, append=len(keys))
            keys = keys[first]
            indptr = np.searchsorted(keys, self._row_starts)
            columns = (keys - np.repeat(self._row_starts[:-1], np.diff(indptr))).astype(np.int32)
            shape = len(self._row_starts) - 1, self.vocab_size
            self.add_counts(csr_array((values, columns, indptr.astype(np.int32)), shape=shape))
        self._keys = []
        self._key_count = 0


class StoredCounts:
    """Sparse counts whose numbers stand in files, which are open.

    shape: (rows, V). nnz: non-zeros. indptr: (rows + 1,) int64, as of a csr_array.
    """

    def __init__(self, files: Sequence[IO[bytes]], indptr: np.ndarray, vocab_size: int) -> None:
        """files: the files of _STORED, open. indptr: as of a csr_array."""
        self.files = files
        for file in files:
            weakref.finalize(self, file.close)
        self.indptr = indptr
        self.nnz = int(indptr[-1])
        self.shape = len(indptr) - 1, vocab_size

    @classmethod
    def in_temporary_files(cls, blocks: Iterable[csr_array], vocab_size: int) -> "StoredCounts":
        """Write counts, some rows in each block, to temporary files without a name."""
        with name_in_errors(Path(gettempdir())):
            files: list[IO[bytes]] = [TemporaryFile() for _ in _STORED]
            indptr = _put_blocks(files, blocks)
            for file in files:
                file.flush()
        return cls(files, indptr, vocab_size)

    @classmethod
    def open(cls, folder: Path, vocab_size: int) -> "StoredCounts":
        """Open the counts that `write_counts` left in a folder; they may be read while the folder is there.

        Raises:
            ValueError: a file is missing or not as long as it was written.
        """
        try:
            indptr = np.load(folder / _INDPTR)
            files = [(folder / name).open("rb") for name in _STORED]
        except OSError as error:
            raise ValueError(f"Counts in {folder} are gone ({error.strerror}). Run the command again.") from None
        stored = cls(files, indptr, vocab_size)
        for file, dtype in zip(files, _STORED.values(), strict=True):
            if os.fstat(file.fileno()).st_size != stored.nnz * dtype.itemsize:
                stored.close()
                raise ValueError(f"{file.name} is not as long as it was written. Run the command again.")
        return stored

    def close(self) -> None:
        """Close the files, so that their folder can be removed wherever it is."""
        for file in self.files:
            file.close()

    def __getitem__(self, rows: slice) -> csr_array:
        """Read some rows into memory: pages of a map would stay there until others need the room."""
        indptr = self.indptr[rows.start : rows.stop + 1]
        arrays = []
        for file, dtype in zip(self.files, _STORED.values(), strict=True):
            file.seek(int(indptr[0]) * dtype.itemsize)
            arrays.append(np.frombuffer(file.read(int(indptr[-1] - indptr[0]) * dtype.itemsize), dtype))
        return csr_array((*arrays, (indptr - indptr[0]).astype(np.int32)), shape=(len(indptr) - 1, self.shape[1]))

    def copied(self) -> csr_array:
        """Return the counts so that the files are not needed any more: a few in memory, many from temporary files."""
        if self.nnz <= _HELD:
            return self[0 : self.shape[0]].copy()
        blocks = (self[begin:end] for begin, end in _blocks_of_rows(self.indptr))
        return StoredCounts.in_temporary_files(blocks, self.shape[1]).mapped()

    def mapped(self) -> csr_array:
        """Return all counts mapped from the files; the process may write to its copy."""
        arrays = []
        for file, dtype in zip(self.files, _STORED.values(), strict=True):
            arrays.append(np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_COPY), dtype))
        # scipy needs both index arrays of one type, and would copy the mapped one to convert it.
        indptr = self.indptr.astype(np.int32 if self.nnz < 2**31 else np.int64)
        return csr_array((*arrays, indptr), shape=self.shape)


def write_counts(folder: Path, blocks: Iterable[csr_array]) -> int:
    """Write counts, in blocks (some rows, vocabulary), to files of a folder, and return how many non-zeros they have.

    Raises:
        OSError: the disk is full or not writable.
    """
    # Files are closed before anyone is told: a full disk may show only there.
    with name_in_errors(folder), ExitStack() as stack:
        indptr = _put_blocks([stack.enter_context((folder / name).open("wb")) for name in _STORED], blocks)
    write_array(folder / _INDPTR, indptr)
    return int(indptr[-1])


def _put_blocks(files: Sequence[IO[bytes]], blocks: Iterable[csr_array]) -> np.ndarray:
    """Write the numbers of blocks of rows to files, and return the `indptr` (rows + 1,) of all of them."""
    lengths = [np.zeros(1, np.int64)]
    for block in blocks:
        for file, (name, dtype) in zip(files, _STORED.items(), strict=True):
            file.write(getattr(block, name).astype(dtype, copy=False).data)
        lengths.append(np.diff(block.indptr))
    return np.cumsum(np.concatenate(lengths), dtype=np.int64)


def sums_of_blocks(a: csr_array | StoredCounts, b: csr_array | StoredCounts) -> Iterator[csr_array]:
    """Yield the sum of counts of one shape in blocks of rows that hold few numbers each."""
    for begin, end in _blocks_of_rows(a.indptr.astype(np.int64) + b.indptr):
        yield a[begin:end] + b[begin:end]


def _sum(a: csr_array | StoredCounts, b: csr_array | StoredCounts) -> csr_array | StoredCounts:
    """Add two counts; a large sum goes block by block of rows into temporary files."""
    if isinstance(a, csr_array) and isinstance(b, csr_array) and a.nnz + b.nnz <= _HELD:
        return a + b
    return StoredCounts.in_temporary_files(sums_of_blocks(a, b), a.shape[1])


def _blocks_of_rows(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first row and end of blocks of rows that hold few numbers each; ends: (rows + 1,) of the numbers."""
    steps = np.arange(0, ends[-1], _HELD // 8)  # a block is held three times: of both, and their sum
    yield from pairwise(np.unique([0, *np.searchsorted(ends, steps), len(ends) - 1]).tolist())


def positional_counts(
    windows: np.ndarray | tuple[np.ndarray, np.ndarray] | Iterable[np.ndarray],
    vocab_size: int,
    max_positions: int,
    *,
    special_ids: Collection[int] = (),
    align: str = "start",
    groups: np.ndarray | None = None,
    n_groups: int = 1,
) -> csr_array:
    """Count how often each token stands at each position: int64, shape (n_groups * max_positions, vocab_size).

    Counts of parts of a corpus add up to the counts of the whole. Memory grows with the non-zeros, not with the rows.

    Args:
        windows: rows of token ids: an array (rows, length); or a pair (ids, starts), row i being ids[starts[i]:starts[i
            + 1]], as the shards of a corpus are; or an iterable of 1-D arrays. Arrays may be memory-mapped.
        special_ids: ids that are passed over: they are not counted and take no position.
        align: "start": position i is the i-th token of the row, tokens from max_positions on are left out. "relative":
            place i of `length` tokens is position floor(i / length * max_positions), so every row reaches from the
            first position to the last.
        groups: (rows,) the group of each row, 0 to n_groups - 1; its position i is row group * max_positions + i.

    Raises:
        ValueError: an id, a group or an option out of range, rows that are no integers, not a group for each row.
    """
    tally = Tally(vocab_size, max_positions, special_ids, align, n_groups)
    done = 0
    for ids, starts in _blocks(windows):
        rows = len(starts) - 1
        if groups is not None and len(groups) < done + rows:
            raise ValueError(
                f"groups has {len(groups)} entries, but there are more rows than that. Give one for each row."
            )
        tally.add(ids, starts, 0 if groups is None else np.asarray(groups[done : done + rows]))
        done += rows
    if groups is not None and len(groups) != done:
        raise ValueError(f"groups has {len(groups)} entries for {done} rows. Give one for each row.")
    return tally.total()


def _blocks(windows: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows end to end, with the start of each and the end of the last."""
    if isinstance(windows, np.ndarray):
        if windows.ndim != 2:
            raise ValueError(f"windows has shape {windows.shape}. Give an array of two dimensions, (rows, length).")
        rows, length = windows.shape
        step = max(1, _CHUNK // max(length, 1))
        for at in range(0, rows, step):
            block = windows[at : at + step]
            yield _whole_numbers(block).reshape(-1), np.arange(len(block) + 1) * length
    elif isinstance(windows, tuple) and len(windows) == 2:
        ids = _whole_numbers(windows[0])
        starts = np.asarray(windows[1], dtype=np.int64)
        inside = ids.ndim == starts.ndim == 1 and len(starts) and 0 <= starts[0] and starts[-1] <= len(ids)
        if not inside or (np.diff(starts) < 0).any():
            raise ValueError(
                f"starts must rise from 0 to at most {ids.size}, the number of ids. Give row i as "
                "ids[starts[i]:starts[i + 1]]."
            )
        yield ids, starts
    else:
        for rows_of_chunk in in_lists((_whole_numbers(row).reshape(-1) for row in windows), _CHUNK):
            starts = np.concatenate([[0], np.cumsum([len(row) for row in rows_of_chunk])])
            yield np.concatenate(rows_of_chunk), starts


def in_lists(things: Iterable[T], size: int, length: Callable[[Any], int] = len) -> Iterator[list[T]]:
    """Yield lists of things, each list as soon as its things have a total length of `size`."""
    chunk: list[T] = []
    total = 0
    for thing in things:
        chunk.append(thing)
        total += length(thing)
        if total >= size:
            yield chunk
            chunk = []
            total = 0
    if chunk:
        yield chunk


def _whole_numbers(ids: Any) -> np.ndarray:
    ids = np.asanyarray(ids)
    if ids.dtype.kind not in "iu" and ids.size:
        raise ValueError(f"Token ids are whole numbers; got {ids.dtype}.")
    return ids if ids.dtype.kind in "iu" else ids.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of a corpus by position, separate for groups of its documents, which intervals resample.

    matrix: csr_array (G * n, V) int64, row g * n + i the tokens at position i in the documents of group g. positions:
        n. groups: G.
    documents: (G,) int64 documents (or rows) of each group. align: see `positional_counts`.
    facts: origin of the counts, plain JSON values: corpora (a list of name and fingerprint), tokenizer_sha256,
        special_ids.

    Raises:
        ValueError: the matrix or `documents` do not fit n positions and G groups.
    """

    matrix: csr_array
    positions: int
    groups: int
    documents: np.ndarray
    align: str = "start"
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.matrix.shape[0] != self.positions * self.groups or self.documents.shape != (self.groups,):
            raise ValueError(
                f"A matrix of {self.matrix.shape[0]} rows and documents of shape {self.documents.shape} "
                f"do not belong to {self.groups} groups of {self.positions} positions. Give "
                f"{self.positions * self.groups} rows, and documents of shape ({self.groups},)."
            )

    @property
    def tokens(self) -> int:
        """Number of tokens that were counted."""
        return int(self.matrix.sum())

    def total(self) -> csr_array:
        """Return the counts of all groups together, (n, V)."""
        return self.of(range(self.groups))

    def group(self, g: int) -> csr_array:
        """Return the counts of one group, (n, V).

        Raises:
            ValueError: the group does not exist.
        """
        if not 0 <= g < self.groups:
            raise ValueError(f"No group {g}. Choose one of the groups 0 to {self.groups - 1}.")
        return self.matrix[g * self.positions : (g + 1) * self.positions]

    def of(self, groups: Iterable[int]) -> csr_array:
        """Return the counts of some groups together, (n, V); a group that is named twice counts twice.

        Raises:
            ValueError: there is no such group.
        """
        parts = [self.group(g) for g in groups]
        while len(parts) > 1:  # in pairs: each number is added log2(groups) times
            parts = [reduce(add, parts[i : i + 2]) for i in range(0, len(parts), 2)]
        return parts[0] if parts else csr_array((self.positions, self.matrix.shape[1]), dtype=np.int64)

    def __add__(self, other: "Counts") -> "Counts":
        """Add counts of two corpora, or of two parts of one, group by group.

        Raises:
            ValueError: other positions, groups, vocabulary, alignment, tokenizer or special tokens.
        """
        for key in ("positions", "groups", "vocabulary", "align", "tokenizer_sha256", "special_ids"):
            first, second = (
                c.matrix.shape[1] if key == "vocabulary" else getattr(c, key, c.facts.get(key)) for c in (self, other)
            )
            if first != second:
                raise ValueError(
                    f"Counts of {key}={first!r} and {key}={second!r} do not add up. Count both in the same way."
                )
        corpora = [*self.facts.get("corpora", []), *other.facts.get("corpora", [])]
        matrix = self.matrix + other.matrix
        documents = self.documents + other.documents
        return replace(self, matrix=matrix, documents=documents, facts={**self.facts, "corpora": corpora})

    def save(self, path: str | Path) -> None:
        """Write the counts to an .npz file."""
        about = {"format": FORMAT, **{name: getattr(self, name) for name in ("positions", "groups", "align", "facts")}}
        arrays = {name: getattr(self.matrix, name) for name in ("data", "indices", "indptr", "shape")}
        write_arrays(path, {"about": json.dumps(about), "documents": self.documents, **arrays})

    @classmethod
    def load(cls, path: str | Path) -> "Counts":
        """Read counts from a file that `save` wrote.

        Raises:
            ValueError: no such file, a damaged or foreign one, or one of another version.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"No counts at {path}. Make them with `whatwhere geometry`.")
        with open_arrays(path, "Delete it; the same command counts again.") as file:
            about = json.loads(str(file["about"]))
            parts = {name: file[name] for name in ("data", "indices", "indptr", "shape", "documents")}
            matrix = csr_array((parts["data"], parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
            matrix.check_format(full_check=True)
        if about.get("format") != FORMAT:
            raise ValueError(
                f"{path} has format {about.get('format')!r}, this version reads {FORMAT!r}. Count the corpus again."
            )
        return cls(matrix, about["positions"], about["groups"], parts["documents"], about["align"], about["facts"])
