"""What drives each attention head: the weight of each term of its scores by removing it (DSTG section 4 (3), eq. 4,
figure 2).

KL(A ‖ A without t) = Σ_j A_ij t_ij - lse(l_i) + lse(l_i - t_i), l the sum of all terms and lse the log of the sum of
exp over the allowed keys: a softmax for each term and one of all, no logarithm of a weight that has underflowed.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..records import Record
from .bootstrap import DRAWS, document_mean, draw_documents, enough, joined
from .passes import Batch, Reader, device_of, evaluating
from .who import Who

# A head is called after the term that has at least half of its KL, "several" where none has: with three terms figure
# 2's corners against its middle. The paper gives no threshold. Stability: the share of bootstrap draws of the documents
# with the same label.
SHARE = 0.5
SEVERAL = "several"
NOTHING = 1e-9  # nats over all terms: below, no term changes what the head attends to, and shares mean nothing
QUERIES = ("regular", "all")

PIECE = 1 << 19  # scores at a time, 2 MiB of float32: two buffers of that size stay in the cache


class _Seen(Exception):
    """Ends a pass early."""


def term_names(model: Any) -> list[str]:
    """Names of the terms of the model's attention scores, in the order in which they are summed (two tokens in the
    first block say it).

    Raises:
        ValueError: the model is not one of ours, so its scores are not a sum of named terms.
    """
    if not hasattr(model, "inspecting"):
        raise ValueError(
            f"{type(model).__name__} does not say which part of its attention scores comes from position; the encoders "
            "of this package "
            "do (whatwhere presets)."
        )
    names: list[str] = []

    def see(block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        names.extend(terms)
        raise _Seen

    config = model.config
    device = device_of(model)
    ids = torch.tensor([[config.cls_token_id, config.sep_token_id]], device=device)
    with evaluating(model), suppress(_Seen), torch.inference_mode(), model.inspecting(see):
        getattr(model, "base_model", model)(ids)
    return names


def separable_terms(model: Any) -> list[str]:
    """As `term_names`, of a model whose scores have at least two terms, so that one can be removed and something is
    left.

    Raises:
        ValueError: the model is not one of ours, or has a single term; the message says which and why.
    """
    names = term_names(model)
    if len(names) > 1:
        return names
    config = model.config
    if config.rotation != "none":
        why = "rotation is inside the product of queries and keys, so position cannot be taken out of it"
    elif names == ["mixed"]:
        why = (
            "positions are added to the words before the product of queries and keys, so they cannot be taken out of it"
        )
    else:
        why = "nothing of position is in its scores"
    raise ValueError(
        f"{getattr(config, 'preset', None) or type(model).__name__} has one term, {names[0]}: {why}. A share by term "
        "needs two or more, as "
        "in dstg, rp, alibi, split, bert-r, bert-ad and tupe-r; removing the term in an ablation works in every model."
    )


def removal_kl(terms: dict[str, Tensor], allowed: Tensor | None, queries: Tensor) -> Tensor:
    """Mean over the queries of each document of KL(A ‖ A without t) in nats (DSTG eq. 4): (b, h, terms) in float64.

    Computed in at least float32; means that rounding makes negative are 0. A term that is zero everywhere gives exactly
    0.

    Args:
        terms: each (b or 1, h, n, n), at least two, in score units, finite.
        allowed: (b, 1, 1 or n, n), True where a query may look at a key, or None for everywhere.
        queries: (b, n), True at queries that count; each must be allowed at least one key. nan where a document has
        none.
    """
    parts = list(terms.values())
    wide = parts[0].dtype
    for part in parts:
        wide = torch.promote_types(torch.promote_types(wide, part.dtype), torch.float32)
    h, n = parts[0].shape[1:3]
    b, device = len(queries), queries.device
    step = max(1, min(h, PIECE // (n * n)))
    # Written over for every piece: fresh memory costs more than the arithmetic (docs/log.md).
    scores, rest = (torch.empty(step, n, n, dtype=wide, device=device) for _ in range(2))
    found = torch.empty(b, h, len(parts), dtype=torch.float64, device=device)
    for i in range(b):
        mask = None
        if allowed is not None:  # the least number absorbs the score; exp makes it 0
            mask = (~allowed[i]).to(wide).mul_(torch.finfo(wide).min)
        others, count = (~queries[i]).nonzero()[:, 0], int(queries[i].sum())
        for first in range(0, h, step):
            heads = slice(first, min(first + step, h))
            maps = [part[i if len(part) > 1 else 0, heads].to(wide) for part in parts]
            l, r = scores[: heads.stop - first], rest[: heads.stop - first]
            whole = _softmax(_sum(maps, mask, l), l)
            l.index_fill_(1, others, 0)
            for k, m in enumerate(maps):
                left = _softmax(_sum([other for j, other in enumerate(maps) if j != k], mask, r), r)
                gaps = left.sub_(whole).index_fill_(1, others, 0).sum(1, dtype=torch.float64)
                means = torch.stack([torch.dot(a, t) for a, t in zip(l.flatten(1), m.flatten(1), strict=True)])
                found[i, heads, k] = (means.double() + gaps) / count if count else torch.nan
    return found.clamp_(min=0)


def _sum(maps: list[Tensor], mask: Tensor | None, out: Tensor) -> Tensor:
    """The sum of maps (heads, n, n), and of a mask (1 or heads, 1 or n, n), in `out`."""
    if len(maps) > 1:
        torch.add(maps[0], maps[1], out=out)
        for more in maps[2:]:
            out += more
    else:
        out.copy_(maps[0])
    return out if mask is None else out.add_(mask)


def _softmax(x: Tensor, out: Tensor) -> Tensor:
    """log Σ exp over the last axis of x (heads, n, n): (heads, n), and softmax of x in `out`, which may be x itself.

    torch's logsumexp takes new memory three times. The largest weight is at least 1 / n, so its logarithm loses no
    digits.
    """
    top = x.amax(-1)
    torch.softmax(x, -1, out=out)
    return top.sub_(out.amax(-1).log_())


class HeadTaxonomy(Reader):
    """A reader of a pass (`passes.read`): for every block, head and term, how much the attention changes when the term
    is removed.

    kl: see there. Records of `records`: KL by term, its share, the label of each head, and how many heads have which
        label.

    Args:
        model: one of ours, with at least two terms.
        queries: "regular" averages over the words; "all" also over [CLS] and [SEP], but not over padding. The paper
            does not say which. As keys special tokens always count, padding never.

    Raises:
        ValueError: see `separable_terms`.
    """

    wants_terms = True

    def __init__(self, model: Any, queries: str = "regular") -> None:
        if queries not in QUERIES:
            raise ValueError(f"queries must be one of {', '.join(QUERIES)}; got {queries!r}.")
        self.names = separable_terms(model)
        self.layers, self.queries = int(model.config.num_hidden_layers), queries
        self._batches: list[np.ndarray] = []
        self._articles: list[np.ndarray | None] = []

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        queries = batch.regular
        if self.queries == "all":
            queries = torch.ones_like(queries)
            if batch.documents.attention_mask is not None:
                queries = torch.from_numpy(batch.documents.attention_mask[batch.indices]).to(queries.device).bool()
        found = removal_kl({name: terms[name] for name in self.names}, allowed, queries).cpu().numpy()
        if np.isinf(found).any() or np.isnan(found[queries.any(-1).cpu().numpy()]).any():
            raise ValueError(
                f"The attention scores of block {block + 1} are not finite, so no term can be taken out of them. If "
                "the model diverged, "
                "use an earlier checkpoint; a scheme of your own must give finite numbers (-1e4 instead of -inf)."
            )
        if block == 0:
            self._batches.append(np.full((len(found), self.layers, *found.shape[1:]), np.nan))
            self._articles.append(batch.articles)
        self._batches[-1][:, block] = found

    @property
    def kl(self) -> np.ndarray:
        """(documents, L, h, terms) mean over the queries of a document of KL(A ‖ A without the term), nats; nan without
        a query.

        Terms in the order of `names`, documents in that of the pass.
        """
        if not self._batches:
            raise ValueError("No documents were read: give this reader to analysis.passes.read first.")
        return np.concatenate(self._batches)

    def records(self, who: Who) -> list[Record]:
        """Records with 95 % intervals over documents (percentile bootstrap); `layer` is the number of the block, from
        1.

        `kl.TERM` (nats) and `kl.share.TERM` = its share of the sum over terms, n = documents. `head.label`, `part` the
        label: the term with a share of at least SHARE, else "several"; value = share of the bootstrap's draws with the
        same label (1 with a single document, which has no other draw). `heads.share`, `part` the label: share of all
        heads with it, n = heads. Where the KLs of a head sum to less than NOTHING it has no shares and its label is
        "several".
        """
        kl = self.kl
        seen = ~np.isnan(kl).any(axis=(1, 2, 3))
        kl, articles = kl[seen], joined(self._articles)
        articles = None if articles is None else articles[seen]
        documents, layers, heads, terms = kl.shape
        if not documents:
            raise ValueError("No document has a regular token, so there is no query to average over.")
        mean, low, high = document_mean(kl, articles=articles)
        drawn = mean[None]
        repeated = enough(documents, articles)
        if repeated:
            samples = draw_documents(documents, articles=articles)
            drawn = (samples / samples.sum(1, keepdims=True) @ kl.reshape(documents, -1)).reshape(
                DRAWS, layers, heads, terms
            )
        share, shares = term_shares(mean), term_shares(drawn)
        label, labels = head_labels(share), head_labels(shares)
        # A draw without shares counts as the mean's; a head without any has no record.
        filled = np.where(np.isnan(shares), np.nan_to_num(share), shares)
        names = [*self.names, SEVERAL]
        which = np.arange(len(names))
        of_label, of_labels = (np.mean(of[..., None] == which, axis=(-3, -2)) for of in (label, labels))

        def interval(draws: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
            return tuple(np.quantile(draws, [0.025, 0.975], axis=0)) if repeated else (None, None)

        places: dict[str, Any] = {"layer": range(1, layers + 1), "head": range(heads)}
        by_label = {
            ("layer", "head", "part"): [(layer + 1, head, names[k]) for (layer, head), k in np.ndenumerate(label)]
        }
        return [
            *who.records("kl.", (mean, low, high), {**places, "metric": self.names}, n=documents, unit="nats"),
            *who.records("kl.share.", (share, *interval(filled)), {**places, "metric": self.names}, n=documents),
            *who.records("head.label", np.mean(labels == label, axis=0).ravel(), by_label, n=documents),
            *who.records("heads.share", (of_label, *interval(of_labels)), {"part": names}, n=layers * heads),
        ]


def term_shares(kl: np.ndarray) -> np.ndarray:
    """Shares (..., terms) of the KLs (..., terms) in their sum; nan where that is below NOTHING."""
    sums = kl.sum(-1, keepdims=True)
    return np.divide(kl, sums, out=np.full(kl.shape, np.nan), where=sums >= NOTHING)


def head_labels(shares: np.ndarray) -> np.ndarray:
    """Number of the term with a share of at least SHARE, else the number of terms; (...) of shares (..., terms)."""
    filled = np.nan_to_num(shares, nan=0.0)
    return np.where(filled.max(-1) >= SHARE, filled.argmax(-1), shares.shape[-1])
