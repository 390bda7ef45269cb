"""Attention by term: against loops over documents, heads, queries and keys in float64, then special cases and bad
input."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from encoder_models import build
from naive_attention import may_look, naive_weights, terms_of
from small_documents import SEP, documents
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel, RobertaConfig, RobertaModel

from whatwhere.analysis.attention_weights import (
    KINDS,
    TOTAL,
    AttentionScores,
    CopyReader,
    copy_records,
    foreign_scores,
    lag_sums,
    repeated_documents,
)
from whatwhere.analysis.passes import Batch, read
from whatwhere.analysis.record_context import RecordContext

WHO = RecordContext("m", 0, "s")


def naive_means(weights, chosen, b):
    """The six means of one document and head from its weights (n, n), nan where no query counts."""
    n = len(weights)
    real = np.ones(n) if chosen.attention_mask is None else chosen.attention_mask[b]
    lists = {kind: [] for kind in KINDS}
    for i in range(n):
        if not chosen.regular[b, i]:
            continue
        for kind, j in (("previous", i - 1), ("next", i + 1)):
            if 0 <= j < n and may_look(chosen, b, i, j):
                lists[kind].append(weights[i, j])
        lists["self"].append(weights[i, i])
        lists["special"].append(sum(weights[i, j] for j in range(n) if real[j] and not chosen.regular[b, j]))
        lists["local"].append(sum(weights[i, j] for j in range(n) if 0 < abs(i - j) <= 3))
        entropy = -sum(p * math.log(p) for p in weights[i] if p > 0)
        lists["broad"].append(entropy / math.log(sum(may_look(chosen, b, i, j) for j in range(n))))
    return [np.mean(v) if v else np.nan for v in lists.values()]


CASES = ["plain", "inner", "padded", "packed"]


def chosen_of(kind):
    return documents(count=5, n=9, **({} if kind == "plain" else {kind: True}))


@pytest.fixture(
    scope="module", params=[(case, kind) for case in ("dstg", "tupe-r", "ap", "split") for kind in CASES], ids="-".join
)
def measured(request):
    case, kind = request.param
    model = build(case)
    chosen = chosen_of(kind)
    reader = AttentionScores(model)
    read(model, chosen, [reader], batch_size=2)
    return chosen, naive_weights(terms_of(model, chosen), chosen), reader


def test_means_are_those_of_the_loops(measured):
    chosen, weights, reader = measured
    keys, *records = reader.records(WHO)
    assert len(records) == len(weights) * 2 * 2 * 6 and {r.part for r in records} == set(weights)
    shares = []
    for b in range(len(chosen)):
        of_document = []
        for i in np.flatnonzero(chosen.regular[b]):
            seen = [j for j in range(chosen.length) if may_look(chosen, b, i, j)]
            of_document.append(np.mean([not chosen.regular[b, j] for j in seen]))
        shares.append(np.mean(of_document))
    assert keys.metric == "attention.special.keys" and keys.layer is None
    np.testing.assert_allclose(keys.value, np.mean(shares), atol=1e-12)
    for record in records:
        kind = KINDS.index(record.metric.removeprefix("attention."))
        of_head = weights[record.part][record.layer - 1, :, record.head]
        expected = [naive_means(w, chosen, b)[kind] for b, w in enumerate(of_head)]
        np.testing.assert_allclose(record.value, np.nanmean(expected), atol=1e-10)
        assert record.n == len(chosen) and record.low - 1e-12 <= record.value <= record.high + 1e-12


def test_profiles_are_means_over_regular_pairs(measured):
    chosen, weights, reader = measured
    arrays = reader.arrays()
    n = chosen.length
    np.testing.assert_array_equal(arrays["lags"], np.arange(1 - n, n))
    for part, w in weights.items():
        for at, lag in enumerate(arrays["lags"]):
            pairs = [
                (b, i, i + lag)
                for b in range(len(chosen))
                for i in range(n)
                if 0 <= i + lag < n
                and chosen.regular[b, i]
                and chosen.regular[b, i + lag]
                and may_look(chosen, b, i, i + lag)
            ]
            expected = np.mean([w[:, b, :, i, j] for b, i, j in pairs], axis=0) if pairs else np.full((2, 2), np.nan)
            np.testing.assert_allclose(arrays[f"profile.{part}"][:, :, at], expected, rtol=1e-5)


def test_maps_are_means_over_documents(measured):
    chosen, weights, reader = measured
    real = np.ones(chosen.input_ids.shape) if chosen.attention_mask is None else chosen.attention_mask
    both = (real[:, :, None] * real[:, None, :]).sum(0)
    for part, w in weights.items():
        expected = np.einsum("lbhij,bi,bj->lhij", w, real, real) / both
        np.testing.assert_allclose(reader.arrays()[f"mean.{part}"], expected, rtol=1e-5)


def test_total_is_the_weights_that_the_model_uses():
    model = build("dstg")
    chosen = documents()
    reader = AttentionScores(model)
    read(model, chosen, [reader])
    records, arrays = foreign_scores(model, chosen, WHO)
    mine = {(r.metric, r.layer, r.head): r.value for r in reader.records(WHO) if r.part in (TOTAL, None)}
    assert {r.part for r in records[1:]} == {TOTAL} and len(records) == len(mine)
    for r in records:
        np.testing.assert_allclose(r.value, mine[r.metric, r.layer, r.head], atol=1e-10)
    assert set(arrays) == {"lags", "profile.total", "mean.total"}
    np.testing.assert_allclose(arrays["profile.total"], reader.arrays()["profile.total"], rtol=1e-5)


def test_batch_size_changes_no_score():
    """Batches do not matter and terms stay as they are."""
    model = build("dstg")
    chosen = documents(7)
    found = []
    for size in (1, 3, 7):
        reader = AttentionScores(model)
        read(model, chosen, [reader], batch_size=size)
        found.append((reader.records(WHO), reader.arrays()))
    for records, arrays in found[1:]:
        np.testing.assert_allclose([r.value for r in records], [r.value for r in found[0][0]], atol=1e-12)
        for key, array in arrays.items():
            np.testing.assert_allclose(array, found[0][1][key], rtol=1e-5)
    plain = model(torch.from_numpy(chosen.input_ids)).logits
    before = {}

    class Keeping(AttentionScores):
        def terms(self, batch, block, terms, allowed):
            copies = {name: t.clone() for name, t in terms.items()}
            super().terms(batch, block, terms, allowed)
            before.update({(block, name): torch.equal(terms[name], copy) for name, copy in copies.items()})

    read(model, chosen, [Keeping(model)])
    assert before and all(before.values())
    torch.testing.assert_close(model(torch.from_numpy(chosen.input_ids)).logits, plain)


def test_long_texts_are_binned_and_profiles_stop_at_128():
    rng = np.random.default_rng(0)
    chosen = documents(2, n=150)
    raw = rng.random((2, 2, 150, 150))
    scores = {"semantic": torch.from_numpy(np.log(raw))}
    reader = AttentionScores(SimpleNamespace(config=SimpleNamespace(num_attention_heads=2)))
    reader.terms(Batch.of(chosen, np.arange(2), torch.device("cpu")), 0, scores, None)
    arrays = reader.arrays()
    p = raw / raw.sum(-1, keepdims=True)
    assert arrays["lags"][0] == -128 and arrays["profile.total"].shape == (1, 2, 257)
    edges = [i * 64 // 150 for i in range(150)]
    expected = np.zeros((2, 64, 64))
    cells = np.zeros((64, 64))
    for i in range(150):
        for j in range(150):
            expected[:, edges[i], edges[j]] += p[:, :, i, j].mean(0)
            cells[edges[i], edges[j]] += 1
    np.testing.assert_allclose(arrays["mean.semantic"][0], expected / cells, rtol=1e-5)
    lag = [p[b, 1, i, i + 128] for b in range(2) for i in range(1, 149 - 128)]
    np.testing.assert_allclose(arrays["profile.semantic"][0, 1, -1], np.mean(lag), rtol=1e-5)


def test_lag_sums_are_sums_of_diagonals():
    x = torch.from_numpy(np.random.default_rng(1).random((3, 6, 6)))
    for farthest in (1, 5):
        expected = [[np.trace(x[h].numpy(), offset=lag) for lag in range(-farthest, farthest + 1)] for h in range(3)]
        np.testing.assert_allclose(lag_sums(x, farthest), expected, rtol=1e-12)


def test_heads_that_look_at_one_place_are_recognised():
    """Scores built so that head 0 looks at the previous token, 1 at the next, 2 at itself, 3 at [CLS] and 4
    everywhere."""
    n = 20
    chosen = documents(3, n=n)
    scores = torch.zeros(1, 5, n, n, dtype=torch.float64)
    for i in range(n):
        for head, j in enumerate((i - 1, i + 1, i, 0)):
            if 0 <= j < n:
                scores[0, head, i, j] = 50
    reader = AttentionScores(SimpleNamespace(config=SimpleNamespace(num_attention_heads=5)))
    batch = Batch.of(chosen, np.arange(3), torch.device("cpu"))
    reader.terms(batch, 0, {"relative": scores}, None)
    found = {
        (r.metric.removeprefix("attention."), r.head): r.value for r in reader.records(WHO) if r.part == "relative"
    }
    for head, kind in enumerate(("previous", "next", "self", "special")):
        assert found[kind, head] == pytest.approx(1.0) and found["broad", head] < 1e-6
    assert found["broad", 4] == pytest.approx(1.0) and found["previous", 4] == pytest.approx(1 / n)
    assert found["local", 0] == pytest.approx(1.0) and found["local", 2] == pytest.approx(0.0, abs=1e-12)


def bert(**fields):
    sizes = {
        "vocab_size": 40,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    torch.manual_seed(0)
    return BertModel(BertConfig(**sizes, max_position_embeddings=40, **fields)).eval()


@pytest.mark.parametrize("kind", ["plain", "inner", "padded"])
def test_scores_of_foreign_encoders_equal_their_attentions(kind):
    """Means of the weights equal loops over an encoder's attentions; its mode and its backend come back."""
    model = bert(attn_implementation="sdpa")
    chosen = chosen_of(kind)
    model.train()
    records, arrays = foreign_scores(model, chosen, WHO, batch_size=2)
    assert model.training and model.config._attn_implementation == "sdpa"
    eager = bert(attn_implementation="eager").double()
    mask = None if chosen.attention_mask is None else torch.from_numpy(chosen.attention_mask)
    with torch.no_grad():
        given = eager(torch.from_numpy(chosen.input_ids), attention_mask=mask, output_attentions=True).attentions
    for r in records[1:]:
        kind = KINDS.index(r.metric.removeprefix("attention."))
        expected = [naive_means(w[r.head].numpy(), chosen, b)[kind] for b, w in enumerate(given[r.layer - 1])]
        np.testing.assert_allclose(r.value, np.mean(expected), atol=1e-5)
    assert len(records) == 1 + 2 * 2 * 6 and arrays["mean.total"].shape == (2, 2, 9, 9)


