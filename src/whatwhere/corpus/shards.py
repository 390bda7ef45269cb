"""One shard of text to rows of token ids on disk: tokenise, mark segments, split by document, lay the rows out, write.

Everything here may run in a worker process.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..files import write_array, write_json
from .segments import DOCUMENT, SEGMENT, SPECIAL, segment_starts

SPLITS = ("train", "held_out")
JOINS = ("run-on", "none", "isolate")
SHARD_CHARACTERS = 2_000_000  # of text in a shard
SHORTEST = 8  # a remainder of a cut document with fewer tokens is left out
_BATCH = 262_144  # characters per call of the tokenizer: its offsets take some hundred bytes a token


@dataclass(frozen=True)
class Part:
    """A document, or the next piece of one that is too long to hold at once."""

    text: str
    first: bool  # opens a document
    share: float  # hash of the document's beginning in [0, 1): decides its split


@dataclass
class Rows:
    """Rows of one split: ids and marks (t,) end to end; row i is starts[i]:starts[i + 1]."""

    ids: np.ndarray
    marks: np.ndarray
    starts: np.ndarray
    documents: int = 0
    characters: int = 0
    tokens: int = 0  # of the text, special tokens not counted
    left_out: int = 0


def document_share(text: str) -> float:
    """A number in [0, 1) from the text alone: equal documents get equal numbers, hence the same split."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=7).digest(), "big") / 2**56


def encode_parts(tokenizer: Tokenizer, parts: Sequence[Part]) -> list[tuple[np.ndarray, np.ndarray]]:
    """ids and marks of each part; special tokens written in the text are read as plain text."""
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    out = []
    at = 0
    while at < len(parts):
        size, end = 0, at
        while end < len(parts) and (end == at or size + len(parts[end].text) <= _BATCH):
            size += len(parts[end].text)
            end += 1
        batch = [part.text for part in parts[at:end]]
        for text, encoding in zip(batch, tokenizer.encode_batch(batch, add_special_tokens=False), strict=True):
            ids = np.array(encoding.ids, dtype=np.uint32)
            marks = np.zeros(len(ids), np.uint8)
            if len(ids):
                begin = np.array(encoding.offsets, dtype=np.int64)[:, 0]
                segment = np.searchsorted(segment_starts(text), begin, side="right")
                marks[0] = SEGMENT
                marks[1:][np.diff(segment) != 0] = SEGMENT
            out.append((ids, marks))
        at = end
    return out


def build_rows(
    tokenizer: Tokenizer, parts: Sequence[Part], length: int, join: str, threshold: float, cls_id: int, sep_id: int
) -> dict[str, Rows]:
    """The rows of both splits of one shard; a document goes to "held_out" if its share is below `threshold`."""
    encoded = encode_parts(tokenizer, parts)
    result = {}
    lay_out = {"run-on": _run_on, "none": _pieces, "isolate": _isolate}[join]
    for split in SPLITS:
        chosen = [i for i, part in enumerate(parts) if (part.share < threshold) == (split == "held_out")]
        ids, marks, starts, left_out = lay_out(
            [encoded[i] for i in chosen], [parts[i].first for i in chosen], length, cls_id, sep_id
        )
        result[split] = Rows(
            ids,
            marks,
            starts,
            documents=sum(parts[i].first for i in chosen),
            characters=sum(len(parts[i].text) for i in chosen),
            tokens=sum(len(encoded[i][0]) for i in chosen),
            left_out=left_out,
        )
    return result


Layout = tuple[np.ndarray, np.ndarray, np.ndarray, int]
Encoded = Sequence[tuple[np.ndarray, np.ndarray]]


def _run_on(encoded: Encoded, first: Sequence[bool], length: int, cls_id: int, sep_id: int) -> Layout:
    """[CLS] text [SEP] text ... [SEP]: full rows; a separator that would open a row is left out."""
    separator = np.array([sep_id], np.uint32), np.array([SPECIAL], np.uint8)
    stream: list[tuple[np.ndarray, np.ndarray]] = []
    for (ids, marks), opens in zip(encoded, first, strict=True):
        if not len(ids):
            continue
        if opens and stream:
            stream.append(separator)
        if opens:
            marks = marks.copy()
            marks[0] |= DOCUMENT
        stream.append((ids, marks))
    if not stream:
        return _nothing()
    ids = np.concatenate([i for i, _ in stream])
    marks = np.concatenate([m for _, m in stream])
    begin, at, room = [], 0, length - 2
    while at < len(ids):
        at += int(marks[at] & SPECIAL)
        begin.append(at)
        at += room
    ends = np.minimum(np.array(begin) + room, len(ids))
    return _frame([(ids[b:e], marks[b:e]) for b, e in zip(begin, ends, strict=True)], cls_id, sep_id, 0)


