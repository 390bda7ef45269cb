"""Places that claims compare: blocks of a model, rows of a table, seeds of models beside each other."""

from dataclasses import replace

import pytest
from claim_cases import verdict
from claim_records import one, probes

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


@pytest.mark.parametrize("name", ["geom-learned-monotone", "geom-learned-correlates"])
@pytest.mark.parametrize(("room", "rows", "free"), [(3.0, 128, 0), (32.5, 128, 25), (0.0, 512, 75)])
def test_rows_of_a_shifted_training_are_no_places(name, room, rows, free):
    """Rows counted as places wherever windows begin documents, though training shifts short texts over the table."""
    table = [
        one("ap", "separation", 1.0, step=9, n=rows),
        *(one("ap", metric, 0.3, part="corpus", step=9) for metric in ("separation", "violations")),
        one("ap", "correlation.corrected", 0.3, part="corpus", step=9),
        one("ap", "probe.length", 128.0),
        one("", "corpus.from_start", 1.0, seed=None),
    ]
    found = verdict(name, [*table, one("", "corpus.room", room, seed=None)])
    assert verdict(name, table)["verdict"] == "holds here"
    assert found["verdict"] == ("not testable here" if free else "holds here")
    assert not free or f"training windows leave {free} % of the rows of ap's table free" in found["scale"]


@pytest.mark.parametrize(("seeds", "value"), [(2, 0.5), (1, 0.4)])
def test_a_reference_counts_at_the_seeds_that_it_has(seeds, value):
    """Without one seed of the subject, ap was left out as if it were not there, and the bar fell to dstg's."""
    peaks = {"rope": (0.4, 0.6), "dstg": (0.7, 0.7), "ap": (0.95, 0.95)}
    parts = {"rope": "all", "dstg": "position", "ap": "all"}
    records = [
        replace(r, seed=seed)
        for model, values in peaks.items()
        for seed, peak in enumerate(values)
        if model != "ap" or seed < seeds
        for r in probes(model, "token", parts[model], [peak, 0.1, 0.1])
    ]
    found = verdict("rope-no-position", records)
    assert found["value"] == pytest.approx(value) and found["bars"] == [["at most", pytest.approx(0.57)]]
    assert f"{seeds} seed" in found["scale"]
    elsewhere = [replace(r, seed=7) if r.model == "ap" else r for r in records]
    assert "rope and ap have no training seed in common" in verdict("rope-no-position", elsewhere)["scale"]
