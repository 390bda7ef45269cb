"""What becomes of a model beyond the length that it was trained at: losses token by token, a passage that comes again,
states under other positions, probes of the tokens beyond."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ..analysis.hidden import state_changes
from ..analysis.passes import ChosenWindows, batches, evaluating, model_inputs, rows_on
from ..analysis.probes import probe_records, stream_columns
from ..analysis.record_context import RecordContext
from ..corpus.windows import Window, WindowSet
from ..encoder import EncoderConfig
from ..encoder.config import last_trained_layer
from ..models.tensors import device_of
from ..records.record import Record

BATCH_TOKENS = 8192
PARTS = 5  # a token is hidden in one of five passes: a fifth at a time
ALONE = 64  # for the pseudo-perplexity one token in 64 is hidden at a time,
PASSES = 4  # in four passes
PASSAGE = 32  # tokens of a passage that comes again, of which every second one is hidden


def whole(texts: WindowSet) -> ChosenWindows:
    """Stack windows of one length into a `ChosenWindows` of arrays (m, n); each is a document."""
    windows = list(texts)
    ids, positions = (np.stack([getattr(w, name) for w in windows]) for name in ("input_ids", "position_ids"))
    regular = np.stack([w.segments for w in windows]) >= 0
    return ChosenWindows(ids, positions, None, regular, {}, document_numbers=texts.document_numbers())


def hidden_in(windows: ChosenWindows) -> np.ndarray:
    """Draw for each token in which of PARTS passes it is hidden, the same draw for every model.

    Returns:
        (m, n) int, 0 to PARTS - 1; -1 for special tokens.
    """
    drawn = np.random.default_rng(0).integers(PARTS, size=windows.input_ids.shape)
    return np.where(windows.regular, drawn, -1)


def alone_in(windows: ChosenWindows) -> np.ndarray:
    """Return for each token in which of PASSES passes it is hidden, at least ALONE tokens away from the next one.

    Returns:
        (m, n) int, 0 to PASSES - 1; -1 for tokens that are hidden in none.
    """
    at = np.arange(windows.length) % ALONE
    apart = ALONE // PASSES
    return np.where(windows.regular & (at % apart == 0), at // apart, -1)


def token_losses(model: Any, windows: ChosenWindows, hidden: np.ndarray, mask_id: int) -> np.ndarray:
    """Return the loss of each token in the pass in which it is hidden.

    Args:
        hidden: (m, n) int, number of that pass, or -1.
        mask_id: Token that stands in place of a hidden one.

    Returns:
        (m, n) float, nats; NaN where a token is never hidden.
    """
    values = np.full(hidden.shape, np.nan)
    inputs = model_inputs(model, windows)
    device = device_of(model)
    ours = model.config.model_type == EncoderConfig.model_type  # projects the vocabulary at labels alone
    with evaluating(model), torch.inference_mode():
        for number in range(int(hidden.max()) + 1):
            order = np.flatnonzero((hidden == number).any(1))
            for rows in batches(order, max(1, BATCH_TOKENS // windows.length)):
                tensors = dict(zip(inputs, rows_on(device, rows, *inputs.values()), strict=True))
                (hide,) = rows_on(device, rows, hidden == number)
                labels = tensors["input_ids"].masked_fill(~hide, -100)
                tensors["input_ids"] = tensors["input_ids"].masked_fill(hide, mask_id)
                options = {"labels": labels, "targets_only": True} if ours else {}
                logits = model(**tensors, **options).logits
                logits = logits if ours else logits[hide]
                losses = F.cross_entropy(logits.float(), labels[hide], reduction="none")
                place = np.nonzero(hidden[rows] == number)
                values[rows[place[0]], place[1]] = losses.cpu().numpy()
    return values


def piece_losses(
    model: Any, windows: ChosenWindows, hidden: np.ndarray, length: int, tokenizer: Any, spread: int = 0
) -> np.ndarray:
    """Return the losses of `token_losses` where a model reads each document in pieces, one after the other.

    The last piece ends where the document does.

    Args:
        hidden: (m, n) int, number of the pass in which a token is hidden, or -1.
        length: Tokens of a piece, [CLS] and [SEP] included.
        spread: Rows of the position table over which a piece's positions are spread evenly, as in a training with
            random
            positions; 0: positions are counted.

    Returns:
        (m, n) float, nats; NaN where a token is never hidden.
    """
    m, n = windows.input_ids.shape
    room = length - 2
    begins = np.minimum(np.arange(0, n - 2, room), max(n - 2 - room, 0))
    inner = begins[:, None] + 1 + np.arange(min(room, n - 2))  # tokens of the document that stand in each piece
    new = inner > np.concatenate([[0], inner[:-1, -1]])[:, None]  # those that were in none before
    place = np.full((len(begins), inner.shape[1] + 2), -1)
    place[:, 1:-1] = inner
    place = np.where(place >= 0, place + n * np.arange(m)[:, None, None], -1).reshape(-1, place.shape[1])
    keep = np.tile(np.pad(new, ((0, 0), (1, 1))), (m, 1))
    is_text = place >= 0
    ids = np.where(is_text, windows.input_ids.ravel()[place], tokenizer.cls_token_id)
    ids[:, -1] = tokenizer.sep_token_id
    counted = np.linspace(0, spread - 1, ids.shape[1]).round().astype(int) if spread else np.arange(ids.shape[1])
    pieces = ChosenWindows(ids, np.tile(counted, (len(ids), 1)), None, is_text, {})
    losses = token_losses(model, pieces, np.where(is_text, hidden.ravel()[place], -1), tokenizer.mask_token_id)
    values = np.full(m * n, np.nan)
    values[place[keep]] = losses[keep]
    return values.reshape(m, n)


def copy_gains(model: Any, windows: ChosenWindows, distances: Sequence[int], mask_id: int) -> np.ndarray:
    """Return by how much the loss of a passage falls if the same passage stands earlier in the text.

    The passage is the last PASSAGE tokens of a document; every second of them is hidden.

    Args:
        distances: Tokens from the earlier passage to the later one.
        mask_id: Token that stands in place of a hidden one.

    Returns:
        (distances, m) float, nats.
    """
    n = windows.length
    places = np.arange(n - 1 - PASSAGE, n - 1)
    hidden = np.full(windows.input_ids.shape, -1)
    hidden[:, places[::2]] = 0
    without = np.nanmean(token_losses(model, windows, hidden, mask_id), axis=1)
    gains = []
    for distance in distances:
        ids = windows.input_ids.copy()
        ids[:, places - distance] = ids[:, places]
        losses = token_losses(model, replace(windows, input_ids=ids), hidden, mask_id)
        gains.append(without - np.nanmean(losses, axis=1))
    return np.array(gains).reshape(len(distances), len(windows))


def copy_distances(trained: int, n: int) -> list[int]:
    """Return the distances of copies in tokens: 1, 3, 7, 15, ... halves of the trained length, while both have room."""
    return [d for d in _odd_halves(trained, n - PASSAGE - 2) if d >= PASSAGE]


def shifts(trained: int, n: int) -> list[int]:
    """Return shifts of positions: 1, 3, 7, 15, ... halves of the trained length."""
    return list(_odd_halves(trained, n - trained // 2))


def _odd_halves(trained: int, most: int) -> Iterator[int]:
    """No whole lengths: a table that repeats itself would be where it was."""
    times = 1
    while times * (trained // 2) <= most:
        yield times * (trained // 2)
        times = 2 * times + 1


def drifts(model: Any, windows: ChosenWindows, trained: int, by: Sequence[int]) -> np.ndarray:
    """Return how far hidden states move when the positions of the same tokens are shifted: ||h' - h|| / ||h||.

    The states are of the first half of the trained length, in the last trained layer of each part
    (`last_trained_layer`).

    Args:
        by: Shifts in positions.

    Returns:
        (shifts, m, parts) float, parts as of `stream_columns`.
    """
    start = windows.first(trained // 2)
    parts = list(stream_columns(model.config))
    layers = [last_trained_layer(model.config, part) for part in parts]
    moved = [state_changes(model, start, replace(start, position_ids=start.position_ids + k)) for k in by]
    changes = [change[:, layers, range(len(parts))] for change in moved]
    return np.array(changes).reshape(len(by), len(windows), len(parts))


class _Beyond:
    """Windows whose tokens before a position no probe sees."""

    def __init__(self, texts: WindowSet, position: int) -> None:
        self.texts = texts
        self.position = position

    def __len__(self) -> int:
        return len(self.texts)

    def lengths(self) -> np.ndarray:
        """(len,) int64."""
        return self.texts.lengths()

    def document_numbers(self) -> np.ndarray:
        """(len,) int64."""
        return self.texts.document_numbers()

    def __getitem__(self, index: int) -> Window:
        window = self.texts[index]
        segments = np.where(np.arange(len(window.segments)) < self.position, -1, window.segments)
        return replace(window, segments=segments)


def beyond_records(model: Any, texts: WindowSet, trained: int, context: RecordContext) -> list[Record]:
    """Return `probe_records` of the tokens at positions beyond the trained length.

    Raises:
        ValueError: as `probe_records`.
    """
    documents = _Beyond(texts, trained)
    return probe_records(model, documents, context, windows=len(texts), batch_size=max(1, BATCH_TOKENS // texts.length))