def _cut(encoded: Encoded, first: Sequence[bool], room: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
    """Pieces of at most `room` tokens of one document each, and the number of tokens in the remainders that were left
    out."""
    pieces, left_out = [], 0
    for (ids, marks), opens in zip(encoded, first, strict=True):
        for at in range(0, len(ids), room):
            piece = ids[at : at + room], marks[at : at + room]
            if len(piece[0]) < SHORTEST and (at or not opens):
                left_out += len(piece[0])
            else:
                pieces.append(piece)
    return pieces, left_out


def _pieces(encoded: Encoded, first: Sequence[bool], length: int, cls_id: int, sep_id: int) -> Layout:
    """[CLS] piece [SEP], each of one document."""
    pieces, left_out = _cut(encoded, first, length - 2)
    return _frame(pieces, cls_id, sep_id, left_out)


def _isolate(encoded: Encoded, first: Sequence[bool], length: int, cls_id: int, sep_id: int) -> Layout:
    """[CLS] piece [SEP] [CLS] piece [SEP] ...: a row takes the next piece as long as it fits."""
    pieces, left_out = _cut(encoded, first, length - 2)
    ids, marks, starts, _ = _frame(pieces, cls_id, sep_id, left_out)
    marks[starts[:-1]] |= DOCUMENT
    rows = [0]
    for begin, end in zip(starts[:-1], starts[1:], strict=True):
        if end - rows[-1] > length:
            rows.append(int(begin))
    if len(ids):
        rows.append(len(ids))
    return ids, marks, np.array(rows, np.int64), left_out


def _frame(pieces: list[tuple[np.ndarray, np.ndarray]], cls_id: int, sep_id: int, left_out: int) -> Layout:
    """[CLS] before and [SEP] after each piece, end to end."""
    if not pieces:
        return _nothing()[:3] + (left_out,)
    starts = np.concatenate([[0], np.cumsum([len(i) + 2 for i, _ in pieces])]).astype(np.int64)
    ids = np.empty(starts[-1], np.uint32)
    marks = np.full(starts[-1], SPECIAL, np.uint8)
    inside = np.ones(starts[-1], bool)
    inside[starts[:-1]] = inside[starts[1:] - 1] = False
    ids[starts[:-1]], ids[starts[1:] - 1] = cls_id, sep_id
    ids[inside] = np.concatenate([i for i, _ in pieces])
    marks[inside] = np.concatenate([m for _, m in pieces])
    return ids, marks, starts, left_out


def _nothing() -> Layout:
    return np.empty(0, np.uint32), np.empty(0, np.uint8), np.zeros(1, np.int64), 0


@dataclass(frozen=True)
class Job:
    """How the rows of a shard are made, and where they go."""

    folder: str
    number: int
    length: int
    join: str
    threshold: float
    cls_id: int
    sep_id: int
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.number:05d}"

    def digest(self, parts: Sequence[Part]) -> str:
        """Hash of all that decides the rows (the tokenizer apart, which a folder of windows has only one of)."""
        digest = hashlib.sha256(
            repr((self.length, self.join, self.threshold, self.cls_id, self.sep_id, self.dtype)).encode()
        )
        for part in parts:
            text = part.text.encode("utf-8")
            digest.update(f"\0{len(text)} {part.first}\0".encode())
            digest.update(text)
        return digest.hexdigest()


def write_shard(tokenizer: Tokenizer, job: Job, parts: Sequence[Part], digest: str) -> dict[str, Any]:
    """Builds one shard and writes it; its description is written last, so a shard that has one is whole."""
    rows = build_rows(tokenizer, parts, job.length, job.join, job.threshold, job.cls_id, job.sep_id)
    folder = Path(job.folder)
    sizes = {}
    for split, row in rows.items():
        if len(row.starts) > 1:
            arrays = {"ids": row.ids.astype(job.dtype), "marks": row.marks, "starts": row.starts}
            for part, array in arrays.items():
                path = folder / f"{job.name}.{split}.{part}.npy"
                write_array(path, array)
                sizes[path.name] = path.stat().st_size
    description = {
        "name": job.name,
        "digest": digest,
        "files": sizes,
        "least_share": min(part.share for part in parts),
        "windows": {split: len(row.starts) - 1 for split, row in rows.items()},
        **{
            key: {split: int(getattr(row, key)) for split, row in rows.items()}
            for key in ("documents", "characters", "tokens", "left_out")
        },
    }
    write_json(folder / f"{job.name}.json", description)
    return description


def finished_shard(job: Job, digest: str) -> dict[str, Any] | None:
    """The description of a shard that is on disk whole, made from the same text with the same settings; else None."""
    path = Path(job.folder) / f"{job.name}.json"
    try:
        description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        whole = all((path.parent / name).stat().st_size == size for name, size in description["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return description if whole and description.get("digest") == digest else None
