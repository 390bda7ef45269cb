"""The report: one self-contained HTML page made from the plain files of a run's folder."""

from pathlib import Path

from .compare import comparison_page, open_runs
from .loaded_run import load_run, page_kind
from .page import Page, write_page, write_tables
from .pages import geometry_page, open_page, spectra_page

__all__ = ["Page", "comparison_page", "open_runs", "page_of", "write_page", "write_report", "write_tables"]


def write_report(folder: str | Path, out: Path | None = None) -> Path:
    """Write the report of a run's folder to `out` (default: report.html inside it), whole or not at all; returns it.

    Raises ValueError: as `page_of`.
    """
    return write_page(out or Path(folder) / "report.html", page_of(folder))


def page_of(run: str | Path) -> Page:
    """Return the page of a geometry run, a spectra run, or a study.

    Raises ValueError: the folder holds none of them, or a file in it is damaged.
    """
    kind = page_kind(Path(run))
    if kind == "model":
        problem = f"{run} is a model, and has no page. Its numbers are in training.json"
        raise ValueError(f"{problem}; probe, spectra and geometry --model measure it.")
    special = {"geometry": geometry_page, "spectra": spectra_page}
    return special[kind](load_run(run)) if kind in special else open_page(run)
