"""Writing of a model as a transformers folder, with metadata in the headers of its weights files."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from ..encoder import EncoderConfig
from ..run.files import new_file

transformers_logging.disable_progress_bar()  # a bar per saved file would drown the training's own


def write_metadata(path: Path, metadata: Mapping[str, str]) -> None:
    """Put metadata into the header of a safetensors file, the tensors unchanged; the same metadata give the same bytes.

    (safetensors' own writer keeps them in an order that differs between processes.)
    """
    with path.open("rb") as old, new_file(path) as new:
        head = json.loads(old.read(int.from_bytes(old.read(8), "little")))
        texts = head.pop("__metadata__", {}) | metadata
        text = json.dumps({"__metadata__": dict(sorted(texts.items())), **head}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8 bytes
        new.write(len(text).to_bytes(8, "little") + text)
        shutil.copyfileobj(old, new, 1 << 20)


def save_model(
    model: PreTrainedModel,
    folder: Path,
    code: bool = False,
    metadata: Mapping[str, str] | None = None,
    one_file: bool = False,
) -> None:
    """Write a model into a folder that transformers opens.

    Args:
        code: with the code that opens it where this package is not installed.
        metadata: texts for the header of every weights file.
        one_file: True: write one file, even above 50 GB, where transformers would divide the weights.

    Raises:
        OSError: the disk is full or not writable.
    """
    try:
        options: dict[str, Any] = {"code": code} if isinstance(model.config, EncoderConfig) else {}
        if one_file:
            options["max_shard_size"] = 10**18
        model.save_pretrained(folder, **options)
        for path in folder.glob("*.safetensors") if metadata else ():
            write_metadata(path, metadata or {})
    except SafetensorError as error:
        raise OSError(
            f"Cannot write the model to {folder}: {error}. Make room and run the same command again."
        ) from None
