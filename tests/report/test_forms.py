"""The four forms: what is drawn is what was recorded, every drawn number stands in the table, axes and labels fit."""

import itertools
import math

import numpy as np
import pytest

from whatwhere.papers import DSTG_R2
from whatwhere.records.record import Record, read_records
from whatwhere.records.table import Point
from whatwhere.report import page_of
from whatwhere.report.figures import (
    attention_maps as attention,
)
from whatwhere.report.figures import (
    buys,
    corpus,
    downstream,
    fits,
    shape,
)
from whatwhere.report.figures import (
    head_map as heads,
)
from whatwhere.report.figures import (
    hidden_states as states,
)
from whatwhere.report.figures import (
    table_shapes as spectra,
)
from whatwhere.report.forms.axes import Axis, round_numbers
from whatwhere.report.forms.curves import ASIDE, BEFORE, LEVEL, MANY, Curves, Line, of_models, paper_curve
from whatwhere.report.forms.dots import Cloud
from whatwhere.report.forms.maps import Maps
from whatwhere.report.forms.rows import Row, Rows
from whatwhere.report.loaded_run import Run, load_run


def figures_of(folder):
    page = page_of(folder)
    return [f for f in (page.hero, *(f for s in page.sections for f in (*s.figures, *s.more))) if f]


@pytest.fixture(scope="module")
def pages(whole, everything, geometry_folder):
    return {
        name: figures_of(folder)
        for name, folder in (("whole", whole), ("all", everything), ("geometry", geometry_folder))
    }


CURVES = (
    states.position,
    *states.PROBES,
    states.variance,
    states.components,
    states.shift,
    heads.by_layer,
    attention.neighbours,
    shape.flat,
)
CURVES += (
    shape.spectrum,
    shape.separation,
    states.sentences,
    buys.loss,
    fits.held_out,
    corpus.between,
    spectra.first,
)
ROWS = (heads.ablation, attention.patterns, buys.convergence_rows, fits.stress, fits.violations, spectra.equivariance)


def id_of(draw):
    """The id that a drawn form is declared with."""
    return draw.__self__.id


def test_no_form_has_more_than_twelve_fields():
    assert all(len(form.__dataclass_fields__) <= 12 for form in (Curves, Rows, Maps, Cloud, Line, Row))
    assert len({id_of(draw) for draw in (*CURVES, *ROWS)}) == len((*CURVES, *ROWS))


def marks(figure, axis):
    """Values of every mark of the figure's panels, but for those of a key."""
    return [v for p in figure.panels for t in p.data if "markers" in t["mode"] for v in t[axis]]


@pytest.mark.whole
@pytest.mark.parametrize("page", ["whole", "all", "geometry"])
def test_every_drawn_number_stands_in_its_table(pages, page):
    """Every number of a curve or a row stands in its table."""
    axes = (
        {id_of(draw): "y" for draw in CURVES}
        | {id_of(draw): "x" for draw in ROWS}
        | {"separation": "y", "corpus-stress": "x"}
    )
    seen = [f for f in pages[page] if f.id in axes]
    assert len(seen) > 4
    for figure in seen:
        held = np.array([c.raw for row in figure.table.rows for c in row if isinstance(c.raw, float)])
        for v in marks(figure, axes[figure.id]):
            assert np.isclose(held, v, rtol=1e-12, atol=0).any() or v in (1e-4,), (figure.id, v)


def test_drawn_ablations_equal_the_records(build, without_references):
    """Drawn changes and losses are the recorded ones to the digit."""
    run = load_run(build(models=("split", "ap", "rope"), shifts=True))
    known = {v for r in run.records if r.metric == "shift.change" for v in (r.value, r.low, r.high)}
    figure = states.shift(run)
    assert (
        set(marks(figure, "y")) <= known
        and {row[3].raw for row in figure.table.rows} <= known
        and len(figure.table.rows) == 4 * 5
    )
    assert {row[1].text for row in figure.table.rows if row[0].text == "split"} == {
        "position",
        "semantic",
    }  # both are told from all
    labels = {note["text"] for note in figure.panels[0].layout["annotations"]}
    assert labels == {"split position", "split semantic", "ap", "rope"}
    steps = {r.value for r in run.records if r.metric == "loss"}
    assert {c.raw for row in buys.loss(run).table.rows for c in row[4:5]} <= steps | {None, run.plateau()}


