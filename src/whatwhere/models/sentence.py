"""Vectors of texts, and the files (of its oldest format) by which sentence-transformers opens a saved model."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..encoder.config import last_trained_layer
from ..run.files import write_json
from ..run.progress import Progress, ignore_progress
from .lengths import usual_length_of_ours
from .prediction_kinds import OF_STREAMS, check_pooling
from .tensors import write_errors_named

_POOLING = "1_Pooling"
_DENSE = "2_Dense"


def trained_states(hidden: Sequence[Tensor], config: Any) -> Tensor:
    """Return the last hidden states (b, n, hidden_size), each stream taken after the last block that trains it.

    Args:
        hidden: the num_hidden_layers + 1 states (b, n, hidden_size) of an encoder.
        config: of that encoder; `last_trained_layer` reads the block of each stream from it.
    """
    late = last_trained_layer(config, "position")
    d_pos = getattr(config, "position_size", 0)
    if late == config.num_hidden_layers:
        return hidden[-1]
    return torch.cat([hidden[late][..., :d_pos], hidden[-1][..., d_pos:]], dim=-1)


def reads_early(config: Any, pooling: str) -> bool:
    """Tell if a pooling needs all hidden states, because it reads one before the output."""
    return pooling == "position" and last_trained_layer(config, "position") < config.num_hidden_layers


def pooled(hidden: Tensor, attention_mask: Tensor, pooling: str, position_size: int = 0) -> Tensor:
    """Pool hidden states into one vector (b, width) of each text.

    Args:
        hidden: (b, n, hidden_size); where `reads_early`, the result of `trained_states`.
        attention_mask: (b, n), 1 at tokens and 0 at padding.
        pooling: "mean" over the tokens, special ones included; "cls", the first token; "semantic" or "position", the
            columns of one stream in that mean.
        position_size: columns of the position stream, the first ones.
    """
    if pooling == "cls":
        return hidden[:, 0]
    mask = attention_mask[..., None].to(hidden.dtype)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    columns = {"semantic": slice(position_size, None), "position": slice(position_size)}
    return mean[:, columns.get(pooling, slice(None))]


class TextVectors(torch.nn.Module):
    """Vectors of texts by an opened encoder, as the only module of a `SentenceTransformer`.

    It reads what no files of sentence-transformers can say: weights that were drawn, and the position stream after the
    last block that trains it. Prompts are left out: no encoder here was trained with one.

    Args:
        pooling: as `pooled`. length: most tokens of a text; longer texts are cut.
        progress: called after every batch; its note has the number of texts that were read so far.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        pooling: str,
        length: int,
        progress: Progress = ignore_progress,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.max_seq_length = length
        self.progress = progress
        self.texts = 0

    def preprocess(self, inputs: Sequence[str], **_: Any) -> dict[str, Tensor]:
        """Encode texts into input_ids and attention_mask, each (b, n), padded to the longest."""
        how = {"truncation": True, "max_length": self.max_seq_length, "return_tensors": "pt"}
        encoded = self.tokenizer(list(inputs), padding=True, padding_side="right", **how)
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the vectors (b, width) of a batch as `sentence_embedding`."""
        config = self.model.config
        early = reads_early(config, self.pooling)
        output = self.model(**features, **({"output_block_states": True} if early else {}))
        hidden = trained_states(output.block_states, config) if early else output.last_hidden_state
        mask = features["attention_mask"]
        vectors = pooled(hidden, mask, self.pooling, getattr(config, "position_size", 0))
        self.texts += len(mask)
        self.progress(0, 1, "encoding", f"{self.texts:,} texts")  # nobody says how many will come
        return {**features, "sentence_embedding": vectors}


def write_sentence_transformer(
    folder: str | os.PathLike[str], pooling: str = "mean", length: int | None = None
) -> None:
    """Write the files by which sentence-transformers opens a saved model's folder; a later call changes the pooling.

    Args:
        folder: a saved model with its tokenizer, ours or of transformers.
        pooling: as `pooled`. A `Dense` module whose fixed weights are zeros and ones takes the columns of a stream from
            the last hidden state, so "position" is for models that train it there. "semantic" is the mean for a model
            of one stream.
        length: tokens to which longer texts are cut; default: the trained length, as `whatwhere predict`; for a model
            of another package sentence-transformers' own choice.

    Raises:
        ValueError: no such pooling or length, the position stream of a model without one, a pooling that reads a stream
            which the last block does not train, or the folder holds no encoder.
    """
    check_pooling(pooling)
    folder = Path(folder)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        width = config.get("hidden_size") or config["dim"]  # dim: DistilBERT's name
        ours = "position_size" in config
    except (OSError, ValueError, KeyError):
        raise ValueError(
            f"{folder} holds no saved encoder: config.json is missing or of another kind of model. Give the folder of "
            "a saved encoder."
        ) from None
    if length is not None and length < 3:
        raise ValueError(f"length must be at least 3 tokens, [CLS] and [SEP] included; got {length}.")
    if ours and length is None:
        length = usual_length_of_ours(folder, config)
    d_pos = config["position_size"] if ours else 0
    if pooling == "position" and not d_pos:
        raise ValueError(f"{folder} holds a model of one stream, which has no position columns. Pool its mean or cls.")
    if ours and reads_early(SimpleNamespace(**config), pooling):
        raise ValueError(
            f"{folder} holds a model whose last block has an untrained position half, and sentence-transformers reads "
            "no other block. whatwhere predict --pooling position reads the one before."
        )
    modules = [("", "Transformer"), (_POOLING, "Pooling")]
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": length, "do_lower_case": False})
    settings: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", settings)
    of = "cls_token" if pooling == "cls" else "mean_tokens"
    pool = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": False, f"pooling_mode_{of}": True}
    write_json(folder / _POOLING / "config.json", pool)
    if pooling in OF_STREAMS and d_pos:
        modules.append((_DENSE, "Dense"))
        rows = torch.eye(width)[d_pos:] if pooling == "semantic" else torch.eye(width)[:d_pos]
        dense = {"in_features": width, "out_features": len(rows), "bias": False}
        write_json(folder / _DENSE / "config.json", dense | {"activation_function": "torch.nn.modules.linear.Identity"})
        with write_errors_named(folder):
            save_file({"linear.weight": rows.contiguous()}, folder / _DENSE / "model.safetensors")
    package = "sentence_transformers.models"
    entries = [
        {"idx": i, "name": str(i), "path": at, "type": f"{package}.{kind}"} for i, (at, kind) in enumerate(modules)
    ]
    write_json(folder / "modules.json", entries)
    if len(modules) == 2:
        shutil.rmtree(folder / _DENSE, ignore_errors=True)
