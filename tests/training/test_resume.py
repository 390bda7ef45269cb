"""A run killed at any moment resumes to the same numbers, bit for bit: weights, losses, loader and random
generators."""

import json
import subprocess
import time

import psutil
import pytest
from cli_runner import command, environment, settings

# Dropout makes the run depend on the random generators; checkpoints fall between log lines on purpose.
RECIPE = settings(
    "steps=60", "checkpoint_every=7", "log_every=5", "validate_every=20", "model.dropout=0.1", "accumulate=2"
)


def start(corpus, out, processes, *extra):
    arguments = ("pretrain", "--out", str(out), "--corpus", str(corpus), *RECIPE, *extra)
    return subprocess.Popen(
        command(*arguments, processes=processes), env=environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )


def finish(process):
    _, errors = process.communicate(timeout=170)
    assert process.returncode == 0, errors.decode()[-2000:]


def kill_after(process, checkpoint):
    """kill -9 of all processes of the run as soon as the checkpoint is there."""

    deadline = time.monotonic() + 120
    while not checkpoint.exists():
        assert process.poll() is None, process.communicate()[1].decode()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.002)
    launcher = psutil.Process(process.pid)
    for one in [*launcher.children(recursive=True), launcher]:  # the launcher's workers are sessions of their own
        one.kill()
    process.communicate()


def losses(out):
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]


@pytest.mark.parametrize("processes", [1, 2])
def test_killed_twice_and_resumed_equals_one_run(processes, corpus_file, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(corpus_file, whole, processes))
    kill_after(start(corpus_file, broken, processes), broken / "checkpoints/step-14")
    kill_after(start(corpus_file, broken, processes, "--resume"), broken / "checkpoints/step-35")
    assert not (broken / "model.safetensors").exists()
    finish(start(corpus_file, broken, processes, "--resume"))
    assert (whole / "model.safetensors").read_bytes() == (broken / "model.safetensors").read_bytes()
    assert losses(whole) == losses(broken)
    assert {p.name for p in (whole / "checkpoints").iterdir()} == {p.name for p in (broken / "checkpoints").iterdir()}
    before = (broken / "model.safetensors").stat().st_mtime_ns
    finish(start(corpus_file, broken, processes, "--resume"))  # a finished run is left alone
    assert (broken / "model.safetensors").stat().st_mtime_ns == before
