"""Verbs that look into one model: attention."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .options import Json, Scheme, app, emit, own_scheme


@app.command()
def attention(
    model: Annotated[
        str,
        typer.Argument(
            help="A model folder: of pretrain, finetune or a study, or any encoder of transformers (safetensors); or a Hub name."
        ),
    ],
    text: Annotated[list[str] | None, typer.Option(help="A text to look at; may be given again.", show_default=False)] = None,
    file: Annotated[list[Path] | None, typer.Option(help="A file that holds one text; may be given again.", show_default=False)] = None,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Also a made-up text of the shape A + B + A (DSTG figure 3); alone where no text is given.")
    ] = False,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that are longer than the model reads.")] = False,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("attention.html"),
    scheme: Scheme = None,
    as_json: Json = False,
) -> None:
    """A page of what every head looks at in a text, with every term of the scores apart (DSTG figure 3)."""
    from ..analysis.texts import LEVELS, most_tokens, repeated_text, shown_tokens, text_maps
    from ..report.attention_page import write_attention_page
    from ..report.explorer import ExplorerModel, ExplorerText
    from ..study.machine import versions

    texts = _texts(text or [], file or [])
    if repeat or not texts:
        texts.append(repeated_text())
    if out.is_dir():
        raise ValueError(f"{out} is a folder. Give the name of the page: --out {out / 'attention.html'}.")
    encoder, tokenizer = _open(model, scheme)
    most = most_tokens(encoder)
    found, maps = [], None
    for title, words in texts:
        ids = tokenizer(words, verbose=False)["input_ids"]
        if not len(ids) or len(ids) <= tokenizer.num_special_tokens_to_add():
            raise ValueError(f"The text “{title}” has no token. Give some words.")
        if most is not None and len(ids) > most:
            if not truncate:
                raise ValueError(
                    f"{model} has {most} positions; the text “{title}” has {len(ids)} tokens. Shorten it, or cut it there: --truncate."
                )
            ids = tokenizer(words, truncation=True, max_length=most, verbose=False)["input_ids"]
        maps = text_maps(encoder, ids, shown_tokens(tokenizer, ids), title)
        found.append(ExplorerText(title, maps.tokens, maps.levels()))
    assert maps is not None
    config = encoder.config
    name = _name(model)
    facts = [
        ("Folder" if Path(model).is_dir() else "Hub name", model),
        ("Class", type(encoder).__name__),
        ("Preset", str(getattr(config, "preset", "") or "")),
        ("Positions", str(most or "any")),
        ("Terms", ", ".join(maps.weights)),
    ]
    path = write_attention_page(
        out, ExplorerModel(name, None, found, LEVELS, maps.missing), facts=[f for f in facts if f[1]], versions=list(versions().items())
    )
    result = {
        "report": str(path),
        "tokens": [len(t.tokens) for t in found] if len(found) > 1 else len(found[0].tokens),
        "terms": list(maps.weights),
        "missing": maps.missing or None,
        "layers": len(maps.weights["total"]),
        "heads": maps.weights["total"].shape[1],
        "bytes": path.stat().st_size,
    }
    said = f"{maps.missing.replace('`', '')}\n" if maps.missing else ""
    emit(result, as_json, f"{said}The page is {path} ({result['bytes'] / 1e6:.1f} MB): open it in a browser.")


def _name(model: str) -> str:
    """What a page calls the model: the folder's name, of a study's model that and its seed."""
    path = Path(model).resolve() if Path(model).is_dir() else Path(model)
    return f"{path.parent.name}, {path.name.replace('-', ' ')}" if path.name.startswith("seed-") else path.name


def _texts(given: list[str], files: list[Path]) -> list[tuple[str, str]]:
    """Title and words of each text, in the order given."""
    found = []
    for number, words in enumerate(given, 1):
        if not words.strip():
            raise ValueError(f"--text number {number} is empty. Give some words.")
        title = " ".join(words.split())
        found.append((title if len(title) <= 40 else f"{title[:39]}…", words))
    for path in files:
        try:
            words = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise ValueError(f"{path} is no text in UTF-8. Convert it first.") from None
        if not words.strip():
            raise ValueError(f"{path} is empty. Give a file that holds some words.")
        found.append((path.name, words))
    return found


def _open(model: str, scheme: Path | None) -> tuple[Any, Any]:
    """An encoder, without its heads, and its tokenizer.

    Raises:
        ValueError: there is none, several, or a damaged one.
    """
    import json
    import os

    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModel, AutoTokenizer
    from transformers.utils import logging

    from ..encoder import Encoder
    from ..training.config import use_scheme

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    use_scheme(scheme)
    folder = Path(model)
    local = folder.is_dir()
    if local:
        seeds = sorted(p.parent for p in folder.glob("**/seed-*/config.json"))
        if seeds and not (folder / "config.json").is_file():
            raise ValueError(f"{folder} holds {count_of(seeds)} of a study. Name one, for example {seeds[0]}.")
        if not (folder / "config.json").is_file():
            raise ValueError(f"No model at {folder}: config.json is missing. Give the folder of a trained model.")
        if not any(folder.glob("*.safetensors")):
            raise ValueError(f"{folder} has no weights in safetensors. A pickle is never read; a training is finished with --resume.")
    elif folder.exists() or folder.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ValueError(f"No model at {model}: it is no folder. Give the folder of a trained model.")
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type") if local else None
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{folder}/config.json is damaged ({error}). Use a complete copy.") from None
    here = {"local_files_only": local or bool(os.environ.get("HF_HUB_OFFLINE"))}
    try:
        if kind == "whatwhere":
            encoder: Any = Encoder.from_pretrained(folder, local_files_only=True)
        else:
            config = AutoConfig.from_pretrained(model, trust_remote_code=False, **here)
            encoder = AutoModel.from_pretrained(
                model, config=config, trust_remote_code=False, use_safetensors=True, attn_implementation="eager", **here
            )
    except (SafetensorError, RuntimeError, OSError, KeyError) as error:
        raise ValueError(f"{model} does not load ({' '.join(str(error).split())[:200]}). Use a complete copy.") from None
    except ValueError as error:
        raise own_scheme(error, folder) from None
    if local and not any((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer_config.json")):
        raise ValueError(f"{folder} has no tokenizer (tokenizer.json). Save the model's tokenizer there: tokenizer.save_pretrained.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False, **here)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"The tokenizer of {model} does not load ({' '.join(str(error).split())[:200]}).") from None
    return encoder.eval(), tokenizer


def count_of(seeds: list[Path]) -> str:
    """Models in words."""
    return "one model" if len(seeds) == 1 else f"{len(seeds)} models"
