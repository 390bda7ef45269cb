"""Figures of heads, attention and hidden states: titles follow the records, marks stand in them, nothing appears without them."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from inside_run import inside
from page_view import View

from whatwhere.points import Point
from whatwhere.report import ablation_figures, attention_figures, correlation_figures, heads_figures, hidden_figures
from whatwhere.report.load import load_study
from whatwhere.report.page import Page, Section, write_page
from whatwhere.report.style import MAPS, PALETTES

MODELS = ("dstg", "bert-a", "tupe-a", "rope")
COLOURS = PALETTES["light"] | MAPS["light"]


def strings(part):
    """All strings in a nested value."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict | list | tuple):
        yield from itertools.chain.from_iterable(strings(v) for v in (part.values() if isinstance(part, dict) else part))


def coloured(part):
    """The value with "@name" resolved, as the page does it."""
    if isinstance(part, str):
        return COLOURS.get(part[1:], part) if part.startswith("@") else part
    if isinstance(part, dict):
        return {k: coloured(v) for k, v in part.items()}
    return [coloured(v) for v in part] if isinstance(part, list) else part


def every_figure(study):
    """All figures of what lies inside models."""
    return heads_figures.figures(study) + ablation_figures.figures(study) + attention_figures.figures(study) + hidden_figures.figures(study)


def by_id(study):
    """Figure id -> figure."""
    return {f.id: f for f in every_figure(study)}


@pytest.fixture
def study(build):
    """A made-up study of four models with records and arrays of what lies inside them."""
    return inside(load_study(build(models=MODELS, layers=3)))


def altered(study, change, **columns):
    """The study with `change(record)` in place of every record that has the given columns."""
    held = [change(r) if all(getattr(r, k) == v for k, v in columns.items()) else r for r in study.records]
    return replace(study, records=held)


def moved(value, low, high):
    """A change of a record to the given value and interval."""
    return lambda r: replace(r, value=value, low=low, high=high)


@pytest.mark.parametrize(
    "options", [{"models": MODELS, "layers": 2}, {"models": ("dstg",), "seeds": (0, 2), "layers": 2}, {"models": ("rp",), "layers": 13}]
)
def test_figures_are_valid_plotly_and_name_their_records(build, options):
    figures = every_figure(inside(load_study(build(**options))))
    assert len({f.id for f in figures}) == len(figures) == len({f.table.id for f in figures}) >= 6
    for figure in figures:
        assert figure.title and figure.subtitle and figure.records and figure.panels and figure.table.rows
        assert {len(row) for row in figure.table.rows} == {len(figure.table.columns)}
        for panel in figure.panels:
            assert panel.alt
            assert go.Layout(coloured(panel.layout) | {"meta": None})
            for trace in panel.data[-1:]:  # the last is the one that says something; plotly takes its time
                go.Figure(data=[coloured(trace)])
            json.dumps(panel.data, allow_nan=False)
            named = {s[1:] for s in strings(panel.data) if s.startswith("@")} | {s[1:] for s in strings(panel.layout) if s.startswith("@")}
            assert {n for n in named if n not in COLOURS} == set()
            sizes = [note["font"]["size"] for note in panel.layout.get("annotations", [])]
            assert min([14, *sizes]) == 14
            if figure.even:
                margin = figure.panels[0].layout["margin"]
                assert panel.layout["margin"]["l"] + panel.layout["margin"]["r"] == margin["l"] + margin["r"]


def test_nothing_appears_without_records(demo):
    assert every_figure(load_study(demo)) == []


def test_the_triangle_places_every_head_by_its_shares(study):
    panel = heads_figures.taxonomy(study).panels[0]
    assert panel.title == "dstg"
    points = panel.data[-1]
    shares = {t: {(r.layer, r.head): r.value for r in study.of(f"kl.share.{t}", "dstg")} for t in ("semantic", "absolute", "relative")}
    heads = sorted(shares["semantic"])
    assert points["x"] == pytest.approx([shares["absolute"][h] + shares["relative"][h] / 2 for h in heads], abs=1e-4)
    assert points["y"] == pytest.approx([shares["relative"][h] * math.sqrt(3) / 2 for h in heads], abs=1e-4)
    assert points["marker"]["color"] == [layer for layer, _ in heads]
    loose = {
        (r.layer, r.head)
        for label in ("semantic", "absolute", "relative", "several")
        for r in study.of("head.label", "dstg", label)
        if r.value < 0.95
    }
    assert [s == "circle-open" for s in points["marker"]["symbol"]] == [h in loose for h in heads] and loose


