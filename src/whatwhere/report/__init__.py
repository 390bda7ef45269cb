"""The report: one self-contained HTML page made from the plain files of a run's folder."""

from .compare import comparison_page, open_runs, write_comparison
from .csv_files import write_tables
from .page import Page, write_page
from .pages import page_of, write_report

__all__ = ["Page", "comparison_page", "open_runs", "page_of", "write_comparison", "write_page", "write_report", "write_tables"]
