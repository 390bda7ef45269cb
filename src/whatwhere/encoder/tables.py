"""Position tables (n, d): one row a position. They feed the position stream, or are added to the word embedding."""

import torch
from torch import Tensor, nn

from .config import EncoderConfig


class LearnedTable(nn.Module):
    """A free row per position (BERT; DSTG section 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.position_size or config.hidden_size
        self.weight = nn.Parameter(torch.empty(config.max_position_embeddings, width))

    def forward(self) -> Tensor:
        """The table (max_position_embeddings, width)."""
        return self.weight


TABLES: dict[str, type[nn.Module]] = {"learned": LearnedTable}
