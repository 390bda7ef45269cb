"""The program and the options that several verbs share."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from ..training.config import SchemeConfig

C = TypeVar("C", bound="SchemeConfig")

app = typer.Typer(
    name="whatwhere",
    help="Train text encoders that keep meaning apart from position, and measure what position encodings do inside a "
    "model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # its markup would swallow [default: ...]
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Corpus = Annotated[
    str | None,
    typer.Option(
        help="Text: python-docs (docstrings of the installed packages, nothing to download), a file or folder "
        "(.txt .jsonl .parquet .tsv .csv, also .gz .xz .zst), hub:NAME[:CONFIG], synthetic:repeat, "
        "synthetic:three-regimes. "
        "[default: python-docs]",
        show_default=False,
    ),
]
HeldOut = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        help="Text, as for `study`, or a folder of windows (the corpus/ of a run or study), whose held-out part is "
        "read; both by the "
        "model's own tokenizer. [default: the windows of the model's own run, else a part of python-docs]",
        show_default=False,
    ),
]
Field = Annotated[str, typer.Option(help="Field of the text in tables and JSON lines.")]
Setting = Annotated[
    list[str] | None, typer.Option("--set", help="Any configuration key as key=value (YAML); may be given again.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file with configuration keys.")]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="Vocabulary file, tokenizer folder, Hub name, `reference`, words or characters. [default: train a "
        "WordPiece on the corpus]",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable object on stdout.")]
Size = Annotated[
    str | None,
    typer.Option(help="tiny, small or paper: widths, layers and positions. [default: tiny]", show_default=False),
]

Scheme = Annotated[
    Path | None,
    typer.Option(
        help="Python file that registers a table, bias, rotation or preset of your own (examples/kerple.py). It is "
        "run.",
        show_default=False,
    ),
]


def emit(value: Any, as_json: bool, text: str) -> None:
    """What a command prints: one JSON object, or its text."""
    print(json.dumps(value) if as_json else text)


def configured(kind: type[C], path: Path | None, settings: Iterable[str] | None, **values: Any) -> C:
    """The configuration of a command, from its file, options and settings; a scheme that they name is run first."""
    from ..training.config import use_scheme

    merged = kind.merged(path, settings or (), **values)
    use_scheme(merged.get("scheme"))
    return kind.parse(merged)


def own_scheme(error: ValueError, folder: Path) -> ValueError:
    """The error of an unknown scheme, with the file that the model's folder carries."""
    if "--scheme FILE" in str(error) and (folder / "own_scheme.py").is_file():
        return ValueError(
            f"{error} The model carries it: read {folder / 'own_scheme.py'}, then add --scheme "
            f"{folder / 'own_scheme.py'}."
        )
    return error
