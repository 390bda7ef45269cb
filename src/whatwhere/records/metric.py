"""The row of a metric: name, range, meaning of the columns, source of the interval, and method."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

R2 = "R²"
SHARE = "share"
NATS = "nats"
SPLITS = "document splits"
DOCUMENTS = "documents"
GROUPS = "groups of documents"
PROBE_SEEDS = "seeds of the probe"
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
UNIT = (0.0, 1.0)
CORRELATION = (-1.0, 1.0)  # and a difference of two shares
TWICE = (-2.0, 2.0)  # a difference of two correlations
READ = (-0.25, 1.0)  # an R²: small ones lie on both sides of 0, and one below 0 tells no less than 0
# Endings of names: of quantities corrected for small samples, and of stress on its two scales.
CORRECTED = ("", ".corrected")
SCALES = ("raw", "raw.corrected", "optimal", "optimal.corrected")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Meaning of a metric's records: their name, unit, columns, interval and method.

    name: label of an axis or a column. unit: unit of a value, "share" or "R²" for a pure number of that kind, "" for
    other pure numbers. part, index: meaning of these columns. counts: things that `n` counts. over: source of the
    record's interval. repeats: things that `index` counts where it repeats one quantity, "splits" or "documents".
    method: key of the paragraph on how it is measured (`metrics.methods`). seed: meaning of the column `seed`. range:
    least and largest possible value, by default the unit's.
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


def with_endings(stem: str, endings: Iterable[str], row: Metric) -> dict[str, Metric]:
    """Return `row` for several metrics, the names that begin with `stem` and have one of the endings."""
    return {f"{stem}{ending}": row for ending in endings}


def stress_of(name: str) -> Metric:
    """Return the row of a stress of a position table, by the rank or the dimensions of the table."""
    return Metric(
        name=name,
        part=TABLE,
        index="rank or dimensions of the table",
        counts="positions",
        over=GROUPS,
        method="geometry",
        range=NOT_NEGATIVE,
    )
