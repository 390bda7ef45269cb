"""The attention explorer in headless Chromium with the network off: what it draws, says and lets the keyboard do."""

import re

import numpy as np
import pytest
from attention_maps import LEVELS, attention
from page_view import View

from whatwhere.report.explorer import ExplorerModel, ExplorerText, pack
from whatwhere.report.page import Page, write_page
from whatwhere.report.pages import write_attention_page

pytestmark = pytest.mark.whole

SHOWN = "#ex[data-ready=true][data-grid]"
WORDS = "[CLS] the river rose quickly after the rain nobody had seen it so high [SEP]".split()
TERMS = ["semantic", "absolute", "relative", "total"]


@pytest.fixture(scope="module")
def maps():
    return attention(2, 3, len(WORDS))


@pytest.fixture(scope="module")
def path(maps, tmp_path_factory):
    """Two models, the first with two texts, a mean map and profiles."""
    folder = tmp_path_factory.mktemp("explorer")
    rng = np.random.default_rng(0)
    over = {
        "means": {term: rng.random((2, 3, 8, 8)) for term in TERMS},
        "profiles": {term: rng.random((2, 3, 9)) for term in TERMS},
        "lags": range(-4, 5),
    }
    short = ExplorerText("short", ["a", "b", "c"], attention(2, 3, 3, 1))
    models = [
        ExplorerModel("dstg", 0, [ExplorerText("long", WORDS, maps), short], LEVELS, **over),
        ExplorerModel(
            "rope",
            0,
            [ExplorerText("long", WORDS, {"total": maps["total"][:1, :2]})],
            LEVELS,
            missing="`rope` has one term.",
        ),
    ]
    return write_page(folder / "page.html", Page("Explorer", explorer=pack(models)))


def opened(browser, path, **options):
    view = View(browser, path, **options)
    view.page.wait_for_selector(SHOWN)
    return view


@pytest.fixture
def view(browser, path):
    with opened(browser, path) as found:
        yield found


def settled(view):
    view.page.wait_for_selector(SHOWN)
    view.frames()  # in which the pair under the pointer is drawn


def picture(view, selector):
    """The pixels of a canvas, as text."""
    return view.page.eval_on_selector(selector, "c => c.toDataURL()")


def said(view):
    return " ".join(view.page.text_content(".ex-readout").split())


def scores(view):
    """term -> score, as the page says them."""
    found = {}
    for span in view.page.locator(".ex-readout [data-term]").all():
        text = span.text_content()
        assert "under" not in text
        found[span.get_attribute("data-term")] = float(re.search(r"([\d.e-]+)$", text).group(1))
    return found


def test_opens_offline_and_draws_every_head(view):
    assert view.page.locator(".ex-grid [role=gridcell]").count() == 6 and view.page.locator(".ex-map").count() == 4
    colours = view.page.locator(".ex-grid canvas, .ex-map canvas, .ex-mean canvas, .ex-profile canvas").evaluate_all(
        "cs => cs.map(c => new Set(new Uint32Array("
        "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"
    )
    assert len(colours) == 6 + 4 + 2 and min(colours) > 10
    assert view.page.evaluate("document.documentElement.scrollWidth") <= 1400
    assert view.troubles == []


def test_term_and_head_change_by_mouse_and_keys(view):
    first = picture(view, ".ex-grid [role=gridcell] canvas")
    view.page.click("label[for=ex-term-1]")
    settled(view)
    second = picture(view, ".ex-grid [role=gridcell] canvas")
    assert first != second and view.page.text_content("#ex-grid-title") == "Every head, absolute"
    view.page.click(".ex-grid [role=gridcell][data-layer='1'][data-head='2']")
    settled(view)
    assert view.page.text_content("#ex-head-title") == "Layer 2, head 2"
    large = picture(view, ".ex-map canvas[data-term=total]")
    view.page.keyboard.press("ArrowLeft")
    settled(view)
    assert (
        view.page.text_content("#ex-head-title") == "Layer 2, head 1"
        and picture(view, ".ex-map canvas[data-term=total]") != large
    )
    assert view.page.evaluate("document.activeElement.dataset.head") == "1"
    assert view.page.locator(".ex-grid [tabindex='0']").count() == 1
    view.page.keyboard.press("4")
    settled(view)
    assert view.page.text_content("#ex-grid-title") == "Every head, total" and view.page.is_checked("#ex-term-3")
    view.page.keyboard.press("Enter")
    assert view.page.evaluate("document.activeElement.dataset.term") == "total"
    view.page.keyboard.press("Escape")
    assert view.page.evaluate("document.activeElement.getAttribute('role')") == "gridcell"
    view.page.click(".ex-map >> nth=1 >> button")
    settled(view)
    assert (
        view.page.locator(".ex-map").count() == 1 and view.page.locator(".ex-map canvas").bounding_box()["width"] > 600
    )
    assert view.troubles == []


