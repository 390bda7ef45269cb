"""The documents are true: every file, function and test that docs/method.md names exists, the code that
docs/extending.md shows is that of the source, and the pictures are those of the tables."""

import re
from pathlib import Path

import pytest
import torch
from scripts import module_of
from transformers import initialization

from whatwhere.encoder import Encoder, preset, registry

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs/method.md").read_text(encoding="utf-8")


def test_files_and_names_of_the_method_table_exist():
    found = re.findall(r"`((?:encoder|analysis|geometry|corpus|examples/theory)/\w+\.py)`((?: `[\w.]+`,?)*)", METHOD)
    assert len(found) >= 10
    for file, names in found:
        text = (ROOT / ("" if file.startswith("examples") else "src/whatwhere") / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([\w.]+)`", names):
            last = name.split(".")[-1]
            assert f"def {last}(" in text or f"class {last}(" in text or f"class {last}:" in text, (
                f"{file} has no {name}"
            )


def test_tests_of_the_method_table_exist():
    everything = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    names = re.findall(r"`(test_\w+)`", METHOD)
    assert len(names) >= 8
    for name in names:
        assert f"def {name}(" in everything, f"docs/method.md names {name}, which does not exist"
    for path in re.findall(r"`(tests/[\w/]+\.py)`", METHOD):
        assert (ROOT / path).is_file(), path


def test_own_schemes_of_the_method_page_run(monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", METHOD, flags=re.S)
    for known in (registry.TABLES, registry.ROTATIONS, registry.PRESETS, registry.SOURCES):
        for name in ("ramp", "slow"):
            monkeypatch.setitem(known, name, None)  # taken out again at the end
            del known[name]
    exec(
        compile(example, "docs/method.md", "exec"),
        {**vars(registry), "torch": torch, "nn": torch.nn, "init": initialization},
    )
    model = Encoder(preset("ramp", "tiny", vocab_size=32, num_hidden_layers=1, rotation="slow"))
    table = model.position_table()
    assert not table[0].any() and bool(table[-1].any())
    assert model(torch.tensor([[2, 7, 3]])).last_hidden_state.isfinite().all()


def test_extending_page_code_equals_the_source():
    """Code that the page on extending shows is that of the source."""
    source = {line.strip() for path in (ROOT / "src").rglob("*.py") for line in path.read_text("utf-8").splitlines()}
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extending.md").read_text("utf-8"), flags=re.S)
    assert len(shown) == 5
    for line in "".join(shown).splitlines():
        bare = re.sub(r"\s+# .*", "", line).strip()
        assert {bare, line.strip()} & source or bare in ("", "..."), line


@pytest.fixture(scope="module")
def figures():
    return module_of(ROOT / "docs/figures.py")


@pytest.mark.parametrize("name", ["method", "reliability", "verbs", "levels", "opens"])
def test_pictures_show_presets_and_table(name, figures):
    """Pictures are those of the presets and of the table."""
    drawn = (ROOT / f"docs/figures/{name}.svg").read_text(encoding="utf-8")
    assert drawn == figures.PICTURES[name]() + "\n", f"draw it again: python docs/figures.py {name}"


def test_figures_of_rows_find_their_numbers(figures):
    written = {note["text"] for note in figures.scale().panels[0].layout["annotations"]}
    assert {"3.2 hours", "48 minutes", "14 days", "3.6 days", "202 years"} <= written  # as the page has them
    assert len(figures.theory().panels[0].layout["annotations"]) == len(figures.CORPORA)
    written = {note["text"] for note in figures.corpora().panels[0].layout["annotations"]}
    assert {"0.158", "0.137", "0.310", "0.146", "0.240"} <= written  # as docs/geometry.md has them


def test_names_that_pages_import_are_in_the_reference():
    pytest.importorskip("mkdocs", reason="the site needs the extra docs")
    listed = set(re.findall(r"^::: ([\w.]+)$", module_of(ROOT / "docs/site.py").python(), flags=re.M))
    last = {name.rpartition(".")[2] for name in listed}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    imported = [
        (path.name, name)
        for path in pages
        for names in re.findall(r"^from whatwhere[\w.]* import ([\w, ]+)$", path.read_text("utf-8"), flags=re.M)
        for name in names.split(", ")
    ]
    assert ("tutorial.md", "register_preset") in imported
    assert not [each for each in imported if each[1] not in last]


@pytest.mark.parametrize("page", ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))])
def test_lines_of_prose_are_no_longer_than_120_characters(page):
    if page in ("docs/benchmarks.md", "docs/claims.md"):
        return  # written by programs
    assert not [line for line in prose(page).splitlines() if len(line) > 120 and not line.lstrip().startswith("|")]


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", (ROOT / page).read_text("utf-8"), flags=re.M | re.S)


@pytest.mark.parametrize("page", sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")))
def test_no_paragraph_has_more_than_eight_lines(page):
    if page in ("docs/log.md", "docs/claims.md", "docs/benchmarks.md") or "results" in page:
        return  # a record of what was tried; written by programs; results
    apart = re.sub(r"^(#.*\n|(?= *(?:[-*]|\d+\.) ))", "\n", prose(page), flags=re.M)  # headings, items of lists
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", apart)]
    assert not [part for part in paragraphs if part.count("\n") > 7 and not part.startswith(("|", "<"))]


def words(page: str, tables: bool = True) -> int:
    """Words of a page outside blocks of code, comments and HTML tags, with or without those of its tables."""
    text = re.sub(r"<!--.*?-->|</?[a-z][^>]*>", " ", prose(page), flags=re.S)
    if not tables:
        text = re.sub(r"^ *\|.*$", " ", text, flags=re.M)
    return sum(any(letter.isalnum() for letter in word) for word in text.replace("|", " ").split())


def test_documents_have_at_most_35_000_words():
    """All documents but the results have at most 35,000 words: what is added to one is cut from another."""
    pages = [p.relative_to(ROOT) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]]
    assert sum(words(str(page)) for page in pages if "results" not in page.parts) <= 35_000


def test_strikes_of_the_table_are_counted():
    """The text told of 1,717 points, the table of 2,893."""
    text = (ROOT / "docs/reliability.md").read_text("utf-8")
    (table,) = re.findall(r"<!-- faults -->(.*?)<!-- end -->", text, flags=re.S)
    counts = re.findall(r"(?<=\| )\d+(?= \|)", table)
    assert f" {sum(map(int, counts)):,} strikes " in text


@pytest.mark.parametrize("page", ["docs/runs.md", "docs/reliability.md"])
def test_reference_pages_fit_one_page(page):
    """Beside its tables a page of reference has at most 600 words."""
    assert words(page, tables=False) <= 600


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_unchecked_links_lead_somewhere(page):
    """Links of pages that the site does not check lead somewhere."""
    links = re.findall(r"\]\((?!http)([^)#]+)(?:#([^)]+))?\)", (ROOT / page).read_text("utf-8"))
    for place, heading in links:
        assert (ROOT / place).exists(), place
        heads = re.findall(r"^#+ (.+)$", (ROOT / place).read_text("utf-8"), flags=re.M) if heading else []
        assert not heading or heading in [head.lower().replace(" ", "-") for head in heads], (place, heading)
    assert links


def test_clients_table_has_every_client_test():
    """The table of what works elsewhere names the tests of `tests/clients`, each once."""
    page = (ROOT / "docs/how-to/elsewhere.md").read_text("utf-8")
    rows = "\n".join(line for line in page.splitlines() if line.startswith("| "))
    sources = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "tests/clients").glob("test_*.py")))
    tests = set(re.findall(r"^def (test_\w+)", sources, flags=re.M))
    assert sorted(re.findall(r"`(test_\w+)`", rows)) == sorted(tests - {"test_control_passes_most_of_the_common_tests"})
