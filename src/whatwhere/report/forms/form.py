"""What all forms share: how a figure is declared, its marks, and the words under its title."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from inspect import cleandoc
from typing import Any

from ...records.metric import Metric
from ...records.metrics import metric
from ...records.table import Point
from ..figure import MOST_DIGITS, Figure, Panel, Table, Trace
from ..loaded_run import Run
from ..numbers import count, interval, number
from ..style import TEXT_SIZE, plain, sequential
from .axes import Axis

INTERVAL = "95\u202f% interval"
SEED = "seed"  # glyph and words of the small marks at the values of two or three
SEEDS = "a training seed"
Draw = Callable[[Run], Figure | None]


@dataclass(frozen=True)
class Form:
    """Decorator that turns a function of a run into a figure; the function's docstring is the caption.

    caption, columns: title and columns of the table. title: the rule of the finding, over what is drawn. records,
    width: as in `Figure`. metric: the metric whose name heads a column and whose sample is told, by default the first
    of `records`. gaps: what fills the `{gaps}` of the docstring. source: the decorated function.
    """

    id: str
    caption: str
    title: Callable[[Run, Any], str]
    _: KW_ONLY
    columns: Sequence[str] = ()
    records: tuple[str, ...] = ()
    metric: str | Metric = ""
    width: int = 330
    gaps: Callable[[Run, Any], Mapping[str, str]] | None = None
    source: Callable[[Run], Iterable[Any]] = lambda run: ()

    def __call__(self, source: Callable[[Run], Iterable[Any]]) -> Draw:
        return replace(self, source=source).draw

    def draw(self, run: Run) -> Figure | None:
        """Draw the figure; None where nothing was measured."""
        raise NotImplementedError

    @property
    def measured(self) -> Metric:
        """The metric that is drawn."""
        if isinstance(self.metric, Metric):
            return self.metric
        first = next((names for names in self.records if not names.startswith("arrays/")), "")
        return metric(self.metric or first.partition(":")[0].partition(",")[0])

    def heading(self, axes: Collection[str]) -> str:
        """Return the head of the column of values: the metric's name, "Value" where panels have axes of their own."""
        name = self.measured.name if len(axes) == 1 else "value"
        return f"{name[0].upper()}{name[1:]}"

    def finding(self, run: Run, drawn: Any) -> str:
        """Return the title; across runs that differ nothing is ranked."""
        return f"{self.caption}, of runs that differ" if run.apart else self.title(run, drawn)

    def words(self, run: Run, drawn: Any) -> str:
        """Return the caption: the docstring with its gaps filled."""
        text = cleandoc(self.source.__doc__ or "").replace("\n", " ")
        return text.format_map(self.gaps(run, drawn)) if self.gaps else text

    def sampled(self, run: Run, drawn: Any, points: Iterable[Point], paper: bool = False) -> str:
        """Return the caption with the sample size, behind its first sentence.

        Words on hollow marks stay only where there are marks of a paper.
        """
        known = self.measured
        first, *rest = self.words(run, drawn).removesuffix(".").split(". ")
        first = f"{first} ({sample(points, known.counts, known.over, known.seed)})"
        return ". ".join([first, *(s for s in rest if paper or not s.startswith("Hollow"))]) + "."

    def figure(
        self, title: str, words: str, panels: list[Panel], table: Table, key: Sequence[tuple[str, str]] = ()
    ) -> Figure:
        """Make the figure as declared; several panels are equally wide."""
        return Figure(self.id, title, words, panels, table, [*key], self.width, len(panels) > 1, records=self.records)


def hover(name: str, where: str, point: Point, axis: Axis) -> str:
    """Return literal hover text: name, place, value with its interval, and the values of two or three seeds."""

    def write(v: float) -> str:
        return axis.write(v) if axis.kind == "share" else number(v, point.low, point.high, MOST_DIGITS)

    written = write(point.value)
    bounds = ""
    if point.low is not None and point.high is not None:
        unit = 100 if axis.kind == "share" else 1
        most = MOST_DIGITS - 2 if axis.kind == "share" else MOST_DIGITS
        bounds = f" {interval(unit * point.low, unit * point.high, most)}"
    seeds = f"<br>seeds:  {', '.join(map(write, point.few))}" if point.few else ""
    return f"<b>{plain(name)}</b><br>{plain(where)}:  {written}{bounds}{seeds}"


def errors(
    points: Sequence[Point], colour: str, axis: str = "y", width: int = 3, floor: float = -math.inf
) -> dict[str, Any]:
    """Return bars of the intervals, `error_x` or `error_y` of a trace; `floor`: values below it are drawn there."""
    above = []
    below = []
    for p in points:
        low, high = p.interval or (p.value, p.value)
        at = max(p.value, floor)
        above.append(max(0.0, high - at))
        below.append(at - max(low, floor))
    look = {"type": "data", "symmetric": False, "color": f"@{colour}", "thickness": 1.4, "width": width}
    return {f"error_{axis}": look | {"array": above, "arrayminus": below}}


def singles(
    points: Sequence[Point], across: Sequence[Any], colour: str, at: Callable[[float], float], axis: str = "y"
) -> list[Trace]:
    """Return small marks at the values of two or three training seeds; [] for none.

    across: places of the points on the other axis. at: place of a value on `axis`.
    """
    places = [(other, at(v)) for other, p in zip(across, points, strict=True) for v in p.few]
    if not places:
        return []
    look = {"size": 4, "symbol": "circle", "color": f"@{colour}", "opacity": 0.55}
    others = [other for other, _ in places]
    values = [value for _, value in places]
    xs, ys = (values, others) if axis == "x" else (others, values)
    return [symbols(xs, ys, look, hoverinfo="skip")]


