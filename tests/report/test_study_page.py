"""The page as text: complete, self-contained, escaped whatever the strings, whole or not written at all."""

import base64
import fnmatch
import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from page_parser import Parsed

from whatwhere.records.record import Record, read_records, write_records
from whatwhere.report import how, write_report
from whatwhere.report.loaded_run import Run, load_run
from whatwhere.report.page import render_page
from whatwhere.report.pages import study_page


def render(study: Run) -> str:
    return render_page(study_page(study))


@pytest.fixture(scope="module")
def demo_page(demo):
    return render(load_run(demo))


def test_sections_stand_in_the_order_of_the_questions(demo_page):
    ids = [a["id"] for tag, a in Parsed(demo_page).elements if tag == "section"]
    assert ids == ["learning", "shape", "structure", "claims-of-papers", "how"]


def test_first_screen_is_the_pick_and_one_figure(demo_page):
    first = demo_page[demo_page.index('<p class="picked">') : demo_page.index('<section id="learning"')]
    assert first.count('id="table-pick"') == 1 and first.count("<figure") == 1 and "held-out loss" in first
    assert "24,300 documents, 41.3M characters, 10.2M tokens" in demo_page and "4.51M training tokens each" in demo_page
    assert demo_page.index("A small run: ") < demo_page.index('<div class="first')


def test_every_figure_has_table_buttons_and_alt_text(demo_page):
    """Every figure has a table buttons and words for the ear."""
    found = Parsed(demo_page).elements
    figures = [a["id"] for tag, a in found if tag == "figure"]
    assert len(figures) == 1 + 3 + 3 + 1
    assert sum(tag == "button" and a.get("class") == "svg" for tag, a in found) == len(figures)
    tables = {a["id"] for tag, a in found if tag == "table"}
    assert {a["data-table"] for tag, a in found if tag == "button" and a.get("class") == "csv"} <= tables
    plots = [a for tag, a in found if a.get("class") == "plot"]
    assert all(a["role"] == "img" and len(a["aria-label"]) > 60 for a in plots)
    assert len({a["id"] for _, a in found if a.get("id")}) == sum(1 for _, a in found if a.get("id"))


def test_only_the_pages_own_scripts_may_run(demo_page):
    """Nothing is fetched and only the pages own scripts may run."""
    parsed = Parsed(demo_page)
    assert not [a for tag, a in parsed.elements if a.get("src") or tag in ("link", "iframe", "object", "embed", "base")]
    assert all(a["href"].startswith("#") for tag, a in parsed.elements if tag == "a")
    policy = next(a["content"] for tag, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy")
    allowed = re.search(r"script-src ([^;]*)", policy).group(1).split()
    own = [text for (tag, a), text in zip(parsed.tags("script"), parsed.scripts, strict=True) if not a.get("id")]
    texts = [parsed.script("plotly"), *own]
    hashes = ["'sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() + "'" for s in texts]
    assert allowed == hashes and len(hashes) == 2 and "default-src 'none'" in policy and "unsafe-eval" not in policy
    css = demo_page[demo_page.index("<style>") : demo_page.index("</style>")]
    assert "url(" not in css and "@import" not in css


def test_the_page_is_below_ten_megabytes(demo_page):
    """The page is one file of less than ten megabytes."""
    assert 1.5e6 < len(demo_page.encode()) < 4e6
    assert demo_page.count('id="plotly"') == 1 and "plotly.js v" not in demo_page  # packed: a third of its size


@pytest.mark.whole
def test_a_section_without_records_is_left_out(demo):
    study = load_run(demo)
    bare = render(
        replace(study, records=[r for r in study.records if r.metric in ("loss", "loss.unigram")], claims=[], tables={})
    )
    ids = [a["id"] for tag, a in Parsed(bare).elements if tag == "section"]
    assert ids == ["learning", "how"] and 'id="table-claims"' not in bare and "A probe is a ridge" not in bare


def test_a_study_of_nothing_is_still_a_page():
    assert "How it was done" in render(Run("empty"))


@pytest.fixture(scope="module")
def harmless_page(hostile_study):
    return Parsed(render(hostile_study("harmless")))


@pytest.mark.parametrize("kind", range(10))
def test_no_string_becomes_markup(kind, hostile_texts, hostile_study, harmless_page, tmp_path):
    text = hostile_texts[kind]
    study = hostile_study(text)
    write_records(tmp_path / "records.parquet", study.records)
    (tmp_path / "study.json").write_text(json.dumps(study.facts))
    (tmp_path / "claims.json").write_text(json.dumps(study.claims))
    found = write_report(tmp_path).read_text(encoding="utf-8")
    hostile_page = Parsed(found)

    def shape(parsed):
        return [(tag, sorted(a)) for tag, a in parsed.elements if tag not in ("code", "span")]

    assert shape(hostile_page) == shape(harmless_page)  # the same elements with the same attributes: nothing was added
    assert len(hostile_page.scripts) == 4 and hostile_page.data()["figures"]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f]", found + hostile_page.script("data"))
    shown = "".join(hostile_page.words).replace("`", "")
    assert " ".join(text.replace("\u202e", "\ufffd").replace("\u2066", "\ufffd").replace("`", "").split()) in " ".join(
        shown.split()
    )


@pytest.mark.whole
def test_numbers_of_the_page_follow_the_records(build):
    folder = build()
    before = write_report(folder).read_text(encoding="utf-8")
    records = [
        replace(r, value=7.77) if (r.metric, r.model, r.part, r.step) == ("loss", "ap", "validation", None) else r
        for r in read_records(folder / "records.parquet")
    ]
    write_records(folder / "records.parquet", records)
    after = write_report(folder).read_text(encoding="utf-8")
    assert ">7.77<" not in before and ">7.77<" in after


@pytest.mark.whole
def test_write_report_returns_its_path_and_leaves_nothing_else(build, tmp_path):
    folder = build()
    names = sorted(p.name for p in folder.iterdir())
    assert write_report(folder) == folder / "report.html"
    assert sorted(p.name for p in folder.iterdir()) == sorted([*names, "report.html"])
    assert write_report(folder, tmp_path / "new" / "x.html").is_file()


@pytest.mark.whole
def test_a_failed_report_leaves_the_old_one(build, monkeypatch):
    folder = build()
    old = '<meta name="generator" content="whatwhere"> old'
    (folder / "report.html").write_text(old)

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError):
        write_report(folder)
    assert (folder / "report.html").read_text() == old and not list(folder.glob(".report*"))


