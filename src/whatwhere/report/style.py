"""Colours, dashes and markers of every figure, and the placing of labels at line ends.

Figures name colours as "@absolute"; the page looks the name up in `PALETTES` when it draws, so one figure serves light
and dark.
"""

import html
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

# The page itself; `link` and all text reach 4.5:1 on `surface` and `raised` (AA), which the tests hold them to.
_GROUND = {
    "light": {
        **{"surface": "#fdfdfb", "raised": "#f4f4f0", "text": "#1b1e22", "muted": "#575c63", "rule": "#dcdcd6"},
        **{"grid": "#e9e9e4", "link": "#0b5a8c", "ghost": "#d3d3cd", "halo": "rgba(253,253,251,0.72)"},
    },
    "dark": {
        **{"surface": "#15171a", "raised": "#1e2125", "text": "#e9e9e6", "muted": "#a9adb3", "rule": "#373b41"},
        **{"grid": "#282b30", "link": "#7cc0ec", "ghost": "#3f4349", "halo": "rgba(21,23,26,0.72)"},
    },
}
# One colour a stream everywhere: of its lines; the same hue dark (or light) enough to be read as text; how much of the
# first its band has.
_STREAMS = {
    "light": {
        "semantic": ("#0072B2", "#0068a3", 0.16),
        "absolute": ("#D55E00", "#ad4a00", 0.16),
        "relative": ("#009E73", "#007556", 0.16),
        "combined": ("#555555", "#4a4a4a", 0.16),
        "untied": ("#9A3D84", "#8a3476", 0.16),
    },
    "dark": {
        "semantic": ("#2b8ecb", "#62b0e2", 0.24),
        "absolute": ("#e2701a", "#f0914b", 0.24),
        "relative": ("#12ab80", "#37c79d", 0.24),
        "combined": ("#a5a5a5", "#b9b9b9", 0.22),
        "untied": ("#c877b2", "#dc98ca", 0.24),
    },
}
# One colour a model, in turn: none is a stream's, all are told apart by the colour-blind too and can be read as text;
# grey is left to models that a gate holds back.
MODEL_COLOURS = {
    "light": ["#231d85", "#39767f", "#902a27", "#5c3f71", "#3e4eb3", "#b74b2a", "#4b1443", "#680602"],
    "dark": ["#77dcf7", "#1b97a2", "#d1b809", "#c4f6d4", "#f8ec64", "#3eb7ff", "#91cc9e", "#43a03e"],
}


def _palette(theme: str) -> dict[str, str]:
    """Name -> colour: `NAME`, `ink-NAME` and `band-NAME` of every stream and model."""
    models = {f"model-{i}": (colour, colour, 0.16) for i, colour in enumerate(MODEL_COLOURS[theme])}
    colours = dict(_GROUND[theme])
    for name, (line, ink, share) in (_STREAMS[theme] | models).items():
        red, green, blue = bytes.fromhex(line[1:])
        colours |= {name: line, f"ink-{name}": ink, f"band-{name}": f"rgba({red},{green},{blue},{share})"}
    return colours


PALETTES = {theme: _palette(theme) for theme in ("light", "dark")}

# Colours of maps, nine each in steps that the eye takes for equal (equal ways in OKLab), from the ground of the page to
# its ink; the diverging ones meet at the ground.
_MAP_COLOURS = {
    "light": {
        "map": ["#f9f7ee", "#e0dcb4", "#c1c47b", "#87b17a", "#519a7f", "#277e7e", "#185f75", "#114163", "#13234d"],
        "signed": ["#0f68a2", "#4b8dc2", "#7cb2e0", "#b9d5ed", "#f5f7f9", "#f0cbb6", "#e49f78", "#c67748", "#a74f0c"],
    },
    "dark": {
        "map": ["#171c25", "#233349", "#294c6e", "#2b6b83", "#388a91", "#52a999", "#7dc49a", "#b6da97", "#f1ec9d"],
        "signed": ["#64b7ef", "#478dbc", "#2c658b", "#274152", "#1c1e20", "#513623", "#884f24", "#b9713d", "#ed9658"],
    },
}
MAPS = {
    theme: {f"{name}-{i}": colour for name, colours in kinds.items() for i, colour in enumerate(colours)}
    for theme, kinds in _MAP_COLOURS.items()
}

_DSTG = {  # dash and marker of the models of DSTG
    **{"dstg": ("solid", "circle"), "ap": ("dash", "square"), "rp": ("dot", "diamond")},
    "rope": ("dashdot", "triangle-up"),
}
_SPARE = [
    *[("longdash", "triangle-down"), ("longdashdot", "pentagon"), ("8px,3px,2px,3px,2px,3px", "hexagon")],
    *[("12px,4px", "star"), ("3px,6px", "cross"), ("6px,2px", "x")],
]

FONT = (
    "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, "
    "system-ui, sans-serif"
)
TEXT_SIZE = 14  # pixels; the smallest text of the page
LABEL_LIMIT = 22  # characters of a name at a line's end; tables and hovers carry it whole
LABEL_GAP = 17  # pixels between the middles of two labels at line ends
CHARACTER = 7.7  # pixels, a generous mean width of a character at 14 px