@pytest.mark.parametrize("kind", ["plain", "padded"])
def test_local_attention_is_spread_over_visible_keys(kind):
    """ModernBERT's local blocks were divided by all keys: indifferent attention to five of nine had a spread of 0.73
    and a profile of 0 at the lags that it cannot see."""
    fields = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 24, "intermediate_size": 32}
    ids = dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 0) | {"eos_token_id": 3, "sep_token_id": 3}
    model = ModernBertModel(ModernBertConfig(vocab_size=40, local_attention=4, **fields, **ids)).eval()
    for block in model.layers:
        torch.nn.init.zeros_(block.attn.Wqkv.weight)
    records, arrays = foreign_scores(model, chosen_of(kind), WHO, batch_size=2)
    assert model.config.layer_types == ["full_attention", "sliding_attention"]
    for r in (r for r in records if r.metric == "attention.broad"):
        assert r.value == pytest.approx(1, abs=1e-6), (r.layer, r.value)
    seen = np.isfinite(arrays["profile.total"][:, 0])
    assert arrays["lags"][seen[1]].tolist() == [-2, -1, 0, 1, 2] and seen[0].sum() > 5


def test_roberta_counts_its_positions_itself():
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 40,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    model = RobertaModel(
        RobertaConfig(**sizes, max_position_embeddings=14, pad_token_id=1, attn_implementation="eager")
    ).eval()
    chosen = documents(3, n=12)
    records, _ = foreign_scores(model, chosen, WHO)
    with torch.no_grad():
        given = model(torch.from_numpy(chosen.input_ids), output_attentions=True).attentions
    previous = next(r for r in records if (r.metric, r.layer, r.head) == ("attention.previous", 2, 1))
    expected = [naive_means(w[1].double().numpy(), chosen, b)[0] for b, w in enumerate(given[1])]
    np.testing.assert_allclose(previous.value, np.mean(expected), atol=1e-5)


