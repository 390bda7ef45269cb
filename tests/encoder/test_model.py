"""What every encoder owes: invariances, gradients that stop where they should, heads, saving and loading."""

from io import StringIO
from logging import StreamHandler

import pytest
import torch
from encoder_models import BLOCKS, VOCAB, build, config, inputs, own_block_first
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, GPTNeoXConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.utils import logging

import whatwhere as ww
from whatwhere.encoder import PRESETS
from whatwhere.encoder import model as model_module
from whatwhere.encoder.attention import BACKENDS
from whatwhere.encoder.rotations import compute_cos_sin, rope_frequencies, rotate

every_preset = pytest.mark.parametrize(("name", "block"), [(name, block) for name in PRESETS for block in BLOCKS])


def test_rotation_equals_transformers():
    llama = LlamaConfig(hidden_size=20, num_attention_heads=2, rope_theta=10000.0, max_position_embeddings=64)
    positions = torch.tensor([[0, 1, 5, 40, 41, 63]])
    q, k = torch.randn(2, 1, 2, 6, 10, generator=torch.Generator().manual_seed(0)).unbind()
    theirs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(llama)(q, positions))
    own = ww.preset("rope", "tiny", hidden_size=20, num_attention_heads=2)
    ours = [rotate(x, *compute_cos_sin(positions, own, q.dtype)) for x in (q, k)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)  # float32: both round the angles of position 63


def test_given_positions_of_long_rows_need_no_reading(monkeypatch):
    """On an accelerator a row of packed documents longer than the table was refused, though its positions fit."""
    model = ww.Encoder(ww.preset("ap", "tiny", vocab_size=VOCAB, max_position_embeddings=8)).eval()
    ids = torch.randint(5, VOCAB, (1, 12), generator=torch.Generator().manual_seed(0))
    packed = {"position_ids": torch.arange(6).repeat(1, 2), "document_ids": torch.arange(2).repeat_interleave(6)[None]}
    expected = model(ids, **packed).last_hidden_state
    monkeypatch.setattr(model_module, "has_values_on_cpu", lambda tensor: False)
    torch.testing.assert_close(model(ids, **packed).last_hidden_state, expected)
    with pytest.raises(ValueError, match="Sequence reaches position 11, but the position table has 8 rows"):
        model(ids)


def test_wide_padding_is_named_where_masks_stay_unread(monkeypatch):
    """On an accelerator padding beyond the table was said to be a text that reaches beyond it."""
    model = ww.Encoder(ww.preset("ap", "tiny", vocab_size=VOCAB, max_position_embeddings=8)).eval()
    ids = torch.full((1, 12), 7)
    mask = (torch.arange(12) < 6).long()[None]
    assert model(ids, attention_mask=mask).last_hidden_state.shape == (1, 12, model.config.hidden_size)
    monkeypatch.setattr(model_module, "has_values_on_cpu", lambda tensor: False)
    with pytest.raises(ValueError, match="batch is 12 tokens wide, padding included; .* 8 rows. Pad to the longest"):
        model(ids, attention_mask=mask)


def test_partial_rotation_equals_gpt_neox():
    """A share of the columns and another base are rotary_pct and rotary_emb_base of GPT-NeoX."""
    theirs = GPTNeoXConfig(hidden_size=64, num_attention_heads=2, rotary_pct=0.25, rotary_emb_base=160_000)
    positions = torch.tensor([[0, 1, 5, 40, 41, 63]])
    q, k = torch.randn(2, 1, 2, 6, 32, generator=torch.Generator().manual_seed(0)).unbind()
    expected = modeling_gpt_neox.apply_rotary_pos_emb(
        q, k, *modeling_gpt_neox.GPTNeoXRotaryEmbedding(theirs)(q, positions)
    )
    own = ww.preset("rope-partial", "tiny", hidden_size=64, num_attention_heads=2, rope_theta=160_000.0)
    for x, a in zip((q, k), expected, strict=True):
        found = rotate(x, *compute_cos_sin(positions, own, q.dtype))
        torch.testing.assert_close(found, a, rtol=1e-5, atol=2e-6)
        assert torch.equal(found[..., 8:], x[..., 8:])


