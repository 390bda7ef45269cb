"""The table of all schemes from its records, as Markdown: python tables.py records.parquet

A loss is the validation loss after the last step. Differences and gains have 95 % intervals over documents.
"""

import sys
from collections.abc import Mapping, Sequence

import numpy as np

from whatwhere.records.places import rank
from whatwhere.records.record import Record, read_records
from whatwhere.records.table import Point, Table

BASE = "dstg"
SEARCH = "schemes-search"  # name of the study whose validation losses have the rate of the biases in `part`
VARIED = "kerple-power"  # whose two trainings differ by 0.33 nats more than those of the others
STREAMS = {"all": "", "position": "position ", "semantic": "semantic "}
# Terms of positions in the scores; where positions are added to words no term is theirs alone.
TERMS = (
    *("absolute", "absolute_to_semantic", "semantic_to_absolute"),
    *("relative", "semantic_to_relative", "relative_to_semantic"),
)
TITLES = "preset, loss, beside `dstg`, R² of position, nats without its term, 512 tokens, cost".split(", ")


def said(point: Point | None, sign: str = "+") -> str:
    """Value and interval in words; "–" for nothing."""
    if point is None:
        return "–"
    interval = "" if point.interval is None else f" [{point.interval[0]:.2f}, {point.interval[1]:.2f}]"
    return f"{point.value:{sign}.2f}{interval}"


def last_loss(table: Table, model: str) -> float:
    """Validation loss after the last step, in nats."""
    curve = table.points("loss", model, by="step", part="validation")
    return curve[max(curve)].value


def beside_base(table: Table, model: str) -> str:
    """Mean difference of the losses of the same documents from those of `dstg`."""
    ours, base = (table.point("loss.document", name) for name in (model, BASE))
    if model == BASE:
        return ""
    return "–" if ours is None or base is None else said(ours - base)


def position(table: Table, model: str) -> str:
    """R² of position after the last block but one: of all dimensions, then of each stream."""
    found = []
    for part, words in STREAMS.items():
        layers = table.points("r2.token", model, by="layer", part=part)
        if layers:
            found.append(f"{words}{layers[max(layers) - 1].value:.2f}")
    return ", ".join(found) or "–"


def used(table: Table, model: str) -> str:
    """Loss that rises without each term of positions, in nats."""
    found = {term: table.point("ablation.remove", model, part=term) for term in TERMS}
    return ", ".join(f"{term.replace('_', ' ')} {said(point)}" for term, point in found.items() if point) or "–"


def longer(table: Table, model: str) -> str:
    """Gain of the best way tried to read 512 tokens over reading in pieces, in nats."""
    gains = table.points("length.gain", model, by="part")
    if not gains:
        return "–"
    best = max(gains, key=lambda part: gains[part].value)
    return f"{best} {said(gains[best])}"


def trained_twice(records: Sequence[Record], table: Table) -> dict[str, tuple[float, float]]:
    """Model -> losses of its training and of the search's, at the same rate by another seed; the lower mean first."""
    searched = {r.model: r.value for r in records if (r.study, r.part) == (SEARCH, "validation.biases-10")}
    losses = {model: (last_loss(table, model), loss) for model, loss in searched.items()}
    return dict(sorted(losses.items(), key=lambda pair: sum(pair[1])))


def places_of(losses: Mapping[str, tuple[float, float]]) -> dict[str, tuple[int, int]]:
    """Model -> first and last place by its two trainings."""
    return dict(zip(losses, rank(np.array(list(losses.values()))).places, strict=True))


def main(path: str) -> None:
    records = read_records(path)
    table = Table(record for record in records if record.study != SEARCH)
    models = sorted(table.models("operations"), key=lambda model: last_loss(table, model))
    base = table.point("operations", BASE)
    assert base is not None
    print(f"| {' | '.join(TITLES)} |")
    print(f"|{' --- |' * len(TITLES)}")
    for model in models:
        operations = table.point("operations", model)
        assert operations is not None
        cells = [f"`{model}`", f"{last_loss(table, model):.2f}", beside_base(table, model), position(table, model)]
        cells += [used(table, model), longer(table, model), f"{operations.value / base.value:.2f}"]
        print(f"| {' | '.join(cells)} |")
    tries: dict[str, dict[str | None, float]] = {}
    for record in records:
        if record.study == SEARCH:
            tries.setdefault(record.model, {})[record.part] = record.value
    print("\n| preset | one rate → biases ten times as fast |")
    print("| --- | --- |")
    for model, losses in sorted(tries.items(), key=lambda pair: min(pair[1].values())):
        one, tenfold = (losses[f"validation.biases-{scale}"] for scale in (1, 10))
        print(f"| `{model}` | {one:.2f} → {tenfold:.2f} |")
    if len(losses := trained_twice(records, table)) < 2:
        return
    without = {model: pair for model, pair in losses.items() if model != VARIED}
    first = places_of(losses)
    second = places_of(without)
    print(f"\n| preset | mean loss of two seeds | place | place without `{VARIED}` |")
    print("| --- | --- | --- | --- |")
    for model, pair in losses.items():
        cells = [
            f"{sum(pair) / 2:.2f}",
            *("–".join(map(str, dict.fromkeys(found.get(model, ())))) or "–" for found in (first, second)),
        ]
        print(f"| `{model}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1])
