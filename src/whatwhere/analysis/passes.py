"""Held-out documents of full length, and a pass of them through a model that many analyses read.

DSTG section 5: documents of the maximum input length; targets of 5.1 (token), 5.2 (segment) and 5.3 (intra). In a pass
each analysis reads the attention terms of every block and the hidden states; nothing of a document is kept once its
batch is done, so memory is bounded by one batch whatever the number of documents and analyses.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..encoder import EncoderConfig
from ..records import Record
from .who import Who

TARGETS = ("token", "segment", "intra")
FEWEST_DOCUMENTS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Documents:
    """m windows of n tokens each, as arrays (m, n).

    regular: False at special tokens, which no probe sees.
    targets: "token" = position / n; "segment" = index of the token's segment in the window, from 0; "intra" = progress
        in the segment, 0 at its first token, 1 at its last, nan in segments of one token. Values at special tokens mean
        nothing.
    document_ids: None where a window is one attention span. attention_mask: (m, n), 0 at padding, which is not regular;
        None: no padding.
    articles: (m,) which article of the corpus each begins in, as windows of one article are not independent; None: each
    is its own.
    """

    input_ids: np.ndarray
    position_ids: np.ndarray
    document_ids: np.ndarray | None
    regular: np.ndarray
    targets: dict[str, np.ndarray]
    attention_mask: np.ndarray | None = None
    articles: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def length(self) -> int:
        """Tokens in a document, special tokens included."""
        return self.input_ids.shape[1]

    def rows(self, chosen: np.ndarray) -> "Documents":
        """Some of the documents, by number, in that order."""
        mask, ids = self.attention_mask, self.document_ids
        return Documents(
            self.input_ids[chosen],
            self.position_ids[chosen],
            None if ids is None else ids[chosen],
            self.regular[chosen],
            {name: values[chosen] for name, values in self.targets.items()},
            None if mask is None else mask[chosen],
            None if self.articles is None else self.articles[chosen],
        )


def choose_documents(window_set: Any, documents: int = 500) -> Documents:
    """At most `documents` windows of the set's maximum length, evenly spaced over the set, in its order; the same ones
    every time.

    Args:
        window_set: len(), and [i] -> a window with arrays input_ids, position_ids, document_ids, segments (-1 at
            special tokens) and progress (nan where a segment has one token).

    Raises:
        ValueError: fewer than ten windows have the maximum length, or `documents` is below ten.
    """
    if documents < FEWEST_DOCUMENTS:
        raise ValueError(
            f"Probes need at least {FEWEST_DOCUMENTS} documents. Got documents={documents}. The paper uses 500."
        )
    lengths = _lengths(window_set)
    full = np.flatnonzero(lengths == lengths.max()) if len(lengths) else lengths
    if len(full) < FEWEST_DOCUMENTS:
        length = int(lengths.max()) if len(lengths) else 0
        raise ValueError(
            f"Probes need at least {FEWEST_DOCUMENTS} held-out windows of the maximum length. Got {len(full)} of "
            f"{len(lengths)} with "
            f"{length} tokens. Give more text, a larger held-out share, shorter windows or join=run-on."
        )
    if len(full) < documents:
        _log.warning(
            "Probes use %d documents of %d tokens, not %d: the held-out part has no more.",
            len(full),
            lengths.max(),
            documents,
        )
    else:
        full = full[np.arange(documents) * len(full) // documents]
    windows = [window_set[int(i)] for i in full]

    def stack(name: str, dtype: type) -> np.ndarray:
        return np.stack([np.asarray(getattr(w, name)) for w in windows]).astype(dtype)

    position_ids, segments = stack("position_ids", np.int64), stack("segments", np.int64)
    # Positions restart only in windows of isolated documents; anywhere else tokens attend over the whole window.
    isolated = bool((position_ids[:, 1:] <= position_ids[:, :-1]).any())
    return Documents(
        input_ids=stack("input_ids", np.int64),
        position_ids=position_ids,
        document_ids=stack("document_ids", np.int64) if isolated else None,
        regular=segments >= 0,
        targets={
            "token": position_ids / position_ids.shape[1],
            "segment": segments.astype(np.float64),
            "intra": stack("progress", np.float64),
        },
        articles=_articles(window_set, full),
    )


def _articles(window_set: Any, chosen: np.ndarray) -> np.ndarray | None:
    found = window_set.articles() if hasattr(window_set, "articles") else None
    return None if found is None else np.asarray(found)[chosen]


def _lengths(window_set: Any) -> np.ndarray:
    if hasattr(window_set, "lengths"):  # windows on disk know them without being read
        return np.asarray(window_set.lengths())
    return np.array([len(window_set[i].input_ids) for i in range(len(window_set))], dtype=np.int64)


def model_inputs(model: Any, documents: Documents) -> dict[str, np.ndarray]:
    """What a model is called with, all documents together: input_ids, and where it needs them the positions, documents
    and mask.

    A model of this package gets the positions as they are. Another encoder counts for itself where they are 0, 1, 2,
    ... in every document: not every encoder takes positions, and RoBERTa's begin behind the padding id. Positions that
    are no such row are given to it counted from where its table begins.

    Raises:
        ValueError: packed documents for an encoder that is not ours: its attention does not keep them apart.
    """
    inputs = {"input_ids": documents.input_ids, "position_ids": documents.position_ids}
    if documents.document_ids is not None:
        inputs["document_ids"] = documents.document_ids
    if documents.attention_mask is not None:
        inputs["attention_mask"] = documents.attention_mask
    if getattr(model.config, "model_type", "") in ("", EncoderConfig.model_type):
        return inputs
    if documents.document_ids is not None:
        raise ValueError(
            f"{type(model).__name__} cannot keep the documents of a packed window apart: it takes no document_ids. "
            "Build windows that "
            "are one span each (join=run-on), or use an encoder of this package."
        )
    counted = documents.position_ids == np.arange(documents.length)
    if documents.attention_mask is not None:
        counted |= documents.attention_mask == 0
    if counted.all():
        del inputs["position_ids"]
    else:
        inputs["position_ids"] = documents.position_ids + first_position(model)
    return inputs


def first_position(model: Any) -> int:
    """Row of an encoder's position table at which counting begins: behind the padding id in RoBERTa and its kin, 0
    elsewhere."""
    embeddings = getattr(getattr(model, "base_model", model), "embeddings", None)
    padding = getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
    return 0 if padding is None else int(padding) + 1


def device_of(model: Any) -> torch.device:
    """Where the parameters of a model are; the CPU where it has none."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """The model in evaluation mode, and afterwards in the mode that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """The model in evaluation mode and in its eager attention: fused kernels have no weights."""
    before = getattr(model.config, "_attn_implementation", None)
    switch = before not in (None, "eager") and hasattr(model, "set_attn_implementation")
    with evaluating(model):
        try:
            if switch:
                model.set_attn_implementation("eager")
            yield
        finally:
            if switch:
                model.set_attn_implementation(before)


