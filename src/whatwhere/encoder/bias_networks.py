"""Terms of the attention scores that a small network computes: FIRE from two positions, DAPE from a score and a bias.

Both are causal in their papers; here keys after the query have the same formula as keys before it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .biases import disable_autocast, toeplitz
from .config import EncoderConfig
from .distance_biases import KerpleLogBias
from .pair_terms import PairInputs, PairTerms
from .registry import register_pair_terms

WIDTH = 32  # of the hidden layer, as in both papers


class BiasNetwork(nn.Module):
    """Network of one hidden layer, from `inputs` numbers to a value for each head.

    The caller multiplies the inputs by `inner`, once for all examples where it can; `forward` takes these products.
    """

    def __init__(self, inputs: int, heads: int, slope: float) -> None:
        super().__init__()
        self.slope = slope  # of the activation below 0
        self.inner = nn.Parameter(torch.empty(inputs, WIDTH))
        self.inner_offset = nn.Parameter(torch.empty(WIDTH))
        self.outer = nn.Parameter(torch.empty(WIDTH, heads))
        self.outer_offset = nn.Parameter(torch.empty(heads))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw weights and offsets uniformly within ± 1/√(inputs of the layer), as the listings of both papers do."""
        for weight, offset in ((self.inner, self.inner_offset), (self.outer, self.outer_offset)):
            bound = len(weight) ** -0.5
            init.uniform_(weight, -bound, bound)
            init.uniform_(offset, -bound, bound)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the values (..., heads) from the products (..., WIDTH) of the inputs and `inner`."""
        active = F.leaky_relu(hidden + self.inner_offset, self.slope)
        return active @ self.outer.to(active.dtype) + self.outer_offset


@register_pair_terms("fire")
class FireTerms(PairTerms):
    """FIRE: f(ψ(|j - i|) / ψ(max(L, i, j))), ψ(x) = log(1 + |c|·x), with a network f in each layer (Li et al. 2024).

    c starts at 0.1. L is `stretch`, 1 at the start, times a quarter of `max_position_embeddings` (the paper's 512 of
    2048). The paper's attention is causal, so that max(L, i) suffices there. Its listing adds 1e-6 to the denominator,
    which c = 0 alone needs.
    """

    keeps_max_positions = True
    unscaled_formulas = {"relative": "f(ψ(|j - i|) / ψ(max(L, i, j)))"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.first_threshold = config.max_position_embeddings / 4
        self.network = BiasNetwork(1, self.heads, slope=0.0)
        self.c = nn.Parameter(torch.empty(1))  # not a scalar, which FSDP cannot cut
        self.stretch = nn.Parameter(torch.empty(1))

    def initialize(self, config: EncoderConfig) -> None:
        """Set c to 0.1 and `stretch` to 1."""
        init.constant_(self.c, 0.1)
        init.ones_(self.stretch)

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries unchanged, and the term `relative` (1 or b, h, n, n)."""
        positions = pairs.positions.to(torch.promote_types(self.c.dtype, torch.float32))
        distance = (positions[:, None, :] - positions[:, :, None]).abs()
        larger = torch.maximum(positions[:, None, :], positions[:, :, None])
        with disable_autocast(q.device):
            threshold = (self.stretch * self.first_threshold).abs()
            ratio = torch.log1p(self.c.abs() * distance) / torch.log1p(self.c.abs() * torch.maximum(larger, threshold))
            values = self.network(ratio[..., None] * self.network.inner)
        return q, {"relative": values.permute(0, 3, 1, 2)}


@register_pair_terms("dape")
class DapeTerms(PairTerms):
    """DAPE: s + b + f(s, b) in place of the score s of all heads (Zheng et al. 2024).

    b is KERPLE's logarithmic bias, the term `relative`; f is a network in each layer, the term `semantic_to_relative`.
    """

    unscaled_formulas = {"semantic_to_relative": "f(q_i·k_j / √d, kerple(j - i))", "relative": "kerple(j - i)"}

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.bias = KerpleLogBias(config)
        self.network = BiasNetwork(2 * self.heads, self.heads, slope=0.01)

    def forward(self, q: Tensor, k: Tensor, pairs: PairInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the queries unchanged, and the terms `semantic_to_relative` and `relative`."""
        by_distance = self.bias(pairs.distance)
        if pairs.distance.ndim == 1:
            by_distance = toeplitz(by_distance.t())[None].permute(0, 2, 3, 1)
        scores = self.scale * (q @ k.transpose(-1, -2)).permute(0, 2, 3, 1)
        score_weights, bias_weights = self.network.inner.split(self.heads)
        # A concatenation of scores and bias would repeat the bias for every example.
        hidden = scores @ score_weights.to(scores.dtype) + by_distance.to(bias_weights.dtype) @ bias_weights
        change = self.network(hidden).permute(0, 3, 1, 2)
        return q, {"semantic_to_relative": change, "relative": by_distance.permute(0, 3, 1, 2)}
