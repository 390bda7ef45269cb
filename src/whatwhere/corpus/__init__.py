"""Text in, batches out: sources of documents, tokenizers, windows of token ids, masked batches, counts."""

from .batches import MaskedBatches
from .build import build_windows
from .counting import count_source, count_windows
from .source import Source
from .sources import open_source
from .tokenizer import (
    add_newline_token,
    build_tokenizer,
    load_tokenizer,
    special_token_ids,
    tokenizer_hash,
    train_tokenizer,
)
from .windows import Window, Windows, WindowSet

__all__ = [
    "MaskedBatches", "Source", "Window", "WindowSet", "Windows", "add_newline_token", "build_tokenizer",
    "build_windows", "count_source", "count_windows", "load_tokenizer", "open_source", "special_token_ids",
    "tokenizer_hash", "train_tokenizer",
]  # fmt: skip
