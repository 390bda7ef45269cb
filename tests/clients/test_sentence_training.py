"""sentence-transformers trains a saved model, alone and as a pair classifier, and SetFit trains it on few texts."""

import pytest
import torch
from client_tasks import assert_falls
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
)
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

OPTIONS = {"max_steps": 30, "per_device_train_batch_size": 8, "learning_rate": 5e-4, "logging_steps": 1, "seed": 0}
OPTIONS |= {"report_to": [], "use_cpu": True, "save_strategy": "no", "disable_tqdm": True}


def losses_of(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def halves(texts: list[str]) -> tuple[list[str], list[str]]:
    """The even and the odd words of each text, twelve of each."""
    words = [text.split() for text in texts]
    return [" ".join(w[::2][:12]) for w in words], [" ".join(w[1::2][:12]) for w in words]


def labelled_texts(texts: list[str]) -> list[tuple[str, int]]:
    """Forty-eight texts of six words, of one half of the vocabulary or of the other."""
    words = sorted({word.strip(".").lower() for text in texts for word in text.split()})
    kinds = words[: len(words) // 2], words[len(words) // 2 :]
    draw = torch.Generator().manual_seed(0)
    return [
        (" ".join(kinds[label][int(i)] for i in torch.randint(len(kinds[label]), (6,), generator=draw)), label)
        for _ in range(24)
        for label in (0, 1)
    ]


def test_ranking_loss_falls_and_vectors_reload(folder, texts, tmp_path):
    """Two halves of a text come closer than halves of others; the saved encoder has the trained one's vectors."""
    model = SentenceTransformer(str(folder), device="cpu")
    left, right = halves(texts)
    data = Dataset.from_dict({"anchor": left, "positive": right})
    arguments = SentenceTransformerTrainingArguments(str(tmp_path / "run"), **OPTIONS)
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=loss)
    trainer.train()
    assert_falls(losses_of(trainer))
    vectors = model.encode(texts, convert_to_tensor=True)
    model.save(str(tmp_path / "model"))
    again = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert torch.equal(again.encode(texts, convert_to_tensor=True), vectors)


def test_pair_classifier_trains_and_reloads(folder, texts, tmp_path):
    """A cross encoder learns of which vocabulary the second text is, and reloads to equal scores."""
    model = CrossEncoder(str(folder), num_labels=1, device="cpu")
    rows = labelled_texts(texts)
    shown = [(texts[number % 32][:40], text) for number, (text, _) in enumerate(rows)]
    columns = {"left": [left for left, _ in shown], "right": [right for _, right in shown]}
    data = Dataset.from_dict(columns | {"label": [float(label) for _, label in rows]})
    arguments = CrossEncoderTrainingArguments(str(tmp_path / "run"), **(OPTIONS | {"max_steps": 60}))
    trainer = CrossEncoderTrainer(model, arguments, train_dataset=data, loss=BinaryCrossEntropyLoss(model))
    trainer.train()
    assert_falls(losses_of(trainer))
    scores = model.predict(shown)
    model.save_pretrained(str(tmp_path / "model"))
    assert (CrossEncoder(str(tmp_path / "model"), device="cpu").predict(shown) == scores).all()


def test_setfit_learns_two_kinds_of_texts(folder, texts, tmp_path):
    """SetFit tells texts of two vocabularies apart that it has not seen, and reloads to equal probabilities."""
    setfit = pytest.importorskip("setfit", reason="make clients has it")
    rows = labelled_texts(texts)
    seen = rows[:16]
    unseen = rows[16:]
    model = setfit.SetFitModel.from_pretrained(str(folder), device="cpu")
    arguments = setfit.TrainingArguments(
        str(tmp_path / "run"), batch_size=8, max_steps=40, body_learning_rate=5e-4, report_to="none", seed=0
    )
    data = Dataset.from_dict({"text": [text for text, _ in seen], "label": [label for _, label in seen]})
    setfit.Trainer(model, arguments, train_dataset=data).train()
    probabilities = model.predict_proba([text for text, _ in unseen], as_numpy=True)
    correct = sum(row.argmax() == label for row, (_, label) in zip(probabilities, unseen, strict=True))
    assert correct >= 24  # of 32: by chance one time in 285
    model.save_pretrained(str(tmp_path / "model"))
    again = setfit.SetFitModel.from_pretrained(str(tmp_path / "model"), device="cpu")
    assert (again.predict_proba([text for text, _ in unseen], as_numpy=True) == probabilities).all()
