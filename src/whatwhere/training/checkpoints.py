"""Files of a checkpoint: written whole or not at all, checked by their hashes, and read back."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel

from ..models.tensors import write_errors_named
from ..run.files import read_object, remove_folder, write_json
from ..run.folder import RunFolder
from ..run.manifest import MANIFEST
from .model_folder import save_model
from .sharding import local_rows, make_shard, shard_bounds

STATE = "state.json"
WEIGHTS = "model.safetensors"
CHECKPOINTS = "checkpoints"  # the folder of a run that holds them
KIND = "checkpoint"
_MAKE_ROOM = "Earlier checkpoints are whole; make room, then run the same command again."
# States of optimizers and random generators; of a sharded model optimizer-K-of-N.safetensors, one for each process.
OPTIMIZER = "optimizer.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """Whole checkpoint of a training: every file equals its hash."""

    folder: Path
    step: int  # after which it was written
    logger_state: dict[str, Any]  # seconds, and the losses since the log's last line
    has_optimizers: bool  # False after `drop_old_optimizers`


def log_spaced_steps(steps: int) -> set[int]:
    """Return the steps 0, 1, 3, 10, 30, 100, ... up to `steps`: early training changes fastest."""
    marks = (digit * 10**power for power in range(len(str(steps))) for digit in (1, 3))
    return {0, *(step for step in marks if step <= steps)}


def optimizer_tensors(optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, torch.Tensor]:
    """Return this process's part of the optimizers' states.

    It is a flat dict of tensors named OPTIMIZER.PARAMETER.ENTRY, the first two by number (`0.3.exp_avg`), each of its
    parameter's shape (of a sharded model, the rows of this process) or a number.
    """
    return {
        f"{number}.{parameter}.{name}": local_rows(torch.as_tensor(value).detach()).cpu().contiguous()
        for number, optimizer in enumerate(optimizers)
        for parameter, entries in optimizer.state_dict()["state"].items()
        for name, value in entries.items()
    }


class _TensorFiles:
    """Tensors of one file, or of several files that each hold the rows of one process; unread rows stay on the disk."""

    def __init__(self, paths: list[Path]) -> None:
        self.files: list[Any] = [safe_open(path, framework="pt") for path in paths]
        self.names = list(self.files[0].keys())

    def read(self, name: str, like: torch.Tensor) -> torch.Tensor:
        """Read a tensor for `like`.

        If the files' parts, joined by rows, have the shape of `like`, this process's rows are read; else the whole
        tensor of the first file.
        """
        parts = [file.get_slice(name) for file in self.files] if like.ndim else []
        shapes = [part.get_shape() for part in parts]
        joined_shape = [sum(s[0] for s in shapes if s), *shapes[0][1:]] if shapes else None
        if joined_shape != list(like.shape):  # a step count, which every file holds whole
            tensor: torch.Tensor = self.files[0].get_tensor(name)
            return tensor
        first_row, end_row = shard_bounds(like)
        rows = []
        start = 0
        for part, (length, *_) in zip(parts, shapes, strict=True):
            if start < end_row and first_row < start + length:
                rows.append(part[max(first_row - start, 0) : min(end_row - start, length)])
            start += length
        return make_shard(torch.cat(rows) if rows else self.files[0].get_tensor(name)[:0], like)


def _load_optimizer_tensors(optimizers: list[torch.optim.Optimizer], files: _TensorFiles, names: list[str]) -> None:
    for number, optimizer in enumerate(optimizers):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key in names:
            owner, parameter, name = key.split(".", 2)
            if owner == str(number):
                state.setdefault(int(parameter), {})[name] = files.read(key, parameters[int(parameter)])
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def write_checkpoint(
    root: Path,
    step: int,
    model: PreTrainedModel,
    optimizer_states: Mapping[str, torch.Tensor],
    random_states: dict[str, torch.Tensor],
    logger_state: dict[str, Any],
    shards: int = 1,
) -> Path:
    """Write `root/step-N`: a transformers folder, the states of optimizers and random generators, `state.json`, hashes.

    Args:
        optimizer_states: the optimizers' states, as `optimizer_tensors` returns them.
        random_states: states of the random generators, by PROCESS.DEVICE, (bytes,) uint8.
        shards: processes that hold a shard of the model each. The first one calls this function after the others have
            called `write_optimizer_shard`.

    Raises:
        OSError: the disk is full or not writable.
    """
    final = root / f"step-{step}"
    with write_errors_named(final, _MAKE_ROOM), RunFolder.create(final, KIND) as folder:
        save_model(model, folder, one_file=True)
        states = {**optimizer_states} | {f"random.{name}": values for name, values in random_states.items()}
        save_file(states, folder / (OPTIMIZER if shards == 1 else _shard_file(0, shards)))
        for rank in range(1, shards):
            os.replace(_shards_folder(root, step) / _shard_file(rank, shards), folder / _shard_file(rank, shards))
        shutil.rmtree(_shards_folder(root, step), ignore_errors=True)
        write_json(folder / STATE, {**logger_state, "step": step})
    return final


def write_optimizer_shard(
    root: Path, step: int, optimizer_states: Mapping[str, torch.Tensor], rank: int, shards: int
) -> None:
    """Write the optimizers' states of one process; the first process then moves the file into the checkpoint.

    optimizer_states: the tensors of `optimizer_tensors`, in their shapes.

    Raises:
        OSError: the disk is full or not writable.
    """
    folder = _shards_folder(root, step)
    folder.mkdir(parents=True, exist_ok=True)
    with write_errors_named(folder / _shard_file(rank, shards), _MAKE_ROOM):
        save_file({**optimizer_states}, folder / _shard_file(rank, shards))


def _shard_file(rank: int, shards: int) -> str:
    return f"optimizer-{rank + 1}-of-{shards}.safetensors"


def _shards_folder(root: Path, step: int) -> Path:
    return root / f".step-{step}-shards.0"  # a temporary name, which the next command here sweeps away


def drop_checkpoints_after(root: Path, step: int) -> None:
    """Remove the checkpoints of steps after `step`."""
    for folder in checkpoint_folders(root):
        if _step(folder) > step:
            remove_folder(folder)


def drop_unplanned(root: Path, is_planned: Callable[[int], bool]) -> None:
    """Remove all checkpoints of steps that `is_planned` denies, except the newest one."""
    for folder in checkpoint_folders(root)[:-1]:
        if not is_planned(_step(folder)):
            remove_folder(folder)  # whole: a partly removed checkpoint would look damaged


def drop_old_optimizers(root: Path, keep: int = 2) -> None:
    """Delete the states of optimizers and random generators of all but the newest `keep` checkpoints.

    Weights stay for the analyses.
    """
    for folder in checkpoint_folders(root)[:-keep]:
        run = RunFolder.at(folder)
        # After a kill a file may have lost its entry in the manifest; a user may have deleted a listed file.
        files = {path.name for path in folder.glob("optimizer*.safetensors")}
        if names := sorted(files.union(run.listed_files("optimizer*.safetensors"))):
            run.remove(*names)


def _step(folder: Path) -> int:
    number = folder.name.removeprefix("step-")
    return int(number) if number.isdigit() else -1


def open_checkpoint(folder: Path) -> Checkpoint:
    """Compare the files of a checkpoint with their hashes, and return it.

    Raises:
        ValueError: no manifest or state file, a state that no training can resume from, or a file that is missing,
            truncated or changed. The message gives no advice: the training that resumes removes the folder itself.
    """
    run = RunFolder.at(folder)
    if STATE not in run.listed_files():
        raise ValueError(f"{folder} is not a complete checkpoint: {MANIFEST} is missing or names no {STATE}.")
    if problem := next(run.problems(), None):
        raise ValueError(f"{problem}.")
    state = read_object(folder / STATE, "step", "seconds", "losses", hint="")
    for key, kind in (("step", int), ("seconds", int | float)):
        if not isinstance(state[key], kind):
            raise ValueError(f"{folder / STATE} has no {key} that is a number.")
    if not isinstance(state["losses"], list) or not all(isinstance(loss, int | float) for loss in state["losses"]):
        raise ValueError(f"{folder / STATE} has no losses that are a list of numbers.")
    return Checkpoint(folder, state["step"], state, bool(run.listed_files("optimizer*.safetensors")))


def newest_checkpoint(root: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint that a training can resume from, or None, and what is wrong with newer ones.

    There is one message for each broken checkpoint. A whole one without states of optimizers gets none. The one of step
    0 is never among them: a training begins from its seed.
    """
    problems: list[str] = []
    for folder in reversed(trained_checkpoint_folders(root)):
        try:
            checkpoint = open_checkpoint(folder)
            if checkpoint.has_optimizers:
                return checkpoint, problems
        except ValueError as error:
            problems.append(str(error).rstrip())
    return None, problems


