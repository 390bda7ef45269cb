"""Heads of the encoder: predictions from its hidden states (b, n, hidden_size)."""

from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import (
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from .config import EncoderConfig
from .inputs import pair_mask_of, visible_tokens
from .model import Encoder, EncoderPreTrainedModel, StateChoice


class ForwardOptions(TypedDict, total=False):
    """Further inputs and outputs of a forward pass (`Encoder.forward`).

    Every head also takes `return_dict` (False: a tuple).
    """

    special_tokens_mask: Tensor | None
    token_type_ids: Tensor | None
    output_hidden_states: StateChoice
    output_attentions: bool | None
    head_mask: None
    use_cache: bool | None


class EncoderWithHead(EncoderPreTrainedModel):
    """Base class of models for a task: an encoder and a head.

    Each of them takes `num_items_in_batch`, the number of labels in a whole batch of which its inputs are a part, as
    `transformers.Trainer` gives it: the loss is then a sum divided by this number, so that the losses of micro-batches
    add up to the loss of the whole batch.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)

    def position_table(self) -> Tensor | None:
        """Return the position table of the encoder, (positions, width): see `Encoder.position_table`."""
        return self.encoder.position_table()

    def attention_terms(self, **inputs: Any) -> dict[str, Tensor]:
        """Compute the attention terms of the encoder, (blocks, b, h, n, n) each: see `Encoder.attention_terms`."""
        return self.encoder.attention_terms(**inputs)

    def inspect_terms(self, inspector: Any) -> Any:
        """Inspect the attention terms of the encoder: see `Encoder.inspect_terms`."""
        return self.encoder.inspect_terms(inspector)

    def _encode(
        self, input_ids: Tensor | None, *inputs: Tensor | None, **kwargs: Unpack[ForwardOptions]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the last hidden state, and the further outputs that every head returns."""
        names = ("attention_mask", "position_ids", "document_ids", "inputs_embeds")
        output = self.encoder(input_ids, **dict(zip(names, inputs, strict=True)), **kwargs, return_dict=True)
        return output.last_hidden_state, {"hidden_states": output.hidden_states, "attentions": output.attentions}


def mean_cross_entropy(logits: Tensor, targets: Tensor, count: Tensor | int | None = None) -> Tensor:
    """Compute the mean cross-entropy in nats of logits (m, c) and class numbers (m,).

    It is computed in at least float32, and 0 if m is 0.

    count: number that divides the sum in place of m: the targets of a whole batch of which these are a part.
    """
    logits32 = logits.to(torch.promote_types(logits.dtype, torch.float32))
    count = max(targets.numel(), 1) if count is None else _count_on(logits.device, count)
    return F.cross_entropy(logits32, targets, reduction="sum") / count


def _count_on(device: torch.device, count: Tensor | int) -> Tensor | int:
    return count.to(device) if isinstance(count, Tensor) else count


class VocabularyTransform(nn.Module):
    """BERT's transform before the vocabulary: a dense layer, GELU, LayerNorm (Devlin et al. 2018, their code)."""

    def __init__(self, width_in: int, width_out: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width_in, width_out)
        self.norm = nn.LayerNorm(width_out, eps=eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform hidden states (..., width_in) to (..., width_out)."""
        return self.norm(F.gelu(self.dense(hidden)))


class MaskedLMHead(nn.Module):
    """Head from hidden states to vocabulary logits, from the semantic stream or from all streams (DSTG 3.3, B.2).

    `decoder` reads the semantic stream and may share the word embedding. With mlm_head=full, `position_decoder` reads
    the position stream; together they are one linear map of the whole hidden state. With BERT's block, `decoder` reads
    the output of BERT's `transform`, which with mlm_head=full reads the whole hidden state in place of a
    `position_decoder`.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        d_pos = config.position_size
        d_sem = config.semantic_size
        reads_positions = config.mlm_head == "full" and d_pos > 0
        is_bert = config.block == "bert"
        self.position_size = d_pos
        self.first_column = 0 if reads_positions and is_bert else d_pos
        width = config.hidden_size - self.first_column
        self.transform = VocabularyTransform(width, d_sem, config.norm_eps) if is_bert else None
        self.decoder = nn.Linear(d_sem, config.vocab_size)
        has_position_decoder = reads_positions and not is_bert
        self.position_decoder = nn.Linear(d_pos, config.vocab_size, bias=False) if has_position_decoder else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., vocab_size) of hidden states (..., hidden_size)."""
        columns = hidden[..., self.first_column :]
        logits = self.decoder(columns if self.transform is None else self.transform(columns))
        if self.position_decoder is not None:
            logits = logits + self.position_decoder(hidden[..., : self.position_size])
        return logits


class EncoderForMaskedLM(EncoderWithHead):
    """Encoder with the masked-language-modelling head."""

    _tied_weights_keys = {"head.decoder.weight": "encoder.word_embeddings.weight"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        """Return the output layer, which may share its weight with the word embedding."""
        return self.head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        """Replace the output layer."""
        self.head.decoder = value

    def _resize_token_embeddings(self, *arguments: Any, **options: Any) -> nn.Embedding:
        """Resize `position_decoder`, too, which transformers does not know."""
        embeddings = super()._resize_token_embeddings(*arguments, **options)
        if (positions := self.head.position_decoder) is not None:
            self.head.position_decoder = self._get_resized_lm_head(positions, embeddings.num_embeddings)
        return embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        targets_only: bool = False,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[ForwardOptions],
    ) -> MaskedLMOutput:
        """Predict masked tokens from the inputs of `Encoder.forward`: `logits` (b, n, V).

        Args:
            labels: (b, n) token ids, -100 where the loss ignores a token. With labels the output has a `loss`, the mean
                cross-entropy in nats over the labelled tokens, 0 if there is none.
            targets_only: with labels, project the labelled tokens alone to the vocabulary: `logits` (m, V) in reading
                order. The loss is the same, for less work and memory.
            num_items_in_batch: see `EncoderWithHead`.

        Raises:
            ValueError: labels of another shape than the ids; or as `Encoder.forward`.
        """
        hidden, rest = self._encode(input_ids, attention_mask, position_ids, document_ids, inputs_embeds, **kwargs)
        if labels is None:
            return MaskedLMOutput(logits=self.head(hidden), **rest)
        if labels.shape != hidden.shape[:2]:
            raise ValueError(
                f"labels must have the shape of input_ids, {tuple(hidden.shape[:2])}; got {tuple(labels.shape)}."
            )
        chosen = labels != -100
        logits = self.head(hidden[chosen] if targets_only else hidden)
        labelled = logits if targets_only else logits[chosen]
        loss = mean_cross_entropy(labelled, labels[chosen], num_items_in_batch)
        return MaskedLMOutput(loss=loss, logits=logits, **rest)


def _num_labels(config: EncoderConfig) -> int:
    assert config.num_labels is not None  # transformers counts id2label, two entries unless given
    return config.num_labels


def first_state(hidden: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return the state (b, hidden_size) of the first token of each text; padding may stand on either side.

    hidden: (b, n, hidden_size). attention_mask: as of `Encoder.forward`.

    Raises:
        ValueError: on a CPU, numbers in a mask of pairs that neither allow nor hide.
    """
    if attention_mask is None:
        return hidden[:, 0]
    if attention_mask.dim() == 4:
        attention_mask = visible_tokens(pair_mask_of(attention_mask, *hidden.shape[:2]))
    return hidden[torch.arange(hidden.shape[0]), attention_mask.long().argmax(-1)]


class TextClassificationHead(nn.Module):
    """BERT's pooler and classifier: dense, tanh, dropout, linear.

    They are one module, `classifier`, as in RoBERTa, because PEFT saves a module of that name beside its adapter.
    """

    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.out_proj = nn.Linear(config.hidden_size, outputs)

    def forward(self, state: Tensor) -> Tensor:
        """Return the scores (b, outputs) of the first tokens' states (b, hidden_size)."""
        return self.out_proj(self.dropout(torch.tanh(self.dense(state))))


class EncoderForSequenceClassification(EncoderWithHead):
    """Encoder with a classifier of texts on the first token ([CLS]), as BERT: dense, tanh, classifier."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.classifier = TextClassificationHead(config, _num_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[ForwardOptions],
    ) -> SequenceClassifierOutput:
        """Predict `logits` (b, num_labels) of texts from the inputs of `Encoder.forward`.

        Args:
            labels: class numbers (b,), -100 where the loss ignores a text, or numbers (b,) or (b, num_labels) to
                regress, or 0.0 and 1.0 (b, num_labels) for several labels at once. As in transformers,
                `config.problem_type` says which; if unset, one label means regression, and whole numbers mean classes.
                With labels the output has a `loss`: the mean cross-entropy in nats, the mean squared error, or the mean
                binary cross-entropy in nats.
            num_items_in_batch: see `EncoderWithHead`.

        Raises:
            ValueError: as `Encoder.forward`.
        """
        hidden, rest = self._encode(input_ids, attention_mask, position_ids, document_ids, inputs_embeds, **kwargs)
        logits = self.classifier(first_state(hidden, attention_mask))
        if labels is None:
            return SequenceClassifierOutput(logits=logits, **rest)
        # It sets `problem_type` where that is unset, so it is called even if another loss replaces this one.
        loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        if num_items_in_batch is not None and self.config.problem_type == "single_label_classification":
            # A part of the batch may have no labels, and their mean would be NaN.
            loss = mean_cross_entropy(logits, labels.view(-1), num_items_in_batch)
        elif num_items_in_batch is not None:
            loss = loss * (labels != -100).sum() / _count_on(logits.device, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, **rest)


class EncoderForMultipleChoice(EncoderWithHead):
    """Encoder with a score of each of several texts, by their first token ([CLS]), as BERT."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.classifier = TextClassificationHead(config, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[ForwardOptions],
    ) -> MultipleChoiceModelOutput:
        """Predict `logits` (b, choices) from the inputs of `Encoder.forward`, with a choices axis behind the batch.

        Token inputs are (b, choices, n), vectors (b, choices, n, semantic_size).

        Args:
            labels: (b,), the number of the right choice, -100 for none; with them the output has a `loss` in nats.
            num_items_in_batch: see `EncoderWithHead`.

        Raises:
            ValueError: no input, or ids without an axis of choices; or as `Encoder.forward`.
        """
        model_input = input_ids if input_ids is not None else inputs_embeds
        if model_input is None or model_input.dim() < 3:
            shape = None if model_input is None else tuple(model_input.shape)
            raise ValueError(f"input_ids must have shape (batch, choices, tokens); got {shape}.")
        choices = model_input.shape[1]
        by_choice = (input_ids, attention_mask, position_ids, document_ids, inputs_embeds)
        inputs = [None if x is None else x.flatten(0, 1) for x in by_choice]
        for name in ("special_tokens_mask", "token_type_ids"):
            if isinstance(tensor := kwargs.get(name), Tensor):
                kwargs[name] = tensor.flatten(0, 1)  # type: ignore[literal-required]
        hidden, rest = self._encode(*inputs, **kwargs)
        logits = self.classifier(first_state(hidden, inputs[1])).view(-1, choices)
        if labels is None:
            return MultipleChoiceModelOutput(logits=logits, **rest)
        chosen = labels != -100
        loss = mean_cross_entropy(logits[chosen], labels[chosen], num_items_in_batch)
        return MultipleChoiceModelOutput(loss=loss, logits=logits, **rest)


