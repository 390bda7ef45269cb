"""Every file that a run leaves tells a changed byte from what was written."""

import json
import random
import shutil

import numpy as np
import pytest
from cli_runner import whatwhere
from made_study import make_study

import whatwhere as ww
from whatwhere.evaluation.glue import GlueConfig
from whatwhere.records.record import Record, read_records, write_records
from whatwhere.run.folder import RunFolder
from whatwhere.run.manifest import MANIFEST
from whatwhere.study.study_settings import StudyConfig


def flipped(data: bytes, draw: random.Random) -> bytes:
    """With one bit the other way."""
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def test_flipped_bits_of_records_are_noticed(tmp_path):
    """A flipped bit of records is noticed or without effect."""
    # 461 of 600 gave other numbers, silently, before pages had checksums.
    path = tmp_path / "records.parquet"
    draw = random.Random(0)
    made = [Record("s", f"m{i % 3}", "loss", draw.random(), seed=i, step=i * 10, n=7) for i in range(300)]
    write_records(path, made)
    whole = path.read_bytes()
    noticed = 0
    assert read_records(path) == made
    for _ in range(400):
        path.write_bytes(flipped(whole, draw))
        try:
            assert read_records(path) == made
        except ValueError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            noticed += 1
    assert noticed > 300


def test_footer_flips_neither_crash_nor_drop_rows(tmp_path):
    """No flip of what the footer of records says ends the process or leaves rows out."""
    # Pages have checksums, the footer has none: a count of 40 rows became 32, of which nobody was told, and a type that
    # did not fit its column's sizes ended the process in C++.
    path = tmp_path / "records.parquet"
    made = [Record("s", f"m{i % 3}", "loss", i / 7, seed=i, step=i * 10, n=7) for i in range(40)]
    write_records(path, made)
    whole = path.read_bytes()
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    counts = [at for at in range(begin, len(whole)) if whole[at] == 2 * len(made)]
    named = [whole.index(bytes([len(name)]) + name.encode(), begin) for name in ("model", "value", "step")]
    noticed = 0
    for at in [*counts, *(at - before for at in named for before in (2, 3))]:
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            try:
                assert read_records(path) == made, (at, bit)
            except ValueError as error:
                assert str(path) in str(error) and "\n" not in str(error)
                noticed += 1
    assert len(counts) > 1 and noticed > 8


def test_flipped_bits_of_study_files_are_noticed(tmp_path):
    """A flipped bit of any file of a study is noticed before it is shown."""
    study = make_study(tmp_path / "study")
    draw = random.Random(1)
    run = RunFolder.at(study)
    run.add_to_manifest(*[name for name in run.files_not_in_manifest() if not name.endswith(".html")])
    assert whatwhere("verify", str(study)).returncode == 0
    for name in run.listed_files():
        whole = (study / name).read_bytes()
        (study / name).write_bytes(flipped(whole, draw))
        shown = whatwhere("report", str(study))
        checked = whatwhere("verify", str(study), "--json")
        for done in (shown, checked):
            assert done.returncode == 2 and "not as" in done.stderr and done.stderr.count("\n") == 1, (name, done)
        assert name in shown.stderr and name in json.loads(checked.stdout)["problems"][0]
        (study / name).write_bytes(whole)
    assert whatwhere("report", str(study)).returncode == 0


def test_flipped_bits_of_models_are_noticed(tmp_path):
    """A flipped bit of a model is noticed by the verbs that open it."""
    import whatwhere as ww

    model = tmp_path / "model"
    draw = random.Random(2)
    shutil.copytree(ww.reference(), model)
    (model / MANIFEST).unlink(missing_ok=True)
    run = RunFolder.at(model)
    run.add_to_manifest(*run.files_not_in_manifest())
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        whole = (model / name).read_bytes()
        (model / name).write_bytes(flipped(whole, draw))
        for words in (
            ["spectra", str(model)],
            ["attention", str(model), "--text", "a", "--out", str(tmp_path / "p.html")],
        ):
            done = whatwhere(*words)
            assert done.returncode == 2 and f"{name} is not as it was written" in done.stderr, (words, done.stderr)
        (model / name).write_bytes(whole)
    assert whatwhere("spectra", str(model)).returncode == 0


