"""A few of the crashes of `faults.py`, which does them all."""

import pytest
from faults import DAMAGE, MODES, at_random, damaged, disturb, flips, works

pytestmark = pytest.mark.slow


def test_what_is_disturbed_ends_as_if_nothing_had_been(tmp_path):
    by_name = {work.name: work for work in works(tmp_path)}
    training, tuning, study = (by_name[name] for name in ("pretrain", "finetune", "study"))
    for mode in MODES:
        disturb(training, tmp_path, mode, every=90, first=11, twice=0.5)
    disturb(training, tmp_path, "read-only", every=1000)  # from the start
    disturb(tuning, tmp_path, "kill", every=60, first=5)
    disturb(study, tmp_path, "kill", every=200, first=120)
    for name, every in (("windows", 15), ("heads", 15), ("report", 1), ("evaluate", 40)):
        disturb(by_name[name], tmp_path, "kill", every=every, first=2)
    at_random(training, tmp_path, 2)
    for mode in DAMAGE:
        damaged(training, tmp_path, mode, every=5)
    flips(training, tmp_path, 1)
    for work in by_name.values():
        got = work.results
        for mode in {key.removesuffix(" points") for key in got if key.endswith(" points")}:
            points, equal = got[f"{mode} points"], got[f"{mode} equal"]
            if mode in ("flip", "gone"):
                assert got[f"{mode} noticed"] == points > 15, work
            elif mode in DAMAGE:
                assert got[f"{mode} named"] + equal == points > 5 and equal, work
            else:
                assert points > 1 and equal == got[f"{mode} clean"] == points, work
                assert mode == "random" or got[f"{mode} ended as they should"] == points, work
