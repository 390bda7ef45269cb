"""What is inside a trained model: all that a study measures on each.

A new analysis is a file of this folder and an entry of `ANALYSES`.
"""

from functools import partial

from ..files import Arrays
from ..records import Record
from .ablation import KINDS, ablation_records, document_loss_records
from .attention import AttentionScores, foreign_scores, retrieval_records
from .centres import centre_records
from .correlations import correlation_records
from .course import local_records, low_rank_records, separation_records
from .heads import HeadTaxonomy
from .hidden import PositionVariance, SentenceMaps, shift_records
from .matrices import projection_records
from .passes import read
from .probes import probe_records
from .scores import PatternCounts, score_records, theta_records
from .subject import Analysis, Subject
from .swap import swap_records
from .tables import table_records

REPEATED = 100  # documents that are repeated for the retrieval heads
CONTROLS = 200  # documents that the untrained model reads
AT_CHECKPOINTS = 16  # documents that the model of every checkpoint reads
SCORED = 16  # documents over which the spread of the scores is measured


def _probes(s: Subject, untrained: bool = False) -> list[Record]:
    model, who = (s.untrained, s.who.at(0)) if untrained else (s.model, s.who)
    components = () if untrained else s.components
    return probe_records(model, s.held_out, who, documents=s.probed, splits=s.splits, components=components)


def _tables(s: Subject) -> tuple[list[Record], Arrays]:
    start = [] if s.untrained is None else table_records(s.untrained.position_table(), s.who.at(0))[0]
    records, arrays = table_records(s.table, s.who)
    return start + records, arrays


def _ablations(s: Subject) -> list[Record]:
    measure = partial(ablation_records, s.model, s.some(s.ablated), s.who, batch_size=s.batch_size)
    if s.thorough:
        return measure(progress=s.show("ablation"))
    records = measure(kinds=KINDS[:1], progress=s.show("ablation"))
    at_once = measure(kinds=KINDS[1:], by=("all",), progress=s.show("replacement"))
    return records + [r for r in at_once if r.metric != "ablation.loss"]


def _controls(s: Subject) -> list[Record]:
    """Before the first step: words and the table alone make some of each."""
    start, sentences, variance = s.who.at(0), SentenceMaps(s.untrained), PositionVariance(s.untrained)
    read(s.untrained, s.some(CONTROLS), [sentences, variance], s.batch_size)
    scores = score_records(s.untrained, s.some(SCORED), start, batch_size=s.batch_size)
    return sentences.records(start) + variance.records(start) + scores


def _centres(s: Subject) -> list[Record]:
    records = centre_records(s.model, s.some(), s.corpus, s.who, batch_size=s.batch_size)
    if s.untrained is None:
        return records
    return records + centre_records(s.untrained, s.some(CONTROLS), s.corpus, s.who.at(0), batch_size=s.batch_size)


# Of every model of a study.
PLAIN = (
    Analysis("probes", _probes, needs=("held_out",)),
    Analysis("shift", lambda s: shift_records(s.model, s.held_out, s.who), needs=("held_out",)),
    Analysis("position table", _tables, needs=("table",), arrays="table"),
)
# Of a model and documents, of a study or of `whatwhere heads`; those with a reader share one pass.
INSIDE = (
    Analysis("heads", reader=HeadTaxonomy, optional=True),
    Analysis("attention", reader=AttentionScores, needs=("documents", "terms"), arrays="attention"),
    Analysis("patterns", reader=PatternCounts, needs=("documents", "terms"), optional=True),
    Analysis("sentences", reader=SentenceMaps, arrays="hidden"),
    Analysis("variance", reader=PositionVariance),
    Analysis(
        "attention",
        lambda s: foreign_scores(s.model, s.some(), s.who, batch_size=s.batch_size, progress=s.show("attention")),
        needs=("documents", "whole"),
        arrays="attention",
    ),
    Analysis(
        "retrieval",
        lambda s: retrieval_records(
            s.model, s.some(REPEATED), s.who, batch_size=s.batch_size, progress=s.show("retrieval")
        ),
        needs=("documents", "terms"),
        optional=True,
    ),
    Analysis(
        "scores",
        lambda s: score_records(s.model, s.some(SCORED), s.who, batch_size=s.batch_size),
        needs=("documents", "terms"),
    ),
    Analysis("θ", lambda s: theta_records(s.model, s.some(), s.who), needs=("documents", "terms"), optional=True),
    Analysis(
        "correlations", lambda s: correlation_records(s.model, s.some(), s.who), arrays="correlations", optional=True
    ),
    Analysis(
        "losses",
        lambda s: document_loss_records(s.model, s.some(), s.who, batch_size=s.batch_size),
        needs=("documents", "loss"),
    ),
    Analysis("ablations", _ablations, needs=("documents", "loss")),
    Analysis(
        "swapped rows",
        lambda s: swap_records(s.model, s.some(s.ablated), s.who, progress=s.show("swapped rows")),
        needs=("documents", "loss"),
        optional=True,
    ),
)
# Of a training: its beginning, its checkpoints, its corpus.
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
