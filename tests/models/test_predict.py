"""What a model says of texts equals the pipelines of transformers, and of long texts the rule written out."""

import io
import json
import sys
from unittest import mock

import numpy as np
import pytest
import torch
from cli_runner import whatwhere
from foreign_models import TEXTS, save
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    pipeline,
)

import whatwhere as ww
from whatwhere.length.extension import extend
from whatwhere.models.predict import Predictor

SENTENCES = ["The capital of [MASK] is large.", "He was born in [MASK] and died in [MASK].", "A [MASK]."]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory) -> str:
    """Folder of a tiny `dstg` with three classes and random weights, and the reference's tokenizer."""
    folder = tmp_path_factory.mktemp("classifier") / "model"
    torch.manual_seed(0)
    names = {0: "bad", 1: "fair", 2: "good"}
    config = ww.preset("dstg", size="tiny", vocab_size=4096, max_position_embeddings=32, num_labels=3, id2label=names)
    ww.EncoderForSequenceClassification(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(folder)
    return str(folder)


def test_words_are_those_of_the_fill_mask_pipeline():
    fill = pipeline("fill-mask", ww.reference(), top_k=3)
    said = ww.predict("reference", SENTENCES, top=3)
    for text, masks in zip(SENTENCES, said, strict=True):
        theirs = fill(text)
        for mine, each in zip(masks, theirs if len(masks) > 1 else [theirs], strict=True):
            assert [one["word"] for one in mine] == [one["token_str"] for one in each]
            np.testing.assert_allclose([one["probability"] for one in mine], [one["score"] for one in each], atol=1e-6)


def test_labels_are_those_of_the_classification_pipeline(classifier):
    texts = ["one", "two words", "a longer text of some words"]
    theirs = pipeline("text-classification", classifier, top_k=None)(texts)
    for mine, each in zip(ww.predict(classifier, texts), theirs, strict=True):
        assert list(mine) == [one["label"] for one in each]
        np.testing.assert_allclose(list(mine.values()), [one["score"] for one in each], atol=1e-6)
    seconds = ["a second", "b", "words that follow"]
    rows = [{"text": one, "text_pair": two} for one, two in zip(texts, seconds, strict=True)]
    for mine, row in zip(ww.predict(classifier, texts, seconds), rows, strict=True):
        each = pipeline("text-classification", classifier, top_k=None)(row)
        np.testing.assert_allclose(list(mine.values()), [one["score"] for one in each], atol=1e-6)


def test_bert_is_told_the_text_of_each_token(tmp_path):
    """A BERT is told which text of a pair a token is of."""
    folder = save("bert", tmp_path / "bert")
    config = AutoConfig.from_pretrained(folder, num_labels=2)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = tokenizer(TEXTS[0][:20], TEXTS[1][:20], return_tensors="pt")
    assert rows["token_type_ids"].sum() > 0
    expected = model.eval()(**rows).logits.softmax(-1)[0].tolist()
    (said,) = ww.predict(folder, TEXTS[0][:20], TEXTS[1][:20])
    np.testing.assert_allclose([said["LABEL_0"], said["LABEL_1"]], expected, atol=1e-6)


def test_position_vectors_are_read_after_the_last_trained_block():
    """The position stream is read after the last block that trains it."""
    model = AutoModel.from_pretrained(ww.reference()).eval()
    tokenizer = AutoTokenizer.from_pretrained(ww.reference())
    inputs = tokenizer("and another one, longer than that", return_tensors="pt")
    with torch.no_grad():
        hidden = model(**inputs, output_hidden_states=True).hidden_states
    vectors = ww.predict("reference", ["and another one, longer than that"], what="vectors", pooling="position")
    np.testing.assert_allclose(vectors[0], hidden[-2][0, :, :8].mean(0), atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "cls", "semantic"])
def test_vectors_are_those_of_sentence_transformers(pooling, tmp_path):
    from sentence_transformers import SentenceTransformer

    model = AutoModel.from_pretrained(ww.reference())
    tokenizer = AutoTokenizer.from_pretrained(ww.reference())
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    ww.write_sentence_transformer(tmp_path, pooling=pooling)
    texts = ["a text", "and another one, longer than that", "x"]
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(texts)
    np.testing.assert_allclose(ww.predict("reference", texts, what="vectors", pooling=pooling), theirs, atol=1e-5)


