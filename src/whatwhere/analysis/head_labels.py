"""Labels of attention heads by the term whose removal changes each head most (DSTG section 4 (3), eq. 4, figure 2).

KL(A ‖ A without t) = Σ_j A_ij t_ij - lse(l_i) + lse(l_i - t_i), l the sum of all terms and lse the log of the sum of
exp over the allowed keys: a softmax for each term and one of all, no logarithm of a weight that has underflowed.
"""

from contextlib import suppress
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..models.explain import TERMS
from ..models.tensors import device_of
from ..records.metric import NATS, NOT_NEGATIVE, SHARE, Metric
from ..records.metrics import add_metrics
from ..records.record import Record
from .analyses import OF_WINDOWS, Analysis
from .passes import (
    Batch,
    Reader,
    body_of,
    check_passed,
    check_terms,
    check_words,
    evaluating,
    name_of,
)
from .record_context import Axes, RecordContext, document_means, interval

# A head is called after the term that has at least half of its KL, "several" where none has: with three terms figure
# 2's corners against its middle. The paper gives no threshold. Stability: the share of bootstrap draws of the documents
# with the same label.
MAJORITY = 0.5
SEVERAL = "several"
NOTHING = 1e-9  # nats over all terms: below, no term changes the attention of the head, and shares are meaningless
QUERIES = ("regular", "all")

PIECE = 1 << 19  # scores at a time, 2 MiB of float32: two buffers of that size stay in the cache

# Metrics that end with a term of the scores, whose name a scheme of your own chooses; the longer beginning comes first.
_OF_TERMS = {
    "kl.share.": Metric(name="share of the change", unit=SHARE, method="heads"),
    "kl.": Metric(name="change of attention (KL)", unit=NATS, method="heads", range=NOT_NEGATIVE),
}
add_metrics(
    {
        **{f"{beginning}{term}": row for beginning, row in _OF_TERMS.items() for term in TERMS},
        "head.label": Metric(name="draws with the same label", unit=SHARE, part="label", method="heads"),
        "heads.share": Metric(name="share of heads", unit=SHARE, part="label", counts="heads", method="heads"),
    },
    of_terms=_OF_TERMS,
    methods={
        "heads": """
Attention scores are a sum of terms. What a head attends by is found by taking a term away: the Kullback–Leibler
divergence, in nats, from the attention by the whole sum to the attention by the sum without that term, mean over the
queries of regular tokens, then over windows (DSTG, equation 4). The KL share of a term is its divergence over the sum
of the divergences of all terms of the head, so it lies between 0 and 1 and compares the terms of one head only: a head
that hardly changes whatever is taken away has shares too. A head is labelled by the term with at least half of the
share; where none has, by “several”. The certainty of a label is the share of the draws of documents that give the same
one. Prediction may need none of it: a head keeps its label only where the loss of masked tokens rises without that term
in that head alone, by more than its 95 % interval over documents; else no single term is worth anything there. Other
heads may stand in for one, so that labels can be fewer than the whole model needs.
""",
    },
)


class _Seen(Exception):
    """Exception that ends a pass early."""


