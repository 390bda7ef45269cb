"""Whole blocks: both kinds with their feed-forwards written out, and BERT's against transformers' own."""

import math

import naive
import pytest
import torch
from encoder_models import VOCAB, build, inputs, real
from transformers import BertConfig, BertForMaskedLM, BertModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm

import whatwhere as ww
from whatwhere.encoder.blocks import RMSNorm

KEYS = {"neobert": {"stream", "normalized"}, "bert": {"stream"}}


@pytest.mark.parametrize(
    ("block", "residual"), [(block, residual) for block in KEYS for residual in sorted(KEYS[block])]
)
@pytest.mark.parametrize(
    ("name", "feed_forward"),
    [("nope", "shared"), ("dstg", "shared"), ("dstg", "separate"), ("split", "shared"), ("split", "separate")],
)
def test_block_written_out(name, feed_forward, block, residual):
    """DSTG eq. 3 and the lines after it; SPLIT's two MLPs; pre-RMSNorm and post-LayerNorm; both residuals."""
    fields = {} if name == "nope" else {"stream_feed_forward": feed_forward}
    model = build(name, block=block, residual=residual, intermediate_size=72, **fields)
    given = inputs("plain")
    hidden = model.encoder(**given, output_block_states=True).block_states
    weights = dict(model.encoder.named_parameters())
    c = model.config
    visible = naive.visible_keys(7, None, None)
    for b, ids in enumerate(given["input_ids"].tolist()):
        for layer in range(2):
            streams = [list(stream) for stream in hidden[layer][b].split(list(c.stream_sizes), dim=-1)]
            ours, _ = naive.block(weights, c, layer, streams, list(range(7)), ids, visible)
            torch.testing.assert_close(hidden[layer + 1][b], naive.whole(ours), rtol=1e-10, atol=1e-11)


def test_swiglu_one_unit_at_a_time():
    # DSTG eq. 3: h = swish(W_gate x) ⊗ (W_up x) over the concatenation; the first 4·d_AP of h go down to AP, the rest
    # to sem.
    block = build("dstg").encoder.layers[1]
    streams = tuple(
        torch.randn(1, 3, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d)) for d in (8, 16)
    )
    gate, up = block.feed_forward.up[0].weight.detach().chunk(2)
    assert gate.shape == (96, 24)
    with torch.no_grad():
        found = block.feed_forward(streams)
    for i in range(3):
        x = torch.cat([streams[0][0, i], streams[1][0, i]])
        inner = [float(g @ x) / (1 + math.exp(-float(g @ x))) * float(u @ x) for g, u in zip(gate, up, strict=True)]
        for s, (part, down) in enumerate(zip((inner[:32], inner[32:]), block.feed_forward.down, strict=True)):
            expected = [sum(w * h for w, h in zip(row, part, strict=True)) for row in down.weight.tolist()]
            torch.testing.assert_close(
                found[s][0, i], torch.tensor(expected, dtype=torch.float64), rtol=1e-11, atol=1e-11
            )


def test_rms_norm_equals_transformers():
    theirs = LlamaRMSNorm(20, eps=1e-6)
    ours = RMSNorm(20, 1e-6)
    weight = torch.randn(20, generator=torch.Generator().manual_seed(0))
    x = torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(1))
    for norm in (theirs, ours):
        norm.weight.data.copy_(weight)
    torch.testing.assert_close(ours(x), theirs(x))
    exact = torch.stack([naive.rms_norm(v, weight.double(), 1e-6) for v in x.double().flatten(0, 1)]).view(3, 5, 20)
    torch.testing.assert_close(ours.double()(x.double()), exact, rtol=1e-13, atol=1e-13)


def test_norms_run_in_float32_at_least():
    x = torch.full((1, 64), 300.0, dtype=torch.float16)  # 300² is no float16
    assert bool(RMSNorm(64, 1e-6).half()(x).isfinite().all())


# BERT


def _bert(kind, pooler=None, **fields):
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        max_position_embeddings=32,
        attn_implementation="eager",
        **fields,
    )
    model = kind(config, **({} if pooler is None else {"add_pooling_layer": pooler})).double().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator, dtype=torch.float64) + (p.ndim == 1))
    return model


