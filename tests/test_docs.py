"""The documents are true: every file, function and test that docs/method.md names exists."""

import re
from pathlib import Path

import torch
from transformers import initialization

from whatwhere.encoder import Encoder, preset, registry

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs/method.md").read_text(encoding="utf-8")


def test_files_and_names_of_the_method_table_exist():
    found = re.findall(r"`((?:encoder|analysis|geometry|corpus|examples/theory)/\w+\.py)`((?: `[\w.]+`,?)*)", METHOD)
    assert len(found) >= 10
    for file, names in found:
        text = (ROOT / ("" if file.startswith("examples") else "src/whatwhere") / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            last = name.split(".")[-1]
            assert f"def {last}(" in text or f"class {last}(" in text or f"class {last}:" in text, (
                f"{file} has no {name}"
            )


def test_tests_of_the_method_table_exist():
    everything = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(test_\w+)`", METHOD)
    assert len(names) >= 8
    for name in names:
        assert f"def {name}(" in everything, f"docs/method.md names {name}, which does not exist"
    for path in re.findall(r"`(tests/[\w/]+\.py)`", METHOD):
        assert (ROOT / path).is_file(), path


def test_own_schemes_of_the_method_page_run(monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", METHOD, flags=re.S)
    for known in (registry.TABLES, registry.ROTATIONS, registry.PRESETS, registry.SOURCES):
        for name in ("ramp", "slow"):
            monkeypatch.setitem(known, name, None)  # taken out again at the end
            del known[name]
    exec(
        compile(example, "docs/method.md", "exec"),
        {**vars(registry), "torch": torch, "nn": torch.nn, "init": initialization},
    )
    model = Encoder(preset("ramp", "tiny", vocab_size=32, num_hidden_layers=1, rotation="slow"))
    table = model.position_table()
    assert not table[0].any() and bool(table[-1].any())
    assert model(torch.tensor([[2, 7, 3]])).last_hidden_state.isfinite().all()
