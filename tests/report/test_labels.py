"""What a figure says of its numbers: the quantity, its unit, the seed that is drawn, the model that it belongs to."""

from dataclasses import replace

import numpy as np
import pytest

from whatwhere.records.record import Record
from whatwhere.records.table import Point
from whatwhere.report import schemes
from whatwhere.report.figures import attention_maps, buys, corpus, hidden_states, shape
from whatwhere.report.forms.axes import Axis
from whatwhere.report.forms.curves import ASIDE, Curves, Line
from whatwhere.report.forms.form import hover
from whatwhere.report.loaded_run import CORPUS, Corpus, Run, load_run


def study(*models: tuple[str, dict[str, object]], **more: object) -> Run:
    """A run of models with these configurations."""
    facts = {"models": [{"name": name, "config": config} for name, config in models]}
    return Run("s", facts, **more)


def heads(figure) -> list[str]:
    return list(figure.table.columns)


def test_noise_of_a_low_rank_table_has_its_rank():
    """A table of rank 8 was held against noise of full rank, whose two components hold 6 %, not 38 %."""
    shape_of = {"absolute": "low_rank", "table_rank": 8, "hidden_size": 128, "max_position_embeddings": 128}
    records = [Record("s", "low-rank", "pca.top2", 0.34, seed=0, n=128)]
    run = study(("low-rank", shape_of), ("ap", shape_of | {"absolute": "learned", "table_rank": None}), records=records)
    assert schemes.two_components_of_noise(run, "low-rank", 128) == pytest.approx(0.38, abs=0.01)
    assert schemes.two_components_of_noise(run, "ap", 128) == pytest.approx(0.059, abs=0.002)
    mapped = study(("mapped", {"absolute": "learned", "table_width": 8, "hidden_size": 128}))
    assert schemes.two_components_of_noise(mapped, "mapped", 128) == pytest.approx(0.38, abs=0.01)
    tables = {("low-rank", 0): {"scores": np.zeros((128, 3))}}
    title = shape.table_map(replace(run, tables=tables)).title
    told = "34\u202f% (128 columns of rank 8; white noise of that shape: 38\u202f%)"
    assert title == f"Share of two components of the table: `low-rank` {told}"


def test_a_map_has_the_shares_of_its_seed(build):
    """The axes of the map of seed 0 had the shares of variance averaged over all seeds."""
    run = load_run(build(models=("ap",), seeds=(0, 1, 2)))
    mean, first = (run.table.point("pca.share", "ap", index=0, seed=seed).value for seed in ((0, 1, 2), 0))
    layout = shape.table_map(run).panels[0].layout
    assert f"{100 * mean:.1f}" != f"{100 * first:.1f}"
    assert layout["xaxis"]["title"]["text"] == f"component 1 ({100 * first:.1f}\u202f%)"


def test_frequencies_name_the_seed_that_they_draw(build):
    """The title had the mean of three seeds over lines of seed 0, and nothing said which seed was drawn."""
    run = load_run(build(models=("ap", "dstg"), seeds=(0, 1, 2)))
    figure = shape.frequencies(run)
    powers = {m: run.table.point("dct.low4", m, index=0, seed=0).value for m in ("ap", "dstg")}
    assert all(f"`{m}` {100 * v:.1f}" in figure.title for m, v in powers.items()), figure.title
    assert figure.subtitle.endswith("Drawn: seed 0 of 3 training seeds.")


def test_columns_name_the_quantity_that_they_hold(build):
    """Columns were headed by the metric of the first record: eigenvalues as shares, cumulative power as the power of
    four frequencies, weights at all distances as weights nearby."""
    one = Corpus("c", CORPUS, arrays={"eigenvalues": np.array([1.28, 0.5, 0.1])})
    assert "Eigenvalue" in heads(corpus.spectrum(Run("s", measured=[one])))
    run = load_run(build(models=("ap",)))
    assert "Cumulative power" in heads(shape.frequencies(run))
    arrays = {"attention-ap-seed-0": {"profile.total": np.full((2, 1, 3), 0.3), "lags": np.array([-1.0, 0.0, 1.0])}}
    assert "Mean weight" in heads(attention_maps.profile(replace(run, arrays=arrays)))


def test_hovers_of_shares_have_one_unit():
    """A hover mixed per cent and shares: 52 % [0.453, 0.582]."""
    axis = Axis("share", "share", (0, 1))
    assert hover("m", "layer 1", Point.between(0.52, 0.453, 0.582), axis).endswith("52\u202f% [45.3, 58.2]")
    assert hover("m", "layer 1", Point.between(0.52, 0.453, 0.582), Axis("R²", "r2")).endswith("0.520 [0.453, 0.582]")


