"""Figures of tables on their own: what each draws of a made-up table, titles by their rules, odd shapes."""

import numpy as np
import pytest

from whatwhere.analysis.tables import table_arrays, table_records, word_records
from whatwhere.analysis.who import Who
from whatwhere.report.equivariance_figures import equivariances, products
from whatwhere.report.load import Study
from whatwhere.report.spectra_figures import (
    ALL_SCORES,
    FEW_SCORES,
    magnitude_maps,
    rotating,
    rotation_maps,
    score_maps,
    shares,
    summed_magnitudes,
)


def circles(n=96, width=12, turns=(3, 7), noise=0.02):
    draw = np.random.default_rng(0)
    turn = 2 * np.pi * np.arange(n)[:, None] / n
    flat = np.concatenate([0.4**i * np.concatenate([np.cos(f * turn), np.sin(f * turn)], 1) for i, f in enumerate(turns)], 1)
    return flat @ np.linalg.qr(draw.normal(size=(width, width)))[0][: 2 * len(turns)] + noise * draw.normal(size=(n, width))


def noise(n=50, width=8):
    return np.random.default_rng(1).normal(size=(n, width))


def study_of(**tables):
    """A study whose tables are those given, as `whatwhere spectra` keeps them."""
    records, arrays = [], {}
    for name, table in tables.items():
        records += table_records(table, Who(name, study="s"))[0]
        arrays[name, None] = table_arrays(table)
    return Study("s", {"models": [{"name": m, "config": {"preset": "–"}} for m in tables]}, records, tables=arrays)


@pytest.fixture(scope="module")
def study():
    return study_of(turning=circles(), noise=noise())


def test_positions_are_solid_words_dashed_and_the_others_grey(study):
    words = np.random.default_rng(2).normal(size=(90, 12))
    records, arrays = word_records(words, Who("turning", study="s"))
    both = Study(study.name, study.facts, study.records + records, tables=study.tables)
    figure = shares(both, {("turning", None): arrays["shares"]})
    first, second = figure.panels
    assert [(t["line"]["color"], t["line"]["dash"]) for t in first.data] == [
        ("@ghost", "solid"),
        ("@absolute", "solid"),
        ("@semantic", "6px,4px"),
    ]
    assert [a["text"] for a in first.layout["annotations"]] == ["positions", "words"] and len(second.data) == 2
    np.testing.assert_allclose(first.data[1]["y"][:4], study.tables["turning", None]["shares"][:4], rtol=1e-3)
    share, other = both.point("n50", "turning").value, both.point("n50", "turning", "words").value
    head = f"Half of the variance of `turning`'s positions lies in {share:.1f}\u202f% of the components (2)"
    assert figure.title == f"{head}, half of its words' in {other:.1f}\u202f%"
    assert {row[1].text for row in figure.table.rows} == {"positions", "words"}


def test_score_maps_show_14_components_and_all(study):
    short, long = score_maps(study, FEW_SCORES), score_maps(study, ALL_SCORES)
    (trace,) = short.panels[0].data
    scores = study.tables["turning", None]["scores"]
    assert np.array(trace["z"]).shape == (12, 96) and trace["zmin"] == -trace["zmax"]
    np.testing.assert_allclose(trace["z"], scores.T, atol=1e-3 * np.abs(scores).max())
    turns = {m: [r.value for r in study.of("fft.turns", m)] for m in ("turning", "noise")}
    slow = [f"{sum(v <= n / 20 for v in turns[m])} of the first {len(turns[m])} in `{m}`" for m, n in (("turning", 96), ("noise", 50))]
    assert short.title.endswith(": " + ", ".join(slow))
    assert long.title == "Scores of all components"  # noise does not fade
    assert score_maps(study_of(turning=circles(noise=0.001)), ALL_SCORES).title == "Beyond the first components the scores fade"


