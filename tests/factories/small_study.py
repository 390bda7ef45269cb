"""Settings of a small study: a text of some hundred sentences, models of two layers."""

from dataclasses import replace
from pathlib import Path

from whatwhere.records.record import read_records

TIMED = {"seconds", "tokens_per_second", "memory.peak"}  # records that no two runs have alike
VALUES = {
    "length": 32,
    "vocab_size": 300,
    "workers": 1,
    "probe_windows": 20,
    "probe_splits": 2,
    "held_out": 0.2,
    "ablation_windows": 8,
    "texts": 1,
}
TRAINING = {
    "batch_size": 8,
    "precision": "fp32",
    "model": {"num_hidden_layers": 2},
    "warmup_steps": 5,
    "checkpoint_every": 10,
}


def records(out: Path) -> list[str]:
    """Every record of a study but its name and how long it took."""
    found = read_records(out / "records.parquet")
    return sorted(str(vars(replace(r, study=""))) for r in found if r.metric not in TIMED)
