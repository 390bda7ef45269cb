"""Files of a copy that reads longer texts: of a read-only model, and on a full disk."""

import errno

import pytest
from cli_runner import whatwhere
from safetensors import SafetensorError
from transformers import BertConfig, BertModel

from whatwhere.length.extension import extend


def save_model(folder):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=50, max_position_embeddings=40, **sizes)).eval().save_pretrained(folder)


def test_copies_of_read_only_models_are_writable(tmp_path):
    """A copy took the modes of its model's folder and files; none but root could write more into it."""
    save_model(tmp_path / "m")
    (tmp_path / "m" / "more").mkdir()
    (tmp_path / "m" / "more" / "notes.txt").write_text("x")
    for path in (*(tmp_path / "m").rglob("*"), tmp_path / "m"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    extend(tmp_path / "m", tmp_path / "long", 80)
    assert (tmp_path / "long/more/notes.txt").read_text() == "x"
    assert all(path.stat().st_mode & 0o200 for path in (*(tmp_path / "long").rglob("*"), tmp_path / "long"))


@pytest.mark.parametrize("place", ["shutil.copyfile", "whatwhere.length.extension.save_file"])
def test_a_full_disk_leaves_no_copy(place, tmp_path, monkeypatch):
    """It was a traceback of safetensors, or a list of errors of shutil."""

    def full(*arguments, **others):
        if "save_file" in place:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        raise OSError(errno.ENOSPC, "No space left on device", str(arguments[1]))

    save_model(tmp_path / "m")
    monkeypatch.setattr(place, full)
    done = whatwhere("extrapolate", str(tmp_path / "m"), "--length", "80", "--out", str(tmp_path / "long"))
    assert done.returncode == 2 and "Make room" in done.stderr and done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
