"""What a training makes of checkpoints and lines of its log that were damaged or lost."""

import shutil

import pytest
from cli_runner import whatwhere

from whatwhere.analysis.record_context import RecordContext
from whatwhere.corpus import Windows
from whatwhere.run.files import append_line
from whatwhere.run.verify import verify
from whatwhere.study.training_records import training_records
from whatwhere.training import checkpoints
from whatwhere.training.corpus_settings import prepare_windows
from whatwhere.training.loop import Trainer
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig

SETTINGS = {"length": 32, "vocab_size": 300, "batch_size": 8, "workers": 1, "precision": "fp32", "steps": 30}
SETTINGS |= {"model": {"num_hidden_layers": 1}, "log_every": 5, "checkpoint_steps": [12, 20], "checkpoint_every": 100}


@pytest.fixture(scope="module")
def asked(corpus_file) -> PretrainConfig:
    return PretrainConfig.parse({**SETTINGS, "corpus": str(corpus_file)})


@pytest.fixture(scope="module")
def windows(asked, tmp_path_factory) -> Windows:
    return prepare_windows(asked, tmp_path_factory.mktemp("windows") / "corpus", progress=False)


@pytest.fixture(scope="module")
def once(asked, windows, tmp_path_factory):
    """A run all of whose checkpoints but the first are whole, its last step not saved as a model."""
    out = tmp_path_factory.mktemp("once") / "run"
    pretrain(asked, out, windows=windows, progress=False)
    for name in ("model.safetensors", "training.json"):
        (out / name).unlink()
    return out


@pytest.fixture
def trained(once, tmp_path):
    """A copy of that run, to be damaged."""
    return shutil.copytree(once, tmp_path / "run")


def damage(folder) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"1234")


@pytest.mark.whole
def test_what_is_written_after_broken_checkpoints_stays(asked, windows, trained, monkeypatch):
    """A training without a whole checkpoint is refused, and begins again once its checkpoints are deleted."""
    # The broken ones counted as the newest two: each new one lost its optimizer, and every call began at step 0.
    for step in (20, 30):
        damage(trained / f"checkpoints/step-{step}")
    with pytest.raises(ValueError, match="Restore the files of step-30, or delete .*checkpoints to begin again"):
        pretrain(asked, trained, windows=windows, progress=False)
    shutil.rmtree(trained / "checkpoints")
    real = Trainer.take_step

    def killed(self, number, batches):
        if number == 15:
            raise KeyboardInterrupt
        return real(self, number, batches)

    monkeypatch.setattr(Trainer, "take_step", killed)
    with pytest.raises(KeyboardInterrupt):
        pretrain(asked, trained, windows=windows, progress=False)
    newest, broken = checkpoints.newest_checkpoint(trained / "checkpoints")
    assert newest is not None and newest.step == 12 and not broken
    monkeypatch.setattr(Trainer, "take_step", real)
    assert pretrain(asked, trained, windows=windows, progress=False)["steps"] == 30


def test_a_lost_log_is_said_and_stops_no_run(asked, windows, trained, capsys):
    # IndexError in the summary, at every try.
    expected = pretrain(asked, shutil.copytree(trained, trained.with_name("whole")), windows=windows, progress=False)
    (trained / "log.jsonl").unlink()
    summary = pretrain(asked, trained, windows=windows)
    assert summary["tokens_per_second"] is None and summary["validation_loss"] == expected["validation_loss"]
    assert (
        "log.jsonl has no lines up to step 30. Restore it, or accept curves that begin after step 30."
        in capsys.readouterr().err
    )
    assert "not known: the log of the training was lost" in (trained / "README.md").read_text()


@pytest.mark.parametrize("line", [{"step": "4"}, {"step": 4, "loss": "x"}, {"step": 4, "loss": None, "tokens": [1]}])
def test_a_line_that_no_training_wrote_is_named(line, asked, windows, trained):
    append_line(trained / "log.jsonl", {"event": "of another program"})  # of no step: it is passed over
    append_line(trained / "log.jsonl", line)
    with pytest.raises(ValueError, match=r"log.jsonl: (step|loss|tokens) must be a .*number; got .*Delete that line"):
        pretrain(asked, trained, windows=windows, progress=False)
    said = whatwhere("status", str(trained))
    assert said.returncode == 2 and "Delete that line" in said.stderr


def test_the_log_of_a_finished_training_is_covered(asked, windows, trained):
    # A digit of it gave another loss curve, with status 0.
    pretrain(asked, trained, windows=windows, progress=False)
    log = trained / "log.jsonl"
    log.write_text(log.read_text().replace('"loss": ', '"loss": 1', 1))
    assert verify(trained)[1] == [f"{log} is not as it was written (hash mismatch)"]
    with pytest.raises(ValueError, match="log.jsonl is not as it was written"):
        training_records(trained, RecordContext("m", 0))
