"""How far a run is, from its files alone."""

import json
import time

import pytest
from cli_runner import whatwhere

from whatwhere.evaluation.benchmark import Trial
from whatwhere.run.files import append_line, read_lines, write_text
from whatwhere.run.folder import RunFolder
from whatwhere.run.lock import lock
from whatwhere.run.status import is_finished, run_status, status_text

LINE = {"step": 20, "tokens": 2000, "loss": 4.5, "tokens_per_second": 50.0, "waiting": 0.3, "peak_memory_bytes": 7}


def begun(folder):
    """A training at step 20 of 100."""
    write_text(folder / "pretrain.yaml", "steps: 100\npreset: dstg\n")
    append_line(folder / "log.jsonl", {"step": 0, "validation_loss": 6.0})
    append_line(folder / "log.jsonl", LINE)
    (folder / "checkpoints/step-10").mkdir(parents=True)
    return folder


def test_a_training_that_runs_tells_how_far_it_is(tmp_path):
    run = begun(tmp_path / "run")
    (found,) = run_status(run)
    assert found["state"] == "stopped" and found["writer"] is None and found["checkpoint"] == 10
    with lock(run):
        (found,) = run_status(run)
    assert found["state"] == "running" and found["writer"]
    assert (found["step"], found["steps"], found["loss"], found["validation_loss"]) == (20, 100, 4.5, 6.0)
    assert found["seconds_left"] == pytest.approx(80 * 100 / 50)
    assert found["trouble"] == ["30% of its time it waits for batches: the disk or the processor is too slow"]
    said = status_text([found])
    assert (
        "validation loss 6.000 at step 0" in said
        and "step 20 of 100" in said
        and "3 min left" in said
        and "50 tokens/s" in said
    )


def test_a_stopped_training_is_at_its_newest_checkpoint(tmp_path):
    """It saves a step that it has not logged, and status named two steps."""
    run = begun(tmp_path / "run")
    (run / "checkpoints/step-29").mkdir()
    (found,) = run_status(run)
    assert (found["step"], found["checkpoint"]) == (29, 29)
    assert found["seconds_left"] == pytest.approx(71 * 100 / 50)


def test_troubles_of_a_training_are_named(tmp_path, monkeypatch):
    """A loss of nan, a dump of numbers that are not finite and a silent log are named."""
    run = begun(tmp_path / "run")
    append_line(run / "log.jsonl", LINE | {"step": 30, "loss": float("nan")})
    write_text(run / "not-finite-0.npz", "")
    clock = time.time() + 600
    monkeypatch.setattr(time, "time", lambda: clock)  # as after a jump of the clock, too
    with lock(run):
        trouble = run_status(run)[0]["trouble"]
    assert trouble[0] == "its loss is nan" and trouble[1].endswith("not-finite-0.npz")
    assert trouble[2] == "nothing was logged for 10 minutes"


def test_a_loss_without_end_is_told_as_trouble(tmp_path):
    append_line(begun(tmp_path / "run") / "log.jsonl", LINE | {"step": 30, "loss": float("inf")})
    assert run_status(tmp_path / "run")[0]["trouble"][0] == "its loss is inf"


def test_a_loss_of_zero_is_shown(tmp_path):
    """A loss of 0.0 was left out of the line, as if none had been logged."""
    run = begun(tmp_path / "run")
    append_line(run / "log.jsonl", LINE | {"step": 30, "loss": 0.0})
    append_line(run / "log.jsonl", {"step": 30, "validation_loss": 0.0})
    assert "loss 0.000, validation loss 0.000 at step 30" in status_text(run_status(run))


def test_seeds_that_are_no_number_are_named(tmp_path):
    """The message said "must be a int"."""
    write_text(tmp_path / "s/study.yaml", "models: [dstg]\nseeds: two\n")
    with pytest.raises(ValueError, match="seeds must be a whole number; got two"):
        run_status(tmp_path / "s")


