"""Rows of the metrics of tasks and of longer texts."""

from typing import Any

from .metric import (
    CORRELATION,
    NATS,
    NOT_NEGATIVE,
    PROBE_SEEDS,
    R2,
    SHARE,
    SPLITS,
    TWICE,
    Metric,
    with_endings,
)

# Endings of names, as the analyses and families have them (tests/test_metrics.py compares them).
TARGETS = ("token", "segment", "intra")
PARTS = ("", ".position", ".semantic")  # of the hidden state, whole or one stream
VECTORS = ("", ".cls", ".semantic", ".position")  # of a text, by pooling; the mean has no ending


def _task(name: str, rows: str, unit: str = "", part: str = "task", **more: Any) -> Metric:
    """Return the metric of a task, with an interval over its rows."""
    return Metric(name=name, unit=unit, part=part, counts=rows, over=rows, **more)


def _grammar(name: str, unit: str = SHARE, **more: Any) -> Metric:
    return Metric(name=name, unit=unit, part="task", counts="test rows", over=PROBE_SEEDS, method="grammar", **more)


def _rank(method: str = "") -> Metric:
    return Metric(name="rank, 1 the best", counts="tasks", over="rows and seeds", method=method)


def _length(name: str, unit: str, index: str = "", **more: Any) -> Metric:
    return Metric(name=name, unit=unit, part="way to read on", index=index, method="length", **more)


