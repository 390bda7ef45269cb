"""The windows that one model is looked at with: those it is given, those of its own run, or new ones of a text by its
own tokenizer."""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..analysis.passes import TARGETS
from ..analysis.texts import most_tokens
from ..corpus import Windows, build_windows, load_tokenizer, open_source
from ..corpus.python_docs import PythonDocs
from ..records import Record

LONGEST = 512  # tokens of a window where the model sets no limit
PYTHON_DOCS = 4_000_000  # tokens that python-docs has at least; a part of it is read in seconds, all of it in a minute


def model_windows(
    model: Any,
    tokenizer: Any,
    folder: Path,
    corpus: str | None,
    field: str,
    documents: int,
    stack: ExitStack,
    progress: bool = True,
) -> tuple[Windows, str]:
    """Windows to read and what they are called: the corpus as given, else the name of the text.

    Args:
        folder: where the model was read from: `corpus/` there, or up to five folders above, is its own run's if the
            tokenizer made it.
        corpus: a folder of windows, or any text as for a study, of which nearly all is held out (it was not trained on,
            as far as we know); None: the windows of the model's own run, else a part of python-docs with twice the text
            that is needed.
        documents: how many windows of full length will be read.
        stack: closed when the windows are no longer needed; those of a text are in a temporary folder.

    Raises:
        ValueError: windows of another tokenizer than the model's, more token ids than the model has, or no such text.
    """
    windows = _given(tokenizer, corpus) if corpus is not None else own_windows(tokenizer, folder)
    if windows is None:
        windows = _of_text(model, tokenizer, corpus, field, documents, stack, progress)
    if windows.manifest["vocab_size"] > model.config.vocab_size:
        raise ValueError(
            f"The tokenizer has {windows.manifest['vocab_size']} token ids, the model {model.config.vocab_size}: they "
            "are not of one training. Save the model's own tokenizer in its folder."
        )
    return windows, corpus or str(windows.manifest["source"].get("name", ""))


def _given(tokenizer: Any, corpus: str) -> Windows | None:
    """The windows in a folder; None where it is a text."""
    if not (Path(corpus) / "manifest.json").is_file():
        return None
    windows = Windows(corpus)
    if not windows.made_by(tokenizer):
        raise ValueError(
            f"The windows in {corpus} were made by another tokenizer than the model's, so their ids are other words. "
            "Give the model's own windows, or text: --corpus FILE."
        )
    return windows


def own_windows(tokenizer: Any, folder: Path) -> Windows | None:
    """The windows of the run or study of a model or checkpoint; those of another tokenizer that happen to stand there
    are not."""
    for run in (folder, *list(folder.resolve().parents)[:5]):
        if (run / "corpus/manifest.json").is_file() and (windows := Windows(run / "corpus")).made_by(tokenizer):
            return windows
    return None


def _of_text(
    model: Any, tokenizer: Any, corpus: str | None, field: str, documents: int, stack: ExitStack, progress: bool
) -> Windows:
    made = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    length = min(most_tokens(model) or LONGEST, LONGEST)
    part = PYTHON_DOCS // (2 * max(documents, 1) * length)
    source = open_source(corpus, field) if corpus is not None else PythonDocs(every=min(max(part, 1), 16))
    tokenizer.save_pretrained(made / "given")
    # The tokenizer as it is: where line breaks are no token of the model's vocabulary they must not become one.
    return build_windows(
        source, load_tokenizer(made / "given"), made / "windows", length=length, held_out=0.9, progress=progress
    )


def probe_text(records: list[Record], source: str) -> str:
    """What the probes of one model found, for people: a sentence, then a row for each layer and part of the state."""
    probes = [r for r in records if r.layer is not None]
    values = {(r.layer, r.part, r.metric): r for r in probes}
    places = list(dict.fromkeys((r.layer, r.part) for r in probes))
    of_token = [r for r in probes if r.metric == "r2.token"]
    best, last = max(of_token, key=lambda r: r.value), max(r.layer or 0 for r in of_token)
    end = max((r for r in of_token if r.layer == last), key=lambda r: r.value)
    chance = max(r.value for r in probes if r.metric.endswith(".chance"))

    def of(record: Record) -> str:
        return "the state" if record.part == "all" else f"the {record.part} stream"

    lines = [
        f"A token's position can be read from {of(best)} best in layer {best.layer} (R² {best.value:.2f}), from "
        f"{of(end)} after the last, {last}, with R² {end.value:.2f}; chance reaches {max(chance, 0.0):.2f}.",
        "",
        f"{'layer':>5}  {'part':9}" + "".join(f"{name:>24}" for name in TARGETS),
    ]
    for layer, part in places:
        cells = []
        for name in TARGETS:
            r = values.get((layer, part, f"r2.{name}"))
            interval = f" [{r.low:.2f}, {r.high:.2f}]" if r is not None and None not in (r.low, r.high) else ""
            cells.append(f"{r.value:.2f}{interval}" if r is not None else "-")
        lines.append(f"{layer:>5}  {part or '':9}" + "".join(f"{cell:>24}" for cell in cells))
    read, length = (int(next(r.value for r in records if r.metric == f"probe.{w}")) for w in ("documents", "length"))
    return "\n".join([*lines, f"read: {read} windows of {length} tokens of {source}"])
