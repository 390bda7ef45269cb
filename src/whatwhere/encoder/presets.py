"""Presets: each published variant in a few lines, written as its difference from another preset."""

from contextlib import suppress
from typing import Any

from . import pair_terms, rotations, tables  # noqa: F401  (they register the parts of the presets)
from .bias_networks import BiasNetwork  # noqa: F401  (copies of a saved model follow lines `from .x import`)
from .config import EncoderConfig
from .distance_biases import DistanceBias  # noqa: F401  (as above)
from .registry import PRESETS, SOURCES, register_preset, suggest_name

# Widths by block. With one stream hidden_size is `model`. With two it is model + position_stream in NeoBERT's block
# (DSTG 3.3: 768 = 720 + 48, baselines 720), and still `model` in BERT's, of which position_stream is a part.
# `positions`: max_position_embeddings.
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "neobert": {"layers": 4, "heads": 4, "model": 120, "position_stream": 8, "tied": True},
        "bert": {"layers": 4, "heads": 4, "model": 128, "position_stream": 8, "tied": True},
        "positions": 128,
    },
    "small": {
        "neobert": {"layers": 6, "heads": 4, "model": 240, "position_stream": 16, "tied": True},
        "bert": {"layers": 6, "heads": 4, "model": 256, "position_stream": 16, "tied": True},
        "positions": 256,
    },
    "paper": {
        "neobert": {"layers": 6, "heads": 6, "model": 720, "position_stream": 48, "tied": False},
        "bert": {"layers": 12, "heads": 12, "model": 768, "position_stream": 48, "tied": True},
        "positions": 512,
    },
}

# `residual` of each block, equal for all its presets, so that a study compares position schemes alone. In NeoBERT's
# block both choices are level in mean loss over dstg, rope and rp (docs/method.md). `EncoderConfig` has the default
# "stream", because saved configurations without the key were trained with it.
RESIDUALS = {"neobert": "normalized", "bert": "stream"}

# `streams=2` adds a position stream, as wide as the size or `d_pos` says; `d_pos="head"`: as wide as a head (SPLIT).
register_preset("nope", None, "DSTG section 2; GEOM theorem 1")  # no position at all
register_preset("ap", "nope", "DSTG section 3.3", absolute="learned")
register_preset("rope", "nope", "DSTG section 3.3; RoFormer", rotation="rope")
register_preset("rope-partial", "rope", "GPT-NeoX (Black et al. 2022)", rotation_share=0.25)
register_preset("xpos", "nope", "Sun et al. 2023, algorithm 1", rotation="xpos")
register_preset("bipe", "rope", "BiPE-RoPE (He et al. 2024)", absolute="learned", bilevel=True)
register_preset("conv", "nope", "Chu et al. 2021; wav2vec 2 (Baevski et al. 2020)", input_kernel=9)
register_preset("rp", "nope", "DSTG section 3.3, eq. 1", relative="t5", relative_special="shared")
register_preset("dstg", "rp", "DSTG section 3, eq. 1-3", absolute="learned", absolute_skips_special=True, streams=2)
register_preset("dstg-full-mlm", "dstg", "DSTG B.2", mlm_head="full")
register_preset("dstg-waves", "dstg", "DSTG section 4 (1) and 6: two slow waves", table_start="half-turn")
register_preset("dstg-waves-frozen", "dstg-waves", "DSTG section 4 (1) and 6: two slow waves, fixed", absolute="fixed")
register_preset("sinusoidal", "nope", "Vaswani et al. 2017, section 3.5", absolute="sinusoidal")
register_preset("shape", "sinusoidal", "SHAPE (Kiyono et al. 2021)", position_draws="shape", draw_shift=500.0)
_cape = {"position_draws": "cape", "draw_shift": 5.0, "draw_local_shift": 0.5, "draw_scale": 1.03}
register_preset("cape", "sinusoidal", "CAPE (Likhomanenko et al. 2021)", **_cape)
register_preset("alibi", "nope", "Press et al. 2022", relative="alibi")
register_preset("kerple-log", "nope", "KERPLE, logarithmic (Chi et al. 2022)", relative="kerple_log")
register_preset("kerple-power", "nope", "KERPLE, power (Chi et al. 2022)", relative="kerple_power")
register_preset("tisa", "nope", "TISA (Wennberg and Henter 2021)", relative="tisa")
register_preset("sandwich", "nope", "Sandwich (Chi et al. 2023)", relative="sandwich", relative_shared=True)
register_preset("fire", "nope", "FIRE (Li et al. 2024)", pair_terms="fire")
register_preset("low-rank", "nope", "GEOM remark 8", absolute="low_rank", table_rank=8)
register_preset("fourier", "nope", "LOWDIM section 5", absolute="fourier")
register_preset("shaw", "nope", "Shaw et al. 2018; TUPE eq. 4", pair_terms="shaw", relative_max_distance=16)
register_preset("deberta", "nope", "He et al. 2021, eq. 4", pair_terms="deberta")
register_preset("transformer-xl", "nope", "Dai et al. 2019, section 3.3", pair_terms="xl")
register_preset("cope", "nope", "Golovneva et al. 2024", pair_terms="cope")
register_preset("dape", "nope", "DAPE with KERPLE (Zheng et al. 2024)", pair_terms="dape")

