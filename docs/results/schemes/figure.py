"""Loss and cost of every scheme as a picture: python figure.py records.parquet schemes.svg

A row a preset, the lowest loss first. Left: the validation loss after the last step, filled; hollow, of a training of
as many steps with another seed, in the search of a rate, where there was one. Then the operations of a token, of those
of `dstg`. Right: a line a tie, dots at its models: all that two trainings each do not tell apart.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tables import BASE, SEARCH, last_loss, places_of, trained_twice

from whatwhere.models.preset_table import kept_rows
from whatwhere.records.families import FAMILIES
from whatwhere.records.record import Record, read_records
from whatwhere.records.table import Table

LEFT = 128  # pixels
TOP = 64
ROW = 20
LOSS = 420
COST = 130
GAP = 40
TIES = 130
COLOURS = dict(zip(FAMILIES, ("#0072B2", "#56B4E9", "#D55E00", "#009E73", "#555555", "#CC79A7"), strict=True))


def ties(places: Mapping[str, tuple[int, int]]) -> list[list[str]]:
    """Return the largest groups of models of which no two are apart, from places in their order."""
    models = list(places)
    groups: list[list[str]] = []
    end = 0
    for first, (_, last) in enumerate(places.values()):
        if last > end:
            groups.append(models[first:last])
            end = last
    return groups


def picture(records: Sequence[Record]) -> str:
    """Return the SVG."""
    table = Table(record for record in records if record.study != SEARCH)
    losses = {model: last_loss(table, model) for model in table.models("operations")}
    costs = {model: table.point("operations", model).value for model in losses}
    families = {row["name"]: row["family"] for row in kept_rows("tiny")}
    models = sorted(losses, key=lambda model: losses[model])
    twice = trained_twice(records, table)
    searched = {model: pair[1] for model, pair in twice.items()}
    low = min([*losses.values(), *searched.values()]) - 0.1
    high = max(losses.values()) + 0.1
    least = 0.9
    most = max(costs.values()) / costs[BASE] + 0.03

    def x_of_loss(value: float) -> float:
        return LEFT + LOSS * (value - low) / (high - low)

    def x_of_cost(model: str) -> float:
        return LEFT + LOSS + GAP + COST * (costs[model] / costs[BASE] - least) / (most - least)

    bottom = TOP + ROW * len(models)
    width = LEFT + LOSS + GAP + COST + GAP + TIES
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 80}" width="{width}" '
        'font-family="sans-serif" font-size="13" fill="#1b1e22">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="bold">Loss and cost of {len(models)} schemes, '
        "one or two trainings each</text>",
        f'<text x="{LEFT}" y="{TOP - 14}">held-out loss, nats</text>',
        f'<text x="{LEFT + LOSS + GAP}" y="{TOP - 14}">operations, of dstg</text>',
        f'<text x="{LEFT + LOSS + GAP + COST + GAP}" y="{TOP - 14}">ties of two seeds</text>',
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
    for number, group in enumerate(ties(places_of(twice))):
        x = LEFT + LOSS + GAP + COST + GAP + 24 * (number + 1)
        rows = sorted(TOP + ROW * (models.index(model) + 0.5) for model in group)
        out.append(f'<line x1="{x}" y1="{rows[0]}" x2="{x}" y2="{rows[-1]}" stroke="#1b1e22" stroke-width="1.4"/>')
        out += [f'<circle cx="{x}" cy="{y}" r="3" fill="#1b1e22"/>' for y in rows]
    for number, (family, colour) in enumerate(COLOURS.items()):
        y = bottom + 44 + 20 * (number // 3)
        x = LEFT - 90 + (number % 3) * 240
        out.append(f'<circle cx="{x}" cy="{y}" r="4.5" fill="{colour}"/>')
        out.append(f'<text x="{x + 10}" y="{y + 4}">{FAMILIES[family]}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(read_records(sys.argv[1])), encoding="utf-8")
