"""Models and tokenizers that a verb is given: folders of ours or of transformers, names on the Hub, or `reference`.

Never a pickle, never remote code, and never fewer than 32 bits: numbers of analyses are not those of bfloat16.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..run.errors import opening, shortly
from ..run.files import read_object
from ..run.shipped import REFERENCE, model_source

_SHIPPED = f"`{REFERENCE}`, the one that comes with the package (a folder of that name here is ./{REFERENCE})"
AnyModel = Annotated[
    str,
    typer.Argument(
        help="A model folder: of pretrain, finetune or a study, or any encoder of transformers (safetensors); a Hub "
        "name; or " + _SHIPPED + "."
    ),
]


def open_encoder(model: str, scheme: Path | None, head: bool = False) -> Any:
    """An encoder in evaluation mode: one of ours, without heads or with the masked-language one, or of transformers.

    Raises:
        ValueError: there is none, several, or a damaged one; or `head` is wanted of another package's model.
    """
    from transformers import AutoModel
    from transformers.utils import logging

    from ..encoder import Encoder, EncoderForMaskedLM
    from ..models.config import COPY, check_sizes, own_config
    from ..models.folder import check_folder, config_of, here
    from ..training.settings import use_scheme

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    use_scheme(scheme)
    model = model_source(model)
    folder = Path(model)
    local = check_folder(model)
    kind = read_object(folder / "config.json", way_out=COPY).get("model_type") if local else None
    with opening(model):
        if kind == "whatwhere":
            ours: Any = EncoderForMaskedLM if head else Encoder
            config = own_config(folder)
            opened, info = ours.from_pretrained(
                folder, dtype=_at_least_32_bits(config), local_files_only=True, output_loading_info=True
            )
            return _whole(opened, info, model)
        config = config_of(model, local)
        if local:
            check_sizes(folder, config)
        if head:
            raise ValueError(
                f"{model} is of type {config.model_type}, whose attention and hidden states have no separate terms and "
                "streams that --ablate could take away. Leave --ablate out to see where its heads look, or give an "
                "encoder of whatwhere pretrain."
            )
        opened, info = AutoModel.from_pretrained(
            model,
            config=config,
            dtype=_at_least_32_bits(config),
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation="eager",
            output_loading_info=True,
            **here(local),
        )
        return _whole(opened, info, model)


def _whole(model: Any, info: Any, name: str) -> Any:
    """A model that was opened, in evaluation mode.

    Raises:
        ValueError: its weights were not in its file, or half of them were not, and were drawn at random.
    """
    lacking, own = sorted(info["missing_keys"]), set(model.state_dict())
    if 2 * len(lacking) > len(own) or (model.config.model_type == "whatwhere" and _of_body(lacking)):
        raise ValueError(
            f"The weights of {name} lack {lacking[0]}, which its config.json asks for. Use a complete copy."
        )
    return model.eval()


def _of_body(names: list[str]) -> list[str]:
    return [name for name in names if ".layers." in f".{name}" or "word_embeddings" in name]


def open_tokenizer(model: str) -> Any:
    """The tokenizer that was saved with a model; with its run, for a checkpoint.

    Raises:
        ValueError: there is none, or a damaged one.
    """
    from transformers import AutoTokenizer

    from ..corpus.tokenizer import without_file
    from ..models.folder import here

    model = model_source(model)
    folder = Path(model)
    local = folder.is_dir()
    if local and not _has_tokenizer(folder):
        run = folder.parent.parent
        if folder.parent.name != "checkpoints" or not _has_tokenizer(run):
            raise ValueError(
                f"{folder} has no tokenizer (tokenizer.json). Save the model's tokenizer there: "
                "tokenizer.save_pretrained."
            )
        model = str(run)
    try:
        return AutoTokenizer.from_pretrained(model, trust_remote_code=False, **here(local))
    except Exception as error:  # the library of tokenizers raises no class of its own
        if local and (lacking := without_file(Path(model))):
            raise ValueError(lacking) from None
        raise ValueError(f"The tokenizer of {model} does not load ({shortly(error)}). Use a complete copy.") from None


def _has_tokenizer(folder: Path) -> bool:
    names = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer_config.json")
    return any((folder / name).is_file() for name in names)


def open_model(model: str, scheme: Path | None, head: bool = False) -> tuple[Any, Any, Path]:
    """Encoder, tokenizer and folder of a model, which is only a name where it is of the Hub.

    Raises:
        ValueError: as `open_encoder` and `open_tokenizer`.
    """
    return open_encoder(model, scheme, head), open_tokenizer(model), Path(model_source(model))


def _at_least_32_bits(config: Any) -> Any:
    """float64 for a model that is saved as such, else float32: transformers takes that of config.json or weights."""
    import torch

    return torch.float64 if getattr(config, "dtype", None) in (torch.float64, "float64") else torch.float32
