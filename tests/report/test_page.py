"""Any page: what it is given appears escaped and in order, what it is not given leaves no trace, a failure leaves the
old file."""

import json
import os

import pytest
from markupsafe import Markup
from page_parser import Parsed

from whatwhere.report import page
from whatwhere.report.figure import Figure, Panel, Table, text
from whatwhere.report.forms.maps import heatmap
from whatwhere.report.page import GENERATOR, How, Page, Section, render_page, write_page
from whatwhere.report.style import layout


def figure(name: str, words: str = "words") -> Figure:
    """A figure with one line, every string of it the given one."""
    panel = Panel(
        [{"type": "scatter", "x": [0, 1], "y": [1, 0], "hovertext": [words] * 2}],
        layout(200, {}, {}, dict(l=1, r=1, t=1, b=1)),
        words,
    )
    return Figure(name, words, words, [panel], Table(f"t-{name}", words, [words], [[text(words)]]), [("dash", words)])


def full(words: str = "words") -> Page:
    """A page that uses every part but the ledger, every string of it the given one."""
    pairs = [(words, words)]
    return Page(
        title=words,
        summary=[words],
        caveats=[words],
        notes=[words],
        lead=[(words, [words, words]), ("", [words])],
        hero=figure("hero", words),
        sections=[
            Section("one", words, words, [figure("first", words)]),
            Section("two", words, words, [], [Table("t", words, [words], [])]),
        ],
        how=How([words], [(words, pairs)], pairs, [Table("h", words, [words], [[text(words)]])], pairs, pairs),
    )


def test_a_page_needs_a_title_and_no_more(tmp_path):
    path = write_page(tmp_path / "new" / "page.html", Page("Nothing yet"))
    found = Parsed(path.read_text(encoding="utf-8"))
    assert [a["id"] for tag, a in found.elements if tag == "section"] == ["how"]
    assert (
        "In words" not in found.words
        and "How to cite" not in found.words
        and "lead" not in [a.get("class") for _, a in found.elements]
    )
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_parts_stand_in_order_and_empty_sections_do_not():
    given = full()
    text = render_page(Page(**{**vars(given), "sections": [*given.sections, Section("three", "Empty", "")]}))
    found = Parsed(text)
    assert [a["id"] for tag, a in found.elements if tag == "section"] == ["one", "two", "how"]
    assert [a["id"] for tag, a in found.elements if tag == "figure"] == ["figure-hero", "figure-first"]
    classes = [a["class"] for _, a in found.elements if a.get("class")]
    assert classes.index("lead") < classes.index("figure") and "first single" not in classes
    assert text.count('<ul class="key">') == 1  # the mark of the second figure was explained by the first


@pytest.mark.parametrize("kind", range(10))
def test_no_string_becomes_markup_or_hides(kind, hostile_texts):
    hostile = render_page(full(hostile_texts[kind]))

    def shape(parsed):
        return [(tag, sorted(a)) for tag, a in parsed.elements if tag not in ("code", "span")]

    assert shape(Parsed(hostile)) == shape(Parsed(render_page(full())))
    assert len(Parsed(hostile).scripts) == 4 and Parsed(hostile).data()["figures"].keys() == {"hero", "first"}
    assert not set("\u202e\u2066") & set(hostile + Parsed(hostile).script("data"))


def test_our_own_markup_in_the_last_section_stays():
    text = render_page(Page("t", how=How(words=[Markup("a <i>l</i>"), "b <i>l</i>"])))
    assert "<p>a <i>l</i></p>" in text and "<p>b &lt;i&gt;l&lt;/i&gt;</p>" in text


def test_a_failed_page_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    old = f"{GENERATOR} old"
    path.write_text(old)

    def full_disk(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(OSError):
        write_page(path, Page("new"))
    assert path.read_text() == old and [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_foreign_files_are_not_overwritten(tmp_path):
    """A file that is no page of ours is left as it is."""
    path = tmp_path / "notes.md"
    path.write_text("my notes")
    with pytest.raises(ValueError, match="whatwhere did not write: it is left unchanged. Give another name"):
        write_page(path, Page("new"))
    assert path.read_text() == "my notes"


def test_colours_of_maps_are_known_to_the_page():
    import numpy as np

    panel = heatmap(np.eye(3), range(3), range(3), "", "%{z}", (0, 1), ("x", "y"))
    text = render_page(Page("maps", hero=Figure("map", "t", "s", [panel], Table("m", "c", [], []))))
    drawn = Parsed(text).data()["figures"]["map"][0]["data"][0]
    named = {colour.removeprefix("@") for _, colour in drawn["colorscale"]}
    palettes = json.loads(Parsed(text).script("colours"))["palettes"]
    assert all(named <= palette.keys() for palette in palettes.values())


def test_script_json_cannot_end_its_element():
    text = page.script_json({"a": "</script><!--&"})
    assert not set("<>&") & set(text) and json.loads(text) == {"a": "</script><!--&"}
    with pytest.raises(ValueError):
        page.script_json({"a": float("nan")})


def test_code_spans_escape_and_pair():
    assert page.code_spans("a `b<` c") == "a <code>b&lt;</code> c"
    assert page.code_spans("a `b` c ` d") == "a <code>b</code> c ` d"
    assert page.code_spans("`") == "`"


def test_figures_name_their_records_in_the_fold():
    """A figure names its records in the fold of its table."""
    from dataclasses import replace

    drawn = replace(
        figure("one"), records=("kl.share.*: layer, head", "arrays/attention-NAME.npz", "heads.share: part")
    )
    said = "Records: kl.share.*: layer, head, heads.share: part, in records.parquet. Arrays: arrays/attention-NAME.npz."
    text = render_page(Page("t", hero=drawn))
    fold = text[text.index("<details>") : text.index("</details>")]
    assert f'<summary title="{said}">Data table' in fold
    assert said.replace("`", "") in "".join(Parsed(fold).words)
    assert "<code>kl.share.*: layer, head</code>" in fold
    assert "Records:" not in render_page(Page("t", hero=figure("one")))
    assert page.sources(["arrays/a.npz"]) == "Arrays: `arrays/a.npz`."
