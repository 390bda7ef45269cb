"""A few of the crashes of `faults.py`, which does them all."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from fault_works import Work
from faults import DAMAGE, MODES, points, prepared, tally, workers


@pytest.mark.long
@pytest.mark.parametrize("name", ["pretrain", "study"])
def test_a_disturbed_command_ends_as_if_nothing_had_been(name, tmp_path):
    """Killed, torn, on a full disk or beside a second process; and damage of a finished file is named."""
    # One point after the other, from the server of this process: workers would import everything once more.
    with ThreadPoolExecutor(1) as pool:
        (work,) = prepared(tmp_path, (name,), pool)
        apart = work.changes  # each mode once, and one time more for a kill
        first = work.changes // 4
        chosen = [*points(work, "kill", tmp_path, apart // 2, first=first)]
        for mode in ("torn", "full", "second"):
            chosen += points(work, mode, tmp_path, apart, first=first)
        chosen += points(work, "flip", tmp_path, 10)
        counted, wrong = tally(chosen, tmp_path, pool)
    assert not wrong and counted.keys() == {name}
    assert all(counted[name][f"{mode} points"] for mode in {point.mode for point in chosen})


@pytest.mark.slow
def test_what_is_disturbed_ends_as_if_nothing_had_been(tmp_path):
    with workers() as pool:
        by_name = {work.name: work for work in prepared(tmp_path, (), pool)}
        training = by_name["pretrain"]
        chosen = [point for mode in MODES for point in points(training, mode, tmp_path, 90, first=11)]
        chosen += points(training, "read-only", tmp_path, 1000)  # from the start
        chosen += points(training, "random", tmp_path)[:2]
        chosen += [point for mode in DAMAGE for point in points(training, mode, tmp_path, 5)]
        chosen += points(training, "flip", tmp_path, 3)
        for work in by_name.values():
            if work is not training:
                chosen += points(work, "kill", tmp_path, max(work.changes // 2, 1), first=2)
        counted, wrong = tally(chosen, tmp_path, pool)
    assert not wrong and counted.keys() == by_name.keys()
    for name, got in counted.items():
        assert got["kill twice"] > 0, name
    for mode in {point.mode for point in chosen} | {"gone"}:
        assert counted["pretrain"][f"{mode} points"] > 1, mode


@pytest.mark.slow
def test_second_tries_are_struck_too(tmp_path):
    """Drawn by chance, none of the first 25 points of a work was; most works have fewer."""
    for changes in (2, 7, 40):
        for mode in MODES:
            found = points(Work("made-up", [], changes=changes, every=6), mode, tmp_path)
            assert found and found[-1].twice and 5 * sum(point.twice for point in found) >= len(found)
