"""Probe figures: where the paper's layers stand, what is hollow, chance, and studies that lack models or parts."""

from dataclasses import replace

import pytest

from whatwhere.papers import DSTG_R2
from whatwhere.records import Record
from whatwhere.report.load import load_study
from whatwhere.report.probe_figures import between, chance_floor, components, hero, paper_curve, targets
from whatwhere.report.table_figures import figures


def names(figure):
    """Texts of the labels at line ends; the names of the paper's models stand left of their markers."""
    return [note["text"] for panel in figure.panels for note in panel.layout["annotations"] if note["xanchor"] == "left"]


def test_the_papers_last_layer_stands_over_ours(build):
    study = load_study(build(layers=4))
    curve = paper_curve(DSTG_R2, study, "r2.token", "ap", "all")
    assert list(curve) == pytest.approx([4 / 6 * k for k in range(1, 7)]) and curve[4.0] == (6, 0.24)


def test_six_layers_stand_layer_on_layer(build):
    curve = paper_curve(DSTG_R2, load_study(build(layers=6)), "r2.token", "dstg", "position")
    assert {x: v for x, (_, v) in curve.items()} == {1: 0.99, 2: 0.98, 3: 0.95, 4: 0.94, 5: 0.89}


def test_hero_names_every_line_once(demo):
    figure = hero(load_study(demo), DSTG_R2)
    assert sorted(names(figure)) == sorted(["dstg position", "dstg semantic", "ap", "rp", "rope", "chance"])
    assert "12,700 tokens" in figure.subtitle and "one training seed" in figure.subtitle and "same relative depth" in figure.subtitle
    assert [kind for kind, _ in figure.key] == ["measured", "paper", "untrained", "chance"]


def test_hero_draws_the_layer_without_gradient_hollow(demo):
    traces = hero(load_study(demo), {}).panels[0].data
    hollow = [
        (x, outline)
        for t in traces
        if isinstance(t.get("marker", {}).get("color"), list)
        for x, fill, outline in zip(t["x"], t["marker"]["color"], t["marker"]["line"]["color"], strict=True)
        if fill == "@surface"
    ]
    assert hollow == [(4.0, "@absolute")]


def test_chance_is_the_best_of_all_probes(demo):
    study = load_study(demo)
    floor = chance_floor(study, "r2.token")
    at_two = [r.value for r in study.records if r.metric == "r2.token.chance" and r.layer == 2]
    assert floor[2] == max(at_two) and list(floor) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("models", "lines"),
    [
        (("dstg",), ["dstg position", "dstg semantic"]),
        (("rope", "rp"), ["rope", "rp"]),
        (("dstg", "dstg-full-mlm", "ap"), ["dstg position", "dstg semantic", "ap"]),
        (("a-model-of-an-endless-name",), ["a-model-of-an-end…"]),
        (("dstg-of-an-endless-name",), ["dstg-of-… position", "dstg-of-… semantic"]),
    ],
)
def test_hero_of_other_sets_of_models(build, models, lines):
    figure = hero(load_study(build(models=models)), DSTG_R2)
    assert sorted(names(figure)) == sorted([*lines, "chance"])


def test_a_metric_that_was_not_measured_has_no_figure(demo):
    study = load_study(demo)
    only = replace(study, records=[r for r in study.records if not r.metric.startswith(("r2.segment", "r2.intra"))])
    assert [f.id for f in targets(only, {})] == ["probe-token"]
    none = replace(study, records=[r for r in study.records if not r.metric.startswith("r2.")])
    assert hero(none, {}) is None and targets(none, {}) == []


def test_panels_share_their_axes(demo):
    for figure in targets(load_study(demo), DSTG_R2):
        assert len({(tuple(p.layout["yaxis"]["range"]), tuple(p.layout["xaxis"]["range"]), p.layout["height"]) for p in figure.panels}) == 1
        assert [p.title for p in figure.panels] == ["dstg", "ap", "rp", "rope"]


def test_titles_of_the_three_targets_are_findings(demo):
    titles = [f.title for f in targets(load_study(demo), DSTG_R2)]
    assert titles[0].startswith("The semantic stream holds little position: R² up to 0.0")
    assert titles[1].startswith("The segment index stays in the position stream: R² 0.5")
    assert titles[2].startswith("Progress inside a segment is read from the semantic stream: R² 0.5")


