"""Biases of the distance against transformers' own and their papers, and biases of one's own."""

import naive
import pytest
import torch
from encoder_models import CLS, SEP, build, config, inputs
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention

import whatwhere as ww
from whatwhere.encoder.biases import Bias, T5Bias, t5_bucket
from whatwhere.encoder.distance_biases import alibi_slopes


@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 12), (64, 512)])
def test_t5_bucket_equals_transformers(buckets, furthest):
    distance = torch.arange(-700, 701)
    theirs = T5Attention._relative_position_bucket(
        distance, bidirectional=True, num_buckets=buckets, max_distance=furthest
    )
    assert torch.equal(t5_bucket(distance, buckets, furthest), theirs)


def test_t5_buckets_are_exact_nearby_and_end_constant():
    """T5 bucket is exact nearby and constant beyond the furthest."""
    # DSTG A.1: 32 buckets, exact to 8 each way, one for everything beyond 128.
    near = t5_bucket(torch.arange(-8, 9))
    assert near.unique().numel() == 17
    assert t5_bucket(torch.tensor([128, 200, 5000])).unique().numel() == 1
    assert (t5_bucket(torch.tensor([-5])) != t5_bucket(torch.tensor([5]))).all()


@pytest.mark.parametrize("heads", range(1, 21))
def test_alibi_slopes_equal_transformers_for_any_number_of_heads(heads):
    ours = torch.tensor(alibi_slopes(heads))
    bloom = build_alibi_tensor(torch.ones(1, 5), heads, torch.float32)[:, 0]  # slope · key position
    mpt = build_mpt_alibi_tensor(heads, 5)[:, 0]  # slope · (key position - 4)
    torch.testing.assert_close(ours[:, None] * torch.arange(5), bloom, rtol=1e-6, atol=0)
    torch.testing.assert_close(ours[:, None] * torch.arange(-4, 1), mpt, rtol=1e-6, atol=0)
    assert alibi_slopes(heads) == naive.alibi_slopes(heads)


def test_alibi_slopes_equal_the_papers():
    # Press et al. 2022: 8 heads 1/2, 1/4 ... 1/256; 16 heads start at 2^-0.5.
    assert alibi_slopes(8) == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(16)[:2] == [2.0**-0.5, 2.0**-1]
    assert alibi_slopes(12)[8:] == [2.0 ** -(0.5 + k) for k in range(4)]


@pytest.mark.parametrize("slopes", [None, [3.0, 0.25]])
@pytest.mark.parametrize("kind", ["plain", "shifted"])
def test_alibi_falls_with_distance_in_both_directions(slopes, kind):
    """ALiBi falls with the distance of positions in both directions."""
    model = build("alibi", alibi_slopes=slopes)
    given = inputs(kind)
    positions = given.get("position_ids", torch.arange(7).expand(2, 7))
    found = model.attention_terms(**given)["relative"].expand(2, 2, 2, 7, 7)
    m = torch.tensor(slopes or [2.0**-4, 2.0**-8], dtype=torch.float64)
    distance = (positions[:, :, None] - positions[:, None, :]).abs()
    assert torch.equal(found, (-m[:, None, None] * distance[:, None]).expand(2, 2, 2, 7, 7))


def test_alibi_of_a_bfloat16_model_tells_long_distances_apart():
    # Biases run in float32 at least. In bfloat16 the distances 256 and 257 are the same number.
    model = build("alibi").encoder.bfloat16()
    positions = torch.tensor([[0, 256, 257, 511]])
    relative = (
        model.attention_terms(torch.full((1, 4), 7), position_ids=positions)["relative"].float().expand(2, 1, 2, 4, 4)
    )
    torch.testing.assert_close(relative[0, 0, 0, 0], -torch.tensor([0.0, 256, 257, 511]) / 16, rtol=0, atol=0)


def test_clipped_bias_has_values_up_to_its_end():
    """Clipped bias has a value for each distance up to the end."""
    # TUPE footnote 2: clip(j - i, -t, t).
    model = build("tupe-a-tie-cls", relative="clipped", relative_max_distance=3, relative_shared=True)
    table = model.encoder.relative.function.table
    assert table.shape == (7, 2)
    found = model.attention_terms(**inputs("plain"))["relative"].expand(2, 2, 2, 7, 7)[0, 0]
    for i in range(7):
        for j in range(7):
            assert torch.equal(found[:, i, j], table[max(-3, min(3, j - i)) + 3])


@pytest.mark.parametrize("relative", ["clipped", "product"])
def test_biases_without_buckets_reach_as_short_as_wanted(relative):
    """TUPE's clipped bias at 8 tokens was refused by T5's rule on its buckets, of which this bias has none."""
    assert ww.preset("rp", "tiny", relative=relative, relative_max_distance=1).relative_max_distance == 1
    with pytest.raises(ValueError, match="relative_max_distance must be at least 1; got 0"):
        ww.preset("rp", "tiny", relative=relative, relative_max_distance=0)
    with pytest.raises(ValueError, match="relative_max_distance must exceed relative_buckets/4 = 8; got 8"):
        ww.preset("rp", "tiny", relative_max_distance=8)


