"""Stress and violations: every encoding has its row, what depends on no corpus is marked so, zero has a place on a logarithmic axis."""

from dataclasses import replace

import pytest

from whatwhere.points import Point
from whatwhere.report import geometry_fits as fits
from whatwhere.report.geometry_load import Geometry, load_geometry


@pytest.fixture(scope="module")
def run(geometry_folder):
    return load_geometry(geometry_folder)


def rows(panel):
    return panel.layout["yaxis"]["ticktext"]


def test_each_encoding_has_a_row_from_the_best_to_the_worst(run):
    best, raw = fits.stress(run).panels[:2]
    tables = {"mds, full rank", "mds, rank 5", "smacof, rank 4"}
    assert set(rows(best)) == {"sinusoidal", "rope", "alibi", "random", "all equally far"} | tables
    assert set(rows(raw)) == set(rows(best)) - {"all equally far"}
    values = [run.point("stress.optimal.corrected", "reviews", e).value for e in rows(best) if e in ("sinusoidal", "alibi", "random")]
    assert values == sorted(values)


def test_mds_is_shown_at_the_rank_that_fits_other_documents_best(run):
    assert fits.ranks_shown(run, "reviews") == {"smacof": 4, "mds": 5} and "fits other documents best" in fits.stress(run).subtitle
    bare = replace(run, records=[r for r in run.records if r.metric != "stress.held_out"])
    assert fits.ranks_shown(bare, "reviews") == {"smacof": 4, "mds": 4} and "other documents" not in fits.stress(bare).subtitle
    assert fits.ranks_shown(Geometry("run"), "reviews") == {}


def test_a_missing_corrected_value_is_a_dash_at_the_end_and_takes_no_part_in_the_title(run):
    records = [
        r for r in run.records if not (r.metric.startswith("stress.optimal") and r.part == "rope" and r.metric.endswith("corrected"))
    ]
    records = [replace(r, value=1e-6, low=1e-6, high=1e-6) if r.metric == "stress.optimal" and r.part == "rope" else r for r in records]
    found = fits.stress(replace(run, records=records))
    best = found.panels[0]
    assert rows(best)[-1] == "rope" and best.layout["annotations"][-1]["text"] == "–" and "A dash" in found.subtitle
    assert "rope" not in found.title and all(a["text"] != "–" for a in fits.stress(run).panels[0].layout["annotations"])
    counted = fits.stress(replace(run, records=[r for r in run.records if "corrected" not in r.metric])).panels[0]
    assert all(a["text"] != "–" for a in counted.layout["annotations"])


def test_noise_is_a_line_and_no_encoding(run):
    assert fits.stress(run).panels[0].data[0]["x"] == [0.02, 0.02]
    assert fits.stress(run).key[-1] == fits.HALVES


def test_half_against_half_is_for_comparison_and_called_no_bound(run):
    found = fits.stress(run)
    assert "half against half, for comparison" in fits.HALVES[1] and found.panels[0].data[0]["hovertext"][0].startswith("half against half")
    said = " ".join([found.title, found.subtitle, *(words for _, words in found.key)])
    assert not any(word in said for word in ("bound", "at best", "no table", "limit", "noise"))


def test_an_exact_table_stands_at_the_end_of_a_logarithmic_axis(run):
    raw = fits.stress(run).panels[1]
    row = rows(raw).index("mds, full rank")
    drawn = [t for t in raw.data if t.get("y") == [row] and t["marker"]["symbol"] == "square-open"]
    assert drawn[0]["x"][0] >= fits.SMALLEST and raw.layout["xaxis"]["type"] == "log"


def test_violations_of_a_fixed_table_are_its_own(run):
    panel = fits.violations(run).panels[0]
    assert rows(panel)[0] == "the corpus itself"
    row = rows(panel).index("alibi")
    assert [t["marker"]["symbol"] for t in panel.data if t.get("y") == [row]] == ["circle"]
    assert fits.OWN in [t["hovertext"][0].partition("<br>")[2].partition(":")[0] for t in panel.data if t.get("y") == [row]]


def test_marks_that_are_not_drawn_are_not_explained(run):
    assert fits._key([{"rope": {fits.PLUG_IN: Point.between(1.0)}}], fits.KEY) == [fits.KEY[0]]


def test_parameters_of_the_fitted_table_stand_beside_those_of_a_free_one(run):
    table = fits.parameters(run)
    free = [row for row in table.rows if row[1].text == "a free table"]
    assert [row[2].raw for row in free] == [24 * 64.0] * 2
