"""Attention weights of each term alone and of the sum, written out over documents, heads, queries and keys."""

import math

import numpy as np
import torch

from whatwhere.analysis.attention_weights import TOTAL


def softmax_row(scores, allowed):
    """Softmax over allowed keys, 0 elsewhere."""
    top = max(s for s, a in zip(scores, allowed, strict=True) if a)
    powers = [math.exp(s - top) if a else 0.0 for s, a in zip(scores, allowed, strict=True)]
    return [p / sum(powers) for p in powers]


def naive_weights(terms, chosen):
    """{part: (L, documents, h, n, n)}: a softmax of each term alone and of their sum, over the keys of the same
    document."""
    some = next(iter(terms.values()))
    L = some.shape[0]
    h = some.shape[2]
    n = some.shape[3]
    numbers = {name: term.tolist() for name, term in terms.items()}  # indexing a tensor takes microseconds each time
    found = {part: np.zeros((L, len(chosen), h, n, n)) for part in [*terms, TOTAL]}
    for b in range(len(chosen)):
        allowed = [[may_look(chosen, b, i, j) for j in range(n)] for i in range(n)]
        for part, weights in found.items():
            names = list(terms) if part == TOTAL else [part]
            for block in range(L):
                for head in range(h):
                    rows = [numbers[t][block][min(b, terms[t].shape[1] - 1)][head] for t in names]
                    for i in range(n):
                        scores = [sum(row[i][j] for row in rows) for j in range(n)]
                        weights[block, b, head, i] = softmax_row(scores, allowed[i])
    return found


def may_look(chosen, b, i, j):
    if chosen.attention_mask is not None and not chosen.attention_mask[b, j]:
        return False
    return chosen.document_ids is None or chosen.document_ids[b, i] == chosen.document_ids[b, j]


def terms_of(model, chosen):
    given = {"input_ids": chosen.input_ids, "position_ids": chosen.position_ids}
    given |= {} if chosen.document_ids is None else {"document_ids": chosen.document_ids}
    given |= {} if chosen.attention_mask is None else {"attention_mask": chosen.attention_mask}
    return model.attention_terms(**{k: torch.from_numpy(v) for k, v in given.items()})
