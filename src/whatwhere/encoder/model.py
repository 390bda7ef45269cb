"""The encoder as a transformers model.

embedding → blocks → norm per stream (BERT's block: embedding → norm per stream → blocks). A hidden state is [position;
semantic] along the last axis. `block_states[l]` is the output of `layers[l - 1]` before the final norm,
`block_states[0]` the embedding; `hidden_states` are the same but for the last one, which is `last_hidden_state`, as in
all of transformers.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils.generic import can_return_tuple

from .attention import INSPECTORS, Attention, AttentionInputs, check_backend
from .biases import Bias, RelativeTerm, UntiedPositions, sum_biases
from .blocks import BLOCKS, BertBlock, NeoBertBlock, RMSNorm, StreamNorm, Streams
from .carry import CarriedModel
from .config import EncoderConfig
from .convolution import InputConvolution
from .inputs import (
    allowed_keys,
    check_inputs,
    check_positions,
    check_vectors,
    check_width,
    common_row,
    distances,
    has_values,
    has_values_on_cpu,
    ids_of_vectors,
    locate_in_segments,
    open_blind_queries,
    pair_mask_of,
    positions_are_consecutive,
    token_positions,
    visible_tokens,
)
from .pair_terms import DistanceVectors
from .registry import BIASES, PAIR_TERMS
from .rotations import apply_decay, compute_cos_sin
from .tables import PositionTable, draw_weights


class EncoderPreTrainedModel(CarriedModel):
    """Base class of the encoder and of its heads: configuration class, attention backends, initial weights."""

    config: EncoderConfig
    config_class = EncoderConfig
    base_model_prefix = "encoder"
    _supports_sdpa = True
    _supports_flex_attn = True
    _no_split_modules = ["NeoBertBlock", "BertBlock"]
    supports_gradient_checkpointing = True

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

    def _set_gradient_checkpointing(
        self, enable: bool = True, gradient_checkpointing_func: Callable[..., Any] = checkpoint, *args: Any, **how: Any
    ) -> None:
        if getattr(gradient_checkpointing_func, "keywords", {}).get("use_reentrant"):
            # Reentrant checkpointing loses gradients of tensors inside tuples, as streams and biases are.
            warnings.warn("use_reentrant=True is read as False, which has the same gradients.", stacklevel=2)
            gradient_checkpointing_func = partial(gradient_checkpointing_func, use_reentrant=False)
        super()._set_gradient_checkpointing(enable, gradient_checkpointing_func, *args, **how)

    def _initialize_weights(self, module: nn.Module, is_custom_code: bool = False) -> None:
        # With `is_custom_code`, for a class outside of transformers' package, transformers calls `_init_weights` unless
        # all direct weights of the module are loaded, and so never for a module that has none. But a table or bias may
        # have all its weights in submodules: its `initialize` runs unless all are loaded, and `init` leaves loaded
        # tensors alone.
        direct = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        tensors = [*module.parameters(), *module.buffers()]
        loaded = all(getattr(t, "_is_hf_initialized", False) for t in tensors)
        if not direct and not loaded and hasattr(module, "initialize"):
            is_custom_code = False
        super()._initialize_weights(module, is_custom_code)


# False while `attention_terms` runs in this thread (or task): terms are without dropout, and `eval()` would switch it
# off for other threads, too.
_WITH_DROPOUT: ContextVar[bool] = ContextVar("with_dropout", default=True)


StateChoice = bool | int | Sequence[int] | None  # hidden states that a caller asks for: all, none, or by number


def _asks_for_states(choice: StateChoice) -> bool:
    """Return whether a caller asks for any hidden state; 0 asks for the first one."""
    return choice is not False and (isinstance(choice, int) or bool(choice))


def _chosen_states(states: tuple[Tensor, ...], choice: StateChoice) -> tuple[Any, ...] | None:
    """Return the states that a caller asks for, None in place of the others; None where it asks for none."""
    if choice is True:
        return states
    if choice is None or not _asks_for_states(choice):
        return None
    numbers = (choice,) if isinstance(choice, int) else choice
    chosen = {number % len(states) for number in numbers if -len(states) <= number < len(states)}
    return tuple(state if number in chosen else None for number, state in enumerate(states))


@dataclass
class EncoderOutput(BaseModelOutput):
    """Output of the encoder: what models of transformers return, and the states between the blocks.

    block_states: num_hidden_layers + 1 states (b, n, hidden_size), the embedding and the output of each block before
    the final norm, or None.
    """

    block_states: tuple[Tensor, ...] | None = None


class Encoder(EncoderPreTrainedModel):
    """Encoder from token ids (b, n) to hidden states (b, n, hidden_size), [position; semantic] along the last axis."""

    _input_embed_layer = "word_embeddings"  # `get_input_embeddings` of transformers reads it
    # transformers reads it to learn which outputs a caller may select; it sets no hooks on these modules, as `forward`
    # returns the outputs itself.
    _can_record_outputs = {"hidden_states": GradientCheckpointingLayer, "attentions": Attention}
    # True if the caller knows that the tokens of a text stand side by side, so that positions are as far apart as in
    # the row. An exported graph cannot check this itself.
    assumes_consecutive_positions = False
    # Weights of heads, so that the encoder of a model with a head opens without a report about them.
    _keys_to_ignore_on_load_unexpected = [r"^(head|classifier|qa_outputs)\."]

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        # BERT's block normalises the embedding and each output, NeoBERT's block only the last output.
        norms_embedding = config.block == "bert"
        self.word_embeddings = nn.Embedding(config.vocab_size, config.semantic_size)
        self.position_embeddings = PositionTable(config) if config.absolute != "none" else None
        self.convolution = InputConvolution(config) if config.input_kernel else None
        self.embedding_norm = StreamNorm(config) if norms_embedding else None
        self.untied = UntiedPositions(config) if config.untied != "none" else None
        self.relative = RelativeTerm(config) if config.relative_shared else None
        terms = PAIR_TERMS.get(config.pair_terms)
        self.distance_vectors = DistanceVectors(config) if terms is not None and terms.shares_vectors else None
        self.layers = nn.ModuleList(BLOCKS[config.block](config) for _ in range(config.num_hidden_layers))
        self.norm = None if norms_embedding else StreamNorm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def position_table(self) -> Tensor | None:
        """Return the position table (max_position_embeddings, width), or None.

        Rows are not normalised. None: the scheme has no table, or its rows are places in a segment (`bilevel`).
        """
        if self.position_embeddings is None or self.config.bilevel:
            return None
        return self.position_embeddings()

    def _complete_positions(
        self, input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None
    ) -> Tensor:
        """Return `position_ids` (b, n), or where none are given each token's place among the tokens of its row.

        Raises:
            ValueError: with a table alone: on a CPU a position outside it, on an accelerator a row longer than it.
        """
        b, n = input_ids.shape
        limit = self.config.position_limit
        are_given = position_ids is not None
        if position_ids is None:
            if attention_mask is None:
                position_ids = torch.arange(n, device=input_ids.device).expand(b, n)
            else:  # padding on either side leaves the positions of the tokens unchanged
                position_ids = token_positions(attention_mask, limit)
        if limit is None or position_ids.is_floating_point():  # a formula has every real position
            return position_ids
        # A check is not worth a wait for an accelerator's queue. There only the length is checked, and nothing where
        # positions are given: they may be small in a long packed row.
        if has_values_on_cpu(position_ids) and position_ids.numel():
            check_positions(position_ids, limit)
        elif not are_given:
            check_width(n, limit, may_be_padded=attention_mask is not None)
        return position_ids

    def attention_inputs(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        document_ids: Tensor | None,
        pair_mask: Tensor | None = None,
    ) -> AttentionInputs:
        """Return the inputs that all layers share: special tokens, allowed pairs, distances, terms of positions alone.

        Args: as `forward`, all (b, n). pair_mask: (b, 1, n, n), True where a query may look at a key; queries obey it
        in place of `attention_mask`.

        Raises:
            ValueError: as `_complete_positions`, or a registered bias or rotation has another shape.
        """
        config = self.config
        token_kinds, cls_kinds = self._token_and_cls_kinds(input_ids)
        # Where none of these is given, positions are 0, 1, 2, ... in every row.
        counts_from_zero = (
            position_ids is None and attention_mask is None and document_ids is None and not config.bilevel
        )
        if config.bilevel:  # rotations and biases count segments, and the table reads places in them
            places, positions = self._locate_in_segments(input_ids, attention_mask, document_ids, pair_mask)
            table_rows = places.clamp(max=config.max_position_embeddings - 1)  # places beyond it share its last row
        else:
            positions = self._complete_positions(input_ids, attention_mask, position_ids)
            table_rows = positions
        # Two cases are faster: equal rows, of which one is kept, and consecutive positions. To find them, values are
        # read, on an accelerator too, which waits for its queue. `has_values`: not while tracing, and not on `meta`.
        reads_values = has_values(input_ids)
        term_positions = positions
        if counts_from_zero:
            term_positions = positions[:1]
        elif reads_values and (self.untied is not None or config.pair_terms != "none"):
            term_positions = common_row(positions)
        allowed = allowed_keys(input_ids, attention_mask, document_ids, config.attention_window, pair_mask)
        distance_or_bucket = None
        if config.relative != "none" or config.pair_terms != "none":
            is_consecutive = counts_from_zero or self.assumes_consecutive_positions
            # With a mask of pairs every token counts: one that no token looks at may itself look at others.
            token_mask = attention_mask if pair_mask is None else None
            is_consecutive = is_consecutive or (
                reads_values and positions_are_consecutive(positions, token_mask, document_ids)
            )
            distance_or_bucket = self._distances_or_buckets(positions, is_consecutive and not config.bilevel)
        position_query_key, biases = self._shared_terms(term_positions, distance_or_bucket, token_kinds, cls_kinds)
        return AttentionInputs(
            token_kinds,
            cls_kinds,
            table_rows,
            term_positions,
            distance_or_bucket,
            allowed,
            **self._rotation_fields(positions, term_positions),
            position_query_key=position_query_key,
            distance_vectors=None if self.distance_vectors is None else self.distance_vectors.table,
            biases=tuple(biases),
            bias_sum=sum_biases(biases),
        )

    def _distances_or_buckets(self, positions: Tensor, is_consecutive: bool) -> Tensor:
        """Return `distance_or_bucket` of `AttentionInputs`."""
        distance = distances(positions, is_consecutive)
        buckets = getattr(BIASES.get(self.config.relative), "buckets", None)
        return distance if buckets is None else buckets(distance, self.config)

    def _shared_terms(
        self, term_positions: Tensor, distance_or_bucket: Tensor | None, token_kinds: Tensor, cls_kinds: Tensor
    ) -> tuple[tuple[Tensor, Tensor] | None, list[Bias]]:
        """Return `position_query_key` and `biases` of `AttentionInputs`, from its other fields."""
        position_query_key = None
        biases: list[Bias] = []
        if self.untied is not None:
            table = self.position_table()
            if self.config.untied == "crossed":
                assert table is not None
                position_query_key = self.untied.project(table[term_positions])
            else:
                biases.append(self.untied(table, term_positions, cls_kinds))
        if self.relative is not None:
            assert distance_or_bucket is not None
            biases.append(self.relative(distance_or_bucket, token_kinds, cls_kinds))
        return position_query_key, biases

    def _rotation_fields(self, positions: Tensor, term_positions: Tensor) -> dict[str, Any]:
        """Return the fields of `AttentionInputs` that turn queries and keys; none without a rotation."""
        config = self.config
        if config.rotation == "none":
            return {}
        cos_sin = compute_cos_sin(positions, config, self.dtype)
        if config.rotation != "xpos":
            return {"cos_sin": cos_sin}
        cos_sin, over_decay = apply_decay(cos_sin, positions, config)
        is_ahead = term_positions[:, None, None, :] > term_positions[:, None, :, None]
        return {"cos_sin": cos_sin, "cos_sin_over_decay": over_decay, "is_ahead": is_ahead}

    def _token_and_cls_kinds(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return `token_kinds` and `cls_kinds` of `AttentionInputs`."""
        cls_kinds = (input_ids == self.config.cls_token_id).long()
        is_sep = (input_ids == self.config.sep_token_id).long()
        sep_kinds = 2 * is_sep if self.config.relative_special == "each" else is_sep
        token_kinds = torch.where(cls_kinds > 0, cls_kinds, sep_kinds)
        if has_values(input_ids):
            token_kinds, cls_kinds = (common_row(kinds) for kinds in (token_kinds, cls_kinds))
        return token_kinds, cls_kinds

    def _locate_in_segments(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        document_ids: Tensor | None,
        pair_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Return the place of each token in its segment, and the number of the segment, both (b, n) and from 0."""
        end_ids = self.config.segment_end_ids or [self.config.sep_token_id]
        if pair_mask is not None and document_ids is None:  # a token that sees no earlier one begins a document
            document_ids = (~pair_mask[:, 0].tril(-1).any(-1)).long().cumsum(-1)
        return locate_in_segments(end_ids, input_ids, attention_mask, document_ids)

    def embed(
        self,
        input_ids: Tensor,
        table_rows: Tensor,
        inputs_embeds: Tensor | None = None,
        with_dropout: bool = True,
        attention_mask: Tensor | None = None,
        document_ids: Tensor | None = None,
        pair_mask: Tensor | None = None,
    ) -> Streams:
        """Return the streams (b, n, d_stream) that enter the first block, from token ids (b, n).

        table_rows: (b, n), as in `AttentionInputs`; a table by a formula (sinusoidal, fourier) also takes real numbers.
        inputs_embeds: (b, n, semantic_size) words' vectors, in place of the embeddings of `input_ids`.
        attention_mask, document_ids: (b, n), and pair_mask: (b, 1, n, n), for a convolution at the input alone.
        with_dropout: False leaves dropout out, whatever mode the model is in.
        """
        streams: Streams = (self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds,)
        table = None
        if self.position_embeddings is not None and self.untied is None:
            # Tests replace `position_table` to swap rows; it is None where rows are places in a segment.
            table = self.position_embeddings() if self.config.bilevel else self.position_table()
        if table is not None and self.position_embeddings is not None:
            if table_rows.is_floating_point():
                vectors = self.position_embeddings.at(table_rows)
            else:
                vectors = F.embedding(table_rows, table)
            streams = (vectors, *streams) if self.config.position_size else (streams[0] + vectors,)
        if self.convolution is not None:
            streams = (self.convolution(streams[0], attention_mask, document_ids, pair_mask),)
        if self.embedding_norm is not None:
            streams = self.embedding_norm(streams)
        return tuple(self.dropout(x) for x in streams) if with_dropout else streams

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_hidden_states: StateChoice = None,
        output_attentions: bool | None = None,
        output_block_states: bool = False,
        special_tokens_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        head_mask: None = None,
        use_cache: bool | None = None,
    ) -> EncoderOutput:
        """Encode token ids (b, n) as hidden states (b, n, hidden_size).

        Args:
            input_ids: (b, n) token ids.
            attention_mask: (b, n), 1 at tokens, 0 at padding; or (b or 1, 1, n or 1, n), queries by keys, 1 or true
                where a query may look at a key (in floating point 0 there and a large negative number elsewhere).
            position_ids: (b, n), or (n,) or (1, n) for all rows, counted from 0, special tokens included; default: the
                place among the unpadded tokens. Real numbers with `position_draws`, or where nothing is looked up
                (rope). `bipe` reads none.
            document_ids: (b, n); tokens attend only to tokens of the same number (packed documents). Default: no such
                limit.
            inputs_embeds: (b, n, semantic_size) words' vectors, in place of the embeddings of `input_ids`. Schemes that
                treat special tokens apart (rp, dstg, most of tupe-*) find them in `input_ids` or `special_tokens_mask`,
                and one that reads segments (bipe) finds their ends in `input_ids` alone.
            output_hidden_states: also return the num_hidden_layers + 1 hidden states, of which the last is
                `last_hidden_state` (if a caller of transformers sets `config.tie_last_hidden_states = False`: before
                the final norm). A list of numbers of states (negative: from the end) gives None in place of the others.
                Default: as the configuration says.
            output_attentions: also return the weights (b, h, n, n) of each layer; takes the eager path. Default: as the
                configuration says.
            output_block_states: also return `block_states`, the embedding and the output of each block before the
                final norm.
            special_tokens_mask: (b, n), 1 at special tokens, read where there are no `input_ids`: a row's first
                token is [CLS] if it is marked; every other marked token is [SEP].
            token_type_ids, use_cache: accepted, as tokenizers and clients of BERT give them, and not used: [SEP] alone
                tells two texts apart, and an encoder has no cache.
            head_mask: must be None; transformers' own models ignore it, this one refuses it.

        Raises:
            ValueError: no input, or shapes that disagree; a head_mask; real `position_ids` where a scheme looks up
                whole ones; vectors without the marks that the scheme reads; a backend that cannot train here;
                on a CPU also an id outside the vocabulary, a position outside the table, or numbers in a mask of pairs
                that neither allow nor hide. On an accelerator only the length is compared with the table, where no
                position_ids are given.
        """
        if head_mask is not None:
            raise ValueError("No head_mask: change or remove the terms of heads by `inspect_terms`.")
        if inputs_embeds is not None:
            check_vectors(self.config, inputs_embeds, input_ids)
        elif input_ids is None:
            raise ValueError(
                "The model got no input. Give input_ids (batch, tokens) or inputs_embeds (batch, tokens, width)."
            )
        pair_mask = None
        if attention_mask is not None and attention_mask.dim() == 4:
            tokens = input_ids if inputs_embeds is None else inputs_embeds[..., 0]
            assert tokens is not None
            pair_mask = pair_mask_of(attention_mask, *tokens.shape)
            attention_mask = visible_tokens(pair_mask)
            pair_mask = open_blind_queries(pair_mask)
        if input_ids is None:
            assert inputs_embeds is not None
            input_ids = ids_of_vectors(self.config, inputs_embeds, attention_mask, special_tokens_mask)
        if position_ids is not None and position_ids.shape in ((input_ids.shape[1],), (1, input_ids.shape[1])):
            position_ids = position_ids.expand(input_ids.shape)
        config = self.config
        has_real_positions = position_ids is not None and position_ids.is_floating_point()
        looks_up = config.position_limit is not None or config.relative != "none" or config.pair_terms != "none"
        if has_real_positions and looks_up and config.position_draws == "none":
            raise ValueError("position_ids are real numbers, and this scheme looks whole ones up. Give whole numbers.")
        check_inputs(
            config, input_ids, attention_mask=attention_mask, position_ids=position_ids, document_ids=document_ids
        )
        inputs = self.attention_inputs(input_ids, attention_mask, position_ids, document_ids, pair_mask)
        if output_attentions is None:
            output_attentions = bool(config.output_attentions)
        if output_hidden_states is None:
            output_hidden_states = config.output_hidden_states
        backend = "eager" if output_attentions else (config._attn_implementation or "sdpa")
        needs_gradient = torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())
        with_dropout = torch.compiler.is_compiling() or _WITH_DROPOUT.get()
        if not with_dropout:
            inputs = replace(inputs, with_dropout=False)
        check_backend(
            backend, input_ids.device, needs_gradient, config.dropout if self.training and with_dropout else 0.0
        )
        masks = (attention_mask, document_ids, pair_mask)
        streams = self.embed(input_ids, inputs.table_rows, inputs_embeds, with_dropout, *masks)
        keeps_states = output_block_states or _asks_for_states(output_hidden_states)
        states: list[Tensor] = []
        attentions = []
        if keeps_states:
            streams = self._append_state(streams, states)
        for layer in self.layers:
            streams, weights = layer(streams, inputs, backend)
            if keeps_states:
                streams = self._append_state(streams, states)
            attentions.append(weights)
        last = torch.cat(streams if self.norm is None else self.norm(streams), dim=-1)
        ends_with_last = getattr(config, "tie_last_hidden_states", None) is not False
        hidden_states = tuple(states)
        if keeps_states and ends_with_last:
            hidden_states = (*states[:-1], last)
        return EncoderOutput(
            last_hidden_state=last,
            hidden_states=_chosen_states(hidden_states, output_hidden_states),
            attentions=tuple(attentions) if output_attentions else None,
            block_states=tuple(states) if output_block_states else None,
        )

    def _append_state(self, streams: Streams, states: list[Tensor]) -> Streams:
        """Append the state (b, n, hidden_size) of the streams to `states`, and return the streams.

        Where gradients are computed, the returned streams are views of the state, so that the state gets a gradient.
        """
        state = torch.cat(streams, dim=-1) if len(streams) > 1 else streams[0]
        states.append(state)
        return state.split(self.config.stream_sizes, dim=-1) if torch.is_grad_enabled() else streams

    @torch.no_grad()
    def attention_terms(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        special_tokens_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Compute the named terms of the attention scores, each (blocks, b, h, n, n).

        Block i, from 0, is layer i + 1 of records. The batch axis has size 1 where the term is constant over the batch.

        It takes the inputs of `forward` and raises its errors. Terms are in score units, before the padding mask; they
        sum to the scores that the fused path uses. Names: `semantic`, `absolute` (with TUPE's θ), `relative` (with the
        values at special tokens); `mixed` instead of `semantic` where positions are added to the words (`ap`);
        `semantic_to_absolute` (query semantic) and `absolute_to_semantic` where both meet (`split`, `bert-ad`);
        `semantic_to_relative` and `relative_to_semantic` of a word and a distance (`shaw`, `deberta`, ...). For `rope`,
        `semantic` is the whole rotated product. Where packed documents do not see each other, entries mean
        nothing.
        """
        collected: list[dict[str, Tensor]] = []
        inputs = (input_ids, attention_mask, position_ids, document_ids, inputs_embeds)
        token = _WITH_DROPOUT.set(False)
        try:
            with self.inspect_terms(lambda block, terms, allowed: collected.append(terms)):
                self(*inputs, special_tokens_mask=special_tokens_mask, token_type_ids=token_type_ids)
        finally:
            _WITH_DROPOUT.reset(token)
        return {name: torch.stack([terms[name] for terms in collected]) for name in sorted(collected[0], reverse=True)}

    @contextmanager
    def inspect_terms(
        self, inspector: Callable[[int, dict[str, Tensor], Tensor | None], dict[str, Tensor] | None]
    ) -> Iterator[None]:
        """Hand the attention terms of every block to `inspector` during the forward passes inside the `with` statement.

        The inspector gets the passes of this thread alone; other threads may read the same model meanwhile.

        inspector: function of (index of the block in `layers`, from 0, named terms, allowed). Each term is (b or 1, h,
            n, n), as in `attention_terms`; allowed (b, 1, 1 or n, n) is True where a query may look at a key, None for
            everywhere.
            If it returns terms, attention goes on with those instead (in the eager path); None changes nothing.

        Blocks must be neither compiled nor computed again by gradient checkpointing.
        """
        blocks = [layer for layer in self.layers if isinstance(layer, NeoBertBlock | BertBlock)]
        block_inspectors = {id(block.attention): partial(inspector, number) for number, block in enumerate(blocks)}
        INSPECTORS.set((*INSPECTORS.get(), block_inspectors))
        try:
            yield
        finally:
            INSPECTORS.set(tuple(inspectors for inspectors in INSPECTORS.get() if inspectors is not block_inspectors))
