"""A run's folder: files whole or absent, hashes, steps, one writer, and what a kill leaves."""

import fcntl
import json
import multiprocessing
import os
import shutil
import threading

import numpy as np
import pytest

from whatwhere.run import files, folder
from whatwhere.run.folder import LOG, RunFolder
from whatwhere.run.lock import InUse, writer_of
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify


class Killed(BaseException):
    """What stands for a kill: no `except Exception` sees it."""


def lines(path):
    return [json.loads(line) for line in (path / MANIFEST).read_text().splitlines()]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a.json", {"x": [1, 2.5, None, "ü"]}),
        ("below/a.yaml", {"steps": 3, "models": ["ap"]}),
        ("a.txt", "words\n"),
        ("a.npy", np.arange(6.0).reshape(2, 3)),
    ],
)
def test_files_come_back_as_written(tmp_path, name, value):
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write(name, value)
    again = RunFolder.at(tmp_path / "run")
    np.testing.assert_equal(again.read(name), value)
    assert again.has(name) and again.kind == "study" and again.listed_files() == [name]


def test_a_folder_given_as_a_dot_has_a_name(tmp_path, monkeypatch):
    """Records of a study with `--out .` were of a study without a name."""
    monkeypatch.chdir(tmp_path)
    with RunFolder.open(".", "study") as run:
        run.accept_input()
        assert run.name == tmp_path.name


def test_a_damaged_first_line_is_named(tmp_path):
    """A flipped bit in the first line made a run one "of an earlier version"."""
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("study.yaml", {"steps": 3})
    manifest = tmp_path / "run" / MANIFEST
    manifest.write_bytes(b"#" + manifest.read_bytes()[1:])
    with pytest.raises(ValueError, match="first line of .*manifest.jsonl is damaged"):
        RunFolder.open(tmp_path / "run", "study").__enter__()


def test_arrays_come_back_by_name(tmp_path):
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("arrays/a.npz", {"x": np.eye(2), "y": np.array(["a", "b"])})
    back = RunFolder.at(tmp_path / "run").read("arrays/a.npz")
    np.testing.assert_array_equal(back["x"], np.eye(2))
    assert back["y"].tolist() == ["a", "b"]


def test_damage_of_a_file_is_named(tmp_path):
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("a.json", {"x": 1})
        run.write("b.txt", "b")
    (tmp_path / "run/a.json").write_text('{"x": 2}')
    (tmp_path / "run/b.txt").unlink()
    with pytest.raises(ValueError, match=r"a\.json is not as it was written \(hash mismatch\)\. Use a complete copy"):
        RunFolder.at(tmp_path / "run").read("a.json")
    with pytest.raises(ValueError, match=r"b\.txt is missing\. Use a complete copy, or give the command again that"):
        RunFolder.at(tmp_path / "run").check("b.txt")  # it could neither be deleted nor accepted, as was advised
    count, problems = verify(tmp_path)
    assert count == 2
    assert [problem.rpartition("/")[2] for problem in problems] == [
        "a.json is not as it was written (hash mismatch)",
        "b.txt is missing",
    ]


@pytest.mark.parametrize("there", [False, True])
def test_killed_before_the_rename_keeps_the_file_before(tmp_path, monkeypatch, there):
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.mark_done("begun")
        if there:
            run.write("a.txt", "before")

    def kill(*paths):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed), RunFolder.open(out, "study") as run:
        patch.setattr(files.os, "replace", kill)
        run.write("a.txt", "after")
    reader = RunFolder.at(out)
    assert list(reader.problems()) == [] and reader.has("a.txt") == there
    assert verify(out)[1] == []
    with RunFolder.open(out, "study") as run:
        assert run.listed_files() == (["a.txt"] if there else [])
        run.write("c.txt", "c")  # so that the torn change is no longer the last line
        if there:
            assert run.read("a.txt") == "before"
            (out / "a.txt").write_text("after")
            assert len(list(run.problems())) == 1


