"""Rotary position embedding: rotations of queries and keys (RoFormer, eq. 34; halves as in transformers)."""

import torch
from torch import Tensor


def rotation(position_ids: Tensor, d_head: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin (b, 1, n, d_head) of the angles position · theta^(-2k/d_head), in at least float32."""
    dtype = torch.promote_types(dtype, torch.float32)
    frequency = theta ** (-torch.arange(0, d_head, 2, dtype=dtype, device=position_ids.device) / d_head)
    angle = position_ids[:, None, :, None].to(dtype) * frequency  # (b, 1, n, d_head/2)
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_k, x_{k+d/2}) of x (b, h, n, d_head) by its angle; same dtype out."""
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)
