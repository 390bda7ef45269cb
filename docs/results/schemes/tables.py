"""The table of all schemes from its records, as Markdown: python tables.py records.parquet"""

import sys

import numpy as np

from whatwhere.analysis.record_context import document_mean
from whatwhere.records.record import Record, read_records

BASE = "dstg"
SEARCHED = ("validation.biases-1", "validation.biases-10")  # validation losses of the two rates, another seed


def values(records: list[Record], model: str, metric: str, part: str | None = None) -> dict[int | None, Record]:
    """Records of a metric by their index."""
    return {r.index: r for r in records if (r.model, r.metric, r.part) == (model, metric, part)}


def last_loss(records: list[Record], model: str) -> float:
    """Validation loss after the last step."""
    curve = {r.step: r.value for r in records if (r.model, r.metric, r.part) == (model, "loss", "validation")}
    return curve[max(step for step in curve if step is not None)]


def beside_base(records: list[Record], model: str) -> str:
    """Mean difference of the losses of the same documents, with its 95 % interval over them."""
    of_model, of_base = (values(records, name, "loss.document") for name in (model, BASE))
    places = sorted(i for i in of_model if i is not None)
    if not places or model == BASE:
        return "" if model == BASE else "–"
    mean, low, high = document_mean(np.array([of_model[i].value - of_base[i].value for i in places]))
    return f"{mean:+.2f} [{low:.2f}, {high:.2f}]"


def longer(records: list[Record], model: str) -> str:
    """Gain of the best way to read 512 tokens over reading in pieces, with its interval over documents."""
    gains = [r for r in records if (r.model, r.metric) == (model, "length.gain")]
    if not gains:
        return "–"
    best = max(gains, key=lambda r: r.value)
    return f"{best.part} {best.value:+.2f} [{best.low:.2f}, {best.high:.2f}]"


def position(records: list[Record], model: str) -> str:
    """R² of position in the states of the last trained layer: of all dimensions, then of the meaning's where apart."""
    found = []
    for part in ("all", "position", "semantic"):
        layers = {r.layer: r.value for r in records if (r.model, r.metric, r.part) == (model, "r2.token", part)}
        if layers:
            found.append(f"{'' if part == 'all' else part + ' '}{sorted(layers.items())[-2][1]:.2f}")
    return ", ".join(found) or "–"


def searched(records: list[Record], model: str) -> str:
    """Validation losses at the rate of the other parameters and at ten times it."""
    found = {r.part: r.value for r in records if (r.model, r.study) == (model, "schemes-search")}
    return " → ".join(f"{found[part]:.2f}" for part in SEARCHED) if found else ""


def main(path: str) -> None:
    records = read_records(path)
    models = sorted({r.model for r in records if r.metric == "operations"}, key=lambda m: last_loss(records, m))
    print("| preset | loss | beside `dstg`, 250 articles | R² of position | 512 tokens | operations |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in models:
        cost = values(records, model, "operations")[None].value / values(records, BASE, "operations")[None].value
        cells = [last_loss(records, model), beside_base(records, model), position(records, model)]
        row = f"{cells[0]:.2f} | {cells[1]} | {cells[2]} | {longer(records, model)} | {cost:.2f}"
        print(f"| `{model}` | {row} |")
    print("\n| preset | one rate → biases ten times as fast |")
    print("| --- | --- |")
    tried = sorted({r.model for r in records if r.study == "schemes-search"}, key=lambda m: searched(records, m)[-4:])
    for model in tried:
        print(f"| `{model}` | {searched(records, model)} |")


if __name__ == "__main__":
    main(sys.argv[1])
