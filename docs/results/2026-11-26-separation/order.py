"""H2 of GEOM of classifiers: how often does the order of words decide? Dev rows as they are, and with words shuffled.

    python order.py DEV.tsv RUN ...

For each fine-tuning RUN a line: accuracy on the rows, on the rows with their words in random order (the mean of five
orders), and the share of predictions that a random order changes.
"""

import sys

import numpy as np

from whatwhere.corpus.labelled import read_labelled
from whatwhere.models.predict import predict

ORDERS = 5


def labels_of(run: str, texts: list[str]) -> np.ndarray:
    """Return the likeliest label of each text."""
    return np.array([next(iter(shares)) for shares in predict(run, texts, what="labels")])


def main() -> None:
    """Print a line for each fine-tuning."""
    dev, *runs = sys.argv[1:]
    rows = read_labelled(dev, "sentence", "label", None)
    texts = list(rows.texts)
    right = np.array(rows.labels)
    for run in runs:
        before = labels_of(run, texts)
        accuracy = []
        changed = []
        for order in range(ORDERS):
            rng = np.random.default_rng(order)
            shuffled = [" ".join(rng.permutation(text.split())) for text in texts]
            after = labels_of(run, shuffled)
            accuracy.append((after == right).mean())
            changed.append((after != before).mean())
        figures = (before == right).mean(), np.mean(accuracy), np.mean(changed)
        print(f"{run}: as it is {figures[0]:.3f}, shuffled {figures[1]:.3f}, changed {figures[2]:.3f}")


if __name__ == "__main__":
    main()
