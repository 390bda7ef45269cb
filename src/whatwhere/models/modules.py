"""Parts of a sentence-transformers folder that make vectors of hidden states, read from its modules.json.

The package itself is an extra; its files are few and its formulas short, so they are followed without it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..run.files import check_inside, read_json
from ..run.hub import file_of
from .own_config import COPY
from .tensors import read_tensor

MODULES = "modules.json"  # of a sentence-transformers folder: its parts, each with its folder
_PACKAGE = "sentence_transformers."
_SETTINGS = "config_sentence_transformers.json"
TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta")
)
_OLD_MODES = {  # flag of an older folder -> mode, in the order in which several are put side by side
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda values: values,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": nn.functional.gelu,
    "Sigmoid": torch.sigmoid,
}
_DENSE_KEYS = {"in_features", "out_features", "bias", "activation_function", "module_input_name", "module_output_name"}
_OF_TEXTS = "sentence_embedding"


class _Unfollowed(Exception):
    """Error for a part that the vectors would need and that is not followed; its words complete *asks for ...*."""


class Projection(nn.Module):
    """A linear map of vectors with a bias and an activation, as sentence-transformers' `Dense`."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.activation = activation

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors (b, in) to (b, out)."""
        weight = self.weight.to(vectors)
        bias = None if self.bias is None else self.bias.to(vectors)
        return self.activation(nn.functional.linear(vectors, weight, bias))


class Normalisation(nn.Module):
    """Division of each vector by its length."""

    def forward(self, vectors: Tensor) -> Tensor:
        """Scale vectors (b, width) to length 1."""
        return nn.functional.normalize(vectors, p=2, dim=-1)


@dataclass(frozen=True)
class VectorParts:
    """The parts by which a sentence-transformers folder makes the vector of a text.

    poolings: modes of `pooled_as`, whose vectors stand side by side. after: maps of the pooled vectors, in their order.
    length: most tokens of a text, special ones included, longer texts are cut; None: as the tokenizer says. prompt: put
    before every text. lower_case: texts are lower-cased.
    """

    poolings: tuple[str, ...]
    after: tuple[nn.Module, ...]
    length: int | None
    prompt: str = ""
    lower_case: bool = False

    def pool(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Pool hidden states (b, n, width) under a mask (b, n) into vectors (b, poolings · width), before the maps
        of `after`."""
        return torch.cat([pooled_as(hidden, mask, mode) for mode in self.poolings], dim=-1)

    def finish(self, vectors: Tensor) -> Tensor:
        """Map pooled vectors (b, width) to the texts' vectors (b, out)."""
        for part in self.after:
            vectors = part(vectors)
        return vectors


def pooled_as(hidden: Tensor, mask: Tensor, mode: str) -> Tensor:
    """Pool hidden states (b, n, width) as sentence-transformers' `Pooling` does: (b, width).

    Args:
        mask: (b, n), 1 at tokens; padding stands on either side.
        mode: a value of `pooling_mode` in the configuration of that part.
    """
    places = mask.cumsum(1) * mask  # 1 for the first token
    if mode == "cls":
        return _token_of(hidden, mask.int().argmax(1))
    if mode == "lasttoken":
        return _token_of(hidden, places.int().argmax(1))
    if mode == "max":
        return hidden.masked_fill(mask[..., None] == 0, float("-inf")).max(1).values
    counted = (places if mode == "weightedmean" else mask)[..., None].to(hidden.dtype)
    total = counted.sum(1)
    return (hidden * counted).sum(1) / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


