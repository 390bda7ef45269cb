"""The attention explorer: which texts it shows, and the files with a model's attention in them."""

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
    held_out: WindowSet, tokenizer: Any, numbers: Iterable[int], most: int
) -> list[tuple[str, np.ndarray]]:
    """Return some held-out windows and a made-up text that repeats itself: title and token ids (n,) of each.

    Args:
        numbers: Numbers of the windows.
        most: Tokens after which a text is cut, special ones included.
    """
    texts = [(f"held-out window {i}", np.asarray(held_out[int(i)].input_ids)[:most]) for i in numbers]
    title, text = repeated_text()
    # Last, as a vocabulary of the corpus may cut its words into letters.
    return [*texts, (title, np.array(tokenizer(text, truncation=True, max_length=most)["input_ids"]))]


def save_attention(
    run: RunFolder,
    model: Any,
    tokenizer: Any,
    texts: Sequence[tuple[str, np.ndarray]],
    *,
    name: str,
    seed: int | None,
) -> str:
    """Write the attention of a model in each text to a run, with an entry in explorer.json; return the arrays' name.

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
    shown = []
    for number, (title, ids) in enumerate(texts):
        maps = text_maps(model, ids, shown_tokens(tokenizer, ids), title)
        arrays |= {f"{number}.{term}": levels for term, levels in maps.levels().items()}
        shown.append({"title": title, "tokens": maps.tokens})
    entries = run.read(INDEX) if run.has(INDEX) else []
    file = f"arrays/explorer-{RecordContext(name.replace('/', '_'), seed).stem}.npz"
    run.write(file, arrays)
    about = {"file": file, "terms": list(maps.weights), "missing": maps.missing, "texts": shown}
    by_model = {(entry["name"], entry["seed"]): entry for entry in entries}
    by_model[name, seed] = {"name": name, "seed": seed, **about}
    run.write(INDEX, list(by_model.values()))
    return file
