"""Curves over dimensions, ranks and steps: places on the axes, levels of fixed encodings, the smallest of H1 and H3."""

import math
from dataclasses import replace

import pytest

from whatwhere.records import Record
from whatwhere.report import geometry_curves as curves
from whatwhere.report.geometry_load import Geometry, load_geometry


@pytest.fixture(scope="module")
def run(geometry_folder):
    return load_geometry(geometry_folder)


def test_step_zero_has_a_place_and_later_steps_are_logarithmic():
    assert curves.step_place(0, 50) == 0 and curves.step_place(50, 50) == pytest.approx(math.log(2))
    assert curves.step_place(50_000, 50) - curves.step_place(5_000, 50) == pytest.approx(math.log(10), rel=0.01)


def test_ticks_keep_the_last_step_and_their_distance():
    steps = [0, 50, 100, 200, 500, 1000, 2000, 4200]
    ticks = curves._ticks(steps, 50)
    places = [curves.step_place(s, 50) for s in ticks]
    assert (
        ticks[-1] == 4200 and set(ticks) <= set(steps) and min(b - a for a, b in zip(places, places[1:], strict=False)) > 0.14 * places[-1]
    )


def test_held_out_has_levels_of_fixed_encodings_and_the_best_rank(run):
    found = curves.held_out(run)
    assert "`reviews` rank 5 to 7, stress 0.0520" in found.title
    level = next(t for t in found.panels[0].data if t.get("hovertext") and "alibi" in t["hovertext"][0])
    assert level["y"] == [run.point("stress.held_out", "reviews", "alibi").value] * 2
    equal = next(t for t in found.panels[0].data if t.get("hovertext") and "equidistant" in t["hovertext"][0])
    assert equal["y"] == [0.31] * 2 and "every two positions at the same distance" in found.subtitle
    assert "all equally far" in [a["text"] for a in found.panels[0].layout["annotations"]]


def test_named_ranks_hold_the_last_and_keep_their_distance():
    assert curves._rank_ticks([1, 2, 3, 4, 5, 7]) == [1, 2, 3, 4, 5, 7]
    assert curves._rank_ticks([1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50]) == [1, 2, 4, 7, 10, 20, 30, 50]


def test_each_table_has_its_own_dash_and_marker_against_dimensions(run):
    styles = curves.dimension_styles(["sinusoidal", "rope", "mds", "smacof", "mine", "yours"])
    assert len({s[0] for s in styles.values()}) == len({s[1] for s in styles.values()}) == 6
    records = [Record("s", "c", "stress.raw", v, part=p, index=d) for p, v in (("rope", 1.05), ("sinusoidal", 1.0)) for d in (16, 64)]
    records += [Record("s", "c", "stress.raw", v, v / 2, v * 2, part="smacof", index=d) for d, v in ((1, 0.2), (2, 0.1))]
    corpora = [replace(run.corpora[0], name="c")]
    found = curves.dimensions(Geometry("run", {}, records, corpora))
    notes = {a["text"]: a for a in found.panels[0].layout["annotations"]}
    assert notes["smacof"]["y"] == pytest.approx(math.log10(0.05)) and notes["smacof"]["yshift"] < 0 and notes["rope"]["showarrow"]
    assert "`rope` (dashed, on top) and `sinusoidal` (solid) nearly coincide." in found.subtitle
    apart = [replace(r, value=3.0) if r.part == "rope" else r for r in records]
    assert "coincide" not in curves.dimensions(Geometry("run", {}, apart, corpora)).subtitle


def test_dimensions_are_drawn_against_corrected_distances_where_there_are_any(run):
    found = curves.dimensions(run)
    assert len(found.panels) == 4 and "(corrected)" in found.subtitle and "sinusoidal" in found.title
    bare = Geometry("run", {}, [r for r in run.records if "corrected" not in r.metric], run.corpora)
    assert "(as counted)" in curves.dimensions(bare).subtitle


def test_separation_says_which_rows_it_tells_of(run):
    found = curves.separation(run)
    assert "those of the positions that the first corpus supports." in found.subtitle and len(found.panels) == len(curves.SEPARATION)
    assert not any(99.0 in t["y"] for p in found.panels for t in p.data)  # the value of all rows
    all_rows = [Record("s", "m", "separation", 1.0 + s, step=s) for s in (0, 10)]
    assert "between rows of the table: all of them." in curves.separation(Geometry("run", records=all_rows)).subtitle
    assert curves.separation(Geometry("run", records=all_rows[:1])) is None


def test_rows_are_told_of_each_model_where_they_differ():
    records = [Record("s", m, "separation", 1.0 + s, step=s, part=p) for m, p in (("a", "corpus"), ("b", "used")) for s in (0, 10)]
    said = curves.separation(Geometry("run", records=records)).subtitle
    assert "`a` those of the positions that the first corpus supports; `b` those that training texts reach." in said


def test_conditions_show_the_head_where_the_distance_is_smallest():
    place = {"study": "s", "model": "m", "layer": 0, "part": "M"}
    records = [Record(metric="h3", value=v, head=h, **place) for h, v in enumerate((0.3, 0.1, 0.2))]
    records += [Record(metric="h3.floor", value=v, head=h, **place) for h, v in enumerate((0.03, 0.01, 0.02))]
    (row,) = curves.hypotheses(Geometry("run", records=records)).rows
    assert [c.text for c in row] == ["m", "H3", "M", "0", "0.1", "0.01", "–"]
    assert curves.hypotheses(Geometry("run")) is None


def test_a_matrix_and_its_transpose_have_rows_of_their_own(run):
    rows = [[c.text for c in row] for row in curves.hypotheses(run).rows if row[0].text == "from-scratch"]
    assert [row[1:5] for row in rows] == [
        ["H1", "", "", "0.013"],
        ["H3", "M", "0", "0.002"],
        ["H3", "M", "1", "0.004"],
        ["H3", "Mᵀ", "0", "0.003"],
        ["H3", "Mᵀ", "1", "0.006"],
    ]
