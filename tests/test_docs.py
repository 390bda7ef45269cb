"""The documents are true: every file, function and test that docs/method.md names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs/method.md").read_text(encoding="utf-8")


def test_files_and_names_of_the_method_table_exist():
    found = re.findall(r"`((?:encoder|analysis|geometry|corpus)/\w+\.py)`((?: `[\w.]+`,?)*)", METHOD)
    assert len(found) >= 10
    for file, names in found:
        text = (ROOT / "src/whatwhere" / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            last = name.split(".")[-1]
            assert f"def {last}(" in text or f"class {last}(" in text or f"class {last}:" in text, f"{file} has no {name}"


def test_tests_of_the_method_table_exist():
    everything = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(test_\w+)`", METHOD)
    assert len(names) >= 8
    for name in names:
        assert f"def {name}(" in everything, f"docs/method.md names {name}, which does not exist"
    for path in re.findall(r"`(tests/[\w/]+\.py)`", METHOD):
        assert (ROOT / path).is_file(), path
