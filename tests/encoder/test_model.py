"""What every encoder owes: invariances, gradients that stop where they should, heads, saving and loading."""

import pytest
import torch
from encoder_models import VOCAB, build
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

import whatwhere as ww
from whatwhere.encoder.rotary import rotate, rotation

PRESETS = ["dstg", "dstg-full-mlm", "ap", "rp", "rope", "nope"]


def test_rotation_equals_transformers():
    config = LlamaConfig(hidden_size=20, num_attention_heads=2, rope_theta=10000.0, max_position_embeddings=64)
    positions = torch.tensor([[0, 1, 5, 40, 41, 63]])
    q, k = torch.randn(2, 1, 2, 6, 10, generator=torch.Generator().manual_seed(0)).unbind()
    theirs = apply_rotary_pos_emb(q, k, *LlamaRotaryEmbedding(config)(q, positions))
    ours = [rotate(x, *rotation(positions, 10, 10000.0, q.dtype)) for x in (q, k)]
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)  # float32: both round the angles of position 63


def test_rotation_of_a_double_model_is_exact():
    cos, _ = rotation(torch.tensor([[100_003]]), 4, 10000.0, torch.float64)
    expected = torch.cos(torch.tensor([100_003.0, 1000.03], dtype=torch.float64))
    torch.testing.assert_close(cos[0, 0, 0, :2], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PRESETS)
def test_shifting_all_positions_changes_only_schemes_with_absolute_positions(name, ids):
    model = build(name)
    positions = torch.arange(9).expand(2, 9)
    here, there = (model(ids, position_ids=p).logits for p in (positions, positions + 7))
    if name in ("rp", "rope", "nope"):
        torch.testing.assert_close(here, there, rtol=1e-11, atol=1e-11)
    else:
        assert (here - there).abs().max() > 1e-3


