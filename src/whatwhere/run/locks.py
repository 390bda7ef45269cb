"""One writer a folder: a second process that would write there is refused, and what a killed one left is removed."""

import glob
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from .files import TEMPORARY, check_writable, this_machine
from .lock import LOCK, InUse, lock, writer_of

WAIT = 5.0  # seconds between two looks at whether another process is done with a folder


@contextmanager
def locked(folder: Path, part: str = "") -> Iterator[None]:
    """Hold a folder, or a part of the work in it, for this process (`run.lock`).

    Raises:
        InUse: another process holds it, or a part of it.
        ValueError: it cannot be written.
    """
    check_writable(folder)
    if folder.is_file():
        raise ValueError(f"{folder} is a file, where the folder of a run is needed. Choose another --out.")
    with lock(folder, part):
        yield


is_locked = writer_of


def sweep_beside(path: Path) -> None:
    """As `sweep`, of what killed processes of this machine left beside a folder that they were to make whole."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        found = TEMPORARY.match(left.name)
        if found and found[1] == path.name and _is_left(found):
            _clear(left, found)


def _clear(left: Path, found: re.Match[str]) -> None:
    """Remove a temporary name, or put back what was put aside."""
    if found[4] and not left.with_name(found[1]).exists():
        os.replace(left, left.with_name(found[1]))
    elif left.is_dir() and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)


def _is_left(found: re.Match[str]) -> bool:
    """Whether nobody works at what has this name any more: not a process of this machine, which has ended or is this
    one; what another machine left is left to that."""
    if found[2] != this_machine():
        return found[2] is None  # a name of earlier versions
    try:
        return int(found[3]) == os.getpid() or psutil.Process(int(found[3])).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def sweep(folder: Path) -> None:
    """Remove the temporary names that killed processes left below a folder that this one holds, and put back what they
    had put aside; what living processes or other machines write, and folders that others hold, stay as they are.

    Only for a folder that is known to be a run's: names that begin with a dot and end in a number may be anybody's.
    """
    for path in sorted(folder.iterdir()):
        if found := TEMPORARY.match(path.name):
            if _is_left(found):  # else of a process that works at a model of this study
                _clear(path, found)
        elif path.is_dir() and not path.is_symlink() and is_locked(path) is None:
            (path / LOCK).unlink(missing_ok=True)  # of a process that was killed before it let go
            sweep(path)


@contextmanager
def waiting_for(folder: Path, say: Callable[..., None]) -> Iterator[None]:
    """Hold a folder as soon as nobody else does; who does is said once, and when it goes on."""
    holder = ""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(locked(folder))
                break
            except InUse as error:
                if not holder:
                    holder = error.writer
                    what = f"waiting for process {holder}, which writes to {folder}"
                    say("waiting", what, process=holder, folder=str(folder))
                time.sleep(WAIT)
        if holder:
            say("waited", f"going on: process {holder} is done with {folder}", process=holder, folder=str(folder))
        yield
