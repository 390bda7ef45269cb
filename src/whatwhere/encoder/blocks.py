"""Blocks over streams: NeoBERT's (pre-RMSNorm, SwiGLU, no biases; DSTG 3.1-3.2) and BERT's (post-LayerNorm, GELU,
biases), with their norms and feed-forward layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import Attention, AttentionInputs, StackedLinear
from .config import EncoderConfig

Streams = tuple[Tensor, ...]


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last axis, in at least float32.

    It is x / sqrt(mean(x²) + eps) · weight (Zhang and Sennrich 2019).
    """

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Return x (..., width) normalised over its last axis, in the type of x."""
        if x.dtype.itemsize < 4:
            return F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps).to(x.dtype)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class StreamNorm(nn.Module):
    """Separate norm of each stream, RMSNorm or in BERT's block LayerNorm: no stream depends on another (DSTG 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        norm = RMSNorm if config.block == "neobert" else nn.LayerNorm
        self.norms = nn.ModuleList(norm(d, config.norm_eps) for d in config.stream_sizes)

    def forward(self, streams: Streams) -> Streams:
        """Normalise each stream (b, n, d_stream) by itself."""
        return tuple(norm(x) for norm, x in zip(self.norms, streams, strict=True))


class FeedForward(nn.Module):
    """Feed-forward layer: W_down(swish(W_gate x) · W_up x) in NeoBERT's block, W_down gelu(W_up x) in BERT's.

    Each stream has its own W_down. With stream_feed_forward=shared (DSTG eq. 3) W_gate and W_up read all streams, and
    each W_down reads a share of what they give; with "separate" each stream has its own three (SPLIT).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        assert config.intermediate_size is not None
        self.is_gated = config.block == "neobert"
        has_linear_bias = config.block == "bert"
        self.is_separate = config.stream_feed_forward == "separate"
        self.inner_widths = [config.intermediate_size * d // config.hidden_size for d in config.stream_sizes]
        widths = list(zip(config.stream_sizes, self.inner_widths, strict=True))
        up_widths = widths if self.is_separate else [(config.hidden_size, config.intermediate_size)]
        self.output_sizes = [(inner,) * (1 + self.is_gated) for _, inner in up_widths]
        up_sizes = zip([d for d, _ in up_widths], self.output_sizes, strict=True)
        self.up = nn.ModuleList(StackedLinear(d, output_sizes, has_linear_bias) for d, output_sizes in up_sizes)
        self.down = nn.ModuleList(nn.Linear(inner, d, bias=has_linear_bias) for d, inner in widths)

    def _activate(self, x: Tensor, number: int) -> Tensor:
        """Compute the activations (b, n, inner width) of layer `number` of `up`."""
        x = self.up[number](x)
        if not self.is_gated:
            return F.gelu(x)
        gate, up = x.split_with_sizes(self.output_sizes[number], dim=-1)
        gate = F.silu(gate)
        # Without a gradient the product overwrites the gate: allocating a new block costs more than the product.
        return gate * up if torch.is_grad_enabled() else gate.mul_(up)

    def forward(self, streams: Streams) -> Streams:
        """Compute the update (b, n, d_stream) of each stream."""
        if self.is_separate:
            activations: Streams = tuple(self._activate(x, number) for number, x in enumerate(streams))
        else:
            activations = self._activate(torch.cat(streams, dim=-1), 0).split_with_sizes(self.inner_widths, dim=-1)
        return tuple(down(x) for down, x in zip(self.down, activations, strict=True))


class _Block(GradientCheckpointingLayer):
    """Parts that both blocks share: attention and feed-forward, each with a norm.

    transformers' base class computes a block again in the backward pass, where that is switched on.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.normalized_residual = config.residual == "normalized"
        self.attention_norm = StreamNorm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = StreamNorm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def _add_update(self, base: Streams, update: Streams, with_dropout: bool) -> Streams:
        if self.training and with_dropout:
            update = tuple(self.dropout(y) for y in update)
        return tuple(x + y for x, y in zip(base, update, strict=True))


class NeoBertBlock(_Block):
    """NeoBERT's pre-norm block: base + attention(norm(streams)), then base + feed-forward(norm(streams)).

    The base is the streams themselves or, with residual=normalized as in every preset, norm(streams).
    """

    def attention_input(self, streams: Streams) -> Streams:
        """Return the streams that the attention reads, each (b, n, d_stream): the normalised ones."""
        return self.attention_norm(streams)

    def forward(self, streams: Streams, inputs: AttentionInputs, backend: str) -> tuple[Streams, Tensor | None]:
        """Return the new streams (b, n, d_stream), and the attention weights or None.

        Weights are (b, h, n, n), where the backend has them.
        """
        normed = self.attention_norm(streams)
        update, weights = self.attention(normed, inputs, backend)
        streams = self._add_update(normed if self.normalized_residual else streams, update, inputs.with_dropout)
        normed = self.feed_forward_norm(streams)
        base = normed if self.normalized_residual else streams
        return self._add_update(base, self.feed_forward(normed), inputs.with_dropout), weights


class BertBlock(_Block):
    """BERT's post-norm block: attention, then feed-forward (Devlin et al. 2019).

    It computes norm(streams + attention(streams)), then norm(streams + feed-forward(streams)).
    """

    def attention_input(self, streams: Streams) -> Streams:
        """Return the streams that the attention reads, each (b, n, d_stream): the block's input unchanged."""
        return streams

    def forward(self, streams: Streams, inputs: AttentionInputs, backend: str) -> tuple[Streams, Tensor | None]:
        """Return the new streams (b, n, d_stream), and the attention weights or None.

        Weights are (b, h, n, n), where the backend has them.
        """
        update, weights = self.attention(streams, inputs, backend)
        streams = self.attention_norm(self._add_update(streams, update, inputs.with_dropout))
        update = self.feed_forward(streams)
        return self.feed_forward_norm(self._add_update(streams, update, inputs.with_dropout)), weights


BLOCKS: dict[str, type[NeoBertBlock] | type[BertBlock]] = {"neobert": NeoBertBlock, "bert": BertBlock}
