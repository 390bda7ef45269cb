"""What metrics.py says of a metric, against the records of studies."""

from pathlib import Path

from whatwhere.analysis.who import Who
from whatwhere.metrics import METHODS, METRICS, Metric, metric
from whatwhere.records import read_records

RESULTS = Path(__file__).parents[1] / "docs" / "results"
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


def test_methods_that_metrics_name_are_written():
    assert {m.method for m in METRICS.values()} - {""} <= set(METHODS)