def term_names(model: Any) -> list[str]:
    """Return the names of the terms of a model's attention scores, in their order.

    The order is the one in which they are summed, read from two tokens in the first block.

    Raises:
        ValueError: the model is not one of ours.
    """
    check_terms(model)
    names: list[str] = []

    def see(block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        names.extend(terms)
        raise _Seen

    ids = torch.tensor([[model.config.cls_token_id, model.config.sep_token_id]], device=device_of(model))
    with evaluating(model), suppress(_Seen), torch.inference_mode(), model.inspect_terms(see):
        body_of(model)(ids)
    return names


def separable_terms(model: Any) -> list[str]:
    """Return the names of the terms, as `term_names`, of a model whose scores have two terms or more.

    Raises:
        ValueError: the model is not one of ours, or has a single term, so that nothing is left without it.
    """
    names = term_names(model)
    if len(names) > 1:
        return names
    why = "nothing of position is in its scores"
    if model.config.rotation != "none":
        why = "rotation is inside the product of queries and keys, so position cannot be taken out of it"
    elif names == ["mixed"]:
        why = (
            "positions are added to the words before the product of queries and keys, so they cannot be taken out of it"
        )
    raise ValueError(
        f"{name_of(model)} has one term, {names[0]}: {why}. A share by term needs two or more, as in dstg, rp, alibi, "
        "split, bert-r, bert-ad and tupe-r; removing the term in an ablation works in every model."
    )


def removal_kl(terms: dict[str, Tensor], allowed: Tensor | None, queries: Tensor) -> Tensor:
    """Compute the mean over the queries of each window of KL(A ‖ A without t) in nats (DSTG eq. 4): (b, h, terms) in
    float64, terms in the order of `terms`, nan for a window without a query that counts.

    Computed in at least float32; means that rounding makes negative are 0. A term that is zero everywhere gives exactly
    0.

    Args:
        terms: each (b or 1, h, n, n), at least two, in score units, finite.
        allowed: (b, 1, 1 or n, n), True where a query may look at a key, or None for everywhere.
        queries: (b, n), True at queries that count; each must be allowed at least one key.
    """
    parts = list(terms.values())
    wide = reduce(torch.promote_types, (part.dtype for part in parts), torch.float32)
    h, n = parts[0].shape[1:3]
    b = len(queries)
    device = queries.device
    step = max(1, min(h, PIECE // (n * n)))
    # Written over for every piece: fresh memory costs more than the arithmetic (docs/log.md).
    scores, rest = (torch.empty(step, n, n, dtype=wide, device=device) for _ in range(2))
    kl = torch.empty(b, h, len(parts), dtype=torch.float64, device=device)
    for i in range(b):
        mask = None
        if allowed is not None:  # the least number absorbs the score; exp makes it 0
            mask = (~allowed[i]).to(wide).mul_(torch.finfo(wide).min)
        others = (~queries[i]).nonzero()[:, 0]
        count = int(queries[i].sum())
        for first in range(0, h, step):
            heads = slice(first, min(first + step, h))
            maps = [part[i if len(part) > 1 else 0, heads].to(wide) for part in parts]
            l = scores[: heads.stop - first]
            r = rest[: heads.stop - first]
            whole = _softmax(_sum(maps, mask, l), l)
            l.index_fill_(1, others, 0)
            for k, m in enumerate(maps):
                left = _softmax(_sum([other for j, other in enumerate(maps) if j != k], mask, r), r)
                gaps = left.sub_(whole).index_fill_(1, others, 0).sum(1, dtype=torch.float64)
                means = torch.stack([torch.dot(a, t) for a, t in zip(l.flatten(1), m.flatten(1), strict=True)])
                kl[i, heads, k] = (means.double() + gaps) / count if count else torch.nan
    return kl.clamp_(min=0)


def _sum(maps: list[Tensor], mask: Tensor | None, out: Tensor) -> Tensor:
    """Sum maps (heads, n, n), and a mask (1 or heads, 1 or n, n), in `out`."""
    if len(maps) > 1:
        torch.add(maps[0], maps[1], out=out)
        for more in maps[2:]:
            out += more
    else:
        out.copy_(maps[0])
    return out if mask is None else out.add_(mask)


def _softmax(x: Tensor, out: Tensor) -> Tensor:
    """Compute log Σ exp over the last axis of x (heads, n, n): (heads, n), and softmax of x in `out`, which may be x
    itself.

    torch's logsumexp takes new memory three times. The largest weight is at least 1 / n, so its logarithm loses no
    digits.
    """
    top = x.amax(-1)
    torch.softmax(x, -1, out=out)
    return top.sub_(out.amax(-1).log_())


class HeadTaxonomy(Reader):
    """Reader of the change of attention when a term is removed, for every block, head and term.

    Records: `kl.TERM`; `kl.share.TERM`, its share of the sum over terms; `head.label`, `part` the label: the term with
    a share of at least MAJORITY, else "several", value the share of the bootstrap's draws with the same label;
    `heads.share`, the share of all heads with a label. Where the KLs of a head sum to less than NOTHING it has no
    shares and its label is "several".

    model: see `separable_terms`. queries: "regular" averages over the words; "all" also over [CLS] and [SEP], but not
    over padding. The paper does not say which. As keys special tokens always count, padding never.

    Raises:
        ValueError: unknown `queries`; or as `separable_terms`.
    """

    wants_terms = True

    def __init__(self, model: Any, queries: str = "regular") -> None:
        super().__init__()
        if queries not in QUERIES:
            raise ValueError(f"queries must be one of {', '.join(QUERIES)}; got {queries!r}.")
        self.names = separable_terms(model)
        self.queries = queries

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        queries = batch.real if self.queries == "all" else batch.regular
        kl = removal_kl({name: terms[name] for name in self.names}, allowed, queries)
        if kl.isinf().any() or kl[queries.any(-1)].isnan().any():
            raise ValueError(
                f"The attention scores of block {block + 1} are not finite, so no term can be taken out of them. If "
                "the model diverged, use an earlier checkpoint; a scheme of your own must give finite numbers (-1e4 "
                "instead of -inf)."
            )
        self.keep(block, batch, kl)

    @property
    def kl(self) -> np.ndarray:
        """KL(A ‖ A without the term), in nats: (windows, L, h, terms of `names`).

        Mean over the queries of a window; nan without a query.

        Raises:
            ValueError: no window has passed.
        """
        check_passed(self.values)
        return np.stack([self.values[block] for block in sorted(self.values)], axis=1)

    def records(self, context: RecordContext) -> list[Record]:
        kl = self.kl
        check_words(kl)
        layers, heads = kl.shape[1:3]
        documents = self.count(kl.sum(axis=(1, 2, 3)))
        mean, drawn = document_means(kl, document_numbers=self.document_numbers)
        share = term_shares(mean)
        shares = term_shares(drawn)
        label = head_labels(share)
        labels = head_labels(shares)
        # A draw without shares counts as the mean's; a head without any has no record.
        shares = np.where(np.isnan(shares), np.nan_to_num(share), shares)
        names = [*self.names, SEVERAL]
        of_label, of_labels = (np.mean(of[..., None] == np.arange(len(names)), axis=(-3, -2)) for of in (label, labels))
        by_term: Axes = {"layer": range(1, layers + 1), "head": range(heads), "metric": self.names}
        labelled = [(layer + 1, head, names[k]) for (layer, head), k in np.ndenumerate(label)]
        by_label: Axes = {("layer", "head", "part"): labelled}
        return [
            *context.records("kl.", (mean, *interval(drawn)), by_term, n=documents),
            *context.records("kl.share.", (share, *interval(shares)), by_term, n=documents),
            *context.records("head.label", np.mean(labels == label, axis=0).ravel(), by_label, n=documents),
            *context.records("heads.share", (of_label, *interval(of_labels)), {"part": names}, n=layers * heads),
        ]


def term_shares(kl: np.ndarray) -> np.ndarray:
    """Return each term's share of the sum of the KLs, in [0, 1]: (..., terms).

    kl: (..., terms). nan where the sum is below NOTHING.
    """
    sums = kl.sum(-1, keepdims=True)
    return np.divide(kl, sums, out=np.full(kl.shape, np.nan), where=sums >= NOTHING)


def head_labels(shares: np.ndarray) -> np.ndarray:
    """Return the number of the term that has the majority of the shares: (...).

    shares: (..., terms). A majority is a share of at least MAJORITY; without one the number is the number of terms.
    """
    filled = np.nan_to_num(shares, nan=0.0)
    return np.where(filled.max(-1) >= MAJORITY, filled.argmax(-1), shares.shape[-1])


ANALYSES = (Analysis("heads", OF_WINDOWS, reader=HeadTaxonomy, optional=True),)
