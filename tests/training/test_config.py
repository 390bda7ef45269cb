"""Strict configurations: unknown keys, wrong values and clashes are one-line errors; what is saved loads equal."""

import pytest

from whatwhere.training.pretrain import RECIPES, PretrainConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["lenght=64"], "Unknown configuration key 'lenght'. Did you mean length?"),
        (["steps"], "--set takes key=value; got 'steps'"),
        (["steps=0"], "steps: Input should be greater than or equal to 1; got 0"),
        (["batch_size=many"], "batch_size: .*valid integer.*got 'many'"),
        (["optimizer=sgd"], "optimizer: .*'adamw' or 'muon'; got 'sgd'"),
        (["steps=3", "minutes=2"], "Give one budget of steps, tokens, minutes; got steps and minutes"),
        (["steps=1", "steps.more=3"], "steps is a single value"),
        (["model=3"], "model: .*dictionary; got 3"),
    ],
)
def test_wrong_settings_are_one_line_errors(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        PretrainConfig.load(None, settings)
    assert "\n" not in str(caught.value)


def test_settings_override_values_override_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("preset: ap\nlearning_rate: 1.0e-3\nsteps: 5\nmodel: {dropout: 0.1}\n")
    config = PretrainConfig.load(path, ["learning_rate=4e-3", "model.norm_eps=1e-5"], preset="rope", size=None)
    assert (config.preset, config.learning_rate, config.steps) == ("rope", 4e-3, 5)
    assert config.model == RECIPES["tiny"]["model"] | {"dropout": 0.1, "norm_eps": 1e-5}


def test_saved_configuration_loads_equal(tmp_path):
    config = PretrainConfig.load(None, ["size=paper", "tokens=1000000", "betas=[0.9, 0.98]"])
    config.save(tmp_path / "c.yaml")
    assert PretrainConfig.load(tmp_path / "c.yaml") == config
    assert (config.length, config.batch_size, config.tokenizer) == (512, 256, "bert-base-uncased")


@pytest.mark.parametrize(("text", "message"), [("a: [", "not valid YAML"), ("- 1", "`key: value` lines; got list")])
def test_broken_files_are_errors(tmp_path, text, message):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        PretrainConfig.load(tmp_path / "c.yaml")
    with pytest.raises(ValueError, match="No configuration file"):
        PretrainConfig.load(tmp_path / "none.yaml")
