"""Corpus arguments, long documents in pieces, text that is no valid Unicode."""

import os

import pytest

from whatwhere.corpus import open_source, source
from whatwhere.corpus.paths import check_corpus, check_table
from whatwhere.corpus.python_docs import PythonDocs
from whatwhere.corpus.sources import Hub
from whatwhere.corpus.synthetic import RepeatedDocuments, ThreeRegimes
from whatwhere.corpus.text_files import Files


def test_an_argument_names_its_source(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert isinstance(open_source("python-docs"), PythonDocs)
    assert isinstance(open_source("synthetic:repeat"), RepeatedDocuments)
    assert isinstance(open_source("synthetic:three-regimes"), ThreeRegimes)
    assert open_source("synthetic:three-regimes:seed=3,n=32,own=1").name == "synthetic:three-regimes:seed=3,own=1.0"
    assert isinstance(open_source("hub:owner/name"), Hub)
    assert isinstance(open_source(tmp_path / "a.txt"), Files) and isinstance(open_source(str(tmp_path)), Files)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("nowhere.txt", "No corpus 'nowhere.txt': no such file or folder"),
        ("synthetic:other", "There are synthetic:repeat and synthetic:three-regimes"),
        (
            "synthetic:three-regimes:m=3",
            "no option 'm'. Options: n, vocabulary, documents, seed, initial, terminal, own, other",
        ),
        ("synthetic:three-regimes:n=3.5", "'n=3.5' is no number. Write n=32"),
        ("synthetic:three-regimes:n", "'n' is no number"),
        ("synthetic:three-regimes:documents=0", "documents=0 must be at least 1"),
        ("synthetic:three-regimes:own=0", "own=0.0 is a Dirichlet concentration"),
        ("synthetic:three-regimes:n=10", "initial=8 and terminal=8 are more than n=10"),
        ("hub:", "names no data set"),
        ("hub:a:b:c", "names no data set"),
    ],
)
def test_an_argument_that_names_nothing_is_an_error(spec, wanted):
    with pytest.raises(ValueError, match=wanted) as error:
        open_source(spec)
    assert "\n" not in str(error.value)


def test_long_documents_come_in_pieces_cut_at_white_space(list_source, monkeypatch):
    monkeypatch.setattr(source, "PART_CHARACTERS", 2000)
    text = "word " * 1000 + "x" * 5000 + " end"
    given = list_source(["short", text, "last"])
    parts = list(given.parts())
    assert [first for first, _ in parts] == [True, True, *[False] * (len(parts) - 3), True]
    assert all(len(part) <= 2000 for _, part in parts)
    assert parts[1][1].endswith("word ")
    assert list(given) == ["short", text, "last"]


def test_documents_are_stripped_and_empty_ones_left_out(list_source):
    assert list(list_source(["", " a b \n", "\n\t", "c"])) == ["a b", "c"]


def test_lone_surrogates_are_replaced_and_pairs_joined(list_source):
    assert list(list_source(["a\ud800b", "\ud83d\ude00 face", "fine"])) == ["a\ufffdb", "\U0001f600 face", "fine"]


@pytest.mark.parametrize("check", [check_corpus, check_table])
def test_texts_without_the_right_to_read_are_refused_early(tmp_path, monkeypatch, check):
    """The message had called the text an output, and a training refused so left settings behind."""
    path = tmp_path / "texts.tsv"
    path.write_text("text\tlabel\na\tb\n")
    check(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as root everything may be read
    with pytest.raises(ValueError, match=r"texts\.tsv may not be read\. Change its rights \(chmod u\+r\), or give"):
        check(path)
