"""Pair terms: terms of the attention scores that no function of the distance alone gives: they read words, or both
positions.

Shaw's relative keys, DeBERTa's crossed terms, Transformer-XL's four terms, and CoPE's contextual positions; those that
a small network computes, FIRE's from both positions, are in bias_networks.py. A term that reads a word holds a map of
pairs for every example and head: a query meets every distance, so that no smaller form exists.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .biases import toeplitz
from .config import EncoderConfig
from .registry import register_pair_terms
from .tables import frequencies


@dataclass(frozen=True)
class PairInputs:
    """Inputs of the terms of pairs of tokens, which all layers share.

    distance: key position minus query position, (b, n, n), or (2n - 1,) for -(n - 1) ... n - 1. allowed: (b, 1, 1 or n,
    n), True where a query may look at a key, or None for everywhere. vectors: (rows, width), the vectors of distances
    that all layers share, or None. positions: one for each token, (b or 1, n).
    """

    distance: Tensor
    positions: Tensor
    allowed: Tensor | None = None
    vectors: Tensor | None = None


class PairTerms(nn.Module):
    """Base class of pair terms, which read the words, distance and positions of pairs of tokens.

    scale_terms: m of the scale 1/√(m · d_head) in the paper: 3 for DeBERTa, 1 for papers that divide by √d_head.
    scaled_formulas: formula of each term that the scale multiplies, for `whatwhere explain`.
    unscaled_formulas: formula of each other term.
    tables: names of parameters whose rows are vectors; they learn at the rate of the position table.
    shares_vectors: True where all layers share vectors of distances, `PairInputs.vectors`.
    keeps_max_positions: True where `max_position_embeddings` sizes a part or enters the formula; a copy for longer
        texts then has the same number.
    """

    scale_terms: ClassVar[int] = 1
    scaled_formulas: ClassVar[Mapping[str, str]] = {}
    unscaled_formulas: ClassVar[Mapping[str, str]] = {}
    tables: ClassVar[tuple[str, ...]] = ()
    shares_vectors: ClassVar[bool] = False
    keeps_max_positions: ClassVar[bool] = False

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.scale = config.score_scale

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries of the semantic term, and all other terms by name.

        The product of the queries (b, h, n, d_head) with the words' keys is the term `semantic`; each other term is
        (b or 1, h, n, n).

        q, k: queries and keys of the words, (b, h, n, d_head). Terms are in score units; names are
        `semantic_to_relative` for a word as the query, `relative_to_semantic` for a word as the key, and `relative`.
        """
        raise NotImplementedError

    def split_into_heads(self, x: Tensor) -> Tensor:
        """Split vectors (m, heads · d_head) into heads: (heads, m, d_head)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(0, 1)


class DistanceVectors(nn.Module):
    """Vectors of the distances, which all layers share: `table` (2 · max_position_embeddings, width of the words)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(2 * config.max_position_embeddings, config.semantic_size))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw the vectors from a normal distribution with standard deviation `initializer_range`."""
        init.normal_(self.table, std=config.initializer_range)


@register_pair_terms("shaw")
class ShawKeys(PairTerms):
    """Relative keys q_i·a_{j-i}/√d_head, with a learned vector a of each distance.

    Distances reach `relative_max_distance`; all heads of a layer share a (Shaw et al. 2018, eq. 4; TUPE eq. 4).

    Their relative values (eq. 3) are left out: a sum over keys would need the weights, which fused attention does not
    give, and they changed nothing in the paper's table 3.
    """

    tables = ("table",)
    scaled_formulas = {"semantic_to_relative": "q_i·a(j - i)"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.max_distance = config.relative_max_distance
        self.table = nn.Parameter(torch.empty(2 * self.max_distance + 1, config.d_head))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw the vectors from a normal distribution with standard deviation `initializer_range`."""
        init.normal_(self.table, std=config.initializer_range)

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries (b, h, n, d) unchanged, and the term `semantic_to_relative` (b, h, n, n)."""

        def vectors(distance: Tensor) -> Tensor:
            return self.table[distance.clamp(-self.max_distance, self.max_distance) + self.max_distance][None]

        return q, {"semantic_to_relative": self.scale * products_by_distance(q, vectors, pairs.distance)}


@register_pair_terms("deberta")
class DebertaTerms(PairTerms):
    """DeBERTa's content-to-position and position-to-content terms (He et al. 2021, eq. 4), all scores over √(3 d_head).

    q_i·(P_{δ(i,j)} W_K) and k_j·(P_{δ(j,i)} W_Q), with δ(i, j) = i - j + K clipped to [0, 2K - 1], K =
    `max_position_embeddings`, vectors P for all layers and matrices for each. The authors' code reads P_{δ(i,j)} in
    both terms. Left out are the dropout on P and the enhanced mask decoder, which adds absolute positions before the
    last softmax: here no part knows absolute positions.
    """

    scale_terms = 3
    shares_vectors = True
    keeps_max_positions = True
    scaled_formulas = {"semantic_to_relative": "q_i·(P(i - j) W_K)", "relative_to_semantic": "(P(j - i) W_Q)·k_j"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        width = self.heads * config.d_head
        has_linear_bias = config.block == "bert"
        self.query, self.key = (nn.Linear(config.semantic_size, width, bias=has_linear_bias) for _ in range(2))

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries (b, h, n, d) unchanged, and the terms `semantic_to_relative` and `relative_to_semantic`,
        (b, h, n, n) each."""
        assert pairs.vectors is not None
        middle = len(pairs.vectors) // 2
        distance_keys = self.split_into_heads(self.key(pairs.vectors))
        distance_queries = self.split_into_heads(self.query(pairs.vectors))

        def keys_at(distance: Tensor) -> Tensor:  # δ(i, j), as distance = j - i
            return distance_keys[:, (middle - distance).clamp(0, 2 * middle - 1)]

        def queries_at(distance: Tensor) -> Tensor:  # δ(j, i), as rows are keys j here: distance = i - j
            return distance_queries[:, (middle - distance).clamp(0, 2 * middle - 1)]

        to_relative = products_by_distance(q, keys_at, pairs.distance)
        to_semantic = products_by_distance(k, queries_at, pairs.distance).transpose(-1, -2)
        return q, {"semantic_to_relative": self.scale * to_relative, "relative_to_semantic": self.scale * to_semantic}


