"""One pass of documents through a model for many analyses: each reads the attention terms of every block and the hidden states.

Nothing of a document is kept once its batch is done, so memory is bounded by one batch whatever the number of documents and analyses.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..records import Record
from .features import Documents, hidden_states
from .who import Who


@dataclass(frozen=True, eq=False)
class Batch:
    """What a pass hands to its readers with every batch of documents; `documents.regular` and `.targets` are rows of `indices`.

    indices: (b,) numbers of the documents in the set. input_ids: (b, n). regular: (b, n) bool on the model's device, False at [CLS], [SEP]
    and padding.
    """

    documents: Documents
    indices: np.ndarray
    input_ids: Tensor
    regular: Tensor

    @property
    def articles(self) -> np.ndarray | None:
        """(b,) article of each document, see `Documents`."""
        return None if self.documents.articles is None else self.documents.articles[self.indices]


class Reader:
    """An analysis that reads a pass. `wants_terms` and `wants_hidden` say what it needs; what nobody needs is not computed."""

    wants_terms = False
    wants_hidden = False

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        """Block 0 ... L - 1 of a batch: see `Encoder.inspecting`. Called before `hidden` of the same batch."""

    def hidden(self, batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        """The L + 1 hidden states (b, n, hidden_size) of a batch."""

    def records(self, who: Who) -> list[Record]:
        """The records of all documents of the pass."""
        raise NotImplementedError

    def arrays(self) -> dict[str, np.ndarray]:
        """What the figures need and the records do not say."""
        return {}


def read(
    model: Any,
    documents: Documents,
    readers: Sequence[Reader],
    batch_size: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Pass the documents through the model once, in order, and let every reader see every batch.

    progress: called with (documents done, documents in all) after each batch.

    Raises:
        ValueError: a reader needs terms and the model has none by name: it is not one of ours.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    state = _State()
    seers = [r for r in readers if r.wants_terms]
    watching: AbstractContextManager[None] = nullcontext()
    if seers:
        if not hasattr(model, "inspecting"):
            raise ValueError(
                f"{type(model).__name__} does not say which part of its attention scores comes from position; the encoders of this package "
                "do (whatwhere presets). Hidden states and whole attention weights can be analysed in any encoder."
            )

        def see(block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
            for reader in seers:
                reader.terms(state.batch(), block, terms, allowed)

        watching = model.inspecting(see)
    order = np.arange(len(documents))
    starts = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]

    def begin(number: int) -> None:
        if number < len(starts):
            rows = starts[number]
            ids = torch.from_numpy(documents.input_ids[rows]).to(device)
            state.now = Batch(documents, rows, ids, torch.from_numpy(documents.regular[rows]).to(device))

    with watching:
        begin(0)
        for number, (_, hidden) in enumerate(hidden_states(model, documents, order, batch_size)):
            with torch.inference_mode():
                for reader in readers:
                    if reader.wants_hidden:
                        reader.hidden(state.batch(), hidden)
            if progress is not None:
                progress(min((number + 1) * batch_size, len(order)), len(order))
            begin(number + 1)


@dataclass
class _State:
    """The batch that is on its way through the model."""

    now: Batch | None = field(default=None)

    def batch(self) -> Batch:
        assert self.now is not None
        return self.now
