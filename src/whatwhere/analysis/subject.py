"""A model with what there is to look at it with, and the form that every analysis of it has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..files import Arrays
from ..records import Record
from .passes import Documents, Reader
from .who import Who


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and what there is to look at it with; an analysis is done where there is all that it needs.

    who: of the records. held_out: windows to probe. documents: those of them that the analyses inside read.
    untrained: the model of step 0. run: folder (str or Path) of the training, with checkpoints.
    corpus: `CorpusDistances` of the texts. None, of all these: there is no such thing.
    probed, splits, components: documents, splits, components of `probe_records`.
    ablated: documents whose loss is measured with parts taken out; 0: none.
    thorough: blocks and heads by all kinds of ablation, not by removing alone, which takes three times as long.
    progress: is told what is done, how much of how much.
    """

    who: Who
    model: Any
    documents: Documents | None = None
    held_out: Any = None
    untrained: Any = None
    run: Any = None
    corpus: Any = None
    probed: int = 500
    splits: int = 5
    components: Sequence[int] = ()
    ablated: int = 32
    thorough: bool = False
    batch_size: int = 8
    progress: Callable[[str, int, int], None] | None = None

    @property
    def terms(self) -> bool:
        """Whether the scores of the model are a sum of named terms: the encoders of this package."""
        return hasattr(self.model, "inspecting")

    @property
    def whole(self) -> bool:
        """Whether all that it tells of attention is its weights: the encoders of other packages."""
        return not self.terms

    @property
    def loss(self) -> bool:
        """Whether the loss of documents is wanted, and the model has one."""
        return bool(self.terms and hasattr(self.model, "head") and self.ablated)

    @property
    def table(self) -> Any:
        """The position table (rows, width), float64, or None."""
        table = self.model.position_table()
        return None if table is None else table.detach().double().cpu().numpy()

    def has(self, needs: Sequence[str]) -> bool:
        """Whether there is everything of that name."""
        return all((value := getattr(self, name)) is not None and value is not False for name in needs)

    def some(self, most: int | None = None) -> Documents:
        """The documents, or `most` of them, evenly spaced."""
        assert self.documents is not None
        count = len(self.documents) if most is None else min(most, len(self.documents))
        return self.documents.rows(np.arange(count) * len(self.documents) // count)

    def show(self, what: str) -> Callable[[int, int], None] | None:
        """How a part of an analysis says how far it is."""
        progress = self.progress
        return None if progress is None else lambda done, total: progress(what, done, total)


@dataclass(frozen=True)
class Analysis:
    """An analysis: a reader of the one pass of the documents, or a function of the subject.

    name: in `left_out`. reader: makes a reader for the model. measure: gives records, or records and arrays.
    needs: attributes of the subject without which it is not done. arrays: what the name of its file of arrays begins
        with.
    optional: a model that has nothing of the kind (a ValueError) is told of in `left_out`; anywhere else it is an
    error.
    """

    name: str
    measure: Callable[[Subject], list[Record] | tuple[list[Record], Arrays]] | None = None
    reader: Callable[[Any], Reader] | None = None
    needs: tuple[str, ...] = ("documents",)
    arrays: str = ""
    optional: bool = False
