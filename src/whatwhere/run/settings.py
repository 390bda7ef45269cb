"""Strict configurations: pydantic models that refuse unknown keys, read from YAML files and `key=value` arguments."""

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from .errors import UntrustedScheme, value_problem
from .files import parse_yaml, read_yaml
from .folder import RunFolder

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
# Words that name a text, a model or a tokenizer even where a path of that name exists (./words names the path).
_NO_PATHS = ("reference", "python-docs", "words", "characters")
# Similarity at which a known key is suggested: with 0.6, difflib's default, `size` was suggested for `inside`.
_SUGGESTION_CUTOFF = 0.7
_EXPONENT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")


def plain_path(text: str) -> str:
    """Return a path, or NAME=PATH, without `./`, doubled and trailing slashes.

    A text that names no existing path is returned unchanged, as are `reference` and the other words in `_NO_PATHS`.
    """
    name, equals, path = ("", "", text) if os.path.exists(text) else text.rpartition("=")
    plain = str(Path(path))
    is_path = plain not in _NO_PATHS and ":" not in plain and os.path.exists(path)
    return f"{name}{equals}{plain}" if is_path else text


def _with_plain_paths(value: Any) -> Any:
    """Return the value of a setting with its paths as `plain_path` gives them, so that equal values compare equal."""
    if isinstance(value, list):
        return [_with_plain_paths(part) for part in value]
    if isinstance(value, dict):
        return {key: _with_plain_paths(part) for key, part in value.items()}
    return plain_path(value) if isinstance(value, str) else value


def _check_keys(keys: Iterable[Any], path: str | Path | None) -> None:
    """Refuse a key that is no text: YAML also allows numbers and dates."""
    if misfits := [key for key in keys if not isinstance(key, str)]:
        raise ValueError(f"{path or 'settings'}: a configuration key is a word; got {str(misfits[0])[:60]!r}.")


class SettingMismatch(ValueError):
    """Error for a setting that differs from the saved one of a run.

    problem: Sentence with both values. hint: Sentence with the command that resumes the run; "" where there is none.
    key, value: Saved setting, which resumes the run; where `hint` is "", `cli.options` says how to give it.
    """

    def __init__(self, problem: str, hint: str, key: str, value: Any) -> None:
        super().__init__(problem, hint, key, value)
        self.problem = problem
        self.hint = hint
        self.key = key
        self.value = value

    def __str__(self) -> str:
        return self.message_with(f"Give {self.key}={self.value!r}")

    def message_with(self, advice: str) -> str:
        """Return the problem with the hint, or with advice to give the saved setting where there is no hint."""
        return f"{self.problem} {self.hint or f'{advice} to resume, or choose another `--out`.'}"


