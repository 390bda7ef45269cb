"""Places that claims compare: blocks of a model, rows of a table, seeds of models beside each other."""

import pytest
from claim_cases import verdict
from claim_records import one

PEAK = (0.1, 0.1, 0.25, 0.1, 0.1, 0.9)  # of six blocks, the last of which has lost position


def states(values):
    added = [one("ap", "scores.std", 0.1, layer=i, part="mixed") for i in range(1, 7)]
    return [*added, *(one("ap", "hidden.stress", v, layer=i, part="all") for i, v in values)]


def test_a_last_block_without_stress_is_missing():
    """Without the record of the last block the halves were those of a model with one block less."""
    blocks = list(enumerate(PEAK, 1))
    assert verdict("geom-states-peak", states(blocks))["value"] == pytest.approx(2.5)
    for lost in (1, 2, 6):
        found = verdict("geom-states-peak", states([b for b in blocks if b[0] != lost]))
        said = f"not measured: no hidden.stress of ap at block {lost}"
        assert (found["verdict"], found["scale"]) == ("not testable here", said)