def test_one_document_has_no_interval():
    model = build("nope")
    reader = AttentionScores(model)
    read(model, documents(1), [reader])
    assert all(r.low is None and r.high is None and r.n == 1 for r in reader.records(WHO))


def test_a_text_without_a_word_is_an_error():
    model = build("dstg")
    reader = AttentionScores(model)
    read(model, documents(3, n=2), [reader])
    with pytest.raises(ValueError, match="at least 3 tokens"):
        reader.records(WHO)


def test_nothing_seen_is_an_error_and_no_arrays():
    reader = AttentionScores(build("nope"))
    assert reader.arrays() == {}
    with pytest.raises(ValueError, match="No window has passed"):
        reader.records(WHO)


def test_a_block_without_terms_is_an_error():
    chosen = documents(2)
    batch = Batch.of(chosen, np.arange(2), torch.device("cpu"))
    with pytest.raises(ValueError, match="Block 1 has no term"):
        AttentionScores(build("nope")).terms(batch, 1, {}, None)


def test_a_model_without_terms_is_an_error():
    model = bert()
    with pytest.raises(ValueError, match="BertModel does not say"):
        read(model, documents(), [AttentionScores(model)])


def test_a_model_without_weights_is_an_error():
    model = bert()

    class Silent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = model.config
            self.inner = model

        def forward(self, input_ids, output_attentions=False):
            return type("Out", (), {"attentions": None})

    with pytest.raises(ValueError, match="returns no attention weights"):
        foreign_scores(Silent(), documents(), WHO)


