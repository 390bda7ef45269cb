"""Every scheme on both blocks against its equations written out with loops (naive.py), and what each scheme owes
besides."""

import collections
import functools
import itertools
import math

import naive
import pytest
import torch
from encoder_models import BLOCKS, CASES, CLS, KINDS, VOCAB, build, everywhere, inputs, of_each_kind_first, real
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

model_of = functools.cache(lambda case, block: build(case, block=block))  # for tests that leave the weights alone
FORMULAS = ("kerple-log", "kerple-power", "tisa", "sandwich")  # biases by a formula of the distance
RELATIVE_ONLY = {
    "rp",
    "rp/each",
    "rope",
    "rope-partial",
    "xpos",
    "alibi",
    *FORMULAS,
    "shaw",
    "deberta",
    "transformer-xl",
    "cope",
    "dape",
}  # schemes that know distances and no absolute positions
WITHOUT_POSITIONS = {"nope"}
BY_ROW = {"conv", "bipe", "bipe/alibi"}  # know what stands in the row, and no positions
few = settings(max_examples=3, derandomize=True)

# `semantic` is `mixed` where positions are added to the words; four terms where words and positions cross.
CROSSED = {"semantic", "semantic_to_absolute", "absolute_to_semantic", "absolute"}
TERMS = {
    **dict.fromkeys(("nope", "conv", "rope", "rope-partial", "xpos"), {"semantic"}),
    **dict.fromkeys(("shaw", "cope"), {"semantic", "semantic_to_relative"}),
    "deberta": {"semantic", "semantic_to_relative", "relative_to_semantic"},
    "dstg/deberta": {"semantic", "absolute", "semantic_to_relative", "relative_to_semantic"},
    "transformer-xl": {"semantic", "semantic_to_relative", "relative"},
    "dape": {"semantic", "semantic_to_relative", "relative"},
    **dict.fromkeys(("rp", "rp/each", "alibi", "fire", *FORMULAS), {"semantic", "relative"}),
    **dict.fromkeys(("ap", "sinusoidal", "low-rank", "fourier", "bert-a", "bipe"), {"mixed"}),
    **dict.fromkeys(("bert-r", "bert-r/reset", "bipe/alibi"), {"mixed", "relative"}),
    **dict.fromkeys(
        ("dstg", "dstg-waves-frozen", "dstg/each", "dstg/own-width", "dstg/product", "tupe-free/each"),
        {"semantic", "absolute", "relative"},
    ),
    **dict.fromkeys(("bert-ad", "split", "split/per-head"), CROSSED),
    **dict.fromkeys(("split/t5", "bert-ad/rope"), CROSSED | {"relative"}),
    **dict.fromkeys(
        ("tupe-a", "tupe-a/own-width", "tupe-a-tie-cls", "tupe-free", "split/separate"), {"semantic", "absolute"}
    ),
    **dict.fromkeys(
        ("tupe-r", "tupe-r/each", "tupe-r/clipped", "tupe-r/layers", "tupe-product"),
        {"semantic", "absolute", "relative"},
    ),
}


def written_out(model, given):
    """The naive encoder on each row: hidden states, final states, terms; differentiable in the model's own
    parameters."""
    ids = given["input_ids"]
    c = model.config
    mask, documents, positions = (given.get(key) for key in ("attention_mask", "document_ids", "position_ids"))
    weights = dict(model.encoder.named_parameters())
    rows = []
    for b, row in enumerate(ids.tolist()):
        seen = None if mask is None else mask[b].tolist()
        if positions is not None:
            places = positions[b].tolist()
        else:  # the place among the tokens that are no padding
            places = (
                list(range(len(row))) if seen is None else [max(sum(seen[: i + 1]) - 1, 0) for i in range(len(row))]
            )
        visible = naive.visible_keys(len(row), seen, None if documents is None else documents[b].tolist())
        rows.append(naive.encode(weights, c, row, places, visible))
    hidden = [torch.stack([row[0][l] for row in rows]) for l in range(c.num_hidden_layers + 1)]
    final = torch.stack([row[1] for row in rows])
    terms = {
        name: torch.stack([torch.stack([row[2][l][name] for row in rows]) for l in range(c.num_hidden_layers)])
        for name in rows[0][2][0]
    }
    return hidden, final, terms


