"""Additive attention biases that are a formula of the distance of two positions, with few learned numbers a head.

KERPLE (Chi et al. 2022) and TISA (Wennberg and Henter 2021). KERPLE is causal in its paper; here both directions
have the same bias.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .config import EncoderConfig
from .registry import register_bias

KERNELS = 5  # of TISA in a head: the number of its paper
LEAST = 0.01  # of KERPLE's learned numbers at the start: their code keeps them above it


class DistanceBias(nn.Module):
    """Base of the biases by a formula: `values(distance)` gives (..., heads) in score units for distances (...).

    Where positions are no run of consecutive numbers, a batch has (b, n, n) distances, most of them equal. The formula
    is then evaluated once for each distance up to the largest, so that its intermediate results stay small.
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
        """Return the values (..., heads), in score units, of distances of any shape, key position minus query
        position."""
        if distance.ndim > 1 and not torch.compiler.is_compiling() and distance.device.type != "meta":
            reach = int(distance.abs().max())
            if 2 * reach + 1 < distance.numel():
                every = torch.arange(-reach, reach + 1, device=distance.device)
                return self.values(every.to(self.dtype))[distance + reach]
        return self.values(distance.to(self.dtype))


@register_bias("kerple_log")
class KerpleLogBias(DistanceBias):
    """Bias -r1·log(1 + r2·|j - i|) with learned r1, r2 > 0 for each head (KERPLE, logarithmic; Chi et al. 2022).

    The logarithms of r1 and r2 are the parameters, (2, heads), so that both stay positive; their code learns r1 and r2
    and cuts them at 0.01.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.log_r = nn.Parameter(torch.zeros(2, config.num_attention_heads))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw r1 between 0 and 2 and r2 between 0 and 1, evenly and at least 0.01 (their code)."""
        draw(self.log_r, (2.0, 1.0))

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        r1, r2 = self.log_r.to(self.dtype).exp()
        return -r1 * torch.log1p(r2 * distance.abs()[..., None])


@register_bias("tisa")
class TisaBias(DistanceBias):
    """Bias Σ_s a_s·exp(-|b_s|·(j - i - c_s)²) with learned a, b, c, (kernels, heads) each (TISA).

    A head has `tisa_kernels` kernels s of amplitude a, sharpness b and offset c, which is in tokens; so it may look to
    one side. A bias vanishes far from all its offsets.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        shape = config.tisa_kernels or KERNELS, config.num_attention_heads
        self.amplitude, self.sharpness, self.offset = (nn.Parameter(torch.zeros(shape)) for _ in range(3))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw amplitudes and sharpnesses around 0.1 with deviation 0.01, and offsets around 0 with deviation 5 (their
        code)."""
        init.normal_(self.amplitude, mean=0.1, std=0.01)
        init.normal_(self.sharpness, mean=0.1, std=0.01)
        init.normal_(self.offset, std=5.0)

    def values(self, distance: Tensor) -> Tensor:
        """Return the values (..., heads) of distances (...)."""
        away = distance[..., None, None] - self.offset.to(self.dtype)
        return (self.amplitude * torch.exp(-self.sharpness.to(self.dtype).abs() * away**2)).sum(-2)


def draw(log_r: Tensor, highest: tuple[float, ...]) -> None:
    """Draw the logarithms of numbers between 0 and `highest`, one for each row of log_r (rows, heads)."""
    if not getattr(log_r, "_is_hf_initialized", False):  # the numbers of a loaded model stay
        drawn = torch.rand(log_r.shape) * torch.tensor(highest)[:, None]
        init.copy_(log_r, drawn.clamp(min=LEAST).log())
