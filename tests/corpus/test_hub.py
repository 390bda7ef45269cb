"""The Hub source, with the calls that need the network replaced: rows, fixed revision, files, errors of one line."""

import datasets
import huggingface_hub
import pytest

from whatwhere.corpus import count_source, open_source
from whatwhere.run.files import sha256
from whatwhere.run.folder import RunFolder


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


def hashes(out) -> dict[str, str]:
    return {name: sha256(out / name) for name in RunFolder.at(out).listed_files()}


def test_hub_rows_are_documents(hub):
    source = open_source("hub:owner/name:small")
    assert source.name == "hub:owner/name:small" and hub == []
    assert list(source) == list(source) == ["one", "three"]
    assert hub == [("owner/name", "small", "abc", True)]
    assert source.fingerprint() == {
        "dataset": "owner/name",
        "config": "small",
        "split": "train",
        "revision": "abc",
        "field": "text",
    }


def test_hub_errors_are_one_line(hub):
    with pytest.raises(ValueError, match="Cannot open 'hub:owner/other' on the Hub: no such thing Check"):
        list(open_source("hub:owner/other"))
    with pytest.raises(ValueError, match="no field 'body'. Fields there: text, label"):
        list(open_source("hub:owner/name", field="body"))
    with pytest.raises(ValueError, match="field 'label' is of type int"):
        list(open_source("hub:owner/name", field="label"))


@pytest.fixture
def files(monkeypatch, documents, tmp_path):
    """A data set of five files, as `datasets` streams it; the files that were read, in turn."""
    from whatwhere.corpus.sources import Hub

    read = []
    texts = Hub._texts
    of_rows = list(map(str.strip, documents))
    for number in range(5):
        rows = datasets.Dataset.from_dict({"text": of_rows[number::5]})
        rows.to_parquet(tmp_path / f"data/{number}.parquet")
    there = sorted(map(str, (tmp_path / "data").iterdir()))
    rows = datasets.load_dataset("parquet", data_files=there, streaming=True, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda self, name: type("Info", (), {"sha": "abc"})())
    monkeypatch.setattr(Hub, "_texts", lambda self, rows, name: read.append(name) or texts(self, rows, name))
    return read


def test_counts_of_files_are_those_of_the_whole(files, list_source, documents, tokenizer):
    whole = count_source(list_source(documents), tokenizer, 12, progress=False)
    found = count_source(open_source("hub:owner/name"), tokenizer, 12, progress=False)
    assert len(files) == 5
    assert (found.matrix != whole.matrix).nnz == 0 and list(found.documents) == list(whole.documents)
