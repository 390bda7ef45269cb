"""Figures of what a corpus says: what is drawn is what the arrays hold, gaps stay gaps, colours are shared within a kind."""

from dataclasses import replace

import numpy as np
import pytest

from whatwhere.report import geometry_figures as figures
from whatwhere.report.geometry_load import load_geometry


@pytest.fixture(scope="module")
def run(geometry_folder):
    return load_geometry(geometry_folder)


def test_lags_draw_both_kinds_over_the_floor(run):
    found = figures.lags(run)
    assert [p.title for p in found.panels] == ["reviews", "tags"]
    names = [t["hovertext"][0].partition("<br>")[0] for t in found.panels[0].data if t.get("hovertext")]
    assert names == ["<b>noise floor, mean</b>", "<b>reviews, as counted</b>", "<b>reviews, corrected</b>"]
    drawn = found.panels[0].data[-1]
    assert drawn["y"] == pytest.approx(run.corpora[0].arrays["lag_mean_corrected"], abs=1e-3)


def test_distances_are_summed_up_as_root_mean_squares_with_their_sign(run):
    m = np.array([[0.0, 3.0, -4.0], [3.0, 0.0, np.nan], [-4.0, np.nan, 0.0]])
    assert figures._summed(m, 0, "mean") == pytest.approx(-np.sqrt(3.5)) and figures._summed(m, 1, "mean") == pytest.approx(3.0)
    assert "Root mean square distance" in figures.overview(run).columns and figures.lags(run).subtitle.startswith("Root mean square")
    below = replace(run.corpora[0], arrays=run.corpora[0].arrays | {"lag_mean_corrected": -run.corpora[0].arrays["lag_mean"]})
    assert "It is below 0 where" in figures.lags(replace(run, corpora=[below])).subtitle


def test_support_tells_positions_left_out_from_those_kept(run):
    kept, left = ([t for t in figures.support(run).panels[0].data if t["line"]["color"] == c] for c in ("@absolute", "@combined"))
    assert sorted(x for t in kept for x in t["x"]) == run.corpora[0].positions
    assert sorted(x for t in left for x in t["x"]) == run.corpora[0].left_out != []


def test_the_caption_of_support_fits_the_protocol_and_the_place_of_the_panels(run):
    assert "grey and take part in nothing below" in figures.support(run).subtitle and "The other panels: " in figures.support(run).subtitle
    one = replace(run, corpora=run.corpora[:1], facts={"protocol": "paper"})
    said = figures.support(one).subtitle
    assert "all positions take part" in said and "nothing below" not in said and "The other panel: distance of a position" in said


def test_the_centred_matrix_has_a_name_and_no_letter(run):
    found = figures.matrices(run)
    assert "part of the centred matrix of squared distances (corrected)" in found.title and " B " not in found.title + found.subtitle


def test_no_line_crosses_a_gap():
    held = [(0, 5.0), (1, 5.0), (4, 5.0)]
    assert figures._stretches(held, 1) == [[(0, 5.0), (1, 5.0)], [(4, 5.0)]]
    assert figures._stretches([(0, 1.0), (3, 1.0)], 3) == [[(0, 1.0), (3, 1.0)]]


def test_matrices_share_their_colours_and_draw_negative_distances_as_zero(run):
    traces = [p.data[0] for p in figures.matrices(run).panels]
    assert [p.title for p in figures.matrices(run).panels] == [
        "reviews, as counted",
        "reviews, corrected",
        "tags, as counted",
        "tags, corrected",
    ]
    assert traces[0]["zmax"] == traces[2]["zmax"] and traces[1]["zmax"] == traces[3]["zmax"]
    assert run.corpora[0].arrays["corrected"].min() < 0 and min(min(row) for row in traces[1]["z"]) == 0
    assert np.allclose(traces[0]["z"], run.corpora[0].arrays["distance"], atol=1e-3)


def test_between_corpora_stands_at_the_positions_of_the_records(run):
    panel = figures.between(run).panels[0]
    assert panel.title == "reviews and tags" and panel.data[-1]["x"] == list(run.by_index("between", "reviews", "reviews|tags"))


def test_ends_ignore_what_is_not_finite():
    assert figures.ends(np.array([1.0, np.nan]), np.array([[-2.0, np.inf]])) == (-2.0, 1.0)
    assert figures.ends(np.array([np.nan])) == figures.ends() == (0.0, 0.0)
