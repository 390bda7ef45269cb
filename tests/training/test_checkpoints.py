"""Checkpoints of a training: spaced as planned, whole or refused, and what a resumed training makes of them."""

import json
import shutil

import pytest
from loop_runs import config_of, windows_of

import whatwhere as ww
from whatwhere.corpus import Windows
from whatwhere.run.files import append_line
from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify
from whatwhere.training import checkpoints
from whatwhere.training.loop import Trainer
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig


@pytest.fixture(scope="module")
def windows(corpus_file, tmp_path_factory) -> Windows:
    return windows_of(corpus_file, tmp_path_factory.mktemp("windows"))


@pytest.mark.whole
def test_checkpoints_are_log_spaced(windows, corpus_file, tmp_path):
    """Checkpoints are log spaced and only the newest keep their optimizer."""
    config = config_of(corpus_file, steps=35, checkpoint_every=20)
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    found = list(checkpoints.checkpoint_folders(tmp_path / "run/checkpoints"))
    assert [p.name for p in found] == [f"step-{s}" for s in (0, 1, 3, 10, 20, 30, 35)]
    assert [(p / checkpoints.OPTIMIZER).exists() for p in found] == [False] * 5 + [True] * 2
    for folder in found:
        assert checkpoints.open_checkpoint(folder).step == int(folder.name.split("-")[1])
        assert ww.EncoderForMaskedLM.from_pretrained(folder).config.preset == "dstg"
    assert not [p for p in (tmp_path / "run").rglob(".*")]


@pytest.mark.whole
def test_truncated_checkpoints_are_skipped(windows, corpus_file, tmp_path, capsys):
    """Truncated checkpoint is passed over and the run ends the same."""
    config = config_of(corpus_file, steps=30, checkpoint_every=12)
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    expected = (tmp_path / "run/model.safetensors").read_bytes()
    (tmp_path / "run/model.safetensors").unlink()
    newest = tmp_path / "run/checkpoints/step-30/model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.raises(ValueError, match="model.safetensors is not as it was written"):
        checkpoints.open_checkpoint(newest.parent)
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    words = "A broken checkpoint is passed over, and removed as the training resumes"
    assert f"{words}: {newest} is not as it was written (hash mismatch).\n" in capsys.readouterr().err
    assert (tmp_path / "run/model.safetensors").read_bytes() == expected
    # Where no checkpoint was left whole, the training began again and removed them all.
    (tmp_path / "run/model.safetensors").unlink()
    for states in (tmp_path / "run/checkpoints").glob("*/optimizer.safetensors"):
        states.unlink()
    with pytest.raises(ValueError, match="No checkpoint of .* is whole.*Restore the files of step-30"):
        pretrain(config, tmp_path / "run", windows=windows, progress=False)
    assert (tmp_path / "run/checkpoints/step-24/model.safetensors").is_file()


def test_unneeded_lost_states_are_not_missed(windows, corpus_file, tmp_path):
    """Lost states that nobody needs any more are not missed."""
    # Their hash stayed when the others' were dropped, and `verify` named them for ever.
    config = config_of(corpus_file, steps=4, checkpoint_steps=[1, 2, 3])
    out = tmp_path / "run"
    pretrain(config, out, windows=windows, progress=False)
    shutil.rmtree(out / "checkpoints/step-4")
    for name in ("model.safetensors", "training.json"):
        (out / name).unlink()
    older = out / "checkpoints/step-2"
    append_line(older / MANIFEST, {"files": {checkpoints.OPTIMIZER: "of a file that is lost"}})
    assert verify(out)[1]
    pretrain(config, out, windows=windows, progress=False)
    assert checkpoints.OPTIMIZER not in RunFolder.at(older).listed_files() and not verify(out)[1]


@pytest.mark.whole
def test_a_broken_first_checkpoint_is_written_again(windows, corpus_file, tmp_path):
    # It stayed as it was, and nobody could hold the trained model against the untrained one.
    config = config_of(corpus_file, steps=3, checkpoint_steps=[0])
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    first = tmp_path / "run/checkpoints/step-0/model.safetensors"
    whole = first.read_bytes()
    (tmp_path / "run/model.safetensors").unlink()
    shutil.rmtree(tmp_path / "run/checkpoints/step-3")
    first.write_bytes(whole[:-100])
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    assert first.read_bytes() == whole