def test_table_steps_have_model_colours_and_no_interval():
    """All models had one colour, and quantiles of the distances of pairs were keyed as a 95 % interval."""
    records = [
        Record("s", model, metric, value + step, seed=0, step=step, index=index)
        for model in ("ap", "dstg")
        for step in (0, 5)
        for metric, value, index in (
            ("separation", 1.0, None),
            ("separation.quantile", 2.0, 5),
            ("separation.quantile", 3.0, 50),
            ("separation.quantile", 4.0, 95),
        )
    ]
    figure = shape.separation(study(("ap", {}), ("dstg", {}), records=records))
    solid = [t["line"]["color"] for t in figure.panels[0].data if t["mode"] == "lines"]
    assert len(set(solid)) == 2
    assert not any("interval" in words for _, words in figure.key)
    assert {row[-3].raw for row in figure.table.rows} >= {2.0, 3.0, 4.0} and not any(
        "error_y" in t for p in figure.panels for t in p.data
    )


def test_segments_count_from_one_everywhere():
    """The table behind a document's map counted segments from 0, its hovers and the plot from 1."""
    scores = np.random.default_rng(0).normal(size=(1, 2, 4, 2))
    arrays = {"scores.all": scores, "segments": np.array([[-1.0, 0.0, 0.0, 1.0]])}
    records = [Record("s", "ap", "loss", 3.0, seed=0, part="validation")]
    run = study(("ap", {"num_hidden_layers": 1}), records=records, arrays={"hidden-ap-seed-0": arrays})
    (figure,) = hidden_states._documents(run)
    assert [row[4].text for row in figure.table.rows[:4]] == ["special", "1", "1", "2"]
    hovers = [text for t in figure.panels[0].data for text in t.get("hovertext", ())]
    assert "token 1, segment 1" in hovers and "token 3, segment 2" in hovers


def test_variance_figure_names_shares_and_r2():
    """An axis called R² held shares of the variance, and R² stood under "Variance between positions"."""
    records = [
        Record("s", "ap", metric, 0.5, seed=0, layer=layer, part="all")
        for metric in ("variance.position", "r2.token")
        for layer in (0, 1)
    ]
    figure = hidden_states.variance(study(("ap", {"num_hidden_layers": 1}), records=records))
    assert figure.panels[0].layout["yaxis"]["title"]["text"] == "share of variance, or R²"
    assert "Share of the variance between positions, or R² of position" in heads(figure)


def test_the_title_of_positions_takes_the_streams():
    """The title of the probe of position read the last state of dstg, which holds a position stream that no gradient
    reaches, and contradicted the first screen."""
    ends = {"all": (0.7, 0.898), "position": (0.896, 0.2)}
    records = [
        Record("s", "dstg", "r2.token", value, seed=0, layer=layer, part=part)
        for part, values in ends.items()
        for layer, value in enumerate(values, 1)
    ]
    config = {"num_hidden_layers": 2, "position_size": 8, "mlm_head": "semantic"}
    figures = [
        draw(study(("dstg", config | {"mlm_head": head}), records=records))
        for head in ("semantic", "full")
        for draw in (hidden_states.PROBES[0], hidden_states.position)
    ]
    told = [figure.title.partition(": ")[2] for figure in figures]
    assert told == ["`dstg` position 0.896", "`dstg` position 0.896", "`dstg` 0.898", "`dstg` position 0.200"]


def test_axes_end_where_lines_end():
    """Points that stand in the table alone stretched the axis: to 161 components, where lines end at 16."""

    @Curves("f", "Values", lambda run, lines: "", metric="loss", y=Axis("nats"), x=Axis("component"))
    def draw(run: Run):
        """Values of a model."""
        yield Line({1: Point.between(1.0), 16: Point.between(2.0)}, "m")
        yield Line({128: Point.between(3.0)}, "m", kind=ASIDE)

    figure = draw(Run("s"))
    assert figure.panels[0].layout["xaxis"]["range"][1] < 20 and len(figure.table.rows) == 3


def test_rows_with_a_remark_react_to_their_model():
    """Rows named "ap (2/3)" were no model that the switch of the page knows."""
    records = [
        Record("s", "ap", "convergence.reached", float(seed < 2), seed=seed, part="dstg") for seed in range(3)
    ] + [Record("s", "ap", "convergence.share", 0.5, seed=seed, part="dstg") for seed in range(2)]
    figure = buys.convergence_rows(study(("ap", {}), ("dstg", {}), records=records))
    assert {name for t in figure.panels[0].data for name in t.get("meta", ())} >= {"ap"}
    assert figure.panels[0].layout["yaxis"]["ticktext"] == ["ap (2/3)"]
    assert figure.table.rows[0][1].text == "ap (2/3)" and "`ap` to the" in figure.title


def test_projected_stress_counts_positions():
    """The figure of the stress behind M counted its 126 positions as documents."""
    records = [
        Record("s", "ap", "projected.stress.optimal", 0.5, seed=0, layer=layer, part="sinusoidal", n=126)
        for layer in (0, 1)
    ]
    assert "n = 126 positions" in shape.projected(study(("ap", {}), records=records)).subtitle
