"""Corpus of a training: its settings, and the windows that they give."""

import sys
from pathlib import Path
from typing import Any

from pydantic import model_validator
from transformers import PreTrainedTokenizerFast

from ..corpus import (
    Source,
    Windows,
    build_tokenizer,
    build_windows,
    open_source,
    tokenizer_hash,
)
from ..corpus.build import content, saved_tokenizer
from ..corpus.tokenizer import UNITS
from ..run.cluster import Cluster
from ..run.files import read_object
from .training_keys import CorpusKeys


class CorpusConfig(CorpusKeys):
    """Text of a training, and how it becomes windows of token ids."""

    @model_validator(mode="before")
    @classmethod
    def _keep_documents_apart(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Keep the documents of the default corpus apart, as DSTG's code does, unless the user sets `join`."""
        if values.get("join") is None and values.get("corpus") in (None, "python-docs"):
            return {**values, "join": "none"}
        return values

    def given_keys(self) -> set[str]:
        """Return the keys that the user gave a value; `join=none` of the default corpus does not count."""
        is_default = self.corpus == "python-docs" and self.join == "none"
        return super().given_keys() - ({"join"} if is_default else set())

    def has_same_content(self, key: str, out: Path) -> bool:
        """Return whether the run's windows were made from the content of the corpus or tokenizer that a key names."""
        saved = out / "corpus" / "settings.json"
        if key not in ("corpus", "tokenizer") or not saved.is_file():
            return super().has_same_content(key, out)  # by the order of bases `ConfigWithScheme`'s, where it is one
        try:
            settings = read_object(saved, "source", "tokenizer_sha256")
            source = open_source(self.corpus, self.field, self.document)
            if key == "corpus":
                return content(source.fingerprint()) == content(settings["source"])
            if self.tokenizer in (None, *UNITS):  # made from the text: names that differ mean other tokenizers
                return False
            tokenizer = build_tokenizer(self.tokenizer, source, newline_token=self.newline_token)
        except ValueError:
            return False
        return bool(tokenizer_hash(tokenizer) == settings["tokenizer_sha256"])


def prepare_windows(
    config: CorpusConfig, folder: Path, progress: bool = True, cluster: Cluster | None = None
) -> Windows:
    """Make the tokenizer and the windows of a corpus in `folder`, or what an earlier call has left unfinished.

    Finished windows of the same settings and text are opened as they are.

    cluster: workers that tokenise; None: processes of this machine.

    Raises:
        ValueError: no such text or tokenizer, or other windows in `folder`.
    """
    source, tokenizer = _open_text(config, folder, progress)
    return build_windows(source, tokenizer, folder, **_window_options(config), progress=progress, cluster=cluster)


def _open_text(config: CorpusConfig, folder: Path, progress: bool) -> tuple[Source, PreTrainedTokenizerFast]:
    source = open_source(config.corpus, field=config.field, document=config.document)
    if (saved := saved_tokenizer(folder, _tokenizer_request(config))) is not None:
        return source, saved
    if progress and config.tokenizer is None:
        entries = f"at most {config.vocab_size:,} entries"
        print(f"Reading {config.corpus} and training a WordPiece of {entries}", file=sys.stderr, flush=True)
    return source, build_tokenizer(config.tokenizer, source, config.vocab_size, newline_token=config.newline_token)


def _window_options(config: CorpusConfig) -> dict[str, Any]:
    options = {key: getattr(config, key) for key in ("length", "join", "pieces", "held_out", "workers")}
    return {**options, "tokenizer_request": _tokenizer_request(config)}


def _tokenizer_request(config: CorpusConfig) -> dict[str, Any]:
    """Return the settings that decide which tokenizer `_open_text` loads, or makes from the text."""
    is_made_from_text = config.tokenizer in (None, *UNITS)
    vocab_size = config.vocab_size if is_made_from_text else None
    return {"tokenizer": config.tokenizer, "newline_token": config.newline_token, "vocab_size": vocab_size}


def check_enough_windows(windows: Windows, batch_size: int) -> None:
    """Refuse windows that are fewer than one training batch.

    Raises:
        ValueError: too few windows; the message says how many, and what gives more.
    """
    count = len(windows["train"])
    length = windows.facts["length"]
    if count >= batch_size:
        return
    if windows.facts["join"] != "run-on" and windows.facts["pieces"] == "first":
        documents = windows.facts["documents"]["train"]
        raise ValueError(
            f"pieces=first leaves {count} training windows, the beginnings of {documents} documents, less than one "
            f"batch of {batch_size}. Use --set pieces=all, or give more documents or a smaller --set batch_size=."
        )
    raise ValueError(
        f"The corpus has {count} training windows of {length} tokens, less than one batch of {batch_size}. Give more "
        "text, or a smaller --set batch_size= or --length."
    )
