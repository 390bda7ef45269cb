"""Pieces of an evaluation: a changed byte is told from what was written, and another model from the one measured."""

import io

import numpy as np
import pytest
from cli_runner import whatwhere
from made_tasks import write_pairs

from whatwhere.evaluation.benchmark import Trial
from whatwhere.evaluation.linguistic import LINGUISTIC, LinguisticConfig
from whatwhere.run.files import _hash_of_version
from whatwhere.run.folder import RunFolder


def test_a_flipped_bit_of_a_piece_is_noticed(tmp_path):
    trial = Trial("m", "m", False, "squad", seed=0)
    facts = {"scores": [[0.5, 0.25, 0.5]], "rows": {"train": 24, 3: 1}, "half": "\ud800"}
    with RunFolder.open(tmp_path / "e", "squad") as run:
        trial.write(run.path, facts, {"predicted": np.arange(9)}, answers={"q": "Rollo"})
        assert trial.check_finished(run.path)
    assert trial.facts(run.path, "scores")["rows"] == {"train": 24, "3": 1}
    assert trial.arrays(run.path)["predicted"].tolist() == list(range(9))
    for ending in (".json", ".npz", "-answers.json"):
        path = trial.file(run.path, ending)
        whole = path.read_bytes()
        for at in range(0, len(whole), 3):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
            _hash_of_version.cache_clear()  # which tells apart what is written a few milliseconds later
            with pytest.raises(ValueError, match="is not as it was written") as error:
                trial.check_finished(run.path)
            assert str(path) in str(error.value) and "\n" not in str(error.value)
        path.write_bytes(whole)
        _hash_of_version.cache_clear()
    trial.file(run.path, ".npz").unlink()
    assert not trial.check_finished(run.path) and not trial.is_finished(run.path)


def test_other_values_in_an_interrupted_evaluation_are_noticed(tmp_path):
    """Its hashes were written at its end: other predictions, whole files, were taken as they were."""
    out = tmp_path / "out"
    data = str(write_pairs(tmp_path))
    config = LinguisticConfig.parse({"models": ["reference"], "tasks": ["blimp"], "data": data})
    (trial,) = LINGUISTIC.trials(config)
    with RunFolder.open(out, "linguistic") as run:
        config.save_in(run, LINGUISTIC.file)
        trial.write(out, {"pairs": 9}, {"right": np.zeros(9)})
    words = ["evaluate", "linguistic", "reference", "--tasks", "blimp", "--out", str(out), "--data", data]
    arrays = io.BytesIO()
    np.savez(arrays, right=np.ones(9))
    facts = trial.file(out).read_bytes().replace(b'"pairs": 9', b'"pairs": 8')
    for path, other in ((trial.file(out), facts), (trial.file(out, ".npz"), arrays.getvalue())):
        whole = path.read_bytes()
        assert other != whole
        path.write_bytes(other)
        done = whatwhere(*words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(path) in done.stderr, done.stderr
        path.write_bytes(whole)