def naive_windows(ids: list[int], longest: int, stride: int) -> list[list[int]]:
    """Pieces of a text that each begin with the last `stride` tokens of the one before."""
    room = longest - 2
    pieces = []
    start = 0
    while True:
        pieces.append(ids[start : start + room])
        if start + room >= len(ids):
            return pieces
        start += room - stride


@pytest.mark.parametrize("stride", [0, 7, None])
def test_a_long_text_is_read_in_windows(classifier, stride):
    model = AutoModelForSequenceClassification.from_pretrained(classifier).eval()
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    text = "the war began in the north and then it went on for years " * 9
    pieces = naive_windows(tokenizer(text, add_special_tokens=False)["input_ids"], 32, 7 if stride is None else stride)
    assert len(pieces) > 3
    logits = []
    means = []
    weights = []
    for number, piece in enumerate(pieces):
        again = (7 if stride is None else stride) if number else 0
        ids = torch.tensor([[tokenizer.cls_token_id, *piece, tokenizer.sep_token_id]])
        with torch.no_grad():
            logits.append(model(ids).logits[0].double())
            states = model.encoder(ids).last_hidden_state[0].double()
        counted = torch.tensor([1.0, *([0.0] * again), *([1.0] * (len(piece) - again)), 1.0], dtype=torch.float64)
        weights.append(float(counted.sum()))
        means.append((states * counted[:, None]).sum(0))
    expected = sum(w * one for w, one in zip(weights, logits, strict=True)) / sum(weights)
    short = "short"
    both = ww.predict(classifier, [short, text], stride=stride)
    np.testing.assert_allclose([both[1][n] for n in ("bad", "fair", "good")], expected.softmax(-1).numpy(), atol=1e-6)
    assert both[0] == pytest.approx(ww.predict(classifier, short)[0], abs=1e-6)
    vectors = ww.predict(classifier, [text], what="vectors", stride=stride)
    np.testing.assert_allclose(vectors[0], (sum(means) / sum(weights)).numpy(), atol=1e-5)


