"""Worker processes: the same bytes as without them, and no harm if they die or their parent is killed."""

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import psutil
import pytest

from whatwhere.corpus import build_windows, count_source, workers


def shard_files(out) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted((out / "shards").iterdir())}


def test_worker_processes_write_the_same_bytes(list_source, documents, tokenizer, tmp_path, monkeypatch):
    # Two small workers' worth of shards; starting them takes seconds, so this is the one test with real processes.
    monkeypatch.setattr(workers, "WORTH_WORKERS", 0)
    options = {"length": 32, "progress": False, "shard_characters": 3000}
    build_windows(list_source(documents), tokenizer, tmp_path / "one", workers=1, **options)
    sent, submit = [], workers.Workers.submit
    monkeypatch.setattr(
        workers.Workers, "submit", lambda self, work, task: sent.append(task[0].number) or submit(self, work, task)
    )
    build_windows(list_source(documents), tokenizer, tmp_path / "two", workers=2, **options)
    assert shard_files(tmp_path / "one") == shard_files(tmp_path / "two")
    assert (tmp_path / "one" / "manifest.json").read_text() == (tmp_path / "two" / "manifest.json").read_text()
    assert sent[0] == 0


def test_a_worker_that_dies_is_done_without(list_source, documents, tokenizer, tmp_path, monkeypatch):
    def broken(self, work, task):
        future = Future()
        future.set_exception(BrokenProcessPool("killed"))
        return future

    monkeypatch.setattr(workers, "WORTH_WORKERS", 0)
    monkeypatch.setattr(workers.Workers, "submit", broken)
    w = build_windows(
        list_source(documents), tokenizer, tmp_path / "w", length=32, workers=2, progress=False, shard_characters=3000
    )
    assert sum(w.manifest["documents"].values()) == len(documents)


@pytest.mark.parametrize(
    ("read", "share", "worth"),
    [(1_000, 0.5, False), (30_000_000, 0.9, False), (2_000_000, 0.05, True), (2_000_000, None, False)],
)
def test_workers_start_only_where_much_is_left(tokenizer, tmp_path, read, share, worth):
    tokenizer.save_pretrained(tmp_path)
    with workers.Workers(tmp_path / "tokenizer.json", 4) as pool:
        assert pool.children == 3
        assert pool.worth_it(read, share) is worth


def test_a_worker_that_runs_an_unguarded_script_again_starts_no_workers(
    list_source, documents, tokenizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match="count_source starts processes: call it below `if __name__ == '__main__':`"):
        count_source(list_source(documents), tokenizer, 5)
    with pytest.raises(RuntimeError, match="build_windows starts processes"):
        build_windows(list_source(documents), tokenizer, tmp_path / "w")


KILLED = """
import sys
from pathlib import Path
from tokenizers import Tokenizer
from whatwhere.corpus import workers
if __name__ == "__main__":
    pool = workers.Workers(Path(sys.argv[1]), 2)
    from whatwhere.corpus.shards import Job, Part, write_shard
    job = Job(sys.argv[2], 0, 16, "run-on", 0.0, 2, 3, "uint16")
    pool.submit(write_shard, (job, [Part("alpha beta", True, 0.5)], "digest")).result()
    print("ready", flush=True)
    input()
"""


def test_workers_end_with_a_parent_that_was_killed(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "script.py").write_text(KILLED)
    arguments = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "tokenizer.json"), str(tmp_path)]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout.readline() == b"ready\n"
        children = psutil.Process(parent.pid).children()
        assert children
        parent.kill()
        parent.wait()
    end = time.monotonic() + 20
    while (
        any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert (tmp_path / "00000.json").is_file()
