"""Texts of the attention explorer, and the files with a model's attention in these texts."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..analysis.record_context import RecordContext
from ..analysis.texts import LEVELS, repeated_text, shown_tokens, text_maps
from ..corpus import WindowSet
from ..run.folder import RunFolder

INDEX = "explorer.json"
MOST_SHOWN = 128  # tokens of a text


def choose_texts(
    held_out: WindowSet, tokenizer: Any, window_numbers: Iterable[int], most_tokens: int
) -> list[tuple[str, np.ndarray]]:
    """Return some held-out windows and a made-up text that repeats itself: title and token ids (n,) of each.

    Args:
        window_numbers: Indices of the held-out windows.
        most_tokens: Tokens after which a text is cut, special ones included.
    """
    texts = [(f"held-out window {i}", np.asarray(held_out[int(i)].input_ids)[:most_tokens]) for i in window_numbers]
    title, text = repeated_text()
    # The made-up text comes last: a vocabulary of the corpus may cut its words into letters.
    return [*texts, (title, np.array(tokenizer(text, truncation=True, max_length=most_tokens)["input_ids"]))]


def save_attention(
    run: RunFolder,
    model: Any,
    tokenizer: Any,
    texts: Sequence[tuple[str, np.ndarray]],
    *,
    name: str,
    seed: int | None,
) -> str:
    """Write the attention of a model in each text to a run, with an entry in explorer.json; return the arrays' file.

    The arrays `arrays/explorer-NAME-seed-K.npz` are `levels` (256,), the attention weight that each byte value 0-255
    stands for, and `I.TERM` (L, h, n, n) uint8 of text I. An entry of explorer.json has name, seed, file, terms,
    missing, and of each text title and tokens; one of the same name and seed is replaced. The index is written last.

    Args:
        texts: Title and token ids (n,) of each, special tokens included.

    Raises:
        ValueError: as `text_maps`, or explorer.json is damaged.
    """
    if not texts:
        raise ValueError("There is no text to save. Give at least one title with token ids.")
    arrays = {"levels": LEVELS}
    texts_shown = []
    for number, (title, ids) in enumerate(texts):
        maps = text_maps(model, ids, shown_tokens(tokenizer, ids), title)
        arrays |= {f"{number}.{term}": levels for term, levels in maps.levels().items()}
        texts_shown.append({"title": title, "tokens": maps.tokens})
    entries = run.read(INDEX) if run.has(INDEX) else []
    file = f"arrays/explorer-{RecordContext(name.replace('/', '_'), seed).stem}.npz"
    run.write(file, arrays)
    about = {"file": file, "terms": list(maps.weights), "missing": maps.missing, "texts": texts_shown}
    by_model = {(entry["name"], entry["seed"]): entry for entry in entries}
    by_model[name, seed] = {"name": name, "seed": seed, **about}
    run.write(INDEX, list(by_model.values()))
    return file
