"""`transformers.Trainer` with every head: accumulation, evaluation, bf16, saving and resuming."""

import pytest
import torch
from encoder_models import VOCAB
from hf_training import HEADS, N, model_of, moved, rows, trainer
from torch.nn import functional as F

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("head", HEADS)
def test_accumulated_parts_equal_the_whole_batch(head, tmp_path):
    """Four parts of four rows with unequal numbers of labels train the weights of one batch of sixteen.

    Trainer failed on `num_items_in_batch`.
    """
    whole, parts, start = (model_of(head).double() for _ in range(3))
    trainer(whole, rows(head), tmp_path).train()
    given = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    trainer(parts, rows(head), tmp_path, **given).train()
    assert moved(whole, start) > 1e-3
    assert moved(whole, parts) < 1e-12


def test_means_of_parts_are_another_training(tmp_path):
    """The rows above tell a mean over parts from a mean over labels."""
    models = [model_of("words").double() for _ in range(2)]
    models[1].accepts_loss_kwargs = False
    for model in models:
        trainer(model, rows("words"), tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=4).train()
    assert moved(*models) > 1e-4


@pytest.mark.parametrize("problem", ["regression", "single_label_classification", "multi_label_classification"])
def test_losses_of_parts_add_up(problem):
    model = model_of("sequence", problem_type=problem).double().eval()
    ids = torch.stack([row["input_ids"] for row in rows("sequence", 7)])
    labels = ids[:, 1] % 3
    if problem != "single_label_classification":
        labels = F.one_hot(labels, 3).double()
    whole = model(ids, labels=labels).loss
    parts = [slice(0, 2), slice(2, 7)]
    total = sum(model(ids[p], labels=labels[p], num_items_in_batch=labels.numel()).loss for p in parts)
    torch.testing.assert_close(total, whole, rtol=1e-12, atol=1e-12)


def test_a_part_without_labels_adds_nothing():
    """The mean over no labels was no number, and one such part spoilt an accumulated step."""
    model = model_of("sequence", problem_type="single_label_classification").double().eval()
    ids = torch.stack([row["input_ids"] for row in rows("sequence", 2)])
    loss = model(ids, labels=torch.full((2,), -100), num_items_in_batch=5).loss
    loss.backward()
    assert loss == 0 and all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("head", HEADS)
def test_training_resumes_to_the_same_weights(head, tmp_path):
    """A training resumed from its saved middle ends as the uninterrupted one, and its folder opens as it is."""
    given = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3, "optim": "adamw_torch", "learning_rate": 1e-3}
    whole = model_of(head, dropout=0.1)
    trainer(whole, rows(head), tmp_path, **given).train()
    again = HEADS[head].from_pretrained(tmp_path / "checkpoint-3")
    assert moved(again, whole) > 1e-4
    resumed = trainer(again, rows(head), tmp_path, **given)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert moved(resumed.model, whole) == 0.0
    assert moved(HEADS[head].from_pretrained(tmp_path / "checkpoint-6"), whole) == 0.0


@pytest.mark.parametrize("head", HEADS)
def test_training_in_bf16_lowers_the_loss(head, tmp_path):
    model = model_of(head, preset="rope")
    given = {"optim": "adamw_torch", "learning_rate": 5e-3, "max_steps": 60, "bf16": True, "bf16_full_eval": False}
    training = trainer(model, rows(head), tmp_path, **given)
    before = training.evaluate()["eval_loss"]
    training.train()
    assert training.evaluate()["eval_loss"] < 0.5 * before
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_metrics_of_words_see_logits_of_every_token(tmp_path):
    """Metrics of a masked-language model get logits and labels of one shape, and the loss is by hand.

    With labels `logits` held the labelled tokens alone, so metrics failed.
    """
    model = model_of("words").eval()
    seen = {}

    def metrics(predicted):
        logits = torch.tensor(predicted.predictions)
        labels = torch.tensor(predicted.label_ids)
        seen.update(logits=logits, labels=labels)
        chosen = labels != -100
        return {"right": float((logits.argmax(-1) == labels)[chosen].float().mean())}

    data = rows("words", 20)
    found = trainer(model, data, tmp_path, compute_metrics=metrics).evaluate()
    batch = {name: torch.stack([row[name] for row in data]) for name in data[0]}
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits
    assert seen["logits"].shape == (20, N, VOCAB) and torch.equal(seen["labels"], labels)
    torch.testing.assert_close(seen["logits"], logits)
    chosen = labels != -100
    assert found["eval_right"] == pytest.approx(float((logits.argmax(-1) == labels)[chosen].float().mean()))
    # Trainer averages the means of its batches by their rows: 16 and 4 of them.
    means = [F.cross_entropy(logits[p].flatten(0, 1), labels[p].flatten()) for p in (slice(16), slice(16, 20))]
    assert found["eval_loss"] == pytest.approx(float(means[0] * 16 + means[1] * 4) / 20, rel=1e-5)
