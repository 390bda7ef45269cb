"""The encoder as a transformers model.

embedding → blocks → norm per stream (BERT's block: embedding → norm per stream → blocks). A hidden state is [position;
semantic] along the last axis. `block_states[l]` is the output of block l before the final norm, `block_states[0]` the
embedding; `hidden_states` are the same but for the last one, which is `last_hidden_state`, as in all of transformers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from .attention import AttentionInputs, check_backend, rotation
from .biases import Bias, RelativeBias, UntiedPositions, sum_biases
from .blocks import BLOCKS, BertBlock, NeoBertBlock, RMSNorm, StreamNorm, Streams
from .carry import CarriedModel
from .config import EncoderConfig
from .registry import BIASES
from .tables import PositionTable, draw_weights


class EncoderPreTrainedModel(CarriedModel):
    """Base class of the encoder and of its heads: configuration class, attention backends, initial weights."""

    config: EncoderConfig
    config_class = EncoderConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    _supports_flex_attn = True
    _no_split_modules = ["NeoBertBlock", "BertBlock"]

    def _init_weights(self, module: nn.Module) -> None:
        """Draw matrices and word embeddings as configured and set norms to one; tables and biases initialise
        themselves."""
        config = self.config
        if isinstance(module, nn.Linear):
            draw_weights(module.weight, config.initializer_range, config)
            if module.bias is not None:
                init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            draw_weights(module.weight, config.embedding_initializer_range, config)
        if isinstance(module, RMSNorm | nn.LayerNorm):
            init.ones_(module.weight)
        if isinstance(module, nn.LayerNorm):
            init.zeros_(module.bias)
        if callable(initialize := getattr(module, "initialize", None)):
            initialize(config)

    def _initialize_weights(self, module: nn.Module, is_custom_code: bool = False) -> None:
        # For code outside its package, transformers skips a module without direct weights as if it were loaded. Tables
        # and biases may have all their weights in submodules.
        direct = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        tensors = [*module.parameters(), *module.buffers()]
        loaded = all(getattr(t, "_is_hf_initialized", False) for t in tensors)
        if not direct and not loaded and hasattr(module, "initialize"):
            is_custom_code = False
        super()._initialize_weights(module, is_custom_code)


def _is_consecutive(position_ids: Tensor, attention_mask: Tensor | None, document_ids: Tensor | None) -> bool:
    """Tell if tokens that see each other are as far apart in positions as in the row, so that 2n - 1
    distances suffice."""
    b, n = position_ids.shape
    offset = position_ids - torch.arange(n, device=position_ids.device)
    groups = torch.arange(b, device=position_ids.device)[:, None].expand(b, n)  # tokens of a group see each other
    if document_ids is not None:
        pairs = torch.stack([groups, document_ids.expand(b, n)], dim=-1).flatten(0, 1)
        groups = pairs.unique(dim=0, return_inverse=True)[1].view(b, n)
    if attention_mask is not None:
        offset = offset[attention_mask.bool()]
        groups = groups[attention_mask.bool()]
    offset = offset.flatten()
    groups = groups.flatten()
    if not len(offset):
        return True
    offset_of_group = torch.zeros(int(groups.max()) + 1, dtype=offset.dtype, device=offset.device)
    offset_of_group[groups] = offset  # the offset of any one token: all of the group must share it
    return bool((offset_of_group[groups] == offset).all())


def _common_row(position_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return `position_ids` (b, n) as one row (1, n) where all examples agree at their tokens, else unchanged."""
    if len(position_ids) < 2:
        return position_ids
    if attention_mask is None:
        return position_ids[:1] if bool((position_ids == position_ids[:1]).all()) else position_ids
    tokens = attention_mask.bool()
    row = position_ids.masked_fill(~tokens, 0).amax(0, keepdim=True)
    return row if bool(((position_ids == row) | ~tokens).all()) else position_ids


@dataclass
class EncoderOutput(BaseModelOutput):
    """Output of the encoder: what models of transformers return, and the states between the blocks.

    block_states: num_hidden_layers + 1 states (b, n, hidden_size), the embedding and the output of each block before
    the final norm, or None.
    """

    block_states: tuple[Tensor, ...] | None = None