def test_killed_after_the_rename_has_the_new_file(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.write("a.txt", "before")

    def kill(path):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed), RunFolder.open(out, "study") as run:
        patch.setattr(files, "flush_names", kill)
        run.write("a.txt", "after")
    with RunFolder.open(out, "study") as run:
        assert run.read("a.txt") == "after" and list(run.problems()) == []


@pytest.mark.parametrize("cut", [2, 5, 30])
def test_a_torn_last_line_is_ignored(tmp_path, cut):
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.write("a.txt", "a")
        run.mark_done("first")
        run.mark_done("second")
    manifest = out / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-cut])
    with RunFolder.open(out, "study") as run:
        assert run.is_reusable("first") and not run.is_reusable("second")
        run.mark_done("third")
    assert RunFolder.at(out).is_reusable("third") and not RunFolder.at(out).is_reusable("second")


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.write("a.txt", "before")

        def full(number):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
            patch.setattr(files.os, "fsync", full)
            run.write("a.txt", "after")
        assert run.read("a.txt") == "before"
    assert verify(out) == (1, [])


def test_a_step_is_done_from_its_inputs_and_files(tmp_path):
    with RunFolder.open(tmp_path / "run", "study") as run:
        assert run.damage_of_step("measured") is None
        run.write("records.json", [1])
        run.mark_done("measured", inputs={"seeds": (1, 2)}, files=["records.json"])
        assert run.is_reusable("measured") and run.is_reusable("measured", inputs={"seeds": [1, 2]})
        assert not run.is_reusable("measured", inputs={"seeds": [1]})
        (tmp_path / "run/records.json").write_text("[2]")
        assert "records.json is not as it was written" in run.damage_of_step("measured")
        (tmp_path / "run/records.json").unlink()
        assert run.damage_of_step("measured") == f"{tmp_path / 'run/records.json'} is missing"
        run.write("records.json", [3])
        assert run.is_reusable("measured")  # whoever writes it again answers for it


def test_removed_files_are_gone_from_the_manifest(tmp_path):
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("below/a.txt", "a")
        run.write("below/b.txt", "b")
        run.write("below.txt", "c")
        run.remove("below")
        assert run.listed_files() == ["below.txt"] and not (tmp_path / "run/below").exists()


def test_refused_input_leaves_no_folder(tmp_path):
    out = tmp_path / "deep/run"
    with pytest.raises(ValueError, match="no such corpus"), RunFolder.open(out, "study") as run:
        run.write("study.yaml", {"a": 1})
        run.write("arrays/x.txt", "x")
        run.log(event="study")
        raise ValueError("no such corpus")
    assert not (tmp_path / "deep").exists()


def _begin(path):
    with RunFolder.open(path, "windows") as run:
        run.write("a.txt", "a")


def test_refused_input_takes_its_inner_runs_along(tmp_path):
    """A tokenizer that a refused command left was taken by the next command, which asked for another."""
    out = tmp_path / "run"
    earlier = multiprocessing.get_context("fork").Process(target=_begin, args=(out / "earlier",))
    earlier.start()
    earlier.join()
    with pytest.raises(ValueError, match="too few"), RunFolder.open(out, "study"):
        with RunFolder.open(out / "earlier", "windows"):
            pass
        with (
            RunFolder.open(out / "corpus", "windows"),
            RunFolder.create(out / "corpus/tokenizer", "tokenizer") as tokenizer,
        ):
            (tokenizer / "vocab.txt").write_text("a")
        raise ValueError("too few")
    assert [path.name for path in out.iterdir()] == ["earlier"]


