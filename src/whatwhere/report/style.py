"""Colours, dashes and markers of every figure, and the placing of labels at line ends.

Figures name colours as "@absolute"; the page looks the name up in `PALETTES` when it draws, so one figure serves light
and dark.
"""

import math
from collections.abc import Sequence
from typing import Any

# One colour a stream everywhere. `ink-*` is the same hue, dark (or light) enough to be read as text (AA, 4.5:1);
# the tests hold both to their contrast.
PALETTES: dict[str, dict[str, str]] = {
    "light": {
        "surface": "#fdfdfb",
        "raised": "#f4f4f0",
        "text": "#1b1e22",
        "muted": "#575c63",
        "rule": "#dcdcd6",
        "grid": "#e9e9e4",
        "link": "#0b5a8c",
        "semantic": "#0072B2",
        "absolute": "#D55E00",
        "relative": "#009E73",
        "combined": "#555555",
        "untied": "#9A3D84",
        "ghost": "#d3d3cd",
        "halo": "rgba(253,253,251,0.72)",
        "ink-semantic": "#0068a3",
        "ink-absolute": "#ad4a00",
        "ink-relative": "#007556",
        "ink-combined": "#4a4a4a",
        "ink-untied": "#8a3476",
        "band-semantic": "rgba(0,114,178,0.16)",
        "band-absolute": "rgba(213,94,0,0.16)",
        "band-relative": "rgba(0,158,115,0.16)",
        "band-combined": "rgba(85,85,85,0.16)",
        "band-untied": "rgba(154,61,132,0.16)",
    },
    "dark": {
        "surface": "#15171a",
        "raised": "#1e2125",
        "text": "#e9e9e6",
        "muted": "#a9adb3",
        "rule": "#373b41",
        "grid": "#282b30",
        "link": "#7cc0ec",
        "semantic": "#2b8ecb",
        "absolute": "#e2701a",
        "relative": "#12ab80",
        "combined": "#a5a5a5",
        "untied": "#c877b2",
        "ghost": "#3f4349",
        "halo": "rgba(21,23,26,0.72)",
        "ink-semantic": "#62b0e2",
        "ink-absolute": "#f0914b",
        "ink-relative": "#37c79d",
        "ink-combined": "#b9b9b9",
        "ink-untied": "#dc98ca",
        "band-semantic": "rgba(43,142,203,0.24)",
        "band-absolute": "rgba(226,112,26,0.24)",
        "band-relative": "rgba(18,171,128,0.24)",
        "band-combined": "rgba(165,165,165,0.22)",
        "band-untied": "rgba(200,119,178,0.24)",
    },
}

# One colour a model, in turn: none is a stream's, all are told apart by the colour-blind too and dark (or light) enough
# to be read as text; grey is left to models that a gate holds back.
MODEL_COLOURS = {
    "light": ["#231d85", "#39767f", "#902a27", "#5c3f71", "#3e4eb3", "#b74b2a", "#4b1443", "#680602"],
    "dark": ["#77dcf7", "#1b97a2", "#d1b809", "#c4f6d4", "#f8ec64", "#3eb7ff", "#91cc9e", "#43a03e"],
}
for _theme, _colours in MODEL_COLOURS.items():
    for _i, _colour in enumerate(_colours):
        _rgb = ",".join(str(int(_colour[at : at + 2], 16)) for at in (1, 3, 5))
        PALETTES[_theme] |= {
            f"model-{_i}": _colour,
            f"ink-model-{_i}": _colour,
            f"band-model-{_i}": f"rgba({_rgb},0.16)",
        }

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

_KNOWN = {
    "dstg": ("solid", "circle"),
    "ap": ("dash", "square"),
    "rp": ("dot", "diamond"),
    "rope": ("dashdot", "triangle-up"),
}
_SPARE = [
    ("longdash", "triangle-down"),
    ("longdashdot", "pentagon"),
    ("8px,3px,2px,3px,2px,3px", "hexagon"),
    ("12px,4px", "star"),
    ("3px,6px", "cross"),
    ("6px,2px", "x"),
]

FONT = (
    "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', Arial, "
    "system-ui, sans-serif"
)
TEXT_SIZE = 14  # pixels; the smallest text of the page
LABEL_LIMIT = 18  # characters of a name at a line's end; tables and hovers carry it whole
LABEL_GAP = 17  # pixels between the middles of two labels at line ends
CHARACTER = 7.7  # pixels, a generous mean width of a character at 14 px