def test_xpos_is_the_papers_towards_earlier_keys():
    """Towards earlier keys xPos is the paper's product of factors, mirrored it is the product towards later ones."""
    model = build("xpos", xpos_scale_base=6.0, num_hidden_layers=1)
    plain = build("rope", num_hidden_layers=1)
    plain.load_state_dict(model.state_dict())
    ids = inputs("plain")["input_ids"]
    x = model.encoder.layers[0].attention_norm.norms[0](model.encoder.word_embeddings(ids))
    q, k, _ = model.encoder.layers[0].attention.qkv[0](x).split([24, 24, 24], dim=-1)
    turn = compute_cos_sin(torch.arange(7)[None], model.config, torch.float64)
    q, k = (rotate(t.unflatten(-1, (2, 12)).transpose(1, 2), *turn) for t in (q, k))
    zeta = ((torch.arange(6, dtype=torch.float64) / 6 + 0.4) / 1.4).repeat(2)
    power = zeta ** (torch.arange(7, dtype=torch.float64)[:, None] / 6.0)
    earlier = (q * power) @ (k / power).transpose(-1, -2) * 12**-0.5  # ζ^(n/s) of a query, ζ^(-m/s) of a key
    later = (q / power) @ (k * power).transpose(-1, -2) * 12**-0.5
    found = model.attention_terms(input_ids=ids)["semantic"][0]
    torch.testing.assert_close(found, torch.where(torch.ones(7, 7).tril().bool(), earlier, later))
    endless = build("xpos", xpos_scale_base=1e15, num_hidden_layers=1)
    endless.load_state_dict(model.state_dict())
    torch.testing.assert_close(endless(ids).logits, plain(ids).logits, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("factor", [2.0, 8.0])
@pytest.mark.parametrize(("scaling", "theirs"), [("linear", "linear"), ("ntk", "dynamic"), ("yarn", "yarn")])
def test_scaled_rotations_equal_those_of_transformers(scaling, theirs, factor):
    trained = 512  # in transformers "dynamic" of factor 1 is ntk for the length that it reads
    long = int(512 * factor)
    about = {"rope_type": theirs, "rope_theta": 10000.0, "factor": 1.0 if theirs == "dynamic" else factor}
    about |= {"original_max_position_embeddings": trained}
    llama = LlamaConfig(hidden_size=128, num_attention_heads=2, max_position_embeddings=trained, rope_parameters=about)
    frequency, size = ROPE_INIT_FUNCTIONS[theirs](llama, torch.device("cpu"), seq_len=long)
    own = ww.preset(
        "rope", "tiny", hidden_size=128, num_attention_heads=2, max_position_embeddings=long,
        rotation_scaling=scaling, rotation_factor=factor,
    )  # fmt: skip
    ours = rope_frequencies(64, own, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(ours.float(), frequency, rtol=1e-5, atol=0)
    cos, sin = compute_cos_sin(torch.tensor([[0, 1]]), own, torch.float64)
    assert float(cos[0, 0, 0, 0]) == pytest.approx(size) and float(sin[0, 0, 0, 0]) == 0


@pytest.mark.parametrize("kind", ["plain", "padded", "packed", "both"])
@pytest.mark.parametrize("name", ["rope", "dstg", "tupe-r", "alibi"])
def test_a_window_is_attention_to_near_tokens_alone(name, kind):
    whole = build(name)
    near = build(name, attention_window=2)
    near.load_state_dict(whole.state_dict())
    given = inputs(kind)
    n = given["input_ids"].shape[1]
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()

    def cut(block, terms, allowed):
        first = next(iter(terms))
        return {**terms, first: terms[first].masked_fill((apart > 2) & (apart > 0), -1e12)}

    tokens = given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()
    with torch.no_grad(), whole.encoder.inspect_terms(cut):
        expected = whole.encoder(**given).last_hidden_state[tokens]
    for backend in BACKENDS if kind == "both" else ("eager", "sdpa"):  # torch traces `flex_attention` for each kind
        near.set_attn_implementation(backend)
        with torch.no_grad():
            found = near.encoder(**given).last_hidden_state
        assert found.isfinite().all()
        torch.testing.assert_close(found[tokens], expected, rtol=1e-6, atol=1e-8)
    with torch.no_grad():
        assert (whole.encoder(**given).last_hidden_state[tokens] - expected).abs().max() > 1e-4


def test_rotation_of_a_double_model_is_exact():
    own = ww.preset("rope", "tiny", hidden_size=8, num_attention_heads=2)
    cos, _ = compute_cos_sin(torch.tensor([[100_003]]), own, torch.float64)
    expected = torch.cos(torch.tensor([100_003.0, 1000.03], dtype=torch.float64))
    torch.testing.assert_close(cos[0, 0, 0, :2], expected, rtol=1e-12, atol=1e-12)


def _position_gradients(name, ids):
    """Gradient of the loss on the position stream's part of each block: its own down-projection."""
    model = build(name)
    model(ids, labels=ids).loss.backward()
    gradients = [layer.feed_forward.down[0].weight.grad for layer in model.encoder.layers]
    return [0.0 if g is None else float(g.abs().sum()) for g in gradients]


def test_semantic_heads_send_position_outputs_no_gradient(ids):
    """Semantic head sends no gradient to the last position output."""
    # DSTG 3.3: the AP component of the last layer is unused by the MLM head. (Its attention output still reaches the
    # semantic stream through the last SwiGLU.)
    *earlier, last = _position_gradients("dstg", ids)
    assert last == 0.0 and min(earlier) > 0.0
    assert min(_position_gradients("dstg-full-mlm", ids)) > 0.0


def test_full_heads_are_one_linear_map(ids):
    """Full head is one linear map of the whole state."""
    model = build("dstg-full-mlm")
    hidden = model.encoder(ids).last_hidden_state
    weight = torch.cat([model.head.position_decoder.weight, model.head.decoder.weight], dim=1)
    torch.testing.assert_close(model(ids).logits, F.linear(hidden, weight, model.head.decoder.bias))


def test_loss_is_cross_entropy_of_labelled_tokens(ids):
    """Loss is cross entropy of labelled tokens; with targets_only they alone are projected."""
    model = build("dstg")
    labels = torch.where(torch.arange(9) % 4 == 1, ids, -100)
    rows = []
    model.head.decoder.register_forward_hook(lambda module, inputs, output: rows.append(inputs[0].shape[0]))
    out = model(ids, labels=labels, targets_only=True)
    assert rows == [int((labels != -100).sum())]
    assert out.logits.shape == (rows[0], VOCAB)
    everywhere = model(ids).logits
    torch.testing.assert_close(out.loss, F.cross_entropy(everywhere.flatten(0, 1), labels.flatten(), ignore_index=-100))
    whole = model(ids, labels=labels)
    torch.testing.assert_close(whole.logits, everywhere, rtol=0, atol=0)
    torch.testing.assert_close(whole.loss, out.loss)


def test_loss_without_labels_is_zero_with_gradients_not_nan(ids):
    model = build("ap")
    loss = model(ids, labels=torch.full_like(ids, -100)).loss
    loss.backward()
    assert loss == 0


def test_hidden_states_are_embedding_and_block_outputs_position_first(ids):
    model = build("dstg").encoder
    out = model(ids, output_hidden_states=True, output_block_states=True)
    assert len(out.hidden_states) == len(out.block_states) == 3
    table = model.position_table()
    torch.testing.assert_close(out.hidden_states[0][..., :8], table[:9].expand(2, 9, 8))
    torch.testing.assert_close(out.hidden_states[0][..., 8:], model.word_embeddings(ids))
    normed = torch.cat(model.norm(out.block_states[-1].split([8, 16], dim=-1)), dim=-1)
    torch.testing.assert_close(out.last_hidden_state, normed)
    assert all(torch.equal(a, b) for a, b in zip(out.hidden_states[:-1], out.block_states[:-1], strict=True))


@pytest.mark.parametrize("name", ["dstg", "rope", "bert-a"])
def test_last_of_the_hidden_states_is_the_output(name, ids):
    """hidden_states[-1] equals last_hidden_state; in NeoBERT's block it was the state before the norm."""
    model = build(name).encoder
    out = model(ids, output_hidden_states=True)
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
    model.config.tie_last_hidden_states = False  # transformers' switch for the state before the norm
    whole = model(ids, output_hidden_states=True, output_block_states=True)
    assert torch.equal(whole.hidden_states[-1], whole.block_states[-1])
    assert torch.equal(whole.hidden_states[-1], out.last_hidden_state) == (name == "bert-a")


@pytest.mark.parametrize("asked", [0, 1, [0, -1], [2, 7], range(3)])
def test_hidden_states_are_selected_by_number(asked, ids):
    """A number or several keep those states and put None in place of the others, as in transformers' own models.

    Every state was returned.
    """
    model = build("dstg")
    whole = model(ids, output_hidden_states=True).hidden_states
    found = model(ids, output_hidden_states=asked).hidden_states
    numbers = [asked] if isinstance(asked, int) else asked
    kept = {number % 3 for number in numbers if number < 3}
    assert len(found) == 3 and {i for i, state in enumerate(found) if state is not None} == kept
    assert all(torch.equal(found[i], whole[i]) for i in kept)


def test_the_configuration_asks_for_outputs(ids, tmp_path):
    """output_hidden_states, output_attentions and return_dict of the configuration are obeyed.

    The first two were ignored.
    """
    model = build("dstg")
    expected = model(ids, output_hidden_states=True, output_attentions=True)
    model.save_pretrained(tmp_path)
    wanted = {"output_hidden_states": True, "output_attentions": True, "attn_implementation": "eager"}
    asked = ww.EncoderForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64, **wanted)
    for found in (asked(ids), asked.encoder(ids)):
        for key in ("hidden_states", "attentions"):
            assert all(torch.equal(a, b) for a, b in zip(found[key], expected[key], strict=True))
    assert asked(ids, output_hidden_states=False).hidden_states is None
    asked.config.return_dict = False
    for one in (asked, asked.encoder):
        assert isinstance(one(ids), tuple) and len(one(ids)) == 3


def test_hidden_states_and_attentions_have_gradients(ids):
    """The loss depends on the states and weights that are returned."""
    for name in ("dstg", "rope"):
        out = build(name)(ids, labels=ids, output_hidden_states=True, output_attentions=True)
        for tensor in (*out.hidden_states, *out.attentions):
            tensor.retain_grad()
        out.loss.backward()
        assert all(tensor.grad is not None and tensor.grad.abs().max() > 0 for tensor in out.hidden_states)
        assert all(tensor.grad is not None and tensor.grad.abs().max() > 0 for tensor in out.attentions)


@pytest.mark.parametrize("name", ["dstg", "bert-a", "split"])
def test_bert_blocks_normalise_the_embedding(name, ids):
    """The BERT block normalises the embedding and nothing after the last block."""
    model = build(name, block="bert").encoder
    out = model(ids, output_hidden_states=True)
    assert model.norm is None and torch.equal(out.last_hidden_state, out.hidden_states[-1])
    parts = out.hidden_states[0].split(list(model.config.stream_sizes), dim=-1)
    for part, norm in zip(parts, model.embedding_norm.norms, strict=True):  # LayerNorm leaves its own mean and spread
        plain = (part - norm.bias) / norm.weight
        torch.testing.assert_close(plain.mean(-1), torch.zeros(2, 9, dtype=torch.float64))
        torch.testing.assert_close(
            plain.var(-1, correction=0), torch.ones(2, 9, dtype=torch.float64), rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", ["bert-ad", "tupe-a", "tupe-r", "tupe-free", "rp", "alibi", "rope", "nope"])
def test_only_words_enter_where_positions_are_untied(name, ids):
    # TUPE: different from all other works, it uses the word embedding alone as input.
    model = build(name).encoder
    same = model(ids, output_hidden_states=True).hidden_states[0]
    positions = torch.arange(9).flip(0).expand(2, 9)
    assert torch.equal(model(ids, position_ids=positions, output_hidden_states=True).hidden_states[0], same)


@every_preset
def test_initial_weights_come_from_the_seed(name, block):
    """Initial weights come from the seed and say nothing of positions apart."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(ww.EncoderForMaskedLM(config(name, block=block)))
    weights, again = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in models)
    assert all(torch.equal(weights[key], again[key]) for key in weights)  # nothing is left as it was allocated
    assert all(bool(value.isfinite().all()) for value in weights.values())
    for key, value in weights.items():
        if (
            key.endswith("bias")
            or "relative.special" in key
            or key.endswith("relative.cls")
            or "untied.free" in key
            or "untied.theta" in key
        ):
            assert not value.any(), key
        if "norm" in key and key.endswith("weight"):
            assert bool((value == 1).all()), key
        if "qkv" in key and key.endswith("weight"):
            assert float(value.detach().std()) == pytest.approx(models[0].config.initializer_range, rel=0.2), key


@own_block_first
def test_every_preset_trains_a_step_and_survives_saving(name, block, ids, tmp_path):
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=VOCAB, block=block, num_hidden_layers=2)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model(ids, labels=ids).loss
    before.backward()
    optimizer.step()
    assert model(ids, labels=ids).loss < before
    model.save_pretrained(tmp_path)
    assert {p.suffix for p in tmp_path.iterdir()} == {".json", ".py", ".safetensors"}
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert isinstance(loaded, ww.EncoderForMaskedLM) and loaded.config.preset == name
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.config._attn_implementation == "sdpa"
    body = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(body(ids).last_hidden_state, model.encoder(ids).last_hidden_state)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), ww.EncoderConfig)


@pytest.mark.parametrize("name", ["attention_mask", "position_ids", "document_ids"])
def test_an_input_of_another_shape_is_named(name):
    """The error said "every input", not which one had another shape."""
    message = rf"^{name} has shape \(2, 7\), input_ids \(2, 9\). Give both one shape.$"
    with pytest.raises(ValueError, match=message):
        build("dstg")(torch.full((2, 9), 7), **{name: torch.ones(2, 7, dtype=torch.long)})


def test_inputs_that_cannot_work_are_errors(ids):
    model = build("dstg")
    with pytest.raises(ValueError, match="position table has 32 rows"):
        model(torch.full((1, 33), 7))
    with pytest.raises(ValueError, match="vocabulary has 40 entries"):
        model(torch.full((1, 3), 40))
    with pytest.raises(ValueError, match=r"attention_mask has shape \(2, 8\), input_ids .* Give both one shape"):
        model(ids, attention_mask=torch.ones(2, 8))
    with pytest.raises(ValueError, match="labels must have the shape"):
        model(ids, labels=ids[:, 1:])
    with pytest.raises(ValueError, match="count from 0; got -5"):
        model(torch.full((1, 3), -5))
    with pytest.raises(ValueError, match="at least one token a row"):
        model(torch.empty(2, 0, dtype=torch.long))


@pytest.mark.parametrize("name", ["ap", "dstg", "sinusoidal", "tupe-a", "tupe-free", "bert-ad", "split"])
def test_a_position_outside_the_table_is_an_error(name):
    model = build(name)
    ids = torch.full((1, 3), 7)
    for call in (lambda: model(torch.full((1, 33), 7)), lambda: model(ids, position_ids=torch.tensor([[0, 32, 1]]))):
        with pytest.raises(ValueError, match="position 32, but the position table has 32 rows") as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="-1"):  # not the last row
        model(ids, position_ids=torch.tensor([[0, -1, 1]]))


@pytest.mark.parametrize("name", ["rope", "rp", "alibi", "kerple-log", "dape", "nope", "tupe-product"])
def test_relative_schemes_have_no_limit_of_their_own(name):
    model = build(name)
    if name == "tupe-product":  # has a table besides
        with pytest.raises(ValueError, match="32 rows"):
            model(torch.full((1, 33), 7))
    else:
        assert model(torch.full((1, 33), 7)).logits.shape == (1, 33, VOCAB)
        shifted = torch.arange(7).expand(2, 7) - 3
        torch.testing.assert_close(
            model(**inputs("plain"), position_ids=shifted).logits, model(**inputs("plain")).logits
        )


@pytest.mark.parametrize("name", ["ap", "rp", "dstg", "tupe-r"])
def test_backends_agree_on_an_example_that_is_all_padding(name, ids):
    # Once, torch's attention gave zeros there and ours the mean of the values.
    model = build(name)
    mask = torch.ones_like(ids)
    mask[1] = 0
    found = []
    for backend in BACKENDS:
        model.set_attn_implementation(backend)
        with torch.no_grad():
            found.append(model(ids, attention_mask=mask).logits)
    torch.testing.assert_close(found[1], found[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found[2], found[0], rtol=1e-11, atol=1e-11)


def test_attention_terms_have_no_dropout(ids):
    """Terms have no dropout and leave the mode as it was."""
    model = build("tupe-r").train()
    assert model.config.dropout == 0.1
    first, second = (model.attention_terms(input_ids=ids) for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first) and model.training


def test_attention_terms_take_what_tokenizers_give(ids):
    """`token_type_ids`, which `forward` takes, was a TypeError."""
    model = build("dstg")
    terms = model.attention_terms(input_ids=ids, token_type_ids=torch.zeros_like(ids))
    assert all(torch.equal(terms[name], term) for name, term in model.attention_terms(input_ids=ids).items())


@pytest.mark.parametrize(("name", "block"), [("tupe-a", "bert"), ("tupe-product", "neobert")])
def test_positional_correlations_stay_float32_under_autocast(name, block, ids):
    model = ww.Encoder(ww.preset(name, "tiny", block=block, vocab_size=VOCAB, num_hidden_layers=1)).eval()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        biases = model.attention_inputs(ids, None, None, None).biases
    with torch.no_grad():
        exact = model.double().attention_inputs(ids, None, None, None).biases
    for bias, expected in zip(biases, exact, strict=True):
        assert bias.base.dtype == torch.float32
        torch.testing.assert_close(bias.to_dense().double(), expected.to_dense(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_words_may_be_given_as_vectors(name):
    model = build(name)
    given = inputs("padded")
    ids = given.pop("input_ids")
    vectors = model.encoder.word_embeddings(ids).detach().requires_grad_()
    apart = (
        model.config.relative_special != "none" or model.config.absolute_skips_special or model.config.reset != "none"
    )
    apart = apart or model.config.bilevel
    also = {"input_ids": ids} if apart else {}
    logits = model(inputs_embeds=vectors, **also, **given).logits
    torch.testing.assert_close(logits, model(ids, **given).logits, rtol=0, atol=0)
    terms = model.attention_terms(input_ids=ids, **given)
    for term, of_vectors in model.attention_terms(inputs_embeds=vectors, **also, **given).items():
        torch.testing.assert_close(of_vectors, terms.pop(term), rtol=0, atol=0)
    assert not terms
    (gradient,) = torch.autograd.grad(logits[0, 1].sum(), vectors)
    step = torch.zeros_like(vectors)
    step[0, 1, 0] = 1e-6
    with torch.no_grad():
        after = model(inputs_embeds=vectors + step, **also, **given).logits[0, 1].sum()
        before = model(inputs_embeds=vectors - step, **also, **given).logits[0, 1].sum()
    assert float(gradient[0, 1, 0]) == pytest.approx(float(after - before) / 2e-6, rel=1e-4, abs=1e-7)
    if apart:
        for ask in (model, model.attention_terms):
            of_specials = r"treats \[CLS\] and \[SEP\] apart.* or special_tokens_mask beside"
            with pytest.raises(ValueError, match="reads segments.* beside" if model.config.bilevel else of_specials):
                ask(inputs_embeds=vectors, **given)


def test_vectors_of_another_shape_are_refused():
    model = build("rope")
    ids = inputs("plain")["input_ids"]
    for wrong in ({"inputs_embeds": torch.zeros(2, 3, 5)}, {"inputs_embeds": torch.zeros(1, 1, 24), "input_ids": ids}):
        with pytest.raises(ValueError, match="inputs_embeds has shape"):
            model(**wrong)
    with pytest.raises(ValueError, match="got no input. Give input_ids .* or inputs_embeds"):
        model()


@pytest.mark.parametrize("name", ["ap", "rope", "dstg"])
def test_one_row_of_positions_stands_for_all(name):
    model = build(name)
    ids = inputs("plain")["input_ids"]
    row = torch.arange(ids.shape[1]).flip(0)
    expected = model(ids, position_ids=row.expand(ids.shape)).logits
    for given in (row, row[None]):
        torch.testing.assert_close(model(ids, position_ids=given).logits, expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="Give both one shape"):
        model(ids, position_ids=row[1:])


@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_models_with_heads_open_as_encoders_silently(head, tmp_path):
    """A model with a head opens as an encoder without a report."""
    # transformers listed its weights as unexpected. Its logger hands nothing on, so that a look at the root's saw none.
    getattr(ww, f"EncoderFor{head}")(config("bert-a")).save_pretrained(tmp_path)
    said = StringIO()
    handler = StreamHandler(said)
    logging.add_handler(handler)
    try:
        AutoModel.from_pretrained(tmp_path)
        assert not said.getvalue()
        AutoModelForMaskedLM.from_pretrained(tmp_path)  # a head that lacks is told: the handler hears it
        assert ("LOAD REPORT" in said.getvalue()) is (head != "MaskedLM")
    finally:
        logging.remove_handler(handler)
