"""Figure 7 of GEOM: every point stands where the arrays say, on equal scales, with the recorded r; half a figure is none."""

from dataclasses import replace

import numpy as np
import pytest

from whatwhere.report import geometry_scatter as scatter
from whatwhere.report.geometry_load import load_geometry


@pytest.fixture(scope="module")
def run(geometry_folder):
    return load_geometry(geometry_folder)


def changed(run, **arrays):
    return replace(run, corpora=[replace(run.corpora[0], arrays=run.corpora[0].arrays | arrays)])


def test_each_encoding_has_a_panel_with_the_points_of_the_arrays(run):
    found = scatter.scatter(run)
    assert len(found.panels) == 8 and [p.title.partition(":")[0] for p in found.panels][3:5] == ["reviews, random", "tags, sinusoidal"]
    arrays = run.corpora[0].arrays
    for panel, table in zip(found.panels, arrays["scatter_table"], strict=False):
        points = panel.data[1]
        assert np.allclose(points["x"], table, atol=1e-3) and np.allclose(points["y"], arrays["scatter_dist"], atol=1e-3)
        assert points["marker"]["color"] == arrays["scatter_lag"].tolist()


def test_the_diagonal_is_exact_on_equal_scales_that_a_corpus_shares(run):
    panels = scatter.scatter(run).panels[:4]
    for panel in panels:
        x, y = panel.layout["xaxis"], panel.layout["yaxis"]
        assert x["range"] == y["range"] == panels[0].layout["xaxis"]["range"] and y["scaleanchor"] == "x"
        assert panel.data[0]["x"] == panel.data[0]["y"] == x["range"] and panel.layout["annotations"][0]["text"] == "exact"
        assert x["range"][0] < min(*panel.data[1]["x"], *panel.data[1]["y"]) and x["range"][1] > max(
            *panel.data[1]["x"], *panel.data[1]["y"]
        )


def test_r_is_the_recorded_one_of_the_corrected_distances_with_its_interval(run):
    panel = scatter.scatter(run).panels[0]
    point = run.point("correlation.corrected", "reviews", "sinusoidal")
    low, high = (float(end) for end in panel.note.replace("\u2212", "-").strip("[]").split(", "))
    assert panel.title.startswith("reviews, sinusoidal: r ") and (low, high) == pytest.approx((point.low, point.high), abs=0.01)
    assert "(corrected)" in scatter.scatter(run).subtitle
    without = replace(run, records=[r for r in run.records if not r.metric.startswith("correlation")])
    assert scatter.scatter(without).panels[0].title == "reviews, sinusoidal"
    assert scatter.scatter(without).title == "Distances in tables against those of the corpus"


def test_without_a_correction_r_is_that_of_the_counts(run):
    arrays = {k: v for k, v in run.corpora[0].arrays.items() if k != "corrected"}
    found = scatter.scatter(replace(run, corpora=[replace(run.corpora[0], arrays=arrays)]))
    point = run.point("correlation", "reviews", "rope")
    assert "(as counted)" in found.subtitle and found.panels[1].title.startswith(f"rope: r {point.value:.1f}"[:9])


def test_made_up_correlations_are_those_of_the_points_drawn(run):
    # All pairs of the made-up run are drawn, so r can be computed from the figure, but for the random halves of the correction.
    for panel, name in zip(scatter.scatter(run).panels, ("sinusoidal", "rope", "alibi", "random"), strict=False):
        drawn = np.corrcoef(panel.data[1]["x"], panel.data[1]["y"])[0, 1]
        assert drawn == pytest.approx(run.point("correlation.corrected", "reviews", name).value, abs=0.05)


def test_negative_corrected_distances_are_drawn_and_explained(run):
    dist = run.corpora[0].arrays["scatter_dist"]
    assert "stands below 0" in scatter.scatter(changed(run, scatter_dist=np.where(np.arange(len(dist)) == 0, -0.2, dist))).subtitle
    assert "stands below 0" not in scatter.scatter(changed(run, scatter_dist=np.abs(dist))).subtitle


def test_what_is_missing_or_does_not_fit_draws_nothing(run):
    arrays = run.corpora[0].arrays
    assert scatter.scatter(changed(run, scatter_lag=arrays["scatter_lag"][1:])) is None
    assert scatter.scatter(changed(run, scatter_table=arrays["scatter_table"][1:])) is None
    assert scatter.scatter(replace(run, corpora=[replace(run.corpora[0], words={})])) is None
    assert scatter.scatter(replace(run, corpora=[])) is None


def test_gaps_are_left_out_of_points_and_dashes_in_the_table(run):
    table = run.corpora[0].arrays["scatter_table"].copy()
    table[0, :3] = np.nan
    found = scatter.scatter(changed(run, scatter_table=table))
    assert len(found.panels[0].data[1]["x"]) == table.shape[1] - 3 and [row[3].text for row in found.table.rows[:3]] == ["–"] * 3


def test_the_table_behind_has_a_row_a_pair_and_a_column_an_encoding(run):
    table = scatter.scatter(run).table
    assert list(table.columns) == ["Corpus", "Lag", "In the corpus", "sinusoidal", "rope", "alibi", "random"]
    assert len(table.rows) == sum(len(c.arrays["scatter_dist"]) for c in run.corpora) and {len(row) for row in table.rows} == {7}


def test_the_key_of_colours_names_the_first_and_the_last_lag():
    assert scatter._bar(1, 100)["tickvals"] == [1, 34, 67, 100] and scatter._bar(1, 1)["tickvals"] == [1]


def test_correlations_stand_in_a_table_of_both_kinds(run):
    rows = scatter.correlations(run).rows
    assert len(rows) == 2 * 4 * 2 and {row[2].text for row in rows} == {"as counted", "corrected"}
