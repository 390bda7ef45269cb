"""What metrics.py says of a metric, against the records of studies."""

import math
import re
from pathlib import Path

import pytest
from pyarrow import parquet

import whatwhere as ww
from whatwhere.analysis import ablation, attention_weights, correlations, passes, position_tables, probes, regressions
from whatwhere.analysis.record_context import RecordContext
from whatwhere.evaluation import glue
from whatwhere.evaluation.mteb import Pooling
from whatwhere.models.prediction_kinds import POOLINGS
from whatwhere.records import task_metrics
from whatwhere.records.metric import R2, Metric
from whatwhere.records.metrics import add_metrics, all_metrics, is_shared, methods, metric, range_of
from whatwhere.study.evaluation_run import BENCHMARKS
from whatwhere.study.training_records import COSTS

RESULTS = Path(__file__).parents[1] / "docs" / "results"
CORRECTED = ("variance.position", "squad.optimism")  # less what chance gives, and a difference that is hardly negative
LOSSES = ("loss", "loss.unigram", "kl.semantic", "ablation.remove", "swap.loss")


def values_by_metric(file):
    """Metric -> its smallest and largest value in a file of records; tables, as objects of each record take seconds."""
    found = parquet.read_table(file, columns=["metric", "value"]).group_by("metric")
    rows = found.aggregate([("value", "min"), ("value", "max")]).to_pylist()
    return {row["metric"]: (row["value_min"], row["value_max"]) for row in rows}


def test_records_have_the_unit_of_their_metric():
    context = RecordContext("m", 0, "s")
    assert {context.record(name, 1.0).unit for name in LOSSES} == {"nats"}
    assert {context.record(name, 1.0).unit for name in ("r2.token", "hidden.top2", "kl.share.semantic")} == {""}
    assert [context.record(name, 1.0).unit for name in ("n50", "seconds", "memory.peak", "tokens_per_second")] == [
        "%",
        "s",
        "bytes",
        "tokens/s",
    ]


def test_every_metric_of_a_study_has_a_row():
    names = {name for file in RESULTS.glob("*/*.parquet") for name in values_by_metric(file)}
    assert len(names) > 80 and names <= set(all_metrics())


def test_custom_terms_have_the_row_of_terms():
    """A scheme of your own names its terms; its study ended at its first page."""
    assert metric("kl.kerple") == metric("kl.relative") and metric("kl.share.kerple") == metric("kl.share.relative")


def test_an_unknown_metric_is_an_error():
    """No beginning of a name stands for others, so that a misspelt one does not get the row of another."""
    for name in ("r2.tokn", "kl.", "glue.*", ""):
        with pytest.raises(ValueError, match=f"The metric {re.escape(repr(name))} is unknown. Add its row in"):
            metric(name)
    with pytest.raises(ValueError, match="'los' is unknown"):
        RecordContext("m", 0, "s").record("los", 1.0)


def test_a_metric_has_one_row():
    with pytest.raises(ValueError, match="'pca.share' has a row already"):
        add_metrics({"pca.share": metric("loss")})
    assert metric("pca.share").method == "tables"


def test_a_row_has_keywords_only():
    with pytest.raises(TypeError):
        Metric("loss", "nats")


def test_names_have_the_endings_of_their_analyses():
    """Rows of tasks name each ending themselves, as they stand below what measures them."""
    assert task_metrics.TARGETS == passes.TARGETS
    assert set(task_metrics.VECTORS) == {Pooling(p).of("") for p in POOLINGS}
    assert task_metrics.PARTS == tuple("" if p == "all" else f".{p}" for p in probes.stream_columns(ww.preset("dstg")))
    made = [f"ablation.{kind}" for kind in ablation.KINDS]
    made += [f"attention.{kind}" for kind in attention_weights.KINDS]
    made += [f"correlation.{statistic}" for statistic in correlations.STATISTICS]
    made += [f"regression.{stream}{ending}" for stream in probes.STREAMS for ending in regressions.ENDINGS]
    made += [f"{start}{target}" for start in (probes.STATE, probes.UPDATE) for target in passes.TARGETS]
    made += [f"pca.top{count}" for count in position_tables.TOPS]
    made += [f"glue.{name}" for task in glue.TASKS.values() for name in task.metrics]
    made += [f"glue.score.{split.removeprefix('dev_')}" for t in glue.TASKS.values() for split in t.splits[1:]]
    made += [*COSTS]
    made += [f"{family.score}{ending}" for family in BENCHMARKS for ending in family.variants]
    assert set(made) <= set(all_metrics())


def test_records_lie_in_the_range_of_their_metric():
    for file in RESULTS.glob("*/*.parquet"):
        for name, (smallest, largest) in values_by_metric(file).items():
            low, high = range_of(name)
            if metric(name).unit == R2 or name in CORRECTED:  # which may come out below nothing
                low = -math.inf
            assert low - 1e-9 <= smallest <= largest <= high + 1e-9, f"{name} of {file.name}: {smallest}, {largest}"


def test_ranges_of_differences_and_correlations_are_their_own():
    assert range_of("pca.top2") == (0, 1) and range_of("r2.token") == (-0.25, 1) and range_of("n50") == (0, 100)
    assert range_of("correlation.corrected") == range_of("linguistic.difference") == (-1, 1)
    assert range_of("loss") == range_of("ablation.remove") == (-math.inf, math.inf)
    assert range_of("kl.semantic") == (0, math.inf) and range_of("kl.share.semantic") == (0, 1)
    assert range_of("fft.turns") == range_of("rotation.turns") == range_of("rank.corrected") == (0, math.inf)
    assert is_shared("r2.token") and is_shared("loss.document") and not is_shared("equivariance.null")


def test_methods_that_metrics_name_are_written():
    assert {m.method for m in all_metrics().values()} - {""} <= set(methods())
