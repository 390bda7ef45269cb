"""An own scheme in one file: the logarithmic bias of KERPLE (Chi et al. 2022), alone and in the place of TUPE's
buckets. The package has it as `kerple-log`, which starts from drawn numbers; here heads start from short to long reach.

It is registered when the file is loaded, and then a scheme like any other: trained, probed, in every figure of a
report.

    whatwhere study --scheme examples/kerple.py --models kerple,alibi,rp --out runs/kerple
    whatwhere explain kerple --scheme examples/kerple.py

The file may import torch, transformers and `whatwhere.encoder`: a saved model carries it, and opens where whatwhere is
not installed.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from whatwhere.encoder import register_bias, register_preset


@register_bias("kerple")
class KerpleBias(nn.Module):
    """-r1·log(1 + r2·|j - i|) with positive r1, r2 for each head (their section 4, for both directions)."""

    def __init__(self, config):
        super().__init__()
        # Logarithms of r1 and r2, so that both stay positive: (2, heads).
        self.log_r = nn.Parameter(torch.empty(2, config.num_attention_heads))

    def initialize(self, config) -> None:
        """First weights: heads from a short reach (r1 = 2) to a long one (r1 = 1/8), r2 = 1. `init` leaves loaded
        weights alone."""
        reach = torch.linspace(2.0, 0.125, config.num_attention_heads).log()
        init.copy_(self.log_r, torch.stack([reach, torch.zeros_like(reach)]))

    def forward(self, distance: Tensor) -> Tensor:
        """Values (..., heads), in score units, for distances (...) of any shape: key position minus query position."""
        r1, r2 = self.log_r.exp()
        return -r1 * torch.log1p(r2 * distance.abs()[..., None])


register_preset("kerple", base="nope", source="KERPLE section 4; Chi et al. 2022", relative="kerple")
register_preset("tupe-kerple", base="tupe-r", source="TUPE eq. 11 with the bias of KERPLE", relative="kerple")