class Encoder(EncoderPreTrainedModel):
    """Encoder from token ids (b, n) to hidden states (b, n, hidden_size), [position; semantic] along the last axis."""

    _input_embed_layer = "word_embeddings"
    # True if the caller knows that the tokens of a text stand side by side, so that positions are as far apart as in
    # the row. An exported graph cannot check this itself.
    contiguous = False
    # Weights of heads, so that the encoder of a model with a head opens without a report about them.
    _keys_to_ignore_on_load_unexpected = [r"^(head|classifier|qa_outputs)\."]

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        # BERT's block normalises the embedding and each output, NeoBERT's block only the last output.
        norms_embedding = config.block == "bert"
        self.word_embeddings = nn.Embedding(config.vocab_size, config.semantic_size)
        self.position_embeddings = PositionTable(config) if config.absolute != "none" else None
        self.embedding_norm = StreamNorm(config) if norms_embedding else None
        self.untied = UntiedPositions(config) if config.untied != "none" else None
        self.relative = RelativeBias(config) if config.relative_shared else None
        self.layers = nn.ModuleList(BLOCKS[config.block](config) for _ in range(config.num_hidden_layers))
        self.norm = None if norms_embedding else StreamNorm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def position_table(self) -> Tensor | None:
        """Return the position table (max_position_embeddings, width) before any norm, or None for a model
        without one."""
        return self.position_embeddings() if self.position_embeddings is not None else None

    def _positions(self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Tensor:
        b, n = input_ids.shape
        if position_ids is None:
            if attention_mask is None:
                position_ids = torch.arange(n, device=input_ids.device).expand(b, n)
            else:  # padding on either side leaves the positions of the tokens unchanged
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
        rows = self.config.longest
        if rows is not None:
            # On an accelerator reading the maximum would stall the queue: only the length is checked there.
            reads_values = (
                position_ids.device.type == "cpu" and position_ids.numel() and not torch.compiler.is_compiling()
            )
            longest = int(position_ids.max()) + 1 if reads_values else n
            if reads_values and (lowest := int(position_ids.min())) < 0:
                raise ValueError(
                    f"Positions are counted from 0; position_ids holds {lowest}. Leave it out for 0, 1, 2, ..."
                )
            if longest > rows:
                raise ValueError(
                    f"Sequence reaches position {longest - 1}, but the position table has {rows} rows. "
                    f"Truncate to {rows} tokens, or extend the table: whatwhere extrapolate --help."
                )
        return position_ids

    def attention_inputs(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, document_ids: Tensor | None
    ) -> AttentionInputs:
        """Return the inputs that all layers share: special tokens, allowed pairs, distances, terms of positions alone.

        Args: as `forward`, all (b, n).

        Raises:
            ValueError: a position is negative or outside the table.
        """
        config = self.config
        n = input_ids.shape[1]
        device = input_ids.device
        is_cls = (input_ids == config.cls_token_id).long()
        is_sep = (input_ids == config.sep_token_id).long()
        token_kinds = torch.where(is_cls > 0, is_cls, 2 * is_sep if config.relative_special == "each" else is_sep)
        # Values may choose a faster computation, where the device and the compiler let them be read.
        reads_values = not torch.compiler.is_compiling() and device.type != "meta"
        if reads_values:
            token_kinds, is_cls = (x[:1] if bool((x == x[:1]).all()) else x for x in (token_kinds, is_cls))
        counts_from_zero = (
            position_ids is None and attention_mask is None and document_ids is None
        )  # 0, 1, 2, ... in every row
        position_ids = self._positions(input_ids, attention_mask, position_ids)
        allowed = None
        if attention_mask is not None and not (reads_values and device.type == "cpu" and bool(attention_mask.all())):
            tokens = attention_mask.bool()
            tokens = tokens | ~tokens.any(-1, keepdim=True)  # a row of padding alone sees all: backends agree
            allowed = tokens[:, None, None, :]
        if document_ids is not None:
            same_document = document_ids[:, None, :, None] == document_ids[:, None, None, :]
            diagonal = torch.eye(n, dtype=torch.bool, device=device)  # no row without a key
            allowed = (same_document if allowed is None else same_document & allowed) | diagonal
        if config.attention_window is not None:
            index = torch.arange(n, device=device)
            gap = (index[:, None] - index).abs()
            examples = input_ids.shape[0]  # len() would be a constant of an exported graph
            in_window = (gap <= config.attention_window).expand(examples, 1, n, n)
            allowed = in_window if allowed is None else (allowed & in_window) | (gap == 0)  # no row without a key
        distance = None
        positions = None
        biases: list[Bias] = []
        if config.relative != "none":
            if (
                counts_from_zero
                or self.contiguous
                or (reads_values and _is_consecutive(position_ids, attention_mask, document_ids))
            ):
                distance = torch.arange(1 - n, n, device=device)
            else:
                distance = position_ids[:, None, :] - position_ids[:, :, None]
            places = getattr(BIASES[config.relative], "places", None)
            distance = distance if places is None else places(distance, config)
        if self.untied is not None:
            rows = position_ids
            if counts_from_zero:
                rows = position_ids[:1]
            elif reads_values:
                rows = _common_row(position_ids, attention_mask)
            table = self.position_table()
            if config.untied == "crossed":
                assert table is not None
                positions = self.untied.project(table[rows])
            else:
                biases.append(self.untied(table, rows, is_cls))
        if self.relative is not None:
            assert distance is not None
            biases.append(self.relative(distance, token_kinds, is_cls))
        cos_sin = rotation(position_ids, config, self.dtype) if config.rotation != "none" else None
        return AttentionInputs(
            token_kinds, is_cls, position_ids, distance, allowed, cos_sin, positions, tuple(biases), sum_biases(biases)
        )

    def embed(self, input_ids: Tensor, position_ids: Tensor, inputs_embeds: Tensor | None = None) -> Streams:
        """Return the streams (b, n, d_stream) that enter the first block, from token ids and positions (b, n)."""
        streams: Streams = (self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds,)
        table = self.position_table() if self.untied is None else None
        if table is not None:
            rows = F.embedding(position_ids, table)
            streams = (rows, *streams) if self.config.position_size else (streams[0] + rows,)
        if self.embedding_norm is not None:
            streams = self.embedding_norm(streams)
        return tuple(self.dropout(x) for x in streams)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        output_block_states: bool = False,
    ) -> EncoderOutput:
        """Encode token ids (b, n) as hidden states (b, n, hidden_size).

        Args:
            input_ids: (b, n) token ids.
            attention_mask: (b, n), 1 at tokens, 0 at padding.
            position_ids: (b, n), or (n,) or (1, n) for all rows, counted from 0, special tokens included; default: the
                place among the unpadded tokens.
            document_ids: (b, n); tokens attend only to tokens of the same number (packed documents). Default: no such
                limit.
            inputs_embeds: (b, n, semantic_size) words' vectors, in place of the embeddings of `input_ids`. Schemes that
                treat special tokens apart (dstg, tupe-*) find them in `input_ids`, and need both.
            output_hidden_states: also return the num_hidden_layers + 1 hidden states, of which the last is
                `last_hidden_state` (with tie_last_hidden_states=False in the configuration: before the final norm).
                Default: as the configuration says.
            output_attentions: also return the weights (b, h, n, n) of each layer; takes the eager path. Default: as the
                configuration says.
            output_block_states: also return `block_states`, the embedding and the output of each block before the
                final norm.

        Raises:
            ValueError: shapes disagree, an id is outside the vocabulary, or a position outside the table.
        """
        input_ids = self._ids(input_ids, inputs_embeds)
        if position_ids is not None and position_ids.shape in ((input_ids.shape[1],), (1, input_ids.shape[1])):
            position_ids = position_ids.expand(input_ids.shape)
        self._check(input_ids, attention_mask, position_ids, document_ids)
        inputs = self.attention_inputs(input_ids, attention_mask, position_ids, document_ids)
        config = self.config
        if output_attentions is None:
            output_attentions = bool(config.output_attentions)
        if output_hidden_states is None:
            output_hidden_states = bool(config.output_hidden_states)
        backend = "eager" if output_attentions else (config._attn_implementation or "sdpa")
        training = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        check_backend(backend, input_ids.device, training, config.dropout if self.training else 0.0)
        streams = self.embed(input_ids, inputs.position_ids, inputs_embeds)
        keeps_states = output_hidden_states or output_block_states
        states: list[Tensor] = []
        attentions = []
        if keeps_states:
            streams = self._keep(streams, states)
        for layer in self.layers:
            streams, attn = layer(streams, inputs, backend)
            if keeps_states:
                streams = self._keep(streams, states)
            attentions.append(attn)
        last = torch.cat(streams if self.norm is None else self.norm(streams), dim=-1)
        is_tied = getattr(config, "tie_last_hidden_states", None) is not False
        hidden_states = (*states[:-1], last if is_tied else states[-1]) if output_hidden_states else None
        return EncoderOutput(
            last_hidden_state=last,
            hidden_states=hidden_states,
            attentions=tuple(attentions) if output_attentions else None,
            block_states=tuple(states) if output_block_states else None,
        )

    def _keep(self, streams: Streams, states: list[Tensor]) -> Streams:
        """Add the state (b, n, hidden_size) of the streams to `states`; return streams that are parts of it where
        gradients are computed, so that it has one."""
        state = torch.cat(streams, dim=-1) if len(streams) > 1 else streams[0]
        states.append(state)
        return state.split(self.config.stream_sizes, dim=-1) if torch.is_grad_enabled() else streams

    def _ids(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """Return the token ids, or, where vectors stand for them, ids of no special token."""
        config = self.config
        if inputs_embeds is None:
            if input_ids is None:
                raise ValueError("Give input_ids (batch, tokens), or inputs_embeds.")
            return input_ids
        shape = (config.semantic_size,) if input_ids is None else (*input_ids.shape, config.semantic_size)
        if inputs_embeds.dim() != 3 or inputs_embeds.shape[-len(shape) :] != shape:
            raise ValueError(
                f"inputs_embeds has shape {tuple(inputs_embeds.shape)}; it must be (batch, tokens, "
                f"{config.semantic_size}), with batch and tokens of input_ids where both are given."
            )
        if input_ids is not None:
            return input_ids
        if config.relative_special != "none" or config.absolute_special or config.reset != "none":
            raise ValueError(
                f"{config.preset or 'This scheme'} treats [CLS] and [SEP] apart, and vectors do not say where they "
                "are. Give input_ids beside inputs_embeds."
            )
        ids = {config.cls_token_id, config.sep_token_id}
        regular_id = next(i for i in range(3) if i not in ids)
        return inputs_embeds.new_full(inputs_embeds.shape[:2], regular_id, dtype=torch.long)

    def _check(self, input_ids: Tensor, *inputs: Tensor | None) -> None:
        if input_ids.dim() != 2:
            raise ValueError(f"input_ids must have shape (batch, tokens); got {tuple(input_ids.shape)}.")
        for tensor in inputs:
            if tensor is not None and tensor.shape != input_ids.shape:
                raise ValueError(
                    f"Every input must have the shape of input_ids, {tuple(input_ids.shape)}; got "
                    f"{tuple(tensor.shape)}."
                )
        if not input_ids.shape[1]:
            raise ValueError(f"input_ids must hold at least one token a row; got shape {tuple(input_ids.shape)}.")
        if torch.compiler.is_compiling() or input_ids.device.type != "cpu" or not input_ids.numel():
            return
        if int(input_ids.min()) < 0:
            raise ValueError(f"Token ids count from 0; got {int(input_ids.min())}.")
        if int(input_ids.max()) >= self.config.vocab_size:
            raise ValueError(
                f"Token id {int(input_ids.max())}, but the model's vocabulary has {self.config.vocab_size} entries. "
                "Use the tokenizer that was saved with the model."
            )

    @torch.no_grad()
    def attention_terms(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Compute the named terms of the attention scores, each (layers, b, h, n, n), with size 1 where constant over
        the batch.

        Inputs and errors are as of `forward`. In score units, before the padding mask; they sum to the scores that
        the fused path uses. Names: `semantic`, `absolute` (with TUPE's θ), `relative` (with the values at special
        tokens); `mixed` instead of `semantic` where positions are added to the words (`ap`, `bert-a`);
        `semantic_to_absolute` (query semantic) and `absolute_to_semantic` where both meet (`split`, `bert-ad`). For
        `rope`, `semantic` is the whole rotated product. Where packed documents do not see each other, entries mean
        nothing.
        """
        training = self.training
        self.eval()  # the terms of the model, without one draw of dropout
        collected: list[dict[str, Tensor]] = []
        try:
            with self.inspect_terms(lambda block, terms, allowed: collected.append(terms)):
                self(input_ids, attention_mask, position_ids, document_ids, inputs_embeds)
        finally:
            self.train(training)
        return {name: torch.stack([terms[name] for terms in collected]) for name in sorted(collected[0], reverse=True)}

    @contextmanager
    def inspect_terms(
        self, see: Callable[[int, dict[str, Tensor], Tensor | None], dict[str, Tensor] | None]
    ) -> Iterator[None]:
        """Hand the attention terms of every block to `see` during the forward passes inside the `with` statement.

        see: function of (block 0 ... L - 1, named terms, allowed). Each term is (b or 1, h, n, n), as in
            `attention_terms`; allowed (b, 1, 1 or n, n) is True where a query may look at a key, None for everywhere.
            If it returns terms, attention goes on with those instead (in the eager path); None changes nothing.

        Blocks must not be compiled.
        """
        blocks = [layer for layer in self.layers if isinstance(layer, NeoBertBlock | BertBlock)]
        previous = [block.attention.inspect for block in blocks]
        for number, block in enumerate(blocks):
            block.attention.inspect = partial(see, number)
        try:
            yield
        finally:
            for block, inspect in zip(blocks, previous, strict=True):
                block.attention.inspect = inspect
