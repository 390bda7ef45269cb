"""Fused attention with a learned bias on CPU: torch's flash kernel forward, scores recomputed in small pieces backward.

scaled_dot_product_attention leaves its fast kernel as soon as the bias needs a gradient. Here the bias enters the kernel as a
constant, and the backward pass computes the gradients of q, k, v and of the bias from the kernel's logarithmic sums, a few
examples at a time, so that scores stay in the cache and no (b, h, n, n) tensor is kept for the backward pass.
"""

from typing import Any

import torch
from torch import Tensor

PIECE = 1 << 19  # scores per piece of the backward pass: 2 MiB of float32


def _bias_of(base: Tensor, values: Tensor | None, special: Tensor, allowed: Tensor | None, rows: slice, n: int) -> Tensor:
    """The additive bias (rows, h, n, n) of some examples, special rows and columns and the mask filled in."""
    examples, tokens = special[rows].nonzero(as_tuple=True)
    count = len(special[rows])
    part = base if base.shape[0] == 1 else base[rows]
    if (values is None or not len(examples)) and allowed is None:
        return part
    bias = part.expand(count, -1, n, n).clone()
    if values is not None and len(examples):
        both, as_query, as_key = values
        bias[examples, :, tokens, :] = as_query[:, None]
        bias[examples, :, :, tokens] = as_key[:, None]
        first, second = (examples[:, None] == examples[None, :]).nonzero(as_tuple=True)  # pairs within an example
        bias[examples[first], :, tokens[first], tokens[second]] = both
    if allowed is not None:
        bias.masked_fill_(~allowed[rows], torch.finfo(bias.dtype).min)
    return bias


class BiasedAttention(torch.autograd.Function):
    """softmax(scale · q·k + bias) v for q, k, v (b, h, n, d) on CPU; `Bias` comes as base, values and special."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        base: Tensor,
        values: Tensor | None,
        special: Tensor,
        allowed: Tensor | None,
        scale: float,
    ) -> Tensor:
        b, _, n, _ = q.shape
        bias = _bias_of(base, values, special, allowed, slice(0, b), n)  # in its own type, at least float32
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, attn_mask=bias, scale=scale)
        ctx.save_for_backward(q, k, v, base, values, special, allowed, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, base, values, special, allowed, out, lse = ctx.saved_tensors
        (d_out,) = gradients
        b, h, n, _ = q.shape
        wide = torch.promote_types(q.dtype, torch.float32)
        delta = (d_out * out).sum(-1, dtype=wide)[..., None]  # (b, h, n, 1)
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        d_base = torch.zeros(base.shape, dtype=wide)
        d_values = None if values is None else torch.zeros(values.shape, dtype=wide)
        step = max(1, PIECE // (h * n * n))
        for start in range(0, b, step):
            rows = slice(start, min(start + step, b))
            bias = _bias_of(base, values, special, allowed, rows, n)
            scores = (q[rows] @ k[rows].transpose(-1, -2)).to(wide).mul_(ctx.scale).add_(bias)
            p = scores.sub_(lse[rows].to(wide)[..., None]).exp_()  # (rows, h, n, n)
            narrow = p.to(q.dtype)
            torch.matmul(narrow.transpose(-1, -2), d_out[rows], out=d_v[rows])
            d_scores = p.mul_((d_out[rows] @ v[rows].transpose(-1, -2)).to(wide).sub_(delta[rows]))
            narrow = d_scores.to(q.dtype)
            torch.matmul(narrow, k[rows], out=d_q[rows])
            torch.matmul(narrow.transpose(-1, -2), q[rows], out=d_k[rows])
            if d_values is not None and bool(special[rows].any()):
                d_values += _take_special(d_scores, special[rows])
            if base.shape[0] == 1:
                d_base += d_scores.sum(0, keepdim=True)
            else:
                d_base[rows] = d_scores
        d_values = None if values is None or d_values is None else d_values.to(values.dtype)
        return d_q.mul_(ctx.scale), d_k.mul_(ctx.scale), d_v, d_base.to(base.dtype), d_values, None, None, None


def _take_special(d_scores: Tensor, special: Tensor) -> Tensor:
    """Gradient (3, h) of the special values; their rows and columns of `d_scores` (b, h, n, n) are set to zero."""
    mask = special.to(d_scores.dtype)
    examples, tokens = special.nonzero(as_tuple=True)
    queries = d_scores[examples, :, tokens, :]  # (m, h, n): all pairs with a special query
    both = torch.einsum("mhj,mj->h", queries, mask[examples])
    as_query = queries.sum((0, 2)) - both
    as_key = d_scores[examples, :, :, tokens].sum((0, 2)) - both
    d_scores[examples, :, tokens, :] = 0
    d_scores[examples, :, :, tokens] = 0
    return torch.stack([both, as_query, as_key])
