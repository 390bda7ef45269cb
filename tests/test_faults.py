"""A few of the crashes of `faults.py`, which does them all."""

import pytest
from faults import MODES, at_random, disturb, flips, works

pytestmark = pytest.mark.slow


def test_what_is_disturbed_ends_as_if_nothing_had_been(tmp_path):
    by_name = {work.name: work for work in works(tmp_path)}
    training, tuning, study = (by_name[name] for name in ("pretrain", "finetune", "study"))
    for mode in MODES:
        disturb(training, tmp_path, mode, every=60, first=11, twice=0.5)
    disturb(tuning, tmp_path, "kill", every=60, first=5)
    disturb(study, tmp_path, "kill", every=200, first=120)
    for name, every in (("windows", 15), ("heads", 15), ("report", 1)):
        disturb(by_name[name], tmp_path, "kill", every=every, first=2)
    at_random(training, tmp_path, 2)
    flips(training, tmp_path, 1)
    for work in by_name.values():
        for name, points in work.results.items():
            if name.endswith(" points") and not name.startswith("flip"):
                mode = name.removesuffix(" points")
                assert points > 1 and work.results[f"{mode} equal"] == work.results[f"{mode} clean"] == points, work
    assert training.results["flip noticed"] == training.results["flip points"] > 50