# Copies


def test_repeated_texts_are_pieces_of_different_documents():
    chosen = documents(6, n=14, inner=True)
    again, other = repeated_documents(chosen, seed=3)
    assert len(again) == len(other) == 6 and again.length == 14
    words = [ids[r] for ids, r in zip(chosen.input_ids, chosen.regular, strict=True)]
    for row in range(6):
        segment = again.targets["segment"][row]
        assert list(segment) == [-1] + [0] * 4 + [1] * 4 + [2] * 4 + [-1]
        a, b, c = (again.input_ids[row][segment == s] for s in range(3))
        np.testing.assert_array_equal(a, words[row][:4])
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(again.input_ids[row][:9], other.input_ids[row][:9])
        third = other.input_ids[row][segment == 2]
        origins = [[i for i in range(6) if np.array_equal(words[i][:4], piece)] for piece in (a, b, third)]
        assert len({o[0] for o in origins}) == 3
        assert again.input_ids[row][0] == chosen.input_ids[row][0] and again.input_ids[row][-1] == SEP
    assert (
        again.document_ids is None
        and (again.position_ids == np.arange(14)).all()
        and (again.regular == (segment >= 0)).all()
    )
    assert np.array_equal(repeated_documents(chosen, seed=3)[1].input_ids, other.input_ids)
    assert not np.array_equal(repeated_documents(chosen, seed=4)[1].input_ids, other.input_ids)


