"""Metrics of records: the row of each, and what it says of the name of a metric."""

from pathlib import Path

from .metric import (
    AT_MOST_ONE,
    BASELINE,
    CHANGE,
    CORRELATION,
    GROUPS,
    NATS,
    NOT_NEGATIVE,
    PAIRS,
    PROBE_SEEDS,
    PRODUCT,
    R2,
    READ,
    ROWS,
    SHARE,
    SPLITS,
    STREAM,
    TABLE,
    TERM,
    UNBOUNDED,
    UNIT,
    Metric,
    with_endings,
)
from .task_metrics import TARGETS, TASKS

_RANGES = {SHARE: UNIT, R2: READ, "%": (0.0, 100.0)}
# Intervals over draws that every seed makes for itself, so that the spread of the seeds contains them.
_BY_SEED = {PROBE_SEEDS, "random halves", "random orders of the rows", "rows and seeds", "heads"}


def _probe(target: str) -> Metric:
    return Metric(
        name=f"R² of {target}",
        unit=R2,
        part=STREAM,
        index="split",
        counts="tokens",
        over=SPLITS,
        repeats="splits",
        method="probe",
    )


def _stress(name: str) -> Metric:
    return Metric(
        name=name,
        part=TABLE,
        index="rank or dimensions of the table",
        counts=PAIRS,
        over=GROUPS,
        method="geometry",
        range=NOT_NEGATIVE,
    )


def _look(name: str) -> Metric:
    return Metric(name=name, unit=SHARE, part=TERM, method="pass")


# Endings of names: how analyses name what they measure of several things (tests/test_metrics.py compares them).
STREAMS = ("position", "semantic")
TERMS = ("semantic", "mixed", "semantic_to_absolute", "absolute_to_semantic", "absolute", "relative")
CORRECTED = ("", ".corrected")  # for small samples
SCALES = ("raw", "raw.corrected", "optimal", "optimal.corrected")


# Metrics that end with a term of the scores, whose name a scheme of your own chooses; the longer beginning comes first.
OF_TERMS = {
    "kl.share.": Metric(name="share of the change", unit=SHARE, method="heads"),
    "kl.": Metric(name="change of attention (KL)", unit=NATS, method="heads", range=NOT_NEGATIVE),
}