@register_pair_terms("xl")
class TransformerXlTerms(PairTerms):
    """Transformer-XL's four terms (q_i + u)·k_j + (q_i + v)·(R_{i-j} W_R), over √d_head (Dai et al. 2019, section 3.3).

    R holds sines and cosines of the distance; each layer has its own u, v (h, d_head) and W_R (the authors' code shares
    u and v unless `untie_r` is set). `semantic` has both products with the word's key, `relative` is v's alone. The
    paper looks back only, over a memory of segments; here distances have both signs, and there is no memory.
    """

    scaled_formulas = {
        "semantic": "(q_i + u)·k_j",
        "semantic_to_relative": "q_i·(R(i - j) W_R)",
        "relative": "v·(R(i - j) W_R)",
    }

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.width = config.semantic_size
        self.project = nn.Linear(self.width, self.heads * config.d_head, bias=False)
        self.u, self.v = (nn.Parameter(torch.empty(self.heads, config.d_head)) for _ in range(2))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw u and v from a normal distribution with standard deviation `initializer_range`."""
        init.normal_(self.u, std=config.initializer_range)
        init.normal_(self.v, std=config.initializer_range)

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries (b, h, n, d) with u added, and the terms `semantic_to_relative` (b, h, n, n) and
        `relative` (b or 1, h, n, n)."""

        def vectors(distance: Tensor) -> Tensor:
            return self.split_into_heads(self.project(sines_then_cosines(-distance, self.width, self.u.dtype)))

        to_relative = products_by_distance(q, vectors, pairs.distance)
        if pairs.distance.ndim > 1:
            unique, index = pairs.distance.unique(return_inverse=True)
            relative = (self.v[:, None] * vectors(unique)).sum(-1)[:, index].transpose(0, 1)
        else:
            relative = toeplitz((self.v[:, None] * vectors(pairs.distance)).sum(-1))[None]
        terms = {"semantic_to_relative": self.scale * to_relative, "relative": self.scale * relative}
        return q + self.u[:, None].to(q.dtype), terms


