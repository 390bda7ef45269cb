"""Keys of config.json that no field has: kept in a folder, refused where a person types them."""

import copy
import json

import pytest
import torch
from encoder_models import config, inputs
from transformers import AutoConfig, AutoModel

import whatwhere as ww

NOTES = {
    "finetuned_by": "somebody",
    "quantization_config": {"quant_method": "torchao", "bits": 8},
    "is_decoder": False,
    "positon_size": 3,
    "scale": 7,  # the name of a property
}


def test_unknown_keys_of_a_folder_are_kept(tmp_path):
    """Keys that others leave in config.json stay through load and save, and change nothing.

    A folder with any such key did not open.
    """
    own = config("dstg")
    own.save_pretrained(tmp_path / "one")
    saved = json.loads((tmp_path / "one/config.json").read_text())
    (tmp_path / "one/config.json").write_text(json.dumps(saved | NOTES))
    read = AutoConfig.from_pretrained(tmp_path / "one")
    assert type(read) is ww.EncoderConfig and read.position_size == 8 and read.score_scale == own.score_scale
    assert read.finetuned_by == "somebody" and read.quantization_config == NOTES["quantization_config"]
    copy.deepcopy(read).save_pretrained(tmp_path / "two")
    assert json.loads((tmp_path / "two/config.json").read_text()) == saved | NOTES


@pytest.mark.parametrize("value", [None, {"type": "linear", "factor": 2.0}])
def test_old_names_of_fields_we_lack_change_nothing(value, tmp_path):
    """`rope_scaling`, a property of transformers that reads another field, was kept, and the model did not save."""
    model = ww.Encoder(config("rope")).eval()
    model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(saved | {"rope_scaling": value}))
    again = AutoModel.from_pretrained(tmp_path)
    again.save_pretrained(tmp_path / "again")
    ids = inputs("plain")["input_ids"]
    assert torch.equal(again(ids).last_hidden_state, model(ids).last_hidden_state)


def test_a_noted_model_opens_again(tmp_path):
    """A model whose config was written to saves, opens and predicts as before."""
    model = ww.Encoder(config("dstg")).eval()
    model.config.finetuned_by = "somebody"
    model.save_pretrained(tmp_path)
    again = ww.Encoder.from_pretrained(tmp_path)
    assert again.config.finetuned_by == "somebody"
    ids = inputs("plain")["input_ids"]
    assert torch.equal(again(ids).last_hidden_state, model(ids).last_hidden_state)


def test_typed_keys_are_refused_as_before():
    """A key that a person gives to the class or to a preset is checked, whatever folders may hold."""
    for make in (ww.EncoderConfig, lambda **fields: ww.preset("dstg", "tiny", **fields)):
        for key, value in NOTES.items():
            with pytest.raises(ValueError, match=f"EncoderConfig has no field '{key}'"):
                make(**{key: value})


SHAPE = {"absolute": "sinusoidal", "position_draws": "shape", "draw_shift": 9.0}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rotation": "rope", "rotation_share": 0.0}, "rotation_share must be above 0 and at most 1; got 0.0"),
        ({"rotation": "rope", "rotation_share": float("nan")}, "rotation_share must be above 0 and at most 1; got nan"),
        ({"rotation_share": 0.5}, "rotation_share=0.5 needs a rotation: set rotation=rope, or rotation_share=1"),
        ({"rope_theta": 5e5}, "rope_theta=500000.0 needs a rotation: set rotation=rope, or rope_theta=10000"),
        ({"rotation": "rope", "xpos_scale_base": 64.0}, "xpos_scale_base needs rotation=xpos; got xpos_scale_base=64"),
        ({"rotation": "xpos", "xpos_scale_base": 0.0}, "xpos_scale_base must be above 0 and finite; got 0.0"),
        ({"norm_eps": float("inf")}, "norm_eps must be above 0 and finite; got inf"),
        ({"relative": "alibi", "alibi_slopes": [True, 0.5]}, "alibi_slopes must be a list of numbers"),
        ({"absolute": "learned", "position_draws": "shape", "draw_shift": 9.0}, "needs a table by a formula"),
        ({"absolute": "learned", "draw_shift": 9.0}, "draw_shift=9 has no use with position_draws=none"),
        (
            {"absolute": "sinusoidal", "position_draws": "shape"},
            "draw_shift, a whole number of positions of at least 1",
        ),
        ({**SHAPE, "draw_shift": 2.5}, "draw_shift, a whole number of positions of at least 1; got 2.5"),
        ({**SHAPE, "draw_scale": 2.0}, "draw_scale=2 has no use with position_draws=shape"),
        ({**SHAPE, "relative": "t5"}, "position_draws=shape needs positions in the table alone; got relative=t5"),
        ({**SHAPE, "position_draws": "cape", "draw_scale": 0.5}, "draw_scale at least 1; got 9, 0, 0.5"),
        ({"input_kernel": 4}, "input_kernel must be 0 or an odd number of taps from 3; got 4"),
        ({"input_kernel": -3}, "input_kernel must be 0 or an odd number of taps from 3; got -3"),
        ({"position_size": 48, "absolute": "learned", "input_kernel": 5}, "input_kernel works on one stream"),
    ],
)
def test_options_of_other_schemes_are_refused(fields, message):
    """An option of one scheme given to another, or out of its range, is refused in one line."""
    with pytest.raises(ValueError) as caught:
        ww.EncoderConfig(**fields)
    assert message in str(caught.value) and "\n" not in str(caught.value)