TASKS: dict[str, Metric] = {
    "blimp": Metric(name="share of pairs right", unit=SHARE, counts="pairs", over="pairs"),
    **with_endings(
        "blimp.",
        ("paradigm", "field", "term"),
        Metric(name="share of pairs right", unit=SHARE, part="paradigm, field or term", counts="pairs", over="pairs"),
    ),
    **with_endings("linguistic.score", PARTS, _grammar("share right")),
    **with_endings("linguistic.layer", PARTS, _grammar("share right")),
    **with_endings("linguistic.f1", PARTS, _grammar("F1, mean of classes")),
    **with_endings("linguistic.selectivity", PARTS, _grammar("share right less the control’s", range=CORRELATION)),
    **with_endings("linguistic.compression", PARTS, _grammar("uniform code ÷ online code", "", range=NOT_NEGATIVE)),
    "linguistic.commonest": _grammar("share of the commonest class"),
    "linguistic.surface": _grammar("share right by the surface alone"),
    "linguistic.difference": _task(
        "share right beside the first model’s", "sentences", SHARE, method="grammar", range=CORRELATION
    ),
    "linguistic.taught": _task(
        "share right beside its untrained self’s", "sentences", SHARE, method="grammar", range=CORRELATION
    ),
    "linguistic.rank": _rank("grammar"),
    **with_endings(
        "holmes",
        (*PARTS, ".published"),
        Metric(name="mean score", counts="data sets", over=PROBE_SEEDS, method="holmes", range=CORRELATION),
    ),
    **with_endings(
        "holmes.dataset",
        PARTS,
        Metric(name="score", part="data set", counts="test rows", over=PROBE_SEEDS, method="holmes", range=CORRELATION),
    ),
    **with_endings(
        "holmes.layer",
        PARTS,
        Metric(name="score", part="data set", counts="test rows", over=PROBE_SEEDS, method="holmes", range=CORRELATION),
    ),
    **with_endings(
        "holmes.selectivity",
        PARTS,
        Metric(
            name="score above permuted labels",
            part="data set",
            counts="test rows",
            over=PROBE_SEEDS,
            method="holmes",
            range=TWICE,
        ),
    ),
    **with_endings(
        "holmes.phenomenon",
        PARTS,
        Metric(name="mean score", part="phenomenon", counts="data sets", method="holmes", range=CORRELATION),
    ),
    **with_endings(
        "holmes.field",
        PARTS,
        Metric(name="mean score", part="field", counts="data sets", method="holmes", range=CORRELATION),
    ),
    "holmes.unsteady": Metric(
        name="largest deviation over seeds", part="data set that is left out", counts="models", method="holmes"
    ),
    "holmes.difference": _task(
        "score beside the first model’s", "test rows", part="data set", method="holmes", range=TWICE
    ),
    "holmes.taught": _task(
        "score beside its untrained self’s", "test rows", part="data set", method="holmes", range=TWICE
    ),
    "holmes.rank": _rank("holmes"),
    **with_endings(
        "glue.",
        (
            "score",
            "score.mismatched",
            "best",
            "median",
            "optimism",
            "accuracy",
            "f1",
            "matthews",
            "pearson",
            "spearman",
        ),
        _task("score on a task", "development rows", seed="fine-tuning seed", range=CORRELATION),
    ),
    "glue.difference": _task("score beside the first model's", "development rows", range=TWICE),
    "glue.taught": _task("score beside its untrained self's", "development rows", range=TWICE),
    "glue.rank": _rank(),
    **with_endings(
        "squad.",
        ("score", "best", "f1", "optimism"),
        _task("F1 of the answers", "questions", SHARE, seed="fine-tuning seed"),
    ),
    "squad.exact": _task("answers exactly right", "questions", SHARE, seed="fine-tuning seed"),
    "squad.best.exact": _task("answers exactly right", "questions", SHARE, seed="fine-tuning seed"),
    "squad.unanswerable": _task("questions without an answer", "questions", SHARE),
    "squad.difference": _task("F1 beside the first model's", "questions", range=CORRELATION),
    "squad.taught": _task("F1 beside its untrained self's", "questions", range=CORRELATION),
    "squad.rank": _rank(),
    "length.loss": _length("loss", NATS, "position"),
    "length.perplexity": _length("pseudo-perplexity", "", "position", range=NOT_NEGATIVE),
    "length.beyond": _length("loss beyond the trained length", NATS),
    "length.gain": _length("nats below reading in pieces", NATS),
    "length.chosen": Metric(
        name="nats below reading in pieces by the way that the other half of the documents prefers",
        unit=NATS,
        method="length",
    ),
    "length.copy": _length("nats saved by a passage that comes again", NATS, "tokens before"),
    **with_endings(
        "length.drift", PARTS, _length("change of the states", SHARE, "positions moved", range=NOT_NEGATIVE)
    ),
    **with_endings(
        "length.r2.",
        [read + target + part for read in ("", "update.") for target in TARGETS for part in PARTS],
        Metric(
            name="R² beyond the trained length",
            unit=R2,
            part="way to read on",
            counts="tokens",
            over=SPLITS,
            method="length",
        ),
    ),
    "length.cosine": _length("cosine with the vector in pieces", "", range=CORRELATION),
    "length.found": _length("second halves found", SHARE),
    "length.lost": _length("second halves that pieces find beyond the way", SHARE, range=CORRELATION),
    "length.frequencies": Metric(name="loss of the texts' own token frequencies", unit=NATS, method="length"),
    "length.trained": Metric(name="trained length", unit="tokens", method="length"),
    **with_endings(
        "mteb.score",
        VECTORS,
        _task("score on a task", "pairs, test rows or queries", method="vectors", range=CORRELATION),
    ),
    **with_endings(
        "mteb.type",
        VECTORS,
        Metric(
            name="mean score of the tasks of a type",
            part="type of task",
            counts="tasks",
            method="vectors",
            range=CORRELATION,
        ),
    ),
    **with_endings(
        "mteb.difference",
        VECTORS,
        _task("score beside the first model's", "pairs, test rows or queries", method="vectors", range=TWICE),
    ),
    **with_endings(
        "mteb.taught",
        VECTORS,
        _task("score beside its untrained self's", "pairs, test rows or queries", method="vectors", range=TWICE),
    ),
    **with_endings("mteb.rank", VECTORS, _rank("vectors")),
}
