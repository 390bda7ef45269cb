"""Whether the Hub answers: asked once, and not where something is at hand."""

import os

from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError


def offline() -> bool:
    """Return whether the user forbids requests to the Hub (`HF_HUB_OFFLINE`)."""
    return bool(os.environ.get("HF_HUB_OFFLINE"))


def ask_once(name: str, file: str, *others: str) -> None:
    """Raise OSError where the Hub cannot be reached, at once: transformers would try for half a minute, and most often
    the name of a folder is misspelt. What was downloaded before needs no Hub.

    name: of a repository on the Hub. file: one that it must have. others: any of these tells that it is at hand, too.
    """
    if offline():
        return
    try:
        if not any(isinstance(try_to_load_from_cache(name, each), str) for each in (file, *others)):
            get_hf_file_metadata(hf_hub_url(name, file))
    except HfHubHTTPError:  # it answers: transformers says what it has not
        pass
    except Exception as error:  # by whatever library its client speaks HTTP
        raise OSError(f"the Hub cannot be reached: {error}") from None
