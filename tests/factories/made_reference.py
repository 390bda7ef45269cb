"""A made-up reference study: invented numbers, never results."""

from pathlib import Path
from typing import Any

from made_study import make_study
from scripts import module_of

from whatwhere.run.files import read_json, write_json

SCRIPT = Path(__file__).parents[2] / "docs/results/ship.py"


def make_reference(out: Path, work: Path, name: str = "made-tiny", **options: Any) -> Path:
    """Write NAME.parquet and NAME.json of a made-up study of Wikipedia into `out`; returns the path of the JSON.

    work: a folder for the study itself. options: as `make_study`.
    """
    study = make_study(work / name, **{"seeds": (5, 6, 7), "corpus": "wikipedia-made", "steps": 2500} | options)
    return module_of(SCRIPT).make(study, name, out)[1]


def change(path: Path, **facts: Any) -> None:
    """Write other facts of a reference study."""
    write_json(path, read_json(path) | facts)


def set_model(path: Path, model: str, like: str | None = None, **settings: Any) -> None:
    """Give a model of a reference study other settings, or one more model those of another and others."""
    models = read_json(path)["models"]
    models[model] = models[like or model] | settings
    change(path, models=models)
