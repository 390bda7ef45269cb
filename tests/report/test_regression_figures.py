"""Regressions onto the streams of dstg: findings by intervals, recorded numbers only, nothing without records."""

import pytest

from whatwhere.points import Point
from whatwhere.records import Record
from whatwhere.report.load import Study
from whatwhere.report.regression_figures import figures, predicted

LAYERS = 4


def made_up(values, streams=("position", "semantic"), half=0.02, seeds=(0,), more=()):
    """A study in which each baseline has R² `values[name]` for the position stream in every layer, and 0.5 for the semantic one."""
    entries = [{"name": m, "config": {"num_hidden_layers": LAYERS, "position_size": 8 if m == "dstg" else 0}} for m in ("dstg", *values)]
    records = [
        Record("s", m, f"regression.{stream}", v, v - half, v + half, seed=seed, layer=layer, part="dstg", n=200)
        for m, position in values.items()
        for stream in streams
        for seed in seeds
        for layer in range(LAYERS + 1)
        for v in [(position if stream == "position" else 0.5) + 0.001 * layer + 0.01 * seed]
    ]
    return Study("s", {"models": entries}, [*records, *more])


def numbers(study):
    return {v for r in study.records for v in (r.value, r.low, r.high)}


def test_without_records_there_is_no_figure():
    assert figures(Study("s")) == []
    assert figures(made_up({"ap": 0.8}, streams=())) == []


def test_the_title_follows_the_records():
    def title(**values):
        return figures(made_up(values))[0].title

    only = title(ap=0.8, rp=0.1, rope=0.05)
    assert only == "Only `ap` predicts the position stream of `dstg`: R² 0.80, the others at most 0.10; semantic stream 0.50"
    assert title(ap=0.1, rp=0.8, rope=0.05).startswith("Only `rp` predicts")
    assert title(ap=0.1, rp=0.05).startswith("No baseline predicts the position stream of `dstg`: R² at most 0.10")
    assert title(ap=0.8, rp=0.7).startswith("Both baselines predict the position stream of `dstg`: R² 0.70 to 0.80")
    assert title(ap=0.8, rp=0.7, rope=0.0).startswith("`ap` and `rp` predict the position stream of `dstg`: R² 0.70 to 0.80, `rope` 0.00")
    assert title(ap=0.8, rp=0.25) == "Not separable whether `rp` (0.25) predicts the position stream of `dstg`; the others: R² 0.80"


def test_an_interval_that_holds_the_threshold_is_not_separable():
    wide, narrow = Point.between(0.3, 0.2, 0.4), Point.between(0.3, 0.28, 0.32)
    assert predicted("dstg", {"ap": wide}, {}).startswith("Not separable whether `ap` (0.30)")
    assert predicted("dstg", {"ap": narrow}, {}) == "`ap` predicts the position stream of `dstg`: R² 0.30"


def test_a_reference_on_the_unigram_plateau_supports_no_finding():
    place = {"study": "s", "metric": "loss", "part": "validation", "seed": 0}
    more = [Record("s", "", "loss.unigram", 6.0), Record(model="dstg", value=6.0, **place), Record(model="ap", value=4.0, **place)]
    title = figures(made_up({"ap": 0.8, "rp": 0.1}, more=more))[0].title
    assert title.startswith("Not testable, `dstg` has learned token frequencies only: R² 0.80")


def test_drawn_numbers_are_recorded_and_every_one_is_in_the_table():
    study = made_up({"ap": 0.8, "rp": 0.1})
    figure = figures(study)[0]
    assert [p.title for p in figure.panels] == ["Onto the position stream", "Onto the semantic stream"]
    assert {v for p in figure.panels for t in p.data for v in t["y"]} <= numbers(study)
    cells = {c.raw for row in figure.table.rows for c in row[3:6]}
    assert cells == numbers(study) and len(figure.table.rows) == 2 * 2 * (LAYERS + 1)
    assert "n = 200 documents" in figure.subtitle and "over document splits" in figure.subtitle
    assert figure.records[0].startswith("regression.position: ")
    colours = [{t["line"]["color"] for t in p.data if t.get("mode") == "lines"} for p in figure.panels]
    assert colours == [{"@absolute"}, {"@semantic"}]


def test_the_layer_without_gradient_is_hollow_and_supports_nothing():
    study = made_up({"ap": 0.1, "rp": 0.1})
    study.records.append(Record("s", "ap", "regression.position", 0.9, 0.89, 0.91, seed=1, layer=LAYERS, part="dstg", n=200))
    figure = figures(study)[0]
    assert figure.title.startswith("No baseline predicts") and ("untrained", "no gradient reaches it") in figure.key
    assert sum("no gradient" in row[1].text for row in figure.table.rows) == 2


def test_chance_is_drawn_dashed_where_it_was_measured():
    place = {"study": "s", "seed": 0, "part": "dstg"}
    chance = [Record(model="ap", metric="regression.position.chance", value=-0.02, layer=i, **place) for i in range(LAYERS + 1)]
    dashed = [t for t in figures(made_up({"ap": 0.8}, more=chance))[0].panels[0].data if t.get("line", {}).get("color") == "@muted"]
    assert len(dashed) == 1 and set(dashed[0]["y"]) == {-0.02}
    assert not [t for t in figures(made_up({"ap": 0.8}))[0].panels[0].data if t.get("line", {}).get("color") == "@muted"]


def test_the_reference_itself_is_no_baseline():
    figure = figures(made_up({"dstg": 1.0, "ap": 0.1}))[0]
    assert figure.title.startswith("No baseline predicts") and {row[0].text for row in figure.table.rows} == {"ap"}


def test_seeds_are_averaged_with_their_interval():
    figure = figures(made_up({"ap": 0.8}, seeds=(0, 1, 2)))[0]
    assert "mean over 3 training seeds" in figure.subtitle
    assert figure.table.rows[0][3].raw == pytest.approx(0.81) and figure.table.rows[0][4].raw < 0.8


def test_many_baselines_stand_in_panels_of_families():
    panels = figures(made_up({f"m{i}": 0.1 for i in range(12)}))[0].panels
    assert len(panels) > 2 and all(len(p.layout["annotations"]) <= 8 for p in panels)
