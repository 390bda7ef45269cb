"""Folders that a command makes whole at once: all or nothing, one writer, and what may be replaced."""

import pytest

from whatwhere.run.folder import RunFolder
from whatwhere.run.lock import InUse, writer_of


class Killed(BaseException):
    """What stands for a kill: no `except Exception` sees it."""


def test_a_created_folder_is_whole_or_absent(tmp_path):
    with pytest.raises(Killed), RunFolder.create(tmp_path / "model", "model") as folder:
        (folder / "config.json").write_text("{}")
        raise Killed
    assert list(tmp_path.iterdir()) == []
    with RunFolder.create(tmp_path / "model", "model") as folder:
        (folder / "config.json").write_text("{}")
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling/config.json").write_text("{}")
    run = RunFolder.at(tmp_path / "model")
    assert run.kind == "model" and run.listed_files() == ["1_Pooling/config.json", "config.json"]
    run.check_all()


def test_a_commands_created_folder_is_locked(tmp_path):
    """Two commands with one --out both wrote, and the last rename won."""
    out = tmp_path / "model"
    with RunFolder.create_locked(out, "model") as folder:
        (folder / "config.json").write_text("{}")
        assert writer_of(out) is not None
        with pytest.raises(InUse, match="is being written by this program"), RunFolder.create_locked(out, "model"):
            pass
    assert RunFolder.at(out).listed_files() == ["config.json"] and writer_of(out) is None
    assert {path.name for path in tmp_path.rglob("*")} == {"model", "config.json", "manifest.jsonl"}
    with pytest.raises(ValueError, match="is there already"), RunFolder.create_locked(out, "model"):
        pass
    with pytest.raises(ValueError, match="something else than an earlier export"):
        RunFolder.check_can_create(out, "export", replaces=True)
    with RunFolder.create_locked(out, "model", replaces=True) as folder:
        (folder / "other.json").write_text("{}")
    assert RunFolder.at(out).listed_files() == ["other.json"]


def test_a_killed_creator_leaves_no_refusal(tmp_path):
    """A killed command leaves a folder with its lock, which the next one takes for its own."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model/.lock").write_text("")
    (tmp_path / "model/.writer").write_text("1 on elsewhere")
    (tmp_path / "model/..writer.0bbfd16a-1").write_text("1 on")  # struck while it was written
    with RunFolder.create_locked(tmp_path / "model", "model") as folder:
        (folder / "config.json").write_text("{}")
    assert RunFolder.at(tmp_path / "model").listed_files() == ["config.json"]


@pytest.mark.parametrize("replaces", [False, True])
def test_hidden_files_of_others_stay(tmp_path, replaces):
    """A folder that held `.git` alone was taken for empty, put aside and deleted."""
    (tmp_path / "mine/.git").mkdir(parents=True)
    with (
        pytest.raises(ValueError, match="mine"),
        RunFolder.create_locked(tmp_path / "mine", "model", replaces=replaces),
    ):
        pass
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".git"]
