"""What presets of a block share, and configurations that were saved before a key or a value of it was there."""

import whatwhere as ww
from whatwhere.encoder import registry


def test_all_presets_of_a_block_add_in_one_way():
    """So that a study compares position schemes alone; any preset may be told otherwise."""
    assert not [name for name, fields in registry.PRESETS.items() if "residual" in fields]
    for block, residual in {"neobert": "normalized", "bert": "stream"}.items():
        assert {ww.preset(name, block=block).residual for name in registry.PRESETS} == {residual}
    assert {ww.preset(name, block="neobert", residual="stream").residual for name in registry.PRESETS} == {"stream"}


def test_configurations_without_a_residual_keep_theirs(tmp_path):
    """Every configuration of before says "normalized" or nothing, and nothing was "stream"."""
    for residual in ("stream", "normalized"):
        saved = ww.preset("ap", "tiny", residual=residual)
        saved.save_pretrained(tmp_path / residual)
        assert ww.EncoderConfig.from_pretrained(tmp_path / residual).residual == residual
    assert ww.EncoderConfig(block="neobert").residual == "stream"