def test_titles_of_untrained_models_are_no_findings(demo):
    study = load_study(demo)

    def stuck(model):
        records = [replace(r, value=6.42) if (r.metric, r.model) == ("loss", model) else r for r in study.records]
        untrained = replace(study, records=records)
        return [f.title for f in (hero(untrained, {}), *targets(untrained, {}), *figures(untrained))]

    assert all(t.startswith("Not testable, `dstg` has learned token frequencies only: ") for t in stuck("dstg"))
    assert stuck("ap")[0] == "Position stays in the position stream: R² 0.61 in layer 3"  # no comparison with an untrained model


def test_a_far_too_low_r2_stays_off_the_axis_and_is_said(demo):
    study = load_study(demo)
    low = [
        replace(r, value=-4.0, low=-4.1, high=-3.9) if (r.metric, r.model, r.layer) == ("r2.token", "rope", 2) else r for r in study.records
    ]
    figure = hero(replace(study, records=low), {})
    assert figure.panels[0].layout["yaxis"]["range"][0] == -0.3 and "are in the table only" in figure.subtitle


def test_the_table_holds_ours_and_the_papers_points(demo):
    table = hero(load_study(demo), DSTG_R2).table
    sources = [row[0].text for row in table.rows]
    assert sources.count("this run") == 5 * 5 and sources.count("paper") == 5 + 6 + 3 * 6
    assert sum("no gradient" in row[2].text for row in table.rows) == 1


def untrained(study, value):
    """The study with the probes of untrained models, all of them at `value`."""
    before = [
        replace(r, step=0, value=value + 0.001 * (r.index or 0), low=r.low and value - 0.01, high=r.high and value + 0.01)
        for r in study.records
        if r.metric in ("r2.token", "r2.segment", "r2.intra")
    ]
    return replace(study, records=study.records + before)


def dotted(panel):
    return [t for t in panel.data if t.get("line", {}).get("dash") == "1px,3px"]


def test_titles_say_how_far_above_the_untrained_model(demo):
    study = load_study(demo)
    assert hero(untrained(study, 0.1), {}).title.endswith("; 0.51 above the untrained model")
    assert hero(untrained(study, 0.9), {}).title.endswith("; 0.29 below the untrained model")
    same = study.curve("r2.token", "dstg", "position")[3].value
    assert hero(untrained(study, same), {}).title.endswith("; not separable from the untrained model's 0.61")
    assert "untrained" not in hero(study, {}).title
    token, segment, intra = targets(untrained(study, 0.2), {})
    assert token.title.startswith("The semantic stream holds little position") and token.title.endswith(" below the untrained model")
    assert segment.title.endswith(" above the untrained model") and intra.title.endswith(" above the untrained model")


def test_the_untrained_model_is_dotted_behind_each_line(demo):
    study = untrained(load_study(demo), 0.4)
    figure = targets(study, {})[0]
    assert [len(dotted(p)) for p in figure.panels] == [3, 1, 1, 1] and ("before", "the same model before training") in figure.key
    known = {r.value for r in study.records if r.step == 0}
    assert {v for p in figure.panels for t in dotted(p) for v in t["y"]} <= known
    assert sum(row[0].text == "before training" for row in figure.table.rows) == 6 * 5
    assert any("step = 0" in words for words in figure.records)
    assert not any(dotted(p) for p in targets(load_study(demo), {})[0].panels)


def first_components(study, shares):
    """The study with probes on the first k components: `shares[k]` of what all hold."""
    cut = [
        replace(r, part=f"{r.part}.pca{k}", value=r.value * s, low=r.low and r.low * s, high=r.high and r.high * s)
        for r in study.records
        if r.metric == "r2.token"
        for k, s in shares.items()
    ]
    return replace(study, records=study.records + cut)


def test_few_components_hold_position_or_do_not(demo):
    study = load_study(demo)

    def title(**shares):
        return components(first_components(study, {int(k[1:]): s for k, s in shares.items()})).title

    assert title(k2=0.97, k8=1.0).startswith("2 components hold position: R² 0.59 from 2, 0.61 from all, in layer 3 of `dstg`'s position")
    assert title(k2=0.5, k8=0.99).startswith("8 components hold position: R² 0.60 from 8")
    assert title(k2=0.1, k8=0.5).startswith("8 components do not hold position: R² 0.31 from 8")
    assert title(k2=0.9, k8=0.9).startswith("Not separable how many components hold position")
    assert title(k2=0.5, k8=0.99).endswith("; `ap` 0.39 from 8, 0.39 from all")
    assert components(study) is None


