"""Labelled tables: every kind of file gives the same rows, what is wrong is named by line, and batches hold what the
tokenizer gives."""

import gzip
import json
import lzma

import numpy as np
import pytest
import torch

from whatwhere.corpus import open_source, train_tokenizer
from whatwhere.corpus.labelled import LabelledTexts, label_names, read_columns, read_labelled
from whatwhere.corpus.labelled_batches import LabelledBatches

ROWS = [('he said "no" , twice', "0", "yes"), ("a, b", "1", "no"), ("plain", "1", "maybe")]


def tsv(rows=ROWS, header="sentence\tlabel\tother"):
    return "\n".join([header, *("\t".join(row) for row in rows)]) + "\n"


def csv_text():
    quoted = ['"' + text.replace('"', '""') + f'",{label},{other}' for text, label, other in ROWS]
    return "\r\n".join(["sentence,label,other", *quoted]) + "\r\n"


def jsonl():
    return "".join(
        json.dumps({"sentence": text, "label": int(label), "other": other}) + "\n" for text, label, other in ROWS
    )


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tsv", tsv().encode()),
        ("a.tsv.xz", lzma.compress(("\ufeff" + tsv()).encode())),  # MRPC's header starts with a byte-order mark
        ("a.csv", csv_text().encode()),
        ("a.jsonl", jsonl().encode()),
        ("a.jsonl.gz", gzip.compress(jsonl().encode())),
    ],
)
def test_every_kind_of_table_gives_the_same_rows(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    found = read_labelled(tmp_path / name, "sentence", "label")
    assert found == LabelledTexts([row[0] for row in ROWS], None, ["0", "1", "1"])
    pairs = read_labelled(tmp_path / name, "sentence", "label", text_pair="other")
    assert pairs.pairs == ["yes", "no", "maybe"] and pairs.labels == ["0", "1", "1"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "x", "unknown ending"),
        ("a.tsv", "sentence\tlabels\na\t1\n", "line 2: no column 'label'. Give one of those there: sentence, labels"),
        ("a.tsv", "sentence\tlabel\na\t1\tmore\n", "line 2: 3 fields, but the first line names 2"),
        ("a.tsv", "sentence\tlabel\na\t \n", "line 2: the label ' ' is neither a word nor a whole number"),
        ("a.jsonl", '{"sentence": "a", "label": 0.5}\n', "line 1: the label 0.5 is neither"),
        ("a.jsonl", '{"sentence": 3, "label": 1}\n', "'sentence' holds int, not text"),
        ("a.jsonl", "[1]\n", "row 1: an object is wanted, this is a int"),
        ("a.jsonl", "{\n", "line 1: not JSON"),
        ("a.tsv", "sentence\tlabel\n", "holds no rows"),
    ],
)
def test_wrong_rows_of_labelled_tables_are_named(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_labelled(tmp_path / name, "sentence", "label")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="no such file"):
        read_labelled(tmp_path / "none.tsv", "sentence", "label")


def test_class_numbers_follow_numbers_then_words():
    assert label_names(["10", "9", "2", "9"]) == ["2", "9", "10"]
    assert label_names(["pos", "neg"]) == ["neg", "pos"]
    with pytest.raises(ValueError, match="two classes or more"):
        label_names(["1", "1"])
    with pytest.raises(ValueError, match="1001 different values"):
        label_names([f"text {i}" for i in range(1001)])


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([" ".join(row[0] for row in ROWS)] * 3, vocab_size=100)


def test_batches_are_padded_tokenizer_output(tokenizer):
    """A batch is what the tokenizer gives padded to the longest."""
    data = LabelledTexts([row[0] for row in ROWS], [row[2] for row in ROWS], [row[1] for row in ROWS])
    batches = LabelledBatches(data, ["0", "1"], tokenizer, length=64)
    (batch,) = batches.in_order(8)
    expected = tokenizer(data.texts, data.pairs, padding=True, return_tensors="pt")
    assert torch.equal(batch["input_ids"], expected["input_ids"]) and torch.equal(
        batch["attention_mask"], expected["attention_mask"]
    )
    assert batch["labels"].tolist() == [0, 1, 1]
    assert batches.truncated == 0 and batches.longest == expected["input_ids"].shape[1]
    assert batches.mean_length == expected["attention_mask"].sum() / 3