def test_rows_of_heads_and_stress_are_the_recorded_ones(whole, geometry_folder):
    for folder, draw, metrics in (
        (whole, heads.ablation, ("ablation.",)),
        (geometry_folder, fits.stress, ("stress.",)),
    ):
        known = {r.value for r in read_records(folder / "records.parquet") if r.metric.startswith(metrics)}
        figure = draw(load_run(folder))
        assert {v for v in marks(figure, "x") if v != 1e-4} <= known and len(marks(figure, "x")) > 8
        assert all(len(row) == len(figure.table.columns) for row in figure.table.rows)


def test_points_and_maps_of_heads_are_the_recorded_ones(whole):
    run = load_run(whole)
    known = {r.value for r in run.records if r.head is not None}
    figure = heads.by_head(run)
    assert set(marks(figure, "y")) <= known and {row[8].raw for row in figure.table.rows} <= known
    looks = attention.looks(run)
    assert {row[6].raw for row in looks.table.rows} <= known
    cells = [v for p in looks.panels for row in p.data[0]["z"] for v in row if v is not None]
    assert all(min(abs(v - k) for k in known) < 5e-4 for v in cells[:200])


def test_nothing_is_drawn_where_nothing_was_measured():
    assert not [
        id_of(draw) for draw in (*CURVES, *ROWS, heads.by_head, attention.looks) if draw(Run("empty")) is not None
    ]


def test_points_without_gradient_are_hollow(build):
    """A point that no gradient reaches is hollow and its way dotted."""
    figure = states.shift(load_run(build(models=("dstg",), shifts=True)))
    marked = [t for t in figure.panels[0].data if "@surface" in t.get("marker", {}).get("color", ())]
    assert len(marked) == 1 and marked[0]["marker"]["color"].count("@surface") == 1
    assert sum(t["line"]["dash"] == "1px,4px" for t in figure.panels[0].data if t["mode"] == "lines") == 1
    assert ("untrained", "no gradient reaches it") in figure.key


@pytest.mark.parametrize("depth", [4, 6, 12])
def test_the_papers_layers_stand_at_the_same_relative_depth(build, depth):
    run = load_run(build(layers=depth))
    curve = paper_curve(run, "r2.token", "ap", "all")
    assert list(curve) == [k * depth / 6 for k in range(1, 7)] and max(curve) == depth
    assert [p.value for p in curve.values()] == [DSTG_R2["r2.token", "ap", "all", k] for k in range(1, 7)]


def test_printed_stress_stands_beside_the_trained_model():
    """It stood only where the untrained model was measured: `points` was left by the loop over both."""
    place = {"study": "r", "model": "m", "metric": "projected.stress.raw", "part": "sinusoidal", "seed": 0}
    entry = {"name": "m", "config": {"num_hidden_layers": shape.PROJECTED_DEPTH}}
    for steps in ((None,), (None, 0), (0,)):
        records = [Record(value=1000.0, layer=k, step=step, **place) for step in steps for k in range(13)]
        each = [*shape.projected.__self__.source(Run("r", {"models": [entry]}, records))]
        printed = [line.points for line in each if line.kind == "paper"]
        assert [set(points) for points in printed] == [set(shape.PROJECTED_PAPER)] * (None in steps), steps


def test_tupe_scores_stand_at_their_steps():
    """Tupes printed scores stand at the last step and at 30 percent of it."""
    place = {"study": "r", "metric": "glue.score", "part": "rte", "seed": 0}
    names = {"mine": "tupe-a", "other": "dstg", "third": "nope"}
    entries = [{"name": name, "config": {"preset": preset}} for name, preset in names.items()]
    records = [Record(model=m, value=0.6, step=step, **place) for m in names for step in (0, 100, 1000)]
    figure = downstream.courses(Run("r", {"models": entries}, records))
    printed = [row for row in figure.table.rows if row[0].text == "paper"]
    assert [(name.text, step.text, value.raw) for _, name, step, value, *_ in printed] == [
        ("mine", "300", 0.6879),
        ("mine", "1,000", 0.7161),
        ("other", "1,000", 0.60),
    ]
    assert "Hollow: the papers' models at the last of these steps" in figure.subtitle
    # The average over tasks has a panel of its own (TUPE figure 5 c), without the papers', which are over others.
    means = [Record(model=m, value=0.5, step=step, **place | {"part": None}) for m in names for step in (0, 100, 1000)]
    figure = downstream.courses(Run("r", {"models": entries}, [*records, *means]))
    assert [panel.title for panel in figure.panels] == ["rte", "average"]
    assert len([row for row in figure.table.rows if row[0].text == "paper"]) == len(printed)


