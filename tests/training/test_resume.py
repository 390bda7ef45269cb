"""A run killed at any moment resumes to the same numbers, bit for bit: weights, losses, loader and random
generators."""

import json
import subprocess
from pathlib import Path

import fork_server
import pytest
from cli_runner import command, environment, settings
from run_files import losses

# Dropout makes the run depend on the random generators; checkpoints fall between log lines on purpose.
RECIPE = settings(
    "steps=18", "checkpoint_every=5", "log_every=4", "validate_every=12", "model.dropout=0.1", "accumulate=2"
)


def of_the_server(arguments: tuple[str, ...], processes: int) -> None:
    fork_server.command(*arguments, count=processes).finish()


def of_the_launcher(arguments: tuple[str, ...], processes: int) -> None:
    done = subprocess.run(
        command(*arguments, processes=processes), env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("processes", "whole_by"),
    [
        (1, of_the_server),
        pytest.param(2, of_the_server, marks=pytest.mark.long),
        pytest.param(2, of_the_launcher, marks=pytest.mark.slow),
    ],
)
def test_killed_twice_and_resumed_equals_one_run(processes, whole_by, corpus_file, tmp_path):
    whole = tmp_path / "whole"
    broken = tmp_path / "broken"

    def arguments(out: Path, *extra: str) -> tuple[str, ...]:
        return ("pretrain", "--out", str(out), "--corpus", str(corpus_file), *RECIPE, *extra)

    whole_by(arguments(whole), processes)
    assert json.loads((whole / "training.json").read_text())["processes"] == processes
    first = fork_server.command(*arguments(broken), count=processes, held_before=14)
    first.kill_after(broken / "checkpoints/step-10")
    second = fork_server.command(*arguments(broken), count=processes, held_before=9)
    second.kill_after(broken / "checkpoints/step-15")
    assert not (broken / "model.safetensors").exists()
    fork_server.command(*arguments(broken), count=processes).finish()
    assert (whole / "model.safetensors").read_bytes() == (broken / "model.safetensors").read_bytes()
    assert losses(whole) == losses(broken)
    assert {p.name for p in (whole / "checkpoints").iterdir()} == {p.name for p in (broken / "checkpoints").iterdir()}
    before = (broken / "model.safetensors").stat().st_mtime_ns
    fork_server.command(*arguments(broken)).finish()  # a finished run is left alone
    assert (broken / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.long
def test_two_processes_learn_what_one_does(corpus_file, tmp_path):
    """Two processes learn what one does and another number goes on."""

    # The same windows in the same order whatever the number of processes; sums of gradients round in another order.
    # One that was added had no random state to go on with (KeyError).
    def arguments(out: Path) -> tuple[str, ...]:
        without = settings("model.dropout=0", "precision=fp32", "checkpoint_every=5", "log_every=1", "steps=20")
        return ("pretrain", "--out", str(out), "--corpus", str(corpus_file), *RECIPE, *without)

    curves = {}
    for name, counts in (("one", (1,)), ("two", (2,)), ("one, then two", (1, 2)), ("two, then one", (2, 1))):
        out = tmp_path / name
        if len(counts) > 1:
            first = fork_server.command(*arguments(out), count=counts[0], held_before=14)
            first.kill_after(out / "checkpoints/step-10/manifest.jsonl")
        fork_server.command(*arguments(out), count=counts[-1]).finish()
        curves[name] = [line["loss"] for line in losses(out) if "loss" in line]
    assert len(curves["one"]) == 20 and curves["one"][-1] < curves["one"][0] - 0.3
    for name, curve in curves.items():
        assert curve == pytest.approx(curves["one"], rel=2e-4), name
