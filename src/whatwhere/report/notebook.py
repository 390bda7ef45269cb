"""Runs in a notebook: records as a DataFrame, and every figure of the page as one plotly figure."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records.record import read_records
from ..run.errors import as_list, suggest_name
from ..run.folder import RunFolder
from .compare import comparison_page, open_runs
from .figure import Figure, Panel
from .loaded_run import load_run, page_kind
from .page import Page, page_figures
from .pages import geometry_page, spectra_page, study_page
from .style import FONT, MAPS, PALETTES, TEXT_SIZE, plain

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects

Runs = str | Path | Sequence[str | Path]
THEMES = tuple(PALETTES)
_TITLE = 30  # pixels for the title of a panel; between two panels
_GAP = 24
_ACROSS = 3  # most panels side by side; pixels of a single one; fewest of one of several
_WIDE = 760
_NARROW = 330


def dataframe(run: Runs) -> "pandas.DataFrame":
    """Return the records of a run as a data frame, a row for each value.

    Columns are the fields of `records.record.Record`; the site's page Metrics lists the metrics.

    Args:
        run: folder of a study, geometry or spectra run, `heads` or an evaluation, or a record file; of several, a
            column `run` comes first.

    Raises:
        ValueError: no records, or a file that is damaged or not as it was written.
    """
    import pandas

    folders = _folders(run)
    files = [folder if folder.suffix == ".parquet" else folder / "records.parquet" for folder in folders]
    for file in files:
        RunFolder.at(file.parent).check(file.name)
    frames = [pandas.DataFrame(map(vars, read_records(file))) for file in files]
    if len(frames) == 1:
        return frames[0]
    names = [folder.resolve().stem for folder in folders]
    return pandas.concat([f.assign(run=n)[["run", *f]] for n, f in zip(names, frames, strict=True)], ignore_index=True)


def figures(run: Runs) -> dict[str, str]:
    """Return name -> finding of every figure that the page of a run has, in its order.

    Of several runs it is the page that compares them.

    Raises:
        ValueError: the folder has no page, or a file in it is damaged.
    """
    return {figure.id: figure.title.replace("`", "") for figure in _figures(run)}


def plot(run: Runs, name: str, *, theme: str = "light", width: int = 1140) -> "plotly.graph_objects.Figure":
    """Return a figure of the page of a run as one plotly figure, its panels side by side, its title the finding.

    Args:
        run: folder of a study, geometry or spectra run; of several, the page that compares them.
        name: of `figures(run)`: "position", "loss", "heads", ...
        theme: light or dark.
        width: largest width in pixels (330 or more), from which follows how many panels stand side by side; a single
            panel takes 760.

    Raises:
        ValueError: no such figure or theme, too little width, the folder has no page, or a file in it is damaged.
    """
    if theme not in THEMES:
        raise ValueError(f"theme must be one of {', '.join(THEMES)}; got {theme!r}.")
    if width < _NARROW:
        raise ValueError(f"width must be at least {_NARROW} pixels; got {width}.")
    known = {figure.id: figure for figure in _figures(run)}
    if name not in known:
        near = suggest_name(name, known)
        hint = f"Figures: {', '.join(known)}." if known else "It has none: nothing was measured."
        raise ValueError(f"{', '.join(map(str, _folders(run)))} has no figure {name!r}.{near} {hint}")
    return composed(known[name], theme, width)


def composed(figure: Figure, theme: str, most: int) -> "plotly.graph_objects.Figure":
    """Compose the panels of a figure in rows of one plotly figure, `most` pixels wide; marks stand where the page has
    them."""
    import plotly.graph_objects as go

    panels = figure.panels
    across = min(2 if len(panels) == 4 else len(panels), _ACROSS)
    across = max(1, min(across, (most + _GAP) // (max(figure.width, _NARROW) + _GAP)))
    width = min(_WIDE, most) if across == 1 else (most - _GAP * (across - 1)) // across
    rows = [panels[i : i + across] for i in range(0, len(panels), across)]
    heights = [max(_height(p, width) for p in row) + _TITLE * any(p.title for p in row) for row in rows]
    total = width * across + _GAP * (across - 1)
    words = [_wrapped(figure.title, total, 17), _wrapped(figure.subtitle, total, 12)]
    head = 26 + 22 * (words[0].count("<br>") + 1) + 16 * (words[1].count("<br>") + 1)
    size = (total, head + sum(heights) + _GAP * (len(rows) - 1))
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"annotations": [], "shapes": []}
    top = head
    for i, row in enumerate(rows):
        for j, panel in enumerate(row):
            corner = (j * (width + _GAP), top + _TITLE * any(p.title for p in row))
            _place(panel, i * across + j + 1, corner, (width, _height(panel, width)), size, data, layout)
        top += heights[i] + _GAP
    font = {"family": FONT, "size": TEXT_SIZE, "color": "@text"}
    hover = {"hovermode": "closest", "hoverlabel": {"font": font, "bgcolor": "@raised", "bordercolor": "@rule"}}
    above = 14 + 15 * words[0].count("<br>")  # plotly places the middle line of a title
    title = {"text": words[0], "x": 0.01, "xanchor": "left", "y": 1 - above / size[1], "yanchor": "top"}
    title |= {"font": font | {"size": 17}, "subtitle": {"text": words[1], "font": font | {"size": 12}}}
    layout |= {"width": size[0], "height": size[1], "margin": dict.fromkeys("lrtb", 0), "font": font, "title": title}
    layout |= {"paper_bgcolor": "@surface", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": False} | hover
    return go.Figure(_coloured({"data": data, "layout": layout}, PALETTES[theme] | MAPS[theme]))


def _folders(run: Runs) -> list[Path]:
    folders = [Path(folder) for folder in as_list(run, (str, Path), "A run is given by its folder, several by a list")]
    if not folders:
        raise ValueError("No run was given. Give the folder of a run, or a list of them.")
    return folders


def _figures(run: Runs) -> list[Figure]:
    folders = _folders(run)
    page = comparison_page(open_runs(folders)) if len(folders) > 1 else _page(folders[0])
    return page_figures(page.hero, page.sections)


def _page(folder: Path) -> Page:
    """The page without its explorer, which is no figure."""
    pages = {"geometry": geometry_page, "spectra": spectra_page}
    return pages.get(page_kind(folder), study_page)(load_run(folder))


def _height(panel: Panel, width: int) -> int:
    """Of a panel in pixels; a square one is as high as its width needs."""
    height: int = panel.layout["height"]
    margin = panel.layout["margin"]
    square = (panel.layout.get("meta") or {}).get("square")
    return min(height, width - margin["l"] - margin["r"] + margin["t"] + margin["b"]) if square else height


def _place(
    panel: Panel,
    number: int,
    corner: tuple[int, int],
    cell: tuple[int, int],
    size: tuple[int, int],
    data: list[dict[str, Any]],
    layout: dict[str, Any],
) -> None:
    """Add a panel whose left upper corner and size are given in pixels from the left upper corner of the whole."""
    end = "" if number == 1 else str(number)
    margin = panel.layout["margin"]
    axes = {"x": f"x{end}", "y": f"y{end}"}
    x = [(corner[0] + margin["l"]) / size[0], (corner[0] + cell[0] - margin["r"]) / size[0]]
    y = [1 - (corner[1] + cell[1] - margin["b"]) / size[1], 1 - (corner[1] + margin["t"]) / size[1]]
    for letter, domain, other in (("x", x, "y"), ("y", y, "x")):
        axis = {"domain": domain, "anchor": axes[other], "fixedrange": False}
        if panel.layout[f"{letter}axis"].get("scaleanchor"):
            axis["scaleanchor"] = axes[other]
        layout[f"{letter}axis{end}"] = panel.layout[f"{letter}axis"] | axis
    for trace in panel.data:
        placed = trace | {"xaxis": axes["x"], "yaxis": axes["y"], "showlegend": False}
        if bar := trace.get("colorbar"):
            placed["colorbar"] = _bar(bar, x, y)
        elif bar := (trace.get("marker") or {}).get("colorbar"):
            placed["marker"] = trace["marker"] | {"colorbar": _bar(bar, x, y, corner[1] / size[1])}
        data.append(placed)
    for kind in ("annotations", "shapes"):
        layout[kind] += [_referred(shape, axes) for shape in panel.layout.get(kind) or ()]
    if panel.title:
        words = f"<b>{plain(panel.title.replace('`', ''))}</b>" + (f"  {plain(panel.note)}" if panel.note else "")
        look = {"showarrow": False, "xanchor": "left", "yanchor": "bottom", "font": {"size": TEXT_SIZE}}
        place = {"xref": "paper", "yref": "paper", "x": corner[0] / size[0], "y": 1 - corner[1] / size[1]}
        layout["annotations"].append(look | place | {"text": words, "xshift": 6})


def _bar(bar: Mapping[str, Any], x: Sequence[float], y: Sequence[float], top: float = 0.0) -> dict[str, Any]:
    """A scale of colours beside its panel, or above it where it lies."""
    if bar.get("orientation") == "h":
        place = {"x": sum(x) / 2, "xanchor": "center", "len": x[1] - x[0], "y": 1 - top, "yref": "paper"}
        return {**bar, **place}
    place = {"x": x[1] + (bar.get("x", 1.02) - 1) * (x[1] - x[0]), "len": y[1] - y[0]}
    return {**bar, **place, "y": sum(y) / 2}


def _referred(mark: Mapping[str, Any], axes: Mapping[str, str]) -> dict[str, Any]:
    """An annotation or a shape whose axes are its panel's; the paper of a panel is what its axes span."""
    place = {}
    for letter, name in axes.items():
        reference = mark.get(f"{letter}ref", letter)
        place[f"{letter}ref"] = f"{name} domain" if reference == "paper" else name
        if mark.get(f"a{letter}ref", "pixel") != "pixel":
            place[f"a{letter}ref"] = name
    return {**mark, **place}


def _wrapped(words: str, width: int, size: int) -> str:
    lines = textwrap.wrap(
        re.sub("`([^`]*)`", r"\1", words), max(40, round(width / (size * 0.52))), break_on_hyphens=False
    )
    return "<br>".join(map(plain, lines))


def _coloured(part: Any, palette: Mapping[str, str]) -> Any:
    """The same with the colour of every "@name"."""
    if isinstance(part, str):
        return palette.get(part[1:], part) if part.startswith("@") else part
    if isinstance(part, Mapping):
        return {k: _coloured(v, palette) for k, v in part.items()}
    return [_coloured(v, palette) for v in part] if isinstance(part, list | tuple) else part