def test_each_mask_is_filled_once_inside_its_window():
    """Each mask of a long text is filled once far from the ends of its window."""
    one = "the king of [MASK] went to war. "
    said = ww.predict("reference", one * 40)
    assert len(said[0]) == 40
    predictor = Predictor("reference")
    ids = predictor.tokenizer(one * 40, add_special_tokens=False)["input_ids"]
    longest = predictor.longest
    pieces = naive_windows(ids, longest, (longest - 2) // 4)
    # The mask nearest to the middle of the second window is filled there.
    stride = (longest - 2) // 4
    room = longest - 2
    start = room - stride
    masks = [at for at, each in enumerate(ids) if each == predictor.tokenizer.mask_token_id]
    middle = min(masks, key=lambda at: abs(at - start - room / 2))
    row = torch.tensor([[predictor.tokenizer.cls_token_id, *pieces[1], predictor.tokenizer.sep_token_id]])
    with torch.no_grad():
        likely = predictor.model(row).logits[0, middle - start + 1].softmax(-1).max()
    assert said[0][masks.index(middle)][0]["probability"] == pytest.approx(float(likely), abs=1e-5)


def test_models_without_a_bound_read_their_training_length(tmp_path):
    """A model without a bound is read as it was trained."""
    # RoPE, ALiBi and clipped distances trained on 128 tokens were given 512 at once, without a word.
    ww.EncoderForMaskedLM(ww.preset("rope", size="tiny", vocab_size=4096)).save_pretrained(tmp_path / "m")
    AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(tmp_path / "m")
    for name in ("pretrain.yaml", "finetune.yaml"):
        (tmp_path / "m" / name).write_text("length: 16\n")
        assert Predictor(tmp_path / "m").longest == 16
        (tmp_path / "m" / name).unlink()
    (tmp_path / "m/pretrain.yaml").write_text("length: 16\n")
    text = "the war began in the north and then it went on for years " * 3
    as_trained, at_once = (ww.predict(tmp_path / "m", [text], length=length) for length in (16, 64))
    model = AutoModel.from_pretrained(tmp_path / "m")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
    whole = model(**tokenizer(text, return_tensors="pt")).last_hidden_state.mean(1)
    np.testing.assert_allclose(at_once, whole.detach().numpy(), atol=1e-5)
    assert np.abs(at_once - as_trained).max() > 1e-3
    extend(tmp_path / "m", tmp_path / "long", 256, "yarn")
    assert Predictor(tmp_path / "long").longest == 256


def test_what_is_left_out_follows_from_model_and_texts(classifier):
    assert isinstance(ww.predict("reference", "no mask here"), np.ndarray)
    assert "word" in ww.predict("reference", "a [MASK] here")[0][0][0]
    assert set(ww.predict(classifier, "x")[0]) == {"bad", "fair", "good"}
    for wrong in (3, ["x", None]):
        with pytest.raises(ValueError, match="several are a list of strings; got (3|None)"):
            ww.predict("reference", wrong)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("nowhere", "--text", "x"), "nowhere is no folder here"),
        (("reference", "--text", "x", "--what", "labels"), "EncoderForMaskedLM) gives words and vectors"),
        (("reference", "--text", "x", "--what", "verbs"), "Predictions are labels, words or vectors; got 'verbs'"),
        (("reference", "--text", "x", "--what", "words"), "Text 1 has no [MASK] that is not cut away"),
        (
            ("reference", "--text", "x", "--pooling", "max"),
            "pooling must be one of mean, cls, semantic, position; got 'max'",
        ),
        (("reference", "--text", "x", "--stride", "500"), "A stride is from 0 to 125"),
        (("reference", "--text", "x " * 200, "--stride", "500"), "A stride is from 0 to 125"),  # no remark first
        (("reference", "--text", "a\udce7"), "Text 1 of --text and --pair is not UTF-8"),
        (("reference", "--text", "x", "--length", "129"), "A length is from 5 to 128 tokens"),
        (("reference", "--text", "x", "--length", "4"), "--length must be at least 5; got '4'"),
        (("reference", "--text", "x", "--text", "y", "--pair", "z"), "2 texts have 1 second texts"),
        (("reference", "--text", "x", "--file", "y"), "Give --text or --file, not both"),
        (("reference", "--file", "nowhere.txt"), "No file nowhere.txt"),
        (("reference", "--pair-field", "b"), "--pair-field with --file"),
        (("reference", "--text", "[MASK]", "--top", "0"), "top=0 shows nothing. Give 1 or more"),
        (("reference", "--text", "[MASK] or not", "--out", "x.npy"), "--out is a .npy file of vectors"),
        # Found after all vectors were computed, which were lost.
        (
            ("reference", "--text", "a", "--out", "/etc/hostname/x.npy"),
            "is a file, so /etc/hostname/x.npy cannot be made",
        ),
        (("reference", "--text", "a", "--out", "."), "--out is a .npy file of vectors"),
    ],
)
def test_wrong_words_are_one_line(words, expected):
    done = whatwhere("predict", *words)
    assert done.returncode == 2 and expected in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_folder_without_a_tokenizer_says_nothing_of_words(tmp_path):
    # transformers makes a tokenizer of five special tokens of it, under which every word was blank.
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForMaskedLM(BertConfig(**sizes)).save_pretrained(tmp_path / "bert")
    done = whatwhere("predict", str(tmp_path / "bert"), "--text", "a [MASK]")
    assert done.returncode == 2 and "bert has no tokenizer (tokenizer.json). Save" in done.stderr, done.stderr
    (tmp_path / "empty.txt").write_text("\n")
    done = whatwhere("predict", "reference", "--file", str(tmp_path / "empty.txt"))
    assert done.returncode == 2 and "empty.txt" in done.stderr and "text" in done.stderr, done.stderr


