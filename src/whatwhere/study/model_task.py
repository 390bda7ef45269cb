"""Training and measuring one model of a study, in a process that knows nothing but its task."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..analysis import ALWAYS, ANALYSES, AnalysisInput, analyses_of
from ..analysis.passes import FEWEST_WINDOWS, choose_windows
from ..analysis.record_context import RecordContext
from ..corpus import Windows
from ..models.open import open_model
from ..models.tensors import default_device
from ..run.folder import RunFolder
from ..run.names import SUMMARY
from ..run.progress import Progress
from ..training.pretrain import pretrain
from ..training.pretrain_settings import PretrainConfig
from .corpus_step import corpus_distances
from .measurements import measure
from .results import RECORDS
from .study_settings import prefix_training_keys_in_errors
from .training_plan import ModelOfSeed
from .training_records import training_records

COMPONENTS = (2, 8)  # probes also read the first 2, and the first 8, principal components alone


@dataclass(frozen=True)
class ModelTask:
    """Description of one model of a study, with all that a process needs to train and measure it.

    out: Folder of the study, which has its windows already. training: Settings of the training, with seed and steps.
    probe_windows: Number of held-out windows that the probes and all other analyses of windows read.
    ablation_windows: Number of held-out windows whose loss is measured under ablations.
    all_analyses: True runs all analyses, False only the stage `ALWAYS` (probes, position tables, shift).
    """

    out: Path
    model: ModelOfSeed
    training: PretrainConfig
    probe_windows: int
    probe_splits: int
    ablation_windows: int
    all_analyses: bool


def has_windows_for_analyses(windows: Windows) -> bool:
    """Return whether enough held-out windows have the full length for the analyses that read windows.

    A study of fewer has neither probes nor heads, attention, ablations and controls.
    """
    held_out = windows["held_out"]
    return int((held_out.lengths() == held_out.length).sum()) >= FEWEST_WINDOWS


def train_and_measure(task: ModelTask, progress: Progress) -> dict[str, Any]:
    """Train one model of a study and measure it, skipping finished work.

    Returns:
        The training's summary, and `seconds_inside`: wall seconds of measuring the model now, 0 where it was measured.

    Raises:
        ValueError: a setting of the training is refused, or a file is not as it was written.
    """
    windows = Windows(task.out / "corpus")
    folder = task.out / task.model.folder
    with prefix_training_keys_in_errors():
        label = f"{task.model.name} seed {task.model.seed}"
        summary = pretrain(task.training, folder, windows=windows, progress=progress, label=label)
    # A worker may have measured the model, and died before it returned.
    started = time.perf_counter()
    if not RunFolder.at(task.out).is_reusable(task.model.step_name):
        progress(0, 1, "looking inside")
        measure_model(task, windows, progress)
    return {**summary, "seconds_inside": time.perf_counter() - started}


def measure_model(task: ModelTask, windows: Windows, progress: Progress) -> None:
    """Measure a trained model, and write its records and arrays as one step of the study."""
    run = RunFolder.at(task.out)
    folder = run.path / task.model.folder
    context = RecordContext(task.model.name, task.model.seed, task.out.resolve().name)
    first_checkpoint = folder / "checkpoints" / "step-0"
    device = default_device()
    untrained = open_model(first_checkpoint, "masked").model.to(device) if first_checkpoint.is_dir() else None
    held_out = windows["held_out"] if has_windows_for_analyses(windows) else None
    analysis_input = AnalysisInput(
        context,
        open_model(folder, "masked").model.to(device),
        windows=None if held_out is None else choose_windows(held_out, task.probe_windows),
        held_out=held_out,
        untrained=untrained,
        training_folder=folder if (folder / "checkpoints").is_dir() else None,
        corpus=corpus_distances(run) if task.all_analyses else None,
        probed=task.probe_windows,
        splits=task.probe_splits,
        components=COMPONENTS if task.all_analyses else (),
        ablation_windows=task.ablation_windows,
        progress=progress,
    )
    measured = measure(analysis_input, ANALYSES if task.all_analyses else analyses_of(ALWAYS))
    if untrained is None:
        measured.left_out["controls"] = f"{first_checkpoint} is gone, so nothing is held against the untrained model."
    files = []
    for stem, arrays in measured.arrays.items():
        files.append(f"arrays/{stem}.npz")
        run.write(files[-1], arrays)
    # The study's manifest lists the records, although the training's folder is a run: the study's step made them.
    files.append(f"{task.model.folder}/{RECORDS}")
    run.write(files[-1], training_records(folder, context) + measured.records)
    training_run = RunFolder.at(folder)
    outcome = {
        "config": training_run.read("config.json"),
        "summary": training_run.read(SUMMARY),
        "left_out": measured.left_out,
    }
    run.mark_done(task.model.step_name, files=files, outcome=outcome)