def _token_of(hidden: Tensor, places: Tensor) -> Tensor:
    """Take the state of one token of each text (b,): (b, width)."""
    return hidden.gather(1, places[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)


def vector_parts(source: str) -> tuple[VectorParts | None, str]:
    """Read how a model's folder makes vectors, from its modules.json.

    Args:
        source: a folder, or a name on the Hub.

    Returns:
        The parts, or None where the folder has no modules.json or asks for what is not followed; then also the words
        that say so, else "".

    Raises:
        ValueError: a damaged file, or a part outside the folder.
    """
    listed = file_of(source, MODULES)
    if listed is None:
        return None, ""
    entries = read_json(listed, COPY)
    entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    check_inside(listed, [str(entry.get("path", "")) for entry in entries])
    try:
        return _parts(source, entries), ""
    except _Unfollowed as part:
        return None, f"The {MODULES} of {source} asks for {part}, which is not followed: these are plain means."


def _parts(source: str, entries: list[dict[str, Any]]) -> VectorParts:
    kinds = [_kind_of(str(entry.get("type", ""))) for entry in entries]
    paths = [str(entry.get("path", "")) for entry in entries]
    if kinds[:2] != ["transformer", "pooling"]:
        raise _Unfollowed(f"the parts {', '.join(kinds) or 'none'}")
    settings = _object(source, "", _SETTINGS)
    name = settings.get("default_prompt_name")
    prompt = str((settings.get("prompts") or {}).get(name) or "") if name is not None else ""
    about = next((values for file in TRANSFORMER_FILES if (values := _object(source, paths[0], file))), {})
    length = _length(about)
    if length is not None and (not isinstance(length, int) or length < 1):
        raise ValueError(f"max_seq_length of {source} is {str(length)[:40]!r}, no number of tokens. {COPY}")
    return VectorParts(
        _poolings(_object(source, paths[1], "config.json"), bool(prompt)),
        tuple(_after(source, kind, path) for kind, path in zip(kinds[2:], paths[2:], strict=True)),
        length,
        prompt,
        bool(about.get("do_lower_case")),
    )


def _length(about: dict[str, Any]) -> Any:
    """Return how many tokens the first part reads; what it calls its tokenizer with wins over `max_seq_length`."""
    calls = about.get("processing_kwargs")
    for kind in ("common", "text"):  # the first wins
        call = calls.get(kind) if isinstance(calls, dict) else None
        if isinstance(call, dict) and call.get("max_length") is not None:
            return call["max_length"]
    return about.get("max_seq_length")


def with_length(about: dict[str, Any], length: int) -> dict[str, Any]:
    """Return the settings of a first part that reads `length` tokens in place of as many as it says."""
    changed = about | ({"max_seq_length": length} if "max_seq_length" in about else {})
    calls = about.get("processing_kwargs")
    if isinstance(calls, dict):
        stated = {k: v for k, v in calls.items() if isinstance(v, dict) and v.get("max_length") is not None}
        changed["processing_kwargs"] = calls | {k: v | {"max_length": length} for k, v in stated.items()}
    return changed


def _kind_of(type_name: str) -> str:
    """Return the class of a part in small letters; with its module where it is of another package."""
    return type_name.rpartition(".")[2].lower() if type_name.startswith(_PACKAGE) else type_name[:60]


def _object(source: str, folder: str, name: str) -> dict[str, Any]:
    """Read a file of a part; {} where there is none."""
    path = file_of(source, f"{folder}/{name}" if folder else name)
    content = {} if path is None else read_json(path, COPY)
    return content if isinstance(content, dict) else {}


def _poolings(config: dict[str, Any], has_prompt: bool) -> tuple[str, ...]:
    if has_prompt and config.get("include_prompt") is False:
        raise _Unfollowed("a prompt that is not pooled")
    mode = config.get("pooling_mode", [name for flag, name in _OLD_MODES.items() if config.get(flag)] or "mean")
    modes = (mode,) if isinstance(mode, str) else tuple(map(str, mode))
    if unknown := [name for name in modes if name not in _OLD_MODES.values()]:
        raise _Unfollowed(f"the pooling {unknown[0][:40]}")
    return modes


def _after(source: str, kind: str, path: str) -> nn.Module:
    config = _object(source, path, "config.json")
    if config.get("module_input_name", _OF_TEXTS) != _OF_TEXTS:
        raise _Unfollowed(f"{kind} of {config['module_input_name']}")
    if kind == "normalize":
        return Normalisation()
    if kind != "dense":
        raise _Unfollowed(f"the part {kind}")
    if (config.get("module_output_name") or _OF_TEXTS) != _OF_TEXTS or config.get("use_residual"):
        raise _Unfollowed("a dense part with a residual or another output")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = _ACTIVATIONS.get(name.rpartition(".")[2]) if name.startswith("torch.") else None
    if activation is None:
        raise _Unfollowed(f"the activation {name[:60]}")
    weights = file_of(source, f"{path}/model.safetensors")
    if weights is None:
        raise _Unfollowed("a dense part without model.safetensors")
    bias = read_tensor(weights, "linear.bias") if config.get("bias", True) else None
    return Projection(read_tensor(weights, "linear.weight"), bias, activation)
