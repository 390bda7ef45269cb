"""Models and tokenizers that a verb is given: folders of ours, of transformers, or names on the Hub. Never a pickle, never remote code."""

import json
import os
from pathlib import Path
from typing import Any

from .options import own_scheme


def open_encoder(model: str, scheme: Path | None, head: bool = False) -> Any:
    """An encoder in evaluation mode: one of ours, without its heads or with the masked-language head, or the body of one of transformers.

    Raises:
        ValueError: there is none, several, or a damaged one; or `head` is wanted of another package's model.
    """
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel
    from transformers.utils import logging

    from ..encoder import Encoder, EncoderForMaskedLM
    from ..training.config import use_scheme

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    use_scheme(scheme)
    folder = Path(model)
    local = _check_folder(model)
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type") if local else None
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{folder}/config.json is damaged ({error}). Use a complete copy.") from None
    try:
        if kind == "whatwhere":
            ours: Any = EncoderForMaskedLM if head else Encoder
            return ours.from_pretrained(folder, local_files_only=True).eval()
        if head:
            raise ValueError(
                f"{model} is no model of this package, and only its encoders with their vocabulary head can be measured so. "
                "Give one of those."
            )
        config = AutoConfig.from_pretrained(model, trust_remote_code=False, **_here(local))
        return AutoModel.from_pretrained(
            model, config=config, trust_remote_code=False, use_safetensors=True, attn_implementation="eager", **_here(local)
        ).eval()
    except (SafetensorError, RuntimeError, OSError, KeyError) as error:
        raise ValueError(f"{model} does not load ({' '.join(str(error).split())[:200]}). Use a complete copy.") from None
    except ValueError as error:
        raise own_scheme(error, folder) from None


def open_tokenizer(model: str) -> Any:
    """The tokenizer that was saved with a model.

    Raises:
        ValueError: there is none, or a damaged one.
    """
    from transformers import AutoTokenizer

    folder = Path(model)
    local = folder.is_dir()
    if local and not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer_config.json")):
        raise ValueError(f"{folder} has no tokenizer (tokenizer.json). Save the model's tokenizer there: tokenizer.save_pretrained.")
    try:
        return AutoTokenizer.from_pretrained(model, trust_remote_code=False, **_here(local))
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"The tokenizer of {model} does not load ({' '.join(str(error).split())[:200]}).") from None


def _here(local: bool) -> dict[str, Any]:
    return {"local_files_only": local or bool(os.environ.get("HF_HUB_OFFLINE"))}


def _check_folder(model: str) -> bool:
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
            raise ValueError(
                f"{folder} holds no finished model: model.safetensors is missing, and a pickle is never read. "
                "Finish a training: whatwhere pretrain --resume."
            )
        return True
    if folder.exists() or folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ValueError(f"No model at {model}: it is no folder. Give the folder of a trained model.")
    return False
