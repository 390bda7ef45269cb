"""The windows one model is looked at with: its tokenizer as it is, its own run's, and never those of another
tokenizer."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from cli_runner import sentences
from transformers import BertConfig, BertModel

import whatwhere as ww
from whatwhere import Encoder
from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import build_windows, open_source
from whatwhere.corpus.python_docs import PythonDocs
from whatwhere.corpus.tokenizer import open_tokenizer, train_tokenizer
from whatwhere.encoder.registry import PRESETS
from whatwhere.run.folder import RunFolder
from whatwhere.run.progress import ignore_progress
from whatwhere.study import heads_run
from whatwhere.study.heads_run import run_heads
from whatwhere.study.model_windows import model_windows
from whatwhere.study.study_keys import HeadsConfig
from whatwhere.training.scheme_settings import scheme_context


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(sentences(120), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def bert(text, tmp_path_factory):
    """A folder of transformers whose vocabulary is exactly its tokenizer's, without [NL], as bert-base-uncased is."""
    folder = tmp_path_factory.mktemp("theirs") / "bert"
    tokenizer = train_tokenizer(open_source(text), 200, newline_token=False)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def opened(folder):
    return BertModel.from_pretrained(folder).eval(), open_tokenizer(str(folder))


def windows_of(folder, corpus=None, documents=10):
    with model_windows(*opened(folder), folder, corpus, "text", documents, progress=False) as (windows, source):
        return windows.folder, source, windows.facts


def test_a_tokenizer_without_line_breaks_stays_as_it_is(bert, text):
    # A token [NL] more than the vocabulary has would be no word of the model: every such folder was refused.
    model, tokenizer = opened(bert)
    assert len(tokenizer) == model.config.vocab_size and "[NL]" not in tokenizer.get_vocab()
    found = run_heads(model, tokenizer, bert, corpus=str(text), windows=10, progress=False)
    assert found["windows"] == 10 and found["tokens"] == 32 and found["records"]
    _, source, manifest = windows_of(bert, str(text))
    assert source == str(text) and manifest["vocab_size"] == len(tokenizer) and not manifest["newline_token"]


