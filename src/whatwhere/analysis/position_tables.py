"""Shape of position and word tables, as records and as arrays for figures.

The shape follows DSTG section 4 (1) and LOWDIM table 1, figures 1-7. `models.table_sources` reads the tables.
"""

from typing import Any

import numpy as np

from ..geometry import (
    component_shares,
    dominant_turns,
    equivariance_null,
    equivariance_of_first,
    half_of_variance,
    inner_products,
    isolation,
    outliers,
    rotations,
    spectrum,
    white_floor,
)
from ..geometry.spectra import FEWEST_ROWS
from ..records.gates import CHANGED
from ..records.metric import CHANGE, NOT_NEGATIVE, SHARE, Metric, with_endings
from ..records.metrics import add_metrics
from ..records.record import Arrays, Record
from ..training.pretrain import saved_table_walk
from .analyses import ALWAYS, Analysis, AnalysisInput
from .passes import as_float64
from .record_context import RecordContext

SHARES = 10  # components whose share is recorded
DRAWN = 3  # components whose scores and frequencies are kept of a study's tables
TOPS = (2, 3, 5, 10)  # components whose shares are summed: DSTG's 2, the others LOWDIM Table 1
FIRST = (1, 2, 3, 5, 10, 20, 50, 100)  # components of which E·Eᵀ is approximated
PEAKS = 8  # dominant frequencies that are recorded
SHUFFLES = 99  # orders of the positions behind the null of equivariance
# Sizes of the arrays for the figures of a single table.
SCORES = 128
CURVES = 10
PRODUCTS = 96
PRODUCTS_OF = (2, 5, 10)  # components of the pictured approximations of E·Eᵀ, before all of them

add_metrics(
    {
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
        "pca.share": Metric(
            name="share of variance", unit=SHARE, index="component", counts="positions", method="tables"
        ),
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
        "table.rms": Metric(
            name="root mean square", part=CHANGE, counts="positions", method="tables", range=NOT_NEGATIVE
        ),
        "table.floor": Metric(
            name="share of white noise", unit=SHARE, part=CHANGE, counts="positions", method="tables"
        ),
        "table.walk": Metric(
            name="AdamW’s random walk", part=CHANGE, counts="positions", method="tables", range=NOT_NEGATIVE
        ),
    },
    methods={
        "tables": """
Position tables are centred over positions before their principal components are taken. The cosine transform of type II
is applied to each component's scores; power is squared amplitude as a share of the component's total.

A table whose gradient is noise still moves: AdamW takes full steps in random directions, whose root mean square after a
training is the rate times the root of the sum of the squared relative rates. Such a walk is white, so it is known in
two ways: by its size, and by the table’s white floor. That is the mean power between a quarter and half of the highest
frequency, or between half and three quarters, whichever is smaller, as if all frequencies had it. Both are held against
what training added to the table.
""",
    },
)


