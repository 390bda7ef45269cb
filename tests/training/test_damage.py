"""A changed byte of a training or of windows, finished or not, is named by `verify` and by whoever opens the file."""

import random
from pathlib import Path
from unittest import mock

import pytest
from cli_runner import whatwhere

from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import MANIFEST
from whatwhere.run.verify import verify
from whatwhere.training.finetune import FinetuneConfig
from whatwhere.training.pretrain_settings import PretrainConfig


def flip(path: Path, seed: int) -> bytes:
    """Flip one bit of a file; return what it held before."""
    draw = random.Random(seed)
    whole = path.read_bytes()
    at = draw.randrange(len(whole))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])
    return whole


def words_of(folder: Path, *more: str) -> list[str]:
    text = folder / "text.txt"
    text.write_text("the cat sat on the mat and the dog lay by the door\n\n" * 400)
    return ["--corpus", str(text), "--length", "16", "--tokenizer", "words", *more]


def test_every_file_of_a_training_is_covered(tmp_path):
    run = tmp_path / "run"
    small = ("--steps", "3", "--set", "batch_size=4", "--set", "model.num_hidden_layers=1")
    words = ["pretrain", "--out", str(run), *words_of(tmp_path, *small)]
    done = whatwhere(*words)
    assert done.returncode == 0, done.stderr
    manifests = list(run.rglob(MANIFEST))
    folders = {path.parent.name for path in manifests}
    assert folders == {"run", "corpus", "tokenizer", "step-0", "step-1", "step-3"}
    recorded = {path.parent / name for path in manifests for name in RunFolder.at(path.parent).listed_files()}
    files = {path for path in run.rglob("*") if path.is_file()}
    free = {str(path.relative_to(run)) for path in files - recorded if path.name != MANIFEST}
    assert verify(run) == (len(recorded), []) and free == {"README.md"}

    weights = run / "model.safetensors"
    flip(weights, 3)
    done = whatwhere(*words)  # was: "finished", and the damaged model stayed
    assert done.returncode == 2 and "model.safetensors is not as it was written (hash mismatch)" in done.stderr
    weights.unlink()  # the way out: it is written again from the last checkpoint
    assert whatwhere(*words).returncode == 0 and not verify(run)[1]


def test_damage_of_unfinished_windows_is_named_or_mended(tmp_path):
    # The settings of their tokenizer were taken as they were, and the counts of a shard.
    words = ["windows", *words_of(tmp_path)]
    assert whatwhere(*words, "--out", str(tmp_path / "whole")).returncode == 0
    run = ["--out", str(tmp_path / "run")]
    out = tmp_path / "run/corpus"
    with mock.patch("whatwhere.corpus.build._finish", side_effect=OSError("full")):
        assert whatwhere(*words, *run).returncode == 2
    for name in ("tokenizer_config.json", "tokenizer.json"):
        path = out / "tokenizer" / name
        whole = flip(path, 5)
        done = whatwhere(*words, *run)
        assert done.returncode == 2 and f"{path} is not as it was written" in done.stderr, done.stderr
        path.write_bytes(whole)
    (shard,) = (out / "shards").glob("*.json")
    shard.write_text(shard.read_text().replace('"train": ', '"train": 1'))
    assert whatwhere(*words, *run).returncode == 0 and not verify(out)[1]
    assert (out / "windows.json").read_text() == (tmp_path / "whole/corpus/windows.json").read_text()


def test_a_changed_setting_of_an_unfinished_training_is_named(tmp_path):
    # Another learning rate was taken over in silence by the same command going on.
    labelled = {"start": "reference", "data": "d.tsv", "dev": "d.tsv"}
    configs = {
        "pretrain": (PretrainConfig.parse({"steps": 3}), "learning_rate", 0.006, ["pretrain"]),
        "finetune": (FinetuneConfig.parse(labelled), "seed", 1, ["finetune", "reference"]),
    }
    for kind, (config, key, other, words) in configs.items():
        name = f"{kind}.yaml"
        out = tmp_path / kind
        with RunFolder.open(out, kind) as run:
            config.save_in(run, name)
        assert type(config).load_verified(RunFolder.at(out), name) == config
        path = out / name
        whole = path.read_text()
        line = f"{key}: {getattr(config, key)}\n"
        assert line in whole
        path.write_text(whole.replace(line, f"{key}: {other}\n", 1))
        done = whatwhere(*words, "--out", str(out))
        assert done.returncode == 2 and done.stderr == (
            f"whatwhere: {path} is not as it was written (hash mismatch). Use a complete copy, or delete it and give "
            "the command again that wrote it; if you changed it, "
            f"record it as it stands: whatwhere verify {path.parent} --accept FILE\n"
        )


def test_settings_that_are_cut_off_are_named(tmp_path):
    # Those cut before their hash, which was the last line, were taken as they were: the rest by default.
    with RunFolder.open(tmp_path, "pretrain") as run:
        PretrainConfig.parse({"steps": 3, "learning_rate": 0.006}).save_in(run, "pretrain.yaml")
    path = tmp_path / "pretrain.yaml"
    whole = path.read_bytes()
    for end in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match="pretrain.yaml is not as it was written"):
            PretrainConfig.load_verified(RunFolder.at(tmp_path), "pretrain.yaml")
    path.write_bytes(whole)
    assert PretrainConfig.load_verified(RunFolder.at(tmp_path), "pretrain.yaml").learning_rate == 0.006


def test_a_training_of_the_version_before_is_refused(tmp_path):
    (tmp_path / "pretrain.yaml").write_text("preset: dstg\nsteps: 3\n")
    (tmp_path / "hashes.json").write_text("{}")
    done = whatwhere("pretrain", "--out", str(tmp_path))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "has no manifest.jsonl: it was written before version 0.1.0 was final" in done.stderr
