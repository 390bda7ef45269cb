"""The race of the absolute table and the T5 bias as a picture: `python figure.py records.parquet race.svg`.

Reads a study whose models are called `{residual}-t5x{a}-table{b}`: `dstg` with the T5 bias learning a times and the
position table b times as fast as everything else. Rows are quantities, columns residuals. A table with the same numbers
goes to stdout, as Markdown.
"""

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from whatwhere.records.intervals import UNBOUNDED, Range, seed_interval
from whatwhere.records.record import Record, read_records, select

NAME = re.compile(r"(?P<residual>[a-z]+)-t5x(?P<t5>\d+(\.\d+)?)-table(?P<table>\d+(\.\d+)?)")
# Quantity, its heading, its unit for the table, whether it is a share (an axis from 0 to 1).
QUANTITIES = {
    "position": ("Position kept: R² in the position stream of the last trained layer", True),
    "two": ("Share of two components in the variance of the position table", True),
    "loss": ("Validation loss, nats", False),
    "absolute": ("Weight on the 8 tokens on each side, absolute term alone{even}", True),
    "relative": ("Weight on the 8 tokens on each side, relative term alone{even}", True),
}
SPANS = {"position": (-0.25, 1.0), "two": (0.0, 1.0), "loss": UNBOUNDED, "absolute": (0.0, 1.0), "relative": (0.0, 1.0)}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#555555")  # by table rate; REPORT's palette
SYMBOLS = ("circle", "square")
LEFT = 62  # pixels
RIGHT = 24
TOP = 128
WIDTH = 330
HEIGHT = 132
GAP_X = 40
GAP_Y = 58
EVEN = " (dashed: equal attention to all)"
APART = 30  # pixels between table rates, and from the first seed to the last
SEEDS_WIDE = 11

Place = tuple[str, float, float]  # residual, T5 rate, table rate


@dataclass(frozen=True)
class Mean:
    """Values of the seeds, by seed; their mean; the interval between them, inside their range, None of one seed."""

    each: dict[int, float]
    span: Range = UNBOUNDED

    @property
    def value(self) -> float:
        return sum(self.each.values()) / len(self.each)

    @property
    def interval(self) -> tuple[float, float] | None:
        return seed_interval(list(self.each.values()), self.span)


def places(records: Sequence[Record]) -> dict[str, Place]:
    """Model -> its place in the race.

    Raises:
        ValueError: no model has a name of the race.
    """
    names = sorted({r.model for r in records})
    found = {n: (m["residual"], float(m["t5"]), float(m["table"])) for n in names if (m := NAME.fullmatch(n))}
    if not found:
        raise ValueError(
            f"No model is called like normalized-t5x1-table10; got {', '.join(filter(None, names)) or 'none'}."
        )
    return dict(sorted(found.items(), key=lambda item: item[1]))


def quantities(records: Sequence[Record], model: str) -> dict[str, Mean]:
    """What was measured of a model, by quantity; without what has no record."""
    of = [r for r in records if r.model == model and math.isfinite(r.value)]
    probes = select(of, metric="r2.token", part="position", index=None, step=None)
    last = (
        max((r.layer or 0 for r in probes), default=0) - 1
    )  # no gradient reaches the position stream after the last block
    near = [r for r in select(of, metric="local.share", layer=None, head=None) if r.step is not None]
    found = {
        "position": [r for r in probes if r.layer == last],
        "two": select(of, metric="pca.top2", step=None),
        "loss": _final(select(of, metric="loss", part="validation")),
        "absolute": _final([r for r in near if r.part == "absolute"]),
        "relative": _final([r for r in near if r.part == "relative"]),
    }
    return {name: Mean({r.seed or 0: r.value for r in rs}, SPANS[name]) for name, rs in found.items() if rs}


def _final(records: Sequence[Record]) -> list[Record]:
    """Of each seed the record of the finished model, or of its last step."""
    last: dict[int | None, Record] = {}
    for r in sorted(records, key=lambda r: math.inf if r.step is None else r.step):
        last[r.seed] = r
    return list(last.values())


