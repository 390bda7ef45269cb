"""Spectrum of a learned position table as records and as arrays for figures (DSTG section 4 (1))."""

from functools import partial
from typing import Any

import numpy as np

from whatwhere.geometry import spectrum
from whatwhere.records import Record

SHARES = 10  # components whose share is recorded
DRAWN = 3  # components whose scores and frequencies are kept


def table_records(table: Any, *, study: str, name: str, seed: int | None) -> tuple[list[Record], dict[str, np.ndarray]]:
    """Records and arrays of a model's position table, all rows (the paper leaves none out).

    Records: `pca.share` of the first ten components (index from 0), `pca.top2` (sum of the first two), `n50` (unit "%"),
    `dct.low4` of the first three (index from 0). n is the number of positions. There are no intervals: the positions of one table are
    no sample of anything, so only tables of several training seeds can give one.

    Args:
        table: (positions, width), an array or a tensor.

    Returns:
        The records, and arrays `scores` (positions, 3), `shares` (k,), `dct_power` (3, positions); fewer than three where the
        table has fewer components.

    Raises:
        ValueError: the table is not finite, or all its rows are equal.
    """
    if hasattr(table, "detach"):
        table = table.detach().double().cpu().numpy()
    s = spectrum(table)
    record = partial(Record, study=study, model=name, seed=seed, n=len(s.scores))
    records = [record(metric="pca.share", value=float(v), index=i) for i, v in enumerate(s.shares[:SHARES])]
    records.append(record(metric="pca.top2", value=float(s.shares[:2].sum())))
    records.append(record(metric="n50", value=s.n50, unit="%"))
    records += [record(metric="dct.low4", value=float(v), index=i) for i, v in enumerate(s.low4[:DRAWN])]
    return records, {"scores": s.scores[:, :DRAWN], "shares": s.shares, "dct_power": s.dct_power[:DRAWN]}