@register_pair_terms("cope")
class ContextualPositions(PairTerms):
    """CoPE: positions that count the keys which a query lets through, in a term q_i·e(p_ij) (Golovneva et al. 2024, eq.
    3-5).

    p_ij is the sum of the gates σ(q_i·k_m/√d_head) over all m from j to i, at most `max_position_embeddings` - 1, and
    e(p) lies between the learned vectors e of the whole numbers around p. The paper looks back only; here keys after
    the query have vectors of their own. All heads of a layer share `before` and `after` (max_position_embeddings,
    d_head), zero at the start. As in the paper's listing √d_head divides the scores of the gates (in
    eq. 3 it does not), and not the term. The listing's bound of positions is a number of its own (npos_max),
    here it is the number of all positions.
    """

    tables = ("before", "after")
    keeps_max_positions = True
    unscaled_formulas = {"semantic_to_relative": "q_i·e(gates of i from j to i)"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        rows = config.max_position_embeddings
        self.before, self.after = (nn.Parameter(torch.zeros(rows, config.d_head)) for _ in range(2))

    def initialize(self, config: EncoderConfig) -> None:
        """Set all vectors to zero."""
        init.zeros_(self.before)
        init.zeros_(self.after)

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries (b, h, n, d) unchanged, and the term `semantic_to_relative` (b, h, n, n)."""
        if pairs.distance.ndim == 1:
            return q, {"semantic_to_relative": self._term(q, k, pairs.allowed)}
        # Tokens may stand in the row in another order than their positions.
        order = pairs.distance[:, 0].argsort(dim=-1, stable=True)
        inverse = order.argsort(dim=-1)
        allowed = None if pairs.allowed is None else reorder_tokens(pairs.allowed, order, -1)
        if allowed is not None and allowed.shape[2] > 1:
            allowed = reorder_tokens(allowed, order, -2)
        term = self._term(reorder_tokens(q, order, -2), reorder_tokens(k, order, -2), allowed)
        return q, {"semantic_to_relative": reorder_tokens(reorder_tokens(term, inverse, -2), inverse, -1)}

    def _term(self, q: Tensor, k: Tensor, allowed: Tensor | None) -> Tensor:
        """Return the term (b, h, n, n) of tokens that stand in the order of their positions."""
        scores = self.scale * (q @ k.transpose(-1, -2))
        # Sums of hundreds of gates in bfloat16 would be whole tokens off.
        gates = scores.to(torch.promote_types(scores.dtype, torch.float32)).sigmoid()
        if allowed is not None:
            gates = gates * allowed
        counted = gates.cumsum(-1)
        count_to_self = counted.diagonal(dim1=-2, dim2=-1)[..., None]
        gate_to_self = gates.diagonal(dim1=-2, dim2=-1)[..., None]
        index = torch.arange(q.shape[2], device=q.device)
        is_after = index > index[:, None]
        count = torch.where(is_after, counted - count_to_self + gate_to_self, count_to_self - counted + gates)
        # Sums made in parallel need not grow: where gates are closed, a difference can be below 0 by rounding.
        count = count.clamp(0, len(self.before) - 1)
        low = count.floor()
        fraction = count - low
        rows = low.long()
        next_rows = count.ceil().long()

        def interpolate(table: Tensor) -> Tensor:
            products = q @ table.transpose(-1, -2)
            return products.gather(-1, rows) * (1 - fraction) + products.gather(-1, next_rows) * fraction

        return torch.where(is_after, interpolate(self.after), interpolate(self.before))


def products_by_distance(x: Tensor, vectors: Callable[[Tensor], Tensor], distance: Tensor) -> Tensor:
    """Return x_i·vectors(distance_ij) of rows x (b, h, n, d): (b, h, n, n).

    Args:
        vectors: function from distances (m,) to their vectors (h or 1, m, d).
        distance: (b, n, n), or (2n - 1,) for -(n - 1) ... n - 1.
    """
    n = x.shape[2]
    if distance.ndim > 1:
        unique, index = distance.unique(return_inverse=True)
        products = x @ vectors(unique).transpose(-1, -2)
        return products.gather(-1, index[:, None].expand(-1, x.shape[1], -1, -1))
    # Rows of 2n products, read as rows of 2n - 1, move by one more place in every row, as in `toeplitz`.
    products = x @ F.pad(vectors(distance), (0, 0, 0, 1)).transpose(-1, -2)
    return products.flatten(-2)[..., n - 1 : n - 1 + n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))[..., :n]


def reorder_tokens(x: Tensor, order: Tensor, dim: int) -> Tensor:
    """Reorder the tokens of x (b, h, ..., ...) along axis `dim`, -2 or -1, by an order (b, n) of each row's tokens."""
    index = order[:, None, :, None] if dim == -2 else order[:, None, None, :]
    return x.gather(dim, index.expand(*x.shape))


def sines_then_cosines(distance: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Return sines, then cosines, of signed distances (m,) at width/2 frequencies 10000^(-2k/width): (m, width).

    The order is Transformer-XL's (Dai et al. 2019), the frequencies are of Vaswani et al. 2017.
    """
    high = torch.promote_types(dtype, torch.float32)
    angle = distance[:, None].to(high) * frequencies(width, high, distance.device)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].to(dtype)
