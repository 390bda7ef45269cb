"""Metrics of records: the row of each, and what it says of the name of a metric.

The rows of an analysis, and the paragraph on how it measures, stand in its file (`add_metrics`). Here are those that
trainings, texts and evaluations record, and in methods.md the paragraphs that several analyses share.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

from .metric import NATS, PROBE_SEEDS, R2, READ, SHARE, UNBOUNDED, UNIT, Metric
from .task_metrics import TASKS

_RANGES = {SHARE: UNIT, R2: READ, "%": (0.0, 100.0)}
# Intervals over draws that every seed makes for itself, so that the spread of the seeds contains them.
_BY_SEED = {PROBE_SEEDS, "random halves", "random orders of the rows", "rows and seeds", "heads"}


METRICS: dict[str, Metric] = {
    "loss": Metric(name="loss", unit=NATS, part="train or validation", counts="masked tokens", over="held-out windows"),
    "loss.unigram": Metric(name="entropy of token frequencies", unit=NATS, counts="tokens"),
    **TASKS,
    "accuracy.commonest": Metric(name="share of the commonest class", unit=SHARE, part="validation"),
    "accuracy": Metric(name="masked tokens right", unit=SHARE, part="validation", counts="masked tokens"),
    "corpus.documents": Metric(name="documents", unit="documents"),
    "corpus.characters": Metric(name="characters", unit="characters"),
    "corpus.tokens": Metric(name="tokens", unit="tokens"),
    "corpus.windows": Metric(name="windows", unit="windows"),
    "corpus.room": Metric(name="room to shift a window", unit="tokens", counts="windows"),
    "corpus.from_start": Metric(name="windows that begin with a document", unit=SHARE, counts="windows"),
    "probe.documents": Metric(name="documents that are probed", unit="documents"),
    "probe.windows": Metric(name="windows of them", unit="windows"),
    "probe.length": Metric(name="length of a window", unit="tokens"),
    "parameters": Metric(name="parameters", unit="parameters"),
    "parameters.embedding": Metric(name="of them embeddings", unit="parameters"),
    "operations": Metric(name="operations/token", unit="operations/token", method="operations"),
    "steps": Metric(name="steps", unit="steps"),
    "passes": Metric(name="times that a training reads each window", unit="times"),
    "tokens": Metric(name="training tokens", unit="tokens"),
    "seconds": Metric(name="training time", unit="s"),
    "tokens_per_second": Metric(name="tokens/s", unit="tokens/s"),
    "memory.peak": Metric(name="peak memory", unit="bytes"),
}


# Imported where the first of their rows is asked for, as they need torch.
_ANALYSES = f"{__package__.partition('.')[0]}.analysis"
_OF_TERMS: dict[str, Metric] = {}  # beginnings of metrics that end with a term of the scores
_METHODS: dict[str, tuple[str, ...]] = {}  # of the analyses


def add_metrics(
    rows: Mapping[str, Metric],
    *,
    methods: Mapping[str, str] = MappingProxyType({}),
    of_terms: Mapping[str, Metric] = MappingProxyType({}),
) -> None:
    """Add the metrics of an analysis, which calls this where its file is imported.

    Args:
        rows: metric -> its row.
        methods: `Metric.method` -> how it is measured, for a page: paragraphs with an empty line between them.
        of_terms: beginning of metrics that end with a term of the scores -> their row. A scheme of your own names its
            terms; where one beginning continues another, the longer comes first.

    Raises:
        ValueError: a metric has a row already.
    """
    if twice := sorted(METRICS.keys() & rows.keys()):
        raise ValueError(f"The metric {twice[0]!r} has a row already. Give the new one another name.")
    METRICS.update(rows)
    _METHODS.update({key: _paragraphs(text) for key, text in methods.items()})
    _OF_TERMS.update(of_terms)


def all_metrics() -> Mapping[str, Metric]:
    """Return the rows of all metrics, the analyses' too."""
    import_module(_ANALYSES)
    return METRICS


def metric(name: str) -> Metric:
    """Return the row of a metric, or the row of its beginning for a term that only a scheme of your own has.

    Raises:
        ValueError: there is none.
    """
    known = METRICS.get(name) or all_metrics().get(name)
    if known is not None:
        return known
    for beginning, row in _OF_TERMS.items():
        if name.startswith(beginning) and name != beginning:
            return row
    raise ValueError(f"The metric {name!r} is unknown. Add its row in the file that measures it (`add_metrics`).")


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


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(part.replace("\n", " ") for part in text.replace(" %", "\u202f%").strip().split("\n\n"))


def methods() -> dict[str, tuple[str, ...]]:
    """Return the paragraphs on how each `Metric.method` is measured: of methods.md in its order, then of the
    analyses by name."""
    all_metrics()
    return _SHARED | dict(sorted(_METHODS.items()))


def _shared() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("methods.md").read_text(encoding="utf-8")
    sections = (section.partition("\n") for section in text.split("\n## ")[1:])
    return {key: _paragraphs(paragraphs) for key, _, paragraphs in sections}


_SHARED = _shared()
