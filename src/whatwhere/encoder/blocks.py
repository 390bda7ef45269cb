"""The blocks over streams, NeoBERT's (pre-RMSNorm, SwiGLU; DSTG 3.1-3.2) and BERT's (post-LayerNorm, GELU, biases)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import Attention, Layout, Stacked
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
    """The block's norm, RMSNorm or LayerNorm, for each stream, so that neither depends on the other (DSTG 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        norm = RMSNorm if config.block == "neobert" else nn.LayerNorm
        self.norms = nn.ModuleList(norm(d, config.norm_eps) for d in config.stream_sizes)

    def forward(self, streams: Streams) -> Streams:
        return tuple(norm(x) for norm, x in zip(self.norms, streams, strict=True))


class FeedForward(nn.Module):
    """W_down(swish(W_gate x) · W_up x) in the NeoBERT block, W_down gelu(W_up x) in BERT's.

    Each stream has its own W_down. "shared": gate and up see all streams (DSTG eq. 3); "separate": their own (SPLIT).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        assert config.intermediate_size is not None
        self.gated, biased = config.block == "neobert", config.block == "bert"
        self.separate = config.stream_feed_forward == "separate"
        self.inner = [config.intermediate_size * d // config.hidden_size for d in config.stream_sizes]
        each = list(zip(config.stream_sizes, self.inner, strict=True))
        read = each if self.separate else [(config.hidden_size, config.intermediate_size)]
        self.up = nn.ModuleList(Stacked(d, (inner,) * (1 + self.gated), biased) for d, inner in read)
        self.down = nn.ModuleList(nn.Linear(inner, d, bias=biased) for d, inner in each)

    def _activate(self, x: Tensor, *up: Tensor) -> Tensor:
        return F.silu(x) * up[0] if self.gated else F.gelu(x)

    def forward(self, streams: Streams) -> Streams:
        if self.separate:
            inner: Streams = tuple(self._activate(*up(x)) for up, x in zip(self.up, streams, strict=True))
        else:
            inner = self._activate(*self.up[0](torch.cat(streams, dim=-1))).split(self.inner, dim=-1)
        return tuple(down(h) for down, h in zip(self.down, inner, strict=True))


class _Block(nn.Module):
    """What both blocks are made of: attention and feed-forward with a norm for each."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.normalized_residual = config.residual == "normalized"
        self.attention_norm, self.attention = StreamNorm(config), Attention(config)
        self.feed_forward_norm, self.feed_forward = StreamNorm(config), FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def _add(self, base: Streams, update: Streams) -> Streams:
        return tuple(x + self.dropout(y) for x, y in zip(base, update, strict=True))


class NeoBertBlock(_Block):
    """streams + attention(norm(streams)), then streams + feed-forward(norm(streams))."""

    def attention_input(self, streams: Streams) -> Streams:
        """What the attention reads."""
        return self.attention_norm(streams)

    def forward(self, streams: Streams, layout: Layout, backend: str) -> tuple[Streams, Tensor | None]:
        """New streams, and the attention weights (b, h, n, n) where the backend has them."""
        normed = self.attention_norm(streams)
        update, attn = self.attention(normed, layout, backend)
        streams = self._add(normed if self.normalized_residual else streams, update)
        normed = self.feed_forward_norm(streams)
        return self._add(normed if self.normalized_residual else streams, self.feed_forward(normed)), attn


class BertBlock(_Block):
    """norm(streams + attention(streams)), then norm(streams + feed-forward(streams)) (Devlin et al. 2019)."""

    def attention_input(self, streams: Streams) -> Streams:
        """What the attention reads."""
        return streams

    def forward(self, streams: Streams, layout: Layout, backend: str) -> tuple[Streams, Tensor | None]:
        """New streams, and the attention weights (b, h, n, n) where the backend has them."""
        update, attn = self.attention(streams, layout, backend)
        streams = self.attention_norm(self._add(streams, update))
        return self.feed_forward_norm(self._add(streams, self.feed_forward(streams))), attn


BLOCKS: dict[str, type[NeoBertBlock] | type[BertBlock]] = {"neobert": NeoBertBlock, "bert": BertBlock}
