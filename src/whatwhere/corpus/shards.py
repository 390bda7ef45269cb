"""One shard of text to rows of token ids on disk: tokenise, mark segments, split by document, lay the rows out, write.

Everything here may run in a worker process.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..geometry.counts import in_lists
from ..run.files import sha256, write_array
from .segments import DOCUMENT, PIECE, SEGMENT, SPECIAL, segment_starts

SPLITS = ("train", "held_out")
JOINS = ("run-on", "none", "isolate")
PIECES = ("first", "all")  # of a document, where documents do not run on
SHARD_CHARACTERS = 2_000_000  # of text in a shard
SHORTEST = 8  # a remainder of a cut document with fewer tokens is left out
_BATCH = 262_144  # characters per call of the tokenizer: its offsets take some hundred bytes a token

Tokens = tuple[np.ndarray, np.ndarray]  # ids and marks
Hashes = dict[str, str]  # name of a file -> SHA-256


@dataclass(frozen=True)
class Part:
    """A document, or the next piece of one that is too long to hold at once."""

    text: str
    first: bool  # opens a document
    share: float  # hash of the document's beginning in [0, 1): decides its split


@dataclass
class Rows:
    """Rows of one split: ids (t,) uint32 and marks (t,) uint8 end to end; row i is starts[i]:starts[i + 1]."""

    ids: np.ndarray
    marks: np.ndarray
    starts: np.ndarray
    documents: int
    characters: int
    tokens: int  # of the text, special tokens not counted
    left_out: int


def document_share(text: str) -> float:
    """Return a number in [0, 1) from the text alone: equal documents get equal numbers, hence the same split."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=7).digest(), "big") / 2**56


def plain(tokenizer: Tokenizer) -> Tokenizer:
    """Set `tokenizer` to read special tokens in a text as plain text, and to cut and pad nothing; return it."""
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode_parts(tokenizer: Tokenizer, parts: Sequence[Part]) -> list[Tokens]:
    """Encode each part as ids and marks; special tokens written in the text are read as plain text.

    Of each part: ids (t,) uint32 and marks (t,) uint8, the bits of `segments`.
    """
    out = []
    for batch in in_lists([part.text for part in parts], _BATCH):
        for text, encoding in zip(batch, plain(tokenizer).encode_batch(batch, add_special_tokens=False), strict=True):
            ids = np.array(encoding.ids, dtype=np.uint32)
            marks = np.zeros(len(ids), np.uint8)
            if len(ids):
                offsets = np.array(encoding.offsets, dtype=np.int64)
                # Of a token that includes the space before its word (byte-level BPE), the word's last character counts.
                begin = np.maximum(offsets[:, 0], offsets[:, 1] - 1)
                segment = np.searchsorted(segment_starts(text), begin, side="right")
                marks[0] = SEGMENT
                marks[1:][np.diff(segment) != 0] = SEGMENT
            out.append((ids, marks))
    return out


def build_rows(
    tokenizer: Tokenizer,
    parts: Sequence[Part],
    length: int,
    join: str,
    threshold: float,
    cls_id: int,
    sep_id: int,
    pieces: str = "all",
) -> dict[str, Rows]:
    """Lay out the rows of both splits of one shard; a document whose share is below `threshold` is held out.

    pieces: "first" keeps the beginning of each document alone, as a tokenizer that truncates does (DSTG's code).

    Returns `Rows` of "train" and "held_out".
    """
    encoded = encode_parts(tokenizer, parts)
    result = {}
    for split in SPLITS:
        chosen = [i for i, part in enumerate(parts) if (part.share < threshold) == (split == "held_out")]
        tokens = [encoded[i] for i in chosen]
        opens = [parts[i].first for i in chosen]
        left_out = 0
        if join == "run-on":
            laid = _run_on(tokens, opens, length - 2, sep_id)
        else:
            laid, left_out = _pieces(tokens, opens, length - 2, first_only=pieces == "first")
        ids, marks, starts = _frame(laid, cls_id, sep_id)
        if join == "isolate":
            marks[starts[:-1]] |= PIECE
            starts = _packed(starts, length)
        characters = sum(len(parts[i].text) for i in chosen)
        result[split] = Rows(ids, marks, starts, sum(opens), characters, sum(len(i) for i, _ in tokens), left_out)
    return result


