"""The program, the decorator that makes a function one of its verbs, and the options that several verbs share."""

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, get_args, get_origin

import typer

from ..corpus.paths import check_corpus
from ..run.errors import command_line
from ..run.reference import check_model_name
from ..run.settings import SettingMismatch, StrictConfig
from ..study.study_keys import HeadsConfig
from ..training.training_keys import check_scheme_file
from .key_options import Key

C = TypeVar("C", bound=StrictConfig)
F = TypeVar("F", bound=Callable[..., None])
Options = Mapping[type[StrictConfig], str]  # names of keys, with spaces, by the class that has them
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)

app = typer.Typer(
    name="whatwhere",
    help="Train text encoders that keep meaning apart from position, and measure what position encodings do inside a "
    "model.",
    add_completion=False,
    rich_markup_mode=None,  # its markup would swallow [default: ...]
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_MODEL = HeadsConfig.model_fields["model"].description
AnyModel = Annotated[str, typer.Argument(help=_MODEL)]
Setting = Annotated[
    list[str] | None, typer.Option("--set", help="Any configuration key as key=value (YAML); may be given again.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="YAML file with configuration keys.")]
Json = Annotated[bool, typer.Option("--json", help="Print one machine-readable object on stdout.")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        envvar="WHATWHERE_ON",
        show_default=False,
        help="Address or file of a Dask scheduler, whose workers share the folder of the results; without it processes "
        "of this machine do the work.",
    ),
]
PageFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for records, arrays and a page with every figure (report.html).", show_default=False
    ),
]


def verb(
    program: typer.Typer = app, name: str | None = None, *, options: Options = MappingProxyType({})
) -> Callable[[F], F]:
    """Make a function a verb of the command line.

    Its docstring is the help: the part before `Args:` of the verb, the rest of its own options. An own option that is
    off by default is a flag. An argument without words is the key of its name, whose description it takes.

    Args:
        options: Names of the keys that the verb offers, by the class that has them. Their options stand behind the
            parameters of the function, before its keyword-only ones; the function finds them in the context. A
            parameter that is named as a key is no option of its own: it receives the key's value, or its default.
    """

    def register(function: F) -> F:
        text, _, arguments = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
        words = {name: " ".join(description.split()) for name, description in _ARGUMENT.findall(arguments)}
        parameters = inspect.signature(function).parameters
        keys = {name: Key.of(kind, name) for kind, names in options.items() for name in names.split()}
        described = [
            _described(parameter, words.get(name) or _description(name, options))
            for name, parameter in parameters.items()
            if name not in keys
        ]
        before = [parameter for parameter in described if parameter.kind is not parameter.KEYWORD_ONLY]
        behind = [parameter for parameter in described if parameter.kind is parameter.KEYWORD_ONLY]
        of_keys = [key.parameter(in_file="config" in parameters) for key in keys.values()]
        shown = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*before, *of_keys, *behind)]

        @wraps(function)
        def call(**values: Any) -> None:
            for name, key in keys.items():
                if values[name] is None:
                    values[name] = key.default
            try:
                function(**{name: values[name] for name in parameters})
            except SettingMismatch as error:
                advice = _advice(error, keys.get(error.key), error.key in parameters)
                raise ValueError(error.message_with(advice)) from None

        vars(call)["__signature__"] = inspect.Signature(shown)
        vars(call)["key_classes"] = tuple(options)
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        program.command(name, help=text, short_help=_clause(text))(call)
        return function

    return register


def _advice(error: SettingMismatch, key: Key | None, is_argument: bool) -> str:
    """Return how to type the setting that resumes a run: by its option, as an argument, or by --set."""
    if key is not None:
        return key.advice(error.value)
    values = list(map(str, error.value)) if isinstance(error.value, list) else [str(error.value)]
    words = values if is_argument else ["--set", f"{error.key}={json.dumps(error.value, default=str)}"]
    return f"Give `{shlex.join(words)}`"


def _clause(text: str) -> str:
    """Return the first clause of a help, which a list of verbs shows whole."""
    sentence = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"[:;.]| \(", sentence)[0]


def _description(name: str, options: Options) -> str | None:
    """Return the description of the key of a name, None if no class has one."""
    return next((kind.model_fields[name].description for kind in options if name in kind.model_fields), None)