def model_styles(models: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return model -> (dash, marker): the four of the paper keep theirs, others take the free ones in turn.

    Give the models that one plot holds: beyond ten, marks meet other dashes.
    """
    styles = {m: _DSTG[m] for m in models if m in _DSTG}
    # Spare ones first: what is drawn beside one of the four looks like another of them only where no choice is left.
    left = [*_SPARE, *(style for style in _DSTG.values() if style not in styles.values())]
    for i, model in enumerate(m for m in models if m not in _DSTG):
        styles[model] = (left[i % len(left)][0], left[(i + i // len(left)) % len(left)][1])
    return styles


def plain(text: str, limit: int = 0) -> str:
    """Return text as plotly shows it literally: no tags, no entities; cut to `limit` characters with an ellipsis."""
    text = " ".join(text.split())
    if limit and len(text) > limit:
        text = text[: limit - 1] + "…"
    # `$...$` would be read as TeX where the reader's browser has MathJax, `%{...}` as a hover field.
    return html.escape(text, quote=False).replace("$", "&#36;").replace("%{", "%&#123;")


def sequential(first: int = 0) -> list[list[Any]]:
    """Return a plotly colour scale from low to high; `first` leaves out colours near the ground, for lines and
    points."""
    return [[(i - first) / (8 - first), f"@map-{i}"] for i in range(first, 9)]


def diverging() -> list[list[Any]]:
    """Return a plotly colour scale of signed values; give the map `zmid=0`."""
    return [[i / 8, f"@signed-{i}"] for i in range(9)]


def spread(places: Sequence[float], gap: float, low: float = float("-inf"), high: float = float("inf")) -> list[float]:
    """Move places as little as possible (least squares) so that they keep their order and stand `gap` apart.

    They stay inside [low, high] if they fit. Isotonic regression: after taking `gap` times the rank off, the wanted
    places need only be non-decreasing.
    """
    order = np.argsort(np.round(places, 6), kind="stable")  # not by a processor's rounding
    steps = gap * np.arange(len(places))
    pooled = isotonic_regression(np.array(places, float)[order] - steps).x if len(places) else steps
    top = high - (len(places) - 1) * gap
    placed = np.empty(len(places))
    placed[order] = (np.clip(pooled, low, top) if top >= low else pooled) + steps
    return [float(p) for p in placed]


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis of the house style: no zoom (a page must scroll), faint grid, room made for its labels."""
    font = {"size": TEXT_SIZE, "color": "@muted"}
    look = {"tickfont": font, "gridcolor": "@grid", "linecolor": "@rule"}
    layout = {"zeroline": False, "fixedrange": True, "automargin": False}
    return {"title": {"text": title, "font": font, "standoff": 10}, **look, **layout, **more}


def log_axis(title: str, low: float, high: float, most: int = 5, **more: Any) -> dict[str, Any]:
    """Return a logarithmic axis from `low` to `high` (above 0) with about `most` decades written out; between few, 2
    and 5 times them, too."""
    ends = [math.log10(low), math.log10(high)]
    decades = range(math.ceil(ends[0]), math.floor(ends[1]) + 1)
    step = next((s for s in (1, 2, 3, 4, 5) if len(decades) <= most * s), 10)
    ticks = [10.0**k for k in decades if k % step == 0]
    if len(ticks) < 3 and step == 1:
        near = range(decades.start - 1, decades.stop + 1)
        ticks = [tick for k in near for f in (1, 2, 5) if low <= (tick := f * 10.0**k) <= high] or [low, high]
    words = [f"{tick:,.0f}" if tick >= 1 else f"{tick:.3g}" for tick in ticks]
    return axis(title, type="log", range=ends, tickvals=ticks, ticktext=words, **more)


def layout(height: int, x: dict[str, Any], y: dict[str, Any], margin: dict[str, int], **more: Any) -> dict[str, Any]:
    """Return a panel's layout: transparent ground, no legend, the given axes and margins in pixels."""
    font = {"family": FONT, "size": TEXT_SIZE, "color": "@text"}
    size = {"height": height, "margin": {"pad": 0, **margin}, "xaxis": x, "yaxis": y}
    ground = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": font}
    hover = {"hovermode": "closest", "hoverlabel": {"font": font, "bgcolor": "@raised", "bordercolor": "@rule"}}
    return {**size, **ground, **hover, "showlegend": False, "dragmode": False, **more}


def line_end_labels(
    ends: Sequence[tuple[float, float, str, str, str]],
    y_range: tuple[float, float],
    plot_height: float,
    right: float = -math.inf,
) -> list[dict[str, Any]]:
    """Return annotations that name lines at their right ends without touching each other.

    ends: (x, y, text, colour name, model) of each line's last point; text is literal. y_range: the axis; plot_height:
    its pixels. A label that had to move keeps a thin leader to its point. right: end of the other axis, where names of
    lines that end before stand too.
    """
    bottom, top = y_range
    heights = [min(max(y, bottom), top) for _, y, *_ in ends]
    pixels = [(top - height) * plot_height / (top - bottom) for height in heights]  # pixels below the top of the plot
    placed = spread(pixels, LABEL_GAP, -6, plot_height + 6)
    look = {"xanchor": "left", "yanchor": "middle", "align": "left", "borderpad": 3}
    leader = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "standoff": 7}
    labels: list[dict[str, Any]] = []
    for (x, _, text, colour, model), y, want, at in zip(ends, heights, pixels, placed, strict=True):
        side = {"axref": "x", "ax": right} if x < right else {"ax": 24}
        words = {"x": x, "y": y, "text": plain(text, LABEL_LIMIT), "name": model, "ay": at - want}
        colours = {"font": {"size": TEXT_SIZE, "color": f"@ink-{colour}"}, "arrowcolor": f"@{colour}"}
        labels.append({**words, **side, **colours, **look, **leader})
    return labels


def label_margin(texts: Sequence[str], extra: int = 34) -> int:
    """Return the pixels that the longest label at a line's end needs to the right of the plot."""
    return round(min(LABEL_LIMIT, max((len(t) for t in texts), default=0)) * CHARACTER) + extra
