"""Small trainings by `transformers.Trainer`: models with every head, rows with labels that can be learned."""

import torch
from encoder_models import VOCAB
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import set_seed

import whatwhere as ww

N = 12
HEADS = {
    "words": ww.EncoderForMaskedLM,
    "sequence": ww.EncoderForSequenceClassification,
    "token": ww.EncoderForTokenClassification,
    "answers": ww.EncoderForQuestionAnswering,
    "choices": ww.EncoderForMultipleChoice,
}


def small(preset: str = "dstg", **fields) -> ww.EncoderConfig:
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32}
    if preset == "dstg":
        sizes |= {"position_size": 8}
    return ww.preset(preset, "tiny", vocab_size=VOCAB, num_labels=3, **(sizes | fields))


def model_of(head: str, **fields):
    set_seed(5)
    if head == "choices":  # scores of texts move by what tells them apart, and that is little in small weights
        fields = {"initializer_range": 0.3} | fields
    return HEADS[head](small(**fields))


def rows(head: str, count: int = 32) -> list[dict[str, torch.Tensor]]:
    """Rows with labels that can be learned; row i of words or tokens has labels at i % 5 + 1 tokens."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, VOCAB, (count, N), generator=generator)
    if head == "words":  # each word follows from the one after it
        ids = 5 + torch.arange(N) + 12 * (torch.arange(count) % 2)[:, None]
    ids[:, 0] = 2
    ids[:, -1] = 3
    if head == "choices":  # of three texts the right one has words of its own
        right = torch.arange(count) % 3
        ids = ids[:, None].repeat(1, 3, 1)
        ids[..., 1:-1] = torch.where(torch.arange(3) == right[:, None], 5, 6)[..., None]
        columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": right}
        return [{name: column[i] for name, column in columns.items()} for i in range(count)]
    few = torch.arange(N) <= (torch.arange(count) % 5)[:, None] + 1
    few[:, 0] = False
    columns = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if head == "words":
        columns |= {"input_ids": ids.masked_fill(few, 4), "labels": ids.masked_fill(~few, -100)}
    elif head == "sequence":
        columns["labels"] = ids[:, 1] % 3
    elif head == "token":
        columns["labels"] = (ids % 3).masked_fill(~few, -100)
    else:
        columns |= {"start_positions": ids[:, 1] % 5 + 1, "end_positions": ids[:, 1] % 5 + 3}
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def trainer(model, data, out, **options) -> Trainer:
    given = {"per_device_train_batch_size": 16, "per_device_eval_batch_size": 16, "max_steps": 3, "seed": 1}
    given |= {"learning_rate": 0.05, "optim": "sgd", "max_grad_norm": 0.0, "save_strategy": "no"}
    given |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "dataloader_pin_memory": False}
    metrics = options.pop("compute_metrics", None)
    arguments = TrainingArguments(str(out), **(given | options))
    return Trainer(model, arguments, train_dataset=data, eval_dataset=data, compute_metrics=metrics)


def moved(one, other) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)