def line(
    xs: Iterable[Any], ys: Iterable[Any], colour: str, dash: str = "solid", width: float = 2.2, **more: Any
) -> Trace:
    """Return a line without marks."""
    look = {"color": f"@{colour}", "dash": dash, "width": width}
    return {"type": "scatter", "mode": "lines", "x": list(xs), "y": list(ys), "line": look, "hoverinfo": "skip", **more}


def symbols(xs: Iterable[Any], ys: Iterable[Any], marker: dict[str, Any], **more: Any) -> Trace:
    """Return points with marks of one declared look."""
    return {"type": "scatter", "mode": "markers", "x": list(xs), "y": list(ys), "marker": marker, **more}


def shaded(values: Sequence[float], low: float, high: float, first: int = 3, **more: Any) -> dict[str, Any]:
    """Return marks coloured from `low` to `high`, stronger where values are larger; `first` as in `sequential`."""
    scale = {"color": list(values), "cmin": low, "cmax": max(high, low + 1), "colorscale": sequential(first)}
    return {**scale, "opacity": 1, "line": {"width": 0.5, "color": "@surface"}, **more}


def dots(
    xs: Sequence[Any],
    ys: Sequence[Any],
    colours: Sequence[str],
    hover_texts: Sequence[str],
    hollow: Sequence[bool] = (),
    **marker: Any,
) -> Trace:
    """Return points; `colours` are palette names, `hover_texts` our words around names from outside, already plain."""
    empty = list(hollow) or [False] * len(xs)
    look = {
        "size": [10 if e else 8 for e in empty],
        "opacity": 1,  # plotly makes markers of several sizes see-through
        "color": ["@surface" if e else f"@{c}" for e, c in zip(empty, colours, strict=True)],
        "line": {
            "color": [f"@{c}" if e else "@surface" for e, c in zip(empty, colours, strict=True)],
            "width": [2 if e else 1 for e in empty],
        },
    }
    return symbols(xs, ys, look | marker, hovertext=list(hover_texts), hoverinfo="text")


def band(xs: Sequence[float], points: Sequence[Point], colour: str) -> Trace:
    """Return the area between the ends of the intervals."""
    bounds = [(x, p.low, p.high) for x, p in zip(xs, points, strict=True) if p.low is not None]
    x = [x for x, _, _ in bounds]
    y = [high for _, _, high in bounds] + [low for _, low, _ in bounds][::-1]
    return line(x + x[::-1], y, colour, width=0, fill="toself", fillcolor=f"@band-{colour}")


def reference(xs: Sequence[float], ys: Sequence[float], words: str, dash: str = "6px,5px") -> Trace:
    """Return a thin grey line: chance, a plateau."""
    return line(xs, ys, "muted", dash, 1.2) | {"hovertext": [plain(words)] * len(xs), "hoverinfo": "text"}


def segments(
    pairs: Iterable[tuple[float, float, float, float]], colour: str = "muted", width: float = 1.0, dash: str = "4px,4px"
) -> Trace:
    """Return straight lines (x0, y0, x1, y1), drawn as one trace."""
    x: list[float | None] = []
    y: list[float | None] = []
    for x0, y0, x1, y1 in pairs:
        x += [x0, x1, None]
        y += [y0, y1, None]
    return line(x, y, colour, dash, width)


def note(x: float, y: float, words: str, colour: str = "@muted", **more: Any) -> dict[str, Any]:
    """Return a name set in a plot, without an arrow."""
    font = {"size": TEXT_SIZE, "color": colour}
    return {"x": x, "y": y, "text": plain(words), "showarrow": False, "font": font, **more}


def beside(at: Sequence[float], words: str, away: Sequence[float]) -> dict[str, Any]:
    """Return a name beside its point, on the side that looks away from the middle of a cloud (a direction of any
    length)."""
    size = math.hypot(*away) or 1.0
    arrow = {"showarrow": True, "arrowhead": 0, "arrowwidth": 0.5, "arrowcolor": "rgba(0,0,0,0)"}
    place = {"ax": 19 * away[0] / size, "ay": -17 * away[1] / size, "bgcolor": "@halo", "borderpad": 0}
    return note(at[0], at[1], words, "@text", **place) | arrow


def sample(
    points: Iterable[Point | None], counted: str = "documents", what: str = "documents", seed: str = "training seed"
) -> str:
    """Say how much data is behind points: `n = 100 documents; one training seed, 95 % interval over documents`.

    counted: what n counts. what: those that the records' intervals are over; seed: what a seed is of.
    """
    known = [p for p in points if p is not None]
    seeds = max((p.seeds for p in known), default=0)
    if any(p.over.startswith("seeds and") for p in known):
        words = f"mean over {count(seeds, seed)}, {INTERVAL} over seeds and {what}"
    elif any(p.over == "seeds" for p in known):
        words = f"mean over {count(seeds, seed)}, {INTERVAL} between seeds"
    else:
        rest = f"{INTERVAL} over {what}" if any(p.low is not None for p in known) else "no interval"
        words = f"one {seed}, {rest}" if seeds else rest
    sizes = sorted({p.n for p in known if p.n})
    most = f" to {number(sizes[-1])}" if len(sizes) > 1 else ""
    return f"n = {number(sizes[0])}{most} {counted}; {words}" if sizes else words


def drawn(seeds: int, shown: Iterable[int | None]) -> str:
    """Say which of the most training seeds of a model a figure draws; "" where there is one."""
    known = {seed for seed in shown if seed is not None}
    if not known or seeds < 2:
        return ""
    which = f"seed {min(known)} of" if len(known) == 1 else "the lowest seed of each model, of up to"
    return f" Drawn: {which} {count(seeds, 'training seed')}."
