"""Running the analyses of one model, many of them in one pass of the windows, and joining their results."""

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
    """Results of the analyses of one model.

    records_by_analysis: by the analysis's name. arrays: by the stem of their file. left_out: analysis -> why it was not
    measured.
    """

    records_by_analysis: dict[str, list[Record]] = field(default_factory=dict)
    arrays: dict[str, Arrays] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def records(self) -> list[Record]:
        """Records of all analyses, each once: both "position table" and "separation" return the step-0 shares."""
        return list(dict.fromkeys(chain.from_iterable(self.records_by_analysis.values())))

    def attempt(self, analysis: Analysis, function: Callable[[], Any]) -> Any:
        """Return what `function` returns; None where it refuses the model, with the reason in `left_out`.

        Raises:
            ValueError: `function` refuses the model, and the analysis is not optional.
        """
        try:
            return function()
        except ValueError as error:
            if not analysis.optional:
                raise
            self.left_out[analysis.name] = str(error)
            return None


def measure(analysis_input: AnalysisInput, analyses: Iterable[Analysis]) -> Measurements:
    """Run every analysis whose inputs are there; analyses with a reader share one pass of the windows."""
    measured = Measurements()
    possible = [analysis for analysis in analyses if analysis_input.has(analysis.needs)]
    # An analysis with a reader and `measure` uses the reader where the model has named terms, and else measures alone.
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
        elif analysis.measure is not None and analysis.name not in measured.left_out:
            result = measured.attempt(analysis, partial(analysis.measure, analysis_input))
        records, new_arrays = result if isinstance(result, tuple) else (result or [], {})
        measured.records_by_analysis[analysis.name] = records
        if new_arrays and analysis.array_stem:
            measured.arrays[f"{analysis.array_stem}-{analysis_input.context.stem}"] = new_arrays
    return measured


def split_analyses(analysis_input: AnalysisInput, analyses: Iterable[Analysis]) -> list[tuple[Analysis, ...]]:
    """Split the analyses whose inputs are there into jobs.

    Analyses with a reader of windows (`passes.Reader`) share one job; each other analysis has its own.
    """
    possible = [analysis for analysis in analyses if analysis_input.has(analysis.needs)]
    with_reader = tuple(analysis for analysis in possible if analysis.reader is not None)
    alone = [(analysis,) for analysis in possible if analysis.reader is None]
    return [with_reader, *alone] if with_reader else list(alone)


def join_measurements(parts: Sequence[Measurements], analyses: Iterable[Analysis]) -> Measurements:
    """Return what `measure` returns for `analyses`, from the measurements of the jobs (`split_analyses`)."""
    joined = {name: records for part in parts for name, records in part.records_by_analysis.items()}
    return Measurements(
        {analysis.name: joined[analysis.name] for analysis in analyses if analysis.name in joined},
        {stem: arrays for part in parts for stem, arrays in part.arrays.items()},
        {name: reason for part in parts for name, reason in part.left_out.items()},
    )
