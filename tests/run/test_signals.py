"""Where a signal raises `Stopped`, and where it ends the process at once."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal
from whatwhere.run.signals import Stopped, handle_signals
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
work = compile("os.kill(os.getpid(), signal.SIGINT)", {file!r}, "exec")
with handle_signals():
    try:
        exec(work)
    except Stopped:
        print("raised")
"""


@pytest.mark.parametrize(
    ("file", "status", "said"),
    [
        ("/lib/torch/onnx/_internal/exporter.py", 130, ""),
        ("<frozen importlib._bootstrap>", 130, ""),
        ("/lib/torch/nn/module.py", 0, "raised"),
    ],
)
def test_no_exception_passes_through_exporter_or_import(file, status, said):
    """Ctrl-C in an export ended in an abort of C++ in one of three tries."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(file=file)], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (status, said), done.stderr
    assert done.stderr.strip() == ("" if said else "whatwhere: stopped.")
