"""Files that let `SentenceTransformer(folder)` open a saved model, of sentence-transformers' own modules and in its
oldest format."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

POOLINGS = ("mean", "semantic")
_POOLING, _DENSE = "1_Pooling", "2_Dense"


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content, indent=2), encoding="utf-8")
    os.replace(temporary, path)


def write_sentence_transformer(folder: str | os.PathLike[str], pooling: str = "mean") -> None:
    """Make a saved model's folder one that sentence-transformers opens; a later call changes the pooling.

    Args:
        folder: a saved model with its tokenizer.
        pooling: "mean" of the hidden states of all tokens, or "semantic", the semantic columns of that mean (a `Dense`
            module whose fixed weights are zeros and ones). They are the same for a model of one stream. Longer texts
            are cut to `max_position_embeddings` tokens.

    Raises:
        ValueError: no such pooling, or the folder holds no model of ours.
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}; got {pooling!r}.")
    folder = Path(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width, d_pos, longest = (config[key] for key in ("hidden_size", "position_size", "max_position_embeddings"))
    except (OSError, ValueError, KeyError):
        raise ValueError(
            f"{folder} holds no saved encoder: config.json is missing or of another kind of model."
        ) from None
    modules = [("", "Transformer"), (_POOLING, "Pooling")]
    _write(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
    _write(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"},
    )
    _write(folder / _POOLING / "config.json", {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True})
    if pooling == "semantic" and d_pos:
        modules.append((_DENSE, "Dense"))
        dense = {"in_features": width, "out_features": width - d_pos, "bias": False}
        _write(folder / _DENSE / "config.json", dense | {"activation_function": "torch.nn.modules.linear.Identity"})
        save_file({"linear.weight": torch.eye(width)[d_pos:].contiguous()}, folder / _DENSE / "model.safetensors")
    names = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{t}"}
        for i, (path, t) in enumerate(modules)
    ]
    _write(folder / "modules.json", names)
    if len(modules) == 2:
        shutil.rmtree(folder / _DENSE, ignore_errors=True)
