"""Adapters of peft reach every linear map of a model, train, and reload to equal logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from client_tasks import HEADS, as_batch, assert_falls, rows_of, scores_of
from torch import nn

peft = pytest.importorskip("peft", reason="make clients has it")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# peft knows no masked-language head: None adapts it, too. Choices are scored by the head of texts.
TASKS = {"masked": None, "labels": "SEQ_CLS", "tokens": "TOKEN_CLS", "answers": "QUESTION_ANS", "choices": "SEQ_CLS"}


def linear_names(model: nn.Module) -> list[str]:
    """The linear maps of the blocks: queries, keys, values, outputs and the feed-forward."""
    return [name for name, part in model.named_modules() if isinstance(part, nn.Linear) and ".layers." in name]


def train(model: nn.Module, batch: dict[str, torch.Tensor], steps: int = 30) -> list[float]:
    chosen = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=5e-3)
    losses = []
    model.train()
    for _ in range(steps):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    model.eval()
    return losses


def opened(head: str, folder: Path) -> nn.Module:
    torch.manual_seed(7)  # of the head's weights, which the folder does not hold
    return HEADS[head].from_pretrained(folder)


@pytest.mark.parametrize("head", HEADS)
def test_reloaded_adapter_has_equal_logits(head, folder, tokenizer, texts, tmp_path):
    """A trained adapter, put on the folder's model in a new draw of its head, gives the logits that it gave."""
    batch = as_batch(rows_of(head, tokenizer, texts[:16]))
    # peft trains these heads whole and, unlike that of texts, does not leave them out of "all-linear" (BERT's neither).
    heads = ["classifier", "qa_outputs"] if head in ("tokens", "answers") else None
    config = peft.LoraConfig(task_type=TASKS[head], target_modules="all-linear", exclude_modules=heads, r=4)
    model = peft.get_peft_model(opened(head, folder), config).eval()
    before = scores_of(model(**batch))
    assert_falls(train(model, batch))
    after = scores_of(model(**batch))
    assert float((after - before).abs().max()) > 0.1
    model.save_pretrained(tmp_path)
    torch.manual_seed(99)
    again = peft.PeftModel.from_pretrained(HEADS[head].from_pretrained(folder), tmp_path).eval()
    assert torch.equal(scores_of(again(**batch)), after)


def method(kind: str, names: list[str]) -> Any:
    feed_forward = [name for name in names if ".attention." not in name]
    if kind == "ia3":
        return peft.IA3Config(task_type="TOKEN_CLS", target_modules=names, feedforward_modules=feed_forward)
    if kind == "loha":
        return peft.LoHaConfig(task_type="TOKEN_CLS", target_modules=names, r=4)
    return peft.LoraConfig(task_type="TOKEN_CLS", target_modules=names, r=4, use_dora=kind == "dora")


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3", "loha"])
def test_method_adapts_every_map_and_merges(kind, folder, tokenizer, texts):
    """Every linear map of the blocks gets an adapter that moves, and merged weights give the adapted logits."""
    batch = as_batch(rows_of("tokens", tokenizer, texts[:16]))
    base = opened("tokens", folder)
    names = linear_names(base)
    assert any(".attention." in name for name in names) and any(".attention." not in name for name in names)
    model = peft.get_peft_model(base, method(kind, names))
    start = {key: value.clone() for key, value in model.named_parameters() if value.requires_grad}
    assert_falls(train(model, batch))
    moved = {key for key, value in model.named_parameters() if key in start and not torch.equal(value, start[key])}
    for name in names:
        assert any(name in key for key in moved), f"no adapter of {name} moved"
    adapted = scores_of(model(**batch))
    merged = scores_of(model.merge_and_unload().eval()(**batch))
    torch.testing.assert_close(merged, adapted, rtol=1e-4, atol=1e-4)