def test_models_of_two_terms_get_a_strip_and_models_of_one_nothing(study):
    panels = {p.title: p for p in heads_figures.taxonomy(study).panels}
    assert list(panels) == ["dstg", "tupe-a"]
    drawn = sorted(y for trace in panels["tupe-a"].data[1:] for y in trace["y"])
    assert drawn == sorted(r.value for r in study.of("kl.share.semantic", "tupe-a"))


def test_the_title_of_the_heads_counts_labels_with_their_intervals(study):
    def title(semantic, absolute):
        found = study
        for part, (value, low, high) in {"semantic": semantic, "absolute": absolute, "relative": (0, 0, 0), "several": (0, 0, 0)}.items():
            found = altered(found, moved(value / 12, low / 12, high / 12), metric="heads.share", model="dstg", part=part)
        return heads_figures.finding(found, "dstg")

    assert title((3, 3, 3), (9, 9, 9)) == "`dstg`: 3 of 12 heads follow meaning, 9 absolute position, none relative position"
    assert title((0, 0, 1), (12, 11, 12)).startswith("`dstg`: none of 12 heads (up to 1) follow meaning, 12 (11 to 12) absolute position")
    assert title((5, 4, 7), (7, 5, 8)).endswith("; which is more frequent is not separable")


def test_every_head_stands_in_the_table(study):
    table = heads_figures.taxonomy(study).table
    assert len(table.rows) == 2 * 3 * 4
    column = table.columns.index("Relative: KL")
    found = [row[column].raw for row in table.rows if row[0].text == "dstg"]
    assert found == [r.value for r in sorted(study.of("kl.relative", "dstg"), key=lambda r: (r.layer, r.head))]


def test_an_ablation_without_a_separable_cost_says_so(study):
    assert ablation_figures.totals(study).title == "Shuffling the position stream costs `dstg` 0.45 nats, the semantic stream 4.06 nats"
    free = altered(study, moved(0.01, -0.02, 0.04), metric="ablation.shuffle", part="stream.position")
    assert ablation_figures.totals(free).title.startswith(
        "Shuffling the position stream costs `dstg` no separable amount (0.01), the semantic"
    )


def test_a_layer_is_named_only_where_it_stands_out(study):
    assert "absolute position most in layer 2" in ablation_figures.layers(study).title
    wide = altered(
        study, lambda r: replace(r, low=r.value - 1, high=r.value + 1) if r.head is None else r, metric="ablation.remove", part="absolute"
    )
    assert "absolute position in no layer by a separable amount" in ablation_figures.layers(wide).title


def test_agreement_of_attention_and_prediction_follows_the_ranks(study):
    assert ablation_figures.agreement(study).title.startswith("What changes attention more changes predictions more: rank correlation 0.")
    rng = np.random.default_rng(0)
    noise = altered(study, lambda r: replace(r, value=float(rng.standard_normal())) if r.head is not None else r, metric="ablation.remove")
    assert ablation_figures.agreement(noise).title.startswith("Not separable whether what changes attention changes predictions")
    few = replace(study, records=[r for r in study.records if r.layer in (None, 1)])
    assert ablation_figures.agreement(few).title.startswith("Too few heads (4) to say")