def _run_on(encoded: Sequence[Tokens], first: Sequence[bool], room: int, sep_id: int) -> list[Tokens]:
    """text [SEP] text ... in pieces of `room` tokens; a separator that would open a piece is left out."""
    separator = np.array([sep_id], np.uint32), np.array([SPECIAL], np.uint8)
    stream: list[Tokens] = []
    for (ids, marks), opens in zip(encoded, first, strict=True):
        if not len(ids):
            continue
        if opens:
            stream += [separator] if stream else []
            marks = marks.copy()
            marks[0] |= DOCUMENT
        stream.append((ids, marks))
    if not stream:
        return []
    ids, marks = (np.concatenate(arrays) for arrays in zip(*stream, strict=True))
    pieces = []
    at = 0
    while at < len(ids):
        at += int(marks[at] & SPECIAL)
        pieces.append((ids[at : at + room], marks[at : at + room]))
        at += room
    return pieces


def _pieces(encoded: Sequence[Tokens], first: Sequence[bool], room: int, first_only: bool) -> tuple[list[Tokens], int]:
    """Cut documents into pieces of at most `room` tokens; return them, and how many tokens were left out."""
    pieces = []
    left_out = 0
    for (ids, marks), opens in zip(encoded, first, strict=True):
        if opens and len(ids):
            marks = marks.copy()
            marks[0] |= DOCUMENT
        for at in range(0, len(ids), room):
            piece = ids[at : at + room], marks[at : at + room]
            begins = opens and not at
            if not begins and (first_only or len(piece[0]) < min(SHORTEST, room)):
                left_out += len(piece[0])
            else:
                pieces.append(piece)
    return pieces, left_out


def _frame(pieces: list[Tokens], cls_id: int, sep_id: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ids, marks and starts of [CLS] piece [SEP], end to end."""
    starts = np.cumsum([0, *(len(i) + 2 for i, _ in pieces)], dtype=np.int64)
    ids = np.empty(starts[-1], np.uint32)
    marks = np.full(starts[-1], SPECIAL, np.uint8)
    inside = np.ones(starts[-1], bool)
    inside[starts[:-1]] = False
    inside[starts[1:] - 1] = False
    ids[starts[:-1]] = cls_id
    ids[starts[1:] - 1] = sep_id
    if pieces:
        ids[inside], marks[inside] = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return ids, marks, starts


def _packed(starts: np.ndarray, length: int) -> np.ndarray:
    """Starts of rows of framed pieces: a row takes the next piece as long as it fits."""
    rows = [0]
    for begin, end in pairwise(starts):
        if end - rows[-1] > length:
            rows.append(begin)
    return np.unique([*rows, starts[-1]])


@dataclass(frozen=True)
class ShardSettings:
    """The settings by which the rows of a shard are made, and their place."""

    folder: str
    number: int
    length: int
    join: str
    pieces: str
    threshold: float
    cls_id: int
    sep_id: int
    dtype: str

    @property
    def name(self) -> str:
        """Name of the shard's files: its number, in five digits or more."""
        return f"{self.number:05d}"

    def digest(self, parts: Sequence[Part]) -> str:
        """Hash of all that decides the rows (the tokenizer apart, which a folder of windows has only one of)."""
        settings = self.length, self.join, self.pieces, self.threshold, self.cls_id, self.sep_id, self.dtype
        digest = hashlib.sha256(repr(settings).encode())
        for part in parts:
            text = part.text.encode("utf-8")
            digest.update(f"\0{len(text)} {part.first}\0".encode())
            digest.update(text)
        return digest.hexdigest()


def files_of(shard: str) -> list[str]:
    """Return the names of all files that a shard may have, below the folder of the windows."""
    arrays = [f"shards/{shard}.{split}.{part}.npy" for split in SPLITS for part in ("ids", "marks", "starts")]
    return [*arrays, f"shards/{shard}.json"]


def write_shard(
    tokenizer: Tokenizer, shard: ShardSettings, parts: Sequence[Part], digest: str
) -> tuple[dict[str, Any], Hashes]:
    """Build one shard and write its arrays; return its description and the SHA-256 of each file."""
    rows = build_rows(
        tokenizer, parts, shard.length, shard.join, shard.threshold, shard.cls_id, shard.sep_id, shard.pieces
    )
    sizes: dict[str, int] = {}
    hashes: Hashes = {}
    for split, row in rows.items():
        if len(row.starts) > 1:
            arrays = {"ids": row.ids.astype(shard.dtype), "marks": row.marks, "starts": row.starts}
            for part, array in arrays.items():
                path = Path(shard.folder) / f"{shard.name}.{split}.{part}.npy"
                write_array(path, array)
                sizes[path.name] = path.stat().st_size
                hashes[path.name] = sha256(path)
    least = min(part.share for part in parts)
    description: dict[str, Any] = {"name": shard.name, "digest": digest, "files": sizes, "least_share": least}
    description["windows"] = {split: len(row.starts) - 1 for split, row in rows.items()}
    for key in ("documents", "characters", "tokens", "left_out"):
        description[key] = {split: int(getattr(row, key)) for split, row in rows.items()}
    return description, hashes
