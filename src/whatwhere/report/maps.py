"""Heat maps of the report: one trace, thinned so that a page stays small."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .figures import Trace
from .style import TEXT_SIZE, axis, diverging, layout, sequential

MOST_CELLS = 256  # rows or columns of a map that are drawn
BAR = 74  # pixels right of a map for its colour bar


def thinned(size: int, most: int = MOST_CELLS) -> list[int]:
    """At most `most` of the indices 0 ... size - 1 at equal steps, from 0; all of them where they are few enough."""
    return list(range(0, size, -(-size // most) or 1))


def rounded(values: np.ndarray, extent: float | None = None) -> list[Any]:
    """Numbers for a figure: four digits of the largest (or of `extent`), None for what is not finite."""
    values = np.asarray(values, dtype=float)
    finite = values[np.isfinite(values)]
    top = extent if extent is not None else float(np.abs(finite).max(initial=0.0))
    digits = max(0, 3 - math.floor(math.log10(top))) if top > 0 else 0
    if values.ndim == 2:
        return [[round(v, digits) if math.isfinite(v) else None for v in row] for row in values.tolist()]
    return [round(v, digits) if math.isfinite(v) else None for v in values.tolist()]


def heatmap(
    z: np.ndarray,
    x: Sequence[float | str],
    y: Sequence[float | str],
    hover: str,
    limits: tuple[float, float],
    signed: bool = False,
) -> Trace:
    """A heat map with its colour bar.

    z: (rows, columns); y names the rows, x the columns. hover: our own template with %{x}, %{y}, %{z:.3f}, never text from outside.
    limits: ends of the colour scale, shared by the panels of a figure. signed: two colours that meet at zero.
    """
    return {
        "type": "heatmap",
        "z": rounded(z, max(map(abs, limits))),
        "x": list(x),
        "y": list(y),
        "zmin": limits[0],
        "zmax": limits[1],
        **({"zmid": 0} if signed else {}),
        "colorscale": diverging() if signed else sequential(),
        "hovertemplate": f"{hover}<extra></extra>",
        "hoverongaps": False,
        "colorbar": {
            "thickness": 10,
            "outlinewidth": 0,
            "x": 1.02,
            "xpad": 6,
            "len": 1,
            "lenmode": "fraction",
            "ypad": 0,
            "nticks": 5,
            "tickfont": {"size": TEXT_SIZE, "color": "@muted"},
        },
    }


def map_layout(height: int, x_title: str, y_title: str, square: bool = False, left: int = 62) -> dict[str, Any]:
    """Layout of one heat map: rows from the top down; square: equal scales, for a matrix of positions by positions."""
    x = axis(x_title, showgrid=False, nticks=6, constrain="domain", constraintoward="left")
    y = axis(y_title, showgrid=False, nticks=6, constrain="domain", autorange="reversed", **({"scaleanchor": "x"} if square else {}))
    more = {"meta": {"square": True}} if square else {}
    return layout(height, x, y, {"l": left, "r": BAR, "t": 8, "b": 52}, **more)
