"""Attention on a CPU, forward and backward in tiles of scores that stay in the cache.

torch's flash kernel for CPUs multiplies bfloat16 no faster than float32, and leaves the fast path altogether for
dropout or for a bias that needs a gradient. Here the softmax runs in place in at least float32, the backward pass of
long sequences forms the weights again, and a bias that all examples share is never copied for each.
"""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SCORES_PER_TILE = 1 << 20  # 4 MiB of float32
# Tokens of a row up to which the forward pass keeps its attention weights, which are then about as large as q, k and v.
# For longer rows the backward pass computes them again.
KEEP_WEIGHTS_UP_TO = 512
LEVELS = 1 << 16  # of dropout, 16 random bits for a weight: torch's own bernoulli_ takes six times as long


def attend_in_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    base: Tensor | None,
    special_values: Tensor | None,
    kinds: Tensor | None,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
    ahead: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """Compute dropout(softmax(scale · q·k + bias)) v as (b, h, n, d_v), in the type of q, on CPU.

    Args:
        q, k: (b, h, n, d_qk). v: (b, h, n, d_v), any width.
        base, special_values: as in a `Bias` ((b or 1, h, n, n) or (h, 2n - 1); (kinds, kinds, h)), or None.
        kinds: as in the `Bias`; needed with `special_values`.
        allowed: (b, 1, 1 or n, n), True where a query may look at a key, or None. A query that may look nowhere looks
            everywhere alike, as in the eager computation.
        dropout: share of the weights that is set to zero, drawn from a seed that torch's default generator gives.
        ahead: other queries and keys, shaped as q and k, and a mask (b or 1, 1, n, n), True at the pairs whose product
            they give: the key is at the larger position (xPos). None: q·k is the product everywhere.
    """
    seed = int(torch.randint(1 << 62, ())) if dropout else 0
    if allowed is not None and len(allowed) != len(q):
        allowed = allowed.expand(len(q), -1, -1, -1)
    ahead_q, ahead_k, is_ahead = ahead or (None, None, None)
    if is_ahead is not None:
        is_ahead = is_ahead.expand(len(q), -1, -1, -1)
    inputs = _WeightInputs(base, special_values, kinds, allowed, ahead_q, ahead_k, is_ahead, scale, dropout, seed)
    differentiable = q, k, v, base, special_values, ahead_q, ahead_k
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in differentiable):
        return _TiledAttention.apply(q, k, v, *inputs)  # type: ignore[no-any-return]
    return _attend(q, k, v, inputs)


class _WeightInputs(NamedTuple):
    """Inputs of the attention weights beside q and k: arguments of `attend_in_tiles`, and the seed of dropout."""

    base: Tensor | None
    special_values: Tensor | None
    kinds: Tensor | None
    allowed: Tensor | None
    ahead_q: Tensor | None
    ahead_k: Tensor | None
    is_ahead: Tensor | None
    scale: float
    dropout: float
    seed: int

    def tensors(self) -> "tuple[Tensor | None, ...]":
        """Return the inputs that are tensors or None: all but the last three, which are numbers."""
        return self[:-3]


class _Tile(NamedTuple):
    """Examples, heads and queries whose weights are computed at once: an index into (b, h, n, d)."""

    examples: slice
    heads: slice
    queries: slice

    def of_queries(self, x: Tensor) -> Tensor:
        """Return a view of x (b, h, n, d) as (examples · heads, queries, d)."""
        return x[self].flatten(0, 1)

    def of_keys(self, x: Tensor) -> Tensor:
        """Return a view of x (b, h, n, d) as (examples · heads, n, d)."""
        return x[self.examples, self.heads].flatten(0, 1)

    def of_mask(self, x: Tensor) -> Tensor:
        """Return a view of x (b, 1, 1 or n, any) as (examples, 1, 1 or queries, any)."""
        return x[self.examples, :, self.queries if x.shape[2] > 1 else slice(None)]