def test_hover_and_arrows_name_tokens_and_scores(view, maps):
    """Hover and arrows name the tokens and their true scores."""
    view.page.click(".ex-grid [role=gridcell][data-layer='1'][data-head='0']")
    settled(view)
    view.page.focus(".ex-map canvas[data-term=total]")
    for key in ("Home", "PageUp", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        view.page.keyboard.press(key)
    settled(view)
    assert said(view).startswith("query 2 river → key 3 rose:")
    for term, score in scores(view).items():
        assert score == pytest.approx(LEVELS[maps[term][1, 0, 2, 3]], rel=0.06)  # two digits
    assert view.page.text_content(".ex-live[role=status]") == view.page.text_content(".ex-readout")
    assert view.page.locator(".ex-strip .query").text_content() == "river"
    # With the mouse: the lower right corner of the map is the last query and key.
    canvas = view.page.locator(".ex-map canvas[data-term=absolute]")
    canvas.evaluate("c => c.scrollIntoView({ block: 'center', behavior: 'instant' })")  # not below the bar at the top
    box = canvas.bounding_box()
    label_room = box["height"] - 4 - (box["width"] - 2)  # gutter below minus gutter at the left: equal
    assert abs(label_room) < 1
    wanted = {"query 0 [CLS] → key 14 [SEP]", "query 0 [CLS] → key 0 [CLS]"}
    pairs = set()

    def moved_over():
        box = canvas.bounding_box()
        for step in range(1, 66):
            view.page.mouse.move(box["x"] + box["width"] * (1 - step / 80), box["y"] + 12)
            pairs.add(said(view).split(":")[0])
        return wanted <= pairs

    view.until(moved_over)
    assert view.troubles == []


def test_the_table_holds_the_strongest_pairs(view, maps):
    view.page.click(".ex details summary")
    rows = view.page.locator("#ex-pairs tbody tr").evaluate_all(
        "rs => rs.map(r => [...r.cells].map(c => c.textContent))"
    )
    weights = LEVELS[maps["total"][0, 0]]
    best = np.sort(weights.ravel())[::-1][:20]
    assert len(rows) == 20
    for row, weight in zip(rows, best, strict=True):
        (query, name), (key, _) = (cell.split(" ", 1) for cell in row[1:3])
        assert float(row[3]) == pytest.approx(weight, rel=0.06)
        assert weights[int(query), int(key)] == pytest.approx(weight) and name == WORDS[int(query)]


def test_text_and_model_can_be_chosen(view):
    view.page.focus("#ex-text")
    view.page.keyboard.press("ArrowRight")
    settled(view)
    assert view.page.text_content(".ex-texts output") == "2 of 2: short, 3 tokens"
    assert view.page.get_attribute("#ex-text", "aria-valuetext") == "2 of 2: short, 3 tokens"
    assert view.page.locator(".ex-strip [data-token]").count() == 3
    view.page.select_option("#ex-model", "1")
    settled(view)
    assert view.page.locator(".ex-grid [role=gridcell]").count() == 2 and view.page.locator(".ex-map").count() == 1
    assert view.page.text_content(".ex-missing") == "rope has one term." and not view.page.is_visible(".ex-terms")
    assert view.page.locator(".ex-below figure").count() == 0
    assert view.troubles == []


def test_theme_width_and_paper_draw_anew(view):
    before = picture(view, ".ex-map canvas")
    view.page.click("#theme")
    view.until(lambda: picture(view, ".ex-map canvas") != before)
    settled(view)
    map_width = "document.querySelector('.ex-map canvas').getBoundingClientRect().width"
    view.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    view.until(lambda: view.page.evaluate(map_width) < 680)
    settled(view)
    view.page.evaluate("dispatchEvent(new Event('afterprint'))")
    view.page.set_viewport_size({"width": 700, "height": 900})
    view.until(lambda: view.page.evaluate("document.documentElement.scrollWidth") == 700)
    settled(view)
    assert view.page.evaluate("document.documentElement.scrollWidth") == 700
    assert view.troubles == []


def test_explorer_is_readable_at_400_dark_pixels(browser, path):
    """Works at 400 pixels in the dark with text that can be read."""
    with opened(browser, path, width=400, scheme="dark") as view:
        assert view.page.evaluate("document.documentElement.scrollWidth") == 400
        boxes = view.page.locator(".ex canvas").evaluate_all("cs => cs.map(c => c.getBoundingClientRect().right)")
        assert max(boxes) <= 400
        smallest = """() => Math.min(...[...document.querySelectorAll('#ex *')]
            .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
            .map(e => parseFloat(getComputedStyle(e).fontSize)))"""
        assert view.page.evaluate(smallest) >= 14
        assert view.troubles == []


def test_hostile_tokens_neither_run_nor_widen_the_page(browser, hostile_texts, tmp_path):
    tokens = [
        *hostile_texts,
        "<script>alert(1)</script>",
        "</script>",
        "\"'`",
        "javascript:alert(1)",
        "a\u0000\u001b[31m\u202e\u2066b",
        "x" * 10_000,
    ]
    hostile = ExplorerText(hostile_texts[-1], tokens, attention(1, 2, len(tokens)))
    page = write_attention_page(
        tmp_path / "hostile.html", ExplorerModel(hostile_texts[-1], 0, [hostile], LEVELS, missing=hostile_texts[0])
    )
    for width in (1400, 400):
        with opened(browser, page, width=width) as view:
            view.page.click(".ex details summary")
            view.page.focus(".ex-map canvas")
            for _ in tokens:
                view.page.keyboard.press("ArrowDown")
                view.page.keyboard.press("ArrowRight")
            settled(view)
            assert "xxxxxxxx" in said(view)
            assert view.page.evaluate("typeof window.pwned") == "undefined"
            made = "img, iframe, svg[onload], #ex a, #ex script, #ex b b, [onerror], [onload], [onmouseover]"
            assert view.page.locator(made).count() == 0
            assert view.page.evaluate("document.documentElement.scrollWidth") <= width
            assert "\u202e" not in view.page.content()
            shown = view.page.locator(".ex-strip bdi").all_text_contents()
            assert "</script>" in shown and "<script>alert(1)</script>" in shown and max(map(len, shown)) <= 28
            assert view.troubles == []


SAME_WORK = """() => { const pixels = new Uint8ClampedArray(4 * 512 * 512), root = (v) => 255 * Math.sqrt(v / 255);
    for (let head = 0; head < 12; head++) for (let i = 0; i < pixels.length; i++) pixels[i] = root((i + head) & 255);
    return pixels[7] }"""


def test_512_tokens_are_drawn_fast(browser, tmp_path):
    """Ten moves of the chosen pair, and every head of another term, in CPU time of the page, not of a clock, against
    that of painting every pixel of every head: about as much."""
    text = ExplorerText("long", [f"w{i}" for i in range(512)], attention(2, 6, 512))
    with opened(browser, write_attention_page(tmp_path / "long.html", ExplorerModel("m", 0, [text], LEVELS))) as view:
        meter = view.context.new_cdp_session(view.page)
        meter.send("Performance.enable", {"timeDomain": "threadTicks"})

        def seconds():
            metrics = {m["name"]: m["value"] for m in meter.send("Performance.getMetrics")["metrics"]}
            return metrics["TaskDuration"]

        began = seconds()
        for _ in range(3):
            view.page.evaluate(SAME_WORK)
        pixels, began = seconds() - began, seconds()
        view.page.focus(".ex-map canvas")
        for _ in range(10):
            view.page.keyboard.press("ArrowDown")
        settled(view)
        assert said(view).startswith("query 266 w266")  # ten below the middle
        view.page.keyboard.press("2")
        settled(view)
        assert view.page.text_content("#ex-grid-title") == "Every head, absolute"
        assert 0 < seconds() - began < 20 * pixels
        assert view.troubles == []


def test_a_browser_that_cannot_unpack_is_told(browser, path):
    context = browser.new_context()
    try:
        context.add_init_script("delete window.DecompressionStream")
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("#ex[data-ready=true]")
        assert "no DecompressionStream" in page.text_content("#ex [role=alert]")
    finally:
        context.close()
