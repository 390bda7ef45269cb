"""A prepared study: what its training, measuring and drawing have in common."""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..corpus import Windows
from ..run.cluster import Cluster
from ..run.folder import RunFolder
from .model_task import ModelTask
from .study_settings import StudyConfig
from .training_plan import ModelOfSeed


class StudyLog:
    """Log of the events of a study: a line of log.jsonl for each and, where progress is shown, a line on stderr."""

    def __init__(self, out: Path, progress: bool) -> None:
        self.run = RunFolder.at(out)
        self.progress = progress
        self.began = time.perf_counter()

    def seconds(self) -> float:
        """Return the seconds since this object was made; with `--on` it is made once a worker has connected."""
        return time.perf_counter() - self.began

    def log_event(self, event: str, words: str = "", /, **values: Any) -> None:
        """Log an event with its values; where progress is shown, print `words`, or without words event and values."""
        seconds = round(self.seconds(), 2)
        self.run.log(seconds=seconds, event=event, pid=os.getpid(), **values)
        if self.progress:
            details = ", ".join(f"{key} {v:,}" if isinstance(v, int) else f"{key} {v}" for key, v in values.items())
            words = words or f"{event}{': ' + details if details else ''}"
            print(f"[{seconds:6.0f} s] {words}", file=sys.stderr, flush=True)


@dataclass
class Study:
    """Prepared study: folder, settings with matched widths, windows, log, and the cluster that trains its models."""

    run: RunFolder
    config: StudyConfig
    windows: Windows
    log: StudyLog
    cluster: Cluster | None = None

    @property
    def progress(self) -> bool:
        """True if progress is shown on stderr."""
        return self.log.progress

    def task_of(self, model: ModelOfSeed, steps: int) -> ModelTask:
        """Return what a process needs to train and measure a model."""
        config = self.config
        return ModelTask(
            out=self.run.path,
            model=model,
            training=config.pretraining(model.name, model.seed, steps),
            probe_windows=config.probe_windows,
            probe_splits=config.probe_splits,
            ablation_windows=config.ablation_windows,
            all_analyses=config.all_analyses,
        )

    def is_measured(self, model: ModelOfSeed) -> bool:
        """Return whether a model is measured, and its records and arrays are as they were written (not its weights)."""
        return self.run.is_reusable(model.step_name)