def test_printed_type_scores_stand_beside_their_preset():
    """DSTG's Tables 8 and 6; the first beside mteb's own tasks alone, as local ones are others of the same type."""
    facts = {"models": [{"name": "mine", "config": {"preset": "dstg"}}, {"name": "third", "config": {"preset": "no"}}]}

    def printed(figure, *named):
        place = {"study": "r", "value": 0.5}
        records = [
            Record(model=m, metric=metric, part=part, **place) for m in ("mine", "third") for metric, part in named
        ]
        drawn = figure(Run("r", facts, records))
        rows = [[cell.raw for cell in row[:4]] for row in drawn.table.rows]
        return [(part, name, value) for part, name, kind, value in rows if kind == "paper"], drawn.title

    types = ("mteb.type", "STS"), ("mteb.type", "Summarization")
    found, _ = printed(downstream.types, ("mteb.score", "STSBenchmark"), *types)
    assert found == [("STS", "mine", 0.63), ("Summarization", "mine", 0.3)]
    assert printed(downstream.types, ("mteb.score", "STSBenchmark-local"), *types)[0] == []
    probes = ("linguistic.f1", "pos"), ("linguistic.f1", "depth"), ("linguistic.score", "readability")
    found, title = printed(downstream.gains, *probes, ("linguistic.score", "pos"))
    assert found == [("pos", "mine", 0.71), ("readability", "mine", 0.27)] and title.startswith("Score on pos: ")


def lines(*kinds, points=3):
    at = {float(x): Point.between(0.1 * x, 0.1 * x - 0.01, 0.1 * x + 0.01) for x in range(points)}

    def source(run):
        """What. More."""
        for i, kind in enumerate(kinds):
            yield Line({0: Point.between(0.5)} if kind == LEVEL else at, f"m{i}", kind=kind)

    return source


def form(source, **more):
    axes = {"x": Axis("layer", "layer"), "y": Axis("y")} | more
    return Curves("f", "Table", lambda run, of: f"{len(of)} lines", metric="shift.change", **axes)(source)


def test_line_kinds_differ_in_marks():
    """Kinds of lines differ in marks and all but levels have rows of their own."""
    figure = form(lines("this run", BEFORE, LEVEL, ASIDE))(Run("r"))
    assert figure.title == "1 lines" and figure.subtitle.startswith(
        "What (one training seed, 95\u202f% interval over documents). More"
    )
    sources = [row[0].text for row in figure.table.rows]
    assert {s: sources.count(s) for s in sources} == {"this run": 3, BEFORE: 3, LEVEL: 1, ASIDE: 3}
    assert len(figure.panels[0].data) == 2 + 1 + 1 and ("before", "the same model before training") in figure.key


def test_long_lines_have_a_band_and_no_marks():
    (panel,) = form(lines("this run", points=MANY + 1), x=Axis("step", "steps", word="step"))(Run("r")).panels
    assert [t.get("fill") for t in panel.data] == ["toself", None] and panel.data[1]["mode"] == "lines"


@pytest.mark.parametrize("kind", ["linear", "share", "r2", "log", "steps", "lags", "layer"])
def test_an_axis_holds_its_values_and_its_ticks(kind):
    values = (
        [0.02, 0.5, 1.0]
        if kind in ("share", "r2", "log")
        else [-64.0, 0.0, 3.0, 64.0]
        if kind == "lags"
        else [0.0, 1.0, 5.0]
    )
    scale = Axis("title", kind).scale(values)
    low, high = scale.bounds
    assert all(low <= scale.end(scale.at(v)) <= high for v in values)
    drawn = scale.plotly()
    assert drawn["range"] == [low, high] and drawn["fixedrange"]
    ticks = drawn.get("tickvals", [])
    assert all(a < b for a, b in itertools.pairwise(ticks)) and len(ticks) == len(drawn.get("ticktext", ticks))