register_preset("bert-a", None, "TUPE eq. 3; BERT", block="bert", absolute="learned", dropout=0.1, norm_eps=1e-12)
register_preset("bert-r", "bert-a", "TUPE eq. 3 and 5", relative="t5", relative_shared=True)
register_preset("bert-ad", "bert-a", "TUPE section 4.3", untied="crossed")
register_preset("tupe-a-tie-cls", "bert-a", "TUPE eq. 7, section 4.3", untied="position")
register_preset("tupe-a", "tupe-a-tie-cls", "TUPE eq. 10", reset="sum")
register_preset("tupe-r", "tupe-a", "TUPE eq. 11", relative="t5", relative_shared=True)
register_preset("tupe-free", "tupe-a", "TUPE section 5", absolute="none", untied="free")
register_preset("tupe-product", "tupe-a", "TUPE section 5", relative="product", relative_shared=True)
_split = {"stream_qk": "joint", "stream_feed_forward": "separate", "stream_values": "consecutive", "mlm_head": "full"}
_split |= {"block": "bert", "absolute": "learned"}
register_preset("split", None, "SPLIT, notes", streams=2, d_pos="head", **_split, dropout=0.1, norm_eps=1e-12)


def preset(name: str, size: str = "paper", **fields: Any) -> EncoderConfig:
    """Return the configuration of a published variant in one of three sizes.

    Args:
        name: one of `PRESETS` (`whatwhere presets` lists them).
        size: "tiny" (4 layers; dstg: 128 = 8 + 120; one stream: 120; BERT's block: 128), "small" (6 layers; dstg: 256 =
            16 + 240; one stream: 240; BERT's block: 256) or "paper" (6 layers; dstg: 768 = 48 + 720; one stream: 720;
            BERT's block: 12 layers, 768). SPLIT's position stream is a head wide. The block decides the width:
            `preset("tupe-r", block="neobert")` is as wide as `ap`. It decides the residual, too: "normalized" for every
            preset in NeoBERT's block, "stream" in BERT's, where the sum is normalised.
        **fields: any `EncoderConfig` field, overriding the preset's, and `streams` and `d_pos` (`register_preset`).
            `position_size` and `d_pos` both set the columns of the position stream: the first takes them from the
            semantic stream; a number for the second in NeoBERT's block adds them to `hidden_size`.

    Raises:
        ValueError: unknown name, size or field, or a combination that `EncoderConfig` refuses.
    """
    if name not in PRESETS:
        hint = suggest_name(name, list(PRESETS))
        all_names = f"All names: {', '.join(PRESETS)}"
        raise ValueError(f"Unknown preset {str(name)[:60]!r}.{hint} {all_names}. Load your own with --scheme FILE.")
    if size not in SIZES:
        raise ValueError(
            f"Unknown size {str(size)[:60]!r}.{suggest_name(size, list(SIZES))} Sizes: {', '.join(SIZES)}."
        )
    values = {**PRESETS[name], **fields}
    block = values.get("block", EncoderConfig.block)
    if not isinstance(block, str) or block not in RESIDUALS:  # SIZES[size] holds "positions", too
        raise ValueError(f"block must be one of neobert, bert; got {block!r}.")
    widths = SIZES[size][block]
    has_two_streams = values.pop("streams", 1) == 2
    if "d_pos" in fields and not has_two_streams:
        raise ValueError(
            f"d_pos is the width of a position stream, and {name} has none. Give streams=2, or leave it out."
        )
    d_pos = values.pop("d_pos", widths["position_stream"])
    added_width = d_pos if isinstance(d_pos, int) else widths["position_stream"]
    settings = {
        "preset": name,
        "hidden_size": widths["model"] + (added_width if has_two_streams and block == "neobert" else 0),
        "num_hidden_layers": widths["layers"],
        "num_attention_heads": widths["heads"],
        "max_position_embeddings": SIZES[size]["positions"],
        "tie_word_embeddings": widths["tied"],
        "residual": RESIDUALS[block],
        **values,
    }
    with suppress(TypeError, ZeroDivisionError):  # from values that EncoderConfig refuses below
        if has_two_streams:
            head_width = settings["hidden_size"] // settings["num_attention_heads"]
            settings.setdefault("position_size", head_width if d_pos == "head" else d_pos)
    return EncoderConfig(**settings)


__all__ = ["PRESETS", "RESIDUALS", "SIZES", "SOURCES", "preset"]
