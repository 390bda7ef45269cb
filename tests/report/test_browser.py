"""The page in headless Chromium with the network off: it draws, adapts to 400 pixels, changes theme, hands out its
data."""

import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from page_view import View

from whatwhere.records.record import read_records
from whatwhere.report import schemes, write_report
from whatwhere.report.compare import comparison_page, open_runs
from whatwhere.report.explorer import load_explorer
from whatwhere.report.loaded_run import load_run, visible
from whatwhere.report.page import write_page
from whatwhere.report.pages import study_page

pytestmark = pytest.mark.whole

LONG = "x" * 300


@pytest.fixture(scope="module")
def report(demo, tmp_path_factory):
    return write_report(demo, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def wide(browser, report):
    """The page at 1400 pixels, shared: tests leave it as they found it, but for the order of tables."""
    with View(browser, report) as view:
        unfold(view)
        yield view


@pytest.fixture(scope="module")
def narrow(browser, report):
    """The page at 400 pixels in the dark."""
    with View(browser, report, width=400, scheme="dark") as view:
        unfold(view)
        yield view


def unfold(view):
    """Open every fold, and wait until what it holds is drawn."""
    view.page.evaluate("document.querySelectorAll('details.fold').forEach(fold => { fold.open = true })")
    undrawn = "document.querySelectorAll('.plot:not(.js-plotly-plot, [hidden] *)').length"
    view.until(lambda: view.page.evaluate(undrawn) == 0)


def test_opens_offline_draws_everything_and_fits_the_first_screen(wide):
    plots = wide.page.locator(".plot:visible")
    assert plots.count() == wide.page.locator(".plot.js-plotly-plot:visible").count() > 8
    assert all(n > 0 for n in plots.evaluate_all("ps => ps.map(p => p.querySelectorAll('.scatterlayer path').length)"))
    # What the run says of position, and its figure, which began at 608 px below a text of its own.
    bottoms = wide.page.locator(".pick table, .pick .judged, .first .plot").evaluate_all(
        "found => found.map(each => each.getBoundingClientRect().bottom)"
    )
    assert max(bottoms) <= 900
    assert wide.page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert wide.troubles == []


@pytest.mark.long
def test_nothing_on_the_first_screen_is_cut(browser, build):
    """`dstg-full-mlm semantic` ended in dots, and at 1280 pixels the last column of the pick lay beyond its edge."""
    models = ("dstg", "dstg-full-mlm", "rope", "ap", "rp", "alibi", "nope")
    page = write_report(build(models=models), build("out") / "report.html")
    with View(browser, page, width=1280) as view:
        unfold(view)
        labels = view.page.locator(".plot svg text").all_text_contents()
        assert "dstg-full-mlm semantic" in labels, labels
        assert not [label for label in labels if "…" in label]
        within = "(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.pick .scroll'))"
        assert view.page.evaluate(within)


@pytest.mark.long
def test_tables_with_sentences_fill_the_page(browser, build):
    """The claims of several runs lay on one line each, the second run beyond the edge."""
    one = build("one", models=("dstg", "ap"))
    other = build("other", models=("dstg", "ap"))
    claims = json.loads((other / "claims.json").read_text())
    claims[0] |= {"verdict": "not seen here", "rule": "R² is at least 0.75 of that of layer 1, and " * 6}
    (other / "claims.json").write_text(json.dumps(claims))
    path = write_page(other.parent / "both.html", comparison_page(open_runs([one, other])))
    with View(browser, path, width=1280) as view:
        within = "(t => [t.scrollWidth, t.clientWidth])(document.querySelector('.scroll:has(#table-claims-by-run)'))"
        wanted, room = view.page.evaluate(within)
        assert wanted <= room


@pytest.mark.long
def test_a_study_page_keeps_its_budgets(browser, whole, tmp_path):
    """The page of a study of four models keeps its budgets."""
    with View(browser, write_report(whole, tmp_path / "whole.html")) as view:
        words = view.page.evaluate("document.querySelector('main').innerText.split(/\\s+/).length")
        nodes = view.page.evaluate("document.querySelectorAll('*').length")
        figures = view.page.locator("figure.figure:visible").count()
        height = view.page.evaluate("document.documentElement.scrollHeight")
        found = (words, figures, nodes, height)
        assert all(a <= b for a, b in zip(found, (3500, 14, 15_000, 14 * 900), strict=True)), found


@pytest.mark.long
def test_what_is_folded_is_drawn_when_it_opens(browser, report):
    with View(browser, report) as view:
        folded = view.page.locator("details.more .plot").first
        assert not folded.is_visible() and "js-plotly-plot" not in folded.get_attribute("class")
        view.page.locator("details.more > summary").first.click()
        drawn = view.page.locator("details.more .plot.js-plotly-plot")
        view.until(lambda: drawn.count() > 0)
        assert drawn.first.locator(".main-svg").first.bounding_box()["width"] > 200
        # Of several figures one is shown, that which a reader chooses.
        figures = view.page.locator(".choice figure:visible")
        assert figures.count() == 1 and figures.first.get_attribute("id") == "figure-probe-token"
        second = view.page.locator(".switch button").nth(1)
        second.click()
        chosen = view.page.locator("#figure-probe-segment .plot.js-plotly-plot")
        view.until(lambda: chosen.count() > 0)
        assert second.get_attribute("aria-pressed") == "true" and not view.page.is_visible("#figure-probe-token")
        assert view.troubles == []


@pytest.mark.long
def test_a_click_hides_a_model_and_another_shows_it(browser, report):
    """A click on a model takes it out of every figure and a second one back."""
    with View(browser, report) as view:
        names = view.page.locator("button.model").all_text_contents()
        drawn = """name => document.querySelectorAll(".plot.js-plotly-plot:not([hidden] *)").values()
            .flatMap(p => p.data).filter(t => t.meta?.includes(name)).toArray().length"""
        told = """name => [...document.querySelectorAll(".plot .annotation-text")]
            .filter(t => t.textContent.startsWith(name)).length"""
        before = {name: view.page.evaluate(drawn, name) for name in names}
        assert len(names) > 1 and min(before.values()) > 3
        first = view.page.locator("button.model").first
        first.click()
        view.until(lambda: view.page.evaluate(drawn, names[0]) == 0)
        assert first.get_attribute("aria-pressed") == "false"
        assert view.page.evaluate(told, names[0]) == 0
        assert view.page.locator(f".panel[data-model='{names[0]}']:visible").count() == 0
        assert view.page.evaluate(drawn, names[1]) > before[names[1]] / 2  # what stood in the other's panels is gone
        first.click()
        view.until(lambda: view.page.evaluate(drawn, names[0]) == before[names[0]])
        assert view.troubles == []


def test_claims_are_filtered_and_a_link_opens_one(browser, report):
    with View(browser, report) as view:
        shown = view.page.locator(".claims tr[data-verdict]:visible")
        verdicts = shown.locator(".verdict").all_text_contents()
        assert verdicts and "not testable here" not in " ".join(verdicts)
        view.page.select_option("[data-filter=verdict]", "not testable here")
        assert {text.strip() for text in shown.locator(".verdict").all_text_contents()} == {"not testable here"}
        view.page.select_option("[data-filter=verdict]", "")
        assert shown.locator(".verdict").all_text_contents() == verdicts  # the fold is closed again
        folded = view.page.locator(".unjudged tr[data-verdict]").first.get_attribute("id")
        assert not view.page.is_visible(f"#{folded}")
        view.page.evaluate(f"location.hash = '{folded}'")
        view.until(lambda: view.page.is_visible(f"#{folded} details[open] p"))
        assert view.troubles == []


def test_pages_are_readable_at_400_pixels(narrow):
    """Works at 400 pixels with text that can be read."""
    assert narrow.page.evaluate("document.documentElement.scrollWidth") == 400
    beyond = (
        "ps => ps.filter(p => { const b = p.getBoundingClientRect(); return b.right > 401 || b.width < 200 }).length"
    )
    assert narrow.page.locator(".plot:visible").evaluate_all(beyond) == 0
    smallest = """() => Math.min(...[...document.querySelectorAll('body *')]
        .filter(e => !['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(e.tagName))
        .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(e => parseFloat(getComputedStyle(e).fontSize)))"""
    assert narrow.page.evaluate(smallest) >= 14
    assert narrow.troubles == []


def labels_are_apart(view):
    """Every name on a line lies inside its figure, and no two names of a panel lie over each other."""
    boxes = """ps => ps.map(p => { const f = p.getBoundingClientRect();
        return [...p.querySelectorAll('.annotation-text')].map(a => { const b = a.getBoundingClientRect();
            return [b.left - f.left, b.right - f.left, b.top - f.top, b.bottom - f.top, f.width, f.height] }) })"""
    drawn = (
        "#figure-position .plot, #figure-loss .plot, #figure-probe-token .plot, #figure-shift .plot, "
        "#figure-table-spectrum .plot"
    )
    for labels in view.page.locator(drawn).evaluate_all(boxes):
        for left, right, top, bottom, full, height in labels:
            assert left >= 0 and right <= full + 1 and top >= -1 and bottom <= height + 1
        for one, two in itertools.combinations(labels, 2):
            assert one[1] <= two[0] + 1 or two[1] <= one[0] + 1 or one[3] <= two[2] + 1 or two[3] <= one[2] + 1


def test_line_end_labels_do_not_touch(wide, narrow):
    """Labels at line ends neither touch nor leave their figure."""
    labels_are_apart(wide)
    labels_are_apart(narrow)


@pytest.fixture(scope="module")
def twenty(everything, tmp_path_factory):
    return write_report(everything, tmp_path_factory.mktemp("twenty") / "report.html")


@pytest.mark.long
@pytest.mark.parametrize("width", [1400, 400])
def test_twenty_models_fit(browser, twenty, width):
    with View(browser, twenty, width=width) as view:
        labels_are_apart(view)
        assert view.page.evaluate("document.documentElement.scrollWidth") == width
        if width == 1400:
            first = "document.querySelector('.picked').getBoundingClientRect().bottom"
            assert view.page.evaluate(first) <= 400
        assert view.troubles == []


@pytest.mark.long
def test_many_models_are_drawn_when_asked_for(browser, twenty):
    """A page of all presets had 38,500 nodes: figures begin with the models of the lowest loss, a click adds one."""
    count = "document.querySelectorAll('*').length"
    with View(browser, twenty) as view:
        before = view.page.evaluate(count)
        assert before <= 20_000
        pressed = view.page.locator("button.model[aria-pressed=true]")
        assert schemes.FEW <= pressed.count() <= schemes.FEW + 1  # `dstg` always
        left_out = view.page.locator("button.model[aria-pressed=false]").first
        name = left_out.get_attribute("data-model")
        left_out.click()
        view.ready()
        assert view.page.evaluate(count) > before
        assert view.page.locator(f"button.model[data-model='{name}']").get_attribute("aria-pressed") == "true"
        assert view.troubles == []


@pytest.mark.long
def test_theme_follows_the_system_and_the_button(browser, report):
    colours = (
        "() => [getComputedStyle(document.body).backgroundColor, document.querySelector('#figure-position .xtick "
        "text').style.fill]"
    )
    with View(browser, report, scheme="dark") as view:
        dark = view.page.evaluate(colours)
        view.page.focus("#theme")
        view.page.keyboard.press("Enter")
        view.ready()
        light = view.page.evaluate(colours)
        assert dark[0] == "rgb(21, 23, 26)" and light[0] == "rgb(253, 253, 251)" and dark[1] != light[1]
        view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        view.page.emulate_media(media="print")
        assert view.page.evaluate("getComputedStyle(document.querySelector('.bar')).display") == "none"
        widths = view.page.locator(".plot .main-svg").evaluate_all(
            "found => found.map(f => f.getBoundingClientRect().width)"
        )
        assert 300 < max(widths) <= 680
        view.page.emulate_media(media="screen")
        view.page.evaluate("dispatchEvent(new Event('afterprint'))")
        wide = "document.querySelector('#figure-table-spectrum .main-svg').getBoundingClientRect().width > 1000"
        view.until(lambda: view.page.evaluate(wide))
        assert view.troubles == []


@pytest.mark.long
def test_heads_stand_apart_from_a_screen_without_figure(browser, whole, tmp_path):
    # Without probes there is no figure, and "What does each head look at?" was glued to the text above.
    run = load_run(whole)
    bare = replace(run, records=[r for r in run.records if not r.metric.startswith("r2.")])
    page = replace(study_page(bare), explorer=load_explorer(whole, 1_000_000))
    with View(browser, write_page(tmp_path / "bare.html", page), width=1400) as view:
        gap = "document.querySelector('#explorer h2').getBoundingClientRect().top - "
        gap += "document.querySelector('.first').getBoundingClientRect().bottom"
        assert page.hero is None and view.page.evaluate(gap) > 50


def test_csv_has_full_digits_and_svg_stands_alone(wide, demo):
    text, name = wide.download("#figure-position button.csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name == "position.csv"
    recorded = {r.value for r in read_records(demo / "records.parquet") if r.metric == "r2.token" and r.index is None}
    assert {float(r["R² of position"]) for r in rows if r["Source"] == "this run"} <= recorded and len(rows) > 40
    text, name = wide.download("#figure-probe-token button.svg")
    root = ElementTree.fromstring(text)
    words = "".join(root.itertext())
    assert (
        name == "probe-token.svg"
        and root.tag.endswith("svg")
        and "R² of position in the last trained layer" in words.replace("\n", " ")
    )
    assert len(root.findall("{http://www.w3.org/2000/svg}svg")) == 4 and "@" not in re.sub(r"@font-face", "", text)
    assert wide.troubles == []


def test_tables_sort_by_mouse_and_keyboard(wide):
    column = (
        "() => [...document.querySelectorAll('#table-costs tbody td:nth-child(2)')].map(c => Number(c.dataset.v ?? "
        "c.textContent))"
    )
    heading = wide.page.locator("#table-costs th:nth-child(2) .sort")
    heading.click()
    up = wide.page.evaluate(column)
    heading.press("Enter")
    down = wide.page.evaluate(column)
    assert up == sorted(up) and down == sorted(up, reverse=True) and up != down
    assert wide.page.locator("#table-costs th:nth-child(2)").get_attribute("aria-sort") == "descending"


@pytest.mark.long
def test_hostile_strings_run_nowhere(browser, hostile_study, hostile_texts, tmp_path):
    path = tmp_path / "hostile.html"
    write_page(path, study_page(hostile_study(visible(hostile_texts[-1] + LONG))))
    for width in (1400, 400):
        with View(browser, path, width=width) as view:
            assert view.page.evaluate("typeof window.pwned") == "undefined"
            assert (
                view.page.evaluate(
                    "document.querySelectorAll('img, iframe, .plot a, [onerror], [onload], [onmouseover]').length"
                )
                == 0
            )
            assert view.page.evaluate("document.documentElement.scrollWidth") <= width
            shown = view.page.locator(".annotation-text").all_text_contents()
            assert any(t.startswith("</script>") for t in shown)
            view.page.hover("#figure-position .plot")
            assert view.troubles == []
