"""Additive attention biases from the distance of two positions, from positions alone, and from special tokens.

T5 buckets with DSTG's special values (DSTG eq. 1), clipped distances (TUPE footnote 2), a product of learned vectors
(TUPE section 5), and TUPE's untied absolute positions. Formulas of the distance: distance_biases.py.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .config import EncoderConfig
from .registry import BIASES, register_bias


@dataclass(frozen=True)
class Bias:
    """Additive term of the scores: a base for all pairs, and values in its place at pairs with a special token.

    A pair term (`encoder/pair_terms.py`), which may depend on the words, is handed on in this form, too.

    base: (b or 1, h, n, n), or (h, 2n - 1) where it depends on the distance alone, the value at distance j - i in
    column j - i + n - 1. special_values: (kinds, kinds, h), by the kind of the query and of the key, for pairs of which
    one at least is special; None if special tokens are treated like all others. kinds: (b, n), the kind of each token,
    0 where it is not special, or (1, n) where special tokens stand alike in all examples: the `token_kinds` of
    `AttentionInputs` or, in a bias that resets [CLS], its `cls_kinds`.
    """

    name: str
    base: Tensor
    special_values: Tensor | None
    kinds: Tensor

    def base_map(self) -> Tensor:
        """Return the base as (b or 1, h, n, n)."""
        return toeplitz(self.base)[None] if self.base.ndim == 2 else self.base

    def to_dense(self) -> Tensor:
        """Return the whole term (b or 1, h, n, n), base and special values, as the eager backend adds it."""
        if self.special_values is None:
            return self.base_map()
        # By the kind of the query: (kinds, b or 1, h, 1, n).
        values_of_keys = self.special_values[:, self.kinds].transpose(-1, -2)[..., None, :]
        query = self.kinds[:, None, :, None]
        key = self.kinds[:, None, None, :]
        dense = torch.where(key > 0, values_of_keys[0], self.base_map())
        for kind in range(1, len(values_of_keys)):
            dense = torch.where(query == kind, values_of_keys[kind], dense)
        return dense


def toeplitz(values: Tensor) -> Tensor:
    """Return the matrices (..., n, n) whose entry (i, j) is the value at distance j - i, from values (..., 2n - 1).

    The values belong to the distances -(n - 1) ... n - 1, in this order.
    """
    n = (values.shape[-1] + 1) // 2
    if torch.compiler.is_compiling():  # the compiler has no `unfold` of a symbolic length
        # Rows of 2n values, read as rows of 2n - 1, move by one more place in every row.
        rows = F.pad(values, (0, 1))[..., None, :].expand(*values.shape[:-1], n, 2 * n).flatten(-2)
        return rows[..., : n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))[..., n - 1 :]
    return values.unfold(-1, n, 1).flip(-2).contiguous()  # contiguous, as sums with it are slow in another order


def sum_biases(biases: list[Bias]) -> Bias | None:
    """Return the sum of biases in the most compact form that holds it, or None if there are none."""
    if not biases:
        return None
    first_bias = biases[0]
    if len(biases) == 1:
        return first_bias
    name = " + ".join(b.name for b in biases)
    kinds = first_bias.kinds
    has_special_values = first_bias.special_values is not None
    if any((b.special_values is not None) != has_special_values or b.kinds is not kinds for b in biases):
        dense = torch.stack(torch.broadcast_tensors(*(b.to_dense() for b in biases))).sum(0)
        return Bias(name, dense, None, kinds)
    is_same_form = all(b.base.ndim == first_bias.base.ndim for b in biases)
    base = sum(
        (b.base if is_same_form else b.base_map() for b in biases[1:]),
        start=first_bias.base if is_same_form else first_bias.base_map(),
    )
    special_values = None
    if has_special_values:
        special_values = torch.stack([b.special_values for b in biases if b.special_values is not None]).sum(0)
    return Bias(name, base, special_values, kinds)


def t5_bucket(distance: Tensor, buckets: int = 32, max_distance: int = 128) -> Tensor:
    """Return the bucket of each signed distance `key position - query position`, bidirectional (T5; DSTG A.1).

    Half of the buckets serve each direction: exact for |distance| < buckets/4, then logarithmic up to `max_distance`,
    the last one for everything beyond. `distance` holds integers of any shape; buckets have its shape, in [0, buckets).
    """
    half = buckets // 2
    exact = half // 2
    size = distance.abs()
    # float32 as in T5's own code: the edges of the logarithmic buckets must round the same way.
    growth = torch.log(size.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (half - exact)
    far = (exact + growth.long()).clamp(max=half - 1)
    return torch.where(distance > 0, half, 0) + torch.where(size < exact, size, far)


@register_bias("t5")
class T5Bias(nn.Module):
    """Learned value per bucket and head, zero at the start (T5)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(config.relative_buckets, config.num_attention_heads))

    def initialize(self, config: EncoderConfig) -> None:
        """Set all values to zero."""
        init.zeros_(self.table)

    @staticmethod
    def buckets(distance: Tensor, config: EncoderConfig) -> Tensor:
        """Return the buckets of distances of any shape, computed once for all layers."""
        return t5_bucket(distance, config.relative_buckets, config.relative_max_distance)

    def forward(self, bucket: Tensor) -> Tensor:
        """Return the values (..., heads), in score units, of buckets of any shape."""
        return self.table[bucket]


