"""The report: one self-contained HTML page made from the plain files of a study folder."""

from .study_page import write_report

__all__ = ["write_report"]
