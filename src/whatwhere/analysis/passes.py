"""Held-out windows of full length, and a pass of them through a model that many analyses read.

DSTG section 5: documents of the maximum input length; targets of 5.1 (token), 5.2 (segment) and 5.3 (intra). In a pass
each analysis reads the attention terms of every block and the hidden states. An analysis keeps only its numbers of a
window once the batch is done, so memory is bounded by one batch.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..encoder import EncoderConfig
from ..models.lengths import rows_of_model
from ..models.tensors import device_of
from ..records.record import Record
from .record_context import DRAWS, Axes, Mean, RecordContext, count_documents, document_mean, which_document

TARGETS = ("token", "segment", "intra")
FEWEST_WINDOWS = 10

# Function that is called with (steps done, steps in all, part="", note=""), of the shape of `run.progress.Progress`; or
# None.
Progress = Callable[..., None] | None

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ChosenWindows:
    """Held-out windows (m, n) of n tokens, which analyses read: a document each, or pieces of fewer documents.

    document_ids: None where a window is one attention span. regular: False at special tokens, which no probe sees.
    targets: "token" = position / n; "segment" = index of the token's segment in the window, from 0; "intra" = progress
        in the segment, 0 at its first token, 1 at its last, nan in segments of one token. At special tokens: anything.
    attention_mask: 0 at padding, which is not regular; None: no padding. document_numbers: (m,) which document of the
        corpus each begins in, as windows of one document are not independent; None: each is a document of its own.
    """

    input_ids: np.ndarray
    position_ids: np.ndarray
    document_ids: np.ndarray | None
    regular: np.ndarray
    targets: dict[str, np.ndarray]
    attention_mask: np.ndarray | None = None
    document_numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    def which(self) -> np.ndarray:
        """Return the number of the document that each window begins in, from 0: (m,) int64."""
        return which_document(len(self), self.document_numbers)

    @property
    def document_count(self) -> int:
        """Number of documents that the windows come from."""
        return int(self.which().max(initial=-1)) + 1

    @property
    def length(self) -> int:
        """Number of tokens in a window, special tokens included."""
        return self.input_ids.shape[1]

    def rows(self, chosen: np.ndarray) -> "ChosenWindows":
        """Return some of the windows, by their numbers (k,), in that order."""
        return self._map_arrays(lambda array: array[chosen])

    def first(self, n: int) -> "ChosenWindows":
        """Return the first n tokens of each window."""
        return self._map_arrays(lambda array: array[:, :n] if array.ndim > 1 else array)

    def _map_arrays(self, cut: Callable[[np.ndarray], np.ndarray]) -> "ChosenWindows":
        arrays = {name: cut(array) for name, array in vars(self).items() if isinstance(array, np.ndarray)}
        return replace(self, **arrays, targets={name: cut(values) for name, values in self.targets.items()})


@cache
def _warn_of_fewer(windows: int, length: int) -> None:
    """Log, once, that there are fewer windows than analyses ask for."""
    _log.warning("Analyses read %d windows of %d tokens: the held-out part has no more.", windows, length)


def choose_windows(window_set: Any, windows: int = 500) -> ChosenWindows:
    """Choose at most `windows` windows of the set's maximum length, evenly spaced over the set, in its order.

    Args:
        window_set: len(), and [i] -> a window with arrays (n,): input_ids, position_ids, document_ids, segments (-1 at
            special tokens) and progress (nan where a segment has one token). `document_numbers()`: which document each
            window begins in; without it each is a document of its own.

    Raises:
        ValueError: fewer than ten windows have the maximum length, or `windows` is below ten.
    """
    if windows < FEWEST_WINDOWS:
        raise ValueError(f"Probes need at least {FEWEST_WINDOWS} windows. Got windows={windows}. The paper uses 500.")
    if hasattr(window_set, "lengths"):  # windows on disk know them without being read
        lengths = np.asarray(window_set.lengths())
    else:
        lengths = np.array([len(window_set[i].input_ids) for i in range(len(window_set))], dtype=np.int64)
    longest = int(lengths.max(initial=0))
    full = np.flatnonzero(lengths == longest)
    if len(full) < FEWEST_WINDOWS:
        raise ValueError(
            f"Probes need at least {FEWEST_WINDOWS} held-out windows of the maximum length. Got {len(full)} of "
            f"{len(lengths)} with {longest} tokens. Give more text, a larger held-out share, shorter windows or "
            "join=run-on."
        )
    if len(full) < windows:
        _warn_of_fewer(len(full), longest)
    else:
        full = full[np.arange(windows) * len(full) // windows]
    chosen = [window_set[int(i)] for i in full]

    def stack(name: str, dtype: type) -> np.ndarray:
        return np.stack([np.asarray(getattr(w, name)) for w in chosen]).astype(dtype)

    ids, positions, segments = (stack(name, np.int64) for name in ("input_ids", "position_ids", "segments"))
    # Positions restart only in windows of isolated documents; anywhere else tokens attend over the whole window.
    isolated = bool((positions[:, 1:] <= positions[:, :-1]).any())
    spans = stack("document_ids", np.int64) if isolated else None
    intra = stack("progress", np.float64)
    targets = {"token": positions / longest, "segment": segments.astype(np.float64), "intra": intra}
    numbers = window_set.document_numbers()[full] if hasattr(window_set, "document_numbers") else None
    return ChosenWindows(ids, positions, spans, segments >= 0, targets, document_numbers=numbers)


def body_of(model: Any) -> Any:
    """Return a model without its head."""
    return getattr(model, "base_model", model)


def name_of(model: Any) -> str:
    """Return the name of a model for messages: its preset, else its class."""
    return getattr(model.config, "preset", None) or type(model).__name__


def first_position(model: Any) -> int:
    """Return the row of a transformers encoder's position table at which counting begins; 0 without a table."""
    rows = rows_of_model(body_of(model))
    return 0 if rows is None else rows.unused


