"""The change of states under shifted positions: a line a stream, recorded numbers only, nothing where nothing was recorded."""

import pytest

from whatwhere.report.load import load_study
from whatwhere.report.shift_figures import shifts


def test_without_records_there_is_no_figure(demo):
    assert shifts(load_study(demo)) is None


@pytest.mark.parametrize("models", [("split", "ap", "rope"), ("dstg", "split")])
def test_streams_and_one_stream_models_have_a_line_each(build, models):
    study = load_study(build(models=models, shifts=True))
    figure = shifts(study)
    labels = {note["text"] for note in figure.panels[0].layout["annotations"]}
    two = [m for m in models if m in ("dstg", "split")]
    assert labels == {f"{m} {p}" for m in two for p in ("position", "semantic")} | {m for m in models if m not in two}
    assert figure.title.startswith("When positions shift, the semantic stream moves in `")
    assert "100 documents" in figure.subtitle and "interval over documents" in figure.subtitle


def test_drawn_numbers_are_recorded(build):
    study = load_study(build(models=("split", "ap", "rope"), shifts=True))
    known = {v for r in study.records if r.metric == "shift.change" for v in (r.value, r.low, r.high)}
    figure = shifts(study)
    assert {v for trace in figure.panels[0].data for v in trace["y"]} <= known
    assert {row[4].raw for row in figure.table.rows} <= known and len(figure.table.rows) == 4 * 5
    assert shifts(load_study(build("none", models=("rope",), shifts=True))).title.startswith("When positions shift, the last layer hardly")


def test_hidden_as_a_whole_is_left_to_the_table_of_records_where_streams_are_known(build):
    figure = shifts(load_study(build(models=("split",), shifts=True)))
    assert {row[1].text for row in figure.table.rows} == {"position stream", "semantic stream"}
