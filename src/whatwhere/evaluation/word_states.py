"""Hidden states of places in texts, of any encoder: the mean of the tokens of a word, of a sentence or of a whole
text."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..analysis.passes import ChosenWindows, at_least_float32, body_of, hidden_states
from ..analysis.probes import stream_columns
from ..corpus.batches import padded
from ..models.lengths import max_tokens
from ..models.sentence import trained_states
from ..run.progress import Progress, ignore_progress

BATCH_TOKENS = 8192  # of a forward pass, padding included
POOLINGS = {"mean": slice(None), "first": slice(0, 1), "last": slice(-1, None)}  # which tokens of a slot are averaged


class Slot(NamedTuple):
    """Place in a text whose tokens' states are averaged.

    text: its number; start, end: characters; -1 for the end: the whole text with the special tokens around it.
    """

    text: int
    start: int = 0
    end: int = -1


def parts_of(config: Any, slots: int = 1) -> dict[str, np.ndarray]:
    """Map each part of the hidden state to its columns, (slots · width,) bool.

    Parts are "all", and "position" and "semantic" of a model with two streams; slots: number of states that stand one
    after the other in a row.
    """
    masks = {}
    for part, columns in stream_columns(config).items():
        mask = np.zeros(config.hidden_size, bool)
        mask[columns] = True
        masks[part] = np.tile(mask, slots)
    return masks


def layers_of(model: Any, which: str) -> list[int]:
    """List the numbers of the hidden states that probes read for "last" or "all", 0 the embeddings.

    In the last each stream is read after the last block that trains it (`models.sentence.trained_states`).
    """
    return list(range(model.config.num_hidden_layers + 1))[None if which == "all" else -1 :]


def slot_states(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    slots: Sequence[Slot],
    layers: Sequence[int],
    *,
    pooling: str = "mean",
    normed: bool = False,
    batch_tokens: int = BATCH_TOKENS,
    progress: Progress = ignore_progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the state of each slot in the hidden states of an encoder, and mark the slots without a token.

    A state is the mean over the tokens that lie in the slot, at least in part, or the state of the first or last of
    them; the last layer as `layers_of`. A text with more tokens than the model has positions is cut, as its
    tokenizer cuts.

    Args:
        layers: numbers of hidden states. pooling: a key of `POOLINGS`. normed: the last layer is after the final norm.
        batch_tokens: most tokens of a forward pass.

    Returns:
        (layers, slots, width) float32, zeros where a slot has no token that the model reads; and (slots,) bool,
        true there.

    Raises:
        ValueError: a text without a token, or a tokenizer that does not say where its tokens stand.
    """
    encoded = _encoded(model, tokenizer, texts)
    slots_of_text: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        slots_of_text.setdefault(slot.text, []).append(number)
    order = sorted(slots_of_text, key=lambda i: len(encoded[i][0]))
    states = np.zeros((len(layers), len(slots), model.config.hidden_size), np.float32)
    empty = np.zeros(len(slots), bool)
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and (end + 1 - begin) * len(encoded[order[end]][0]) <= batch_tokens:
            end += 1
        _read(
            model,
            tokenizer,
            encoded,
            order[begin:end],
            slots_of_text,
            slots,
            layers,
            POOLINGS[pooling],
            normed,
            states,
            empty,
        )
        begin = end
        progress(end, len(order))
    return states, empty


