"""The step of a study that measures the geometry of positions in its training text."""

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

CORPUS = "corpus"  # `model` of the geometry's records; sizes of the corpus (`corpus_size_records`) have the model ""
MOST_STUDY_POSITIONS = 254
# Fewer than `whatwhere geometry` takes by default (32 and 10), to save time.
GROUPS = 16  # of documents, for intervals
SPLITS = 4  # random halves
STEP = "measured corpus"
_RECORDS = "corpus-geometry.parquet"
_ARRAYS = f"arrays/geometry-{CORPUS}.npz"
_ADVICE = "Study more text, or smaller documents: --set document=blank-line makes one of each paragraph of a text file."

_log = logging.getLogger(__name__)


def measure_corpus(run: RunFolder, windows: Windows, progress: Progress = ignore_progress) -> None:
    """Measure the positions in the training documents once; `corpus_geometry_records` reads the records.

    Positions count from 0 at the first token after [CLS], as in GEOM; later pieces of a document are left out. Where
    nothing can be measured, the records are empty, and a warning on stderr says why.
    """
    if run.is_reusable(STEP):
        return
    positions = min(int(windows.facts["length"]) - 2, MOST_STUDY_POSITIONS)
    counts = count_windows(windows["train"], positions, groups=GROUPS, whole=True)
    try:
        geometry = corpus_geometry(counts, Plan(splits=SPLITS), progress)
    except ValueError as error:
        # The advice of `TooLittleText` names options of `geometry`, which a study does not have.
        message = f"{error.problem} {_ADVICE}" if isinstance(error, TooLittleText) else error
        _log.warning("No geometry of the corpus: %s", message)
        run.write(_RECORDS, [])
        run.mark_done(STEP, files=[_RECORDS])
        return
    run.write(_ARRAYS, geometry_arrays(geometry, {}))
    run.write(_RECORDS, geometry_records(RecordContext(CORPUS, run_name=run.name), counts, geometry))
    run.mark_done(STEP, files=[_ARRAYS, _RECORDS])


def corpus_geometry_records(run: RunFolder) -> list[Record]:
    """Return the records of the measured corpus; none where nothing could be measured."""
    records: list[Record] = run.read(_RECORDS)
    return records


def corpus_distances(run: RunFolder) -> CorpusDistances | None:
    """Return the Hellinger distances of the measured corpus; None where nothing could be measured."""
    if not run.has(_ARRAYS):
        return None
    arrays = run.read(_ARRAYS)
    corrected = np.maximum(arrays["corrected"], 0.0).astype(float) if "corrected" in arrays else None
    return CorpusDistances(arrays["distance"].astype(float), arrays["positions"], corrected)
