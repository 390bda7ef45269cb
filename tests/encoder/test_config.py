"""Configurations and presets: published sizes, and every wrong key or width refused with a way out."""

import pytest
import torch

import whatwhere as ww


@pytest.mark.parametrize("name", ["ap", "rp", "rope", "nope"])
def test_paper_baselines_are_720_wide(name):
    config = ww.preset(name)
    assert (config.hidden_size, config.position_size, config.num_hidden_layers, config.num_attention_heads) == (720, 0, 6, 6)
    assert (config.max_position_embeddings, config.intermediate_size) == (512, 2880)


def test_paper_dstg_is_48_and_720():
    # DSTG 3.1-3.3: d_head = 768/6, values 8 and 120 wide per head, SwiGLU 4 × 48 and 4 × 720.
    config = ww.preset("dstg")
    assert config.stream_sizes == (48, 720) and config.d_head == 128
    with torch.device("meta"):
        block = ww.EncoderForMaskedLM(config).encoder.layers[0]
    assert [tuple(m.weight.shape) for m in block.attention.qkv] == [(2 * 768 + 48, 48), (2 * 768 + 720, 720)]
    assert [tuple(m.weight.shape) for m in block.feed_forward.down] == [(48, 192), (720, 2880)]
    assert tuple(block.feed_forward.gate_up.weight.shape) == (2 * 3072, 768)
    assert not [name for name, _ in block.named_parameters() if name.endswith("bias")]


def test_tiny_sizes_keep_four_heads():
    assert ww.preset("dstg", "tiny").stream_sizes == (8, 120)
    assert ww.preset("ap", "tiny").hidden_size == 120
    assert ww.preset("ap", "tiny").num_attention_heads == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positon_size": 8}, "no field 'positon_size'. Did you mean position_size"),
        ({"position_size": 50, "absolute": "learned"}, "position_size=50, num_attention_heads=6. Nearest: 48 or 54"),
        ({"hidden_size": 700}, "hidden_size=700, num_attention_heads=6. Nearest: 696 or 702"),
        ({"position_size": 48}, "needs a position table"),
        ({"rotary": True, "hidden_size": 18}, "even width per head"),
        ({"absolute": "learnt"}, "absolute must be one of none, learned; got 'learnt'. Did you mean learned"),
        ({"relative_special": True}, "relative_special needs a relative bias"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be at least 1"),
        ({"position_size": 48, "absolute": "learned", "intermediate_size": 100}, "must be a multiple of 16"),
        ({"position_size": 48, "absolute": "learned", "rotary": True}, "rotary works on one stream"),
    ],
)
def test_wrong_fields_are_one_line_errors(fields, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace("[", r"\[")) as caught:
        ww.EncoderConfig(**fields)
    assert "\n" not in str(caught.value)


def test_unknown_preset_and_size_name_what_exists():
    with pytest.raises(ValueError, match="Unknown preset 'dsgt'. Did you mean dstg"):
        ww.preset("dsgt")
    with pytest.raises(ValueError, match="Sizes: tiny, small, paper"):
        ww.preset("dstg", "huge")


def test_config_survives_json(tmp_path):
    config = ww.preset("dstg", "tiny", vocab_size=77, residual="normalized", num_labels=3)
    config.save_pretrained(tmp_path)
    assert ww.EncoderConfig.from_pretrained(tmp_path).to_dict() == config.to_dict()


def test_only_a_position_stream_of_a_small_size_starts_wider():
    assert ww.preset("dstg", "tiny", embedding_initializer_range=0.03).position_initializer_range == pytest.approx(0.24)
    assert ww.preset("ap", "tiny", embedding_initializer_range=0.03).position_initializer_range == 0.03
    assert ww.preset("dstg").position_initializer_range == ww.preset("dstg").embedding_initializer_range == 0.02
    assert ww.preset("dstg", "tiny", position_initializer_range=0.5).position_initializer_range == 0.5
    model = ww.Encoder(ww.preset("dstg", "tiny", vocab_size=999, embedding_initializer_range=0.03))
    assert float(model.position_table().detach().std()) == pytest.approx(0.24, rel=0.1)
    assert float(model.word_embeddings.weight.detach().std()) == pytest.approx(0.03, rel=0.1)