def test_rank_correlation_is_spearmans_with_heads_as_units():
    heads = [(0, 1, i // 2) for i in range(40)]
    x = np.linspace(0, 1, 40)
    assert ablation_figures.rank_correlation(heads, x, np.exp(x))[0] == pytest.approx(1.0)
    assert ablation_figures.rank_correlation(heads, x, -(x**3))[2] < 0
    assert math.isnan(ablation_figures.rank_correlation(heads, x, np.ones(40))[0])
    assert ablation_figures.rank_correlation(heads[:10], x[:10], x[:10])[1:] == (None, None)


def test_profiles_draw_the_mean_over_heads_and_one_term_once(study):
    figure = attention_figures.profiles(study)
    assert [(p.title, p.note) for p in figure.panels[:5]] == [
        ("dstg", "all terms"),
        ("dstg", "semantic alone"),
        ("dstg", "absolute alone"),
        ("dstg", "relative alone"),
        ("bert-a", ""),
    ]
    held = study.arrays["attention-dstg-seed-0"]
    at_zero = held["profile.total"].mean(axis=1)[:, list(held["lags"]).index(0)]
    drawn = [trace["y"][trace["x"].index(0.0)] for trace in figure.panels[0].data]
    assert drawn == pytest.approx(list(at_zero), rel=1e-3)


def test_which_term_looks_nearest_needs_an_interval_without_zero(study):
    assert attention_figures.nearness(study, "dstg").startswith("In `dstg`, relative position looks nearest and meaning farthest: ")

    def alike(r):
        return replace(r, value=0.3 + 0.01 * (-1) ** (r.head + r.layer + len(r.part)))

    same = altered(study, alike, metric="attention.local", model="dstg")
    assert attention_figures.nearness(same, "dstg").startswith("Not separable which term of `dstg` looks nearest")


def test_who_attends_to_neighbours_is_named_from_the_step_where_its_whole_interval_lies_ahead(study):
    figure = by_id(study)["neighbours"]
    assert figure.title == (
        "In `dstg`, relative position attends to neighbours most from step 10 on, before absolute position: "
        "60\u202f% and 30\u202f% of the weight alone on the eight tokens on each side"
    )
    assert [p.title for p in figure.panels] == list(MODELS) and len(figure.table.rows) == 5 * (4 + 1 + 3 + 1)
    lines = [t for t in figure.panels[0].data if t["mode"] == "lines" and t["line"]["color"] == "@relative"]
    for drawn, metric in zip(lines, ("local.best", "local.share"), strict=True):
        assert drawn["x"] == pytest.approx([math.log10(1 + s) for s in (0, 10, 100, 500, 1000)])
        assert drawn["y"] == [r.value for r in study.of(metric, "dstg", "relative")]

    def titled(change, **columns):
        return by_id(altered(study, change, model="dstg", **columns))["neighbours"].title

    late = titled(lambda r: replace(r, low=0.01), metric="local.lead", part="relative", step=100)
    assert "from step 500 on" in late
    assert titled(lambda r: replace(r, low=-0.1), metric="local.lead", part="relative").startswith("Not separable which term of `dstg`")
    idle = titled(lambda r: replace(r, value=0.12), metric="local.share")
    assert idle.startswith("No term of `dstg` attends to neighbours more than to other tokens")
    only = replace(study, records=[r for r in study.records if r.model != "dstg"])
    assert by_id(only)["neighbours"].title.startswith("Heads of `bert-a` give 55\u202f% of their weight to the eight tokens on each side")


def test_retrieval_heads_are_named_by_their_interval(study):
    assert (
        attention_figures.looks(study).title
        == "1 of 12 heads of `dstg` retrieves the other copy of a token: layer 3 head 3 (42\u202f% of its weight)"
    )
    place = {"metric": "attention.retrieval", "model": "dstg", "part": "total"}
    assert attention_figures.retrieval(altered(study, moved(0.02, 0.0, 0.04), **place), "dstg").startswith("No head of `dstg` retrieves")
    wide = altered(study, moved(0.42, 0.05, 0.8), **place, layer=3, head=3)
    assert attention_figures.retrieval(wide, "dstg").startswith("Not separable whether a head of `dstg` retrieves")


def test_maps_of_what_heads_look_at_hold_the_recorded_weights(study):
    panel = attention_figures.looks(study).panels[0]
    rows = dict(zip(panel.data[0]["y"], panel.data[0]["z"], strict=True))
    recorded = sorted(study.of("attention.local", "dstg", "total"), key=lambda r: (r.layer, r.head))
    assert rows["near"] == pytest.approx([r.value for r in recorded], abs=1e-3)
    assert len(panel.layout["shapes"]) == 2  # between three layers


@pytest.mark.parametrize(
    ("share", "words"), [(0.01, "hardly correlate in"), (0.3, "Words and positions correlate in"), (0.05, "Not separable from 10\u202f%")]
)
def test_words_and_positions_correlate_by_their_share_of_the_variance(study, share, words):
    spread = 0.0 if share != 0.05 else 0.04
    found = study
    for part in ("word-position", "position-word"):
        found = altered(found, lambda r: replace(r, value=share + spread * (-1) ** r.head), metric="correlation.share", part=part)
    assert words in correlation_figures.correlate(found, "bert-a")


def test_the_four_maps_share_a_scale_with_zero_in_the_middle(study):
    panels = correlation_figures.correlations(study).panels
    traces = [p.data[0] for p in panels]
    assert len({(t["zmin"], t["zmax"], t["zmid"]) for t in traces}) == 1 and traces[0]["zmin"] == -traces[0]["zmax"]
    assert [t.get("showscale", True) for t in traces] == [False, False, False, True]
    assert max(len(t["z"]) for t in traces) <= correlation_figures.MOST_MAP


def test_patterns_are_counted_and_those_that_are_missing_named(study):
    figure = correlation_figures.patterns(study)
    assert figure.title.startswith("`tupe-a` shows 4 of the five patterns over positions") and figure.title.endswith("none after")
    shares = [study.point("patterns.share", "tupe-a", k).value for k in correlation_figures.PATTERNS]
    assert [row[2].raw for row in figure.table.rows] == shares


def test_maps_of_a_document_show_its_tokens_and_mark_what_no_gradient_reaches(study):
    figure = hidden_figures.maps(study)[0]
    assert [p.note for p in figure.panels] == ["embedding", "", "", "no gradient reaches it"]
    scores = study.arrays["hidden-dstg-seed-0"]["scores.position"][0, 1]
    cloud = figure.panels[1].data[1]
    assert cloud["x"] == pytest.approx(list(scores[1:-1, 0]), abs=1e-3) and cloud["marker"]["symbol"] == "circle"
    assert figure.panels[-1].data[1]["marker"]["symbol"] == "circle-open"
    assert sum(x is None for x in figure.panels[1].data[0]["x"]) == 11  # one gap between each two of twelve segments


def test_sentences_move_apart_by_their_intervals(study):
    assert hidden_figures.maps(study)[0].title.startswith("Sentences move apart through the layers in the position stream of `dstg`")
    place = {"metric": "sentences.excess", "model": "dstg", "part": "position"}
    less = altered(study, moved(0.01, 0.005, 0.015), **place, layer=2)
    assert hidden_figures.growing(less, "dstg", "position").startswith("Sentences come closer together")
    same = altered(study, moved(0.2, -1.0, 2.0), **place, layer=2)
    assert hidden_figures.growing(same, "dstg", "position").startswith("Not separable")


def sentences(study):
    """Title of the figure of sentences."""
    return hidden_figures.separation(study).title


def test_the_excess_over_random_cuts_is_read_in_the_last_trained_layer(study):
    place = {"metric": "sentences.excess", "model": "dstg", "part": "position"}
    assert "further apart than random contiguous cuts" in sentences(study) and "in layer 2" in sentences(study)
    untrained = altered(study, moved(-2.0, -2.1, -1.9), **place, layer=3)
    assert sentences(untrained) == sentences(study)
    assert sentences(altered(study, moved(-0.2, -0.3, -0.1), **place, layer=2)).startswith("Sentences are no further apart")
    assert sentences(altered(study, moved(0.1, -0.1, 0.3), **place, layer=2)).startswith("Not separable whether sentences")


def test_flatness_is_judged_in_every_trained_layer(study):
    place = {"metric": "hidden.top2", "model": "dstg", "part": "position"}
    assert hidden_figures.flat(study, "dstg").startswith("Two components hold at least 90\u202f%")
    assert "in 1 of 2 layers" in hidden_figures.flat(altered(study, moved(0.5, 0.4, 0.6), **place, layer=2), "dstg")
    assert "less than 90" in hidden_figures.flat(altered(study, moved(0.5, 0.4, 0.6), **place), "dstg")
    assert hidden_figures.flat(altered(study, moved(0.9, 0.8, 0.95), **place), "dstg").startswith("Not separable")


def test_titles_of_models_on_the_plateau_are_no_findings(study):
    stuck = altered(study, lambda r: replace(r, value=6.42), metric="loss", model="dstg")
    told = [
        by_id(stuck)[k].title for k in ("heads", "ablation", "ablation-layers", "attention-looks", "hidden-map", "sentences", "hidden-flat")
    ]
    assert all(t.startswith("Not testable, `dstg` has learned token frequencies only: ") for t in told)


def test_costs_name_a_falling_loss():
    assert ablation_figures.costs(Point.between(-0.2, -0.3, -0.1)) == "\u22120.20 nats (the loss falls)"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_every_plot_is_drawn_and_fits(browser, study, tmp_path, width, scheme):
    path = write_page(tmp_path / "inside.html", Page("Inside", sections=[Section("inside", "Inside", "", every_figure(study))]))
    with View(browser, path, width=width, scheme=scheme) as view:
        plots = view.page.locator(".plot")
        assert plots.count() == view.page.locator(".plot > .js-plotly-plot, .plot.js-plotly-plot").count() > 30
        assert view.page.evaluate("document.documentElement.scrollWidth") == width
        boxes = """ps => ps.map(p => { const f = p.getBoundingClientRect();
            return [...p.querySelectorAll('.annotation-text')].map(a => { const b = a.getBoundingClientRect();
                return [b.left - f.left, f.right - b.right, b.top - f.top, f.bottom - b.bottom] }) })"""
        ends = list(itertools.chain.from_iterable(plots.evaluate_all(boxes)))
        assert len(ends) > 40 and min(min(e) for e in ends) > -2
        assert view.troubles == []
