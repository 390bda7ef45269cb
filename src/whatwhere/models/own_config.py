"""Configurations of our models, read from their folders and compared with the weights beside them."""

from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from ..encoder import EncoderConfig
from ..encoder.carry import make_imports_relative
from ..encoder.registry import scheme_files
from ..run.files import read_object
from .tensors import named_tensors

COPY = "Use a complete copy of the model."


def is_ours(folder: Path) -> bool:
    """Tell whether the config.json of a folder is of this package's models.

    Raises:
        ValueError: it is missing, damaged, or no object.
    """
    return bool(read_object(folder / "config.json", hint=COPY).get("model_type") == EncoderConfig.model_type)


def own_config(folder: Path) -> EncoderConfig:
    """Read the configuration of a model of ours.

    Raises:
        ValueError: it is damaged, names an unknown scheme or one that differs from the scheme that the folder carries,
            or sizes that its weights cannot have.
    """
    try:
        config: EncoderConfig = EncoderConfig.from_dict(read_object(folder / "config.json", hint=COPY))
    except (ValueError, OSError, TypeError, AttributeError, LookupError, RecursionError, StrictDataclassError) as error:
        problem = f"{folder}/config.json: {' '.join(str(error).split())[:600]}"
        carried = folder / "own_scheme.py"
        if "--scheme FILE" in problem and carried.is_file():
            problem += f" The model carries it: read {carried}, then add --scheme {carried}."
        raise ValueError(problem) from None
    _check_scheme(folder, config)
    check_sizes(folder, config)
    return config


def _check_scheme(folder: Path, config: EncoderConfig) -> None:
    """Refuse a loaded scheme of another text than the model carries: the weights would mean something else.

    Raises:
        ValueError: the first such scheme.
    """
    carried = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("own_scheme*.py"))]
    for path, text in scheme_files(config).items():
        if carried and make_imports_relative(text) not in carried:
            raise ValueError(
                f"{path} is not the scheme that {folder} was trained with (kept as {folder / 'own_scheme.py'}). Undo "
                "the change, or give that file by --scheme."
            )


def check_sizes(folder: Path, config: Any) -> None:
    """Refuse a configuration of more layers or rows than the weights beside it can have, before memory is taken.

    Raises:
        ValueError: the first such size.
    """
    if not (paths := list(folder.glob("*.safetensors"))):
        return
    tensors = len(named_tensors(folder))
    size = sum(path.stat().st_size for path in paths)
    shared = hasattr(config, "num_hidden_groups")  # ALBERT's layers are one
    sizes = {} if shared else {"num_hidden_layers": (tensors, "tensors")}
    sizes |= dict.fromkeys(
        ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings"), (size, "bytes")
    )
    for key, (most, of) in sizes.items():
        if isinstance(value := getattr(config, key, None), int) and value > most:
            raise ValueError(
                f"{folder}/config.json has {key}={str(value)[:20]}, and the weights beside it are {most:,} {of}. Use a "
                "complete copy."
            )