def test_checkpoint_of_another_model_is_refused(windows, corpus_file, tmp_path):
    pretrain(config_of(corpus_file, steps=3), tmp_path / "dstg", windows=windows, progress=False)
    config = config_of(corpus_file, steps=3, preset="ap")
    model = ww.EncoderForMaskedLM(config.encoder_config(windows))
    trainer = Trainer(model, config, 3)
    checkpoint, _ = checkpoints.newest_checkpoint(tmp_path / "dstg/checkpoints")
    with pytest.raises(ValueError, match="is of another model"):
        checkpoints.restore(checkpoint, model, trainer.optimizers)


@pytest.mark.whole
def test_full_disk_leaves_the_earlier_checkpoints_whole(windows, corpus_file, tmp_path, monkeypatch):
    config = config_of(corpus_file, steps=10)
    save = checkpoints.save_file
    calls = []

    def full(*arguments, **keywords):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return save(*arguments, **keywords)

    monkeypatch.setattr(checkpoints, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        pretrain(config, tmp_path / "run", windows=windows, progress=False)
    assert sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir()) == ["step-0", "step-1"]
    monkeypatch.setattr(checkpoints, "save_file", save)
    summary = pretrain(config, tmp_path / "run", windows=windows, progress=False)
    assert summary["steps"] == 10


def test_other_settings_are_refused_at_resume(windows, corpus_file, tmp_path):
    """Resume with other settings is refused and without a checkpoint starts."""
    config = config_of(corpus_file, steps=4)
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    assert pretrain(config, tmp_path / "run", windows=windows, progress=False)["steps"] == 4  # it is finished
    with pytest.raises(ValueError, match="started with learning_rate=0.004, this command has learning_rate=0.1. Run"):
        pretrain(
            config_of(corpus_file, steps=4, learning_rate=0.1),
            tmp_path / "run",
            windows=windows,
            progress=False,
        )
    with pytest.raises(ValueError, match="steps=4, this command has steps=5\\. Run it with only"):
        pretrain(config_of(corpus_file, steps=5), tmp_path / "run", windows=windows, progress=False)
    with pytest.raises(ValueError, match="steps=4, this command has steps=40\\."):
        pretrain(config_of(corpus_file, tokens=40 * 256), tmp_path / "run", windows=windows, progress=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and holds no pretrain run"):
        pretrain(config, tmp_path / "other", windows=windows, progress=False)
    assert (tmp_path / "other/notes.txt").read_text() == "mine"


@pytest.mark.whole
def test_saved_configuration_runs_again_to_the_same_weights(windows, corpus_file, tmp_path):
    pretrain(config_of(corpus_file, tokens=1500), tmp_path / "one", windows=windows, progress=False)
    again = PretrainConfig.load(tmp_path / "one/pretrain.yaml")
    assert again.steps == 6 and again.tokens is None  # 1500 tokens in batches of 8 × 32
    shutil.rmtree(tmp_path / "one/checkpoints")
    pretrain(again, tmp_path / "two", windows=windows, progress=False)
    assert (tmp_path / "one/model.safetensors").read_bytes() == (tmp_path / "two/model.safetensors").read_bytes()


@pytest.mark.whole
def test_damage_of_all_later_checkpoints_is_said(windows, corpus_file, tmp_path):
    """A training went back to step 0 without being asked to, and its days were gone."""
    config = config_of(corpus_file, steps=4, validate_every=2)
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    expected = (tmp_path / "run/log.jsonl").read_text().splitlines()
    for name in (
        "model.safetensors",
        "checkpoints/step-1/state.json",
        "checkpoints/step-3/state.json",
        "checkpoints/step-4/state.json",
    ):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(ValueError, match="Restore the files of step-4, or delete .*checkpoints to begin again"):
        pretrain(config, tmp_path / "run", windows=windows, progress=False)
    shutil.rmtree(tmp_path / "run/checkpoints")
    pretrain(config, tmp_path / "run", windows=windows, progress=False)
    steps = [json.loads(line)["step"] for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert steps == [json.loads(line)["step"] for line in expected]