def test_vectors_nobody_asked_for_are_announced():
    """Vectors that nobody asked for are said to be some."""
    said = whatwhere("predict", "reference", "--text", "no mask")
    assert said.returncode == 0 and json.loads(said.stdout)
    assert said.stderr == "No text has a [MASK] to fill in: these are their vectors.\n"
    assert whatwhere("predict", "reference", "--text", "no mask", "--what", "vectors").stderr == ""


def test_a_mask_in_the_second_text_is_filled():
    """A mask in the second text was not seen, and vectors came with "no text has a mask"."""
    (words,) = ww.predict("reference", ["The cat sat."], ["It was [MASK] there."])
    assert len(words) == 1 and len(words[0]) == 5


def test_options_without_use_are_refused():
    """A stride beside pairs and a pooling of words were ignored."""
    with pytest.raises(ValueError, match="stride has no use"):
        ww.predict("reference", ["a"], ["b"], what="vectors", stride=3)
    with pytest.raises(ValueError, match="A pooling is for vectors, and these are words"):
        ww.predict("reference", ["a [MASK]"], pooling="cls")


def test_masks_of_a_pair_are_told_apart(tmp_path):
    """RoBERTa's tokenizer gives both texts of a pair one type, and masks at equal places were taken for one."""
    folder = save("roberta", tmp_path / "model")
    mask = Predictor(folder).tokenizer.mask_token
    (words,) = ww.predict(folder, [f"a {mask} b"], [f"c {mask} d"], what="words")
    assert len(words) == 2