def row_states(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    places: Sequence[Sequence[Sequence[Slot]]],
    layers: Sequence[int],
    pooling: str = "mean",
    progress: Progress = ignore_progress,
    *,
    normed: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the states of rows, and mark the rows that lack a token in some place.

    Args:
        places: of each row its inputs, whose states stand one after the other; of each input the places whose states
            are averaged. layers, pooling, normed: as `slot_states`.

    Returns:
        (layers, rows, inputs of a row · width) float32, and (rows,) bool.

    Raises:
        ValueError: as `slot_states`.
    """
    number: dict[Slot, int] = {}
    flat = [number.setdefault(slot, len(number)) for row in places for slots in row for slot in slots]
    how: dict[str, Any] = {"pooling": pooling, "normed": normed, "progress": progress}
    states, empty = slot_states(model, tokenizer, texts, list(number), layers, **how)
    means = states[:, flat]
    sizes = np.array([len(slots) for row in places for slots in row])
    if sizes.max() > 1:
        means = (np.add.reduceat(means, np.cumsum(sizes) - sizes, axis=1) / sizes[:, None]).astype(np.float32)
    of_row = np.array([sum(map(len, row)) for row in places])
    lacking = np.logical_or.reduceat(empty[flat], np.cumsum(of_row) - of_row)
    return means.reshape(len(layers), len(places), -1), lacking


def _encoded(model: Any, tokenizer: Any, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Encode each text into ids and (tokens, 2) the characters of each token, -1 of special ones."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in a text. Save the model with a "
            "tokenizer.json."
        )
    longest = max_tokens(model.config)
    how = {"truncation": True, "max_length": longest} if longest else {}
    rows = tokenizer(list(texts), return_offsets_mapping=True, return_special_tokens_mask=True, verbose=False, **how)
    encoded = []
    for ids, offsets, special in zip(
        rows["input_ids"], rows["offset_mapping"], rows["special_tokens_mask"], strict=True
    ):
        where = np.where(np.array(special, bool)[:, None], -1, np.array(offsets, np.int64).reshape(-1, 2))
        encoded.append((np.array(ids, np.int64), where))
    if bare := [i for i, (ids, _) in enumerate(encoded) if not len(ids)]:
        raise ValueError(f"The text {texts[bare[0]]!r} has no token. Leave it out.")
    return encoded


def _read(
    model: Any,
    tokenizer: Any,
    encoded: Sequence[tuple[np.ndarray, np.ndarray]],
    batch: Sequence[int],
    slots_of_text: dict[int, list[int]],
    slots: Sequence[Slot],
    layers: Sequence[int],
    which: slice,
    normed: bool,
    filled: np.ndarray,
    empty: np.ndarray,
) -> None:
    """Fill in the slots of a batch of texts."""
    ids = padded([encoded[i][0] for i in batch], tokenizer.pad_token_id or 0)
    n = ids.shape[1]
    lengths = np.array([len(encoded[i][0]) for i in batch])
    mask = (np.arange(n) < lengths[:, None]).astype(np.int64)
    positions = np.broadcast_to(np.arange(n), ids.shape).copy()
    windows = ChosenWindows(ids, positions, None, mask.astype(bool), {}, attention_mask=mask)
    numbers: list[int] = []
    owners: list[int] = []  # place in `numbers`, of each token
    tokens: list[int] = []
    for row, text in enumerate(batch):
        where = encoded[text][1]
        for number in slots_of_text[text]:
            slot = slots[number]
            inside = (where[:, 0] < slot.end) & (where[:, 1] > slot.start) if slot.end >= 0 else where[:, 0] >= -1
            at = np.flatnonzero(inside)[which]
            empty[number] = not len(at)
            owners += [len(numbers)] * len(at)
            tokens += (row * n + at).tolist()
            numbers.append(number)
    for _, hidden in hidden_states(body_of(model), windows, batch_size=len(batch), normed=normed):
        index = torch.tensor(owners, dtype=torch.long)  # of an empty list torch makes a float
        places_of_tokens = torch.tensor(tokens, dtype=torch.long)
        counts = torch.zeros(len(numbers)).index_add_(0, index, torch.ones(len(owners))).clamp_(min=1)
        for place, layer in enumerate(layers):
            last = layer == model.config.num_hidden_layers
            states = trained_states(hidden, model.config) if last else hidden[layer]
            flat = at_least_float32(states).float().cpu().flatten(0, 1)
            sums = torch.zeros(len(numbers), flat.shape[1]).index_add_(0, index, flat[places_of_tokens])
            filled[place, numbers] = (sums / counts[:, None]).numpy()
