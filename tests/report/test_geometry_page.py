"""The page of a geometry run: complete, small, escaped, and true to the records, as text and in a browser."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from geometry_run import make_run
from page_parser import Parsed
from page_view import View

from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report import write_report
from whatwhere.report.figures import fits
from whatwhere.report.loaded_run import Corpus, Run, load_run
from whatwhere.report.page import render_page, write_page
from whatwhere.report.pages import geometry_page

FIGURES = [
    "lag",
    "support",
    "matrix",
    "between",
    "map",
    "spectrum",
    "stress",
    "scatter",
    "held-out",
    "dimensions",
    "violations",
    "separation",
]


@pytest.fixture(scope="module")
def run(geometry_folder):
    return load_run(geometry_folder)


@pytest.fixture(scope="module")
def text(run):
    return render_page(geometry_page(run))


def hostile(run: Run, text: str) -> Run:
    """The run with every name, title, encoding and fact replaced by `text`."""
    known = {"corpus", "mds", "smacof", "equidistant", "sinusoidal", "used", None}
    names = {c.name for c in run.corpora} | set(run.models)

    def renamed(r: Record) -> Record:
        part = r.part if r.part in known else f"{text}|{text}" if r.metric == "between" else text
        return replace(r, study=text, model=text if r.model in names else r.model, part=part, unit=text)

    facts = {
        "title": text,
        "command": text,
        "started": text,
        "machine": {text: text},
        "versions": {text: text},
        "settings": {text: [text]},
    }
    words = {"scatter_names": np.array([text] * 4)}
    corpora = [
        Corpus(text, text, {"name": text, "summary": [text], text: {text: text}, "align": text}, c.arrays | words)
        for c in run.corpora
    ]
    return Run(text, facts | {"protocol": text}, [renamed(r) for r in run.records], measured=corpora)


def test_sections_follow_the_order_of_questions(text):
    """Sections and figures stand in the order of the questions."""
    found = Parsed(text).elements
    assert [a["id"] for tag, a in found if tag == "section"] == [
        "support",
        "distances",
        "shape",
        "fit",
        "training",
        "how",
    ]
    assert [a["id"].removeprefix("figure-") for tag, a in found if tag == "figure"] == FIGURES
    tables = {a["id"] for tag, a in found if tag == "table"}
    assert {f"table-{t}" for t in ("corpora", "correlations", "parameters", "hypotheses")} < tables
    assert {a["data-table"] for tag, a in found if a.get("class") == "csv"} <= tables
    assert len({a["id"] for _, a in found if a.get("id")}) == sum(1 for _, a in found if a.get("id"))


def test_the_first_screen_answers_in_plain_words(text, run):
    first = text[text.index('<div class="first') : text.index('<section id="support"')]
    assert all(f"<h2>{c.name}</h2>" in first and c.facts["summary"][0] in first for c in run.corpora)
    assert first.count("<figure") == 1 and "once noise is taken out" in first
    documents, tokens = (run.corpora[0].facts[k] for k in ("documents", "tokens"))
    assert f"reviews: {documents:,} documents, {tokens:,} tokens" in text[: text.index('<div class="first')]
    assert "reviews: " in text[: text.index('<div class="first')] and "Left out because" in text


def test_every_table_row_has_every_column(text):
    for table in re.findall(r"<table.*?</table>", text, re.S):
        heads = table.count("<th ")
        assert all(row.count("<td") == heads for row in re.findall(r"<tr><td.*?</tr>", table, re.S))


def test_numbers_of_the_page_follow_the_records(run, text):
    changed = [
        replace(r, value=77777.0, low=None, high=None)
        if (r.metric, r.model, r.part) == ("stress.raw.corrected", "tags", "rope")
        else r
        for r in run.records
    ]
    assert "77,777" not in text and "77,777" in render_page(geometry_page(replace(run, records=changed)))


def test_a_section_without_records_is_left_out(run):
    bare = replace(run, records=[], measured=[replace(c, arrays={}) for c in run.corpora])
    ids = [a["id"] for tag, a in Parsed(render_page(geometry_page(bare))).elements if tag == "section"]
    assert ids == ["support", "how"]  # the table of corpora has their sizes
    assert "How it was done" in render_page(geometry_page(Run("empty")))


def test_the_papers_protocol_is_named_and_needs_no_correction(run):
    counted = [
        replace(c, arrays={k: v for k, v in c.arrays.items() if "corrected" not in k and "floor" not in k})
        for c in run.corpora
    ]
    records = [
        r for r in run.records if "corrected" not in r.metric and r.metric not in ("floor.mean", "stress.held_out")
    ]
    shown = render_page(
        geometry_page(replace(run, facts=run.facts | {"protocol": "paper"}, records=records, measured=counted))
    )
    figures = [a["id"].removeprefix("figure-") for tag, a in Parsed(shown).elements if tag == "figure"]
    assert figures == [f for f in FIGURES if f != "held-out"] and "1e-12 is added to every count" in shown
    assert "its Hellinger distance in the corpus (as counted)" in shown and "sinusoidal: r " in shown


def test_noise_and_few_documents_are_said_first(run):
    noise = [
        replace(r, value=0.0, low=-0.1, high=0.1) if r.metric == "distance.mean.corrected" else r for r in run.records
    ]
    corpora = [replace(c, facts=c.facts | {"documents": 12}) for c in run.corpora]
    said = geometry_page(replace(run, records=noise, measured=corpora)).caveats
    assert said[0].startswith("Not separable from chance: in `reviews` and `tags`") and said[1].startswith(
        "Fewer than 1,000 documents"
    )
    bare = [replace(r, low=None, high=None) for r in noise]
    assert geometry_page(replace(run, records=bare)).caveats[0].startswith("In `reviews` and `tags` the mean square")


def test_gaps_in_arrays_are_drawn_as_gaps(run):
    holes = {
        k: np.where(np.arange(v.size).reshape(v.shape) % 5 == 1, np.nan, v)
        for k, v in run.corpora[0].arrays.items()
        if v.dtype.kind == "f"
    }
    kept = {k: run.corpora[0].arrays[k] for k in ("positions", "left_out", "support", "lag")}
    assert "figure-matrix" in render_page(
        geometry_page(replace(run, measured=[replace(run.corpora[0], arrays=holes | kept)]))
    )


@pytest.mark.long
def test_long_corpora_stay_below_ten_megabytes(run):
    """Long and many corpora stay below ten megabytes and say that they are thinned."""
    rng = np.random.default_rng(0)
    m = 1500
    dist = np.abs(np.subtract.outer(np.arange(m), np.arange(m))) / m + 0.1 * rng.random((m, m))
    vectors = ("positions", "support", "floor", "floor_low", "floor_high", "eigenvalues", "eigenvalues_corrected")
    arrays = {
        "distance": dist,
        "corrected": dist,
        "coords": rng.random((m, 3)),
        "coords_corrected": rng.random((m, 3)),
        "left_out": np.array([]),
    }
    arrays |= {name: np.arange(m)[:: -1 if "eigen" in name else 1] * 1.0 for name in vectors}
    arrays |= {name: np.arange(1, m) * 1.0 for name in ("lag", "lag_mean", "lag_mean_corrected")}
    corpora = [Corpus(f"c{i}", f"c{i}", {"name": f"c{i}"}, arrays) for i in range(6)]
    shown = render_page(geometry_page(replace(run, measured=corpora)))
    assert len(shown.encode()) < 10e6
    assert "at equal steps; arrays/ in the run" in shown
    drawn = Parsed(shown).data()["figures"]["matrix"]
    assert len(drawn) == 12 and all(len(p["data"][0]["z"]) <= 182 for p in drawn)


@pytest.mark.whole
def test_no_string_becomes_markup(run, hostile_texts):
    def shape(text):
        page = render_page(geometry_page(hostile(run, text)))
        parsed = Parsed(page)
        assert len(parsed.scripts) == 4, text
        assert not set("\u202e\u2066") & set(page + parsed.script("data")), text
        return [(tag, sorted(a)) for tag, a in parsed.elements if tag not in ("code", "span")]

    harmless = shape("harmless")
    for text in hostile_texts:
        assert shape(text) == harmless, text


def test_write_report_returns_its_path_and_leaves_nothing_else(tmp_path):
    folder = make_run(tmp_path / "run", corpora=("only",), positions=12, models=())
    write_records(folder / "records.parquet", read_records(folder / "records.parquet"))
    names = sorted(p.name for p in folder.iterdir())
    assert write_report(folder) == folder / "report.html"
    assert sorted(p.name for p in folder.iterdir()) == sorted([*names, "report.html"])
    assert write_report(folder, tmp_path / "new" / "x.html").is_file()


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (400, "dark")])
def test_draws_in_a_browser_and_fits(browser, run, tmp_path, width, scheme):
    path = write_page(tmp_path / "page.html", geometry_page(run))
    with View(browser, path, width=width, scheme=scheme) as view:
        assert view.page.evaluate("document.documentElement.scrollWidth") == width
        assert view.page.locator(".plot").count() == view.page.locator(".plot.js-plotly-plot").count()
        frames = view.page.locator("#figure-scatter .plot").evaluate_all(
            "ps => ps.map(p => { const b = p.querySelector('.bglayer rect, .plotbg, "
            ".gridlayer').getBoundingClientRect(); return b.width })"
        )
        assert len(frames) == 8 and min(frames) > 100
        squares = view.page.locator("#figure-matrix .heatmaplayer image")
        assert squares.count() == 4
        for box in squares.evaluate_all(
            "is => is.map(i => [i.getBoundingClientRect().width, i.getBoundingClientRect().height])"
        ):
            assert box[0] == pytest.approx(box[1], abs=2) and box[0] > 150
        boxes = """ps => ps.map(p => [...p.querySelectorAll('.annotation-text')].map(a => {
            const [b, f] = [a, p].map(e => e.getBoundingClientRect());
            return [b.left - f.left, b.right - f.right, b.top, b.bottom] }))"""
        drawn = ", ".join(
            f"#figure-{name} .plot"
            for name in ("lag", "spectrum", "stress", "scatter", "held-out", "dimensions", "violations", "separation")
        )
        for labels in view.page.locator(drawn).evaluate_all(boxes):
            assert all(left >= 0 and right <= 1 for left, right, _, _ in labels)
            assert all(
                a[3] <= b[2] + 1 or b[3] <= a[2] + 1 or a[1] != b[1] for a, b in itertools.combinations(labels, 2)
            )
        if width == 1400:
            assert view.page.evaluate("document.querySelector('.first').getBoundingClientRect().bottom") <= 900
        assert view.troubles == []


@pytest.mark.long
def test_hostile_names_run_nowhere(browser, run, hostile_texts, tmp_path):
    path = write_page(tmp_path / "hostile.html", geometry_page(hostile(run, hostile_texts[-1] + "x" * 300)))
    with View(browser, path) as view:
        assert view.page.evaluate("typeof window.pwned") == "undefined"
        bad = "document.querySelectorAll('.panels img, iframe, .plot a, [onerror], [onload], [onmouseover]').length"
        assert view.page.evaluate(bad) == 0 and view.page.evaluate("document.documentElement.scrollWidth") <= 1400
        view.page.hover("#figure-stress .plot")
        assert view.troubles == []


def of_corpus(metric: str, value: float, *ends: float, **place: object) -> Record:
    """A record of the corpus of a made-up study."""
    return Record("s", "corpus", metric, value, *ends, **place)


def test_recorded_ratios_decide_which_stress_is_lower():
    """Two stresses of the same documents were held against each other as if their errors were independent: the title
    called alibi and sinusoidal not separable where the recorded ratio of the two is below 1."""
    records = [
        of_corpus("stress.optimal", 0.7, part="alibi"),
        of_corpus("stress.optimal.corrected", 0.509, 0.45, 0.57, part="alibi"),
        of_corpus("stress.optimal", 0.8, part="sinusoidal"),
        of_corpus("stress.optimal.corrected", 0.56, 0.5, 0.62, part="sinusoidal"),
    ]
    told = "Lowest stress of a ready-made encoding: `corpus` {}alibi 0.509, sinusoidal 0.560"
    run = Run("s", {}, [*records, of_corpus("stress.raw", 1.0, part="alibi")])
    assert fits.stress(run).title == told.format("(not separable): ")
    for name, ends, mark in (("alibi/sinusoidal", (0.86, 0.97), ""), ("sinusoidal/alibi", (0.9, 1.2), "(not")):
        ratio = of_corpus("stress.ratio.optimal.corrected", sum(ends) / 2, *ends, part=name)
        title = fits.stress(Run("s", {}, [*run.records, ratio])).title
        assert title == told.format("(not separable): " if mark else "")


def test_full_ranks_of_two_kinds_stand_apart():
    """The stress of the corrected table, of rank 8, stood in the row of rank 125 and under one name "full rank"."""
    records = [
        of_corpus("rank", 125.0),
        of_corpus("rank.corrected", 8.0),
        of_corpus("stress.raw", 0.0, part="mds"),
        of_corpus("stress.optimal", 0.0, part="mds"),
        of_corpus("stress.optimal", 0.2, part="mds", index=3),
        of_corpus("stress.optimal.corrected", 0.013, part="mds"),
        of_corpus("stress.optimal.corrected", 0.1, part="mds", index=3),
        *(of_corpus("parameters", 894.0 * r, part="mds", index=r) for r in (3, 125)),
    ]
    run = Run("s", {}, records)
    rows = [[cell.text for cell in cells[1:]] for cells in fits.parameters(run).rows]
    assert rows == [["3", "2,682", "0.200", "0.100"], ["8", "7,152", "–", "0.0130"], ["125", "111,750", "0", "–"]]
    (corpus,) = run.corpora
    values = fits.values_of(run, "stress.optimal", corpus)
    assert {name: sorted(kinds) for name, kinds in values.items()} == {
        "mds, rank 125": ["as counted"],
        "mds, rank 8": ["corrected"],
    }
