"""Models and batches that are timed: ours, and transformers' BERT and ModernBERT of the same shape."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

import whatwhere as ww
from whatwhere.encoder import EncoderConfig
from whatwhere.training.environment import is_bf16_faster

from .timing import DEVICE

VOCAB = {"full": 30_522, "quick": 30_522, "micro": 300}  # bert-base-uncased
MASKED = 0.15
PRECISION = "bf16" if is_bf16_faster(DEVICE) else "float32"


def autocast(precision: str = PRECISION) -> AbstractContextManager[Any]:
    """The same precision for both sides of a ratio."""
    return torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == "bf16")


def masked_batch(vocab: int, b: int, n: int, padded: bool = False) -> dict[str, torch.Tensor]:
    """Random ids and labels (b, n): [CLS] first, [SEP] last and, as in run-on windows, at a place of its own in each
    row."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocab, (b, n), generator=generator)
    ids.scatter_(1, torch.randint(1, n - 1, (b, 1), generator=generator), 3)
    ids[:, 0] = 2
    ids[:, -1] = 3
    chosen = torch.rand(b, n, generator=generator) < MASKED
    chosen[:, 1] = True
    batch = {"input_ids": ids}
    if padded:
        batch["attention_mask"] = torch.ones_like(ids)
        batch["attention_mask"][-1, n // 2 :] = 0
        chosen &= batch["attention_mask"].bool()
    batch["labels"] = torch.where(chosen, ids, -100)
    return {key: value.to(DEVICE) for key, value in batch.items()}


def ours(config: EncoderConfig, backend: str = "sdpa") -> ww.EncoderForMaskedLM:
    """Our model with its masked-language head."""
    torch.manual_seed(0)
    model = ww.EncoderForMaskedLM(config).to(DEVICE).train()
    model.set_attn_implementation(backend)
    return model


def theirs(name: str, config: EncoderConfig, sparse: bool = False) -> Any:
    """transformers' "bert" or "modernbert" with sdpa, in the shape and dropout of `config`, full attention in every
    layer."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "pad_token_id": 0,
        "tie_word_embeddings": config.tie_word_embeddings,
        "attn_implementation": "sdpa",
    }
    if name == "bert":
        drop = {"hidden_dropout_prob": config.dropout, "attention_probs_dropout_prob": config.dropout}
        model: Any = BertForMaskedLM(BertConfig(**shape, **drop))
    else:
        drop = {"attention_dropout": config.dropout, "embedding_dropout": config.dropout, "mlp_dropout": config.dropout}
        full = {"layer_types": ["full_attention"] * config.num_hidden_layers, "sparse_prediction": sparse}
        ids = {"cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
        model = ModernBertForMaskedLM(ModernBertConfig(**shape, **drop, **full, **ids))
    return model.to(DEVICE).train()


def options(model: Any) -> dict[str, Any]:
    """Further arguments of a masked-language model in training, as the package's own loop gives them."""
    return {"targets_only": True} if isinstance(model, ww.EncoderForMaskedLM) else {}


def training_step(model: Any, batch: dict[str, torch.Tensor], precision: str = PRECISION) -> Callable[[], None]:
    """Forward, backward, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with autocast(precision):
            loss = model(**batch, **options(model)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def parameters(model: torch.nn.Module) -> int:
    """Parameters, shared ones once."""
    return sum(p.numel() for p in model.parameters())
