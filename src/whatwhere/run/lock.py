"""Lock of a folder, to which one command with its jobs writes, and a file that names the command's process."""

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
MOST_TRIES = 100  # to make a folder that other processes remove meanwhile
SECONDS_TO_WAIT = 0.1  # for a locked folder: `is_free` of another process takes the lock for a moment


class InUse(ValueError):
    """Error for a folder to which another process, or this one already, writes."""

    def __init__(self, folder: Path, writer: str) -> None:
        super().__init__(folder, writer)  # pickled with its arguments where it comes from another process
        self.folder = folder
        self.writer = writer

    def __str__(self) -> str:
        if self.writer == _this_process():
            return f"{self.folder} is being written by this program already. Give each writer a folder of its own."
        return f"{self.folder} is being written by process {self.writer}. Wait for it, or choose another --out."


def _this_process() -> str:
    return f"{os.getpid()} on {socket.gethostname()}"


def writer_of(folder: Path) -> str | None:
    """Return the process that holds the lock of a folder, "PID on HOST"; None where none does."""
    return None if is_free(folder) else _read_writer(folder)


def is_free(folder: Path) -> bool:
    """Return whether no process holds the lock of a folder.

    True where its lock cannot be read, or on a file system without flock, where filelock falls back to the existence of
    the lock file. A job that writes by `RunFolder.at` takes no lock: while it outlives a killed command, the folder
    counts as free.
    """
    with suppress(OSError), (folder / LOCK).open("rb") as file:
        try:
            # Shared: two processes that call this at once both find the folder free.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _read_writer(folder: Path) -> str:
    with suppress(OSError):
        return (folder / WRITER).read_text(encoding="utf-8") or "unknown"
    return "unknown"


def _acquire(file_lock: FileLock, path: Path) -> None:
    """Make the folder of a lock and take the lock; the process that held it may remove the empty folder in between."""
    for attempt in range(MOST_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file_lock.acquire()
            return
        except Timeout:
            raise InUse(path.parent, _read_writer(path.parent)) from None
        except (FileNotFoundError, FileExistsError):  # FileExistsError: the folder is gone when `mkdir` looks again
            if attempt == MOST_TRIES - 1:
                raise


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Lock a folder inside the block; the system frees the lock if the process dies.

    Raises:
        InUse: another process, another thread or a block around this one has locked the folder.
    """
    new_folders = [new for new in (folder, *folder.parents) if not new.exists()]
    path = folder / LOCK
    file_lock = FileLock(path, timeout=SECONDS_TO_WAIT)
    _acquire(file_lock, path)
    locked = path.stat()
    try:
        write_text(folder / WRITER, _this_process())
        yield
    finally:
        try:
            # The block may have put a new folder in the place of this one, which another process may have locked.
            if path.exists() and os.path.samestat(path.stat(), locked):
                (folder / WRITER).unlink(missing_ok=True)
                # A waiting process sees that the file it locks is gone, and opens a new one (filelock 4.2 and later).
                path.unlink(missing_ok=True)
        finally:  # also where a signal interrupts this process
            file_lock.release()
        with suppress(OSError):  # a folder that holds files stays, as do those above it
            for new in new_folders:
                new.rmdir()
