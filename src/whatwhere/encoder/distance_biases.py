"""Additive attention biases that are a formula of the distance of two positions, with few learned numbers a head.

ALiBi (Press et al. 2022), KERPLE (Chi et al. 2022), TISA (Wennberg and Henter 2021) and Sandwich (Chi et al. 2023).
ALiBi, KERPLE and Sandwich are causal in their papers; here both directions have the same bias.
"""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .config import EncoderConfig
from .registry import register_bias
from .tables import frequencies, has_loaded_numbers

TISA_KERNELS = 5  # kernels of a head, as in TISA's paper
SANDWICH_WIDTH = 128  # width of the sinusoids, as in Sandwich's paper, whatever the model's width
LEAST_START = 0.01  # smallest start of KERPLE's learned numbers: its authors' code cuts them there


class DistanceBias(nn.Module):
    """Base of the biases by a formula: `values(distance)` gives (..., heads) in score units for distances (...).

    Where positions are not consecutive, a batch has (b, n, n) distances, most of them equal. The formula is then
    evaluated once for each distance up to the largest, so that its intermediate results stay small.
    """

    marker: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("marker", torch.empty(0), persistent=False)  # follows the model's device and dtype

    @property
    def dtype(self) -> torch.dtype:
        """Type in which the formula is evaluated: at least float32, as bfloat16 does not tell 256 from 257."""
        return torch.promote_types(self.marker.dtype, torch.float32)

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...), real numbers of type `dtype`."""
        raise NotImplementedError

    def forward(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances of any shape, in score units.

        A distance is key position minus query position.
        """
        if distance.ndim > 1 and not torch.compiler.is_compiling() and distance.device.type != "meta":
            largest = int(distance.abs().max())
            if 2 * largest + 1 < distance.numel():
                all_distances = torch.arange(-largest, largest + 1, device=distance.device)
                return self.values(all_distances.to(self.dtype))[distance + largest]
        return self.values(distance.to(self.dtype))


def alibi_slopes(heads: int) -> list[float]:
    """Return ALiBi's slopes 2^(-8k/h) of h heads (Press et al. 2022).

    Where h is no power of two: the slopes for the power below h, then every other slope for the power above.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (k + 1) / power) for k in range(power)]
    return slopes + [2 ** (-4 * (2 * k + 1) / power) for k in range(heads - power)]


@register_bias("alibi")
class AlibiBias(DistanceBias):
    """Fixed bias -m_h·|j - i| with slope m_h in head h, equal in both directions (Press et al. 2022: causal)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.slopes = config.alibi_slopes or alibi_slopes(config.num_attention_heads)

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        return -distance.abs()[..., None] * torch.tensor(self.slopes, dtype=self.dtype, device=distance.device)


@register_bias("kerple_log")
class KerpleLogBias(DistanceBias):
    """Bias -r1·log(1 + r2·|j - i|) with learned r1, r2 > 0 for each head (KERPLE, logarithmic; Chi et al. 2022).

    The logarithms of r1 and r2 are the parameters, (2, heads), so that both stay positive; the authors' code learns r1
    and r2 and cuts them at 0.01.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.log_r = nn.Parameter(torch.zeros(2, self.heads))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw r1 between 0 and 2 and r2 between 0 and 1, uniformly and at least 0.01 (the authors' code)."""
        if not has_loaded_numbers(self.log_r):
            init.copy_(self.log_r, torch.stack([draw_starts(self.heads, highest).log() for highest in (2.0, 1.0)]))

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        r1, r2 = self.log_r.to(self.dtype).exp()
        return -r1 * torch.log1p(r2 * distance.abs()[..., None])


@register_bias("kerple_power")
class KerplePowerBias(DistanceBias):
    """Bias -r1·|j - i|^r2 with learned r1 > 0 and r2 between 0 and 2 for each head (KERPLE, power; Chi et al. 2022).

    `log_r1` (heads,) is the logarithm of r1, `logit_r2` (heads,) of r2 / (2 - r2); the authors' code learns r1 and r2
    and cuts them at 0.01 and 2.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.log_r1, self.logit_r2 = (nn.Parameter(torch.zeros(self.heads)) for _ in range(2))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw r1 between 0 and 1 and r2 between 0 and 2, uniformly and at least 0.01 (the authors' code)."""
        if not has_loaded_numbers(self.log_r1):
            init.copy_(self.log_r1, draw_starts(self.heads, 1.0).log())
        if not has_loaded_numbers(self.logit_r2):
            init.copy_(self.logit_r2, (draw_starts(self.heads, 2.0) / 2).logit())

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        r1 = self.log_r1.to(self.dtype).exp()
        r2 = 2 * self.logit_r2.to(self.dtype).sigmoid()
        return -r1 * distance.abs()[..., None] ** r2


@register_bias("tisa")
class TisaBias(DistanceBias):
    """Bias Σ_s a_s·exp(-|b_s|·(j - i - c_s)²) with learned a, b, c, (kernels, heads) each (TISA).

    A head has `tisa_kernels` kernels s of amplitude a, sharpness b and offset c in tokens, so that it may look in one
    direction. The bias vanishes far from all offsets.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        shape = config.tisa_kernels or TISA_KERNELS, config.num_attention_heads
        self.amplitude, self.sharpness, self.offset = (nn.Parameter(torch.zeros(shape)) for _ in range(3))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw amplitudes, sharpnesses and offsets as the authors' code does.

        Amplitudes and sharpnesses have mean 0.1 and deviation 0.01, offsets mean 0 and deviation 5.
        """
        init.normal_(self.amplitude, mean=0.1, std=0.01)
        init.normal_(self.sharpness, mean=0.1, std=0.01)
        init.normal_(self.offset, std=5.0)

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        away = distance[..., None, None] - self.offset.to(self.dtype)
        return (self.amplitude * torch.exp(-self.sharpness.to(self.dtype).abs() * away**2)).sum(-2)


@register_bias("sandwich")
class SandwichBias(DistanceBias):
    """Bias (Σ_k cos((j - i) / 10000^(2k/128)) - 64) · H / (8h) in head h of H, k from 0 to 63 (Sandwich).

    It has no learned numbers: the sum is the product of the sinusoidal vectors (Vaswani et al. 2017) of both positions,
    128 wide. The 64, which a softmax sees only where other values replace the bias of some pairs (`relative_special`),
    makes it 0 at distance 0. One of the published ports counts k from 1.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        frequency = frequencies(SANDWICH_WIDTH, self.dtype, distance.device)
        product = (distance[..., None] * frequency).cos().sum(-1) - len(frequency)
        divisor = 8 / self.heads * torch.arange(1, self.heads + 1, dtype=self.dtype, device=distance.device)
        return product[..., None] / divisor


def draw_starts(count: int, highest: float) -> Tensor:
    """Draw first values (count,) of KERPLE's numbers, uniform up to `highest` and at least `LEAST_START`."""
    return (torch.rand(count) * highest).clamp(min=LEAST_START)
