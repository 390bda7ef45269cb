"""Vectors of a sentence-transformers folder are those of `SentenceTransformer.encode`, as its modules.json says."""

import json

import numpy as np
import pytest
from cli_runner import sentences, whatwhere
from foreign_models import save, sentence_model
from sentence_parts import pooling, write_parts

import whatwhere as ww

TEXTS = ["La.", "ne to ri", *sentences(3, seed=1).split("\n\n"), "", sentences(1, seed=2) * 3]


DENSE = {"in_features": 16, "out_features": 7, "bias": True}
FOLDERS = {
    "mean": [pooling("mean_tokens")],
    "normalised": [pooling("mean_tokens"), ("Normalize", {})],
    "first token": [pooling("cls_token"), ("Normalize", {})],
    "several": [pooling("max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")],
    "new keys": [("Pooling", {"embedding_dimension": 16, "pooling_mode": ["lasttoken", "cls"]})],
    "dense": [
        pooling("mean_tokens"),
        ("Dense", DENSE | {"activation_function": "torch.nn.modules.activation.Tanh"}),
        ("Normalize", {}),
    ],
}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("parts", FOLDERS.values(), ids=FOLDERS)
def test_vectors_are_those_of_encode(kind, parts, tmp_path, capsys):
    """Normalisation and the 256 tokens of MiniLM were passed over: vectors of other lengths, 0.034 apart."""
    from sentence_transformers import SentenceTransformer

    folder = save(kind, tmp_path / "model")
    write_parts(folder, parts)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(ww.predict(folder, TEXTS, what="vectors"), theirs, atol=1e-6)
    said = capsys.readouterr().err
    assert "No token in text 6: read as the special tokens" in said
    assert "longer than the 20 tokens" in said and "they are cut, as its modules.json says" in said


def test_prompt_and_lower_case_are_followed(tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = save("roberta", tmp_path / "model")
    write_parts(folder, [pooling("mean_tokens")], prompts={"query": "Ta ne: "}, default_prompt_name="query")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24, "do_lower_case": true}')
    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(ww.predict(folder, TEXTS, what="vectors"), theirs, atol=1e-6)


@pytest.mark.parametrize(
    "calls", [{"text": {"max_length": 9}}, {"text": {"max_length": 9}, "common": {"max_length": 12}}, {"text": {}}]
)
def test_arguments_of_the_tokenizer_are_followed(calls, tmp_path):
    """`processing_kwargs`, which sentence-transformers 6 prefers to max_seq_length, was passed over."""
    folder = save("bert", tmp_path / "model")
    write_parts(folder, [pooling("mean_tokens")])
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 20, "processing_kwargs": calls}))
    theirs = sentence_model(folder).encode(TEXTS)
    np.testing.assert_allclose(ww.predict(folder, TEXTS, what="vectors"), theirs, atol=1e-6)


def test_the_users_pooling_and_length_win(tmp_path):
    """A pooling that the user names is the plain one, and a length reads all of a long text in windows."""
    folder = save("bert", tmp_path / "model")
    plain = ww.predict(folder, TEXTS, what="vectors")
    write_parts(folder, [pooling("mean_tokens"), ("Normalize", {})])
    np.testing.assert_allclose(ww.predict(folder, TEXTS, what="vectors", pooling="mean", length=32), plain, atol=1e-6)
    whole = ww.predict(folder, TEXTS, what="vectors", length=32)
    np.testing.assert_allclose(whole, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
    in_windows = ww.predict(folder, TEXTS, what="vectors", pooling="mean")
    (folder / "modules.json").unlink()
    np.testing.assert_allclose(in_windows, ww.predict(folder, TEXTS, what="vectors", length=20), atol=1e-6)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([pooling("mean_tokens"), ("LSTM", {})], "the part lstm"),
        ([("WordWeights", {})], "the parts transformer, wordweights"),
        ([("Pooling", {"pooling_mode": "median"})], "the pooling median"),
        (
            [pooling("mean_tokens"), ("Dense", {"activation_function": "mine.Swish"})],
            "the activation mine.Swish",
        ),
    ],
)
def test_what_is_not_followed_is_one_line(parts, words, tmp_path):
    folder = save("bert", tmp_path / "model")
    plain = ww.predict(folder, TEXTS[:2], what="vectors")
    write_parts(folder, parts)
    done = whatwhere("predict", str(folder), "--what", "vectors", "--text", TEXTS[0], "--text", TEXTS[1], "--json")
    assert done.returncode == 0
    (line,) = done.stderr.strip().splitlines()
    assert f"asks for {words}, which is not followed: these are plain means." in line
    found = [row["vectors"] for row in json.loads(done.stdout)["texts"]]
    np.testing.assert_allclose(found, plain, atol=1e-6)
