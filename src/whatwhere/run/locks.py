"""One writer a folder: a second process that would write there is refused, and what a killed one left is removed."""

import fcntl
import glob
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from .files import TEMPORARY, check_writable, this_machine

LOCK = ".lock"
_LOOKS, _PAUSE = 5, 0.02  # at a lock that another holds, seconds between them: one that asks who does holds it, too
WAIT = 5.0  # seconds between two looks at whether another process is done with a folder
_held: set[Path] = set()  # by this process


class InUse(ValueError):
    """A folder that another process holds; holder: "PID on HOST"."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(folder, holder)  # what it is made of again where it comes from another process
        self.folder, self.holder = folder, holder

    def __str__(self) -> str:
        seen = f"Another process is writing to {self.folder} (process {self.holder})"
        return f"{seen}. Wait for it, or choose another --out."


@contextmanager
def locked(folder: Path, part: str = "") -> Iterator[None]:
    """Hold a folder for this process, which is made if it is not there; readers need no lock.

    The system frees the lock of a process that dies. What this process holds already it may hold once more.

    part: hold this part of the work in it alone; other processes may hold others meanwhile, and none the whole.

    Raises:
        InUse: another process holds it, or a part of it; the message says which, on which machine.
        ValueError: it cannot be written.
    """
    check_writable(folder)
    if folder.is_file():
        raise ValueError(f"{folder} is a file, where the folder of a run is needed. Choose another --out.")
    if folder.resolve() in _held:
        yield
        return
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    path = folder / (f"{LOCK}-{part}" if part else LOCK)
    held = _acquire(path)
    try:
        for other in [folder / LOCK] if part else folder.glob(f"{LOCK}-*"):
            if (holder := _holder(other)) is not None:
                raise InUse(folder, holder)
            other.unlink(missing_ok=True)  # of a process that was killed
        if not part:
            _held.add(folder.resolve())
        yield
    finally:
        _held.discard(folder.resolve())
        try:
            path.unlink(missing_ok=True)
        finally:
            os.close(held)
        with suppress(OSError):  # another process begins in it
            for each in made:  # where the work was refused there is nothing in them
                each.rmdir()


def _acquire(path: Path) -> int:
    looks = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # who held it may just have removed it
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            if (looks := looks + 1) < _LOOKS:
                continue
            raise  # nothing can be made there
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if (looks := looks + 1) < _LOOKS:
                os.close(held)
                time.sleep(_PAUSE)
                continue
            holder = os.read(held, 200).decode(errors="replace") or "unknown"
            os.close(held)
            raise InUse(path.parent, holder) from None
        try:
            if os.path.samestat(os.fstat(held), path.stat()):
                os.ftruncate(held, 0)
                os.write(held, f"{os.getpid()} on {socket.gethostname()}".encode())
                return held
        except FileNotFoundError:
            pass
        os.close(held)  # the one before has removed its file in between


def is_locked(folder: Path) -> str | None:
    """Who writes to a folder or to a part of it, "PID on HOST"; None where nobody does."""
    holders = (_holder(path) for path in (folder / LOCK, *folder.glob(f"{LOCK}-*")))
    return next((holder for holder in holders if holder is not None), None)


def _holder(path: Path) -> str | None:
    try:
        held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.read(held, 200).decode(errors="replace") or "unknown"
    finally:
        os.close(held)
    return None


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
                    holder = error.holder
                    what = f"waiting for process {holder}, which writes to {folder}"
                    say("waiting", what, process=holder, folder=str(folder))
                time.sleep(WAIT)
        if holder:
            say("waited", f"going on: process {holder} is done with {folder}", process=holder, folder=str(folder))
        yield