def test_rotations_are_drawn_and_listed(study):
    assert [(part, turns) for part, turns, _, _ in rotating(study, "turning")] == [("1+2", 3), ("3+4", 7)] and rotating(
        study, "noise"
    ) == []
    figure = rotation_maps(study)
    assert figure.title == "Pairs of components that turn together: 2 pairs in `turning` (3.0, 7.0 turns)"
    assert [p.title for p in figure.panels] == ["turning, 1+2", "turning, 3+4"] and figure.panels[1].note.startswith("7.0 turns, ")
    scores = study.tables["turning", None]["scores"]
    np.testing.assert_allclose(figure.panels[1].data[0]["x"], scores[:, 2], atol=1e-5)
    np.testing.assert_allclose(figure.panels[1].data[0]["y"], scores[:, 3], atol=1e-5)
    assert rotation_maps(study_of(noise=noise())) is None


def test_summed_magnitudes_name_their_peaks(study):
    figure = summed_magnitudes(study)
    assert figure.title == "Dominant frequencies, in turns over the table: 3, 7 in `turning`; none in `noise`"
    trace, layout = figure.panels[0].data[0], figure.panels[0].layout
    assert [a["text"] for a in layout["annotations"]] == ["3", "7"]
    assert trace["x"][2] == pytest.approx(3 / 96, abs=1e-5) and max(trace["y"]) == trace["y"][2] == 1
    assert layout["yaxis"]["type"] == "log"


def test_magnitudes_of_components_are_drawn_up_to_the_turns_that_count(study):
    figure = magnitude_maps(study)
    z = np.array(figure.panels[0].data[0]["z"])
    assert z.shape == (10, 16) and z[:4].argmax(1).tolist() == [2, 2, 6, 6] and z.max() == 1
    assert figure.title.startswith("The first five components turn most strongly 3, 3, 7, 7, ")


def test_equivariance_stands_beside_its_null_and_its_first_components(study):
    figure = equivariances(study)
    assert figure.title.startswith("Inner products of positions depend on distance in `turning` (")
    assert "do not depend on it in `noise`" in figure.title
    points = [t for t in figure.panels[0].data if t["hoverinfo"] == "text" and t["mode"] == "markers"]
    assert [t["x"][0] for t in points] == [study.point("equivariance", m).value for m in ("turning", "noise")]
    assert [t["x"] for t in figure.panels[1].data] == [[1, 2, 3, 5, 10], [1, 2, 3, 5]]
    assert len(equivariances(study_of(**{f"m{i}": noise(20 + i) for i in range(7)})).panels) == 1


def test_pictures_of_the_inner_products(study):
    figure = products(study)
    assert [p.title for p in figure.panels] == [f"turning, {k}" for k in ("2 components", "5 components", "10 components", "all")] + [
        f"noise, {k}" for k in ("2 components", "5 components", "all")
    ]
    table = circles()
    np.testing.assert_allclose(figure.panels[3].data[0]["z"], table @ table.T, atol=1e-3)
    assert figure.panels[0].data[0]["zmax"] == figure.panels[3].data[0]["zmax"]  # shared within a table
    many = products(study_of(**{f"m{i}": noise(20 + i) for i in range(7)}))
    assert len(many.panels) == 7


@pytest.mark.parametrize("shape", [(2, 1), (3, 5), (5, 2), (9, 1), (300, 3)])
def test_odd_shapes_are_drawn(shape):
    study = study_of(odd=np.random.default_rng(0).normal(size=shape))
    figures = [shares(study, {}), score_maps(study, FEW_SCORES), score_maps(study, ALL_SCORES)]
    figures += [summed_magnitudes(study), magnitude_maps(study), equivariances(study), products(study)]
    assert all(f.panels and f.table.rows for f in figures)


def test_no_tables_no_figures():
    empty = Study("s")
    assert shares(empty, {}) is score_maps(empty, 14) is rotation_maps(empty) is summed_magnitudes(empty) is magnitude_maps(empty) is None
    assert equivariances(empty) is products(empty) is None
