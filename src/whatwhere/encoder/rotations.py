"""Rotations of queries and keys by position: angles, their cos and sin, and the decay of xPos."""

import math

import torch
from torch import Tensor

from .config import EncoderConfig
from .registry import ROTATIONS, register_rotation


@register_rotation("rope")
def rope(position_ids: Tensor, width: int, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """Return RoFormer's angles in radians, position · theta^(-2k/width): (b, n, width / 2), of position_ids (b, n)."""
    return position_ids[:, :, None].to(dtype) * rope_frequencies(width, config, dtype, position_ids.device)


def rope_frequencies(width: int, config: EncoderConfig, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the frequency of each of the width / 2 pairs of columns, in radians per position: (width / 2,).

    `rotation_scaling` fits them to texts `rotation_factor` = s times as long as in the training. "linear": all slower
    by s (position interpolation, Chen et al. 2023). "ntk": theta · s^(d/(d-2)), d the width, so that the slowest pair
    is slower by s and the fastest unchanged. "yarn": slower by s where a pair makes less than one turn over
    the trained length, unchanged above 32 turns, in between by a ramp over the pairs (Peng et al. 2024, as in their
    code; in their eq. 18-20 the ramp is over the turns).
    """
    s = config.rotation_factor
    theta = config.rope_theta
    if config.rotation_scaling == "ntk":
        theta = theta * s ** (width / (width - 2))
    frequency = theta ** (-torch.arange(0, width, 2, dtype=dtype, device=device) / width)
    if config.rotation_scaling == "linear":
        return frequency / s
    if config.rotation_scaling != "yarn":
        return frequency
    trained_length = config.max_position_embeddings / s
    pair_of_32_turns, pair_of_one_turn = (
        width * math.log(trained_length / (2 * math.pi * turns)) / (2 * math.log(theta)) for turns in (32, 1)
    )
    low = max(math.floor(pair_of_32_turns), 0)
    high = min(math.ceil(pair_of_one_turn), width - 1)
    pair = torch.arange(width // 2, dtype=dtype, device=device)
    slowed_share = ((pair - low) / max(high - low, 0.001)).clamp(0, 1)
    return frequency * (1 - slowed_share) + frequency / s * slowed_share


def compute_cos_sin(position_ids: Tensor, config: EncoderConfig, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute cos and sin (b, 1, n, rotated_width) of the configured rotation's angles, in at least float32.

    With "yarn" cos and sin are multiplied by 0.1 ln s + 1, which keeps the scores as sharp as before (Peng et al. 2024,
    eq. 22).

    Raises:
        ValueError: a registered rotation gives angles of another shape.
    """
    dtype = torch.promote_types(dtype, torch.float32)
    width = config.rotated_width
    angle = ROTATIONS[config.rotation](position_ids, width, config, dtype)
    if angle.shape != (expected_shape := (*position_ids.shape, width // 2)):
        raise ValueError(
            f"The rotation {config.rotation} gives angles of shape {tuple(angle.shape)}. Return (b, n, width / 2) = "
            f"{expected_shape}."
        )
    angle = torch.cat([angle, angle], dim=-1)[:, None]
    factor = 0.1 * math.log(config.rotation_factor) + 1 if config.rotation_scaling == "yarn" else 1.0
    return factor * angle.cos(), factor * angle.sin()


@register_rotation("xpos")
def xpos(position_ids: Tensor, width: int, config: EncoderConfig, dtype: torch.dtype) -> Tensor:
    """Return RoPE's angles (b, n, width / 2), which xPos has, too (Sun et al. 2023); `apply_decay` adds the decay."""
    return rope(position_ids, width, config, dtype)


def apply_decay(
    cos_sin: tuple[Tensor, Tensor], position_ids: Tensor, config: EncoderConfig
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Apply the decay of xPos to cos and sin: return them multiplied and divided by it, (b, 1, n, rotated_width) each.

    Pair k of r columns falls with distance as ζ_k^(distance / s), ζ_k = (2k/r + 0.4) / 1.4, s = `xpos_scale_base`
    positions (Sun et al. 2023, algorithm 1): a query at position i has the factor ζ_k^(i/s), a key at j ζ_k^(-j/s).
    """
    cos, sin = cos_sin
    pairs = cos.shape[-1] // 2
    zeta = (torch.arange(pairs, dtype=cos.dtype, device=cos.device) / pairs + 0.4) / 1.4
    positions = position_ids.to(cos.dtype)
    # Counted from the middle of a row: no quotient changes, and the factors of a long row stay near 1.
    middle = (positions.amin(-1, keepdim=True) + positions.amax(-1, keepdim=True)) / 2
    power = (positions - middle)[:, None, :, None] / config.xpos_scale_base
    factor = torch.exp(power * torch.cat([zeta, zeta]).log())
    return (cos * factor, sin * factor), (cos / factor, sin / factor)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of columns of x (b, h, n, d_head) by their angles.

    Pairs are (x_k, x_{k+r/2}) of the first r columns (RoFormer eq. 34, halves as in HF).

    cos, sin: (b, 1, n, r). Columns from r on stay as they are (GPT-NeoX).
    """
    width = cos.shape[-1]
    turning = x if width == x.shape[-1] else x[..., :width]
    first_half, second_half = turning.to(cos.dtype).chunk(2, dim=-1)
    quarter_turned = torch.cat([-second_half, first_half], dim=-1)
    turned = (turning * cos + quarter_turned * sin).to(x.dtype)
    return turned if turning is x else torch.cat([turned, x[..., width:]], dim=-1)
