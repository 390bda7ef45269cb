"""Attention against the equations of DSTG written out with loops, and the backends against each other."""

import math

import pytest
import torch
from encoder_models import build
from transformers.models.t5.modeling_t5 import T5Attention

from whatwhere.encoder.attention import eager, fused
from whatwhere.encoder.biases import t5_bucket
from whatwhere.encoder.model import Encoder

PRESETS = ["dstg", "dstg-full-mlm", "ap", "rp", "rope", "nope"]


def naive_dstg(attention, x_pos, x_sem, special, positions):
    """DSTG eq. 1 and 2 and the text around them, one scalar at a time; streams (n, d) of one example in, outputs out."""
    heads, d_head, n = attention.heads, attention.d_head, x_sem.shape[0]
    qk = heads * d_head
    projected = []
    for x, project in zip((x_pos, x_sem), attention.qkv, strict=True):
        w_q, w_k, w_v = project.weight.split([qk, qk, x.shape[1]])
        projected.append((x @ w_q.T, x @ w_k.T, x @ w_v.T))
    outputs = [[None] * heads for _ in range(2)]
    for h in range(heads):
        rows = []
        for i in range(n):
            logits = []
            for j in range(n):
                columns = slice(h * d_head, (h + 1) * d_head)
                logit = projected[1][0][i, columns] @ projected[1][1][j, columns] / math.sqrt(d_head)
                if not special[i] and not special[j]:
                    logit = logit + projected[0][0][i, columns] @ projected[0][1][j, columns] / math.sqrt(d_head)
                if special[i] and special[j]:
                    rho = attention.relative.special[0, h]
                elif special[i]:  # the query is special
                    rho = attention.relative.special[1, h]
                elif special[j]:  # the key is special
                    rho = attention.relative.special[2, h]
                else:
                    bucket = t5_bucket(positions[j] - positions[i], attention.relative.buckets, attention.relative.max_distance)
                    rho = attention.relative.table[bucket, h]
                logits.append(logit + rho)
            weights = torch.stack(logits).exp()
            rows.append(weights / weights.sum())
        attn = torch.stack(rows)
        for stream in range(2):
            width = attention.sizes[stream] // heads
            outputs[stream][h] = attn @ projected[stream][2][:, h * width : (h + 1) * width]
    return [torch.cat(outputs[s], dim=-1) @ attention.out[s].weight.T for s in range(2)]


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("gap", [False, True])
def test_dstg_attention_equals_the_equation_with_loops(backend, gap, ids):
    model = build("dstg")
    attention = model.encoder.layers[1].attention
    positions = torch.arange(ids.shape[1]).expand(ids.shape)
    if gap:  # positions that are no arange: distances are those of positions, not of places in the row
        positions = torch.tensor([[0, 2, 3, 9, 4, 5, 11, 7, 8], [3, 1, 2, 0, 8, 7, 5, 4, 6]])
    layout = model.encoder.layout(ids, None, positions, None)
    generator = torch.Generator().manual_seed(3)
    streams = tuple(torch.randn(*ids.shape, d, generator=generator, dtype=torch.float64, requires_grad=True) for d in (8, 16))
    weights = [torch.randn(*ids.shape, d, generator=generator, dtype=torch.float64) for d in (8, 16)]

    def gradients(outputs):
        loss = sum((w * y).sum() for w, y in zip(weights, outputs, strict=True))
        return torch.autograd.grad(loss, [*streams, *attention.parameters()])

    ours, _ = attention(streams, layout, backend)
    examples = [naive_dstg(attention, streams[0][b], streams[1][b], layout.special[b], positions[b]) for b in range(2)]
    theirs = [torch.stack([example[s] for example in examples]) for s in range(2)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for a, b in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("inputs", ["plain", "padded", "packed"])
def test_fused_equals_eager_with_gradients(name, inputs, ids):
    model = build(name)
    extra = {}
    if inputs == "padded":
        extra["attention_mask"] = torch.tensor([[1] * 9, [1] * 7 + [0] * 2])
    if inputs == "packed":
        extra["document_ids"] = torch.tensor([[0] * 5 + [1] * 4, [0] * 7 + [1] * 2])
    labels = torch.where(torch.arange(9) % 3 == 1, ids, -100)
    found = {}
    for backend in ("eager", "sdpa"):
        model.set_attn_implementation(backend)
        model.zero_grad()
        out = model(ids, labels=labels, return_all_logits=True, **extra)
        out.loss.backward()
        found[backend] = (out.logits.detach(), {k: p.grad for k, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(found["eager"][0], found["sdpa"][0], rtol=1e-11, atol=1e-11)
    assert found["eager"][1].keys() == found["sdpa"][1].keys()
    for key, gradient in found["eager"][1].items():
        torch.testing.assert_close(gradient, found["sdpa"][1][key], rtol=1e-9, atol=1e-11, msg=key)


@pytest.mark.parametrize("name", ["dstg", "rp"])
@pytest.mark.parametrize("seen", ["hole", "interleaved"])
def test_a_span_that_resumes_after_a_hole_keeps_its_distances(name, seen, ids):
    # Once, seams of mask and documents were taken as harmless, and distances in the row used in place of positions.
    model = build(name)
    hidden = torch.tensor([[0, 0, 0, 1, 1, 0, 0, 0, 0]]).expand(2, 9)  # tokens 3 and 4 are not seen by the others
    rest = ids[:, hidden[0] == 0]
    if seen == "hole":
        found = model(ids, attention_mask=1 - hidden).logits
    else:
        positions = torch.tensor([[0, 1, 2, 0, 1, 3, 4, 5, 6]]).expand(2, 9)
        found = model(ids, document_ids=hidden, position_ids=positions).logits
    torch.testing.assert_close(found[:, hidden[0] == 0], model(rest).logits, rtol=1e-11, atol=1e-11)


def test_special_tokens_get_no_absolute_score_and_their_own_rho(ids):
    model = build("dstg")
    terms = model.attention_terms(input_ids=ids)
    special = (ids == 2) | (ids == 3)
    either = special[:, :, None] | special[:, None, :]
    assert (terms["absolute"].transpose(1, 2)[:, :, either] == 0).all()
    assert (terms["absolute"].transpose(1, 2)[:, :, ~either] != 0).all()
    for layer in range(3):
        rho = model.encoder.layers[layer].attention.relative.special  # special_special, special_query, special_key
        relative = terms["relative"][layer]  # (b, h, query, key)
        assert torch.equal(relative[0, :, 0, 4], rho[0])  # [CLS] looks at [SEP]
        assert torch.equal(relative[0, :, 4, 2], rho[1])  # [SEP] looks at a word: the query is special
        assert torch.equal(relative[0, :, 2, 4], rho[2])  # a word looks at [SEP]: the key is special
        assert not torch.equal(rho[1], rho[2])


@pytest.mark.parametrize("name", PRESETS)
def test_terms_add_up_to_the_scores_of_the_fused_path(name, ids):
    model = build(name)
    mask = torch.tensor([[1] * 9, [1] * 7 + [0] * 2])
    terms = model.attention_terms(input_ids=ids, attention_mask=mask)
    expected = {"dstg": {"semantic", "absolute", "relative"}, "rp": {"semantic", "relative"}, "ap": {"mixed"}}
    assert set(terms) == expected.get(name.removesuffix("-full-mlm"), {"semantic"})
    scores = sum(terms.values())
    assert scores.shape == (3, 2, 2, 9, 9)
    attn = scores.masked_fill(mask[None, :, None, None, :] == 0, -math.inf).softmax(-1)
    model.set_attn_implementation("sdpa")
    found = model.encoder(ids, attention_mask=mask, output_attentions=True).attentions
    torch.testing.assert_close(torch.stack(found), attn, rtol=1e-12, atol=1e-14)


def test_fused_works_for_values_wider_and_narrower_than_queries():
    from whatwhere.encoder.attention import Product

    generator = torch.Generator().manual_seed(0)
    for width in (3, 4, 9):
        q, k, v = (torch.randn(2, 2, 6, d, generator=generator, dtype=torch.float64) for d in (4, 4, width))
        products = [Product("semantic", q, k)]
        torch.testing.assert_close(fused(products, [], v, 0.5, None, 0.0), eager(products, [], v, 0.5, None, 0.0)[0])


@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (8, 12), (64, 512)])
def test_t5_bucket_equals_transformers(buckets, furthest):
    distance = torch.arange(-700, 701)
    theirs = T5Attention._relative_position_bucket(distance, bidirectional=True, num_buckets=buckets, max_distance=furthest)
    assert torch.equal(t5_bucket(distance, buckets, furthest), theirs)


def test_t5_bucket_is_exact_nearby_and_constant_beyond_the_furthest():
    # DSTG A.1: 32 buckets, exact to 8 each way, one for everything beyond 128.
    near = t5_bucket(torch.arange(-8, 9))
    assert near.unique().numel() == 17
    assert t5_bucket(torch.tensor([128, 200, 5000])).unique().numel() == 1
    assert (t5_bucket(torch.tensor([-5])) != t5_bucket(torch.tensor([5]))).all()


def test_unknown_backend_is_an_error_that_names_what_works(ids):
    model = build("dstg")
    model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(ValueError, match="Working: eager, sdpa"):
        model(ids)


def test_layout_of_all_ones_mask_is_no_mask(ids):
    model: Encoder = build("rp").encoder
    assert model.layout(ids, torch.ones_like(ids), torch.arange(9).expand(2, 9), None).allowed is None
