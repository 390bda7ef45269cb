"""How long a text a model reads, and was trained on, by the files of its folder."""

from pathlib import Path
from typing import Any

from ..encoder import EncoderConfig
from ..run.files import read_object, read_yaml

LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")  # in config.json, as model types call them
EXTENSION = "extension.json"  # in a copy: how it was made

# Model types whose first rows of positions belong to none: RoBERTa's count from the padding id + 1, MPNet's and BART's
# from 2.
_FROM_PADDING = (
    *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"),
    *("camembert", "longformer", "data2vec-text"),
)
_FROM_TWO = ("mpnet", "bart", "mbart", "opt")
_BESIDE_THE_ROWS = ("bart", "mbart", "opt")  # whose tables have these rows beyond max_position_embeddings


def rows_of_no_position(config: dict[str, Any]) -> int:
    """Count the first rows of the position table of a model of transformers that belong to no position, by its
    config.json.

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
    """Return the most tokens that a model of this configuration, ours or of transformers, reads; None: nothing bounds
    them."""
    if config.model_type == EncoderConfig.model_type:
        return config.longest  # type: ignore[no-any-return]
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return None
    unused = 0 if config.model_type in _BESIDE_THE_ROWS else rows_of_no_position(config.to_dict())
    return most - unused


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