@pytest.mark.parametrize(
    ("name", "own"), [("rp", True), ("dstg", True), ("bert-r", False), ("tupe-r", False), ("tupe-product", False)]
)
def test_tables_belong_to_a_layer_or_to_all(name, own):
    # T5 tables per layer and head in the DSTG family, one for all layers in TUPE's (TUPE 2.2).
    model = build(name)
    assert (model.encoder.relative is None) is own
    assert all((layer.attention.relative is not None) is own for layer in model.encoder.layers)
    terms = model.attention_terms(**inputs("plain"))["relative"]
    assert torch.equal(terms[0], terms[1]) is not own


def test_buckets_are_computed_once_for_all_layers(monkeypatch, ids):
    """Buckets are found once for all layers and maps of pairs are in order."""
    # Each layer found them anew, a sixth of the operations of a short text; and the map took the order of a transposed
    # table, so that it was copied once more.
    asked = []
    buckets = T5Bias.buckets
    monkeypatch.setattr(T5Bias, "buckets", staticmethod(lambda *given: asked.append(given) or buckets(*given)))
    model = build("rp").encoder
    shared = model.attention_inputs(ids, None, None, None)
    bias = model.layers[1].attention.relative(shared.distance_or_bucket, shared.token_kinds, shared.cls_kinds)
    assert len(asked) == 1 and bias.base.is_contiguous() and bias.base.unfold(-1, 9, 1).flip(-2).is_contiguous()


@pytest.mark.parametrize("shared", [True, False])
def test_rp_shared_over_layers_is_a_switch(shared):
    terms = build("rp", relative_shared=shared).attention_terms(**inputs("plain"))["relative"]
    assert torch.equal(terms[0], terms[1]) is shared


def test_special_values_replace_the_distance_by_who_is_special(ids):
    # DSTG eq. 1: i is the query, j the key.
    model = build("dstg")
    terms = model.attention_terms(input_ids=ids)
    for layer in range(2):
        rho = model.encoder.layers[layer].attention.relative.special  # special_special, special_query, special_key
        relative = terms["relative"][layer]  # (b, h, query, key)
        assert torch.equal(relative[0, :, 0, 4], rho[0])  # [CLS] looks at [SEP]
        assert torch.equal(relative[0, :, 4, 2], rho[1])  # [SEP] looks at a word: the query is special
        assert torch.equal(relative[0, :, 2, 4], rho[2])  # a word looks at [SEP]: the key is special
        assert not torch.equal(rho[1], rho[2])


def test_each_special_token_has_query_and_key_values(ids):
    """Each special token has a value as query and one as key which wins."""
    # The code of DSTG's authors: rows of [CLS] and [SEP], columns of both written over them.
    model = build("dstg", relative_special="each")
    terms = model.attention_terms(input_ids=ids)["relative"]
    distance = torch.arange(9)[None, :] - torch.arange(9)[:, None]
    for layer, relative in enumerate(terms):
        bias = model.encoder.layers[layer].attention.relative
        rows, columns = bias.special.split(2)
        expected = bias.function.table[t5_bucket(distance, 8, 12)].permute(2, 0, 1).repeat(len(ids), 1, 1, 1)
        for b, row in enumerate(ids.tolist()):
            for special, value in zip((CLS, SEP), rows, strict=True):
                for i in [i for i, token in enumerate(row) if token == special]:
                    expected[b, :, i] = value[:, None]
            for special, value in zip((CLS, SEP), columns, strict=True):
                for j in [j for j, token in enumerate(row) if token == special]:
                    expected[b, :, :, j] = value[:, None]
        assert torch.equal(relative, expected) and len(set(torch.cat([rows, columns]).flatten().tolist())) == 8


def test_special_values_start_as_documented():
    """Special values start at zero and those of each token at a twentieth."""
    for kind, shape, start in (("shared", (3, 2), 0.0), ("each", (4, 2), 0.05)):
        special = ww.Encoder(config("rp", relative_special=kind)).layers[1].attention.relative.special
        assert special.shape == shape and bool((special == torch.tensor(start)).all())


def test_toeplitz_bias_is_the_same_map_as_its_distances():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2, 9, generator=generator)
    special = torch.tensor([[1, 0, 0, 2, 0], [0] * 5])
    short = Bias("relative", values, None, special)
    distance = torch.arange(5)[None, :] - torch.arange(5)[:, None]
    assert torch.equal(short.to_dense(), values[:, distance + 4][None])
    rho = torch.randn(3, 3, 2, generator=generator)
    for base in (values, values[:, distance + 4][None]):
        dense = Bias("relative", base, rho, special).to_dense()
        assert dense.shape == (2, 2, 5, 5)
        assert (
            torch.equal(dense[0, :, 0, 3], rho[1, 2])
            and torch.equal(dense[0, :, 3, 1], rho[2, 0])
            and torch.equal(dense[0, :, 1, 3], rho[0, 2])
        )
        assert torch.equal(dense[1], values[:, distance + 4])
