"""Terms of a word and a distance: against transformers' DeBERTa, and what each owes beside the loops of naive.py."""

import pytest
import torch
from encoder_models import build, config, inputs
from torch import nn
from transformers import DebertaV2Config
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

import whatwhere as ww
from whatwhere.encoder import PairInputs, PairTerms
from whatwhere.encoder.pair_terms import products_by_distance
from whatwhere.encoder.registry import PAIR_TERMS

NAMES = ["shaw", "deberta", "transformer-xl", "cope"]


def theirs(model, ours, vectors, kind, q, k):
    """The bias of transformers' DeBERTa with one of its two terms, from our weights."""
    settings = DebertaV2Config(
        hidden_size=24, num_attention_heads=2, max_position_embeddings=32, relative_attention=True, pos_att_type=[kind]
    )
    attention = DisentangledSelfAttention(settings).double().eval()
    projection, own = (attention.pos_key_proj, ours.key) if kind == "c2p" else (attention.pos_query_proj, ours.query)
    with torch.no_grad():
        projection.weight.copy_(own.weight)
        projection.bias.zero_()
    flat_q, flat_k = (x.flatten(0, 1) for x in (q, k))
    bias = attention.disentangled_attention_bias(flat_q, flat_k, None, vectors, 3)
    return bias.view(*q.shape[:3], -1)


