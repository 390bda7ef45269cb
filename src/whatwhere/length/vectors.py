"""Vectors of texts longer than a model's table: by a copy that reads them at once, beside the original in pieces."""

from typing import Any

import numpy as np
import torch

from ..analysis.passes import evaluating
from ..analysis.record_context import RecordContext, document_mean
from ..models.sentence import pooled
from ..models.tensors import device_of
from ..records.record import Record
from .long_documents import LongTexts

BATCH_TOKENS = 4096  # of a forward pass
PIECES = "pieces"  # part of the records: the original, which reads the text in pieces
BEGINNING = "beginning"  # the original, which reads the first piece alone


@torch.inference_mode()
def vectors_of(model: Any, rows: np.ndarray) -> np.ndarray:
    """Compute the mean vector (m, width) of each row of token ids (m, n), special tokens included."""
    batch_vectors = []
    step = max(1, BATCH_TOKENS // rows.shape[1])
    with evaluating(model):
        for at in range(0, len(rows), step):
            ids = torch.from_numpy(rows[at : at + step]).to(device_of(model))
            states = model(input_ids=ids).last_hidden_state
            batch_vectors.append(pooled(states, torch.ones_like(ids), "mean").double().cpu().numpy())
    return np.concatenate(batch_vectors)


def vectors_in_pieces(model: Any, texts: np.ndarray, ends: tuple[int, int], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the vectors (m, width) of texts (m, n) in pieces of `most` tokens, and of their first pieces alone.

    A text's vector is the mean of its pieces', weighted by their tokens, special ones included.

    Args:
        ends: ids of the special tokens before and after each piece.
    """
    room = most - 2
    pieces = [framed(texts[:, at : at + room], ends) for at in range(0, texts.shape[1], room)]
    by_piece = [vectors_of(model, rows) for rows in pieces]
    weights = np.array([rows.shape[1] for rows in pieces], dtype=np.float64)
    return np.tensordot(weights / weights.sum(), np.stack(by_piece), axes=1), by_piece[0]


def framed(texts: np.ndarray, ends: tuple[int, int]) -> np.ndarray:
    """Put a special token before and after each text: (m, n) → (m, n + 2)."""
    before, after = (np.full((len(texts), 1), token, texts.dtype) for token in ends)
    return np.concatenate([before, texts, after], axis=1)


def vector_records(
    original: Any, copy: Any, texts: LongTexts, most: int, method: str, context: RecordContext
) -> list[Record]:
    """Measure what the vectors of a longer copy keep of the original's, as records by way of reading.

    Each excerpt of `texts` is cut in two halves of equal length, one after the other in its document. The copy reads
    the first half at once (part `method`), the original in pieces ("pieces") or its first piece alone ("beginning").

    `length.cosine` is the mean cosine of a first half's vector with its vector in pieces. `length.found` is the share
    of first halves whose nearest vector, among the second halves of all excerpts read in pieces, belongs to their own
    document. `length.lost` is the share that reading in pieces finds minus the share of the way, text by text. Part
    "other" of `length.cosine` is the cosine of first halves of different documents in pieces: what any two texts have
    in common. Intervals are over documents.

    Args:
        most: tokens that the original reads, special ones included.
    """
    special = texts.special_ids
    ends = special["cls_token_id"], special["sep_token_id"]
    ids = np.stack([np.asarray(texts[i].input_ids) for i in range(len(texts))]).astype(np.int64)[:, 1:-1]
    half = ids.shape[1] // 2
    whole, first = vectors_in_pieces(original, ids[:, :half], ends, most)
    others, _ = vectors_in_pieces(original, ids[:, half : 2 * half], ends, most)
    ways = {PIECES: whole, BEGINNING: first, method: vectors_of(copy, framed(ids[:, :half], ends))}
    units = {way: _normalised(vectors) for way, vectors in ways.items()}
    gallery = _normalised(others)
    hits_by_way = {way: ((u @ gallery.T).argmax(1) == np.arange(len(u))).astype(float) for way, u in units.items()}
    between = units[PIECES] @ units[PIECES].T
    np.fill_diagonal(between, np.nan)
    values = {("length.cosine", way): np.sum(u * units[PIECES], axis=1) for way, u in units.items() if way != PIECES}
    values["length.cosine", "other"] = np.nanmean(between, axis=1)
    values |= {("length.found", way): hits for way, hits in hits_by_way.items()}
    values |= {("length.lost", way): hits_by_way[PIECES] - hits for way, hits in hits_by_way.items() if way != PIECES}
    records = []
    for (metric, way), of_texts in values.items():
        mean, low, high = document_mean(of_texts, document_numbers=texts.document_numbers())
        records.append(context.record(metric, mean, low, high, part=way, n=len(of_texts)))
    return records


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
