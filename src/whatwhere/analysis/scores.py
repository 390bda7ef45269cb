"""How large the terms of the attention scores are: their spread by layer, and TUPE's θ beside the positional scores that it replaces.

DSTG 3.1 projects both streams to one head width and says that the variances of the two products are thereby matched. With weights of one
spread σ and normed inputs, a product q·k/√d_head of a stream d wide has the standard deviation σ²d: position scores start at
d_AP/d_sem of the semantic ones. TUPE 3.2: θ1 and θ2 stand where the query, or only the key, is [CLS] (eq. 9).
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..records import Record
from .bootstrap import document_mean
from .features import Documents
from .passes import Batch, Reader, read
from .who import Who

POSITIONAL = ("absolute", "relative")


class ScoreSpread(Reader):
    """A `passes.Reader` of the variance of every term over the pairs of regular tokens of each document."""

    wants_terms = True

    def __init__(self) -> None:
        self.found: dict[tuple[int, str], list[np.ndarray]] = {}  # (block, term) -> (b,) of each batch

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        regular = batch.regular
        pairs = (regular[:, :, None] & regular[:, None, :]).to(torch.promote_types(next(iter(terms.values())).dtype, torch.float32))
        if allowed is not None:
            pairs = pairs * allowed[:, 0]
        count = pairs.sum((1, 2))[:, None]  # (b, 1)
        for name, term in terms.items():
            scores = term.to(pairs.dtype)
            scores = scores - scores.mean((2, 3), keepdim=True)  # so that squares do not cancel
            moments = (x.expand(len(pairs), -1, -1, -1) for x in (scores, scores.square()))
            mean, square = (torch.einsum("bhij,bij->bh", x, pairs) / count for x in moments)
            self.found.setdefault((block, name), []).append((square - mean.square()).mean(1).double().cpu().numpy())


def score_records(model: Any, documents: Documents, who: Who, *, batch_size: int = 8) -> list[Record]:
    """Records `scores.std`: standard deviation of each term (part) of the scores in each block (layer, from 1), in score units.

    Variance about the mean over the pairs of regular tokens of a document that may see each other, mean over heads, then over documents;
    the root of that. Interval: bootstrap over documents; n: documents. A term that is 0 everywhere has 0.

    Raises:
        ValueError: the model is not one of ours.
    """
    reader = ScoreSpread()
    read(model, documents, [reader], batch_size)
    records: list[Record] = []
    for (block, part), batches in sorted(reader.found.items()):
        values = np.concatenate(batches)
        mean, low, high = document_mean(values, articles=documents.articles)
        spread = np.sqrt(mean), None if low is None else np.sqrt(low), None if high is None else np.sqrt(high)
        records += who.records("scores.std", spread, {}, n=np.isfinite(values).sum(), layer=block + 1, part=part)
    return records


def theta_records(model: Any, documents: Documents, who: Who) -> list[Record]:
    """Records of TUPE's θ for every head, in score units, read as the model uses it; [] for a scheme without reset.

    `theta.query` is θ1, which all pairs get whose query is [CLS] (its row); `theta.key` is θ2, where only the key is (its column).
    `theta.mean` and `theta.std` are mean and standard deviation, over pairs of other positions, of the positional scores that it stands
    in place of, v_ij with b_{j-i} where the scheme has one (TUPE eq. 9 and 11). Positions are those of a document. The layer is 1
    where all blocks share them, as in TUPE.

    Raises:
        ValueError: no [CLS] with two regular tokens after it in the first document.
    """
    if model.config.reset == "none":
        return []
    regular = documents.regular[0]
    cls = np.flatnonzero(documents.input_ids[0] == model.config.cls_token_id)
    if not len(cls) or regular.sum() < 2:
        raise ValueError(f"θ needs a document that begins with [CLS]; got {len(cls)} of it and {regular.sum()} regular tokens.")
    device = next(model.parameters()).device
    ids, positions = torch.from_numpy(documents.input_ids[:1]).to(device), torch.from_numpy(documents.position_ids[:1]).to(device)
    terms = model.attention_terms(input_ids=ids, position_ids=positions)
    v = sum(terms[part].double().cpu() for part in POSITIONAL if part in terms)[:, 0].numpy()  # (layers, h, n, n)
    v = v[:1] if (v == v[:1]).all() else v
    where = np.flatnonzero(regular)
    records = []
    for layer, head in np.ndindex(v.shape[:2]):
        own = v[layer, head]
        record = partial(who.record, layer=layer + 1, head=head)
        between = own[np.ix_(where, where)]
        records += [record("theta.query", float(own[cls[0], where[0]])), record("theta.key", float(own[where[0], cls[0]]))]
        records += [record("theta.mean", float(between.mean())), record("theta.std", float(between.std()))]
    return records