@pytest.mark.parametrize("case", ["dstg", "tupe-a", "rope"])
def test_retrieval_is_copy_weight_minus_place_weight(case):
    """Retrieval is weight on the copy minus weight on its place."""
    model = build(case)
    again, other = repeated_documents(documents(5, n=12))
    repeated = CopyReader()
    control = CopyReader()
    read(model, again, [repeated], batch_size=2)
    read(model, other, [control], batch_size=3)
    found = {(r.metric, r.part, r.layer, r.head): r for r in copy_records(repeated, control, WHO)}
    means = {}
    for metric, chosen in (("raw", again), ("control", other)):
        weights = naive_weights(terms_of(model, chosen), chosen)
        for part, w in weights.items():
            for block in range(2):
                for head in range(2):
                    of_documents = []
                    for b in range(5):
                        segment = chosen.targets["segment"][b]
                        shift = int(np.argmax(segment == 2) - np.argmax(segment == 0))
                        pairs = [(i, i + shift) for i in range(12) if segment[i] == 0]
                        pairs += [(j, i) for i, j in pairs]
                        of_documents.append(np.mean([w[block, b, head, i, j] for i, j in pairs]))
                    means[metric, part, block + 1, head] = np.array(of_documents)
                    record = found[f"attention.retrieval.{metric}", part, block + 1, head]
                    np.testing.assert_allclose(record.value, np.mean(of_documents), atol=1e-12)
    for (metric, part, layer, head), record in found.items():
        if metric == "attention.retrieval":
            difference = means["raw", part, layer, head] - means["control", part, layer, head]
            np.testing.assert_allclose(record.value, difference.mean(), atol=1e-12)
            assert (
                record.n == 5 and difference.min() - 1e-12 <= record.low <= record.value + 1e-12 <= record.high + 2e-12
            )
    positions_only = [
        r.value for (m, part, *_), r in found.items() if m == "attention.retrieval" and part == "relative"
    ]
    np.testing.assert_allclose(positions_only, 0, atol=1e-12)  # what knows no words cannot tell copies


def test_a_head_that_matches_words_retrieves():
    again, other = repeated_documents(documents(6, n=26, seed=1))
    repeated = CopyReader()
    control = CopyReader()
    for chosen, reader in ((again, repeated), (other, control)):
        ids = torch.from_numpy(chosen.input_ids)
        same = 9.0 * (ids[:, None, :, None] == ids[:, None, None, :]).double()
        reader.terms(Batch.of(chosen, np.arange(6), torch.device("cpu")), 0, {"semantic": same}, None)
    found = {r.metric: r for r in copy_records(repeated, control, WHO) if r.part == TOTAL}
    assert found["attention.retrieval.raw"].value > 0.3 and found["attention.retrieval"].low > 0.2


def test_two_documents_or_short_ones_cannot_be_repeated():
    for few in (documents(2, n=12), documents(5, n=4), documents(5, n=2), documents(5, n=9, padded=True)):
        with pytest.raises(ValueError, match="A repeated text needs three documents"):
            repeated_documents(few)


def test_retrieval_needs_both_passes():
    reader = CopyReader()
    read(build("nope"), repeated_documents(documents(5, n=12))[0], [reader])
    with pytest.raises(ValueError, match="No window has passed"):
        copy_records(reader, CopyReader(), WHO)
