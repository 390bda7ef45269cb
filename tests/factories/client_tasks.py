"""Rows for every head that a client trains, and when a loss has fallen by more than its noise."""

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
)

HEADS = {
    "masked": AutoModelForMaskedLM,
    "labels": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
    "answers": AutoModelForQuestionAnswering,
    "choices": AutoModelForMultipleChoice,
}
LENGTH = 24


def rows_of(head: str, tokenizer: PreTrainedTokenizerFast, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row of equal length for each text, with a target that the text's own tokens decide.

    Labels say if the first word's id is even, tokens if theirs is; an answer is the first word. Masked tokens are every
    third, so that rows have different numbers of them. The right one of two choices, a text and the one before it, has
    the larger first id.
    """
    encoded = tokenizer(list(texts), padding="max_length", truncation=True, max_length=LENGTH)
    rows = []
    for ids, mask in zip(encoded["input_ids"], encoded["attention_mask"], strict=True):
        row: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
        is_text = [bool(m) and i not in tokenizer.all_special_ids for i, m in zip(ids, mask, strict=True)]
        if head == "masked":
            chosen = [t and number % 3 == 1 for number, t in enumerate(is_text)]
            row["labels"] = [i if c else -100 for i, c in zip(ids, chosen, strict=True)]
            row["input_ids"] = [tokenizer.mask_token_id if c else i for i, c in zip(ids, chosen, strict=True)]
        elif head == "labels":
            row["labels"] = ids[1] % 2
        elif head == "tokens":
            row["labels"] = [i % 2 if t else -100 for i, t in zip(ids, is_text, strict=True)]
        elif head == "answers":
            row |= {"start_positions": 1, "end_positions": 1}
        rows.append(row)
    if head == "choices":
        return [_choices(pair) for pair in zip(rows, [rows[-1], *rows], strict=False)]
    return rows


def _choices(pair: Sequence[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {key: [choice[key] for choice in pair] for key in ("input_ids", "attention_mask")}
    return row | {"labels": int(pair[1]["input_ids"][1] > pair[0]["input_ids"][1])}


def as_batch(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Return rows of equal length as one batch."""
    return {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}


def scores_of(output: Any) -> torch.Tensor:
    """Return the logits of a head, those of an answer's start and end side by side."""
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], dim=-1).detach()
    return output.logits.detach()


def assert_falls(losses: Sequence[float]) -> None:
    """Assert that the last third of the losses lies below the first by more than four standard errors of the two."""
    third = len(losses) // 3
    first = losses[:third]
    last = losses[-third:]
    error = ((statistics.variance(first) + statistics.variance(last)) / third) ** 0.5
    fall = statistics.mean(first) - statistics.mean(last)
    assert fall > 4 * error > 0, f"fell by {fall:.4f}, four standard errors are {4 * error:.4f}"
