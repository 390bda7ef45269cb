"""Files on the Hugging Face Hub: whether the Hub may be asked, whether it answers, where a model and its files are."""

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
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
    """Raise an error at once where the Hub cannot be reached; files that were downloaded before need no Hub.

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


def revision_of(model: str | Path) -> str | None:
    """Return the commit of a model that was downloaded from the Hub, or is now; None for a folder.

    Raises:
        OSError: the Hub does not answer.
    """
    source = model_source(model)
    file = None if Path(source).is_dir() or not _HUB_NAME.fullmatch(source) else file_of(source, "config.json")
    return None if file is None else file.parent.name


def revisions_of(models: Iterable[str]) -> dict[str, str]:
    """Return the commit of each model that is named by the Hub and not by a folder."""
    return {model: revision for model in models if (revision := revision_of(model)) is not None}


def check_revisions(wanted: Mapping[str, str]) -> None:
    """Refuse, on a worker, models whose commits here are not those that its command has, by name.

    Raises:
        ValueError: names the worker's machine, the model and both commits.
    """
    for model, revision in wanted.items():
        if (found := revision_of(model)) != revision:
            raise ValueError(
                f"{model} is at the revision {found} on {platform.node()}, at {revision} where the command runs: "
                "results would differ. Download it again on both, or give a folder that all machines see."
            )


def fetch_model(model: str | Path, allowed: Sequence[str] = MODEL_FILES, ignored: Sequence[str] = ()) -> Path:
    """Fetch a model by its name on the Hub into the Hub's cache, and return its folder; a folder is returned as it is.

    Args:
        model: a folder, a name on the Hub, or `reference`.
        allowed, ignored: patterns of the files that are fetched, and of those among them that are not.

    Returns:
        The folder; a path that does not exist and cannot be a name on the Hub is returned unchanged.

    Raises:
        ValueError: the Hub gives no such model, or as `model_source`.
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
            f"{str(model)!r} is no file or folder here, and the Hub gives no such model ({reason[:160]}). Check the "
            "name and the network."
        ) from None