def test_a_refused_run_leaves_finished_ones_below_it(tmp_path):
    """A study that was refused in the folder of an earlier training of the same notebook removed that training."""
    with RunFolder.open(tmp_path / "runs/a", "pretrain") as run:
        run.write("a.txt", "weights")
        run.mark_done("trained", files=["a.txt"])
    with pytest.raises(ValueError, match="no such text"), RunFolder.open(tmp_path / "runs", "study"):
        raise ValueError("no such text")
    assert RunFolder.at(tmp_path / "runs/a").is_reusable("trained")


@pytest.mark.parametrize("torn", [b"", b'{"format": "what'])
def test_a_manifest_without_a_whole_line_begins_anew(tmp_path, torn):
    """A kill before the first whole line had the folder refused for good."""
    out = tmp_path / "run"
    out.mkdir()
    (out / MANIFEST).write_bytes(torn)
    with RunFolder.open(out, "study") as run:
        assert run.is_new
        run.write("a.txt", "a")
    assert RunFolder.at(out).kind == "study" and RunFolder.at(out).read("a.txt") == "a"


def test_an_accepted_run_stays_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="not finite"), RunFolder.open(tmp_path / "run", "study") as run:
        run.write("study.yaml", {"a": 1})
        run.accept_input()
        raise ValueError("loss is not finite")
    assert RunFolder.at(tmp_path / "run").read("study.yaml") == {"a": 1}
    assert RunFolder.at(tmp_path / "run").log_lines() == []


def test_other_folders_are_refused(tmp_path):
    with RunFolder.open(tmp_path / "run", "study"):
        pass
    with (
        pytest.raises(ValueError, match="holds a run of study, not of pretrain"),
        RunFolder.open(tmp_path / "run", "pretrain"),
    ):
        pass
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(b"x")
    with (
        pytest.raises(ValueError, match=r"is not empty and holds no study run"),
        RunFolder.open(tmp_path / "photos", "study"),
    ):
        pass
    assert sorted(path.name for path in (tmp_path / "photos").iterdir()) == ["a.png"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old/hashes.json").write_text("{}")
    (tmp_path / "old/pretrain.yaml").write_text("steps: 3")
    with (
        pytest.raises(ValueError, match="written before version 0.1.0 was final"),
        RunFolder.open(tmp_path / "old", "pretrain"),
    ):
        pass
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(ValueError, match="is a file, where the folder of a run"),
        RunFolder.open(tmp_path / "file", "study"),
    ):
        pass


def test_log_of_another_program_stays(tmp_path):
    """A folder that held a log.jsonl alone was taken for an empty one, and a refused input deleted the log."""
    (tmp_path / "log.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match="is not empty and holds no study run"), RunFolder.open(tmp_path, "study"):
        pass
    assert (tmp_path / "log.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("line", ['{"files": null}', '{"files": 5}', '{"restored": []}', '{"removed": 3}'])
def test_a_line_of_another_shape_is_refused(tmp_path, line):
    """A line of JSON that was no line of ours was a traceback in every command."""
    with RunFolder.open(tmp_path / "study", "study") as run:
        run.write("study.yaml", {})
    with (tmp_path / "study" / MANIFEST).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match="is no manifest of whatwhere: a line has values of other types"):
        RunFolder.at(tmp_path / "study").listed_files()


def test_other_format_is_refused(tmp_path):
    """The format of a manifest was written and never read."""
    with RunFolder.open(tmp_path, "study"):
        pass
    line = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(line.replace("whatwhere-run-2", "whatwhere-run-1"))
    with pytest.raises(ValueError, match="has the format 'whatwhere-run-1', this version reads 'whatwhere-run-2'"):
        assert RunFolder.at(tmp_path).kind


def test_tidy_looks_below_the_folder(tmp_path):
    """A name left in `arrays/` stayed where nothing else was left beside it."""
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.write("arrays/a.txt", "a")
    dead = multiprocessing.get_context("fork").Process(target=os.getpid)
    dead.start()
    dead.join()
    left = out / f"arrays/.a.txt.{files.machine_id()}-{dead.pid}"
    left.write_text("x")
    RunFolder.tidy(out)
    assert sorted(path.name for path in out.rglob("*")) == ["a.txt", "arrays", MANIFEST]


def test_a_refused_run_lists_nothing_that_is_gone(tmp_path, monkeypatch):
    """Files were removed before their entries: a process killed in between left settings that no command accepted."""
    monkeypatch.setattr(folder, "remove_folder", lambda _path: pytest.fail("no folder is removed"))
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_args, **_values: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), RunFolder.open(tmp_path / "run", "study") as run:
        run.write("study.yaml", {})
        raise ValueError("refused")
    monkeypatch.undo()
    assert RunFolder.at(tmp_path / "run").listed_files() == []


