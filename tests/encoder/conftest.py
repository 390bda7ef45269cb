"""Token ids that the encoder tests share."""

import pytest
import torch
from encoder_models import VOCAB


@pytest.fixture
def ids() -> torch.Tensor:
    """(2, 9): [CLS] text [SEP] text [SEP], the inner [SEP] at another place in each row."""
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(5, VOCAB, (2, 9), generator=generator)
    ids[:, 0], ids[:, -1], ids[0, 4], ids[1, 6] = 2, 3, 3, 3
    return ids
