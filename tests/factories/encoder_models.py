"""Tiny models of every preset with every weight random, in float64."""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers.initialization import no_init_weights

import whatwhere as ww
from whatwhere.encoder import PRESETS

VOCAB = 40
CLS = 2
SEP = 3
BLOCKS = ["neobert", "bert"]

# What the tests call a scheme: a preset and the fields that make a variant of it.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (name, {})
        for name in ("nope", "ap", "rp", "rope", "alibi", "dstg", "bert-a", "bert-r", "bert-ad", "tupe-a", "tupe-r")
    },
    "sinusoidal": ("sinusoidal", {"table_scale": 0.5}),  # a scale that float32 holds exactly
    **{name: (name, {}) for name in ("shaw", "deberta", "transformer-xl", "cope", "dape")},
    "dstg-waves-frozen": ("dstg-waves-frozen", {}),
    **{name: (name, {}) for name in ("tupe-a-tie-cls", "tupe-free", "tupe-product", "split", "low-rank", "fourier")},
    "rope-partial": ("rope-partial", {"rope_theta": 50.0}),  # 4 of 12 columns; another base
    "xpos": ("xpos", {"xpos_scale_base": 8.0}),  # within a few tokens it falls as within hundreds by default
    "conv": ("conv", {"input_kernel": 5}),
    "bipe": ("bipe", {"segment_end_ids": [SEP, 8, 14]}),
    "bipe/alibi": ("bipe", {"rotation": "none", "relative": "alibi", "max_position_embeddings": 2}),
    **{name: (name, {}) for name in ("kerple-log", "kerple-power", "sandwich")},
    "fire": ("fire", {"max_position_embeddings": 16}),  # L, 4 at its start, lies within the rows
    "tisa": ("tisa", {"tisa_kernels": 3}),
    "tupe-r/each": ("tupe-r", {"reset": "each"}),
    "tupe-r/clipped": ("tupe-r", {"relative": "clipped", "relative_max_distance": 3}),
    "tupe-r/layers": ("tupe-r", {"relative_shared": False}),
    "bert-r/reset": ("bert-r", {"reset": "sum"}),
    "split/per-head": ("split", {"stream_values": "per_head"}),
    "split/separate": ("split", {"stream_qk": "separate"}),
    "dstg/each": ("dstg", {"relative_special": "each"}),
    "rp/each": ("rp", {"relative_special": "each", "relative_shared": True}),
    "dstg/own-width": ("dstg", {"table_width": 6}),
    "tupe-a/own-width": ("tupe-a", {"table_width": 6}),
    # Parts of different papers together.
    "dstg/deberta": ("dstg", {"relative": "none", "relative_special": "none", "pair_terms": "deberta"}),
    "dstg/product": ("dstg", {"relative": "product"}),
    "split/t5": ("split", {"relative": "t5"}),
    "tupe-free/each": ("tupe-free", {"relative": "alibi", "reset": "each"}),
    "bert-ad/rope": ("bert-ad", {"rotation": "rope", "relative": "t5", "relative_shared": True}),
}


def config(case: str, **fields) -> ww.EncoderConfig:
    """A configuration of `CASES` 24 wide with 2 heads, 2 layers and 32 positions; `dstg` 8 + 16, `split` 12 + 12."""
    name, own = CASES.get(case, (case, {}))
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 32}
    if name.startswith("dstg"):
        sizes["position_size"] = 8
    if name == "split":
        sizes["position_size"] = 12
    if name == "low-rank":
        sizes["table_rank"] = 3
    parts = PRESETS[name] | own | fields
    if parts.get("relative") == "t5":
        sizes["relative_buckets"] = 8
    if parts.get("relative") in ("t5", "clipped", "product") or parts.get("pair_terms") == "shaw":
        sizes["relative_max_distance"] = 12
    return ww.preset(name, "tiny", vocab_size=VOCAB, **(sizes | own | fields))


