"""Validation of a training: loss and accuracy on held-out batches."""

from collections.abc import Callable, Iterable

import torch

from ..records.gates import BEFORE_END
from .setup import MicroBatch, TrainingSetup

MoreValues = Callable[[int, int], dict[str, float]]  # (labels predicted right, labels) -> more values of a validation


class Validator:
    """Validation of a training's model on batches that it does not learn from, every `validate_every` steps."""

    def __init__(
        self,
        setup: TrainingSetup,
        batches: Callable[[], Iterable[MicroBatch]],
        more_values: MoreValues = lambda right, labels: {},
    ) -> None:
        """Store the batches.

        batches: function that returns the same held-out batches at each call, with `labels` (-100 is none).
        more_values: function of the labels predicted right and of all labels; it returns what else to log.
        """
        self.setup = setup
        self.batches = batches
        self.more_values = more_values

    def is_due(self, step: int) -> bool:
        """Return whether the model is validated after `step`: every `validate_every`-th and the last one.

        Where `validate_every` exceeds nine tenths of the steps, the model is also validated after these: else nothing
        would tell whether it still learns.
        """
        every = self.setup.config.validate_every
        before_end = int(BEFORE_END * self.setup.steps)
        is_short = every > before_end
        return step % every == 0 or step == self.setup.steps or (is_short and step == before_end)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Read all held-out batches and return what the log keeps of them.

        validation_loss: mean over all labels, in nats. validation_accuracy: share of the labels predicted right.
        validation_labels: their number.
        """
        accelerator = self.setup.accelerator
        model = self.setup.model
        model.eval()
        total = 0.0
        right = 0
        labels = 0
        for batch in self.batches():
            batch = {key: value.to(accelerator.device) for key, value in batch.items()}
            with accelerator.autocast():
                output = model(**batch, **self.setup.model_arguments)
            targets = batch["labels"][batch["labels"] != -100]
            total += float(output.loss) * len(targets)
            right += int((output.logits.argmax(-1) == targets).sum())
            labels += len(targets)
        return {
            "validation_loss": total / max(labels, 1),
            "validation_accuracy": right / max(labels, 1),
            **self.more_values(right, labels),
            "validation_labels": labels,
        }
