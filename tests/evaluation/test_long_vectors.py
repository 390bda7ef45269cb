"""Vectors of long texts: in pieces and at once they are those of loops over single texts."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from whatwhere.analysis.record_context import RecordContext
from whatwhere.length.vectors import framed, vector_records, vectors_in_pieces, vectors_of
from whatwhere.records.record import select

CLS = 2
SEP = 3
SIZES = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


class Texts:
    """Excerpts of 20 tokens between special ones, each of its own document."""

    special_ids = {"cls_token_id": CLS, "sep_token_id": SEP}  # noqa: RUF012

    def __init__(self, ids):
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return type("Window", (), {"input_ids": [CLS, *self.ids[i], SEP]})

    def document_numbers(self):
        return np.arange(len(self))


def bert(positions, seed=0):
    torch.manual_seed(seed)
    return BertModel(BertConfig(**SIZES, max_position_embeddings=positions, initializer_range=0.5)).eval()


def alone(model, ids):
    with torch.no_grad():
        return model(torch.tensor([[CLS, *ids, SEP]])).last_hidden_state[0].mean(0).double().numpy()


@pytest.fixture
def ids():
    return np.random.default_rng(0).integers(5, 40, (7, 20))


def test_pieces_are_weighted_by_their_tokens(ids):
    """10 tokens in pieces of 6, special ones included: 4, 4 and 2 tokens of text, 6, 6 and 4 in all."""
    model = bert(12)
    whole, first = vectors_in_pieces(model, ids[:, :10], (CLS, SEP), 6)
    for i, row in enumerate(ids):
        pieces = [alone(model, row[:4]), alone(model, row[4:8]), alone(model, row[8:10])]
        np.testing.assert_allclose(first[i], pieces[0], atol=1e-6)
        np.testing.assert_allclose(whole[i], np.average(pieces, axis=0, weights=[6, 6, 4]), atol=1e-6)
    np.testing.assert_allclose(
        vectors_of(model, framed(ids[:, :10], (CLS, SEP)))[3], alone(model, ids[3, :10]), atol=1e-6
    )


def test_records_are_those_of_loops(ids):
    original = bert(12)
    copy = bert(12, seed=1)
    ids[:2, 10:] = ids[:2, :10]  # two second halves that are found
    records = vector_records(original, copy, Texts(ids), 7, "cyclic", RecordContext("m"))

    def pieces(row):
        return np.average([alone(original, row[:5]), alone(original, row[5:])], axis=0)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    halves = [pieces(row[:10]) for row in ids]
    others = [pieces(row[10:]) for row in ids]
    ways = {"pieces": halves, "cyclic": [alone(copy, row[:10]) for row in ids]}
    ways["beginning"] = [alone(original, row[:5]) for row in ids]
    found = {
        w: [int(np.argmax([cosine(v, o) for o in others]) == i) for i, v in enumerate(vs)] for w, vs in ways.items()
    }
    for way, vectors in ways.items():
        (share,) = select(records, metric="length.found", part=way)
        assert share.value == pytest.approx(np.mean(found[way])) and share.n == 7
        if way != "pieces":
            (near,) = select(records, metric="length.cosine", part=way)
            assert near.value == pytest.approx(np.mean([cosine(a, b) for a, b in zip(vectors, halves, strict=True)]))
            (lost,) = select(records, metric="length.lost", part=way)
            assert lost.value == pytest.approx(np.mean(found["pieces"]) - np.mean(found[way]))
    (other,) = select(records, metric="length.cosine", part="other")
    pairs = [cosine(a, b) for i, a in enumerate(halves) for j, b in enumerate(halves) if i != j]
    assert other.value == pytest.approx(np.mean(pairs))
    assert len(set(found["pieces"])) == 2  # some are found and some are not, so the shares can be wrong


def test_the_original_loses_nothing_against_itself(ids):
    """A text of one piece is read the same way by both."""
    model = bert(12)
    records = vector_records(model, model, Texts(ids), 12, "cyclic", RecordContext("m"))
    (near,) = select(records, metric="length.cosine", part="cyclic")
    (lost,) = select(records, metric="length.lost", part="cyclic")
    assert near.value == pytest.approx(1.0) and lost.value == 0.0
