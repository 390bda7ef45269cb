"""The verb `attention`: a page for any encoder in a folder; wrong input is one line."""

import json

import pytest
import torch
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

from whatwhere.cli.verbs import app
from whatwhere.corpus.tokenizer import train_tokenizer
from whatwhere.encoder import EncoderForMaskedLM, preset

TEXT = "The river rose quickly after the rain."


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT, "nobody had seen it so high"] * 20, 120)


@pytest.fixture(scope="module")
def ours(tokenizer, tmp_path_factory):
    """A study with two seeds of a model."""
    study = tmp_path_factory.mktemp("look") / "study"
    sizes = {
        "hidden_size": 24,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 128,
        "position_size": 8,
    }
    ids = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    for seed in range(2):
        torch.manual_seed(seed)
        folder = study / f"models/dstg/seed-{seed}"
        EncoderForMaskedLM(preset("dstg", "tiny", vocab_size=len(tokenizer), **sizes, **ids)).save_pretrained(
            folder, code=False
        )
        tokenizer.save_pretrained(folder)
    return study


@pytest.fixture(scope="module")
def theirs(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("look") / "bert"
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["attention", *map(str, arguments)])


def found(*arguments):
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.exception
    return json.loads(done.stdout.splitlines()[-1])


def refused(*arguments):
    done = run(*arguments)
    assert done.exit_code == 1 and isinstance(done.exception, ValueError), (done.output, done.exception)
    assert "\n" not in str(done.exception)
    return str(done.exception)  # `cli.main` prints it as one line and ends with 2: tests/test_cli.py


def test_a_model_of_ours_has_every_term(ours, tmp_path):
    out = tmp_path / "page.html"
    facts = found(ours / "models/dstg/seed-0", "--text", TEXT, "--text", "high river", "--out", out)
    assert facts["report"] == str(out) and facts["bytes"] == out.stat().st_size
    assert facts["terms"] == ["semantic", "absolute", "relative", "total"] and facts["missing"] is None
    assert (facts["layers"], facts["heads"]) == (2, 2) and len(facts["tokens"]) == 2
    page = out.read_text(encoding="utf-8")
    assert "What each head of dstg, seed 0 looks at" in page and "high river" in page and 'id="plotly"' not in page


def test_look_shows_the_example_or_a_file(theirs, tokenizer, tmp_path):
    """Without a text the example is shown and files are read."""
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    facts = found(theirs, "--file", path, "--out", tmp_path / "page.html")
    assert facts["tokens"] == len(tokenizer(TEXT)["input_ids"]) and facts["terms"] == ["total"]
    assert "BertModel does not say which part of its scores comes from position" in facts["missing"]
    # The made-up text is cut to what the model reads: nobody could shorten it.
    assert found(theirs, "--out", tmp_path / "b.html")["tokens"] == 32
    path.write_text(TEXT * 20, encoding="utf-8")
    assert "has 32 positions; the text “text.txt” has" in refused(theirs, "--file", path, "--out", tmp_path / "c.html")
    assert found(theirs, "--file", path, "--truncate", "--out", tmp_path / "b.html")["tokens"] == 32
    assert not (tmp_path / "c.html").exists()


@pytest.mark.parametrize(
    "case",
    ["study", "empty", "blank file", "no tokenizer", "no config", "pickle", "nowhere", "folder", "damaged", "long"],
)
def test_wrong_input_is_one_line(case, ours, theirs, tmp_path):
    out = ["--out", tmp_path / "page.html"]
    folder = tmp_path / "model"
    folder.mkdir()
    config = (theirs / "config.json").read_text()
    if case == "study":
        assert "holds 2 models of a study. Name one, for example" in refused(ours, *out)
    elif case == "empty":
        assert refused(theirs, "--text", " ", *out) == "--text number 1 is empty. Give some words."
    elif case == "blank file":
        (tmp_path / "blank.txt").write_text("\n")
        assert "blank.txt is empty" in refused(theirs, "--file", tmp_path / "blank.txt", *out)
    elif case == "no tokenizer":
        (folder / "config.json").write_text(config)
        (folder / "model.safetensors").write_bytes((theirs / "model.safetensors").read_bytes())
        assert "has no tokenizer" in refused(folder, *out)
    elif case == "no config":
        assert "config.json is missing" in refused(folder, *out)
    elif case == "pickle":
        (folder / "config.json").write_text(config)
        (folder / "pytorch_model.bin").write_bytes(b"")
        assert "a pickle is never read" in refused(folder, *out)
    elif case == "nowhere":
        assert "it is no folder" in refused(tmp_path / "none", *out)
    elif case == "folder":
        for page in (tmp_path, f"{tmp_path}/new/"):
            assert f"--out is the file of the page, for example {page}" in refused(theirs, "--out", page)
        picture = tmp_path / "page.png"
        assert f"name ends in .html; got {picture}. Give {tmp_path}/page.html" in refused(theirs, "--out", picture)
        assert not picture.exists()
    elif case == "damaged":
        (folder / "config.json").write_text(config)
        (folder / "model.safetensors").write_bytes(b"\0" * 20)
        assert "does not open" in refused(folder, *out)
    else:
        message = refused(ours / "models/dstg/seed-0", "--text", "river " * 200, *out)
        assert "has 128 positions; the text" in message and "--truncate" in message
    assert not (tmp_path / "page.html").exists()
