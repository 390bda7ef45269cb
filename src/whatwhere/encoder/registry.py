"""Registry of position schemes by name: tables, biases, rotations, pair terms and presets, the published ones and
your own.

A scheme of your own is one Python file that imports from `whatwhere.encoder` and registers its parts.
"""

import difflib
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

Rotation = Callable[..., Tensor]  # (position_ids (b, n), width, config, dtype) -> angles (b, n, width / 2)

TABLES: dict[str, type[nn.Module]] = {}
BIASES: dict[str, type[nn.Module]] = {}
ROTATIONS: dict[str, Rotation] = {}
PAIR_TERMS: dict[str, type[Any]] = {}  # subclasses of `encoder.pair_terms.PairTerms`
PRESETS: dict[str, dict[str, Any]] = {}
SOURCES: dict[str, str] = {}  # where each preset is published
# Registries of parts, by the field of a configuration that names the part.
PARTS: dict[str, dict[str, Any]] = {
    "absolute": TABLES,
    "relative": BIASES,
    "rotation": ROTATIONS,
    "pair_terms": PAIR_TERMS,
}

_folder_readers: list[Callable[[Path], Tensor]] = []  # none, or one that reads position tables of models' folders
# Text of each file that load_scheme ran, and the parts that it registered as (field of a configuration, name).
_loaded: dict[Path, tuple[str, set[tuple[str, str]]]] = {}

_Part = TypeVar("_Part", bound=Callable[..., Any])