@register_bias("clipped")
class ClippedBias(nn.Module):
    """Learned value per head and distance, constant beyond `relative_max_distance` (TUPE footnote 2).

    It starts at zero.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.max_distance = config.relative_max_distance
        self.table = nn.Parameter(torch.zeros(2 * self.max_distance + 1, config.num_attention_heads))

    def initialize(self, config: EncoderConfig) -> None:
        """Set all values to zero."""
        init.zeros_(self.table)

    def forward(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads), in score units, of distances of any shape."""
        return self.table[distance.clamp(-self.max_distance, self.max_distance) + self.max_distance]


@register_bias("product")
class ProductBias(nn.Module):
    """Bias (r F_Q)(r F_K)ᵀ/√d_head with a learned vector r of each distance (TUPE section 5).

    Distances beyond `relative_max_distance` have the vector of that distance in their direction.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.max_distance = config.relative_max_distance
        self.heads = config.num_attention_heads
        self.d_head = config.d_head
        width = self.heads * self.d_head
        self.table = nn.Parameter(torch.empty(2 * self.max_distance + 1, width))
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in range(2))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw the vectors of the distances from a normal distribution with standard deviation `initializer_range`."""
        init.normal_(self.table, std=config.initializer_range)

    def forward(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads), in score units, of distances of any shape."""
        with disable_autocast(self.table.device):
            q, k = (project(self.table).unflatten(-1, (self.heads, self.d_head)) for project in (self.query, self.key))
            values = (q * k).sum(-1) * self.d_head**-0.5  # (2 · max_distance + 1, h)
        return values[distance.clamp(-self.max_distance, self.max_distance) + self.max_distance]


# [kind of the query][kind of the key] is the row of the learned values that a pair gets; kinds are
# `token_kinds`, for RESET_INDICES `cls_kinds`. [0][0] is never read: two words keep the value of their
# distance. The query is i (DSTG eq. 2; the text around eq. 1 reverses it).
SPECIAL_INDICES = {"shared": ((0, 2), (1, 0)), "each": ((0, 2, 3), (0, 2, 3), (1, 2, 3))}
RESET_INDICES = ((0, 1), (0, 0))  # TUPE eq. 9: θ1 if the query is [CLS], θ2 if only the key is
SPECIAL_START = {"shared": 0.0, "each": 0.05}  # 0.05: the code of DSTG's authors


class RelativeTerm(nn.Module):
    """Term `relative` of the scores: the configured bias of distances, and values in its place at special tokens.

    `special` (DSTG eq. 1) depends on `relative_special`. "shared", (3, h): a value for pairs with both tokens in S, one
    for only the query in S, one for only the key in S. "each", (4, h): values for the query [CLS], the query [SEP], the
    key [CLS] and the key [SEP]; where both tokens are special, the key's value counts (the code of DSTG's authors).
    `cls` (2, h): θ1 and θ2 of TUPE eq. 9 themselves; None where no token is reset, and where the absolute correlation
    has θ for both (TUPE eq. 11). (`cls` of `UntiedPositions` holds rows of a table.)
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.name = config.relative
        self.function = BIASES[config.relative](config)
        self.relative_special = config.relative_special
        values = {"none": 0, "shared": 3, "each": 4}[self.relative_special]
        self.special = nn.Parameter(torch.zeros(values, config.num_attention_heads)) if values else None
        has_theta = config.reset == "each" or (config.reset == "sum" and config.untied == "none")
        self.cls = nn.Parameter(torch.zeros(2, config.num_attention_heads)) if has_theta else None
        self.resets_cls = config.reset != "none"
        self.heads = config.num_attention_heads

    def initialize(self, config: EncoderConfig) -> None:
        """Set the values at special tokens to their start (`SPECIAL_START`), and θ to zero."""
        if self.special is not None:
            init.constant_(self.special, SPECIAL_START[self.relative_special])
        if self.cls is not None:
            init.zeros_(self.cls)

    def forward(self, distance_or_bucket: Tensor, token_kinds: Tensor, cls_kinds: Tensor) -> Bias:
        """Return the bias of all pairs, from fields of `AttentionInputs`.

        distance_or_bucket: (b, n, n), or (2n - 1,) for -(n - 1) ... n - 1. token_kinds, cls_kinds: (b or 1, n).

        Raises:
            ValueError: a registered bias gives another shape.
        """
        shape = distance_or_bucket.shape
        by_distance = self.function(distance_or_bucket)  # (b, n, n, h) or (2n - 1, h)
        if by_distance.shape != (*shape, self.heads):
            raise ValueError(
                f"The bias {self.name} gives shape {tuple(by_distance.shape)} for distances {tuple(shape)}. "
                f"Return a value for each head on the last axis: {(*shape, self.heads)}."
            )
        # Contiguous: the map of pairs takes its memory order from the base, and another order costs a copy.
        base = by_distance.t().contiguous() if len(shape) == 1 else by_distance.permute(0, 3, 1, 2)
        if not self.resets_cls:
            special_values = (
                None if self.special is None else arrange_by_kinds(self.special, SPECIAL_INDICES[self.relative_special])
            )
            return Bias("relative", base, special_values, token_kinds)
        theta = base.new_zeros(2, self.heads) if self.cls is None else self.cls
        return Bias("relative", base, arrange_by_kinds(theta, RESET_INDICES), cls_kinds)


