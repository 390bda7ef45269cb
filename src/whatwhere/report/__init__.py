"""The report: one self-contained HTML page made from the plain files of a run's folder."""

from pathlib import Path

from .geometry_page import write_geometry_report
from .spectra_page import write_spectra_report
from .study_page import write_report

__all__ = ["write_geometry_report", "write_page_of", "write_report", "write_spectra_report"]


def write_page_of(run: Path) -> Path:
    """Write report.html of a run again, whichever it is: a geometry run, a spectra run, or a study.

    Raises:
        ValueError: the folder holds none of them, or a file in it is damaged.
    """
    if (run / "geometry.json").is_file():
        return write_geometry_report(run)
    if (run / "spectra.json").is_file():
        return write_spectra_report(run)
    if not (run / "records.parquet").is_file() and (run / "config.json").is_file():
        raise ValueError(
            f"{run} is a model, and has no page. Its numbers are in training.json; probe, spectra and geometry --model measure it."
        )
    return write_report(run)