class EncoderForTokenClassification(EncoderWithHead):
    """Encoder with a classifier of tokens: dropout and a linear map of each hidden state."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.hidden_size, _num_labels(config))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[ForwardOptions],
    ) -> TokenClassifierOutput:
        """Predict `logits` (b, n, num_labels) of tokens from the inputs of `Encoder.forward`.

        Args:
            labels: (b, n) class numbers, -100 for tokens without a label; with them the output has a `loss`, the mean
                cross-entropy in nats over the labelled tokens, 0 if there is none.
            num_items_in_batch: see `EncoderWithHead`.

        Raises:
            ValueError: as `Encoder.forward`.
        """
        hidden, rest = self._encode(input_ids, attention_mask, position_ids, document_ids, inputs_embeds, **kwargs)
        logits = self.classifier(self.dropout(hidden))
        chosen = None if labels is None else labels != -100
        loss = None if labels is None else mean_cross_entropy(logits[chosen], labels[chosen], num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits, **rest)


class EncoderForQuestionAnswering(EncoderWithHead):
    """Encoder with a head for answers in the text: a start and an end score of each token, by one linear map."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Unpack[ForwardOptions],
    ) -> QuestionAnsweringModelOutput:
        """Predict `start_logits` and `end_logits` (b, n) of the answer from the inputs of `Encoder.forward`.

        Args:
            start_positions, end_positions: (b,), the answer's first and last token; n or more: ignored; negative
                numbers count as 0, as in transformers. With both the output has a `loss`: the mean of their two
                cross-entropies, in nats.
            num_items_in_batch: see `EncoderWithHead`. It counts answers.

        Raises:
            ValueError: one of start_positions and end_positions without the other; or as `Encoder.forward`.
        """
        if (start_positions is None) != (end_positions is None):
            raise ValueError("A loss needs both start_positions and end_positions; got one of them.")
        hidden, rest = self._encode(input_ids, attention_mask, position_ids, document_ids, inputs_embeds, **kwargs)
        start, end = self.qa_outputs(hidden).unbind(-1)
        options = {} if num_items_in_batch is None else {"num_items_in_batch": num_items_in_batch}
        return QuestionAnsweringModelOutput(
            loss=self.loss_function(start, end, start_positions, end_positions, **options),
            start_logits=start.contiguous(),
            end_logits=end.contiguous(),
            **rest,
        )