def test_temporary_names_of_killed_processes_go(tmp_path):
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.mark_done("begun")
    dead = multiprocessing.get_context("fork").Process(target=os.getpid)
    dead.start()
    dead.join()
    left = out / f".a.txt.{files.machine_id()}-{dead.pid}"
    alive = out / f".b.txt.{files.machine_id()}-{os.getppid()}"
    other = out / ".c.txt.00000000-17"
    for path in (left, alive, other):
        path.write_text("x")
    with RunFolder.open(out, "study"):
        pass
    assert [path.exists() for path in (left, alive, other)] == [False, True, True]


def _hold(path, ready, end):
    with RunFolder.open(path, "study"):
        ready.set()
        end.wait(60)


def test_a_second_writer_is_refused_by_name(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    end = context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "run", ready, end))
    process.start()
    try:
        assert ready.wait(60)
        assert writer_of(tmp_path / "run") is not None
        with (
            pytest.raises(InUse, match=rf"is being written by process {process.pid} on"),
            RunFolder.open(tmp_path / "run", "study"),
        ):
            pass
        assert RunFolder.at(tmp_path / "run").kind == "study"  # readers need no lock
    finally:
        end.set()
        process.join()
    assert writer_of(tmp_path / "run") is None


def test_a_killed_writer_holds_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=_hold, args=(tmp_path / "run", ready, context.Event()))
    process.start()
    assert ready.wait(60)
    process.kill()
    process.join()
    assert writer_of(tmp_path / "run") is None
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("a.txt", "a")
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")] == []


def test_two_handles_see_each_others_lines(tmp_path):
    with RunFolder.open(tmp_path / "run", "study") as run:
        worker = RunFolder.at(tmp_path / "run")
        worker.write("arrays/a.txt", "a")
        assert run.has("arrays/a.txt")
        run.mark_done("x")
        assert worker.is_reusable("x")


def test_two_workers_killed_before_their_renames_lose_nothing(tmp_path, monkeypatch):
    """Only the last line of the folder was open, so that of the first worker told of a file that was never there."""
    out = tmp_path / "run"
    with RunFolder.open(out, "study") as run:
        run.write("a.txt", "before")

    def kill(*paths):
        raise Killed

    with RunFolder.open(out, "study") as run:
        for name in ("a.txt", "b.txt"):
            worker = RunFolder.at(out)
            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(files.os, "replace", kill)
                worker.write(name, "after")
        RunFolder.at(out).write("c.txt", "c")
        assert list(run.problems()) == []
    with RunFolder.open(out, "study") as run:
        assert run.listed_files() == ["a.txt", "c.txt"] and run.read("a.txt") == "before"
    (out / "a.txt").write_text("after")
    assert len(verify(out)[1]) == 1


def test_a_line_leaves_open_what_another_is_writing(tmp_path, monkeypatch):
    """A process that ended took back the line of a file that another one was about to rename."""
    out = tmp_path / "run"
    with RunFolder.open(out, "study"):
        pass
    first = RunFolder.at(out)
    replace = os.replace

    def rename(source, target):
        if target == out / "a.txt":
            RunFolder.at(out).mark_done("second")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", rename)
        first.write("a.txt", "a")
    assert RunFolder.at(out).read("a.txt") == "a" and verify(out) == (1, [])


