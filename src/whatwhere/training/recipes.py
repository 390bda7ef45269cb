"""Recipes of pretraining: the defaults of a size, of a recipe (`dstg`, `tupe`), and of a recipe at a size."""

from typing import Any

from ..encoder import PRESETS

# Rates chosen by the mean validation loss of dstg and ap at `tiny` after 2.5M and 10M tokens (docs/log.md has the
# tries). `small` uses the same rates: at 1.6M tokens half of the AdamW rate gave an equal loss there.
_SEARCH_RESULT: dict[str, Any] = {
    "optimizer": "muon",
    "muon_scale": "spectral",
    "learning_rate": 4e-3,
    "matrix_learning_rate_scale": 3.0,  # 3 at 2.5M tokens, 1.5 at 10M: 625 and 2,500 steps of tiny
    "matrix_steps": 625,
    "schedule": "trapezoid",
    "warmup_steps": 100,
    "validate_every": 200,
    "validation_windows": 128,
}

# Defaults of a size. `paper`: DSTG 3.3 (batch 256, 512 tokens, 10k warm-up steps, 70k steps),
# NeoBERT's learning rate.
SIZE_DEFAULTS: dict[str, dict[str, Any]] = {
    "tiny": {**_SEARCH_RESULT, "length": 128, "batch_size": 32, "vocab_size": 4096, "steps": 625},
    "small": {**_SEARCH_RESULT, "length": 256, "batch_size": 32, "vocab_size": 8192, "steps": 2500},
    "paper": {
        "length": 512,
        "batch_size": 256,
        "learning_rate": 6e-4,
        "warmup_steps": 10_000,
        "tokenizer": "bert-base-uncased",
        "steps": 70_000,
    },
}

# Training tokens after which a model is half a nat below the unigram loss, by the recipe of the size: of the slowest of
# dstg, ap, rp and rope at `tiny`, of dstg and ap at `small`.
TOKENS_TO_LEARN = {"tiny": 2_500_000, "small": 5_000_000}

# Defaults of a recipe that differ from its size's, at every size (`always`) or at one. TUPE: its Table 1, and BERT's
# masking. (Dropout and the epsilon of norms are part of a preset.)
RECIPE_DEFAULTS: dict[str, dict[str, dict[str, Any]]] = {
    # Ten times the rate for the group `biases` (optimizers.py), which is added to the scores of attention: a lower
    # validation loss in 15 of 15 presets at `tiny` (docs/results/schemes), and of dstg at `small` (docs/results/small).
    "dstg": {size: {"bias_learning_rate_scale": 10.0} for size in ("tiny", "small")},
    "tupe": {
        "always": {
            "mask_rate": 0.15,
            "masking": "80-10-10",
            "schedule": "linear",
            "minimum_learning_rate_ratio": 0.0,
            "epsilon": 1e-6,
            "betas": (0.9, 0.999),
            "shift": False,
        },
        "paper": {"learning_rate": 1e-4, "steps": 1_000_000},
    },
}


def recipe_of(preset: str) -> str:
    """Return the recipe of a preset: "tupe" for presets with BERT's block, else "dstg"."""
    return "tupe" if PRESETS.get(preset, {}).get("block") == "bert" else "dstg"


def defaults_of(recipe: str, size: str) -> dict[str, Any]:
    """Return the defaults of a recipe at a size; unknown names set none."""
    changes = RECIPE_DEFAULTS.get(recipe, {})
    return {**SIZE_DEFAULTS.get(size, {}), **changes.get("always", {}), **changes.get(size, {})}
