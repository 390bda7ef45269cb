"""Status of the runs in a folder, read from their files alone; runs may go on meanwhile."""

import math
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .files import describe_os_error, read_lines, read_object, read_yaml
from .folder import LOG, MANIFEST, RunFolder
from .lock import writer_of
from .names import (
    EVALUATE_ALL,
    FINISHED_TRIAL,
    RESULTS_STEP,
    STUDY_SETTINGS,
    SUMMARY,
    TRAINED_STEP,
    TRAINING_SETTINGS,
    TRIALS,
)

_LARGEST_NUMBER = 10**300  # in a log: a larger whole number may not fit a float
_SHARD = re.compile(r"model-(\d+)-of-(\d+)\.safetensors")
MOST_SILENT = 300.0  # seconds without a log line, after which the status of a running training warns the user


def step_lines(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a training's log that have a step; a line that a crash cut off is left out.

    Raises:
        ValueError: the step of a line is no whole number, or another value is no number.
    """
    lines = [line for line in read_lines(log) if "step" in line]
    for line in lines:
        for key, value in line.items():
            kind = int if key == "step" else int | float | None
            is_too_large = isinstance(value, int) and abs(value) >= _LARGEST_NUMBER
            if not isinstance(value, kind) or isinstance(value, bool) or is_too_large:
                expected = "a whole number" if key == "step" else "a number"
                raise ValueError(f"{log}: {key} must be {expected}; got {str(value)[:60]}. Delete that line.")
    return lines


def is_finished(folder: Path) -> bool:
    """Return whether the training in a folder is finished; hashes are not compared.

    A folder without a manifest, such as a copy of some files, counts as finished where it has summary and weights.
    """
    run = RunFolder.at(folder)
    is_trained = run.kind is None or run.finished_step(TRAINED_STEP) is not None
    return is_trained and (folder / SUMMARY).is_file() and has_weights(folder)


def newest_step(folder: Path) -> int | None:
    """Return the step of a training's newest checkpoint, be it 0 or damaged; None where it has none.

    The folder's name tells it. Which one a training resumes from, `training.checkpoints.newest_checkpoint` finds out.
    """
    numbers = [path.name.removeprefix("step-") for path in folder.glob("checkpoints/step-*")]
    return max((int(number) for number in numbers if number.isdigit()), default=None)


def has_weights(folder: Path) -> bool:
    """Return whether the weights of a model are in a folder: one safetensors file, or the index and all its shards."""
    if (folder / "model.safetensors").is_file():
        return True
    shards = [match for path in folder.glob("model-*.safetensors") if (match := _SHARD.fullmatch(path.name))]
    numbers = {int(match[1]) for match in shards}
    is_whole = bool(shards) and numbers == set(range(1, int(shards[0][2]) + 1))
    return is_whole and (folder / "model.safetensors.index.json").is_file()


def run_status(folder: Path) -> list[dict[str, Any]]:
    """Return the status of the run in a folder and of every run inside it (of a study, of `evaluate all`).

    Each status has `folder`, `kind` of the run, `state` ("running", "stopped", "finished"; "queued" for a stopped
    training of a running study), and `writer` (process and machine, or None). A study also has the numbers of its
    `models` (one for each seed) and of `finished` trainings, an evaluation the number of finished `trials`. A training
    has step, steps, loss and validation_loss in nats, validation_step, tokens_per_second, seconds_left, waiting (share
    of time spent waiting for batches), peak_memory_bytes, silent (seconds since its log grew), checkpoint (the newest
    step), seconds if it is finished, and `trouble`, sentences on problems that the user should look at.

    Raises:
        ValueError: the folder has no run, or a file of a run is damaged.
    """
    for name in TRAINING_SETTINGS:
        if (folder / name).is_file():
            return [_status_of_training(folder, name)]
    run = RunFolder.at(folder)
    trainings = [_status_of_training(path.parent, path.name) for path in _trainings_below(folder)]
    if (folder / STUDY_SETTINGS).is_file():
        study = _status_of_study(run, trainings)
        for training in trainings:
            if study["state"] == "running" and training["state"] == "stopped":
                training["state"] = "queued"
        return [study, *trainings]
    if run.kind is not None and (folder / f"{run.kind}.yaml").is_file():
        evaluations = list(_evaluations_below(folder)) if run.kind == EVALUATE_ALL else []
        return [_status_of_other(run), *map(_status_of_other, evaluations), *trainings]
    if not folder.is_dir():
        problem = f"{folder} is no folder" if folder.exists() else f"There is no folder {folder}"
        raise ValueError(f"{problem}. Give the --out folder of a run.")
    raise ValueError(
        f"There is no run in {folder} whose progress can be told. Give the --out folder of study, pretrain, finetune, "
        "heads, geometry, spectra or evaluate."
    )


def _trainings_below(folder: Path) -> Iterator[Path]:
    """Yield the settings files of the trainings in the folder of a study."""
    return (path for name in TRAINING_SETTINGS for path in sorted(folder.glob(f"models/*/seed-*/{name}")))


def _evaluations_below(folder: Path) -> Iterator[RunFolder]:
    """Yield the runs in the folder of `evaluate all`."""
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        run = RunFolder.at(path.parent)
        if run.kind is not None and (run.path / f"{run.kind}.yaml").is_file():
            yield run


def _status_of_study(run: RunFolder, trainings: list[dict[str, Any]]) -> dict[str, Any]:
    path = run.path / STUDY_SETTINGS
    settings = _read_settings(path)
    models = settings.get("models") or []
    seeds = settings.get("seeds") or 1
    for key, value, type_, expected in (("models", models, list, "a list"), ("seeds", seeds, int, "a whole number")):
        if not isinstance(value, type_):
            raise ValueError(f"{path}: {key} must be {expected}; got {str(value)[:60]}. Use a complete copy.")
    count = sum(training["state"] == "finished" for training in trainings)
    results = run.finished_step(RESULTS_STEP)
    is_complete = results is not None and len(results["inputs"].get("models", ())) >= len(models) * seeds
    return _common_status_of(run, "study", is_complete) | {"models": len(models) * seeds, "finished": count}


def _status_of_other(run: RunFolder) -> dict[str, Any]:
    """Return the status of a run that is neither a study nor a training."""
    status = _common_status_of(run, str(run.kind), _has_all_results(run))
    if (run.path / TRIALS).is_dir():
        status["trials"] = sum(step.startswith(FINISHED_TRIAL) for step in run.inputs_of_finished())
    return status


def _has_all_results(run: RunFolder) -> bool:
    """Return whether the run has results of its present settings, with no trial unfinished."""
    if (results := run.finished_step(RESULTS_STEP)) is None:
        return False
    is_current = results["inputs"].get("settings") == run.hash_of(f"{run.kind}.yaml")
    return is_current and not results["outcome"].get("unfinished")


def _common_status_of(run: RunFolder, kind: str, is_complete: bool) -> dict[str, Any]:
    """Return the entries that every run but a training has; `is_complete`: True where it has all its results."""
    writer = writer_of(run.path)
    state = "finished" if is_complete else "stopped"
    if writer is not None:
        state = "running"
    return {"folder": str(run.path), "kind": kind, "writer": writer, "state": state}


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = read_yaml(path)
    except OSError as error:
        raise ValueError(describe_os_error(error)) from None
    if not isinstance(settings, dict):
        raise ValueError(f"{path} must hold `key: value` lines; got {type(settings).__name__}. Use a complete copy.")
    return settings


def _status_of_training(folder: Path, file: str) -> dict[str, Any]:
    settings = _read_settings(folder / file)
    writer = writer_of(folder)
    log = folder / LOG
    lines = step_lines(log)
    training_lines = [line for line in lines if "tokens_per_second" in line]
    validations = [line for line in lines if "validation_loss" in line]
    last: Mapping[str, Any] = training_lines[-1] if training_lines else {}
    logged_step = int(last.get("step") or 0)
    steps = settings.get("steps")
    if not isinstance(steps, int | None):
        raise ValueError(f"{folder / file}: steps must be a whole number; got {str(steps)[:60]}. Use a complete copy.")
    is_done = is_finished(folder)
    checkpoint = newest_step(folder)
    state = "running" if writer else "stopped"
    status: dict[str, Any] = {
        "folder": str(folder),
        "kind": file.removesuffix(".yaml"),
        "writer": writer,
        "state": "finished" if is_done else state,
        "step": max(logged_step, checkpoint or 0),  # a stopped training may have saved a step that it has not logged
        "steps": steps,
        "loss": last.get("loss"),
        "validation_loss": validations[-1]["validation_loss"] if validations else None,
        "validation_step": validations[-1]["step"] if validations else None,
        "tokens_per_second": last.get("tokens_per_second"),
        "waiting": last.get("waiting"),
        "peak_memory_bytes": last.get("peak_memory_bytes"),
        "checkpoint": checkpoint,
        "silent": max(0.0, time.time() - log.stat().st_mtime) if log.is_file() and not is_done else None,
        "seconds_left": None,
    }
    speed = last.get("tokens_per_second")
    tokens = last.get("tokens")
    if logged_step and steps and tokens and speed and math.isfinite(speed):
        status["seconds_left"] = (steps - status["step"]) * tokens / logged_step / speed
    if is_done:
        status["seconds"] = read_object(folder / SUMMARY).get("seconds")
    return status | {"trouble": list(_find_trouble(status, folder))}


def _find_trouble(status: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield sentences on problems of a training that the user should look at."""
    for name in ("loss", "validation_loss"):
        if status[name] is not None and not math.isfinite(status[name]):
            yield f"its {name.replace('_', ' ')} is {status[name]}"
    for path in sorted(folder.glob("not-finite-*.npz")) if status["state"] != "finished" else ():
        yield f"a step was not finite; its batch is in {path}"
    if status["state"] == "running" and (status["silent"] or 0) > MOST_SILENT:
        yield f"nothing was logged for {status['silent'] / 60:.0f} minutes"
    if (status["waiting"] or 0) > 0.2:
        yield f"{status['waiting']:.0%} of its time it waits for batches: the disk or the processor is too slow"


def status_text(statuses: list[dict[str, Any]]) -> str:
    """Return the text of `whatwhere status`: a line for each run, its problems below it."""
    lines = []
    for status in statuses:
        words = [status["kind"], status["state"]]
        if "models" in status:
            words.append(f"{status['finished']} of {status['models']} models trained")
        if "trials" in status:
            words.append(f"{status['trials']} trials finished")
        if "step" in status:
            words.append(f"step {status['step']:,}" + (f" of {status['steps']:,}" if status["steps"] else ""))
        words += [f"loss {status['loss']:.3f}"] if status.get("loss") is not None else []
        if status.get("validation_loss") is not None:
            words.append(f"validation loss {status['validation_loss']:.3f} at step {status['validation_step']:,}")
        if status["state"] != "finished" and status.get("tokens_per_second"):
            words.append(f"{status['tokens_per_second']:,.0f} tokens/s")
            if status["state"] == "running" and status["seconds_left"] is not None:
                words.append(f"{_duration(status['seconds_left'])} left")
        if status.get("checkpoint") is not None and status["state"] != "finished":
            words.append(f"newest checkpoint {status['checkpoint']:,}")
        if status["writer"]:
            words.append(f"process {status['writer']}")
        lines.append(f"{status['folder']}: {', '.join(words)}")
        lines += [f"  {sentence}" for sentence in status.get("trouble", ())]
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
