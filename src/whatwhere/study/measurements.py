"""Analyses of one model: each where the model has its inputs, many in one pass of the windows."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from ..analysis import Analysis, AnalysisInput
from ..analysis.passes import read
from ..records.record import Arrays, Record


@dataclass
class Measurements:
    """Records by analysis, arrays by file, and reasons for what was not measured.

    Records are by the name of their analysis, arrays by the stem of their file.
    """

    records_of: dict[str, list[Record]] = field(default_factory=dict)
    arrays: dict[str, Arrays] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def records(self) -> list[Record]:
        """Records of all analyses, each once: both "position table" and "separation" return the step-0 shares."""
        return list(dict.fromkeys(chain.from_iterable(self.records_of.values())))

    def attempt(self, analysis: Analysis, measure: Callable[[], Any]) -> Any:
        """Return what `measure` returns, or None where it cannot be measured.

        None if an optional analysis raises a ValueError, whose words are then the reason in `left_out`.
        """
        try:
            return measure()
        except ValueError as error:
            if not analysis.optional:
                raise
            self.left_out[analysis.name] = str(error)
            return None


def measure(analysis_input: AnalysisInput, analyses: Iterable[Analysis]) -> Measurements:
    """Run every analysis that `analysis_input` suffices for; those with a reader share one pass of its windows."""
    measured = Measurements()
    possible = [analysis for analysis in analyses if analysis_input.has(analysis.needs)]
    # An analysis that can also measure alone uses its reader only where the model has named terms.
    readers = {
        a: measured.attempt(a, partial(a.reader, analysis_input.model))
        for a in possible
        if a.reader is not None and (analysis_input.has_terms or a.measure is None)
    }
    readers = {a: reader for a, reader in readers.items() if reader is not None}
    if readers:
        progress = analysis_input.progress_of("heads" if analysis_input.has_terms else "sentences")
        read(analysis_input.model, analysis_input.evenly_spaced(), list(readers.values()), progress=progress)
    for analysis in possible:
        result: Any = None
        if analysis in readers:
            result = readers[analysis].records(analysis_input.context), readers[analysis].arrays()
        elif analysis.measure is not None:
            result = measured.attempt(analysis, partial(analysis.measure, analysis_input))
        records, arrays = result if isinstance(result, tuple) else (result or [], {})
        measured.records_of[analysis.name] = records
        if arrays and analysis.arrays:
            measured.arrays[f"{analysis.arrays}-{analysis_input.context.stem}"] = arrays
    return measured


def split_analyses(analysis_input: AnalysisInput, analyses: Iterable[Analysis]) -> list[tuple[Analysis, ...]]:
    """Split the analyses that `analysis_input` suffices for into jobs.

    Analyses with a reader share a pass, each other one is alone.
    """
    possible = [analysis for analysis in analyses if analysis_input.has(analysis.needs)]
    readers = tuple(analysis for analysis in possible if analysis.reader is not None)
    alone = [(analysis,) for analysis in possible if analysis.reader is None]
    return [readers, *alone] if readers else list(alone)


def join_measurements(parts: Sequence[Measurements], analyses: Iterable[Analysis]) -> Measurements:
    """Return what `measure` returns for `analyses`, from the measurements of their groups (`split_analyses`)."""
    records_of = {name: records for part in parts for name, records in part.records_of.items()}
    return Measurements(
        {analysis.name: records_of[analysis.name] for analysis in analyses if analysis.name in records_of},
        {stem: arrays for part in parts for stem, arrays in part.arrays.items()},
        {name: reason for part in parts for name, reason in part.left_out.items()},
    )
