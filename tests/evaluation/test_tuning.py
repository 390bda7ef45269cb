"""A fine-tuning learns what can be learned, keeps the predictions of its best evaluations, stops when it no longer
gains, and takes any encoder."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import whatwhere
from whatwhere.corpus import load_tokenizer
from whatwhere.corpus.labelled import LabelledTexts
from whatwhere.corpus.labelled_batches import LabelledBatches
from whatwhere.evaluation.glue import METRICS
from whatwhere.evaluation.tuning import Recipe, Setting, halves, tune
from whatwhere.models.open import open_model

pytestmark = pytest.mark.whole

QUICK = Recipe([Setting(2e-4, 8, 0.01)], epochs=3, warmup=0.1, patience=50, seeds=1, scores=(2, 500))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(whatwhere.reference())


def made_up(n, seed, numbers=False):
    """Sentences about rivers or about music, or how many of their words are about music."""
    rng = np.random.default_rng(seed)
    words = np.array([["river", "water", "lake", "valley"], ["music", "song", "album", "band"]])
    labels = rng.integers(2, size=n)
    texts = [" ".join(rng.choice(words[label], 6)) for label in labels]
    return LabelledTexts(texts, None, [str(5.0 * label) if numbers else str(label) for label in labels])


def rows(tokenizer, n, seed, classes=("0", "1"), **more):
    return LabelledBatches(
        made_up(n, seed, classes is None), list(classes) if classes else None, tokenizer, 16, seed, **more
    )


def test_tuning_learns_and_keeps_its_best_predictions(tokenizer):
    """It learns and keeps the predictions of its best evaluations."""
    dev = rows(tokenizer, 41, 1)
    model = open_model("reference", "labels", classes=2).model
    found = tune(model, rows(tokenizer, 80, 0), dev, QUICK.settings[0], QUICK, METRICS["accuracy"])
    assert found.steps == list(range(5, 31, 5)) and found.scores.shape == (6, 3)
    assert found.scores[:, 2].max() > 0.9
    for part, indices in enumerate((*halves(41), np.arange(41))):
        said = found.predicted[part][indices]
        assert METRICS["accuracy"](said, dev.labels[indices]) == found.scores[:, part].max()


def test_numbers_are_regressed(tokenizer):
    dev = rows(tokenizer, 30, 1, None)
    assert dev.labels.dtype == np.float32
    model = open_model("reference", "labels", classes=0).model
    assert model.config.problem_type == "regression"
    found = tune(model, rows(tokenizer, 80, 0, None), dev, QUICK.settings[0], QUICK, METRICS["pearson"])
    assert found.scores[-1, 2] > 0.9 and len(np.unique(found.predicted[2])) > 10


def test_tuning_stops_when_nothing_is_gained(tokenizer):
    model = open_model("reference", "labels", classes=2).model
    patient = replace(QUICK, patience=2)
    found = tune(model, rows(tokenizer, 80, 0), rows(tokenizer, 20, 1), QUICK.settings[0], patient, lambda *_: 0.5)
    assert found.steps == [5, 10, 15]  # the first is a gain on nothing


def test_the_bar_moves_between_evaluations(tokenizer):
    """It stood still up to the first evaluation, which of SQuAD takes minutes to come."""
    model = open_model("reference", "labels", classes=2).model
    setting = replace(QUICK.settings[0], batch_size=4)
    recipe = replace(QUICK, epochs=1, scores=(1, 500))
    moves = []
    found = tune(
        *(model, rows(tokenizer, 80, 0), rows(tokenizer, 20, 1), setting, recipe, lambda *_: 0.5),
        progress=lambda done, total, part, note: moves.append((done, total, note)),
    )
    assert found.steps == [20] and moves == [(10, 20, ""), (20, 20, "reads 20 rows"), (20, 20, "0.500")]


def test_each_half_has_a_patience_of_its_own(tokenizer):
    model = open_model("reference", "labels", classes=2).model
    asked = iter(range(1000))

    def score(*_):  # asked of the first half, the second, all: the first gains each time, all once more at the end
        turn, part = divmod(next(asked), 3)
        return [turn, 0.5, 0.5 + (turn == 4)][part]

    patient = replace(QUICK, patience=2)
    found = tune(model, rows(tokenizer, 80, 0), rows(tokenizer, 20, 1), QUICK.settings[0], patient, score)
    assert found.steps == [5, 10, 15, 20, 25, 30] and found.scores[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert found.scores[:, 2].max() == 0.5  # what comes after the stop of all rows is not theirs


def test_equal_seeds_give_equal_scores(tokenizer):
    """The same seed gives the same scores and weights drawn anew are others."""
    short = replace(QUICK, epochs=1)

    def scores(**how):
        model = open_model("reference", "labels", classes=2, **how).model
        found = tune(
            model, rows(tokenizer, 40, 0), rows(tokenizer, 20, 1), short.settings[0], short, METRICS["accuracy"]
        )
        return found.scores.tolist(), float(model.get_input_embeddings().weight.detach().abs().mean())

    assert scores(seed=3) == scores(seed=3)
    assert scores(seed=3)[1] != pytest.approx(scores(seed=3, untrained=True)[1], rel=0.01)


def test_the_rate_falls_and_scales_with_width(tokenizer, monkeypatch):
    """The rate is in inverse proportion to the width and falls to nothing."""
    rates = []
    step = torch.optim.AdamW.step

    def noted(self, *given, **named):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *given, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    model = open_model("reference", "labels", classes=2).model
    tune(model, rows(tokenizer, 80, 0), rows(tokenizer, 20, 1), QUICK.settings[0], QUICK, METRICS["accuracy"])
    peak = 2e-4 * 768 / model.config.hidden_size
    expected = [peak * min((i + 1) / 3, (30 - i) / 27) for i in range(30)]
    assert rates == pytest.approx(expected)


def test_foreign_encoders_take_pairs_with_types(tokenizer, tmp_path):
    """An encoder of another package takes pairs with their types."""
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    pairs = LabelledTexts(["river", "music"] * 8, ["song lake"] * 16, ["0", "1"] * 8)
    data = LabelledBatches(pairs, ["0", "1"], tokenizer, 12, types=True)
    batch = data.micro_batch(0, 4)
    assert batch["token_type_ids"].max() == 1 and batch["token_type_ids"].shape == batch["input_ids"].shape
    model = open_model(tmp_path, "labels", classes=2).model
    found = tune(model, data, data, QUICK.settings[0], QUICK, METRICS["accuracy"])
    assert found.predicted.shape == (3, 16)
