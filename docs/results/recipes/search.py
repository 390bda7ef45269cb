"""Search the rates of every scheme: three rates of its tables × two of its matrices, equal tokens, by validation loss.

    python docs/results/recipes/search.py WINDOWS OUT [--on ADDRESS] [--schemes dstg,ap]

WINDOWS: a folder that `whatwhere windows` made. OUT: a folder of one training a try; a try that is finished is read,
not trained again. The table of all tries is written to OUT/tries.tsv after each. Seed 100 is used nowhere else. Tries
are trained on one thread each, by the cores of this machine or by the workers of a Dask cluster (--on).
"""

import argparse
import csv
from itertools import product
from pathlib import Path
from typing import Any

from whatwhere.corpus import Windows
from whatwhere.run.cluster import connect
from whatwhere.run.files import read_json
from whatwhere.run.jobs import Job, run_jobs
from whatwhere.run.lock import lock
from whatwhere.run.processes import count_cores
from whatwhere.training.pretrain import pretrain_on_windows
from whatwhere.training.pretrain_settings import PretrainConfig

SEED = 100
MATRICES = (3.0, 1.5)  # matrix_learning_rate_scale
# The tables that a scheme searches: those of its T5 bias where it has one, else its position table.
TABLES = {"bias_learning_rate_scale": (1.0, 3.0, 10.0), "table_learning_rate_scale": (1.0, 0.3, 3.0)}
NORMALIZED = {"residual": "normalized"}
SCHEMES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "dstg": ("dstg", NORMALIZED, "bias_learning_rate_scale"),
    "dstg-half-turn": ("dstg", {**NORMALIZED, "table_start": "half-turn"}, "bias_learning_rate_scale"),
    "rope": ("rope", NORMALIZED, None),
    "rp": ("rp", NORMALIZED, "bias_learning_rate_scale"),
    "ap": ("ap", NORMALIZED, "table_learning_rate_scale"),
    "ap-half-turn": ("ap", {**NORMALIZED, "table_start": "half-turn"}, "table_learning_rate_scale"),
    "tupe-r": ("tupe-r", {}, "bias_learning_rate_scale"),
    "bert-a": ("bert-a", {}, "table_learning_rate_scale"),
    "split": ("split", {}, "table_learning_rate_scale"),
    "alibi": ("alibi", NORMALIZED, None),
    "sinusoidal": ("sinusoidal", NORMALIZED, None),
    "nope": ("nope", NORMALIZED, None),
}
COLUMNS = ("scheme", "matrices", "tables", "loss", "steps", "tokens", "residual", "start")


def tries(schemes: list[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return name, scheme and settings of every try; the first rates of all schemes come first."""
    listed = []
    for scheme in schemes:
        preset, model, tables = SCHEMES[scheme]
        rates = TABLES[tables] if tables else (1.0,)
        for (m, matrices), (t, rate) in product(enumerate(MATRICES), enumerate(rates)):
            settings = {"preset": preset, "model": model, "matrix_learning_rate_scale": matrices, "recipe": "dstg"}
            if tables:
                settings[tables] = rate
            listed.append((m + t, f"{scheme}-{matrices:g}-{rate:g}", scheme, settings))
    listed.sort(key=lambda row: row[0])
    return [row[1:] for row in listed]


def write_table(out: Path) -> None:
    """Write OUT/tries.tsv from the trainings that are finished, the lowest loss of each scheme first."""
    rows = []
    for name, scheme, settings in tries(list(SCHEMES)):
        if (out / name / "training.json").is_file():
            summary = read_json(out / name / "training.json")
            tables = SCHEMES[scheme][2]
            config = read_json(out / name / "config.json")
            facts = {
                "scheme": scheme,
                "matrices": settings["matrix_learning_rate_scale"],
                "tables": settings[tables] if tables else "",
                "loss": round(summary["validation_loss"], 4),
                "steps": summary["steps"],
                "tokens": summary["tokens"],
                "residual": config["residual"],
                "start": config["table_start"] if config["absolute"] == "learned" else "",
            }
            rows.append(facts)
    rows.sort(key=lambda row: (list(SCHEMES).index(row["scheme"]), row["loss"]))
    with (out / "tries.tsv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Train the tries that are not finished, as many at the same time as there are cores or workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("windows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--on", help="scheduler of a Dask cluster")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--steps", type=int, default=625)
    given = parser.parse_args()
    windows = given.windows.resolve()
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows = {key: Windows(windows).facts[key] for key in ("length", "join", "pieces")}
    jobs = []
    for name, _, settings in tries(given.schemes.split(",")):
        config = PretrainConfig.parse({**settings, **rows, "seed": SEED, "steps": given.steps})
        jobs.append(Job(name, pretrain_on_windows, (config, out / name, windows), threads=1))
    threads = count_cores() if count_cores() > 1 else None  # None: in this process
    with connect(given.on, out) as cluster, lock(out):
        for _ in run_jobs(jobs, threads, progress=True, name="tries", cluster=cluster):
            write_table(out)


if __name__ == "__main__":
    main()
