"""Schemes of a user's own file: loaded once or refused, and as good as ours afterwards."""

import pickle

import pytest
import torch

import whatwhere as ww
from whatwhere.encoder import registry

SCHEME = """
from torch import nn
import torch
from whatwhere.encoder.registry import register_preset, register_table

@register_table("{name}")
class Own(nn.Module):
    def __init__(self, config, rows, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, width))
    def forward(self):
        return self.weight

register_preset("{name}-preset", "ap", "own", absolute="{name}")
{rest}
"""


@pytest.fixture
def scheme(names, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_loaded", {})

    def write(file, name, rest=""):
        (tmp_path / file).write_text(SCHEME.format(name=name, rest=rest))
        return tmp_path / file

    return write


def test_a_scheme_may_define_dataclasses(scheme):
    """Their annotations are looked up in a module, which was registered nowhere."""
    rest = "from dataclasses import dataclass\n\n@dataclass\nclass Two:\n    one: int\n    other: int\n"
    path = scheme("two.py", "two", rest)
    path.write_text("from __future__ import annotations\n" + path.read_text())
    assert registry.load_scheme(path) == path.resolve()


def test_a_file_with_a_scheme_is_loaded_once(scheme):
    path = scheme("one.py", "mine")
    assert registry.load_scheme(path) == registry.load_scheme(str(path)) == path.resolve()
    assert ww.Encoder(ww.preset("mine-preset", "tiny")).position_table().shape == (128, 120)
    with pytest.raises(ValueError, match="changed since it was loaded"):
        registry.load_scheme(scheme("one.py", "mine", "# another line"))


@pytest.mark.whole
def test_models_of_an_own_scheme_are_pickled(scheme):
    """Its module was forgotten, which pickle and torch.compile look for."""
    registry.load_scheme(scheme("one.py", "mine"))
    model = ww.Encoder(ww.preset("mine-preset", "tiny"))
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again.position_table(), model.position_table())
    ids = torch.arange(5, 12)[None]
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(ids).last_hidden_state, model(ids).last_hidden_state)


def test_a_part_counts_by_its_kind(scheme):
    """A model of our rotation carried the file of a user's table of the same name."""
    registry.load_scheme(scheme("one.py", "rope"))
    assert registry.scheme_files(ww.preset("rope", "tiny")) == {}
    (path,) = registry.scheme_files(ww.preset("rope-preset", "tiny"))
    assert path.name == "one.py"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("register_preset('dstg', None, 'own')", "'dstg' is registered already"),
        ("1 / 0", "does not run: ZeroDivisionError"),
        ("import no_such_module", "does not run: ModuleNotFoundError"),
        ("def", "does not run: SyntaxError"),
    ],
)
def test_a_file_that_fails_registers_nothing(rest, message, scheme):
    with pytest.raises(ValueError) as caught:
        registry.load_scheme(scheme("bad.py", "half", rest))
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert "half" not in registry.TABLES and "half-preset" not in registry.PRESETS
    registry.load_scheme(scheme("bad.py", "half"))  # repaired, it loads
    assert "half" in registry.TABLES


def test_a_file_that_ends_the_program_registers_nothing(scheme):
    """Its names stayed, and the corrected file was refused as registered already."""
    with pytest.raises(SystemExit):
        registry.load_scheme(scheme("bad.py", "half", "raise SystemExit(3)"))
    assert "half" not in registry.TABLES
    registry.load_scheme(scheme("bad.py", "half"))


@pytest.mark.parametrize("name", ["missing.py", "scheme.txt", "empty.py"])
def test_what_is_no_scheme_file_is_refused(name, tmp_path):
    """A Python file that registers nothing passed, and the study had none of its models."""
    for kind in ("scheme.txt", "empty.py"):
        (tmp_path / kind).touch()
    with pytest.raises(ValueError, match=f"{name} registers nothing|A scheme is a Python file.*{name}"):
        registry.load_scheme(tmp_path / name)