def test_changed_settings_of_an_unfinished_run_are_noticed(tmp_path):
    """Another learning rate was taken over in silence by the same command going on."""
    study = StudyConfig.parse({"steps": 3})
    glue = GlueConfig.parse({"models": ["reference"], "data": str(tmp_path)})
    commands = [
        ("study", study, "steps: 3", "steps: 4", ["study"]),
        ("glue", glue, "length: 128", "length: 120", ["evaluate", "glue", "reference", "--data", str(tmp_path)]),
    ]
    for kind, config, whole, other, words in commands:
        with RunFolder.open(tmp_path / kind, kind) as run:
            config.save_in(run, f"{kind}.yaml")
            run.mark_done("first")
        path = tmp_path / kind / f"{kind}.yaml"
        assert whole in path.read_text()
        path.write_text(path.read_text().replace(whole, other, 1))
        done = whatwhere(*words, "--out", str(path.parent))
        assert done.returncode == 2 and done.stderr == (
            f"whatwhere: {path} is not as it was written (hash mismatch). Use a complete copy, or delete it and give "
            "the command again that wrote it; if you changed it, "
            f"record it as it stands: whatwhere verify {path.parent} --accept FILE\n"
        )


def test_verify_does_not_approve_of_what_has_no_hash(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/model.safetensors").write_bytes(b"x")
    done = whatwhere("verify", str(tmp_path / "run"))
    assert done.returncode == 2 and "No file below" in done.stderr and "Give the folder of a finished" in done.stderr


def test_verify_names_files_that_it_cannot_compare(tmp_path, monkeypatch):
    """An edited card of a model passed without a word; a card was looked for in the working directory."""
    monkeypatch.chdir(tmp_path)
    done = whatwhere("verify", str(ww.reference()))
    assert "have a hash and are as they were written; 1 without one (README.md) not compared." in done.stdout
    done = whatwhere("verify", str(ww.reference()), "--accept", "README.md")
    assert done.returncode == 2 and "README.md has no hash, as pages, cards and growing logs have none" in done.stderr


def test_verify_refuses_what_is_no_folder(tmp_path):
    done = whatwhere("verify", str(tmp_path / "none"))
    assert done.returncode == 2 and "There is no folder" in done.stderr


def test_status_of_a_file_says_so(tmp_path):
    """It said that there was no such folder."""
    (tmp_path / "a.txt").touch()
    done = whatwhere("status", str(tmp_path / "a.txt"))
    assert done.returncode == 2 and "a.txt is no folder" in done.stderr


def test_arrays_that_claim_too_much_are_refused(tmp_path):
    """An array that claims more than there is is refused."""
    path = tmp_path / "big.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)})
    done = whatwhere("spectra", str(path))
    assert done.returncode == 2 and "big.npy" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_rewritten_records_of_a_run_are_refused(tmp_path):
    """`claims` and `dataframe` read records that another program had written over those of the run."""
    with RunFolder.open(tmp_path / "run", "study") as run:
        run.write("records.parquet", [Record("run", "m", "loss", 3.0, seed=0)])
        run.mark_done("results", files=["records.parquet"])
    assert len(ww.dataframe(tmp_path / "run")) == 1
    write_records(tmp_path / "run/records.parquet", [Record("run", "m", "loss", 1.0, seed=0)])
    done = whatwhere("claims", str(tmp_path / "run"))
    assert done.returncode == 2 and "records.parquet" in done.stderr and "\n" not in done.stderr.strip()
    with pytest.raises(ValueError, match="records.parquet"):
        ww.dataframe(tmp_path / "run")
