"""A step of fine-tuning against a plain loop (budget: within 5 %) and against transformers' Trainer (within 10 %).

All sides: the same model and batches, AdamW, a gradient clipped to norm 1, a linear rate, the same precision. The plain
loop neither weights its parts by their labels nor looks for numbers that are not finite.
"""

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer as TransformersTrainer
from transformers import TrainerCallback, TrainingArguments

from whatwhere.corpus import load_tokenizer
from whatwhere.corpus.labelled import LabelledTexts
from whatwhere.corpus.labelled_batches import LabelledBatches
from whatwhere.evaluation.glue import RECIPES
from whatwhere.evaluation.tuning import loop_config
from whatwhere.models.open import open_model
from whatwhere.training.loop import Trainer
from whatwhere.training.training_keys import LoopConfig

from .timing import Results, Settings, alternate, clock, figure, row

AT_MOST = 1.05
AT_MOST_TRAINER = 1.1
STEPS = {"full": 60, "quick": 20, "micro": 2}
WORDS = 20  # of each sentence of a pair, about as in GLUE


def rows() -> LabelledTexts:
    """Pairs of sentences of made-up words."""
    rng = np.random.default_rng(0)
    texts = [[" ".join(f"word{i}" for i in rng.integers(400, size=WORDS)) for _ in range(512)] for _ in range(2)]
    return LabelledTexts(*texts, [str(i % 2) for i in range(512)])


class Batches(Dataset[dict[str, torch.Tensor]]):
    """Batches of the steps, each of them one item of a dataset."""

    def __init__(self, data: LabelledBatches, rows: int, steps: int) -> None:
        self.data = data
        self.rows = rows
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        return self.data.micro_batch(step, self.rows, 0, 1)


class Clock(TrainerCallback):
    """Seconds between the first step's beginning and the training's end, without Trainer's preparations."""

    seconds = 0.0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.seconds = -time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.seconds += time.perf_counter()


def batches_of_pairs() -> LabelledBatches:
    """The pairs as `reference` reads them."""
    return LabelledBatches(rows(), ["0", "1"], load_tokenizer("reference"), 128)


def classifier() -> Any:
    """`reference` with a new head of two classes."""
    return open_model("reference", "labels", classes=2).model


def transformers_seconds(steps: int, config: LoopConfig, half: bool, threads: int) -> float:
    """Seconds of as many steps by transformers' Trainer."""
    torch.set_num_threads(threads)
    watch = Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=1,  # an item is a whole batch
            learning_rate=config.learning_rate,
            adam_beta1=config.betas[0],
            adam_beta2=config.betas[1],
            adam_epsilon=config.epsilon,
            max_grad_norm=config.clip,
            optim="adamw_torch",
            bf16=half,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        batches = Batches(batches_of_pairs(), config.batch_size, steps)
        TransformersTrainer(classifier(), arguments, lambda items: items[0], batches, callbacks=[watch]).train()
    return watch.seconds


def tuning(settings: Settings) -> Results:
    """Fine-tuning `reference`, whatwhere / plain loop and transformers' Trainer, a step of 16 pairs."""
    steps = STEPS[settings.scale]
    setting = RECIPES["short"].settings[0]
    data = batches_of_pairs()
    ours = classifier()
    plain = classifier()
    trainer = Trainer(ours, loop_config(ours, setting, RECIPES["short"], steps, len(data), 0), steps)
    config = trainer.config
    optimizer = torch.optim.AdamW(plain.parameters(), config.learning_rate, config.betas, config.epsilon)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    half = trainer.accelerator.mixed_precision == "bf16"

    def whatwhere() -> None:
        for step in range(steps):
            trainer.take_step(step, trainer.make_micro_batches(data.micro_batch, step))

    def loop() -> None:
        plain.train()
        for step in range(steps):
            batch = data.micro_batch(step, config.batch_size, 0, 1)
            with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
                loss = plain(**{key: value.to(plain.device) for key, value in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), config.clip)
            optimizer.step()
            decay.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

    # In a process of its own: Trainer's accelerator takes the place of ours.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:

        def theirs() -> float:
            return pool.submit(transformers_seconds, steps, config, half, torch.get_num_threads()).result()

        def seconds(run: Any) -> float:
            return float(run()) if run is theirs else clock(run)

        runs = {"whatwhere": whatwhere, "plain loop": loop, "transformers.Trainer": theirs}
        times = alternate(runs, settings.repeats, seconds)
    own, *others = (figure(name, [t / steps for t in times[name]]) for name in runs)
    limits = (AT_MOST, AT_MOST_TRAINER)
    return Results(
        [
            row(f"a step of fine-tuning, whatwhere / {other['name']}", "16 pairs", own, other, at_most=limit)
            for other, limit in zip(others, limits, strict=True)
        ]
    )
