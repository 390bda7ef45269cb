"""Geometry of the positions in a study's training text: measured once, kept in the study's folder."""

import logging

import numpy as np

from ..analysis.corpus_geometry import CorpusDistances, Plan, corpus_geometry
from ..analysis.record_context import RecordContext
from ..corpus import Windows, count_windows
from ..geometry.distances import TooLittleText
from ..records.record import Record
from ..run.folder import RunFolder
from ..run.progress import Progress, ignore_progress
from .geometry_run import geometry_arrays, geometry_records

CORPUS = "corpus"  # `model` of the records of a study's own corpus
# At most 254 positions; 16 groups and 4 random halves, fewer than geometry's 32 and 10.
MOST_STUDY_POSITIONS = 254
GROUPS = 16
SPLITS = 4
STEP = "measured corpus"
_RECORDS = "corpus-geometry.parquet"
_ARRAYS = f"arrays/geometry-{CORPUS}.npz"
_ADVICE = (
    "A study of more text would have one, or of smaller documents: --set document=blank-line makes one of each "
    "paragraph of a text file."
)

_log = logging.getLogger(__name__)


def measure_corpus(run: RunFolder, windows: Windows, study: str, progress: Progress = ignore_progress) -> None:
    """Measure the positions in the training documents if not done yet; `corpus_records` reads the records.

    Positions count from 0 at the first token after [CLS], as in GEOM; later pieces of a document are left out. Where
    nothing can be measured there are no records, and a warning on stderr says why.
    """
    if run.is_reusable(STEP):
        return
    positions = min(int(windows.facts["length"]) - 2, MOST_STUDY_POSITIONS)
    counts = count_windows(windows["train"], positions, groups=GROUPS, whole=True)
    try:
        geometry = corpus_geometry(counts, Plan(splits=SPLITS), progress)
    except ValueError as error:
        # The advice of the first kind names options of `geometry`, which a study does not have.
        message = f"{error.problem} {_ADVICE}" if isinstance(error, TooLittleText) else error
        _log.warning("No geometry of the corpus: %s", message)
        run.write(_RECORDS, [])
        run.mark_done(STEP, files=[_RECORDS])
        return
    run.write(_ARRAYS, geometry_arrays(geometry, {}))
    run.write(_RECORDS, geometry_records(RecordContext(CORPUS, study=study), counts, geometry))
    run.mark_done(STEP, files=[_ARRAYS, _RECORDS])


def corpus_records(run: RunFolder) -> list[Record]:
    """Return the records of the measured corpus, whose model is "corpus"; none where nothing could be measured."""
    records: list[Record] = run.read(_RECORDS)
    return records


def corpus_distances(run: RunFolder) -> CorpusDistances | None:
    """Return the Hellinger distances of the measured corpus; None where nothing could be measured."""
    if not run.has(_ARRAYS):
        return None
    arrays = run.read(_ARRAYS)
    corrected = np.maximum(arrays["corrected"], 0.0).astype(float) if "corrected" in arrays else None
    return CorpusDistances(arrays["distance"].astype(float), arrays["positions"], corrected)
