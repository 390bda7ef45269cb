"""What a trained folder says about itself: card, weights' head, and the files that sentence-transformers reads."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from loop_runs import config_of
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.encoder.registry import BIASES
from whatwhere.models.card import PARTS, corpus_name, model_card, sources, weights_metadata
from whatwhere.papers import CITATIONS, bibtex
from whatwhere.training.model_folder import save_model, write_metadata
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig

SUMMARY = {
    "size": "tiny",
    "seed": 3,
    "steps": 7,
    "tokens": 7168,
    "parameters": 1234567,
    "embedding_parameters": 4567,
    "precision": "fp32",
    "tokens_per_second": 12050.7,
    "device": "x86_64",
    "processes": 1,
    "validation_loss": 4.56789,
    "validation_accuracy": 0.251,
}


def settings(**values) -> dict:
    return PretrainConfig.parse(
        {"corpus": "/home/somebody/secret/my texts.txt", "seed": 3, "steps": 7, **values}
    ).model_dump()


@pytest.fixture(scope="module")
def trained(corpus_file, tmp_path_factory) -> Path:
    """A folder that a short pretraining left."""
    out = tmp_path_factory.mktemp("trained") / "dstg"
    pretrain(config_of(corpus_file, steps=3, pooling="semantic"), out, progress=False)
    return out


def test_pretraining_leaves_card_code_weights_and_pooling(trained):
    summary = json.loads((trained / "training.json").read_text(encoding="utf-8"))
    card = (trained / "README.md").read_text(encoding="utf-8")
    trained_length = yaml.safe_load((trained / "pretrain.yaml").read_text(encoding="utf-8"))["length"]
    tokenizer_config = json.loads((trained / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert tokenizer_config["model_max_length"] == trained_length
    assert (
        f"loss {summary['validation_loss']:.4f} nats" in card
        and "corpus.txt" in card
        and str(trained.parent) not in card
    )
    with safe_open(trained / "model.safetensors", "pt") as file:
        head = file.metadata()
    assert (
        head["format"] == "pt"
        and head["preset"] == "dstg"
        and head["tokens"] == str(3 * 8 * 32)
        and head["corpus"] == "corpus.txt"
    )
    assert float(head["validation_loss"]) == summary["validation_loss"]
    assert (trained / "modeling_whatwhere.py").is_file()
    assert [module["path"] for module in json.loads((trained / "modules.json").read_text(encoding="utf-8"))] == [
        "",
        "1_Pooling",
        "2_Dense",
    ]
    assert not list((trained / "checkpoints").rglob("*.py"))  # many and small
    assert not list(trained.glob(".*"))


def test_the_card_states_measurements_without_paths():
    """Card states what was measured and no path of the machine."""
    config = ww.preset("dstg", "tiny")
    card = model_card(config, settings(), SUMMARY)
    for text in (
        "1,234,567",
        "7,168: 7 steps",
        "4.5679 nats",
        "25.1%",
        "`my texts.txt`",
        "columns 0 to 7 position, 8 to 127 meaning",
        "seed | 3",
        "speed | 12,051 tokens a second in training on that machine (x86_64)",
    ):
        assert text in card
    assert "somebody" not in card and "secret" not in card
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["library_name"] == "transformers" and head["pipeline_tag"] == "fill-mask" and "dstg" in head["tags"]
    assert head["language"] == "und" and "language: de\n" in model_card(config, settings(language="de"), SUMMARY)


def test_words_for_a_mask_are_filled(trained, capsys):
    """Words for a mask are filled as the card says."""
    card = (trained / "README.md").read_text(encoding="utf-8")
    (example,) = [body for body in re.findall(r"```python\n(.*?)```", card, flags=re.S) if "fill-mask" in body]
    exec(compile(example.replace("FOLDER", str(trained)), "card", "exec"), {})
    assert len(capsys.readouterr().out.split(",")) == 5


def test_cards_without_held_out_text_say_so():
    """Card of a run without held out text says so."""
    card = model_card(
        ww.preset("nope", "tiny"), settings(), SUMMARY | {"validation_loss": None, "validation_accuracy": None}
    )
    assert "no held-out text" in card and "not limited by the scheme" in card


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_card_that_cites_its_sources(name):
    config = ww.preset(name, "tiny")
    card = model_card(config, settings(), SUMMARY)
    assert all(bibtex(key) in card for key in sources(config))
    assert sources(config)[-1] == config.block  # NeoBERT or BERT
    assert not re.search(r"\bNone\b", card)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("dstg", "dstg"),
        ("tupe-free", "tupe"),
        ("tupe-r", "t5"),
        ("split", "split"),
        ("rope", "rope"),
        ("alibi", "alibi"),
        ("kerple-log", "kerple"),
        ("kerple-power", "kerple"),
        ("tisa", "tisa"),
        ("sandwich", "sandwich"),
        ("fire", "fire"),
        ("dape", "dape"),
        ("fourier", "lowdim"),
    ],
)
def test_scheme_is_cited_before_its_block(name, source):
    assert source in sources(ww.preset(name, "tiny"))[:-1]


def test_every_part_has_its_source():
    """Every part has its source and every source its line."""
    assert {key for keys in PARTS.values() for key in keys} == set(CITATIONS)
    fields = {field.name for field in dataclasses.fields(ww.EncoderConfig)}
    assert {field for field, _ in PARTS} <= fields
    for key in CITATIONS:
        assert bibtex(key).startswith(f"@misc{{{key},") and bibtex(key).count("{") == bibtex(key).count("}")


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("python-docs", "python-docs"),
        ("hub:wikitext:wikitext-2-raw-v1", "hub:wikitext:wikitext-2-raw-v1"),
        ("synthetic:repeat", "synthetic:repeat"),
        ("/home/me/texts/", "texts"),
        ("a`b|c\nd.txt", "a b c d.txt"),
    ],
)
def test_name_of_a_corpus_is_public(corpus, name):
    assert corpus_name(corpus) == name


def test_metadata_leaves_tensors_alone_and_gives_the_same_bytes(tmp_path):
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.arange(7, dtype=torch.int64),
        "c": torch.randn(2, dtype=torch.bfloat16),
    }
    texts = weights_metadata(ww.preset("tupe-r", "tiny"), settings(), SUMMARY)
    assert all(isinstance(value, str) for value in texts.values())
    for name in ("one", "two"):
        save_file(tensors, tmp_path / name, metadata={"format": "pt"})
        write_metadata(tmp_path / name, dict(reversed(texts.items())) if name == "two" else texts)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    loaded = load_file(tmp_path / "one")
    assert loaded.keys() == tensors.keys() and all(torch.equal(loaded[key], tensors[key]) for key in tensors)
    with safe_open(tmp_path / "one", "pt") as file:
        assert file.metadata() == texts | {"format": "pt"}
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}


def test_metadata_stands_in_every_shard(tmp_path, monkeypatch):
    model = ww.EncoderForMaskedLM(ww.preset("dstg", "tiny", vocab_size=50))
    save = model.save_pretrained
    monkeypatch.setattr(
        model, "save_pretrained", lambda folder, **kwargs: save(folder, max_shard_size="200KB", **kwargs)
    )
    save_model(model, tmp_path, metadata={"preset": "dstg"})
    shards = list(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 3
    for shard in shards:
        with safe_open(shard, "pt") as file:
            assert file.metadata() == {"format": "pt", "preset": "dstg"}
    assert torch.equal(
        ww.EncoderForMaskedLM.from_pretrained(tmp_path).encoder.word_embeddings.weight,
        model.encoder.word_embeddings.weight,
    )


def test_the_card_names_the_schemes_changes(monkeypatch):
    """Card names what the scheme changes and how an own one is loaded."""
    config = ww.preset("ap", "tiny", table_width=16, table_start="sinusoidal")
    card = model_card(config, settings(), SUMMARY)
    assert "| table_width | 16 |" in card and "| table_start | `sinusoidal` |" in card and "load_scheme" not in card
    monkeypatch.setitem(BIASES, "mine", BIASES["t5"])
    card = model_card(ww.preset("nope", "tiny", relative="mine"), settings(), SUMMARY)
    assert 'ww.load_scheme("FOLDER/own_scheme.py")' in card and "but for its own scheme" in card


@pytest.mark.parametrize(
    ("join", "more", "told"),
    [
        ("run-on", {}, "one document after the other, cut at the length (join=run-on)"),
        ("none", {"pieces": "first"}, "the first piece of one document, padded (join=none, pieces=first)"),
        ("none", {"pieces": "all"}, "a piece of one document, often from its middle, padded (join=none, pieces=all)"),
        ("isolate", {"pieces": "first"}, "first pieces of several documents that do not see each other"),
    ],
)
def test_the_card_says_which_pieces_were_read(join, more, told):
    """A card says which pieces were read and how often."""
    card = model_card(ww.preset("dstg", vocab_size=300), settings(join=join), {**SUMMARY, **more, "passes": 1.5})
    assert told in card and "128 tokens, each window read 1.5 times" in card
    once = model_card(ww.preset("dstg", vocab_size=300), settings(join=join), {**SUMMARY, **more, "passes": 0.9})
    assert "read 0.9 times" not in once