def test_a_blank_row_has_a_result_of_its_own(classifier, tmp_path):
    """Of "first", a blank line and "third" two rows came back, without a word: all later ones beside the wrong text."""
    rows = ["first", "", "third\u2028still third", " \t", "fifth"]
    (tmp_path / "p.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"text": row or None}) + "\n" for row in rows))
    model = AutoModel.from_pretrained(ww.reference())
    tokenizer = AutoTokenizer.from_pretrained(ww.reference())
    with torch.no_grad():  # one by one
        states = [model(**tokenizer(row, return_tensors="pt")).last_hidden_state.mean(1) for row in rows]
    for name in ("p.txt", "p.jsonl"):
        words = ("--file", str(tmp_path / name), "--what", "vectors", "--out", str(tmp_path / "p.npy"))
        done = whatwhere("predict", "reference", *words)
        assert "5 vectors" in done.stdout and "No token in text 2 and 1 others: read as the special" in done.stderr
        assert "Leave such rows out where they should give nothing." in done.stderr
        np.testing.assert_allclose(np.load(tmp_path / "p.npy"), torch.cat(states).numpy(), atol=1e-5)
    np.testing.assert_allclose(ww.predict("reference", rows, what="vectors"), torch.cat(states).numpy(), atol=1e-5)
    # One blank row made vectors of a whole file of masks.
    first, blank, third = ww.predict("reference", ["A [MASK].", "", "The [MASK] of it."], top=2)
    assert blank == [] and [len(found) for found in (*first, *third)] == [2, 2]
    labels = [ww.predict(classifier, row)[0] for row in rows]
    with mock.patch.object(sys, "stdin", io.StringIO("\n".join(rows) + "\n")):
        done = whatwhere("predict", classifier, "--json")
    found = json.loads(done.stdout)["texts"]
    assert [row["text"] for row in found] == rows
    for row, expected in zip(found, labels, strict=True):
        assert row["labels"] == pytest.approx(expected, abs=1e-6)


def test_the_likeliest_labels_are_listed(tmp_path):
    """All 77 labels of each of 3,080 rows made 11 MB of JSON."""
    torch.manual_seed(0)
    config = ww.preset("dstg", size="tiny", vocab_size=4096, num_labels=77)
    ww.EncoderForSequenceClassification(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(ww.reference()).save_pretrained(tmp_path)
    every = ww.predict(tmp_path, "a text", top=77)[0]
    assert len(every) == 77 and sum(every.values()) == pytest.approx(1)
    for top, more in ((5, ()), (2, ("--top", "2"))):
        done = whatwhere("predict", str(tmp_path), "--text", "a text", "--json", *more)
        found = json.loads(done.stdout)["texts"][0]["labels"]
        assert list(found) == list(every)[:top] and found == pytest.approx({key: every[key] for key in found})


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_a_tokenizer_of_more_tokens_than_rows_is_refused(kind, tmp_path):
    """Tokens that were added without resizing the model ended in an IndexError; all verbs now say so at once."""
    folder = save(kind, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = len(tokenizer)
    tokenizer.add_tokens(["newword"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra>"]})
    tokenizer.save_pretrained(folder)
    wanted = f"has {rows + 2} tokens, and the model's table of words {rows} rows"
    for words in (("predict", "--text", "x"), ("attention", "--text", "x", "--out", str(tmp_path / "a.html"))):
        done = whatwhere(words[0], str(folder), *words[1:])
        assert done.returncode == 2 and wanted in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_ids_without_a_token_are_no_words(tmp_path):
    """Of a table rounded up to 64 rows beside a smaller tokenizer the likeliest word was an empty one."""
    folder = save("bert", tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForMaskedLM.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer) + 30)
    with torch.no_grad():
        model.cls.predictions.decoder.bias[len(tokenizer) :] = 20.0
    model.save_pretrained(folder)
    (found,) = ww.predict(folder, "la [MASK] ne", top=len(tokenizer) + 30)
    with torch.no_grad():
        shares = model.eval()(**tokenizer("la [MASK] ne", return_tensors="pt")).logits[0, 2].softmax(-1)
    best = shares[: len(tokenizer)].argsort(descending=True)[:3].tolist()
    assert len(found[0]) == len(tokenizer) and all(row["word"] for row in found[0])
    assert [row["word"] for row in found[0][:3]] == [tokenizer.decode([i]) for i in best]
    assert [row["probability"] for row in found[0][:3]] == pytest.approx(shares[best].tolist(), rel=1e-4)


def test_a_word_of_white_space_is_spelt_out(tmp_path):
    folder = save("roberta", tmp_path / "model")
    (found,) = ww.predict(folder, "la <mask> ne", top=1000)
    assert all(row["word"] for row in found[0]) and "Ġ" in [row["word"] for row in found[0]]


def test_texts_come_from_line_file_table_or_stdin(classifier, tmp_path):
    """Texts come from the line a file a table or stdin."""
    (tmp_path / "lines.txt").write_text("one\ntwo words\n")
    (tmp_path / "pairs.tsv").write_text("a\tb\none\tsecond\ntwo words\tother\n")
    said = {}
    said["text"] = whatwhere("predict", classifier, "--text", "one", "--text", "two words", "--json")
    said["file"] = whatwhere("predict", classifier, "--file", str(tmp_path / "lines.txt"), "--json")
    with mock.patch.object(sys, "stdin", io.StringIO("one\r\ntwo words\r\n")):  # POSIX leaves \r, a token of ours
        said["stdin"] = whatwhere("predict", classifier, "--json")
    rows = {name: json.loads(done.stdout)["texts"] for name, done in said.items()}
    assert rows["text"] == rows["file"] == rows["stdin"]
    assert [row["text"] for row in rows["text"]] == ["one", "two words"]
    pairs = ("--file", str(tmp_path / "pairs.tsv"), "--field", "a", "--pair-field", "b", "--json")
    given = ("--text", "one", "--text", "two words", "--pair", "second", "--pair", "other", "--json")
    found = [json.loads(whatwhere("predict", classifier, *how).stdout)["texts"] for how in (pairs, given)]
    assert (
        found[0] == found[1] and found[0][0]["pair"] == "second" and found[0][0]["labels"] != rows["text"][0]["labels"]
    )
    out = tmp_path / "vectors.npy"
    words = ("--file", str(tmp_path / "lines.txt"), "--what", "vectors", "--out", str(out))
    done = whatwhere("predict", "reference", *words)
    assert done.returncode == 0 and "2 vectors of 128 numbers" in done.stdout
    np.testing.assert_allclose(np.load(out), ww.predict("reference", ["one", "two words"], what="vectors"), atol=1e-6)
    long = whatwhere("predict", "reference", "--text", "word " * 300)
    assert "1 of 1 texts are longer than the 128 tokens" in long.stderr
