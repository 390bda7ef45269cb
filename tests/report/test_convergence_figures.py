"""How early models reach each other's final losses: dots, "never", TUPE's 30 % hollow, titles by the records."""

import pytest

from whatwhere.records import Record
from whatwhere.report.convergence_figures import figures
from whatwhere.report.load import Study


def made_up(shares, models, seeds=1):
    """(model, baseline) -> share of each seed, None where it is never reached."""
    records = []
    for (model, baseline), values in shares.items():
        for seed, v in enumerate(values):
            place = {"study": "s", "model": model, "part": baseline, "seed": seed, "n": 10}
            records.append(Record(metric="convergence.reached", value=float(v is not None), **place))
            records += [Record(metric="convergence.share", value=v, **place)] if v is not None else []
    return Study("s", {"models": [{"name": m, "config": {"preset": m}} for m in models]}, records)


TWO = {("rope", "ap"): [0.4], ("ap", "rope"): [None]}
TUPE = {("tupe-a", "bert-a"): [0.45], ("bert-a", "tupe-a"): [None], ("tupe-r", "bert-a"): [0.1]}
BERTS = ("tupe-a", "tupe-r", "bert-a")


def test_without_records_there_is_no_figure():
    assert figures(Study("s")) == [] and figures(made_up({}, ("ap", "rope"))) == []


def test_the_title_follows_the_records():
    def title(shares, models=("ap", "rope", "rp")):
        return figures(made_up(shares, models))[0].title

    assert title(TWO) == "`rope` reaches the final loss of `ap` after 40\u202f% of its steps (one seed)"
    assert title({("ap", "rope"): [0.7], ("rope", "ap"): [None]}).startswith("`ap` reaches the final loss of `rope` after 70")
    assert title({("ap", "rope"): [None], ("rope", "ap"): [None]}) == "No model reaches the final loss of another before its own end"
    three = title({("rope", "ap"): [0.2], ("rope", "rp"): [0.1], ("ap", "rp"): [0.05]})
    assert three == "`rope` reaches the final loss of `rp` after 10\u202f%, of `ap` after 20\u202f% of its steps (one seed)"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.45], "after 45\u202f% of its steps (one seed; TUPE: 30\u202f%)"),
        ([None], "`tupe-a` never reaches the final loss of `bert-a` (TUPE: 30\u202f%)"),
        ([0.4, None, 0.42], "in 2 of 3 seeds (TUPE: 30\u202f%)"),
        ([0.60, 0.61, 0.62], "later than TUPE's 30\u202f%"),
        ([0.10, 0.11, 0.12], "sooner than TUPE's 30\u202f%"),
        ([0.1, 0.3, 0.5], "not separable from TUPE's 30\u202f%"),
    ],
)
def test_tupe_against_bert_is_told_beside_the_paper(values, said):
    study = made_up(TUPE | {("tupe-a", "bert-a"): values}, BERTS)
    assert said in figures(study)[0].title


def test_the_papers_own_pair_is_told_first_even_if_another_is_faster():
    assert figures(made_up(TUPE, BERTS))[0].title.startswith("`tupe-a` reaches the final loss of `bert-a` after 45")


def hollow(figure):
    return [t for p in figure.panels for t in p.data if t.get("marker", {}).get("symbol") == "circle-open"]


def test_the_papers_share_is_hollow_where_a_tupe_model_meets_a_bert_baseline():
    figure = figures(made_up(TUPE, BERTS))[0]
    assert [t["x"] for t in hollow(figure)] == [[0.3], [0.3]] and ("paper", "TUPE: 30\u202f%") in figure.key
    other = figures(made_up(TWO, ("ap", "rope")))[0]
    assert hollow(other) == [] and "paper" not in [k for k, _ in other.key]


def test_drawn_numbers_are_recorded_and_never_is_written():
    study = made_up(TWO, ("ap", "rope"))
    figure = figures(study)[0]
    assert [p.title for p in figure.panels] == ["Final loss of ap", "Final loss of rope"]
    drawn = [x for p in figure.panels for t in p.data if t["mode"] == "markers" for x in t["x"]]
    assert drawn == [0.4] and [n["text"] for p in figure.panels for n in p.layout["annotations"]] == ["40\u202f%", "never"]
    rows = sorted([c.text for c in row[:3]] for row in figure.table.rows)
    assert rows == [["ap", "rope", "never"], ["rope", "ap", "40.0\u202f%"]]


def test_seeds_have_an_interval_and_those_that_never_arrive_are_counted():
    figure = figures(made_up({("rope", "ap"): [0.4, 0.5, None]}, ("ap", "rope")))[0]
    bars = [t["error_x"] for p in figure.panels for t in p.data if "error_x" in t]
    assert len(bars) == 1 and bars[0]["array"][0] > 0
    assert figure.panels[0].layout["annotations"][0]["text"] == "45\u202f% (2/3)"
    assert [c.raw for c in figure.table.rows[0][5:7]] == [2, 3]
    assert "not in every seed" in figure.title


def test_many_models_stand_in_one_map_with_empty_cells():
    models = tuple(f"m{i}" for i in range(8))
    shares = {(a, b): [0.1 + 0.05 * i if i < j else None] for i, a in enumerate(models) for j, b in enumerate(models) if a != b}
    (figure,) = figures(made_up(shares, models))
    (panel,) = figure.panels
    z = panel.data[0]["z"]
    assert len(z) == 8 and sum(v is not None for row in z for v in row) == 28
    assert panel.data[0]["text"][7][0].endswith("never") and panel.data[0]["text"][0][1].endswith("10\u202f%")
    assert len(figure.table.rows) == 56
