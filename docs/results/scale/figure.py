"""Six numbers of DSTG over the size of the training as a picture: `python figure.py OUT.svg LINE=RECORDS[:MODEL] ...`.

RECORDS is the records.parquet of a study or the parquet of a reference study, MODEL the name of its `dstg` (default:
dstg). Points of one LINE, for example "tiny, random start", are joined in the order of their training tokens. A table
with the same numbers goes to stdout, as Markdown.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from whatwhere.papers import DSTG_R2, DSTG_TABLES
from whatwhere.records.record import read_records
from whatwhere.records.table import Point, Table, largest, share_above, smallest, summary

BASELINES = ("ap", "rp", "rope")
AFFECTED = 1 / 3  # of the divergence: a head that one of three terms strongly affects (claims/dstg.py)
# Quantity -> heading, and what the paper prints.
QUANTITIES: dict[str, tuple[str, float | None]] = {
    "gap": ("Loss above the best of ap, rp, rope, nats", None),
    "two": ("Two components of the position table: share of variance", DSTG_TABLES["pca.top2", "dstg", None]),
    "slow": ("Power in four slow waves, lower of two components", DSTG_TABLES["dct.low4", "dstg", 0]),
    "position": ("R² of position, last trained layer of its stream", DSTG_R2["r2.token", "dstg", "position", 5]),
    "semantic": ("R² of position, best layer of the semantic stream", DSTG_R2["r2.token", "dstg", "semantic", 1]),
    "heads": ("Heads that absolute position strongly affects", 27 / 36),
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#555555", "#CC79A7", "#E69F00")  # the first as the pages have them
SYMBOLS = ("circle", "square", "diamond", "triangle", "wedge", "bar")
LEFT = 62  # pixels
RIGHT = 30
TOP = 143
WIDTH = 400
HEIGHT = 150
GAP_X = 72
GAP_Y = 82
LEGEND_ROW = 21
COLUMNS = 2
APART = 5  # pixels between the lines at one number of tokens


@dataclass(frozen=True)
class Place:
    """One study on a line: its training tokens, its quantities as far as they were measured, and its baselines."""

    line: str
    tokens: float
    points: Mapping[str, Point]
    baselines: Sequence[str] = ()


def quantities(table: Table, model: str) -> dict[str, Point]:
    """Return the six quantities of a model, those that were measured, over its training seeds."""
    probed = {part: table.points("r2.token", model, by="layer", part=part) for part in ("position", "semantic")}
    blocks = max(probed["position"], default=0)
    waves = [table.point("dct.low4", model, index=i) for i in (0, 1)]
    shares = table.points("kl.share.absolute", model, by=("layer", "head"))
    found = {
        "gap": _gap(table, model),
        "two": table.point("pca.top2", model),
        "slow": smallest([w for w in waves if w]) if all(waves) else None,
        "position": probed["position"].get(blocks - 1),  # no gradient reaches the stream after the last block
        "semantic": largest([p for layer, p in probed["semantic"].items() if layer]) if probed["semantic"] else None,
        "heads": share_above(list(shares.values()), AFFECTED) if shares else None,
    }
    return {name: point for name, point in found.items() if point is not None}


def _gap(table: Table, model: str) -> Point | None:
    """Final validation loss of a model less the lowest of the baselines, seed by seed."""
    own = _final(table, model)
    others = [loss for name in BASELINES if (loss := _final(table, name))]
    if own is None or not others or len({len(loss.at) for loss in others}) > 1:
        return None
    return own - smallest(others)


def _final(table: Table, model: str) -> Point | None:
    rows = sorted(table.rows("loss", model, part="validation"), key=lambda r: math.inf if r.step is None else r.step)
    last = {r.seed: r for r in rows}
    return summary(last.values())


def place(argument: str) -> Place:
    """Read LINE=RECORDS[:MODEL].

    Raises:
        ValueError: it is not of that form, or the records have no such model.
    """
    line, equals, source = argument.partition("=")
    path, _, model = source.partition(":")
    if not line or not equals or not path:
        raise ValueError(f"{argument!r} is not LINE=RECORDS[:MODEL], for example 'tiny, random start=records.parquet'.")
    return measured(line, Table(read_records(path)), model or "dstg", path)


def measured(line: str, table: Table, model: str, path: str = "the records") -> Place:
    """Return a study's place on a line.

    Raises:
        ValueError: the records have no such model.
    """
    tokens = table.point("tokens", model)
    if tokens is None:
        raise ValueError(f"{path} has no trained model {model}; it has {', '.join(table.models('tokens')) or 'none'}.")
    return Place(line, tokens.value, quantities(table, model), [m for m in BASELINES if _final(table, m)])


def picture(places: Sequence[Place]) -> str:
    """Return the SVG of some places.

    Raises:
        ValueError: there is none.
    """
    if not places:
        raise ValueError("There is nothing to draw. Give LINE=RECORDS[:MODEL] at least once.")
    lines = list(dict.fromkeys(p.line for p in places))
    rows = math.ceil(len(QUANTITIES) / COLUMNS)
    width = LEFT + COLUMNS * (WIDTH + GAP_X) - GAP_X + RIGHT
    height = TOP + rows * (HEIGHT + GAP_Y) - 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        'font-family="sans-serif" font-size="14" fill="#1b1e22">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="28" font-size="16" font-weight="bold">dstg over the size of its training</text>',
    ]
    at = float(LEFT)
    y = 53
    for kind, line in enumerate(lines):
        if at + 18 + 7.4 * len(line) > width - RIGHT:
            at = float(LEFT)
            y += LEGEND_ROW
        out += [_mark(at + 6, y, kind, 5.5), f'<text x="{at + 18:.0f}" y="{y + 5}">{escape(line)}</text>']
        at += 40 + 7.4 * len(line)
    seeds = max((len(point.at) for p in places for point in p.points.values()), default=1)
    over = f"small marks: single seeds; bar: 95 % interval (up to {seeds} seeds); " if seeds > 1 else "one seed; "
    out.append(f'<text x="{LEFT}" y="{y + 29}" fill="#575c63">{over}dashed: the paper</text>')
    for number, (name, (heading, printed)) in enumerate(QUANTITIES.items()):
        left = LEFT + (number % COLUMNS) * (WIDTH + GAP_X)
        top = TOP + (number // COLUMNS) * (HEIGHT + GAP_Y)
        out.append(f'<text x="{left}" y="{top - 10}" font-weight="bold">{escape(heading)}</text>')
        points = [(p, p.points[name]) for p in places if name in p.points]
        if not points:
            out.append(f'<text x="{left}" y="{top + HEIGHT // 2}">not measured</text>')
            continue
        frame = Frame(left, top, _ends([q for _, q in points], name != "gap"), sorted({p.tokens for p in places}))
        out += frame.ground()
        if printed is not None:
            out += frame.level(printed)
        for kind, line in enumerate(lines):
            of_line = sorted(((p.tokens, q) for p, q in points if p.line == line), key=lambda pair: pair[0])
            out += frame.marks(of_line, kind, (kind - (len(lines) - 1) / 2) * APART, line)
    return "\n".join([*out, "</svg>"]) + "\n"


def _ends(points: Iterable[Point], share: bool) -> tuple[float, float, float]:
    """Ends and step of an axis that holds every seed, and 0 to 1 of a share, else every interval."""
    points = list(points)
    values = [float(v) for p in points for v in p.seed_values]
    if not share:
        values += [float(end) for p in points if p.interval for end in p.interval]
    low = min(0.0, *values)
    high = max(1.0 if share else 0.0, *values)
    room = (high - low) or 1.0
    step = next((s for s in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0) if room / s <= 5), 5.0)
    return step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), step


@dataclass(frozen=True)
class Frame:
    """A panel: its upper left corner, ends and step of its y axis, the numbers of tokens along x."""

    left: float
    top: float
    ends: tuple[float, float, float]
    tokens: Sequence[float]

    def x(self, tokens: float) -> float:
        """Logarithmic, with room for the marks at both ends."""
        least = math.log(self.tokens[0])
        most = math.log(self.tokens[-1])
        share = (math.log(tokens) - least) / (most - least) if most > least else 0.5
        return self.left + 36 + (WIDTH - 72) * share

    def y(self, value: float) -> float:
        low, high, _ = self.ends
        inside = min(max(value, low), high)  # an interval may reach beyond what a share can be
        return self.top + HEIGHT * (high - inside) / (high - low)

    def ground(self) -> list[str]:
        """Grid, its values, and the numbers of tokens that have room."""
        low, high, step = self.ends
        out = []
        for k in range(round(low / step), round(high / step) + 1):
            y = self.y(step * k)
            out.append(f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}" stroke="#e2e2dc"/>')
            out.append(f'<text x="{self.left - 8}" y="{y + 5:.1f}" text-anchor="end">{round(step * k, 2):g}</text>')
        free = -math.inf
        for tokens in self.tokens:
            x = self.x(tokens)
            words = _millions(tokens)
            half = 4.2 * len(words)
            if x - half > free:
                y = self.top + HEIGHT + 20
                out.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{words}</text>')
                free = x + half + 6
        return out

    def level(self, value: float) -> list[str]:
        """The paper's value."""
        y = self.y(value)
        ends = f'x1="{self.left}" y1="{y:.1f}" x2="{self.left + WIDTH}" y2="{y:.1f}"'
        return [f'<line {ends} stroke="#575c63" stroke-dasharray="5 4"><title>paper: {value:.3g}</title></line>']

    def marks(self, points: Sequence[tuple[float, Point]], kind: int, shift: float, line: str) -> list[str]:
        """Means joined in order, the interval between seeds, a small mark for each seed beside it."""
        colour = COLOURS[kind % len(COLOURS)]
        way = " ".join(f"{self.x(tokens) + shift:.1f},{self.y(p.value):.1f}" for tokens, p in points)
        out = [f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6" opacity="0.55"/>']
        for tokens, point in points:
            x = self.x(tokens) + shift
            where = f"{line}, {_millions(tokens)} tokens"
            if point.interval:
                low, high = (self.y(v) for v in point.interval)
                ends = f'x1="{x:.1f}" y1="{low:.1f}" x2="{x:.1f}" y2="{high:.1f}"'
                out.append(f'<line {ends} stroke="{colour}" stroke-width="2"/>')
            if len(point.at) > 1:
                for number, value in enumerate(point.seed_values, 1):
                    words = f"{where}, training {number}: {value:.3f}"
                    out.append(_mark(x + 10, self.y(float(value)), kind, 2.6, words))
            out.append(_mark(x, self.y(point.value), kind, 5.5, f"{where}: {_shown(point)}"))
        return out


def _mark(x: float, y: float, kind: int, size: float, words: str = "") -> str:
    title = f"<title>{escape(words)}</title>" if words else ""
    edge = f'fill="{COLOURS[kind % len(COLOURS)]}" stroke="white" stroke-width="{0.8 if size > 3 else 0}"'
    symbol = SYMBOLS[kind % len(SYMBOLS)]
    if symbol == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {edge}>{title}</circle>'
    corners = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)],
        "triangle": [(0, -1.2), (1.15, 0.9), (-1.15, 0.9)],
        "wedge": [(0, 1.2), (1.15, -0.9), (-1.15, -0.9)],
        "bar": [(-1.2, -0.55), (1.2, -0.55), (1.2, 0.55), (-1.2, 0.55)],
    }[symbol]
    path = " ".join(f"{x + size * dx:.1f},{y + size * dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{path}" {edge}>{title}</polygon>'


def _millions(tokens: float) -> str:
    return f"{tokens / 1e6:.3g}M"


def _shown(point: Point) -> str:
    low, high = point.interval or (None, None)
    return _two(point.value) if low is None or high is None else f"{_two(point.value)} [{_two(low)}, {_two(high)}]"


def _two(value: float) -> str:
    """Two decimals, without the sign of a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def markdown(places: Sequence[Place]) -> str:
    """Return the same numbers as a Markdown table, the paper's in its last row."""
    heads = ["line", "baselines", "tokens", "seeds", "loss gap", "two components", "slow waves"]
    heads += ["position", "semantic", "heads"]
    rows = [f"| {' | '.join(heads)} |", "| --- | --- |" + " ---: |" * (len(heads) - 2)]
    for p in sorted(places, key=lambda p: (p.line, p.tokens)):
        seeds = max((len(point.at) for point in p.points.values()), default=0)
        values = [_shown(p.points[name]) if name in p.points else "–" for name in QUANTITIES]
        cells = [p.line, ", ".join(p.baselines), _millions(p.tokens), str(seeds), *values]
        rows.append(f"| {' | '.join(cells)} |")
    printed = ["–" if value is None else f"{value:.3g}" for _, value in QUANTITIES.values()]
    return "\n".join([*rows, f"| {' | '.join(['paper', ', '.join(BASELINES), '9,180M', '1', *printed])} |"])


def main() -> None:
    """Write the picture and print the table."""
    if len(sys.argv) < 3:
        sys.exit("python figure.py OUT.svg LINE=RECORDS[:MODEL] ...")
    out, *arguments = sys.argv[1:]
    try:
        places = [place(argument) for argument in arguments]
        Path(out).write_text(picture(places), encoding="utf-8")
    except ValueError as error:
        sys.exit(str(error))
    print(markdown(places))


if __name__ == "__main__":
    main()
