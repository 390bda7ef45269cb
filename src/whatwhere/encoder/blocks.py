"""The NeoBERT block over streams: pre-RMSNorm per stream, attention, SwiGLU on the concatenation, no biases (DSTG 3.1-3.2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attention, Layout
from .config import EncoderConfig

Streams = tuple[Tensor, ...]


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) · weight, computed in at least float32 (Zhang and Sennrich 2019)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return F.rms_norm(wide, self.weight.shape, self.weight.to(wide.dtype), self.eps).to(x.dtype)


class StreamNorm(nn.Module):
    """A norm for each stream, so that neither depends on the other (DSTG section 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm(d, config.norm_eps) for d in config.stream_sizes)

    def forward(self, streams: Streams) -> Streams:
        return tuple(norm(x) for norm, x in zip(self.norms, streams, strict=True))


class SwiGLU(nn.Module):
    """W_down(swish(W_gate x) · W_up x): gate and up see all streams, each stream has its own down (DSTG eq. 3)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        assert config.intermediate_size is not None
        self.inner = [config.intermediate_size * d // config.hidden_size for d in config.stream_sizes]
        self.gate_up = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down = nn.ModuleList(nn.Linear(i, d, bias=False) for i, d in zip(self.inner, config.stream_sizes, strict=True))

    def forward(self, streams: Streams) -> Streams:
        gate, up = self.gate_up(torch.cat(streams, dim=-1)).chunk(2, dim=-1)
        inner = (F.silu(gate) * up).split(self.inner, dim=-1)
        return tuple(down(h) for down, h in zip(self.down, inner, strict=True))


class NeoBertBlock(nn.Module):
    """streams + attention(norm(streams)), then streams + feed-forward(norm(streams))."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention_norm, self.attention = StreamNorm(config), Attention(config)
        self.feed_forward_norm, self.feed_forward = StreamNorm(config), SwiGLU(config)
        self.normalized_residual = config.residual == "normalized"
        self.dropout = nn.Dropout(config.dropout)

    def _add(self, streams: Streams, normed: Streams, update: Streams) -> Streams:
        base = normed if self.normalized_residual else streams
        return tuple(x + self.dropout(y) for x, y in zip(base, update, strict=True))

    def forward(self, streams: Streams, layout: Layout, backend: str) -> tuple[Streams, Tensor | None]:
        """New streams, and the attention weights (b, h, n, n) where the backend has them."""
        normed = self.attention_norm(streams)
        update, attn = self.attention(normed, layout, backend)
        streams = self._add(streams, normed, update)
        normed = self.feed_forward_norm(streams)
        return self._add(streams, normed, self.feed_forward(normed)), attn
