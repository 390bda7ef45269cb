"""The corpus of a study: figures of a geometry run under the study's ids, from its records and one array file."""

from dataclasses import replace

import numpy as np
import pytest
from geometry_run import make_run

from whatwhere.records import Record
from whatwhere.report.corpus_section import figures, geometry, tables
from whatwhere.report.geometry_load import load_geometry
from whatwhere.report.load import Study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study with the geometry of its corpus."""
    run = load_geometry(make_run(tmp_path_factory.mktemp("corpus") / "run", corpora=("reviews",), models=()))
    records = [replace(r, model="corpus") for r in run.records]
    return Study("s", {"corpus": {"name": "python-docs"}}, records, arrays={"geometry-corpus": run.corpora[0].arrays})


def test_without_records_and_arrays_there_is_nothing():
    for empty in (Study("s"), Study("s", records=[Record("s", "ap", "loss", 1.0)])):
        assert figures(empty) == [] and tables(empty) == [] and geometry(empty) is None


def test_a_model_that_is_called_corpus_is_a_model():
    assert geometry(Study("s", {"models": [{"name": "corpus"}]}, [Record("s", "corpus", "stress.raw", 0.1, part="rope")])) is None


def test_figures_have_ids_of_their_own_and_name_the_corpus(study):
    found = figures(study)
    assert [f.id for f in found] == ["corpus-matrix", "corpus-map", "corpus-stress"]
    assert all(f.table.id.startswith("corpus-") and f.records for f in found)
    assert all("`python-docs`" in f.title for f in found)
    assert found[0].subtitle.startswith("Positions count from the start of a document") and "all corpora" not in found[0].subtitle


def test_only_what_was_measured_appears(study):
    assert [f.id for f in figures(replace(study, arrays={}))] == ["corpus-stress"]
    assert [f.id for f in figures(replace(study, records=[]))] == ["corpus-matrix", "corpus-map"]
    assert tables(replace(study, records=[])) == []


def test_the_title_of_the_stress_flips_with_the_records(study):
    def lowest(of):
        low = [
            replace(r, value=1e-3, low=9e-4, high=1.1e-3) if r.metric == "stress.optimal.corrected" and r.part == of else r
            for r in study.records
        ]
        return figures(replace(study, records=low))[-1].title

    assert f"`python-docs` {'rope'} 0.001" in lowest("rope") and f"`python-docs` {'sinusoidal'} 0.001" in lowest("sinusoidal")


def test_drawn_stress_is_recorded_and_the_floor_of_noise_is_there(study):
    known = {v for r in study.records if r.metric.startswith("stress.") for v in (r.value,)}
    stress = figures(study)[-1]
    drawn = {x for p in stress.panels for t in p.data if t["mode"] == "markers" for x in t["x"]}
    assert len(drawn) > 8 and all(any(np.isclose(x, k) or x == pytest.approx(max(k, 1e-4)) for k in known) for x in drawn)
    assert any("half against half" in words for _, words in stress.key)


def test_the_table_of_fits_goes_from_best_to_worst(study):
    numbers, fits = tables(study)
    assert numbers.id == "corpus-numbers" and numbers.rows[0][0].text == "python-docs"
    best = [row[1].raw for row in fits.rows if isinstance(row[1].raw, float)][:-1]
    assert best == sorted(best) and fits.rows[-1][0].text.startswith("half against half")
    assert "corrected distances" in fits.caption
