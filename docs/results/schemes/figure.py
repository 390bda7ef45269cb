"""Loss and cost of every scheme as a picture: python figure.py records.parquet schemes.svg

A row a preset, the lowest loss first. Left: the validation loss after the last step, filled; hollow, of a training of
as many steps with another seed, in the search of a rate, where there was one. Right: operations of a token, of those of
`dstg`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tables import BASE, SEARCH, last_loss

from whatwhere.models.preset_table import kept_rows
from whatwhere.records.families import FAMILIES
from whatwhere.records.record import Record, read_records
from whatwhere.records.table import Table

LEFT, TOP, ROW, LOSS, COST, GAP = 128, 64, 20, 420, 130, 40  # pixels
COLOURS = dict(zip(FAMILIES, ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#555555", "#CC79A7"), strict=True))


def searched_loss(records: Sequence[Record], model: str) -> float | None:
    """Return the loss of the search's training by the same rate and another seed; None where there was none."""
    found = [r.value for r in records if (r.study, r.model, r.part) == (SEARCH, model, "validation.biases-10")]
    return found[0] if found else None


def picture(records: Sequence[Record]) -> str:
    """Return the SVG."""
    table = Table(record for record in records if record.study != SEARCH)
    losses = {model: last_loss(table, model) for model in table.models("operations")}
    costs = {model: table.point("operations", model).value for model in losses}
    families = {row["name"]: row["family"] for row in kept_rows("tiny")}
    models = sorted(losses, key=lambda model: losses[model])
    searched = {model: loss for model in models if (loss := searched_loss(records, model)) is not None}
    low = min([*losses.values(), *searched.values()]) - 0.1
    high = max(losses.values()) + 0.1
    least, most = 0.9, max(costs.values()) / costs[BASE] + 0.03

    def x_of_loss(value: float) -> float:
        return LEFT + LOSS * (value - low) / (high - low)

    def x_of_cost(model: str) -> float:
        return LEFT + LOSS + GAP + COST * (costs[model] / costs[BASE] - least) / (most - least)

    bottom = TOP + ROW * len(models)
    width = LEFT + LOSS + GAP + COST + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 80}" width="{width}" '
        'font-family="sans-serif" font-size="13" fill="#1b1e22">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="bold">Loss and cost of {len(models)} schemes, '
        "one training each</text>",
        f'<text x="{LEFT}" y="{TOP - 14}">held-out loss, nats</text>',
        f'<text x="{LEFT + LOSS + GAP}" y="{TOP - 14}">operations, of dstg</text>',
    ]
    for tick in range(3, int(high) + 1):
        x = x_of_loss(tick)
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#e2e2dc"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
    for place, model in enumerate(models):
        y = TOP + ROW * (place + 0.5)
        colour = COLOURS[families[model]]
        out.append(f'<text x="{LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{model}</text>')
        if model in searched:
            x = x_of_loss(searched[model])
            out.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x_of_loss(losses[model]):.1f}" y2="{y}" stroke="{colour}"/>')
            out.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="white" stroke="{colour}" stroke-width="1.6"/>')
        x = x_of_loss(losses[model])
        out.append(f'<circle cx="{x:.1f}" cy="{y}" r="4.5" fill="{colour}"><title>{losses[model]:.2f}</title></circle>')
        x = x_of_cost(model)
        share = f"{costs[model] / costs[BASE]:.2f}"
        out.append(f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" font-size="11">{share}</text>')
    x = LEFT
    for number, (family, colour) in enumerate(COLOURS.items()):
        y = bottom + 44 + 20 * (number // 3)
        x = LEFT - 90 + (number % 3) * 240
        out.append(f'<circle cx="{x}" cy="{y}" r="4.5" fill="{colour}"/>')
        out.append(f'<text x="{x + 10}" y="{y + 4}">{FAMILIES[family]}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(read_records(sys.argv[1])), encoding="utf-8")
