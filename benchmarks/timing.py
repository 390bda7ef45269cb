"""Figures and ratios: alternating runs after a warm-up, medians, and a budget that the ratio should keep.

A row of results is a plain dict: `what`, `shape`, the figures `first` and `second` (name, unit, every value, median,
min, max), `ratio` = median of first / median of second (of the minima where `of` says so) with the smallest and largest
of a round, and the budget. Budgets: docs/benchmarks.md.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from whatwhere.corpus import Source, open_source
from whatwhere.models.tensors import default_device

DEVICE = default_device()
REPEATS = {"full": 5, "quick": 3, "micro": 2}


@dataclass(frozen=True)
class Settings:
    """What the command was asked for. scale: "full", "quick" (fewer shapes and repeats), "micro" (every line,
    meaningless figures)."""

    scale: str = "full"
    corpus: str = "python-docs"
    tokenizer: str | None = None
    document: str = "auto"  # see whatwhere.corpus.open_source
    field: str = "text"

    @property
    def repeats(self) -> int:
        return REPEATS[self.scale]

    def source(self) -> Source:
        return open_source(self.corpus, field=self.field, document=self.document)

    @property
    def corpus_name(self) -> str:
        return Path(self.corpus).name + (f" by {self.document}" if self.document != "auto" else "")


@dataclass
class Results:
    """Rows of ratios, and curves of memory over length where a part has some."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)


def clock(run: Callable[[], object]) -> float:
    """Seconds of one call, the device's queue emptied."""
    began = time.perf_counter()
    run()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def alternate(runs: Mapping[str, Any], repeats: int, measure: Callable[[Any], float] = clock) -> dict:
    """What `measure` says of each run, `repeats` times, in rounds after one of warm-up; every other round goes
    backwards."""
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        measure(runs[name])
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else reversed(names):
            times[name].append(measure(runs[name]))
    return times


def figure(name: str, values: Sequence[float], unit: str = "s") -> dict[str, Any]:
    """One measured thing."""
    spread = {"median": median(values), "min": min(values), "max": max(values)}
    return {"name": name, "unit": unit, "repeats": len(values), **spread, "values": list(values)}


def row(
    what: str,
    shape: str,
    first: dict[str, Any],
    second: dict[str, Any] | None = None,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    note: str = "",
    of: str = "median",
) -> dict[str, Any]:
    """A row of results; the budget is on the ratio, or on the first figure's median where there is no second.

    of: "median", or "min" where other programs may disturb single rounds.
    """
    made: dict[str, Any] = {"what": what, "shape": shape, "first": first, "second": second, "note": note, "of": of}
    value = first[of]
    if second is not None:
        value = first[of] / second[of]
        rounds = [a / b for a, b in zip(first["values"], second["values"], strict=False)]
        made |= {"ratio": value, "ratio_min": min(rounds), "ratio_max": max(rounds)}
    made |= {"at_most": at_most, "at_least": at_least}
    kept = [value <= at_most] if at_most is not None else [value >= at_least] if at_least is not None else []
    made["met"] = kept[0] if kept else None
    print(line(made), flush=True)
    return made


def line(made: dict[str, Any]) -> str:
    """A row for the terminal."""
    value = f"{made['ratio']:8.3f}" if made["second"] else f"{made['first']['median']:8.3g}"
    return f"  {made['what'][:64]:64} {made['shape'][:34]:34} {value}  {budget(made)}"


def budget(made: dict[str, Any]) -> str:
    """The budget in words, empty if there is none."""
    if made["met"] is None:
        return ""
    limit = f"≤ {made['at_most']:g}" if made["at_most"] is not None else f"≥ {made['at_least']:g}"
    return f"{limit}: {'met' if made['met'] else 'missed'}"