def test_status_counts_models_and_trials(tmp_path):
    """A study counts its models and an evaluation its trials."""
    write_text(tmp_path / "s/study.yaml", "models: [dstg, ap]\nseeds: 2\nsteps: 5\n")
    begun(tmp_path / "s/models/dstg/seed-0")
    done = begun(tmp_path / "s/models/ap/seed-0")
    write_text(done / "model.safetensors", "{}")
    write_text(done / "training.json", '{"seconds": 3.5}')
    found = run_status(tmp_path / "s")
    assert (found[0]["models"], found[0]["finished"], found[0]["state"]) == (4, 1, "stopped")
    assert {each["state"] for each in found[1:]} == {"finished", "stopped"}
    with lock(tmp_path / "s"):  # a training that a study had not come to yet was called stopped
        assert sorted(each["state"] for each in run_status(tmp_path / "s")) == ["finished", "queued", "running"]
    with RunFolder.open(tmp_path / "e", "squad") as run:
        run.write("squad.yaml", {"models": ["a"]})
        Trial("a", "a", False, "squad", seed=0).write(tmp_path / "e", {}, answers={}, spans={})
        (evaluation,) = run_status(tmp_path / "e")
        assert (evaluation["trials"], evaluation["state"]) == (1, "running")
    assert run_status(tmp_path / "e")[0]["state"] == "stopped"
    # With results it was finished, whatever was left out or asked for since.
    with RunFolder.open(tmp_path / "e", "squad") as run:
        settings = run.hash_of("squad.yaml")
        run.mark_done("results", inputs={"settings": settings}, outcome={"unfinished": 0})
    assert run_status(tmp_path / "e")[0]["state"] == "finished"
    with RunFolder.open(tmp_path / "e", "squad") as run:
        run.mark_done("results", inputs={"settings": settings}, outcome={"unfinished": 2})
    assert run_status(tmp_path / "e")[0]["state"] == "stopped"
    with RunFolder.open(tmp_path / "e", "squad") as run:
        run.mark_done("results", inputs={"settings": settings}, outcome={"unfinished": 0})
        run.write("squad.yaml", {"models": ["a", "b"]})
    assert run_status(tmp_path / "e")[0]["state"] == "stopped"


def test_evaluations_of_all_are_listed(tmp_path):
    """`evaluate all` had one line without a number of trials, which are in the folders inside."""
    with RunFolder.open(tmp_path / "a", "all") as run:
        run.write("all.yaml", {"models": ["a"]})
        with RunFolder.open(run.path / "squad", "squad") as inner:
            inner.write("squad.yaml", {"models": ["a"]})
            Trial("a", "a", False, "squad", seed=0).write(inner.path, {}, answers={}, spans={})
        (run.path / "other").mkdir()  # no run
        found = run_status(run.path)
    told = [(each["kind"], each["state"], each.get("trials")) for each in found]
    assert told == [("all", "running", None), ("squad", "stopped", 1)]
    assert f"{tmp_path / 'a/squad'}: squad, stopped, 1 trials finished" in status_text(found)


def test_the_verb_and_a_folder_without_a_run(tmp_path):
    done = whatwhere("status", str(begun(tmp_path / "run")), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)[0]["step"] == 20
    done = whatwhere("status", str(tmp_path))
    assert done.returncode == 2 and "There is no run in" in done.stderr
    write_text(tmp_path / "bad/pretrain.yaml", "steps: [")
    done = whatwhere("status", str(tmp_path / "bad"))
    assert done.returncode == 2 and "pretrain.yaml is not valid YAML" in done.stderr


def test_a_torn_log_line_is_skipped(tmp_path):
    """A torn line of a log costs that line alone."""
    # One torn line in a study's log.jsonl blocked it for ever.
    log = tmp_path / "log.jsonl"
    append_line(log, {"a": 1})
    with log.open("ab") as file:
        file.write(b'{"a": 2, "b')
    append_line(log, {"a": 3})
    assert [line["a"] for line in read_lines(log)] == [1, 3]
    assert read_lines(tmp_path / "none") == []


def test_a_sharded_model_counts_as_finished(tmp_path):
    """A model of several safetensors files never counted as finished, so that its training was done again."""
    (tmp_path / "training.json").write_text("{}")
    shards = [tmp_path / f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for path in (shards[0], tmp_path / "model.safetensors.index.json"):
        path.write_text("{}")
    assert not is_finished(tmp_path)  # one of two
    shards[1].write_text("")
    assert is_finished(tmp_path)
    shards[1].rename(tmp_path / "model-00003-of-00002.safetensors")
    assert not is_finished(tmp_path)
