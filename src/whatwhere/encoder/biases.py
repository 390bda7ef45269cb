"""Additive attention biases: T5 buckets and the values that replace them at special tokens (DSTG eq. 1)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .config import EncoderConfig


@dataclass(frozen=True)
class Bias:
    """An additive term of the scores, kept small: one map for the whole batch and what special tokens put in its place.

    base: (b or 1, h, n, n). values: (3, h), for pairs of which both, only the query, only the key is special; None if special
    tokens are treated like all others. special: (b, n), True at tokens of S.
    """

    name: str
    base: Tensor
    values: Tensor | None
    special: Tensor

    def dense(self) -> Tensor:
        """The term as the specification has it: (b or 1, h, n, n)."""
        if self.values is None:
            return self.base
        query, key = self.special[:, None, :, None], self.special[:, None, None, :]
        both, as_query, as_key = self.values[:, None, :, None, None]
        return torch.where(query & key, both, torch.where(key, as_key, torch.where(query, as_query, self.base)))


def t5_bucket(distance: Tensor, buckets: int = 32, max_distance: int = 128) -> Tensor:
    """Bucket of the signed distance `key position - query position`, bidirectional (T5; DSTG A.1).

    Half of the buckets serve each direction: exact for |distance| < buckets/4, then logarithmic up to `max_distance`, the
    last one for everything beyond. Any shape of integers in, values in [0, buckets) out.
    """
    half = buckets // 2
    exact = half // 2
    size = distance.abs()
    # float32 as in T5's own code: the edges of the logarithmic buckets must round the same way.
    growth = torch.log(size.clamp(min=1).float() / exact) / math.log(max_distance / exact) * (half - exact)
    far = (exact + growth.long()).clamp(max=half - 1)
    return torch.where(distance > 0, half, 0) + torch.where(size < exact, size, far)


class RelativeBias(nn.Module):
    """T5's learned bias of one layer, zero at the start, with DSTG's three values per head for special tokens."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.buckets, self.max_distance = config.relative_buckets, config.relative_max_distance
        self.table = nn.Parameter(torch.zeros(config.relative_buckets, config.num_attention_heads))
        # Order: special_special, special_query, special_key. i is the query (eq. 2; the text around eq. 1 says the reverse).
        self.special = nn.Parameter(torch.zeros(3, config.num_attention_heads)) if config.relative_special else None

    def forward(self, distance: Tensor, special: Tensor) -> Bias:
        """The bias for `distance` and `special` (b, n), True at S.

        `distance` is key minus query position: (b, n, n), or (2n - 1,), the distances -(n-1) ... n-1 of consecutive positions.
        """
        values = self.table[t5_bucket(distance, self.buckets, self.max_distance)]  # (b, n, n, h) or (2n - 1, h)
        if distance.dim() == 1:  # base[h, i, j] = values[j - i + n - 1]: n windows, the last row first
            n = (len(distance) + 1) // 2
            base = values.t().unfold(1, n, 1).flip(1)[None]  # (1, h, n, n)
        else:
            base = values.permute(0, 3, 1, 2)
        return Bias("relative", base, self.special, special)
