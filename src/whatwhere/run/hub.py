"""Files on the Hugging Face Hub: whether the Hub may be asked, whether it answers, where a model and its files are."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

from .reference import model_source

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
MODEL_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "README.md")  # files of a model: no code, no pickle


def is_offline() -> bool:
    """Return whether the user forbids requests to the Hub (`HF_HUB_OFFLINE`)."""
    return bool(constants.HF_HUB_OFFLINE)  # its own rule: 0 forbids nothing, and TRANSFORMERS_OFFLINE counts, too


def check_hub(name: str, file: str, *other_files: str) -> None:
    """Raise an error immediately where the Hub cannot be reached; files that were downloaded before need no Hub.

    transformers would try for half a minute, and most often the user has misspelt the name of a folder.

    Args:
        name: Repository on the Hub.
        file: File that the repository must have.
        other_files: Further files. Any one in the cache shows that the repository was downloaded.

    Raises:
        OSError: the Hub cannot be reached.
    """
    if is_offline():
        return
    try:
        if not any(isinstance(try_to_load_from_cache(name, path), str) for path in (file, *other_files)):
            get_hf_file_metadata(hf_hub_url(name, file))
    except HfHubHTTPError:  # the Hub answers; transformers says which file is missing there
        pass
    except Exception as error:  # the HTTP library of its client has errors of its own
        raise OSError(f"the Hub cannot be reached: {error}") from None


def file_of(source: str, name: str) -> Path | None:
    """Find a file of a model: in its folder, or on the Hub, which is asked where it was not downloaded before.

    Args:
        source: a folder, or a name on the Hub.
        name: path of the file inside it.

    Returns:
        Its path, or None where the model has no such file, or none was downloaded and the user forbids requests.

    Raises:
        OSError: the Hub does not answer.
    """
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.is_file() else None
    cached = try_to_load_from_cache(source, name)
    if isinstance(cached, str):
        return Path(cached)
    if is_offline():
        return None
    try:
        return Path(hf_hub_download(source, name))
    except LocalEntryNotFoundError as error:  # of no connection, though it is a kind of "not found"
        raise OSError(f"the Hub cannot be reached: {error}") from None
    except EntryNotFoundError:
        return None


def refuse_hub_names(models: Iterable[str]) -> None:
    """Refuse names on the Hub where workers of a cluster open models: each would take the commit that it finds.

    Raises:
        ValueError: the first model that is no folder.
    """
    for model in models:
        if not Path(model_source(model)).is_dir():
            raise ValueError(
                f"{model} is a model on the Hub, of which each worker might open another commit. With --on, name "
                f"models by folders that all machines see: hf download {model} --local-dir FOLDER."
            )


def fetch_model(model: str | Path, allowed: Sequence[str] = MODEL_FILES, ignored: Sequence[str] = ()) -> Path:
    """Fetch a model by its name on the Hub into the Hub's cache, and return its folder; a folder's path is returned.

    Args:
        model: a folder, a name on the Hub, or `reference`.
        allowed, ignored: patterns of the files that are fetched, and of those among them that are not.

    Returns:
        The folder; a path that does not exist and cannot be a name on the Hub is returned unchanged.

    Raises:
        ValueError: the Hub returns no such model, or as `model_source`.
    """
    path = Path(model_source(model))
    if path.exists() or path.suffix == ".npy" or not _HUB_NAME.fullmatch(str(model)):
        return path
    try:
        return Path(
            huggingface_hub.snapshot_download(str(model), allow_patterns=list(allowed), ignore_patterns=list(ignored))
        )
    except Exception as error:  # the network and the Hub raise classes of several libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"{str(model)!r} is no file or folder here, and the Hub returns no such model ({reason[:160]}). Check the "
            "name and the network."
        ) from None
