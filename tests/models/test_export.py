"""The exported graph says what torch says: of every preset, at any batch and length, padded."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_runner import whatwhere
from foreign_models import TEXTS, save
from sentence_parts import pooling, write_parts
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, AutoTokenizer

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.models import export as module

pytestmark = pytest.mark.whole

ort = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
PAGE = Path(__file__).parents[2] / "docs/how-to/export.md"
QUICK = ("dstg",)


def model_of(name: str, folder: Path, **more: int) -> Path:
    """A folder of a small model of a preset with random weights, and the reference's tokenizer."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 4096, "hidden_size": 48, "num_attention_heads": 2, "num_hidden_layers": 2}
    if name.startswith("dstg"):
        sizes["position_size"] = 16
    model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", max_position_embeddings=40, **sizes, **more))
    with torch.no_grad():  # biases begin at zero, where mistakes do not show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(folder)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in PRESETS]
)
def test_every_preset_exports_with_any_batch_and_length(name, tmp_path):
    folder = model_of(name, tmp_path / "model")
    facts = ww.export(folder, tmp_path / "onnx")
    assert facts["what"] == "words" and facts["largest_difference"] < 1e-5
    model = ww.EncoderForMaskedLM.from_pretrained(folder).eval()
    session = ort.InferenceSession(tmp_path / "onnx/model.onnx")
    generator = torch.Generator().manual_seed(1)
    for batch, length in ((1, 3), (2, 17), (5, 40)):
        ids = torch.randint(5, 4096, (batch, length), generator=generator)
        ids[:, 0] = 2
        ids[:, length // 2] = 3
        mask = torch.ones_like(ids)
        mask[0, length - length // 3 :] = 0
        with torch.inference_mode():
            expected = model(ids, mask).logits
        (found,) = session.run(None, {"input_ids": ids.numpy(), "attention_mask": mask.numpy()})
        seen = mask.bool()
        torch.testing.assert_close(torch.from_numpy(found)[seen], expected[seen], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_vectors_and_labels_are_those_of_predict(tmp_path, capsys):
    torch.manual_seed(0)
    config = ww.preset("ap", "tiny", vocab_size=4096, num_hidden_layers=1, num_labels=3)
    ww.EncoderForSequenceClassification(config).save_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(ww.reference())
    tokenizer.save_pretrained(tmp_path / "model")
    text = "a text of some words"
    rows = tokenizer(text, return_tensors="np")
    given = {name: rows[name].astype(np.int64) for name in ("input_ids", "attention_mask")}
    for what in ("labels", "vectors"):
        ww.export(tmp_path / "model", tmp_path / "onnx", what=what, progress=True)
        # The second stands in place of the first, which went without a word.
        assert ("in place of the export that" in capsys.readouterr().err) == (what == "vectors")
        (found,) = ort.InferenceSession(tmp_path / "onnx/model.onnx").run(None, given)
        said = ww.predict(tmp_path / "model", text, what=what)
        shares = torch.from_numpy(found[0]).softmax(-1).numpy()
        mine = found[0] if what == "vectors" else [shares[config.label2id[name]] for name in said[0]]
        np.testing.assert_allclose(mine, said[0] if what == "vectors" else list(said[0].values()), atol=1e-5)
    assert json.loads((tmp_path / "onnx/export.json").read_text())["what"] == "vectors"


@pytest.mark.long
@pytest.mark.parametrize("name", ["dstg", pytest.param("rope", marks=pytest.mark.slow)])
def test_a_window_leaves_the_batch_open(name, tmp_path):
    """The map of a window was expanded to the size of the batch at hand, which became the only one of the graph."""
    folder = model_of(name, tmp_path / "model", attention_window=3)
    assert ww.export(folder, tmp_path / "onnx")["largest_difference"] < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra", "modernbert"])
def test_encoders_of_transformers_export(kind, tmp_path):
    facts = ww.export(save(kind, tmp_path / kind), tmp_path / "onnx", what="vectors")
    assert facts["largest_difference"] < 1e-5
    assert ("token_type_ids" in facts["inputs"]) == (kind in ("bert", "electra"))


@pytest.mark.slow
def test_the_export_page_runs_to_its_last_line(tmp_path, monkeypatch, capsys):
    """The page runs from the command to the last line."""
    monkeypatch.chdir(tmp_path)
    for command in re.findall(r"^whatwhere (export .*)$", PAGE.read_text(), flags=re.M):
        done = whatwhere(*command.split())
        assert done.returncode == 0 and "within" in done.stdout and len(done.stderr.splitlines()) == 1, (
            done.stdout,
            done.stderr,
        )
    code, vectors = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    exec(compile(code, "export.md", "exec"), {})
    guess = ww.predict("reference", "The capital of [MASK] is large.", top=1)[0][0][0]["word"]
    assert capsys.readouterr().out.split() == [guess]
    names: dict[str, Any] = {}
    exec(compile(vectors, "export.md", "exec"), names)
    expected = ww.predict("reference", "A text.", what="vectors")[0]
    np.testing.assert_allclose(names["vector_of"]("A text."), expected, atol=1e-5)


def widened(kind: str, folder: Path, positions: int) -> Path:
    """A bare encoder of many positions whose tokenizer.json pads and cuts texts at 128 tokens, as MiniLM's does."""
    config = AutoConfig.from_pretrained(save(kind, folder), max_position_embeddings=positions)
    AutoModel.from_config(config).save_pretrained(folder)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.enable_padding(length=128)
    backend.enable_truncation(128)
    backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_an_exported_tokenizer_pads_and_cuts_nothing(kind, tmp_path, monkeypatch):
    """The source's padding to 128 stayed in tokenizer.json: vectors of short texts at cosine 0.23 to the right ones."""
    monkeypatch.chdir(tmp_path)
    folder = widened(kind, tmp_path / "model", 2000)
    ww.export(folder, "vectors", what="vectors")
    exported = Tokenizer.from_file("vectors/tokenizer.json")
    assert exported.padding is None and exported.truncation is None
    _, recipe = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    names: dict[str, Any] = {}
    exec(compile(recipe, "export.md", "exec"), names)
    words = " ".join(TEXTS).split() * 2
    for count in (1, 17, 120, 300, 500):
        text = " ".join(words[:count])
        expected = ww.predict(folder, text, what="vectors", length=1900)[0]
        assert np.abs(names["vector_of"](text) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.long
def test_an_export_that_reads_other_tokens_is_refused(tmp_path, monkeypatch):
    """The check made ids at random, without the tokenizer, and saw nothing of its padding."""
    folder = widened("bert", tmp_path / "model", 600)

    def as_before(tokenizer: Any, folder: Path) -> None:
        tokenizer.backend_tokenizer.enable_padding(length=128)
        tokenizer.save_pretrained(folder)

    monkeypatch.setattr(module, "save_tokenizer", as_before)
    with pytest.raises(ValueError, match=r"says something else of a text of 1 words than whatwhere predict: \d"):
        ww.export(folder, tmp_path / "onnx", what="vectors")
    assert not (tmp_path / "onnx").exists()


@pytest.mark.long
def test_sentence_transformers_parts_are_in_the_graph(tmp_path):
    folder = save("bert", tmp_path / "model")
    write_parts(folder, [pooling("cls_token"), ("Normalize", {})], prompts={"a": "la "}, default_prompt_name="a")
    facts = ww.export(folder, tmp_path / "onnx", what="vectors")
    assert facts["prompt"] == "la "
    encoded = Tokenizer.from_file(str(tmp_path / "onnx/tokenizer.json")).encode("la ne to ri")
    rows = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}
    given = {name: np.array([row], np.int64) for name, row in rows.items()}
    (found,) = ort.InferenceSession(tmp_path / "onnx/model.onnx").run(None, given)
    np.testing.assert_allclose(found, ww.predict(folder, "ne to ri", what="vectors"), atol=1e-6)


@pytest.mark.long
def test_an_export_cuts_texts_where_predict_does(tmp_path):
    """It named the table's length, and its vectors of texts beyond max_seq_length were others than those of predict."""
    folder = widened("bert", tmp_path / "model", 600)
    write_parts(folder, [pooling("mean_tokens"), ("Normalize", {})], length=40)
    facts = ww.export(folder, tmp_path / "onnx", what="vectors")
    assert facts["longest"] == 40
    tokenizer = Tokenizer.from_file(str(tmp_path / "onnx/tokenizer.json"))
    session = ort.InferenceSession(tmp_path / "onnx/model.onnx")
    words = " ".join(TEXTS).split() * 2
    for count in (1, 30, 300):
        text = " ".join(words[:count])
        encoded = tokenizer.encode(text)
        rows = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}
        (found,) = session.run(None, {name: np.array([row], np.int64) for name, row in rows.items()})
        np.testing.assert_allclose(found, ww.predict(folder, text, what="vectors"), atol=1e-6)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nowhere", "--out", "x"), "nowhere is no folder here"),
        (("reference", "--out", "x", "--what", "labels"), "labels need another model"),
        (("reference", "--out", "x", "--format", "tflite"), "--format must be onnx; got 'tflite'"),
        (("reference", "--out", "held/mine.txt"), "mine.txt is a file. Give --out a folder"),
        (("reference", "--out", "held"), "held holds something else than an earlier export"),
    ],
)
def test_wrong_words_are_one_line(words, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held").mkdir()
    (tmp_path / "held/mine.txt").write_text("mine")
    done = whatwhere("export", *words)
    assert done.returncode == 2 and expected in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (tmp_path / "x").exists()


def test_a_graph_that_differs_is_removed(tmp_path, monkeypatch):
    """A graph that differs is not left and missing packages are named."""
    folder = model_of("nope", tmp_path / "model")
    monkeypatch.setattr(module, "TOLERANCE", 0.0)
    with pytest.raises(ValueError, match="differs from torch by .* Nothing was written"):
        ww.export(folder, tmp_path / "onnx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"ONNX needs onnx, onnxruntime, onnxscript: pip install 'whatwhere\[onnx\]'"):
        ww.export(folder, tmp_path / "onnx")