def test_deberta_terms_equal_those_of_transformers():
    """Both terms of DeBERTa are transformers'; its code reads P at i - j in the second one, the paper at j - i."""
    model = build("deberta")
    ours = model.encoder.layers[0].attention.pair_terms
    generator = torch.Generator().manual_seed(3)
    q, k = (torch.randn(2, 2, 7, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    vectors = model.encoder.distance_vectors.table.detach()
    _, terms = ours(q, k, PairInputs(torch.arange(-6, 7), torch.arange(7)[None], None, vectors))
    expected = theirs(model, ours, vectors, "c2p", q, k)
    torch.testing.assert_close(terms["semantic_to_relative"], expected, rtol=1e-12, atol=1e-12)
    mirrored = vectors.roll(-1, 0).flip(0)  # row K + m holds what was in row K - m
    expected = theirs(model, ours, mirrored, "p2c", q, k)
    torch.testing.assert_close(terms["relative_to_semantic"], expected, rtol=1e-12, atol=1e-12)


def test_fire_divides_distances_by_the_place():
    """Up to L a distance has one value wherever it lies; beyond, one that falls with the place; any length is read."""
    model = build("fire")
    ours = model.encoder.layers[0].attention.pair_terms
    with torch.no_grad():
        ours.stretch.fill_(1.0)  # L = 4
        (_, terms), far = (
            ours(torch.zeros(1, 2, n, 12), torch.zeros(1, 2, n, 12), PairInputs(torch.arange(1 - n, n), places[None]))
            for n, places in ((40, torch.arange(40)), (5, torch.arange(100, 105)))
        )
    values = terms["relative"][0]
    torch.testing.assert_close(values[:, 0, 1], values[:, 3, 4])
    assert not torch.isclose(values[:, 3, 4], values[:, 4, 5]).any()
    torch.testing.assert_close(values, values.transpose(-1, -2))
    assert not torch.isclose(far[1]["relative"][0, :, 0, 1], values[:, 0, 1]).any()


def test_dape_adds_to_kerple_what_its_network_says():
    """A network of zeros leaves the bias of KERPLE alone."""
    model = build("dape")
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.attention.pair_terms.network.outer.zero_()
            layer.attention.pair_terms.network.outer_offset.zero_()
    plain = build("kerple-log")
    weights = {name.replace(".pair_terms.bias.", ".relative.function."): x for name, x in model.state_dict().items()}
    plain.load_state_dict({name: x for name, x in weights.items() if ".pair_terms." not in name})
    given = inputs("plain")
    torch.testing.assert_close(model(**given).logits, plain(**given).logits, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_products_by_distance_are_those_of_each_pair(n):
    """Distances as one row and as a map of pairs give the product of each pair, also of a single token."""
    generator = torch.Generator().manual_seed(n)
    table = torch.randn(2, 2 * n - 1, 5, generator=generator, dtype=torch.float64)
    x = torch.randn(3, 2, n, 5, generator=generator, dtype=torch.float64)
    places = torch.arange(n)
    pairs = places - places[:, None]
    expected = torch.einsum("bhid,hijd->bhij", x, table[:, pairs + n - 1])
    for distance in (torch.arange(1 - n, n), pairs.expand(3, n, n)):
        found = products_by_distance(x, lambda m: table[:, m + n - 1], distance)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_longer_texts_than_trained_are_read(name):
    """No table ends: a text of twice the trained length is read, and its tokens far away still count."""
    model = build(name)
    ids = torch.arange(64)[None] % 30 + 5
    here = model.encoder(ids).last_hidden_state
    ids[0, -1] += 1
    assert (model.encoder(ids).last_hidden_state[0, 0] - here[0, 0]).abs().max() > 1e-9


def test_cope_counts_no_padding():
    """Gates of padding and of other documents count nothing: a text alone has the states that it has beside them."""
    model = build("cope")
    ids = inputs("plain")["input_ids"][:1]
    alone = model.encoder(ids).last_hidden_state
    padded = torch.cat([torch.full((1, 4), 6), ids, torch.full((1, 3), 8)], dim=1)
    mask = torch.tensor([[0] * 4 + [1] * 7 + [0] * 3])
    beside = model.encoder(padded, attention_mask=mask).last_hidden_state[:, 4:11]
    torch.testing.assert_close(beside, alone, rtol=1e-10, atol=1e-11)
    documents = torch.tensor([[0] * 4 + [1] * 7 + [2] * 3])
    packed = model.encoder(padded, document_ids=documents).last_hidden_state[:, 4:11]
    torch.testing.assert_close(packed, alone, rtol=1e-10, atol=1e-11)


def test_cope_counts_sums_that_rounding_makes_fall(monkeypatch):
    """Sums of gates made in parallel, as on an accelerator, can fall by rounding: they counted to place -1."""
    model = build("cope").encoder
    ids = torch.tensor([[2, 10, 11, 12, 3, 0, 0]])
    mask = (ids > 0).long()
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).last_hidden_state
        whole = torch.Tensor.cumsum

        def falling(values, dim):
            sums = whole(values, dim)
            return sums * (1 - 1e-7 * torch.arange(sums.shape[-1])) if sums.is_floating_point() else sums

        monkeypatch.setattr(torch.Tensor, "cumsum", falling)
        found = model(ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(found[:, :5], expected[:, :5], rtol=1e-5, atol=1e-5)


def test_cope_counts_hundreds_of_gates_in_bfloat16():
    """Under autocast the sums of gates were in bfloat16: a whole token off at 512 tokens."""
    n = 512
    model = ww.Encoder(ww.preset("cope", "tiny", vocab_size=50, max_position_embeddings=n))
    ours = model.layers[0].attention.pair_terms
    with torch.no_grad():
        ours.before[:, 0] = torch.arange(n)  # the term is the count
    q = torch.zeros(1, 1, n, ours.before.shape[1])
    q[..., 0] = 1
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        _, terms = ours(q, torch.zeros_like(q), PairInputs(torch.arange(1 - n, n), torch.arange(n)[None]))
    back = torch.arange(n)[:, None] - torch.arange(n)
    expected = torch.where(back >= 0, (back + 1) / 2, 0.0)  # each gate is a half
    torch.testing.assert_close(terms["semantic_to_relative"][0, 0].tril(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pair_terms": "deberts"}, "pair_terms must be one of none, shaw, deberta, xl, cope"),
        ({"pair_terms": "shaw", "relative": "t5"}, "set relative=none; got t5"),
        ({"pair_terms": "cope", "rotation": "rope"}, "set rotation=none; got rope"),
        ({"pair_terms": "xl", "absolute": "learned"}, "set absolute=none, or position_size"),
        ({"pair_terms": "shaw", "relative_max_distance": 0}, "relative_max_distance must be at least 1"),
    ],
)
def test_misfitting_pair_terms_are_refused(fields, message):
    with pytest.raises(ValueError, match="pair_terms|relative_max_distance") as caught:
        config("nope", **fields)
    assert message in str(caught.value)


def test_an_own_class_of_pair_terms_works():
    """A class that a user registers gives a term of its own name, and its weights are drawn and trained."""

    @ww.register_pair_terms("tilt")
    class Tilt(PairTerms):
        def __init__(self, config):
            super().__init__(config)
            self.weight = nn.Parameter(torch.ones(config.d_head))

        def forward(self, q, k, pairs):
            return q, {
                "semantic_to_relative": products_by_distance(q, lambda m: self.weight * m[:, None], pairs.distance)
            }

    try:
        model = build("nope", pair_terms="tilt")
        given = inputs("plain")
        assert set(model.attention_terms(**given)) == {"semantic", "semantic_to_relative"}
        model.encoder(**given).last_hidden_state.square().sum().backward()
        assert model.encoder.layers[0].attention.pair_terms.weight.grad.abs().min() > 0
    finally:
        del PAIR_TERMS["tilt"]
