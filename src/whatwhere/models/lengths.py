"""Lengths of the texts that a model can read and was trained on, from the files of its folder."""

from pathlib import Path
from typing import Any

from ..encoder import EncoderConfig
from ..run.files import read_object, read_yaml

LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")  # in config.json, as model types call them
EXTENSION = "extension.json"  # in a copy: how it was made

# Model types whose first rows of positions belong to none: RoBERTa's count from the padding id + 1, MPNet's and BART's
# from 2.
_FROM_PADDING = (
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "longformer",
    "data2vec-text",
)
_FROM_TWO = ("mpnet", "bart", "mbart", "opt")
_BESIDE_THE_ROWS = ("bart", "mbart", "opt")  # whose tables have these rows beyond max_position_embeddings


def rows_of_no_position(config: dict[str, Any]) -> int:
    """Count the first rows of a position table that belong to no position, from a transformers model's config.json.

    Raises:
        ValueError: a padding id that is no row.
    """
    kind = config.get("model_type")
    pad = config.get("pad_token_id")
    if kind in _FROM_TWO:
        return 2
    if kind not in _FROM_PADDING:
        return 0
    if pad is None:
        return 2
    if not isinstance(pad, int) or pad < 0:
        raise ValueError(f"pad_token_id of a model of type {kind} is {str(pad)[:40]!r}, no row. Use a complete copy.")
    return pad + 1


def most_tokens(config: Any) -> int | None:
    """Return the most tokens that a model, ours or of transformers, can read in one text; None if nothing bounds it."""
    if config.model_type == EncoderConfig.model_type:
        return config.longest  # type: ignore[no-any-return]
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return None
    unused = 0 if config.model_type in _BESIDE_THE_ROWS else rows_of_no_position(config.to_dict())
    return most - unused


def reads(config: dict[str, Any]) -> int:
    """Return how many tokens a model can read by its config.json; 0 where the file does not tell."""
    return next((int(config[name]) for name in LENGTHS if name in config), 0) - rows_of_no_position(config)


def trained_on(folder: Path, config: dict[str, Any]) -> int:
    """Return the tokens of the longest text in a model's training, else how many the model can read."""
    extension = folder / EXTENSION
    settings = [folder / name for name in ("pretrain.yaml", "finetune.yaml")]
    if extension.is_file():
        return int(read_object(extension, "trained")["trained"])
    saved: dict[str, Any] = next((read_yaml(path) for path in settings if path.is_file()), {})
    return min(reads(config), int(saved.get("length", reads(config))))


def read_at_once(folder: Path, config: dict[str, Any]) -> int:
    """Return how many tokens our model reads at once: the length of its training, or of its longer copy."""
    extension = folder / EXTENSION
    return int(read_object(extension, "length")["length"]) if extension.is_file() else trained_on(folder, config)