def table_records(table: Any, context: RecordContext) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Measure the shape of a model's position table, all rows (the papers leave none out), as records and arrays.

    Records, n the number of positions: shares of the variance and N50; `dct.low4` and `fft.turns` of the first three
    and ten components (index from 0); `fft.peak`, the dominant frequencies of all components together (index from 0,
    highest first); of every pair that rotates (part "1+2": components from 1) `rotation.turns`, `.strength`, `.shift`
    and `.share` (index: order by share, from 0); `equivariance`, `equivariance.null` (mean over 99 shuffled orders, low
    and high their middle 95 %) and `equivariance.first` (index: how many components); `outlier` (index: position;
    value: its isolation in medians). There are no other intervals: the positions of one table are no sample of
    anything, so only tables of several training seeds can give one.

    Arrays: `scores` (positions, 3), `shares` (k,), `dct_power` (3, positions), `outliers` (positions that stand alone);
    fewer than three where the table (positions, width) has fewer components.

    Raises:
        ValueError: the table is not finite, or all its rows are equal.
    """
    table = as_float64(table)
    s = spectrum(table)
    null = equivariance_null(table, SHUFFLES)
    lonely = outliers(table)
    n = len(table)
    by_order = {"index": range(SHARES)}
    first = [k for k in FIRST if k < len(s.shares)]
    records = [
        *_share_records(context, s.shares, min(table.shape), n=n),
        *context.records("dct.low4", s.low4[:DRAWN], by_order, n=n),
        *context.records("fft.turns", s.revolutions[:SHARES], by_order, n=n),
        *context.records("fft.peak", np.asarray(dominant_turns(s.magnitudes)[:PEAKS]), by_order, n=n),
        context.record("equivariance", s.equivariance, n=n),
        context.record("equivariance.null", null.mean(), *np.quantile(null, [0.025, 0.975]), n=n),
        *context.records("equivariance.first", np.asarray(equivariance_of_first(table, first)), {"index": first}, n=n),
        *context.records("outlier", isolation(table)[lonely], {"index": lonely.tolist()}, n=n),
    ]
    for i, pair in enumerate(rotations(s)):
        place: dict[str, Any] = {"part": f"{pair.first + 1}+{pair.second + 1}", "index": i, "n": n}
        for name in ("turns", "strength", "shift", "share"):
            records.append(context.record(f"rotation.{name}", getattr(pair, name), **place))
    arrays = {"scores": s.scores[:, :DRAWN], "shares": s.shares, "dct_power": s.dct_power[:DRAWN], "outliers": lonely}
    return records, arrays


def noise_records(table: Any, context: RecordContext, start: Any = None, walk: float | None = None) -> list[Record]:
    """Measure a position table (rows, width) against the noise that would look like it; n is the number of rows.

    `table.rms`: root mean square of the entries about the mean row; `table.floor`: share of that power which the white
    floor holds (`geometry.white_floor`). With part "change" the same of what training added to `start`, the table of
    step 0, about 0; and `table.walk`, which is `walk` if that is given. No intervals. A table of fewer than 8 rows has
    no floor.

    start: (rows, width).

    Args:
        walk: Root mean square that AdamW's random walk at the rates of the training gives a table whose gradient is
            noise (`training.optimizers.expected_table_walk`); None where it is not known.

    Raises:
        ValueError: a table that is not two-dimensional, or has NaN or infinity.
    """
    table = as_float64(table)
    place: dict[str, Any] = {"n": len(table)}
    centred = table - table.mean(axis=0)
    records = [context.record("table.rms", np.sqrt(np.mean(centred**2)), **place)]
    floored = len(table) >= FEWEST_ROWS
    if floored:
        records.append(context.record("table.floor", white_floor(table), **place))
    if start is None:
        return records
    place["part"] = CHANGED
    added = table - as_float64(start)
    records.append(context.record("table.rms", np.sqrt(np.mean(added**2)), **place))
    if floored:
        records.append(context.record("table.floor", white_floor(added), **place))
    if walk is not None:
        records.append(context.record("table.walk", walk, **place))
    return records


def word_records(table: Any, context: RecordContext) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Measure the shares and N50 of a model's word table (entries, d), part "words".

    All rows count (LOWDIM Table 1b). The array is `shares`, (components,).

    Raises:
        ValueError: as `table_records`.
    """
    table = as_float64(table)
    shares = component_shares(table)
    return _share_records(context, shares, min(table.shape), n=len(table), part="words"), {"shares": shares}


def table_arrays(table: Any) -> dict[str, np.ndarray]:
    """Return the arrays for the figures of one position table.

    They are what `table_records` has, more of each, and pictures of E·Eᵀ.

    scores: (positions, at most 128). dct_power, magnitudes: (at most 10, bins); magnitude_sum: (bins,) over all
    components. rows: (at most 96,) the positions that the pictures show, at equal steps. products: (pictures, rows,
    rows) of E·Eᵀ from 2, 5 and 10 components, where the table has more, and from all; products_of: their numbers.

    shares: (at most the width,). outliers: (positions that stand alone,).

    Raises:
        ValueError: as `table_records`.
    """
    table = as_float64(table)
    s = spectrum(table)
    rows = np.arange(0, len(table), -(-len(table) // PRODUCTS))
    counts = [k for k in PRODUCTS_OF if k < len(s.shares)]
    pictures = [inner_products(table, k)[np.ix_(rows, rows)] for k in counts] + [table[rows] @ table[rows].T]
    return {
        "scores": s.scores[:, :SCORES],
        "shares": s.shares,
        "dct_power": s.dct_power[:CURVES],
        "magnitudes": s.magnitudes[:CURVES],
        "magnitude_sum": s.magnitudes.sum(axis=0),
        "outliers": outliers(table),
        "rows": rows,
        "products": np.array(pictures),
        "products_of": np.array([*counts, len(s.shares)]),
    }


def _share_records(context: RecordContext, shares: np.ndarray, total: int, **columns: Any) -> list[Record]:
    needed = half_of_variance(shares)
    return [
        *context.records("pca.share", shares[:SHARES], {"index": range(SHARES)}, **columns),
        *(context.record(f"pca.top{k}", shares[:k].sum(), **columns) for k in TOPS),
        context.record("n50", 100.0 * needed / total, **columns),
        context.record("n50.count", needed, **columns),
    ]


def _tables(s: AnalysisInput) -> tuple[list[Record], Arrays]:
    first = None if s.untrained is None else s.untrained.position_table()
    start = [] if first is None else table_records(first, s.context.at(0))[0]
    records, arrays = table_records(s.table, s.context)
    # The table is a parameter that AdamW's steps change directly.
    plain = s.model.config.absolute == "learned" and s.model.config.table_width is None
    walk = saved_table_walk(s.training_folder) if plain and s.training_folder is not None else None
    return start + records + noise_records(s.table, s.context, first, walk), arrays


# Optional: a table whose rows are all equal (a control that is held at zeros) has no components.
ANALYSES = (Analysis("position table", ALWAYS, _tables, needs=("table",), array_stem="table", optional=True),)