def check_terms(model: Any) -> None:
    """Refuse a model of another package, whose scores are no sum of named terms.

    Raises:
        ValueError: the model is not one of ours.
    """
    if not hasattr(model, "inspect_terms"):
        raise ValueError(
            f"{type(model).__name__} does not say which part of its attention scores comes from position. Give an "
            "encoder of this package (whatwhere presets); hidden states and whole attention weights can be analysed in "
            "any encoder."
        )


def check_masked_lm(model: Any, what: str) -> None:
    """Refuse a model without a masked-language loss, or without named terms; `what` begins the message.

    Raises:
        ValueError: the model is no `EncoderForMaskedLM`.
    """
    if not all(hasattr(model, part) for part in ("encoder", "head", "inspect_terms")):
        raise ValueError(
            f"{what} needs a masked-language model of this package (EncoderForMaskedLM): its terms and its loss. Got "
            f"{type(model).__name__}."
        )


def check_finite(values: Any, what: str) -> None:
    """Refuse values (any shape) that are not finite; `what` names them.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    if not np.isfinite(np.asarray(values)).all():
        raise ValueError(f"{what} has NaN or infinite values. The model diverged; use an earlier checkpoint.")


def at_least_float32(values: Tensor) -> Tensor:
    """Return a tensor of any shape in its own precision, but at least float32."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def as_numpy(values: Tensor) -> np.ndarray:
    """Return a tensor of any shape as an array on the CPU, in its own precision, but at least float32."""
    return at_least_float32(values).cpu().numpy()


def as_float64(values: Any) -> np.ndarray:
    """Return a tensor, or an array, of any shape as an array of float64."""
    return np.asarray(values.detach().double().cpu() if isinstance(values, Tensor) else values, dtype=np.float64)


def rows_on(device: torch.device, rows: np.ndarray, *arrays: np.ndarray | None) -> list[Any]:
    """Return the given rows (k,) of each array (n, ...) as a tensor (k, ...) on a device; None stays None."""
    return [None if array is None else torch.from_numpy(array[rows]).to(device) for array in arrays]


def batches(order: np.ndarray, batch_size: int, progress: Progress = None) -> Iterator[np.ndarray]:
    """Yield the numbers of `order` (n,), `batch_size` at a time; `progress` is called after each batch."""
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        yield rows
        if progress is not None:
            progress(start + len(rows), len(order))


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put the model in evaluation mode, and restore its mode afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def eager(model: Any) -> Iterator[None]:
    """Put the model in evaluation mode with eager attention, and restore both.

    Fused kernels have no weights.
    """
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


def model_inputs(model: Any, windows: ChosenWindows) -> dict[str, np.ndarray]:
    """Return the inputs of a model for all windows together, each (windows, n).

    They are input_ids, and where the model needs them positions, documents and mask.

    A model of this package gets the positions as they are. Another encoder counts for itself where they are 0, 1, 2,
    ... in every document: not every encoder takes positions, and RoBERTa's begin behind the padding id. Positions that
    are no such row are given to it counted from where its table begins.

    Raises:
        ValueError: packed documents for an encoder that is not ours: its attention does not keep them apart.
    """
    spans = windows.document_ids
    mask = windows.attention_mask
    inputs = {"input_ids": windows.input_ids, "position_ids": windows.position_ids}
    inputs |= {name: a for name, a in (("document_ids", spans), ("attention_mask", mask)) if a is not None}
    if getattr(model.config, "model_type", "") in ("", EncoderConfig.model_type):
        return inputs
    if spans is not None:
        raise ValueError(
            f"{type(model).__name__} cannot keep the documents of a packed window apart: it takes no document_ids. "
            "Build windows that are one span each (join=run-on), or use an encoder of this package."
        )
    if ((windows.position_ids == np.arange(windows.length)) | (False if mask is None else mask == 0)).all():
        del inputs["position_ids"]
    else:
        inputs["position_ids"] = windows.position_ids + first_position(model)
    return inputs


