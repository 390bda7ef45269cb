"""The one way to probe: states of labelled rows, linear probes of them, and predictions of the test rows."""

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..run.progress import Progress
from .agreement import Score
from .examples import SPLITS, Examples
from .probe_fits import Protocol, Rows, train_probes
from .word_states import layers_of, parts_of, row_states


class ProbeChoice(typing.Protocol):
    """Settings of an evaluation that say how many probes there are, and what they read.

    seeds: of each probe. layers: last or all. pooling: a key of `word_states.POOLINGS`.
    """

    seeds: int
    layers: str
    pooling: str


@dataclass(frozen=True, eq=False)
class Probed:
    """Predictions of the probes of one task, and the rows behind them.

    parts: the columns that a probe reads, (d,) bool by name. layers: numbers of the hidden states. rows: of each split,
    without development rows of a class that training has not. predicted: (f, s, p, v, n) of the test rows, by layer,
    seed, part and labelling. lost: number of rows that lack a token in some place.
    """

    parts: dict[str, np.ndarray]
    layers: list[int]
    rows: dict[str, Rows]
    predicted: np.ndarray
    lost: int

    @property
    def columns(self) -> np.ndarray:
        """Columns of all parts, (p, d) bool."""
        return np.stack(list(self.parts.values()))

    @property
    def labels(self) -> np.ndarray:
        """Labels of the test rows, (v, n)."""
        return self.rows["test"].labels

    def scores(self, score: Score, labelling: int = 0) -> np.ndarray:
        """Compute a score of the predictions of one labelling by layer, seed and part: (f, s, p)."""
        return np.apply_along_axis(score, -1, self.predicted[:, :, :, labelling], self.labels[labelling])


def probe_rows(
    model: Any,
    tokenizer: Any,
    splits: Mapping[str, Examples],
    labels: Mapping[str, np.ndarray],
    classes: int,
    how: Protocol,
    choice: ProbeChoice,
    progress: Progress,
) -> Probed:
    """Train linear probes on the hidden states of the training rows, and let them predict the test rows.

    Args:
        splits: rows of each of `SPLITS`.
        labels: of each split (v, n), several labellings of the same rows: class numbers, -1 of a class that training
            has not, or numbers to regress.
        classes: number of classes, 0 for a regression.
        how: the protocol of training.

    Raises:
        ValueError: as `train_probes` and `slot_states`.
    """
    numbers = layers_of(model, choice.layers)
    rows = {}
    lost = 0
    for split in SPLITS:
        examples = splits[split]
        report = partial(progress, part=split)
        arguments = (examples.texts, examples.places, numbers, choice.pooling, report)
        features, empty = row_states(model, tokenizer, *arguments, normed=how.normed)
        lost += int(empty.sum())
        rows[split] = Rows(features, labels[split])
    if classes:  # a class that training has not has no loss
        known = rows["dev"].labels[0] >= 0
        rows["dev"] = Rows(rows["dev"].features[:, known], rows["dev"].labels[:, known])
    parts = parts_of(model.config, len(splits["train"].places[0]))
    columns = np.stack(list(parts.values()))
    probes = train_probes(rows["train"], rows["dev"], columns, classes, range(choice.seeds), how)
    return Probed(parts, numbers, rows, probes.predict(rows["test"].features), lost)
