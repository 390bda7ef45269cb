"""Metrics of records: name, range, meaning of the columns, source of the interval, and method of each."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

R2 = "R²"
SHARE = "share"
NATS = "nats"
SPLITS = "document splits"
DOCUMENTS = "documents"
GROUPS = "groups of documents"
PROBE_SEEDS = "seeds of the probe"
PAIRS = "pairs of positions"
PRODUCT = "words or positions, with either"
STREAM = "part of the hidden state"
TERM = "term of the scores"
BASELINE = "other model"
TABLE = "position table"
ROWS = "rows of the table"
CHANGE = "the table, or what training added to it"
# Ranges: least and largest possible values; intervals are formed on the scale of the range (`intervals`).
UNBOUNDED = (-math.inf, math.inf)
NOT_NEGATIVE = (0.0, math.inf)
AT_MOST_ONE = (-math.inf, 1.0)
UNIT = (0.0, 1.0)
CORRELATION = (-1.0, 1.0)  # and a difference of two shares
TWICE = (-2.0, 2.0)  # a difference of two correlations
READ = (-0.25, 1.0)  # an R²: small ones lie on both sides of 0, and one below 0 tells no less than 0
_RANGES = {SHARE: UNIT, R2: READ, "%": (0.0, 100.0)}
# Intervals over draws that every seed makes for itself, so that the spread of the seeds contains them.
_BY_SEED = {PROBE_SEEDS, "random halves", "random orders of the rows", "rows and seeds", "heads"}


@dataclass(frozen=True)
class Metric:
    """Meaning of a metric's records: their name, unit, columns, interval and method.

    name: label of an axis or a column. unit: unit of a value, "share" or "R²" for a pure number of that kind, "" for
    other pure numbers. part, index: meaning of these columns. counts: things that `n` counts. over: source of the
    record's interval. repeats: things that `index` counts where it repeats one quantity, "splits" or "documents".
    method: heading in methods.md of the paragraph on how it is measured. seed: meaning of the column `seed`. range:
    least and largest possible value, by default those of the unit.
    """

    name: str
    unit: str = ""
    part: str = ""
    index: str = ""
    counts: str = DOCUMENTS
    over: str = DOCUMENTS
    repeats: str = ""
    method: str = ""
    seed: str = "training seed"
    range: tuple[float, float] | None = None


def _probe(target: str) -> Metric:
    return Metric(f"R² of {target}", R2, STREAM, "split", "tokens", SPLITS, "splits", "probe")


def _stress(name: str) -> Metric:
    return Metric(
        name, "", TABLE, "rank or dimensions of the table", PAIRS, GROUPS, method="geometry", range=NOT_NEGATIVE
    )


def _task(name: str, rows: str, unit: str = "", part: str = "task", **more: Any) -> Metric:
    """Return the metric of a task, with an interval over its rows."""
    return Metric(name, unit, part, counts=rows, over=rows, **more)


def _grammar(name: str, unit: str = SHARE, **more: Any) -> Metric:
    return Metric(name, unit, "task", counts="test rows", over=PROBE_SEEDS, method="grammar", **more)


def _rank(method: str = "") -> Metric:
    return Metric("rank, 1 the best", counts="tasks", over="rows and seeds", method=method)


def _length(name: str, unit: str, index: str = "", **more: Any) -> Metric:
    return Metric(name, unit, "way to read on", index, method="length", **more)


def _look(name: str) -> Metric:
    return Metric(name, SHARE, TERM, method="pass")


# A name that ends in "*" stands for all names with that beginning; the longest that fits counts.
METRICS: dict[str, Metric] = {
    "r2.*": _probe("a target"),
    "r2.token": _probe("position"),
    "r2.segment": _probe("the segment index"),
    "r2.intra": _probe("progress in a segment"),
    "r2.update.*": _probe("a target in what a block writes"),
    "r2.segment.ceiling": Metric("R² of position alone", R2, "", "split", "tokens", SPLITS, "splits", "ceiling"),
    "r2.intra.ceiling": Metric("R² of position alone", R2, "", "split", "tokens", SPLITS, "splits", "ceiling"),
    "variance.position": Metric("variance between positions", SHARE, STREAM, over=GROUPS, method="variance"),
    "shift.change": Metric("change of the states", SHARE, STREAM, range=NOT_NEGATIVE),
    "hidden.top2": Metric("variance in two components", SHARE, STREAM, method="pass"),
    "hidden.stress": Metric("stress at the best scale", "", STREAM, over=GROUPS, method="centres", range=NOT_NEGATIVE),
    "hidden.stress.level": Metric(
        "stress of equal distances", "", counts="positions", method="centres", range=NOT_NEGATIVE
    ),
    "sentences.*": Metric("between ÷ within sentences", "", STREAM, method="sentences", range=NOT_NEGATIVE),
    "sentences.excess": Metric("log ratio to random cuts", "", STREAM, method="sentences"),
    "regression.*": Metric("R² of a stream", R2, BASELINE, "split", DOCUMENTS, SPLITS, "splits", "regression"),
    "kl.*": Metric("change of attention (KL)", NATS, method="heads", range=NOT_NEGATIVE),
    "kl.share.*": Metric("share of the change", SHARE, method="heads"),
    "head.label": Metric("draws with the same label", SHARE, "label", method="heads"),
    "heads.share": Metric("share of heads", SHARE, "label", counts="heads", method="heads"),
    "ablation.*": Metric("rise of loss", NATS, f"{TERM}, or stream", method="ablation"),
    "loss.document": Metric("loss", NATS, "", "document", DOCUMENTS, DOCUMENTS, "documents", "ablation"),
    "ablation.loss": Metric("loss as it is", NATS, "", "document", DOCUMENTS, DOCUMENTS, "documents", "ablation"),
    "attention.*": _look("attention weight"),
    "attention.previous": _look("before"),
    "attention.next": _look("after"),
    "attention.self": _look("itself"),
    "attention.local": _look("near"),
    "attention.special": _look("special"),
    "attention.retrieval": Metric("copy", SHARE, TERM, method="retrieval", range=CORRELATION),
    "attention.broad": _look("spread"),
    "local.*": Metric("weight on neighbours", SHARE, TERM, method="neighbours"),
    "local.lead*": Metric(
        "weight on neighbours above another term's", SHARE, TERM, method="neighbours", range=CORRELATION
    ),
    "scores.std": Metric("standard deviation of the scores", "score units", TERM, range=NOT_NEGATIVE),
    "theta.*": Metric("score of a pair with [CLS], or of others", "score units"),
    "correlation.std": Metric("standard deviation", "score units", PRODUCT, method="products", range=NOT_NEGATIVE),
    "correlation.row": Metric("variance between queries", SHARE, PRODUCT, method="products"),
    "correlation.column": Metric("variance between keys", SHARE, PRODUCT, method="products"),
    "correlation.share": Metric("share of the variance", SHARE, PRODUCT, method="products"),
    "pattern": Metric("pattern of a head", "", "pattern", method="pass"),
    "patterns.share": Metric("share of heads", SHARE, "pattern", counts="heads", over="heads", method="pass"),
    "loss": Metric("loss", NATS, "train or validation", counts="masked tokens", over="held-out windows"),
    "loss.unigram": Metric("entropy of token frequencies", NATS, counts="tokens"),
    "blimp": Metric("share of pairs right", SHARE, counts="pairs", over="pairs"),
    "blimp.*": Metric("share of pairs right", SHARE, "paradigm, field or term", counts="pairs", over="pairs"),
    "linguistic.score*": _grammar("share right"),
    "linguistic.layer*": _grammar("share right"),
    "linguistic.f1*": _grammar("F1, mean of classes"),
    "linguistic.selectivity*": _grammar("share right less the control’s", range=CORRELATION),
    "linguistic.compression*": _grammar("uniform code ÷ online code", "", range=NOT_NEGATIVE),
    "linguistic.commonest": _grammar("share of the commonest class"),
    "linguistic.surface": _grammar("share right by the surface alone"),
    "linguistic.difference": _task(
        "share right beside the first model’s", "sentences", SHARE, method="grammar", range=CORRELATION
    ),
    "linguistic.taught": _task(
        "share right beside its untrained self’s", "sentences", SHARE, method="grammar", range=CORRELATION
    ),
    "linguistic.rank": _rank("grammar"),
    "holmes*": Metric("mean score", "", counts="data sets", over=PROBE_SEEDS, method="holmes", range=CORRELATION),
    "holmes.dataset*": Metric(
        "score", "", "data set", counts="test rows", over=PROBE_SEEDS, method="holmes", range=CORRELATION
    ),
    "holmes.layer*": Metric(
        "score", "", "data set", counts="test rows", over=PROBE_SEEDS, method="holmes", range=CORRELATION
    ),
    "holmes.selectivity*": Metric(
        "score above permuted labels",
        "",
        "data set",
        counts="test rows",
        over=PROBE_SEEDS,
        method="holmes",
        range=TWICE,
    ),
    "holmes.phenomenon*": Metric(
        "mean score", "", "phenomenon", counts="data sets", method="holmes", range=CORRELATION
    ),
    "holmes.field*": Metric("mean score", "", "field", counts="data sets", method="holmes", range=CORRELATION),
    "holmes.unsteady": Metric(
        "largest deviation over seeds", "", "data set that is left out", "", "models", method="holmes"
    ),
    "holmes.difference": _task(
        "score beside the first model’s", "test rows", part="data set", method="holmes", range=TWICE
    ),
    "holmes.taught": _task(
        "score beside its untrained self’s", "test rows", part="data set", method="holmes", range=TWICE
    ),
    "holmes.rank": _rank("holmes"),
    "glue.*": _task("score on a task", "development rows", seed="fine-tuning seed", range=CORRELATION),
    "glue.difference": _task("score beside the first model's", "development rows", range=TWICE),
    "glue.taught": _task("score beside its untrained self's", "development rows", range=TWICE),
    "glue.rank": _rank(),
    "squad.*": _task("F1 of the answers", "questions", SHARE, seed="fine-tuning seed"),
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
        "nats below reading in pieces by the way that the other half of the documents prefers", NATS, method="length"
    ),
    "length.copy": _length("nats saved by a passage that comes again", NATS, "tokens before"),
    "length.drift*": _length("change of the states", SHARE, "positions moved", range=NOT_NEGATIVE),
    "length.r2.*": Metric("R² beyond the trained length", R2, "way to read on", "", "tokens", SPLITS, method="length"),
    "length.frequencies": Metric("loss of the texts' own token frequencies", NATS, method="length"),
    "length.trained": Metric("trained length", "tokens", method="length"),
    "mteb.score*": _task("score on a task", "pairs, test rows or queries", method="vectors", range=CORRELATION),
    "mteb.type*": Metric(
        "mean score of the tasks of a type", "", "type of task", counts="tasks", method="vectors", range=CORRELATION
    ),
    "mteb.difference*": _task(
        "score beside the first model's", "pairs, test rows or queries", method="vectors", range=TWICE
    ),
    "mteb.taught*": _task(
        "score beside its untrained self's", "pairs, test rows or queries", method="vectors", range=TWICE
    ),
    "mteb.rank*": _rank("vectors"),
    "accuracy.commonest": Metric("share of the commonest class", SHARE, "validation"),
    "h1*": Metric("distance of the mean words of two positions", "", counts="positions", range=NOT_NEGATIVE),
    "h3*": Metric("the same behind W_Q W_Kᵀ", "", "which way", counts="positions", range=NOT_NEGATIVE),
    "accuracy": Metric("masked tokens right", SHARE, "validation", counts="masked tokens"),
    "convergence.*": Metric("share of its steps", SHARE, BASELINE, counts="validations", method="convergence"),
    "corpus.documents": Metric("documents", "documents"),
    "corpus.characters": Metric("characters", "characters"),
    "corpus.tokens": Metric("tokens", "tokens"),
    "corpus.windows": Metric("windows", "windows"),
    "corpus.room": Metric("room to shift a window", "tokens", counts="windows"),
    "corpus.from_start": Metric("windows that begin with a document", SHARE, counts="windows"),
    "probe.documents": Metric("documents that are probed", "documents"),
    "probe.windows": Metric("windows of them", "windows"),
    "probe.length": Metric("length of a window", "tokens"),
    "swap.loss": Metric("rise of loss", NATS, "tokens", "distance"),
    "swap.positive": Metric("pairs whose swap costs", SHARE, "", "distance", "pairs", "pairs"),
    "fft.turns": Metric("turns over the table", "turns", "", "component", "positions", range=NOT_NEGATIVE),
    "fft.peak": Metric("turns of the largest columns", "turns", "", "order", "positions", range=NOT_NEGATIVE),
    "outlier": Metric("distance to the nearest row", "medians", "", "position", "positions", range=NOT_NEGATIVE),
    "rotation.turns": Metric(
        "turns of a pair of components", "turns", "components", "pair", "positions", range=NOT_NEGATIVE
    ),
    "rotation.strength": Metric("motion that is rotation", SHARE, "components", "pair", "positions"),
    "rotation.share": Metric("variance of a pair of components", SHARE, "components", "pair", "positions"),
    "rotation.shift": Metric(
        "shift between a pair of components", "periods", "components", "pair", "positions", range=(0.0, 0.5)
    ),
    "n50.count": Metric("components for half the variance", "components", counts="positions", range=NOT_NEGATIVE),
    "parameters": Metric("parameters", "parameters"),
    "parameters.embedding": Metric("of them embeddings", "parameters"),
    "operations": Metric("operations/token", "operations/token", method="operations"),
    "steps": Metric("steps", "steps"),
    "passes": Metric("times that a training reads each window", "times"),
    "tokens": Metric("training tokens", "tokens"),
    "seconds": Metric("training time", "s"),
    "tokens_per_second": Metric("tokens/s", "tokens/s"),
    "memory.peak": Metric("peak memory", "bytes"),
    "pca.share": Metric("share of variance", SHARE, "", "component", "positions", method="tables"),
    "pca.*": Metric("share of variance", SHARE, counts="positions", method="tables"),
    "dct.low4": Metric("power in four lowest frequencies", SHARE, "", "component", "positions", method="tables"),
    "n50": Metric("components for half the variance", "%", counts="positions", method="tables"),
    "equivariance": Metric("share explained by distance", SHARE, counts="positions", over="random orders of the rows"),
    "equivariance.*": Metric(
        "share explained by distance", SHARE, "", "components", "positions", "random orders of the rows"
    ),
    "distance.*": Metric("root mean square distance", "", counts=PAIRS, over=GROUPS, method="geometry"),
    "floor.mean": Metric(
        "noise floor", "", counts="positions", over="random halves", method="geometry", range=NOT_NEGATIVE
    ),
    "between": Metric(
        "distance", "", "two corpora", "position", over="random halves", method="geometry", range=NOT_NEGATIVE
    ),
    "stress.raw": _stress("raw stress"),
    "stress.optimal": _stress("stress at the best scale"),
    "stress.held_out": _stress("stress on other documents"),
    "stress.ratio.*": _stress("stress of one table over that of another"),
    "stress.*": _stress("stress"),
    "violations*": Metric("triples out of order", SHARE, TABLE, "rank", "triples", GROUPS, method="geometry"),
    "correlation*": Metric(
        "correlation with the corpus", "", TABLE, "", PAIRS, GROUPS, method="geometry", range=CORRELATION
    ),
    "separation": Metric(
        "smallest distance of two positions", "", ROWS, counts="positions", method="geometry", range=NOT_NEGATIVE
    ),
    "separation.quantile": Metric("distances of all pairs", "", ROWS, "percentile", PAIRS, range=NOT_NEGATIVE),
    "table.rms": Metric("root mean square", "", CHANGE, counts="positions", method="tables", range=NOT_NEGATIVE),
    "table.floor": Metric("share of white noise", SHARE, CHANGE, counts="positions", method="tables"),
    "table.walk": Metric("AdamW’s random walk", "", CHANGE, counts="positions", method="tables", range=NOT_NEGATIVE),
    "change": Metric("change since the first checkpoint", SHARE, ROWS, counts="positions", range=NOT_NEGATIVE),
    "projected.*": Metric("stress behind M", "", TABLE, method="projected", range=NOT_NEGATIVE),
    "low_rank.stress.*": _stress("stress at a rank"),
    "low_rank.closed*": Metric("way from random to MDS", SHARE, "", "rank", "positions", range=AT_MOST_ONE),
    "lag.correlation*": Metric(
        "correlation with the lag", "", "", "", PAIRS, GROUPS, method="geometry", range=CORRELATION
    ),
    "rank*": Metric("rank", "", "", "", "positions", GROUPS, method="geometry", range=NOT_NEGATIVE),
    "support": Metric("tokens of the rarest position", "tokens", counts="positions", method="geometry"),
    "positions.kept": Metric("positions kept", "positions", method="geometry"),
    "toeplitz*": Metric("share of the lag alone", SHARE, counts="positions", over=GROUPS, method="geometry"),
    "circulant*": Metric("share of circulant matrices", SHARE, counts="positions", over=GROUPS, method="geometry"),
    "mds.share*": Metric("share of variance", SHARE, "", "component", "positions", GROUPS, method="geometry"),
}


def metric(name: str) -> Metric:
    """Return the entry of a metric in `METRICS`; an unknown metric gets an entry with its name alone."""
    if name in METRICS:
        return METRICS[name]
    fits = [key for key in METRICS if key.endswith("*") and name.startswith(key[:-1])]
    return METRICS[max(fits, key=len)] if fits else Metric(name)


def unit(name: str) -> str:
    """Return the unit of a metric's records, "" for a pure number such as a share or an R²."""
    known = metric(name).unit
    return "" if known in (SHARE, R2) else known


def range_of(name: str) -> tuple[float, float]:
    """Return the least and the largest possible value of a metric, -inf and inf where there is none."""
    known = metric(name)
    return known.range or _RANGES.get(known.unit, UNBOUNDED)


def is_shared(name: str) -> bool:
    """Tell if the records' interval is over data that all seeds read, so that more seeds make it no smaller."""
    return metric(name).over not in _BY_SEED


def repeats(name: str) -> str:
    """Return what the index of a metric counts where it repeats one quantity: "splits" or "documents", else ""."""
    return metric(name).repeats


def _paragraphs() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("methods.md").read_text(encoding="utf-8").replace(" %", "\u202f%")
    sections = (section.strip().split("\n\n") for section in text.split("\n## ")[1:])
    return {key: tuple(paragraph.replace("\n", " ") for paragraph in of_key) for key, *of_key in sections}


METHODS = _paragraphs()  # `Metric.method` -> how it is measured, in the order of methods.md
