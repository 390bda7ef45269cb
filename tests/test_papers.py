"""The paper's printed values: count, layers, and single cells read off Tables 2-4."""

from whatwhere.papers import DSTG_LAYERS, DSTG_R2, DSTG_TABLES


def test_every_cell_of_tables_2_to_4_is_there():
    values = DSTG_R2
    assert len(values) == 3 * (6 * 6 - 2)  # "-" twice in each table
    assert all(0 < v < 1 for v in values.values()) and all(0 < v < 1 for v in DSTG_TABLES.values())


def test_layers_are_ours_counted_from_the_embedding():
    values = DSTG_R2
    assert {layer for *_, layer in values} == set(range(1, DSTG_LAYERS + 1))
    assert ("r2.token", "dstg", "position", 6) not in values and ("r2.token", "dstg", "all", 6) not in values


def test_cells_that_claims_rest_on():
    values = DSTG_R2
    assert values["r2.token", "dstg", "position", 5] == 0.89
    assert values["r2.token", "ap", "all", 6] == 0.24
    assert max(v for (metric, model, *_), v in values.items() if (metric, model) == ("r2.token", "rope")) == 0.32
    assert max(v for (metric, model, *_), v in values.items() if (metric, model) == ("r2.token", "rp")) == 0.50
    assert values["r2.token", "dstg", "semantic", 1] == 0.44 and values["r2.token", "dstg", "semantic", 6] == 0.18
    assert values["r2.segment", "dstg", "position", 1] == 0.94 and values["r2.segment", "dstg", "position", 5] == 0.85
    assert values["r2.intra", "dstg", "semantic", 5] == 0.73 and values["r2.intra", "dstg", "position", 5] == 0.06


def test_relative_models_stay_below_absolute_ones_as_the_paper_says():
    values = DSTG_R2
    for layer in range(1, 6):
        ap = values["r2.token", "ap", "all", layer]
        assert max(values["r2.token", m, "all", layer] for m in ("rope", "rp")) < ap
