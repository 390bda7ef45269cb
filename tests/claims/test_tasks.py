"""Claims about tasks: tasks that training did not help decide nothing, differences are paired, seeds may differ."""

from dataclasses import replace

import pytest
from claim_cases import BY_ID, scored
from claim_records import one

from whatwhere.claims import evaluate


def verdict(name, records):
    return evaluate(records, [BY_ID[name]])[0]


def test_tasks_without_gain_by_training_do_not_count():
    """A task that training did not help does not count."""
    good = scored("glue", 0.01, ("rte",), dstg=0.7, ap=0.6, rope=0.65)
    flat = scored("glue", 0.01, ("cola",), dstg=0.105, ap=0.6, rope=0.6)  # dstg is at its untrained level there
    both = verdict("dstg-costs-no-glue", [*good, *flat])
    assert both["verdict"] == "holds here" and both["value"] == pytest.approx(0.05)
    assert "without cola, where training helped too little" in both["scale"]
    # Gains that a verdict needs were not among its records.
    assert all(f"glue.taught {model} {task}" in both["records"] for model in ("dstg", "ap") for task in ("rte", "cola"))
    none = verdict("dstg-costs-no-glue", flat)
    assert none["verdict"] == "not testable here" and "on cola it is 0.005" in none["scale"]
    unsure = [replace(r, low=-0.01, high=0.9) if (r.model, r.metric) == ("ap", "glue.taught") else r for r in good]
    assert "above 0; on rte it is 0.5 [-0.01, 0.9]" in verdict("dstg-costs-no-glue", unsure)["scale"]
    structure = scored("linguistic", 0.0, ("readability",), dstg=0.7, ap=0.6, rope=0.6)
    assert "of sentence-order, paired" in verdict("dstg-keeps-more-structure", structure)["scale"]


def test_first_model_and_seeds_may_differ():
    """The first model of the evaluation may be any and seeds need not agree."""
    records = scored("glue", 0.01, rope=0.65, dstg=0.7, ap=0.6)
    extra = [one("dstg", "squad.score", 0.5, seed=7, part="squad")]  # another family, by other seeds
    unseeded = [replace(r, seed=None) if r.metric.endswith("difference") else r for r in records]
    half = 0.01 / 2**0.5  # of two tasks, whose rows are other ones: their errors do not go together
    for each in (records, [*unseeded, *extra]):
        found = verdict("dstg-costs-no-glue", each)
        assert (found["verdict"], found["value"]) == ("holds here", pytest.approx(0.05))
        assert (found["low"], found["high"]) == (pytest.approx(0.05 - half), pytest.approx(0.05 + half))
        assert "one training of each model, interval over rows of the tasks" in found["scale"]


def test_the_30_percent_checkpoint_is_compared_with_the_end():
    """A checkpoint is held against the end over seeds where it is 30 percent."""
    name = "tupe-a-30-percent-on-glue"
    ends = scored("glue", 0.0, ("rte",), tupe_a=0.8, bert_a=0.7)

    def found(*steps, early=0.72):
        at = [one("tupe-a", "glue.score", early, part="rte", step=step) for step in steps]
        return [replace(r, seed=seed, value=r.value + seed / 100) for r in [*ends, *at] for seed in (0, 1, 2)]

    row = verdict(name, found(100, 250, 1000))
    assert (row["verdict"], row["value"]) == ("holds here", pytest.approx(0.02)), row["scale"]
    assert "after 250 of 1,000 steps; rte" in row["scale"] and "interval over seeds of the fine-tuning" in row["scale"]
    assert row["low"] == pytest.approx(0.02)  # paired by seed
    assert verdict(name, found(300, 1000, early=0.6))["verdict"] == "not seen here"
    for steps in ((), (0,), (300,), (100, 1000)):  # no end, or nothing near 30 %
        row = verdict(name, found(*steps))
        assert row["verdict"] == "not testable here" and "tupe-a at 30 % of its steps and at the last" in row["scale"]
    flat = [replace(r, value=0.0) if (r.model, r.metric) == ("bert-a", "glue.taught") else r for r in found(300, 1000)]
    assert "needs a gain of 0.01" in verdict(name, flat)["scale"]


def test_a_third_rival_counts_where_it_is_there():
    records = scored("glue", 0.01, dstg=0.7, ap=0.6, rope=0.65, rp=0.75)
    found = verdict("dstg-costs-no-glue", records)
    assert (found["verdict"], found["value"]) == ("not seen here", pytest.approx(-0.05))
    assert "beside ap, rope, rp" in found["scale"]


def test_without_an_untrained_control_nothing_is_said():
    records = scored("mteb", 0.01, dstg=0.7, ap=0.6, rope=0.65)
    records = [r for r in records if (r.model, r.metric) != ("ap", "mteb.taught")]
    assert (
        "no mteb.taught of ap, part cola (whatwhere evaluate mteb --untrained)"
        in verdict("dstg-costs-no-mteb", records)["scale"]
    )
