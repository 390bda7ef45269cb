"""sentence-transformers opens a saved model: with whatwhere, and in a process that cannot import it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from foreign_models import save, sentence_model
from safetensors.torch import load_file
from transformers import AutoModel

import whatwhere as ww
from whatwhere.corpus import open_source, train_tokenizer
from whatwhere.models.predict import Predictor
from whatwhere.training.finetune import default_length
from whatwhere.training.pretrain import PretrainConfig, pretrain

TEXTS = ["A short text.", "Another text that is a little longer, so that the first is padded.", "word " * 100]


@pytest.fixture(scope="module")
def folder(corpus_file, tmp_path_factory) -> Path:
    """A saved `dstg` (8 + 120 columns, 32 positions) with a tokenizer."""
    path = tmp_path_factory.mktemp("sentence") / "model"
    tokenizer = train_tokenizer(open_source(str(corpus_file)), 300)
    torch.manual_seed(0)
    config = ww.preset("dstg", "tiny", vocab_size=len(tokenizer), num_hidden_layers=2, max_position_embeddings=32)
    ww.EncoderForMaskedLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def expected(folder: Path) -> torch.Tensor:
    """Mean of the hidden states over the attention mask, texts cut to the position table."""
    tokenizer = sentence_model(folder).tokenizer
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=32, return_tensors="pt")
    hidden = ww.Encoder.from_pretrained(folder)(
        batch["input_ids"], attention_mask=batch["attention_mask"]
    ).last_hidden_state
    mask = batch["attention_mask"][..., None]
    return ((hidden * mask).sum(1) / mask.sum(1)).detach()


def test_vectors_are_means_of_hidden_states(folder):
    """Vectors are means of hidden states or their semantic columns."""
    ww.write_sentence_transformer(folder)
    model = sentence_model(folder)
    assert model.max_seq_length == 32 and model.similarity_fn_name == "cosine"
    vectors = model.encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(vectors, expected(folder))
    ww.write_sentence_transformer(folder, pooling="semantic")
    model = sentence_model(folder)
    assert model.get_embedding_dimension() == 120
    assert torch.equal(model.encode(TEXTS, convert_to_tensor=True), vectors[:, 8:])  # times ones and zeros: exact
    ww.write_sentence_transformer(folder, pooling="mean")
    assert torch.equal(sentence_model(folder).encode(TEXTS, convert_to_tensor=True), vectors)
    assert not (folder / "2_Dense").exists()


def test_first_token_and_position_stream_are_poolings(folder):
    """The first token and the position stream are poolings too."""
    ww.write_sentence_transformer(folder)
    mean = sentence_model(folder).encode(TEXTS, convert_to_tensor=True)
    with pytest.raises(ValueError, match="last block has an untrained position half"):
        ww.write_sentence_transformer(folder, pooling="position")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mlm_head": "full"}))  # which trains both streams
    ww.write_sentence_transformer(folder, pooling="position")
    assert torch.equal(sentence_model(folder).encode(TEXTS, convert_to_tensor=True), mean[:, :8])
    (folder / "config.json").write_text(json.dumps(config))
    ww.write_sentence_transformer(folder, pooling="cls")
    model = sentence_model(folder)
    ids = torch.tensor([model.tokenizer(TEXTS[0])["input_ids"]])
    first = ww.Encoder.from_pretrained(folder)(ids).last_hidden_state[:, 0].detach()
    torch.testing.assert_close(model.encode(TEXTS, convert_to_tensor=True)[:1], first)
    ww.write_sentence_transformer(folder)


def test_foreign_models_keep_their_pooling(tmp_path):
    """Another packages model is opened with the pooling it was given."""
    save("bert", tmp_path)
    ww.write_sentence_transformer(tmp_path, pooling="cls")
    model = sentence_model(tmp_path)
    ids = torch.tensor([model.tokenizer("ba lo ti")["input_ids"]])
    first = AutoModel.from_pretrained(tmp_path)(ids).last_hidden_state[:, 0].detach()
    torch.testing.assert_close(model.encode(["ba lo ti"], convert_to_tensor=True), first)
    assert model.encode(["ba lo " * 60]).shape == (1, 16)  # cut to the positions that it has


def test_one_stream_is_all_semantic(folder, tmp_path):
    ww.Encoder(ww.preset("ap", "tiny", vocab_size=50)).save_pretrained(tmp_path)
    ww.write_sentence_transformer(tmp_path, pooling="semantic")
    assert not (tmp_path / "2_Dense").exists() and "Dense" not in (tmp_path / "modules.json").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
def test_sentence_transformers_opens_it_where_whatwhere_is_not_installed(folder, tmp_path):
    ww.write_sentence_transformer(folder, pooling="semantic")
    script = f"""
import sys
sys.modules["whatwhere"] = None
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
model = SentenceTransformer({str(folder)!r}, trust_remote_code=True)
assert type(model[0].auto_model).__module__.startswith("transformers_modules.")
save_file({{"vectors": model.encode({TEXTS!r}, convert_to_tensor=True)}}, "vectors.safetensors")
model.save_pretrained("again")
again = SentenceTransformer("again", trust_remote_code=True)
assert (again.encode({TEXTS!r}) == model.encode({TEXTS!r})).all()
"""
    keep = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "HF_MODULES_CACHE")}
    env = keep | {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    torch.testing.assert_close(load_file(tmp_path / "vectors.safetensors")["vectors"], expected(folder)[:, 8:])


def test_unknown_pooling_and_missing_streams_are_errors(folder, tmp_path):
    with pytest.raises(ValueError, match="pooling must be one of mean, cls, semantic, position; got 'max'"):
        ww.write_sentence_transformer(folder, pooling="max")
    ww.Encoder(ww.preset("ap", "tiny", vocab_size=50)).save_pretrained(tmp_path / "one")
    with pytest.raises(ValueError, match="one stream, which has no position columns. Pool its mean or cls"):
        ww.write_sentence_transformer(tmp_path / "one", pooling="position")
    with pytest.raises(ValueError, match="holds no saved encoder"):
        ww.write_sentence_transformer(tmp_path)


def test_each_reader_has_the_trained_length(corpus_file, tmp_path):
    """Where the table is longer than the training, all read as many tokens as the training.

    `predict` read 32 at once, sentence-transformers and fine-tuning all 64 rows of the table.
    """
    values = {"preset": "ap", "length": 32, "vocab_size": 300, "batch_size": 8, "workers": 1, "steps": 1}
    values |= {"corpus": str(corpus_file), "pooling": "mean", "precision": "fp32"}
    model_keys = {"num_hidden_layers": 1, "max_position_embeddings": 64}
    pretrain(PretrainConfig.parse(values | {"model": model_keys}), tmp_path, progress=False)
    model = sentence_model(tmp_path)
    assert model.max_seq_length == model.tokenizer.model_max_length == 32
    assert Predictor(tmp_path).longest == default_length(str(tmp_path)) == 32
    ww.write_sentence_transformer(tmp_path, length=64)
    assert sentence_model(tmp_path).max_seq_length == 64
    with pytest.raises(ValueError, match="length must be at least 3 tokens"):
        ww.write_sentence_transformer(tmp_path, length=0)
    (tmp_path / "pretrain.yaml").write_text("length: [", encoding="utf-8")  # was called no saved encoder
    with pytest.raises(ValueError, match=r"pretrain\.yaml"):
        ww.write_sentence_transformer(tmp_path)
