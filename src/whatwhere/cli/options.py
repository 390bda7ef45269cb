"""The program, what makes a function a verb of it, and the options that several verbs share."""

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

from ..run.shipped import REFERENCE

if TYPE_CHECKING:
    from ..run.settings import StrictConfig

C = TypeVar("C", bound="StrictConfig")
F = TypeVar("F", bound=Callable[..., None])

app = typer.Typer(
    name="whatwhere",
    help="Train text encoders that keep meaning apart from position, and measure what position encodings do inside a "
    "model.",
    add_completion=False,
    rich_markup_mode=None,  # its markup would swallow [default: ...]
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SHIPPED = f"`{REFERENCE}`, the one that comes with the package (a folder of that name here is ./{REFERENCE})"
AnyModel = Annotated[
    str,
    typer.Argument(
        help="A model folder: of pretrain, finetune or a study, or any encoder of transformers (safetensors); a Hub "
        "name; or " + _SHIPPED + "."
    ),
]
Corpus = Annotated[
    str | None,
    typer.Option(
        help="Text: python-docs (docstrings of the installed packages, nothing to download), a file or folder "
        "(.txt .jsonl .parquet .tsv .csv, also .gz .xz .zst), hub:NAME[:CONFIG], synthetic:repeat, "
        "synthetic:three-regimes. [default: python-docs]"
    ),
]
HeldOut = Annotated[
    str | None,
    typer.Option(
        "--corpus",
        help="Text, as for `study`, or a folder of windows (the corpus/ of a run or study), whose held-out part is "
        "read; both by the model's own tokenizer. [default: the windows of the model's own run, else a part of "
        "python-docs]",
    ),
]
Field = Annotated[str, typer.Option(help="Field of the text in tables and JSON lines.")]
CorpusField = Annotated[
    str | None, typer.Option("--field", help="Field of the text in tables and JSON lines. [default: text]")
]
Length = Annotated[
    int | None,
    typer.Option(help="Tokens of a window, [CLS] and [SEP] included. [default: the size's: tiny 128, paper 512]"),
]
LengthRead = Annotated[
    int | None,
    typer.Option(
        "--length",
        help="Tokens of a window, [CLS] and [SEP] included; other windows than the run's are made of the text anew. "
        "[default: the run's, else as many as the model reads, at most 512]",
        min=8,
    ),
]
Setting = Annotated[
    list[str] | None, typer.Option("--set", help="Any configuration key as key=value (YAML); may be given again.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file with configuration keys.")]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="Vocabulary file, tokenizer folder, Hub name, `reference`, words or characters. [default: train a "
        "WordPiece on the corpus]"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable object on stdout.")]
Size = Annotated[str | None, typer.Option(help="tiny, small or paper: widths, layers and positions. [default: tiny]")]

Scheme = Annotated[
    Path | None,
    typer.Option(
        help="Python file that registers a table, bias, rotation or preset of your own (examples/kerple.py). It is run."
    ),
]
PageFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for records, arrays and a page with every figure (report.html).", show_default=False
    ),
]


def verb(program: typer.Typer = app, name: str | None = None) -> Callable[[F], F]:
    """Make a function a verb, whose docstring is the help: of the options of this verb alone what `Args:` says of them,
    and of the verb what stands before. An option that is off by default is a flag."""

    def register(function: F) -> F:
        text, _, described = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
        for key, words in re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", described, re.MULTILINE):
            kind = function.__annotations__[key]
            default = inspect.signature(function).parameters[key].default
            flag = [f"--{key.replace('_', '-')}"] if default is False else []
            kind, given = get_args(kind) if get_origin(kind) is Annotated else (kind, typer.Option(*flag))
            option = copy(given)  # which other verbs may share
            option.help = " ".join(words.split())
            function.__annotations__[key] = Annotated[kind, option]
        return program.command(name, help=text)(function)

    return register


def emit(value: Any, as_json: bool, text: str) -> None:
    """Print the result of a command: one JSON object, or its text."""
    print(json.dumps(value) if as_json else text)


def report_line(page: Any) -> str:
    """Return the sentence on a page that was written."""
    return f"The report is {page}: open it in a browser."


def next_line(*words: str) -> str:
    """The command to type next, as the end of what a verb says."""
    return f"\nNext: whatwhere {shlex.join(words)}"


def given(context: typer.Context, kind: type["StrictConfig"]) -> dict[str, Any]:
    """The options on the command line that are keys of a configuration: a verb's parameter has the name of its key."""
    sources = {key: context.get_parameter_source(key) for key in context.params if key in kind.model_fields}
    here = [key for key, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    return {key: str(v) if isinstance(v := context.params[key], Path) else v for key in here}


def configured(
    context: typer.Context,
    kind: type[C],
    path: Path | None = None,
    settings: Iterable[str] | None = None,
    **values: Any,
) -> C:
    """The configuration of a command: a file, over it the options that are its keys, then `values` that are not None,
    then settings; a scheme that they name is run first."""
    from ..training.settings import use_scheme

    values = {key: value for key, value in values.items() if value is not None}
    here = given(context, kind)
    merged = kind.merged(path, settings or (), **{**here, **values})
    use_scheme(merged.get("scheme"))
    flags = {param.name: param.opts[0] for param in context.command.params if param.name in here}
    return kind.parse(merged, {**dict(zip(values, values, strict=True)), **flags}, path, settings or ())
