"""Convolution at the input: neighbours tell the order, without a position (Chu et al. 2021; wav2vec 2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init

from .config import EncoderConfig


class InputConvolution(nn.Module):
    """Depthwise convolution over the vectors that enter the first block, added to these vectors.

    y_i = x_i + c + Σ_o w_o ⊙ x_{i+o} with vectors c and w_o of the width of x, o from -(k - 1)/2 to (k - 1)/2,
    k = `input_kernel` (the positional encoding generator of Chu et al. 2021, with one axis in place of two). Neighbours
    are those in the row; padding, other documents and what lies outside of the row count as 0. Weights start uniform
    within ± 1/√k, as torch's convolutions, c at 0.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.hidden_size, config.input_kernel))
        self.bias = nn.Parameter(torch.zeros(config.hidden_size))

    def initialize(self, config: EncoderConfig) -> None:
        """Draw the weights, and set the constant to 0."""
        bound = config.input_kernel**-0.5
        init.uniform_(self.weight, -bound, bound)
        init.zeros_(self.bias)

    def forward(
        self,
        x: Tensor,
        attention_mask: Tensor | None,
        document_ids: Tensor | None,
        pair_mask: Tensor | None = None,
    ) -> Tensor:
        """Return x (b, n, width) with the convolution of its neighbours added.

        attention_mask, document_ids: (b, n), as of `Encoder.forward`, or None. pair_mask: (b, 1, n, n), True at the
        neighbours that a token may look at, or None.
        """
        inputs = x if attention_mask is None else x * attention_mask[..., None].to(x.dtype)
        half = self.weight.shape[1] // 2
        if document_ids is None and pair_mask is None:
            taps = self.weight[:, None]
            return x + F.conv1d(inputs.mT, taps, self.bias, padding=half, groups=len(taps)).mT
        n = x.shape[1]
        padded = F.pad(inputs, (0, 0, half, half))
        # No document has number -2; padding has -1.
        padded_ids = None if document_ids is None else F.pad(document_ids, (half, half), value=-2)
        padded_mask = None if pair_mask is None else F.pad(pair_mask[:, 0], (half, half))
        out = x + self.bias
        for tap in range(2 * half + 1):
            neighbour = padded[:, tap : tap + n]
            if padded_ids is not None and document_ids is not None:
                neighbour = neighbour * (padded_ids[:, tap : tap + n] == document_ids)[..., None]
            if padded_mask is not None:
                neighbour = neighbour * padded_mask.diagonal(tap, dim1=1, dim2=2)[..., None]
            out = out + self.weight[:, tap] * neighbour
        return out
