"""Batches as a pure function of the step: order by (seed, epoch); masks, position shift and padding."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from .draws import generator_of
from .segments import SPECIAL
from .windows import WindowSet, places

MASKINGS = ("all", "80-10-10")
IGNORED = -100


@dataclass(frozen=True)
class PositionDraws:
    """Random changes of the positions of a text, as `EncoderConfig` describes them: kind "shape" or "cape"."""

    kind: str
    shift: float
    local_shift: float
    scale: float

    def draw(self, generator: np.random.Generator, positions: np.ndarray, documents: np.ndarray) -> np.ndarray:
        """Return changed positions (n,) float32, each document with a shift and a scale of its own.

        positions, documents: (n,) whole numbers; documents count from 0.
        """
        count = int(documents.max()) + 1
        if self.kind == "shape":
            return (positions + generator.integers(int(self.shift) + 1, size=count)[documents]).astype(np.float32)
        shift = generator.uniform(-self.shift, self.shift, count)[documents]
        scale = np.exp(generator.uniform(-1, 1, count) * np.log(self.scale))[documents]
        local = generator.uniform(-self.local_shift, self.local_shift, len(positions))
        return ((positions + shift + local) * scale).astype(np.float32)


class Batches(ABC):
    """Rows in another random order each epoch, dealt out to steps and processes.

    total: rows of an epoch. seed: of the order, at least 0.

    A batch is tensors by name, each with a row for each chosen row; every subclass names them. `_collate` makes it.

    Raises:
        ValueError: a negative seed.
    """

    def __init__(self, total: int, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed={seed} is negative. Use 0 or more.")
        self.total = total
        self.seed = seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def __len__(self) -> int:
        """Return the rows of one epoch."""
        return self.total

    def permutation(self, epoch: int) -> np.ndarray:
        """Return the order of the rows in an epoch: (rows,) int64, a permutation."""
        if self._order[0] != epoch:
            self._order = (epoch, generator_of(self.seed, epoch).permutation(self.total))
        return self._order[1]

    def micro_batch(self, micro_step: int, rows: int, rank: int = 0, world: int = 1) -> dict[str, torch.Tensor]:
        """Return the rows of a micro-batch that process `rank` reads, as tensors (rows / world, ...) by name.

        Global sample s = micro_step * rows + row; process r takes the rows r, r + world, ...

        Args:
            micro_step: number of the micro-batch in the whole training, from 0; the step where each has one.
            rows: of all `world` processes together.

        Raises:
            ValueError: a number of rows that is not a positive multiple of `world`.
        """
        if rows < 1 or rows % world:
            raise ValueError(
                f"rows={rows} is no positive multiple of the number of processes. Give a multiple of {world}."
            )
        chosen = []
        for sample in range(micro_step * rows + rank, (micro_step + 1) * rows, world):
            epoch, at = divmod(sample, self.total)
            chosen.append((epoch, int(self.permutation(epoch)[at])))
        return self._collate(chosen)

    def in_order(self, batch_size: int, limit: int | None = None) -> Iterator[dict[str, torch.Tensor]]:
        """Yield batches of evenly spaced rows in their order, as in epoch 0, as tensors (rows, ...).

        The last batch may be smaller.

        Args:
            limit: number of rows, at most; None: all rows.
        """
        chosen = np.linspace(0, self.total - 1, self.total if limit is None else min(limit, self.total), dtype=np.int64)
        for begin in range(0, len(chosen), batch_size):
            yield self._collate([(0, int(i)) for i in chosen[begin : begin + batch_size]])

    @abstractmethod
    def _collate(self, chosen: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
        """Make the batch of (epoch, row) pairs: every entry a tensor whose first axis is the rows."""


class MaskedBatches(Batches):
    """Batches of a `WindowSet`, each window masked and shifted by its own random numbers.

    mask_rate: every token but the special ones is masked with this probability; a window in which none was drawn gets
    the one with the smallest draw. masking: "all" puts [MASK] at each, "80-10-10" leaves a tenth unchanged and puts a
    random token at another tenth. max_positions: m, the rows of the position table. shift: add a random k in [0, m - n]
    to the positions of a window of n tokens (DSTG 3.3), of each document where documents are isolated. subset: instead,
    n of the m positions at random, in their order (Ruoss et al. 2023). draws: the scheme's own changes of positions, in
    place of both; positions are then float32.

    A batch: `input_ids`, `labels` (-100 where no loss is for a token), `attention_mask`, `position_ids`, and with
    join=isolate `document_ids` (-1 at padding), each (b, n) int64 with n the longest window of the batch.

    Raises:
        ValueError: an empty set, a rate outside (0, 1), an unknown masking, windows longer than the position table.
    """

    def __init__(
        self,
        window_set: WindowSet,
        seed: int = 0,
        mask_rate: float = 0.2,
        masking: str = "all",
        max_positions: int = 128,
        shift: bool = True,
        subset: bool = False,
        draws: PositionDraws | None = None,
    ):
        if not len(window_set):
            raise ValueError(
                f"The split {window_set.split!r} has no windows. Use more text, or another held_out share."
            )
        if not 0 < mask_rate < 1:
            raise ValueError(f"mask_rate={mask_rate} does not lie between 0 and 1. Give a share such as 0.2.")
        if masking not in MASKINGS:
            raise ValueError(f"masking={masking!r} is unknown. Give one of {', '.join(MASKINGS)}.")
        if window_set.length > max_positions:
            raise ValueError(
                f"Windows of {window_set.length} tokens, but the position table has {max_positions} rows. "
                "Use shorter windows or a longer table."
            )
        super().__init__(len(window_set), seed)
        self.windows = window_set
        self.mask_rate = mask_rate
        self.masking = masking
        self.max_positions = max_positions
        self.shift = shift
        self.subset = subset
        self.draws = draws
        ids = window_set.special_ids
        self.pad_id = ids["pad_token_id"]
        self.mask_id = ids["mask_token_id"]
        self.special = np.zeros(window_set.vocab_size, bool)
        self.special[list(ids.values())] = True
        self.ordinary = np.flatnonzero(~self.special)

    def _collate(self, chosen: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
        """Make a batch of masked windows: (b, n) int64 tensors, padded on the right to the longest window (position_ids
        are float32 with `draws`).

        input_ids, labels (-100 where not masked), attention_mask, position_ids; document_ids (-1 where padded) if
        documents are isolated.
        """
        ids, labels, positions, documents = zip(*(self._masked(*row) for row in chosen), strict=True)
        batch = {
            "input_ids": padded(ids, self.pad_id),
            "labels": padded(labels, IGNORED),
            "attention_mask": padded([np.ones(len(row)) for row in ids], 0),
            "position_ids": padded(positions, 0, np.int64 if self.draws is None else np.float32),
        }
        if self.windows.join == "isolate":
            batch["document_ids"] = padded(documents, -1)
        return {name: torch.from_numpy(array) for name, array in batch.items()}

    def _masked(self, epoch: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draw input ids, labels, positions and document ids of one window, each (n,) int64, or positions float32."""
        ids, marks = self.windows.row(index)
        ids = ids.astype(np.int64)
        generator = generator_of(self.seed, epoch, index)
        maskable = ((marks & SPECIAL) == 0) & ~self.special[ids]
        draw = np.where(maskable, generator.random(len(ids)), 2.0)
        masked = draw < self.mask_rate
        if not masked.any() and maskable.any():
            masked[np.argmin(draw)] = True
        # Drawn whether or not they are used, so that models with and without a shift get the same tokens.
        kind = generator.random(len(ids))
        other = generator.integers(len(self.ordinary), size=len(ids))
        documents, positions = places(marks, self.windows.join)
        if self.draws is not None:
            positions = self.draws.draw(generator, positions, documents)
        elif self.subset:
            positions = np.concatenate([self._some(generator, n) for n in np.bincount(documents)])
        elif self.shift:
            room = self.max_positions - np.bincount(documents)
            positions = positions + (generator.random(len(room)) * (room + 1)).astype(np.int64)[documents]
        labels = np.where(masked, ids, IGNORED)
        if self.masking == "all":
            ids[masked] = self.mask_id
        else:
            ids[masked & (kind < 0.8)] = self.mask_id
            swapped = masked & (kind >= 0.9)
            ids[swapped] = self.ordinary[other[swapped]]
        return ids, labels, positions, documents

    def _some(self, generator: np.random.Generator, n: int) -> np.ndarray:
        """Draw n of the positions of the table, in their order."""
        return np.sort(generator.choice(self.max_positions, n, replace=False))