def test_components_draw_recorded_numbers_where_position_is_held(demo):
    study = first_components(load_study(demo), {2: 0.7, 8: 0.99})
    figure = components(study)
    assert [(p.title, p.note) for p in figure.panels] == [("dstg", "position stream"), ("ap", "")]
    known = {p.value for p in study.table.points("r2.token", by=("model", "part", "layer")).values()}
    assert {v for p in figure.panels for t in p.data for v in t["y"]} <= known
    assert {note["text"] for note in figure.panels[0].layout["annotations"]} == {"2", "8", "all"}
    assert len(figure.table.rows) == 5 * 3 * 5  # two streams and three models, three numbers of components, five layers
    assert "the table has the others" in figure.subtitle


def test_components_stand_in_the_data_table_and_nowhere_else(demo):
    plain, cut = load_study(demo), first_components(load_study(demo), {2: 0.7})
    assert targets(cut, {})[0].panels == targets(plain, {})[0].panels and hero(cut, {}).panels == hero(plain, {}).panels
    rows = {row[2].text for row in targets(cut, {})[0].table.rows}
    assert "position stream, 2 components" in rows and "all of hidden, 2 components" in rows


def with_ceilings(study, **ceilings):
    """The study with what position alone can reach."""
    records = [Record(study.name, "", f"r2.{k}.ceiling", v, v - 0.03, v + 0.03, n=12_700) for k, v in ceilings.items()]
    return replace(study, records=study.records + records)


def solid(panel):
    return [t for t in panel.data if t.get("line", {}).get("color") == "@muted" and t["line"]["dash"] == "solid"]


def test_what_position_alone_can_reach_is_a_line_in_every_panel_of_its_target(demo):
    plain = load_study(demo)
    study = with_ceilings(plain, segment=0.56, intra=0.07)
    for figure, expected in zip(targets(study, {}), (None, 0.56, 0.07), strict=True):
        drawn = [t["y"] for panel in figure.panels for t in solid(panel)]
        assert drawn == ([] if expected is None else [[expected, expected]] * 4)
        assert ("ceiling" in [kind for kind, _ in figure.key]) == ("Position alone" in figure.subtitle) == (expected is not None)
    table = targets(study, {})[1].table
    assert [row[5].raw for row in table.rows if row[2].text == "position alone"] == [0.56]
    assert not any(solid(panel) for figure in targets(plain, {}) for panel in figure.panels)
    assert targets(study, {})[1].title == targets(plain, {})[1].title


def with_shares(study, position=0.97, semantic=0.05, other=0.2):
    """The study with shares of variance between positions, the same in all layers."""
    value = {"position": position, "semantic": semantic, "all": other}
    shares = [
        replace(r, metric="variance.position", value=v, low=v - 0.01, high=v + 0.01)
        for r in study.records
        if r.metric == "r2.token" and r.index is None
        for v in [value[r.part]]
    ]
    return replace(study, records=study.records + shares)


def test_shares_between_positions_stand_beside_what_a_line_reads(demo):
    study = load_study(demo)
    assert between(study) is None
    figure = between(with_shares(study))
    assert [p.title for p in figure.panels] == ["dstg", "ap", "rp", "rope"]
    title = "Layer 3 of `dstg`'s position stream is almost all position: 97.0 % of its variance lies between positions, R² by a line 0.61"
    assert figure.title.replace("\u202f", " ") == title
    known = {r.value for r in with_shares(study).records if r.metric in ("variance.position", "r2.token")}
    assert {v for p in figure.panels for t in p.data for v in t["y"]} <= known and len(figure.table.rows) == 5 * 5
    assert between(with_shares(study, 0.3)).title.startswith("Layer 3 of `dstg`'s position stream is hardly position: 30.0")
    assert between(with_shares(study, 0.7)).title.startswith("Layer 3 of `dstg`'s position stream is position in part")
    assert between(with_shares(study, 0.9)).title.startswith("Not separable how far layer 3 of `dstg`")
    alone = replace(study, records=[r for r in study.records if r.model in ("ap", "rope", "")], facts={})
    assert "of `ap` is hardly position: 20.0" in between(with_shares(alone)).title