def _copy(theirs: BertModel, ours: ww.Encoder) -> None:
    """transformers' weights into ours; its token types are one type, folded into the words."""

    def put(target, source):
        assert target.weight.shape == source.weight.shape
        target.weight.copy_(source.weight)
        target.bias.copy_(source.bias)

    with torch.no_grad():
        table = theirs.embeddings
        ours.word_embeddings.weight.copy_(table.word_embeddings.weight + table.token_type_embeddings.weight[0])
        ours.position_embeddings.table.weight.copy_(table.position_embeddings.weight)
        put(ours.embedding_norm.norms[0], table.LayerNorm)
        for mine, layer in zip(ours.layers, theirs.encoder.layer, strict=True):
            own = layer.attention.self
            mine.attention.qkv[0].weight.copy_(torch.cat([own.query.weight, own.key.weight, own.value.weight]))
            mine.attention.qkv[0].bias.copy_(torch.cat([own.query.bias, own.key.bias, own.value.bias]))
            put(mine.attention.out[0], layer.attention.output.dense)
            put(mine.attention_norm.norms[0], layer.attention.output.LayerNorm)
            put(mine.feed_forward.up[0], layer.intermediate.dense)
            put(mine.feed_forward.down[0], layer.output.dense)
            put(mine.feed_forward_norm.norms[0], layer.output.LayerNorm)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["plain", "padded", "shifted"])
def test_bert_a_equals_transformers(backend, kind):
    theirs = _bert(BertModel, pooler=False)
    ours = build("bert-a").encoder
    assert ours.config.norm_eps == theirs.config.layer_norm_eps
    _copy(theirs, ours)
    ours.set_attn_implementation(backend)
    given = inputs(kind)
    if "attention_mask" in given:  # transformers counts positions from the left edge of the row, padding included
        given["position_ids"] = (given["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    tokens = real(given)
    found, expected = (model(**given, output_hidden_states=True) for model in (ours, theirs))
    assert len(found.hidden_states) == len(expected.hidden_states) == 3
    for a, b in zip(
        (*found.hidden_states, found.last_hidden_state),
        (*expected.hidden_states, expected.last_hidden_state),
        strict=True,
    ):
        torch.testing.assert_close(a[tokens], b[tokens], rtol=1e-10, atol=1e-10)
    assert (
        sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters()) - 2 * 24
    )  # the token types


def test_bert_a_drops_out_where_transformers_does():
    # The same seed draws the same numbers only if the same tensors are dropped in the same order.
    theirs = _bert(BertModel, pooler=False, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    ours = build("bert-a", dropout=0.1).encoder
    _copy(theirs, ours)
    ours.set_attn_implementation("eager")
    found = []
    for model in (ours.train(), theirs.train()):
        torch.manual_seed(3)
        found.append(model(**inputs("plain")).last_hidden_state)
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    assert (found[0] - ours.eval()(**inputs("plain")).last_hidden_state).abs().max() > 1e-2


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_bert_a_predicts_what_transformers_predicts(backend):
    theirs = _bert(BertForMaskedLM)
    ours = build("bert-a")
    _copy(theirs.bert, ours.encoder)
    with torch.no_grad():
        ours.head.decoder.weight = torch.nn.Parameter(
            theirs.cls.predictions.decoder.weight.clone()
        )  # words carry the token type
        ours.head.decoder.bias.copy_(theirs.cls.predictions.decoder.bias)
        ours.head.transform.dense.load_state_dict(theirs.cls.predictions.transform.dense.state_dict())
        ours.head.transform.norm.load_state_dict(theirs.cls.predictions.transform.LayerNorm.state_dict())
    ours.set_attn_implementation(backend)
    given = inputs("plain")
    labels = torch.where(torch.arange(7) % 3 == 1, given["input_ids"], -100)
    found, expected = (model(**given, labels=labels) for model in (ours, theirs))
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("preset", ["dstg", "split", "rope", "bert-a"])
def test_without_gradients_the_same_bits_come_out(preset):
    # There the gate is multiplied in its own memory.
    model = build(preset).eval()
    given = inputs("plain")
    with torch.inference_mode():
        found = model(**given).logits
    assert torch.equal(found, model(**given).logits.detach())
