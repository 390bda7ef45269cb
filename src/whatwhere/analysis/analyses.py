"""The form that every analysis of a trained model has: what it reads, when it is done, and how it measures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..records.record import Arrays, Record
from .passes import ChosenWindows, Progress, Reader, as_float64
from .record_context import RecordContext

# Stages, in their order: analyses of every model of a study; of a model and windows, in a study or in
# `whatwhere heads`, those with a reader in one pass; of a training: its beginning, its checkpoints, its corpus.
ALWAYS = "always"
OF_WINDOWS = "of windows"
TRAINING = "training"
STAGES = (ALWAYS, OF_WINDOWS, TRAINING)
CONTROLS = 200  # windows that the untrained model reads
SCORED = 16  # windows over which the spread of the scores is measured


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """Model with the inputs of its analyses; an analysis runs where all inputs that it needs are there.

    context: model that the records are about. held_out: windows to probe. windows: those that the analyses of
    `OF_WINDOWS` read. untrained: the model of step 0. training_folder: str or Path, with checkpoints.
    corpus: `CorpusDistances` of the texts. Each of these may be None: the run has no such input.
    probed, splits, components: windows, splits, components of `probe_records`.
    ablation_windows: number of windows whose loss is measured without parts of the model; 0: none.
    thorough: True ablates blocks and heads by all kinds, which takes three times as long as removing alone.
    progress: function that is called with (steps done, steps in all, name of the analysis), or None.
    """

    context: RecordContext
    model: Any
    windows: ChosenWindows | None = None
    held_out: Any = None
    untrained: Any = None
    training_folder: Any = None
    corpus: Any = None
    probed: int = 500
    splits: int = 5
    components: Sequence[int] = ()
    ablation_windows: int = 32
    thorough: bool = False
    progress: Progress = None

    @property
    def has_terms(self) -> bool:
        """True if the scores of the model are a sum of named terms, as in the encoders of this package."""
        return hasattr(self.model, "inspect_terms")

    @property
    def has_loss(self) -> bool:
        """True if the run asks for the loss of windows and the model has one."""
        return bool(self.has_terms and hasattr(self.model, "head") and self.ablation_windows)

    @property
    def table(self) -> Any:
        """Position table (rows, width) in float64, or None."""
        table = self.model.position_table()
        return None if table is None else as_float64(table)

    def has(self, needs: Sequence[str]) -> bool:
        """Tell if all named inputs are there."""
        return all((value := getattr(self, name)) is not None and value is not False for name in needs)

    def evenly_spaced(self, most: int | None = None) -> ChosenWindows:
        """Return the windows, or `most` of them, evenly spaced."""
        assert self.windows is not None
        count = len(self.windows) if most is None else min(most, len(self.windows))
        return self.windows.rows(np.arange(count) * len(self.windows) // count)

    def progress_of(self, part: str) -> Progress:
        """Return the function by which a part of an analysis reports its progress, or None."""
        return None if self.progress is None else partial(self.progress, part=part)


@dataclass(frozen=True)
class Analysis:
    """Measurement of a model, by a shared reader or by a function of its own.

    With both, the reader serves models whose scores are a sum of named terms, the function all others.

    name: its name in `left_out`. stage: when it is done, one of `STAGES`. reader: function that makes a reader for
    the model. measure: function that returns records, or records and arrays. needs: attributes of the input without
    which it does not run. array_stem: beginning of the name of its file of arrays. optional: True if a ValueError means
    that the model has nothing of the kind, which `left_out` then reports; elsewhere it is an error.
    """

    name: str
    stage: str
    measure: Callable[[AnalysisInput], list[Record] | tuple[list[Record], Arrays]] | None = None
    reader: Callable[[Any], Reader] | None = None
    needs: tuple[str, ...] = ("windows",)
    array_stem: str = ""
    optional: bool = False
