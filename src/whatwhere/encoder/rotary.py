"""Rotary position embedding: rotations of queries and keys (RoFormer, eq. 34; halves as in transformers)."""

import torch
from torch import Tensor

from .config import EncoderConfig
from .registry import ROTATIONS, register_rotation


@register_rotation("rope")
def rope(position_ids: Tensor, d_head: int, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """Angles position · theta^(-2k/d_head) in radians, (b, n, d_head / 2), for position_ids (b, n)."""
    frequency = config.rope_theta ** (-torch.arange(0, d_head, 2, dtype=dtype, device=position_ids.device) / d_head)
    return position_ids[:, :, None].to(dtype) * frequency


def rotation(position_ids: Tensor, config: EncoderConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin (b, 1, n, d_head) of the configured rotation's angles, in at least float32."""
    dtype = torch.promote_types(dtype, torch.float32)
    angle = ROTATIONS[config.rotation](position_ids, config.d_head, config, dtype)
    if angle.shape != (*position_ids.shape, config.d_head // 2):
        raise ValueError(
            f"The rotation {config.rotation} gives angles of shape {tuple(angle.shape)}; needed (b, n, d_head / 2) = "
            f"{(*position_ids.shape, config.d_head // 2)}."
        )
    angle = angle[:, None]
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_k, x_{k+d/2}) of x (b, h, n, d_head) by its angle; same dtype out."""
    first, second = x.to(cos.dtype).chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (x * cos + turned * sin).to(x.dtype)
