"""What metrics.py says of a metric, against the records of studies."""

import math
from pathlib import Path

from whatwhere.analysis.who import Who
from whatwhere.records.metrics import METHODS, METRICS, R2, Metric, is_shared, metric, range_of
from whatwhere.records.record import read_records

RESULTS = Path(__file__).parents[1] / "docs" / "results"
CORRECTED = ("variance.position", "squad.optimism")  # less what chance gives, and a difference that is hardly negative
LOSSES = ("loss", "loss.unigram", "kl.semantic", "ablation.remove", "swap.loss")


def test_records_have_the_unit_of_their_metric():
    who = Who("m", 0, "s")
    assert {who.record(name, 1.0).unit for name in LOSSES} == {"nats"}
    assert {who.record(name, 1.0).unit for name in ("r2.token", "hidden.top2", "kl.share.semantic")} == {""}
    assert [who.record(name, 1.0).unit for name in ("n50", "seconds", "memory.peak", "tokens_per_second")] == [
        "%",
        "s",
        "bytes",
        "tokens/s",
    ]


def test_every_metric_of_a_study_is_told():
    names = {r.metric for file in RESULTS.glob("*/*.parquet") for r in read_records(file)}
    assert len(names) > 80 and [name for name in sorted(names) if metric(name) == Metric(name)] == []


def test_records_lie_in_the_range_of_their_metric():
    for file in RESULTS.glob("*/*.parquet"):
        for r in read_records(file):
            low, high = range_of(r.metric)
            if metric(r.metric).unit == R2 or r.metric in CORRECTED:  # which may come out below nothing
                low = -math.inf
            assert low - 1e-9 <= r.value <= high + 1e-9, f"{r.metric} of {r.model} is {r.value}"


def test_ranges_of_differences_and_correlations_are_their_own():
    assert range_of("pca.top2") == (0, 1) and range_of("r2.token") == (-0.25, 1) and range_of("n50") == (0, 100)
    assert range_of("correlation.corrected") == range_of("linguistic.difference") == (-1, 1)
    assert range_of("loss") == range_of("ablation.remove") == (-math.inf, math.inf)
    assert range_of("kl.semantic") == (0, math.inf) and range_of("kl.share.semantic") == (0, 1)
    assert range_of("fft.turns") == range_of("rotation.turns") == range_of("rank.corrected") == (0, math.inf)
    assert is_shared("r2.token") and is_shared("loss.document") and not is_shared("equivariance.null")


def test_methods_that_metrics_name_are_written():
    assert {m.method for m in METRICS.values()} - {""} <= set(METHODS)
