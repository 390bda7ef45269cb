"""Where tables come from: files, folders of models, studies and the Hub; names, seeds, and what is refused in one
line."""

import json

import huggingface_hub
import numpy as np
import pytest
from encoder_models import config
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

import whatwhere as ww
from whatwhere.models.table_sources import POSITIONS, WORDS, load_tables

SIZES = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}


def bert(folder):
    model = BertModel(BertConfig(**SIZES, max_position_embeddings=40))
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Two seeds of a model with a table (10 sorts after 9), two models without one."""
    folder = tmp_path_factory.mktemp("tables") / "study"
    for name, seeds in {"dstg": (9, 10), "rope": (0,), "rp": (0,)}.items():
        for seed in seeds:
            ww.EncoderForMaskedLM(config(name)).save_pretrained(folder / "models" / name / f"seed-{seed}")
    return folder


def test_a_file_and_a_model_load_side_by_side(tmp_path):
    rows = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
    np.save(tmp_path / "mine.npy", rows)
    model = bert(tmp_path / "bert")
    tables, left_out = load_tables([tmp_path / "mine.npy", str(tmp_path / "bert")])
    assert [(t.name, t.kind, t.seed, t.rows.shape, t.rows.dtype) for t in tables] == [
        ("mine", POSITIONS, None, (12, 5), np.float64),
        ("bert", POSITIONS, None, (40, 24), np.float64),
    ]
    assert np.array_equal(tables[0].rows, rows) and tables[0].config == {} and tables[1].config["model_type"] == "bert"
    assert np.array_equal(tables[1].rows, model.embeddings.position_embeddings.weight.detach().numpy())
    assert left_out == []


def test_words_follow_the_positions_of_their_model(tmp_path):
    model = bert(tmp_path / "bert")
    tables, _ = load_tables([tmp_path / "bert"], words=True)
    assert [(t.name, t.kind) for t in tables] == [("bert", POSITIONS), ("bert", WORDS)]
    assert np.array_equal(tables[1].rows, model.embeddings.word_embeddings.weight.detach().numpy())


def test_a_study_gives_tables_of_all_seeds(study):
    """A study gives all models and seeds and names those without a table."""
    tables, left_out = load_tables([study])
    assert [(t.name, t.seed) for t in tables] == [("dstg", 9), ("dstg", 10)] and left_out == ["rope", "rp"]
    assert all(t.config["preset"] == "dstg" and t.rows.shape == (32, 8) for t in tables)
    one, _ = load_tables([study / "models/dstg/seed-10"])
    assert [(t.name, t.seed) for t in one] == [("dstg", 10)] and np.array_equal(one[0].rows, tables[1].rows)
    words, _ = load_tables([study], words=True)
    assert [(t.kind, t.seed) for t in words] == [(POSITIONS, 9), (WORDS, 9), (POSITIONS, 10), (WORDS, 10)]


def test_equal_names_are_told_apart_and_seeds_are_not(study, tmp_path):
    for place in ("a", "b"):
        bert(tmp_path / place / "bert")
    tables, _ = load_tables([tmp_path / "a/bert", tmp_path / "b/bert", study, tmp_path / "a/bert"])
    assert [t.name for t in tables] == ["bert", "bert (2)", "dstg", "dstg", "bert"]


def test_hub_names_are_fetched_without_code_and_pickles(tmp_path, monkeypatch):
    """A name on the hub is fetched without code and pickles."""
    asked = {}

    def snapshot_download(name, **patterns):
        asked.update(patterns, name=name)
        bert(tmp_path / "snapshots/abc123")
        return str(tmp_path / "snapshots/abc123")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    (table,), _ = load_tables(["google-bert/bert-tiny"])
    assert (table.name, table.source) == ("bert-tiny", "google-bert/bert-tiny") and table.rows.shape == (40, 24)
    assert asked == {
        "name": "google-bert/bert-tiny",
        "allow_patterns": ["config.json", "*.safetensors"],
        "ignore_patterns": ["*/*"],
    }


def test_sources_without_a_table_are_refused(study, tmp_path, monkeypatch):
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: (_ for _ in ()).throw(OSError("no such\nmodel"))
    )
    monkeypatch.chdir(tmp_path)
    np.save("mine.npy", np.ones((3, 3)))
    LlamaModel(LlamaConfig(**SIZES)).save_pretrained("llama")
    for name in ("rope", "rp"):
        ww.EncoderForMaskedLM(config(name)).save_pretrained(f"flat/models/{name}/seed-0")
    tables = {
        (): "No source of a table",
        ("nowhere.npy",): "No position table at nowhere.npy",
        ("no/such/place",): "No position table at no/such/place",
        ("nobody",): r"'nobody' is no file or folder here, and the Hub returns no such model \(no such\)",
        ("llama",): "No position table in llama: model type 'llama' keeps none",
        ("flat",): "No model of flat has a position table: rope, rp",
        (str(tmp_path),): "No model of .* has a position table",
    }
    for sources, message in tables.items():
        with pytest.raises(ValueError, match=message) as error:
            load_tables(sources)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="mine.npy is one table and has no words beside it"):
        load_tables(["mine.npy"], words=True)


def test_a_damaged_member_of_a_study_is_named(study, tmp_path):
    broken = tmp_path / "s/models/dstg/seed-0"
    ww.EncoderForMaskedLM(config("dstg")).save_pretrained(broken)
    settings = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 65}))
    with pytest.raises(ValueError, match="seed-0 does not fit its config.json"):
        load_tables([tmp_path / "s"])
