"""Figures of the position tables: which seed is drawn, what is named, and tables of odd shapes."""

from dataclasses import replace

import numpy as np
import pytest

from whatwhere.report.load import load_study
from whatwhere.report.table_figures import figures, frequencies, spectrum, table_map


def test_every_sixteenth_position_is_named_and_all_are_joined(demo):
    panel = table_map(load_study(demo)).panels[0]
    assert [note["text"] for note in panel.layout["annotations"]] == [str(i) for i in range(0, 128, 16)]
    assert [len(t["x"]) for t in panel.data] == [128, 128] and panel.layout["yaxis"]["scaleanchor"] == "x"


def test_positions_that_stand_alone_are_ringed_and_named(demo):
    study = load_study(demo)
    arrays = study.tables["dstg", 0] | {"outliers": np.array([0.0, 127.0])}
    figure = table_map(replace(study, tables={("dstg", 0): arrays}))
    panel = figure.panels[0]
    assert [t["text"] for t in panel.layout["annotations"]] == [*(str(i) for i in range(0, 128, 16)), "127"]
    assert panel.data[2]["x"] == [panel.data[0]["x"][0], panel.data[0]["x"][127]] and panel.data[2]["marker"]["symbol"] == "circle-open"
    assert "those that stand alone ringed" in figure.subtitle
    assert "ringed" not in table_map(study).subtitle


def test_a_table_that_no_training_of_ours_made_names_no_seed(demo):
    study = load_study(demo)
    records = [replace(r, seed=None, model="mine") for r in study.records if r.model == "dstg" and r.metric.startswith(("pca", "dct"))]
    mine = replace(study, facts={}, claims=[], records=records, tables={("mine", None): study.tables["dstg", 0]})
    found = figures(mine)
    assert len(found) == 3 and not any("seed" in f.subtitle for f in found)
    assert found[0].table.rows[0][1].text == "–"


def test_the_lowest_seed_is_drawn_and_said(build):
    study = load_study(build(seeds=(3, 5), models=("dstg",)))
    figure = table_map(study)
    assert "seed 3 of 2 training seeds" in figure.subtitle
    assert figure.panels[0].data[0]["x"] == [round(float(v), 5) for v in study.tables["dstg", 3]["scores"][:, 0]]


def test_shares_are_means_over_seeds(build):
    study = load_study(build(seeds=(0, 1), models=("ap",)))
    mean = np.mean([study.tables["ap", s]["shares"] for s in (0, 1)], axis=0)
    assert [row[3].raw for row in spectrum(study).table.rows] == pytest.approx(list(mean))


def test_titles_carry_the_recorded_shares(demo):
    study = load_study(demo)
    top2 = study.point("pca.top2", "dstg").value
    assert f"{100 * top2:.1f}\u202f%" in table_map(study).title and "94.1\u202f% in `dstg`" in table_map(study).subtitle
    assert "2 of 8 components in `dstg`" in spectrum(study).title
    assert frequencies(study).title.startswith("The first two components of `dstg`'s table are slow waves")


def test_spectrum_without_arrays_reads_the_records(demo):
    figure = spectrum(replace(load_study(demo), tables={}))
    assert {row[0].text for row in figure.table.rows} == {"dstg", "ap"}


@pytest.mark.parametrize("shape", [(3, 1), (5, 2), (1, 3)])
def test_small_tables_do_not_break_the_page(demo, shape):
    n, k = shape
    arrays = {"scores": np.zeros(shape), "shares": np.full(k, 1 / k), "dct_power": np.full((k, n), 1 / n)}
    study = replace(load_study(demo), tables={("ap", 0): arrays})
    assert all(f.panels for f in figures(study))


def test_no_tables_no_figures(build):
    assert figures(load_study(build(models=("rope", "rp")))) == []
