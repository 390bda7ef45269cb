"""One writer a folder: a lock that the system frees when its process dies, beside a file that names the process."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .files import write_text

LOCK = ".lock"
WRITER = ".writer"
MOST_TRIES = 100  # tries to make a folder that other processes remove meanwhile
# A process that only asks who writes takes the lock for a moment; wait so long before refusing.
SECONDS_TO_WAIT = 0.1


class InUse(ValueError):
    """Error for a folder to which another process writes."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__(folder, writer)  # pickled with its arguments where it comes from another process
        self.folder = folder
        self.writer = writer

    def __str__(self) -> str:
        return f"{self.folder} is being written by process {self.writer}. Wait for it, or choose another --out."


def is_free(folder: Path) -> bool:
    """Return whether no process writes to a folder."""
    return writer_of(folder) is None


def writer_of(folder: Path) -> str | None:
    """Return who writes to a folder or to a part of it, "PID on HOST"; None where nobody does."""
    for path in [folder / LOCK, *folder.glob(f"{LOCK}-*")]:
        if not is_unlocked(path):
            return _read_writer(path)
    return None


def is_unlocked(lock: Path, seconds: float = 0) -> bool:
    """Return whether a lock file is free, or becomes free within some seconds; True where there is none."""
    if not lock.is_file():
        return True
    try:
        with FileLock(lock, timeout=seconds):
            return True
    except Timeout:
        return False
    except OSError:  # this user may not write here, and only asks who writes
        return _is_unlocked_for_readers(lock)


def _is_unlocked_for_readers(lock: Path) -> bool:
    """Return whether no process holds a lock file that this user may only read; True where they may not read it."""
    with suppress(OSError), lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _read_writer(lock: Path) -> str:
    with suppress(OSError):
        return _writer_file(lock).read_text(encoding="utf-8") or "unknown"
    return "unknown"


def _writer_file(lock: Path) -> Path:
    return lock.with_name(lock.name.replace(LOCK, WRITER, 1))


def _acquire(file_lock: FileLock, path: Path) -> None:
    """Make the folder of a lock and take the lock; a process that was refused may remove the folder in between."""
    for attempt in range(MOST_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file_lock.acquire()
            return
        except Timeout:
            raise InUse(path.parent, _read_writer(path)) from None
        except (FileNotFoundError, FileExistsError):  # FileExistsError: the folder is gone when `mkdir` looks again
            if attempt == MOST_TRIES - 1:
                raise


@contextmanager
def block_new_parts(folder: Path, part: str) -> Iterator[bool]:
    """Keep other processes from beginning a part of a folder, for a process that holds `part`, by the whole's lock.

    Yields:
        True if no other process holds a part now.
    """
    file_lock = FileLock(folder / LOCK, timeout=SECONDS_TO_WAIT)
    try:
        file_lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield all(is_unlocked(path) for path in folder.glob(f"{LOCK}-*") if path.name != f"{LOCK}-{part}")
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        file_lock.release()


_locked_folders: set[Path] = set()  # folders that this process holds


@contextmanager
def lock(folder: Path, part: str = "") -> Iterator[None]:
    """Hold a folder, or a part of the work in it, for this process; the system frees the lock of a process that dies.

    A folder that this process holds already may be held once more.

    Raises:
        InUse: another process holds it, or a part of it.
    """
    if folder.resolve() in _locked_folders:
        yield
        return
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    name = f"{LOCK}-{part}" if part else LOCK
    file_lock = FileLock(folder / name, timeout=SECONDS_TO_WAIT)
    writer = _writer_file(folder / name)
    _acquire(file_lock, folder / name)
    try:
        for path in [folder / LOCK] if part else sorted(folder.glob(f"{LOCK}-*")):
            if not is_unlocked(path, SECONDS_TO_WAIT):  # another one that asks holds it for a moment
                raise InUse(folder, _read_writer(path))
            if not part:  # left by a process that was killed
                path.unlink(missing_ok=True)
                _writer_file(path).unlink(missing_ok=True)
        write_text(writer, f"{os.getpid()} on {socket.gethostname()}")
        if not part:
            _locked_folders.add(folder.resolve())
        yield
    finally:
        _locked_folders.discard(folder.resolve())
        try:
            writer.unlink(missing_ok=True)
            (folder / name).unlink(missing_ok=True)
        finally:  # also where a signal interrupts this process
            file_lock.release()
        with suppress(OSError):  # the folders hold files
            for path in new_folders:
                path.rmdir()
