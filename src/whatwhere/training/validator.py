"""Validation of a training: loss and accuracy on held-out batches."""

from collections.abc import Callable, Iterable

import torch

from ..records.gates import BEFORE_END
from .setup import MicroBatch, TrainingSetup

# (number of labels predicted correctly, number of labels) -> further values of a validation
MoreValues = Callable[[int, int], dict[str, float]]


class Validator:
    """Validation of a training's model on batches that it does not learn from, every `validate_every` steps."""

    def __init__(
        self,
        setup: TrainingSetup,
        batches: Callable[[], Iterable[MicroBatch]],
        more_values: MoreValues = lambda correct, label_count: {},
    ) -> None:
        """Store the batches.

        batches: function that returns the same held-out batches at each call, with `labels` (-100: not a label).
        more_values: function that returns further values to log.
        """
        self.setup = setup
        self.batches = batches
        self.more_values = more_values

    def is_due(self, step: int) -> bool:
        """Return whether the model is validated after `step`: every `validate_every`-th and the last one.

        Where `validate_every` exceeds nine tenths of the steps, the model is also validated after nine tenths: else
        nothing would tell whether it still learns.
        """
        every = self.setup.config.validate_every
        before_end = int(BEFORE_END * self.setup.steps)
        is_short = every > before_end
        return step % every == 0 or step == self.setup.steps or (is_short and step == before_end)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Read all held-out batches and return the values for the log.

        Each of several processes reads all of them, so nothing is summed over processes.

        validation_loss: mean over all labels, in nats. validation_accuracy: share of the labels predicted correctly.
        validation_labels: number of the labels. And `more_values`.
        """
        accelerator = self.setup.accelerator
        model = self.setup.model
        model.eval()
        loss_sum = 0.0
        correct = 0
        label_count = 0
        for batch in self.batches():
            batch = {key: value.to(accelerator.device) for key, value in batch.items()}
            with accelerator.autocast():
                output = model(**batch, **self.setup.model_arguments)
            targets = batch["labels"][batch["labels"] != -100]
            loss_sum += float(output.loss) * len(targets)
            correct += int((output.logits.argmax(-1) == targets).sum())
            label_count += len(targets)
        return {
            "validation_loss": loss_sum / max(label_count, 1),
            "validation_accuracy": correct / max(label_count, 1),
            **self.more_values(correct, label_count),
            "validation_labels": label_count,
        }