def model_styles(models: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Model -> (dash, marker): the four of the paper keep theirs, others take those left over in turn.

    Give the models that one plot holds: beyond ten, marks meet other dashes.
    """
    left = [style for style in (*_KNOWN.values(), *_SPARE) if style not in {_KNOWN.get(m) for m in models}]
    styles = {m: _KNOWN[m] for m in models if m in _KNOWN}
    others = [m for m in models if m not in _KNOWN]
    # Spare ones first, so that what is drawn beside one of the four never looks like another of them while there is a
    # choice.
    left.sort(key=lambda style: style in _KNOWN.values())
    for i, model in enumerate(others):
        styles[model] = (left[i % len(left)][0], left[(i + i // len(left)) % len(left)][1])
    return styles


def plain(text: str, limit: int = 0) -> str:
    """Text as plotly shows it literally: no tags, no entities; cut to `limit` characters with an ellipsis."""
    text = " ".join(text.split())
    if limit and len(text) > limit:
        text = text[: limit - 1] + "…"
    # `$...$` would be read as TeX where the reader's browser has MathJax, `%{...}` as a hover field.
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("$", "&#36;")
        .replace("%{", "%&#123;")
    )


def sequential(first: int = 0) -> list[list[Any]]:
    """Plotly colour scale from low to high; `first` leaves out colours near the ground, so that lines and points stay
    visible."""
    names = [f"@map-{i}" for i in range(first, 9)]
    return [[i / (len(names) - 1), name] for i, name in enumerate(names)]


def diverging() -> list[list[Any]]:
    """Plotly colour scale of signed values; give the map `zmid=0`."""
    return [[i / 8, f"@signed-{i}"] for i in range(9)]


def spread(places: Sequence[float], gap: float, low: float = float("-inf"), high: float = float("inf")) -> list[float]:
    """The nearest places (least squares) that keep their order and stand at least `gap` apart, inside [low, high] if
    they fit.

    Isotonic regression by pooling: after taking `gap` times the rank off, the wanted places need only be
    non-decreasing.
    """
    order = sorted(range(len(places)), key=lambda i: round(places[i], 6))  # not by a processor's rounding
    blocks: list[list[float]] = []  # [sum, count] of pooled neighbours
    for rank, i in enumerate(order):
        blocks.append([places[i] - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, size = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += size
    pooled = [total / size for total, size in blocks for _ in range(int(size))]
    top = high - (len(places) - 1) * gap
    pooled = [max(low, min(p, top)) if top >= low else p for p in pooled]
    placed = [0.0] * len(places)
    for rank, i in enumerate(order):
        placed[i] = pooled[rank] + rank * gap
    return placed


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis of the house style: no zoom (a page must scroll), faint grid, room made for its labels."""
    return {
        "title": {"text": title, "font": {"size": TEXT_SIZE, "color": "@muted"}, "standoff": 10},
        "tickfont": {"size": TEXT_SIZE, "color": "@muted"},
        "gridcolor": "@grid",
        "linecolor": "@rule",
        "zeroline": False,
        "fixedrange": True,
        "automargin": False,
        **more,
    }


def log_axis(title: str, low: float, high: float, most: int = 5, **more: Any) -> dict[str, Any]:
    """A logarithmic axis from `low` to `high` (above 0) with about `most` decades at most written out; of few, 2 and 5
    times them too."""
    ends = [math.log10(low), math.log10(high)]
    decades = range(math.ceil(ends[0]), math.floor(ends[1]) + 1)
    step = next((s for s in (1, 2, 3, 4, 5) if len(decades) <= most * s), 10)
    ticks = [10.0**k for k in decades if k % step == 0]
    if len(ticks) < 3 and step == 1:
        ticks = [
            t
            for k in range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
            for f in (1, 2, 5)
            if low <= (t := f * 10.0**k) <= high
        ]
    ticks = ticks or [low, high]
    return axis(
        title,
        type="log",
        range=ends,
        tickvals=ticks,
        ticktext=[f"{t:,.0f}" if t >= 1 else f"{t:.3g}" for t in ticks],
        **more,
    )


def layout(height: int, x: dict[str, Any], y: dict[str, Any], margin: dict[str, int], **more: Any) -> dict[str, Any]:
    """A panel's layout: transparent ground, no legend, the given axes and margins in pixels."""
    return {
        "height": height,
        "margin": {"pad": 0, **margin},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": TEXT_SIZE, "color": "@text"},
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "hoverlabel": {
            "font": {"family": FONT, "size": TEXT_SIZE, "color": "@text"},
            "bgcolor": "@raised",
            "bordercolor": "@rule",
        },
        "xaxis": x,
        "yaxis": y,
        **more,
    }


def line_end_labels(
    ends: Sequence[tuple[float, float, str, str, str]],
    y_range: tuple[float, float],
    plot_height: float,
    right: float = -math.inf,
) -> list[dict[str, Any]]:
    """Annotations that name lines at their right ends without touching each other.

    ends: (x, y, text, colour name, model) of each line's last point; text is literal. y_range: the axis; plot_height:
    its pixels. A label that had to move keeps a thin leader to its point. right: end of the other axis, where names of
    lines that end before stand too.
    """
    bottom, top = y_range
    scale = plot_height / (top - bottom)
    wanted = [(top - min(max(y, bottom), top)) * scale for _, y, *_ in ends]  # pixels below the top of the plot
    placed = spread(wanted, LABEL_GAP, -6, plot_height + 6)
    return [
        {
            "x": x,
            "y": min(max(y, bottom), top),
            **({"axref": "x", "ax": right} if x < right else {"ax": 24}),
            "ay": at - want,
            "text": plain(text, LABEL_LIMIT),
            "name": model,
            "showarrow": True,
            "arrowhead": 0,
            "arrowwidth": 1,
            "arrowcolor": f"@{colour}",
            "standoff": 7,
            "xanchor": "left",
            "yanchor": "middle",
            "align": "left",
            "font": {"size": TEXT_SIZE, "color": f"@ink-{colour}"},
            "borderpad": 3,
        }
        for (x, y, text, colour, model), want, at in zip(ends, wanted, placed, strict=True)
    ]


def label_margin(texts: Sequence[str], extra: int = 34) -> int:
    """Pixels that the longest label at a line's end needs to the right of the plot."""
    return round(min(LABEL_LIMIT, max((len(t) for t in texts), default=0)) * CHARACTER) + extra
