"""The files that docs/runs.md says a run leaves, as patterns."""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs/runs.md").read_text(encoding="utf-8")
POOLINGS = ("mean", "cls", "semantic", "position")
EVERY = "Every folder"
MODEL = "A model"
WINDOWS = "Windows"
MEASURED = ("tokens_per_second", "waiting", "peak_memory_bytes")  # of a line of a log: no two trainings have the same


def losses(out: Path) -> list[dict]:
    """The lines of a training's log without what the machine decides."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in MEASURED} for line in lines]


def _section(section: str) -> str:
    (text,) = re.findall(rf"^## [^\n]*{re.escape(section)}.*?(?=^## |\Z)", PAGE, flags=re.M | re.S)
    return text


def logged(section: str) -> list[frozenset[str]]:
    """List the keys that docs/runs.md names for each kind of line in a section's log; in a study, also its events."""
    (cell,) = re.findall(r"^\| `log\.jsonl` \| (.*?) \|", _section(section), flags=re.M)
    return [frozenset(re.findall(r"`([^`]+)`", kind)) for kind in cell.split(";")]


def patterns(section: str) -> list[str]:
    """Return the file names of a section's table as patterns: a word in capitals (NAME, K, N, TASK ...) stands for
    anything, POOLING for each of the poolings."""
    cells = re.findall(r"^\| (`.*?) \|", _section(section), flags=re.M)
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    each = [name.replace("POOLING", pooling) for name in names for pooling in POOLINGS if "POOLING" in name]
    plain = [name for name in names if "POOLING" not in name]
    return [re.sub(r"\b(NAME|TASK|SETTING|WAY|K|N)\b", "*", name) for name in (*plain, *each)]


def unexplained(run: Path, section: str) -> list[str]:
    """List files of a run that docs/runs.md names neither in this section nor in those of every folder, of models and
    of windows; temporary files that a kill left are passed over."""
    models = patterns(MODEL)
    named = [*patterns(section), *models, *(f"models/*/seed-*/{name}" for name in models), *patterns(WINDOWS)]
    named += [place for name in patterns(EVERY) for place in (name, f"*/{name}")]
    files = sorted(path.relative_to(run) for path in run.rglob("*") if path.is_file())
    assert files
    seen = [str(file) for file in files if not any(part.startswith(".") for part in file.parts)]
    return [file for file in seen if not any(fnmatchcase(file, name) for name in named)]


def missing(run: Path, section: str) -> set[str]:
    """Return the patterns of a section that match no file of a run."""
    files = [str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()]
    return {
        name
        for name in patterns(section)
        if not name.endswith("/") and not any(fnmatchcase(file, name) for file in files)
    }
