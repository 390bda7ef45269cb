"""Who waits for a folder that another process writes to."""

import os
import subprocess
import sys

import pytest
from cli_runner import environment

from whatwhere.run.files import write_text
from whatwhere.run.locks import is_locked, waiting_for

HOLD = """
import sys, time
from pathlib import Path
from whatwhere.run.lock import lock
with lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holding(folder) -> subprocess.Popen:
    """A process that holds a folder."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, env=environment())
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder


def test_only_another_process_is_waited_for(tmp_path, monkeypatch):
    # A folder that cannot be written was waited for without end.
    said, out = [], tmp_path / "run"
    with holding(out) as holder:
        monkeypatch.setattr("whatwhere.run.locks.WAIT", 0.0)
        with waiting_for(out, lambda event, words, **facts: (said.append([event, *facts.values()]), holder.kill())):
            assert is_locked(out) is not None
    assert said == [[event, f"{holder.pid} on {os.uname().nodename}", str(out)] for event in ("waiting", "waited")]
    write_text(tmp_path / "file", "x")
    with pytest.raises(ValueError, match="is a file"), waiting_for(tmp_path / "file", print):
        pass