def _described(parameter: inspect.Parameter, words: str | None) -> inspect.Parameter:
    """Return a parameter with its help, if there is any beside its type's."""
    if words is None:
        return parameter
    kind = parameter.annotation
    names = [f"--{parameter.name.replace('_', '-')}"] if parameter.default is False else []
    option: Any = typer.Option(*names)
    if get_origin(kind) is Annotated:
        kind, option = get_args(kind)
        option = copy(option)  # which other verbs may share
    option.help = words
    return parameter.replace(annotation=Annotated[kind, option])


def emit(value: Any, as_json: bool, text: str) -> None:
    """Print the result of a command: one JSON object, or its text."""
    print(json.dumps(value) if as_json else text)


def report_line(page: Any) -> str:
    """Return the sentence on a page that was written."""
    return f"The report is {page}: open it in a browser."


def check_page_file(out: Path, name: str) -> None:
    """Refuse an --out that is no file of a page.

    Args:
        name: Name of a page that the message gives as an example.

    Raises:
        ValueError: it is a folder, or its name does not end in .html.
    """
    if out.is_dir() or not out.suffix:
        raise ValueError(f"--out is the file of the page, for example {out / name}; got {out}.")
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"--out is the file of the page, whose name ends in .html; got {out}. Give {out.with_suffix('.html')}."
        )


def next_line(*words: str | Path) -> str:
    """Return the command to type next, as the last line of what a verb prints."""
    return f"\nNext: {command_line(*words)}"


def keys_of_command(context: typer.Context, kind: type[StrictConfig]) -> dict[str, Any]:
    """Return the keys of a configuration that stand on the command line; a parameter has the name of its key."""
    sources = {key: context.get_parameter_source(key) for key in context.params if key in kind.model_fields}
    return {
        key: context.params[key]
        for key, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    }


def check_early(
    context: typer.Context, kind: type[StrictConfig], path: Path | None = None, settings: Iterable[str] | None = None
) -> None:
    """Refuse plain mistakes before a verb loads torch: a wrong key or value, a name or path that does not exist.

    Names and paths of a run that has begun are left to the verb: its folder may name presets of its own, and a finished
    run needs its text no more.

    Args:
        kind: the keys of the verb, of which the class of `configured` has the same and more checks.

    Raises:
        ValueError: as `configured`.
    """
    values = kind.merge_values(path, settings or (), **keys_of_command(context, kind))
    kind.check_values(values, _flags(context, kind), path, settings or ())
    if not (Path(context.params["out"]) / f"{context.info_name}.yaml").is_file():
        kind.check_existence(values)


def check_model(model: str, scheme: str | None, corpus: str | None = None) -> None:
    """Refuse a path that does not exist before a verb that reads a model loads torch.

    Raises:
        ValueError: the model, the scheme or the corpus is a path that does not exist.
    """
    check_model_name(model)
    if scheme is not None:
        check_scheme_file(scheme)
    if corpus is not None:
        check_corpus(corpus)


def _flags(context: typer.Context, kind: type[StrictConfig]) -> dict[str, str]:
    """Return the options that keys of a configuration were given by."""
    keys = keys_of_command(context, kind)
    return {param.name: param.opts[0] for param in context.command.params if param.name in keys}


def configured(
    context: typer.Context,
    kind: type[C],
    path: Path | None = None,
    settings: Iterable[str] | None = None,
    **values: Any,
) -> C:
    """Build the configuration of a command.

    A file comes first, over it the options that are its keys, then `values` that are not None, then settings. A scheme
    that they name is run before the values are checked.

    Raises:
        ValueError: the first wrong key or value, by the name of its option where it has one.
    """
    from ..training.scheme_settings import use_scheme

    values = {key: value for key, value in values.items() if value is not None}
    typed = {**keys_of_command(context, kind), **values}
    merged = kind.merge_values(path, settings or (), **typed)
    gives_scheme = "scheme" in typed or any(setting.startswith("scheme=") for setting in settings or ())
    use_scheme(merged.get("scheme"), named_by=None if gives_scheme else path)
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in kind.model_fields and name not in merged and (key := Key.of(kind, name)).required:
            raise ValueError(f"{key.flag} is missing. Give it, here or in --config: {key.field.description}")
    flags = {**dict(zip(values, values, strict=True)), **_flags(context, kind)}
    return kind.parse(merged, flags, path, settings or ())