def outputs(
    model: Any,
    windows: ChosenWindows,
    wanted: str,
    order: np.ndarray | None = None,
    batch_size: int = 8,
    progress: Progress = None,
) -> Generator[tuple[np.ndarray, Any], None, None]:
    """Yield (numbers (b,) of the windows, output of the model's body), a batch at a time and without gradients.

    wanted: "hidden_states", "block_states" (the last one before the final norm; of an encoder that is not ours its
    hidden_states) or "attentions". order: (k,) window numbers in the order wanted; default: 0, 1, ... States are
    num_hidden_layers + 1 tensors (b, n, hidden_size), attentions one (b, h, n, n) a layer.

    Raises:
        ValueError: as `model_inputs`.
    """
    inputs = model_inputs(model, windows)
    device = device_of(model)
    order = np.arange(len(windows)) if order is None else order
    if wanted == "block_states" and not hasattr(body_of(model), "attention_terms"):
        wanted = "hidden_states"
    for rows in batches(order, batch_size, progress):
        with torch.inference_mode():
            tensors = dict(zip(inputs, rows_on(device, rows, *inputs.values()), strict=True))
            values = getattr(body_of(model)(**tensors, **{f"output_{wanted}": True}), wanted)
        yield rows, values


def hidden_states(
    model: torch.nn.Module,
    windows: ChosenWindows,
    order: np.ndarray | None = None,
    batch_size: int = 32,
    progress: Progress = None,
    *,
    normed: bool = False,
) -> Generator[tuple[np.ndarray, tuple[Tensor, ...]], None, None]:
    """Yield the hidden states of the windows, a batch at a time.

    Each batch is (numbers (b,), layers + 1 hidden states (b, n, hidden_size)); state 0 is the embedding.

    The options are equal to the options of `outputs`. normed: the last state is the encoder's output, after its final
    norm, and not the last block's. The model runs in evaluation mode and keeps the mode that it was in.

    Raises:
        ValueError: the model returns another number of hidden states, or other widths, than its configuration says; or,
            as `model_inputs`, it cannot tell packed documents apart.
    """
    config: Any = model.config
    wanted = "hidden_states" if normed else "block_states"
    with evaluating(model):
        for rows, hidden in outputs(model, windows, wanted, order, batch_size, progress):
            expected = (len(rows), windows.length, config.hidden_size)
            if len(hidden) != config.num_hidden_layers + 1 or any(tuple(h.shape) != expected for h in hidden):
                raise ValueError(
                    f"The model returned hidden states of shapes {[tuple(h.shape) for h in hidden]}; its configuration "
                    f"says {config.num_hidden_layers + 1} of shape {expected}. Check num_hidden_layers and hidden_size."
                )
            yield rows, hidden


@contextmanager
def written(model: torch.nn.Module) -> Iterator[dict[int, Tensor]]:
    """Collect the update that each block writes into the streams, by block number.

    Updates are (b, n, hidden_size), of the last batch; blocks count from 1.

    An update is the output of the block's attention plus the output of its feed-forward network, as added to the
    residual path, before any norm. Where the residual path carries the stream itself (residual=stream), it is hidden[l]
    - hidden[l - 1]; where it carries the normed stream, or BERT's block norms the sum, no difference of hidden states
    gives it.

    Args:
        model: an encoder of ours, with or without a head.
    """
    updates: dict[int, Tensor] = {}

    def take_attention(block: int, _module: Any, _inputs: Any, output: Any) -> None:
        updates[block] = torch.cat(output[0], dim=-1)

    def add_feed_forward(block: int, _module: Any, _inputs: Any, output: Any) -> None:
        updates[block] = updates[block] + torch.cat(output, dim=-1)

    layers: Any = body_of(model).layers
    handles = []
    for block, layer in enumerate(layers, 1):
        handles.append(layer.attention.register_forward_hook(partial(take_attention, block)))
        handles.append(layer.feed_forward.register_forward_hook(partial(add_feed_forward, block)))
    try:
        yield updates
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, eq=False)
class Batch:
    """Batch of windows in a pass, on the model's device, as its readers receive it.

    indices: (b,) numbers of the windows in the set. input_ids: (b, n). regular: (b, n) bool, False at [CLS], [SEP]
    and padding. real: (b, n) bool, False at padding.
    """

    windows: ChosenWindows
    indices: np.ndarray
    input_ids: Tensor
    regular: Tensor
    real: Tensor

    @classmethod
    def of(cls, windows: ChosenWindows, indices: np.ndarray, device: torch.device) -> "Batch":
        """Return a batch of some of the windows: the rows `indices`, (b,) int, as tensors on `device`."""
        arrays = windows.input_ids, windows.regular, windows.attention_mask
        ids, regular, mask = rows_on(device, indices, *arrays)
        return cls(windows, indices, ids, regular, torch.ones_like(regular) if mask is None else mask != 0)


