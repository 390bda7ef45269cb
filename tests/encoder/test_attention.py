"""The attention functions: every backend against the specification, and what the layers share in one forward pass."""

import math

import pytest
import torch
from encoder_models import build, inputs, of_each_kind_first, real

from whatwhere.encoder.attention import (
    BACKENDS,
    Product,
    ProductForKeysAhead,
    attend_eagerly,
    attend_fused,
    term_scores,
)
from whatwhere.encoder.biases import Bias
from whatwhere.encoder.model import Encoder

N = 6


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


def biases(kind: str) -> tuple[list[Bias], list[torch.Tensor]]:
    """Biases of two examples, and the tensors they are made of."""
    special = torch.tensor([[1, 0, 2, 0, 0, 0], [0, 0, 0, 2, 0, 2]])
    toeplitz, shared, own, rho, other = tensors(
        (2, 2 * N - 1), (1, 2, N, N), (2, 2, N, N), (3, 3, 2), (3, 3, 2), seed=1
    )
    chosen = {
        "none": ([], []),
        "toeplitz": ([Bias("relative", toeplitz, None, special)], [toeplitz]),
        "toeplitz with values": ([Bias("relative", toeplitz, rho, special)], [toeplitz, rho]),
        "map": ([Bias("untied", shared, None, special)], [shared]),
        "map of each example with values": ([Bias("untied", own, rho, special)], [own, rho]),
        "map and toeplitz": (
            [Bias("untied", shared, rho, special), Bias("relative", toeplitz, other, special)],
            [shared, toeplitz, rho, other],
        ),
        "each example and toeplitz": (
            [Bias("untied", own, None, special), Bias("relative", toeplitz, rho, special)],
            [own, toeplitz, rho],
        ),
    }
    return chosen[kind]


BIASES = [
    "none",
    "toeplitz",
    "toeplitz with values",
    "map",
    "map of each example with values",
    "map and toeplitz",
    "each example and toeplitz",
]


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("seen", ["all", "padded", "packed"])
@pytest.mark.parametrize("width", [3, 4, 9])
def test_fused_equals_eager_with_all_gradients(bias, seen, width):
    """One product alone, two side by side and one of sums (DSTG eq. 2, SPLIT), values narrower and wider than
    queries."""
    allowed = None
    if seen == "padded":
        allowed = (torch.arange(N) < torch.tensor([[6], [4]]))[:, None, None]
    if seen == "packed":
        documents = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1]])
        allowed = (documents[:, :, None] == documents[:, None, :])[:, None]
    upper = torch.ones(N, N).triu(1).bool()[None, None]
    q, k, q_pos, k_pos, v, probe = tensors(*[(2, 2, N, 4)] * 4, (2, 2, N, width), (2, 2, N, width))
    for products in (
        [Product({"semantic": q}, {"semantic": k})],
        [Product({"absolute": q_pos}, {"absolute": k_pos}), Product({"semantic": q}, {"semantic": k})],
        [Product({"absolute": q_pos, "semantic": q}, {"absolute": k_pos, "semantic": k})],
        [
            Product(
                {"semantic": q}, {"semantic": k}, ProductForKeysAhead({"semantic": q_pos}, {"semantic": k_pos}, upper)
            )
        ],
    ):
        found = []
        for function in (
            lambda products, made, v, scale, *rest: attend_eagerly(term_scores(products, made, scale), v, *rest)[0],
            attend_fused,
        ):
            made, leaves = biases(bias)
            leaves = [q, k, v, *leaves, *([] if products[0].ahead is None else [q_pos, k_pos])]
            out = function(products, made, v, 0.5, allowed, 0.0)
            gradients = torch.autograd.grad((out * probe.detach()).sum(), leaves)
            with torch.no_grad():
                torch.testing.assert_close(function(products, made, v, 0.5, allowed, 0.0), out, rtol=1e-11, atol=1e-12)
            found.append((out, *gradients))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


def test_a_product_of_sums_has_four_terms():
    """A product of sums has the four terms of its pairs."""
    q, q_pos, k, k_pos = tensors(*[(1, 2, N, 4)] * 4)
    terms = Product({"absolute": q_pos, "semantic": q}, {"absolute": k_pos, "semantic": k}).terms(0.5)
    expected = {
        "semantic": (q, k),
        "absolute": (q_pos, k_pos),
        "semantic_to_absolute": (q, k_pos),
        "absolute_to_semantic": (q_pos, k),
    }
    assert set(terms) == set(expected)
    for name, (query, key) in expected.items():
        torch.testing.assert_close(terms[name], 0.5 * query @ key.transpose(-1, -2))
    whole = 0.5 * (q + q_pos) @ (k + k_pos).transpose(-1, -2)
    torch.testing.assert_close(sum(terms.values()), whole)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_softmax_runs_in_float32_at_least(dtype):
    # Scores of 30 and 30.1: bfloat16 cannot tell them apart after the sum with the bias.
    q = torch.zeros(1, 1, 2, 4, dtype=dtype)
    base = torch.tensor([[[[30.0, 30.1], [0.0, 0.0]]]])
    special = torch.zeros(1, 2, dtype=torch.long)
    v = torch.eye(2, dtype=dtype)[None, None]
    out = attend_eagerly(
        term_scores([Product({"a": q}, {"a": q})], [Bias("b", base, None, special)], 1.0), v, None, 0.0
    )[0]
    assert out.dtype == dtype
    torch.testing.assert_close(float(out[0, 0, 0, 1]), 1 / (1 + math.exp(-0.1)), rtol=0, atol=4e-3)


