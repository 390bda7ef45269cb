"""Search the rates of every scheme: three rates of its tables × two of its matrices, equal tokens, by validation loss.

    python docs/results/recipes/search.py WINDOWS OUT [--part K/N] [--schemes dstg,ap]

WINDOWS: a folder that `whatwhere windows` made. OUT: a folder of one training a try; a try that is finished is read,
not trained again. The table of all tries is written to OUT/tries.tsv after each. Seed 100 is used nowhere else.
"""

import argparse
import csv
from itertools import product
from pathlib import Path
from typing import Any

import torch

from whatwhere.corpus import Windows
from whatwhere.run.files import read_json
from whatwhere.training.pretrain import pretrain
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
    """Train the tries of this part, one thread, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("windows", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--steps", type=int, default=625)
    given = parser.parse_args()
    k, n = map(int, given.part.split("/"))
    torch.set_num_threads(1)
    windows = Windows(given.windows)
    rows = {key: windows.facts[key] for key in ("length", "join", "pieces")}
    for name, _, settings in tries(given.schemes.split(","))[k - 1 :: n]:
        config = PretrainConfig.parse({**settings, **rows, "seed": SEED, "steps": given.steps})
        pretrain(config, given.out / name, windows=windows, progress=False)
        write_table(given.out)


if __name__ == "__main__":
    main()
