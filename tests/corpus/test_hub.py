"""The Hub source, with the calls that need the network replaced: rows, fixed revision, errors of one line."""

import datasets
import huggingface_hub
import pytest

from whatwhere.corpus import open_source


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
