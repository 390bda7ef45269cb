"""Models that are given by a folder, ours or of transformers, by a name on the Hub, or as `reference`: what is there,
and their configuration."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from ..encoder import EncoderConfig, EncoderForMaskedLM
from ..run.errors import opening
from ..run.files import read_object
from ..run.hashes import check_files
from ..run.hub import ask_once, offline
from ..run.shipped import model_source
from .config import COPY, check_sizes, own_config
from .lengths import most_tokens


def model_config(model: str | Path) -> tuple[str, Any]:
    """What a model is opened from, and its configuration; no weight is read.

    Raises:
        ValueError: no such folder, no finished model in it, sizes that its weights cannot have, or no such model on the
            Hub.
    """
    source = model_source(model)
    local, folder = check_folder(source), Path(source)
    with opening(source):
        if local and read_object(folder / "config.json", way_out=COPY).get("model_type") == EncoderConfig.model_type:
            return source, own_config(folder)
        config = config_of(source, local)
        if local:
            check_sizes(folder, config)
        return source, config


def trained(folder: str | Path) -> EncoderForMaskedLM:
    """The model of a run or checkpoint of ours, its files compared with their hashes, in evaluation mode.

    Raises:
        ValueError: a file is not as it was written.
    """
    check_files(Path(folder), "config.json", "model.safetensors")
    return EncoderForMaskedLM.from_pretrained(folder, local_files_only=True).eval()


def config_of(model: str, local: bool) -> Any:
    """The configuration of a model of transformers.

    Raises:
        ValueError: it is no folder here, and the Hub gives no such model either.
    """
    try:
        if not local:
            ask_once(model, "config.json")
        return AutoConfig.from_pretrained(model, trust_remote_code=False, **here(local))
    except OSError as error:
        if local:
            raise
        reason = shorten(str(error), 100, placeholder=" …")
        raise ValueError(
            f"{model} is no folder here, and the Hub gives no such model ({reason}). Check the name; for a model of "
            "the Hub, the network too."
        ) from None


def here(local: bool) -> dict[str, Any]:
    """The argument by which transformers does not ask the Hub for what is a folder, or where it shall not be asked."""
    return {"local_files_only": local or offline()}


def check_folder(model: str) -> bool:
    """Whether the model is a folder; one that holds no finished model is refused."""
    folder = Path(model)
    if folder.is_dir():
        seeds = sorted(p.parent for p in folder.glob("**/seed-*/config.json"))
        if seeds and not (folder / "config.json").is_file():
            many = "one model" if len(seeds) == 1 else f"{len(seeds)} models"
            raise ValueError(f"{folder} holds {many} of a study. Name one, for example {seeds[0]}.")
        if not (folder / "config.json").is_file():
            raise ValueError(f"No model at {folder}: config.json is missing. Give the folder of a trained model.")
        if not any(folder.glob("*.safetensors")):
            ours = read_object(folder / "config.json", way_out=COPY).get("model_type") == EncoderConfig.model_type
            way_out = f"Finish its training: whatwhere pretrain --out {folder}." if ours else "Bring its weights."
            raise ValueError(
                f"{folder} holds no finished model: model.safetensors is missing, and a pickle is never read. {way_out}"
            )
        return True
    if folder.exists() or folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ValueError(f"No model at {model}: it is no folder. Give the folder of a trained model.")
    return False


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' remarks on heads that a checkpoint has and a model lacks, where that is the purpose."""
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def input_form(model: Any, tokenizer: Any, length: int) -> tuple[int, bool]:
    """Most tokens of a row, at most `length`, that a model reads, and whether token types tell its texts apart."""
    types = "token_type_ids" in tokenizer.model_input_names and model.config.model_type != "whatwhere"
    return min(length, most_tokens(model.config) or length), types
