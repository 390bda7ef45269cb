"""Options of configuration keys: flag, type, range, default and help of each are read from the field of its class."""

import inspect
import re
import shlex
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ..run.errors import value_problem
from ..run.settings import StrictConfig

_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}  # attributes of constraints
_METAVARS = {int: "<int>", float: "<float>", str: "<text>"}


class WrongOption(typer.BadParameter):
    """An option whose value its key refuses, in a sentence that names the option."""

    def format_message(self) -> str:
        """Return the sentence unchanged."""
        return str(self.message)


@dataclass(frozen=True)
class Key:
    """A key of a configuration, as the command line shows it.

    kind: type of its values, without None. constraints: pydantic's, such as `Ge(1)`. shown: what the field's
    json_schema_extra says of its option: `default` (words for the default value), `option` (the flag), `metavar`,
    `repeat` (True: a list of which each option gives one value; other lists have commas).
    """

    name: str
    field: FieldInfo
    kind: Any
    constraints: tuple[Any, ...]
    shown: dict[str, Any]

    @classmethod
    def of(cls, configuration: type[StrictConfig], name: str) -> "Key":
        """Read a key from the field of its class."""
        field = configuration.model_fields[name]
        kind = field.annotation
        constraints = list(field.metadata)
        if get_origin(kind) in (Union, UnionType):
            (kind,) = (part for part in get_args(kind) if part is not NoneType)
        if get_origin(kind) is Annotated:
            kind, *more = get_args(kind)
            constraints += [
                constraint for one in more for constraint in (one.metadata if isinstance(one, FieldInfo) else [one])
            ]
        shown = field.json_schema_extra
        return cls(name, field, kind, tuple(constraints), dict(shown) if isinstance(shown, dict) else {})

    @property
    def flag(self) -> str:
        """The option, for example --text-pair."""
        return str(self.shown.get("option", f"--{self.name.replace('_', '-')}"))

    @property
    def required(self) -> bool:
        """True if the key has no default, neither in its field nor by the checks of its class."""
        return self.field.is_required() and "default" not in self.shown

    @property
    def default(self) -> Any:
        """The default value of the field; None if it has none."""
        return None if self.field.is_required() else self.field.get_default(call_default_factory=True)

    def help(self, in_file: bool) -> str:
        """Return the description with default and range.

        Args:
            in_file: True if the verb reads a configuration file, which may give a key that is required.
        """
        notes = [
            f"{words} {getattr(constraint, bound)}"
            for constraint in self.constraints
            for bound, words in _BOUNDS.items()
            if hasattr(constraint, bound)
        ]
        if self.required and in_file:
            notes.insert(0, "required, here or in --config")
        elif default := self._default_words():
            notes.insert(0, f"default: {default}")
        notes_text = f" [{'; '.join(notes)}]" if notes else ""
        return f"{self.field.description}{notes_text}"

    def _default_words(self) -> str:
        if words := self.shown.get("default"):
            return str(words)
        value = self.default
        if isinstance(value, list):
            return ",".join(map(str, value))
        if isinstance(value, bool):
            return "on" if value else ""
        return "" if value is None else str(value)

    def parse(self, text: str) -> Any:
        """Turn the words of an option into a value, a list where they have commas and the key takes several.

        Raises:
            WrongOption: the key refuses the value.
        """
        several = get_origin(self.kind) is list
        kind: Any = Annotated[(self.kind, *self.constraints)] if self.constraints else self.kind
        try:
            return TypeAdapter(kind).validate_python(names_in(text) if several else text)
        except ValidationError as error:
            if several and error.errors()[0]["type"].endswith("_parsing"):
                numbers = "whole numbers" if get_args(self.kind) == (int,) else "numbers"
                example = f", for example {','.join(map(str, self.default[:3]))}" if self.default else ""
                raise WrongOption(f"{self.flag} takes {numbers} with commas{example}; got {text!r}.") from None
            raise WrongOption(value_problem(self.flag, error.errors()[0])) from None

    def advice(self, value: Any) -> str:
        """Return how to type the option so that the key has a value: "Give `--windows 20`"."""
        negated = f"--no-{self.flag.removeprefix('--')}"
        if value is None or value == self.default:
            return f"Leave `{negated if value is True else self.flag}` out"
        if isinstance(value, bool):
            words = [self.flag if value else negated]
        elif self.shown.get("repeat"):
            words = [word for part in value for word in (self.flag, str(part))]
        else:
            words = [self.flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
        return f"Give `{shlex.join(words)}`"

    def parameter(self, in_file: bool) -> inspect.Parameter:
        """Return the parameter of a verb that typer makes the option of; see `help` for `in_file`."""
        help_ = self.help(in_file)
        option: Any
        kind: Any = str | None
        default: Any = ... if self.required and not in_file else None
        if self.kind is bool:
            flags = f"{self.flag}/--no-{self.flag.removeprefix('--')}" if self.default else self.flag
            option = typer.Option(flags, help=help_)
            kind = bool | None
            default = None
        elif self.shown.get("repeat"):
            option = typer.Option(self.flag, help=help_, metavar=self._metavar(get_args(self.kind)[0]))
            kind = list[str] | None
        else:
            option = typer.Option(self.flag, help=help_, metavar=self._metavar(self.kind), parser=self.parse)
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )

    def _metavar(self, kind: Any) -> str:
        if metavar := self.shown.get("metavar"):
            return str(metavar)
        if get_origin(kind) is Literal:
            return "|".join(get_args(kind))
        if get_origin(kind) is list:
            return "NAME,NAME" if get_args(kind) == (str,) else "N,N"
        return _METAVARS[kind]


def names_in(words: str) -> list[str]:
    """Split words at commas; a comma in brackets is part of a name: MTEB(eng, v2)."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", words)]