class UntiedPositions(nn.Module):
    """TUPE's untied absolute positions: correlation of pU_Q and pU_K in each head, equal in all layers (3.1-3.3).

    LayerNorm normalises p. With a reset, `cls` (2, width) are two more rows of the table, p_θ1 and p_θ2, whose
    correlations with themselves are θ1 and θ2. With untied=free two parameters stand for the correlations: `free`
    (h, n, n) and `theta` (2, h) (TUPE section 5).
    """

    tables = ("cls",)  # names of parameters that learn at the rate of the position table

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.scale = config.score_scale
        self.resets_cls = config.reset != "none"
        self.free = None
        self.theta = None
        self.cls = None
        if config.untied == "free":
            rows = config.max_position_embeddings
            self.free = nn.Parameter(torch.zeros(self.heads, rows, rows))
            if self.resets_cls:
                self.theta = nn.Parameter(torch.zeros(2, self.heads))
            return
        width = config.hidden_size
        self.norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in range(2))
        if self.resets_cls:
            self.cls = nn.Parameter(torch.empty(2, width))

    def initialize(self, config: EncoderConfig) -> None:
        """Set `free` and θ to zero, and draw the rows `cls` with deviation `position_initializer_range`."""
        assert config.position_initializer_range is not None
        for values in (self.free, self.theta):
            if values is not None:
                init.zeros_(values)
        if self.cls is not None:
            init.normal_(self.cls, std=config.position_initializer_range)

    def project(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys (b or 1, h, n, d_head) of rows of the table (b or 1, n, width)."""
        normed = self.norm(vectors)
        q, k = (linear(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for linear in (self.query, self.key))
        return q, k

    def forward(self, table: Tensor | None, position_ids: Tensor, cls_kinds: Tensor) -> Bias:
        """Return the correlation of all pairs of `position_ids` (b or 1, n); `cls_kinds` (b or 1, n): 1 at [CLS].

        table: (rows, width), None with untied=free. The bias is in score units, its base (b or 1, h, n, n).
        """
        theta: Tensor | None = self.theta
        if self.free is not None:
            base = self.free[:, position_ids[:, :, None], position_ids[:, None, :]].transpose(0, 1)
        else:
            assert table is not None
            with disable_autocast(table.device):
                q, k = self.project(table[position_ids].to(self.norm.weight.dtype))  # `query` may be quantised
                base = self.scale * (q @ k.transpose(-1, -2))
                if self.cls is not None:
                    q, k = self.project(self.cls[None])
                    theta = self.scale * (q * k).sum(-1)[0].t()  # (2, h)
        return Bias("absolute", base, None if theta is None else arrange_by_kinds(theta, RESET_INDICES), cls_kinds)


def disable_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context that disables autocast, so that biases keep the precision of their weights.

    Rounded to bfloat16, a bias would bring the same error into the scores of all layers.
    """
    if device.type == "meta" or not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def arrange_by_kinds(values: Tensor, indices: tuple[tuple[int, ...], ...]) -> Tensor:
    """Arrange values (m, h) as the `special_values` (kinds, kinds, h) of a `Bias`.

    indices: row of `values` for each pair [kind of the query][kind of the key].
    """
    # No index tensor: an accelerator would receive a copy of it at every call.
    return torch.stack([values[i] for row in indices for i in row]).unflatten(0, (len(indices), len(indices)))