def test_a_step_keeps_small_results(tmp_path):
    with RunFolder.open(tmp_path / "run", "study") as run:
        assert run.finished_step("budget") is None
        run.mark_done("budget", inputs={"minutes": 2}, outcome={"steps": 7, "seconds": {"ap": 0.5}})
        assert run.outcome_of("budget") == {"steps": 7, "seconds": {"ap": 0.5}}
        assert run.finished_step("budget")["inputs"] == {"minutes": 2}
        run.write("a.txt", "a")
        assert run.hash_of("a.txt") == files.sha256(tmp_path / "run/a.txt")


def test_files_of_a_library_move_in(tmp_path):
    (tmp_path / "new/1_Pooling").mkdir(parents=True)
    (tmp_path / "new/1_Pooling/config.json").write_text("{}")
    (tmp_path / "new/model.safetensors").write_bytes(b"weights")
    with RunFolder.open(tmp_path / "run", "pretrain") as run:
        run.move_in(tmp_path / "new", last="model.safetensors")
        assert run.listed_files() == ["1_Pooling/config.json", "model.safetensors"]
        assert run.files_not_in_manifest() == []
    assert verify(tmp_path / "run") == (2, [])


def test_runs_inside_have_manifests_of_their_own(tmp_path):
    with RunFolder.open(tmp_path / "study", "study") as run:
        with RunFolder.open(run.path / "models/ap/seed-0", "pretrain") as model:
            model.write("training.json", {"steps": 1})
        run.write("records.json", [])
        assert run.files_not_in_manifest() == [] and run.listed_files() == ["records.json"]
    assert verify(tmp_path / "study")[0] == 2
    assert (tmp_path / "study" / LOG).exists() is False
    assert lines(tmp_path / "study")[0] == {"format": "whatwhere-run-2", "kind": "study"}


def test_a_missing_unrecorded_file_is_refused(tmp_path):
    """A file that the manifest does not record and that is not there raised FileNotFoundError from deep inside."""
    with RunFolder.open(tmp_path / "s", "study") as run, pytest.raises(ValueError, match="none.json is missing. Use a"):
        run.read("none.json")


def test_a_replaced_manifest_is_read_again(tmp_path):
    """A handle that a process keeps took another manifest of the same or a larger size for the one that it knew."""
    place = tmp_path / "s"
    with RunFolder.open(place, "study") as run:
        run.write("a.json", 1)
        run.mark_done("one", files=["a.json"])
    handle = RunFolder.at(place)
    assert handle.is_reusable("one") and handle.read("a.json") == 1
    text = (place / "manifest.jsonl").read_bytes()
    (place / "manifest.jsonl").write_bytes(text.replace(b'"one"', b'"two"'))  # in place, of equal size
    os.utime(place / "manifest.jsonl", (1, 1))
    assert set(handle.inputs_of_finished()) == {"two"}
    shutil.rmtree(place)
    with RunFolder.open(place, "study") as run:
        run.write("longer-name.json", list(range(100)))
        run.mark_done("a step with a longer name than before", files=["longer-name.json"], outcome={"why": "x" * 500})
    assert handle.listed_files() == ["longer-name.json"]
    assert set(handle.inputs_of_finished()) == {"a step with a longer name than before"}


def test_line_waits_for_the_line_of_another(tmp_path):
    """Two machines that added lines to one manifest at the same time would have overwritten each other's on NFS."""
    path = tmp_path / "log.jsonl"
    files.append_line(path, {"line": 1})
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=files.append_line, args=(path, {"line": 3}))
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        other.write(b'{"line": 2}\n')
        other.flush()
        fcntl.flock(other, fcntl.LOCK_UN)
    waiting.join(10)
    assert [line["line"] for line in files.read_lines(path)] == [1, 2, 3]
