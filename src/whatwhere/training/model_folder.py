"""Writing of a model as a transformers folder, with metadata in the headers of its weights files."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from ..encoder import EncoderConfig
from ..models.tensors import write_errors_named
from ..run.files import new_file

transformers_logging.disable_progress_bar()  # a bar per saved file would drown the training's own


def write_metadata(path: Path, metadata: Mapping[str, str]) -> None:
    """Put metadata into the header of a safetensors file, the tensors unchanged; the same metadata give the same bytes.

    (safetensors' own writer orders metadata differently from process to process.)
    """
    with path.open("rb") as old, new_file(path) as new:
        tensors = json.loads(old.read(int.from_bytes(old.read(8), "little")))
        merged = tensors.pop("__metadata__", {}) | metadata
        header = json.dumps({"__metadata__": dict(sorted(merged.items())), **tensors}, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)  # tensors start at a multiple of 8 bytes
        new.write(len(header).to_bytes(8, "little") + header)
        shutil.copyfileobj(old, new, 1 << 20)


def save_model(
    model: PreTrainedModel,
    folder: Path,
    with_code: bool = False,
    metadata: Mapping[str, str] | None = None,
    one_file: bool = False,
) -> None:
    """Write a model into a folder that transformers opens.

    Args:
        with_code: also write the code that opens the model where this package is not installed.
        metadata: texts for the header of every weights file.
        one_file: write one weights file, even above 50 GB, where transformers would divide the weights.

    Raises:
        OSError: the disk is full or not writable.
    """
    options: dict[str, Any] = {"code": with_code} if isinstance(model.config, EncoderConfig) else {}
    if one_file:
        options["max_shard_size"] = 10**18
    with write_errors_named(folder):
        model.save_pretrained(folder, **options)
        if metadata:
            for path in folder.glob("*.safetensors"):
                write_metadata(path, metadata)
