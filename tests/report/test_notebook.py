"""In a notebook: the figures hold the page's marks at the page's places, the frame holds every record."""

import json
import re
from dataclasses import fields

import pytest
from geometry_run import make_run

import whatwhere as ww
from whatwhere.records.record import Record, read_records
from whatwhere.report.loaded_run import load_run
from whatwhere.report.notebook import _figures, composed
from whatwhere.report.page import page_figures
from whatwhere.report.pages import study_page

pytestmark = pytest.mark.whole


def test_the_frame_holds_every_record(demo, build):
    frame = ww.dataframe(demo)
    records = read_records(demo / "records.parquet")
    assert list(frame) == [f.name for f in fields(Record)] and len(frame) == len(records)
    last = frame[(frame.metric == "r2.token") & (frame.model == "dstg") & (frame.part == "position")].iloc[-1]
    assert last.value in [r.value for r in records if (r.metric, r.model, r.part) == ("r2.token", "dstg", "position")]
    both = ww.dataframe([demo, build("two", models=("ap",))])
    assert ww.dataframe(demo / "records.parquet").equals(frame)
    assert list(both)[0] == "run" and set(both.run) == {"demo", "two"} and len(both) > len(frame)


def test_names_and_findings_are_those_of_the_page(whole):
    page = study_page(load_run(whole))
    shown = page_figures(page.hero, page.sections)
    assert list(ww.figures(whole)) == [f.id for f in shown] and len(shown) > 20
    assert ww.figures(whole)["position"] == shown[0].title.replace("`", "")


@pytest.mark.long
def test_the_first_figure_draws_the_records(whole):
    drawn = ww.plot(whole, "position")
    (trace,) = [t for t in drawn.data if t.mode == "lines" and t.x[-1] == 3 and "#D55E00" == t.line.color]
    run = load_run(whole)
    assert list(trace.y) == pytest.approx([p.value for p in run.curve("r2.token", "dstg", "position").values()][:4])
    assert drawn.layout.title.text in ww.figures(whole)["position"]
    assert ww.plot(whole, "position", theme="dark").layout.paper_bgcolor == "#15171a"


@pytest.mark.parametrize(("kind", "width"), [("study", 1140), ("study", 330), ("geometry", 700), ("several", 1140)])
def test_every_mark_has_its_panels_axes(kind, width, whole, build, tmp_path):
    """Every mark of every figure has its panel s axes."""
    if kind == "several":
        run = [build("one", models=("dstg", "ap")), build("two", models=("rope",))]
    else:
        run = whole if kind == "study" else make_run(tmp_path / "run")
    figures = {figure.id: figure for figure in _figures(run)}
    assert len(figures) >= (20 if kind == "study" else 5)
    for name, figure in figures.items():  # ww.plot makes the page for each anew
        drawn = json.loads(composed(figure, "light", width).to_json())
        layout = drawn["layout"]
        assert width - 30 < layout["width"] <= width or layout["width"] == 760, name
        panels = len([key for key in layout if key.startswith("xaxis")])
        for letter in "xy":
            used = {trace.get(f"{letter}axis", letter) for trace in drawn["data"]}
            assert used == {f"{letter}{i if i > 1 else ''}" for i in range(1, panels + 1)}, name
            spans = [layout[f"{letter}axis{i if i > 1 else ''}"]["domain"] for i in range(1, panels + 1)]
            assert all(0 <= low < high <= 1 for low, high in spans), name
            for mark in (*layout.get("annotations", ()), *layout.get("shapes", ())):
                place = mark.get(f"{letter}ref", letter).removesuffix(" domain")
                assert place == "paper" or place in used, (name, mark)
        assert not re.search(r'"@[a-z]', json.dumps(drawn)), name  # a colour left unnamed
        bars = [t.get("colorbar") or t.get("marker", {}).get("colorbar") for t in drawn["data"]]
        assert all(0 <= bar["x"] <= 1.01 and 0 <= bar["y"] <= 1 for bar in bars if bar), name


@pytest.mark.parametrize("width", [400, 1140])
def test_panels_stand_apart_and_in_rows(whole, width):
    page = study_page(load_run(whole))
    for figure in page_figures(page.hero, page.sections):
        layout = composed(figure, "light", width).layout
        boxes = [(*layout[f"xaxis{i or ''}"].domain, *layout[f"yaxis{i or ''}"].domain) for i in _numbers(figure)]
        for i, (left, right, low, high) in enumerate(boxes):
            for other in boxes[i + 1 :]:
                apart = right <= other[0] or other[1] <= left or high <= other[2] or other[3] <= low
                assert apart, figure.id


def _numbers(figure):
    return [0, *range(2, len(figure.panels) + 1)]


def test_wrong_figures_runs_and_options_are_refused(demo, tmp_path):
    with pytest.raises(ValueError, match=r"has no figure 'postion'. Did you mean position\? Figures: position, loss, "):
        ww.plot(demo, "postion")
    for ask in (ww.figures, ww.dataframe, lambda run: ww.plot(run, "position")):
        for run in (3, None, [demo, 3]):
            with pytest.raises(ValueError, match="A run is given by its folder, several by a list; got (3|None)"):
                ask(run)
    with pytest.raises(ValueError, match="theme must be one of light, dark; got 'sepia'"):
        ww.plot(demo, "position", theme="sepia")
    with pytest.raises(ValueError, match="width must be at least 330 pixels; got 100"):
        ww.plot(demo, "position", width=100)
    with pytest.raises(ValueError, match="No records at"):
        ww.dataframe(tmp_path)
    with pytest.raises(ValueError, match="No run was given"):
        ww.figures([])
