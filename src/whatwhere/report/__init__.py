"""The report: one self-contained HTML page made from the plain files of a run's folder."""

from pathlib import Path

from .compare import comparison_page, open_runs, write_comparison
from .csv_files import write_tables
from .geometry_load import load_geometry
from .geometry_page import geometry_page, write_geometry_report
from .page import Page, write_page
from .spectra_page import load_spectra, spectra_page, write_spectra_report
from .study_page import open_page, write_report

__all__ = [
    "comparison_page",
    "open_runs",
    "page_of",
    "write_comparison",
    "write_geometry_report",
    "write_page",
    "write_page_of",
    "write_report",
    "write_spectra_report",
    "write_tables",
]


def page_of(run: Path) -> Page:
    """The page of a run, whichever it is: a geometry run, a spectra run, or a study.

    Raises:
        ValueError: the folder holds none of them, or a file in it is damaged.
    """
    if (run / "geometry.json").is_file():
        return geometry_page(load_geometry(run))
    if (run / "spectra.json").is_file():
        return spectra_page(load_spectra(run))
    if not (run / "records.parquet").is_file() and (run / "config.json").is_file():
        raise ValueError(
            f"{run} is a model, and has no page. Its numbers are in training.json; probe, spectra and geometry --model measure it."
        )
    return open_page(run)


def write_page_of(run: Path, out: Path | None = None) -> Path:
    """Write the page of a run again, to `out` (default: report.html inside the run).

    Raises:
        ValueError: as `page_of`.
    """
    return write_page(run / "report.html" if out is None else out, page_of(run))
