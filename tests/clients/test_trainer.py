"""transformers.Trainer trains, evaluates, saves and resumes every head."""

from pathlib import Path
from typing import Any

import pytest
import torch
from client_tasks import HEADS, as_batch, assert_falls, rows_of, scores_of
from transformers import EvalPrediction, Trainer, TrainingArguments, set_seed

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def trainer_of(head: str, folder: Path, out: Path, tokenizer: Any, texts: list[str], **options: Any) -> Trainer:
    set_seed(0)
    model = HEADS[head].from_pretrained(folder)
    defaults = {"learning_rate": 1e-3, "per_device_train_batch_size": 8, "logging_steps": 1, "save_strategy": "no"}
    fixed = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "lr_scheduler_type": "constant"}
    arguments = TrainingArguments(str(out), **fixed, **(defaults | options))
    rows = rows_of(head, tokenizer, texts)
    return Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)


def losses_of(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("head", HEADS)
def test_every_head_trains_and_reopens(head, folder, tokenizer, texts, tmp_path):
    """The loss falls by more than its noise, and the saved model has the logits of the trained one."""
    trainer = trainer_of(head, folder, tmp_path / "run", tokenizer, texts, max_steps=30)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert_falls(losses_of(trainer))
    assert trainer.evaluate()["eval_loss"] < before
    trainer.save_model(tmp_path / "model")
    batch = as_batch(rows_of(head, tokenizer, texts[:8]))
    reopened = HEADS[head].from_pretrained(tmp_path / "model").eval()
    assert torch.equal(scores_of(reopened(**batch)), scores_of(trainer.model.eval()(**batch)))


@pytest.mark.parametrize("head", HEADS)
def test_resumed_training_ends_with_the_same_weights(head, folder, tokenizer, texts, tmp_path):
    """Three steps and three more from the checkpoint are the six steps of one run, bit for bit."""
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    whole = trainer_of(head, folder, tmp_path, tokenizer, texts, **options)
    whole.train()
    resumed = trainer_of(head, folder, tmp_path, tokenizer, texts, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert resumed.state.global_step == 6
    expected = whole.model.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in resumed.model.state_dict().items())


@pytest.mark.parametrize("head", ["masked", "labels", "tokens"])
def test_accumulated_gradients_are_those_of_one_batch(head, folder, tokenizer, texts, tmp_path):
    """Rows with different numbers of labels: every label has the same weight, in whichever part it comes.

    Trainer gives the number of labels of all parts (`num_items_in_batch`), by which a part divides its sum of losses.
    """
    ends = []
    for size, parts in ((8, 1), (2, 4)):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": parts, "max_steps": 1}
        plain = {"optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0}
        trainer = trainer_of(head, folder, tmp_path, tokenizer, texts, **options, **plain)
        start = {key: value.clone() for key, value in trainer.model.state_dict().items()}
        trainer.train()
        ends.append({key: value - start[key] for key, value in trainer.model.state_dict().items()})
    moved = max(float(value.abs().max()) for value in ends[0].values())
    apart = max(float((value - ends[1][key]).abs().max()) for key, value in ends[0].items())
    assert moved > 1e-3
    assert apart < 1e-4 * moved


def test_metrics_see_masked_logits_beside_their_labels(folder, tokenizer, texts, tmp_path):
    """`compute_metrics` gets logits (rows, tokens, vocabulary) for labels (rows, tokens), and finds the accuracy."""

    def accuracy(prediction: EvalPrediction) -> dict[str, float]:
        chosen = prediction.label_ids != -100
        return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids)[chosen].mean())}

    trainer = trainer_of("masked", folder, tmp_path, tokenizer, texts)
    trainer.compute_metrics = accuracy
    batch = as_batch(rows_of("masked", tokenizer, texts))
    with torch.no_grad():
        logits = trainer.model.eval()(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    chosen = batch["labels"] != -100
    expected = (logits.argmax(-1) == batch["labels"])[chosen].float().mean()
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(float(expected), abs=1e-6)


def test_training_in_bfloat16_lowers_the_loss(folder, tokenizer, texts, tmp_path):
    """Autocast to bfloat16 trains the masked-language model."""
    trainer = trainer_of("masked", folder, tmp_path, tokenizer, texts, max_steps=30, bf16=True)
    trainer.train()
    assert_falls(losses_of(trainer))


def test_gradient_checkpointing_changes_no_loss(folder, tokenizer, texts, tmp_path):
    """Activations that are computed again give the losses of those that were kept."""
    losses = []
    for again in (False, True):
        options = {"max_steps": 5, "gradient_checkpointing": again}
        trainer = trainer_of("masked", folder, tmp_path, tokenizer, texts, **options)
        trainer.train()
        assert trainer.model.is_gradient_checkpointing == again
        losses.append(losses_of(trainer))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
