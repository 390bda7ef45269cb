"""Analyses of a trained model: all that a study measures on each model, and the form that every analysis has.

A new analysis is a file of this folder and an entry of `ANALYSES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..records.record import Record
from ..run.files import Arrays
from .ablation import KINDS, ablation_records, document_loss_records, swap_records
from .attention_weights import AttentionScores, foreign_scores, retrieval_records
from .centres import centre_records
from .correlations import correlation_records
from .course import local_records, low_rank_records, separation_records
from .head_labels import HeadTaxonomy
from .hidden import PositionVariance, SentenceMaps, shift_records
from .matrices import projection_records
from .passes import Documents, Reader, as_float64, read
from .patterns import PatternCounts, score_records, theta_records
from .position_tables import noise_records, table_records
from .probes import probe_records
from .who import RecordContext

REPEATED = 100  # documents that the texts for the retrieval heads repeat
CONTROLS = 200  # documents that the untrained model reads
AT_CHECKPOINTS = 16  # documents that the model of every checkpoint reads
SCORED = 16  # documents over which the spread of the scores is measured


@dataclass(frozen=True, eq=False)
class AnalysisInput:
    """Model with the inputs of its analyses; an analysis runs where all inputs that it needs are there.

    who: context of the records. held_out: windows to probe. documents: windows that the analyses of `INSIDE` read.
    untrained: the model of step 0. run: folder (str or Path) of the training, with checkpoints.
    corpus: `CorpusDistances` of the texts. Each of these may be None: the run has no such input.
    probed, splits, components: documents, splits, components of `probe_records`.
    ablated: number of documents whose loss is measured without parts of the model; 0: none.
    thorough: True ablates blocks and heads by all kinds, which takes three times as long as removing alone.
    progress: function that is called with (name of the analysis, steps done, steps in all).
    """

    who: RecordContext
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
    progress: Callable[[str, int, int], None] | None = None

    @property
    def terms(self) -> bool:
        """True if the scores of the model are a sum of named terms, as in the encoders of this package."""
        return hasattr(self.model, "inspecting")

    @property
    def loss(self) -> bool:
        """True if the run asks for the loss of documents and the model has one."""
        return bool(self.terms and hasattr(self.model, "head") and self.ablated)

    @property
    def table(self) -> Any:
        """Position table (rows, width) in float64, or None."""
        table = self.model.position_table()
        return None if table is None else as_float64(table)

    def has(self, needs: Sequence[str]) -> bool:
        """Tell if all named inputs are there."""
        return all((value := getattr(self, name)) is not None and value is not False for name in needs)

    def some(self, most: int | None = None) -> Documents:
        """Return the documents, or `most` of them, evenly spaced."""
        assert self.documents is not None
        count = len(self.documents) if most is None else min(most, len(self.documents))
        return self.documents.rows(np.arange(count) * len(self.documents) // count)

    def show(self, what: str) -> Callable[[int, int], None] | None:
        """Return a function by which a part of an analysis reports its progress, or None."""
        return None if self.progress is None else partial(self.progress, what)


@dataclass(frozen=True)
class Analysis:
    """Analysis of a model: a reader of the shared pass of the documents, or a function of the inputs; with both, the
    reader is for models whose scores are a sum of named terms and the function for all others.

    name: its name in `left_out`. reader: function that makes a reader for the model. measure: function that returns
    records, or records and arrays. needs: attributes of the input without which it does not run. arrays: beginning of
    the name of its file of arrays. optional: True if a ValueError means that the model has nothing of the kind, which
    `left_out` then reports; elsewhere it is an error.
    """

    name: str
    measure: Callable[[AnalysisInput], list[Record] | tuple[list[Record], Arrays]] | None = None
    reader: Callable[[Any], Reader] | None = None
    needs: tuple[str, ...] = ("documents",)
    arrays: str = ""
    optional: bool = False


def _probes(s: AnalysisInput, untrained: bool = False) -> list[Record]:
    model, who = (s.untrained, s.who.at(0)) if untrained else (s.model, s.who)
    components = () if untrained else s.components
    return probe_records(model, s.held_out, who, documents=s.probed, splits=s.splits, components=components)


def _tables(s: AnalysisInput) -> tuple[list[Record], Arrays]:
    first = None if s.untrained is None else s.untrained.position_table()
    start = [] if first is None else table_records(first, s.who.at(0))[0]
    records, arrays = table_records(s.table, s.who)
    # The table is a parameter that AdamW's steps change directly.
    plain = s.model.config.absolute == "learned" and s.model.config.table_width is None
    return start + records + noise_records(s.table, s.who, first, s.run if plain else None), arrays


def _ablations(s: AnalysisInput) -> list[Record]:
    measure = partial(ablation_records, s.model, s.some(s.ablated), s.who)
    if s.thorough:
        return measure(progress=s.show("ablation"))
    records = measure(kinds=KINDS[:1], progress=s.show("ablation"))
    at_once = measure(kinds=KINDS[1:], by=("all",), progress=s.show("replacement"))
    return records + [r for r in at_once if r.metric != "ablation.loss"]


def _controls(s: AnalysisInput) -> list[Record]:
    """Measure the untrained model, whose words and table alone produce some of each quantity."""
    start = s.who.at(0)
    sentences = SentenceMaps(s.untrained)
    variance = PositionVariance(s.untrained)
    read(s.untrained, s.some(CONTROLS), [sentences, variance])
    scores = score_records(s.untrained, s.some(SCORED), start)
    worth: list[Record] = []
    if s.loss:
        worth = ablation_records(s.untrained, s.some(min(s.ablated, SCORED)), start, kinds=KINDS[:1], by=("all",))
    removed = [r for r in worth if r.metric != "ablation.loss"]
    return sentences.records(start) + variance.records(start) + scores + removed


def _centres(s: AnalysisInput) -> list[Record]:
    records = centre_records(s.model, s.some(), s.corpus, s.who)
    if s.untrained is None:
        return records
    return records + centre_records(s.untrained, s.some(CONTROLS), s.corpus, s.who.at(0))


# Analyses of every model of a study.
PLAIN = (
    Analysis("probes", _probes, needs=("held_out",)),
    Analysis("shift", lambda s: shift_records(s.model, s.held_out, s.who), needs=("held_out",)),
    Analysis("position table", _tables, needs=("table",), arrays="table"),
)
# Analyses of a model and documents, in a study or in `whatwhere heads`; analyses with a reader share one pass.
INSIDE = (
    Analysis("heads", reader=HeadTaxonomy, optional=True),
    Analysis(
        "attention",
        lambda s: foreign_scores(s.model, s.some(), s.who, progress=s.show("attention")),
        reader=AttentionScores,
        arrays="attention",
    ),
    Analysis("patterns", reader=PatternCounts, needs=("documents", "terms"), optional=True),
    Analysis("sentences", reader=SentenceMaps, arrays="hidden"),
    Analysis("variance", reader=PositionVariance),
    Analysis(
        "retrieval",
        lambda s: retrieval_records(s.model, s.some(REPEATED), s.who, progress=s.show("retrieval")),
        needs=("documents", "terms"),
        optional=True,
    ),
    Analysis("scores", lambda s: score_records(s.model, s.some(SCORED), s.who), needs=("documents", "terms")),
    Analysis("θ", lambda s: theta_records(s.model, s.some(), s.who), needs=("documents", "terms"), optional=True),
    Analysis(
        "correlations", lambda s: correlation_records(s.model, s.some(), s.who), arrays="correlations", optional=True
    ),
    Analysis("losses", lambda s: document_loss_records(s.model, s.some(), s.who), needs=("documents", "loss")),
    Analysis("ablations", _ablations, needs=("documents", "loss")),
    Analysis(
        "swapped rows",
        lambda s: swap_records(s.model, s.some(s.ablated), s.who, progress=s.show("swapped rows")),
        needs=("documents", "loss"),
        optional=True,
    ),
)
# Analyses of a training: its beginning, its checkpoints, its corpus.
TRAINING = (
    Analysis("untrained probes", lambda s: _probes(s, untrained=True), needs=("held_out", "untrained")),
    Analysis("untrained", _controls, needs=("documents", "untrained")),
    Analysis("separation", lambda s: separation_records(s.run, s.who, corpus=s.corpus), needs=("run", "table")),
    Analysis("neighbours", lambda s: local_records(s.run, s.some(AT_CHECKPOINTS), s.who), needs=("run", "documents")),
    Analysis("projection", lambda s: projection_records(s.model, s.corpus, s.who), needs=("corpus",)),
    Analysis("centres", _centres, needs=("documents", "corpus")),
    Analysis("low rank", lambda s: low_rank_records(s.table, s.corpus, s.who), needs=("corpus", "table")),
)
ANALYSES = (*PLAIN, *INSIDE, *TRAINING)
