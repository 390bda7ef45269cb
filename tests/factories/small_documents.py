"""Small documents for the analyses of attention: random words between special tokens."""

import numpy as np

from whatwhere.analysis.passes import ChosenWindows

VOCAB = 40
CLS = 2
SEP = 3


def documents(
    count: int = 5, n: int = 9, seed: int = 0, inner: bool = False, padded: bool = False, packed: bool = False
) -> ChosenWindows:
    """`inner`: a [SEP] inside, at another place in each; `padded`: row i ends in i mod 3 padding tokens; `packed`: two
    documents a row."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(5, VOCAB, (count, n))
    ids[:, 0] = CLS
    ids[:, -1] = SEP
    mask = np.ones((count, n), dtype=np.int64)
    if inner:
        for i in range(count):
            ids[i, 2 + i % (n - 4)] = SEP
    if padded:
        for i in range(count):
            end = n - i % 3
            ids[i, end - 1] = SEP
            ids[i, end:] = 0
            mask[i, end:] = 0
    positions = np.tile(np.arange(n), (count, 1))
    document_ids = None
    if packed:
        document_ids = (np.arange(n) >= n // 2).astype(np.int64) + np.zeros((count, 1), dtype=np.int64)
        positions = np.where(document_ids == 0, positions, positions - n // 2)
        ids[:, n // 2] = CLS
    regular = ~np.isin(ids, (0, CLS, SEP))
    targets = {"token": positions / n, "segment": np.where(regular, 0.0, -1.0), "intra": np.where(regular, 0.5, np.nan)}
    return ChosenWindows(ids, positions, document_ids, regular, targets, mask if padded else None)
