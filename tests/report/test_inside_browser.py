"""Figures of what is inside models in headless Chromium: regressions, convergence, stress, the corpus, controls draw
without trouble."""

from dataclasses import replace

import pytest
from geometry_run import make_run
from page_view import View

from whatwhere.records.record import Record
from whatwhere.report.figures import buys, corpus, fits, shape
from whatwhere.report.figures import hidden_states as states
from whatwhere.report.loaded_run import load_run
from whatwhere.report.page import Page, Section, write_page

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def page(demo, tmp_path_factory):
    """A page of all these figures from made-up records."""
    folder = tmp_path_factory.mktemp("inside")
    run = load_run(make_run(folder / "run", corpora=("reviews",), models=()))
    study = load_run(demo)
    extra = [replace(r, model="corpus") for r in run.records]
    for i, m in enumerate(("dstg", "ap", "rp", "rope")):
        place = {"study": "s", "model": m, "seed": 0}
        for layer in range(5):
            for stream in ("position", "semantic"):
                v = 0.8 / (i + 1)
                extra.append(
                    Record(
                        metric=f"regression.{stream}",
                        value=v,
                        low=v - 0.1,
                        high=v + 0.1,
                        layer=layer,
                        part="dstg",
                        **place,
                    )
                )
            for scale in ("raw", "optimal"):
                extra.append(
                    Record(
                        metric=f"projected.stress.{scale}",
                        value=0.1 * (layer + i + 1),
                        layer=layer,
                        part="sinusoidal",
                        **place,
                    )
                )
        if m != "ap":
            extra.append(Record(metric="convergence.reached", value=1.0, part="ap", **place))
            extra.append(Record(metric="convergence.share", value=0.2 * (i + 1), part="ap", **place))
        extra += [Record(metric="separation", value=0.2 + 0.001 * s, step=s, **place) for s in (0, 10, 100)]
    probes = [r for r in study.records if r.metric == "r2.token"]
    extra += [replace(r, step=0, value=0.5) for r in probes] + [replace(r, part=f"{r.part}.pca2") for r in probes]
    study = replace(study, records=study.records + extra, arrays={"geometry-corpus": run.corpora[0].arrays})
    made = [
        *states.others(study),
        buys.convergence_rows(study),
        shape.projected(study),
        shape.separation(study),
    ]
    made += [*fits.of_study(study), *states.probes(study), states.components(study)]
    figures = [
        replace(f, choice="") for f in made if f.id != "sentences" and not f.id.startswith(("hidden", "variance"))
    ]
    return write_page(
        folder / "page.html", Page("made up", sections=[Section("all", "All", "", figures, [corpus.overview(study)])])
    )


def test_every_plot_draws_on_a_dark_phone(browser, page):
    """Every plot draws without trouble on a phone in the dark."""
    with View(browser, page, width=400, scheme="dark") as view:
        ids = view.page.locator("figure.figure").evaluate_all("fs => fs.map(f => f.id)")
        assert [i.removeprefix("figure-") for i in ids] == [
            *("regression", "convergence", "projected", "table-steps", "corpus-matrix", "corpus-map", "corpus-stress"),
            *("probe-token", "probe-segment", "probe-intra", "probe-components"),
        ]
        drawn = "ps => ps.map(p => p.querySelectorAll('.scatterlayer path, .heatmaplayer image').length)"
        assert all(n > 0 for n in view.page.locator(".plot").evaluate_all(drawn))
        assert view.page.evaluate("document.documentElement.scrollWidth") == 400
        assert view.troubles == []
