"""Conditions H1 and H3: mean embeddings and products with M against loops, on our models and on BERT's own."""

import itertools

import numpy as np
import pytest
import torch
from scipy import sparse
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertModel,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    ModernBertModel,
    MPNetModel,
)

import whatwhere as ww
from whatwhere.analysis.matrices import Scores, condition_records, scores_of_model
from whatwhere.analysis.record_context import RecordContext
from whatwhere.records.record import select

V = 40
M_POSITIONS = 6


@pytest.fixture(scope="module")
def p():
    return np.random.default_rng(0).dirichlet(np.full(V, 0.3), size=M_POSITIONS)


def smallest(vectors):
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(vectors, 2))


def test_h1_and_h3_equal_loops(p):
    rng = np.random.default_rng(1)
    scores = Scores(rng.normal(size=(V, 12)), rng.normal(size=(2, 3, 4, 12)), rng.normal(size=(2, 3, 4, 12)))
    records = condition_records(scores, sparse.csr_array(p), RecordContext("m", 2, "s"))
    means = [sum(p[i, t] * scores.words[t] for t in range(V)) for i in range(M_POSITIONS)]
    (h1,) = select(records, metric="h1")
    assert h1.value == pytest.approx(smallest(means)) and (h1.n, h1.seed) == (M_POSITIONS, 2)
    for layer, head in itertools.product(range(2), range(3)):
        w_q = scores.query[layer, head].T  # the paper's (d, d_k)
        w_k = scores.key[layer, head].T
        m = w_q @ w_k.T
        for part, matrix in (("M", m), ("M^T", m.T)):
            (h3,) = select(records, metric="h3", layer=layer, head=head, part=part)
            assert h3.value == pytest.approx(smallest([matrix @ mean for mean in means]))


def test_matrices_of_our_models_are_those_of_the_scores():
    torch.manual_seed(0)
    for name in ("nope", "dstg", "bert-a"):
        config = ww.preset(name, "tiny", vocab_size=V, num_hidden_layers=2)
        model = ww.EncoderForMaskedLM(config).double().eval()
        scores = scores_of_model(model)
        ids = torch.randint(5, V, (1, 7))
        term = model.attention_terms(input_ids=ids)["mixed" if name == "bert-a" else "semantic"][0]
        encoder = model.encoder
        streams = encoder.embed(ids, torch.arange(7)[None])
        x = encoder.layers[0].attention_input(streams)[-1][0].detach().numpy()
        for head in range(config.num_attention_heads):  # at the start BERT's biases are 0
            expected = x @ scores.query[0, head].T @ scores.key[0, head] @ x.T * config.score_scale
            np.testing.assert_allclose(term[0, head].numpy(), expected, atol=1e-12)
        np.testing.assert_array_equal(scores.words, encoder.word_embeddings.weight.detach().numpy())


@pytest.mark.parametrize("kind", [BertModel, MPNetModel, DistilBertModel, ModernBertModel])
def test_h1_and_h3_of_foreign_models(kind, p):
    """Encoders of transformers other than BERT, MPNet for one, were refused."""
    config = kind.config_class(
        vocab_size=V, hidden_size=24, num_attention_heads=3, num_hidden_layers=2, intermediate_size=8, pad_token_id=1
    )
    model = kind(config)
    scores = scores_of_model(model)
    assert scores.query.shape == scores.key.shape == (2, 3, 8, 24)
    np.testing.assert_array_equal(scores.words, model.get_input_embeddings().weight.detach().double().numpy())
    assert len(select(condition_records(scores, p, RecordContext("bert")), metric="h3")) == 2 * 3 * 2


def test_models_of_other_layouts_are_refused():
    with pytest.raises(ValueError, match="GPT2Model are under no known name"):
        scores_of_model(GPT2Model(GPT2Config(vocab_size=V, n_embd=8, n_head=2, n_layer=1)))
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    with pytest.raises(ValueError, match="are 4 wide, its attention 8"):
        scores_of_model(AlbertModel(AlbertConfig(vocab_size=V, embedding_size=4, **sizes)))


def test_the_floor_is_what_equal_positions_show(p):
    """All positions with one distribution: H1 fails, but every sample makes the means differ, by about the floor."""
    rng = np.random.default_rng(3)
    scores = Scores(rng.normal(size=(V, 12)), np.zeros((0, 1, 4, 12)), np.zeros((0, 1, 4, 12)))

    def sample(rows):
        return np.stack([rng.multinomial(2000, row) for row in rows]).astype(float)

    for rows, holds in ((np.repeat(p[:1], 6, axis=0), False), (p, True)):
        halves = [sample(rows), sample(rows)]
        records = condition_records(
            scores, (halves[0] + halves[1]) / 4000, RecordContext("m"), halves=[(halves[0] / 2000, halves[1] / 2000)]
        )
        smallest_one, floor = (select(records, metric=metric)[0].value for metric in ("h1", "h1.floor"))
        assert smallest_one > 0 and (smallest_one > floor) == holds


def test_another_vocabulary_and_a_single_position_are_refused(p):
    scores = Scores(np.ones((V + 1, 4)), np.zeros((0, 1, 2, 4)), np.zeros((0, 1, 2, 4)))
    with pytest.raises(ValueError, match="counted over 40 tokens, the model has 41"):
        condition_records(scores, p, RecordContext("m"))
    with pytest.raises(ValueError, match="compared in pairs; got 1"):
        condition_records(Scores(np.ones((V, 4)), scores.query, scores.key), p[:1], RecordContext("m"))
