"""Every figure is valid plotly, names colours of the palette only, and draws numbers that stand in a record, an array or the paper."""

import itertools
import json
import math

import plotly.graph_objects as go
import pytest

from whatwhere.encoder import PRESETS
from whatwhere.papers import DSTG_R2
from whatwhere.points import Point
from whatwhere.report import probe_figures, shift_figures, table_figures, training_figures
from whatwhere.report.figures import line, measured, repeats
from whatwhere.report.load import load_study
from whatwhere.report.style import PALETTES


def every_figure(study):
    """All figures of a study."""
    hero = probe_figures.hero(study, DSTG_R2)
    found = [hero, *probe_figures.targets(study, DSTG_R2), shift_figures.shifts(study)]
    found += [*table_figures.figures(study), training_figures.losses(study)]
    return [f for f in found if f is not None]


def strings(part):
    """All strings in a nested value."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        yield from itertools.chain.from_iterable(strings(v) for v in part.values())
    elif isinstance(part, list | tuple):
        yield from itertools.chain.from_iterable(strings(v) for v in part)


def coloured(part):
    """The value with "@name" resolved, as the page does it."""
    if isinstance(part, str):
        return PALETTES["light"].get(part[1:], part) if part.startswith("@") else part
    if isinstance(part, dict):
        return {k: coloured(v) for k, v in part.items()}
    return [coloured(v) for v in part] if isinstance(part, list) else part


STUDIES = {
    "tiny": {},
    "paper": {"layers": 6, "seeds": (0, 1, 2), "models": ("dstg", "dstg-full-mlm", "ap", "rp", "rope", "nope", "alibi")},
    "one": {"models": ("rope",)},
    "all": {"models": (*PRESETS, "log-decay", "my-own"), "shifts": True},
}


@pytest.mark.parametrize("kind", STUDIES)
def test_figures_are_valid_plotly(build, kind):
    figures = every_figure(load_study(build(**STUDIES[kind])))
    assert len({f.id for f in figures}) == len(figures) == len({f.table.id for f in figures}) >= (2 if kind == "one" else 8)
    for figure in figures:
        assert figure.title and figure.subtitle and figure.panels and figure.table.rows
        for panel in figure.panels:
            assert panel.alt
            json.dumps([panel.data, panel.layout], allow_nan=False)
            named = {s[1:] for s in strings([panel.data, panel.layout]) if s.startswith("@")}
            assert named <= PALETTES["light"].keys()
            go.Figure(data=coloured(panel.data), layout=coloured(panel.layout))  # raises at an unknown property


def test_probe_figures_draw_recorded_and_published_numbers_only(demo):
    study = load_study(demo)
    known = {v for r in study.records if r.metric.startswith("r2.") for v in (r.value, r.low, r.high) if v is not None} | set(
        DSTG_R2.values()
    )
    for figure in [probe_figures.hero(study, DSTG_R2), *probe_figures.targets(study, DSTG_R2)]:
        for panel in figure.panels:
            for trace in panel.data:
                assert set(trace["y"]) <= known
        drawn = {cell.raw for row in figure.table.rows for cell in row[5:6]}
        assert drawn <= known and len(drawn) > 20


def test_changing_a_record_changes_the_figure(demo):
    from dataclasses import replace

    study = load_study(demo)
    moved = [
        replace(r, value=0.1, low=0.09, high=0.11) if (r.metric, r.part, r.layer) == ("r2.token", "position", 3) else r
        for r in study.records
    ]
    before, after = probe_figures.hero(study, {}), probe_figures.hero(replace(study, records=moved), {})
    assert before.title.startswith("Position stays") and after.title.startswith("The position stream of `dstg` does not keep position")


def test_a_line_dots_its_way_to_a_hollow_point():
    traces = line(
        {0.0: Point.between(0.7), 1.0: Point.between(0.6), 2.0: Point.between(0.1)},
        "absolute",
        "solid",
        "circle",
        "m",
        {},
        frozenset({2.0}),
    )
    lines = [t for t in traces if t["mode"] == "lines"]
    assert [(t["x"], t["line"]["dash"]) for t in lines] == [([0.0, 1.0], "solid"), ([1.0, 2.0], "1px,4px")]
    marks = traces[-1]["marker"]
    assert marks["color"] == ["@absolute", "@absolute", "@surface"] and marks["line"]["color"][2] == "@absolute"


def test_error_bars_reach_the_ends_of_the_interval():
    bars = next(t for t in line({0.0: Point.between(0.7, 0.6, 0.9)}, "absolute", "solid", "circle", "m", {}) if "error_y" in t)
    assert math.isclose(bars["error_y"]["array"][0], 0.2) and math.isclose(bars["error_y"]["arrayminus"][0], 0.1)


def test_repeats_says_what_intervals_are_over():
    assert repeats([Point.of([[0.4], [0.5], [0.6]])]) == "mean over 3 training seeds, 95\u202f% interval between seeds"
    assert repeats([Point.of([[0.4, 0.5, 0.6]]), None]) == "one training seed, 95\u202f% interval over document splits"
    assert repeats([Point.between(0.5)]) == "one training seed, no interval"


def test_measured_keeps_negative_ends():
    assert [c.text for c in measured(Point.between(0.02, -0.03, 0.07))] == ["0.020", "\u22120.030", "0.070"]