# Rows stand here and not beside their analyses, which load torch: claims and pages are made without it.
METRICS: dict[str, Metric] = {
    **with_endings("r2.", [f"{target}.chance" for target in TARGETS], _probe("a target")),
    "r2.token": _probe("position"),
    "r2.segment": _probe("the segment index"),
    "r2.intra": _probe("progress in a segment"),
    **with_endings(
        "r2.update.",
        [target + ending for target in TARGETS for ending in ("", ".chance")],
        _probe("a target in what a block writes"),
    ),
    **with_endings(
        "r2.",
        ("segment.ceiling", "intra.ceiling"),
        Metric(
            name="R² of position alone",
            unit=R2,
            index="split",
            counts="tokens",
            over=SPLITS,
            repeats="splits",
            method="ceiling",
        ),
    ),
    "variance.position": Metric(
        name="variance between positions", unit=SHARE, part=STREAM, over=GROUPS, method="variance"
    ),
    "shift.change": Metric(name="change of the states", unit=SHARE, part=STREAM, range=NOT_NEGATIVE),
    "hidden.top2": Metric(name="variance in two components", unit=SHARE, part=STREAM, method="pass"),
    "hidden.stress": Metric(
        name="stress at the best scale", part=STREAM, over=GROUPS, method="centres", range=NOT_NEGATIVE
    ),
    "hidden.stress.level": Metric(
        name="stress of equal distances", counts="positions", method="centres", range=NOT_NEGATIVE
    ),
    **with_endings(
        "sentences.",
        ("separation", "null"),
        Metric(name="between ÷ within sentences", part=STREAM, method="sentences", range=NOT_NEGATIVE),
    ),
    "sentences.excess": Metric(name="log ratio to random cuts", part=STREAM, method="sentences"),
    **with_endings(
        "regression.",
        [stream + ending for stream in STREAMS for ending in ("", ".place", ".chance")],
        Metric(
            name="R² of a stream",
            unit=R2,
            part=BASELINE,
            index="split",
            over=SPLITS,
            repeats="splits",
            method="regression",
        ),
    ),
    **{f"{beginning}{term}": row for beginning, row in OF_TERMS.items() for term in TERMS},
    "head.label": Metric(name="draws with the same label", unit=SHARE, part="label", method="heads"),
    "heads.share": Metric(name="share of heads", unit=SHARE, part="label", counts="heads", method="heads"),
    **with_endings(
        "ablation.",
        ("remove", "mean", "shuffle"),
        Metric(name="rise of loss", unit=NATS, part=f"{TERM}, or stream", method="ablation"),
    ),
    "loss.document": Metric(name="loss", unit=NATS, index="document", repeats="documents", method="ablation"),
    "ablation.loss": Metric(name="loss as it is", unit=NATS, index="document", repeats="documents", method="ablation"),
    **with_endings("attention.", ("special.keys", "retrieval.raw", "retrieval.control"), _look("attention weight")),
    "attention.previous": _look("before"),
    "attention.next": _look("after"),
    "attention.self": _look("itself"),
    "attention.local": _look("near"),
    "attention.special": _look("special"),
    "attention.retrieval": Metric(name="copy", unit=SHARE, part=TERM, method="retrieval", range=CORRELATION),
    "attention.broad": _look("spread"),
    **with_endings(
        "local.",
        ("weight", "share", "best", "even"),
        Metric(name="weight on neighbours", unit=SHARE, part=TERM, method="neighbours"),
    ),
    "local.lead": Metric(
        name="weight on neighbours above another term's", unit=SHARE, part=TERM, method="neighbours", range=CORRELATION
    ),
    "scores.std": Metric(name="standard deviation of the scores", unit="score units", part=TERM, range=NOT_NEGATIVE),
    **with_endings(
        "theta.",
        ("query", "key", "mean", "std"),
        Metric(name="score of a pair with [CLS], or of others", unit="score units"),
    ),
    "correlation.std": Metric(
        name="standard deviation", unit="score units", part=PRODUCT, method="products", range=NOT_NEGATIVE
    ),
    "correlation.row": Metric(name="variance between queries", unit=SHARE, part=PRODUCT, method="products"),
    "correlation.column": Metric(name="variance between keys", unit=SHARE, part=PRODUCT, method="products"),
    "correlation.share": Metric(name="share of the variance", unit=SHARE, part=PRODUCT, method="products"),
    "pattern": Metric(name="pattern of a head", part="pattern", method="pass"),
    "patterns.share": Metric(
        name="share of heads", unit=SHARE, part="pattern", counts="heads", over="heads", method="pass"
    ),
    "loss": Metric(name="loss", unit=NATS, part="train or validation", counts="masked tokens", over="held-out windows"),
    "loss.unigram": Metric(name="entropy of token frequencies", unit=NATS, counts="tokens"),
    **TASKS,
    "accuracy.commonest": Metric(name="share of the commonest class", unit=SHARE, part="validation"),
    **with_endings(
        "h1",
        ("", ".median", ".floor"),
        Metric(name="distance of the mean words of two positions", counts="positions", range=NOT_NEGATIVE),
    ),
    **with_endings(
        "h3",
        ("", ".median", ".floor"),
        Metric(name="the same behind W_Q W_Kᵀ", part="which way", counts="positions", range=NOT_NEGATIVE),
    ),
    "accuracy": Metric(name="masked tokens right", unit=SHARE, part="validation", counts="masked tokens"),
    **with_endings(
        "convergence.",
        ("reached", "share"),
        Metric(name="share of its steps", unit=SHARE, part=BASELINE, counts="validations", method="convergence"),
    ),
    "corpus.documents": Metric(name="documents", unit="documents"),
    "corpus.characters": Metric(name="characters", unit="characters"),
    "corpus.tokens": Metric(name="tokens", unit="tokens"),
    "corpus.windows": Metric(name="windows", unit="windows"),
    "corpus.room": Metric(name="room to shift a window", unit="tokens", counts="windows"),
    "corpus.from_start": Metric(name="windows that begin with a document", unit=SHARE, counts="windows"),
    "probe.documents": Metric(name="documents that are probed", unit="documents"),
    "probe.windows": Metric(name="windows of them", unit="windows"),
    "probe.length": Metric(name="length of a window", unit="tokens"),
    "swap.loss": Metric(name="rise of loss", unit=NATS, part="tokens", index="distance"),
    "swap.positive": Metric(name="pairs whose swap costs", unit=SHARE, index="distance", counts="pairs", over="pairs"),
    "fft.turns": Metric(
        name="turns over the table", unit="turns", index="component", counts="positions", range=NOT_NEGATIVE
    ),
    "fft.peak": Metric(
        name="turns of the largest columns", unit="turns", index="order", counts="positions", range=NOT_NEGATIVE
    ),
    "outlier": Metric(
        name="distance to the nearest row", unit="medians", index="position", counts="positions", range=NOT_NEGATIVE
    ),
    "rotation.turns": Metric(
        name="turns of a pair of components",
        unit="turns",
        part="components",
        index="pair",
        counts="positions",
        range=NOT_NEGATIVE,
    ),
    "rotation.strength": Metric(
        name="motion that is rotation", unit=SHARE, part="components", index="pair", counts="positions"
    ),
    "rotation.share": Metric(
        name="variance of a pair of components", unit=SHARE, part="components", index="pair", counts="positions"
    ),
    "rotation.shift": Metric(
        name="shift between a pair of components",
        unit="periods",
        part="components",
        index="pair",
        counts="positions",
        range=(0.0, 0.5),
    ),
    "n50.count": Metric(
        name="components for half the variance", unit="components", counts="positions", range=NOT_NEGATIVE
    ),
    "parameters": Metric(name="parameters", unit="parameters"),
    "parameters.embedding": Metric(name="of them embeddings", unit="parameters"),
    "operations": Metric(name="operations/token", unit="operations/token", method="operations"),
    "steps": Metric(name="steps", unit="steps"),
    "passes": Metric(name="times that a training reads each window", unit="times"),
    "tokens": Metric(name="training tokens", unit="tokens"),
    "seconds": Metric(name="training time", unit="s"),
    "tokens_per_second": Metric(name="tokens/s", unit="tokens/s"),
    "memory.peak": Metric(name="peak memory", unit="bytes"),
    "pca.share": Metric(name="share of variance", unit=SHARE, index="component", counts="positions", method="tables"),
    **with_endings(
        "pca.",
        ("top2", "top3", "top5", "top10"),
        Metric(name="share of variance", unit=SHARE, counts="positions", method="tables"),
    ),
    "dct.low4": Metric(
        name="power in four lowest frequencies", unit=SHARE, index="component", counts="positions", method="tables"
    ),
    "n50": Metric(name="components for half the variance", unit="%", counts="positions", method="tables"),
    "equivariance": Metric(
        name="share explained by distance", unit=SHARE, counts="positions", over="random orders of the rows"
    ),
    **with_endings(
        "equivariance.",
        ("null", "first"),
        Metric(
            name="share explained by distance",
            unit=SHARE,
            index="components",
            counts="positions",
            over="random orders of the rows",
        ),
    ),
    **with_endings(
        "distance.mean",
        CORRECTED,
        Metric(name="root mean square distance", counts=PAIRS, over=GROUPS, method="geometry"),
    ),
    "floor.mean": Metric(
        name="noise floor", counts="positions", over="random halves", method="geometry", range=NOT_NEGATIVE
    ),
    "between": Metric(
        name="distance",
        part="two corpora",
        index="position",
        over="random halves",
        method="geometry",
        range=NOT_NEGATIVE,
    ),
    "stress.raw": _stress("raw stress"),
    "stress.optimal": _stress("stress at the best scale"),
    "stress.held_out": _stress("stress on other documents"),
    **with_endings("stress.ratio.", SCALES, _stress("stress of one table over that of another")),
    **with_endings("stress.", [f"{scale}.corrected" for scale in ("raw", "optimal")], _stress("stress")),
    **with_endings(
        "violations",
        CORRECTED,
        Metric(
            name="triples out of order",
            unit=SHARE,
            part=TABLE,
            index="rank",
            counts="triples",
            over=GROUPS,
            method="geometry",
        ),
    ),
    **with_endings(
        "correlation",
        CORRECTED,
        Metric(
            name="correlation with the corpus",
            part=TABLE,
            counts=PAIRS,
            over=GROUPS,
            method="geometry",
            range=CORRELATION,
        ),
    ),
    "separation": Metric(
        name="smallest distance of two positions", part=ROWS, counts="positions", method="geometry", range=NOT_NEGATIVE
    ),
    "separation.quantile": Metric(
        name="distances of all pairs", part=ROWS, index="percentile", counts=PAIRS, range=NOT_NEGATIVE
    ),
    "table.rms": Metric(name="root mean square", part=CHANGE, counts="positions", method="tables", range=NOT_NEGATIVE),
    "table.floor": Metric(name="share of white noise", unit=SHARE, part=CHANGE, counts="positions", method="tables"),
    "table.walk": Metric(
        name="AdamW’s random walk", part=CHANGE, counts="positions", method="tables", range=NOT_NEGATIVE
    ),
    "change": Metric(
        name="change since the first checkpoint", unit=SHARE, part=ROWS, counts="positions", range=NOT_NEGATIVE
    ),
    **with_endings(
        "projected.stress.", SCALES, Metric(name="stress behind M", part=TABLE, method="projected", range=NOT_NEGATIVE)
    ),
    **with_endings("low_rank.stress.", SCALES, _stress("stress at a rank")),
    **with_endings(
        "low_rank.closed",
        CORRECTED,
        Metric(name="way from random to MDS", unit=SHARE, index="rank", counts="positions", range=AT_MOST_ONE),
    ),
    **with_endings(
        "lag.correlation",
        CORRECTED,
        Metric(name="correlation with the lag", counts=PAIRS, over=GROUPS, method="geometry", range=CORRELATION),
    ),
    **with_endings(
        "rank", CORRECTED, Metric(name="rank", counts="positions", over=GROUPS, method="geometry", range=NOT_NEGATIVE)
    ),
    "support": Metric(name="tokens of the rarest position", unit="tokens", counts="positions", method="geometry"),
    "positions.kept": Metric(name="positions kept", unit="positions", method="geometry"),
    **with_endings(
        "toeplitz",
        CORRECTED,
        Metric(name="share of the lag alone", unit=SHARE, counts="positions", over=GROUPS, method="geometry"),
    ),
    **with_endings(
        "circulant",
        CORRECTED,
        Metric(name="share of circulant matrices", unit=SHARE, counts="positions", over=GROUPS, method="geometry"),
    ),
    **with_endings(
        "mds.share",
        CORRECTED,
        Metric(
            name="share of variance", unit=SHARE, index="component", counts="positions", over=GROUPS, method="geometry"
        ),
    ),
}


def metric(name: str) -> Metric:
    """Return the row of a metric in `METRICS`, or in `OF_TERMS` for a term that only a scheme of your own has.

    Raises:
        ValueError: there is none.
    """
    if name not in METRICS:
        for beginning, row in OF_TERMS.items():
            if name.startswith(beginning) and name != beginning:
                return row
        raise ValueError(f"The metric {name!r} is unknown. Add its row to records/metrics.py.")
    return METRICS[name]


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