# Moved on one block, packed with padding on both; the rest, which those hold already, at leisure.
QUICK = {("neobert", "shifted"), ("neobert", "both"), ("bert", "both")}
# Of formulas, which differ from ALiBi in b(j - i) alone, of networks, whose loops take long, and of variants.
QUICKER = {("neobert", "shifted"), ("bert", "both")}


@pytest.mark.parametrize("leisure", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_encoder_equals_the_equations_with_loops(case, leisure):
    kinds = ("plain", "shifted", "both") if "/" in case else KINDS  # every preset on every input
    quick = QUICKER if case in (*FORMULAS, "fire", "dape") or "/" in case else QUICK
    for block, kind in itertools.product(BLOCKS, kinds):
        if ((block, kind) not in quick) == leisure:
            check_equations(case, block, kind)


def check_equations(case, block, kind):
    """States, gradients and terms of both backends are those of the loops."""
    model = build(case, block=block)
    given = inputs(kind)
    encoder = model.encoder
    tokens = real(given)
    hidden, final, terms = written_out(model, given)
    generator = torch.Generator().manual_seed(5)
    probe = torch.randn(final.shape, generator=generator, dtype=torch.float64) * tokens[..., None]
    named = dict(encoder.named_parameters())

    def gradients(last):
        found = torch.autograd.grad((last * probe).sum(), list(named.values()), allow_unused=True, retain_graph=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(named.values(), found, strict=True)]

    expected = gradients(final)
    for backend in ("eager", "sdpa"):
        model.set_attn_implementation(backend)
        out = encoder(**given, output_block_states=True)
        for ours, theirs in zip(out.block_states, hidden, strict=True):
            torch.testing.assert_close(ours[tokens], theirs[tokens], rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(out.last_hidden_state[tokens], final[tokens], rtol=1e-10, atol=1e-11)
        for name, ours, theirs in zip(named, gradients(out.last_hidden_state), expected, strict=True):
            torch.testing.assert_close(
                ours, theirs, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
            )
        with torch.no_grad():  # another kernel than with gradients
            torch.testing.assert_close(
                encoder(**given).last_hidden_state[tokens], final[tokens], rtol=1e-10, atol=1e-11
            )
    found = model.attention_terms(**given)
    assert set(found) == set(terms) == TERMS[case]
    pairs = (tokens[:, :, None] & tokens[:, None, :])[:, None]
    if "document_ids" in given:  # what would stand between documents that do not see each other is nobody's business
        pairs = pairs & (given["document_ids"][:, :, None] == given["document_ids"][:, None, :])[:, None]
    for name, theirs in terms.items():
        assert found[name].ndim == 5 and found[name].shape[2:] == theirs.shape[2:]
        torch.testing.assert_close((found[name] * pairs), (theirs * pairs).detach(), rtol=1e-10, atol=1e-11, msg=name)


@pytest.mark.parametrize(
    ("name", "fields"), [("cape", {}), ("cape", {"absolute": "fourier"}), ("shape", {"table_width": 6})]
)
def test_real_positions_enter_by_the_formula(name, fields):
    """Real positions, negative ones and those beyond the table too, enter by the formula; whole ones are its rows."""
    model = build(name, table_scale=0.5, **fields)
    given = inputs("plain")
    places = 60 * torch.rand(2, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 5
    assert places.min() < 0 and places.max() > 32
    _, final, _ = written_out(model, given | {"position_ids": places})
    found = model.encoder(**given, position_ids=places).last_hidden_state
    torch.testing.assert_close(found, final, rtol=1e-10, atol=1e-11)
    whole = model(**given, position_ids=torch.arange(7.0)).logits
    torch.testing.assert_close(whole, model(**given).logits, rtol=1e-12, atol=1e-12)
    for other in ("ap", "rp", "kerple-log", "shaw"):  # the last two ended in an IndexError
        with pytest.raises(ValueError, match="position_ids are real numbers.*Give whole numbers"):
            model_of(other, "neobert")(**given, position_ids=places)


@everywhere
def test_every_weight_is_used(case, block):
    # A parameter that no gradient reaches is a term that the scheme does not have.
    model = build(case, block=block)
    given = inputs("plain")
    given["input_ids"][:, 3] = CLS  # pairs of [CLS] with themselves and others exist
    out = model.encoder(**given).last_hidden_state
    probe = torch.randn(out.shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    (out * probe).sum().backward()
    unused = [name for name, p in model.encoder.named_parameters() if p.grad is None or not bool(p.grad.any())]
    assert unused == []


@everywhere
def test_terms_sum_to_the_fused_scores(case, block):
    """Terms add up to the scores of the fused path."""
    model = model_of(case, block)
    given = inputs("padded")
    mask = given["attention_mask"]
    terms = model.attention_terms(**given)
    scores = sum(terms.values())
    assert scores.shape == (2, 2, 2, 7, 7)
    attn = scores.masked_fill(mask[None, :, None, None, :] == 0, -math.inf).softmax(-1)
    model.set_attn_implementation("sdpa")
    found = torch.stack(model.encoder(**given, output_attentions=True).attentions)
    queries = mask[:, None, :].bool().expand(2, 2, 7)
    torch.testing.assert_close(found[:, queries], attn[:, queries], rtol=1e-11, atol=1e-13)


@everywhere
def test_double_model_is_float64_throughout(case, block):
    model = model_of(case, block)
    out = model(**inputs("plain"), output_hidden_states=True, output_attentions=True)
    tensors = (out.logits, *out.hidden_states, *out.attentions, *model.attention_terms(**inputs("plain")).values())
    assert {t.dtype for t in tensors} == {torch.float64}


@everywhere
def test_one_token_and_padding_rows_give_finite_states(case, block):
    """One token and a row of padding give finite states."""
    model = model_of(case, block)
    with torch.no_grad():
        assert model(torch.tensor([[7]])).logits.isfinite().all()
    mask = torch.tensor([[1] * 7, [0] * 7])
    out = model(**inputs("plain"), attention_mask=mask)
    assert out.logits.isfinite().all()
    found = torch.autograd.grad(out.logits.square().sum(), list(model.encoder.parameters()), allow_unused=True)
    assert all(g is None or bool(g.isfinite().all()) for g in found)
    with torch.no_grad():  # and nothing of the empty row reaches the other
        torch.testing.assert_close(
            out.logits[:1], model(inputs("plain")["input_ids"][:1]).logits, rtol=1e-10, atol=1e-11
        )


@pytest.mark.parametrize("block", ["neobert", pytest.param("bert", marks=pytest.mark.whole)])
@of_each_kind_first
def test_bfloat16_is_close_to_float64(case, block):
    # As weights, and under autocast as a training uses it.
    exact = model_of(case, block).encoder
    given = inputs("both")
    tokens = real(given)
    expected = exact(**given).last_hidden_state[tokens].float()
    whole = build(case, block=block).encoder.bfloat16()
    mixed = build(case, block=block).encoder.float()
    for model, context in (
        (whole, torch.no_grad()),
        (whole, torch.enable_grad()),
        (mixed, torch.autocast("cpu", torch.bfloat16)),
    ):
        with context:
            found = model(**given).last_hidden_state
        if found.requires_grad:
            found.float().square().sum().backward()
            assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
            model.zero_grad()
        gap = (found[tokens].float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert gap < 0.1, gap


# Invariances


@everywhere
@given(left=st.integers(0, 3), right=st.integers(0, 3))
@few
def test_padding_on_either_side_changes_nothing(case, block, left, right):
    model = model_of(case, block)
    ids = inputs("plain")["input_ids"]
    mask = F.pad(torch.ones_like(ids), (left, right))
    with torch.no_grad():
        found = model(F.pad(ids, (left, right)), attention_mask=mask).logits[:, left : left + 7]
        torch.testing.assert_close(found, model(ids).logits, rtol=1e-10, atol=1e-11)


@everywhere
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4), start=st.integers(0, 5), seed=st.integers(0, 99))
@few
def test_packed_documents_equal_separate_rows(case, block, lengths, start, seed):
    model = model_of(case, block)
    ids = torch.randint(2, VOCAB, (1, sum(lengths)), generator=torch.Generator().manual_seed(seed))
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    places = [torch.arange(length) + (start if d == 1 else 0) for d, length in enumerate(lengths)]
    with torch.no_grad():
        packed = model(ids, document_ids=documents, position_ids=torch.cat(places)[None]).logits
        rows = [
            model(part, position_ids=p[None]).logits for part, p in zip(ids.split(lengths, dim=1), places, strict=True)
        ]
    torch.testing.assert_close(packed, torch.cat(rows, dim=1), rtol=1e-10, atol=1e-11)


@everywhere
@given(order=st.permutations(range(7)))
@few
def test_tokens_with_their_positions_may_stand_in_any_order(case, block, order):
    # Positions are an input: a row and its positions permuted together give the same states, whatever the scheme reads.
    if case in BY_ROW:
        return
    model = model_of(case, block)
    given = inputs("shifted")
    with torch.no_grad():
        found = model(**{key: value[:, order] for key, value in given.items()}).logits
        torch.testing.assert_close(found, model(**given).logits[:, order], rtol=1e-10, atol=1e-11)


@everywhere
def test_only_an_encoder_without_positions_is_equivariant_under_permutations(case, block):
    # GEOM theorem 1.
    model = model_of(case, block)
    ids = inputs("plain")["input_ids"]
    order = torch.tensor([4, 0, 6, 2, 5, 1, 3])
    with torch.no_grad():
        gap = (model(ids[:, order]).logits - model(ids).logits[:, order]).abs().max()
    assert gap < 1e-11 if case in WITHOUT_POSITIONS else gap > 1e-3


@everywhere
@given(shift=st.integers(1, 25))
@few
def test_shifting_all_positions_changes_only_schemes_with_absolute_positions(case, block, shift):
    model = model_of(case, block)
    ids = inputs("plain")["input_ids"]
    positions = torch.arange(7).expand(2, 7)
    with torch.no_grad():
        gap = (
            (model(ids, position_ids=positions).logits - model(ids, position_ids=positions + shift).logits).abs().max()
        )
    assert gap < 1e-10 if case in RELATIVE_ONLY | WITHOUT_POSITIONS | BY_ROW else gap > 1e-5


# TUPE

TUPE = ["tupe-a", "tupe-r", "tupe-r/each", "tupe-a-tie-cls", "tupe-free", "tupe-product", "bert-ad"]
both_blocks = pytest.mark.parametrize("block", BLOCKS)


@pytest.mark.parametrize("case", TUPE)
@both_blocks
def test_the_positional_term_is_computed_once_per_forward(case, block):
    """The positional term is computed once per forward and its weights are shared."""
    # TUPE 3.3: U is shared by all layers, the correlation computed in the first and reused.
    counts = []
    for layers in (1, 4):
        model = build(case, block=block, num_hidden_layers=layers)
        calls = []
        for name, module in model.encoder.named_modules():
            if name.startswith(("untied", "position_embeddings", "relative")):
                module.register_forward_hook(lambda *_, name=name, calls=calls: calls.append(name))
        for backend in ("eager", "sdpa"):
            model.set_attn_implementation(backend)
            model.encoder(**inputs("plain"))
        model.attention_terms(**inputs("plain"))
        counts.append(collections.Counter(calls))
    assert counts[0] == counts[1] and counts[0]
    if case != "tupe-free":
        projections = 2 if model.config.reset != "none" else 1  # of p, and of p_θ1 and p_θ2 together
        assert counts[0]["untied.query"] == counts[0]["untied.key"] == 3 * projections
        assert counts[0]["position_embeddings"] == 3
    own = [
        name
        for name, _ in model.encoder.named_parameters()
        if name.startswith("layers.") and ("relative" in name or "untied" in name)
    ]
    assert own == []


@both_blocks
def test_word_free_terms_are_equal_in_all_layers(block):
    """Terms that do not depend on the words are equal in all layers and examples."""
    model = model_of("tupe-r", block)
    terms = model.attention_terms(**inputs("plain"))
    for name in ("absolute", "relative"):
        whole = terms[name].expand(2, 2, 2, 7, 7)
        assert torch.equal(whole[0], whole[1])
        assert torch.equal(whole[:, 0], whole[:, 1])  # [CLS] stands first in both rows
    assert not torch.allclose(terms["semantic"][0], terms["semantic"][1])


@pytest.mark.parametrize("case", [case for case in TUPE if case != "tupe-free"])
@both_blocks
def test_scaling_the_table_of_tupe_changes_nothing(case, block):
    # TUPE 3.3: layer normalisation on p wherever it is used.
    model = build(case, block=block, norm_eps=1e-30)
    before = model(**inputs("shifted")).logits
    with torch.no_grad():
        model.encoder.position_embeddings.table.weight.mul_(3.0)
    torch.testing.assert_close(model(**inputs("shifted")).logits, before, rtol=1e-9, atol=1e-10)


@both_blocks
def test_theta_replaces_the_cls_row_and_column(block):
    """TUPE eq. 9 and 11: nothing of b_{j-i} remains at [CLS], wherever it stands; θ1 from [CLS], θ2 to it."""
    model = build("tupe-r", block=block)
    given = inputs("shifted")
    terms = model.attention_terms(**given)
    position = (terms["absolute"] + terms["relative"]).expand(2, 2, 2, 7, 7)[0]  # (b, h, i, j)
    weights = dict(model.encoder.named_parameters())
    _, theta = _theta(weights, model.config)
    cls = given["input_ids"] == CLS
    assert cls.sum(1).tolist() == [1, 2]
    for b, i, j in torch.cartesian_prod(torch.arange(2), torch.arange(7), torch.arange(7)).tolist():
        if cls[b, i]:
            torch.testing.assert_close(position[b, :, i, j], theta[0])
        elif cls[b, j]:
            torch.testing.assert_close(position[b, :, i, j], theta[1])
        else:
            assert (position[b, :, i, j] - theta[0]).abs().min() > 1e-6
    at_cls = cls[:, None, :, None] | cls[:, None, None, :]
    assert not (terms["relative"].expand(2, 2, 2, 7, 7)[0] * at_cls).any()


def _theta(weights, c):
    """θ1 and θ2 of each head from p_θ, TUPE 3.3: an all-[CLS] input of positions 0 and 1 shows both."""
    v, _, _ = naive.position_terms(weights, c, [0, 1], [True, False])
    return v, (torch.stack([row[0][0] for row in v]).detach(), torch.stack([row[1][0] for row in v]).detach())


@both_blocks
def test_reset_each_keeps_a_theta_for_either_correlation(block):
    # The published code: [CLS] has its own buckets in the relative bias, and θ in the absolute correlation.
    model = build("tupe-r", block=block, reset="each")
    given = inputs("plain")
    terms = {name: t.expand(2, 2, 2, 7, 7)[0, 0] for name, t in model.attention_terms(**given).items()}
    own = model.encoder.relative.cls.detach()  # (2, h)
    _, theta = _theta(dict(model.encoder.named_parameters()), model.config)
    for name, values in (("absolute", theta), ("relative", own)):
        torch.testing.assert_close(terms[name][:, 0, :], values[0][:, None].expand(2, 7))
        torch.testing.assert_close(terms[name][:, 1:, 0], values[1][:, None].expand(2, 6))
        assert not torch.allclose(terms[name][:, 1:, 1:], values[1][:, None, None])


def test_tying_cls_is_tupe_without_reset():
    tied = build("tupe-a-tie-cls")
    untied = build("tupe-a", reset="none")
    assert {name for name, _ in tied.named_parameters()} == {name for name, _ in untied.named_parameters()}
    untied.load_state_dict(tied.state_dict())
    assert torch.equal(tied(**inputs("plain")).logits, untied(**inputs("plain")).logits)


def test_without_cls_the_reset_changes_nothing():
    given = inputs("plain")
    given["input_ids"][:, 0] = 9
    model = build("tupe-a")
    tied = build("tupe-a-tie-cls")
    tied.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(model(**given).logits, tied(**given).logits, rtol=1e-12, atol=1e-12)


def test_bert_ad_scores_the_sum_of_both():
    """BERT ad with equal projections scores the sum of word and position."""
    # TUPE eq. 6: with U = W (and no biases) the four terms are one product of x + p, here at half the scale.
    model = build("bert-ad", num_hidden_layers=1)
    encoder = model.encoder
    with torch.no_grad():
        qkv = encoder.layers[0].attention.qkv[0]
        qkv.bias.zero_()
        w_q, w_k, _ = qkv.weight.split(24)
        encoder.untied.query.weight.copy_(w_q)
        encoder.untied.key.weight.copy_(w_k)
    given = inputs("plain")
    x = encoder(**given, output_hidden_states=True).hidden_states[0]
    both = x + encoder.untied.norm(encoder.position_embeddings()[:7])
    q, k = ((both @ w.T).unflatten(-1, (2, 12)).transpose(1, 2) for w in (w_q, w_k))
    expected = q @ k.transpose(-1, -2) / math.sqrt(4 * 12)
    torch.testing.assert_close(sum(model.attention_terms(**given).values())[0], expected, rtol=1e-11, atol=1e-11)


# SPLIT


def _frozen(model, monkeypatch):
    """Keep the attention weights of the first forward pass and use them in all that follow."""
    kept: dict[int, torch.Tensor] = {}
    turn = [0]
    softmax = torch.Tensor.softmax

    def replay(self, *args, **kwargs):
        layer = turn[0] % model.config.num_hidden_layers
        turn[0] += 1
        return kept.setdefault(layer, softmax(self, *args, **kwargs))

    monkeypatch.setattr(torch.Tensor, "softmax", replay)
    model.set_attn_implementation("eager")


@pytest.mark.parametrize("case", ["split", "split/per-head", "split/separate"])
@both_blocks
def test_split_streams_do_not_mix_under_fixed_weights(case, block, monkeypatch):
    """SPLIT: V, O and both MLPs are block-diagonal, so streams meet in the attention weights only."""
    model = build(case, block=block)
    given = inputs("plain")
    ids = given["input_ids"]
    positions = torch.arange(7).expand(2, 7)

    def states(ids, positions):
        with torch.no_grad():
            return torch.stack(model.encoder(ids, position_ids=positions, output_block_states=True).block_states)

    free = [states(ids, positions), states(ids.roll(1, 1), positions), states(ids, positions + 9)]
    d_pos = model.config.position_size
    for other in free[1:]:  # through the attention weights they do meet
        assert (free[0][-1, ..., :d_pos] - other[-1, ..., :d_pos]).abs().max() > 1e-4
        assert (free[0][-1, ..., d_pos:] - other[-1, ..., d_pos:]).abs().max() > 1e-4
    _frozen(model, monkeypatch)
    kept = states(ids, positions)
    torch.testing.assert_close(kept, free[0], rtol=1e-10, atol=1e-11)
    words = states(ids.roll(1, 1), positions)
    moved = states(ids, positions + 9)
    assert torch.equal(kept[..., :d_pos], words[..., :d_pos])
    assert torch.equal(kept[..., d_pos:], moved[..., d_pos:])
    assert (kept[..., d_pos:] - words[..., d_pos:]).abs().max() > 1e-2
    assert (kept[..., :d_pos] - moved[..., :d_pos]).abs().max() > 1e-2


@both_blocks
@pytest.mark.parametrize(("values", "kept"), [("consecutive", (True, False)), ("per_head", (True, True))])
def test_consecutive_values_put_position_into_the_first_head(block, values, kept, monkeypatch):
    # SPLIT with d_pos = d_head: head 0 mixes p W_pos and no semantic value, and all others the reverse.
    model = build("split", block=block, num_hidden_layers=1, stream_values=values)
    assert model.config.position_size == model.config.d_head
    attention = model.encoder.layers[0].attention
    given = inputs("plain")
    streams = tuple(
        torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in range(2)
    )
    shared = model.encoder.attention_inputs(given["input_ids"], None, None, None)
    for head, written in ((0, kept), (1, (not kept[0] or values == "per_head", not kept[1] or values == "per_head"))):
        only = torch.zeros(2, 2, 7, 7, dtype=torch.float64)
        only[:, head] = torch.eye(7)  # each token copies its own value, in this head alone
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "softmax", lambda *args, only=only, **kwargs: only)
            outputs, _ = attention(streams, shared, "eager")
        for out, project, expected in zip(outputs, attention.out, written, strict=True):
            silent = torch.zeros(12, dtype=torch.float64) if project.bias is None else project.bias
            assert bool((out - silent).abs().max() > 1e-3) is expected


def test_defaults_of_split_are_the_notes():
    config = build("split").config
    assert (config.block, config.stream_qk, config.stream_values, config.stream_feed_forward) == (
        "bert",
        "joint",
        "consecutive",
        "separate",
    )
    assert config.position_size == config.d_head and config.mlm_head == "full"
    names = [name for name, _ in build("split").encoder.named_parameters()]
    assert "layers.0.feed_forward.up.1.weight" in names and "layers.0.attention.out.1.weight" in names
