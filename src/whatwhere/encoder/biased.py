"""Attention with additive biases on CPU, forward and backward in pieces that stay in the cache.

torch's flash kernel for CPUs multiplies bfloat16 at the speed of float32, and leaves the fast path altogether for dropout or for a
bias that needs a gradient. Here the products are batched matrix products, the softmax runs in place in at least float32, and the
backward pass forms the weights again: no (b, h, n, n) tensor is kept, and a bias that all examples share is never copied per example.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PIECE = 1 << 19  # scores per piece: 2 MiB of float32


def biased_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    base: Tensor | None,
    values: Tensor | None,
    special: Tensor | None,
    allowed: Tensor | None,
    scale: float,
    dropout: float,
) -> Tensor:
    """dropout(softmax(scale · q·k + bias)) v: (b, h, n, d_v), in the type of q, on CPU.

    Args:
        q, k: (b, h, n, d_qk). v: (b, h, n, d_v), any width.
        base: the bias (b or 1, h, n, n), or (h, 2n - 1) where it depends on the distance key minus query alone, distance -(n - 1)
            first, or None.
        values: (3, h), what pairs of which both, only the query, only the key is special get instead of `base`, or None.
        special: (b, n), True at special tokens; needed with `values`.
        allowed: (b, 1, 1 or n, n), True where a query may look at a key, or None. A query that may look nowhere looks everywhere
            alike, as in the eager computation.
        dropout: share of the weights that is set to zero; drawn from a seed that torch's default generator gives.
    """
    return _BiasedAttention.apply(q, k, v, base, values, special, allowed, scale, dropout)  # type: ignore[no-any-return]


class _Piece(NamedTuple):
    examples: slice
    heads: slice
    rows: slice  # queries

    def of(self, x: Tensor, rows: bool) -> Tensor:
        """The piece of x (b, h, n, d) as (examples · heads, queries or all tokens, d)."""
        return x[self.examples, self.heads, self.rows if rows else slice(None)].flatten(0, 1)


def _pieces(b: int, h: int, n: int) -> Iterator[tuple[slice, slice, list[slice]]]:
    """Heads, queries and the groups of examples to go through with them: whole examples, else heads, else queries of a head."""
    rows = min(n, max(1, PIECE // n))
    heads = min(h, max(1, PIECE // (n * n)))
    examples = min(b, max(1, PIECE // (h * n * n)))
    for head in range(0, h, heads):
        for row in range(0, n, rows):
            groups = [slice(i, min(i + examples, b)) for i in range(0, b, examples)]
            yield slice(head, min(head + heads, h)), slice(row, min(row + rows, n)), groups


class _Weights:
    """Forms attention weights piece by piece in memory that is allocated once."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        base: Tensor | None,
        values: Tensor | None,
        special: Tensor | None,
        allowed: Tensor | None,
        scale: float,
        dropout: float,
        seed: int,
    ) -> None:
        self.q, self.k, self.base, self.values, self.allowed = q, k, base, values, allowed
        self.scale, self.keep = scale, 1 - dropout
        self.generator = torch.Generator().manual_seed(seed) if dropout else None
        b, h, n, _ = q.shape
        self.n, self.wide = n, torch.promote_types(q.dtype, torch.float32)
        self.size = max(PIECE, n) if b * h * n * n > PIECE else b * h * n * n
        self.narrow = self.memory(q.dtype) if q.dtype != self.wide else None
        self.scores = self.memory(self.wide)
        self.noise = self.memory(self.wide) if dropout else None
        self.special = q.new_zeros(b, n, dtype=torch.bool) if values is None or special is None else special
        self.examples, self.tokens = self.special.nonzero(as_tuple=True)
        self.blind = None  # (b, 1, 1 or n, 1), queries that may look nowhere
        if allowed is not None:
            blind = ~allowed.any(-1, keepdim=True)
            self.blind = blind if bool(blind.any()) else None

    def memory(self, dtype: torch.dtype) -> Tensor:
        return torch.empty(self.size, dtype=dtype)

    def product(self, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        """x yᵀ (examples · heads, n_q, n_k) in at least float32, in the memory `out`."""
        shape = (x.shape[0], x.shape[1], y.shape[1])
        out = out[: shape[0] * shape[1] * shape[2]].view(shape)
        if self.narrow is None:
            return torch.bmm(x, y.transpose(1, 2), out=out)
        return out.copy_(torch.bmm(x, y.transpose(1, 2), out=self.narrow[: out.numel()].view(shape)))

    def narrowed(self, x: Tensor) -> Tensor:
        """x in the type of q."""
        return x if self.narrow is None else self.narrow[: x.numel()].view(x.shape).copy_(x)

    def shared(self, heads: slice, rows: slice) -> Tensor | None:
        """The bias (1, heads, queries, n) of a piece, if it is the same for all examples."""
        if self.base is None or (self.base.dim() == 4 and self.base.shape[0] > 1):
            return None
        if self.base.dim() == 4:
            return self.base[:, heads, rows].to(self.wide)
        window = self.base[heads, self.n - rows.stop : 2 * self.n - 1 - rows.start]  # row i holds distance j - i: last row first
        return window.unfold(1, self.n, 1).flip(1)[None].to(self.wide)

    def of_special(self, piece: _Piece) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Special keys of the piece and special queries of the piece, as (examples, tokens) counted from its start."""
        here = (self.examples >= piece.examples.start) & (self.examples < piece.examples.stop)
        examples, tokens = self.examples[here] - piece.examples.start, self.tokens[here]
        here = (tokens >= piece.rows.start) & (tokens < piece.rows.stop)
        return (examples, tokens), (examples[here], tokens[here] - piece.rows.start)

    def weights(self, piece: _Piece, shared: Tensor | None) -> Tensor:
        """The attention weights (examples, heads, queries, n) before dropout."""
        count, heads = piece.examples.stop - piece.examples.start, piece.heads.stop - piece.heads.start
        scores = self.product(piece.of(self.q, rows=True), piece.of(self.k, rows=False), self.scores).mul_(self.scale)
        scores = scores.unflatten(0, (count, heads))
        base = shared
        if base is None and self.base is not None:
            base = self.base[piece.examples, piece.heads, piece.rows].to(self.wide)
        if self.values is None or not len(self.examples):
            if base is not None:
                scores += base
        else:
            both, as_query, as_key = self.values[:, piece.heads].to(self.wide)
            (examples, keys), (queries_of, queries) = self.of_special(piece)
            columns = scores[examples, :, :, keys] + as_key[:, None]  # (m, heads, queries)
            other = self.special[piece.examples][queries_of][:, None]  # (m, 1, n)
            lines = scores[queries_of, :, queries] + torch.where(other, both[:, None], as_query[:, None])  # (m, heads, n)
            if base is not None:
                scores += base
            scores[examples, :, :, keys] = columns
            scores[queries_of, :, queries] = lines
        if self.allowed is not None:
            allowed = self.allowed[piece.examples, :, piece.rows if self.allowed.shape[2] > 1 else slice(None)]
            scores += (~allowed).to(self.wide).mul_(torch.finfo(self.wide).min)  # absorbs the score
        return torch.softmax(scores, dim=-1, out=scores)

    def drawn(self, weights: Tensor) -> Tensor | None:
        """The next factors of dropout, 0 or 1 / (1 - dropout), in the shape of `weights`; the same sequence for the same seed."""
        if self.noise is None:
            return None
        return self.noise[: weights.numel()].view(weights.shape).bernoulli_(self.keep, generator=self.generator).div_(self.keep)

    def special_gradient(self, d_scores: Tensor, piece: _Piece) -> Tensor:
        """Gradient (3, heads) of the special values; their pairs are set to zero in `d_scores`."""
        (examples, keys), (queries_of, queries) = self.of_special(piece)
        lines = d_scores[queries_of, :, queries]  # (m, heads, n): all pairs with a special query
        both = (lines * self.special[piece.examples][queries_of][:, None]).sum((0, 2))
        as_query = lines.sum((0, 2)) - both
        as_key = d_scores[examples, :, :, keys].sum((0, 2)) - both
        d_scores[queries_of, :, queries] = 0
        d_scores[examples, :, :, keys] = 0
        return torch.stack([both, as_query, as_key])


def _diagonal_sums(x: Tensor) -> Tensor:
    """Sums (h, r + n - 1) of x (h, r, n) over j - i, from -(r - 1) to n - 1."""
    h, r, n = x.shape
    width = r + n - 1  # rows stored one column short of this slide one to the right when read at this width
    skewed = x.new_zeros(h, r * width + r)
    skewed[:, r - 1 :].as_strided((h, r, n), (skewed.stride(0), max(width - 1, 1), 1)).copy_(x)
    return skewed[:, : r * width].view(h, r, width).sum(1)


class _BiasedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        base: Tensor | None,
        values: Tensor | None,
        special: Tensor | None,
        allowed: Tensor | None,
        scale: float,
        dropout: float,
    ) -> Tensor:
        q, k, v = q.contiguous(), k.contiguous(), v.to(q.dtype).contiguous()
        b, h, n, _ = q.shape
        seed = int(torch.randint(1 << 62, ())) if dropout else 0
        work = _Weights(q, k, base, values, special, allowed, scale, dropout, seed)
        out = torch.empty_like(v)
        for heads, rows, groups in _pieces(b, h, n):
            shared = work.shared(heads, rows)
            for piece in (_Piece(group, heads, rows) for group in groups):
                p = work.weights(piece, shared)
                if (factors := work.drawn(p)) is not None:
                    p *= factors
                torch.bmm(work.narrowed(p).flatten(0, 1), piece.of(v, rows=False), out=piece.of(out, rows=True))
        ctx.save_for_backward(q, k, v, base, values, special, allowed)
        ctx.rest = scale, dropout, seed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, base, values, special, allowed = ctx.saved_tensors
        work = _Weights(q, k, base, values, special, allowed, *ctx.rest)
        d_out = gradients[0].contiguous()
        b, h, n, _ = q.shape
        d_q = torch.empty_like(q)
        split = n * n > PIECE  # then the queries of several pieces add to the gradient of a key
        d_k, d_v = (torch.zeros_like(x, dtype=work.wide) if split else torch.empty_like(x) for x in (k, v))
        d_base = torch.zeros_like(base, dtype=work.wide) if base is not None and ctx.needs_input_grad[3] else None
        d_values = torch.zeros_like(values, dtype=work.wide) if values is not None and ctx.needs_input_grad[4] else None
        memory = work.memory(work.wide)
        for heads, rows, groups in _pieces(b, h, n):
            shared = work.shared(heads, rows)
            total = q.new_zeros(heads.stop - heads.start, rows.stop - rows.start, n, dtype=work.wide) if d_base is not None else None
            for piece in (_Piece(group, heads, rows) for group in groups):
                d_out_piece = piece.of(d_out, rows=True)
                p = work.weights(piece, shared)
                factors = work.drawn(p)
                dropped = work.narrowed(p if factors is None else torch.mul(p, factors, out=memory[: p.numel()].view(p.shape)))
                _store(piece.of(d_v, rows=False), dropped.flatten(0, 1), d_out_piece, split)
                d_p = work.product(d_out_piece, piece.of(v, rows=False), memory).view(p.shape)
                if factors is not None:
                    d_p *= factors
                d_scores = torch.ops.aten._softmax_backward_data.out(d_p, p, -1, work.wide, grad_input=d_p)
                if work.blind is not None:  # uniform weights whatever the scores
                    d_scores *= ~work.blind[piece.examples, :, piece.rows if work.blind.shape[2] > 1 else slice(None)]
                narrow = work.narrowed(d_scores).flatten(0, 1)
                torch.bmm(narrow, piece.of(k, rows=False), out=piece.of(d_q, rows=True))
                _store(piece.of(d_k, rows=False), narrow, piece.of(q, rows=True), split)
                if values is not None and len(work.examples) and (d_values is not None or d_base is not None):
                    of_values = work.special_gradient(d_scores, piece)
                    if d_values is not None:
                        d_values[:, heads] += of_values
                if d_base is not None and total is not None:
                    if shared is None:
                        d_base[piece.examples, heads, rows] = d_scores
                    else:
                        total += d_scores.sum(0)
            if d_base is not None and total is not None and shared is not None:
                if d_base.dim() == 4:
                    d_base[0, heads, rows] = total
                else:
                    d_base[heads, n - rows.stop : 2 * n - 1 - rows.start] += _diagonal_sums(total)
        d_base = None if d_base is None else d_base.to(base.dtype)
        d_values = None if d_values is None else d_values.to(values.dtype)
        return d_q.mul_(ctx.rest[0]), d_k.mul_(ctx.rest[0]).to(k.dtype), d_v.to(v.dtype), d_base, d_values, None, None, None, None


def _store(out: Tensor, x: Tensor, y: Tensor, add: bool) -> None:
    """out = xᵀ y, or out += xᵀ y."""
    if add:
        out += torch.bmm(x.transpose(1, 2), y)
    else:
        torch.bmm(x.transpose(1, 2), y, out=out)