class Reader:
    """Analysis that reads a pass: it keeps numbers of each window, and returns the records of all of them at the end.

    wants_terms, wants_hidden: inputs that it needs; the pass does not compute inputs that no reader needs.
    """

    wants_terms = False
    wants_hidden = False

    def __init__(self) -> None:
        self.values: dict[Any, np.ndarray] = {}  # (windows, ...) by name or, mostly, by (block, part)
        self.document_numbers: np.ndarray | None = None

    def terms(self, batch: Batch, block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        """Read the terms of block 0 ... L - 1 of a batch, see `Encoder.inspect_terms`.

        It is called before `hidden` of the same batch. terms: score units, (b or 1, h, n, n).
        allowed: (b, 1, 1 or n, n) bool, the keys that a query may look at; None for all.

        Raises:
            ValueError: the scores are not finite, or a block has no term.
        """

    def hidden(self, batch: Batch, hidden: tuple[Tensor, ...]) -> None:
        """Read the L + 1 hidden states (b, n, hidden_size) of a batch."""

    def records(self, context: RecordContext) -> list[Record]:
        """Return the records of all windows of the pass.

        Raises:
            ValueError: no window has passed, or none that says anything.
        """
        raise NotImplementedError

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays for figures that the records do not contain, each of the shape that its figure reads."""
        return {}

    def keep(self, key: Any, batch: Batch, values: Any) -> None:
        """Write `values` (b, ...) of a batch into the array (windows, ...) of a key, nan where not seen.

        It exists from the first batch on: small arrays of every batch would lie between its large ones and keep their
        memory from being used again.
        """
        values = values.cpu().numpy() if isinstance(values, Tensor) else values
        if key not in self.values:
            self.values[key] = np.full((len(batch.windows), *values.shape[1:]), np.nan)
        self.values[key][batch.indices] = values
        self.document_numbers = batch.windows.document_numbers

    def places(self) -> tuple[np.ndarray, Axes]:
        """Return the values by (block, part), (windows, places, ...), and the axis of the places.

        Raises:
            ValueError: no window has passed, or none with a regular token.
        """
        check_passed(self.values)
        keys = sorted(key for key in self.values if isinstance(key, tuple))
        values = np.stack([self.values[key] for key in keys], axis=1)
        check_words(values)
        return values, {("layer", "part"): [(block + 1, part) for block, part in keys]}

    def mean(self, values: np.ndarray, draws: int = DRAWS) -> Mean:
        """Average values (windows, ...) over documents: mean, low and high, each (...); see `document_mean`."""
        return document_mean(values, draws, self.document_numbers)

    def count(self, values: np.ndarray) -> np.ndarray:
        """Count the documents that have a value among values (windows, ...): (...) int64."""
        return count_documents(values, self.document_numbers)


def check_words(values: np.ndarray) -> None:
    """Refuse values (windows, ...) that are nan for every window.

    Raises:
        ValueError: no window has a value.
    """
    if np.isnan(values).all():
        raise ValueError(
            "No window has a regular token, so there is nothing to average over. Give windows of at least 3 "
            "tokens: [CLS], a word, [SEP]."
        )


def check_passed(values: Any) -> None:
    """Refuse a reader without values.

    Raises:
        ValueError: no window has passed.
    """
    if not values:
        raise ValueError("No window has passed. Give this reader to analysis.passes.read first, with windows.")


def read(
    model: Any, windows: ChosenWindows, readers: Sequence[Reader], batch_size: int = 8, progress: Progress = None
) -> None:
    """Pass the windows through the model once, in order, and hand every batch to every reader.

    Raises:
        ValueError: a reader needs terms and the model has none by name: it is not one of ours.
    """
    device = device_of(model)
    order = np.arange(len(windows))
    of_terms = [r for r in readers if r.wants_terms]
    of_hidden = [r for r in readers if r.wants_hidden]
    now: Batch

    def see(block: int, terms: dict[str, Tensor], allowed: Tensor | None) -> None:
        for reader in of_terms:
            reader.terms(now, block, terms, allowed)

    if of_terms:
        check_terms(model)
    watching = model.inspect_terms(see) if of_terms else nullcontext()
    with watching, closing(hidden_states(model, windows, order, batch_size)) as passing:
        for rows in batches(order, batch_size, progress):
            now = Batch.of(windows, rows, device)  # before the model reads it
            _, hidden = next(passing)
            with torch.inference_mode():
                for reader in of_hidden:
                    reader.hidden(now, hidden)
