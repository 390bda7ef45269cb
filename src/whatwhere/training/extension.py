"""Model folders whose position table goes on beyond its length: of ours, and of BERT, RoBERTa, GPT-2 and what names its
table as they do. Only the table and the lengths in the configuration change."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, safe_open, save_file
from torch import Tensor

from ..encoder import EncoderConfig
from ..encoder.carry import AUTO_CLASSES, ENTRY, carry
from ..encoder.registry import scheme_texts
from ..encoder.tables import named_tensors, rows_of_no_position, table_key
from ..files import new_folder, read_json, write_json
from ..geometry import extrapolate
from ..shipped import model_source

ANY_LENGTH = "reads texts of any length as it is: there is no position table to continue"
LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx")  # in config.json, as model types call them
KEPT = ("checkpoints", "*.parquet", "log.jsonl", "left_out.json", "pretrain.yaml", "finetune.yaml")  # of the training


def extend(
    source: str | Path,
    out: Path,
    length: int,
    method: str = "rotation",
    *,
    components: int | None = None,
    points: np.ndarray | None = None,
    as_written: bool = False,
) -> dict[str, Any]:
    """Write a copy of a model to `out` that reads `length` tokens.

    Rows that belong to no position (RoBERTa's first two) stay before the table. Row 0 of a model whose texts begin with
    [CLS] is that token's alone: it stays, and what is continued, or repeated, is the table behind it.

    Args:
        source: folder of a model, or `reference`.
        method, components, points, as_written: as of `geometry.extrapolate`.

    Returns:
        positions and rows (of the table, before and after), method, and `out`; or `reason`, where the model needs
        nothing and nothing is written.

    Raises:
        ValueError: as `geometry.extrapolate`, no model, a model whose table has another name, or `out` is there.
    """
    folder = Path(model_source(str(source)))
    if not (folder / "config.json").is_file():
        raise ValueError(f"No model at {folder}: config.json is missing. Give the folder of a trained model.")
    config = read_json(folder / "config.json", "Use a complete copy.")
    ours = config.get("model_type") == "whatwhere"
    if ours and config["absolute"] == "none" and config.get("untied") != "free":
        return {"out": None, "reason": f"{config.get('preset') or 'this scheme'} {ANY_LENGTH}."}
    if out.exists():
        raise ValueError(f"{out} is there already. Give --out another name, or remove it.")
    tensors = named_tensors(folder)
    key = table_key(tensors, ours)
    if key is None and not (ours and config["absolute"] in ("sinusoidal", "fourier")):
        raise ValueError(
            f"{folder} keeps no table of positions that can be continued. Give a model with a learned one."
        )
    before = next((int(config[name]) for name in LENGTHS if name in config), 0)
    unused = rows_of_no_position(config)
    if length < before - unused:
        raise ValueError(f"The model reads {before - unused} tokens. Got length={length}; give more.")
    facts = {"out": str(out), "method": method, "length": length, "before": before - unused}
    changed: dict[str, Tensor] = {}
    if key is not None:
        with safe_open(tensors[key], framework="pt") as weights:
            table = weights.get_tensor(key)
        first = unused + (config.get("model_type") != "gpt2")  # texts begin with [CLS]
        given = table[first:].double().numpy()
        rows = length + unused - first
        made = extrapolate(given, rows, method, components=components, points=points, as_written=as_written)
        changed[key] = torch.cat([table[:first], torch.from_numpy(made).to(table.dtype)])
    with new_folder(out) as new:
        shutil.copytree(folder, new, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*KEPT))
        for path in {tensors[name] for name in changed}:
            held = load_file(path)
            save_file(
                held | {n: t.contiguous() for n, t in changed.items() if n in held}, new / path.name, {"format": "pt"}
            )
        if ours and "auto_map" not in config:  # saved without its code, as the shipped model is
            carry(new, scheme_texts(EncoderConfig.from_pretrained(folder, local_files_only=True)))
            config["auto_map"] = {auto: f"{ENTRY}.{name}" for auto, name in AUTO_CLASSES.items()}
        write_json(new / "config.json", config | {name: length + unused for name in LENGTHS if name in config})
        for name, field in (
            ("tokenizer_config.json", "model_max_length"),
            ("sentence_bert_config.json", "max_seq_length"),
        ):
            if (new / name).is_file() and field in (about := read_json(new / name)):
                write_json(new / name, about | {field: length})
        write_json(new / "extension.json", facts)
    return facts
