"""One fine-tuning in memory: the step of `training.loop`, scored on the way, stopped when it no longer gains."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from ..corpus.batches import Batches
from ..corpus.labelled_batches import LabelledBatches
from ..run.progress import Progress, ignore_progress
from ..training.loop import Trainer
from ..training.training_keys import LoopConfig
from .agreement import Score

WIDTH = 768  # of the models that the papers' learning rates are for
STEPS_BETWEEN_NEWS = 10  # steps between two moves of the bar
Predict = Callable[[Trainer, Any, int], np.ndarray]  # (trainer, rows, batch size) -> a prediction each row


@dataclass(frozen=True)
class Setting:
    """Setting of a fine-tuning that a grid varies.

    learning_rate: of a model 768 wide; narrower ones take it in inverse proportion, as Adam's steps are absolute.
    """

    learning_rate: float
    batch_size: int
    weight_decay: float

    @property
    def name(self) -> str:
        """Name of the setting, as part of a file's name."""
        return f"rate-{self.learning_rate:g}-batch-{self.batch_size}-decay-{self.weight_decay:g}"


@dataclass(frozen=True)
class Recipe:
    """Protocol of fine-tunings over a grid of settings.

    settings: the grid. epochs: passes over the data at most. warmup: share of the steps. patience: evaluations without
    gain after which it stops. scores: evaluations a pass, and most steps between two.
    """

    settings: Sequence[Setting]
    epochs: float
    warmup: float
    patience: int
    seeds: int
    scores: tuple[int, int] = (10, 500)

    def every(self, steps_of_epoch: int) -> int:
        """Return the steps between two evaluations (DSTG C.1: min(500, len(dataloader) // 10))."""
        a_pass, most = self.scores
        return max(1, min(most, steps_of_epoch // a_pass))


@dataclass(frozen=True)
class FinetuneResult:
    """Result of a fine-tuning on the development rows.

    steps: steps of its evaluations. scores: (evaluations, 3) of the first half of the rows, the second, all. Once one
    of the three has not improved for `Recipe.patience` evaluations, its later values count as no better than its best.
    predicted: (3, rows) predictions at the evaluation that is best on the first half, the second, and all. others:
    predictions on further rows at the last of these. seconds: of training and evaluations.
    """

    steps: list[int]
    scores: np.ndarray
    predicted: np.ndarray
    others: dict[str, np.ndarray]
    seconds: float

    @property
    def facts(self) -> dict[str, Any]:
        """Facts about the course of a fine-tuning, for its .json file."""
        return {"steps": self.steps, "scores": self.scores.tolist(), "seconds": self.seconds}


def halves(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Split development rows into two halves, drawn once for all models: one chooses, the other judges.

    Returns:
        Two sorted arrays of row numbers, (rows // 2,) and (rows - rows // 2,) int64.
    """
    order = np.random.default_rng(0).permutation(rows)
    return np.sort(order[: rows // 2]), np.sort(order[rows // 2 :])


def loop_config(model: Any, setting: Setting, recipe: Recipe, steps: int, rows: int, seed: int) -> LoopConfig:
    """Build the settings of the loop: AdamW as in BERT's fine-tunings, with a rate that falls linearly to 0."""
    return LoopConfig.parse(
        {
            "seed": seed,
            "batch_size": min(setting.batch_size, rows),
            "learning_rate": setting.learning_rate * WIDTH / model.config.hidden_size,
            "weight_decay": setting.weight_decay,
            "warmup_steps": round(recipe.warmup * steps),
            "schedule": "linear",
            "minimum_learning_rate_ratio": 0.0,
            "betas": (0.9, 0.999),
            "epsilon": 1e-6,
        }
    )


def tune(
    model: Any,
    data: Batches,
    dev: Any,
    setting: Setting,
    recipe: Recipe,
    score: Score,
    *,
    others: Mapping[str, Any] = MappingProxyType({}),
    predict: Predict | None = None,
    seed: int = 0,
    progress: Progress = ignore_progress,
) -> FinetuneResult:
    """Train a model with a head on labelled rows and score it on development rows; its weights are changed.

    Args:
        data: training rows. dev, others: rows that `predict` reads; `dev.labels` has an entry for each prediction, and
            `score` takes both.
        predict: predicts each row; default: `predictions`, of a classifier or of a model with one number for an output.

    Raises:
        NotFiniteError: the loss or the gradient is no finite number.
    """
    a_pass = max(1, len(data) // setting.batch_size)
    steps = max(1, round(recipe.epochs * a_pass))
    every = recipe.every(a_pass)
    config = loop_config(model, setting, recipe, steps, len(data), seed)
    trainer = Trainer(model, config, steps)
    predict = predict or predictions
    parts = (*halves(len(dev.labels)), np.arange(len(dev.labels)))
    course: list[tuple[int, list[float]]] = []
    further: dict[str, np.ndarray] = {}
    best = [-np.inf] * 3
    predicted = [np.empty(0)] * 3
    waited = [0] * 3
    note = ""  # score of the last evaluation
    began = time.perf_counter()
    for step in range(steps):
        trainer.take_step(step, trainer.make_micro_batches(data.micro_batch, step))
        if (step + 1) % every and step + 1 < steps:
            if (step + 1) % STEPS_BETWEEN_NEWS == 0:
                progress(step + 1, steps, "fine-tuning", note)
            continue
        progress(step + 1, steps, "fine-tuning", f"{note} reads {len(dev.labels):,} rows".lstrip())  # may take minutes
        predictions_now = predict(trainer, dev, config.batch_size)
        scores_now = [score(predictions_now[rows], dev.labels[rows]) for rows in parts]
        course.append((step + 1, scores_now))
        for i, value in enumerate(scores_now):  # each with a patience of its own, so that no half sees the other
            if waited[i] >= recipe.patience:
                scores_now[i] = min(value, best[i])
                continue
            waited[i] = 0 if value > best[i] else waited[i] + 1
            if not waited[i]:
                best[i] = value
                predicted[i] = predictions_now
        if not waited[2]:
            further = {name: predict(trainer, rows, config.batch_size) for name, rows in others.items()}
        note = f"{scores_now[2]:.3f}"
        progress(step + 1, steps, "fine-tuning", note)
        if min(waited) >= recipe.patience:
            break
    scores = np.array([scores_now for _, scores_now in course])
    return FinetuneResult(
        [step for step, _ in course], scores, np.array(predicted), further, time.perf_counter() - began
    )


@torch.no_grad()
def predictions(trainer: Trainer, rows: LabelledBatches, batch_size: int) -> np.ndarray:
    """Predict the class of each row, or its number where the model has one output: (rows,)."""
    trainer.model.eval()
    values = []
    for batch in rows.in_order(max(batch_size, 32)):
        batch = {key: value.to(trainer.accelerator.device) for key, value in batch.items() if key != "labels"}
        with trainer.accelerator.autocast():
            logits = trainer.model(**batch).logits.float()
        values.append((logits[:, 0] if logits.shape[1] == 1 else logits.argmax(-1)).cpu().numpy())
    return np.concatenate(values)
