"""Swapped positions against exchanged tokens and, where the table is all there is, exchanged rows of it; what has no
position."""

import numpy as np
import pytest
import torch
from encoder_models import build
from small_documents import documents

from whatwhere.analysis.ablation import masked, swap_pairs, swap_records
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

WHO = RecordContext("m", 1, "s")
N = 14


def losses(model, docs, ids, labels):
    """(documents, n) cross-entropy at the masked tokens by the model's own forward pass, nan elsewhere."""
    given = {"attention_mask": docs.attention_mask, "document_ids": docs.document_ids}
    given = {key: torch.from_numpy(a) for key, a in given.items() if a is not None}
    with torch.no_grad():
        logits = model(torch.from_numpy(ids), position_ids=torch.from_numpy(docs.position_ids), **given).logits
    found = -logits.log_softmax(-1).gather(2, torch.from_numpy(np.maximum(labels, 0))[..., None])[..., 0].numpy()
    return np.where(labels != -100, found, np.nan)


def exchanged(docs, i, j, *arrays):
    """The arrays (documents, n) with the entries of the words at positions i and j exchanged, where both are; and where
    that is."""
    order = np.tile(np.arange(N), (len(docs), 1))
    moved = np.zeros((len(docs), N), dtype=bool)
    for d in range(len(docs)):
        spans = np.zeros(N, dtype=int) if docs.document_ids is None else docs.document_ids[d]
        for span in np.unique(spans):
            a, b = (np.flatnonzero((docs.position_ids[d] == k) & (spans == span) & docs.regular[d]) for k in (i, j))
            if len(a) and len(b):
                order[d, [a[0], b[0]]] = order[d, [b[0], a[0]]]
                moved[d, [a[0], b[0]]] = True
    return *(np.take_along_axis(array, order, 1) for array in arrays), moved


def test_pairs_of_each_lag_are_spread_evenly():
    """Pairs are spread evenly over all positions of each lag."""
    found = swap_pairs(np.arange(1, 127), 8)
    assert list(found) == [1, 2, 4, 8, 16, 32, 64] and {len(pairs) for pairs in found.values()} == {8}
    for lag, pairs in found.items():
        starts = [i for i, j in pairs if j == i + lag]
        assert len(starts) == 8 and starts[0] == 1 and starts[-1] + lag == 126
        assert max(np.diff(starts)) - min(np.diff(starts)) <= 1
    assert swap_pairs(np.array([1, 2, 5])) == {1: [(1, 2)]} and swap_pairs(np.array([3])) == {}


@pytest.mark.parametrize("options", [{}, {"packed": True}, {"padded": True}])
@pytest.mark.parametrize("name", ["dstg", "ap", "rp", "rope", "tupe-r", "bert-ad", "alibi"])
def test_rises_are_those_of_exchanged_tokens_one_by_one(name, options):
    model = build(name)
    docs = documents(count=4, n=N, **options)
    records = swap_records(model, docs, WHO, pairs=3)
    ids, labels = masked(docs, 0.2, model.config.mask_token_id)
    before = losses(model, docs, ids, labels)
    for lag, pairs in swap_pairs(np.unique(docs.position_ids[docs.regular]), 3).items():
        rises = {"swapped": [[] for _ in range(4)], "others": [[] for _ in range(4)]}
        hits = []
        for i, j in pairs:
            *given, moved = exchanged(docs, i, j, ids, labels)
            rise = (
                exchanged(docs, i, j, losses(model, docs, *given))[0] - before
            )  # each at the place where its token was
            at = moved & ~np.isnan(rise)
            for d in np.flatnonzero(at.any(1)):
                rises["swapped"][d] += rise[d, at[d]].tolist()
                rises["others"][d] += rise[d, ~moved[d] & ~np.isnan(rise[d])].tolist()
            if at.any():
                hits.append(rise[at].mean() > 1e-6)
        for part, of_documents in rises.items():
            means = [np.mean(values) for values in of_documents if values]
            found = select(records, metric="swap.loss", index=lag, part=part)
            assert len(found) == bool(means)
            if means:
                assert found[0].value == pytest.approx(np.mean(means), rel=1e-7, abs=1e-10) and found[0].n == len(means)
        if hits:
            (share,) = select(records, metric="swap.positive", index=lag)
            assert (share.value, share.n) == (
                np.mean(hits),
                len(hits),
            ) and 0 <= share.low <= share.value <= share.high <= 1
    assert max(abs(r.value) for r in records) > 1e-6


@pytest.mark.parametrize("name", ["ap", "sinusoidal", "low-rank", "fourier"])
def test_two_table_rows_change_places(name):
    """GEOM's theorem 1 reads H2 so; with biases or rotations the rows alone are another thing."""
    model = build(name)
    docs = documents(count=12, n=N)
    found = select(swap_records(model, docs, WHO, pairs=1), metric="swap.loss", part="swapped")
    table = model.position_table().detach()
    ids, labels = masked(docs, 0.2, model.config.mask_token_id)
    before = losses(model, docs, ids, labels)
    for record in found:
        ((i, j),) = swap_pairs(np.unique(docs.position_ids[docs.regular]), 1)[record.index]
        rows = torch.arange(len(table))
        rows[[i, j]] = torch.tensor([j, i])
        model.encoder.position_table = lambda rows=rows: table[rows]
        rise = losses(model, docs, ids, labels) - before
        at = np.isin(docs.position_ids, (i, j)) & ~np.isnan(rise)
        means = [rise[d, at[d]].mean() for d in np.flatnonzero(at.any(1))]
        assert record.value == pytest.approx(np.mean(means), rel=1e-7, abs=1e-10) and abs(record.value) > 1e-6
    assert len(found) > 1


def test_equal_rows_change_nothing():
    model = build("ap")
    docs = documents(count=4, n=N)
    with torch.no_grad():
        next(model.encoder.position_embeddings.parameters())[:] = model.position_table().detach()[0]
    records = swap_records(model, docs, WHO)
    assert all(abs(r.value) < 1e-12 for r in records) and {r.metric for r in records} == {"swap.loss", "swap.positive"}


def test_models_without_positions_have_no_swap_records():
    """Models without position have no records and others are refused; tupe-free's matrix and DeBERTa's terms count.

    `bipe`, which never reads the swapped `position_ids`, had a rise of 0 as a finding.
    """
    docs = documents(count=4, n=N)
    assert swap_records(build("bipe"), docs, WHO) == swap_records(build("conv"), docs, WHO) == []
    assert swap_records(build("nope"), docs, WHO) == []
    assert swap_records(build("tupe-free"), docs, WHO)  # which had none, as no field but `untied` says its positions
    assert swap_records(build("deberta"), docs, WHO)
    with pytest.raises(ValueError, match="EncoderForMaskedLM"):
        swap_records(build("ap").encoder, docs, WHO)
