"""The files that docs/runs.md says a run leaves, as patterns."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs/runs.md").read_text(encoding="utf-8")
MODEL, WINDOWS = "A model", "Windows"


def patterns(section: str) -> list[str]:
    """First cells of the table of a section, NAME, K and N as anything."""
    (text,) = re.findall(rf"^## [^\n]*{re.escape(section)}.*?(?=^## |\Z)", PAGE, flags=re.M | re.S)
    cells = re.findall(r"^\| (`.*?) \|", text, flags=re.M)
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return [re.sub(r"\b(NAME|K|N)\b", "*", name) for name in names]


def unexplained(run: Path, section: str) -> list[str]:
    """Files of a run that docs/runs.md does not name in its section, that of models or that of windows; what a kill
    left is passed over."""
    models = patterns(MODEL)
    named = [*patterns(section), *models, *(f"models/*/seed-*/{name}" for name in models), *patterns(WINDOWS)]
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    assert files
    seen = [str(file) for file in files if not any(part.startswith(".") for part in file.parts)]
    return [file for file in seen if not any(fnmatchcase(file, name) for name in named)]


def missing(run: Path, section: str) -> set[str]:
    """Patterns of the section that no file of a run has."""
    files = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    return {
        name
        for name in patterns(section)
        if not name.endswith("/") and not any(fnmatchcase(file, name) for file in files)
    }
