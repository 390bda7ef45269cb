"""Which lines share a panel where models are many, and how they are told apart."""

from whatwhere.papers import DSTG_R2
from whatwhere.report.layer_panels import MOST_LINES, groups, many, styles
from whatwhere.report.load import Study, load_study
from whatwhere.report.probe_figures import hero, targets
from whatwhere.report.schemes import family
from whatwhere.report.shift_figures import shifts
from whatwhere.report.table_figures import figures
from whatwhere.report.training_figures import losses


def test_every_line_stands_in_one_panel(everything):
    study = load_study(everything)
    lines = [(m, p) for m in study.models for p in study.parts("r2.token", m)]
    found = groups(study, lines)
    assert sorted(line for g in found for line in g.lines) == sorted(lines)
    assert [g.title for g in found][:3] == ["Position streams", "Semantic streams", "Both streams together"]
    assert all(len({family(study, m) for m, _ in g.lines}) == 1 for g in found)
    assert groups(study, lines[:0]) == []


def test_a_panel_holds_few_lines():
    names = [f"own-{i}" for i in range(25)]
    study = Study("s", {"models": [{"name": n, "config": {"absolute": "learned"}} for n in names]})
    found = groups(study, [(n, "all") for n in names])
    assert [len(g.lines) for g in found] == [7, 7, 7, 4] and max(len(g.lines) for g in found) <= MOST_LINES
    assert found[0].title == "Positions added to words (1 of 4)"


def test_models_of_a_family_have_marks_of_their_own(everything):
    study = load_study(everything)
    marks = styles(study)
    kinds = {m: family(study, m) for m in study.models}
    assert len({(kinds[m], *marks[m]) for m in study.models}) == len(study.models)
    assert many(study) and marks["dstg"] == ("solid", "circle")


def test_many_models_are_named_in_every_panel_once(everything):
    study = load_study(everything)
    for figure in (hero(study, DSTG_R2), *targets(study, DSTG_R2), shifts(study), losses(study)):
        assert 4 <= len(figure.panels) <= 6 and figure.even
        for panel in figure.panels:
            labels = [note["text"] for note in panel.layout["annotations"]]
            assert 1 <= len(labels) == len(set(labels)) <= MOST_LINES
    titles = [p.title for p in hero(study, {}).panels]
    assert titles == ["Separate streams", "Untied positions", "Positions added to words", "Distances or nothing"]


def test_few_models_share_a_plot_where_the_papers_markers_are_named(demo):
    notes = [n["text"] for n in hero(load_study(demo), DSTG_R2).panels[0].layout["annotations"]]
    assert sorted(notes[-5:]) == ["ap", "dstg", "dstg", "rope", "rp"]


def test_tables_of_every_kind_are_drawn(everything):
    drawn = {f.id: f for f in figures(load_study(everything))}
    notes = {p.title: p.note for p in drawn["table-frequencies"].panels}
    assert notes["sinusoidal"] == "added, fixed, not learned" and notes["tupe-r"] == "untied"
    assert [p.title for p in drawn["table-spectrum"].panels] == ["Position streams", "Untied positions", "Positions added to words"]
    assert "Fixed, not learned: `sinusoidal`." in drawn["table-spectrum"].subtitle