def in_pieces(batch: dict[str, torch.Tensor], n: int, special_ids: dict[str, int]) -> dict[str, torch.Tensor]:
    """Cut the windows (b, n') of a batch of `MaskedBatches` into pieces of n tokens, each a row of its own.

    A piece keeps the positions of its tokens; its first and last become [CLS] and [SEP], which no loss is for. Pieces
    without a token between them are left out.

    Returns the same names, (pieces, n) each.
    """
    fill = {"input_ids": special_ids["pad_token_id"], "labels": IGNORED, "document_ids": -1}
    more = -batch["input_ids"].shape[1] % n
    cut = {key: F.pad(rows, (0, more), value=fill.get(key, 0)).reshape(-1, n) for key, rows in batch.items()}
    tokens = cut["attention_mask"].sum(1)
    cut = {key: rows[tokens > 2] for key, rows in cut.items()}
    for name, at in (("cls_token_id", torch.tensor(0)), ("sep_token_id", tokens[tokens > 2] - 1)):
        place = torch.arange(len(cut["input_ids"])), at
        cut["input_ids"][place] = special_ids[name]
        cut["labels"][place] = IGNORED
    return cut


def padded(rows: Sequence[np.ndarray], with_: int, dtype: type[np.number[Any]] = np.int64) -> np.ndarray:
    """Stack rows of different lengths into (rows, longest), filled up at the end with `with_`."""
    filled = np.full((len(rows), max(map(len, rows))), with_, dtype)
    for i, row in enumerate(rows):
        filled[i, : len(row)] = row
    return filled


def times_read(passes: float) -> str:
    """Say how often a training reads each window: "read 3.2 times", "" where the three digits are 1 or fewer.

    Args:
        passes: windows that all steps read, divided by the training windows.
    """
    return f"read {passes:.3g} times" if passes >= 1.005 else ""