class StrictConfig(BaseModel):
    """A configuration whose unknown keys and wrong values raise ValueErrors of one line.

    The description of a field is the help of its option, json_schema_extra has more on the option (`cli.key_options`).
    The ways to get a configuration:

        parse(values)              from plain values
        load(path, assignments)    from a YAML file and `key=value` of --set; `merge_values` returns them unchecked
        load_verified(run, name)   from the saved settings of a run alone, after comparing the hash of their file
        merge_with_saved(run, name)  from the saved settings of a run and the settings of the command that resumes it

    The checks, in the order in which a command makes them; the first two load no torch:

        check_values               each key and value alone
        check_existence            names and paths
        pydantic's validators      values together, when an object is made

    `PretrainConfig.check` then tries what needs an encoder, a device or a file, before any text is read.
    """

    # Schemas are built when a class is first used: `whatwhere --help` only reads the fields.
    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, protected_namespaces=(), allow_inf_nan=False, defer_build=True
    )
    # Keys that take another value when a run is resumed. Some change last bits from there on: `at_once` changes the
    # number of threads of trainings that are not finished, `sharding` the order of sums.
    CHANGEABLE_KEYS: ClassVar[tuple[str, ...]] = ()
    # Keys to which a command that resumes a run can only add (`add_saved_entries`). Models and seeds that are added to
    # a study change threads, and so last bits, as `at_once` does.
    GROWING_KEYS: ClassVar[tuple[str, ...]] = ()
    # Template for the hint that says which arguments suffice to resume a run, such as `--out {out}`; "" where the user
    # must give all settings again. Set it only for verbs that load the saved file first (`_settings_file` of
    # `cli/train.py`): another verb passes its defaults, and `merge_with_saved` refuses those that differ.
    RESUME_ARGUMENTS: ClassVar[str] = ""
    # Keys of mappings to which values and assignments add, by name, in place of replacing the file's mapping.
    KEYS_MERGED_BY_NAME: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def parse(
        cls,
        values: dict[str, Any],
        flags: Mapping[str, str] = MappingProxyType({}),
        path: str | Path | None = None,
        assignments: Iterable[str] = (),
    ) -> Self:
        """Build a configuration from plain values.

        Args:
            flags: Key -> option of the command line that gave the key its value.
            path: File of the values.
            assignments: The `key=value` of --set, already among the values. All three only decide what messages name.

        Raises:
            ValueError: the first wrong key or value, with the nearest key or the values that are right.
        """
        _check_keys(values, path)
        try:
            return cls(**values)
        except ValidationError as error:
            raise cls._problem(error.errors()[0], flags, path, assignments) from None

    @classmethod
    def check_values(
        cls,
        values: dict[str, Any],
        flags: Mapping[str, str] = MappingProxyType({}),
        path: str | Path | None = None,
        assignments: Iterable[str] = (),
    ) -> None:
        """Refuse unknown keys and wrong values as `parse` does, before torch and a subclass with more checks load.

        A key that is left out or null is not refused: the subclass may fill it in. The arguments are as in `parse`.

        Raises:
            ValueError: as `parse`, by the checks of this class alone.
        """
        _check_keys(values, path)
        try:
            cls(**{key: value for key, value in values.items() if value is not None})
        except ValidationError as error:
            if problems := [problem for problem in error.errors() if problem["type"] != "missing"]:
                raise cls._problem(problems[0], flags, path, assignments) from None

    @classmethod
    def check_existence(cls, values: dict[str, Any]) -> None:
        """Refuse names and paths that do not exist, in values that `check_values` has accepted, without loading torch.

        Raises:
            ValueError: the first of them, with the message that opening it would raise.
        """

    @classmethod
    def _problem(
        cls, error: ErrorDetails, flags: Mapping[str, str], path: str | Path | None, assignments: Iterable[str]
    ) -> ValueError:
        """Return a ValueError of one line for an error of pydantic, with the file if the wrong value is from there."""
        location = error["loc"]
        typed_keys = {*flags, *(assignment.partition("=")[0].partition(".")[0] for assignment in assignments)}
        stands_in_file = path is not None and not (location and location[0] in typed_keys)
        place = f"{path}: " if stands_in_file else ""
        return ValueError(" ".join(f"{place}{cls._sentence_on(error, flags)}".split()))

    @classmethod
    def keys_below(cls) -> list[str]:
        """Return the keys of mappings inside this configuration as users type them, such as model.dropout."""
        return []

    @classmethod
    def _sentence_on(cls, error: ErrorDetails, flags: Mapping[str, str]) -> str:
        key = ".".join(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden":
            keys = list(cls.model_fields)
            full_keys = {name.rpartition(".")[2]: name for name in cls.keys_below()}
            similar = partial(difflib.get_close_matches, key, n=2, cutoff=_SUGGESTION_CUTOFF)
            matches = [full_keys[key]] if key in full_keys else similar(keys)
            matches = matches or [full_keys[name] for name in similar(full_keys)]
            hint = f"Did you mean {' or '.join(matches)}?" if matches else f"Keys: {', '.join(keys)}."
            return f"Unknown configuration key {key[:60]!r}. {hint}"
        if error["type"] == "missing" and key in cls.model_fields:
            return f"{key} is missing. Give it: {cls.model_fields[key].description}"
        if not key:
            return error["msg"].removeprefix("Value error, ")
        return value_problem(flags.get(str(error["loc"][0]), key), error)

    @classmethod
    def _read(cls, path: Path) -> dict[str, Any]:
        if not path.is_file():
            what = f"{path} is a folder" if path.is_dir() else f"There is no file {path}"
            raise ValueError(f"{what}. Give a YAML file of `key: value` lines.")
        values = read_yaml(path, "Mend it, or use a complete copy.")
        if not isinstance(values, dict):
            raise ValueError(f"{path} must hold `key: value` lines; got {type(values).__name__}. Correct the file.")
        return values

    @classmethod
    def merge_values(cls, path: str | Path | None, assignments: Iterable[str] = (), **values: Any) -> dict[str, Any]:
        """Return the values of a YAML file, overridden by `values` that are not None, then by `key=value` assignments.

        The values are not checked yet.

        Raises:
            ValueError: the file is missing or damaged, or an assignment has no `key=value` form.
        """
        of_file = cls._read(Path(path)) if path is not None else {}
        merged = dict(of_file)
        merged.update({key: deepcopy(value) for key, value in values.items() if value is not None})
        for assignment in assignments:
            key, equals, text = assignment.partition("=")
            if not equals or not key:
                raise ValueError(f"--set takes key=value; got {assignment!r}.")
            if not text.strip():  # perhaps an unset variable of the shell; YAML would read null
                raise ValueError(f"--set {key}= has no value. Give one, or {key}=null for none.")
            try:
                value = parse_yaml(text)
            except ValueError:
                raise ValueError(f"--set {key}: {text[:60]!r} is not a YAML value. Quote it, or correct it.") from None
            if _EXPONENT.fullmatch(text.strip()):  # YAML 1.1 reads 4e-3 as text
                value = float(text)
            target = merged
            *outer, last = key.split(".")
            for part in outer:
                if target.get(part) is None:  # absent, or `part:` without a value
                    target[part] = {}
                target = target[part]
                if not isinstance(target, dict):
                    raise ValueError(
                        f"--set {key}: {part} is a single value and has no keys below it. Give {part}=VALUE."
                    )
            target[last] = value
        for key in cls.KEYS_MERGED_BY_NAME:
            if isinstance(of_file.get(key), dict) and isinstance(merged[key], dict):
                merged[key] = {**of_file[key], **merged[key]}
        return merged

    @classmethod
    def load(cls, path: str | Path | None, assignments: Iterable[str] = (), **values: Any) -> Self:
        """Return the configuration of the values that `merge_values` returns.

        A user's own scheme that the values name must be loaded before, by `use_scheme`.

        Raises:
            ValueError: as `merge_values` and `parse`.
        """
        assignments = list(assignments)
        flags = {key: key for key, value in values.items() if value is not None}
        return cls.parse(cls.merge_values(path, assignments, **values), flags, path, assignments)

    # ---- in the folder of a run ----

    def merge_with_saved(
        self, run: RunFolder, name: str, *, changeable: Iterable[str] = (), saved: Self | None = None
    ) -> Self:
        """Return the saved settings of a run, with the values of this command for the keys that may change.

        Keys of `CHANGEABLE_KEYS` and `changeable` take the value of this command (`self`), even where it is a default;
        keys of `GROWING_KEYS` take what `add_saved_entries` returns. Every other key is compared with the saved one,
        and another value is refused, unless both are paths with equal content (`has_same_content`, `plain_path`).
        Nothing is written.

        A command calls it where it would use something that was made with the saved settings: an evaluation where a
        trial is finished, a training where there are trained steps, geometry where there are results. A study calls it
        as soon as settings are saved: no other command may replace them. (That `--out` alone resumes a study or a
        training is the work of `_settings_file` in `cli/train.py`, which begins with the saved file.)

        Other code compares some inputs: models and seeds of a study (`study._check_saved_models`), the tokenizer of
        windows (`training_folder`, `corpus.build`), rows and weights of a fine-tuning (`finetune`), counted text
        (`geometry_run`).

        Args:
            name: Name of the YAML file.
            changeable: Further keys that may change.
            saved: What `load_to_resume` returned, where the caller has called it.

        Raises:
            SettingMismatch: another key differs.
            ValueError: the file is missing, damaged or of another version.
        """
        saved = saved or self.load_to_resume(run, name)
        changeable = {*self.CHANGEABLE_KEYS, *self.GROWING_KEYS, *changeable}
        command_settings = self.add_saved_entries(saved)
        return saved._with_changes(command_settings, run.path, changeable, self.given_keys())

    def load_to_resume(self, run: RunFolder, name: str) -> Self:
        """Return the saved settings of the run that this command resumes.

        A class overrides it where something of the command must be compared before the saved settings are read:
        `ConfigWithScheme` its scheme, whose code they need.

        Raises:
            ValueError: as `load_verified`.
        """
        return self.load_verified(run, name)

    def add_saved_entries(self, saved: Self) -> Self:
        """Return these settings with what the saved ones have of `GROWING_KEYS`.

        Entries of saved lists and mappings come first, in their order; where both have an entry of a mapping, the value
        of these settings counts. The larger of two numbers is kept, and what was switched on stays on.
        """
        joined: dict[str, Any] = {}
        for key in self.GROWING_KEYS:
            old = getattr(saved, key)
            new = getattr(self, key)
            if isinstance(new, list):
                joined[key] = [*old, *(entry for entry in new if entry not in old)]
            elif isinstance(new, dict):
                joined[key] = {**old, **new}
            else:
                joined[key] = max(old, new)
        return self.model_copy(update=joined)

    def _with_changes(self, command_settings: Self, out: Path, changeable: Iterable[str], given_keys: set[str]) -> Self:
        """Return these saved settings with a command's values of changeable keys, after comparing all other keys.

        Raises:
            SettingMismatch: another key differs.
        """
        keys_to_change = set(changeable)
        before = self.model_dump()
        # A key that the user gave is named before one that has its default.
        for key, value in sorted(command_settings.model_dump().items(), key=lambda pair: pair[0] not in given_keys):
            if key in keys_to_change or _with_plain_paths(before[key]) == _with_plain_paths(value):
                continue
            if not command_settings.has_same_content(key, out):
                default = "" if key in given_keys else " (default)"
                hint = ""
                if arguments := self.resume_arguments(out):
                    hint = f"Run it with only `{arguments}` to resume, or choose another `--out`."
                started = f"{out} was started with {key}={before[key]!r}"
                problem = f"{started}, this command has {key}={value!r}{default}."
                raise SettingMismatch(problem, hint, key, before[key])
            keys_to_change.add(key)
        return self.model_copy(update={key: getattr(command_settings, key) for key in keys_to_change})

    def resume_arguments(self, out: Path) -> str:
        """Return the arguments that suffice to resume the run in `out`, whose saved settings these are; "" for none."""
        words = {"out": out} | self.model_dump()
        return self.RESUME_ARGUMENTS.format(**{name: shlex.quote(str(word)) for name, word in words.items()})

    def save_in(self, run: RunFolder, name: str) -> Self:
        """Write the settings of a run to a YAML file of its folder, over an earlier one, and return them.

        A ValueError before the run's input is accepted removes the file of a new run again (`RunFolder.open`).
        """
        run.write(name, self.model_dump(mode="json"))
        return self

    @classmethod
    def load_verified(cls, run: RunFolder, name: str) -> Self:
        """Return the saved settings of a run, after comparing the hash of their file.

        Raises:
            ValueError: the file is missing, damaged, or of a version with other settings.
        """
        path = run.path / name
        if name in run.listed_files() and not path.is_file():
            raise ValueError(f"{path} is missing. Use a complete copy, or choose another --out.")
        run.check(name)
        try:
            return cls.load_saved(path)
        except UntrustedScheme:
            raise
        except ValueError as error:
            problem = str(error).removeprefix(f"{path}: ")
            raise ValueError(
                f"{path} is refused here: {problem} If another version wrote the file, finish the run with that one, "
                "or choose another --out."
            ) from None

    @classmethod
    def load_saved(cls, path: Path) -> Self:
        """Return the settings that `save_in` wrote, without comparing the hash of their file.

        Call it for a file that this command, or the parent of this process, has compared or written.
        """
        return cls.load(path)

    def given_keys(self) -> set[str]:
        """Return the keys that the user gave.

        A class that fills in defaults leaves out the keys that equal them: pydantic counts them as given.
        """
        return set(self.model_fields_set)

    def has_same_content(self, key: str, out: Path) -> bool:
        """Return whether the content that a key names by a path (text, labelled table, tokenizer) equals the run's.

        Args:
            out: Folder of the run.
        """
        return False
