"""The terms of a comparison: what differs beside the position schemes is said once, what belongs to them is not."""

import pytest

from whatwhere.encoder import PRESETS, preset
from whatwhere.records.terms import rates, unequal
from whatwhere.training.pretrain_settings import PretrainConfig


def entry(name, kind=None, parameters=1_400_000, **settings):
    """A model as study.json has it; `model` among the settings are fields of its encoder."""
    training = PretrainConfig(preset=kind or name, **{"recipe": "dstg", "steps": 100, **settings})
    config = training.encoder_config().to_dict()
    dumped = training.model_dump(mode="json")
    summary = {"parameters": parameters}
    return {"name": name, "config": config, "training": dumped, "summary": summary}


def test_arithmetic_of_trainings_is_a_term():
    """`auto` chose bf16 on one machine and fp32 on another, and the page called the terms equal."""
    models = [entry("dstg"), entry("rope")]
    for model, precision in zip(models, ("bf16", "fp32"), strict=True):
        model["summary"]["precision"] = precision
    assert "precision (`dstg` bf16, `rope` fp32)" in unequal(models)
    models[1]["summary"]["precision"] = "bf16"
    assert "precision" not in unequal(models)
    again = {**models[0], "summary": {**models[0]["summary"], "precision": "fp32"}}
    assert "precision (`dstg` bf16 and fp32, `rope` bf16)" in unequal([*models, again])


def test_presets_of_a_block_differ_in_scheme_alone():
    waves = ["dstg", "dstg-waves"]  # they differ in the start of one table, which is their scheme, and is named
    assert "start of the table (`dstg` random, `dstg-waves` half-turn)" in unequal([entry(name) for name in waves])
    names = [name for name in PRESETS if preset(name).block == "neobert" and name != "dstg-waves"]
    assert unequal([entry(name) for name in names]) == ""
    assert rates([entry(name) for name in names]).startswith("Rates: one recipe for all models")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": {"residual": "stream"}}, "residual (`mine` stream, others normalized)"),
        ({"model": {"dropout": 0.1}}, "dropout (`mine` 0.1, others 0)"),
        ({"model": {"hidden_size": 240}}, "width (`mine` 240, others 120)"),
        ({"model": {"num_hidden_layers": 2}}, "layers (`mine` 2, others 4)"),
        ({"model": {"norm_eps": 1e-5}}, "epsilon of norms (`mine` 1e-05, others 1e-06)"),
        ({"parameters": 1_500_000}, "parameters (`mine` 7% more than `rope`)"),
        ({"mask_rate": 0.15}, "share of masked tokens (`mine` 0.15, others 0.2)"),
        ({"masking": "80-10-10"}, "masks (`mine` 80-10-10, others all)"),
        ({"join": "run-on"}, "join of rows (`mine` run-on, others none)"),
        ({"shift": False}, "shift of positions (`mine` no, others yes)"),
        ({"steps": 200}, "tokens (`mine` 819,200, others 409,600)"),
        ({"learning_rate": 1e-3}, "rates"),
        ({"table_learning_rate_scale": 3.0}, "rates"),
        ({"weight_decay": 1.0}, "rates"),
    ],
)
def test_each_difference_is_named_with_who_has_which_value(settings, said):
    found = unequal([entry("rope"), entry("dstg"), entry("ap"), entry("mine", "ap", **settings)])
    assert found == f"The models differ in more than their position schemes: {said}."


def test_starts_and_rates_are_compared_where_present():
    """A start and the rates of a part are compared where there is that part."""
    sines = {"model": {"table_start": "sinusoidal"}}
    assert unequal([entry("rope"), entry("dstg", **sines), entry("ap", **sines)]) == ""
    assert "start of the table (`dstg` sinusoidal, `ap` random)" in unequal([entry("dstg", **sines), entry("ap")])
    slow = {"bias_learning_rate_scale": 3.0}
    assert unequal([entry("rope"), entry("rp", **slow)]) == ""
    for other in ("rp", "fire", "transformer-xl", "dape"):  # biases of the last three are terms of words and distances
        assert "rates" in unequal([entry("dstg"), entry(other, **slow)])


def test_another_block_and_recipe_are_one_sentence():
    said = unequal([entry("dstg"), entry("ap"), entry("tupe-r", recipe="tupe")])
    for part in ("block (`tupe-r` bert, others neobert)", "width (`tupe-r` 128, others 120)", "masks (", "rates."):
        assert part in said
    assert said.count(". ") == 0


def test_rates_that_differ_are_named():
    slow = {"bias_learning_rate_scale": 3.0}
    by_hand = rates([entry("dstg", **slow), entry("rp"), entry("mine", "rp")])
    assert by_hand == "Rates: biases × (`dstg` 3, others 10)."
    assert rates([entry("dstg")]) == rates([{"name": "dstg"}, {"name": "ap"}]) == ""
    assert rates([entry("dstg"), entry("rp"), entry("ap")]).startswith("Rates: one recipe for all models; ")


def test_unrecorded_settings_are_not_compared():
    """What is not recorded is not compared and many models are counted."""
    assert unequal([]) == unequal([{"name": "a"}, {"name": "b", "config": 3, "training": []}]) == ""
    assert unequal([entry("dstg"), {"name": "old", "config": {"preset": "ap"}}]) == ""
    names = ["a", "b", "c", "d", "e"]
    mixed = [entry(n, "ap", model={"residual": "stream"}) for n in names] + [
        entry(f"{n}2", "ap") for n in [*names, "f"]
    ]
    assert "residual (`a`, `b`, `c` and 2 more stream, others normalized)" in unequal(mixed)
    seeds = [entry("ap"), {**entry("ap"), "seed": 1, "config": {"residual": "stream"}}]
    assert unequal(seeds) == ""  # a model is compared once, by its first training


def test_a_path_is_said_by_its_last_name(tmp_path):
    said = unequal([entry("ap"), entry("mine", "ap", model={"table_start": str(tmp_path / "half.npy")})])
    assert "`mine` half.npy" in said and str(tmp_path) not in said
