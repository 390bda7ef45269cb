"""How long a text a model reads, and was trained on, by the files of its folder."""

from pathlib import Path
from typing import Any

from ..encoder.tables import rows_of_no_position
from ..run.files import read_object, read_yaml

LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")  # in config.json, as model types call them
EXTENSION = "extension.json"  # in a copy: how it was made


def reads(config: dict[str, Any]) -> int:
    """Tokens of the longest text that a model can be given, by its config.json; 0 where that does not say it."""
    return next((int(config[name]) for name in LENGTHS if name in config), 0) - rows_of_no_position(config)


def trained_on(folder: Path, config: dict[str, Any]) -> int:
    """Tokens of the longest text of a model's training: as its folder says, else as many as it reads."""
    made, settings = folder / EXTENSION, [folder / name for name in ("pretrain.yaml", "finetune.yaml")]
    if made.is_file():
        return int(read_object(made, "trained")["trained"])
    found: dict[str, Any] = next((read_yaml(kept) for kept in settings if kept.is_file()), {})
    return min(reads(config), int(found.get("length", reads(config))))


def read_at_once(folder: Path, config: dict[str, Any]) -> int:
    """Tokens of a text that a model of ours is known to read: those of its training, or what a copy was made for."""
    made = folder / EXTENSION
    return int(read_object(made, "length")["length"]) if made.is_file() else trained_on(folder, config)
