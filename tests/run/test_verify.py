"""Comparison of files with their hashes below a folder, and acceptance of a changed one."""

import pytest
from cli_runner import whatwhere

from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import files_without_hash, verify


def test_verify_names_a_foreign_manifest_and_goes_on(tmp_path):
    """One manifest of another version ended `verify` for every run below the folder."""
    for name in ("old", "whole"):
        with RunFolder.open(tmp_path / name, "study") as run:
            run.write("a.txt", "a")
    line = (tmp_path / "old" / MANIFEST).read_text()
    (tmp_path / "old" / MANIFEST).write_text(line.replace("whatwhere-run-2", "whatwhere-run-1"))
    (tmp_path / "whole/a.txt").write_text("b")
    count, (of_old, of_whole) = verify(tmp_path)
    assert count == 1 and "has the format 'whatwhere-run-1'" in of_old and "hash mismatch" in of_whole
    assert "old/a.txt" in files_without_hash(tmp_path)


def test_a_file_changed_on_purpose_is_recorded_anew(tmp_path, monkeypatch):
    """The way out was to delete its line, which may tell of other files, too."""
    run = tmp_path / "run"
    with RunFolder.open(run, "study") as folder:
        folder.write("a.json", {"x": 1})
        folder.write("b.json", {"x": 1})
        folder.mark_done("first", files=["a.json"])
    (run / "a.json").write_text('{"x": 2}')
    with pytest.raises(ValueError, match="--accept FILE"):
        RunFolder.at(run).read("a.json")
    assert whatwhere("verify", str(run)).returncode == 2
    done = whatwhere("verify", str(run), "--accept", "a.json")
    assert done.returncode == 0 and RunFolder.at(run).is_reusable("first"), done.stderr
    assert RunFolder.at(run).read("a.json") == {"x": 2}
    (run / "below").mkdir()
    monkeypatch.chdir(run / "below")  # below/a.json was looked for
    assert whatwhere("verify", str(run), "--accept", "a.json").returncode == 0
    done = whatwhere("verify", str(run), "--accept", "c.json")
    assert done.returncode == 2 and "c.json is not there. Files with a hash: a.json, b.json." in done.stderr
    (run / "b.json").write_text('{"x": 3}')
    done = whatwhere("verify", str(tmp_path), "--accept", "run/b.json")  # "no whole manifest.jsonl" of the outer folder
    assert done.returncode == 0 and RunFolder.at(run).read("b.json") == {"x": 3}, done.stderr
    done = whatwhere("verify", str(tmp_path), "--accept", "a.json")
    assert done.returncode == 2 and "has no whole manifest.jsonl" in done.stderr


def test_a_changed_file_of_an_inner_run_is_accepted(tmp_path, monkeypatch):
    """`verify STUDY --accept` refused the file of a model that `verify STUDY` had just named."""
    monkeypatch.chdir(tmp_path)
    with RunFolder.open(tmp_path / "s", "study") as study, RunFolder.open(tmp_path / "s/models/a", "pretrain") as model:
        study.write("a.json", 1)
        model.write("b.json", 1)
        model.accept_input()
        study.accept_input()
    for name in ("s/models/a/b.json", "models/a/b.json"):
        (tmp_path / "s/models/a/b.json").write_text(f'"{name}"')
        assert whatwhere("verify", "s").returncode == 2
        done = whatwhere("verify", "s", "--accept", name)
        assert done.returncode == 0, done.stderr


def test_verify_looks_at_most_twice(tmp_path, monkeypatch):
    """Every damaged file had all files compared anew: 60 changed files took 3,660 comparisons."""
    with RunFolder.open(tmp_path / "run", "study") as run:
        for number in range(5):
            run.write(f"{number}.json", number)
    for path in (tmp_path / "run").glob("*.json"):
        path.write_text("changed")
    looks = []
    problems = RunFolder.problems
    monkeypatch.setattr(RunFolder, "problems", lambda run: looks.append(run) or problems(run))
    assert len(verify(tmp_path)[1]) == 5 and len(looks) == 2


def test_the_reference_model_can_be_verified():
    """The word was taken for a folder here, which there is not."""
    done = whatwhere("verify", "reference")
    assert done.returncode == 0 and "have a hash and are as they were written" in done.stdout, done.stderr
