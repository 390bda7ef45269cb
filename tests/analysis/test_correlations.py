"""Four correlations of words and positions: they sum to the scores, equal eq. 6 written out, and their statistics are
those of loops."""

import math

import numpy as np
import pytest
import torch
from encoder_models import build, random_weights
from small_documents import documents
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    ModernBertConfig,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaModel,
)

from whatwhere.analysis.correlations import CORRELATIONS, correlation_records, first_block, first_block_correlations
from whatwhere.analysis.foreign import distance_bias
from whatwhere.analysis.patterns import pattern_of
from whatwhere.analysis.record_context import RecordContext

WHO = RecordContext("m", 0, "s")
SIZES = {"vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ADDED = ["ap", "sinusoidal", "low-rank", "fourier", "bert-a", "bert-r"]


FOREIGN = {
    "bert": lambda: BertModel(BertConfig(**SIZES, max_position_embeddings=14, attn_implementation="eager")),
    "bert-mlm": lambda: BertForMaskedLM(BertConfig(**SIZES, max_position_embeddings=14, attn_implementation="eager")),
    "roberta": lambda: RobertaModel(
        RobertaConfig(**SIZES, max_position_embeddings=14, pad_token_id=1, attn_implementation="eager")
    ),
    "electra": lambda: ElectraModel(
        ElectraConfig(**SIZES, embedding_size=16, max_position_embeddings=14, attn_implementation="eager"),
    ),
    "albert": lambda: AlbertModel(
        AlbertConfig(**SIZES, embedding_size=16, max_position_embeddings=14, attn_implementation="eager")
    ),
    "distilbert": lambda: DistilBertModel(
        DistilBertConfig(
            vocab_size=40,
            dim=24,
            n_layers=2,
            n_heads=2,
            hidden_dim=32,
            max_position_embeddings=14,
            attn_implementation="eager",
        )
    ),
    "mpnet": lambda: MPNetModel(MPNetConfig(**SIZES, max_position_embeddings=16, attn_implementation="eager")),
}


def foreign(kind):
    torch.manual_seed(0)
    return random_weights(FOREIGN[kind]().double().eval(), seed=3)


@pytest.mark.parametrize("case", [*ADDED, "ap/rope", "ap/bert", "bert-a/neobert"])
def test_the_parts_sum_to_the_scores(case):
    name, _, other = case.partition("/")
    fields = {"": {}, "rope": {"rotation": "rope"}, "bert": {"block": "bert"}, "neobert": {"block": "neobert"}}[other]
    model = build(name, **fields)
    chosen = documents(4, n=11, inner=True)
    ids = torch.from_numpy(chosen.input_ids)
    parts = first_block_correlations(first_block(model), ids)
    assert set(parts) == {*CORRELATIONS, "constant"}
    torch.testing.assert_close(
        sum(parts.values()), model.attention_terms(input_ids=ids)["mixed"][0], atol=1e-10, rtol=0
    )
    constant = model.config.block == "bert"  # NeoBERT's block has no biases
    assert (parts["constant"].abs().max() > 1e-3) == constant
    positions = torch.tensor([[3, 1, 4, 15, 9, 2, 6, 5, 30, 7, 0]]).expand_as(ids)
    moved = first_block_correlations(first_block(model), ids, positions)
    torch.testing.assert_close(
        sum(moved.values()),
        model.attention_terms(input_ids=ids, position_ids=positions)["mixed"][0],
        atol=1e-10,
        rtol=0,
    )


@pytest.mark.parametrize("kind", FOREIGN)
def test_parts_sum_to_bert_attention_weights(kind):
    """The parts give the weights of models built like BERT."""
    model = foreign(kind)
    chosen = documents(4, n=11)
    ids = torch.from_numpy(chosen.input_ids)
    with torch.no_grad():
        expected = model(ids, output_attentions=True).attentions[0]
    parts = first_block_correlations(first_block(model), ids)
    scores = sum(parts.values()) + distance_bias(model, 11)
    torch.testing.assert_close(scores.softmax(-1), expected, atol=1e-10, rtol=0)
    assert all(parts[part].std() > 1e-3 for part in parts)


def test_equation_6_written_out_for_rms_norm():
    """word-position of query i and key j: (w_i / r_i · g) W_Q · (p_j / r_j · g) W_K / √d, r the root mean square of w +
    p."""
    model = build("ap")
    chosen = documents(2, n=6)
    weights = dict(model.encoder.named_parameters())
    table = model.position_table().detach()
    words = weights["word_embeddings.weight"].detach()
    gain = weights["layers.0.attention_norm.norms.0.weight"].detach()
    project = weights["layers.0.attention.qkv.0.weight"].detach()
    found = first_block_correlations(first_block(model), torch.from_numpy(chosen.input_ids))
    d = 12
    for b in range(2):
        vectors = {"word": [], "position": []}
        for i in range(6):
            w = words[chosen.input_ids[b, i]]
            p = table[i]
            r = math.sqrt(sum(float(x) ** 2 for x in w + p) / 24 + model.config.norm_eps)
            vectors["word"].append(w / r * gain)
            vectors["position"].append(p / r * gain)
        for part in CORRELATIONS:
            left, right = part.split("-")
            for head in range(2):
                W_Q = project[head * d : (head + 1) * d]
                W_K = project[24 + head * d : 24 + (head + 1) * d]
                for i in range(6):
                    for j in range(6):
                        expected = float((W_Q @ vectors[left][i]) @ (W_K @ vectors[right][j])) / math.sqrt(d)
                        assert found[part][b, head, i, j].item() == pytest.approx(expected, abs=1e-12)


def test_correlations_equal_equation_6_with_layer_norm():
    model = foreign("bert")
    chosen = documents(2, n=6)
    e = model.embeddings
    found = first_block_correlations(first_block(model), torch.from_numpy(chosen.input_ids))
    attention = model.encoder.layer[0].attention.self
    for b in range(2):
        vectors = {"word": [], "position": []}
        for i in range(6):
            w = e.word_embeddings.weight[chosen.input_ids[b, i]].detach()
            p = e.position_embeddings.weight[i].detach()
            x = w + p + e.token_type_embeddings.weight[0].detach()
            deviation = math.sqrt(float(((x - x.mean()) ** 2).mean()) + e.LayerNorm.eps)
            gain = e.LayerNorm.weight.detach()
            vectors["word"].append((w - w.mean()) / deviation * gain)
            vectors["position"].append((p - p.mean()) / deviation * gain)
        for part in CORRELATIONS:
            left, right = part.split("-")
            for head in range(2):
                rows = slice(12 * head, 12 * head + 12)
                for i in range(6):
                    for j in range(6):
                        q = attention.query.weight.detach()[rows] @ vectors[left][i]
                        k = attention.key.weight.detach()[rows] @ vectors[right][j]
                        assert found[part][b, head, i, j].item() == pytest.approx(
                            float(q @ k) / math.sqrt(12), abs=1e-12
                        )


@pytest.fixture(scope="module", params=["ap", "bert-r", "bert", "packed"])
def measured(request):
    model = foreign("bert") if request.param == "bert" else build("ap" if request.param == "packed" else request.param)
    chosen = documents(5, n=11, inner=True, packed=request.param == "packed")
    return model, chosen, *correlation_records(model, chosen, WHO, batch_size=2)


def test_statistics_are_those_of_loops(measured):
    model, chosen, records, _ = measured
    parts = first_block_correlations(
        first_block(model), torch.from_numpy(chosen.input_ids), torch.from_numpy(chosen.position_ids)
    )
    expected = {}
    for head in range(2):
        of_documents = {part: [] for part in CORRELATIONS}
        for b in range(5):
            first = np.ones(11, bool) if chosen.document_ids is None else chosen.document_ids[b] == 0
            tokens = np.flatnonzero(chosen.regular[b] & first)
            for part in CORRELATIONS:
                m = [[parts[part][b, head, i, j].item() for j in tokens] for i in tokens]
                rows = [np.mean(row) for row in m]
                columns = [np.mean([row[j] for row in m]) for j in range(len(tokens))]
                of_documents[part].append((np.var(m), np.var(rows), np.var(columns)))
        for part in CORRELATIONS:
            whole = [v[0] for v in of_documents[part]]
            every = [sum(of_documents[p][b][0] for p in CORRELATIONS) for b in range(5)]
            expected["share", head, part] = np.mean(np.divide(whole, every))
            expected["std", head, part] = np.mean(np.sqrt(whole))
            expected["row", head, part] = np.mean([v[1] / v[0] for v in of_documents[part]])
            expected["column", head, part] = np.mean([v[2] / v[0] for v in of_documents[part]])
    found = {
        (r.metric.removeprefix("correlation."), r.head, r.part): r
        for r in records
        if r.metric.startswith("correlation.")
    }
    assert found.keys() == expected.keys()
    for key, record in found.items():
        assert record.value == pytest.approx(expected[key], abs=1e-10)
        assert record.low <= record.value <= record.high and (record.layer, record.n) == (1, 5)
    for head in range(2):
        assert sum(found["share", head, part].value for part in CORRELATIONS) == pytest.approx(1)


def test_maps_are_means_over_documents(measured):
    model, chosen, _, arrays = measured
    parts = first_block_correlations(
        first_block(model), torch.from_numpy(chosen.input_ids), torch.from_numpy(chosen.position_ids)
    )
    first = chosen.regular if chosen.document_ids is None else chosen.regular & (chosen.document_ids == 0)
    kept = np.flatnonzero(first.sum(0) > 2.5)
    assert set(arrays) == set(CORRELATIONS)
    for part, array in arrays.items():
        for a, i in enumerate(kept):
            for c, j in enumerate(kept):
                both = [b for b in range(5) if first[b, i] and first[b, j]]
                np.testing.assert_allclose(array[:, a, c], parts[part][both, :, i, j].mean(0), rtol=1e-5, atol=1e-7)


def test_first_block_patterns_need_no_pure_term(measured):
    """Patterns of the first block where no term is free of content."""
    model, _, records, arrays = measured
    found = [r for r in records if r.metric == "pattern"]
    if getattr(model.config, "relative", "none") != "none":
        assert not found and all(r.metric.startswith("correlation.") for r in records)
        return
    assert [(r.layer, r.head) for r in found] == [(1, 0), (1, 1)]
    for r in found:
        name, strength = pattern_of(arrays["position-position"][r.head])
        assert r.part == name and r.value == pytest.approx(strength, abs=1e-5)
    assert sum(r.value for r in records if r.metric == "patterns.share") == pytest.approx(1)


def test_patterns_of_mpnet_see_its_bias():
    """A bias of the distance that prefers the token before gives every head the pattern `previous`."""
    model = foreign("mpnet")
    chosen = documents(3, n=14)
    with torch.no_grad():
        bias = model.encoder.relative_attention_bias.weight
        bias.zero_()
        bias[model.encoder.relative_position_bucket(torch.tensor([-1]))] = 50.0
    records, _ = correlation_records(model, chosen, WHO)
    assert {r.part for r in records if r.metric == "pattern"} == {"previous"}


def test_large_maps_are_means_over_128_bins():
    model = build("ap", max_position_embeddings=150)
    chosen = documents(2, n=150)
    _, arrays = correlation_records(model, chosen, WHO)
    parts = first_block_correlations(first_block(model), torch.from_numpy(chosen.input_ids))
    mean = parts["word-position"].mean(0).numpy()[:, 1:-1, 1:-1]
    bins = np.arange(148) * 128 // 148
    for i, j in ((0, 0), (3, 100), (127, 127)):
        expected = mean[:, bins == i][:, :, bins == j].mean((1, 2))
        np.testing.assert_allclose(arrays["word-position"][:, i, j], expected, rtol=1e-5)
    assert arrays["word-position"].shape == (2, 128, 128)


def test_a_position_table_of_zeros_leaves_word_word_alone():
    model = build("ap")
    chosen = documents(3)
    with torch.no_grad():
        for parameter in model.encoder.position_embeddings.parameters():
            parameter.zero_()
    records, _ = correlation_records(model, chosen, WHO)
    for r in (r for r in records if r.metric == "correlation.share"):
        assert r.value == pytest.approx(1.0 if r.part == "word-word" else 0.0)
    rows = [r for r in records if r.metric == "correlation.row"]
    assert {r.part for r in rows} == {"word-word"}  # nothing varies, so nothing is between rows


def test_one_document_has_no_interval():
    records, _ = correlation_records(build("bert-a"), documents(1), WHO)
    assert all(r.low is None and r.high is None for r in records)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("dstg", "in a stream of their own"),
        ("tupe-a", "apart from the words"),
        ("bert-ad", "apart"),
        ("rope", "no position table"),
        ("nope", "no"),
    ],
)
def test_models_that_add_no_table_are_refused(case, why):
    with pytest.raises(ValueError, match=why):
        correlation_records(build(case), documents(), WHO)


def test_encoders_not_built_like_bert_are_refused():
    config = ModernBertConfig(**SIZES, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
    with pytest.raises(ValueError, match="ModernBertModel is not built like BERT"):
        correlation_records(ModernBertModel(config), documents(), WHO)


def test_texts_without_words_or_beyond_the_table_are_errors():
    with pytest.raises(ValueError, match="3 regular tokens"):
        correlation_records(build("ap"), documents(3, n=3), WHO)
    with pytest.raises(ValueError, match="position 39, but the position table has 32 rows"):
        correlation_records(build("ap"), documents(3, n=40), WHO)
    with pytest.raises(ValueError, match="table has 12 rows"):
        correlation_records(foreign("roberta"), documents(3, n=14), WHO)
