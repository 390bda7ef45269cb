"""Attention of every head in a few texts, in total and term by term, for the attention explorer (DSTG figure 3).

Each term has its own softmax over all keys, as in the figure; `total` is the softmax of their sum, the attention that
the model uses. On disk a weight w is one byte, round(255 √w): wrong by at most √w / 255 + 4e-6, so by 0.004 at w = 1
and by less where weights are small.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..corpus.synthetic import RepeatedDocuments
from ..models.lengths import max_tokens
from .attention_weights import TOTAL, WeightReader, Weights, attention_weights
from .passes import Batch, ChosenWindows, read

STEPS = 255
LEVELS = ((np.arange(STEPS + 1) / STEPS) ** 2).astype(np.float32)  # the weight that each byte stands for
_ORDER = tuple(
    "semantic mixed absolute semantic_to_absolute absolute_to_semantic semantic_to_relative relative_to_semantic "
    "relative".split()
)


@dataclass(frozen=True, eq=False)
class TextMaps:
    """Attention of every head in one text of n tokens.

    weights: name of a term, and `total` last, -> (L, h, n, n) float32; [l, i, q, k] is the weight that the query at
    token q gives to the key at token k in head i of block l + 1, and rows sum to 1. missing: why `total` stands alone;
    empty if it does not.
    """

    title: str
    tokens: list[str]
    weights: dict[str, np.ndarray]
    missing: str = ""

    def levels(self) -> dict[str, np.ndarray]:
        """Return the weights as bytes: see `quantise`."""
        return {name: quantise(w) for name, w in self.weights.items()}


def quantise(weights: np.ndarray) -> np.ndarray:
    """Return round(255 √w) as uint8, of weights in [0, 1] of any shape; `LEVELS` turns it back."""
    return np.rint(np.sqrt(np.clip(weights, 0, 1)) * STEPS).astype(np.uint8)


def repeated_text(seed: int = 0) -> tuple[str, str]:
    """Return title and text of a made-up text of the shape DOC-A + DOC-B + DOC-A.

    DSTG figure 3 has one; equal seeds give equal texts.
    """
    return "A + B + A", next(iter(RepeatedDocuments(documents=1, sentences=3, seed=seed).documents()))


def shown_tokens(tokenizer: Any, input_ids: Iterable[int]) -> list[str]:
    """Return a readable name of each token id.

    It is the vocabulary's entry, decoded where byte-level, with signs for blanks and line breaks.
    """
    names = []
    for i in input_ids:
        name = tokenizer.convert_ids_to_tokens(int(i))
        if name is None:
            names.append(f"id {i}")
            continue
        if any(sign in name for sign in "ĠĊĉ"):  # byte-level
            name = tokenizer.decode([int(i)])
        names.append(str(name).replace("\r\n", "↵").replace("\n", "↵").replace("\t", "→").replace(" ", "␣") or "∅")
    return names


def text_maps(model: Any, input_ids: np.ndarray, tokens: Sequence[str], title: str = "") -> TextMaps:
    """Compute the attention of every head in one text.

    model: an encoder of this package, or any of transformers that gives attention weights (`total` only, `missing` says
    why); it is left in the mode and with the attention backend it had. input_ids: (n,), special tokens included.
    tokens: n names.

    Raises:
        ValueError: no tokens, numbers that disagree, more tokens than the model has positions, or no attention weights.
    """
    input_ids = np.asarray(input_ids, dtype=np.int64)
    if input_ids.ndim != 1 or not len(input_ids) or len(tokens) != len(input_ids):
        raise ValueError(
            f"A text is one row of at least one token id, each with a name; got ids {input_ids.shape}, {len(tokens)} "
            "names."
        )
    most = max_tokens(model.config)
    if most is not None and len(input_ids) > most:
        raise ValueError(f"The model has {most} positions; the text {title!r} has {len(input_ids)} tokens. Shorten it.")
    ids = input_ids[None]
    text = ChosenWindows(ids, np.arange(len(input_ids))[None], None, np.ones(ids.shape, dtype=bool), {})
    if not hasattr(model, "inspect_terms"):
        ((_, attentions),) = attention_weights(model, text)
        missing = (
            f"{type(model).__name__} does not say which part of its scores comes from position, so only the attention "
            "itself is shown; the encoders of whatwhere have named terms."
        )
        whole = np.stack([a[0].float().cpu().numpy() for a in attentions])
        return TextMaps(title, list(tokens), {TOTAL: whole}, missing)
    reader = _Maps()
    missing = ""
    read(model, text, [reader])
    blocks = len(reader.maps[TOTAL])
    names = [name for name, maps in reader.maps.items() if len(maps) == blocks]  # that every block has
    if len(names) == 2:  # one term and the total, which are the same
        preset = getattr(model.config, "preset", None)
        term = names[0]
        missing = (
            f"The attention scores of {f'`{preset}`' if preset else 'this model'} are one term (`{term}`), so only "
            "their softmax is shown."
        )
        names = [TOTAL]
    names.sort(key=lambda name: (name == TOTAL, _ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    return TextMaps(title, list(tokens), {name: np.stack(reader.maps[name]) for name in names}, missing)


class _Maps(WeightReader):
    """Reader of the weights (h, n, n) of every block, by part."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: dict[str, list[np.ndarray]] = defaultdict(list)

    def weights(self, batch: Batch, block: int, part: str, weights: Weights) -> None:
        self.maps[part].append(weights.values[0].float().cpu().numpy())
