"""Models on the Hugging Face Hub: checks that the Hub may be asked and answers, and downloads of a model's files."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

from .reference import model_source

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
MODEL_FILE_PATTERNS = (
    "*.json",
    "*.safetensors",
    "*.txt",
    "*.model",
    "README.md",
)  # files of a model: no code, no pickle


def is_offline() -> bool:
    """Return whether the user forbids requests to the Hub (`HF_HUB_OFFLINE`)."""
    return bool(constants.HF_HUB_OFFLINE)  # huggingface_hub also reads TRANSFORMERS_OFFLINE, and takes 0 as no


def check_hub(name: str, file: str, *other_files: str) -> None:
    """Raise an error immediately where a repository was not downloaded before and the Hub cannot be reached.

    transformers would try for half a minute, and most often the user has misspelt the name of a folder.

    Args:
        name: Repository on the Hub.
        file: File that the repository must have.
        other_files: Further files. `file` or any of these in the cache shows that the repository was downloaded.

    Raises:
        OSError: the Hub cannot be reached.
    """
    if is_offline():
        return
    try:
        if not any(isinstance(try_to_load_from_cache(name, path), str) for path in (file, *other_files)):
            get_hf_file_metadata(hf_hub_url(name, file))
    except HfHubHTTPError:  # the Hub answers; transformers will say which file it lacks
        pass
    except Exception as error:  # the HTTP library of huggingface_hub has errors of its own
        raise OSError(f"the Hub cannot be reached: {error}") from None


def file_of(source: str, name: str) -> Path | None:
    """Find a file of a model in its folder, in the Hub's cache, or on the Hub, from which the file is downloaded.

    Args:
        source: Folder of the model, or its name on the Hub.
        name: Path of the file inside the model.

    Returns:
        Path of the file; None where the model has no such file, or the user forbids requests and the cache has none.

    Raises:
        OSError: the Hub does not answer, or has no such repository for this user.
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
    except LocalEntryNotFoundError as error:  # no connection, though its class derives from the next one
        raise OSError(f"the Hub cannot be reached: {error}") from None
    except EntryNotFoundError:
        return None


def refuse_hub_names(models: Iterable[str]) -> None:
    """Refuse models on the Hub where workers of a cluster open them: two workers might download different commits.

    Raises:
        ValueError: the first model that is no folder.
    """
    for model in models:
        if not Path(model_source(model)).is_dir():
            raise ValueError(
                f"{model} is a model on the Hub, of which each worker might open another commit. With --on, name "
                f"models by folders that all machines see: hf download {model} --local-dir FOLDER."
            )


def fetch_model(model: str | Path, allowed: Sequence[str] = MODEL_FILE_PATTERNS, ignored: Sequence[str] = ()) -> Path:
    """Return the folder of a model, and download the model into the Hub's cache where its name is one on the Hub.

    Args:
        model: Folder, name on the Hub, or `reference`.
        allowed, ignored: Patterns of the files to download, and of files among these to leave out.

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
