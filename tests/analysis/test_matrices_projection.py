"""Stress behind M = W_Qᵀ W_K: against loops in float64, the scores of one head, streams, untied tables and BERT's
layout."""

import itertools

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
)

import whatwhere as ww
from whatwhere.analysis.corpus_geometry import CorpusDistances
from whatwhere.analysis.matrices import projection_records, score_matrices
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

POSITIONS = np.array([0, 1, 3, 4, 7, 20])


@pytest.fixture(scope="module")
def corpus():
    points = np.random.default_rng(0).normal(size=(6, 2))
    dist = np.linalg.norm(points[:, None] - points, axis=2)
    return CorpusDistances(dist, POSITIONS, 2 * dist)


def build(name, **fields):
    torch.manual_seed(0)
    return ww.EncoderForMaskedLM(
        ww.preset(name, "tiny", vocab_size=40, num_hidden_layers=2, max_position_embeddings=24, **fields)
    )


def naive(table, matrix, dist):
    """(raw, optimal) stress of P M written out."""
    p = [[sum(row[a] * matrix[a, b] for a in range(len(row))) for b in range(matrix.shape[1])] for row in table]
    pairs = list(itertools.combinations(range(len(p)), 2))
    d = {(i, j): sum((x - y) ** 2 for x, y in zip(p[i], p[j], strict=True)) ** 0.5 for i, j in pairs}
    scale = sum(d[c] * dist[c] for c in pairs) / sum(d[c] ** 2 for c in pairs)
    total = sum(dist[c] ** 2 for c in pairs)
    return tuple(sum((s * d[c] - dist[c]) ** 2 for c in pairs) / total for s in (1.0, scale))