def hidden_states(
    model: torch.nn.Module,
    documents: Documents,
    order: np.ndarray | None = None,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> Generator[tuple[np.ndarray, tuple[torch.Tensor, ...]], None, None]:
    """Hidden states of the documents, a batch at a time, in evaluation mode and without gradients; the tokens are not
    masked.

    The model is called on its own device and left in the mode it was in. Only its body runs, never the vocabulary head.

    Args:
        order: document numbers in the order wanted; default: 0, 1, ...
        progress: called with (documents done, documents in all) after each batch.

    Yields:
        (indices (b,), hidden): the documents of the batch, and layers + 1 tensors (b, n, hidden_size), 0 = embedding.

    Raises:
        ValueError: the model returns another number of hidden states, or other widths, than its configuration says; or,
            as `model_inputs`, it cannot tell packed documents apart.
    """
    order = np.arange(len(documents)) if order is None else order
    body: Any = getattr(model, "base_model", model)
    config: Any = model.config
    device = device_of(model)
    inputs = model_inputs(model, documents)
    with evaluating(model):
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            with torch.inference_mode():
                tensors = {name: torch.from_numpy(array[indices]).to(device) for name, array in inputs.items()}
                hidden = body(**tensors, output_hidden_states=True).hidden_states
            expected = (len(indices), documents.length, config.hidden_size)
            if len(hidden) != config.num_hidden_layers + 1 or any(tuple(h.shape) != expected for h in hidden):
                raise ValueError(
                    f"The model returned hidden states of shapes {[tuple(h.shape) for h in hidden]}; its configuration "
                    "says "
                    f"{config.num_hidden_layers + 1} of shape {expected}. Check num_hidden_layers and hidden_size."
                )
            yield indices, hidden
            if progress is not None:
                progress(start + len(indices), len(order))


@dataclass(frozen=True, eq=False)
class Batch:
    """What a pass hands to its readers with every batch of documents; `documents.regular` and `.targets` are rows of
    `indices`.

    indices: (b,) numbers of the documents in the set. input_ids: (b, n). regular: (b, n) bool on the model's device,
    False at [CLS], [SEP] and padding.
    """

    documents: Documents
    indices: np.ndarray
    input_ids: Tensor
    regular: Tensor

    @classmethod
    def of(cls, documents: Documents, indices: np.ndarray, device: torch.device) -> "Batch":
        """Some of the documents, on a device."""
        ids, regular = (torch.from_numpy(a[indices]).to(device) for a in (documents.input_ids, documents.regular))
        return cls(documents, indices, ids, regular)

    @property
    def articles(self) -> np.ndarray | None:
        """(b,) article of each document, see `Documents`."""
        return None if self.documents.articles is None else self.documents.articles[self.indices]


class Reader:
    """An analysis that reads a pass. `wants_terms` and `wants_hidden` say what it needs; what nobody needs is not
    computed."""

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
    device = device_of(model)
    now: Batch | None = None
    seers = [r for r in readers if r.wants_terms]
    watching: AbstractContextManager[None] = nullcontext()
    if seers:
        if not hasattr(model, "inspecting"):
            raise ValueError(
                f"{type(model).__name__} does not say which part of its attention scores comes from position; the "
                "encoders of this package "
                "do (whatwhere presets). Hidden states and whole attention weights can be analysed in any encoder."
            )

        def see(block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
            assert now is not None
            for reader in seers:
                reader.terms(now, block, terms, allowed)

        watching = model.inspecting(see)
    order = np.arange(len(documents))
    rows = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    with watching, closing(hidden_states(model, documents, order, batch_size)) as passing:
        for number, indices in enumerate(rows):
            now = Batch.of(documents, indices, device)  # before the model reads it
            _, hidden = next(passing)
            with torch.inference_mode():
                for reader in readers:
                    if reader.wants_hidden:
                        reader.hidden(now, hidden)
            if progress is not None:
                progress(min((number + 1) * batch_size, len(order)), len(order))
