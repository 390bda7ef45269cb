"""Sources by the name that a corpus argument gives them."""

from pathlib import Path

from .hub import Hub
from .python_docs import PythonDocs
from .source import Source
from .synthetic import Regimes, RepeatedDocuments, ThreeRegimes
from .text_files import Files


def open_source(spec: str | Path, field: str = "text", document: str = "auto") -> Source:
    """The source that a corpus argument names.

    field: the field of a .jsonl, .tsv, .csv, .parquet or Hub corpus that holds the text.
    document: what a document of a text file is, see `text_files.Files`.

    Raises:
        ValueError: nothing of that name, an unknown kind or file ending, an unknown `document` rule.
    """
    name = str(spec)
    if name == "python-docs":
        return PythonDocs()
    if name.startswith("hub:"):
        return Hub(name, field)
    if name == "synthetic:repeat":
        return RepeatedDocuments()
    kind, _, options = name.removeprefix("synthetic:").partition(":")
    if name.startswith("synthetic:") and kind == "three-regimes":
        return ThreeRegimes(Regimes.parse(options))
    if name.startswith("synthetic:"):
        raise ValueError(
            f"Unknown synthetic corpus {name!r}. There are synthetic:repeat and "
            "synthetic:three-regimes[:n=32,seed=0,...]."
        )
    return Files(Path(spec).expanduser(), field, document)
