"""The house rules: imports run downwards only, and every file says in its first lines what it is."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/whatwhere"
# A part may import only parts further right (DESIGN: cli → study → report | analysis | evaluation → training → ...).
LEVELS = [
    {"cli", "__main__"},
    {"study"},
    {"report", "analysis", "evaluation"},
    {"training"},
    {"encoder", "corpus"},
    {"geometry", "claims"},
    {"points"},
    {"records", "intervals", "metrics", "papers", "shipped"},
]
LEVEL = {part: level for level, parts in enumerate(LEVELS) for part in parts}
FILES = sorted(PACKAGE.rglob("*.py"))


def imported_parts(path: Path) -> set[str]:
    """Parts of whatwhere (first name below the package) that a file imports, wherever in the file."""
    inside = path.relative_to(PACKAGE).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ["whatwhere", *inside][: len(inside) + 2 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module in ("whatwhere", "") else [module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("whatwhere.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_downwards_only(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part == "__init__":
        assert imported_parts(path) <= {"encoder", "geometry", "records", "corpus", "shipped"}
        return
    for other in imported_parts(path):
        allowed = other == part or LEVEL[other] > LEVEL[part] or (part, other) == ("__main__", "cli")
        assert allowed, f"{path.relative_to(ROOT)} imports {other}, which is not below {part}"


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "encoder"], ids=lambda p: p.name)
def test_encoder_imports_nothing_of_ours_but_itself(path):
    # A saved model carries this folder along, so its imports must be relative, and what transformers needs must be enough.
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1, f"{path.name} imports from outside the folder"
            names = [] if node.level else [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | {"torch", "transformers", "numpy", "safetensors"}


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "geometry"], ids=lambda p: p.name)
def test_geometry_knows_no_torch(path):
    assert "import torch" not in path.read_text(encoding="utf-8")


EVERY = [p for folder in ("src", "tests", "benchmarks", "examples") for p in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", EVERY, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_says_first_what_it_is(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert docstring and len(docstring.splitlines()[0]) > 20, f"{path.relative_to(ROOT)} needs an opening docstring"
    first = path.read_text(encoding="utf-8").lstrip()
    assert first.startswith('"""'), "the docstring comes first"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