def sinusoid(width):
    return np.array(
        [[(np.sin, np.cos)[c % 2](i / 10000 ** (2 * (c // 2) / width)) for c in range(width)] for i in POSITIONS],
    )


def check(records, part, layer, expected):
    values = [
        select(records, metric=f"projected.stress.{s}", part=part, layer=layer)[0].value for s in ("raw", "optimal")
    ]
    assert values == pytest.approx(expected, rel=1e-9)


def weights(linear):
    return linear.weight.detach().double().numpy()


@pytest.mark.parametrize("name", ["ap", "dstg"])
def test_records_equal_naive_loops(name, corpus):
    model = build(name, **({"position_size": 24} if name == "dstg" else {}))
    width = model.config.position_size or model.config.hidden_size
    records = projection_records(model, corpus, RecordContext("m", 3, "s", step=7))
    assert {(r.study, r.model, r.seed, r.step, r.n) for r in records} == {("s", "m", 3, 7, 6)}
    assert {(r.part, r.layer) for r in records} == {(p, layer) for p in ("sinusoidal", "own") for layer in (0, 1, 2)}
    table = model.position_table().detach().double().numpy()[POSITIONS + 1]
    matrices = [np.eye(width)]
    for layer in model.encoder.layers:
        w = weights(layer.attention.qkv[0])
        heads = model.config.hidden_size
        matrices.append(sum(np.outer(w[r], w[heads + r]) for r in range(heads)))
    for part, p in (("sinusoidal", sinusoid(width)), ("own", table)):
        for layer, m in enumerate(matrices[:2]):
            check(records, part, layer, naive(p, m, corpus.dist))
    corrected = select(records, metric="projected.stress.optimal.corrected", part="own", layer=2)[0].value
    assert corrected == pytest.approx(select(records, metric="projected.stress.optimal", part="own", layer=2)[0].value)


def test_p_m_p_is_the_scores_of_one_head():
    model = build("ap", num_attention_heads=1, hidden_size=16).double()
    p = torch.randn(1, 9, 16, dtype=torch.float64)
    attention = model.encoder.layers[1].attention
    inputs = model.encoder.attention_inputs(torch.full((1, 9), 7), None, None, None)
    products, _, _ = attention.compute_terms_and_values((p,), inputs)
    (scores,) = products[0].terms(1.0).values()
    m = score_matrices(model).blocks[1]
    np.testing.assert_allclose(p[0].numpy() @ m @ p[0].numpy().T, scores[0, 0].detach().numpy(), atol=1e-12)


@pytest.mark.parametrize("name", ["dstg", "split"])
def test_of_two_streams_the_position_stream_is_meant(name):
    model = build(name)
    found = score_matrices(model)
    d = model.config.position_size
    assert {m.shape for m in found.blocks} == {(d, d)} and found.table.shape == (24, d)
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.attention.qkv[1].weight.zero_()
    for a, b in zip(found.blocks, score_matrices(model).blocks, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["tupe-a", "bert-ad"])
def test_an_untied_table_meets_its_own_projections_once(name, corpus):
    model = build(name)
    records = projection_records(model, corpus, RecordContext("m", 0, "s"))
    assert {r.layer for r in records if r.part == "own"} == {0, 1} and {
        r.layer for r in records if r.part == "sinusoidal"
    } == {0, 1, 2}
    untied = model.encoder.untied
    table = model.position_table().detach().double().numpy()[POSITIONS + 1]
    check(records, "own", 1, naive(table, weights(untied.query).T @ weights(untied.key), corpus.dist))


@pytest.mark.parametrize("name", ["rope", "rp", "nope", "alibi", "tupe-free"])
def test_without_a_table_only_the_sinusoidal_is_measured(name, corpus):
    model = build(name)
    records = projection_records(model, corpus, RecordContext("m", run_name="s"))
    assert {(r.part, r.layer) for r in records} == {("sinusoidal", layer) for layer in (0, 1, 2)}
    w = weights(model.encoder.layers[0].attention.qkv[0])
    width = model.config.hidden_size
    check(records, "sinusoidal", 1, naive(sinusoid(width), w[:width].T @ w[width : 2 * width], corpus.dist))


SMALL = {"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}


@pytest.mark.parametrize(
    ("model", "first"),
    [
        (BertModel(BertConfig(max_position_embeddings=24, **SMALL)), 0),
        (RobertaModel(RobertaConfig(max_position_embeddings=26, pad_token_id=1, **SMALL)), 2),
    ],
    ids=["bert", "roberta"],
)
def test_models_of_berts_layout_have_own_projections(model, first, corpus):
    """BERT and RoBERTa are measured with their own position rows, and with sinusoidal ones."""
    records = projection_records(model, corpus, RecordContext("m", run_name="s"))
    assert {(r.part, r.layer) for r in records} == {(p, layer) for p in ("sinusoidal", "own") for layer in (0, 1, 2)}
    block = model.encoder.layer[1].attention.self
    m = weights(block.query).T @ weights(block.key)
    table = weights(model.embeddings.position_embeddings)[first + POSITIONS + 1]
    check(records, "own", 0, naive(table, np.eye(12), corpus.dist))
    check(records, "own", 2, naive(table, m, corpus.dist))
    check(records, "sinusoidal", 2, naive(sinusoid(12), m, corpus.dist))


def test_a_table_of_another_width_is_left_out(corpus):
    model = ElectraModel(ElectraConfig(embedding_size=8, max_position_embeddings=24, **SMALL))
    assert {r.part for r in projection_records(model, corpus, RecordContext("m", run_name="s"))} == {"sinusoidal"}


def test_optimal_stress_ignores_the_scale_of_m(corpus):
    """Optimal stress does not know the scale of m and raw goes to one."""
    model = build("ap")
    before = projection_records(model, corpus, RecordContext("m", 0, "s"))
    with torch.no_grad():
        model.encoder.layers[0].attention.qkv[0].weight.mul_(1e-4)
    after = projection_records(model, corpus, RecordContext("m", 0, "s"))
    optimal = "projected.stress.optimal"
    raw = "projected.stress.raw"
    assert select(after, metric=raw, layer=1, part="own")[0].value == pytest.approx(1.0, abs=1e-6)
    small, large = (select(r, metric=optimal, layer=1, part="own")[0].value for r in (after, before))
    assert small == pytest.approx(large, rel=1e-6)


def test_far_positions_and_foreign_models_are_refused(corpus):
    """Positions beyond the table, a model of unknown matrices and distances of 0 are refused."""
    far = CorpusDistances(corpus.dist, POSITIONS + 3)
    with pytest.raises(ValueError, match="position 23, in row 24, but the table has 24 rows"):
        projection_records(build("ap"), far, RecordContext("m", 0, "s"))
    assert projection_records(build("rope"), far, RecordContext("m", 0, "s"))
    with pytest.raises(ValueError, match="GPT2Model are under no known name"):
        projection_records(GPT2Model(GPT2Config(n_embd=12, n_layer=1, n_head=2)), corpus, RecordContext("m", 0, "s"))
    with pytest.raises(ValueError, match="All distances are 0"):
        projection_records(build("rope"), CorpusDistances(0 * corpus.dist, POSITIONS), RecordContext("m", 0, "s"))