def test_no_records_is_one_clear_line(tmp_path):
    with pytest.raises(ValueError, match="No records at"):
        write_report(tmp_path)


@pytest.fixture(scope="module")
def all_page(everything):
    return render(load_run(everything))


@pytest.mark.whole
def test_a_page_of_many_models_lists_them_by_family(all_page, everything):
    ids = [a["id"] for tag, a in Parsed(all_page).elements if tag == "section"]
    assert ids == ["learning", "shape", "structure", "claims-of-papers", "models", "how"]
    listed = all_page[all_page.index('<section id="models"') : all_page.index('<section id="how"')]
    names = {m["name"] for m in json.loads((everything / "study.json").read_text(encoding="utf-8"))["models"]}
    assert len(names) >= 20 and all(f" <code>{name}</code></dt>" in listed for name in names)
    assert "own scheme: <code>log_decay</code> bias" in listed
    first = all_page[all_page.index('<div class="first') : all_page.index('<section id="learning"')]
    assert first[: first.index("</table>")].count("<tr>") == 1 + len(names) and first.count('class="plot"') == 7
    assert all_page.count('class="plot"') < 110 and len(all_page.encode()) < 10e6


@pytest.mark.parametrize("which", ["demo_page", pytest.param("all_page", marks=pytest.mark.whole)])
def test_every_mark_is_explained_once(which, request):
    text = request.getfixturevalue(which)
    assert len(re.findall("best R² on shuffled targets</li>", text)) == len(re.findall(r"\bthe paper</li>", text)) == 1


