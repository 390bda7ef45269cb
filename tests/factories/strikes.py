"""What a process does to itself just before its k-th change of the file system below its folder: the modes of
`faults.py`, which says what each of them is."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import fork_server

CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate")
JUMPS = {"back": -86_400.0, "ahead": 365 * 86_400.0}  # seconds
MODES = ("kill", "torn", "full", "read-only", "stop", *JUMPS, "second")
WELL = {"kill": (-9,), "torn": (-9,), "full": (2,), "read-only": (2,), "stop": (143, 0)}  # statuses, of the others 0
HELD = ".held"  # ends the name of the file beside a folder whose process waits for a second one


def disturbed(folder: str, change: str, mode: str, cores: str, *words: str) -> None:
    """The command line in this process, disturbed just before its k-th change of the file system in its folder or
    beside it, where whole folders are made; prints how many changes there were.

    cores: that it is told of; 0 for all.
    """
    last: list[str] = []
    left = [int(change)]
    clock = mock.patch.object(time, "time", lambda now=time.time: now() - JUMPS[mode])
    if int(cores):
        mock.patch.object(os, "sched_getaffinity", lambda _: set(range(int(cores)))).start()

    def see(event: str, arguments: tuple[object, ...]) -> None:
        opened = event == "open" and _writes(arguments)
        if not (opened or event in CHANGES) or not isinstance(arguments[0], str | os.PathLike):
            return
        path = os.fspath(arguments[0])
        if not str(path).startswith(os.path.dirname(folder)):
            return
        left[0] -= 1
        if left[0] == 0 or (mode == "full" and left[0] < 0 and opened):  # a full disk stays full
            clock.stop()
            _strike(mode, folder, last)
        if opened:
            last[:] = [str(path)]

    if int(change) and mode in JUMPS:
        clock.start()
    if change == "1" and mode == "read-only":
        _strike(mode, folder, last)
    sys.addaudithook(see)
    try:
        fork_server._whatwhere("", "", *words)
    finally:
        print(f"\n{int(change) - left[0]} changes", flush=True)


def _writes(arguments: tuple[object, ...]) -> bool:
    mode = arguments[1]
    flags = arguments[2]
    if isinstance(mode, str):
        return any(sign in mode for sign in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _strike(mode: str, folder: str, last: Sequence[str]) -> None:
    if mode == "full":
        raise OSError(28, "No space left on device", None)
    if mode == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
    elif mode == "read-only":
        _take_rights(Path(folder))
    elif mode in JUMPS:
        for path in Path(folder).rglob("*"):
            os.utime(path, (path.stat().st_mtime - JUMPS[mode],) * 2)
    elif mode == "second":
        held = Path(f"{folder}{HELD}")
        held.touch()
        while held.exists():
            time.sleep(0.002)
    else:
        if mode == "torn" and last and os.path.isfile(last[0]):
            name = os.path.basename(last[0])
            size = os.path.getsize(last[0])
            if name == "log.jsonl" or name.startswith("."):
                os.truncate(last[0], max(size - 7, 0) if name == "log.jsonl" else size // 2)
        os.kill(os.getpid(), signal.SIGKILL)


def _take_rights(folder: Path) -> None:
    """Nobody may write below a folder nor make it; of root's processes not this one and those that it starts."""
    for place in _places(folder):
        place.chmod(place.stat().st_mode & ~0o222)
    if os.geteuid() == 0:
        system = ctypes.CDLL(None)
        for right in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            system.prctl(24, right, 0, 0, 0)  # PR_CAPBSET_DROP
        who = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
        rights = (ctypes.c_uint32 * 6)()
        system.capget(who, rights)
        for i in range(3):
            rights[i] &= ~0b110
        assert system.capset(who, rights) == 0


def give_rights(folder: Path) -> None:
    for place in _places(folder):
        place.chmod(place.stat().st_mode | 0o200)


def _places(folder: Path) -> list[Path]:
    return [folder.parent, *([folder, *folder.rglob("*")] if folder.exists() else ())]
