"""The taxonomy of heads, reading the terms and KL for each, against the forward passes that it needs (budget: 0.70 of
their speed)."""

import numpy as np
import torch

import whatwhere as ww
from whatwhere.analysis.head_labels import HeadTaxonomy
from whatwhere.analysis.passes import ChosenWindows, hidden_states, read

from .models import VOCAB
from .timing import DEVICE, Results, Settings, alternate, figure, row

AT_LEAST = 0.7
NAMES = ("dstg", "tupe-r")
SHAPES = {"full": (4, 512), "quick": (2, 512), "micro": (2, 16)}


def documents(count: int, n: int, vocab: int) -> ChosenWindows:
    """Random documents: [CLS] first, [SEP] last."""
    ids = np.random.default_rng(0).integers(5, vocab, (count, n))
    ids[:, 0] = 2
    ids[:, -1] = 3
    return ChosenWindows(ids, np.tile(np.arange(n), (count, 1)), None, (ids != 2) & (ids != 3), {})


def heads(settings: Settings) -> Results:
    """Plain forward passes / passes that also measure KL of every removed term in every head; the ratio is that of the
    speeds."""
    results = Results()
    count, n = SHAPES[settings.scale]
    chosen = documents(count, n, VOCAB[settings.scale])
    for name in NAMES:
        size = "tiny" if settings.scale == "micro" else "paper"
        torch.manual_seed(0)
        model = ww.Encoder(ww.preset(name, size, vocab_size=VOCAB[settings.scale])).to(DEVICE).eval()

        def plain(model: ww.Encoder = model) -> None:
            for _ in hidden_states(model, chosen, batch_size=count):
                pass

        def taxonomy(model: ww.Encoder = model) -> None:
            read(model, chosen, [HeadTaxonomy(model)], batch_size=count)

        times = alternate({"plain": plain, "taxonomy": taxonomy}, settings.repeats)
        results.rows.append(
            row(
                f"taxonomy of heads, {name}, plain / with KL",
                f"{size}, n = {n}, b = {count}, float32",
                figure(f"{name} forward", times["plain"]),
                figure(f"{name} forward and KL", times["taxonomy"]),
                at_least=AT_LEAST if name == "dstg" else None,
                note=f"{model.config.num_hidden_layers} × {model.config.num_attention_heads} heads, forward without "
                "gradients, sdpa",
            )
        )
    return results