@pytest.fixture(scope="module")
def whole_text(whole, tmp_path_factory):
    return write_report(whole, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


@pytest.mark.whole
def test_a_full_study_asks_all_questions_in_order(whole_text):
    """A study of everything asks all questions in order and stays small."""
    ids = [a["id"] for tag, a in Parsed(whole_text).elements if tag == "section"]
    assert ids == ["explorer", "learning", "heads", "shape", "structure", "claims-of-papers", "corpus", "how"]
    assert len(whole_text.encode()) < 10e6 and whole_text.count('class="plot"') > 60
    bar = whole_text[whole_text.index("<nav") : whole_text.index("</nav>")]
    assert re.findall(r">([^<]+)</a>", bar) == [
        *(
            "Result",
            "Explorer",
            "Learning",
            "Attention",
            "Shape",
            "Structure",
            "Claims",
            "Corpus",
            "How it was done",
        )
    ]


@pytest.mark.whole
def test_every_figure_names_records_that_the_study_has(whole):
    """Traceability: each entry is a metric of the study, or array files that it has."""
    page = study_page(load_run(whole))
    study = load_run(whole)
    figures = [page.hero, *(f for s in page.sections for f in (*s.figures, *s.more))]
    stems = [f"arrays/{stem}.npz" for stem in study.arrays]
    for figure in figures:
        assert figure.records, figure.id
        for entry in figure.records:
            known = stems if entry.startswith("arrays/") else study.table.metrics
            for name in entry.partition(":")[0].split(", "):
                assert fnmatch.filter(known, re.sub(r"[A-Z]+", "*", name)), (figure.id, entry)


@pytest.mark.whole
def test_the_explorer_gives_way_to_the_figures(whole, monkeypatch):
    from whatwhere.report import pages as module

    monkeypatch.setattr(module, "MOST_BYTES", 1_000)
    page = module.open_page(whole)
    assert page.explorer is not None and page.explorer.data["models"]  # as far as the least room of an explorer goes
    monkeypatch.setattr(module, "LEAST_EXPLORER", 100)
    page = module.open_page(whole)
    assert page.explorer is not None and not page.explorer.data["models"] and page.explorer.notes
    assert "explorer" in [a.get("id") for _, a in Parsed(render_page(page)).elements]


def test_words_and_papers_follow_the_analyses(whole, demo):
    bare = how.words(load_run(demo))
    full = how.words(load_run(whole))
    assert not any("KL share" in w or "shuffled boundaries" in w for w in bare)
    for said in (
        "KL share",
        "shuffled boundaries",
        "draws of the documents",
        "Three controls",
        "A B A",
        "appendix B.2",
        "Hellinger",
    ):
        assert any(said in w for w in full), said
    cited = [entry.split("{")[1].split(",")[0] for _, entry in how.cited(load_run(demo))]
    assert cited == ["dstg", "lowdim"]
    assert len(how.cited(load_run(whole))) == 5
    tupe = Run(
        "s", {"models": [{"name": "a", "config": {"preset": "tupe-a", "absolute": "learned", "untied": "added"}}]}
    )
    assert [str(w) for w, entry in how.cited(tupe) if "2006.15595" in entry] == ["The untied schemes:"]


def test_the_smallest_seed_effect_is_printed(build):
    """The smallest effect of the seeds stands in how it was done."""
    one = load_run(build("1", models=("dstg", "ap")))
    three = load_run(build("3", models=("dstg", "ap"), seeds=(0, 1, 2)))
    assert "One training seed cannot show a difference between schemes" in how.power(one)
    told = how.power(three)
    assert "With 3 training seeds" in told and "only from 3.26 standard deviations on" in told
    assert "nats of held-out loss" in told and "in R² of position" in told and told in how.words(three)


def test_the_report_reads_no_other_part_of_the_project():
    import whatwhere.report as report

    root = Path(report.__file__).parent
    below = ("claims", "files", "gates", "hashes", "metrics", "papers", "points", "records")
    below += ("references", "run", "terms", "wrong")
    for path in root.rglob("*.py"):
        up = "." * (2 + len(path.relative_to(root).parts) - 1)
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.match(r"\s*(from|import) whatwhere", line), f"{path.name}: {line}"
            if match := re.match(rf"\s*from {re.escape(up)}(\w+)", line):
                assert match[1] in below, f"{path.name}: {line}"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("corpus", "told"),
    [
        ({"join": "none", "pieces": "first"}, "windows are the first pieces of documents; each is read 1.5 times"),
        (
            {"join": "none", "pieces": "all"},
            "windows are all pieces of documents, 17\u202f% begin with a document; each",
        ),
        (
            {"join": "run-on", "pieces": "all"},
            "windows run on from document to document, 17\u202f% begin with a document",
        ),
    ],
)
def test_a_page_says_which_rows_its_models_read(corpus, told, build):
    folder = build()
    facts = json.loads((folder / "study.json").read_text())
    facts["corpus"] = {"name": "text", **corpus}
    (folder / "study.json").write_text(json.dumps(facts))
    records = read_records(folder / "records.parquet")
    more = [Record("s", "", "corpus.from_start", 0.17), Record("s", "ap", "passes", 1.5, seed=0)]
    write_records(folder / "records.parquet", [*records, *more])
    words = "".join(Parsed(write_report(folder).read_text(encoding="utf-8")).words)
    assert words.count(told) == 1 and words.count(told[0].upper() + told[1:]) == 1  # below the title, and at the end
