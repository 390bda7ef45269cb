"""Spectrum and map of a corpus's positions: the noise level is the most negative eigenvalue, the map's frame is square."""

from dataclasses import replace

import numpy as np
import pytest

from whatwhere.report import geometry_shapes as shapes
from whatwhere.report.geometry_load import load_geometry


@pytest.fixture(scope="module")
def run(geometry_folder):
    return load_geometry(geometry_folder)


def test_noise_level_is_the_size_of_the_most_negative_eigenvalue(run):
    assert shapes.noise_level(np.array([5.0, 0.1, -0.4])) == 0.4 and shapes.noise_level(np.array([5.0, 0.1])) == 0
    values = run.corpora[0].arrays["eigenvalues_corrected"]
    assert f"`reviews` {int(np.sum(values > -values.min()))} of" in shapes.spectrum(run).title


def test_a_zero_among_the_eigenvalues_is_no_component(run):
    # Without a negative eigenvalue the noise level is 0, and rounding must not stand above it: 24 components of 23.
    arrays = {"eigenvalues": np.array([2.0, 1.0, 1e-17]), "eigenvalues_corrected": np.array([2.0, 1.0, 1e-17])}
    found = shapes.spectrum(replace(run, corpora=[replace(run.corpora[0], arrays=arrays)]))
    assert found.title.endswith("`reviews` 2 of 2")


def test_maps_have_equal_scales_in_a_square_frame(run):
    found = shapes.table_maps(run)
    assert [p.title for p in found.panels] == ["reviews, as counted", "reviews, corrected", "tags, as counted", "tags, corrected"]
    for panel in found.panels:
        (left, right), (bottom, top) = panel.layout["xaxis"]["range"], panel.layout["yaxis"]["range"]
        assert (
            right - left == pytest.approx(top - bottom) and panel.layout["yaxis"]["scaleanchor"] == "x" and panel.layout["meta"]["square"]
        )
        x, y = panel.data[1]["x"], panel.data[1]["y"]
        assert left < min(x) and max(x) < right and bottom < min(y) and max(y) < top


def test_positions_are_coloured_from_first_to_last_and_some_named(run):
    panel = shapes.table_maps(run).panels[0]
    assert panel.data[1]["marker"]["color"] == run.corpora[0].positions
    assert [a["text"] for a in panel.layout["annotations"]] == [str(p) for p in run.corpora[0].positions if p % 8 == 0]


@pytest.mark.parametrize(("last", "step"), [(10, 8), (63, 16), (255, 16), (511, 32), (8191, 512)])
def test_long_maps_name_fewer_positions(last, step):
    assert shapes._step([range(last + 1)]) == step
