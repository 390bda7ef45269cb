"""Every verb that looks into a model opens those of transformers, with the vocabulary they come with, and reads no ids
of another tokenizer."""

import json

import foreign_models
import pytest
from cli_runner import sentences, whatwhere
from foreign_models import KINDS, TEXTS

from whatwhere.corpus import build_windows, open_source

pytestmark = pytest.mark.whole

QUICK = ("--positions", "12", "--no-intervals", "--no-smacof", "--set", "min_support=20", "--set", "width=64")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The four models, and their text as one file each, with line breaks."""
    place = tmp_path_factory.mktemp("foreign")
    for kind in KINDS:
        foreign_models.save(kind, place / kind)
    (place / "my-texts").mkdir()
    for number, text in enumerate(TEXTS):
        (place / f"my-texts/{number}.txt").write_text(text.replace(". ", ".\n"), encoding="utf-8")
    return place


def done(*arguments):
    result = whatwhere(*map(str, arguments), "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def refused(*arguments):
    result = whatwhere(*map(str, arguments))
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("whatwhere: ")]
    assert result.returncode == 2 and result.stdout == "", (result.stdout, result.stderr)
    return line


@pytest.mark.parametrize("kind", KINDS)
def test_verbs_use_the_models_own_tokenizer(kind, place, tmp_path):
    """Heads probe and attention read text by the models own tokenizer."""
    model = place / kind
    corpus = ("--corpus", place / "my-texts", "--windows", "10")
    found = done("heads", model, *corpus, "--out", tmp_path / "heads")
    looks = [r for r in found["records"] if r["metric"] == "attention.previous"]
    assert found["windows"] == 10 and found["tokens"] == 32 and {r["layer"] for r in looks} == {1, 2}
    assert found["corpus"] == str(place / "my-texts") and (tmp_path / "heads/report.html").is_file()
    found = done("probe", model, *corpus, "--splits", "2")
    assert {r["layer"] for r in found["records"] if r["metric"] == "r2.token"} == {0, 1, 2}
    found = done("attention", model, "--text", TEXTS[0], "--truncate", "--out", tmp_path / "page.html")
    assert found["terms"] == ["total"] and found["tokens"] == 32


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_spectra_and_geometry_read_tables_and_words_by_name(kind, place, tmp_path):
    found = done("spectra", place / kind, "--words")
    assert sum(r["metric"] == "n50" for r in found["records"]) == 2  # positions, words
    geometry = ("geometry", "--corpus", place / "my-texts", "--model", place / kind, "--out", tmp_path / "out", *QUICK)
    found = done(*geometry)
    assert found["models"][0]["name"] == kind and found["models"][0]["summary"]


def test_models_without_table_or_matrices_are_refused_first(place, tmp_path):
    """What has no table or no matrices is refused before anything is counted."""
    assert "model type 'modernbert' keeps none" in refused("spectra", place / "modernbert")
    geometry = ("geometry", "--corpus", place / "my-texts", "--out", tmp_path / "out", *QUICK)
    config = json.loads((place / "electra/config.json").read_text())
    (tmp_path / "small").mkdir()
    (tmp_path / "small/config.json").write_text(json.dumps({**config, "embedding_size": 8}))
    assert "small holds no finished model" in refused(*geometry, "--model", tmp_path / "small")
    assert not (tmp_path / "out").exists()


def test_ids_of_another_tokenizer_are_refused_in_one_line(place, tmp_path):
    """Of as many entries, so that a comparison of sizes says nothing."""
    other = foreign_models.save("bert", tmp_path / "other", sentences(120, seed=1).split("\n\n"))
    tokenizers = [foreign_models.BertTokenizerFast.from_pretrained(folder) for folder in (place / "bert", other)]
    assert len(tokenizers[0]) == len(tokenizers[1]) and tokenizers[0].get_vocab() != tokenizers[1].get_vocab()
    windows = tmp_path / "windows"
    build_windows(open_source(place / "my-texts"), tokenizers[1], windows, length=32, progress=False)
    for verb in ("heads", "probe"):
        line = refused(verb, place / "bert", "--corpus", windows, "--windows", "10")
        assert f"The windows in {windows} were made by another tokenizer" in line and line.endswith("--corpus FILE.")
    geometry = ("geometry", "--corpus", place / "my-texts", "--out", tmp_path / "out", *QUICK)
    assert "with another vocabulary than" in refused(*geometry, "--model", place / "bert", "--tokenizer", other)
    assert "measure models of different vocabularies one by one" in refused(
        *geometry, "--model", place / "bert", "--model", other
    )


def test_ablations_without_terms_are_refused(place):
    """Taking terms away is refused where there are none to take."""
    line = refused("heads", place / "bert", "--corpus", place / "my-texts", "--ablate", "10")
    assert "is of type bert, whose attention and hidden states have no separate terms" in line
    assert "Leave --ablate out to see where its heads look" in line
