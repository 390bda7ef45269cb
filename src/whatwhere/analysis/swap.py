"""The loss when the tokens at two positions change places (GEOM section 4, hypothesis H2), by the distance of the
positions.

H2: for every i ≠ j, swapping positions i and j strictly increases the expected loss, with P fixed. The tokens at i and
j, with the words that are hidden there, are given each other's position; everything that the model derives from
positions, table, biases and rotation, follows, so this is exactly a text with two tokens exchanged. One pair among n
tokens hardly moves the mean loss, so the tokens at the two positions are looked at apart from the others.
"""

from typing import Any

import numpy as np
import torch

from ..intervals import LOSS_ROUNDING, share_interval
from ..records import Record
from .ablation import IGNORED, MASK_RATE, masked, token_losses
from .bootstrap import document_mean
from .passes import Documents, Progress, check_masked_lm, device_of, evaluating, rows_on
from .who import Who

PAIRS = 4  # of each lag; at size tiny swaps then take a tenth of the time of looking inside
PARTS = ("swapped", "others")


def swap_pairs(positions: np.ndarray, pairs: int = PAIRS) -> dict[int, list[tuple[int, int]]]:
    """Lag 1, 2, 4, ... -> at most `pairs` pairs (i, i + lag) of the positions (sorted), evenly spaced over them."""
    by_lag, lag = {}, 1
    while len(starts := positions[np.isin(positions + lag, positions)].tolist()):
        chosen = np.unique(np.linspace(0, len(starts) - 1, min(pairs, len(starts))).round().astype(int))
        by_lag[lag] = [(starts[c], starts[c] + lag) for c in chosen]
        lag *= 2
    return by_lag


def swap_records(
    model: Any,
    documents: Documents,
    who: Who,
    *,
    pairs: int = PAIRS,
    mask_rate: float = MASK_RATE,
    progress: Progress = None,
) -> list[Record]:
    """Records of the rise of the masked-language loss, in nats, when the tokens at two positions change places.

    Lags are 1, 2, 4, ... as far as the positions of regular tokens go; of each at most `pairs` pairs, evenly spaced.
    Masks are those of the ablations. A document counts for a pair if it has regular tokens at both positions and one of
    them is masked, and only then runs through the model: 36 % of the full ones at a mask rate of 0.2.

    - `swap.loss` (index: lag; part "swapped": masked tokens at the two positions, "others": all other masked tokens of
      the same documents): mean of the paired rise over pairs and tokens of a document, then over documents, with the
      bootstrap's 95 % interval over articles; n: documents.
    - `swap.positive` (index: lag): share of the pairs whose mean rise over the swapped tokens of all documents is above
      0 by more than rounding, with Wilson's interval; n: pairs. At random it is one half.

    [] for a model without any position encoding.

    Raises:
        ValueError: not an `EncoderForMaskedLM`, or no document with two regular positions.
    """
    check_masked_lm(model, "A swap")
    if {model.config.absolute, model.config.relative, model.config.rotation} == {"none"}:
        return []
    lags = swap_pairs(np.unique(documents.position_ids[documents.regular]), pairs)
    if not lags:
        raise ValueError(
            "No document has two positions with regular tokens that could be swapped. Give longer documents."
        )
    ids, labels = masked(documents, mask_rate, model.config.mask_token_id)
    positions = documents.position_ids
    sums, counts = (np.zeros((len(documents), len(lags), len(PARTS))) for _ in range(2))
    positive = np.zeros((len(lags), 2))  # pairs that raise the loss, pairs with a masked token
    total, done = sum(len(of_lag) for of_lag in lags.values()), 0
    with evaluating(model), torch.inference_mode():
        before = _losses(model, documents, np.arange(len(documents)), ids, labels, positions)
        for at, of_lag in enumerate(lags.values()):
            for i, j in of_lag:
                both = _with_both(documents, i, j)
                moved = both & (labels != IGNORED)
                rows = np.flatnonzero(moved.any(1))
                if len(rows):
                    other = np.where(both, i + j - positions, positions)
                    rise = _losses(model, documents, rows, ids, labels, other) - before[rows]
                    for k, tokens in enumerate((moved[rows], (labels[rows] != IGNORED) & ~moved[rows])):
                        sums[rows, at, k] += np.where(tokens, rise, 0.0).sum(1)
                        counts[rows, at, k] += tokens.sum(1)
                    positive[at] += rise[moved[rows]].mean() > LOSS_ROUNDING, 1
                done += 1
                if progress is not None:
                    progress(done, total)
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    mean = document_mean(means, articles=documents.articles)
    axes = {"index": list(lags), "part": PARTS}
    records = who.records("swap.loss", mean, axes, n=np.isfinite(means).sum(0))
    for lag, (hits, tried) in zip(lags, positive.astype(int).tolist(), strict=True):
        if tried:
            records.append(who.record("swap.positive", hits / tried, *share_interval(hits, tried), index=lag, n=tried))
    return records


def _with_both(documents: Documents, i: int, j: int) -> np.ndarray:
    """(documents, n) which tokens are the regular ones at position i or j of a document that has both."""
    spans = np.arange(len(documents))[:, None] * documents.length + np.zeros_like(documents.position_ids)
    spans += 0 if documents.document_ids is None else documents.document_ids
    at_i, at_j = (documents.regular & (documents.position_ids == k) for k in (i, j))
    return (at_i | at_j) & np.isin(spans, np.intersect1d(spans[at_i], spans[at_j]))


def _losses(
    model: Any, documents: Documents, rows: np.ndarray, ids: np.ndarray, labels: np.ndarray, positions: np.ndarray
) -> np.ndarray:
    """(rows, n) cross-entropy in nats at the masked tokens of some documents, 0 elsewhere; `positions` as position
    ids."""
    arrays = ids, documents.attention_mask, positions, documents.document_ids
    *inputs, wanted = rows_on(device_of(model), rows, *arrays, labels)
    chosen = wanted != IGNORED
    hidden = model.encoder(*inputs).last_hidden_state
    losses = torch.zeros(wanted.shape, dtype=torch.float64, device=wanted.device)
    losses[chosen] = token_losses(model.head(hidden[chosen]), wanted[chosen])
    return losses.cpu().numpy()
