"""Shape of position and word tables as records and as arrays for figures (DSTG section 4 (1); LOWDIM table 1, figures 1-7)."""

from functools import partial
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
)
from ..records import Record
from .who import Who

SHARES = 10  # components whose share is recorded
DRAWN = 3  # components whose scores and frequencies are kept of a study's tables
TOPS = (2, 3, 5, 10)  # components whose shares are summed: DSTG's 2, the others LOWDIM Table 1
FIRST = (1, 2, 3, 5, 10, 20, 50, 100)  # components of which E·Eᵀ is approximated
PEAKS = 8  # dominant frequencies that are recorded
SHUFFLES = 99  # orders of the positions behind the null of equivariance

# What is kept for the figures of a table on its own.
SCORES, CURVES, PRODUCTS = 128, 10, 96
PRODUCTS_OF = (2, 5, 10)  # components of the pictured approximations of E·Eᵀ, before all of them


def table_records(table: Any, who: Who) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Records and arrays of a model's position table, all rows (the papers leave none out).

    Records, n the number of positions: `pca.share` of the first ten components (index from 0), `pca.top2`, `pca.top3`, `pca.top5`,
    `pca.top10` (sums of the first), `n50` (unit "%") and `n50.count`; `dct.low4` and `fft.turns` of the first three and ten components
    (index from 0); `fft.peak`, the dominant frequencies of all components together (index from 0, highest first); of every pair that
    rotates (part "1+2": components from 1) `rotation.turns`, `.strength`, `.shift` and `.share` (index: order by share, from 0);
    `equivariance`, `equivariance.null` (mean over 99 shuffled orders, low and high their middle 95 %) and `equivariance.first` (index:
    how many components); `outlier` (index: position; value: its isolation in medians). There are no other intervals: the positions
    of one table are no sample of anything, so only tables of several training seeds can give one.

    Args:
        table: (positions, width), an array or a tensor.

    Returns:
        The records, and arrays `scores` (positions, 3), `shares` (k,), `dct_power` (3, positions), `outliers` (positions that stand
        alone); fewer than three where the table has fewer components.

    Raises:
        ValueError: the table is not finite, or all its rows are equal.
    """
    table = _array(table)
    s = spectrum(table)
    n = len(s.scores)
    each, record = partial(who.records, n=n), partial(who.record, n=n)
    records = _share_records(who, s.shares, min(table.shape), n=n)
    records += each("dct.low4", s.low4[:DRAWN], {"index": range(DRAWN)})
    records += each("fft.turns", s.revolutions[:SHARES], {"index": range(SHARES)}, unit="turns")
    records += each("fft.peak", np.asarray(dominant_turns(s.magnitudes)[:PEAKS]), {"index": range(PEAKS)}, unit="turns")
    for i, pair in enumerate(rotations(s)):
        of_pair = partial(record, part=f"{pair.first + 1}+{pair.second + 1}", index=i)
        records.append(of_pair("rotation.turns", pair.turns, unit="turns"))
        records.append(of_pair("rotation.strength", pair.strength))
        records.append(of_pair("rotation.shift", pair.shift, unit="periods"))
        records.append(of_pair("rotation.share", pair.share))
    null = equivariance_null(table, SHUFFLES)
    records.append(record("equivariance", s.equivariance))
    records.append(record("equivariance.null", null.mean(), *np.quantile(null, [0.025, 0.975])))
    first = [k for k in FIRST if k < len(s.shares)]
    records += each("equivariance.first", np.asarray(equivariance_of_first(table, first)), {"index": first})
    lonely = outliers(table)
    records += each("outlier", isolation(table)[lonely], {"index": lonely.tolist()}, unit="medians")
    arrays = {"scores": s.scores[:, :DRAWN], "shares": s.shares, "dct_power": s.dct_power[:DRAWN], "outliers": lonely}
    return records, arrays


def word_records(table: Any, who: Who) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Records and arrays of a model's word table, all rows: shares and N50 as of a position table, part "words" (LOWDIM Table 1b).

    Raises:
        ValueError: the table is not finite, or all its rows are equal.
    """
    table = _array(table)
    shares = component_shares(table)
    return _share_records(who, shares, min(table.shape), n=len(table), part="words"), {"shares": shares}


def table_arrays(table: Any) -> dict[str, np.ndarray]:
    """Arrays for the figures of one position table: those of `table_records`, more of each, and pictures of E·Eᵀ.

    scores: (positions, at most 128). dct_power, magnitudes: (at most 10, bins); magnitude_sum: (bins,) over all components.
    rows: (at most 96,) the positions that the pictures show, at equal steps. products: (pictures, rows, rows) of E·Eᵀ from 2, 5 and 10
    components, where the table has more, and from all; products_of: the number of components of each.
    """
    table = _array(table)
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


def _array(table: Any) -> np.ndarray:
    return table.detach().double().cpu().numpy() if hasattr(table, "detach") else np.asarray(table)


def _share_records(who: Who, shares: np.ndarray, total: int, **columns: Any) -> list[Record]:
    needed = half_of_variance(shares)
    return [
        *who.records("pca.share", shares[:SHARES], {"index": range(SHARES)}, **columns),
        *(who.record(f"pca.top{k}", shares[:k].sum(), **columns) for k in TOPS),
        who.record("n50", 100.0 * needed / total, unit="%", **columns),
        who.record("n50.count", needed, unit="components", **columns),
    ]
