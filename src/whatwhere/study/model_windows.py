"""Windows for the analyses of one model: the user's, the windows of the model's run, or new windows of a text."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..corpus import Windows, build_windows, load_tokenizer, open_source
from ..corpus.python_docs import PythonDocs
from ..corpus.windows import own_windows
from ..models.lengths import max_tokens, usual_length

MOST_TOKENS = 512  # of a window where the user gives no length
# Lower bound of the tokens in all of python-docs, from which follows how small a part has enough: reading all takes a
# minute.
TOKENS_OF_PYTHON_DOCS = 4_000_000


@contextmanager
def model_windows(
    model: Any,
    tokenizer: Any,
    folder: Path,
    corpus: str | None,
    field: str,
    windows_needed: int,
    progress: bool = True,
    length: int | None = None,
) -> Iterator[tuple[Windows, str]]:
    """Yield windows of text for a model to read, and a name of the text: `corpus` where it is given.

    Args:
        folder: where the model was read from. The windows of its run are in the nearest `corpus/` at or above this
            folder, at most five levels, whose tokenizer equals the model's.
        corpus: a folder of windows, or any text as for a study, of which nine tenths are held out (the model was not
            trained on the text, as far as we know); None: the windows of the model's run, else a part of python-docs
            with twice the text that `windows_needed` windows hold.
        windows_needed: windows of full length that the caller will read.
        length: tokens of a window; None: as in existing windows, else the length that a model of ours was trained on,
            or that a model of transformers reads, at most 512. With a length, windows are made anew of the text
            `corpus`, else of python-docs; a `corpus` of windows must have this length.

    Raises:
        ValueError: windows of another tokenizer than the model's or of another length than asked for, more tokens than
            the model reads, more token ids than it has, or no such text.
    """
    limit = max_tokens(model.config)
    if length is not None and limit is not None and length > limit:
        raise ValueError(f"The model reads at most {limit} tokens. Give --length {limit} or less; got {length}.")
    windows = None
    if corpus is not None:
        windows = _open_windows(tokenizer, corpus, length)
    elif length is None:
        windows = own_windows(tokenizer, folder)
    with tempfile.TemporaryDirectory() as temporary:
        if windows is None:
            length = length or min(usual_length(folder, model.config), MOST_TOKENS)
            every = TOKENS_OF_PYTHON_DOCS // (2 * max(windows_needed, 1) * length)
            source = open_source(corpus, field) if corpus is not None else PythonDocs(every=min(max(every, 1), 16))
            # Windows are cut with an unchanged copy: a token for line breaks may be missing in the model's vocabulary.
            tokenizer.save_pretrained(f"{temporary}/given")
            window_tokenizer = load_tokenizer(f"{temporary}/given")
            out = Path(temporary, "windows")
            windows = build_windows(source, window_tokenizer, out, length=length, held_out=0.9, progress=progress)
        if windows.facts["vocab_size"] > model.config.vocab_size:
            raise ValueError(
                f"The tokenizer has {windows.facts['vocab_size']} token ids, the model {model.config.vocab_size}: "
                "they are not of one training. Save the model's own tokenizer in its folder."
            )
        yield windows, corpus or str(windows.facts["source"].get("name", ""))


def _open_windows(tokenizer: Any, corpus: str, length: int | None) -> Windows | None:
    """Open the windows in the folder `corpus`; return None where `corpus` is a text."""
    if not (Path(corpus) / "windows.json").is_file():
        return None
    windows = Windows(corpus)
    if not windows.has_tokenizer(tokenizer):
        raise ValueError(
            f"The windows in {corpus} were made by another tokenizer than the model's, so their ids are other words. "
            "Give the model's own windows, or text: --corpus FILE."
        )
    if length not in (None, windows.facts["length"]):
        raise ValueError(
            f"The windows in {corpus} have {windows.facts['length']} tokens, not {length}. Leave --length out, or "
            "give the text."
        )
    return windows
