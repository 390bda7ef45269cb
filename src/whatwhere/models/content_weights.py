"""Weights of the content term of attention: word embeddings, and the matrices that turn a word into a query or key."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..run.files import read_object
from .own_config import COPY
from .tensors import named_tensors, read_tensor

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")  # model types whose weights have BERT's names


@dataclass(frozen=True, eq=False)
class Scores:
    """Weights of the content term of attention scores, in float64.

    words: word embeddings (V, d). query, key: matrices (layers, heads, d_head, d) that turn a vector into a head's
    query or key.
    """

    words: np.ndarray
    query: np.ndarray
    key: np.ndarray


def split_heads(words: np.ndarray, weights: list[tuple[np.ndarray, np.ndarray]], heads: int) -> Scores:
    """Return the weights by head.

    Args:
        words: Word embeddings (V, d).
        weights: W_Q and W_K (heads · d_head, d) of each block.
    """
    query, key = (np.stack([w.reshape(heads, -1, w.shape[1]) for w in kind]) for kind in zip(*weights, strict=True))
    return Scores(words, query, key)


def bert_like(folder: str | Path) -> dict[str, Any]:
    """Read the configuration of a transformers folder in BERT's form, whose words are as wide as its attention.

    Raises:
        ValueError: no such folder, or another kind of model.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ValueError(f"No model at {folder}: config.json is missing. Give a transformers folder.")
    config: dict[str, Any] = read_object(folder / "config.json", hint=COPY)
    if (kind := config.get("model_type")) not in BERT_LIKE:
        raise ValueError(f"{folder} is of type {kind!r}. Read here are {', '.join(BERT_LIKE)}, and models of ours.")
    words = config.get("embedding_size", config.get("hidden_size"))
    width = config.get("hidden_size")
    if words != width:
        raise ValueError(
            f"The words of {folder} are {words} wide, its attention {width}: a map stands between them, as in "
            "ELECTRA-small. Give a model without one, for example ELECTRA-base."
        )
    return config


def scores_of_folder(folder: str | Path) -> Scores:
    """Read the content weights of a transformers folder in BERT's form by name from its safetensors; builds
    no model.

    Raises:
        ValueError: see `bert_like`; weights that are missing, pickled or damaged.
    """
    folder = Path(folder)
    config = bert_like(folder)
    blocks = [f"encoder.layer.{i}.attention.self" for i in range(int(config["num_hidden_layers"]))]
    pairs = [(f"{block}.query.weight", f"{block}.key.weight") for block in blocks]
    names = ["embeddings.word_embeddings.weight", *(name for pair in pairs for name in pair)]
    tensors: dict[str, np.ndarray] = {}
    for stored, path in named_tensors(folder).items():
        for name in (n for n in names if stored == n or stored.endswith(f".{n}")):
            tensors[name] = read_tensor(path, stored).double().numpy()
    missing = [name for name in names if name not in tensors]
    if missing:
        raise ValueError(
            f"{folder} has no safetensors weights named {missing[0]}. Save the whole model with safetensors."
        )
    weights = [(tensors[q], tensors[k]) for q, k in pairs]
    return split_heads(tensors[names[0]], weights, int(config["num_attention_heads"]))
