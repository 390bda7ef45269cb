"""R² of position, segment and progress by depth in published encoders as a picture.

    python figure.py encoders.parquet encoders.svg

A panel each; filled: the trained model with its interval over documents, hollow and dashed: the same architecture with
weights drawn anew. Grey: what DSTG prints of its own encoder with an added table (Tables 2 to 4, AP-NeoBERT).
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from whatwhere.papers import DSTG_LAYERS, DSTG_R2
from whatwhere.records.record import Record, read_records, select

PANELS = {"r2.token": "position", "r2.segment": "segment", "r2.intra": "progress in a segment"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
GREY = "#575c63"
LEFT = 52  # pixels
TOP = 112
WIDTH = 230
HEIGHT = 220
GAP = 26
BOTTOM = 34

Points = list[tuple[float, float, float, float]]  # depth, value, low, high


def x_of(panel: int, depth: float) -> float:
    """Return the place of a depth, 0 the embedding and 1 the last block, in a panel."""
    return LEFT + panel * (WIDTH + GAP) + 10 + depth * (WIDTH - 20)


def y_of(value: float) -> float:
    """Return the place of an R²; below 0 it lies at 0."""
    return TOP + (1 - min(1.0, max(0.0, value))) * HEIGHT


def points_of(records: Sequence[Record], metric: str, model: str, step: int | None) -> Points:
    """Return depth, mean, low and high by layer; of several drawings the mean alone."""
    found = select(records, metric=metric, model=model, part="all", step=step, index=None)
    layers = sorted({r.layer for r in found if r.layer is not None})
    points = []
    for layer in layers:
        here = [r for r in found if r.layer == layer]
        value = sum(r.value for r in here) / len(here)
        low = here[0].low
        high = here[0].high
        lone = len(here) == 1 and low is not None and high is not None
        points.append((layer / max(layers), value, low if lone else value, high if lone else value))
    return points


def line(panel: int, points: Points, colour: str, hollow: bool, words: str) -> list[str]:
    """Draw points joined in order, with their intervals, and say in a title what they are."""
    way = " ".join(f"{x_of(panel, d):.1f},{y_of(v):.1f}" for d, v, _, _ in points)
    dashes = ' stroke-dasharray="5 4"' if hollow else ""
    out = [f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>']
    for depth, value, low, high in points:
        x = x_of(panel, depth)
        if not hollow:
            ends = f'y1="{y_of(low):.1f}" x2="{x:.1f}" y2="{y_of(high):.1f}"'
            out.append(f'<line x1="{x:.1f}" {ends} stroke="{colour}" stroke-width="1.6"/>')
        fill = "white" if hollow else colour
        title = f"<title>{escape(words)}: {value:.2f}</title>"
        out.append(
            f'<circle cx="{x:.1f}" cy="{y_of(value):.1f}" r="3.4" fill="{fill}" stroke="{colour}">{title}</circle>'
        )
    return out


def sentence(records: Sequence[Record], models: Sequence[str]) -> str:
    """Say how much of position is read at its best layer and after the last block."""
    said = []
    for model in models:
        values = [v for _, v, _, _ in points_of(records, "r2.token", model, None)]
        said.append(f"{max(values):.2f} and {values[-1]:.2f} in {model}")
    return f"R² of position, best layer and last block: {'; '.join(said)}"


def picture(records: Sequence[Record]) -> str:
    """Return the SVG."""
    models = list(dict.fromkeys(r.model for r in records if r.metric == "r2.token"))
    colours = dict(zip(models, COLOURS, strict=False))
    width = LEFT + len(PANELS) * (WIDTH + GAP)
    height = TOP + HEIGHT + BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="13" fill="#1b1e22">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="14" font-weight="bold">{escape(sentence(records, models))}</text>',
    ]
    at = LEFT
    for words, colour in [*colours.items(), ("DSTG's AP-NeoBERT, as printed", GREY)]:
        out.append(f'<circle cx="{at + 5}" cy="48" r="4" fill="{colour}"/><text x="{at + 14}" y="52">{words}</text>')
        at += 40 + 7 * len(words)
    out.append(
        f'<text x="{LEFT}" y="72" fill="{GREY}">dashed, hollow: weights drawn anew; bars: 95 %, documents</text>'
    )
    for panel, (metric, name) in enumerate(PANELS.items()):
        left = x_of(panel, 0) - 10
        out.append(f'<text x="{left}" y="{TOP - 12}" font-weight="bold">R² of {name}</text>')
        for value in (0, 0.25, 0.5, 0.75, 1):
            y = y_of(value)
            out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" stroke="#d9dce0"/>')
            if panel == 0:
                out.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        foot = TOP + HEIGHT + 20
        out.append(f'<text x="{left}" y="{foot}">input</text>')
        out.append(f'<text x="{left + WIDTH}" y="{foot}" text-anchor="end">last block</text>')
        printed = [DSTG_R2[metric, "ap", "all", layer] for layer in range(1, DSTG_LAYERS + 1)]
        grey = [(layer / DSTG_LAYERS, value, value, value) for layer, value in enumerate(printed, 1)]
        out += line(panel, grey, GREY, False, "AP-NeoBERT, printed")
        for model, colour in colours.items():
            out += line(panel, points_of(records, metric, model, 0), colour, True, f"{model}, drawn anew")
            out += line(panel, points_of(records, metric, model, None), colour, False, model)
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    source, target = sys.argv[1:]
    Path(target).write_text(picture(read_records(source)), encoding="utf-8")