def restore(
    checkpoint: Checkpoint, model: PreTrainedModel, optimizers: list[torch.optim.Optimizer]
) -> dict[str, torch.Tensor]:
    """Load weights and optimizer states in place; return the states of the random generators.

    Those are by PROCESS.DEVICE, (bytes,) uint8.

    Raises:
        ValueError: the checkpoint is of another model.
    """
    try:
        weight_files = _TensorFiles([checkpoint.folder / WEIGHTS])
        optimizer_files = _TensorFiles(_optimizer_files(checkpoint.folder) or [checkpoint.folder / OPTIMIZER])
    except (SafetensorError, FileNotFoundError) as error:
        raise ValueError(f"{checkpoint.folder} does not load: {error}. Delete it.") from None
    try:
        current = model.state_dict()
        weights = {name: weight_files.read(name, current.get(name, torch.empty(()))) for name in weight_files.names}
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip().rstrip(".")
        raise ValueError(f"{checkpoint.folder} is of another model: {reason}. Delete it.") from None
    if misfits := sorted({*unexpected, *missing} - {*model.all_tied_weights_keys}):
        raise ValueError(f"{checkpoint.folder} is of another model: {misfits[0]} does not match. Delete it.")
    random_names = [name for name in optimizer_files.names if name.startswith("random.")]
    random_states = {name.removeprefix("random."): optimizer_files.read(name, torch.empty(())) for name in random_names}
    names = [name for name in optimizer_files.names if name not in random_names]
    try:
        _load_optimizer_tensors(optimizers, optimizer_files, names)
    except (ValueError, LookupError, SafetensorError) as error:
        raise ValueError(f"{checkpoint.folder} has states of other optimizers ({error}). Delete it.") from None
    return random_states


