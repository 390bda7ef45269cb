"""Heads on the encoder: what a model predicts from its hidden states."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import MaskedLMOutput

from .config import EncoderConfig
from .model import Encoder, EncoderPreTrainedModel


class MaskedLMHead(nn.Module):
    """Vocabulary logits from the semantic stream, or from all of hidden with a projection per stream (DSTG 3.3, B.2).

    `decoder` reads the semantic stream and may share the word embedding; `position_decoder` exists only for `full`. Together
    they are one linear map of the whole hidden state.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.position_size = config.position_size
        self.decoder = nn.Linear(config.semantic_size, config.vocab_size)
        full = config.mlm_head == "full" and config.position_size
        self.position_decoder = nn.Linear(config.position_size, config.vocab_size, bias=False) if full else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (..., vocab_size) of hidden states (..., hidden_size)."""
        logits = self.decoder(hidden[..., self.position_size :])
        if self.position_decoder is not None:
            logits = logits + self.position_decoder(hidden[..., : self.position_size])
        return logits


class EncoderForMaskedLM(EncoderPreTrainedModel):
    """Encoder with the masked-language-modelling head; the vocabulary is projected at masked tokens only."""

    _tied_weights_keys = {"head.decoder.weight": "encoder.word_embeddings.weight"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.encoder = Encoder(config)
        self.head = MaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        self.head.decoder = value

    def position_table(self) -> Tensor | None:
        """See `Encoder.position_table`."""
        return self.encoder.position_table()

    def attention_terms(self, **inputs: Any) -> dict[str, Tensor]:
        """See `Encoder.attention_terms`."""
        return self.encoder.attention_terms(**inputs)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_all_logits: bool = False,
        return_dict: bool | None = None,
    ) -> MaskedLMOutput | tuple[Any, ...]:
        """Predict masked tokens; the inputs of `Encoder.forward` and two more.

        Args:
            labels: (b, n) token ids, -100 where nothing is predicted. With labels: `loss` (mean cross-entropy in nats over the
                labelled tokens, 0 if there is none) and `logits` (m, V) of the labelled tokens only, in reading order.
            return_all_logits: with labels, return logits (b, n, V) nevertheless. Without labels they always are.
        """
        output = self.encoder(
            input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            document_ids=document_ids,
            output_hidden_states=output_hidden_states,
            output_attentions=output_attentions,
        )
        hidden, loss = output.last_hidden_state, None
        if labels is None:
            logits = self.head(hidden)
        else:
            if labels.shape != input_ids.shape:
                raise ValueError(f"labels must have the shape of input_ids, {tuple(input_ids.shape)}; got {tuple(labels.shape)}.")
            chosen = labels != -100
            logits, targets = self.head(hidden[chosen]), labels[chosen]
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            loss = F.cross_entropy(wide, targets, reduction="sum") / max(targets.numel(), 1)
            if return_all_logits:
                logits = self.head(hidden)
        result = MaskedLMOutput(loss=loss, logits=logits, hidden_states=output.hidden_states, attentions=output.attentions)
        return result if return_dict is not False else result.to_tuple()
