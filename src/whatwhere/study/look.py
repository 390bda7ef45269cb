"""What happens inside trained models: one pass of held-out documents through each, then what needs several models, then the corpus.

A study calls it for every model; `whatwhere heads` for one model alone.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.ablation import KINDS, ablation_records
from ..analysis.attention import AttentionScores, RetrievalScores, foreign_scores, repeated_documents
from ..analysis.correlations import correlation_records
from ..analysis.features import Documents
from ..analysis.geometry import Plan, corpus_geometry
from ..analysis.heads import HeadTaxonomy
from ..analysis.hidden import SentenceMaps
from ..analysis.local import local_records
from ..analysis.passes import read
from ..analysis.patterns import PatternCounts
from ..analysis.projection import projection_records
from ..analysis.scores import score_records, theta_records
from ..analysis.separation import CorpusDistances, low_rank_records, separation_records
from ..analysis.swap import swap_records
from ..analysis.variance import PositionVariance
from ..analysis.who import Who
from ..corpus import Windows, count_windows
from ..records import Record, read_records, write_records
from .geometry import geometry_records, save_geometry_arrays

CORPUS = "corpus"  # `model` of the records of a study's own corpus
REPEATED = 100  # documents that are repeated for the retrieval heads
CONTROLS = 200  # documents that the untrained model reads
AT_CHECKPOINTS = 16  # documents that the model of every checkpoint reads
SCORED = 16  # documents over which the spread of the scores is measured
# Of the geometry: positions, groups of documents for intervals, random halves: fewer than `whatwhere geometry` takes.
MOST_COUNTED, GROUPS, SPLITS = 254, 16, 4

_log = logging.getLogger(__name__)
Progress = Callable[[str, int, int], None]


@dataclass
class Found:
    """Records, arrays by the stem of their file, and what could not be measured, with the reason."""

    records: list[Record] = field(default_factory=list)
    arrays: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def attempt(self, what: str, measure: Callable[[], Any]) -> Any:
        """The result of an analysis, or None and the reason in `left_out` where the model has nothing of the kind."""
        try:
            return measure()
        except ValueError as error:
            self.left_out[what] = str(error)
            return None


def look_inside(
    model: Any,
    documents: Documents,
    who: Who,
    *,
    ablated: int = 32,
    thorough: bool = False,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> Found:
    """Head taxonomy, attention by term, retrieval, patterns, sentences and ablations of one model.

    ablated: documents whose loss is measured with parts of the attention taken out; 0: none. thorough: blocks and heads by all three
    kinds of ablation, not by removing alone, which takes three times as long. Encoders of other packages have no named
    terms and no masked loss here: their whole attention weights and hidden states are measured, `left_out` says what is not.
    """
    found = Found()
    ours = hasattr(model, "inspecting")
    place = who.stem

    def show(what: str) -> Callable[[int, int], None] | None:
        return None if progress is None else lambda done, total: progress(what, done, total)

    sentences, variance = SentenceMaps(model.config), PositionVariance(model.config)
    scores: list[Any] = [found.attempt("heads", lambda: HeadTaxonomy(model))]
    if ours:
        scores += [AttentionScores(model.config), found.attempt("patterns", lambda: PatternCounts(model.config))]
    scores = [reader for reader in scores if reader is not None]
    read(model, documents, [*scores, sentences, variance], batch_size, show("heads" if ours else "sentences"))
    if not ours:
        records, arrays = foreign_scores(model, documents, who, batch_size=batch_size, progress=show("attention"))
        found.records += records
        found.arrays.setdefault(f"attention-{place}", {}).update(arrays)
    for reader in scores:
        found.records += reader.records(who)
        found.arrays.setdefault(f"attention-{place}", {}).update(reader.arrays())
    found.records += sentences.records(who) + variance.records(who)
    found.arrays[f"hidden-{place}"] = sentences.arrays()
    if ours and (texts := found.attempt("retrieval", lambda: repeated_documents(first(documents, REPEATED)))) is not None:
        retrieval = RetrievalScores(model.config)
        read(model, texts[0], [retrieval.repeated], batch_size, show("retrieval"))
        read(model, texts[1], [retrieval.control], batch_size, show("retrieval"))
        found.records += retrieval.records(who)
    if ours:
        found.records += score_records(model, first(documents, SCORED), who, batch_size=batch_size)
        found.records += found.attempt("θ", lambda: theta_records(model, documents, who)) or []
    if (correlated := found.attempt("correlations", lambda: correlation_records(model, documents, who))) is not None:
        found.records += correlated[0]
        found.arrays[f"correlations-{place}"] = correlated[1]
    if hasattr(model, "head") and ours and ablated:
        few = first(documents, ablated)
        everywhere, at_once = (KINDS, ()) if thorough else (KINDS[:1], KINDS[1:])
        found.records += ablation_records(model, few, who, kinds=everywhere, batch_size=batch_size, progress=show("ablation"))
        if at_once:
            others = ablation_records(model, few, who, kinds=at_once, by=("all",), batch_size=batch_size, progress=show("replacement"))
            found.records += [r for r in others if r.metric != "ablation.loss"]
        swap = found.attempt("swapped rows", lambda: swap_records(model, few, who, progress=show("swapped rows")))
        found.records += swap or []
    found.arrays = {stem: arrays for stem, arrays in found.arrays.items() if arrays}
    return found


def untrained_records(model: Any, documents: Documents, who: Who, *, batch_size: int = 8) -> list[Record]:
    """Sentences, components, variance between positions and the spread of the scores before the first step, as records of step 0: words
    and the table alone make some of each."""
    sentences, variance = SentenceMaps(model.config), PositionVariance(model.config)
    read(model, first(documents, CONTROLS), [sentences, variance], batch_size)
    start = who.at(0)
    scores = score_records(model, first(documents, SCORED), start, batch_size=batch_size)
    return sentences.records(start) + variance.records(start) + scores


def first(documents: Documents, most: int) -> Documents:
    """At most `most` documents, evenly spaced."""
    return documents.rows(np.arange(min(most, len(documents))) * len(documents) // min(most, len(documents)))


def corpus_records(
    windows: Windows, out: Path, study: str, progress: Progress | None = None
) -> tuple[list[Record], CorpusDistances | None]:
    """Geometry of the positions in the training documents: records with model "corpus" and arrays/geometry-corpus.npz.

    Positions count from the start of a document, as in GEOM; where the windows hold one piece each, from the start of the piece.
    Kept in `out`, and read again where it is done. No distances where nothing can be measured; the log says why.
    """
    kept, arrays = out / "corpus-geometry.parquet", out / "arrays" / f"geometry-{CORPUS}.npz"
    if not kept.is_file():
        positions = min(int(windows.manifest["length"]) - 2, MOST_COUNTED)
        counts = count_windows(windows["train"], positions, groups=GROUPS, whole=windows.manifest["join"] == "run-on")
        try:
            found = corpus_geometry(counts, Plan(splits=SPLITS), progress or (lambda what, done, total: None))
        except ValueError as error:
            _log.warning("No geometry of the corpus: %s More text would give one.", str(error).split(" Count more")[0])
            write_records(kept, [])
            return [], None
        save_geometry_arrays(arrays, found, {})
        write_records(kept, geometry_records(Who(CORPUS, study=study), counts, found))
    records = read_records(kept)
    if not arrays.is_file():
        return records, None
    with np.load(arrays, allow_pickle=False) as file:
        corrected = np.maximum(file["corrected"], 0.0).astype(float) if "corrected" in file.files else None
        return records, CorpusDistances(file["distance"].astype(float), file["positions"], corrected)


def position_records(
    model: Any,
    folder: Path,
    corpus: CorpusDistances | None,
    documents: Documents | None,
    who: Who,
) -> list[Record]:
    """The position table and attention to neighbours at every checkpoint, and what each block's projections make of a table's distances.

    documents: of which the models of the checkpoints read `AT_CHECKPOINTS`; None: attention is not measured.
    """
    records: list[Record] = []
    if (folder / "checkpoints").is_dir():
        if model.position_table() is not None:
            records += separation_records(folder, who, corpus=corpus)
        if documents is not None:
            records += local_records(folder, first(documents, AT_CHECKPOINTS), who)
    if corpus is not None:
        records += projection_records(model, corpus, who)
        if (table := model.position_table()) is not None:
            records += low_rank_records(table.detach().double().cpu().numpy(), corpus, who)
    return records
