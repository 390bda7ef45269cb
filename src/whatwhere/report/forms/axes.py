"""Axes of a form: how values are placed, which ticks are named, how a value is written."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.table import Point
from ..numbers import compact, fine_percent, fixed, number, percent
from ..style import axis, log_axis

SMALLEST = 1e-4  # what a logarithmic axis still shows


@dataclass(frozen=True)
class Axis:
    """A declared axis.

    kind: "linear"; "share", in per cent; "r2", from 0 to 1; "layer"; "log"; "steps", logarithmic from 0 on; "lags",
    logarithmic to both sides of 0. include: values that it has to reach. floor: smaller values lie outside, or of "log"
    are drawn there. word: what a place is called in a hover and a table, by default the title. top: no value beyond it
    is reached.
    """

    title: str = ""
    kind: str = "linear"
    include: tuple[float, ...] = ()
    floor: float = -math.inf
    top: float = math.inf
    word: str = ""

    def write(self, value: float) -> str:
        """Write a value as this axis shows it."""
        return fine_percent(value) if self.kind == "share" else number(value, most=3)

    @property
    def place(self) -> str:
        """Noun for a place on the axis."""
        return self.word or self.title

    def scale(self, values: Iterable[float]) -> "Scale":
        """Fit the axis to some values."""
        finite = [v for v in (*values, *self.include) if math.isfinite(v)] or [0.0, 1.0]
        if self.kind == "log":
            return self._log(finite)
        if self.kind == "steps":
            return self._steps(sorted(set(finite)))
        if self.kind == "lags":
            return self._lags(max(map(abs, finite)))
        low = max(min(finite), self.floor)
        high = min(max(finite), self.top)
        if self.kind == "layer":
            ticks: list[float] = list(range(round(low), round(high) + 1, 1 if high <= 8 else 2))
            bounds = low - 0.03 * high - 0.02, high * 1.03 + 0.02
            return Scale(self, float, bounds, {**_ticks(ticks, str), "showgrid": False})
        room = 0.05 * ((high - low) or 1.0)
        bounds = (low - room, high + room)
        if self.kind == "r2" and low >= self.floor:
            return Scale(
                self, float, bounds, _ticks([t for t in (0, 0.25, 0.5, 0.75, 1) if t <= bounds[1]], "{:g}".format)
            )
        if self.kind == "share":
            digits = 0 if high >= 0.1 else 1
            return Scale(self, float, bounds, _ticks(round_numbers(round(high, 12), 4), lambda t: percent(t, digits)))
        return Scale(self, float, bounds, {"nticks": 5})

    def _log(self, finite: list[float]) -> "Scale":
        floor = self.floor if self.floor > 0 else SMALLEST
        positive = [max(v, floor) for v in finite]
        low = min(positive)
        high = max(positive)
        room = 10 ** (0.04 * math.log10(high / low) + 0.02)
        axis = log_axis(self.title, low / room, high * room)
        keep = {k: axis[k] for k in ("type", "tickvals", "ticktext")}
        return Scale(self, lambda v: max(v, floor), (axis["range"][0], axis["range"][1]), keep, math.log10)

    def _steps(self, steps: list[float]) -> "Scale":
        first = next((s for s in steps if s > 0), 1.0)

        def place(step: float) -> float:
            return round(math.log1p(step / first), 6)

        last = place(steps[-1]) or 1.0
        labelled = [steps[-1]]
        for s in reversed(steps[:-1]):  # from the last down, those that stand far enough from the one before
            if place(labelled[-1]) - place(s) > 0.16 * last:
                labelled.append(s)
        return Scale(
            self, place, (-0.03 * last, 1.03 * last), {**_ticks(labelled[::-1], compact, place), "showgrid": False}
        )

    def _lags(self, most: float) -> "Scale":
        def place(lag: float) -> float:
            return round(math.copysign(math.log2(1 + abs(lag)), lag), 4)

        far = [lag for lag in (0, 1, 4, 16, 64, 256, 1024) if lag <= most]
        ticks = _ticks([-lag for lag in reversed(far[1:])] + far, lambda t: fixed(t, 0) if abs(t) != 1 else "", place)
        return Scale(self, place, (-place(most), place(most)), ticks)


def _ticks(
    values: Sequence[float], write: Callable[[Any], str], place: Callable[[float], float] | None = None
) -> dict[str, Any]:
    return {"tickvals": [place(v) if place else v for v in values], "ticktext": [write(v) for v in values]}


@dataclass(frozen=True)
class Scale:
    """An axis fitted to its values. at: a value's place in the data; bounds: ends, as plotly wants them; end: a drawn
    value's place in them."""

    axis: Axis
    at: Callable[[float], float]
    bounds: tuple[float, float]
    more: dict[str, Any]
    end: Callable[[float], float] = float

    @property
    def ends(self) -> list[float]:
        """The ends in the data."""
        return [v if self.end is float else 10**v for v in self.bounds]

    def plotly(self) -> dict[str, Any]:
        """Return the axis in plotly's form and the house style."""
        return axis(self.axis.title, range=list(self.bounds), **self.more)


LAYER = Axis("layer", "layer")
EMBEDDED = Axis("layer (0: embedding)", "layer", word="layer")
R2 = Axis("R²", "r2", (0, 1), -0.3)


def ends_of(points: Iterable[Point]) -> list[float]:
    """Return every value with the ends of its interval and the values of few seeds."""
    return [end for p in points for end in (p.value, p.low, p.high, *p.few) if end is not None]


def fitted(axes: Axis | Mapping[str, Axis], points: Iterable[tuple[str, Point]], *more: float) -> dict[str, Scale]:
    """Fit each of several axes (a single one as "") to the points that name it."""
    every = list(points)
    axes_by_name = {"": axes} if isinstance(axes, Axis) else axes
    return {k: axis.scale([*ends_of(p for name, p in every if name == k), *more]) for k, axis in axes_by_name.items()}


def round_numbers(top: float, most: int = 5) -> list[float]:
    """Return at most `most` + 1 round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0]
    unit = 10.0 ** math.floor(math.log10(top / most))
    step = next(unit * k for k in (1, 2, 2.5, 5, 10, 20) if top / (unit * k) <= most)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]
