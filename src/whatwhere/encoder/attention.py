"""One attention for every scheme: scores are a declared sum of terms, products of two projections or additive biases.

`eager` is the specification; `fused` computes the same in one call on the concatenated projections. DSTG eq. 2: the indicator
[i, j not in S] factorises, so q_pos and k_pos are set to zero at special tokens and [q_pos; q_sem]·[k_pos; k_sem] is the sum of
both products.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .biased import BiasedAttention
from .biases import Bias, RelativeBias
from .config import EncoderConfig
from .rotary import rotate


class Product(NamedTuple):
    """A term scale · q·k with q, k (b, h, n, d_head)."""

    name: str
    q: Tensor
    k: Tensor


@dataclass(frozen=True)
class Layout:
    """What all layers share in one forward pass.

    special: (b, n), True at tokens of S. distance: key position minus query position, (b, n, n), or (2n - 1,) where positions are
    consecutive; None if unused.
    allowed: (b, 1, 1 or n, n), True where a query may look at a key, or None for everywhere.
    rotation: cos and sin (b, 1, n, d_head), or None.
    """

    special: Tensor
    distance: Tensor | None
    allowed: Tensor | None
    rotation: tuple[Tensor, Tensor] | None


def term_scores(products: list[Product], biases: list[Bias], scale: float) -> dict[str, Tensor]:
    """The named terms of the scores, each (b or 1, h, n, n), before the padding mask; their sum is what softmax sees."""
    terms = {p.name: scale * (p.q @ p.k.transpose(-1, -2)) for p in products}
    return terms | {b.name: b.dense() for b in biases}


def eager(
    products: list[Product], biases: list[Bias], values: Tensor, scale: float, allowed: Tensor | None, dropout: float
) -> tuple[Tensor, Tensor]:
    """The specification: outputs (b, h, n, d_v) and attention weights (b, h, n, n), softmax in at least float32."""
    scores = torch.stack(torch.broadcast_tensors(*term_scores(products, biases, scale).values())).sum(0)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if allowed is not None:
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    attn = scores.softmax(dim=-1).to(values.dtype)
    return F.dropout(attn, dropout) @ values, attn


def fused(products: list[Product], biases: list[Bias], values: Tensor, scale: float, allowed: Tensor | None, dropout: float) -> Tensor:
    """The same outputs in one call: torch's scaled_dot_product_attention, or ours where a learned bias would make it slow."""
    q = torch.cat([p.q for p in products], dim=-1)
    k = torch.cat([p.k for p in products], dim=-1)
    width = values.shape[-1]
    learned = len(biases) == 1 and torch.is_grad_enabled() and not dropout and q.device.type == "cpu"
    if width < q.shape[-1]:
        values = F.pad(values, (0, q.shape[-1] - width))  # equal widths keep the fast kernel
    if learned:
        # Under autocast the projections are narrower than the table; the kernel wants one type.
        (bias,) = biases
        out = BiasedAttention.apply(q, k, values.to(q.dtype), bias.base, bias.values, bias.special, allowed, scale)
    else:
        mask = allowed
        if biases:
            mask = torch.stack(torch.broadcast_tensors(*(b.dense() for b in biases))).sum(0)
            mask = mask.to(torch.promote_types(q.dtype, torch.float32) if q.device.type == "cpu" else q.dtype)
            if allowed is not None:
                mask = mask.masked_fill(~allowed, torch.finfo(mask.dtype).min)
        out = F.scaled_dot_product_attention(q, k, values, attn_mask=mask, dropout_p=dropout, scale=scale)
    return out[..., :width]


BACKENDS = ("eager", "sdpa")


class Attention(nn.Module):
    """Multi-head attention over all streams: one set of weights from the sum of terms, applied to each stream's values.

    Queries and keys of every stream have width d_head = hidden_size / heads, values d_stream / heads (DSTG section 3.1).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads, self.d_head = config.num_attention_heads, config.d_head
        self.scale = self.d_head**-0.5
        self.dropout = config.dropout
        self.sizes = config.stream_sizes
        qk = self.heads * self.d_head
        self.qkv = nn.ModuleList(nn.Linear(d, 2 * qk + d, bias=False) for d in self.sizes)
        self.out = nn.ModuleList(nn.Linear(d, d, bias=False) for d in self.sizes)
        self.relative = RelativeBias(config) if config.relative == "t5" else None
        one = "mixed" if config.absolute != "none" else "semantic"
        self.names = ("absolute", "semantic") if len(self.sizes) == 2 else (one,)

    def terms(self, streams: tuple[Tensor, ...], layout: Layout) -> tuple[list[Product], list[Bias], Tensor]:
        """Products, biases and values (b, h, n, sum of d_stream / heads) of normalised `streams` (b, n, d_stream)."""
        products, values = [], []
        qk = self.heads * self.d_head
        for name, x, project, d in zip(self.names, streams, self.qkv, self.sizes, strict=True):
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in project(x).split([qk, qk, d], dim=-1))
            if layout.rotation is not None:
                q, k = rotate(q, *layout.rotation), rotate(k, *layout.rotation)
            if name == "absolute":
                regular = ~layout.special[:, None, :, None]  # zero rows give zero scores: the indicator of eq. 2
                q, k = q * regular, k * regular
            products.append(Product(name, q, k))
            values.append(v)
        biases = []
        if self.relative is not None:
            assert layout.distance is not None
            biases.append(self.relative(layout.distance, layout.special))
        return products, biases, torch.cat(values, dim=-1)

    def forward(self, streams: tuple[Tensor, ...], layout: Layout, backend: str) -> tuple[tuple[Tensor, ...], Tensor | None]:
        """Outputs per stream (b, n, d_stream), and the attention weights (b, h, n, n) if `backend` is eager."""
        products, biases, values = self.terms(streams, layout)
        dropout = self.dropout if self.training else 0.0
        attn = None
        if backend == "eager":
            mixed, attn = eager(products, biases, values, self.scale, layout.allowed, dropout)
        else:
            mixed = fused(products, biases, values, self.scale, layout.allowed, dropout)
        parts = mixed.split([d // self.heads for d in self.sizes], dim=-1)
        return tuple(out(part.transpose(1, 2).flatten(2)) for out, part in zip(self.out, parts, strict=True)), attn