def test_long_rows_are_cut_to_the_length_and_counted(tokenizer):
    data = LabelledTexts([row[0] for row in ROWS], None, ["a", "b", "a"])
    batches = LabelledBatches(data, ["a", "b"], tokenizer, length=6)
    assert (
        batches.longest == 6
        and batches.truncated == sum(len(tokenizer(text)["input_ids"]) > 6 for text in data.texts) > 0
    )
    assert all(ids[0] == tokenizer.cls_token_id and ids[-1] == tokenizer.sep_token_id for ids in batches.ids)
    assert (
        tokenizer(data.texts[0])["input_ids"] == tokenizer(data.texts[0], truncation=False)["input_ids"]
    )  # the tokenizer is as before


def test_order_depends_on_seed_alone(tokenizer):
    """Order depends on the seed and processes share a step."""
    data = LabelledTexts([f"{i}" for i in range(10)], None, [str(i) for i in range(10)])
    one = LabelledBatches(data, label_names(data.labels), tokenizer, 8, seed=1)
    whole = one.micro_batch(3, 4)["labels"]
    assert torch.equal(
        torch.stack([one.micro_batch(3, 4, rank, 2)["labels"] for rank in (0, 1)], dim=1).flatten(), whole
    )
    epoch = torch.cat([one.micro_batch(step, 5)["labels"] for step in (0, 1)])
    assert sorted(epoch.tolist()) == list(range(10))
    other = LabelledBatches(data, label_names(data.labels), tokenizer, 8, seed=2)
    assert not torch.equal(other.micro_batch(0, 10)["labels"], one.micro_batch(0, 10)["labels"])


def test_the_digest_sees_every_row_and_label(tokenizer):
    def digest(texts, labels):
        return LabelledBatches(LabelledTexts(texts, None, labels), ["a", "b"], tokenizer, 16).digest()

    first = digest(["plain", "no"], ["a", "b"])
    assert first == digest(["plain", "no"], ["a", "b"])
    assert (
        len(
            {
                first,
                digest(["no", "plain"], ["a", "b"]),
                digest(["plain", "no"], ["b", "b"]),
                digest(["plain no", ""], ["a", "b"]),
            }
        )
        == 4
    )


def test_a_column_cannot_be_two_things(tmp_path):
    """Pairs of a text and itself were trained on without a word."""
    (tmp_path / "a.tsv").write_text(tsv())
    with pytest.raises(ValueError, match="^'sentence' is given for two of text, second text and label"):
        read_labelled(tmp_path / "a.tsv", "sentence", "label", "sentence")


def test_column_that_stands_twice_is_refused(tmp_path):
    """finetune trained on the last column of a name, predict read the first."""
    path = tmp_path / "a.tsv"
    path.write_text("sentence\tsentence\tlabel\nx\ta text\t1\ny\tanother\t0\n")
    told = "names the column 'sentence' 2 times. Rename all but one."
    with pytest.raises(ValueError, match=told):
        read_labelled(path, "sentence", "label")
    with pytest.raises(ValueError, match=told):
        list(open_source(path, field="sentence"))
    with pytest.raises(ValueError, match=told):
        list(read_columns(path, ["sentence"]))
    path.write_text("sentence\tnote\tnote\tlabel\nx\t\t\t1\ny\t\t\t0\n")
    assert read_labelled(path, "sentence", "label").texts == ["x", "y"]


def test_unknown_label_is_named_with_its_place(tokenizer, tmp_path):
    """The message named neither file nor line."""
    (tmp_path / "a.tsv").write_text(tsv())
    rows = read_labelled(tmp_path / "a.tsv", "sentence", "label")
    with pytest.raises(ValueError, match=r"a\.tsv, line 3: the label '1' does not occur in the training data"):
        LabelledBatches(rows, ["0", "2"], tokenizer, 8)


def test_a_label_of_the_dev_set_alone_is_refused(tokenizer):
    data = LabelledTexts(["plain"], None, ["-1"])
    with pytest.raises(ValueError, match="'-1' does not occur in the training data. Labels there: 0, 1"):
        LabelledBatches(data, ["0", "1"], tokenizer, 8)
    assert np.array_equal(LabelledBatches(data, ["-1", "1"], tokenizer, 8).labels, [0])
