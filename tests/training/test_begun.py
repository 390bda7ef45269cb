"""A training that is stopped before its first step, at any change of the file system, goes on by its own words, and
what is the same run."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from cli_runner import sentences, whatwhere

from whatwhere.corpus import Windows, build, open_source
from whatwhere.corpus.tokenizer import unit_tokenizer
from whatwhere.models.open import check_folder
from whatwhere.run.folder import RunFolder
from whatwhere.study.study import run_study
from whatwhere.study.study_settings import StudyConfig
from whatwhere.training import finetune, pretrain
from whatwhere.training.corpus_settings import prepare_windows
from whatwhere.training.divergence import NotFiniteError, timing_message
from whatwhere.training.finetune import FinetuneConfig
from whatwhere.training.loop import Trainer
from whatwhere.training.pretrain_settings import PretrainConfig

SMALL = {"length": 32, "tokenizer": "characters", "batch_size": 8, "workers": 1, "model": {"num_hidden_layers": 1}}
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")


class Stops:
    """Stops the process just before its k-th change of the file system below a folder, as Ctrl-C does."""

    def __init__(self) -> None:
        self.left = -1
        self.place = ""
        sys.addaudithook(self._see)  # for ever: it does nothing unless it is asked

    def _see(self, event: str, arguments: tuple) -> None:
        if self.left < 0 or not (event in CHANGES or (event == "open" and _writes(arguments))):
            return
        if os.fspath(arguments[0]).startswith(self.place) if isinstance(arguments[0], str | Path) else False:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt

    def before(self, change: int, place: Path) -> None:
        self.left = change
        self.place = str(place)


def _writes(arguments: tuple) -> bool:
    mode = arguments[1]
    flags = arguments[2]
    return any(sign in mode for sign in "wax+") if isinstance(mode, str) else bool(flags & (os.O_WRONLY | os.O_RDWR))


class Trained(Exception):
    """The first step is reached."""


@pytest.fixture
def stops() -> Iterator[Stops]:
    made = Stops()
    yield made
    made.left = -1


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "corpus.txt"
    path.write_text(sentences(80), encoding="utf-8")
    return path


def stopped_at_changes(stops: Stops, folder: Path, call, first: int = 0, apart: int = 1) -> int:
    """Count the changes until `call(out)` begins to train; stopped before one of them, it begins when called again."""
    with mock.patch.object(Trainer, "fit", side_effect=Trained):
        for change in range(first, 200, apart):
            out = folder / str(change)
            stops.before(change, out)
            try:
                call(out)
            except KeyboardInterrupt:
                stops.left = -1
                with pytest.raises(Trained):
                    call(out)
            except Trained:
                stops.left = -1
                return change
    raise AssertionError("it never begins")


# Every fifth change; the others at leisure.
@pytest.mark.whole
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(1, 5))])
def test_a_pretraining_stopped_before_training_resumes(first, text, stops, tmp_path):
    """A pretraining stopped while its corpus is built goes on."""
    config = PretrainConfig.parse({**SMALL, "corpus": str(text), "tokens": 5000})

    def call(out):
        pretrain.pretrain(config, out, progress=False)

    assert stopped_at_changes(stops, tmp_path, call, first, apart=5) > 30
    one, two = (tmp_path / str(first + name) for name in (10, 25))
    assert (one / "pretrain.yaml").read_text() == (two / "pretrain.yaml").read_text()
    assert PretrainConfig.load(one / "pretrain.yaml").steps == 20  # 5000 tokens in batches of 8 × 32
    assert (Windows(one / "corpus")["train"][0].input_ids == Windows(two / "corpus")["train"][0].input_ids).all()


@pytest.mark.long
def test_a_fine_tuning_stopped_before_training_resumes(text, stops, tmp_path):
    """A fine tuning stopped before its first step goes on."""
    encoder = tmp_path / "encoder"
    pretrain.pretrain(PretrainConfig.parse({**SMALL, "corpus": str(text), "steps": 1}), encoder, progress=False)
    rows = [f"{line.split()[0]}\t{number % 2}" for number, line in enumerate(text.read_text().split("\n\n"))]
    (tmp_path / "rows.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    table = str(tmp_path / "rows.tsv")
    values = {"start": str(encoder), "data": table, "dev": table, "length": 32, "batch_size": 8, "steps": 1}
    config = FinetuneConfig.parse(values)

    def call(out):
        finetune.finetune(config, out, progress=False)

    assert stopped_at_changes(stops, tmp_path / "runs", call) >= 4


def test_wrong_input_leaves_no_run_behind(text, tmp_path):
    out = tmp_path / "run"
    words = ("pretrain", "--out", str(out), "--steps", "1", "--corpus")
    small = [a for s in ("length=32", "model.num_hidden_layers=1", "workers=1", "vocab_size=200") for a in ("--set", s)]
    assert "No corpus 'nowhere.txt'" in whatwhere(*words, "nowhere.txt", *small).stderr
    done = whatwhere(*words, str(text), "--set", "batch_size=4096", *small)
    assert "less than one batch of 4096" in done.stderr and not (out / "pretrain.yaml").exists()
    assert not out.exists()  # corpus/ stayed, and its tokenizer was taken whatever the next command asked for
    small[-1] = "vocab_size=150"
    done = whatwhere(*words, str(text), "--set", "batch_size=8", "--length", "16", *small)
    assert done.returncode == 0, done.stderr
    assert Windows(out / "corpus").facts["vocab_size"] == 150
    (tmp_path / "mine/corpus").mkdir(parents=True)
    (tmp_path / "mine/corpus/thesis.txt").write_text("mine")
    done = whatwhere("pretrain", "--out", str(tmp_path / "mine"), "--steps", "1", "--corpus", str(text), *small)
    assert done.returncode == 2 and "is not empty and holds no pretrain run" in done.stderr


def test_a_run_without_a_step_is_checked_anew(text, tmp_path):
    """A training killed before its first step let a wrong length make windows, which the right command then met."""
    out = tmp_path / "run"
    config = PretrainConfig.parse({**SMALL, "corpus": str(text), "steps": 1})
    with RunFolder.open(out, "pretrain") as run:
        config.save_in(run, "pretrain.yaml")
        run.accept_input()
    with pytest.raises(ValueError, match="position table of"):
        pretrain.pretrain(config.model_copy(update={"length": 100_000}), out, progress=False)
    assert not (out / "corpus").exists()
    with pytest.raises(ValueError, match=f"The training in {out} is not finished. Give its command again.$"):
        check_folder(out)
    for step in (20, 10, 0):  # the oldest is changed last
        (out / f"checkpoints/step-{step}").mkdir(parents=True)
    with pytest.raises(ValueError, match=f"again, or open its checkpoint {out}/checkpoints/step-20."):
        check_folder(out)


@pytest.mark.parametrize(("precision", "is_advised"), [("fp32", False), ("bf16", True)])
def test_advice_on_precision_is_what_is_not_set(precision, is_advised):
    """A training in fp32 that was not finite was told to set precision=fp32."""
    config = PretrainConfig.parse({"steps": 1, "precision": precision})
    told = timing_message(NotFiniteError(float("nan"), 1.0, ""), 3, "dstg", config)
    assert "learning_rate=" in told and ("precision=fp32" in told) == is_advised
    assert "--out" not in told  # nothing has trained: the same folder begins anew


@pytest.mark.whole
def test_windows_that_suffice_stay_after_a_refusal(text, tmp_path, monkeypatch):
    """A refusal after the windows were built removed them: hours, with a large text."""
    built = mock.Mock(side_effect=build._finish)
    monkeypatch.setattr(build, "_finish", built)
    common = {**SMALL, "corpus": str(text)}
    small = {**common, "steps": 1, "model": {"vocab_size": 8, "num_hidden_layers": 1}}
    with pytest.raises(ValueError, match=r"model.vocab_size=8, but the tokenizer has"):
        pretrain.pretrain(PretrainConfig.parse(small), tmp_path / "run", progress=False)
    bad = PretrainConfig.parse({**common, "minutes": 1})
    with mock.patch.object(Trainer, "take_step", side_effect=NotFiniteError(float("nan"), 1.0, "")):
        with pytest.raises(ValueError, match="not finite|is nan"):
            pretrain.pretrain(bad, tmp_path / "run", progress=False)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["corpus"]
    summary = pretrain.pretrain(PretrainConfig.parse({**common, "steps": 1}), tmp_path / "run", progress=False)
    assert summary["steps"] == 1 and built.call_count == 1
    widths = {"models": ["nope", "dstg"], "match": "parameters", "widths": {"nope": 1}}
    training = {key: SMALL[key] for key in ("batch_size", "model")}
    study = {**{key: common[key] for key in ("corpus", "length", "tokenizer", "workers")}, "training": training}
    with pytest.raises(ValueError, match="dstg cannot be made to cost"):
        run_study(StudyConfig.parse({**study, **widths, "steps": 1}), tmp_path / "study", progress=False)
    assert [path.name for path in (tmp_path / "study").iterdir()] == ["corpus"]
    plain = StudyConfig.parse({**study, "models": ["dstg"], "steps": 1, "all_analyses": False})
    assert run_study(plain, tmp_path / "study", progress=False).is_file() and built.call_count == 2


def test_windows_of_another_vocabulary_are_refused(text, tmp_path):
    """Windows of a larger vocabulary in the folder were taken for those that a training asked for."""

    def asked(entries: int) -> PretrainConfig:
        return PretrainConfig.parse({**SMALL, "corpus": str(text), "tokenizer": None, "vocab_size": entries})

    windows = prepare_windows(asked(200), tmp_path / "corpus", progress=False)
    assert prepare_windows(asked(200), tmp_path / "corpus", progress=False).facts == windows.facts
    with pytest.raises(ValueError, match="holds windows of another vocab_size: there 200, now 150"):
        prepare_windows(asked(150), tmp_path / "corpus", progress=False)
    without = asked(200).model_copy(update={"newline_token": False})
    with pytest.raises(ValueError, match="holds windows of another newline_token: there True, now False"):
        prepare_windows(without, tmp_path / "corpus", progress=False)
    # Too few pieces in the text for 100,000: the same tokenizer, asked for in other words.
    most = prepare_windows(asked(90_000), tmp_path / "most", progress=False).facts
    assert most["vocab_size"] < 90_000
    assert prepare_windows(asked(100_000), tmp_path / "most", progress=False).facts == most


def test_a_refused_texts_tokenizer_is_not_taken(text, tmp_path):
    """Windows of a refused text left their tokenizer, which the next command took whatever it asked for."""
    bad = tmp_path / "bad.jsonl"
    good = tmp_path / "good.jsonl"
    rows = [json.dumps({"text": line}) for line in text.read_text().split("\n\n")]
    bad.write_text("\n".join([*rows, "{"]))
    good.write_text("\n".join(rows))
    out = tmp_path / "run/corpus"
    with pytest.raises(ValueError, match="not JSON"):
        prepare_windows(PretrainConfig.parse({**SMALL, "corpus": str(bad)}), out, progress=False)
    assert not (out / "tokenizer").exists()
    asked = PretrainConfig.parse({**SMALL, "corpus": str(good), "tokenizer": "words"})
    windows = prepare_windows(asked, out, progress=False)
    assert windows.facts["vocab_size"] == len(unit_tokenizer("words", open_source(str(good)))) + 1  # [NL]


def test_equal_text_elsewhere_is_the_runs(text, tmp_path):
    """The same text and tokenizer in another place are the runs."""

    # They were compared by the names that they were given by.
    def asked(text: Path, words: Path) -> PretrainConfig:
        return PretrainConfig.parse({**SMALL, "preset": "ap", "corpus": str(text), "tokenizer": str(words), "steps": 1})

    characters = sorted(set(text.read_text().lower()) - set(" \n"))
    words = tmp_path / "words.txt"
    words.write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{c}" for c in characters)])
    )
    out = tmp_path / "run"
    moved = tmp_path / "moved"
    pretrain.pretrain(asked(text, words), out, progress=False)
    moved.mkdir()
    elsewhere = asked(moved / "other.txt", moved / "vocabulary.txt")
    (moved / "other.txt").write_bytes(text.read_bytes())
    (moved / "vocabulary.txt").write_bytes(words.read_bytes())
    assert pretrain.pretrain(elsewhere, out, progress=False)["steps"] == 1
    # With windows of a study, which has compared both already, a moved tokenizer was refused.
    given = tmp_path / "given"
    windows = prepare_windows(asked(text, words), tmp_path / "corpus", progress=False)
    pretrain.pretrain(asked(text, words), given, windows=windows, progress=False)
    assert pretrain.pretrain(elsewhere, given, windows=windows, progress=False)["steps"] == 1
    (moved / "vocabulary.txt").write_text(words.read_text() + "\n##zzz")
    with pytest.raises(ValueError, match="was started with tokenizer="):
        pretrain.pretrain(elsewhere, out, progress=False)
    with pytest.raises(ValueError, match="was started with tokenizer="):  # one that would be made from the text
        pretrain.pretrain(asked(text, Path("characters")), out, progress=False)
    (moved / "other.txt").write_text(text.read_text() + "\n\nmore")
    with pytest.raises(ValueError, match="was started with corpus="):
        pretrain.pretrain(elsewhere, out, progress=False)
    (moved / "other.txt").write_bytes(text.read_bytes())
    for damaged in (
        "[]",
        "{}",
        '{"source": 3, "tokenizer_sha256": 3}',
        '{"source": {"files": [3, 4]}, "tokenizer_sha256": "x"}',
        "[" * 9000,
    ):
        (out / "corpus/settings.json").write_text(damaged)  # KeyError, TypeError
        with pytest.raises(ValueError, match="was started with corpus="):
            pretrain.pretrain(elsewhere, out, progress=False)


@pytest.mark.whole
def test_deterministic_kernels_give_the_same_numbers_on_a_cpu(text, tmp_path):
    losses = []
    try:
        for deterministic in (False, True):
            asked = {**SMALL, "preset": "dstg", "corpus": str(text), "steps": 2, "deterministic": deterministic}
            out = tmp_path / str(deterministic)
            losses.append(pretrain.pretrain(PretrainConfig.parse(asked), out, progress=False)["validation_loss"])
            assert torch.are_deterministic_algorithms_enabled() is deterministic
        asked = {**SMALL, "preset": "ap", "corpus": str(text), "steps": 1}
        pretrain.pretrain(PretrainConfig.parse(asked), tmp_path / "other", progress=False)
        assert not torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)  # by the program: trainings switched it off
        pretrain.pretrain(PretrainConfig.parse(asked), tmp_path / "third", progress=False)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert losses[0] == losses[1]
