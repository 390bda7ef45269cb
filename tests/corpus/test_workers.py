"""Worker processes: the same bytes as without them, and no harm if they die or their parent is killed."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from threading import Event, Thread

import psutil
import pytest
from cli_runner import sentences
from fork_server import LONGEST, Processes

from whatwhere.cli import main
from whatwhere.corpus import build, build_windows, count_source
from whatwhere.corpus.shards import Part, ShardSettings, write_shard
from whatwhere.run import shard_pool
from whatwhere.run import signals as stop

FORK = multiprocessing.get_context("fork")


def shard_files(out) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((out / "shards").iterdir())}


def test_worker_processes_write_the_same_bytes(list_source, documents, tokenizer, tmp_path, monkeypatch, processes):
    monkeypatch.setattr(shard_pool, "WORTH_PROCESSES", 0)
    options = {"length": 32, "progress": False, "shard_characters": 3000}
    build_windows(list_source(documents), tokenizer, tmp_path / "one", workers=1, **options)
    sent = []
    submit = shard_pool.ShardPool.submit_to_process
    monkeypatch.setattr(
        shard_pool.ShardPool,
        "submit_to_process",
        lambda self, job, number: sent.append(number) or submit(self, job, number),
    )
    build_windows(list_source(documents), tokenizer, tmp_path / "two", workers=2, **options)
    assert shard_files(tmp_path / "one") == shard_files(tmp_path / "two")
    assert (tmp_path / "one" / "windows.json").read_text() == (tmp_path / "two" / "windows.json").read_text()
    assert sent[0] == 0


def test_a_worker_that_dies_is_done_without(list_source, documents, tokenizer, tmp_path, monkeypatch):
    def broken(self, job, number):
        future = Future()
        future.set_exception(BrokenProcessPool("killed"))
        return future

    monkeypatch.setattr(shard_pool, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(shard_pool.ShardPool, "submit_to_process", broken)
    w = build_windows(
        list_source(documents), tokenizer, tmp_path / "w", length=32, workers=2, progress=False, shard_characters=3000
    )
    assert sum(w.facts["documents"].values()) == len(documents)


@pytest.mark.parametrize(
    ("read", "share", "worth"),
    [(1_000, 0.5, False), (30_000_000, 0.9, False), (2_000_000, 0.05, True), (2_000_000, None, False)],
)
def test_workers_start_only_where_much_is_left(tokenizer, tmp_path, read, share, worth):
    tokenizer.save_pretrained(tmp_path)
    with shard_pool.ShardPool(tmp_path / "tokenizer.json", 4) as pool:
        assert pool.children == 3
        assert pool.needs_processes(read, share) is worth


def test_workers_of_unguarded_scripts_start_no_workers(list_source, documents, tokenizer, tmp_path, monkeypatch):
    """A worker that runs an unguarded script again starts no workers."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match="count_source starts processes: call it below `if __name__ == '__main__':`"):
        count_source(list_source(documents), tokenizer, 5)
    with pytest.raises(RuntimeError, match="build_windows starts processes"):
        build_windows(list_source(documents), tokenizer, tmp_path / "w")


def work_and_wait(tokenizer_file: str, out: str, method: str = "fork") -> None:
    """Work of a parent: a worker writes a shard, then both wait. It has imported everything and run nothing, so that it
    may fork."""
    multiprocessing.get_context = multiprocessing.get_context if method == "spawn" else lambda _: FORK
    pool = shard_pool.ShardPool(Path(tokenizer_file), 2)
    shard = ShardSettings(out, 0, 16, "run-on", "all", 0.0, 2, 3, "uint16")
    job = pool.job_of_shard(write_shard, shard, [Part("alpha beta", True, 0.5)], "digest")
    pool.submit_to_process(job, 0).result()
    (Path(out) / "ready").touch()
    time.sleep(LONGEST)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_end_with_a_parent_that_was_killed(method, tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    parent = Processes(work_and_wait, str(tmp_path / "tokenizer.json"), str(tmp_path), method)
    while not (tmp_path / "ready").exists():
        assert parent.running(), parent.printed()
        time.sleep(0.01)
    children = psutil.Process(parent.processes[0].pid).children(recursive=True)
    assert children
    parent.kill()
    end = time.monotonic() + LONGEST
    while [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < end, "workers outlive their parent"
        time.sleep(0.05)
    assert (tmp_path / "00000.train.ids.npy").is_file()


def shard_without_end(tokenizer, job, *_):
    Path(job.folder, "working").touch()
    time.sleep(LONGEST)


def tokenise_with_workers(folder: str) -> None:
    """A command in a group of processes of its own, as a terminal has it, whose one shard goes to a worker."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shard_pool.WORTH_PROCESSES = 0
    build.write_shard = shard_without_end
    words = ["--out", f"{folder}/run", "--corpus", f"{folder}/text.txt", "--tokenizer", "words"]
    sys.argv = ["whatwhere", "windows", *words, "--set", "workers=2", "--length", "32"]
    main()


@pytest.mark.whole
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["importing", pytest.param("working", marks=pytest.mark.slow)])
def test_a_signal_ends_the_command_and_its_workers(number, when, tmp_path):
    """A signal to a command and its workers is one line and leaves none."""
    # Ctrl-C while a worker imported printed the traceback of the import.
    (tmp_path / "text.txt").write_text(sentences(40))
    command = Processes(tokenise_with_workers, str(tmp_path))
    leader = psutil.Process(command.processes[0].pid)

    def begun() -> bool:
        if when == "working":
            return (tmp_path / "run/corpus/shards/working").exists()
        return any("torch" in place.path for child in leader.children() for place in child.memory_maps())

    try:
        while not begun():
            assert command.running(), command.printed()
            time.sleep(0.01)
        children = leader.children(recursive=True)
        if number == signal.SIGINT:  # a command that is busy tokenising notices it after the workers
            for child in children:
                child.send_signal(number)
            assert not psutil.wait_procs(children, timeout=1)[0], command.printed()
        os.killpg(leader.pid, number)
        assert command.statuses() == [128 + number], command.printed()
    finally:
        command.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert children and not alive
    assert "stopped. Give the same command again" in command.printed() and "Traceback" not in command.printed()


def test_a_signal_waits_while_a_process_starts(monkeypatch):
    """A signal while a process starts waits until it has."""
    # Raised between the start of a worker and what it is told, it left one that said EOFError.
    monkeypatch.setattr(stop, "_stop_signal", None)
    done = []
    ended = Event()
    Thread(target=ended.wait, daemon=True).start()  # the system may give it the signal that this thread blocks
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # of jobs in the background it is ignored
    with stop.handle_signals(), pytest.raises(stop.Stopped), stop.hold_signals_while_spawning():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        done.append("told")
    signal.signal(signal.SIGINT, before)
    ended.set()
    assert done and signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