@pytest.mark.parametrize("name", PRESETS)
def test_padding_changes_nothing(name, ids):
    model = build(name)
    plain = model(ids).logits
    for left, right in ((0, 3), (3, 0), (2, 1)):
        padded = F.pad(ids, (left, right), value=0)
        mask = F.pad(torch.ones_like(ids), (left, right), value=0)
        found = model(padded, attention_mask=mask).logits[:, left : left + 9]
        torch.testing.assert_close(found, plain, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", PRESETS)
def test_packed_documents_equal_separate_rows(name, ids):
    model = build(name)
    first, second = ids[:1, :5], ids[1:, :7]
    packed = torch.cat([first, second], dim=1)
    documents = torch.tensor([[0] * 5 + [1] * 7])
    positions = torch.cat([torch.arange(5), torch.arange(7)])[None]
    found = model(packed, position_ids=positions, document_ids=documents).logits
    torch.testing.assert_close(found[:, :5], model(first).logits, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found[:, 5:], model(second).logits, rtol=1e-11, atol=1e-11)


def test_permuting_tokens_permutes_the_outputs_of_nope(ids):
    # GEOM theorem 1: without positions an encoder is equivariant under permutations.
    model = build("nope")
    order = torch.randperm(9, generator=torch.Generator().manual_seed(4))
    torch.testing.assert_close(model(ids[:, order]).logits, model(ids).logits[:, order], rtol=1e-11, atol=1e-11)
    for name in ("dstg", "ap", "rp", "rope"):
        other = build(name)
        assert (other(ids[:, order]).logits - other(ids).logits[:, order]).abs().max() > 1e-3


def _position_gradients(name, ids):
    """Gradient of the loss on the position stream's part of each block: its own down-projection."""
    model = build(name)
    model(ids, labels=ids).loss.backward()
    gradients = [layer.feed_forward.down[0].weight.grad for layer in model.encoder.layers]
    return [0.0 if g is None else float(g.abs().sum()) for g in gradients]


def test_semantic_head_sends_no_gradient_to_the_last_position_output(ids):
    # DSTG 3.3: the AP component of the last layer is unused by the MLM head. (Its attention output still reaches the semantic
    # stream through the last SwiGLU.)
    *earlier, last = _position_gradients("dstg", ids)
    assert last == 0.0 and min(earlier) > 0.0
    assert min(_position_gradients("dstg-full-mlm", ids)) > 0.0


def test_full_head_is_one_linear_map_of_the_whole_state(ids):
    model = build("dstg-full-mlm")
    hidden = model.encoder(ids).last_hidden_state
    weight = torch.cat([model.head.position_decoder.weight, model.head.decoder.weight], dim=1)
    torch.testing.assert_close(model(ids).logits, F.linear(hidden, weight, model.head.decoder.bias))


def test_loss_is_cross_entropy_of_labelled_tokens_and_projects_only_them(ids):
    model = build("dstg")
    labels = torch.where(torch.arange(9) % 4 == 1, ids, -100)
    rows = []
    model.head.decoder.register_forward_hook(lambda module, inputs, output: rows.append(inputs[0].shape[0]))
    out = model(ids, labels=labels)
    assert rows == [int((labels != -100).sum())]
    assert out.logits.shape == (rows[0], VOCAB)
    everywhere = model(ids).logits
    torch.testing.assert_close(out.loss, F.cross_entropy(everywhere.flatten(0, 1), labels.flatten(), ignore_index=-100))
    torch.testing.assert_close(model(ids, labels=labels, return_all_logits=True).logits, everywhere)


def test_loss_without_labels_is_zero_with_gradients_not_nan(ids):
    model = build("ap")
    loss = model(ids, labels=torch.full_like(ids, -100)).loss
    loss.backward()
    assert loss == 0


@pytest.mark.parametrize("name", PRESETS)
def test_double_model_is_float64_throughout(name, ids):
    out = build(name)(ids, output_hidden_states=True, output_attentions=True)
    assert {t.dtype for t in (out.logits, *out.hidden_states, *out.attentions)} == {torch.float64}


def test_hidden_states_are_embedding_and_block_outputs_position_first(ids):
    model = build("dstg").encoder
    out = model(ids, output_hidden_states=True)
    assert len(out.hidden_states) == 4
    table = model.position_table()
    torch.testing.assert_close(out.hidden_states[0][..., :8], table[:9].expand(2, 9, 8))
    torch.testing.assert_close(out.hidden_states[0][..., 8:], model.word_embeddings(ids))
    normed = torch.cat(model.norm(out.hidden_states[-1].split([8, 16], dim=-1)), dim=-1)
    torch.testing.assert_close(out.last_hidden_state, normed)


def test_block_equals_eq_3_written_out(ids):
    """RMSNorm, SwiGLU over both streams and a down-projection per stream, one token and one unit at a time."""
    block = build("dstg").encoder.layers[1]
    streams = tuple(torch.randn(1, 9, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d)) for d in (8, 16))
    layout = build("dstg").encoder.layout(ids[:1], None, torch.arange(9)[None], None)

    def rms(x, weight):
        return torch.stack([v / ((x**2).mean() + 1e-6) ** 0.5 * w for v, w in zip(x, weight, strict=True)])

    def normed(parts, norm):
        return tuple(torch.stack([rms(t, m.weight) for t in x[0]])[None] for x, m in zip(parts, norm.norms, strict=True))

    attended, _ = block.attention(normed(streams, block.attention_norm), layout, "eager")
    middle = [x + y for x, y in zip(streams, attended, strict=True)]
    x = torch.cat(normed(middle, block.feed_forward_norm), dim=-1)[0]  # (9, 24)
    gate, up = block.feed_forward.gate_up.weight.chunk(2)
    inner = torch.stack([torch.stack([(g @ t) / (1 + torch.exp(-(g @ t))) * (u @ t) for g, u in zip(gate, up, strict=True)]) for t in x])
    inner = inner.split([4 * 8, 4 * 16], dim=-1)  # d_int of AP first
    expected = [m + h @ down.weight.T for m, h, down in zip(middle, inner, block.feed_forward.down, strict=True)]
    for a, b in zip(block(streams, layout, "sdpa")[0], expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_normalized_residual_adds_to_the_normalised_stream(ids):
    block = build("dstg", residual="normalized").encoder.layers[0]
    streams = tuple(torch.randn(1, 9, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d)) for d in (8, 16))
    layout = build("dstg").encoder.layout(ids[:1], None, torch.arange(9)[None], None)
    normed = block.attention_norm(streams)
    middle = tuple(x + y for x, y in zip(normed, block.attention(normed, layout, "sdpa")[0], strict=True))
    normed = block.feed_forward_norm(middle)
    expected = [x + y for x, y in zip(normed, block.feed_forward(normed), strict=True)]
    for a, b in zip(block(streams, layout, "sdpa")[0], expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains_a_step_and_survives_saving(name, ids, tmp_path):
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(ww.preset(name, "tiny", vocab_size=VOCAB))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model(ids, labels=ids).loss
    before.backward()
    optimizer.step()
    assert model(ids, labels=ids).loss < before
    model.eval().save_pretrained(tmp_path)
    assert {p.suffix for p in tmp_path.iterdir()} == {".json", ".py", ".safetensors"}
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert isinstance(loaded, ww.EncoderForMaskedLM) and loaded.config.preset == name
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert loaded.config._attn_implementation == "sdpa"
    body = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(body(ids).last_hidden_state, model.encoder(ids).last_hidden_state)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), ww.EncoderConfig)


def test_inputs_that_cannot_work_are_errors(ids):
    model = build("dstg")
    with pytest.raises(ValueError, match="position table has 32 rows"):
        model(torch.full((1, 33), 7))
    with pytest.raises(ValueError, match="vocabulary has 40 entries"):
        model(torch.full((1, 3), 40))
    with pytest.raises(ValueError, match="shape of input_ids"):
        model(ids, attention_mask=torch.ones(2, 8))
    with pytest.raises(ValueError, match="labels must have the shape"):
        model(ids, labels=ids[:, 1:])
    assert build("rope")(torch.full((1, 33), 7)).logits.shape == (1, 33, VOCAB)  # no table, no limit
