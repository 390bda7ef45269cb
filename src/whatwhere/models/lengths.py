"""Lengths of the texts that a model can read and was trained on, from the files of its folder."""

import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, MODEL_MAPPING

from ..encoder import EncoderConfig
from ..run.files import read_object, read_yaml
from ..run.folder import RunFolder
from ..run.names import TRAINING_SETTINGS

LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")  # in config.json, as model types call them
EXTENSION = "extension.json"  # in a copy: how it was made
MOST_AT_ONCE = 512  # tokens that another package's model is given at once where no length is asked for

# Names of a position table, as an embedding layer, in the weights of transformers' models.
POSITION_LAYERS = ("position_embeddings", "wpe", "embed_positions")


@dataclass(frozen=True)
class PositionRows:
    """Rows of a model's position table, and how many first rows belong to no position.

    RoBERTa counts positions from its padding id + 1, BART and Nystromformer from 2, BERT from 0.
    """

    rows: int
    unused: int


def position_rows(config: Any) -> PositionRows | None:
    """Read the position table's rows from the model that a transformers configuration builds, without its weights.

    The model is built with one layer and without memory for its weights. None where transformers builds none, or where
    it has no table: ours, and models that rotate or count distances.

    Args:
        config: a configuration of transformers, or the dictionary of a config.json.

    Raises:
        ValueError: a padding id that is no row of the table.
    """
    if isinstance(config, dict):
        kind = config.get("model_type")
        if not isinstance(kind, str) or kind not in CONFIG_MAPPING or kind == EncoderConfig.model_type:
            return None
        _check_padding(config.get("pad_token_id"), kind)
        try:
            config = CONFIG_MAPPING[kind].from_dict(config)
        except Exception:  # of a damaged file: any class; what opens the model says what is wrong
            return None
    elif config.model_type == EncoderConfig.model_type:
        return None
    else:
        _check_padding(getattr(config, "pad_token_id", None), config.model_type)
    return _rows_of(_Hashed(config))


class _Hashed:
    """A configuration that `lru_cache` can hold, equal to others of the same values."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.text = f"{type(config).__name__} {config.to_json_string(use_diff=False)}"

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and other.text == self.text


@lru_cache(maxsize=64)
def _rows_of(hashed: _Hashed) -> PositionRows | None:
    config = hashed.config
    model = _skeleton(config, layers=1)
    if model is None:
        model = _skeleton(config, layers=None)
    return None if model is None else rows_of_model(model)


def rows_of_model(model: nn.Module) -> PositionRows | None:
    """Read the position table's rows from a model of transformers without its head; None where it has no table."""
    for name, table in model.named_modules():
        parent, _, last = name.rpartition(".")
        weight = getattr(table, "weight", None)
        if last in POSITION_LAYERS and isinstance(weight, Tensor) and weight.ndim == 2:
            return PositionRows(len(weight), _first_position(model.get_submodule(parent), table, len(weight)))
    return None


def _first_position(parent: nn.Module, table: nn.Module, rows: int) -> int:
    """Return the row of a table that the first token of a text reads."""
    if getattr(table, "padding_idx", None) is not None:
        return int(getattr(parent, "padding_idx", table.padding_idx)) + 1  # type: ignore[arg-type]
    if getattr(table, "offset", None) is not None:
        return int(table.offset)  # type: ignore[arg-type]
    numbered = getattr(parent, "position_ids", None)  # the rows that the model gives out, where it keeps a list of them
    return max(rows - numbered.shape[-1], 0) if isinstance(numbered, Tensor) else 0


def _skeleton(config: Any, layers: int | None) -> nn.Module | None:
    """Build the bare model of a configuration without memory for its weights; None where that does not work."""
    kind: Any = MODEL_MAPPING.get(type(config), None)
    kind = kind[0] if isinstance(kind, tuple) else kind
    if kind is None:
        return None
    config = copy.deepcopy(config)
    try:
        if layers is not None:
            config.num_hidden_layers = layers
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            model: nn.Module = kind(config)
        return model
    except Exception:  # each model type refuses what it cannot be in its own classes of errors
        return None


def _check_padding(pad: Any, kind: str) -> None:
    if pad is not None and (not isinstance(pad, int) or pad < 0):
        raise ValueError(f"pad_token_id of a model of type {kind} is {str(pad)[:40]!r}, no row. Use a complete copy.")


def rows_of_no_position(config: dict[str, Any]) -> int:
    """Count the first rows of a position table that belong to no position, from a transformers model's config.json.

    Raises:
        ValueError: a padding id that is no row.
    """
    rows = position_rows(config)
    return 0 if rows is None else rows.unused


def max_tokens(config: Any) -> int | None:
    """Return the most tokens that a model, ours or of transformers, can read in one text; None if nothing bounds it.

    They are the rows of its position table that belong to positions. Without a table nothing bounds a model of ours;
    one of transformers reads its max_position_embeddings.

    Raises:
        ValueError: as `position_rows`.
    """
    if config.model_type == EncoderConfig.model_type:
        return config.position_limit  # type: ignore[no-any-return]
    if (table := position_rows(config)) is not None:
        return table.rows - table.unused
    most = getattr(config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most >= 1 else None


def configured_length(config: dict[str, Any]) -> int:
    """Return the tokens for which config.json sizes a model; 0 where it does not tell.

    They are `max_tokens` where the model has a position table. A model of ours without one may read more.
    """
    rows = position_rows(config)
    return stated_positions(config) if rows is None else rows.rows - rows.unused


def stated_positions(config: dict[str, Any]) -> int:
    """Return the number in config.json that sizes the position table, rows of no position included; 0 for none."""
    return next((int(config[name]) for name in LENGTHS if config.get(name) is not None), 0)


def trained_length(folder: Path, config: dict[str, Any]) -> int:
    """Return the tokens of the longest text in a model's training, else `configured_length`."""
    extension = folder / EXTENSION
    if extension.is_file():
        return int(read_object(extension, "trained")["trained"])
    return min(configured_length(config), int(settings_of_training(folder).get("length", configured_length(config))))


def settings_of_training(folder: Path) -> dict[str, Any]:
    """Return the settings of the training that wrote a model or its checkpoint; {} where the folder holds none.

    Raises:
        ValueError: the file of the settings is damaged, or not as it was written.
    """
    runs = [folder]
    if folder.parent.name == "checkpoints":
        runs.append(folder.parent.parent)
    settings = [run / name for run in runs for name in TRAINING_SETTINGS]
    path = next((path for path in settings if path.is_file()), None)
    if path is None:
        return {}
    RunFolder.at(path.parent).check(path.name)
    saved = read_yaml(path)
    if not isinstance(saved, dict):
        raise ValueError(f"{path} must hold `key: value` lines; got {type(saved).__name__}. Use a complete copy.")
    return saved


def usual_length(folder: Path, config: Any) -> int:
    """Return the tokens that a model is given at once where the user asks for no length.

    They are the length that a model of ours was trained on, or that its longer copy was made for; of another package's
    model all that it reads, at most `MOST_AT_ONCE`.
    """
    if config.model_type != EncoderConfig.model_type:
        return min(max_tokens(config) or MOST_AT_ONCE, MOST_AT_ONCE)
    return usual_length_of_ours(folder, config.to_dict())


def usual_length_of_ours(folder: Path, config: dict[str, Any]) -> int:
    """Return the `usual_length` of a model of ours from the keys of its config.json."""
    extension = folder / EXTENSION
    if extension.is_file():
        return int(read_object(extension, "length")["length"])
    return trained_length(folder, config)
