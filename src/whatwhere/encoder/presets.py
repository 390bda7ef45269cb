"""Each published variant in a few lines: the diff between two papers is the diff between two presets."""

from typing import Any

from .config import EncoderConfig, nearest

# Widths of each size: `semantic` is the width of the one stream of a baseline and of dstg's semantic stream,
# `position` that of dstg's position stream (DSTG section 3.3: 768 = 48 + 720; baselines 720).
# A position stream of few columns is buried under what the blocks write into it unless its table starts wider than the words:
# `table` times as wide (docs/log.md).
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 4, "heads": 4, "semantic": 120, "position": 8, "positions": 128, "tied": True, "table": 8.0},
    "small": {"layers": 6, "heads": 4, "semantic": 240, "position": 16, "positions": 256, "tied": True, "table": 4.0},
    "paper": {"layers": 6, "heads": 6, "semantic": 720, "position": 48, "positions": 512, "tied": False, "table": 1.0},
}

PRESETS: dict[str, dict[str, Any]] = {}
SOURCES: dict[str, str] = {}


def _add(name: str, base: str | None, source: str, **fields: Any) -> None:
    PRESETS[name] = {**(PRESETS[base] if base else {}), **fields}
    SOURCES[name] = source


_add("nope", None, "DSTG section 2; GEOM theorem 1")  # no position at all
_add("ap", "nope", "DSTG section 3.3", absolute="learned")
_add("rope", "nope", "DSTG section 3.3", rotary=True)
_add("rp", "nope", "DSTG section 3.3, eq. 1", relative="t5", relative_special=True)
_add("dstg", "rp", "DSTG section 3, eq. 1-3", absolute="learned", streams=2)
_add("dstg-full-mlm", "dstg", "DSTG B.2", mlm_head="full")


def preset(name: str, size: str = "paper", **fields: Any) -> EncoderConfig:
    """Configuration of a published variant.

    Args:
        name: one of `PRESETS` (`whatwhere presets` lists them).
        size: "tiny" (4 layers, 128 = 8 + 120), "small" (6 layers, 256 = 16 + 240) or "paper" (6 layers, 768 = 48 + 720).
        **fields: any `EncoderConfig` field, overriding the preset's.

    Raises:
        ValueError: unknown name, size or field, or a combination that `EncoderConfig` refuses.
    """
    if name not in PRESETS:
        raise ValueError(f"Unknown preset {name!r}.{nearest(name, list(PRESETS))} All names: {', '.join(PRESETS)}.")
    if size not in SIZES:
        raise ValueError(f"Unknown size {size!r}.{nearest(size, list(SIZES))} Sizes: {', '.join(SIZES)}.")
    own = dict(PRESETS[name])
    widths = SIZES[size]
    d_pos = widths["position"] if own.pop("streams", 1) == 2 else 0
    resolved = {
        "preset": name,
        "hidden_size": widths["semantic"] + d_pos,
        "position_size": d_pos,
        "num_hidden_layers": widths["layers"],
        "num_attention_heads": widths["heads"],
        "max_position_embeddings": widths["positions"],
        "tie_word_embeddings": widths["tied"],
        **own,
        **fields,
    }
    if d_pos and "position_initializer_range" not in fields:
        words = fields.get("embedding_initializer_range", EncoderConfig.embedding_initializer_range)
        resolved["position_initializer_range"] = widths["table"] * words
    return EncoderConfig(**resolved)
