"""One writer a folder, and nothing left of one that was killed."""

import fcntl
import multiprocessing
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from cli_runner import environment, sentences, whatwhere

from whatwhere.run import lock as lock_module
from whatwhere.run.files import machine_id, new_folder, sweep, sweep_beside, write_text
from whatwhere.run.folder import RunFolder
from whatwhere.run.lock import LOCK, InUse, is_free, lock, writer_of

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
    words = [sys.executable, "-c", HOLD, str(folder)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment())
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    return holder


def test_in_use_errors_pass_between_processes(tmp_path):
    """What is said of a folder in use comes whole from another process."""
    error = InUse(tmp_path, "6810 on vm")
    again = pickle.loads(pickle.dumps(error))
    said = f"{tmp_path} is being written by process 6810 on vm. Wait for it, or choose another --out."
    assert str(again) == str(error) == said and again.writer == "6810 on vm"


def test_a_second_process_is_refused(tmp_path):
    """A second process is refused and a killed one holds nothing."""
    # Both ended with status 0, and their logs and records were mixed.
    out = tmp_path / "deep/run"
    with holding(out) as holder:
        assert writer_of(out) == f"{holder.pid} on {os.uname().nodename}"
        with (
            pytest.raises(ValueError, match=f"run is being written by process {holder.pid} on "),
            lock(out),
        ):
            pass
        for words in (
            ["study", "--out", str(out)],
            ["pretrain", "--preset", "ap", "--steps", "1", "--out", str(out)],
            ["spectra", "reference", "--out", str(out)],
            ["geometry", "--corpus", "python-docs", "--out", str(out)],
        ):
            done = whatwhere(*words)
            assert done.returncode == 2 and f"process {holder.pid} on " in done.stderr, (words, done.stderr)
        holder.kill()
    assert (out / LOCK).is_file() and writer_of(out) is None
    with lock(out):
        assert writer_of(out) is not None
    assert not (out / LOCK).exists()


