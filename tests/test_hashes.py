"""Every file that a run leaves tells a changed byte from what was written."""

import io
import json
import random
import shutil

import numpy as np
import pytest
from cli_runner import whatwhere
from made_study import make_study
from made_tasks import write_pairs

from whatwhere.evaluation.family import Piece
from whatwhere.evaluation.glue import GlueConfig
from whatwhere.evaluation.linguistic import LINGUISTIC, LinguisticConfig
from whatwhere.records.record import Record, read_records, write_records
from whatwhere.run.hashes import (
    HASHES,
    _hash_of_state,
    check_files,
    forget_hashes,
    hashes,
    sha256,
    verify,
    write_hashes,
)
from whatwhere.study.settings import StudyConfig
from whatwhere.training.runs import began_with


def flipped(data: bytes, draw: random.Random) -> bytes:
    """With one bit the other way."""
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def test_hashes_of_a_folder_without_what_changes_or_has_its_own(tmp_path):
    for name in ("a", "deep/b", "own/c", "log.jsonl", "page.html", ".x.12", "README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    write_hashes(tmp_path / "own")
    write_hashes(tmp_path)
    assert hashes(tmp_path) == {name: sha256(tmp_path / name) for name in ("a", "deep/b", "own/hashes.json")}
    check_files(tmp_path)
    assert verify(tmp_path) == (4, [])
    (tmp_path / "deep/b").write_text("other")
    (tmp_path / "own/c").unlink()
    check_files(tmp_path, "a", "log.jsonl")  # what has no hash is as it is
    with pytest.raises(ValueError, match="deep/b is not as it was written .its hash differs.. Use a complete copy"):
        check_files(tmp_path)
    assert [line.split(" is ")[1][:7] for line in verify(tmp_path)[1]] == ["not as ", "missing"]
    forget_hashes(tmp_path)
    check_files(tmp_path)
    assert hashes(tmp_path) == {}
    (tmp_path / HASHES).write_text('["a"]')
    with pytest.raises(ValueError, match="holds no hashes"):
        check_files(tmp_path)
    assert verify(tmp_path)[1][0].startswith(str(tmp_path / HASHES))


def test_a_flipped_bit_of_records_is_noticed_or_without_effect(tmp_path):
    # 461 of 600 gave other numbers, silently, before pages had checksums.
    path, draw = tmp_path / "records.parquet", random.Random(0)
    made = [Record("s", f"m{i % 3}", "loss", draw.random(), seed=i, step=i * 10, n=7) for i in range(300)]
    write_records(path, made)
    whole, noticed = path.read_bytes(), 0
    assert read_records(path) == made
    for _ in range(400):
        path.write_bytes(flipped(whole, draw))
        try:
            assert read_records(path) == made
        except ValueError as error:
            assert str(path) in str(error) and "\n" not in str(error)
            noticed += 1
    assert noticed > 300


def test_no_flip_of_what_the_footer_of_records_says_ends_the_process_or_leaves_rows_out(tmp_path):
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


def test_a_flipped_bit_of_a_piece_of_an_evaluation_is_noticed_or_without_effect(tmp_path):
    piece = Piece("m", "m", False, "squad", seed=0)
    facts = {"scores": [[0.5, 0.25, 0.5]], "rows": {"train": 24, 3: 1}, "half": "\ud800"}
    piece.write(tmp_path, facts, {"predicted": np.arange(9)}, answers={"q": "Rollo"})
    written = piece.facts(tmp_path, "scores")
    for path in (piece.file(tmp_path), piece.file(tmp_path, ".npz"), piece.file(tmp_path, "-answers.json")):
        whole = path.read_bytes()
        for at in range(0, len(whole), 3):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            _hash_of_state.cache_clear()  # which tells apart what is written a few milliseconds later
            try:
                found = piece.facts(tmp_path)
                assert path.suffix == ".json" and {key: found.get(key) for key in written} == written, (path.name, at)
            except ValueError as error:
                assert str(path) in str(error) and "\n" not in str(error)
        path.write_bytes(whole)
        _hash_of_state.cache_clear()
    piece.file(tmp_path, ".npz").unlink()
    with pytest.raises(ValueError, match=r"seed-0.npz is missing. Delete seed-0.json and run the command again"):
        piece.finished(tmp_path)


def test_other_values_in_an_interrupted_evaluation_are_noticed_by_the_verb(tmp_path):
    # Its hashes were written at its end: other predictions, whole files, were taken as they were.
    out, data = tmp_path / "out", str(write_pairs(tmp_path))
    config = LinguisticConfig.parse({"models": ["reference"], "tasks": ["blimp"], "data": data})
    config.save_run(out / LINGUISTIC.file)
    (piece,) = LINGUISTIC.pieces(config)
    piece.write(out, {"pairs": 9}, {"right": np.zeros(9)})
    words = ["evaluate", "linguistic", "reference", "--tasks", "blimp", "--out", str(out), "--data", data]
    said, held = piece.file(out), piece.file(out, ".npz")
    others = io.BytesIO()
    np.savez(others, right=np.ones(9))
    for path, other in ((said, said.read_bytes().replace(b'"pairs": 9', b'"pairs": 8')), (held, others.getvalue())):
        whole = path.read_bytes()
        path.write_bytes(other)
        assert other != whole
        done = whatwhere(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr, done.stderr
        path.write_bytes(whole)


def test_a_flipped_bit_of_any_file_of_a_study_is_noticed_before_it_is_shown(tmp_path):
    study, draw = make_study(tmp_path / "study"), random.Random(1)
    write_hashes(study)
    assert whatwhere("verify", str(study)).returncode == 0
    for name in hashes(study):
        whole = (study / name).read_bytes()
        (study / name).write_bytes(flipped(whole, draw))
        shown, checked = whatwhere("report", str(study)), whatwhere("verify", str(study), "--json")
        for done in (shown, checked):
            assert done.returncode == 2 and "not as" in done.stderr and done.stderr.count("\n") == 1, (name, done)
        assert name in shown.stderr and name in json.loads(checked.stdout)["problems"][0]
        (study / name).write_bytes(whole)
    assert whatwhere("report", str(study)).returncode == 0


def test_a_flipped_bit_of_a_model_is_noticed_by_the_verbs_that_open_it(tmp_path):
    import whatwhere as ww

    model, draw = tmp_path / "model", random.Random(2)
    shutil.copytree(ww.reference(), model)
    write_hashes(model)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        whole = (model / name).read_bytes()
        (model / name).write_bytes(flipped(whole, draw))
        for words in (["spectra", str(model)], ["attention", str(model), "--text", "a", "--out", str(tmp_path / "p")]):
            done = whatwhere(*words)
            assert done.returncode == 2 and f"{name} is not as it was written" in done.stderr, (words, done.stderr)
        (model / name).write_bytes(whole)
    assert whatwhere("spectra", str(model)).returncode == 0


def test_a_changed_setting_of_an_unfinished_run_is_noticed(tmp_path):
    # Another learning rate was taken over in silence by the same command going on.
    begun = {
        "study.yaml": (StudyConfig.parse({"steps": 3}), ("steps", 4), ["study"]),
        "glue.yaml": (
            GlueConfig.parse({"models": ["reference"], "data": str(tmp_path)}),
            ("length", 120),
            ["evaluate", "glue", "reference", "--data", str(tmp_path)],
        ),
    }
    for name, (config, (key, other), words) in begun.items():
        path = tmp_path / name.removesuffix(".yaml") / name
        config.save_run(path)
        assert began_with(type(config), path) == config
        whole = f"{key}: {getattr(config, key)}\n"
        assert whole in path.read_text()
        path.write_text(path.read_text().replace(whole, f"{key}: {other}\n", 1))
        done = whatwhere(*words, "--out", str(path.parent))
        assert done.returncode == 2 and done.stderr == (
            f"whatwhere: {path} is not as it was written (its hash differs). Use a complete copy; if you changed it "
            "yourself, delete its first line.\n"
        )
        path.write_text(path.read_text().partition("\n")[2])
        assert began_with(type(config), path) == config.model_copy(update={key: other})


def test_verify_does_not_approve_of_what_has_no_hash(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/model.safetensors").write_bytes(b"x")
    done = whatwhere("verify", str(tmp_path / "run"))
    assert done.returncode == 2 and "No file below" in done.stderr and "Give the folder of a finished" in done.stderr
    (tmp_path / "run" / HASHES).write_text("[1")
    done = whatwhere("verify", str(tmp_path / "run"))
    assert done.returncode == 2 and str(tmp_path / "run" / HASHES) in done.stdout and "not as written" in done.stderr


def test_verify_refuses_what_is_no_folder(tmp_path):
    done = whatwhere("verify", str(tmp_path / "none"))
    assert done.returncode == 2 and "There is no folder" in done.stderr


def test_an_array_that_claims_more_than_there_is_is_refused(tmp_path):
    path = tmp_path / "big.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 10**7)})
    done = whatwhere("spectra", str(path))
    assert done.returncode == 2 and "big.npy" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
