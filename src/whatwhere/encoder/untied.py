"""TUPE's untied absolute positions: a correlation of positions alone, the same for all layers, with [CLS] set apart."""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .biases import Bias, reset_values, without_autocast
from .config import EncoderConfig


class Untied(nn.Module):
    """Queries pU_Q and keys pU_K of the positions, per head and shared by all layers; LayerNorm on p (TUPE 3.1-3.3).

    With a reset, two more rows of the table, p_θ1 and p_θ2, give θ1 and θ2 as their correlations with themselves (TUPE
    3.3). `free`: a parameter (h, n, n) instead (TUPE section 5).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads, self.scale, self.reset = config.num_attention_heads, config.scale, config.reset != "none"
        self.free = self.theta = self.cls = None
        if config.untied == "free":
            rows = config.max_position_embeddings
            self.free = nn.Parameter(torch.zeros(self.heads, rows, rows))
            if self.reset:
                self.theta = nn.Parameter(torch.zeros(2, self.heads))
            return
        width = config.hidden_size
        self.norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        if self.reset:
            self.cls = nn.Parameter(torch.empty(2, width))

    def initialize(self, config: EncoderConfig) -> None:
        assert config.position_initializer_range is not None
        for zero in (self.free, self.theta):
            if zero is not None:
                init.zeros_(zero)
        if self.cls is not None:
            init.normal_(self.cls, std=config.position_initializer_range)

    def project(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys (b or 1, h, n, d_head) of rows of the table (b or 1, n, width)."""
        normed = self.norm(positions)
        q, k = (project(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2) for project in (self.query, self.key))
        return q, k

    def forward(self, table: Tensor | None, position_ids: Tensor, cls: Tensor) -> Bias:
        """The positional correlation for `position_ids` (b or 1, n); cls (b or 1, n) is True at [CLS]."""
        theta: Tensor | None = None
        if self.free is not None:
            base = self.free[:, position_ids[:, :, None], position_ids[:, None, :]].transpose(0, 1)
            theta = self.theta
        else:
            assert table is not None
            with without_autocast(table.device):
                q, k = self.project(table[position_ids].to(self.query.weight.dtype))
                base = self.scale * (q @ k.transpose(-1, -2))
                if self.cls is not None:
                    q, k = self.project(self.cls[None])
                    theta = self.scale * (q * k).sum(-1)[0].t()  # (2, h)
        return Bias("absolute", base, None if theta is None else reset_values(theta), cls)
