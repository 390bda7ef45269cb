"""What presets of a block share, and configurations that were saved before a key or a value of it was there."""

import json

import whatwhere as ww
from whatwhere.encoder import registry


def test_all_presets_of_a_block_add_in_one_way():
    """So that a study compares position schemes alone; any preset may be told otherwise."""
    assert not [name for name, fields in registry.PRESETS.items() if "residual" in fields]
    for block, residual in {"neobert": "normalized", "bert": "stream"}.items():
        assert {ww.preset(name, block=block).residual for name in registry.PRESETS} == {residual}
    assert {ww.preset(name, block="neobert", residual="stream").residual for name in registry.PRESETS} == {"stream"}


def test_a_saved_configuration_without_a_residual_is_what_it_was_trained_with(tmp_path):
    """Every configuration of before says "normalized" or nothing, and nothing was "stream"."""
    for residual in ("stream", "normalized"):
        saved = ww.preset("ap", "tiny", residual=residual)
        saved.save_pretrained(tmp_path / residual)
        assert ww.EncoderConfig.from_pretrained(tmp_path / residual).residual == residual
    assert ww.EncoderConfig(block="neobert").residual == "stream"


def test_special_values_of_older_configurations_were_shared_or_none(tmp_path):
    for before, now in ((True, "shared"), (False, "none")):
        config = ww.EncoderConfig(relative="t5", relative_special=before)
        assert config.relative_special == now
        config.save_pretrained(tmp_path)
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "relative_special": before}))
        assert ww.EncoderConfig.from_pretrained(tmp_path).relative_special == now
