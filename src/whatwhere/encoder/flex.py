"""FlexAttention (torch): the bias is looked up inside the kernel, so that no (h, n, n) tensor per example exists. CUDA,
opt-in."""

import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from .biases import Bias


@functools.cache
def _compiled() -> Callable[..., Tensor]:
    # Not on import: that loads torch's compiler, which takes seconds. Shapes become dynamic once a second length is
    # seen.
    return torch.compile(flex_attention)


def flex(
    q: Tensor, k: Tensor, values: Tensor, bias: Bias | None, allowed: Tensor | None, scale: float, dropout: float
) -> Tensor:
    """Attention of q, k (b, h, n, d) and values (b, h, n, d_v); on a CPU without compilation and without a backward
    pass."""
    n = q.shape[2]
    lowest = torch.finfo(torch.promote_types(q.dtype, torch.float32)).min

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if bias is not None:
            if bias.base.ndim == 2:
                value = bias.base[h, j - i + n - 1]
            else:
                value = bias.base[b if bias.base.shape[0] > 1 else 0, h, i, j]
            if bias.values is not None:
                row = b if bias.special.shape[0] > 1 else 0
                query, key = bias.special[row, i], bias.special[row, j]
                both, as_query, as_key = bias.values[0, h], bias.values[1, h], bias.values[2, h]
                value = torch.where(query & key, both, torch.where(key, as_key, torch.where(query, as_query, value)))
            score = score + value
        if allowed is not None:
            score = torch.where(allowed[b, 0, i if allowed.shape[2] > 1 else 0, j], score, lowest)
        return score

    if q.device.type == "cuda":
        return _compiled()(q, k, values, score_mod=score_mod, scale=scale)
    with warnings.catch_warnings():  # that it is slow without compilation: on a CPU it serves comparisons only
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(q, k, values, score_mod=score_mod, scale=scale)
