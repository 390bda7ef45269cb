"""When a study writes its results and draws its page: after the first model, each completed seed, and at the end."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..records.record import Record
from ..run.names import RESULTS_STEP
from .prepared_study import Study
from .results import PAGE_FACTS, has_results_of, save_study, total_seconds
from .training_plan import ModelOfSeed, models_of

REPORT = "report.html"
CLUSTER_NOTE = (
    "Workers of a cluster trained models of this study, on one thread each; the machine named here only started them."
)


class StudyResults:
    """Results and page of a study, written after its first measured model, after each completed seed and at the end.

    Args:
        records: Records that need no model.
        at_once: How many models this command trains at the same time.
        trains_models: Whether this command trains a model, and not only measures trained ones; if not, the page keeps
            the `at_once` that it shows.
    """

    def __init__(self, study: Study, records: list[Record], steps: int, at_once: int, trains_models: bool) -> None:
        self.study = study
        self.records = records
        self.steps = steps
        self.models = models_of(study.config)
        self.models_on_page = _models_on_page(study, self.models)
        self.at_once = at_once
        if not trains_models and study.run.has(PAGE_FACTS):
            self.at_once = study.run.read(PAGE_FACTS).get("at_once", at_once)
        was_on_cluster = any(line.get("event") == "cluster" for line in study.run.log_lines())
        self.notes = [CLUSTER_NOTE] if was_on_cluster else []

    def write_if_due(self) -> None:
        """Write the results of the models measured so far, if a page is due and models are still to be measured."""
        measured = [model for model in self.models if self.study.is_measured(model)]
        # No page is drawn while a finished model, whose measurements are damaged, waits to be measured again.
        must_repeat = any(self.study.run.damage_of_step(model.step_name) for model in self.models)
        is_due = _needs_page(self.models, self.models_on_page, measured)
        if 0 < len(measured) < len(self.models) and not must_repeat and is_due:
            self.models_on_page = measured
            self.write(measured, [])

    def shows_all_models(self) -> bool:
        """Return whether the page shows all models, from the present settings and package versions."""
        return self.models_on_page == self.models and has_results_of(self.study.run, self.models)

    def write(self, measured: list[ModelOfSeed], comparison_records: list[Record]) -> Path:
        """Write the results of measured models and draw the page; return its path."""
        return save_study(
            self.study.run,
            self.study.config,
            self.study.windows,
            self.steps,
            measured,
            records_without_model=self.records,
            comparison_records=comparison_records,
            seconds=total_seconds(self.study.run.log_lines(), os.getpid(), self.study.log.seconds()),
            at_once=self.at_once,
            notes=self.notes,
        )


def _models_on_page(study: Study, models: Sequence[ModelOfSeed]) -> list[ModelOfSeed]:
    """Return the models that the page shows; none where a killed command left new results without a page."""
    results = study.run.finished_step(RESULTS_STEP)
    page = study.run.path / REPORT
    facts_file = study.run.path / PAGE_FACTS
    if results is None or not page.is_file() or not facts_file.is_file():
        return []
    if page.stat().st_mtime_ns < facts_file.stat().st_mtime_ns:  # the page is drawn after its facts
        return []
    return [model for model in models if str(model) in results["inputs"].get("models", ())]


def _needs_page(models: Sequence[ModelOfSeed], on_page: Sequence[ModelOfSeed], measured: Sequence[ModelOfSeed]) -> bool:
    """Return whether a page is due: after the first measured model, and after each completed seed."""

    def complete_seeds(done: Sequence[ModelOfSeed]) -> set[int]:
        incomplete = {model.seed for model in models if model not in done}
        return {model.seed for model in models} - incomplete

    new_seeds = complete_seeds(measured) - complete_seeds(on_page)
    return not on_page or bool(new_seeds)
