"""What happens inside trained models: every analysis that there is all for, many in one pass of the documents; the
corpus.

A study calls it for every model; `whatwhere heads` for one model alone.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis import Analysis, Subject
from ..analysis.geometry import CorpusDistances, Plan, corpus_geometry
from ..analysis.passes import read
from ..analysis.who import Who
from ..corpus import Windows, count_windows
from ..files import Arrays
from ..records import Record, read_records, write_records
from .geometry import geometry_records, save_geometry_arrays

CORPUS = "corpus"  # `model` of the records of a study's own corpus
# Of the geometry: positions, groups of documents for intervals, random halves: fewer than `whatwhere geometry` takes.
MOST_COUNTED, GROUPS, SPLITS = 254, 16, 4

_log = logging.getLogger(__name__)
Progress = Callable[[str, int, int], None]


@dataclass
class Measurements:
    """Records, arrays by the stem of their file, and what could not be measured, with the reason."""

    records: list[Record] = field(default_factory=list)
    arrays: dict[str, Arrays] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def attempt(self, analysis: Analysis, measure: Callable[[], Any]) -> Any:
        """What `measure` returns; None, with the reason in `left_out`, where the model has nothing of the kind."""
        try:
            return measure()
        except ValueError as error:
            if not analysis.optional:
                raise
            self.left_out[analysis.name] = str(error)
            return None


def measure(subject: Subject, analyses: Iterable[Analysis]) -> Measurements:
    """Do all analyses that the subject has everything for, those with a reader in one pass of its documents."""
    measured = Measurements()
    possible = [analysis for analysis in analyses if subject.has(analysis.needs)]
    readers = {a: measured.attempt(a, partial(a.reader, subject.model)) for a in possible if a.reader is not None}
    readers = {a: reader for a, reader in readers.items() if reader is not None}
    if readers:
        show = subject.show("heads" if subject.terms else "sentences")
        read(subject.model, subject.some(), list(readers.values()), progress=show)
    for analysis in possible:
        result: Any = None
        if analysis in readers:
            result = readers[analysis].records(subject.who), readers[analysis].arrays()
        elif analysis.measure is not None:
            result = measured.attempt(analysis, partial(analysis.measure, subject))
        records, arrays = result if isinstance(result, tuple) else (result or [], {})
        measured.records += records
        if arrays and analysis.arrays:
            measured.arrays[f"{analysis.arrays}-{subject.who.stem}"] = arrays
    # Two analyses may say the same: the shares of the table of step 0 are of "position table" and of "separation".
    measured.records = list(dict.fromkeys(measured.records))
    return measured


def corpus_records(
    windows: Windows, out: Path, study: str, progress: Progress | None = None
) -> tuple[list[Record], CorpusDistances | None]:
    """Geometry of the positions in the training documents: records with model "corpus" and arrays/geometry-corpus.npz.

    Positions count from the start of a document, as in GEOM; where windows hold one piece each, from the start of it.
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
