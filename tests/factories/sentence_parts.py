"""The files round a saved encoder that make it a folder of sentence-transformers, with parts of random weights."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

Part = tuple[str, dict[str, Any]]


def write_parts(folder: Path, parts: list[Part], length: int = 20, **settings: Any) -> None:
    """The files of a sentence-transformers folder round a saved encoder; parts are (type, configuration)."""
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for number, (kind, config) in enumerate(parts, 1):
        at = f"{number}_{kind}"
        entries.append({"idx": number, "name": str(number), "path": at, "type": f"sentence_transformers.models.{kind}"})
        (folder / at).mkdir()
        (folder / at / "config.json").write_text(json.dumps(config))
        if kind == "Dense" and "in_features" in config:
            torch.manual_seed(1)
            shape = (config["out_features"], config["in_features"])
            weights = {"linear.weight": torch.randn(shape), "linear.bias": torch.randn(shape[0])}
            save_file(weights, folder / at / "model.safetensors")
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


def pooling(*modes: str, width: int = 16) -> Part:
    """A part that pools in these modes, with the keys of older folders."""
    names = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    flags = {f"pooling_mode_{name}": name in modes for name in names}
    return "Pooling", {"word_embedding_dimension": width, **flags}
