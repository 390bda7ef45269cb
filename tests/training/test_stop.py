"""Signals: a checkpoint of the step they come in, the way to go on, 130 or 143, and the same numbers afterwards."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fork_server
import pytest
from cli_runner import environment, sentences, settings, whatwhere
from run_files import losses

from whatwhere.run import signals as stop
from whatwhere.training import checkpoints
from whatwhere.training.loop import Trainer
from whatwhere.training.pretrain import pretrain
from whatwhere.training.pretrain_settings import PretrainConfig

pytestmark = pytest.mark.whole

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
RECIPE = settings("steps=24", "checkpoint_steps=[10]", "log_every=4", "validate_every=12", "model.dropout=0.1")


def steps_of(out: Path) -> list[int]:
    return [int(folder.name.removeprefix("step-")) for folder in checkpoints.checkpoint_folders(out / "checkpoints")]


def pretraining(out: Path, corpus: Path, *more: str) -> tuple[str, ...]:
    return ("pretrain", "--out", str(out), "--corpus", str(corpus), *RECIPE, *more)


@pytest.fixture(scope="module")
def whole(corpus_file, tmp_path_factory) -> Path:
    """A pretraining that nobody stopped."""
    out = tmp_path_factory.mktemp("whole") / "run"
    fork_server.command(*pretraining(out, corpus_file)).finish()
    return out


# Either signal, and one process and several; the other pairs at leisure.
PAIRS = [(*SIGNALS[0], 1), (*SIGNALS[1], 2)]
OTHERS = [pytest.param(*SIGNALS[0], 2, marks=pytest.mark.slow), pytest.param(*SIGNALS[1], 1, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("number", "status", "processes"), [*PAIRS, *OTHERS])
def test_a_stopped_training_resumes_to_equal_numbers(number, status, processes, whole, corpus_file, tmp_path):
    """A training that is stopped goes on to the same numbers."""
    out = tmp_path / "run"
    first = fork_server.command(*pretraining(out, corpus_file), count=processes, signalled=(6, number))
    assert first.statuses() == [status] * processes, first.printed()
    said = " ".join(first.printed().split())
    assert "stopping after this step" in said and "Traceback" not in said
    assert "stopped after step 6 of dstg seed 0, with a checkpoint. Give the same command again" in said
    assert steps_of(out) == [0, 6] and not (out / "model.safetensors").exists()
    fork_server.command(*pretraining(out, corpus_file), count=processes).finish()
    assert steps_of(out) == [0, 10, 24]  # what only the stop wanted is gone
    if processes == 1:
        assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        assert losses(out) == losses(whole)


def test_a_second_signal_ends_it_at_once(corpus_file, tmp_path):
    run = fork_server.command(
        *pretraining(tmp_path / "run", corpus_file), signalled=(6, signal.SIGTERM, signal.SIGTERM)
    )
    assert run.statuses() == [143] and steps_of(tmp_path / "run") == [0]


def test_a_fine_tuning_is_stopped_as_a_pretraining_is(whole, corpus_file, tmp_path):
    rows = [f"{line.split()[0]}\t{i % 2}" for i, line in enumerate(corpus_file.read_text().split("\n\n"))]
    table = tmp_path / "rows.tsv"
    table.write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    more = [a for s in ("length=32", "batch_size=8", "precision=fp32") for a in ("--set", s)]
    words = ("finetune", str(whole), "--out", str(tmp_path / "run"), "--data", str(table), "--dev", str(table))
    run = fork_server.command(*words, "--steps", "9", *more, signalled=(4, signal.SIGTERM))
    assert run.statuses() == [143] and steps_of(tmp_path / "run") == [0, 4], run.printed()
    assert "stopped after step 4" in run.printed()


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "status"), [SIGNALS[1], pytest.param(*SIGNALS[0], marks=pytest.mark.slow)]
)  # each starts two processes with all their imports
def test_every_training_process_of_a_study_writes_a_checkpoint(number, status, tmp_path):
    text = tmp_path / "corpus.txt"
    out = tmp_path / "study"
    text.write_text(sentences(300), encoding="utf-8")
    small = [
        *("length=32", "vocab_size=300", "workers=1", "at_once=2", "all_analyses=false", "training.batch_size=8"),
        *("training.model.num_hidden_layers=1", "training.checkpoint_steps=[0]"),
    ]
    words = ("study", "--out", str(out), "--corpus", str(text), "--models", "ap,nope", "--steps", "100000")
    run = fork_server.command(*words, *(a for s in small for a in ("--set", s)))
    folders = [out / f"models/{name}/seed-0" for name in ("ap", "nope")]
    run.wait_for(*(folder / "log.jsonl" for folder in folders))
    while not all(folder.joinpath("log.jsonl").read_text().count("tokens_per_second") for folder in folders):
        assert run.running(), run.printed()
        time.sleep(0.05)
    os.kill(run.processes[0].pid, number)
    assert run.statuses() == [status], run.printed()
    assert stop.STOPPING in run.printed() and "stopped. Give the same command" in run.printed()
    for folder in folders:
        first, last = steps_of(folder)
        assert first == 0 and last > 0 and checkpoints.open_checkpoint(folder / f"checkpoints/step-{last}").step == last


STARTING = """
import os, sys, time, importlib.abc
from whatwhere.cli import main
class Waits:  # an import that takes long, as torch's does
    def find_spec(self, name, path, target=None):
        if name == "torch":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Waits())