def sentence(found: dict[Place, dict[str, Mean]]) -> str:
    """Position kept at the slowest and the fastest T5 rate, equal residual and table rate: the `normalized` one at the
    lowest table rate.

    It falls or rises if the interval of the difference, paired by seed, lies on one side of 0.
    """
    kept = {place: q["position"] for place, q in found.items() if "position" in q}
    lines = sorted({(r, b) for r, _, b in kept}, key=lambda line: (line[0] != "normalized", line))
    for residual, table in lines:
        rates = sorted(a for r, a, b in kept if (r, b) == (residual, table))
        slow = kept[residual, rates[0], table]
        fast = kept[residual, rates[-1], table]
        shared = sorted(set(slow.each) & set(fast.each))
        if len(rates) < 2 or not shared:
            continue
        between = seed_interval([fast.each[s] - slow.each[s] for s in shared])
        verb = (
            "goes from"
            if between is None
            else "falls from"
            if between[1] < 0
            else "rises from"
            if between[0] > 0
            else ""
        )
        values = (
            f"{_two(slow.value)} to {_two(fast.value)} when the T5 bias learns {rates[-1] / rates[0]:g} times as fast"
        )
        which = f"{residual} residual, table rate {table:g}"
        return (
            f"R² of position {verb} {values} ({which})" if verb else f"Not separable: R² of position {values} ({which})"
        )
    return "T5 rate, table rate and residual of dstg"


