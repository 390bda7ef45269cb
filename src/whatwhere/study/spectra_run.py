"""`whatwhere spectra`: from sources of tables to records, a text table, and a folder with arrays and a page."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..analysis.position_tables import noise_records, table_arrays, table_records, word_records
from ..analysis.record_context import RecordContext
from ..models.table_sources import POSITIONS, SourceTable, load_tables
from ..records.record import Record
from ..run.folder import RunFolder
from ..run.text_tables import table_lines
from .results import command_of, save_or_compare_settings, save_results
from .study_keys import SpectraConfig

FACTS = "spectra.json"
SETTINGS_FILE = "spectra.yaml"
KIND = "spectra"
COLUMNS = ("rows", "width", "PCs", "top 3", "top 5", "top 10", "N50", "N50 %")


@dataclass(frozen=True)
class TableMeasurements:
    """Measured tables of positions, or of words, their records in the same order, and the models without a table."""

    tables: list[SourceTable]
    records: list[list[Record]]
    left_out: list[str]

    def summary(self) -> dict[str, Any]:
        """Return name, kind, seed, shape and source of each table, and the models left out."""
        entries = []
        for t in self.tables:
            rows, width = t.rows.shape
            named = {"name": t.name, "kind": t.kind, "seed": t.seed}
            entries.append({**named, "rows": rows, "width": width, "source": t.source})
        return {"tables": entries, "left_out": self.left_out}


def measure_tables(sources: Sequence[str | Path], words: bool = False, run_name: str = KIND) -> TableMeasurements:
    """Measure every position table of the sources.

    Args:
        words: Measure word tables, too, by shares of components and N50 alone.
        run_name: Column `study` of the records.

    Raises:
        ValueError: as `load_tables`; a table whose rows are all equal.
    """
    tables, left_out = load_tables(sources, words)
    records = []
    for table in tables:
        measure = table_records if table.kind == POSITIONS else word_records
        try:
            context = RecordContext(table.name, table.seed, run_name)
            noise = noise_records(table.rows, context) if table.kind == POSITIONS else []
            records.append(measure(table.rows, context)[0] + noise)
        except ValueError as error:
            raise ValueError(f"{table.source}, {table.kind}: {error}") from None
    return TableMeasurements(tables, records, left_out)


def run_spectra(
    sources: Sequence[str | Path], out: str | Path | None = None, words: bool = False, scheme: str | None = None
) -> tuple[TableMeasurements, Path | None]:
    """Measure the tables of all sources; return the measurements and the path of their report.

    Args:
        out: Folder for spectra.json, records.parquet, arrays/ and report.html; None: nothing is written.
        words: Measure word tables, too.
        scheme: File of the models' own scheme, loaded already; the recorded command names it.

    Raises:
        ValueError: as `measure_tables`; the folder holds something else, or results of other sources or `words`.
    """
    began = time.perf_counter()
    if out is None:
        return measure_tables(sources, words), None
    config = SpectraConfig(sources=[str(source) for source in sources], words=words)
    with RunFolder.open(out, KIND) as run:
        save_or_compare_settings(config, run, SETTINGS_FILE)
        measured = measure_tables(sources, words, run.name)
        page_facts = measured.summary()
        files: list[str] = []
        for table, entry in zip(measured.tables, page_facts["tables"], strict=True):
            context = RecordContext(table.name, table.seed, run.name)
            kind = "table" if table.kind == POSITIONS else "words"
            arrays = table_arrays(table.rows) if table.kind == POSITIONS else word_records(table.rows, context)[1]
            file = f"arrays/{kind}-{context.stem}.npz"
            if file in files:  # another model and seed have the same joined name
                file = f"arrays/{kind}-{context.stem}-{len(files)}.npz"
            files.append(file)
            run.write(file, {key: v.astype(np.float32) if v.dtype.kind == "f" else v for key, v in arrays.items()})
            entry |= {"arrays": file, "config": table.config}
        page_facts["title"] = "The shape of position tables"
        page_facts["seconds"] = time.perf_counter() - began
        flags = ["--words"] if words else []
        page_facts["command"] = command_of("spectra", *config.sources, *flags, scheme=scheme)
        records = list(chain.from_iterable(measured.records))
        return measured, save_results(run, records, FACTS, page_facts)


def spectra_text(measured: TableMeasurements) -> str:
    """Return the text of `whatwhere spectra`: all tables as rows of LOWDIM Table 1, then details of each table."""
    rows = []
    for kind in dict.fromkeys(t.kind for t in measured.tables):
        rows.append([kind, *COLUMNS])
        for table, records in zip(measured.tables, measured.records, strict=True):
            if table.kind == kind:
                top = [_value(records, metric) for metric in ("pca.top3", "pca.top5", "pca.top10")]
                sizes = [str(size) for size in (*table.rows.shape, min(table.rows.shape))]
                n50 = [f"{_value(records, 'n50.count'):.0f}", f"{_value(records, 'n50'):.1f}"]
                rows.append([_label(table), *sizes, *(f"{share:.2f}" for share in top), *n50])
    lines = table_lines(rows, right=range(1, 1 + len(COLUMNS)))
    for table, records in zip(measured.tables, measured.records, strict=True):
        if table.kind == POSITIONS:
            lines += ["", *_details(table, records)]
    if measured.left_out:
        lines += ["", f"no position table: {', '.join(measured.left_out)}"]
    return "\n".join(lines)


def _label(table: SourceTable) -> str:
    return table.name if table.seed is None else f"{table.name} seed {table.seed}"


def _value(records: list[Record], metric: str) -> float:
    return next(r.value for r in records if r.metric == metric)


def _details(table: SourceTable, records: list[Record]) -> list[str]:
    def row(name: str, metric: str, scale: float, digits: int) -> tuple[str, str]:
        return name, "  ".join(f"{scale * r.value:4.{digits}f}" for r in records if r.metric == metric)

    null = next(r for r in records if r.metric == "equivariance.null")
    pairs: dict[str, dict[str, float]] = {}
    for r in records:
        if r.metric.startswith("rotation.") and r.part:
            pairs.setdefault(r.part, {})[r.metric] = r.value
    rotations = [
        f"{part} {p['rotation.turns']:.1f} turns ({100 * p['rotation.strength']:.0f} % of their motion)"
        for part, p in pairs.items()
    ]
    outliers = [f"{r.index} ({r.value:.1f} x the median distance)" for r in records if r.metric == "outlier"]
    peaks = [f"{r.value:.0f}" for r in records if r.metric == "fft.peak"]
    components = [f"{r.index}: {r.value:.2f}" for r in records if r.metric == "equivariance.first"]
    rows = [
        row("share of components, %", "pca.share", 100, 1),
        row("turns of components", "fft.turns", 1, 0),
        row("power in 4 low DCT bins, %", "dct.low4", 100, 1),
        ("dominant turns", ", ".join(peaks) or "none"),
        ("pairs that rotate", ", ".join(rotations) or "none"),
        (
            "equivariance of E E^T",
            f"{_value(records, 'equivariance'):.3f}, shuffled {null.value:.3f} [{null.low:.3f}, {null.high:.3f}]",
        ),
        ("of its first components", ", ".join(components) or "-"),
        ("positions alone", ", ".join(outliers) or "none"),
    ]
    return [_label(table), *table_lines(rows, indent=2)]