@of_each_kind_first
@pytest.mark.parametrize("kind", [pytest.param("shifted", marks=pytest.mark.whole), "both"])
def test_flex_attention_equals_eager_without_gradients_on_a_cpu(case, kind):
    model = build(case)
    given = inputs(kind)
    tokens = real(given)
    with torch.no_grad():
        model.set_attn_implementation("eager")
        expected = model.encoder(**given).last_hidden_state[tokens]
        model.set_attn_implementation("flex_attention")
        torch.testing.assert_close(model.encoder(**given).last_hidden_state[tokens], expected, rtol=1e-5, atol=1e-5)


def test_what_a_backend_cannot_do_is_one_clear_line(ids):
    model = build("dstg")
    model.set_attn_implementation("flex_attention")
    with pytest.raises(ValueError, match="no backward pass on a CPU.*sdpa or eager") as caught:
        model(ids)
    assert "\n" not in str(caught.value)
    assert BACKENDS == ("eager", "sdpa", "flex_attention")
    model.config._attn_implementation_internal = "flash_attention_2"
    with pytest.raises(ValueError, match="No attention backend 'flash_attention_2'.*eager, sdpa, flex_attention"):
        model(ids)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_are_returned_with_every_backend(backend, ids):
    model = build("tupe-r")
    model.set_attn_implementation(backend)
    with torch.no_grad():
        out = model.encoder(ids, output_attentions=True)
        torch.testing.assert_close(out.last_hidden_state, model.encoder(ids).last_hidden_state, rtol=1e-5, atol=1e-5)
    assert [tuple(a.shape) for a in out.attentions] == [(2, 2, 9, 9)] * 2
    torch.testing.assert_close(torch.stack(out.attentions).sum(-1), torch.ones(2, 2, 2, 9, dtype=torch.float64))


# What the layers share


@pytest.mark.parametrize("case", ["dstg", "rp", "alibi", "tupe-r", "tupe-free"])
@pytest.mark.parametrize("seen", ["hole", "interleaved"])
def test_a_span_keeps_distances_after_a_hole(case, seen, ids):
    """A span that resumes after a hole keeps its distances."""
    # Once, seams of mask and documents were taken as harmless, and distances in the row used in place of positions.
    model = build(case)
    hidden = torch.tensor([[0, 0, 0, 1, 1, 0, 0, 0, 0]]).expand(2, 9)  # tokens 3 and 4 are not seen by the others
    rest = ids[:, hidden[0] == 0]
    if seen == "hole":
        found = model(ids, attention_mask=1 - hidden).logits
    else:
        positions = torch.tensor([[0, 1, 2, 0, 1, 3, 4, 5, 6]]).expand(2, 9)
        found = model(ids, document_ids=hidden, position_ids=positions).logits
    torch.testing.assert_close(found[:, hidden[0] == 0], model(rest).logits, rtol=1e-11, atol=1e-11)


def test_special_tokens_get_no_absolute_score(ids):
    # DSTG eq. 2: 1[i ∉ S ∧ j ∉ S].
    terms = build("dstg").attention_terms(input_ids=ids)
    special = (ids == 2) | (ids == 3)
    either = special[:, :, None] | special[:, None, :]
    assert (terms["absolute"].transpose(1, 2)[:, :, either] == 0).all()
    assert (terms["absolute"].transpose(1, 2)[:, :, ~either] != 0).all()


@pytest.mark.parametrize("case", ["tupe-a", "tupe-r", "tupe-free", "rp", "alibi", "kerple-log"])
def test_what_is_equal_over_the_batch_exists_once(case, ids):
    # No (h, n, n) tensor for each example where the bias is the same for all.
    model = build(case)
    shared = model.encoder.attention_inputs(ids, None, None, None)
    made = list(shared.biases) or [
        layer.attention.relative(shared.distance_or_bucket, shared.token_kinds, shared.cls_kinds)
        for layer in model.encoder.layers
    ]
    assert made and all(b.base.ndim == 2 or b.base.shape[0] == 1 for b in made)
    if case in ("rp", "alibi", "kerple-log"):
        assert shared.distance_or_bucket.shape == (17,)


def test_a_mask_of_all_ones_is_no_mask(ids):
    model: Encoder = build("rp").encoder
    assert model.attention_inputs(ids, torch.ones_like(ids), torch.arange(9).expand(2, 9), None).allowed is None


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_inspecting_sees_and_changes_all_terms(backend):
    """Inspecting sees the terms of every block and can change them."""
    model = build("dstg", attn_implementation=backend).encoder
    given = inputs("both")
    whole = model.attention_terms(**given)
    before = model(**given).last_hidden_state
    seen = []

    def see(block, terms, allowed):
        seen.append((block, terms, allowed))

    with model.inspect_terms(see):
        torch.testing.assert_close(model(**given).last_hidden_state, before, rtol=0, atol=0)
    assert [block for block, _, _ in seen] == list(range(model.config.num_hidden_layers))
    for block, terms, allowed in seen:
        assert allowed.dtype == torch.bool
        for name, term in terms.items():
            torch.testing.assert_close(term, whole[name][block], rtol=0, atol=0)

    def double(block, terms, allowed):
        return {name: term + term for name, term in terms.items()} if block == 1 else None

    with model.inspect_terms(double):
        changed = model(**given).last_hidden_state
    doubled = build("dstg", attn_implementation=backend).encoder
    attention = doubled.layers[1].attention
    attention.scale *= 2
    with torch.no_grad():
        for parameter in attention.relative.parameters():
            parameter *= 2
    torch.testing.assert_close(changed, doubled(**given).last_hidden_state, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model(**given).last_hidden_state, before, rtol=0, atol=0)