def _optimizer_files(folder: Path) -> list[Path]:
    """Return the files of the optimizers' states, by process."""
    return sorted(folder.glob("optimizer*.safetensors"), key=lambda p: [int(n) for n in re.findall(r"\d+", p.name)])


def checkpoint_folders(root: Path) -> list[Path]:
    """Return the folders of all checkpoints of a run, in the order of their steps."""
    return sorted((p for p in root.glob("step-*") if _step(p) >= 0), key=_step)


def trained_checkpoint_folders(root: Path) -> list[Path]:
    """Return the folders of the checkpoints after step 0, in the order of their steps."""
    return [folder for folder in checkpoint_folders(root) if _step(folder) > 0]


def checkpoint_folder(model: str | Path, step: int) -> Path:
    """Return the folder of the checkpoint of `step`, its model compared with the hashes.

    Args:
        model: folder of a trained model.

    Raises:
        ValueError: the folder has no checkpoint of that step, or the checkpoint's model is not as it was written.
    """
    root = Path(model) / CHECKPOINTS
    if not (weights := root / f"step-{step}" / WEIGHTS).is_file():
        steps = ", ".join(str(_step(path)) for path in checkpoint_folders(root)) or "none"
        raise ValueError(f"{model} keeps no checkpoint of step {step:,}. Give one of these: {steps}.")
    RunFolder.at(weights.parent).check("config.json", WEIGHTS)
    return weights.parent
