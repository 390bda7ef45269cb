"""Additive attention biases (h, n, n): T5 buckets and the values that replace them at special tokens (DSTG eq. 1)."""

import math

import torch
from torch import Tensor, nn

from .config import EncoderConfig


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

    def forward(self, distance: Tensor, special: Tensor) -> Tensor:
        """Bias (b or 1, h, n, n) for `distance` (b or 1, n, n), key minus query, and `special` (b, n), True at S."""
        bias = self.table[t5_bucket(distance, self.buckets, self.max_distance)].permute(0, 3, 1, 2)  # (b or 1, h, n, n)
        if self.special is None or not bool(special.any()):
            return bias
        query, key = special[:, None, :, None], special[:, None, None, :]
        both, as_query, as_key = self.special[:, None, :, None, None]
        return torch.where(query & key, both, torch.where(key, as_key, torch.where(query, as_query, bias)))
