"""The long documents of a text: one excerpt of each, or several, in memory, as windows of a number of tokens."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerFast

from ..corpus.segments import SPECIAL
from ..corpus.shards import Part, Tokens, encode_parts
from ..corpus.source import Source
from ..corpus.tokenizer import special_token_ids
from ..corpus.windows import WindowSet

FROM = 0.25  # share of a document that is passed over: titles, contents and prefaces are unlike the rest
CHARACTERS = 24  # that are read for a token: enough for all but odd texts


class LongTexts(WindowSet):
    """Windows of one length, [CLS] text [SEP], each of one document.

    rows: ids and marks of each. numbers: (len,) number of the document.
    """

    def __init__(self, rows: Sequence[Tokens], numbers: np.ndarray, tokenizer: PreTrainedTokenizerFast, length: int):
        self.split = "long"
        self.join = "none"
        self.length = length
        self.special_ids = special_token_ids(tokenizer)
        self.vocab_size = len(tokenizer)
        self._rows = list(rows)
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._rows)

    def document_numbers(self) -> np.ndarray:
        """Return the number of the document of each window, (len,) int64."""
        return self._numbers

    def lengths(self) -> np.ndarray:
        """Return the tokens of each window, (len,) int64, all the same."""
        return np.full(len(self), self.length)

    def row(self, index: int) -> Tokens:
        """Return ids and marks of a window, (length,) each."""
        return self._rows[index]


def long_texts(
    source: Source, tokenizer: PreTrainedTokenizerFast, length: int, documents: int, others: int = 0
) -> tuple[LongTexts, LongTexts]:
    """Return excerpts of the first long documents, and excerpts of the documents after them for a training.

    Args:
        length: Tokens of an excerpt.
        documents: Documents of the first kind, an excerpt of each.
        others: Excerpts of the second kind, at most 32 of a document; fewer where the text ends.

    Raises:
        ValueError: too few long documents.
    """
    texts: tuple[list[Tokens], list[Tokens]] = ([], [])
    numbers: tuple[list[int], list[int]] = ([], [])
    for number, text in enumerate(source):
        rest = int(len(texts[0]) == documents)
        most = min(32, others - len(texts[1])) if rest else 1
        if not most:
            break
        for tokens in _excerpts(text, tokenizer, length, most):
            texts[rest].append(tokens)
            numbers[rest].append(number)
    if len(texts[0]) < documents:
        raise ValueError(
            f"{source.name} has {len(texts[0])} documents with {length} tokens or more behind their first quarter; "
            f"{documents} are asked for. Give longer texts, or fewer --documents, or a smaller --to."
        )
    measured, further = (LongTexts(f, np.array(n, int), tokenizer, length) for f, n in zip(texts, numbers, strict=True))
    return measured, further


def _excerpts(text: str, tokenizer: Any, length: int, most: int) -> Iterator[Tokens]:
    """The first windows of a text behind its first quarter, from the beginning of a line on where it is long enough."""
    if (1 - FROM) * len(text) < length - 2:  # a token has a character at least
        return
    quarter = int(FROM * len(text))
    room = length - 2
    ids = np.empty(0, np.uint32)
    marks = np.empty(0, np.uint8)
    after_break = text.find("\n", quarter, len(text) - length) + 1
    for begin in (after_break, quarter) if after_break else (quarter,):
        part = Part(text[begin : begin + CHARACTERS * length * most], True, 0.0)
        ((ids, marks),) = encode_parts(tokenizer.backend_tokenizer, [part])
        if len(ids) >= room:  # else the break is too near the end
            break
    special = special_token_ids(tokenizer)
    ends = np.array([special["cls_token_id"]], ids.dtype), np.array([special["sep_token_id"]], ids.dtype)
    end = np.array([SPECIAL], marks.dtype)
    for at in range(0, min(len(ids) // room, most) * room, room):
        cut = slice(at, at + room)
        yield np.concatenate([ends[0], ids[cut], ends[1]]), np.concatenate([end, marks[cut], end])
