"""The folder of a training, whatever it trains: claimed at the start, a transformers folder at the end."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from ..run.errors import UnknownProgram
from ..run.files import (
    check_writable,
    read_yaml,
)
from ..run.hashes import check_lines
from ..run.locks import is_locked, locked, sweep
from ..run.status import STUDY, TRAININGS
from .environment import join_processes
from .settings import SCHEME, SchemeConfig
from .training_folder import SUMMARY as SUMMARY

C = TypeVar("C", bound=SchemeConfig)
P = ParamSpec("P")
R = TypeVar("R")


def one_writer(work: Callable[P, R]) -> Callable[P, R]:
    """A function that holds the folder which is its argument `out`, if any, while it works (`locks.locked`); of several
    processes of a training the main one does."""
    signature = inspect.signature(work)

    @functools.wraps(work)
    def held(*args: P.args, **kwargs: P.kwargs) -> R:
        out = signature.bind(*args, **kwargs).arguments.get("out")
        if out is None or not join_processes().is_main_process:
            return work(*args, **kwargs)
        with locked(Path(out)):
            result = work(*args, **kwargs)
            sweep(Path(out))  # only now it is known to be a run's
            return result

    return held


def began_with(kind: type[C], saved: Path) -> C:
    """The configuration that a run was begun with.

    Raises:
        ValueError: it is not as it was written, or another version wrote it, whose settings are not those of this one.
    """
    check_lines(saved)
    read_yaml(saved, "Use a complete copy, or another --out.")
    try:
        return kind.load_run(saved)
    except UnknownProgram:
        raise
    except ValueError as error:
        raise ValueError(
            f"{saved} is of a run that another version's recipe began ({str(error).split('. ')[0]}). Nothing in "
            f"{saved.parent} was changed: finish the run with that version, or choose another --out."
        ) from None


def claim_folder(
    config: SchemeConfig, out: Path, name: str, resume: bool, free: tuple[str, ...] = (), shared: bool = False
) -> bool:
    """Make sure that `out` is empty, or holds the same run if `resume`; True if it holds one already.

    `free` keys may differ between the two configurations. shared: others may be writing there, so nothing is removed.

    Raises:
        ValueError: the folder holds something else, a run that was not to be resumed, or one with other settings.
    """
    saved = out / name
    check_writable(out)
    if out.is_file():
        raise ValueError(f"{out} is a file, where the folder of a run is needed. Choose another --out.")
    if saved.is_file():
        if not resume:
            way_out = "Go on with it (resume=True), or choose another folder."
            raise ValueError(f"{out} already holds a run ({name}). {way_out}")
        config.check_scheme(out)
        old = began_with(type(config), saved).model_dump()
        given = config.model_fields_set  # what was asked for is named first
        for key, value in sorted(config.model_dump().items(), key=lambda pair: pair[0] not in given):
            if key == "scheme" and None not in (value, old[key]):
                continue  # the same text, wherever it stands
            if key not in free and old.get(key) != value and not config.same_content(key, out):
                differs = f"{key}={old.get(key)!r}, now {key}={value!r}{' by default' * (key not in given)}"
                ways = "Use the same settings, or another --out."
                if name in (*TRAININGS, STUDY):
                    ways = "Use the same settings (--resume takes those that are not given), or another --out."
                raise ValueError(f"{out} holds a run with {differs}. {ways}")
        if not shared:
            sweep(out)
        return True
    for path in out.iterdir() if out.is_dir() else ():
        # Windows alone, or in the making, are of a run whose other input was refused or that does not train yet;
        # `build_windows` knows whether they are the right.
        windows = path.name == "corpus" and ((path / "settings.json").is_file() or is_locked(path) is not None)
        if not windows and not path.name.startswith("."):
            what = f"is not empty and holds no run of this kind ({saved} is missing)"
            raise ValueError(f"{out} {what}. Choose another --out.")
    return False


@contextlib.contextmanager
def begun(config: SchemeConfig, out: Path, name: str, *more: str) -> Iterator[None]:
    """Keep the settings of a new run from before its data are prepared, so that one stopped meanwhile can go on.

    Where wrong input is refused, they are gone again, and with them `more` files.
    """
    new = join_processes().is_main_process and not (out / name).is_file()
    if new:
        config.save_run(out / name)
    try:
        yield
    except ValueError:
        if new:
            for written in (name, SCHEME, *more):
                (out / written).unlink(missing_ok=True)
        raise