def test_windows_of_another_tokenizer_are_refused_or_skipped(bert, text, tmp_path, monkeypatch):
    """Windows of another tokenizer are refused when given and passed over when found."""
    # Of the same number of entries: a comparison of sizes says nothing.
    other = train_tokenizer(sentences(120, seed=1).split("\n\n"), 200, newline_token=False)
    folder = tmp_path / "study/models/bert/seed-0"
    model, tokenizer = opened(bert)
    assert len(other) == len(tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    build_windows(open_source(text), other, tmp_path / "study/corpus", length=32, progress=False)
    with pytest.raises(
        ValueError, match="were made by another tokenizer than the model's, so their ids are other words"
    ) as caught:
        windows_of(folder, str(tmp_path / "study/corpus"))
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(PythonDocs, "documents", lambda self: iter(open_source(text)))
    assert windows_of(folder)[1] == "python-docs (one file of 16)"
    build_windows(open_source(text), tokenizer, tmp_path / "study/models/corpus", length=32, progress=False)
    found, source, _ = windows_of(folder)
    assert found == tmp_path / "study/models/corpus" and source == "corpus.txt"
    checkpoint = folder / "checkpoints/step-3"
    model.save_pretrained(checkpoint)
    assert windows_of(checkpoint)[0] == found  # with the tokenizer of its run


def test_a_tokenizer_is_known_by_its_rules(bert, text, tmp_path):
    tokenizer = open_tokenizer(str(bert))
    windows = build_windows(open_source(text), tokenizer, tmp_path / "w", length=32, progress=False)
    assert windows.has_tokenizer(open_tokenizer(str(bert)))
    used = open_tokenizer(str(bert))
    used("one text", truncation=True, max_length=8)  # leaves its mark on what the tokenizer's library writes
    assert used.backend_tokenizer.truncation is not None and windows.has_tokenizer(used)
    fewer = train_tokenizer(open_source(text), 150, newline_token=False)
    assert not windows.has_tokenizer(fewer)


def test_python_docs_parts_cover_all_packages(monkeypatch):
    """A part of Python docs is taken from all packages."""
    assert PythonDocs(every=8).fingerprint() != PythonDocs().fingerprint()
    read = []
    monkeypatch.setattr("whatwhere.corpus.python_docs._folders", lambda: [("a", "a"), ("b", "b")])
    monkeypatch.setattr("whatwhere.corpus.python_docs._files", lambda folder: (f"{folder}{i}" for i in range(20)))
    monkeypatch.setattr("whatwhere.corpus.python_docs._docstrings", lambda path: read.append(path) or [])
    list(PythonDocs(every=8).documents())
    assert read == ["a0", "a8", "a16", "b0", "b8", "b16"]


def test_a_length_makes_new_windows(bert, text, tmp_path):
    """A length makes windows anew and one that the model cannot read is refused."""
    model, tokenizer = opened(bert)
    found = run_heads(model, tokenizer, bert, corpus=str(text), windows=10, length=16, progress=False)
    assert found["tokens"] == 16
    with pytest.raises(ValueError, match="The model reads at most 32 tokens. Give --length 32 or less; got 64"):
        run_heads(model, tokenizer, bert, corpus=str(text), length=64, progress=False)
    build_windows(open_source(text), tokenizer, tmp_path / "windows", length=32, progress=False)
    with pytest.raises(ValueError, match="have 32 tokens, not 16. Leave --length out"):
        run_heads(model, tokenizer, bert, corpus=str(tmp_path / "windows"), length=16, progress=False)


def test_a_stopped_look_takes_other_settings(bert, text, tmp_path, monkeypatch):
    """Settings of a look that was stopped before its results, and so had kept nothing, bound for good."""
    model, tokenizer = opened(bert)
    look = partial(run_heads, model, tokenizer, bert, corpus=str(text), out=tmp_path / "look", progress=False)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(heads_run, "save_results", Mock(side_effect=KeyboardInterrupt))
        look(windows=10)
    RunFolder.at(tmp_path / "look").write("arrays/left.npz", {"a": np.zeros(3)})  # of an analysis that is not asked for
    assert look(windows=11)["windows"] == 11
    assert HeadsConfig.load(tmp_path / "look/heads.yaml").windows == 11
    assert not (tmp_path / "look/arrays/left.npz").exists()
    with pytest.raises(ValueError, match="was started with windows=11, this command has windows=10"):
        look(windows=10)


@pytest.mark.parametrize("preset", ["ap", "rope"])
def test_new_windows_are_as_long_as_the_training(preset, bert, text, tmp_path):
    """A model without a position table was looked at on 512 tokens, four times what it and its peers had read."""
    tokenizer = open_tokenizer(str(bert))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": len(tokenizer)}
    Encoder(ww.preset(preset, "tiny", **sizes)).save_pretrained(tmp_path / "alone")
    model = Encoder.from_pretrained(tmp_path / "alone")
    for settings, length in (("", 128), ("length: 24\n", 24)):
        if settings:
            (tmp_path / "alone/pretrain.yaml").write_text(settings)
        look = model_windows(model, tokenizer, tmp_path / "alone", str(text), "text", 10, progress=False)
        with look as (windows, _):
            assert windows.facts["length"] == length


def test_unwritable_places_are_refused_first(bert, text, tmp_path, monkeypatch):
    """A place that cannot be written is refused before anything is computed."""
    # The looks took minutes, and ended with an OSError.
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(ValueError, match=f"may not write in {tmp_path}. Give another --out"):
        run_heads(None, None, bert, corpus=str(text), out=tmp_path / "new/heads")


def test_a_job_loads_the_scheme_of_the_model(tmp_path, monkeypatch):
    """The worker was allowed to run the scheme and did not: `heads --on` could open no model of an own scheme."""
    scheme = tmp_path / "mine.py"
    scheme.write_text(
        'from whatwhere.encoder import register_preset\nregister_preset("of_worker", base="ap", source="here")\n'
    )
    opened = []

    def note_presets(*_given, **_named):
        opened.append("of_worker" in PRESETS)
        raise InterruptedError

    monkeypatch.setattr(heads_run, "open_model", note_presets)
    task = heads_run.HeadsTask("folder", RecordContext("m"), None, 0, ())
    with scheme_context(str(scheme))(), pytest.raises(InterruptedError):
        heads_run.measure_task(task, ignore_progress)
    assert opened == [True] and "of_worker" not in PRESETS
