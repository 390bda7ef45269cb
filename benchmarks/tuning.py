"""A step of fine-tuning against a plain loop on the same model and batches (budget: within 5 %).

Both sides: AdamW, a gradient clipped to norm 1, a linear rate, the same precision. The plain loop neither weights its
parts by their labels nor looks for numbers that are not finite.
"""

from contextlib import nullcontext

import numpy as np
import torch

from whatwhere.corpus import load_tokenizer
from whatwhere.corpus.labelled import LabelledBatches, LabelledTexts
from whatwhere.evaluation.glue import RECIPES
from whatwhere.evaluation.tuning import loop_config
from whatwhere.models.open import open_model
from whatwhere.training.loop import Trainer

from .timing import Results, Settings, alternate, figure, row

AT_MOST = 1.05
STEPS = {"full": 60, "quick": 20, "micro": 2}
WORDS = 20  # of each sentence of a pair, about as in GLUE


def rows() -> LabelledTexts:
    """Pairs of sentences of made-up words."""
    rng = np.random.default_rng(0)
    texts = [[" ".join(f"word{i}" for i in rng.integers(400, size=WORDS)) for _ in range(512)] for _ in range(2)]
    return LabelledTexts(*texts, [str(i % 2) for i in range(512)])


def tuning(settings: Settings) -> Results:
    """Fine-tuning `reference`, whatwhere / plain loop, a step of 16 pairs."""
    steps, setting = STEPS[settings.scale], RECIPES["short"].settings[0]
    data = LabelledBatches(rows(), ["0", "1"], load_tokenizer("reference"), 128)
    ours, plain = (open_model("reference", "labels", classes=2).model for _ in range(2))
    trainer = Trainer(ours, loop_config(ours, setting, RECIPES["short"], steps, len(data), 0), steps)
    config = trainer.config
    optimizer = torch.optim.AdamW(plain.parameters(), config.learning_rate, config.betas, config.epsilon)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    half = trainer.accelerator.mixed_precision == "bf16"

    def whatwhere() -> None:
        for step in range(steps):
            trainer.step(step, trainer.micro_batches(data.batch, step))

    def loop() -> None:
        plain.train()
        for step in range(steps):
            batch = data.batch(step, config.batch_size, 0, 1)
            with torch.autocast("cpu", torch.bfloat16) if half else nullcontext():
                loss = plain(**{key: value.to(plain.device) for key, value in batch.items()}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), config.clip)
            optimizer.step()
            decay.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

    times = alternate({"whatwhere": whatwhere, "loop": loop}, settings.repeats)
    first, second = (figure(name, [t / steps for t in times[name]]) for name in ("whatwhere", "loop"))
    return Results([row("a step of fine-tuning, whatwhere / plain loop", "16 pairs", first, second, at_most=AT_MOST)])
