"""Text in, batches out: sources of documents, tokenizers, windows of token ids, masked batches, counts.

Public names load their modules when they are first used, so that the command line looks for a file without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {
    "batches": ("MaskedBatches",),
    "build": ("build_windows",),
    "counting": (
        "count_source",
        "count_windows",
    ),
    "source": ("Source",),
    "sources": ("open_source",),
    "tokenizer": (
        "add_newline_token",
        "build_tokenizer",
        "load_tokenizer",
        "special_token_ids",
        "tokenizer_hash",
        "train_tokenizer",
    ),
    "windows": (
        "Window",
        "Windows",
        "WindowSet",
    ),
}

__all__ = [
    "MaskedBatches", "Source", "Window", "WindowSet", "Windows", "add_newline_token", "build_tokenizer",
    "build_windows", "count_source", "count_windows", "load_tokenizer", "open_source", "special_token_ids",
    "tokenizer_hash", "train_tokenizer",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
