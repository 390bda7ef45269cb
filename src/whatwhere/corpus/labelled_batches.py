"""Labelled texts, encoded and dealt out in batches."""

import hashlib

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from .batches import Batches, padded
from .labelled import LabelledTexts


class LabelledBatches(Batches):
    """Batches of encoded texts, or pairs of texts, with class numbers or numbers to regress.

    A row is `[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`, padded to the longest of its batch.

    names: the classes; a label's number is its place there; None: labels are numbers to regress. length: most tokens of
    a row, special ones included; longer rows lose their end (pairs, the end of the longer text). types: also
    token_type_ids, which tell the texts of a pair apart (BERT). truncated: the number of rows that are cut. share_cut:
    share of their tokens that is cut away, in [0, 1).

    A batch: `input_ids`, `attention_mask`, with `types` also `token_type_ids`, (b, n) int64; `labels` (b,), int64 class
    numbers or float32 numbers.

    Raises:
        ValueError: a label that is not among `names`.
    """

    def __init__(
        self,
        data: LabelledTexts,
        names: list[str] | None,
        tokenizer: PreTrainedTokenizerFast,
        length: int,
        seed: int = 0,
        *,
        types: bool = False,
    ) -> None:
        super().__init__(len(data.labels), seed)
        if names is not None and (strange := sorted(set(data.labels) - set(names))):
            place = f"{data.places[data.labels.index(strange[0])]}: " if data.places else ""
            raise ValueError(
                f"{place}the label {strange[0]!r} does not occur in the training data. Labels there: "
                f"{', '.join(names)}. Leave such rows out."
            )
        backend = tokenizer.backend_tokenizer
        backend.no_padding()
        backend.enable_truncation(length, strategy="longest_first")
        rows = list(zip(data.texts, data.pairs, strict=True)) if data.pairs is not None else data.texts
        encodings = backend.encode_batch(rows)
        backend.no_truncation()
        cut = [number for number, encoding in enumerate(encodings) if encoding.overflowing]
        before = sum(len(encoding) for encoding in backend.encode_batch([rows[number] for number in cut]))
        self.truncated = len(cut)
        self.share_cut = 1 - sum(len(encodings[number]) for number in cut) / before if cut else 0.0
        self.ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
        self.types = [np.array(encoding.type_ids, np.int64) for encoding in encodings] if types else None
        if names is None:
            self.labels = np.array(list(map(float, data.labels)), np.float32)
        else:
            numbers = {name: number for number, name in enumerate(names)}
            self.labels = np.array([numbers[name] for name in data.labels], np.int64)
        assert isinstance(tokenizer.pad_token_id, int)
        self.pad_id = tokenizer.pad_token_id

    @property
    def mean_length(self) -> float:
        """Mean number of tokens in a row, special ones included."""
        return sum(map(len, self.ids)) / len(self.ids)

    @property
    def longest(self) -> int:
        """Number of tokens in the longest row, special ones included."""
        return max(map(len, self.ids))

    def digest(self) -> str:
        """Return the SHA-256 of all token ids and labels in their order."""
        digest = hashlib.sha256(self.labels.tobytes())
        for row in self.ids:
            digest.update(len(row).to_bytes(4, "little") + row.tobytes())
        return digest.hexdigest()

    def _collate(self, chosen: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
        """Make a batch: input_ids, attention_mask, maybe token_type_ids (b, n) int64; labels (b,) int64 or float32."""
        numbers = [index for _, index in chosen]
        input_ids = padded([self.ids[i] for i in numbers], self.pad_id)
        attention_mask = padded([np.ones(len(self.ids[i])) for i in numbers], 0)
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "labels": self.labels[numbers]}
        if self.types is not None:
            batch["token_type_ids"] = padded([self.types[i] for i in numbers], 0)
        return {name: torch.from_numpy(array) for name, array in batch.items()}
