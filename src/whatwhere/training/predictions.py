"""Predictions of a fine-tuned classifier for its development rows, and its confusion matrix."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import confusion_matrix

from ..corpus.labelled import LabelledTexts
from ..run.folder import RunFolder
from .setup import MicroBatch, TrainingSetup

PREDICTIONS = "dev-predictions.csv"
CONFUSION = "dev-confusion.csv"


@torch.no_grad()
def class_probabilities(setup: TrainingSetup, batches: Iterable[MicroBatch]) -> np.ndarray:
    """Compute the probabilities of the classes for each row of some batches: (rows, classes) float64, rows sum to 1.

    Every process reads all batches, in the precision of the training, as a validation does.
    """
    accelerator = setup.accelerator
    setup.model.eval()
    probabilities = []
    for batch in batches:
        inputs = {key: value.to(accelerator.device) for key, value in batch.items() if key != "labels"}
        with accelerator.autocast():
            logits = setup.model(**inputs).logits
        probabilities.append(logits.double().softmax(-1).cpu().numpy())
    return np.concatenate(probabilities)


def write_predictions(run: RunFolder, rows: LabelledTexts, class_names: list[str], probabilities: np.ndarray) -> None:
    """Write the prediction for each development row, and the counts of predicted classes for each true class.

    Args:
        class_names: the classes, in the order of the columns of `probabilities`.
        probabilities: (rows, classes).
    """
    best = probabilities.argmax(-1)
    predicted = [class_names[number] for number in best]
    labels = [class_names.index(label) for label in rows.labels]
    pairs = {} if rows.pairs is None else {"text_pair": rows.pairs}
    columns = {
        "text": rows.texts,
        **pairs,
        "label": rows.labels,
        "predicted": predicted,
        "probability": probabilities[np.arange(len(best)), best].round(6),
        "probability_of_label": probabilities[np.arange(len(best)), labels].round(6),
    }
    run.write(PREDICTIONS, pd.DataFrame(columns).to_csv(index=False))
    counts = confusion_matrix(rows.labels, predicted, labels=class_names)
    table = pd.DataFrame(counts, index=pd.Index(class_names, name="label"), columns=class_names)
    run.write(CONFUSION, table.to_csv())
