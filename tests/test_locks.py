"""One writer a folder, and nothing left of one that was killed."""

import os
import subprocess
import sys

import pytest
from cli_runner import environment, whatwhere

from whatwhere.files import new_folder, write_text
from whatwhere.locks import LOCK, is_locked, locked, sweep
from whatwhere.study.run import waiting_for

HOLD = """
import sys, time
from pathlib import Path
from whatwhere.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holding(folder) -> subprocess.Popen:
    """A process that holds a folder."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, env=environment())
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder


def test_a_second_process_is_refused_and_a_killed_one_holds_nothing(tmp_path):
    # Both ended with status 0, and their logs and records were mixed.
    out = tmp_path / "deep/run"
    with holding(out) as holder:
        assert is_locked(out) == f"{holder.pid} on {os.uname().nodename}"
        with (
            pytest.raises(ValueError, match=f"Another process is writing to .*run .process {holder.pid} on "),
            locked(out),
        ):
            pass
        for words in (
            ["study", "--out", str(out)],
            ["pretrain", "--preset", "ap", "--steps", "1", "--out", str(out)],
            ["spectra", "reference", "--out", str(out)],
            ["geometry", "--corpus", "python-docs", "--out", str(out)],
        ):
            done = whatwhere(*words)
            assert done.returncode == 2 and f"(process {holder.pid} on " in done.stderr, (words, done.stderr)
        holder.kill()
    assert (out / LOCK).is_file() and is_locked(out) is None
    with locked(out):
        assert is_locked(out) is not None
    assert not (out / LOCK).exists()


def test_only_another_process_is_waited_for(tmp_path, monkeypatch):
    # A folder that cannot be written was waited for without end.
    said, out = [], tmp_path / "run"
    with holding(out) as holder:
        monkeypatch.setattr("whatwhere.study.run.WAIT", 0.0)
        with waiting_for(out, lambda event, **facts: (said.append((event, *facts.values())), holder.kill())):
            assert is_locked(out) is not None
    assert said and said[0] == (
        "waiting",
        f"Another process is writing to {out} (process {holder.pid} on {os.uname().nodename})",
    )
    write_text(tmp_path / "file", "x")
    with pytest.raises(ValueError, match="is a file"), waiting_for(tmp_path / "file", print):
        pass


def test_a_refused_work_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="refused"), locked(tmp_path / "a/b"):
        raise ValueError("refused")
    assert not list(tmp_path.iterdir())
    write_text(tmp_path / "file", "x")
    with pytest.raises(ValueError, match="is a file, where the folder of a run is needed"), locked(tmp_path / "file"):
        pass


def test_leftovers_of_killed_processes_go_and_what_was_put_aside_comes_back(tmp_path):
    for name in (".records.parquet.123", "models/.final.99/x", "a/.b.7/c/d", ".hidden", ".keep.txt", "own/.x.5/y"):
        write_text(tmp_path / name, name)
    write_text(tmp_path / ".step-4.77.before/whole", "1")
    write_text(tmp_path / ".step-5.78.before/whole", "1")
    write_text(tmp_path / "step-5/whole", "2")
    with holding(tmp_path / "own") as holder:
        sweep(tmp_path)
        holder.kill()
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert left == [".hidden", ".keep.txt", "own/.lock", "own/.x.5/y", "step-4/whole", "step-5/whole"]
    assert (tmp_path / "step-5/whole").read_text() == "2"


def test_a_kill_between_the_two_renames_of_a_folder_loses_nothing(tmp_path, monkeypatch):
    with new_folder(tmp_path / "x") as new:
        write_text(new / "old", "1")
    replace, calls = os.replace, []

    def dies(old, new):
        calls.append(new)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(old, new)

    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "x") as new:
        (new / "new").write_text("2")
        monkeypatch.setattr(os, "replace", dies)
    monkeypatch.undo()
    assert not (tmp_path / "x").exists()
    sweep(tmp_path)
    assert (tmp_path / "x/old").read_text() == "1"
