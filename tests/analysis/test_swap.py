"""Swapped rows of the position table against an edited weight and permuted positions; what is restored, and what has no table."""

import numpy as np
import pytest
import torch
from encoder_models import build
from small_documents import documents

from whatwhere.analysis.ablation import masked
from whatwhere.analysis.swap import swap_pairs, swap_records, swapped
from whatwhere.records import select

WHO = {"study": "s", "name": "m", "seed": 1}
N = 14


def losses(model, docs, position_ids=None):
    """(documents, n) cross-entropy at the masked tokens by the model's own forward pass, nan elsewhere."""
    ids, labels = masked(docs, 0.2, model.config.mask_token_id)
    given = {"attention_mask": docs.attention_mask, "document_ids": docs.document_ids}
    given = {key: torch.from_numpy(a) for key, a in given.items() if a is not None}
    with torch.no_grad():
        positions = torch.from_numpy(docs.position_ids if position_ids is None else position_ids)
        logits = model(torch.from_numpy(ids), position_ids=positions, **given).logits
    found = -logits.log_softmax(-1).gather(2, torch.from_numpy(np.maximum(labels, 0))[..., None])[..., 0].numpy()
    return np.where(labels != -100, found, np.nan)


def test_pairs_are_spread_evenly_over_all_positions_of_each_lag():
    found = swap_pairs(np.arange(1, 127), 8)
    assert list(found) == [1, 2, 4, 8, 16, 32, 64] and {len(pairs) for pairs in found.values()} == {8}
    for lag, pairs in found.items():
        starts = [i for i, j in pairs if j == i + lag]
        assert len(starts) == 8 and starts[0] == 1 and starts[-1] + lag == 126
        assert max(np.diff(starts)) - min(np.diff(starts)) <= 1
    assert swap_pairs(np.array([1, 2, 5])) == {1: [(1, 2)]} and swap_pairs(np.array([3])) == {}


@pytest.mark.parametrize("options", [{}, {"packed": True}])
@pytest.mark.parametrize("name", ["dstg", "ap", "tupe-r", "bert-ad"])
def test_rises_equal_an_edited_weight_token_by_token(name, options):
    model, docs = build(name), documents(count=4, n=N, **options)
    records = swap_records(model, docs, **WHO, pairs=3)
    before = losses(model, docs)
    for lag, pairs in swap_pairs(np.unique(docs.position_ids[docs.regular]), 3).items():
        rises, hits = {"swapped": [[] for _ in range(4)], "others": [[] for _ in range(4)]}, []
        for i, j in pairs:
            weight = model.encoder.position_embeddings.table.weight
            with torch.no_grad():
                weight[[i, j]] = weight[[j, i]]
                rise = losses(model, docs) - before
                weight[[i, j]] = weight[[j, i]]
            at = np.isin(docs.position_ids, (i, j)) & ~np.isnan(rise)
            for d in np.flatnonzero(at.any(1)):
                rises["swapped"][d] += rise[d, at[d]].tolist()
                rises["others"][d] += rise[d, ~at[d] & ~np.isnan(rise[d])].tolist()
            if at.any():
                hits.append(rise[at].mean() > 0)
        for part, of_documents in rises.items():
            means = [np.mean(values) for values in of_documents if values]
            found = select(records, metric="swap.loss", index=lag, part=part)
            assert len(found) == bool(means)
            if means:
                assert found[0].value == pytest.approx(np.mean(means), rel=1e-8, abs=1e-12) and found[0].n == len(means)
        if hits:
            (share,) = select(records, metric="swap.positive", index=lag)
            assert (share.value, share.n) == (np.mean(hits), len(hits)) and 0 <= share.low <= share.value <= share.high <= 1


@pytest.mark.parametrize("name", ["ap", "sinusoidal", "low-rank", "fourier", "tupe-a", "split"])
def test_without_biases_of_distance_a_swap_is_that_of_the_positions(name):
    model, docs = build(name), documents(count=2, n=N)
    moved = np.select([docs.position_ids == 3, docs.position_ids == 7], [7, 3], docs.position_ids)
    with swapped(model.encoder, 3, 7):
        inside = losses(model, docs)
    np.testing.assert_allclose(inside, losses(model, docs, moved), rtol=1e-10)
    assert np.nanmax(np.abs(inside - losses(model, docs))) > 1e-6


def test_equal_rows_change_nothing_and_the_table_is_restored_also_after_an_error():
    model, docs = build("ap"), documents(count=4, n=N)
    table = model.position_table().detach().clone()
    with pytest.raises(RuntimeError), swapped(model.encoder, 1, 2):
        raise RuntimeError
    assert torch.equal(model.position_table(), table)
    swap_records(model, docs, **WHO)
    assert torch.equal(model.position_table(), table) and "position_table" not in vars(model.encoder)
    with torch.no_grad():
        next(model.encoder.position_embeddings.parameters())[:] = table[0]
    records = swap_records(model, docs, **WHO)
    assert all(abs(r.value) < 1e-12 for r in records) and {r.metric for r in records} == {"swap.loss", "swap.positive"}


def test_models_without_a_table_have_no_records_and_others_are_refused():
    docs = documents(count=4, n=N)
    assert swap_records(build("rope"), docs, **WHO) == swap_records(build("tupe-free"), docs, **WHO) == []
    with pytest.raises(ValueError, match="EncoderForMaskedLM"):
        swap_records(build("ap").encoder, docs, **WHO)