def picture(records: Sequence[Record]) -> str:
    """The SVG.

    Raises:
        ValueError: as `places`.
    """
    named = places(records)
    found = {place: quantities(records, model) for model, place in named.items()}
    residuals = sorted({r for r, _, _ in found}, key=lambda r: (r != "normalized", r))
    rates = sorted({a for _, a, _ in found})
    tables = sorted({b for _, _, b in found})
    even = [r.value for r in select(records, metric="local.even") if r.model in named]
    width = LEFT + len(residuals) * (WIDTH + GAP_X) - GAP_X + RIGHT
    height = TOP + len(QUANTITIES) * (HEIGHT + GAP_Y)
    seeds = sorted({s for q in found.values() for m in q.values() for s in m.each})
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="14" '
        'fill="#1b1e22">',
        '<rect width="100%" height="100%" fill="white"/>',
        *(
            f'<text x="{LEFT}" y="{26 + 20 * i}" font-size="16" font-weight="bold">{escape(line)}</text>'
            for i, line in enumerate(_wrapped(sentence(found), (width - LEFT) // 9))
        ),
    ]
    over = f"small: seeds; large: mean of {len(seeds)}, bar: its 95 % interval" if len(seeds) > 1 else "one seed"
    at = LEFT
    for i, table in enumerate(tables):
        out += [_mark(at + 6, 72, i, 5.5), f'<text x="{at + 18}" y="77">table rate {table:g}</text>']
        at += 126
    out.append(f'<text x="{at}" y="77">{over}</text>')
    for column, residual in enumerate(residuals):
        middle = LEFT + column * (WIDTH + GAP_X) + WIDTH / 2
        out.append(f'<text x="{middle:.0f}" y="102" text-anchor="middle" font-weight="bold">{residual} residual</text>')
        out.append(
            f'<text x="{middle:.0f}" y="{height - 14}" text-anchor="middle">T5 rate, times the common rate</text>'
        )
    for row, (name, (heading, share)) in enumerate(QUANTITIES.items()):
        top = TOP + row * (HEIGHT + GAP_Y)
        out.append(f'<text x="{LEFT}" y="{top - 8}">{heading.format(even=EVEN if even else "")}</text>')
        values = [q[name] for q in found.values() if name in q]
        if not values:
            out.append(f'<text x="{LEFT}" y="{top + HEIGHT / 2:.0f}">not measured</text>')
            continue
        low, high, step = (
            (min(0.0, *(v for m in values for v in m.each.values())), 1.0, 0.25) if share else _ends(values)
        )
        for column, residual in enumerate(residuals):
            frame = _Frame(LEFT + column * (WIDTH + GAP_X), top, low, high, rates)
            out += frame.ground(step, column == 0, row == len(QUANTITIES) - 1)
            if name in ("absolute", "relative") and even:
                out += frame.level(sum(even) / len(even), "equal attention")
            for i, table in enumerate(tables):
                points = {a: q[name] for (r, a, b), q in found.items() if (r, b) == (residual, table) and name in q}
                out += frame.marks(points, i, (i - (len(tables) - 1) / 2) * APART, seeds)
    return "\n".join([*out, "</svg>"]) + "\n"


@dataclass(frozen=True)
class _Frame:
    """A panel: where its upper left corner is, the ends of its y axis, the T5 rates along x."""

    left: float
    top: float
    low: float
    high: float
    rates: Sequence[float]

    def x(self, rate: float) -> float:
        """Logarithmic, with room for the marks at both ends."""
        least = math.log(self.rates[0])
        most = math.log(self.rates[-1])
        return self.left + 45 + (WIDTH - 90) * ((math.log(rate) - least) / (most - least) if most > least else 0.5)

    def y(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)  # an interval may reach beyond what a share can be
        return self.top + HEIGHT * (self.high - inside) / (self.high - self.low)

    def ground(self, step: float, named: bool, below: bool) -> list[str]:
        """Grid, its values at the left column and the rates under the last row."""
        out = []
        ticks = [step * k for k in range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)]
        for tick in ticks:
            y = self.y(tick)
            out.append(f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}" stroke="#e2e2dc"/>')
            if named:
                out.append(f'<text x="{self.left - 8}" y="{y + 5:.1f}" text-anchor="end">{tick:g}</text>')
        for rate in self.rates if below else ():
            out.append(
                f'<text x="{self.x(rate):.1f}" y="{self.top + HEIGHT + 20}" text-anchor="middle">{rate:g}</text>'
            )
        return out

    def level(self, value: float, words: str) -> list[str]:
        y = self.y(value)
        line = (
            f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}" stroke="#575c63" '
            'stroke-dasharray="5 4"/>'
        )
        return [f"{line[:-2]}><title>{words}: {value:.2f}</title></line>"]

    def marks(self, points: dict[float, Mean], kind: int, shift: float, seeds: Sequence[int]) -> list[str]:
        """Means joined in order, the interval between seeds, and a small mark for each seed beside it."""
        colour = COLOURS[kind % len(COLOURS)]
        xs = {a: self.x(a) + shift for a in sorted(points)}
        way = " ".join(f"{x:.1f},{self.y(points[a].value):.1f}" for a, x in xs.items())
        out = [f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6" opacity="0.55"/>']
        for rate, x in xs.items():
            mean = points[rate]
            if mean.interval:
                low, high = (self.y(v) for v in mean.interval)
                out.append(
                    f'<line x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}" stroke="{colour}" '
                    'stroke-width="2"/>'
                )
                for seed, value in mean.each.items():
                    beside = x + 9 + SEEDS_WIDE * seeds.index(seed) / max(1, len(seeds) - 1)
                    out.append(_mark(beside, self.y(value), kind, 2.6, f"T5 rate {rate:g}, seed {seed}: {value:.3f}"))
            out.append(_mark(x, self.y(mean.value), kind, 5.5, f"T5 rate {rate:g}: {_shown(mean)}"))
        return out


def _mark(x: float, y: float, kind: int, size: float, words: str = "") -> str:
    colour = COLOURS[kind % len(COLOURS)]
    title = f"<title>{escape(words)}</title>" if words else ""
    edge = f'fill="{colour}" stroke="white" stroke-width="{0.8 if size > 3 else 0}"'
    if SYMBOLS[kind % len(SYMBOLS)] == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {edge}>{title}</circle>'
    return (
        f'<rect x="{x - 0.9 * size:.1f}" y="{y - 0.9 * size:.1f}" width="{1.8 * size:.1f}" height="{1.8 * size:.1f}" '
        f"{edge}>{title}</rect>"
    )


def _ends(values: Sequence[Mean]) -> tuple[float, float, float]:
    """Ends and step of an axis that holds every seed and every interval."""
    every = [v for m in values for v in (*m.each.values(), *(m.interval or ()))]
    room = (max(every) - min(every)) or 1.0
    step = next(s for s in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0) if room / s <= 5 or s == 10.0)
    return step * math.floor(min(every) / step), step * math.ceil(max(every) / step), step


def _wrapped(words: str, most: int) -> list[str]:
    lines = [""]
    for word in words.split():
        if len(lines[-1]) + len(word) >= most:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _shown(mean: Mean) -> str:
    bounds = f" [{_two(mean.interval[0])}, {_two(mean.interval[1])}]" if mean.interval else ""
    return f"{_two(mean.value)}{bounds}"


def _two(value: float) -> str:
    """Two decimals, without the sign of a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def table(records: Sequence[Record]) -> str:
    """The same numbers as Markdown: mean and interval between seeds."""
    heads = [
        "residual",
        "T5 rate",
        "table rate",
        "seeds",
        "position R²",
        "two components",
        "loss",
        "absolute near",
        "relative near",
    ]
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for model, (residual, t5, rate) in places(records).items():
        found = quantities(records, model)
        seeds = max((len(m.each) for m in found.values()), default=0)
        cells = [
            residual,
            f"{t5:g}",
            f"{rate:g}",
            str(seeds),
            *(_shown(found[q]) if q in found else "–" for q in QUANTITIES),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    source, out = sys.argv[1:]
    measured = read_records(source)
    Path(out).write_text(picture(measured), encoding="utf-8")
    print(table(measured))
