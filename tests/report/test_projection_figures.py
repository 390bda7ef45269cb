"""Stress behind M by layer and tables over training: findings by intervals, the paper hollow, recorded numbers only."""

import pytest

from whatwhere.records import Record
from whatwhere.report.load import Study
from whatwhere.report.projection_figures import OVER_STEPS, PAPER, over_steps, projected


def made_up(behind, layers=2, seeds=(0,), models=("ap",), ending="", part="sinusoidal", step=None):
    """Stress 0.2 of the table itself and `behind` behind M, for each seed a little more."""
    records = []
    for m in models:
        for seed in seeds:
            for layer in range(layers + 1):
                for scale, factor in (("raw", 100.0), ("optimal", 1.0)):
                    v = factor * ((behind if layer else 0.2) + 0.001 * seed)
                    place = {"seed": seed, "layer": layer, "part": part, "step": step, "n": 60}
                    records.append(Record("s", m, f"projected.stress.{scale}{ending}", v, **place))
    return Study("s", {"models": [{"name": m, "config": {"num_hidden_layers": layers}} for m in models]}, records)


def both(*studies):
    return Study("s", studies[0].facts, [r for s in studies for r in s.records])


def values(figure):
    return {v for p in figure.panels for t in p.data if t.get("mode") != "lines" for v in t["y"]}


def test_without_records_there_is_no_figure():
    assert projected(Study("s")) is None and over_steps(Study("s")) is None


@pytest.mark.parametrize(
    ("behind", "seeds", "said"),
    [
        (0.3, (0, 1, 2), "Behind M, the sinusoidal table fits the corpus worse in 2 of 2 layers"),
        (0.1, (0, 1, 2), "Behind M, the sinusoidal table fits the corpus better in 2 of 2 layers"),
        (0.2, (0, 1, 2), "Not separable whether M moves the sinusoidal table away from the corpus"),
        (0.3, (0,), "The sinusoidal table: stress at the best scale 0.200 itself, 0.300 behind M (no intervals)"),
    ],
)
def test_the_title_follows_the_records(behind, seeds, said):
    assert projected(made_up(behind, seeds=seeds)).title.startswith(said)


def test_worse_in_some_and_better_in_other_layers_is_said():
    study = both(made_up(0.3, seeds=(0, 1), models=("ap", "rp")))
    flipped = [r if r.model == "ap" or not r.layer else Record(**{**r.__dict__, "value": r.value / 3}) for r in study.records]
    title = projected(Study("s", study.facts, flipped)).title
    assert title.startswith("Behind M, the sinusoidal table fits the corpus worse in 2, better in 2 of 4 layers")


def test_drawn_numbers_are_recorded_on_two_panels():
    study = made_up(0.3)
    figure = projected(study)
    assert [p.title for p in figure.panels] == ["Raw", "Best scale"]
    assert [p.layout["yaxis"].get("type") for p in figure.panels] == ["log", None]
    known = {r.value for r in study.records}
    assert values(figure) == known and {row[5].raw for row in figure.table.rows} == known
    assert figure.records[0].startswith("projected.stress.raw: ")


def test_corrected_distances_count_where_there_are_any():
    study = both(made_up(0.3), made_up(0.25, ending=".corrected"))
    figure = projected(study)
    assert values(figure) == {0.2, 0.25, 20.0, 25.0} and "without noise" in figure.subtitle
    assert figure.records[0].startswith("projected.stress.raw.corrected: ")


def test_one_matrix_for_all_blocks_stands_at_every_layer():
    records = [r for r in made_up(0.3, layers=1, part="own").records]
    study = Study("s", {"models": [{"name": "ap", "config": {"num_hidden_layers": 4}}]}, records)
    marks = next(t for t in projected(study).panels[1].data if t.get("hovertext"))
    assert marks["x"] == [0, 1, 2, 3, 4] and marks["y"] == [0.2, 0.3, 0.3, 0.3, 0.3]


def test_the_paper_is_hollow_beside_twelve_layers_and_in_words_beside_others():
    def hollow(figure):
        return [t for p in figure.panels for t in p.data if str(t.get("marker", {}).get("symbol")).endswith("-open")]

    twelve, two = projected(made_up(0.3, layers=12)), projected(made_up(0.3))
    assert [dict(zip(t["x"], t["y"], strict=True)) for t in hollow(twelve)] == [PAPER] and hollow(two) == []
    assert "Hollow: GEOM figure 8" in twelve.subtitle and "about 5,000 in layer 3" in two.subtitle


def test_the_untrained_model_is_dotted():
    study = both(made_up(0.3), made_up(0.9, step=0))
    dotted = [t for t in projected(study).panels[1].data if t.get("line", {}).get("dash") == "1px,3px"]
    assert [t["y"] for t in dotted] == [[0.2, 0.9, 0.9]]
    assert {row[0].text for row in projected(study).table.rows} == {"this run", "before training"}
    assert not [t for t in projected(made_up(0.3)).panels[1].data if t.get("line", {}).get("dash") == "1px,3px"]


def steps(seeds=(0,), part=None, last=0.4):
    records = [
        Record("s", "ap", metric, v + 0.01 * seed, seed=seed, step=step, part=part, n=60)
        for metric in OVER_STEPS[:2]
        for seed in seeds
        for step, v in ((0, 0.2), (10, 0.3), (100, last))
    ]
    return Study("s", {"models": [{"name": "ap"}]}, records)


def test_tables_over_training_are_told_from_first_to_last_step():
    figure = over_steps(steps())
    assert figure.title == "Smallest distance of two positions, first to last step: `ap` 0.200 → 0.400"
    assert over_steps(steps(last=0.1)).title.endswith("0.100")
    assert values(figure) == {0.2, 0.3, 0.4} and "one training seed, no interval" in figure.subtitle and "all of them" in figure.subtitle
    assert [p.title for p in figure.panels] == ["Smallest distance of two positions", "Triples out of order"]


def test_rows_of_the_corpus_come_before_all_rows_and_seeds_are_averaged():
    figure = over_steps(both(steps(), steps(part="corpus", last=0.7)))
    assert figure.title.endswith("0.700") and "the corpus's positions" in figure.subtitle
    several = over_steps(steps(seeds=(0, 1, 2)))
    assert "mean over 3 training seeds" in several.subtitle and several.table.rows[0][3].raw == pytest.approx(0.21)
    assert any("error_y" in t for p in several.panels for t in p.data)