@pytest.mark.parametrize("top", [1e-6, 0.3, 1, 7, 49, 999, 1e6])
def test_ticks_are_round_and_few(top):
    found = round_numbers(top, 4)
    assert 2 <= len(found) <= 5 and found[0] == 0 and found[-1] <= top * (1 + 1e-9)
    assert all(math.isclose(b - a, found[1]) for a, b in itertools.pairwise(found))


def test_values_below_the_floor_are_written_whole():
    """Values below a logarithmic floor are drawn there and written whole."""
    row = Row("exact", {"": Point.between(1e-30)})
    made = Rows("f", "c", lambda *_: "t", metric="stress.raw", x=Axis("x", "log", floor=1e-4))
    figure = made(lambda run: [row, Row("far", {"": Point.between(5.0)})])(Run("r"))
    assert marks(figure, "x") == [1e-4, 5.0] and figure.table.rows[0][2].raw == 1e-30
    assert [n["text"] for n in figure.panels[0].layout["annotations"]] == ["0", "5"]


def test_seeds_and_splits_are_told_apart_under_the_title(build):
    one, three = (
        states.position(load_run(build(str(n), models=("ap",), seeds=tuple(range(n))))).subtitle for n in (1, 3)
    )
    assert "one training seed, 95\u202f% interval over document splits" in one and "mean over 3 training seeds" in three


def test_values_of_few_seeds_are_drawn_small_and_told():
    three, four = (Point.of([[v] for v in (0.35, 0.23, 0.67, 0.4)[:n]], span=(0.0, 1.0)) for n in (3, 4))
    run = Run("r")
    made = Rows("f", "c", lambda *_: "t", metric="pca.top2", x=Axis("x"))
    for n, point in ((3, three), (4, four)):
        rows = made(lambda run, p=point: [Row("m", {"": p})])(run)
        curves = form(lambda run, p=point: [Line({0.0: p, 1.0: p}, "m")])(run)
        small = [t for f in (rows, curves) for p in f.panels for t in p.data if t.get("marker", {}).get("size") == 4]
        told = "(0.35, 0.23, 0.67)"
        if n == 3:
            assert small[0]["x"] == [0.35, 0.23, 0.67] and small[1]["y"] == [0.35, 0.23, 0.67] * 2
            assert told in rows.table.rows[0][-3].text and told in curves.table.rows[0][-3].text
            assert all(("seed", "a training seed") in f.key for f in (rows, curves))
            assert "seeds:  0.35, 0.23, 0.67" in rows.panels[0].data[-1]["hovertext"][0]
            assert rows.table.rows[0][-3].raw == pytest.approx(three.value)
        else:
            assert not small and all("(" not in f.table.rows[0][-3].text for f in (rows, curves))


def test_many_models_share_panels_by_family(everything):
    run = load_run(everything)
    found = of_models(run, "r2.token")
    panels = list(dict.fromkeys(each.panel for each in found))
    assert panels[:3] == ["Position streams", "Semantic streams", "Both streams together"] and len(panels) < 9
    assert all(len({e.name for e in found if e.panel == p}) <= 8 for p in panels)


def test_table_steps_are_drawn_at_corpus_rows():
    """A table at every step is drawn of the corpus rows where there are any."""

    def at(step, value, part):
        return Record("s", "m", "separation", value, step=step, part=part, seed=0)

    records = [
        at(0, 9.0, None),
        at(5, 9.0, None),
        at(0, 1.0, "used"),
        at(5, 2.0, "used"),
        at(0, 3.0, "corpus"),
        at(5, 4.0, "corpus"),
    ]
    assert marks(shape.separation(Run("r", records=records)), "y") == [3.0, 4.0]
    assert marks(shape.separation(Run("r", records=records[:4])), "y") == [1.0, 2.0]
