"""Corpus arguments, long documents in pieces, the synthetic and the Hub source."""

import datasets
import huggingface_hub
import pytest

from whatwhere.corpus import open_source, sources
from whatwhere.corpus.files import Files
from whatwhere.corpus.hub import Hub
from whatwhere.corpus.python_docs import PythonDocs
from whatwhere.corpus.synthetic import RepeatedDocuments


def test_an_argument_names_its_source(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert isinstance(open_source("python-docs"), PythonDocs)
    assert isinstance(open_source("synthetic:repeat"), RepeatedDocuments)
    assert isinstance(open_source("hub:owner/name"), Hub)
    assert isinstance(open_source(tmp_path / "a.txt"), Files) and isinstance(open_source(str(tmp_path)), Files)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("nowhere.txt", "No corpus 'nowhere.txt': no such file or folder"),
        ("synthetic:other", "There is synthetic:repeat"),
        ("hub:", "names no data set"),
        ("hub:a:b:c", "names no data set"),
    ],
)
def test_an_argument_that_names_nothing_is_an_error(spec, wanted):
    with pytest.raises(ValueError, match=wanted) as error:
        open_source(spec)
    assert "\n" not in str(error.value)


def test_long_documents_come_in_pieces_cut_at_white_space(list_source, monkeypatch):
    monkeypatch.setattr(sources, "PART_CHARACTERS", 2000)
    text = "word " * 1000 + "x" * 5000 + " end"
    source = list_source(["short", text, "last"])
    parts = list(source.parts())
    assert [first for first, _ in parts] == [True, True, *[False] * (len(parts) - 3), True]
    assert all(len(part) <= 2000 for _, part in parts)
    assert parts[1][1].endswith("word ")
    assert list(source) == ["short", text, "last"]


def test_documents_are_stripped_and_empty_ones_left_out(list_source):
    assert list(list_source(["", " a b \n", "\n\t", "c"])) == ["a b", "c"]


def test_lone_surrogates_are_replaced_and_pairs_joined(list_source):
    assert list(list_source(["a\ud800b", "\ud83d\ude00 face", "fine"])) == ["a\ufffdb", "\U0001f600 face", "fine"]


def test_repeated_documents_say_a_twice():
    source = open_source("synthetic:repeat")
    documents = list(source)
    assert documents == list(open_source("synthetic:repeat")) and len(documents) == 4000
    for document in documents[:50]:
        a, b, again = document.split("\n")
        assert a == again != b and a.count(".") == b.count(".") == 3 and a[0].isupper()
    assert len(set(documents)) > 3900
    assert source.share_read() == 1.0
    assert list(RepeatedDocuments(5, seed=1)) != documents[:5]
    with pytest.raises(ValueError, match="at least one document"):
        RepeatedDocuments(0)


@pytest.fixture
def hub(monkeypatch):
    """A Hub with one data set of three rows; the calls that were made."""
    calls = []
    rows = datasets.Dataset.from_dict({"text": ["one", None, "three"], "label": [1, 2, 3]}).to_iterable_dataset()

    def load(name, config, revision, streaming):
        calls.append((name, config, revision, streaming))
        if name != "owner/name":
            raise ConnectionError("no such thing\nlong story")
        return {"validation": rows.take(1), "train": rows}

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, name: type("Info", (), {"sha": "abc"})())
    return calls


def test_hub_rows_are_documents(hub):
    source = open_source("hub:owner/name:small")
    assert source.name == "hub:owner/name:small" and hub == []
    assert list(source) == list(source) == ["one", "three"]
    assert hub == [("owner/name", "small", "abc", True)]
    assert source.fingerprint() == {"dataset": "owner/name", "config": "small", "split": "train", "revision": "abc", "field": "text"}


def test_hub_errors_are_one_line(hub):
    with pytest.raises(ValueError, match="Cannot open 'hub:owner/other' on the Hub: no such thing Check"):
        list(open_source("hub:owner/other"))
    with pytest.raises(ValueError, match="no field 'body'. Fields there: text, label"):
        list(open_source("hub:owner/name", field="body"))
    with pytest.raises(ValueError, match="field 'label' is of type int"):
        list(open_source("hub:owner/name", field="label"))