def _part(scratch: Tensor, *shape: int) -> Tensor:
    """Return the first part of a flat scratch buffer in a shape."""
    return scratch[: math.prod(shape)].view(shape)


class _TiledWeights:
    """Attention weights tile by tile, in memory allocated once: fresh pages cost more than the arithmetic."""

    def __init__(self, q: Tensor, k: Tensor, inputs: _WeightInputs) -> None:
        base = inputs.base
        special_values = inputs.special_values
        dropout = inputs.dropout
        self.q = q
        self.k = k
        self.base = base
        self.special_values = special_values
        self.allowed = inputs.allowed
        self.ahead_q = None if inputs.ahead_q is None else inputs.ahead_q.contiguous()
        self.ahead_k = None if inputs.ahead_k is None else inputs.ahead_k.contiguous()
        self.is_ahead = inputs.is_ahead
        self.scale = inputs.scale
        # A weight is dropped where its random level, from 0 to LEVELS - 1, is below this number.
        self.dropped_levels = min(round(dropout * LEVELS), LEVELS - 1)
        self.kept_share = 1 - self.dropped_levels / LEVELS
        b, h, n = q.shape[:3]
        self.b = b
        self.h = h
        self.n = n
        self.dtype = torch.promote_types(q.dtype, torch.float32)
        if special_values is None:
            self.kinds = q.new_zeros(1, n, dtype=torch.long)
        else:
            assert inputs.kinds is not None
            self.kinds = inputs.kinds
        self.kinds_of_examples = self.kinds.expand(b, -1)
        self.by_distance = base is not None and base.dim() == 2
        # With a base by distance, where special tokens stand alike in all examples, their values are written into it.
        self.shares_special = self.by_distance and len(self.kinds) == 1
        self.by_example = base is not None and base.dim() == 4 and len(base) > 1
        # Buffers of one tile. `scores` holds the scores, then the weights, until the next tile; `ahead_scores` the
        # products of keys ahead, until they are in `scores`; `low_precision` the last product or the last result of
        # `to_low_precision`, until the next call of either; `mask_buffer` and `bits` what dropout draws.
        size = min(max(SCORES_PER_TILE, n), b * h * n * n)
        self.scores = torch.empty(size, dtype=self.dtype)
        self.ahead_scores = torch.empty(size if inputs.ahead_q is not None else 0, dtype=self.dtype)
        self.low_precision = torch.empty(size, dtype=q.dtype) if q.dtype != self.dtype else None
        self.mask_buffer = torch.empty(size if dropout else 0, dtype=self.dtype)
        self.bits = torch.empty(-(-size // 4) if dropout else 0, dtype=torch.int64)
        self.generator = torch.Generator().manual_seed(inputs.seed) if dropout else None

    def groups(self) -> Iterator[list[_Tile]]:
        """Yield groups of tiles: the tiles of a group have the same heads and queries, and together all examples.

        A tile has at most SCORES_PER_TILE scores: some whole examples, else some heads of one, else some queries.
        """
        b = self.b
        h = self.h
        n = self.n
        examples, heads, rows = (max(1, SCORES_PER_TILE // max(1, size)) for size in (h * n * n, n * n, n))
        for head in range(0, h if b else 0, heads):
            for row in range(0, n, rows):
                tile_heads = slice(head, min(head + heads, h))
                queries = slice(row, min(row + rows, n))
                yield [_Tile(slice(i, min(i + examples, b)), tile_heads, queries) for i in range(0, b, examples)]

    @cached_property
    def special_tokens(self) -> tuple[Tensor, Tensor, list[int]]:
        """Special tokens of all examples: their example, their index in it, and offsets.

        Example i has the entries from offset i up to offset i + 1 of both.
        """
        examples, tokens = torch.where(self.kinds_of_examples)
        return examples, tokens, [0, *(self.kinds_of_examples > 0).sum(-1).cumsum(0).tolist()]

    def skewed_views(self, scratch: Tensor, tile: _Tile) -> tuple[Tensor, Tensor]:
        """Return two views of the scratch buffer: (heads, queries, distances) and (heads, queries, n).

        Entry (i, j) of the second is the entry of the first at row i and distance j - i. A map of pairs that is written
        to the second is summed over equal distances by summing the columns of the first.
        """
        h = tile.heads.stop - tile.heads.start
        r = tile.queries.stop - tile.queries.start
        width = r + self.n - 1
        return _part(scratch, h, r, width), scratch[r - 1 :].as_strided((h, r, self.n), (r * width, width - 1, 1))

    def distance_columns(self, tile: _Tile) -> slice:
        """Return the columns of (h, 2n - 1) that hold the distances from the tile's queries to all keys."""
        return slice(self.n - tile.queries.stop, 2 * self.n - 1 - tile.queries.start)

    def shared_bias(self, tile: _Tile) -> Tensor | None:
        """Return the bias (heads, queries, n), or None if there is none or each example has its own."""
        if self.base is None or self.by_example:
            return None
        if not self.by_distance:
            return self.base[0, tile.heads, tile.queries].to(self.dtype)
        dense = (
            self.base[tile.heads, self.distance_columns(tile)]
            .to(self.dtype)
            .unfold(-1, self.n, 1)
            .flip(-2)
            .contiguous()
        )
        if self.shares_special and self.special_values is not None:
            special_values = self.special_values[:, :, tile.heads].to(self.dtype)
            keys = self.kinds[0]
            queries = self.kinds[0, tile.queries]
            dense[:, :, keys > 0] = special_values[0, keys[keys > 0]].t()[:, None]
            for kind in range(1, len(special_values)):
                dense[:, queries == kind] = special_values[kind, keys].t()[:, None]
        return dense

    def product(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """Compute x yᵀ (examples · heads, n_q, n_k) in the type of q; return it in at least float32, in the scratch
        buffer `out`."""
        shape = x.shape[0], x.shape[1], y.shape[1]
        if self.low_precision is None:
            return torch.bmm(x, y.transpose(1, 2), out=_part(out, *shape))
        result = torch.bmm(x, y.transpose(1, 2), out=_part(self.low_precision, *shape))
        return _part(out, *shape).copy_(result)

    def to_low_precision(self, x: Tensor) -> Tensor:
        """Return x in the type of q as (examples · heads, queries, n)."""
        return (x if self.low_precision is None else _part(self.low_precision, *x.shape).copy_(x)).flatten(0, 1)

    def _special_in(self, tile: _Tile) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return special keys and special queries of the tile, each as (examples, tokens).

        Examples and tokens of queries are numbered from the tile's first, tokens of keys from the row's first.
        """
        examples, tokens, bounds = self.special_tokens
        token_range = slice(bounds[tile.examples.start], bounds[tile.examples.stop])
        examples = examples[token_range] - tile.examples.start
        tokens = tokens[token_range]
        if tile.queries == slice(0, self.n):
            return (examples, tokens), (examples, tokens)
        is_in_tile = (tokens >= tile.queries.start) & (tokens < tile.queries.stop)
        return (examples, tokens), (examples[is_in_tile], tokens[is_in_tile] - tile.queries.start)

    def weights(self, tile: _Tile, shared: Tensor | None) -> Tensor:
        """Compute the attention weights (examples, heads, queries, n); a weight that dropout removes is negative.

        shared: the bias of the tile's group, or None. With one example a bias by distance may be overwritten by the
        weights, as the group has no other tile.
        """
        base = self.base[tile].to(self.dtype) if self.base is not None and self.by_example else shared
        special_values = self.special_values
        if special_values is not None and (self.shares_special or not len(self.special_tokens[0])):
            special_values = None
        is_simple = self.low_precision is None and self.is_ahead is None
        if base is not None and special_values is None and is_simple:
            return self._softmax(self._scores_on_base(tile, base), tile)
        scores = self._unscaled_scores(tile)
        if special_values is None:
            self._scale_and_add(scores, base)
        else:
            self._add_with_special_values(scores, base, special_values, tile)
        return self._softmax(scores, tile)

    def _scores_on_base(self, tile: _Tile, base: Tensor) -> Tensor:
        """Compute the scores (examples, heads, queries, n) by adding the products to a copy of the base.

        With one example and a bias by distance they take the memory of the base, which was made for this tile alone; a
        base of pairs may be the caller's own.
        """
        q = tile.of_queries(self.q)
        k = tile.of_keys(self.k)
        heads = tile.heads.stop - tile.heads.start
        if self.b == 1 and self.by_distance:
            scores = base[None]
        else:
            scores = _part(self.scores, len(q) // heads, heads, q.shape[1], self.n).copy_(base)
        scores.flatten(0, 1).baddbmm_(q, k.transpose(1, 2), alpha=self.scale)
        return scores

    def _unscaled_scores(self, tile: _Tile) -> Tensor:
        """Compute the products (examples, heads, queries, n) without scale and bias; keys ahead have their own."""
        heads = tile.heads.stop - tile.heads.start
        scores = self.product(tile.of_queries(self.q), tile.of_keys(self.k), self.scores).unflatten(0, (-1, heads))
        if self.ahead_q is not None and self.ahead_k is not None and self.is_ahead is not None:
            products = self.product(tile.of_queries(self.ahead_q), tile.of_keys(self.ahead_k), self.ahead_scores)
            torch.where(tile.of_mask(self.is_ahead), products.view(scores.shape), scores, out=scores)
        return scores

    def _scale_and_add(self, scores: Tensor, base: Tensor | None) -> None:
        """Scale the scores in their memory, and add the base where there is one."""
        if base is None:
            scores *= self.scale
        else:
            torch.add(base, scores, alpha=self.scale, out=scores)

    def _add_with_special_values(
        self, scores: Tensor, base: Tensor | None, special_values: Tensor, tile: _Tile
    ) -> None:
        """Scale the scores in their memory, and add the base or, at pairs with a special token, the special value."""
        special_values = special_values[:, :, tile.heads].to(self.dtype)
        (examples, keys), (query_examples, queries) = self._special_in(tile)
        kinds = self.kinds_of_examples[tile.examples]
        key_values = special_values[0, kinds[examples, keys]][..., None]  # (m, heads, 1)
        columns = torch.add(key_values, scores[examples, :, :, keys], alpha=self.scale)  # (m, heads, queries)
        query_kinds = kinds[:, tile.queries][query_examples, queries]
        query_values = special_values[query_kinds[:, None], kinds[query_examples]].transpose(1, 2)  # (m, heads, n)
        rows = torch.add(query_values, scores[query_examples, :, queries], alpha=self.scale)
        self._scale_and_add(scores, base)
        scores[examples, :, :, keys] = columns
        scores[query_examples, :, queries] = rows

    def _softmax(self, scores: Tensor, tile: _Tile) -> Tensor:
        """Compute the weights from scores, in their memory."""
        if self.allowed is not None:  # adding the least number is faster than filling a mask in
            scores += (~tile.of_mask(self.allowed)).to(self.dtype).mul_(torch.finfo(self.dtype).min)
        torch.softmax(scores, dim=-1, out=scores)
        if self.dropped_levels:
            bits = self.bits[: -(-scores.numel() // 4)].random_(-(2**63), None, generator=self.generator)
            levels = _part(bits.view(torch.int16), *scores.shape)
            mask = torch.ge(levels, self.dropped_levels - LEVELS // 2, out=_part(self.mask_buffer, *scores.shape))
            scores.copysign_(mask.sub_(0.5))
        return scores

    def apply_dropout(self, signed: Tensor, scratch: Tensor) -> Tensor:
        """Return the weights after dropout without the factor 1 / `kept_share`, in the type of q.

        `scratch` is overwritten.
        """
        if self.dropped_levels:
            signed = torch.clamp(signed, min=0, out=_part(scratch, *signed.shape))
        return self.to_low_precision(signed)

    def to_high_precision(self, x: Tensor) -> Tensor:
        """Return x (examples, heads, queries, n) in at least float32."""
        if self.low_precision is None:
            return x
        return _part(self.scores, *x.shape).copy_(x)

    def pop_special_gradient(self, d_scores: Tensor, tile: _Tile) -> Tensor:
        """Return the gradient (kinds, kinds, heads) of the special values; set their pairs to zero in `d_scores`."""
        assert self.special_values is not None
        (examples, keys), (query_examples, queries) = self._special_in(tile)
        kinds = self.kinds_of_examples[tile.examples]
        gradient = d_scores.new_zeros(*self.special_values.shape[:2], d_scores.shape[1])
        rows = d_scores[query_examples, :, queries]  # (m, heads, n)
        columns = d_scores[examples, :, :, keys]  # (m, heads, queries)
        query_kinds = kinds[:, tile.queries][query_examples, queries]
        key_kinds = kinds[query_examples]
        for query in range(1, len(gradient)):
            rows_of_kind = rows[query_kinds == query]
            key_kinds_of_rows = key_kinds[query_kinds == query]
            for key in range(1, len(gradient)):
                gradient[query, key] = (rows_of_kind * (key_kinds_of_rows == key)[:, None]).sum((0, 2))
            gradient[query, 0] = rows_of_kind.sum((0, 2)) - gradient[query, 1:].sum(0)
        for key in range(1, len(gradient)):
            gradient[0, key] = columns[kinds[examples, keys] == key].sum((0, 2)) - gradient[1:, key].sum(0)
        d_scores[query_examples, :, queries] = 0
        d_scores[examples, :, :, keys] = 0
        return gradient


def _attend(q: Tensor, k: Tensor, v: Tensor, inputs: _WeightInputs, saved_weights: Tensor | None = None) -> Tensor:
    """Compute the outputs, and write the weights into `saved_weights` (b, h, n, n) if it is given."""
    q = q.contiguous()
    k = k.contiguous()
    v = v.to(q.dtype).contiguous()
    work = _TiledWeights(q, k, inputs)
    out = torch.empty_like(v)
    for group in work.groups():
        shared = work.shared_bias(group[0])
        for tile in group:
            signed = work.weights(tile, shared)
            if saved_weights is not None:
                saved_weights[tile] = signed
            if saved_weights is not None and not work.dropped_levels:
                p = tile.of_queries(saved_weights)
            else:
                p = work.apply_dropout(signed, work.scores)
            torch.bmm(p, tile.of_keys(v), out=tile.of_queries(out))
    return out.div_(work.kept_share) if work.dropped_levels else out


class _Gradients:
    """Gradients of a loss by queries, keys, values and biases, added up tile by tile."""

    def __init__(
        self, work: _TiledWeights, v: Tensor, saved_weights: Tensor | None, needs_base: bool, needs_special_values: bool
    ) -> None:
        self.work = work
        self.values = v
        self.saved_weights = saved_weights
        # Queries of several tiles add to the gradient of a key where a tile has only some queries of a head.
        self.has_several_tiles_per_key = work.n * work.n > SCORES_PER_TILE
        self.d_q = torch.empty_like(work.q)
        self.d_k = self._empty_key_gradient(work.k)
        self.d_v = self._empty_key_gradient(v)
        self.d_ahead_q = None if work.ahead_q is None else torch.empty_like(work.q)
        self.d_ahead_k = None if work.ahead_k is None else self._empty_key_gradient(work.k)
        self.d_base = self._zeros_like(work.base) if needs_base else None
        self.d_special_values = self._zeros_like(work.special_values) if needs_special_values else None
        # Queries that may look nowhere: their weights are uniform for any scores.
        blind_queries = None if work.allowed is None else ~work.allowed.any(-1, keepdim=True)
        self.blind_queries = blind_queries if blind_queries is not None and bool(blind_queries.any()) else None
        # Of one tile: weights after dropout until `d_v` has them, then the gradient of the weights, then of the scores.
        self.scratch = torch.empty_like(work.scores)
        by_distance = self.d_base is not None and work.by_distance
        self.skewed = work.scores.new_empty(2 * work.scores.numel()) if by_distance else None

    def _empty_key_gradient(self, x: Tensor) -> Tensor:
        """Allocate the gradient of keys or values x (b, h, n, d): zeros where several tiles add to it."""
        return torch.zeros_like(x, dtype=self.work.dtype) if self.has_several_tiles_per_key else torch.empty_like(x)

    def _zeros_like(self, x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.zeros_like(x, dtype=self.work.dtype)

    def add_group(self, group: list[_Tile], d_out: Tensor) -> None:
        """Add the gradients from the tiles of one group of `_TiledWeights.groups`; d_out: gradient of the outputs."""
        work = self.work
        shared_bias = work.shared_bias(group[0]) if self.saved_weights is None else None
        # Gradient of the bias that the group shares, by distance and by pair.
        d_by_distance = None
        d_shared = None
        if self.skewed is not None:
            d_by_distance, d_shared = work.skewed_views(self.skewed, group[0])
            d_by_distance.zero_()
        elif self.d_base is not None and not work.by_example:
            d_shared = self.d_base[0, group[0].heads, group[0].queries]
        for tile in group:
            d_scores = self._back_to_scores(tile, d_out, shared_bias)
            self._add_to_queries_and_keys(tile, d_scores)
            self._add_to_biases(tile, d_scores, d_shared)
        if self.d_base is not None and d_by_distance is not None:
            self.d_base[group[0].heads, work.distance_columns(group[0])] += d_by_distance.sum(1)

    def _back_to_scores(self, tile: _Tile, d_out: Tensor, shared_bias: Tensor | None) -> Tensor:
        """Add to the gradient of the values, and return the scores' (examples, heads, queries, n) in `scratch`."""
        work = self.work
        d_o = tile.of_queries(d_out)
        if self.saved_weights is None:
            p = work.weights(tile, shared_bias)
        else:
            p = work.to_high_precision(self.saved_weights[tile])
        if self.saved_weights is not None and not work.dropped_levels:
            weights_used = tile.of_queries(self.saved_weights)
        else:
            weights_used = work.apply_dropout(p, self.scratch)
        self._add_product(tile.of_keys(self.d_v), weights_used, d_o)
        d_p = work.product(d_o, tile.of_keys(self.values), self.scratch).view(p.shape)
        if work.dropped_levels:
            d_p *= torch.ge(p, 0, out=_part(work.mask_buffer, *p.shape))
            p = torch.abs(p, out=_part(work.scores, *p.shape))
        d_scores: Tensor = torch.ops.aten._softmax_backward_data.out(d_p, p, -1, work.dtype, grad_input=d_p)
        if self.blind_queries is not None:
            d_scores *= ~tile.of_mask(self.blind_queries)
        return d_scores

    def _add_to_queries_and_keys(self, tile: _Tile, d_scores: Tensor) -> None:
        """Add to the gradients of queries and keys, without `scale`: keys ahead have their own."""
        work = self.work
        if self.d_ahead_q is not None and self.d_ahead_k is not None:
            assert work.ahead_q is not None and work.ahead_k is not None and work.is_ahead is not None
            is_ahead = tile.of_mask(work.is_ahead)
            d_ahead = torch.mul(d_scores, is_ahead, out=_part(work.ahead_scores, *d_scores.shape))
            self._add_query_key_gradients(tile, d_ahead, (work.ahead_q, work.ahead_k), (self.d_ahead_q, self.d_ahead_k))
            d_scores = torch.mul(d_scores, ~is_ahead, out=_part(work.ahead_scores, *d_scores.shape))
        self._add_query_key_gradients(tile, d_scores, (work.q, work.k), (self.d_q, self.d_k))

    def _add_query_key_gradients(
        self, tile: _Tile, d_scores: Tensor, inputs: tuple[Tensor, Tensor], gradients: tuple[Tensor, Tensor]
    ) -> None:
        """Add to the gradients of queries and keys whose product has the gradient `d_scores`."""
        q, k = inputs
        d_q, d_k = gradients
        low_precision = self.work.to_low_precision(d_scores)
        torch.bmm(low_precision, tile.of_keys(k), out=tile.of_queries(d_q))
        self._add_product(tile.of_keys(d_k), low_precision, tile.of_queries(q))

    def _add_product(self, out: Tensor, x: Tensor, y: Tensor) -> None:
        """Compute out = xᵀ y, or out += xᵀ y where several tiles add to the same keys."""
        if self.has_several_tiles_per_key:
            out += torch.bmm(x.transpose(1, 2), y)
        else:
            torch.bmm(x.transpose(1, 2), y, out=out)

    def _add_to_biases(self, tile: _Tile, d_scores: Tensor, d_shared: Tensor | None) -> None:
        """Add to the gradients of the special values and of the base, and overwrite `d_scores`.

        d_shared: (heads, queries, n) gradient of the bias that all examples share; None: each has its own, or none has.
        """
        if self.d_base is None and self.d_special_values is None:
            return
        if len(self.work.special_tokens[0]):
            d_special = self.work.pop_special_gradient(d_scores, tile)
            if self.d_special_values is not None:
                self.d_special_values[:, :, tile.heads] += d_special
        if d_shared is not None:
            d_shared += d_scores.sum(0) if len(d_scores) > 1 else d_scores[0]
        elif self.d_base is not None:
            self.d_base[tile] = d_scores

    def gradients_of_inputs(self) -> tuple[Tensor | None, ...]:
        """Return the gradients of q, k, v, and of each of the inputs of the weights; may be called once."""
        scale = self.work.scale
        key_type = self.work.k.dtype
        of_inputs: dict[str, Tensor | None] = dict.fromkeys(_WeightInputs._fields)
        of_inputs |= {"base": self.d_base, "special_values": self.d_special_values}
        if self.d_ahead_q is not None and self.d_ahead_k is not None:
            of_inputs |= {"ahead_q": self.d_ahead_q.mul_(scale), "ahead_k": self.d_ahead_k.mul_(scale).to(key_type)}
        d_v = self.d_v.to(self.values.dtype)
        return self.d_q.mul_(scale), self.d_k.mul_(scale).to(key_type), d_v, *of_inputs.values()


class _TiledAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *flat_inputs: Any) -> Tensor:
        inputs = _WeightInputs(*flat_inputs)  # torch gives gradients of flat arguments only
        q = q.contiguous()
        k = k.contiguous()
        v = v.to(q.dtype).contiguous()
        saved_weights = q.new_empty(*q.shape[:3], q.shape[2]) if q.shape[2] <= KEEP_WEIGHTS_UP_TO else None
        ctx.numbers = inputs.scale, inputs.dropout, inputs.seed
        ctx.save_for_backward(q, k, v, *inputs.tensors(), saved_weights)
        return _attend(q, k, v, inputs, saved_weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, *tensors, saved_weights = ctx.saved_tensors
        work = _TiledWeights(q, k, _WeightInputs(*tensors, *ctx.numbers))
        d_out = gradients[0].contiguous()
        d_out = d_out / work.kept_share if work.dropped_levels else d_out
        is_needed = dict(zip(("q", "k", "v", *_WeightInputs._fields), ctx.needs_input_grad, strict=True))
        input_gradients = _Gradients(work, v, saved_weights, is_needed["base"], is_needed["special_values"])
        for group in work.groups():
            input_gradients.add_group(group, d_out)
        return input_gradients.gradients_of_inputs()
