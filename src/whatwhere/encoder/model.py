"""The encoder as a transformers model.

embedding → blocks → norm per stream. A hidden state is [position; semantic] along the last axis; `hidden_states[l]` is the
output of block l before the final norm, `hidden_states[0]` the embedding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from .attention import BACKENDS, Layout, term_scores
from .biases import RelativeBias
from .blocks import NeoBertBlock, RMSNorm, StreamNorm, Streams
from .config import EncoderConfig, nearest
from .rotary import rotation
from .tables import TABLES, LearnedTable


class EncoderPreTrainedModel(PreTrainedModel):
    """What all heads share: configuration class, backends, initial weights."""

    config_class = EncoderConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    _no_split_modules = ["NeoBertBlock"]

    def _init_weights(self, module: nn.Module) -> None:
        """Matrices and tables normal with the configured standard deviations, norms one, biases and T5 tables zero."""
        config = self.config
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=config.initializer_range)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=config.embedding_initializer_range)
        if isinstance(module, LearnedTable):
            nn.init.normal_(module.weight, std=config.position_initializer_range)
        if isinstance(module, RMSNorm):
            nn.init.ones_(module.weight)
        if isinstance(module, RelativeBias):
            for parameter in module.parameters():
                nn.init.zeros_(parameter)


def _consecutive(position_ids: Tensor, attention_mask: Tensor | None, document_ids: Tensor | None) -> bool:
    """Whether tokens that see each other are as far apart in positions as in the row, so that 2n - 1 distances say all."""
    b, n = position_ids.shape
    offset = position_ids - torch.arange(n, device=position_ids.device)
    groups = torch.arange(b, device=position_ids.device)[:, None].expand(b, n)  # tokens of a group see each other
    if document_ids is not None:
        groups = torch.stack([groups, document_ids.expand(b, n)], dim=-1).flatten(0, 1).unique(dim=0, return_inverse=True)[1].view(b, n)
    if attention_mask is not None:
        offset, groups = offset[attention_mask.bool()], groups[attention_mask.bool()]
    offset, groups = offset.flatten(), groups.flatten()
    if not len(offset):
        return True
    first = torch.zeros(int(groups.max()) + 1, dtype=offset.dtype, device=offset.device)
    first[groups] = offset  # some member's offset: all must share it
    return bool((first[groups] == offset).all())


class Encoder(EncoderPreTrainedModel):
    """Token ids in, hidden states (b, n, hidden_size) out, [position; semantic] along the last axis."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.word_embeddings = nn.Embedding(config.vocab_size, config.semantic_size)
        self.position_embeddings = TABLES[config.absolute](config) if config.absolute != "none" else None
        self.layers = nn.ModuleList(NeoBertBlock(config) for _ in range(config.num_hidden_layers))
        self.norm = StreamNorm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        assert isinstance(value, nn.Embedding)
        self.word_embeddings = value

    def position_table(self) -> Tensor | None:
        """The position table (max_position_embeddings, width) as the model reads it, or None if the scheme has none."""
        return self.position_embeddings() if self.position_embeddings is not None else None

    def _positions(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Tensor:
        b, n = input_ids.shape
        if position_ids is None:
            if attention_mask is None:
                position_ids = torch.arange(n, device=input_ids.device).expand(b, n)
            else:  # padding on either side leaves the positions of the tokens unchanged
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
        rows = self.config.max_position_embeddings
        if self.position_embeddings is not None:
            # On an accelerator reading the maximum would stall the queue: only the length is checked there.
            longest = int(position_ids.max()) + 1 if position_ids.device.type == "cpu" and n else n
            if longest > rows:
                raise ValueError(
                    f"Sequence reaches position {longest - 1}, but the position table has {rows} rows. "
                    f"Truncate to {rows} tokens, or build the model with max_position_embeddings={longest}."
                )
        return position_ids

    def layout(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor, document_ids: Tensor | None) -> Layout:
        """What the layers share: special tokens, distances, who sees whom, rotations."""
        config = self.config
        special = (input_ids == config.cls_token_id) | (input_ids == config.sep_token_id)
        allowed = None
        if attention_mask is not None and not (attention_mask.device.type == "cpu" and bool(attention_mask.all())):
            allowed = attention_mask[:, None, None, :].bool()
        if document_ids is not None:
            same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
            itself = torch.eye(input_ids.shape[1], dtype=torch.bool, device=input_ids.device)  # no row without a key
            allowed = (same if allowed is None else same & allowed) | itself
        distance = None
        if config.relative != "none":
            n = input_ids.shape[1]
            if _consecutive(position_ids, attention_mask, document_ids):
                distance = torch.arange(1 - n, n, device=input_ids.device)
            else:
                distance = position_ids[:, None, :] - position_ids[:, :, None]
        turn = rotation(position_ids, config.d_head, config.rope_theta, self.dtype) if config.rotary else None
        return Layout(special=special, distance=distance, allowed=allowed, rotation=turn)

    def embed(self, input_ids: Tensor, position_ids: Tensor) -> Streams:
        """The streams that enter the first block."""
        words = self.dropout(self.word_embeddings(input_ids))
        table = self.position_table()
        if table is None:
            return (words,)
        positions = self.dropout(F.embedding(position_ids, table))
        return (positions, words) if self.config.position_size else (words + positions,)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Encode.

        Args:
            input_ids: (b, n) token ids.
            attention_mask: (b, n), 1 at tokens, 0 at padding.
            position_ids: (b, n), counted from 0, special tokens included; default: the place among the unpadded tokens.
            document_ids: (b, n); tokens attend only to tokens of the same number (packed documents). Default: no such limit.
            output_hidden_states: also return the num_hidden_layers + 1 hidden states.
            output_attentions: also return the weights (b, h, n, n) of each layer; takes the eager path.

        Raises:
            ValueError: shapes disagree, an id is outside the vocabulary, or a position outside the table.
        """
        self._check(input_ids, attention_mask, position_ids, document_ids)
        position_ids = self._positions(input_ids, attention_mask, position_ids)
        layout = self.layout(input_ids, attention_mask, position_ids, document_ids)
        backend = "eager" if output_attentions else (self.config._attn_implementation or "sdpa")
        if backend not in BACKENDS:
            raise ValueError(f"No attention backend {backend!r}.{nearest(backend, BACKENDS)} Working: {', '.join(BACKENDS)}.")
        streams = self.embed(input_ids, position_ids)
        hidden = [torch.cat(streams, dim=-1)] if output_hidden_states else None
        attentions = []
        for layer in self.layers:
            streams, attn = layer(streams, layout, backend)
            if hidden is not None:
                hidden.append(torch.cat(streams, dim=-1))
            attentions.append(attn)
        output = BaseModelOutput(
            last_hidden_state=torch.cat(self.norm(streams), dim=-1),
            hidden_states=tuple(hidden) if hidden is not None else None,
            attentions=tuple(attentions) if output_attentions else None,
        )
        return output if return_dict is not False else output.to_tuple()

    def _check(self, input_ids: Tensor, *others: Tensor | None) -> None:
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids must have shape (batch, tokens); got {tuple(input_ids.shape)}.")
        for other in others:
            if other is not None and other.shape != input_ids.shape:
                raise ValueError(f"Every input must have the shape of input_ids, {tuple(input_ids.shape)}; got {tuple(other.shape)}.")
        if input_ids.device.type == "cpu" and input_ids.numel() and int(input_ids.max()) >= self.config.vocab_size:
            raise ValueError(
                f"Token id {int(input_ids.max())}, but the model's vocabulary has {self.config.vocab_size} entries. "
                "Use the tokenizer that was saved with the model."
            )

    @torch.no_grad()
    def attention_terms(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The named terms of the attention scores, each (layers, b, h, n, n) with size 1 where constant over the batch.

        In score units, before the padding mask; they sum to the scores that the fused path uses. Names: `semantic`,
        `absolute`, `relative` (with the values at special tokens); `mixed` instead of `semantic` where positions are added
        to the words (`ap`). For `rope`, `semantic` is the whole rotated product.
        """
        self._check(input_ids, attention_mask, position_ids, document_ids)
        position_ids = self._positions(input_ids, attention_mask, position_ids)
        layout = self.layout(input_ids, attention_mask, position_ids, document_ids)
        streams = self.embed(input_ids, position_ids)
        collected: list[dict[str, Tensor]] = []
        for layer in self.layers:
            assert isinstance(layer, NeoBertBlock)
            products, biases, _ = layer.attention.terms(layer.attention_norm(streams), layout)
            collected.append(term_scores(products, biases, layer.attention.scale))
            streams, _ = layer(streams, layout, "sdpa")
        return {name: torch.stack([terms[name] for terms in collected]) for name in sorted(collected[0], reverse=True)}
