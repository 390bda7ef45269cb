"""Files and folders are written whole or not at all, whatever fails on the way."""

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest

import whatwhere
from whatwhere.run.files import (
    describe_os_error,
    new_file,
    new_folder,
    write_array,
    write_arrays,
    write_json,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def test_each_format_is_read_back(tmp_path):
    """Each kind of file is read back and folders above it are made."""
    write_text(tmp_path / "a/b/text.txt", "é\n")
    write_json(tmp_path / "value.json", {"é": ["\ud800", 1.5]})
    write_array(tmp_path / "one.npy", np.arange(3))
    write_arrays(tmp_path / "some.npz", {"x": np.eye(2), "about": "{}"})
    assert (tmp_path / "a/b/text.txt").read_bytes() == "é\n".encode()
    assert (tmp_path / "value.json").read_text("utf-8") == '{\n "é": [\n  "\\ud800",\n  1.5\n ]\n}'
    assert np.load(tmp_path / "one.npy").tolist() == [0, 1, 2]
    arrays = np.load(tmp_path / "some.npz", allow_pickle=False)
    assert arrays["x"].tolist() == [[1, 0], [0, 1]] and str(arrays["about"]) == "{}"
    assert names(tmp_path) == ["a", "a/b", "a/b/text.txt", "one.npy", "some.npz", "value.json"]


def test_a_file_is_flushed_before_its_rename(tmp_path, monkeypatch):
    """A file is on the disk before it has its name."""
    path = tmp_path / "x"
    calls = []
    monkeypatch.setattr(os, "fsync", lambda number: calls.append(("fsync", os.fstat(number).st_size, path.exists())))
    write_text(path, "four")
    assert calls.pop(0) == ("fsync", 4, False) and calls.pop()[2] and not calls  # the file, then its folder
    with new_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text("one")
        (folder / "deep").mkdir()
        (folder / "deep/b").write_text("seven..")
        assert not (tmp_path / "folder").exists()
    assert {("fsync", 3, True), ("fsync", 7, True)} <= set(calls) and len(calls) == 5  # also three folders


@pytest.mark.parametrize("failing", ["the block", "fsync", "replace"])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, failing):
    write_text(tmp_path / "file", "old")
    write_text(tmp_path / "folder/old", "old")

    def full(*_args):
        raise OSError(28, "No space left on device")

    if failing != "the block":
        monkeypatch.setattr(whatwhere.run.files.os, failing, full)
    with pytest.raises(OSError), new_file(tmp_path / "file") as file:
        file.write(b"new")
        if failing == "the block":
            full()
    with pytest.raises(OSError), new_folder(tmp_path / "folder") as folder:
        (folder / "new").write_text("new")
        if failing == "the block":
            full()
    assert names(tmp_path) == ["file", "folder", "folder/old"] and (tmp_path / "file").read_text() == "old"


def test_a_new_folder_replaces_the_old_one(tmp_path):
    """A new folder takes the place of the old one."""
    for name in ("one", "two"):
        with new_folder(tmp_path / "folder") as folder:
            write_text(folder / name, name)
    assert names(tmp_path) == ["folder", "folder/two"]


WRITES = re.compile(
    r"\.write_text\(|\.write_bytes\(|os\.replace|\.rename\(|\.replace\(path\)|np\.save|open\([^)\n]*\"[wax]b?\""
)
# Every other place that writes: into a folder that is renamed afterwards, one line more of a log, or no file at all.
ALLOWED = {
    "report/page.py": 1,  # a table, within new_folder
    "run/folder.py": 1,  # a library's files move in, recorded before
    "training/checkpoints.py": 1,  # other processes' shares move into new_folder
    "run/memory.py": 1,  # /proc/self/clear_refs
    "geometry/counts.py": 1,  # scratch of one command, in a folder that goes with it
}


def test_every_other_file_of_the_package_writes_through_these():
    # encoder/ travels with saved models and imports nothing of ours; transformers calls it with a folder.
    package = Path(whatwhere.__file__).parent
    files = [p for p in sorted(package.rglob("*.py")) if p.parent.name != "encoder" and p.name != "files.py"]
    seen = {str(p.relative_to(package)): len(WRITES.findall(p.read_text("utf-8"))) for p in files}
    assert {name: count for name, count in seen.items() if count} == ALLOWED


def test_system_errors_hide_temporary_names(tmp_path, monkeypatch):
    """Errors of the system are said in words without temporary names."""
    (tmp_path / "file").write_text("x")

    def said(write) -> str:
        with pytest.raises(OSError) as caught:
            write()
        return describe_os_error(caught.value).removeprefix(str(tmp_path))

    assert said(lambda: write_text(tmp_path / "file/x.html", "")) == (
        "/file is a file, where a folder is needed. Choose another place."
    )
    assert said((tmp_path / "file/sub").mkdir).startswith("/file is a file, where a folder is needed.")
    (tmp_path / "folder").mkdir()
    assert said(lambda: write_text(tmp_path / "folder", "")).startswith("/folder is a folder, where a file is needed.")
    assert said(lambda: write_text("/proc/x.html", "")) == (
        "/proc/x.html is not there, or no file can be made there. Check the path."
    )
    assert said(lambda: (tmp_path / "none").read_text()).startswith("/none is not there")

    def full(number) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said_of_x = said(lambda: write_text(tmp_path / "x", "four"))
    assert said_of_x.startswith(f"No room is left on the disk for {tmp_path}/x.")  # it was "for a file"
    assert describe_os_error(OSError("Cannot write x: full.")) == "Cannot write x: full."
    # The folder that the processes of a training write together stands for no other name; it was no line at all.
    full = OSError(errno.ENOSPC, "full", "run/checkpoints/.step-5-shards.0")
    assert describe_os_error(full).startswith("No room is left on the disk for run/checkpoints/.step-5-shards.0.")