def suggest_name(name: str, names: tuple[str, ...] | list[str]) -> str:
    """Return " Did you mean X or Y?" for a misspelt name, or "" if no name of `names` is close."""
    close = difflib.get_close_matches(str(name), names, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _check_name(name: str, registered: dict[str, Any], kind: str) -> None:
    if name == "none" or not name:
        raise ValueError(f"A {kind} cannot be named {name!r}. Choose another name.")
    if name in registered:
        names = ", ".join(registered)
        raise ValueError(f"A {kind} named {name!r} is registered already. Choose another name; taken: {names}.")


def _decorator(name: str, registered: dict[str, Any], kind: str) -> Callable[[_Part], _Part]:
    _check_name(name, registered, kind)
    return lambda part: registered.setdefault(name, part)


def register_table(name: str) -> Callable[[_Part], _Part]:
    """Register a position table by a class decorator.

    The class is `Module(config, rows, width)` whose `forward()` gives (rows, width).

    Configurations then take it as `absolute=name`. A method `initialize(config)` sets the initial weights. A method
    `at(positions)`, real numbers (...) to vectors (..., width), lets `position_draws` be used with it.

    Raises:
        ValueError: the name is taken, empty or "none".
    """
    return _decorator(name, TABLES, "table")


def register_bias(name: str) -> Callable[[_Part], _Part]:
    """Register a relative bias by a class decorator.

    The class is `Module(config)` whose `forward(distance)` gives (..., heads) in score units.

    `distance` holds integers of any shape, key position minus query position. Configurations take it as
    `relative=name`. A method `initialize(config)` sets the initial weights. A static method `buckets(distance, config)`
    maps the distances, once for all layers, to integers of the same shape that `forward` gets instead.

    Raises:
        ValueError: the name is taken, empty or "none".
    """
    return _decorator(name, BIASES, "bias")


def register_rotation(name: str) -> Callable[[_Part], _Part]:
    """Register a rotation by a decorator.

    The function `f(position_ids (b, n), width, config, dtype)` gives angles (b, n, width / 2) in radians.

    Configurations take it as `rotation=name`. width: columns of a head that turn (`rotated_width`).

    Raises:
        ValueError: the name is taken, empty or "none".
    """
    return _decorator(name, ROTATIONS, "rotation")


def register_pair_terms(name: str) -> Callable[[_Part], _Part]:
    """Register pair terms by a class decorator: a subclass of `encoder.pair_terms.PairTerms`.

    Configurations take it as `pair_terms=name`.

    Raises:
        ValueError: the name is taken, empty or "none".
    """
    return _decorator(name, PAIR_TERMS, "class of pair terms")


def register_preset(name: str, base: str | None, source: str, **fields: Any) -> None:
    """Register a named configuration: the fields of `base` (an earlier preset, or None) and the given ones.

    fields: of `EncoderConfig`, or `streams` (1 or 2) and `d_pos`, the width of the position stream of two: a number or
    "head", the width of a head; default: the size's.

    Raises:
        ValueError: the name is taken, empty or "none", it is its own base, or the base is not registered (so no circle
            can arise).
    """
    _check_name(name, PRESETS, "preset")
    if base == name:
        raise ValueError(f"Preset {name!r} is derived from itself. Give it another base, or None.")
    if base is not None and base not in PRESETS:
        hint = suggest_name(base, list(PRESETS))
        raise ValueError(
            f"Preset {name!r} is derived from {base!r}, which is not registered (yet).{hint} "
            "Register a base before what derives from it; presets cannot form a circle."
        )
    inherited = PRESETS[base] if base else {}
    PRESETS[name] = {**inherited, **fields}
    SOURCES[name] = source


def register_folder_reader(read: Callable[[Path], Tensor]) -> None:
    """Let new models start from the position table of a model's folder: `read(folder)` gives (rows, width) in float64.

    A saved model carries no such reader: its weights hold the table, so it needs no folder.
    """
    _folder_readers[:] = [read]


def table_of_folder(folder: Path) -> Tensor:
    """Read the position table of a model's folder: (rows, width) in float64.

    Raises:
        ValueError: no reader of folders is registered, or what the reader raises.
    """
    if not _folder_readers:
        raise ValueError(
            f"{folder} is a model's folder. Import whatwhere.models.model_tables to read it, or give a .npy file."
        )
    return _folder_readers[0](folder)


def load_scheme(path: str | Path) -> Path:
    """Run a file that registers a scheme of your own; a second call with the same file changes nothing.

    Raises:
        ValueError: the file is missing, is no Python, fails, registers nothing or a name that is taken, or has changed
            since it was loaded.
    """
    path = Path(path).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"A scheme is a Python file that registers it; got {path}. See examples/ for one.")
    text = path.read_text(encoding="utf-8")
    if path in _loaded:
        if _loaded[path][0] != text:
            raise ValueError(f"{path} has changed since it was loaded. Start the program again.")
        return path
    registries: list[dict[str, Any]] = [*PARTS.values(), PRESETS, SOURCES]
    snapshots = [dict(names) for names in registries]
    names_before = {field: set(names) for field, names in PARTS.items()}
    # Loaded as a module of this folder, so that the copy in a saved model (`from .registry import ...`) runs too.
    path_hash = hashlib.sha256(bytes(path)).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"{__package__}.own_{path.stem}_{path_hash}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses, pickle and torch.compile look its classes up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # also SystemExit, with which a file may end the program
        del sys.modules[spec.name]
        for names, old in zip(registries, snapshots, strict=True):
            names.clear()  # nothing half-registered stays
            names.update(old)
        if isinstance(error, ValueError) or not isinstance(error, Exception):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"The scheme {path} does not run: {reason}. Correct the file.") from error
    if registries == snapshots:
        del sys.modules[spec.name]
        raise ValueError(f"The scheme {path} registers nothing: no part, no preset. See examples/kerple.py for one.")
    added = {(field, name) for field, names in PARTS.items() for name in names.keys() - names_before[field]}
    _loaded[path] = (text, added)
    return path


@contextmanager
def forget_schemes_afterwards() -> Iterator[None]:
    """Forget, after the `with` body, every scheme loaded in it, as the next piece of work may bring another."""
    registries: list[dict[Any, Any]] = [*PARTS.values(), PRESETS, SOURCES, _loaded]
    snapshots = [dict(names) for names in registries]
    try:
        yield
    finally:
        for names, old in zip(registries, snapshots, strict=True):
            names.clear()
            names.update(old)


def is_loaded(text: str) -> bool:
    """Return whether `load_scheme` ran a file of this text, in any folder."""
    return any(text == loaded_text for loaded_text, _ in _loaded.values())


def failing_line(error: BaseException) -> str:
    """Return the last line of a loaded scheme in an error's traceback, as "FILE, line N", or "" if there is none."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) in _loaded]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else ""


def scheme_files(config: Any) -> dict[Path, str]:
    """Return the loaded files that registered a part of a configuration's scheme, with their texts."""
    used = {(field, getattr(config, field)) for field in PARTS}
    return {path: text for path, (text, added) in _loaded.items() if used & added}
