"""How much the states of a model change when only the positions of its input are shifted (the claim of the SPLIT notes, eq. 1).

The notes say that semantic states do not depend on position. Their values do not, but the attention weights do, and through them the
semantic stream. Here the same tokens stand once at the start of the position table and once further on.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..intervals import seed_interval
from ..records import Record
from .features import Documents, choose_documents, hidden_states
from .who import Who

DOCUMENTS = 100


def shift_records(model: Any, window_set: Any, who: Who, *, documents: int = DOCUMENTS, batch_size: int = 32) -> list[Record]:
    """Records `shift.change`: ||h' - h|| / ||h|| over the words of a document, by layer and part (`all`, `position`, `semantic`).

    The first half of each document is encoded at positions 0, 1, ... and again at those of the second half ([CLS] moves along). The
    value is the mean over documents, low and high its 95 % interval over documents, n their number. A model whose positions are not
    numbered by a table is moved just as far.

    Raises:
        ValueError: too few windows have the full length (see `choose_documents`).
    """
    config = model.config
    chosen = choose_documents(window_set, documents)
    half = min(chosen.length, config.max_position_embeddings) // 2
    here = _first(chosen, half)
    there = replace(here, position_ids=here.position_ids + half)
    parts = {"all": slice(None)}
    if config.position_size:
        parts |= {"position": slice(0, config.position_size), "semantic": slice(config.position_size, None)}
    changes: dict[tuple[int, str], list[float]] = {(layer, part): [] for layer in range(config.num_hidden_layers + 1) for part in parts}
    passes = (hidden_states(model, moved, batch_size=batch_size) for moved in (here, there))
    for (indices, before), (_, after) in zip(*passes, strict=True):
        words = torch.from_numpy(here.regular[indices]).to(before[0].device)[..., None]
        for layer, (h, moved) in enumerate(zip(before, after, strict=True)):
            for part, columns in parts.items():
                size = (h[..., columns] * words).double().flatten(1).norm(dim=1)
                change = ((moved - h)[..., columns] * words).double().flatten(1).norm(dim=1)
                changes[layer, part] += (change / size).tolist()
    records = []
    for (layer, part), values in changes.items():
        low, high = seed_interval(values) or (None, None)
        mean = float(np.mean(values))
        records.append(who.record("shift.change", mean, low, high, layer=layer, part=part, n=len(values)))
    return records


def _first(documents: Documents, n: int) -> Documents:
    """The first n tokens of each document."""
    ids = None if documents.document_ids is None else documents.document_ids[:, :n]
    return replace(
        documents,
        input_ids=documents.input_ids[:, :n],
        position_ids=documents.position_ids[:, :n],
        document_ids=ids,
        regular=documents.regular[:, :n],
        targets={key: values[:, :n] for key, values in documents.targets.items()},
    )