sys.argv = ["whatwhere", "doctor"]
main()
"""


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_during_imports_is_one_line(number, status):
    def default() -> None:  # a shell starts jobs in the background with SIGINT ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)

    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "preexec_fn": default}
    started = subprocess.Popen([sys.executable, "-c", STARTING], env=environment(), **pipes)
    assert started.stdout.readline() == "importing\n"
    started.send_signal(number)
    _, said = started.communicate(timeout=fork_server.LONGEST)
    assert (started.returncode, said.split("\n")) == (status, ["", "whatwhere: stopped.", ""])


STOPPED_TWICE = """
import atexit, os, signal, time
from whatwhere import cli
from whatwhere.run.signals import Stopped
def interrupt():
    os.kill(os.getpid(), int(os.environ["NUMBER"]))
    time.sleep(60)
def run():
    try:
        interrupt()
    except Stopped:
        return cli._stopped("")
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(interrupt)  # as the functions of thread pools, which wait for their threads
cli._run = run
cli.main()
"""


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_second_signal_at_the_end_prints_no_traceback(number, status):
    """Python's own handling had come back before the functions that it runs at the end of a process."""
    env = {**environment(), "NUMBER": str(int(number))}
    ended = subprocess.run([sys.executable, "-c", STOPPED_TWICE], env=env, capture_output=True, text=True, timeout=50)
    assert ended.returncode == status
    assert "Traceback" not in ended.stderr and ended.stderr.endswith("\nwhatwhere: stopped.\n")


def test_timed_checkpoints_go_with_the_next(corpus_file, tmp_path, monkeypatch):
    """A checkpoint after so many minutes is gone with the next."""
    values = {"length": 32, "vocab_size": 300, "batch_size": 8, "workers": 1, "model": {"num_hidden_layers": 1}}
    values |= {"corpus": str(corpus_file), "steps": 6, "checkpoint_steps": [4], "checkpoint_minutes": 1e-9}
    seen = []
    take = Trainer.take_step
    monkeypatch.setattr(Trainer, "take_step", lambda *given: (seen.append(steps_of(tmp_path / "run")), take(*given))[1])
    pretrain(PretrainConfig.parse(values), tmp_path / "run", progress=False)
    assert seen == [[0], [0, 1], [0, 2], [0, 3], [0, 4], [0, 4, 5]] and steps_of(tmp_path / "run") == [0, 4, 6]


def test_programs_keep_their_own_handlers(corpus_file, tmp_path):
    """A program that uses the package keeps its own handlers."""
    before = [signal.getsignal(number) for number, _ in SIGNALS]
    assert whatwhere("presets").returncode == 0 and [signal.getsignal(number) for number, _ in SIGNALS] == before
    assert stop.stop_signal() is None
