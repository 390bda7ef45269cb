"""Handling of Ctrl-C (SIGINT) and of SIGTERM, which a system sends to get its machine back.

A command ends with status 130 or 143 and one line that says how to resume. At a second signal, or at a first one during
an import or while torch writes a graph, it ends immediately and prints only "stopped". Work with checkpoints runs
inside `defer_stop`: a signal waits for the end of its step, so that the process can write a checkpoint. Without
`handle_signals`, Python's handling stays.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Printed by commands whose jobs run in other processes.
STOPPING = "Stopping: finished work stays, and a training in a folder of its own writes a checkpoint first"
_EXPORTER = f"{os.sep}torch{os.sep}onnx{os.sep}"
GRACE = 120.0  # seconds in which a process that is told to stop must have written its checkpoint


class Stopped(BaseException):
    """Exception for work that a signal stopped; a training's text names its step."""


_stop_signal: int | None = None  # the first signal that came
_may_stop_now = threading.Event()  # not set while some work defers a stop
_may_stop_now.set()
_is_spawning = False  # True while this process starts others


def stop_signal() -> int | None:
    """Return the number of the signal that asked this process to stop; None where no signal came."""
    return _stop_signal


def request_stop(number: int = signal.SIGTERM) -> None:
    """Ask this process to stop, as if a signal came; work inside `defer_stop` looks at it, other work goes on."""
    global _stop_signal
    _stop_signal = number


def clear_stop() -> None:
    """Forget that this process was asked to stop, so that its next job is not stopped."""
    global _stop_signal
    _stop_signal = None


def stop_work() -> None:
    """Ask this process to stop, and raise in the calling thread unless some work of the process defers the stop.

    Raises:
        Stopped: no work is inside `defer_stop`.
    """
    request_stop()
    if _may_stop_now.is_set():
        raise Stopped


@contextmanager
def handle_signals(*, ends_process: bool = False) -> Iterator[None]:
    """Handle SIGINT and SIGTERM inside the block; a signal that is ignored stays ignored (`nohup`, background jobs).

    ends_process: the process ends after the block. If a signal came, another one while it ends stops it immediately,
    where Python's own handling would print a traceback of the functions that it runs at the end.
    """
    global _stop_signal
    _stop_signal = None
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                handlers[number] = signal.signal(number, _receive)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, _end_now if ends_process and _stop_signal is not None else handler)
        _stop_signal = None  # for a training that a program starts later


def _receive(number: int, frame: FrameType | None) -> None:
    global _stop_signal
    is_second = _stop_signal is not None
    _stop_signal = _stop_signal or number
    if _is_spawning and not is_second:
        return
    if is_second or (_may_stop_now.is_set() and _allows_no_exception(frame)):
        _end_now(number, frame)
    if _may_stop_now.is_set():
        raise Stopped
    advice = "A second signal stops immediately, without a checkpoint."
    _write_stderr(f"stopping after this step, with a checkpoint. {advice}")


def _end_now(number: int, frame: FrameType | None) -> None:
    _write_stderr("stopped.")
    os._exit(128 + number)


def _write_stderr(words: str) -> None:
    os.write(2, f"\nwhatwhere: {words}\n".encode())


def _allows_no_exception(frame: FrameType | None) -> bool:
    """Return whether a frame or one that called it is of an import, or of torch's exporter.

    Inside an import an exception would look like an error of the imported module. Inside the exporter it would pass
    through C++, which ended the process with "terminate called".
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib") or _EXPORTER in file:
            return True
        frame = frame.f_back
    return False


@contextmanager
def defer_stop() -> Iterator[None]:
    """Let a signal wait for the block, which must look at `stop_signal` after each step and end.

    Raises:
        Stopped: a signal came, and the block has ended without an error.
    """
    _may_stop_now.clear()
    try:
        yield
    finally:
        _may_stop_now.set()
    if _stop_signal is not None:
        raise Stopped


@contextmanager
def hold_signals_while_spawning() -> Iterator[None]:
    """Let a signal wait for the block, which starts processes; Ctrl-C does not interrupt their imports.

    Raises:
        Stopped: a signal came, the block has ended without an error, and no work defers a stop.
    """
    global _is_spawning
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # processes and threads that start here inherit it
    _is_spawning = True  # for `_receive`: the main thread runs it even where another thread takes the signal
    try:
        yield
    finally:
        _is_spawning = False
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if _stop_signal is not None and _may_stop_now.is_set():
        raise Stopped


def end_process(number: int) -> None:
    """End this process from any of its threads: immediately, or after the checkpoint of work that defers a stop."""
    request_stop(number)
    _may_stop_now.wait(GRACE)
    os._exit(128 + number)
