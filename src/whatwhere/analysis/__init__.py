"""Analyses of a trained model: all that a study measures on each model.

A new analysis is a file of this folder: its metrics with `add_metrics`, and what is done as `ANALYSES`, which is found.
"""

from importlib import import_module
from pkgutil import iter_modules

from .analyses import ALWAYS, OF_WINDOWS, STAGES, TRAINING, Analysis, AnalysisInput

__all__ = ["ANALYSES", "OF_WINDOWS", "ALWAYS", "TRAINING", "Analysis", "AnalysisInput", "analyses_of"]


def _collect() -> tuple[Analysis, ...]:
    """Return the analyses of all files of this folder, by stage and file."""
    names = sorted(module.name for module in iter_modules(__path__))
    files = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(
        analysis
        for stage in STAGES
        for file in files
        for analysis in getattr(file, "ANALYSES", ())
        if analysis.stage == stage
    )


ANALYSES = _collect()


def analyses_of(*stages: str) -> tuple[Analysis, ...]:
    """Return the analyses of some stages."""
    return tuple(analysis for analysis in ANALYSES if analysis.stage in stages)