@pytest.mark.whole
@pytest.mark.parametrize("attempt", range(3))
def test_of_processes_that_begin_at_once_one_writes(attempt, tmp_path):
    # A lock whose file its holder had just removed was taken by one, and the new file by another.
    context = multiprocessing.get_context("fork")
    counts = context.Array("i", [0, 0])  # writers now, most of them at once
    workers = [context.Process(target=_write_often, args=(tmp_path / "run", counts)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert list(counts) == [0, 1] and [worker.exitcode for worker in workers] == [0] * 4


def _write_often(folder, counts) -> None:
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        with suppress(InUse), lock(folder):
            with counts.get_lock():
                counts[0] += 1
                counts[1] = max(counts[1], counts[0])
            with counts.get_lock():
                counts[0] -= 1


def test_a_second_thread_of_a_process_is_refused(tmp_path):
    """Two threads of one program both wrote."""

    def hold():
        with lock(tmp_path):
            pass

    with lock(tmp_path), ThreadPoolExecutor(1) as thread:
        with pytest.raises(InUse, match="being written by this program already"):
            thread.submit(hold).result()
        with pytest.raises(InUse, match="being written by this program already"):
            hold()
    hold()
    assert is_free(tmp_path)


@pytest.mark.whole
def test_windows_have_one_writer(tmp_path):
    """Windows are made by one process."""
    # `windows --out RUN` held RUN/corpus and `pretrain --out RUN` held RUN, so both wrote to RUN/corpus.
    out = tmp_path / "run"
    text = tmp_path / "text.txt"
    text.write_text(sentences(60))
    of_text = ("--out", str(out), "--corpus", str(text), "--tokenizer", "words", "--length", "16")
    windows = ("windows", *of_text)
    training = ("pretrain", *of_text, "--steps", "1", "--set", "batch_size=4", "--set", "model.num_hidden_layers=1")
    study = ("study", *of_text, "--models", "ap,nope", "--steps", "1")

    def refused(holder, *words) -> bool:
        done = whatwhere(*words)
        wanted = f"{out / 'corpus'} is being written by process {holder.pid} on "
        assert done.returncode == 0 or (done.returncode == 2 and wanted in done.stderr), done.stderr
        return done.returncode == 2

    with holding(out / "corpus") as holder:
        assert writer_of(out / "corpus") == f"{holder.pid} on {os.uname().nodename}"
        assert all(refused(holder, *words) for words in (windows, training, study))
        holder.kill()
    assert not refused(holder, *training)
    assert not list((out / "corpus").glob(".*"))


def test_a_refused_work_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="refused"), lock(tmp_path / "a/b"):
        raise ValueError("refused")
    assert not list(tmp_path.iterdir())
    write_text(tmp_path / "file", "x")
    with (
        pytest.raises(ValueError, match="is a file, where the folder of a run is needed"),
        RunFolder.open(tmp_path / "file", "study"),
    ):
        pass


def test_leftovers_go_and_old_folders_return(tmp_path):
    """Leftovers of killed processes go, what was put aside comes back, and files of the user stay: `.venv3.11` went."""
    of = f"{machine_id()}-4194303"  # process numbers are below
    others = (".hidden", ".keep.txt", ".venv3.11/bin/python", "a/.notes.2024")  # of the user
    shards = "checkpoints/.step-5-shards.0/part"
    temporary = (f".records.parquet.{of}", f"models/.final.{of}/x", f"a/.b.{of}/c/d", shards)
    for name in (*temporary, *others, f"own/.x.{of}/y"):
        write_text(tmp_path / name, name)
    write_text(tmp_path / f".step-4.{of}.before/whole", "1")
    write_text(tmp_path / f".step-5.{of}.before/whole", "1")
    write_text(tmp_path / "step-5/whole", "2")
    with holding(tmp_path / "own") as holder:
        sweep(tmp_path, is_free)
        holder.kill()
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    kept = ("own/.lock", "own/.writer", f"own/.x.{of}/y", "step-4/whole", "step-5/whole")
    assert left == sorted([*others, *kept])
    assert (tmp_path / "step-5/whole").read_text() == "2"


def test_files_of_living_processes_stay(tmp_path):
    """What a living process or another machine writes below a folder stays."""
    # A study given again took away what another process of it was writing at this moment.
    here = machine_id()
    names = f".a.npz.{here}-{os.getppid()}", f".a.npz.{int(here, 16) ^ 1:08x}-4194303", f".b.npz.{here}-4194303"
    for name in names:
        write_text(tmp_path / "arrays" / name, "1")
    sweep(tmp_path, is_free)
    assert sorted(path.name for path in (tmp_path / "arrays").iterdir()) == sorted(names[:2])


def test_another_machines_leftovers_go_after_a_day(tmp_path):
    """Pods that were killed left a checkpoint each, under host names that never came back."""
    other = f"{int(machine_id(), 16) ^ 1:08x}-4194303"
    for age, name in ((23, "young"), (25, "old")):
        path = tmp_path / f".{name}.{other}"
        write_text(path, "1")
        written = time.time() - 3600 * age
        os.utime(path, (written, written))
    sweep(tmp_path, is_free)
    assert [path.name for path in tmp_path.iterdir()] == [f".young.{other}"]


def test_a_reader_sees_who_writes(tmp_path, monkeypatch):
    """Someone who may read a lock and not write it was told that nobody writes."""

    class OfAnotherUser:
        def __init__(self, path, timeout):
            raise PermissionError(13, "Permission denied", str(path))

    with holding(tmp_path / "run") as holder:
        monkeypatch.setattr(lock_module, "FileLock", OfAnotherUser)
        assert writer_of(tmp_path / "run") == f"{holder.pid} on {os.uname().nodename}"
        holder.kill()
        holder.wait()
        assert writer_of(tmp_path / "run") is None


def test_a_kill_between_two_renames_loses_nothing(tmp_path, monkeypatch):
    """A kill between the two renames of a folder loses nothing."""
    with new_folder(tmp_path / "x") as new:
        write_text(new / "old", "1")
    replace = os.replace
    calls = []

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
    sweep(tmp_path, is_free)
    assert (tmp_path / "x/old").read_text() == "1"


def test_only_leftovers_beside_a_folder_go(tmp_path):
    """What killed processes left beside a folder goes and nothing else."""
    # `export` and `extrapolate` left .NAME.PID beside their folder, which no later call took away.
    here = machine_id()  # process numbers are below 4194303
    gone = tmp_path / f".out.{here}-4194303", tmp_path / f".out.{here}-4194302.before"
    living = f".out.{here}-{os.getppid()}", f".out.{int(here, 16) ^ 1:08x}-4194303"  # the latter on another machine
    others = [tmp_path / name for name in (*living, f".other.{here}-4194303", ".out.notes", "out")]
    for folder in (*gone, *others):
        folder.mkdir()
    sweep_beside(tmp_path / "out")
    assert not any(folder.exists() for folder in gone) and all(folder.is_dir() for folder in others)
    (tmp_path / f".new.{here}-4194303.before").mkdir()
    sweep_beside(tmp_path / "new")
    assert (tmp_path / "new").is_dir()


def test_two_who_ask_do_not_see_each_other(tmp_path):
    """Each of two commands that only asked held the lock for a moment, and the other said that somebody writes."""
    (tmp_path / LOCK).touch()
    with (tmp_path / LOCK).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert is_free(tmp_path)
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not is_free(tmp_path)