def random_weights(model, seed):
    """Random weights everywhere: the zeros that biases start with would hide mistakes, and so would equal thetas."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.4 if parameter.ndim < 2 else 1.2 / math.sqrt(parameter.shape[-1])
            parameter.copy_(
                spread * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype) + (parameter.ndim < 2)
            )
    return model


def build(case: str, **fields) -> ww.EncoderForMaskedLM:
    """A model in float64 with random weights."""
    with no_init_weights():  # 40 % of the time, for matrices that the last line draws anew
        model = ww.EncoderForMaskedLM(config(case, **fields))
    model.tie_weights()
    for module in model.modules():
        if hasattr(module, "initialize"):  # a table may keep numbers that are no parameters
            module.initialize(model.config)
    return random_weights(model.double().eval(), seed=1)


def inputs(kind: str) -> dict[str, torch.Tensor]:
    """Two rows of 7 tokens: `plain`, `padded` on both sides, `shifted` to positions that are no arange, `packed`
    documents, `both`.

    [CLS] stands first, in the middle, twice or last; [SEP] anywhere.
    """
    plain = torch.tensor([[CLS, 7, 8, SEP, 9, 30, SEP], [CLS, 11, SEP, 12, 13, 14, SEP]])
    if kind == "plain":
        return {"input_ids": plain}
    if kind == "padded":
        ids = torch.tensor([[0, 0, CLS, 7, 8, 9, SEP], [CLS, 11, SEP, 12, 13, 0, 0]])
        return {"input_ids": ids, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]])}
    if kind == "shifted":
        ids = torch.tensor([[21, 7, CLS, SEP, 9, 30, 8], [12, 11, SEP, CLS, 13, 14, CLS]])
        positions = torch.tensor([[3, 0, 5, 9, 4, 31, 8], [20, 19, 21, 22, 23, 2, 25]])
        return {"input_ids": ids, "position_ids": positions}
    if kind == "both":  # packed documents, and padding at the end and inside
        ids = torch.tensor([[CLS, 7, SEP, CLS, 9, 0, 0], [CLS, 11, 0, CLS, 13, 14, SEP]])
        documents = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1, 1]])
        positions = torch.tensor([[0, 1, 2, 0, 1, 0, 0], [0, 1, 0, 0, 1, 2, 3]])
        return {
            "input_ids": ids,
            "attention_mask": (ids != 0).long(),
            "document_ids": documents,
            "position_ids": positions,
        }
    assert kind == "packed"
    ids = torch.tensor([[CLS, 7, SEP, CLS, 9, 30, SEP], [CLS, 11, 12, 13, CLS, 14, SEP]])
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 5, 6, 7]])  # the last document starts at 5
    return {"input_ids": ids, "document_ids": documents, "position_ids": positions}


KINDS = ["plain", "padded", "shifted", "packed", "both"]


def real(given: dict[str, torch.Tensor]) -> torch.Tensor:
    """(b, n), True at tokens that are no padding."""
    return given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()


def on_blocks(name: str, presets: Mapping[str, str]) -> pytest.MarkDecorator:
    """Cases by preset on both blocks; on the block that is not the preset's own in `make whole`."""
    cases = [
        pytest.param(case, block, marks=[pytest.mark.whole] * (block != PRESETS[preset].get("block", "neobert")))
        for case, preset in presets.items()
        for block in BLOCKS
    ]
    return pytest.mark.parametrize((name, "block"), cases)


own_block_first = on_blocks("name", {preset: preset for preset in PRESETS})
everywhere = on_blocks("case", {case: preset for case, (preset, _) in CASES.items()})

# One of each way to make scores, where every case takes its time; the others in `make whole`.
OF_EACH_KIND = ("ap", "rp", "rope", "dstg", "tupe-r", "bert-ad", "deberta", "shaw", "conv")
of_each_kind_first = pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.whole] * (case not in OF_EACH_KIND)) for case in CASES]
)
